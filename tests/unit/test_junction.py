"""The junction tree equals the whole table on domains small enough to write down, and is quick on larger ones."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np
import pytest

from dpjoin.model import junction
from dpjoin.model.junction import Calibrated, Passes
from dpjoin.model.sampling import drawn
from dpjoin.model.triangulate import tree_of
from support.junction import CASES, Cliques, _flat, check, flattened, instance


@pytest.mark.parametrize("case", CASES)
def test_named_shapes(case: str) -> None:
    """Trees, cycles, parts that share nothing, attributes of one value or in no clique."""
    for seed in range(3):
        check(*CASES[case], seed)


def test_large_potentials_do_not_overflow() -> None:
    """Potentials of a thousand would overflow exp; the passes take the largest out first."""
    tree = tree_of({"a": 2, "b": 2, "c": 2}, [("a", "b"), ("b", "c")])
    strong = np.array([[2000.0, 0.0], [0.0, 2000.0]])
    found = tree.calibrate(flattened([strong, strong]))
    assert math.isclose(found.log_partition, 4000.0 + math.log(2.0))
    assert np.allclose(found.marginal(("a", "c")), np.eye(2) / 2)
    passes = Passes(tree, np.float64)
    passes.means(_flat([strong, strong]))
    assert np.allclose(passes.covariances(_flat([strong, strong])), 0.0)


def test_single_precision_is_enough_for_a_fit() -> None:
    """Marginals and how they move, to about 1e-6, in a tree of a few bags."""
    names = {f"x{i}": 9 for i in range(6)}
    tree = tree_of(names, [*itertools.pairwise(names), ("x0", "x5"), ("x1", "x4")])
    rng = np.random.default_rng(0)
    potentials, direction = rng.standard_normal(tree.size), rng.standard_normal(tree.size)
    single, double = Passes(tree, np.float32), Passes(tree, np.float64)
    assert np.allclose(single.means(potentials), double.means(potentials), rtol=1e-4, atol=1e-6)
    assert np.allclose(single.covariances(direction), double.covariances(direction), rtol=1e-4, atol=1e-6)
    # The same place again is not worked out again; another one is.
    assert single.means(potentials.copy()) is single.means(potentials)
    assert not np.allclose(single.means(direction), double.means(potentials))


def test_potentials_must_be_finite() -> None:
    """One that is not a number would make every answer one."""
    with pytest.raises(ValueError, match="must be finite"):
        tree_of({"a": 2}, [("a",)]).calibrate(np.array([0.0, np.nan]))


@pytest.mark.parametrize(
    ("sizes", "cliques", "words"),
    [
        ({"a": 0}, [], r"size of attribute 'a' \(0\) must be positive"),
        ({"a": 2}, [("a", "b")], r"must be different attributes out of: a"),
        ({"a": 2}, [("a", "a")], r"must be different attributes out of: a"),
    ],
)
def test_bad_trees(sizes: dict[str, int], cliques: Cliques, words: str) -> None:
    """Each guard names what is wrong."""
    with pytest.raises(ValueError, match=words):
        tree_of(sizes, cliques)


def test_one_array_per_clique() -> None:
    """One too many would be ignored in silence."""
    with pytest.raises(ValueError, match=r"potentials \(\(4,\)\) must be 2, one per cell"):
        tree_of({"a": 2}, [("a",)]).calibrate(flattened([np.zeros(2), np.zeros(2)]))


def test_answers_cannot_be_written_to() -> None:
    """An answer may be a view of the tree's own numbers; writing into it would change later answers."""
    found = tree_of({"a": 2, "b": 2}, [("a", "b")]).calibrate(flattened([np.zeros((2, 2))]))
    with pytest.raises(ValueError, match="read-only"):
        found.marginal(("a", "b"))[0, 0] = 1.0


def test_bad_scopes() -> None:
    """A scope must name different attributes of the tree."""
    found = tree_of({"a": 2, "b": 2}, []).calibrate(flattened([]))
    for scope in (("c",), ("a", "a")):
        with pytest.raises(ValueError, match="must be different attributes of the tree: a, b"):
            found.marginal(scope)
    with pytest.raises(ValueError, match=r"rows \(-1\)"):
        found.sample(-1, np.random.default_rng(0))


def test_size_is_known_before_anything_is_allocated() -> None:
    """All pairs of 12 attributes of 10 values are one bag of 10^12 cells: told at once, refused when asked for."""
    names = {f"x{i}": 10 for i in range(12)}
    pairs = list(itertools.combinations(names, 2))
    begin = time.perf_counter()
    tree = tree_of(names, pairs)
    assert time.perf_counter() - begin < 0.2
    assert (tree.cells, tree.largest, len(tree.bags)) == (10**12, 10**12, 1)
    with pytest.raises(ValueError, match=rf"^cells of the junction tree \({10**12}\) must be at most \d+; take fewer"):
        tree.calibrate(flattened([np.zeros((10, 10)) for _ in pairs]))


def test_triangulation_is_good_and_the_same_every_time() -> None:
    """A cycle needs bags of three only; a 4 x 4 grid bags of at most five; and the order of work is fixed."""
    cycle = tree_of({f"x{i}": 10 for i in range(12)}, [(f"x{i}", f"x{(i + 1) % 12}") for i in range(12)])
    assert cycle.largest == 10**3
    grid = [(i, i + 1) for i in range(16) if i % 4 < 3] + [(i, i + 4) for i in range(12)]
    names, cliques, _ = instance([3] * 16, grid, 0)
    assert tree_of(names, cliques).largest <= 3**5
    assert tree_of(names, cliques).bags == tree_of(names, cliques).bags


def test_a_heavy_attribute_is_kept_out_of_wide_bags() -> None:
    """In a cycle with one attribute of 1000 values, the chord runs between the others."""
    tree = tree_of({"a": 1000, "b": 2, "c": 1000, "d": 2}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    assert tree.cells == 2 * 4000


@pytest.mark.parametrize(
    ("sizes", "edges", "cells"),
    [
        ([100, 2, 10, 2, 2], [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)], 2800),
        ([3, 10, 3, 2, 2, 10], [(0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (2, 3), (2, 5), (3, 5)], 300),
        ([3, 2, 10, 10, 3], [(1, 2), (1, 4), (2, 3), (3, 4)], 263),
    ],
)
def test_no_rule_is_best_on_every_graph(sizes: list[int], edges: list[tuple[int, ...]], cells: int) -> None:
    """Each of these graphs is done best by another rule of elimination, and the best is taken."""
    names, cliques, _ = instance(sizes, edges, 0)
    assert tree_of(names, cliques).cells == cells


def _chain(length: int, values: int) -> Calibrated:
    names, cliques, potentials = instance([values] * length, [(i, i + 1) for i in range(length - 1)], 7)
    return tree_of(names, cliques).calibrate(flattened(potentials))


def test_a_chain_of_thirty() -> None:
    """10^30 cells: all 435 pairs in well under a second, each equal to a product of conditionals."""
    _chain(30, 10).marginal(("x0", "x29"))
    begin = time.perf_counter()
    chain = _chain(30, 10)
    pairs = list(itertools.combinations(chain.tree.sizes, 2))
    found = dict(zip(pairs, map(chain.marginal, pairs), strict=True))
    assert time.perf_counter() - begin < 0.5
    walk = np.diag(chain.marginal(("x0",)))
    for i in range(29):
        step = chain.marginal((f"x{i}", f"x{i + 1}"))
        walk = walk @ (step / step.sum(axis=1, keepdims=True))
        assert np.allclose(found["x0", f"x{i + 1}"], walk, rtol=1e-9)
    three = chain._across(("x20", "x3", "x11"))
    assert np.allclose(three.sum(axis=2), found["x3", "x20"].T)
    assert np.allclose(three.sum(axis=0), found["x3", "x11"])


def test_the_last_marginal_across_bags_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, it is not worked out anew; what is handed out cannot be written to."""
    names = {f"x{i}": 3 for i in range(8)}
    tree = tree_of(names, itertools.pairwise(names))
    found = tree.calibrate(np.random.default_rng(0).standard_normal(tree.size))
    made: list[Sequence[str]] = []
    carried = Calibrated._carried_up
    monkeypatch.setattr(Calibrated, "_carried_up", lambda self, scope: made.append(scope) or carried(self, scope))
    first, second = ("x0", "x3", "x6"), ("x1", "x4", "x7")
    for scope in (first, first, second, second, first):
        assert np.allclose(found.marginal(scope), carried(found, scope))
        assert not found.marginal(scope).flags.writeable
    assert made == [first, second, first]


def test_a_marginal_too_large_is_refused() -> None:
    """Ten attributes of ten values at once: one line that says how many cells."""
    chain = _chain(12, 10)
    with pytest.raises(ValueError, match=rf"\({10**10}\) must be at most .*; ask for fewer attributes"):
        chain.marginal(tuple(f"x{i}" for i in range(10)))


def test_pairs_one_by_one_when_together_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers either way."""
    chain = _chain(6, 4)
    together = chain.marginal(("x5", "x0"))
    monkeypatch.setattr(junction, "MOST_TREE_CELLS", 100)
    apart = Calibrated(chain.tree, chain.log_partition, chain.given, chain.marginals, chain.of_cliques)
    assert not apart._pairs_fit
    assert np.allclose(apart.marginal(("x5", "x0")), together)
    assert "_pairs" not in vars(apart)


def test_even_rows_stray_less() -> None:
    """Of a bag's cells each is at most one row off per group; independent rows stray like a square root."""
    chain = _chain(8, 4)
    rng = np.random.default_rng(5)
    off = {}
    for even in (False, True):
        drawn = chain.sample(20_000, rng, even=even)
        table = np.zeros((4, 4))
        np.add.at(table, (drawn["x0"], drawn["x1"]), 1)
        off[even] = float(np.abs(table - 20_000 * chain.marginal(("x0", "x1"))).mean())
    assert off[True] < off[False] / 4


def test_no_row_at_the_edge_of_an_empty_cell() -> None:
    """The least and the largest number, in groups that begin or end with an empty cell or whose sum is a little off."""
    given = np.array([[0.0, 1.0, 0.0], [0.0, 0.5 - 1e-12, 0.5 - 1e-12], [0.5 - 1e-12, 0.5 - 1e-12, 0.0]])
    group = np.array([0, 0, 1, 1, 2, 2])
    ends = np.array([0.0, np.nextafter(1.0, 0.0)] * 3)
    assert drawn(given, group, ends).tolist() == [1, 1, 1, 2, 0, 1]


def test_no_row_in_an_empty_cell() -> None:
    """A cell whose probability underflows is never drawn, first or last."""
    tree = tree_of({"a": 3, "b": 3}, [("a", "b")])
    table = np.array([[-5000.0, 0.0, -5000.0], [-5000.0, 1.0, -5000.0], [-5000.0] * 3])
    for even in (False, True):
        drawn = tree.calibrate(flattened([table])).sample(1000, np.random.default_rng(0), even=even)
        assert set(drawn["b"].tolist()) == {1}
        assert set(drawn["a"].tolist()) == {0, 1}
    assert all(
        len(codes) == 0 for codes in tree.calibrate(flattened([table])).sample(0, np.random.default_rng(0)).values()
    )
