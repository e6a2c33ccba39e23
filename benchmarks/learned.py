"""Domains learned privately, on real tables and joins: `python benchmarks/learned.py [--runs N] [--quick]`.

Of five tables all columns are learned: which values are listed, and how far edges of bins are from the quantiles. Then
joins are released with learned domains and, for comparison, with the very same domains declared.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
import joins
from dpjoin.auto.learned import learning_budget
from dpjoin.auto.registry import chosen_method
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.domains import Learned, is_list, learn_domains
from dpjoin.measure.progress import silent
from dpjoin.privacy.accounting import Split
from dpjoin.privacy.curator import Curator
from dpjoin.spec.learning import with_domains
from queries import DATA
from report import command, markdown_table, number, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
BINS = 8
ENOUGH_ROWS = 20_000
"""From so many rows on edges must be close to the quantiles."""
CLOSE, RATIO = 0.02, 1.3
"""How far an edge may be from its quantile, in rank; and learned domains to declared ones, in total variation."""
TABLES: dict[str, tuple[str, ...]] = {
    "nycflights13/flights": ("month", "carrier", "origin", "dest", "dep_delay", "arr_delay", "air_time", "distance"),
    "nycflights13/weather": ("origin", "month", "temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "visib"),
    "oulad/student": (),
    "sandag_population/persons": (),
    "tpch_sf0.05/lineitem": (
        "l_quantity",
        "l_extendedprice",
        "l_discount",
        "l_tax",
        "l_returnflag",
        "l_linestatus",
        "l_shipdate",
        "l_shipmode",
    ),
}
"""Which columns of each table; none: all but identifiers."""
JOINS = ("sandag_fk", "sandag_m2m", "oulad_two", "nyc_weather", "tpch_lo", "oulad_deep", "nyc_star")
LISTED_NUMBERS = ("month", "wind_dir", "l_discount", "l_tax", "l_quantity")
"""Numbers that are categories."""


@dataclass(frozen=True)
class Found:
    """What was learned of one column in one run."""

    column: str
    listed: int
    frequent_missed: int
    """Values with more than 4s rows that are not in the list."""
    without_rows: int
    """Values in the list that no row has."""
    off: float
    """The largest distance of a quantile to its edge, in rank, beyond what equal numbers make of the best edge."""


def schema_of(table: pa.Table, columns: tuple[str, ...], *, person: bool = False) -> dj.Schema:
    """All columns learned: text and listed numbers as lists, other numbers and dates in bins."""
    attributes = []
    for name in columns:
        kind = table.schema.field(name).type
        dates = pa.types.is_temporal(kind)
        few = pa.types.is_integer(kind) and len(table.column(name).unique()) <= 30
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
        whole = pa.types.is_integer(kind)
        listed = text or pa.types.is_boolean(kind) or few or (whole and name in LISTED_NUMBERS)
        attributes.append(
            dj.Attribute(
                name=name, learn=True if listed else {"bins": BINS}, part="date" if dates and not listed else None
            )
        )
    return dj.Schema((dj.Table(name="t", attributes=columns),), tuple(attributes))


def columns_of(table: pa.Table, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that are asked for; otherwise all that are not identifiers."""
    kinds = {f.name: f.type for f in table.schema}
    return wanted or tuple(
        n for n in kinds if not n.lower().endswith(("id", "_id", "key")) and n not in ("perid", "hhid")
    )


def learned(schema: dj.Schema, table: pa.Table) -> tuple[list[Learned], dict[str, int]]:
    """The domains, and for each list its half-width; nothing else is released."""
    workload = dj.Workload.marginals(schema, 1)
    method = chosen_method(schema, "auto", "tight", workload)
    budget, costs = learning_budget(method, BUDGET, workload)
    engine = DuckEngine(schema, {"t": table}, attributes=workload.attributes)
    found = learn_domains(Curator(engine, Split(budget=budget)), costs, silent)
    widths = {a: costs.half_width(schema, budget.composition, a) for a in schema.learned if is_list(schema, a)}
    return found, widths


def judged(found: list[Learned], widths: dict[str, int], table: pa.Table) -> list[Found]:
    told = []
    for one in found:
        domain = one.attribute
        column = table.column(domain.name)
        if domain.values is not None:
            rows = Counter(column.to_pylist())
            frequent = {v for v, n in rows.items() if n > 4 * widths[domain.name] and v is not None}
            listed = set(domain.values)
            told.append(Found(domain.name, len(listed), len(frequent - listed), sum(rows[v] == 0 for v in listed), 0.0))
        else:
            told.append(Found(domain.name, domain.size - 1, 0, 0, rank_error(domain, column)))
    return told


def rank_error(domain: dj.Attribute, column: Any) -> float:
    """How far the worst quantile is from an edge, beyond the best edge there could be."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    values = np.sort(column.drop_null().to_numpy().astype(float))
    values = values[np.isfinite(values)]
    splits = np.unique(np.searchsorted(values, values, side="left")) / len(values)
    edges = np.searchsorted(values, np.array(domain.bins, dtype=float), side="left") / len(values)
    worst = 0.0
    for j in range(1, BINS):
        best = float(np.abs(np.append(splits, 1.0) - j / BINS).min())
        worst = max(worst, float(np.abs(edges - j / BINS).min()) - best)
    return worst


def of_tables(runs: int, names: list[str]) -> tuple[list[list[str]], dict[str, Any]]:
    rows, data = [], {}
    for name in names:
        table = pq.read_table(DATA / f"{name}.parquet")
        schema = schema_of(table, columns_of(table, TABLES[name]))
        every = []
        for _ in range(runs):
            found, widths = learned(schema, table)
            every += judged(found, widths, table)
        lists = [f for f in every if is_list(schema, f.column)]
        offs = sorted(f.off for f in every if not is_list(schema, f.column))
        needs = max((4 * w for w in widths.values()), default=0)
        data[name] = {
            "rows": table.num_rows,
            "lists": len(lists) // runs,
            "binned": len(offs) // runs,
            "missed": sum(f.frequent_missed for f in lists),
            "without_rows": sum(f.without_rows for f in lists),
            "4s": needs,
            "median_off": median(offs) if offs else 0.0,
            "largest_off": max(offs, default=0.0),
            "within": float(np.mean([o <= CLOSE for o in offs])) if offs else 1.0,
        }
        d = data[name]
        print(name, d, flush=True)
        rows.append(
            [
                name,
                f"{table.num_rows:,}",
                str(d["lists"]),
                f"{needs:,}",
                str(d["missed"]),
                str(d["without_rows"]),
                str(d["binned"]),
                f"{100 * d['median_off']:.1f} %",
                f"{100 * d['largest_off']:.1f} %",
            ]
        )
    return rows, data


def raw_join() -> tuple[dj.Schema, dict[str, Any]]:
    """Flights and the weather at their airport and hour, with raw numbers in bins."""
    flights = pq.read_table(DATA / "nycflights13" / "flights.parquet")
    weather = pq.read_table(DATA / "nycflights13" / "weather.parquet")
    own = {"f": ("carrier", "dep_delay", "distance"), "w": ("temp", "wind_speed", "humid")}
    attributes = [dj.Attribute(name=k, key=True) for k in ("origin", "month", "day", "hour")]
    for table, names in zip((flights, weather), own.values(), strict=True):
        attributes += list(schema_of(table, names).attributes)
    tables = tuple(dj.Table(name=t, attributes=("origin", "month", "day", "hour", *names)) for t, names in own.items())
    return dj.Schema(tables, tuple(attributes)), {"f": flights, "w": weather}


def learnable(name: str) -> tuple[dj.Schema, dict[str, Any]] | None:
    """A join of the development data with all domains learned; `name` raw is flights and weather with raw numbers."""
    if name == "nyc_raw":
        return raw_join()
    person = name.endswith(" person")
    loaded = joins.load(name.removesuffix(" person"), bounds=False)
    if loaded is None:
        return None
    schema, tables = loaded
    attributes = tuple(a if a.key else dj.Attribute(name=a.name, learn=True) for a in schema.attributes)
    unit = schema.join_attributes if person else ()
    return replace(schema, attributes=attributes, unit=unit), tables


def of_joins(runs: int, names: list[str]) -> tuple[list[list[str]], dict[str, Any]]:
    rows, data = [], {}
    for name in names:
        given = learnable(name)
        if given is None:
            continue
        schema, tables = given
        ours, theirs, ratios = [], [], []
        for _ in range(runs):
            release = dj.release(schema, dj.Workload.marginals(schema, (1, 2)), tables, BUDGET)
            domains = {a: release.schema.attribute(a) for a in schema.learned}
            declared = with_domains(schema, domains)
            other = dj.release(declared, dj.Workload.marginals(declared, (1, 2)), tables, BUDGET)
            pair = [float(dj.evaluate(r, tables).mean_total_variation or 0.0) for r in (release, other)]
            ours.append(pair[0])
            theirs.append(pair[1])
            ratios.append(pair[0] / pair[1])
        cells = [release.schema.attribute(a).size for a in schema.learned]
        data[name] = {"learned": median(ours), "declared": median(theirs), "ratio": median(ours) / median(theirs)}
        print(name, data[name], flush=True)
        d = data[name]
        rows.append(
            [
                name,
                release.method,
                " ".join(map(str, cells)),
                number(d["learned"]),
                number(d["declared"]),
                number(d["ratio"]),
            ]
        )
    return rows, data


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small, once, nothing written: does it run?")
    options = parser.parse_args(arguments)
    if not DATA.exists():
        print("learned: the development data are not there; nothing to measure")
        return 0
    runs = 1 if options.quick else options.runs
    names = ["oulad/student"] if options.quick else list(TABLES)
    of = ["sandag_m2m"] if options.quick else [*JOINS, "nyc_raw", "sandag_fk person", "oulad_two person"]
    table_rows, tables = of_tables(runs, names)
    join_rows, joined = of_joins(runs, of)
    missed = sum(t["missed"] + t["without_rows"] for t in tables.values())
    far = [n for n, t in tables.items() if t["rows"] >= ENOUGH_ROWS and t["largest_off"] > CLOSE]
    worse = [n for n, j in joined.items() if j["ratio"] > RATIO]
    if not options.quick:
        write("learned", page(runs, table_rows, join_rows), {"tables": tables, "joins": joined})
    print(f"missed {missed}; quantiles off in {far or 'no table'}; above {RATIO} times declared: {worse or 'no join'}")
    return int(bool(missed))


def page(runs: int, tables: list[list[str]], joined: list[list[str]]) -> str:
    first = (
        "table",
        "rows",
        "lists",
        "4s rows",
        "missed",
        "listed without rows",
        "binned",
        "median off",
        "largest off",
    )
    second = ("join", "method", "sizes", "learned", "declared", "ratio")
    return f"""# Domains learned privately

`{command("learned.py", "--runs", runs)}`, at (1, 1e-6), {versions()}.

## Tables
All columns of a table are learned at once, {runs} times. *missed*: values with more than 4s rows that were not listed,
in all runs. *off*: how far the quantile that is furthest from an edge is from it, in rank, beyond what equal numbers
make of the best edge; over columns and runs.

{markdown_table(first, tables)}

## Joins
Mean total variation over all one- and two-way marginals: domains learned, and the same domains declared; medians of
{runs} runs. Those with *person* protect whoever has a value of the join's key.

{markdown_table(second, joined)}
"""


if __name__ == "__main__":
    sys.exit(main())
