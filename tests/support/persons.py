"""Persons with several rows in several tables."""

from __future__ import annotations

import pyarrow as pa

import dpjoin as dj
from support.owners import (
    Rows,
)

FULL = 60


def arrow_of(schema: dj.Schema, rows: Rows) -> dict[str, pa.Table]:
    return {
        t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], type=pa.int64()) for a in t.attributes})
        for t in schema.tables
    }
