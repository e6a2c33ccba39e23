"""The compiled loops do what the loops say, and those what the definition says; without them numpy does the same."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.model import compiled, dense
from dpjoin.model.compiled import Kernels, kernels
from dpjoin.model.dense import Iterate
from dpjoin.model.terms import Domain

PLAIN = Kernels(compiled.grow, compiled.distance)


def loops(name: str) -> Kernels:
    found = PLAIN if name == "plain" else kernels()
    assert found is not None, "numba is among the packages for development"
    return found


@pytest.mark.parametrize("name", ["plain", "compiled"])
@pytest.mark.parametrize("step", [0.0, 1e-9, 1 / 32, -0.01, 0.5, -1.0, 3.0])
def test_growth_is_the_exponential(name: str, step: float) -> None:
    """To the last bits, for steps of any size a round can take, and beyond; the other tables follow."""
    rng = np.random.default_rng(3)
    first, second = rng.uniform(-1, 1, 7), rng.uniform(-1, 1, 65)
    first[2] = 0.0
    before = rng.random((7, 65))
    cells, rest, single = before.copy(), np.full((7, 65), 5.0), before.astype(np.float32)
    gained = loops(name).grow((cells, rest, single), (first, second), step, 2.0)
    gain = before * np.expm1(step * np.outer(first, second))
    np.testing.assert_allclose(cells - before, gain, rtol=1e-13, atol=4e-16 * np.exp(abs(step)))
    np.testing.assert_allclose(rest, 5.0 - 2.0 * gain, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(single, cells.astype(np.float32))
    assert gained == pytest.approx(gain.sum(), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", ["plain", "compiled"])
def test_distance_is_half_the_absolute_differences(name: str) -> None:
    table, earlier = np.random.default_rng(0).random((2, 9, 70))
    assert loops(name).distance(table, 1.5, earlier) == pytest.approx(np.abs(1.5 * table - earlier).sum() / 2)


def one_update(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[tuple[str, ...], Any]:
    """Weights of some attributes, alone or together, in any order: whole boxes and dense ones."""
    names = [str(a) for a in rng.permutation([f"x{i}" for i in range(len(shape))])]
    found: dict[tuple[str, ...], Any] = {}
    while names:
        some = tuple(names.pop() for _ in range(int(rng.integers(1, min(2, len(names)) + 1))))
        if not found or rng.integers(2):
            sizes = [shape[int(a[1:])] for a in some]
            found[some] = (rng.integers(0, 2, sizes) if rng.integers(2) else rng.uniform(-1, 1, sizes)).astype(float)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 10**6))
def test_an_iterate_is_the_same_with_and_without(sizes: list[int], seed: int) -> None:
    """Tables, sums of tables, marginals, the copy in single precision and distances, after updates of every kind."""
    shape = tuple(sizes)
    names = tuple(f"x{i}" for i in range(len(shape)))
    domain = Domain(names[:1], names[1:], dict(zip(names, shape, strict=True)))
    whole = tuple(str(a) for a in np.random.default_rng(seed).permutation(names))
    scopes = [whole, names[:1], names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "SHORTEST_ROW", 2)
        patch.setattr(dense, "ROUNDS_UNTIL_ANEW", 4)
        found = []
        for least in (0, 2**30):
            patch.setattr(dense, "COMPILED_CELLS", least)
            rng = np.random.default_rng(seed)
            table = Iterate(domain, 20.0, scopes)
            first, seen = table.table(), []
            for _ in range(9):
                table.update(one_update(rng, shape), float(rng.uniform(-1, 1)))
                for scope in scopes:
                    np.testing.assert_array_equal(
                        table.unscaled_single(scope), table.unscaled(scope).astype(np.float32)
                    )
                seen += [table.table(), table.sum_of_tables(), table.unscaled(names[:1]) * table.scale]
                seen.append(np.array(table.distance(first)))
            found.append(seen)
    for with_loops, without in zip(*found, strict=True):
        np.testing.assert_allclose(with_loops, without, rtol=1e-12, atol=1e-13)


def test_a_large_table_takes_the_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the sizes that are the default: otherwise nothing here would be about what runs."""
    calls = []
    real = loops("compiled")
    watched = Kernels(lambda *a: calls.append("grow") or real._grow(*a), real._distance)
    monkeypatch.setattr(dense, "kernels", lambda: watched)
    rng = np.random.default_rng(1)
    for side, expected in ((512, ["grow"]), (128, [])):
        table = Iterate(Domain(("a",), ("b",), {"a": side, "b": side}), 1.0, [("a", "b")])
        calls.clear()
        table.update({("a",): rng.random(side), ("b",): rng.random(side)}, 0.1)
        assert calls == expected


def test_without_numba_there_are_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kernels.__wrapped__() is None


def test_loops_that_cannot_be_kept_are_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that nobody may write to must not end a release."""
    import numba

    plain = numba.njit

    def no_place(loop: Any, *, cache: bool, **rest: Any) -> Any:
        if cache:
            raise RuntimeError("no locator available")
        return plain(loop, **rest)

    monkeypatch.setattr(numba, "njit", no_place)
    found = kernels.__wrapped__()
    assert found is not None
    assert found.distance(np.ones((2, 70)), 2.0, np.ones((2, 70))) == 70.0
