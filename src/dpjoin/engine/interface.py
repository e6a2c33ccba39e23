"""What an engine computes: exact aggregates of private tables, and nothing else.

Everything here is private. Only the Curator calls an engine, and it adds noise before anything leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from dpjoin.schema import Schema
from dpjoin.workload import Group


class Engine(Protocol):
    """Exact aggregates over the public domain, as whole numbers that neither wrap nor raise because of data."""

    @property
    def schema(self) -> Schema: ...

    def exact_join_size(self) -> int:
        """count(I): how many results the join has, multiplicities included."""
        ...

    def exact_boundary(self, tables: frozenset[str]) -> int:
        """T_E(I): the largest number of results that the join of the tables E has at one value of their boundary.

        The boundary of E are the attributes that E shares with the other tables. T of no table is 1.
        """
        ...

    def exact_answers(self, groups: Sequence[Group]) -> list[NDArray[Any]]:
        """Each group's answers in its unit: int64, or Python integers in an object array where int64 is too narrow."""
        ...
