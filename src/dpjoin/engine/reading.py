"""Tables read from their store: into memory, or left where they are if there are too many."""

from __future__ import annotations

from dpjoin.engine.cluster_tables import ClusterTables
from dpjoin.engine.interface import Scope
from dpjoin.engine.memory import Memory
from dpjoin.engine.partitions import Partitions
from dpjoin.engine.scan import Store, read_tables
from dpjoin.engine.tables import Tables
from dpjoin.spec.schema import Schema


def read(schema: Schema, touched: Scope, store: Store, memory: Memory) -> Tables | Partitions | ClusterTables:
    """Count the rows of all tables; a store that computes says for itself where the counts lie."""
    read_there = getattr(store, "read", None)
    if read_there is None:
        return read_tables(schema, touched, store, memory)
    found: Tables | ClusterTables = read_there(schema, touched, memory)
    return found
