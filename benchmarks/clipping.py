"""What a lost join result counts where owners are clipped: `python benchmarks/clipping.py [--runs N] [--count N]`.

Chooses `constants.LOST_CLIPPED` on joins that benchmarks/persons.py does not use: pairs drawn as in
benchmarks/unseen.py, with keys that are not declared, and other joins of the development data.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import dpjoin as dj
from baselines import Answers, mean_total_variation
from dpjoin import constants
from dpjoin.engine.duck import DuckEngine
from queries import DATA
from report import command, markdown_table, number, versions, write
from unseen import draw

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
FIRST_SEED, LEAST_OWNERS = 8000, 500
VALUES = (0.25, 0.15, 0.1, 0.07, 0.05, 0.03)
UNITS = {"person": ("k",), "row": ()}
OTHERS = {
    "orders of customers": (
        "select c_custkey k, c_mktsegment seg, c_nationkey nat from '{data}/tpch_sf0.05/customer.parquet'",
        "select o_custkey k, o_orderpriority pr, o_orderstatus os, year(o_orderdate) yr "
        "from '{data}/tpch_sf0.05/orders.parquet'",
    ),
    "items of parts": (
        "select p_partkey k, p_mfgr mf, p_size // 10 sz from '{data}/tpch_sf0.05/part.parquet'",
        "select l_partkey k, l_returnflag rf, l_shipmode sm, year(l_shipdate) yr "
        "from '{data}/tpch_sf0.05/lineitem.parquet'",
    ),
    "links of listeners": (
        "select id k, country c from '{data}/lastfm_asia/nodes.parquet'",
        "select src k, country d from (select src, dst from '{data}/lastfm_asia/edges.parquet' union all "
        "select dst, src from '{data}/lastfm_asia/edges.parquet') join '{data}/lastfm_asia/nodes.parquet' on id = dst",
    ),
    "flights of numbers": (
        "select carrier || flight k, carrier car, min(origin) o, min(hour) // 6 h "
        "from '{data}/nycflights13/flights.parquet' group by all having true",
        "select carrier || flight k, month m, case when dep_delay is null then 3 when dep_delay < 0 then 0 "
        "when dep_delay < 15 then 1 else 2 end d from '{data}/nycflights13/flights.parquet'",
    ),
    "payments of renters": (
        "select customer_id k, store_id st from '{data}/sakila/customer.parquet'",
        "select customer_id k, staff_id sf, cast(amount as integer) am from '{data}/sakila/payment.parquet'",
    ),
    "courses of students": (
        "select id_student k, gender g, age_band a, region r from '{data}/oulad/student.parquet'",
        "select id_student k, code_module m, date_unregistration is null s "
        "from '{data}/oulad/student_registration.parquet'",
    ),
}


@dataclass(frozen=True, eq=False)
class Join:
    name: str
    schema: dj.Schema
    tables: dict[str, pa.Table]
    exact: Answers

    @classmethod
    def of(cls, name: str, schema: dj.Schema, tables: dict[str, pa.Table]) -> Join:
        workload = dj.Workload.marginals(schema, (1, 2))
        engine = DuckEngine(schema, tables, attributes=workload.attributes)
        return cls(name, schema, tables, [np.asarray(e, float) for e in engine.exact_answers(list(workload.groups))])


def drawn(count: int) -> Iterator[Join]:
    """Pairs whose key is not declared, with enough owners to be seen."""
    seed = FIRST_SEED
    while count:
        made = draw(seed)
        both = (set(table.column("k").to_pylist()) for table in made.tables.values())
        if len(set.intersection(*both)) >= LEAST_OWNERS:
            attributes = tuple(dj.Attribute(name="k", key=True) if a.name == "k" else a for a in made.schema.attributes)
            yield Join.of(f"{seed}: {made.words}", dj.Schema(made.schema.tables, attributes), made.tables)
            count -= 1
        seed += 1


def others() -> Iterator[Join]:
    for name, sides in OTHERS.items():
        tables, attributes = {}, [dj.Attribute(name="k", key=True)]
        with duckdb.connect() as connection:
            for table, sql in zip("rs", sides, strict=True):
                tables[table] = connection.sql(sql.replace("{data}", str(DATA))).to_arrow_table().drop_null()
        for table in tables.values():
            for column in table.column_names[1:]:
                values = tuple(sorted(table.column(column).unique().to_pylist()))
                attributes.append(dj.Attribute(name=column, values=values))
        declared = tuple(dj.Table(name=n, attributes=tuple(t.column_names)) for n, t in tables.items())
        yield Join.of(name, dj.Schema(declared, tuple(attributes)), tables)


def measured(join: Join, unit: str, runs: int) -> dict[str, float]:
    """Means over runs: total variation, mean error in join results, and how often 90 % bars hold."""
    schema = replace(join.schema, unit=UNITS[unit])
    workload, exact, found = dj.Workload.marginals(schema, (1, 2)), np.concatenate(join.exact), []
    for _ in range(runs):
        release = dj.release(schema, workload, join.tables, BUDGET, method="clipped")
        answers, bars = release.answer(), release.error(coverage=0.9)
        parts = np.split(answers, np.cumsum([len(e) for e in join.exact])[:-1])
        off = np.abs(answers - exact)
        found.append((mean_total_variation(parts, join.exact), float(off.mean()), float((off <= bars + 1e-9).mean())))
    return dict(zip(("tv", "error", "covered"), map(fmean, zip(*found, strict=True)), strict=True))


def page(found: dict[str, Any], runs: int, count: int) -> str:
    """For each value: the geometric mean over all joins of the error, over that with the first value."""
    rows = []
    for unit in UNITS:
        for value in VALUES:
            every = [(of[unit][str(value)], of[unit][str(VALUES[0])]) for of in found.values()]
            ratios = {f: [now[f] / first[f] for now, first in every] for f in ("tv", "error")}
            means = [f"{math.exp(fmean(map(math.log, r))):.3f} (at most {max(r):.2f})" for r in ratios.values()]
            bars = [now["covered"] for now, _ in every]
            rows.append([unit, number(value), *means, f"{fmean(bars):.3f} ({min(bars):.3f} to {max(bars):.3f})"])
    single = [
        [name, unit, *(number(of[str(v)]["tv"]) for v in VALUES)]
        for name, units in found.items()
        for unit, of in units.items()
    ]
    heads = ["unit", "counts", "mean TV", "mean error in join results", "90 % bars hold"]
    parts = [
        "# What a lost join result counts",
        f"Made by `{command('clipping.py', '--runs', runs, '--count', count)}` with {versions()}.",
        "Method `clipped` at (1, 1e-6), all 1- and 2-way marginals, on joins that the page of [persons](persons.md) "
        "does not use. How much a join result that clipping loses counts, against one that is noise "
        f"(`constants.LOST_CLIPPED`). Errors are ratios to those at {VALUES[0]:g}: geometric means over joins, of "
        f"means of {runs} runs.",
        markdown_table(heads, rows),
        "## Mean total variation of each join",
        markdown_table(["join", "unit", *map(number, VALUES)], single),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--count", type=int, default=6, help="joins that are drawn")
    parser.add_argument("--no-write", action="store_true", help="print, and leave the results folder alone")
    options = parser.parse_args(arguments)
    if not DATA.exists():
        print("skipped: no development data in ../shared/data (beside the repository)")
        return 0
    before, found = constants.LOST_CLIPPED, {}
    try:
        for join in (*drawn(options.count), *others()):
            found[join.name] = {unit: {} for unit in UNITS}
            for value in VALUES:
                constants.LOST_CLIPPED = value
                for unit, of in found[join.name].items():
                    of[str(value)] = measured(join, unit, options.runs)
            shown = {unit: [round(cell["tv"], 4) for cell in of.values()] for unit, of in found[join.name].items()}
            print(join.name, shown, flush=True)
    finally:
        constants.LOST_CLIPPED = before
    shown = page(found, options.runs, options.count)
    print(shown)
    if not options.no_write:
        write("clipping", shown, {"runs": options.runs, "joins": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
