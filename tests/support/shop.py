"""A small shop (visits join offers on day) with its spec, for the tests of the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SPEC = """\
[privacy]
epsilon = 1.0
delta = 1e-6

[tables.visits]
source = "visits.parquet"
attributes = ["day", "age", "city"]

[tables.offers]
source = "offers.parquet"
attributes = ["day", "price", "kind"]

[attributes.day]
key = true
[attributes.age]
bins = [0, 18, 65, 120]
[attributes.city]
values = ["Oslo", "Rome"]
other = true
[attributes.price]
range = [1, 4]
[attributes.kind]
values = ["tea", "cake"]

[workload]
marginals = 2
queries = ["SELECT city, SUM(price) FROM joined WHERE age >= 18 GROUP BY city"]
"""


def visits(rows: int = 400) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "day": rng.integers(0, 30, rows),
            "age": rng.integers(0, 100, rows).astype(float),
            "city": pa.array(rng.choice(["Oslo", "Rome", "Secretville"], rows).tolist(), pa.string()),
        }
    )


def offers(rows: int = 120) -> pa.Table:
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "day": rng.integers(0, 30, rows),
            "price": rng.integers(1, 5, rows),
            "kind": pa.array(rng.choice(["tea", "cake"], rows).tolist(), pa.string()),
        }
    )


def make_shop(folder: Path, *, spec: str = SPEC, first: pa.Table | None = None, second: pa.Table | None = None) -> Path:
    """Write the two tables and the spec; return the spec's path."""
    pq.write_table(visits() if first is None else first, folder / "visits.parquet")
    pq.write_table(offers() if second is None else second, folder / "offers.parquet")
    path = folder / "shop.toml"
    path.write_text(spec, encoding="utf-8")
    return path


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line, run in this process."""
    from dpjoin.cli.commands import main

    capsys.readouterr()
    try:
        main([str(a) for a in arguments])
        code: Any = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    captured = capsys.readouterr()
    return int(code), captured.out, captured.err


def journal_lines(spec: Path) -> Sequence[dict[str, Any]]:
    journal = spec.with_name(f"{spec.stem}.ledger.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
