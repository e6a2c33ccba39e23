"""What a release is compared with. Baselines draw their noise with numpy: they are yardsticks, not releases."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, permutations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dpjoin as dj
from dpjoin.measure.shares import tight_shares
from dpjoin.privacy import noise
from dpjoin.privacy.conversion import largest_rho
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
    shift = noise.DiscreteGaussian(1 / (2 * shares.bound.rho), shares.half_width).one()
    rho = float(shares.split.rho - shares.bound.rho)
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


class PerTable:
    """`per_table_then_join` for any number of tables: the exact counts once, then as many noisy runs as wanted.

    The keys are taken as known, a favour to this baseline: of a table with the keys X, every tuple over X that occurs
    in any table whose keys include X. Where only one table has X, as lineitem has (order, part), that gives away which
    tuples occur, up to their counts. Over the product of the keys' values the table would be nothing but noise.
    """

    def __init__(self, schema: dj.Schema, workload: dj.Workload, tables: Mapping[str, pa.Table]) -> None:
        self.groups = workload.groups
        self.schema = schema
        keys = {t.name: _keys(schema, t) for t in schema.tables}
        self.owned = {t.name: [a for a in t.attributes if a not in keys[t.name]] for t in schema.tables}
        self.owner = {a: t for t, names in self.owned.items() for a in names}
        self.by_key: dict[str, np.ndarray] = {}
        self.pairs: dict[tuple[str, ...], np.ndarray] = {}
        self.counts: dict[str, np.ndarray] = {}
        with duckdb.connect() as connection:
            for name, rows in tables.items():
                connection.register(f"rows_{name}", rows)
            for name, own in keys.items():
                columns = ", ".join(f'"{k}"' for k in own)
                known = " UNION ".join(
                    f"SELECT DISTINCT {columns} FROM rows_{t}" for t in keys if set(own) <= set(keys[t])
                )
                numbered = f"SELECT *, row_number() OVER (ORDER BY {columns}) - 1 AS at_{name} FROM ({known})"
                connection.sql(f"CREATE TABLE keys_{name} AS {numbered}")
                rows = connection.sql(f"SELECT * FROM rows_{name} JOIN keys_{name} USING ({columns})").to_arrow_table()
                many = connection.sql(f"SELECT count(*) FROM keys_{name}").fetchall()[0][0]
                self._count(name, rows, many)
            joined = " NATURAL JOIN ".join(f"keys_{t}" for t in keys)
            # One line per combination of keys in the join: where it lies among the keys of each table.
            found = connection.sql(f"SELECT {', '.join(f'at_{t}' for t in keys)} FROM {joined}").fetchnumpy()
            self.at = {t: np.asarray(found[f"at_{t}"]) for t in keys}

    def _count(self, name: str, rows: pa.Table, many: int) -> None:
        at = rows.column(f"at_{name}").to_numpy()
        codes = {}
        for a in self.owned[name]:
            values = pa.array(self.schema.attribute(a).values, type=rows.column(a).type)
            codes[a] = pc.index_in(rows.column(a), value_set=values).to_numpy()
            self.by_key[a] = _histogram([at, codes[a]], (many, self.schema.attribute(a).size))
        self.counts[name] = np.bincount(at, minlength=many).astype(float)
        for group in self.groups:
            if len(group.scope) == 2 and set(group.scope) <= set(codes):
                self.pairs[group.scope] = _histogram([codes[a] for a in group.scope], self.schema.shape(group.scope))

    def answers(self, whole: float, rng: np.random.Generator, *, clip: bool = True, laplace: bool = False) -> Answers:
        """One noisy run: the same measurements, shares and steps as `per_table_then_join`.

        The budget is rho, or epsilon where noise is `laplace`.
        """
        floor = 0.0 if clip else -np.inf

        def noisy(exact: np.ndarray, marginals: int, share: float, floor: float) -> np.ndarray:
            if laplace:
                return np.maximum(exact + rng.laplace(0, marginals / share, exact.shape), floor)
            return _noisy(exact, math.sqrt(marginals / (2 * share)), rng, floor)

        by_key: dict[str, np.ndarray] = {}
        pairs: dict[tuple[str, ...], np.ndarray] = {}
        degrees: dict[str, np.ndarray] = {}
        for table, names in self.owned.items():
            scopes = [s for s in self.pairs if self.owner[s[0]] == table]
            kept, each = whole * (1 - PAIR_SHARE) if scopes else whole, max(len(names), 1)
            for a in names:
                by_key[a] = noisy(self.by_key[a], each, kept, floor)[self.at[table]]
            if names:
                degrees[table] = np.mean([by_key[a].sum(axis=1) for a in names], axis=0)
            else:
                degrees[table] = noisy(self.counts[table], each, kept, floor)[self.at[table]]
            for scope in scopes:
                pairs[scope] = noisy(self.pairs[scope], len(scopes), whole * PAIR_SHARE, 0.0)
        one_way = {}
        for a, table in self.owner.items():
            one_way[a] = np.maximum(by_key[a].T @ self._others(degrees, {table}), 0)
        found = []
        for group in self.groups:
            if len(group.scope) == 1:
                answer = one_way[group.scope[0]]
            elif group.scope in pairs:
                answer = _raked(pairs[group.scope], *(one_way[a] for a in group.scope))
            else:
                first, second = group.scope
                weights = self._others(degrees, {self.owner[first], self.owner[second]})
                answer = np.maximum(by_key[first].T @ (by_key[second] * weights[:, None]), 0)
            found.append(answer.reshape(-1))
        return found

    def _others(self, degrees: Mapping[str, np.ndarray], without: Collection[str]) -> np.ndarray:
        """Per combination of keys, the product of the degrees of all other tables."""
        factors = [d for t, d in degrees.items() if t not in without]
        return np.prod(factors, axis=0) if factors else np.ones(len(next(iter(degrees.values()))))


class Elastic:
    """Elastic sensitivity of the join size (Johnson, Near, Song: Towards practical differential privacy for SQL
    queries, VLDB 2018), all tables private. It knows the largest frequencies of the keys and nothing declared.

    For tables joined one after the other, at distance k from the data:

        mf_k(Y, t)      = k + the largest number of rows of table t that agree on the columns Y
        mf_k(Y, r ⋈ t)  = min( mf_k(Y ∩ r, r) · mf_k((Y ∪ J) ∩ t, t),  mf_k(Y ∩ t, t) · mf_k((Y ∪ J) ∩ r, r) )
        S_k(t)          = 1
        S_k(r ⋈ t)      = max( mf_k(J, r) · S_k(t),  mf_k(J, t) · S_k(r) )      J = the keys that r and t share
        smooth bound    = max over k ≥ 0 of exp(-beta k) · S_k

    The paper joins on one column; sets of columns are the same argument. Three favours: the best order of the tables
    for each k, the smaller of the two products for mf_k of a join, and one row added or removed where the paper
    changes one, which saves a factor of two for histograms.
    """

    def __init__(self, schema: dj.Schema, tables: Mapping[str, pa.Table]) -> None:
        self.keys = {t.name: frozenset(_keys(schema, t)) for t in schema.tables}
        self.largest: dict[tuple[str, frozenset[str]], int] = {}
        with duckdb.connect() as connection:
            for name, own in self.keys.items():
                connection.register(f"rows_{name}", tables[name])
                for size in range(len(own) + 1):
                    for some in combinations(sorted(own), size):
                        by = " GROUP BY " + ", ".join(f'"{k}"' for k in some) if some else ""
                        sql = f"SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM rows_{name}{by})"
                        self.largest[name, frozenset(some)] = connection.sql(sql).fetchall()[0][0]

    def at(self, k: int) -> int:
        """S_k by the best order of the tables."""
        return min(self._sensitivity(order, k) for order in permutations(self.keys))

    def smooth(self, beta: float) -> float:
        """S_k is a polynomial of a degree below the number of tables, so its peak lies before that number / beta."""
        return max(math.exp(-beta * k) * self.at(k) for k in range(math.ceil(len(self.keys) / beta) + 1))

    def _columns(self, tables: Sequence[str]) -> frozenset[str]:
        return frozenset().union(*(self.keys[t] for t in tables))

    def _frequency(self, columns: frozenset[str], tables: Sequence[str], k: int) -> int:
        *left, last = tables
        if not left:
            return k + self.largest[last, columns]
        ours, theirs = self._columns(left), self.keys[last]
        shared = ours & theirs
        return min(
            self._frequency(columns & ours, left, k) * (k + self.largest[last, (columns | shared) & theirs]),
            (k + self.largest[last, columns & theirs]) * self._frequency((columns | shared) & ours, left, k),
        )

    def _sensitivity(self, tables: Sequence[str], k: int) -> int:
        *left, last = tables
        if not left:
            return 1
        shared = self._columns(left) & self.keys[last]
        return max(self._frequency(shared, left, k), (k + self.largest[last, shared]) * self._sensitivity(left, k))


def elastic_beta(budget: dj.Budget) -> float:
    """The smoothing that the elastic-sensitivity paper takes: 0.0345 for (1, 1e-6)."""
    return budget.epsilon / (2 * math.log(2 / budget.delta))


def elastic_gaussian(
    exact: Answers, bound: float, budget: dj.Budget, rng: np.random.Generator, *, free: bool = False
) -> Answers:
    """The join as one table, every marginal measured once, negatives clipped, no model.

    `bound` is the smooth bound at `elastic_beta`. One row changes a marginal by at most the bound (L1, so L2 too),
    hence sigma = bound · sqrt(marginals / (2 rho)). The bound depends on the data: its logarithm moves by at most beta,
    so ceil(ln(bound) / beta) by at most one. That integer is released first, plus a shift which costs what it costs the
    tight profile and has the same truncated noise, never negative; the rest of the budget is rho. (The paper adds
    Laplace noise of 2 · bound / epsilon to one count. Split over this many marginals, beta and all, that is worse.)

    With `free` the bound is used as if it were public, and rho is the whole budget: a favour, and not private.
    """
    if free:
        rho = whole_rho(budget)
    else:
        shares = tight_shares(budget, noisy_bound=True)
        assert shares.bound is not None
        assert shares.half_width is not None
        shift = noise.DiscreteGaussian(1 / (2 * shares.bound.rho), shares.half_width).one()
        beta = elastic_beta(budget)
        bound = math.exp(beta * (math.ceil(math.log(bound) / beta) + shift))
        rho = float(shares.split.rho - shares.bound.rho)
    sigma = bound * math.sqrt(len(exact) / (2 * rho))
    return [np.maximum(e + rng.normal(0, sigma, e.shape), 0) for e in exact]


def mean_total_variation(answers: Answers, exact: Answers) -> float:
    """Over the marginals, both sides normalised; one with nothing in it counts as 1."""
    found = []
    for answer, truth in zip(answers, exact, strict=True):
        total = answer.sum()
        found.append(0.5 * np.abs(answer / total - truth / truth.sum()).sum() if total > 0 else 1.0)
    return float(np.mean(found))


def _keys(schema: dj.Schema, table: dj.Table) -> list[str]:
    return [a for a in table.attributes if schema.attribute(a).key]


def _histogram(codes: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    index = np.ravel_multi_index(tuple(codes), tuple(shape))
    return np.bincount(index, minlength=math.prod(shape)).reshape(shape).astype(float)


def _noisy(counts: np.ndarray, sigma: float, rng: np.random.Generator, floor: float) -> np.ndarray:
    return np.maximum(counts + rng.normal(0, sigma, counts.shape), floor)
