"""The marginals that a model is made of: those that the workload needs, and the one-way marginals in them."""

from __future__ import annotations

from collections.abc import Sequence

from dpjoin.model.model import clique_scopes
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, Group, Kronecker, Workload, kronecker


def wanted_cliques(workload: Workload) -> list[tuple[str, ...]]:
    """All of them, one-way ones first."""
    return with_singles(clique_scopes(workload.groups))


def clique_importance(workload: Workload, cliques: Sequence[tuple[str, ...]]) -> list[float]:
    """How much each clique's errors count: as the most important group that it answers and no smaller one does."""
    found = []
    for clique in cliques:
        smaller = [set(c) for c in cliques if set(c) < set(clique)]
        own = [
            workload.importance_of(g)
            for g in workload.groups
            if set(g.scope) <= set(clique) and not any(set(g.scope) <= c for c in smaller)
        ]
        found.append(max(own, default=1.0))
    return found


def clique_groups(schema: Schema, cliques: Sequence[tuple[str, ...]]) -> list[Group]:
    """Each clique as the marginal that is measured."""
    groups: list[Group] = []
    for clique in cliques:
        group: Kronecker = kronecker(schema, dict.fromkeys(clique, CELLS))
        assert group.scope == clique, "cliques are in the order of the schema"
        groups.append(group)
    return groups


def with_singles(cliques: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Add the one-way marginals of every attribute that is in a wider one."""
    singles = dict.fromkeys((a,) for c in cliques if len(c) > 1 for a in c)
    return [*singles, *(c for c in cliques if c not in singles)]
