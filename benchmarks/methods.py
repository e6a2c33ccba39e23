"""Which method when: every method and its rivals on every instance: `benchmarks/methods.py [--runs N] [--only ROW]`."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dpjoin as dj
import joins
import queries
from accuracy import errors
from baselines import Answers, PerTable, whole_rho
from methods_plots import COLUMNS, OUTSIDE, Rows, draw_calibration, draw_methods
from report import RESULTS, command, markdown_table, number, versions, write
from uniformize import HOT, LIGHT, SIZE, hot_keys

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
SEED = 20230618
VALUES = 8
SKEW = 0.8
"""Value i of a and c has a weight of SKEW^i."""
SHIFTED = 1 / 3
"""Of a key's rows, those whose value is moved by a number that belongs to the key."""
SYNTHETIC = {
    "3k-64-flat": (3_000, 64, 0.0),
    "3k-64-zipf1": (3_000, 64, 1.0),
    "3k-1000-flat": (3_000, 1_000, 0.0),
    "3k-1000-zipf1": (3_000, 1_000, 1.0),
    "30k-64-zipf1": (30_000, 64, 1.0),
    "30k-1000-zipf1": (30_000, 1_000, 1.0),
    "30k-10k-zipf.5": (30_000, 10_000, 0.5),
}
"""Rows per table, keys, Zipf exponent."""
HARD = "30k-10k-zipf.5"
"""The row on which auto should be far better than either simple way."""
SIMPLE_WAYS = {
    "table by table, then joined, and the join as one table have": (
        "per_table_numpy",
        "per_table_raw",
        "as_one",
    ),
    "dpjoin's own `per_table` has": ("per_table",),
}
"""Both readings of "per table" there: what an outsider would do, and what came of it here."""
OFTEN = tuple(SYNTHETIC)
"""Rows on which single runs scatter most beside what is compared, or cost least."""
DECLARED = ", bounds"
"""After the name of a query of three tables: its bounds on degrees are declared."""
WITHIN, BETTER_ON, FACTOR = 1.25, 0.8, 2.0
"""The targets: auto over the best column, the share of rows where it beats all outsiders, and how far on HARD."""
FIGURES = {"tv": "mean total variation", "max": "largest error"}

MOST_CELLS = 2**20
"""All pairs together make mbi's model one dense table. A larger one would not fit in a minute."""


FAILED = "failed"
"""How the reason for a dash starts when it is a bug."""


class NotHere(Exception):
    """A column that does not apply to a row, and why."""


# Instances -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Row:
    """An instance: tables, what is asked, and the truth, which is computed apart from dpjoin's engine."""

    name: str
    group: str
    schema: dj.Schema
    workload: dj.Workload
    tables: Mapping[str, pa.Table]

    @cached_property
    def exact(self) -> Answers:
        return self.marginals(self.joined())

    @cached_property
    def join_size(self) -> int:
        return round(float(self.exact[0].sum()))

    @cached_property
    def largest_degree(self) -> int:
        """Rows of one table that agree on all of its join attributes, at most."""
        found = 0
        with duckdb.connect() as connection:
            for name, keys in self.keys.items():
                connection.register("rows", self.tables[name])
                sql = f"SELECT max(n) FROM (SELECT count(*) AS n FROM rows GROUP BY {_columns(keys)})"
                found = max(found, connection.sql(sql).fetchall()[0][0])
        return found

    @cached_property
    def keys(self) -> dict[str, list[str]]:
        return {t.name: [a for a in t.attributes if a in self.schema.join_attributes] for t in self.schema.tables}

    def joined(self, most: int | None = None) -> dict[str, np.ndarray]:
        """The join, counted by the attributes that are asked about; with at most `most` rows per key of each table.

        Which rows stay is decided by a hash of their values, as a careful user would do.
        """
        asked = self.workload.attributes
        counts = []
        with duckdb.connect() as connection:
            for table in self.schema.tables:
                connection.register(f"rows_{table.name}", self.tables[table.name])
                keys, every = self.keys[table.name], _columns(table.attributes)
                order = f"row_number() OVER (PARTITION BY {_columns(keys)} ORDER BY hash({every}))"
                cut = f" QUALIFY {order} <= {most}" if most is not None else ""
                kept = [*keys, *(a for a in table.attributes if a in asked and a not in keys)]
                sql = f"SELECT {_columns(kept)}, count(*) AS n_{table.name}"
                sql += f" FROM (SELECT * FROM rows_{table.name}{cut}) GROUP BY ALL"
                counts.append(f"({sql}) AS {table.name}")
            product = " * ".join(f"n_{t.name}::DOUBLE" for t in self.schema.tables)
            sql = f"SELECT {_columns(asked)}, sum({product}) AS n FROM {' NATURAL JOIN '.join(counts)} GROUP BY ALL"
            found = connection.sql(sql).to_arrow_table()
        codes = {a: self.codes(a, found.column(a)) for a in asked}
        return {**codes, "n": found.column("n").to_numpy()}

    def codes(self, attribute: str, column: pa.ChunkedArray) -> np.ndarray:
        values = self.schema.attribute(attribute).values
        assert values is not None
        return pc.index_in(column, value_set=pa.array(values, type=column.type)).to_numpy()

    def marginals(self, joined: Mapping[str, np.ndarray]) -> Answers:
        """One flat array per group of the workload."""
        found = []
        for group in self.workload.groups:
            shape = self.schema.shape(group.scope)
            index = np.ravel_multi_index([joined[a] for a in group.scope], shape)
            found.append(np.bincount(index, weights=joined["n"], minlength=math.prod(shape)))
        return found


def synthetic(name: str) -> Row:
    """R(a, b) and S(b, c): n rows each, with the same popular keys b. The join is not a product of its sides."""
    rows, keys, power = SYNTHETIC[name]
    rng = np.random.default_rng([SEED, list(SYNTHETIC).index(name)])
    popular = 1 / np.arange(1, keys + 1) ** power
    weights = SKEW ** np.arange(VALUES)
    move = rng.integers(0, VALUES, keys)
    tables = {}
    for table, value in (("r", "a"), ("s", "c")):
        key = rng.choice(keys, rows, p=popular / popular.sum())
        drawn = rng.choice(VALUES, rows, p=weights / weights.sum())
        moved = np.where(rng.random(rows) < SHIFTED, move[key], 0)
        tables[table] = pa.table({"b": key, value: (drawn + moved) % VALUES})
    return _pair(name, "synthetic", tables, "b", keys, {"r": "a", "s": "c"}, VALUES)


def hot(name: str, *, alike: bool) -> Row:
    """The instances of `uniformize.py`, with the same seeds."""
    tables = hot_keys(np.random.default_rng([SEED, 0 if alike else 1]), alike=alike)
    return _pair(name, "hot keys", tables, "k", LIGHT + HOT, {"r": "a", "s": "b"}, SIZE)


def _pair(
    name: str, group: str, tables: Mapping[str, pa.Table], key: str, keys: int, value: Mapping[str, str], size: int
) -> Row:
    """Two tables with one attribute each. The key has a range, which `per_table` needs; no query is about it."""
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=(key, a)) for t, a in value.items()),
        (
            dj.Attribute(name=key, range=(0, keys - 1)),
            *(dj.Attribute(name=a, values=tuple(range(size))) for a in value.values()),
        ),
    )
    first, second = value.values()
    workload = dj.Workload.marginals(schema, [(first,), (second,), (first, second)])
    return Row(name, group, schema, workload, tables)


def real(name: str, tables: int, *, bounds: bool) -> Row:
    """A query of the development data: nothing is declared of it but domains, and bounds if asked."""
    if tables == 2:
        (query,) = queries.load([name])
        return Row(name, "two tables", query.schema, query.workload, query.tables)
    loaded = joins.load(name, bounds=bounds)
    assert loaded is not None
    workload = dj.Workload.marginals(loaded[0], (1, 2))
    return Row(name + DECLARED if bounds else name, "three tables", loaded[0], workload, loaded[1])


def instances() -> dict[str, Callable[[], Row]]:
    """All rows by name. Says one line when the development data are not there."""
    found: dict[str, Callable[[], Row]] = {n: partial(synthetic, n) for n in SYNTHETIC}
    found["hot-uniform"] = partial(hot, "hot-uniform", alike=True)
    found["hot-skewed"] = partial(hot, "hot-skewed", alike=False)
    files = sorted(queries.DATA.glob("*/queries.json"))
    if not files:
        print("skipped: no development data in ../shared/data (beside the repository)")
    described = [q for path in files for q in json.loads(path.read_text(encoding="utf-8"))]
    for q in sorted(described, key=lambda q: len(q["relations"])):
        name, tables = q["name"], len(q["relations"])
        found[name] = partial(real, name, tables, bounds=False)
        if name in joins.BOUNDS:
            found[name + DECLARED] = partial(real, name, tables, bounds=True)
    return found


def _columns(names: Sequence[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


# Columns ---------------------------------------------------------------------------------------------------------

Run = Callable[[np.random.Generator], tuple[Answers, dict[str, Any]]]


def column(name: str, row: Row) -> Run:
    """One way to answer a row, ready to be run; NotHere if it does not apply."""
    if name == "uniform":
        answers = [np.full(len(e), row.join_size / len(e)) for e in row.exact]
        return lambda _: (answers, {})
    if name in ("per_table_numpy", "per_table_raw", "per_table_laplace"):
        return _per_table_numpy(row, clip=name == "per_table_numpy", laplace=name == "per_table_laplace")
    if name == "flatten":
        return _flatten(row)
    as_one = "two_table" if len(row.schema.tables) == 2 else "multi_table"
    method = as_one if name in ("paper", "as_one") else name
    return lambda _: _released(row, method, "paper" if name == "paper" else "tight")


def _released(row: Row, method: str, profile: str) -> tuple[Answers, dict[str, Any]]:
    try:
        release = dj.release(row.schema, row.workload, row.tables, BUDGET, method=method, profile=profile)
    except dj.SpecError as error:
        raise NotHere(str(error)) from None
    facts = {}
    if method == "auto":
        facts = {"ran": release.method, "predicted": dict(release.facts.get("predicted_error", {}))}
    return np.split(release.answer(), np.cumsum([len(e) for e in row.exact])[:-1]), facts


def _per_table_numpy(row: Row, *, clip: bool, laplace: bool) -> Run:
    """What an outsider would do with numpy. It is told which keys occur."""
    # To this baseline a join attribute is one that is marked as a key.
    keyed = [
        dj.Attribute(name=a.name, key=True) if a.name in row.schema.join_attributes else a
        for a in row.schema.attributes
    ]
    baseline = PerTable(replace(row.schema, attributes=tuple(keyed)), row.workload, row.tables)
    whole = BUDGET.epsilon if laplace else whole_rho(BUDGET)
    return lambda rng: (baseline.answers(whole, rng, clip=clip, laplace=laplace), {})


def _flatten(row: Row) -> Run:
    """Keep tau rows per key, join, release the join as one table in which one row of the input moves 2 tau results.

    The synthesizer is Private-PGM (mbi): Gaussian noise on every marginal, then the graphical model that fits best.
    A dropped row may let another one in, hence twice. tau is the true largest degree, so nothing is dropped: a favour,
    since a user would have to guess tau or pay for it.
    """
    if len(row.schema.tables) > 2:
        raise NotHere("for two tables only")
    asked = row.workload.attributes
    cells = math.prod(row.schema.shape(asked))
    if cells > MOST_CELLS:
        raise NotHere(f"a model of {cells:,} cells is too large")
    try:
        import jax

        # Single precision is too little for millions of join results. Of the cache mbi itself says that it is slower.
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_enable_compilation_cache", False)
        from mbi import Domain, LinearMeasurement, estimation
    except ImportError:
        raise NotHere("mbi is not installed") from None
    counts = row.marginals(row.joined(row.largest_degree))
    scopes = [g.scope for g in row.workload.groups]
    domain = Domain(list(asked), list(row.schema.shape(asked)))
    sigma = 2 * row.largest_degree * math.sqrt(len(counts) / (2 * whole_rho(BUDGET)))

    def run(rng: np.random.Generator) -> tuple[Answers, dict[str, Any]]:
        seen = [
            LinearMeasurement(c + rng.normal(0, sigma, c.shape), s, stddev=sigma)
            for s, c in zip(scopes, counts, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimation.MirrorDescent().estimate(domain, seen)
        return [np.asarray(model.project(s).datavector(), dtype=float) for s in scopes], {}

    return run


# Figures ---------------------------------------------------------------------------------------------------------


def times(row: Row, name: str, runs: int) -> int:
    """Three times as often where single runs scatter and are cheap: all of the tight profile on made-up rows, and on
    real ones what auto is and what it nearly always chooses. Fifteen times where runs scatter most or cost least.
    """
    made_up = row.group in ("synthetic", "hot keys")
    scatter = name not in ("flatten", "paper") if made_up else name in ("capped", "clipped", "auto")
    if runs == 1 or not scatter:
        return runs
    return (15 if row.name in OFTEN else 3) * runs


def measure(row: Row, name: str, runs: int, most: int | None = None) -> dict[str, Any]:
    """Medians over the runs, and every run; or why there is nothing."""
    rng = np.random.default_rng([SEED, list(COLUMNS).index(name)])
    found = []
    try:
        run = column(name, row)
        for _ in range(1 if name == "uniform" else min(times(row, name, runs), most or sys.maxsize)):
            started = time.perf_counter()
            answers, facts = run(rng)
            seconds = time.perf_counter() - started
            found.append({**wrong(row, answers), "seconds": seconds, **facts})
    except NotHere as error:
        return {"none": str(error)}
    except Exception as error:  # a bug in one method must not cost the rows that follow; main says that there was one
        traceback.print_exc()
        return {"none": f"{FAILED}, {type(error).__name__}: {error}"}
    medians = {k: median(f[k] for f in found) for k in ("tv", "max", "cell", "moved", "seconds")}
    return {**medians, "dpjoin": dj.__version__, "runs": found}


def wrong(row: Row, answers: Answers) -> dict[str, float]:
    """`tv`, `max`: as in accuracy.py. In join results: `cell`, the mean absolute error of all cells; `moved`, half the
    absolute errors of a marginal added up, the mean over the marginals."""
    variation, largest = errors(row, answers)
    off = [np.abs(a - e) for a, e in zip(answers, row.exact, strict=True)]
    cell, moved = float(np.concatenate(off).mean()), float(np.mean([o.sum() / 2 for o in off]))
    return {"tv": variation, "max": largest, "cell": cell, "moved": moved}


def described(row: Row) -> dict[str, Any]:
    return {
        "group": row.group,
        "tables": len(row.schema.tables),
        "join_size": row.join_size,
        "largest_degree": row.largest_degree,
        "marginals": len(row.exact),
    }


# The page --------------------------------------------------------------------------------------------------------


def page(rows: Rows, runs: int) -> str:
    parts = [
        "# Which method when",
        f"Made by `{command('methods.py', '--runs', runs)}` with {versions('mbi', 'jax')}.",
        f"Budget (1, 1e-6), medians of {runs} runs or more, up to {_most(rows)} where single runs scatter and are "
        "cheap (the file of results has them all), best of each row in bold. A dash: the method does not apply.",
        *_kept(rows),
        _words(),
    ]
    for figure, title in (
        ("tv", "Mean total variation over the marginals"),
        ("max", "Largest error of any cell, as a share of the join size"),
    ):
        lines = [
            [n, f"{r['join_size']:,}", f"{r['largest_degree']:,}", *_cells(r["columns"], figure)]
            for n, r in rows.items()
        ]
        parts += [f"## {title}", markdown_table(["row", "join size", "largest degree", *COLUMNS.values()], lines)]
    parts += ["## Checks", *checks(rows)]
    parts += ["## What auto did", *_auto(rows)]
    reasons: dict[str, list[str]] = {}
    for name, row in rows.items():
        for c, cell in row["columns"].items():
            if "none" in cell:
                # After the first semicolon a message says what to do instead.
                reasons.setdefault(f"{COLUMNS[c]}: {cell['none'].split(';')[0]}", []).append(name)
    if reasons:
        parts += ["## Why there are dashes", "\n".join(f"* {why}. Rows: {'; '.join(n)}." for why, n in reasons.items())]
    return "\n\n".join(parts) + "\n"


def _most(rows: Rows) -> int:
    return max((len(c["runs"]) for row in rows.values() for c in row["columns"].values() if "runs" in c), default=0)


def _kept(rows: Rows) -> list[str]:
    """Which columns are of another version of dpjoin."""
    cells = [(c, cell) for row in rows.values() for c, cell in row["columns"].items() if "tv" in cell]
    kept = {c for c, cell in cells if cell.get("dpjoin") != dj.__version__}
    names = ", ".join(words for c, words in COLUMNS.items() if c in kept)
    return [f"Kept from a measurement of an earlier version: {names}."] if kept else []


def _words() -> str:
    rows = (
        "Rows: two synthetic tables R(a, b) and S(b, c), named by rows per table, keys and the popularity of keys, "
        f"which both tables share; a and c have {VALUES} values, mildly skewed, and for a third of the rows they "
        "depend on the key. Then the hot keys of `uniformize.py`, with values that are uniform or not. Then every "
        "query of the development data; nothing is declared of their tables, except bounds on degrees where the row "
        "says so. Asked: all 1- and 2-way marginals of the attributes that are not keys. Domains of real data are read "
        "off the data, which a real release must not do. Keys of synthetic tables have a declared range, others have "
        "none, so that `per_table` cannot serve them."
    )
    columns = {
        "uniform": "every cell alike; it knows the true join size, so it is not private",
        "paper": "`two_table` or `multi_table` with the paper's mechanisms and constants",
        "as_one": "the same, `tight`",
        "per_table_numpy": "each table alone with the whole budget, numpy noise, negative counts clipped, joined; it "
        "knows which keys occur, so it is not private",
        "per_table_raw": "the same with negative counts, which are no longer biased where keys have few rows, and from "
        "which no rows can be drawn",
        "per_table_laplace": "the same with Laplace noise, all of epsilon and no delta: the least noise there is "
        "for so few numbers, as long as keys are heavy",
        "flatten": "at most tau rows per key, joined, then Private-PGM (mbi) on the join as one table to which a row "
        "contributes 2 tau; it knows the true largest degree and takes it as tau, so it is not private, and where "
        "degrees are small this is worth most (dpjoin knows as much where bounds are declared). OpenDP's contingency "
        "tables would do the same, but need an older Polars and an older mbi",
    }
    lines = [f"* {COLUMNS[c]}: {words}." for c, words in columns.items()]
    return "\n".join([rows, "", *lines, "* The others are dpjoin's methods, profile `tight`."])


def _cells(columns: Mapping[str, Any], figure: str) -> Iterator[str]:
    least = min((c[figure] for c in columns.values() if figure in c), default=0.0)
    for name in COLUMNS:
        cell = columns.get(name, {})
        if figure not in cell:
            yield "–"
        else:
            yield f"**{number(cell[figure])}**" if cell[figure] <= least else number(cell[figure])


def checks(rows: Rows) -> list[str]:
    """The targets, each met or not."""
    ready = {n: r["columns"] for n, r in rows.items() if "tv" in r["columns"].get("auto", {})}
    if not ready:
        return ["auto was not run."]
    said = []
    for figure, words in FIGURES.items():
        far = []
        for name, columns in ready.items():
            best = min((c for c in columns if figure in columns[c]), key=lambda c: columns[c][figure])
            ratio = _ratio(columns["auto"][figure], columns[best][figure])
            if ratio > WITHIN:
                far.append(f"{name} ({ratio:.2f} times {COLUMNS[best]})")
        text = f"auto within {WITHIN} times the best column on every row, {words}: **{_met(not far)}**"
        said.append(text + (f", not on {len(far)} of {len(ready)}: {'; '.join(far)}." if far else "."))
    for figure, words in FIGURES.items():
        lost = []
        for name, columns in ready.items():
            others = [columns[c][figure] for c in OUTSIDE if figure in columns.get(c, {})]
            if others and columns["auto"][figure] >= min(others):
                lost.append(name)
        share = 1 - len(lost) / len(ready)
        text = f"auto better than everything that is not dpjoin's on {BETTER_ON:.0%} of the rows, {words}: "
        text += f"**{_met(share >= BETTER_ON)}**, {share:.0%} of {len(ready)}"
        said.append(text + (f"; not on {', '.join(lost)}." if lost else "."))
    if HARD in ready:
        columns = ready[HARD]
        for figure, words in FIGURES.items():
            for others, which in SIMPLE_WAYS.items():
                ratios = {
                    c: _ratio(columns[c][figure], columns["auto"][figure])
                    for c in which
                    if figure in columns.get(c, {})
                }
                each = ", ".join(f"{COLUMNS[c]} {r:.2f}" for c, r in ratios.items())
                met = bool(ratios) and min(ratios.values()) >= FACTOR
                text = f"On {HARD} {others} {FACTOR:g} times auto's error or more, {words}"
                said.append(f"{text}: **{_met(met)}**: {each}.")
    return ["\n".join(f"* {s}" for s in said)]


def _auto(rows: Rows) -> list[str]:
    lines = []
    for name, row in rows.items():
        cell = row["columns"].get("auto", {})
        if "runs" in cell:
            ran = ", ".join(f"{m} ({n})" for m, n in Counter(r["ran"] for r in cell["runs"]).most_common())
            ways = list(dict.fromkeys(w for r in cell["runs"] for w in r["predicted"]))
            expected = [(w, median(r["predicted"][w] for r in cell["runs"] if w in r["predicted"])) for w in ways]
            guesses = ", ".join(f"{w} {_round(v)}" for w, v in expected) or "nothing to choose"
            lines.append([name, ran, guesses, _round(cell["cell"]), _round(cell["moved"]), f"{cell['seconds']:.1f}"])
    head = ["row", "ran (times)", "predicted", "measured, per cell", "measured, moved", "seconds"]
    return [
        "Errors in join results, medians. Per cell: mean absolute error over all cells. Moved: half the absolute "
        "errors of a marginal added up, the mean over the marginals; it is total variation times join size, plus what "
        "the size is off. Seconds are of one machine that may have been busy.",
        markdown_table(head, lines),
    ]


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else (1.0 if above == 0 else math.inf)


def _round(value: float) -> str:
    """Three digits that matter, whole numbers from a thousand on."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def _met(yes: bool) -> str:
    return "met" if yes else "not met"


# ------------------------------------------------------------------------------------------------------------------


def put(rows: Rows, runs: int) -> None:
    write("methods", page(rows, runs), {"runs": runs, "rows": rows})
    draw_methods(rows)
    draw_calibration(rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows; others stay as they are in the results")
    parser.add_argument("--columns", nargs="+", metavar="COLUMN", choices=COLUMNS, help="likewise: these columns")
    parser.add_argument("--most", type=int, metavar="N", help="no column of a row more often than this")
    parser.add_argument("--resume", action="store_true", help="do not measure again what the results have")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one small instance, once, nothing written")
    options = parser.parse_args(arguments)
    ways = instances()
    runs = 1 if options.quick else options.runs
    wanted = options.only or (list(ways)[:1] if options.quick else list(ways))
    unknown = [n for n in wanted if n not in ways]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; rows: {', '.join(ways)}")
    columns = options.columns or list(COLUMNS)
    write_it = not options.no_write and not options.quick
    before = _before(runs) if options.resume or options.only or options.columns else {}
    if before is None:
        if write_it and not options.resume:
            print("nothing is written: the results have another number of runs, and this would replace part of them")
            write_it = False
        before = {}
    found = {n: before[n] for n in ways if n in before}
    for name in wanted:
        have = found.get(name, {}).get("columns", {})
        # Dashes are tried again: they cost little, and a method may have come to serve what it did not.
        missing = [c for c in columns if not (options.resume and "tv" in have.get(c, {}))]
        if not missing:
            continue
        row = ways[name]()
        new = {c: measure(row, c, runs, options.most) for c in missing}
        together = {c: (have | new)[c] for c in COLUMNS if c in have | new}
        found[name] = {**described(row), "columns": together}
        found = {n: found[n] for n in ways if n in found}
        shown = {c: f"{v['tv']:.4f} ({v['seconds']:.1f} s)" if "tv" in v else "–" for c, v in new.items()}
        print(name, shown, flush=True)
        if write_it:
            put(found, runs)
    if options.quick:
        print("\n".join(checks(found)))
    elif write_it:
        put(found, runs)
    cells = {f"{n}, {c}": v for n in wanted for c, v in found[n]["columns"].items()}
    failed = [where for where, v in cells.items() if v.get("none", "").startswith(FAILED)]
    if failed:
        print(f"{FAILED}: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _before(runs: int) -> dict[str, Any] | None:
    """The rows of the results so far; None if they have another number of runs."""
    path = RESULTS / "methods.json"
    if not path.exists():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    for row in data["rows"].values():  # a method that is no more has no column
        row["columns"] = {c: cell for c, cell in row["columns"].items() if c in COLUMNS}
    return data["rows"] if data["runs"] == runs else None


if __name__ == "__main__":
    sys.exit(main())
