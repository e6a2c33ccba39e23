"""The development queries as dpjoin inputs, with their exact answers computed apart from dpjoin's engine.

The data lie beside the repository, in `../shared/data`, and are not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from scipy import sparse

import dpjoin as dj

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
KEY = "join_key"

TWO_TABLE = (
    "nyc_coflight",
    "nyc_weather",
    "oulad_two",
    "sandag_fk",
    "nyc_planes",
    "sandag_m2m",
    "tpch_lo",
    "tpch_lps",
    "lastfm_wedge",
)


@dataclass(frozen=True)
class Side:
    """One table as numpy arrays: a key number and a code per attribute for each row."""

    key: np.ndarray
    codes: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Query:
    """A two-table join with the workload of all 1- and 2-way marginals."""

    name: str
    shape: str
    schema: dj.Schema
    workload: dj.Workload
    tables: dict[str, pa.Table]
    stated_join_size: int

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Both tables with their keys numbered alike."""
        tables = [self.tables[t.name] for t in self.schema.tables]
        keys = [np.asarray(t.column(KEY).to_pylist()) for t in tables]
        _, numbers = np.unique(np.concatenate(keys), return_inverse=True)
        split = np.split(numbers, [len(keys[0])])
        sides = []
        for declared, table, key in zip(self.schema.tables, tables, split, strict=True):
            codes = {}
            for name in declared.attributes:
                if name != KEY:
                    positions = {v: i for i, v in enumerate(self.schema.attribute(name).values or ())}
                    codes[name] = np.array([positions[v] for v in table.column(name).to_pylist()])
            sides.append(Side(key, codes))
        return sides[0], sides[1]

    @cached_property
    def keys(self) -> int:
        """How many different keys the two tables have together."""
        return 1 + max(int(s.key.max()) for s in self.sides)

    @cached_property
    def degrees(self) -> tuple[np.ndarray, np.ndarray]:
        first, second = (np.bincount(s.key, minlength=self.keys) for s in self.sides)
        return first, second

    @cached_property
    def join_size(self) -> int:
        return int(self.degrees[0] @ self.degrees[1])

    @cached_property
    def exact(self) -> list[np.ndarray]:
        """The exact answers, one flat array per group of the workload: sums over keys of products of counts."""
        return [self._exact_marginal(g.scope).reshape(-1) for g in self.workload.groups]

    def size(self, attribute: str) -> int:
        return self.schema.attribute(attribute).size

    def table_of(self, attribute: str) -> int:
        """0 or 1: which of the two tables has the attribute."""
        return 0 if attribute in self.sides[0].codes else 1

    def by_key(self, attribute: str) -> sparse.csr_array:
        """Counts of (key, value) in the attribute's table."""
        side = self.sides[self.table_of(attribute)]
        ones = np.ones(len(side.key), dtype=np.int64)
        shape = (self.keys, self.size(attribute))
        return sparse.coo_array((ones, (side.key, side.codes[attribute])), shape=shape).tocsr()

    def _exact_marginal(self, scope: Sequence[str]) -> np.ndarray:
        owners = [self.table_of(a) for a in scope]
        if len(set(owners)) == 2:
            first, second = scope
            return (self.by_key(first).T @ self.by_key(second)).toarray()
        side, other = self.sides[owners[0]], self.degrees[1 - owners[0]]
        index = np.ravel_multi_index([side.codes[a] for a in scope], [self.size(a) for a in scope])
        cells = self.schema.cells(scope)
        # Counts stay far below 2^53, where float64 sums of whole numbers are exact.
        return np.rint(np.bincount(index, weights=other[side.key], minlength=cells)).astype(np.int64)


def load(names: Sequence[str] = TWO_TABLE) -> Iterator[Query]:
    """The named queries, in that order. Says one line and yields nothing when the data are not there."""
    files = sorted(DATA.glob("*/queries.json")) if DATA.is_dir() else []
    if not files:
        print("skipped: no development data in ../shared/data (beside the repository)")
        return
    found = {q["name"]: (q, path.parent) for path in files for q in json.loads(path.read_text(encoding="utf-8"))}
    for name in names:
        if name not in found:
            print(f"skipped: no query {name} in ../shared/data")
            continue
        described, folder = found[name]
        if len(described["relations"]) == 2:
            yield _query(described, folder)


def _query(described: dict[str, Any], folder: Path) -> Query:
    attributes, declared, tables = [dj.Attribute(name=KEY, key=True)], [], {}
    with duckdb.connect() as connection:
        for relation in described["relations"]:
            alias, (key,) = relation["alias"], relation["join_attrs"]
            columns = {f"{alias}_{a}": a for a in relation["attributes"]}
            selected = ", ".join([f'"{key}" AS {KEY}', *(f'"{a}" AS "{name}"' for name, a in columns.items())])
            rows = connection.sql(f"SELECT {selected} FROM ({relation['sql'].replace('{dir}', str(folder))})")
            # A missing value joins nothing or lies in no domain; dpjoin drops such a row by its public rule.
            table = rows.to_arrow_table().drop_null()
            for name, column in columns.items():
                # The data come with the size of each domain only, so the BENCHMARK reads the categories off the
                # rows. A real release must not: it declares them, without looking at the private rows.
                values = tuple(sorted(table.column(name).unique().to_pylist()))
                if len(values) != relation["attributes"][column]:
                    print(f"note: {name} has {len(values)} values, {relation['attributes'][column]} were stated")
                attributes.append(dj.Attribute(name=name, values=values))
            declared.append(dj.Table(name=alias, attributes=(KEY, *columns)))
            tables[alias] = table
    schema = dj.Schema(tables=tuple(declared), attributes=tuple(attributes))
    workload = dj.Workload.marginals(schema, (1, 2))
    return Query(described["name"], described["shape"], schema, workload, tables, described["join_size"])
