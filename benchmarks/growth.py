"""How time and memory grow with the rows of one machine, under a limit on memory.

Two tables, a tenth as many keys as rows (Zipf, 0.6), three attributes of 8 values each. Every measurement is a process
of its own: DuckDB's scan with GROUP BY of both tables, everything that the engine does for all two-way marginals, and a
whole release. `python benchmarks/growth.py` takes 10^6 to 10^8 rows per table, half an hour and 8 GB of disk;
`--rows 1e6 1e7` others, and what was measured of further sizes stays; `--quick` 10^5. Writes results/growth.json,
growth.md and docs/figures/growth.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
from report import RESULTS, markdown_table, peak_mb, versions, write

PAGE = """# Growth on one machine, with `--memory {memory}`

`python benchmarks/growth.py`, {processors} processors, {versions}.
Two tables, a tenth as many keys as rows, three attributes of 8 values each. Scan: DuckDB's GROUP BY of both tables
under the same limit. Engine: reading, join size, boundaries and all two-way marginals. Release: `dj.release` with
ε = 1, δ = 10⁻⁶, model included. Seconds are the best of some runs, one for 10^8 rows, in brackets
those of the processors, which say more on a busy machine; memory is the largest resident
memory of the process.

{table}
"""
VALUES, CHUNK = 8, 4_000_000
COLUMNS = {"r": ("a1", "a2", "a3"), "s": ("b1", "b2", "b3")}
WORK = ("scan", "engine", "release")
SECONDS = ("seconds", "processor_seconds")
FIGURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "growth.svg"


def make_files(folder: Path, rows: int) -> None:
    """In pieces, so that this takes no memory either."""
    rng, keys = np.random.default_rng(5), max(1, rows // 10)
    for table, columns in COLUMNS.items():
        kinds = pa.schema([("k", pa.int64()), *((c, pa.int32()) for c in columns)])
        with pq.ParquetWriter(folder / f"{table}.parquet", kinds) as writer:
            for start in range(0, rows, CHUNK):
                many = min(CHUNK, rows - start)
                # The share of the first k keys is (k / keys)^0.4.
                key = np.minimum((keys * rng.random(many) ** 2.5).astype(np.int64), keys - 1)
                data, last = {"k": key * 7919 % keys if keys % 7919 else key}, key
                for column in columns:
                    last = (last + rng.geometric(0.4, many) - 1) % VALUES
                    data[column] = last.astype(np.int32)
                writer.write_table(pa.table(data, kinds))


def scan(files: dict[str, str], memory: str, spill: str) -> None:
    import duckdb

    with duckdb.connect(config={"memory_limit": memory, "temp_directory": spill}) as connection:
        for table, columns in COLUMNS.items():
            names = ", ".join(("k", *columns))
            sql = f"SELECT {names}, count(*) AS n FROM read_parquet('{files[table]}') GROUP BY {names}"
            for _ in connection.sql(sql).to_arrow_reader(2**20):
                pass


def schema() -> dj.Schema:
    attributes = [dj.Attribute(name=a, range=(0, VALUES - 1)) for columns in COLUMNS.values() for a in columns]
    tables = tuple(dj.Table(name=t, attributes=("k", *columns)) for t, columns in COLUMNS.items())
    return dj.Schema(tables, (dj.Attribute(name="k", key=True), *attributes))


def engine(files: dict[str, str], memory: str) -> None:
    from dpjoin.engine.duck import DuckEngine
    from dpjoin.engine.memory import memory_of

    workload = dj.Workload.marginals(schema(), 2)
    made = DuckEngine(workload.schema, files, attributes=workload.attributes, memory=memory_of(memory))
    made.exact_join_size()
    for table in COLUMNS:
        made.exact_boundary(frozenset({table}))
    made.exact_answers(workload.groups)


def child(what: str, folder: Path, memory: str) -> None:
    """One measurement: its own seconds, without the start of the process."""
    files = {t: str(folder / f"{t}.parquet") for t in COLUMNS}
    started, facts = time.perf_counter(), {}
    if what == "scan":
        scan(files, memory, str(folder))
    elif what == "engine":
        engine(files, memory)
    else:
        made = dj.release(
            schema(), dj.Workload.marginals(schema(), 2), files, dj.Budget(epsilon=1.0, delta=1e-6), memory=memory
        )
        facts = {"method": made.method}
    print(json.dumps({"seconds": time.perf_counter() - started, "peak_mb": peak_mb(), **facts}))


def measured(what: str, folder: Path, memory: str) -> dict[str, Any]:
    """What a process took: seconds on the clock and of its processors, and its largest resident memory."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, __file__, "--child", what, str(folder), memory], stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{what} failed")
        out.seek(0)
        found: dict[str, Any] = json.loads(out.read())
    return {**found, "processor_seconds": used.ru_utime + used.ru_stime}


def measure(sizes: list[int], memory: str, repetitions: int, where: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"memory": memory, "processors": os.cpu_count(), "sizes": []}
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=where) as folder:
            make_files(Path(folder), rows)
            runs: dict[str, list[dict[str, Any]]] = {what: [] for what in WORK}
            for _ in range(repetitions if rows <= 10**7 else 1):
                for what in WORK:
                    runs[what].append(measured(what, Path(folder), memory))
                    print(rows, what, runs[what][-1], file=sys.stderr, flush=True)
            best = {what: min(some, key=lambda run: run["seconds"]) for what, some in runs.items()}
            peak = {what: max(run["peak_mb"] for run in some) for what, some in runs.items()}
            found["sizes"].append({"rows": rows, **{w: {**best[w], "peak_mb": peak[w]} for w in WORK}})
    return found


def table(found: dict[str, Any]) -> str:
    rows = []
    for size in found["sizes"]:
        cells = [f"{size['rows']:,}"]
        for what in WORK:
            run = size[what]
            cells += [f"{run['seconds']:.1f} ({run['processor_seconds']:.1f})"]
            cells += [f"{run[s] / size['scan'][s]:.1f}" for s in SECONDS] if what != "scan" else []
            cells += [f"{run['peak_mb'] / 1000:.2f} GB"]
        rows.append(cells)
    by_work = [name for what in ("engine", "release") for name in (f"{what}, s", "/ scan", "by processor", "memory")]
    return markdown_table(["rows per table", "scan, s", "memory", *by_work], rows)


def together(found: dict[str, Any]) -> dict[str, Any]:
    """With the sizes that were measured before and not now."""
    path = RESULTS / "growth.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if before.get("memory") != found["memory"]:
        return found
    sizes = {size["rows"]: size for size in (*before["sizes"], *found["sizes"])}
    return {**found, "sizes": [sizes[rows] for rows in sorted(sizes)]}


def plot(found: dict[str, Any]) -> str:
    """Seconds and memory against rows, both axes by powers of ten."""
    sizes = found["sizes"]

    def panel(left: float, title: str, unit: str, of: str, low: int, high: int, scale: float) -> list[str]:
        exponents = [math.log10(size["rows"]) for size in sizes]
        first, last = math.floor(exponents[0]), math.ceil(exponents[-1])

        def at(x: float, y: float) -> tuple[float, float]:
            share = (math.log10(max(y, 10.0**low)) - low) / (high - low)
            return left + 300 * (x - first) / max(1, last - first), 240 - 190 * share

        lines = [f'<text x="{left}" y="24" font-weight="bold">{title}</text>']
        for power in range(low, high + 1):
            _, y = at(first, 10.0**power)
            lines.append(f'<path d="M{left} {y:.1f}h300" stroke="#ddd"/>')
            lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} {unit}</text>')
        for power in range(first, last + 1):
            lines.append(f'<text x="{at(power, 1)[0]:.1f}" y="258" text-anchor="middle">10^{power}</text>')
        for n, (what, colour) in enumerate(zip(WORK, ("#64748b", "#0f766e", "#dc2626"), strict=True)):
            points = [at(x, size[what][of] / scale) for x, size in zip(exponents, sizes, strict=True)]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
            lines.append(f'<text x="{left + 8 + 62 * n}" y="46" fill="{colour}">{what}</text>')
        return lines

    title = "Seconds and resident memory of a scan, the engine and a release, by rows per table"
    body = [
        *panel(60, "Seconds", "s", "seconds", -1, 3, 1),
        *panel(470, "Memory", "GB", "peak_mb", -1, 1, 1000),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 275" role="img" aria-label="{title}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(body)}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=3)
    parser.add_argument("--rows", nargs="+", type=float, default=[1e6, 1e7, 1e8])
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", help="where the tables and what spills go while this runs")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]), given.child[2])
    elif given.quick:
        print(table(measure([10**5], given.memory, 1, given.folder)))
    else:
        sizes = [int(rows) for rows in given.rows]
        found = together(measure(sizes, given.memory, given.repetitions, given.folder))
        page = PAGE.format(memory=found["memory"], versions=versions(), processors=os.cpu_count(), table=table(found))
        write("growth", page, found)
        FIGURE.write_text(plot(found), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
