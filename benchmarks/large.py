"""One table, 10,000 rows, all 2-way marginals, on ever larger domains, beside its peers: from 8^5 cells to 10^12.

Each run is a fresh process, and its CPU seconds are those of the whole process: imports, compilation, error bars.
All systems get the same rows. The figures of dpsynth's SWIFT are of another machine and another generator.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import peers
import report
from peers import DELTA, EPSILON, Marginals

ROWS = 10_000
SIZES = {"8^5": (5, 8), "10^6": (6, 10), "10^8": (8, 10), "10^12": (12, 10)}
"""By the cells of the domain: how many attributes, of how many values."""
SYSTEMS = {
    "dpjoin": "dpjoin",
    "mwem": "MWEM+PGM on mbi",
    "aim": "AIM on mbi",
    "all_pairs": "all pairs once on mbi",
    "opendp_fixed": "OpenDP, Fixed",
    "opendp_aim": "OpenDP, AIM",
    "smartnoise_mwem": "smartnoise, MWEM",
    "smartnoise_mst": "smartnoise, MST",
    "smartnoise_aim": "smartnoise, AIM",
}
ADAPTIVE = ("mwem", "aim", "opendp_aim", "smartnoise_mwem", "smartnoise_aim")
"""Peers that choose what to measure by the errors of what is asked. Others measure all pairs, which only domains that
can be written down allow, or a tree of them whatever is asked (MST)."""
SWIFT = {"8^5": (26, 54, 11.6), "10^6": (44, 74, 13), "10^8": (43, 98, 15), "10^12": (61, 168, 16)}
"""CPU seconds, largest and mean absolute error."""
SMARTNOISE = ("mwem", "mst", "aim")
FASTER = {"8^5": 20, "10^6": 20, "10^8": 10, "10^12": 10}
"""How many times dpjoin's CPU seconds the fastest peer should take."""
SWIFT_TIME, MEMORY = 0.1, 400.0
"""Of SWIFT's CPU seconds; megabytes."""
AGAIN = 180.0
"""A peer whose first run takes more CPU seconds than this runs once."""

LIMIT = 30.0
"""Minutes, for one run of a peer."""

Cell = dict[str, Any]
Cells = dict[str, dict[str, Cell]]
"""By size, then by system."""


def rounds_of(size: str) -> int:
    """Of MWEM+PGM: one for each pair of the smallest domain, as in single_table.py; one for each column of others."""
    return 10 if size == "8^5" else SIZES[size][0]


def child(system: str, size: str, rows: int, seed: int) -> Cell:
    """Run once in this process. Data come from two seeds in turn, so that no luck of one is taken for the rule."""
    warnings.simplefilter("ignore")
    attributes, values = SIZES[size]
    data = peers.make_rows(attributes, values, rows, 5 + seed % 2)
    rng = np.random.default_rng(seed)
    ways: dict[str, Callable[[], tuple[Marginals, Cell]]] = {
        "dpjoin": lambda: with_dpjoin(data, values),
        "mwem": lambda: (peers.mwem_pgm(data, values, rng, rounds_of(size)), {}),
        "aim": lambda: (peers.aim(data, values, rng), {}),
        "all_pairs": lambda: (peers.all_pairs(data, values, rng), {}),
        "opendp_fixed": lambda: (peers.opendp_table(data, values, "Fixed"), {}),
        "opendp_aim": lambda: (peers.opendp_table(data, values, "AIM"), {}),
        **{f"smartnoise_{way}": lambda way=way: (peers.smartnoise(data, values, way), {}) for way in SMARTNOISE},
    }
    wall = time.perf_counter()
    try:
        answers, more = ways[system]()
    except peers.TooLarge as reason:
        return {"none": str(reason)}
    found = {"cpu": peers.cpu_seconds(), "wall": time.perf_counter() - wall, "peak_mb": report.peak_mb()}
    exact = peers.exact_pairs(data, values)
    off = np.concatenate([np.abs(answers[pair] - exact[pair]) for pair in exact])
    if "bars" in more:
        more["covered"] = float((off <= more.pop("bars")).mean())
    return {**found, "max": float(off.max()), "mean": float(off.mean()), **more}


def with_dpjoin(data: dict[str, np.ndarray], values: int) -> tuple[Marginals, Cell]:
    """`dpjoin.release` end to end, answers and error bars included."""
    import pyarrow as pa

    import dpjoin as dj

    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=tuple(data)),),
        attributes=tuple(dj.Attribute(name=a, range=(0, values - 1)) for a in data),
    )
    workload = dj.Workload.marginals(schema, 2)
    # `pa.table` would import pandas to look at numpy's arrays, which is no part of what is measured.
    columns = [pa.Array.from_buffers(pa.int64(), len(v), [None, pa.py_buffer(v)]) for v in data.values()]
    table = pa.Table.from_arrays(columns, names=list(data))
    release = dj.release(schema, workload, {"t": table}, dj.Budget(epsilon=EPSILON, delta=DELTA))
    answers = np.split(release.answer(), len(workload.groups))
    by_pair = {(g.scope[0], g.scope[1]): a for g, a in zip(workload.groups, answers, strict=True)}
    return by_pair, {"bars": release.error(), "strategy": release.facts["strategy"]}


def measure(system: str, size: str, rows: int, runs: int, limit: float, python: str) -> Cell:
    """Medians over runs, each in a fresh process; or why there is none."""
    each: list[Cell] = []
    for seed in range(runs):
        one = _in_child(system, size, rows, seed, limit, python)
        if "none" in one:
            return one
        each.append(one)
        if system != "dpjoin" and one["cpu"] > AGAIN:
            break
    numbers = {key: median(r[key] for r in each) for key in each[0] if key != "strategy"}
    return {**numbers, **{k: each[0][k] for k in ("strategy",) if k in each[0]}, "runs": each}


def _in_child(system: str, size: str, rows: int, seed: int, limit: float, python: str) -> Cell:
    call = [python, __file__, "--child", system, size, str(rows), str(seed)]
    before = _children_cpu()
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        spent = _children_cpu() - before
        return {"none": f"stopped after {limit:,.0f} s, {spent:,.0f} CPU s", "spent": spent}
    if done.returncode:
        if system == "dpjoin":
            raise RuntimeError(done.stderr)
        return {"none": f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", "failed": True}
    return json.loads(done.stdout.splitlines()[-1])


def _children_cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


# The page --------------------------------------------------------------------------------------------------------


def targets(size: str, cells: dict[str, Cell], against: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """For each figure its value against these peers, and whether the target is met."""
    ours = cells["dpjoin"]
    done = {s: cells[s] for s in against if "cpu" in cells.get(s, {})}
    stopped = {s: cells[s] for s in against if "spent" in cells.get(s, {})}
    found = {}
    if done:
        fastest = min(done, key=lambda s: done[s]["cpu"])
        ratio = done[fastest]["cpu"] / ours["cpu"]
        found["cpu"] = (f"{ratio:.1f} ({SYSTEMS[fastest]})", ratio >= FASTER[size])
    elif stopped:
        fastest = min(stopped, key=lambda s: stopped[s]["spent"])
        ratio = stopped[fastest]["spent"] / ours["cpu"]
        found["cpu"] = (f"more than {ratio:.1f} ({SYSTEMS[fastest]}, stopped)", ratio >= FASTER[size])
    for figure in ("max", "mean") if done else ():
        best = min(done, key=lambda s: done[s][figure])
        ratio = ours[figure] / done[best][figure]
        found[figure] = (f"{ratio:.2f} ({SYSTEMS[best]})", ratio <= 1)
    return found


def page(found: dict[str, Any]) -> str:
    cells: Cells = found["cells"]
    parts = [
        "# Large domains",
        f"One table of {found['rows']:,} rows (six classes and a chain, skewed), all 2-way marginals, "
        f"epsilon {EPSILON:g}, delta {DELTA:g}. Medians over runs, each in a fresh process; all systems get the same "
        "rows, run for run. CPU seconds are those of the whole process: imports and compilation, and for dpjoin its "
        "90 % error bars. Errors are over all 2-way cells, of each model's own answers.",
        "![CPU seconds and largest error against the number of cells](../../docs/figures/large.svg)",
        _results(cells),
        *_reasons(cells),
        _words(),
        *_warm(),
        "## Targets",
        "Adaptive peers (MWEM, AIM) choose what to measure by the errors of what is asked. Measuring all pairs once, "
        "with a single fit, serves only domains that can be written down. MST measures a tree of pairs, whatever is "
        "asked: quick, and the other pairs are as the tree has them.",
        _targets(cells),
        "## SWIFT, measured elsewhere",
        "dpsynth's SWIFT was measured **on another machine, on data from another generator** of the same kind, so its "
        f"figures say about what to expect and not more. Aim: {SWIFT_TIME:g} of its CPU seconds at no more error.",
        _swift(cells),
        "## How dpjoin did it",
        report.markdown_table(
            ["cells", "how"], [[s, c["dpjoin"]["strategy"]] for s, c in cells.items() if "dpjoin" in c]
        ),
        f"Made by `{found['command']}` with {report.versions('mbi', 'jax')}.",
    ]
    return "\n\n".join(parts) + "\n"


def _results(cells: Cells) -> str:
    rows = []
    for size, some in cells.items():
        for system, cell in some.items():
            row = [size, SYSTEMS[system]]
            if "cpu" in cell:
                row += [f"{cell['cpu']:.1f}", f"{cell['wall']:.1f}", f"{cell['peak_mb']:.0f}"]
                row += [f"{cell['max']:.0f}", f"{cell['mean']:.1f}"]
                row += [f"{cell['covered']:.0%}" if "covered" in cell else "", str(len(cell["runs"]))]
            else:
                row += ["–"] * 5 + ["", "0"]
            rows.append([*row, "kept from an earlier command" if cell["kept"] else "in this command"])
    head = ["cells", "system", "CPU s", "wall s", "MB", "max error", "mean error", "bars cover", "runs", "measured"]
    return report.markdown_table(head, rows)


def _reasons(cells: Cells) -> list[str]:
    none = [f"* {SYSTEMS[s]}, {z}: {c['none']}." for z, some in cells.items() for s, c in some.items() if "none" in c]
    return ["Dashes:\n\n" + "\n".join(none)] if none else []


def _words() -> str:
    return (
        "MWEM+PGM (10 rounds at 8^5, else one for each column) and AIM (the paper's constants) are written here, in "
        f"`peers.py`, on mbi's graphical models; their models may take {peers.MODEL_MB:g} MB, as in the AIM paper. A "
        f"peer whose first run takes more than {AGAIN:g} CPU seconds runs once, on the rows of the first run. OpenDP's "
        "contingency tables and smartnoise need older packages than are installed here, so each runs under an "
        "interpreter of its own (`--opendp`, `--smartnoise`) or is absent. smartnoise's MWEM is pure (delta is not "
        "used); smartnoise reads the domain off the rows and takes their number as known."
    )


def _warm() -> list[str]:
    path = report.RESULTS / "speed.json"
    single = json.loads(path.read_text(encoding="utf-8")).get("single") if path.exists() else None
    if not single:
        return []
    return [
        f"Most of mbi's time is compilation: in [speed.md](speed.md), at 8^5, MWEM+PGM takes "
        f"{single['cpu_ratio']:.1f} times dpjoin's CPU in a fresh process and {single['cpu_ratio_warm']:.1f} times in "
        "a second run of the same process, which meets the same structures again."
    ]


def _targets(cells: Cells) -> str:
    rows = []
    for size, some in cells.items():
        if "dpjoin" not in some:
            continue
        wanted = {
            "cpu": ("CPU, fastest peer / dpjoin", f"at least {FASTER[size]}"),
            "max": ("max error, dpjoin / most accurate peer", "at most 1"),
            "mean": ("mean error, dpjoin / most accurate peer", "at most 1"),
        }
        adaptive, every = (targets(size, some, group) for group in (ADAPTIVE, [s for s in SYSTEMS if s != "dpjoin"]))
        for figure, (words, target) in wanted.items():
            rows.append([size, words, target, _verdict(adaptive.get(figure)), _verdict(every.get(figure))])
        memory = some["dpjoin"]["peak_mb"]
        rows.append(
            [size, "memory of dpjoin, MB", f"below {MEMORY:.0f}", *[_verdict((f"{memory:.0f}", memory < MEMORY))] * 2]
        )
    return report.markdown_table(["cells", "figure", "target", "against adaptive peers", "against every peer"], rows)


def _verdict(found: tuple[str, bool] | None) -> str:
    if found is None:
        return "no peer was run"
    value, met = found
    return f"{value}: {'met' if met else '**not met**'}"


def _swift(cells: Cells) -> str:
    rows = []
    for size, some in cells.items():
        if "dpjoin" not in some:
            continue
        here, (cpu, largest, mean) = some["dpjoin"], SWIFT[size]
        met = {
            "time": here["cpu"] <= SWIFT_TIME * cpu,
            "max": here["max"] <= largest,
            "mean": here["mean"] <= mean,
        }
        missed = ", ".join(name for name, good in met.items() if not good) or "none"
        row = [size, f"{here['cpu']:.1f}", str(cpu), f"{here['max']:.0f}", str(largest), f"{here['mean']:.1f}"]
        rows.append([*row, str(mean), missed])
    head = ["cells", "CPU s", "SWIFT", "max error", "SWIFT", "mean error", "SWIFT", "missed"]
    return report.markdown_table(head, rows)


COLOURS = {
    "dpjoin": "#dc2626",
    "mwem": "#2563eb",
    "aim": "#0f766e",
    "all_pairs": "#a16207",
    "opendp_fixed": "#7c3aed",
    "opendp_aim": "#db2777",
    "smartnoise_mwem": "#475569",
    "smartnoise_mst": "#0891b2",
    "smartnoise_aim": "#65a30d",
}


def draw(cells: Cells) -> None:
    """CPU seconds and largest error against cells, a line for each system."""
    from gap import Panel, _legend, _text, save  # imports dpjoin, which OpenDP's interpreter does not have

    shown = [s for s in SYSTEMS if any("cpu" in some.get(s, {}) for some in cells.values())]
    parts = [_text(70, 24, "One table of 10,000 rows, all 2-way marginals: lower is better", weight="bold")]
    for n, system in enumerate(shown):
        parts += _legend(70 + 210 * (n % 3), 48 + 20 * (n // 3), [(_mark(system), SYSTEMS[system])])
    top = 76 + 20 * -(-len(shown) // 3)
    for number, (figure, title) in enumerate({"cpu": "CPU seconds", "max": "Largest error, rows"}.items()):
        values = [c[figure] for some in cells.values() for c in some.values() if figure in c]
        ends = (min(values) / 1.5, max(values) * 1.5)
        ticks = [d * 10.0**p for p in range(-1, 5) for d in (1, 2, 5) if ends[0] <= d * 10.0**p <= ends[1]]
        panel = Panel(70 + number * 430, top, (1e4, 1e13), ends, 350, 270)
        panel.axes(title, "cells of the domain", "", y_ticks=ticks)
        for system in reversed(shown):  # dpjoin on top
            points = [
                (float(SIZES[z][1] ** SIZES[z][0]), some[system][figure])
                for z, some in cells.items()
                if figure in some.get(system, {})
            ]
            panel.line(points, COLOURS[system])
            panel.dots(points, COLOURS[system], square=system != "dpjoin")
        parts += panel.out
    save("large", 880, top + 324, parts)


def _mark(system: str) -> str:
    colour = COLOURS[system]
    dot = '<circle cx="12" cy="0" r="4.5"' if system == "dpjoin" else '<rect x="8" y="-4" width="8" height="8"'
    return f'<path d="M0 0h24" stroke="{colour}" stroke-width="2"/>{dot} fill="{colour}"/>'


# ------------------------------------------------------------------------------------------------------------------


def put(found: dict[str, Any]) -> None:
    """Written after each cell, whole or not at all."""
    report.RESULTS.mkdir(exist_ok=True)
    for name, text in (("large.json", json.dumps(found, indent=1) + "\n"), ("large.md", page(found))):
        part = report.RESULTS / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(report.RESULTS / name)
    draw(found["cells"])


def before(rows: int) -> Cells:
    """What the results have. Cells of tables of another size are not mixed with these."""
    path = report.RESULTS / "large.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return data["cells"] if "cells" in data and data["rows"] == rows else {}


def in_order(cells: Cells) -> Cells:
    return {z: {s: cells[z][s] for s in SYSTEMS if s in cells[z]} for z in SIZES if cells.get(z)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="of dpjoin")
    parser.add_argument("--peer-runs", type=int, default=3, help="of each peer, if one takes less than three minutes")
    parser.add_argument("--limit", type=float, default=LIMIT, help="minutes, for one run of a peer")
    parser.add_argument("--systems", help=f"measure these, keep the others' rows; of {','.join(SYSTEMS)}")
    parser.add_argument("--sizes", help=f"likewise; of {','.join(SIZES)}")
    parser.add_argument("--resume", action="store_true", help="go on where the last command was stopped")
    parser.add_argument(
        "--opendp",
        metavar="PYTHON",
        default=os.environ.get("OPENDP_PYTHON"),
        help="an interpreter with opendp[mbi,polars] and pandas; also from OPENDP_PYTHON",
    )
    parser.add_argument(
        "--smartnoise",
        metavar="PYTHON",
        default=os.environ.get("SMARTNOISE_PYTHON"),
        help="an interpreter with smartnoise-synth; also from SMARTNOISE_PYTHON",
    )
    parser.add_argument("--quick", action="store_true", help="small, once, dpjoin only, nothing written: does it run?")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--child", nargs=4, metavar=("SYSTEM", "SIZE", "ROWS", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        system, size, rows, seed = options.child
        print(json.dumps(child(system, size, int(rows), int(seed))))
        return 0
    sizes = _listed(parser, options.sizes, SIZES, ("8^5", "10^12") if options.quick else tuple(SIZES))
    systems = _listed(parser, options.systems, SYSTEMS, ("dpjoin",) if options.quick else tuple(SYSTEMS))
    pythons = {s: _interpreter(s, options) for s in systems}
    if missing := [s for s in systems if pythons[s] is None]:
        names = ", ".join(SYSTEMS[s] for s in missing)
        print(f"skipped: {names}; see --opendp, --smartnoise and the bench extra", file=sys.stderr)
    # A package that is installed has its bytecode; so has what is run from its source.
    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=1)
    rows = 1000 if options.quick else ROWS
    found: dict[str, Any] = {"rows": rows, "command": _command(options), "cells": {}}
    write = not (options.quick or options.no_write)
    if write:
        old = before(rows)
        kept = {z: {s: {**c, "kept": c["kept"] or not options.resume} for s, c in old[z].items()} for z in old}
        found["cells"] = in_order(kept)
    for size in sizes:
        for system, python in pythons.items():
            if python is None:
                continue
            if options.resume and not found["cells"].get(size, {}).get(system, {"kept": True})["kept"]:
                continue
            runs = 1 if options.quick else options.runs if system == "dpjoin" else options.peer_runs
            cell = measure(system, size, rows, runs, options.limit * 60, python)
            print(f"{size:>6}, {SYSTEMS[system]}: {_brief(cell)}", file=sys.stderr, flush=True)
            found["cells"].setdefault(size, {})[system] = {**cell, "kept": False}
            found["cells"] = in_order(found["cells"])
            if write:
                put(found)
    print(page(found))
    return int(any(c.get("failed") for some in found["cells"].values() for c in some.values()))


def _listed(
    parser: argparse.ArgumentParser, words: str | None, known: Sequence[str] | dict[str, Any], default: Sequence[str]
) -> Sequence[str]:
    if words is None:
        return default
    names = words.split(",")
    if unknown := [n for n in names if n not in known]:
        parser.error(f"unknown: {unknown[0]!r}; known: {', '.join(known)}")
    return names


def _interpreter(system: str, options: argparse.Namespace) -> str | None:
    """The Python that runs a system; None if there is none."""
    for prefix, python in (("opendp", options.opendp), ("smartnoise", options.smartnoise)):
        if system.startswith(prefix):
            return python if python and Path(python).exists() else None
    return sys.executable if system == "dpjoin" or find_spec("mbi") is not None else None


def _command(options: argparse.Namespace) -> str:
    """As it was given, but without the path of an interpreter."""
    words: list[object] = ["--runs", options.runs, "--peer-runs", options.peer_runs]
    words += ["--systems", options.systems] if options.systems else []
    words += ["--sizes", options.sizes] if options.sizes else []
    words += ["--resume"] if options.resume else []
    words += ["--limit", options.limit] if options.limit != LIMIT else []
    words += ["--opendp", "PYTHON"] if options.opendp else []
    words += ["--smartnoise", "PYTHON"] if options.smartnoise else []
    return report.command("large.py", *words)


def _brief(cell: Cell) -> str:
    shown = {k: v for k, v in cell.items() if isinstance(v, float)}
    return cell.get("none") or ", ".join(f"{k} {report.number(v)}" for k, v in shown.items())


if __name__ == "__main__":
    sys.exit(main())
