"""What a release is compared with. Baselines draw their noise with numpy: they are yardsticks, not releases."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

import dpjoin as dj
from dpjoin.algorithms.shares import tight_shares
from dpjoin.privacy import noise
from dpjoin.privacy.accountant import largest_rho
from queries import Query

Answers = list[np.ndarray]

PAIR_SHARE = 0.1
"""Of a table's rho, for the pairs of its attributes; the rest goes to the (key, attribute) histograms."""
RAKING_ROUNDS = 30


def whole_rho(budget: dj.Budget) -> float:
    """All of (epsilon, delta) in zero-concentrated currency: 0.02436 for (1, 1e-6)."""
    rho, _ = largest_rho(epsilon=Fraction(budget.epsilon), delta=Fraction(budget.delta))
    return float(rho)


def uniform(query: Query) -> Answers:
    """Every cell alike. Knows the true join size, so it is not private: a floor for guessing."""
    return [np.full(len(g), query.join_size / len(g)) for g in query.workload.groups]


def one_gaussian_each(query: Query, budget: dj.Budget, rng: np.random.Generator) -> Answers:
    """The join as one table, every marginal measured once, negatives clipped, no model.

    The sensitivity bound costs what it costs the tight profile and has the same truncated noise.
    """
    shares = tight_shares(budget, noisy_bound=True)
    assert shares.bound is not None
    assert shares.half_width is not None
    largest = max(int(d.max()) for d in query.degrees)
    shift = noise.truncated_discrete_gaussian(variance=1 / (2 * shares.bound.rho), half_width=shares.half_width)
    rho = float(shares.accountant.rho - shares.bound.rho)
    sigma = (largest + shift) * math.sqrt(len(query.exact) / (2 * rho))
    return [np.maximum(e + rng.normal(0, sigma, e.shape), 0) for e in query.exact]


def per_table_then_join(query: Query, budget: dj.Budget, rng: np.random.Generator, *, clip: bool = True) -> Answers:
    """Each table released alone with the whole budget, then joined.

    Neighbours differ in one table, so both tables get everything. A table is measured as one histogram over
    (key, value) per attribute, and as one over each pair of its attributes. Across tables the join's marginals are
    sum-products over the keys. Within a table a pair keeps the interaction of the table's own pair and is
    raked to the join's one-way marginals.

    With `clip`, negative counts become zero before the join, as in a synthetic table; without, they stay and the
    sum-product is unbiased. The keys of both tables are taken as known, a favour to this baseline.
    """
    rho = whole_rho(budget)
    floor = 0.0 if clip else -np.inf
    by_key: dict[str, np.ndarray] = {}
    owned = [list(s.codes) for s in query.sides]
    own_pairs: dict[tuple[str, ...], np.ndarray] = {}
    for side, names in zip(query.sides, owned, strict=True):
        scopes = [g.scope for g in query.workload.groups if len(g.scope) == 2 and set(g.scope) <= set(names)]
        kept = rho * (1 - PAIR_SHARE) if scopes else rho
        sigma = math.sqrt(len(names) / (2 * kept))
        for name in names:
            exact = query.by_key(name).toarray()
            by_key[name] = np.maximum(exact + rng.normal(0, sigma, exact.shape), floor)
        for scope in scopes:
            sigma = math.sqrt(len(scopes) / (2 * rho * PAIR_SHARE))
            shape = query.schema.shape(scope)
            index = np.ravel_multi_index([side.codes[a] for a in scope], shape)
            exact = np.bincount(index, minlength=math.prod(shape)).reshape(shape)
            own_pairs[scope] = np.maximum(exact + rng.normal(0, sigma, shape), 0)
    # A table's degrees are measured once per attribute: take the mean.
    degrees = [np.mean([by_key[a].sum(axis=1) for a in names], axis=0) for names in owned]
    one_way = {a: np.maximum(by_key[a].T @ degrees[1 - t], 0) for t, names in enumerate(owned) for a in names}
    answers = []
    for group in query.workload.groups:
        if len(group.scope) == 1:
            answer = one_way[group.scope[0]]
        elif group.scope in own_pairs:
            answer = _raked(own_pairs[group.scope], *(one_way[a] for a in group.scope))
        else:
            first, second = group.scope
            answer = np.maximum(by_key[first].T @ by_key[second], 0)
        answers.append(answer.reshape(-1))
    return answers


def _raked(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The table scaled to the given row and column sums by turns."""
    table = table + 1e-9
    columns = columns * (rows.sum() / max(columns.sum(), 1e-9))
    for _ in range(RAKING_ROUNDS):
        table = table * (rows / np.maximum(table.sum(axis=1), 1e-12))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), 1e-12))
    return table
