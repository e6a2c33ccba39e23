"""Domains and shapes of small models."""

from __future__ import annotations

import numpy as np

from dpjoin.model.fit import (
    Evidence,
    Fit,
    learn,
    start,
)
from dpjoin.model.terms import Domain, FloatArray, Terms


def _domain(sizes: list[int], cut: int | None = None) -> Domain:
    names = {f"x{i}": n for i, n in enumerate(sizes)}
    if cut is None:
        return Domain.split(names)
    return Domain(tuple(list(names)[:cut]), tuple(list(names)[cut:]), names)


def shapes_of_keys(seed: int) -> tuple[FloatArray, Fit, Evidence]:
    """Rows by key and value: at each key one value, rare or not, has a fifth of the rows to itself. With noise."""
    rng, keys, values, sigma = np.random.default_rng(seed), 600, 8, 5.0
    common = 0.5 ** np.arange(values) / (0.5 ** np.arange(values)).sum()
    own = np.eye(values)[rng.integers(values, size=keys)]
    table = np.array([rng.multinomial(47, 0.8 * common + 0.2 * one) for one in own], dtype=float)
    terms = Terms(Domain(("k",), ("v",), {"k": keys, "v": values}), (("k",), ("v",), ("k", "v")))
    evidence = Evidence.none(terms.size)
    for where, exact in zip(terms.slices, (table.sum(axis=1), table.sum(axis=0), table.reshape(-1)), strict=True):
        evidence = evidence.add(where, exact + sigma * rng.standard_normal(exact.size), sigma**2)
    return table, learn(start(terms, float(table.sum())), evidence), evidence
