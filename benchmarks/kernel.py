"""Rounds of multiplicative weights at the speed of memory, and among a million queries.

`python benchmarks/kernel.py [--quick]`. The yardstick is one pass over the table, which reads and writes every cell.
It is timed between the rounds, in the same process, so that both see the same machine and the same cache. Each part
runs in a fresh process, with the library's own rounds, a real Curator and one BLAS thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from statistics import mean, median
from typing import Any

import numpy as np

import report

EPSILON, DELTA = 1.0, 1e-6
ROUND_TARGET, PRODUCT_TARGET, SELECT_TARGET, EQUAL_TARGET = 3.0, 20.0, 20.0, 1e-12
"""Passes, passes, milliseconds, relative difference."""
VALUES, ROWS = 10, 10_000
SHAPES = ("flat", "geometric", "one far ahead", "all different")


def milliseconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def make_rows(attributes: int) -> dict[str, np.ndarray]:
    """Skewed columns, each often the one before it."""
    rng = np.random.default_rng(5)
    data: dict[str, np.ndarray] = {}
    previous = rng.integers(0, VALUES, ROWS)
    for n in range(attributes):
        own = np.minimum(rng.geometric(0.3, ROWS) - 1, VALUES - 1)
        previous = np.where(rng.random(ROWS) < 0.4, previous, own)
        data[f"x{n}"] = previous
    return data


def one_pass(table: Any) -> float:
    """Read and write every cell once."""
    cells = table._cells
    return milliseconds(lambda: np.multiply(cells, 1.0, out=cells))


def cold_pass(table: Any, other: np.ndarray) -> float:
    """The same after other work has emptied the cache."""
    other += 1.0
    return one_pass(table)


def rounds_on(schema: Any, workload: Any, data: dict[str, np.ndarray]) -> Any:
    """The rounds of a release with the profile `paper`, ready to be played one by one."""
    import pyarrow as pa

    import dpjoin as dj
    from dpjoin.engine.duck import DuckEngine
    from dpjoin.measure.join import domain_of
    from dpjoin.model.multiplicative_weights import Iterate
    from dpjoin.paper.alg2_pmw import Rounds, paper_rounds
    from dpjoin.privacy.accounting import Approximate, Pure, Split
    from dpjoin.privacy.curator import Curator

    engine = DuckEngine(schema, {"t": pa.table(data)}, attributes=workload.attributes)
    curator = Curator(engine, Split(budget=dj.Budget(epsilon=EPSILON, delta=DELTA), paper=True))
    bound = curator.public_bound()
    assert bound is not None
    total = float(len(next(iter(data.values()))))
    domain, queries = domain_of(workload), len(workload)
    count = paper_rounds(total=total, bound=1, epsilon=EPSILON, delta=DELTA, cells=domain.cells, queries=queries)
    each = Pure(Fraction(round(2**60 * EPSILON / (16 * math.sqrt(count * math.log(1 / DELTA)))), 2**60))
    curator.prepare(list(workload.groups))
    curator.reserve_rounds(2 * count, each, Approximate(Fraction(1, 2), Fraction(DELTA) / 2))
    table = Iterate(domain, total, [g.scope for g in workload.groups])
    return Rounds(curator, list(workload.groups), table, bound, each), count


def dense(attributes: int, turns: int) -> dict[str, Any]:
    """Rounds with all 2-way marginals: queries are chosen and measured, and every pair is updated in turn."""
    import dpjoin as dj
    from dpjoin.model.threads import one_blas_thread
    from dpjoin.paper.alg2_pmw import Learned

    data = make_rows(attributes)
    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=tuple(data)),),
        attributes=tuple(dj.Attribute(name=a, range=(0, VALUES - 1)) for a in data),
    )
    workload = dj.Workload.marginals(schema, 2)
    rng = np.random.default_rng(0)
    names = list(data)
    places = [tuple(names.index(a) for a in g.scope) for g in workload.groups]
    times: dict[tuple[int, ...], list[float]] = {place: [] for place in places}
    passes, fresh = [], []
    with one_blas_thread():
        rounds, count = rounds_on(schema, workload, data)
        turns = min(turns, (count - 1) // len(places))
        one_pass(rounds.table)
        for turn in range(turns + 1):
            for group, place in zip(workload.groups, places, strict=True):
                cell = int(rng.integers(len(group)))
                passes.append(one_pass(rounds.table))

                def play(group: Any = group, cell: int = cell) -> None:
                    learned = rounds.ask()
                    rounds.follow(Learned(group, cell, learned.step, learned.miss))

                took = milliseconds(play)
                if rounds.table._rounds == 0:
                    fresh.append(took)  # this round also worked everything out anew
                elif turn:
                    times[place].append(took)
    every = [t for each in times.values() for t in each]
    by_place = {" ".join(map(str, place)): median(each) for place, each in times.items()}
    unit = median(passes)
    return {
        "cells": VALUES**attributes,
        "pass_ms": unit,
        "pass_ms_low_high": [min(passes), max(passes)],
        "round_ms": median(every),
        "round_ms_low_high": [min(every), max(every)],
        "fresh_ms": median(fresh) if fresh else None,
        "passes": median(every) / unit,
        "mean_passes": mean([*every, *fresh]) / mean(passes),
        "worst_passes": max(by_place.values()) / unit,
        "by_place": {place: took / unit for place, took in by_place.items()},
        "rounds": len(every) + len(fresh),
        "peak_mb": report.peak_mb(),
    }


def product(side: int, kind: str, count: int, most: int) -> dict[str, Any]:
    """Rounds among side x side product queries on side x side cells."""
    import dpjoin as dj
    from dpjoin.model.threads import one_blas_thread

    rng = np.random.default_rng(1)
    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=("a", "b")),),
        attributes=tuple(dj.Attribute(name=a, range=(0, side - 1)) for a in ("a", "b")),
    )
    weights = {a: rng.integers(0, 2, (side, side)) if kind == "0/1" else rng.random((side, side)) for a in ("a", "b")}
    workload = dj.Workload.crossed(schema, weights)
    first = np.minimum(rng.geometric(5 / side, count) - 1, side - 1)
    data = {"a": first, "b": (first + rng.geometric(10 / side, count)) % side}
    passes, cold, times, other = [], [], [], np.zeros(2**23)
    with one_blas_thread():
        began = time.perf_counter()
        rounds, planned = rounds_on(schema, workload, data)
        rounds.ask()
        ready = time.perf_counter() - began
        first = milliseconds(lambda: rounds.follow(rounds.ask()))
        all_answers = milliseconds(lambda: rounds.table.answers(workload.groups[0]))
        for done in range(min(most, planned - 3)):
            if done % 10 == 0:
                cold.append(cold_pass(rounds.table, other))
            passes.append(one_pass(rounds.table))
            times.append(milliseconds(lambda: rounds.follow(rounds.ask())))
    return {
        "queries": len(workload),
        "cells": workload.cells,
        "weights": kind,
        "rows": count,
        "rounds": len(times),
        "ready_s": ready,
        "first_ms": first,
        "all_answers_ms": all_answers,
        "pass_ms": median(passes),
        "pass_ms_low_high": [min(passes), max(passes)],
        "round_ms": median(times),
        "round_ms_low_high": [min(times), max(times)],
        "passes": median(times) / median(passes),
        "mean_passes": mean(times) / mean(passes),
        "cold_pass_ms": median(cold),
        "mean_cold_passes": mean(times) / mean(cold),
        "peak_mb": report.peak_mb(),
    }


def scores_of(shape: str, count: int) -> tuple[np.ndarray, Fraction]:
    """Whole scores of several shapes, and a rate."""
    rng = np.random.default_rng(2)
    if shape == "flat":
        return rng.integers(0, 1000, count), Fraction(1, 10_000)
    if shape == "geometric":
        return rng.geometric(0.01, count), Fraction(1, 20)
    if shape == "all different":
        return rng.permutation(count), Fraction(20, count)
    scores = rng.integers(0, 1000, count)
    scores[count // 2] = 10**6
    return scores, Fraction(1, 10)


def select(counts: list[int], repetitions: int) -> dict[str, Any]:
    from dpjoin.privacy.noise import exponential_choice

    found: dict[str, Any] = {}
    for shape, count in itertools.product(SHAPES, counts):
        scores, rate = scores_of(shape, count)
        times = [milliseconds(lambda s=scores, r=rate: exponential_choice(s, rate=r)) for _ in range(repetitions)]
        found.setdefault(shape, {})[str(count)] = {"ms": median(times), "low_high": [min(times), max(times)]}
    return found


def equal(attributes: int, count: int) -> dict[str, Any]:
    """The incremental rounds beside the plain ones: the same noise, full passes."""
    import dpjoin as dj

    data = make_rows(attributes)
    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=tuple(data)),),
        attributes=tuple(dj.Attribute(name=a, range=(0, VALUES - 1)) for a in data),
    )
    workload = dj.Workload.marginals(schema, 2)
    rounds, most = rounds_on(schema, workload, data)
    table, domain = np.full((VALUES,) * attributes, ROWS / VALUES**attributes), rounds.table.domain
    total, differ, slow, fast = np.zeros_like(table), 0, [], []
    count = min(count, most - 1)
    for done in range(count):
        total += table
        answers = [domain.marginal(table, g.scope).reshape(-1) for g in workload.groups]
        ours = [rounds.table.answers(g) for g in workload.groups]
        differ += any(np.any(np.rint(a) != np.rint(b)) for a, b in zip(answers, ours, strict=True))
        learned = rounds.ask()
        if done == count - 1:
            break
        fast.append(milliseconds(lambda learned=learned: rounds.follow(learned)))
        place = np.unravel_index(learned.index, learned.group.answer_shape)
        at = dict(zip(learned.group.scope, map(int, place), strict=True))
        started = time.perf_counter()
        weights = np.zeros((VALUES,) * attributes)
        weights[tuple(at.get(a, slice(None)) for a in domain.attributes)] = 1.0
        table = table * np.exp(weights * learned.step)
        table *= ROWS / table.sum()
        slow.append(1000 * (time.perf_counter() - started))
    off = np.abs(rounds.table.sum_of_tables().reshape(table.shape) / total - 1).max()
    return {
        "cells": VALUES**attributes,
        "rounds": count,
        "largest_relative_difference": float(off),
        "rounds_with_other_scores": differ,
        "naive_update_ms": median(slow),
        "update_ms": median(fast),
    }


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "dense": dense,
    "product": product,
    "select": select,
    "equal": equal,
}


def in_child(part: str, *arguments: object) -> dict[str, Any]:
    call = [sys.executable, __file__, "--child", part, json.dumps(arguments)]
    done = subprocess.run(call, check=True, capture_output=True, text=True)
    print(f"{part} {arguments} done", file=sys.stderr, flush=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(*, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"quick": quick}
    found["dense"] = [in_child("dense", d, 2 if quick else 12) for d in ((3, 4) if quick else (5, 6, 7))]
    side, most = (400, 5) if quick else (1000, 100)
    kinds = [("0/1", ROWS), ("16-bit", ROWS), ("0/1", 100 * ROWS)]
    found["product"] = [in_child("product", side, kind, count, most) for kind, count in kinds]
    found["select"] = in_child("select", [1000] if quick else [10**4, 10**5, 10**6], 3 if quick else 15)
    found["equal"] = in_child("equal", 3 if quick else 5, 10 if quick else 200)
    return found


def verdict(value: float, target: float) -> str:
    return "met" if value <= target else "not met"


def span(low_high: list[float]) -> str:
    return f"{report.number(low_high[0])} to {report.number(low_high[1])}"


def page(found: dict[str, Any]) -> str:
    number = report.number
    rows = [
        [
            f"{d['cells']:,}",
            number(d["pass_ms"]),
            span(d["pass_ms_low_high"]),
            number(d["round_ms"]),
            span(d["round_ms_low_high"]),
            number(d["passes"]),
            number(d["worst_passes"]),
            number(d["mean_passes"]),
            f"{d['peak_mb']:.0f}",
        ]
        for d in found["dense"]
    ]
    last = found["dense"][-1]
    size = 1 + max(int(n) for place in last["by_place"] for n in place.split())
    grid = [
        [f"axis {i}", *(number(last["by_place"][f"{i} {j}"]) if j > i else "" for j in range(1, size))]
        for i in range(size - 1)
    ]
    products = [
        [
            f"{p['queries']:,}",
            f"{p['cells']:,}",
            p["weights"],
            f"{p['rows']:,}",
            f"{p['rounds']:,}",
            number(p["pass_ms"]),
            number(p["round_ms"]),
            span(p["round_ms_low_high"]),
            number(p["passes"]),
            number(p["mean_passes"]),
            verdict(p["mean_passes"], PRODUCT_TARGET),
            number(p["cold_pass_ms"]),
            number(p["mean_cold_passes"]),
            verdict(p["mean_cold_passes"], PRODUCT_TARGET),
            number(p["all_answers_ms"]),
            number(p["first_ms"]),
            f"{p['peak_mb']:.0f}",
        ]
        for p in found["product"]
    ]
    counts = list(next(iter(found["select"].values())))
    choices = [[shape, *(number(each[c]["ms"]) for c in counts), span(each[counts[-1]]["low_high"])]
               for shape, each in found["select"].items()]  # fmt: skip
    slowest = max(each[counts[-1]]["ms"] for each in found["select"].values())
    same = found["equal"]
    return "\n\n".join(
        [
            "# The kernel of multiplicative weights",
            f"Made by `{report.command('kernel.py', *['--quick'] * found['quick'])}` with {report.versions()}. "
            "Times are of one machine that may have been busy; compare within this page only. "
            "A pass reads and writes every cell once; it is timed between the rounds.",
            "![Milliseconds of a pass, a round and a choice](../../docs/figures/kernel.svg)",
            "## A round with all 2-way marginals",
            f"Attributes of {VALUES} values. A round chooses a query among all cells of all pairs, measures it and "
            "updates the table and all marginals; the pairs are updated in turn. "
            "Milliseconds are medians, with the least and the largest; `worst pair` is the median of the slowest pair "
            "of axes, and `mean` counts the rounds that work everything out anew, too.",
            report.markdown_table(
                ["cells", "pass ms", "from to", "round ms", "from to", "round in passes", "worst pair", "mean", "MB"],
                rows,
            ),
            f"Target: at most {ROUND_TARGET:g} passes at {last['cells']:,} cells: "
            f"{verdict(last['worst_passes'], ROUND_TARGET)} by the worst pair ({number(last['worst_passes'])}), "
            f"{verdict(last['mean_passes'], ROUND_TARGET)} by the mean ({number(last['mean_passes'])}).",
            f"By the two axes of the slab, in passes, at {last['cells']:,} cells (the last axis is the one that lies "
            "closest together in memory):",
            report.markdown_table(["", *(f"axis {j}" for j in range(1, size))], grid),
            "## A round among product queries",
            "Every product of a row of one matrix and a row of another. All answers are two matrix products, which "
            "is nearly all of a round. The table fits into the processor's cache; a cold pass is one after other work "
            "has emptied that, as it is with larger tables.",
            report.markdown_table(
                [
                    "queries",
                    "cells",
                    "weights",
                    "rows",
                    "rounds",
                    "pass ms",
                    "round ms",
                    "from to",
                    "median in passes",
                    "mean",
                    f"at most {PRODUCT_TARGET:g}",
                    "cold pass ms",
                    "mean in cold passes",
                    f"at most {PRODUCT_TARGET:g}",
                    "all answers ms",
                    "first round ms",
                    "MB",
                ],
                products,
            ),
            "## Exact selection",
            "Milliseconds of one exact choice by the exponential mechanism, by the number of scores; at the right the "
            "least and the largest of the last column.",
            report.markdown_table(["scores", *(f"{int(c):,}" for c in counts), "from to"], choices),
            f"Target: below {SELECT_TARGET:g} ms at {int(counts[-1]):,} scores: {verdict(slowest, SELECT_TARGET)}.",
            "## The same as the plain loop",
            f"{same['rounds']} rounds on {same['cells']:,} cells with the same noise: the sums of all tables differ by "
            f"{same['largest_relative_difference']:.1e} at most, relatively (target {EQUAL_TARGET:g}: "
            f"{verdict(same['largest_relative_difference'], EQUAL_TARGET)}), and the rounded answers, hence the scores "
            f"and the choices, in {same['rounds_with_other_scores']} rounds. An update takes "
            f"{number(same['naive_update_ms'])} ms in full passes and {number(same['update_ms'])} ms here.",
            "",
        ]
    )


BLUE, RED, GREY = "#2563eb", "#dc2626", "#64748b"


def draw(found: dict[str, Any]) -> None:
    """Milliseconds of a pass and of a round against cells, and of an exact choice against scores."""
    from gap import Panel, _legend, _text, save

    parts = [_text(70, 24, "Multiplicative weights: milliseconds, lower is better", weight="bold")]
    marks = {"one pass over the cells": GREY, "one round, all 2-way marginals": RED, "one exact choice": BLUE}
    for n, (words, colour) in enumerate(marks.items()):
        parts += _legend(70 + 250 * n, 48, [(f'<path d="M0 0h24" stroke="{colour}" stroke-width="2"/>', words)])
    dense, select = found["dense"], found["select"]
    passes, rounds = ([(float(r["cells"]), r[f"{what}_ms"]) for r in dense] for what in ("pass", "round"))
    choices = [[(float(n), r["ms"]) for n, r in some.items()] for some in select.values()]
    drawn = [("A round at each size", "cells", [(passes, GREY), (rounds, RED)])]
    drawn.append(("A choice, four kinds of scores", "scores", [(line, BLUE) for line in choices]))
    for number, (title, across, lines) in enumerate(drawn):
        points = [p for line, _ in lines for p in line]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        ends = (min(ys) / 1.5, max(ys) * 1.5)
        ticks = [10.0**p for p in range(-3, 4) if ends[0] <= 10.0**p <= ends[1]]
        panel = Panel(70 + number * 430, 96, (min(xs) / 2, max(xs) * 2), ends, 350, 270)
        panel.axes(title, across, "", y_ticks=ticks)
        for line, colour in lines:
            panel.line(line, colour)
            panel.dots(line, colour)
        parts += panel.out
    save("kernel", 880, 420, parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small, nothing written: does it run?")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("PART", "ARGUMENTS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        part, given = options.child
        print(json.dumps(PARTS[part](*json.loads(given))))
        return 0
    found = measure(quick=options.quick)
    text = page(found)
    print(text)
    if not (options.quick or options.no_write):
        report.write("kernel", text, found)
        draw(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
