"""From rows to counts on a cluster: each table is read once, by the same query as everywhere, and written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpjoin.engine.checks import joins_of
from dpjoin.engine.cluster import Cluster, JoinKind, TableOnCluster, as_table, code_column, join_column
from dpjoin.engine.relations import Relation
from dpjoin.engine.scan import Scan, tables_of
from dpjoin.engine.tables import Tables
from dpjoin.spec.schema import Schema


@dataclass(frozen=True, eq=False)
class FrozenScans:
    """The scans of all tables, written down on the cluster."""

    schema: Schema
    cluster: Cluster
    scans: Mapping[str, Scan]
    """What the tables were read with; each tells the codes of all join attributes that have a domain."""
    exact_rows: Mapping[str, Relation]

    def kinds(self) -> dict[str, JoinKind]:
        """How the values of each join attribute lie on the cluster."""
        found: dict[str, JoinKind] = {}
        for name, rows in self.exact_rows.items():
            empty = self.cluster.exact_query(f"SELECT * FROM {rows.sql} r LIMIT 0").schema
            for a in joins_of(self.schema, name):
                kind = empty.field(join_column(self.schema, a)).type
                found.setdefault(a, JoinKind(kind, self.scans[name].has_digits(a)))
        return found

    def tables(self) -> dict[str, TableOnCluster]:
        def table(rows: Relation) -> TableOnCluster:
            return as_table(self.cluster, lambda: rows, rows.exact_total)

        return {name: table(rows) for name, rows in self.exact_rows.items()}

    def home(self) -> Tables:
        """The same counts in memory."""
        scans = {name: replace(scan, also=()) for name, scan in self.scans.items()}
        return tables_of(self.schema, scans, {name: self._fetched(scan) for name, scan in scans.items()})

    def _fetched(self, scan: Scan) -> Any:
        outputs = [f"{column} AS {name}" for name, column in _columns(scan).items()]
        rows = self.exact_rows[scan.table.name]
        return self.cluster.exact_query(f"SELECT {', '.join([*outputs, 'n'])} FROM {rows.sql} r")


def freeze(cluster: Cluster, scan: Scan) -> Relation:
    """Read a table's rows once, and write down how often each combination of join values and codes occurs."""
    return written(cluster, scan, scan.sql(grouped=True))


def written(cluster: Cluster, scan: Scan, sql: str) -> Relation:
    """The result of a scan, written down on the cluster."""
    columns = _columns(scan)
    # A code that is NULL marks a row that the public rule drops.
    conditions = " AND ".join([*(f"{name} IS NOT NULL" for name in columns if name.startswith("c")), "n > 0"])
    outputs = ", ".join([*(f"{name} AS {column}" for name, column in columns.items()), "n"])
    made = cluster.frozen(f"SELECT {outputs} FROM ({sql}) s WHERE {conditions}")
    sizes = cluster.exact_query(f"SELECT count(*) AS a, CAST(sum(n) AS BIGINT) AS b, max(n) AS c FROM {made.name}")
    rows, total, most = (int(column[0].as_py() or 0) for column in sizes.columns)
    return Relation(made.name, tuple(columns.values()), total, max(1, most), rows, (made,))


def scan_of(schema: Schema, scan: Scan) -> Scan:
    """The scan with the codes of all join attributes: a table that stays cannot look them up in another one."""
    joins = joins_of(schema, scan.table.name)
    return replace(scan, also=tuple(a for a in joins if not schema.attribute(a).key))


def _columns(scan: Scan) -> dict[str, str]:
    """What relations call the outputs of a scan."""
    joins = {f"k{i}": join_column(scan.schema, a) for i, a in enumerate(scan.joins)}
    return {**joins, **{f"c{i}": code_column(scan.schema, a) for i, a in enumerate(scan.owned)}}
