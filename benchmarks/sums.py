"""Do bars of sums and averages hold the raw numbers? `benchmarks/sums.py [--runs N] [--join NAME …] [--generated]`.

Eight joins of real data with numbers in bins. The truth is of the numbers themselves, which the release never saw.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.model.model import Model
from queries import DATA
from report import command, markdown_table, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
COVERAGE = 0.9
OTHER = "other"
Edges = tuple[float, ...]


@dataclass(frozen=True)
class Side:
    """One table: its rows in SQL, with columns k and those below."""

    sql: str
    numbers: Mapping[str, tuple[Edges, Edges]]
    """By column: few bins, as somebody might choose them, and many even ones."""
    categories: Mapping[str, Sequence[Any]]


def even(low: float, high: float, step: float) -> Edges:
    return tuple(float(x) for x in np.arange(low, high + step / 2, step))


DELAY = ((-60, -5, 0, 15, 60, 1320), even(-60, 1320, 20))
MILES = ((0, 500, 1000, 1500, 5000), even(0, 5000, 250))
HOUR = "origin || '-' || month || '-' || day || '-' || hour"
AGE = ((0, 5, 12, 18, 25, 35, 50, 65, 80, 100), even(0, 100, 4))
FLIGHTS = f"SELECT {HOUR} AS k, * FROM '{{data}}/nycflights13/flights.parquet'"
BIG = ("UA", "AA", "DL", "US")
PERSONS = "FROM '{data}/sandag_population/persons.parquet'"
LINES = "FROM '{data}/tpch_sf0.05/lineitem.parquet'"
QUANTITY = ((1, 11, 21, 31, 41, 50), even(0, 50, 2))
FLAGS, MODES = ("A", "N", "R"), ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")

JOINS: dict[str, tuple[Side, Side]] = {
    "nyc_weather": (
        Side(FLIGHTS, {"dep_delay": DELAY, "distance": MILES}, {"carrier": ("UA", "B6", "EV", "DL", "AA", "MQ", "US")}),
        Side(
            f"SELECT {HOUR} AS k, temp, wind_speed, humid, visib FROM '{{data}}/nycflights13/weather.parquet'",
            {
                "temp": ((10, 32, 45, 60, 75, 105), even(10, 105, 5)),
                "wind_speed": ((0, 5, 10, 15, 45), even(0, 45, 3)),
                "humid": ((0, 40, 60, 80, 100), even(0, 100, 5)),
            },
            {"visib": (10,)},
        ),
    ),
    "nyc_coflight": (
        Side(
            f"{FLIGHTS} WHERE carrier IN {BIG}",
            {"dep_delay": DELAY, "distance": MILES},
            {"carrier": BIG, "origin": ("EWR", "JFK", "LGA")},
        ),
        Side(
            f"SELECT {HOUR} AS k, dep_delay AS other_delay, distance AS other_distance, carrier AS other_carrier "
            f"FROM '{{data}}/nycflights13/flights.parquet' WHERE carrier NOT IN {BIG}",
            {"other_delay": DELAY, "other_distance": MILES},
            {"other_carrier": ("B6", "EV", "MQ")},
        ),
    ),
    "nyc_planes": (
        Side(
            "SELECT tailnum AS k, dep_delay, distance, origin FROM '{data}/nycflights13/flights.parquet'",
            {"dep_delay": DELAY, "distance": MILES},
            {"origin": ("EWR", "JFK", "LGA")},
        ),
        Side(
            "SELECT tailnum AS k, year, seats, manufacturer FROM '{data}/nycflights13/planes.parquet'",
            {
                "year": ((1956, 1990, 1997, 2002, 2007, 2013), even(1955, 2015, 3)),
                "seats": ((2, 60, 100, 150, 200, 450), even(0, 460, 20)),
            },
            {"manufacturer": ("BOEING", "AIRBUS", "EMBRAER")},
        ),
    ),
    "sandag_fk": (
        Side(
            "SELECT HHID AS k, income, HHT, bldgsz FROM '{data}/sandag_population/households.parquet'",
            {"income": ((0, 15e3, 30e3, 45e3, 60e3, 80e3, 110e3, 160e3, 1e6), even(0, 1e6, 25e3))},
            {"HHT": tuple(range(8)), "bldgsz": tuple(range(1, 11))},
        ),
        Side(f"SELECT household_id AS k, age, sex, ptype {PERSONS}", {"age": AGE}, {"sex": (1, 2)}),
    ),
    "sandag_m2m": (
        Side(
            f"SELECT household_id AS k, age, sex, pemploy {PERSONS} WHERE age >= 18",
            {"age": ((18, 25, 35, 50, 65, 80, 100), even(16, 100, 4))},
            {"sex": (1, 2), "pemploy": (1, 2, 3)},
        ),
        Side(
            f"SELECT household_id AS k, age AS kid_age, sex AS kid_sex {PERSONS} WHERE age < 18",
            {"kid_age": ((0, 5, 9, 12, 15, 18), even(0, 18, 1))},
            {"kid_sex": (1, 2)},
        ),
    ),
    "tpch_lo": (
        Side(
            "SELECT l_orderkey AS k, l_quantity::DOUBLE AS quantity, l_discount::DOUBLE AS discount, "
            f"l_returnflag AS flag, l_shipmode AS mode {LINES}",
            {"quantity": QUANTITY, "discount": ((0, 0.03, 0.06, 0.09, 0.1), even(0, 0.1, 0.02))},
            {"flag": FLAGS, "mode": MODES},
        ),
        Side(
            "SELECT o_orderkey AS k, o_totalprice::DOUBLE AS price, o_orderstatus AS status "
            "FROM '{data}/tpch_sf0.05/orders.parquet'",
            {"price": ((0, 50e3, 100e3, 200e3, 600e3), even(0, 600e3, 25e3))},
            {"status": ("F", "O", "P")},
        ),
    ),
    "tpch_lps": (
        Side(
            f"SELECT l_partkey AS k, l_quantity::DOUBLE AS quantity, l_returnflag AS flag {LINES}",
            {"quantity": QUANTITY},
            {"flag": FLAGS},
        ),
        Side(
            "SELECT ps_partkey AS k, ps_supplycost::DOUBLE AS cost, ps_availqty AS available "
            "FROM '{data}/tpch_sf0.05/partsupp.parquet'",
            {
                "cost": ((0, 250, 500, 750, 1000), even(0, 1000, 50)),
                "available": ((0, 2500, 5000, 7500, 10000), even(0, 10000, 500)),
            },
            {},
        ),
    ),
    "oulad_two": (
        Side(
            "SELECT id_student AS k, gender, studied_credits AS credits, final_result AS result "
            "FROM '{data}/oulad/student.parquet'",
            {"credits": ((0, 60, 90, 120, 660), even(0, 660, 30))},
            {"gender": ("F", "M"), "result": ("Distinction", "Fail", "Pass", "Withdrawn")},
        ),
        Side(
            "SELECT id_student AS k, score, date_submitted AS day, assessment_type AS kind "
            "FROM '{data}/oulad/student_assessment.parquet' JOIN '{data}/oulad/assessment.parquet' "
            "USING (id_assessment)",
            {
                "score": ((0, 40, 55, 70, 85, 100), even(0, 100, 5)),
                "day": ((0, 30, 90, 150, 210, 300), even(0, 300, 15)),
            },
            {"kind": ("CMA", "Exam", "TMA")},
        ),
    ),
}
BINNINGS = ("few bins", "many bins")


def schema_of(sides: Sequence[Side], binning: int) -> dj.Schema:
    tables = [dj.Table(name=f"t{i}", attributes=("k", *side.numbers, *side.categories)) for i, side in enumerate(sides)]
    attributes = [dj.Attribute(name="k", key=True)]
    for side in sides:
        attributes += [dj.Attribute(name=n, bins=e[binning], other=True) for n, e in side.numbers.items()]
        attributes += [dj.Attribute(name=n, values=tuple(v), other=True) for n, v in side.categories.items()]
    return dj.Schema(tuple(tables), tuple(attributes))


def questions(sides: Sequence[Side]) -> Iterator[tuple[str, tuple[str, Sequence[Any]] | None]]:
    """Each column of numbers, in all and by every category."""
    by = {name: values for side in sides for name, values in side.categories.items()}
    for side in sides:
        for number in side.numbers:
            yield number, None
            for category, values in by.items():
                yield number, (category, values)


Found = dict[str, dict[str, list[float]]]
"""By AVG and SUM, of the raw numbers and of numbers at the middle of their bins: errors in lengths of their bars, and
the bars as shares of the truths. And the places of the numbers in their bins."""


def measure(name: str, binning: int, runs: int) -> dict[str, Found]:
    """For each column of numbers."""
    sides = JOINS[name]
    schema = schema_of(sides, binning)
    columns: dict[str, Found] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with duckdb.connect() as connection:
        for i, side in enumerate(sides):
            connection.execute(f"CREATE TABLE t{i} AS {side.sql.replace('{data}', str(DATA))}")
        tables = {f"t{i}": connection.sql(f"FROM t{i}").to_arrow_table() for i in range(2)}
        truths = {q: truth(connection, schema, *q) for q in questions(sides)}
    for _ in range(runs):
        release = dj.release(schema, dj.Workload.marginals(schema, 2), tables, BUDGET)
        for (number, by), exact in truths.items():
            found = columns[number]
            found["place"]["off"] += [place for _, _, place in exact.values() if np.isfinite(place)]
            group = f"{by[0]}, " if by else ""
            where = f" WHERE {by[0]} <> '{OTHER}' GROUP BY {by[0]}" if by else ""
            for function in ("AVG", "SUM"):
                rows = release.ask(f"SELECT {group}{function}({number}) FROM joined{where}", coverage=COVERAGE).rows
                for labels, (value,), (bar,) in rows:
                    raw, _, _ = exact[labels[0] if labels else None]
                    add(found[f"{function}, raw"], value, raw[function], bar)
            # Sums of the middles of bins have no question of their own in SQL.
            sums = dj.Workload.sums(schema, [number], by=[by[0]] if by else [])
            answers, bars = release.answer(sums), release.error(sums, coverage=COVERAGE)
            labels = schema.attribute(by[0]).labels if by else (None,)
            for label, value, bar in zip(labels, answers, bars, strict=True):
                if label in exact:
                    add(found["SUM, middles"], value, exact[label][1], bar)
    return columns


def add(to: dict[str, list[float]], value: float, truth: float, bar: float | None) -> None:
    if bar is not None and np.isfinite(truth) and np.isfinite(value):
        to["off"].append(abs(value - truth) / bar if bar else float(value != truth) * 1e9)
        to["bar"].append(bar / abs(truth) if truth else np.nan)


def truth(
    connection: Any, schema: dj.Schema, number: str, by: tuple[str, Sequence[Any]] | None
) -> dict[Any, tuple[dict[str, float], float, float]]:
    """By value of the category: AVG and SUM of the numbers that lie in a bin, the sum of these bins' middles, and where
    the numbers lie: at -1 all are at the lower edges of their bins, at 1 at the upper ones."""
    edges = np.array(schema.attribute(number).bins)
    group = f'"{by[0]}"' if by else "NULL"
    sql = f'SELECT {group} AS g, "{number}" AS x, count(*) AS n FROM t0 JOIN t1 USING (k) GROUP BY ALL'
    frame = connection.sql(sql).df()
    frame = frame[frame["x"].between(edges[0], edges[-1])]
    x, n = frame["x"].to_numpy(dtype=float), frame["n"].to_numpy(dtype=float)
    bins = np.minimum(np.searchsorted(edges, x, side="right") - 1, len(edges) - 2)
    middles, halves = (edges[bins] + edges[bins + 1]) / 2, (edges[bins + 1] - edges[bins]) / 2
    found = {}
    for label in by[1] if by else [None]:
        mine = (frame["g"] == label).to_numpy() if by else np.ones(len(x), dtype=bool)
        total, count = float((x * n)[mine].sum()), float(n[mine].sum())
        average = total / count if count else np.nan
        reach, middle = float((halves * n)[mine].sum()), float((middles * n)[mine].sum())
        place = (total - middle) / reach if reach else np.nan
        found[label] = {"AVG": average, "SUM": total}, middle, place
    return found


SHAPES = ("bell", "tail", "flat", "two", "few")


def made_up(shape: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers from 0 to 100: in the middle, mostly small, even, in two places, or few different ones."""
    if shape == "flat":
        return rng.uniform(0, 100, rows)
    if shape == "few":
        return rng.choice([10.0, 20.0, 25.0, 60.0], rows, p=[0.5, 0.3, 0.15, 0.05])
    bell = rng.normal(50, 12, rows)
    found = {
        "bell": bell,
        "tail": rng.lognormal(1.2, 0.8, rows),
        "two": np.where(rng.random(rows) < 0.7, rng.normal(20, 5, rows), rng.normal(75, 8, rows)),
    }[shape]
    return np.clip(found, 0, 100)


def generated(runs: int) -> dict[str, dict[int, float]]:
    """Which share of sums of middles 90 % bars hold on made-up joins, by what cells have in common, and by bins."""
    held: dict[float, dict[int, list[float]]] = {level: defaultdict(list) for level in (0.0, 0.02, 0.05, 0.1)}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        for shape in SHAPES:
            bins, rows = int(rng.choice([5, 20, 60])), int(rng.choice([10_000, 40_000, 150_000]))
            keys = rows // int(rng.choice([2, 6]))
            other = int(rng.choice([1, 3])) * keys // 2
            g = rng.choice(6, rows, p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03])
            first = {"k": rng.integers(0, keys, rows), "g": g, "x": made_up(shape, rows, rng) * (1 - 0.08 * g)}
            second = {
                "k": rng.integers(0, keys, other),
                "m": rng.choice(4, other, p=[0.4, 0.3, 0.2, 0.1]),
                "y": made_up(str(rng.choice(["bell", "tail", "two"])), other, rng),
            }
            edges = even(0, 100, 100 / bins)
            schema = dj.Schema(
                (dj.Table(name="r", attributes=("k", "g", "x")), dj.Table(name="s", attributes=("k", "m", "y"))),
                (
                    dj.Attribute(name="k", key=True),
                    dj.Attribute(name="g", range=(0, 5)),
                    dj.Attribute(name="m", range=(0, 3)),
                    *(dj.Attribute(name=n, bins=edges) for n in "xy"),
                ),
            )
            tables = {"r": pa.table(first), "s": pa.table(second)}
            release = dj.release(schema, dj.Workload.marginals(schema, 2), tables, BUDGET)
            with duckdb.connect() as connection:
                for name, table in tables.items():
                    connection.register(name, table)
                for number, by in ((n, b) for n in "xy" for b in (None, "g", "m")):
                    middle = f"(least(floor({number} * {bins} / 100), {bins - 1}) + 0.5) * 100 / {bins}"
                    group = f"GROUP BY {by} ORDER BY {by}" if by else ""
                    sql = f"SELECT sum({middle}) AS s FROM r JOIN s USING (k) {group}"
                    exact = connection.sql(sql).to_arrow_table().column("s").to_numpy()
                    sums = dj.Workload.sums(schema, [number], by=[by] if by else [])
                    off = np.abs(release.answer(sums) - exact)
                    for level, found in held.items():
                        with mock.patch.object(Model, "in_common", lambda _, level=level: level):
                            found[bins] += list(off <= release.error(sums, coverage=COVERAGE))
    return {f"{level:g}": {b: float(np.mean(v)) for b, v in sorted(h.items())} for level, h in held.items()}


WHAT = ("AVG, raw", "SUM, raw", "SUM, middles")


def covered(some: Mapping[str, Sequence[float]]) -> float:
    return float(np.mean(np.array(some["off"]) <= 1.0))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--join", nargs="*", choices=JOINS, default=list(JOINS))
    parser.add_argument("--generated", action="store_true", help="what cells have in common, on made-up joins")
    parser.add_argument("--quick", action="store_true", help="one join, once, nothing written")
    options = parser.parse_args(arguments)
    if options.generated:
        for level, by_bins in generated(options.runs).items():
            print(f"common {level}:", ", ".join(f"{b} bins {held:.3f}" for b, held in by_bins.items()))
        return 0
    if not DATA.is_dir():
        print("skipped: no development data in ../shared/data (beside the repository)")
        return 0
    names, runs = (["sandag_m2m"], 1) if options.quick else (options.join, options.runs)
    found: dict[tuple[str, str, str], Found] = {}
    for name in names:
        for i, binning in enumerate(BINNINGS):
            for column, one in measure(name, i, runs).items():
                found[name, binning, column] = one
                told = ", ".join(f"{w} {covered(one[w]):.2f} of {len(one[w]['off'])}" for w in WHAT)
                print(f"{name}, {binning}, {column}: {told}", flush=True)
    everything = {w: {"off": [x for one in found.values() for x in one[w]["off"]]} for w in WHAT}
    print("all:", {w: round(covered(e), 3) for w, e in everything.items()})
    if options.quick or names != list(JOINS):
        return 0
    rows = [
        [*query, f"{np.median(one['place']['off']):.2f}", *(f"{covered(one[w]):.2f}" for w in WHAT)]
        + [f"{len(one['SUM, raw']['off']):,}"]
        + [f"{100 * float(np.nanmedian(one[w]['bar'])):.2g} %" for w in WHAT]
        for query, one in found.items()
    ]
    rows.append(["**all**", "", "", "", *(f"**{covered(everything[w]):.2f}**" for w in WHAT), *[""] * 4])
    head = ["join", "binning", "column", "place", *(f"{w}: held" for w in WHAT), "answers each"]
    head += [f"{w}: median bar" for w in WHAT]
    page = (
        "# Sums and averages of numbers in bins\n\n"
        f"Made by `{command('sums.py', '--runs', runs)}` with {versions()}.\n\n"
        f"How many of the true answers the {100 * COVERAGE:.0f} % bars hold, over {runs} releases each at (1, 1e-6) of "
        "all pairs of attributes: of the raw numbers, as `ask` answers, and of numbers at the middles of their bins, "
        "as a workload's `sums`. Numbers beyond the outermost edges do not count. A median bar is a share of the "
        "truth. The place says where the numbers lie in their bins, the median over groups: -1 is all at the lower "
        "edges, 0 in the middle, 1 at the upper edges.\n\n"
        f"{_outside(found)}\n\n"
        f"{markdown_table(head, rows)}\n"
    )
    data = {
        ", ".join(query): {"place": float(np.median(one["place"]["off"]))} | {w: covered(one[w]) for w in WHAT}
        for query, one in found.items()
    }
    write("sums", page, data)
    return 0


LEAST, MOST = 0.85, 0.99


def _outside(found: Mapping[tuple[str, str, str], Found]) -> str:
    """Which queries the bars hold less often than they should, or more."""
    shares = {(*query, w): covered(one[w]) for query, one in found.items() for w in WHAT[:2]}
    low = [f"{w.partition(',')[0]} of {c} ({n}, {b}): {s:.2f}" for (n, b, c, w), s in shares.items() if s < LEAST]
    high = sum(s > MOST for s in shares.values())
    return (
        f"Of {len(shares)} questions about raw numbers (AVG and SUM of each column under each binning), bars hold "
        f"{len(shares) - len(low) - high} at {LEAST:.0%} to {MOST:.0%}, {high} more often, and {len(low)} less often"
        f"{': ' + '; '.join(low) if low else ''}. No release knows where numbers lie in their bins, so bars are made "
        "for the worst places: they hold as often as they say at places -1 and 1, and nearly always in between, where "
        "bins are wide for their noise. Shorter bars would not hold at the edges."
    )


if __name__ == "__main__":
    sys.exit(main())
