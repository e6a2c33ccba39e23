"""The hard instances have exactly the rows, join size and local sensitivity that they state."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from dpjoin.theory import facts, hard
from dpjoin.theory.exponents import agm_exponent, boundary_exponent, cover_and_packing, worst_case_error_exponent
from dpjoin.theory.hard import SHAPES, Instance
from support.brute import BruteEngine

RNG = np.random.default_rng(0)


INSTANCES: dict[str, Callable[[], Instance]] = {
    "figure 1, one row": lambda: hard.figure_1(7)[0],
    "figure 1, empty": lambda: hard.figure_1(7)[1],
    "figure 2": hard.figure_2,
    "figure 3": lambda: hard.figure_3(6),
    "example 4.2": lambda: hard.example_gap(8),
    "two levels": lambda: hard.conforming([(5, 3), (4, 2)]),
    "two levels with bits": lambda: hard.with_bits(hard.conforming([(5, 3), (4, 2)]), 4, RNG),
    **{f"reduction, {s}": lambda s=s: hard.reduction(s, (2, 1, 2), 2) for s in SHAPES},
    **{f"reduction as in the paper, {s}": lambda s=s: hard.reduction(s, (2, 1, 2), 2, carried=False) for s in SHAPES},
    **{f"worst case, {s}": lambda s=s: hard.agm_tight(s, 3) for s in SHAPES},
    **{f"uniform, {s}": lambda s=s: hard.uniform(s, keys=4, degree=3, size=9, rng=RNG) for s in SHAPES},
}


def loops(instance: Instance) -> BruteEngine:
    return BruteEngine(instance.schema, {name: table.to_pylist() for name, table in instance.arrow().items()})


@pytest.mark.parametrize("name", INSTANCES)
def test_stated_numbers_are_exact(name: str) -> None:
    """Join size and local sensitivity, by the definitions in loops and by the engine."""
    instance = INSTANCES[name]()
    engine, names = loops(instance), [t.name for t in instance.schema.tables]
    assert engine.exact_join_size() == instance.join_size
    assert max(engine.exact_boundary(frozenset(names) - {n}) for n in names) == instance.sensitivity
    known = facts(instance.schema, instance.arrow(), public=True)
    assert (known.rows, known.join_size, known.local) == (instance.rows, instance.join_size, instance.sensitivity)


def test_figure_1_and_its_neighbour_differ_by_one_row() -> None:
    """Definition 1.1: one row of R2, and the join has n results or none."""
    full, empty = hard.figure_1(7)
    assert (full.rows, empty.rows) == (8, 7)
    assert (full.join_size, empty.join_size) == (7, 0)


def test_figure_2_is_the_figure() -> None:
    """n = 9, Delta = 3, OUT = 27."""
    instance = hard.figure_2()
    assert len(instance.tables["R1"]["A"]) == 9
    assert (instance.sensitivity, instance.join_size) == (3, 27)


@pytest.mark.parametrize("root", [1, 5, 20])
def test_figure_3_has_the_stated_orders(root: int) -> None:
    """n = root (root + 1), Delta = root, OUT = root (root + 1)(2 root + 1)/6: Theta(n), sqrt(n), Theta(n^1.5)."""
    instance = hard.figure_3(root)
    assert (instance.rows, instance.sensitivity) == (root * (root + 1), root)
    assert instance.join_size == root * (root + 1) * (2 * root + 1) // 6


@pytest.mark.parametrize("k", [8, 64, 512])
def test_example_gap_has_delta_and_sizes(k: int) -> None:
    """Delta = k^(2/3). The sums are (8/3) k^2 rows and 2 k^2 results, short of a last term; not 2 k^2 and k^2 log k."""
    instance = hard.example_gap(k)
    top = instance.sensitivity
    assert top**3 == k**2
    assert instance.rows * 3 * top**2 == 2 * (4 * top**2 - 1) * k**2
    assert instance.join_size * top == (2 * top - 1) * k**2
    assert instance.rows > 2 * k**2  # the paper: at most 2 k^2
    assert instance.join_size < 2 * k**2  # the paper: (2/3) k^2 log2 k
    with pytest.raises(ValueError, match="power of two"):
        hard.example_gap(k + 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reduction_multiplies_a_single_table(shape: str) -> None:
    """Removing a row of T removes a row of R1 and Delta join results; all other tables stay as they are."""
    more, less = hard.reduction(shape, (2, 1, 2), 2), hard.reduction(shape, (2, 1, 1), 2)
    assert more.join_size == 5 * more.sensitivity
    assert less.join_size == 4 * less.sensitivity
    assert len(more.tables["R1"]["A"]) - len(less.tables["R1"]["A"]) == 1
    assert more.sensitivity == less.sensitivity == 2 ** len(set("".join(SHAPES[shape])) - set(SHAPES[shape][0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_worst_case_reaches_both_exponents(shape: str) -> None:
    """With n = base^2 rows a table (twice, for two instances): OUT >= n^rho, LS = n^max rho(H_E), no row repeats."""
    base = 5
    instance = hard.agm_tight(shape, base)
    schema = instance.schema
    everything = frozenset(t.name for t in schema.tables)
    largest = max(boundary_exponent(schema, everything - {n}) for n in everything)
    assert instance.join_size >= base ** (2 * agm_exponent(schema))
    assert instance.sensitivity == base ** (2 * largest)
    assert worst_case_error_exponent(schema) == (agm_exponent(schema) + largest) / 2
    for table in instance.arrow().values():
        rows = table.to_pylist()
        assert len(rows) <= 2 * base**2
        assert len({tuple(r.values()) for r in rows}) == len(rows)


def test_packings_prove_the_covers() -> None:
    """A packing of the attributes weighs as much as the smallest edge cover (linear programming duality)."""
    for shape, tables in SHAPES.items():
        found = cover_and_packing({t: t for t in tables})[1]
        assert sum(found.values()) == agm_exponent(hard.shape_schema(shape, {}))
        assert all(sum(found[a] for a in t) <= 1 for t in tables)


def test_uniform_instances_are_what_they_say_on_any_shape() -> None:
    """keys·degree^m results, and a row is in degree^(m-1) of them."""
    for shape, tables in SHAPES.items():
        instance = hard.uniform(shape, keys=3, degree=2, size=8, rng=RNG)
        assert instance.rows == 3 * 2 * len(tables)
        assert instance.join_size == 3 * prod([2] * len(tables))
