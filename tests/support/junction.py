"""Junction trees against tables of all cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from dpjoin.model.junction import FloatArray, JunctionTree, Passes
from dpjoin.model.triangulate import tree_of

Cliques = list[tuple[str, ...]]


def flattened(potentials: Sequence[FloatArray]) -> FloatArray:
    """Potentials clique by clique, as one vector."""
    return np.concatenate([np.zeros(0), *map(np.ravel, potentials)])


class Whole:
    """The definition: every cell of the domain, one by one."""

    def __init__(self, sizes: dict[str, int], cliques: Cliques, potentials: Sequence[FloatArray]) -> None:
        self.names, self.cliques = list(sizes), cliques
        self.shape = tuple(sizes.values())
        weights = np.zeros(self.shape)
        for cell in np.ndindex(*self.shape):
            at = dict(zip(sizes, cell, strict=True))
            weights[cell] = math.exp(
                sum(float(p[tuple(at[a] for a in c)]) for c, p in zip(cliques, potentials, strict=True))
            )
        self.log_partition = math.log(weights.sum())
        self.table = weights / weights.sum()

    def marginal(self, scope: Sequence[str], table: FloatArray | None = None) -> FloatArray:
        table = self.table if table is None else table
        out = np.zeros([self.shape[self.names.index(a)] for a in scope])
        for cell in np.ndindex(*self.shape):
            out[tuple(cell[self.names.index(a)] for a in scope)] += table[cell]
        return out

    def tangent(self, direction: Sequence[FloatArray]) -> FloatArray:
        """Cov(indicator of each clique cell, sum of the direction), from the definition."""
        slope = np.zeros(self.shape)
        for cell in np.ndindex(*self.shape):
            at = dict(zip(self.names, cell, strict=True))
            slope[cell] = sum(float(v[tuple(at[a] for a in c)]) for c, v in zip(self.cliques, direction, strict=True))
        centred = self.table * (slope - (self.table * slope).sum())
        return np.concatenate([self.marginal(c, centred).reshape(-1) for c in self.cliques] + [np.zeros(0)])


def instance(
    sizes: list[int], edges: list[tuple[int, ...]], seed: int
) -> tuple[dict[str, int], Cliques, list[FloatArray]]:
    names = {f"x{i}": n for i, n in enumerate(sizes)}
    cliques = [tuple(f"x{i}" for i in e) for e in edges]
    rng = np.random.default_rng(seed)
    return names, cliques, [1.5 * rng.standard_normal([names[a] for a in c]) for c in cliques]


def check_tree(tree: JunctionTree) -> None:
    """Every clique in a bag, every attribute's bags connected, separators first."""
    assert all(tree.home(c) is not None for c in tree.cliques)
    assert {a for bag in tree.bags for a in bag} == set(tree.sizes)
    for attribute in tree.sizes:
        holding = [b for b, bag in enumerate(tree.bags) if attribute in bag]
        tops = [b for b in holding if tree.parents[b] not in holding]
        assert len(tops) == 1, f"the bags with {attribute} fall apart"
    for b, (parent, n) in enumerate(zip(tree.parents, tree.shared, strict=True)):
        assert parent < b
        if parent >= 0:
            assert set(tree.bags[b][:n]) == set(tree.bags[b]) & set(tree.bags[parent])
    assert tree.cells == sum(math.prod(tree.sizes[a] for a in bag) for bag in tree.bags)


def _flat(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(a.reshape(-1) for a in arrays)])


def check(sizes: list[int], edges: list[tuple[int, ...]], seed: int) -> None:
    names, cliques, potentials = instance(sizes, edges, seed)
    tree, whole = tree_of(names, cliques), Whole(names, cliques, potentials)
    check_tree(tree)
    found = tree.calibrate(flattened(potentials))
    assert math.isclose(found.log_partition, whole.log_partition, rel_tol=1e-12, abs_tol=1e-12)
    for bag, marginal in zip(tree.bags, found.marginals, strict=True):
        assert np.allclose(marginal, whole.marginal(bag), rtol=1e-10, atol=1e-14)
    flat = np.concatenate([whole.marginal(c).reshape(-1) for c in cliques] + [np.zeros(0)])
    assert np.allclose(found.of_cliques, flat, rtol=1e-10, atol=1e-14)
    rng = np.random.default_rng(seed + 1)
    direction = [rng.standard_normal(p.shape) for p in potentials]
    passes = Passes(tree, np.float64)
    assert np.allclose(passes.means(_flat(potentials)), flat, rtol=1e-10, atol=1e-14)
    assert np.allclose(passes.covariances(_flat(direction)), whole.tangent(direction), rtol=1e-10, atol=1e-13)
    scopes = [s for r in range(min(4, len(sizes)) + 1) for s in itertools.permutations(names, r)]
    scopes = [scopes[i] for i in rng.permutation(len(scopes))[:40]] + list(itertools.permutations(names, 2))
    for scope, marginal in zip(scopes, map(found.marginal, scopes), strict=True):
        want = whole.marginal(scope)
        assert marginal.shape == want.shape
        assert np.allclose(marginal, want, rtol=1e-10, atol=1e-14), scope
        assert np.allclose(found._across(tuple(scope)), want, rtol=1e-10, atol=1e-14), scope


CASES = {
    "chain": ([3, 2, 4, 2, 3], [(0, 1), (2, 1), (2, 3), (4, 3)]),
    "star": ([3, 2, 4, 2, 3], [(0, 1), (2, 0), (0, 3), (4, 0)]),
    "cycle": ([2, 3, 2, 3, 2, 2], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]),
    "grid": ([2] * 9, [(i, i + 1) for i in range(8) if i % 3 < 2] + [(i, i + 3) for i in range(6)]),
    "two parts": ([3, 2, 2, 3, 2], [(0, 1), (2, 3), (3, 4)]),
    "three parts, one free": ([3, 2, 2, 3, 2], [(0, 1), (2,)]),
    "no clique": ([3, 2, 1], []),
    "only the empty clique": ([3, 2], [()]),
    "no attribute": ([], [()]),
    "sizes of one": ([1, 3, 1, 2, 1], [(0, 1), (1, 2), (2, 3), (0, 3)]),
    "twice the same": ([2, 3], [(0, 1), (1, 0), (0, 1), (1,)]),
    "overlapping triples": ([2, 3, 2, 2, 3, 2], [(0, 1, 2), (2, 1, 3), (3, 4, 1), (5, 4, 3)]),
    "branches below two separators": ([2] * 8, [(0, 1, 2), (0, 3), (1, 4), (2, 5), (3, 6), (0, 1, 7)]),
    "long branches below one separator": (
        [2, 5, 2, 2, 2, 2, 2, 2],
        [(0, 1), (0, 2), (2, 3), (3, 4), (0, 5), (5, 6), (6, 7)],
    ),
    "many values": ([40, 37, 3, 2], [(0, 1), (1, 2), (0, 2, 3), (3, 1), (1, 3)]),
}
