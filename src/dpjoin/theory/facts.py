"""What the theorems look at: rows, join size, boundary values, and how the join spreads over degrees.

Computed on tables these are exact numbers, so they are private unless the tables are made up. The type says which:
`PrivateFacts` prints as PRIVATE, and what `bounds` computes from it does too.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpjoin.canonical import flag, instance
from dpjoin.errors import SpecError
from dpjoin.privacy.residual import Boundaries, local_sensitivity, proper_subsets, residual_sensitivity
from dpjoin.spec.hypergraph import AttributeNode, attribute_tree, boundary
from dpjoin.spec.schema import Schema

Value = tuple[Any, ...]
Degrees = Mapping[str, Mapping[Value, int]]
"""For each table how many rows each value of its shared attributes has."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Exact statistics of made-up tables, or numbers that somebody supposes."""

    rows: int
    """n."""
    join_size: int
    """count(I), OUT."""
    boundaries: Boundaries
    """T_F for every proper subset F of the tables."""
    schema: Schema
    degrees: Degrees = field(repr=False)

    @cached_property
    def local(self) -> int:
        """LS: how many join results one row can be in."""
        return local_sensitivity(self.boundaries)

    def residual(self, beta: float) -> float:
        """RS: the residual sensitivity (Definition 3.6)."""
        return float(residual_sensitivity(self.boundaries, Fraction(beta)))


class Private:
    """Of private tables: says so."""

    def __repr__(self) -> str:
        return "PRIVATE, computed from exact answers, do not publish: " + super().__repr__()


class PrivateFacts(Private, Facts):
    """The same of private tables."""


def facts(schema: Schema, tables: Mapping[str, Any], *, public: bool = False) -> Facts:
    """The exact statistics of tables: PrivateFacts unless `public` says that nobody's rows are among them.

    `public` is for tables that are made up. It is not for private tables whose statistics somebody would like to print.
    """
    from dpjoin.engine.duck import DuckEngine

    if instance(schema, Schema, "schema").unit:
        raise SpecError("the unit of privacy must be one row, as in the paper's theorems; leave it out of the schema")
    if schema.learned:
        raise SpecError("domains must be declared, not learned; take the schema of the release")
    if not isinstance(tables, Mapping):
        raise SpecError(f"tables must map each table's name to its rows, not be {type(tables).__name__}")
    engine = DuckEngine(schema, tables, attributes=schema.queryable)
    names = tuple(t.name for t in schema.tables)
    values = {subset: engine.exact_boundary(subset) if subset else 1 for subset in proper_subsets(names)}
    degrees = {}
    for name in names:
        shared = boundary(schema, frozenset({name}))
        exact = engine.exact_degrees({name: {}}, shared)
        counts = exact.exact_counts
        degrees[name] = dict(zip(exact.exact_values(np.arange(len(counts))), counts.tolist(), strict=True))
    return (Facts if flag(public, "public") else PrivateFacts)(
        rows=sum(sum(of.values()) for of in degrees.values()),
        join_size=engine.exact_join_size(),
        boundaries=Boundaries(tables=names, private=frozenset(schema.private_tables), values=values),
        schema=schema,
        degrees=degrees,
    )


# The uniform partition: join values of like degrees ------------------------------------------------------------------


def level_of(degree: float, unit: float) -> int:
    """The i >= 1 with degree in (unit·2^(i-1), unit·2^i]; 1 for all smaller ones."""
    return max(1, math.ceil(math.log2(degree / unit))) if degree > 0 else 1


def uniform_partition(known: Facts, unit: float, noise: float = 0.0) -> dict[int, int]:
    """Definition 4.3, two tables: the join size at each level of the larger of a join value's two degrees.

    Every join value counts wherever noise up to so much can put it; then there is a first level in any case.
    """
    if len(known.degrees) != 2:
        raise SpecError(f"the uniform partition of Definition 4.3 must have two tables, not {len(known.degrees)}")
    both = list(known.degrees.values())
    sizes: dict[int, int] = defaultdict(int, {1: 0} if noise else {})
    for value in set().union(*both):
        degrees = [of.get(value, 0) for of in both]
        low, high = (level_of(max(degrees) + more, unit) for more in (0.0, noise))
        for level in range(low, high + 1):
            sizes[level] += math.prod(degrees)
    return dict(sorted(sizes.items()))


@dataclass(frozen=True)
class Configuration:
    """Definition 4.9 with true degrees: the sub-instance's join size, and a cap for the degree at every tree node."""

    join_size: int
    caps: Mapping[frozenset[str], float]
    """By the tables that hold the node (atom)."""
    tables: tuple[str, ...]
    private: frozenset[str]

    def boundary(self, subset: frozenset[str]) -> float:
        """T^σ_F: the product of the caps of all nodes whose tables lie in F (Lemma 4.8, Figure 4)."""
        return math.prod(cap for held, cap in self.caps.items() if held <= subset)

    def widened(self, by: float) -> Configuration:
        """With every cap so much larger."""
        return replace(self, caps={held: cap + by for held, cap in self.caps.items()})

    @property
    def local(self) -> float:
        """LS^σ, the largest T^σ of all tables but a private one."""
        return max(self.boundary(frozenset(self.tables) - {t}) for t in self.private)

    def residual(self, beta: float) -> float:
        """RS^σ, from the T^σ rounded up."""
        values = {f: math.ceil(self.boundary(f)) for f in proper_subsets(self.tables)}
        b = Boundaries(tables=self.tables, private=self.private, values=values)
        return float(residual_sensitivity(b, Fraction(beta)))


Part = tuple[Degrees, dict[frozenset[str], float]]
"""A sub-instance: degrees, and the caps so far."""


def configurations(known: Facts, unit: float) -> list[Configuration]:
    """The sub-instances of the uniform partition of a hierarchical join, those without results too."""
    b, root = known.boundaries, _tree(known.schema)
    parts = ((_present(known.schema, root, degrees), caps) for degrees, caps in _partition(known, unit))
    return [Configuration(sum(results.values()), caps, b.tables, b.private) for results, caps in parts]


def copies_of(known: Facts, unit: float) -> int:
    """In how many sub-instances of that partition one row can be."""
    every = _partition(known, unit)
    rows = Counter((name, value) for degrees, _ in every for name, of in degrees.items() for value in of)
    return max(rows.values(), default=1)


def _tree(schema: Schema) -> AttributeNode:
    root = attribute_tree(schema)
    if root is None or root.virtual:
        raise SpecError("degree configurations must be of a connected hierarchical join")
    return root


def _partition(known: Facts, unit: float) -> list[Part]:
    """Nodes are visited bottom-up as in Algorithm 6, with true degrees. All tables that hold a node's ancestors are
    restricted, not only those that hold the node: the join is the same, and there are fewer copies.
    """
    parts: list[Part] = [(known.degrees, {})]
    for above, node in reversed([(n, child) for n in _tree(known.schema).walk() for child in n.children]):
        parts = [made for part in parts for made in _decomposed(known.schema, part, above, node, unit)]
    return parts


def _decomposed(schema: Schema, part: Part, above: AttributeNode, node: AttributeNode, unit: float) -> list[Part]:
    """Algorithm 7 with true degrees: one sub-instance for each level of the node's degree; 0 is in the first one."""
    degrees, caps = part
    present = _present(schema, node, degrees)
    counted = _summed(dict.fromkeys(present, 1), node.path, above.path) if node.children else present
    levels: dict[str, dict[Value, int]] = {}
    for name, of in degrees.items():
        keys = boundary(schema, frozenset({name}))
        if set(above.path) <= set(keys):
            short = _shortened(keys, above.path)
            levels[name] = {value: level_of(counted.get(short(value), 0), unit) for value in of}
    found: list[Part] = []
    for level in sorted({n for of in levels.values() for n in of.values()} or {1}):
        inside = {name: {v: degrees[name][v] for v, n in of.items() if n == level} for name, of in levels.items()}
        found.append(({**degrees, **inside}, {**caps, node.tables: unit * 2.0**level}))
    return found


def _present(schema: Schema, node: AttributeNode, degrees: Degrees) -> dict[Value, int]:
    """How many results the tables below a node have at each value of its path; a leaf: of what its table shares."""
    if not node.children:
        (name,) = node.tables
        return dict(degrees[name])
    keys = [child.path if child.children else boundary(schema, child.tables) for child in node.children]
    found = [_present(schema, child, degrees) for child in node.children]
    below = [_summed(values, of, node.path) for values, of in zip(found, keys, strict=True)]
    common = set(below[0]).intersection(*below[1:])
    return {value: math.prod(of[value] for of in below) for value in common}


def _shortened(keys: Sequence[str], path: Sequence[str]) -> Callable[[Value], Value]:
    position = [keys.index(a) for a in path]
    return lambda value: tuple(value[p] for p in position)


def _summed(values: Mapping[Value, int], keys: Sequence[str], path: Sequence[str]) -> dict[Value, int]:
    sums, short = defaultdict[Value, int](int), _shortened(keys, path)
    for value, weight in values.items():
        sums[short(value)] += weight
    return sums
