"""Find a junction tree for some cliques: which attributes go into a bag together, and how the bags hang together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from dpjoin.model.junction import JunctionTree
from dpjoin.model.terms import Scope


def tree_of(sizes: Mapping[str, int], cliques: Iterable[Sequence[str]]) -> JunctionTree:
    """A junction tree for some cliques; attributes in no clique get a bag of their own. Allocates no cells.

    Cycles of cliques are closed by greedy elimination. No rule is best on every graph, so three are tried and the
    tree with the fewest cells is taken.
    """
    wanted = tuple(tuple(c) for c in cliques)
    for attribute, size in sizes.items():
        if size < 1:
            raise ValueError(f"size of attribute {attribute!r} ({size}) must be positive")
    for clique in wanted:
        if len(set(clique)) < len(clique) or not set(clique) <= set(sizes):
            raise ValueError(f"a clique {clique} must be different attributes out of: {', '.join(sizes)}")
    graph: dict[str, set[str]] = {a: set() for a in sizes}
    for clique in wanted:
        for a, b in combinations(clique, 2):
            graph[a].add(b)
            graph[b].add(a)

    def cells(bags: list[frozenset[str]]) -> tuple[int, int]:
        each = [math.prod(sizes[a] for a in bag) for bag in bags]
        return sum(each), max(each)

    return _rooted(sizes, wanted, min((_eliminated(sizes, graph, rule) for rule in RULES), key=cells))


Rule = Callable[[Mapping[str, int], dict[str, set[str]], str], tuple[int, ...]]


def _fill(sizes: Mapping[str, int], graph: dict[str, set[str]], attribute: str) -> tuple[int, ...]:
    """How many edges eliminating an attribute adds (twice), then how large its bag is."""
    around = graph[attribute]
    return sum(len(around - graph[a]) - 1 for a in around), *_weight(sizes, graph, attribute)


def _weight(sizes: Mapping[str, int], graph: dict[str, set[str]], attribute: str) -> tuple[int, ...]:
    """How large an attribute's bag is."""
    return (math.prod(sizes[a] for a in graph[attribute]) * sizes[attribute],)


def _weighted_fill(sizes: Mapping[str, int], graph: dict[str, set[str]], attribute: str) -> tuple[int, ...]:
    """How many cells the edges have that eliminating an attribute adds."""
    around = graph[attribute]
    return (sum(sizes[a] * sum(sizes[b] for b in around - graph[a] if b != a) for a in around),)


RULES: tuple[Rule, ...] = (_fill, _weight, _weighted_fill)


def _eliminated(sizes: Mapping[str, int], graph: Mapping[str, set[str]], rule: Rule) -> list[frozenset[str]]:
    """The maximal bags that come from taking attributes away one by one, the cheapest by the rule first."""
    left = {a: set(around) for a, around in graph.items()}
    bags: list[frozenset[str]] = []
    while left:
        # An attribute whose neighbours are all neighbours of each other adds nothing: no order does better.
        free = (a for a, around in left.items() if all(len(around - left[b]) == 1 for b in around))
        attribute = next(free, None)
        if attribute is None:
            attribute = min(left, key=lambda a: rule(sizes, left, a))
        around = left.pop(attribute)
        for a in around:
            left[a] |= around
            left[a] -= {a, attribute}
        bag = frozenset(around | {attribute})
        if not any(bag <= other for other in bags):
            bags.append(bag)
    return bags or [frozenset()]


def _rooted(sizes: Mapping[str, int], cliques: tuple[Scope, ...], bags: list[frozenset[str]]) -> JunctionTree:
    """The bags as a tree: each joined to the placed bag with which it shares most (a maximum spanning tree)."""
    waiting = sorted(bags, key=lambda bag: -math.prod(sizes[a] for a in bag))
    root = waiting.pop(0)
    placed: list[Scope] = [tuple(a for a in sizes if a in root)]
    parents, shared = [-1], [0]
    nearest = [(len(bag & root), 0) for bag in waiting]
    while waiting:
        i = max(range(len(waiting)), key=lambda i: nearest[i][0])
        bag, (overlap, parent) = waiting.pop(i), nearest.pop(i)
        passed = tuple(a for a in placed[parent] if a in bag)
        parents.append(parent)
        shared.append(overlap)
        placed.append(passed + tuple(a for a in sizes if a in bag and a not in passed))
        here = len(placed) - 1
        nearest = [
            (len(other & bag), here) if len(other & bag) > known[0] else known
            for other, known in zip(waiting, nearest, strict=True)
        ]
    return JunctionTree(dict(sizes), cliques, tuple(placed), tuple(parents), tuple(shared))
