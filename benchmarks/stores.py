"""Engine work on two tables in PostgreSQL, against two GROUP BY queries of its own, fetched by the same driver.

Server and tables are made for the run. `python benchmarks/stores.py` writes results/stores.md and stores.json; with
`--quick` it takes 20,000 rows and writes nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.stored import postgres_source

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
from support import postgres  # noqa: E402

COLUMNS = {"r": ("a1", "a2", "a3"), "s": ("b1", "b2", "b3")}
REPETITIONS = 3
LIMIT = 1.5


def schema() -> dj.Schema:
    attributes = [dj.Attribute(name=a, range=(0, 7)) for columns in COLUMNS.values() for a in columns]
    tables = tuple(dj.Table(name=name, attributes=("k", *columns)) for name, columns in COLUMNS.items())
    return dj.Schema(tables, (dj.Attribute(name="k", key=True), *attributes))


def fill(server: postgres.Server, rows: int) -> None:
    """Keys with a frequency like rank^-.6, a tenth as many as rows; three attributes of eight values."""
    for seed, (name, columns) in zip((0.25, 0.75), COLUMNS.items(), strict=True):
        drawn = ", ".join(f"CAST(floor(8 * random()) AS integer) AS {c}" for c in columns)
        keys = f"CAST(floor({rows // 10} * power(random(), 2.5)) AS integer) AS k"
        server.execute(
            f"SELECT setseed({seed})", f"CREATE TABLE {name} AS SELECT {keys}, {drawn} FROM generate_series(1, {rows})"
        )
        server.execute(f"ANALYZE {name}")


def grouped(source: str, name: str) -> int:
    """One table's GROUP BY over all its columns, fetched whole."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres_source(source).conninfo) as connection, connection.cursor() as cursor:
        columns = ", ".join(("k", *COLUMNS[name]))
        cursor.execute(f"SELECT {columns}, count(*) AS n FROM {name} GROUP BY {columns}")
        return int(cursor.fetch_arrow_table().num_rows)


def both_grouped(sources: dict[str, str]) -> list[int]:
    """Both, side by side, as the engine reads them."""
    with ThreadPoolExecutor(2) as readers:
        return list(readers.map(lambda name: grouped(sources[name], name), sources))


def engine_work(sources: dict[str, str]) -> int:
    """Connect, read, the size of the join, its degrees, and all 15 marginals of pairs."""
    whole = schema()
    workload = dj.Workload.marginals(whole, list(combinations(whole.queryable, 2)))
    engine = DuckEngine(whole, sources, attributes=workload.attributes)
    size = engine.exact_join_size()
    for name in COLUMNS:
        engine.exact_boundary(frozenset([name]))
        engine.exact_degrees({name: {}}, ("k",))
    answers = engine.exact_answers(workload.groups)
    assert all(int(a.sum()) == size for a in answers)
    return size


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def main(arguments: list[str] | None = None) -> int:
    quick = "--quick" in (sys.argv[1:] if arguments is None else arguments)
    rows = 20_000 if quick else 5_000_000
    if (why := postgres.missing()) is not None:
        print(f"stores: {why}")
        return 0
    with postgres.server() as server:
        fill(server, rows)
        sources = {name: f"{server.source} table={name}" for name in COLUMNS}
        with server.connected() as cursor:
            cursor.execute("SELECT current_setting('server_version')")
            version = cursor.fetchone()[0]
        both_grouped(sources)  # both ways read from a warm cache
        plain, ours = [], []
        for _ in range(REPETITIONS):
            seconds, groups = timed(lambda: both_grouped(sources))
            plain.append(seconds)
            seconds, size = timed(lambda: engine_work(sources))
            ours.append(seconds)
    ratios = [b / a for a, b in zip(plain, ours, strict=True)]
    found = {
        "rows": rows,
        "server": version,
        "groups": groups,
        "join": size,
        "group_by_seconds": plain,
        "engine_seconds": ours,
        "ratio": median(ratios),
        "limit": LIMIT,
        "load": os.getloadavg()[0],
    }
    print(page(found))
    if quick:
        return 0
    (HERE / "results" / "stores.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "results" / "stores.md").write_text(page(found))
    return int(found["ratio"] > LIMIT)


def page(found: dict[str, Any]) -> str:
    plain, ours = (", ".join(f"{s:.1f}" for s in found[f"{key}_seconds"]) for key in ("group_by", "engine"))
    return (
        f"# PostgreSQL: two tables of {found['rows']:,} rows\n\n"
        f"PostgreSQL {found['server']} and dpjoin on the same two cores; groups of the tables: "
        f"{' and '.join(f'{n:,}' for n in found['groups'])}; join results: {found['join']:.2g}. Seconds, in turns; "
        f"load average {found['load']:.0f}, so read the ratio only.\n\n"
        "| work | seconds |\n|---|---|\n"
        f"| two GROUP BY queries, side by side, fetched by the same driver | {plain} |\n"
        f"| all engine work: reading, join size, degrees, 15 marginals of pairs | {ours} |\n\n"
        f"Median ratio **{found['ratio']:.2f}** (limit {found['limit']}). Made by `python benchmarks/stores.py`.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
