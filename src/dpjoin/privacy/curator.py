"""The Curator: the only way from private tables to public numbers.

Callers hand it queries, never values. Each method computes, charges and perturbs in one act, in this
order: check, write the event into the ledger, compute exactly, draw. So there is no noisy value without
its ledger line, and nothing exact ever leaves. Sensitivity bounds are minted here and only here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine.interface import Engine
from dpjoin.errors import BudgetError
from dpjoin.privacy import noise
from dpjoin.privacy.accountant import selection_epsilon
from dpjoin.privacy.budget import Accountant, Approximate, Concentrated, ConcentratedAccountant, Cost, Pure
from dpjoin.privacy.gauge import Boundaries, gauge, gauge_bound
from dpjoin.privacy.ledger import Event, Ledger
from dpjoin.privacy.public_bounds import bound_is_public, churn, degree_caps, degree_factors, subsets
from dpjoin.privacy.residual import residual_bound, residual_level
from dpjoin.privacy.sensitivity import squared_norm, weight_ranges
from dpjoin.privacy.truncated import gaussian_delta, paper_laplace_half_width
from dpjoin.schema import Schema
from dpjoin.workload import Group

Numbers = NDArray[Any]
"""Whole numbers: int64, or Python integers in an object array where int64 is too narrow."""


RESIDUAL_STEPS = 16
"""Grid of the paper's noisy logarithm: a factor e^(beta/16) per step, well below one per cent."""


@dataclass(frozen=True, eq=False)
class Bound:
    """An upper bound on how many join results one row can change. Only a Curator mints one."""

    value: int


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy answers of a group: whole numbers on a public grid, with the variance of their noise."""

    group: Group
    noisy: Numbers
    unit: Fraction
    """What one step of the grid is worth in the query's own terms."""
    variance: Fraction
    """Of the noise, in steps squared."""

    @property
    def values(self) -> NDArray[np.float64]:
        return np.asarray(self.noisy, dtype=np.float64) * float(self.unit)

    @property
    def noise_variance(self) -> float:
        return float(self.variance * self.unit**2)


class Curator:
    """Answers queries about one set of private tables until its accountant says stop."""

    def __init__(self, engine: Engine, accountant: Accountant) -> None:
        self._engine = engine
        self._accountant = accountant
        self._ledger = Ledger(accountant.name)
        self._minted: list[Bound] = []
        self._memo: dict[int, tuple[Group, Numbers]] = {}
        self._exact_count: int | None = None
        self._churn = churn(engine.schema)

    @property
    def schema(self) -> Schema:
        return self._engine.schema

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def rho_left(self) -> Fraction:
        """What is left to spend (tight profile)."""
        if not isinstance(self._accountant, ConcentratedAccountant):
            raise BudgetError("the paper's accountant has no rho; use its reserved rounds")
        return self._accountant.left

    # -- sensitivity ---------------------------------------------------------------------------------

    def public_bound(self) -> Bound | None:
        """The bound that needs no privacy: from public tables and declared degree bounds. Proof: P-27.

        None where a private table joins others that are neither public nor bounded; then `sensitivity_bound`
        must be paid for.
        """
        names = frozenset(t.name for t in self.schema.tables)
        if not bound_is_public(self.schema):
            return None
        caps, private = degree_caps(self.schema), set(self.schema.private_tables)
        limits = []
        for table in private:
            others = names - {table}
            known = [caps[others]] if others in caps else []
            if not others & private:
                known.append(self._engine.exact_boundary(others))
            limits.append(min(known))
        return self._mint(max(1, *limits))

    def sensitivity_bound(self, cost: Approximate | Concentrated, *, half_width: int | None = None) -> Bound:
        """G(L + X) with X >= 0: never below the local sensitivity of the join size. Proof: P-28.

        Concentrated: L is the gauge of the boundary values (the largest degree for two tables) and X the
        truncated discrete Gaussian with the given half-width. Approximate: X is the paper's truncated Laplace,
        on the largest degree for two tables and on the logarithm of the residual sensitivity for more.
        """
        schema = self.schema
        rows = max(1, churn(schema))
        public = _public_boundaries(schema, self._engine)
        if isinstance(cost, Concentrated):
            moves, variance = rows, Fraction(rows**2) / (2 * cost.rho)
            if (
                half_width is None
                or gaussian_delta(variance=variance, sensitivity=rows, half_width=half_width) > cost.delta
            ):
                raise BudgetError(f"half_width ({half_width}) must be large enough for delta {float(cost.delta):.3g}")
            width = half_width
            mechanism, parameters = "truncated discrete Gaussian", {"variance": variance, "half_width": Fraction(width)}

            def draw() -> int:
                return noise.truncated_discrete_gaussian(variance=variance, half_width=width)

            def bound_of(level: int) -> int:
                return gauge_bound(public, level)

            def exact() -> int:
                return gauge(self._exact_boundaries(public))
        else:
            two = len(schema.tables) == 2
            beta = Fraction(1) if two else _paper_beta(cost)
            moves = rows if two else rows * RESIDUAL_STEPS
            width = paper_laplace_half_width(epsilon=cost.epsilon, delta=cost.delta, sensitivity=moves)
            scale = Fraction(moves) / cost.epsilon
            mechanism, parameters = "truncated discrete Laplace", {"scale": scale, "half_width": Fraction(width)}
            if not two:
                parameters |= {"beta": beta, "steps": Fraction(RESIDUAL_STEPS)}

            def draw() -> int:
                return noise.truncated_discrete_laplace(scale=scale, half_width=width)

            def bound_of(level: int) -> int:
                return gauge_bound(public, level) if two else residual_bound(level, beta=beta, steps=RESIDUAL_STEPS)

            def exact() -> int:
                boundaries = self._exact_boundaries(public)
                return gauge(boundaries) if two else residual_level(boundaries, beta=beta, steps=RESIDUAL_STEPS)

        noisy = self._noisy_number(exact, draw, mechanism, "sensitivity bound", cost, Fraction(moves), parameters)
        return self._mint(max(1, bound_of(noisy)))

    def _exact_boundaries(self, public: Boundaries) -> Boundaries:
        """T_F for every proper subset F of the tables."""
        values = {tables: self._engine.exact_boundary(tables) for tables in subsets(self.schema)}
        return replace(public, values=values)

    def _mint(self, value: int) -> Bound:
        bound = Bound(value)
        self._minted.append(bound)
        return bound

    # -- numbers -------------------------------------------------------------------------------------

    def join_size(self, bound: Bound, cost: Approximate | Concentrated) -> int:
        """A noisy join size: unbiased for a Concentrated cost, the paper's upper bound for an Approximate one.

        Proof: P-29.
        """
        self._require_minted(bound)
        moves = bound.value * max(1, self._churn)
        if isinstance(cost, Concentrated):
            variance = Fraction(moves**2) / (2 * cost.rho)
            mechanism, parameters = "discrete Gaussian", {"variance": variance}

            def draw() -> int:
                return noise.discrete_gaussian(variance=variance)
        else:
            width = paper_laplace_half_width(epsilon=cost.epsilon, delta=cost.delta, sensitivity=moves)
            scale = Fraction(moves) / cost.epsilon
            mechanism, parameters = (
                "truncated discrete Laplace",
                {"scale": scale, "half_width": Fraction(width)},
            )

            def draw() -> int:
                return noise.truncated_discrete_laplace(scale=scale, half_width=width)

        return self._noisy_number(
            self._exact_join_size, draw, mechanism, "join size", cost, Fraction(moves), parameters
        )

    def measure(self, group: Group, bound: Bound, cost: Concentrated) -> Measurement:
        """All answers of a group at once, with the discrete Gaussian. Proof: P-30."""
        self._require_minted(bound)
        square = squared_norm(group) * bound.value**2 * self._group_churn(group)
        moves = Fraction(math.isqrt(square - 1) + 1) if square else Fraction(0)
        variance = moves**2 / (2 * cost.rho)
        event = self._event("discrete Gaussian", f"measure {group.name}", cost, moves, {"variance": variance})
        noisy = self._noisy_numbers(
            lambda: self._exact(group),
            lambda size: noise.discrete_gaussian_array(variance=variance, size=size),
            event,
        )
        return Measurement(group, noisy, group.unit, variance)

    def measure_query(self, group: Group, index: int, bound: Bound, cost: Pure | Concentrated) -> Measurement:
        """One query of a group. Proof: P-31.

        For a Concentrated cost the query is centred, 2q - (low + high) count, on a grid of half units,
        with the discrete Gaussian. For a Pure cost it is taken as it is, with the discrete Laplace.
        """
        self._require_minted(bound)
        low, high = weight_ranges(group)[index]
        if isinstance(cost, Concentrated):
            moves = Fraction((high - low) * bound.value * (1 + self._churn))
            unit, variance = group.unit / 2, moves**2 / (2 * cost.rho)
            if not moves:
                raise BudgetError(
                    f"query {index} of {group.name!r} is constant; its answer is a multiple of the join size"
                )
            event = self._event(
                "discrete Gaussian",
                f"measure {group.name}",
                cost,
                moves,
                {"variance": variance, "query": index},
            )

            def exact() -> Numbers:
                return self._exact_centred(group)[index : index + 1]

            def draw(size: int) -> Numbers:
                return noise.discrete_gaussian_array(variance=variance, size=size)
        else:
            moves = Fraction(max(abs(low), abs(high)) * bound.value * (1 + self._churn))
            scale = max(moves, Fraction(1)) / cost.epsilon
            unit, variance = group.unit, 2 * scale**2
            event = self._event(
                "discrete Laplace", f"measure {group.name}", cost, moves, {"scale": scale, "query": index}
            )

            def exact() -> Numbers:
                return self._exact(group)[index : index + 1]

            def draw(size: int) -> Numbers:
                return noise.discrete_laplace_array(scale=scale, size=size)

        return Measurement(group, self._noisy_numbers(exact, draw, event), unit, variance)

    # -- choices -------------------------------------------------------------------------------------

    def worst_query(
        self, groups: Sequence[Group], model: Sequence[Numbers], bound: Bound, cost: Pure | Concentrated
    ) -> tuple[int, int]:
        """The exponential mechanism over all queries, by how far the model is off: (group, query). Proof: P-32.

        `model` holds public whole numbers, one per query, on the grid of the answers: units for a Pure
        cost, half units of the centred query for a Concentrated one. Queries of different groups are
        compared in multiples of the largest weight of their group; constant ones are not candidates,
        since no update can improve them.
        """
        self._require_minted(bound)
        centred = isinstance(cost, Concentrated)
        candidates = [_varying(group) for group in groups]
        if not any(len(c) for c in candidates):
            raise BudgetError("every query is constant; its answer is a multiple of the join size")
        widest = [_widest(group, centred=centred) for group in groups]
        common = math.lcm(*(w for w in widest if w))
        moves = Fraction(common * bound.value * (1 + self._churn))
        epsilon = selection_epsilon(cost.rho) if isinstance(cost, Concentrated) else cost.epsilon
        rate = epsilon / (2 * moves)
        event = self._event("exponential mechanism", "select a query", cost, moves, {"epsilon": epsilon})

        def exact_scores() -> Numbers:
            parts = []
            for group, answers, kept, width in zip(groups, model, candidates, widest, strict=True):
                if len(kept):
                    exact = (self._exact_centred(group) if centred else self._exact(group))[kept]
                    parts.append(_scaled(np.abs(_wide(exact) - _wide(answers[kept])), common // width))
            return _narrow(np.concatenate(parts))

        chosen = self._chosen(exact_scores, rate, event)
        for g, kept in enumerate(candidates):
            if chosen < len(kept):
                return g, int(kept[chosen])
            chosen -= len(kept)
        raise AssertionError("a choice lies within its candidates")

    def reserve_rounds(self, count: int, each: Pure, cost: Approximate) -> None:
        """Pay for `count` Pure mechanisms at once (the paper's composition). Proof: P-24."""
        self._accountant.reserve(count, each, cost)
        parameters: dict[str, Fraction | int | str] = {"count": count, "epsilon_each": each.epsilon}
        self._ledger = self._ledger.plus(
            Event(
                mechanism="advanced composition",
                purpose="rounds",
                cost=cost,
                moves=Fraction(0),
                parameters=parameters,
            )
        )

    # -- the doors: nothing else touches exact values or draws noise ------------------------------------

    def _event(
        self,
        mechanism: str,
        purpose: str,
        cost: Cost,
        moves: Fraction,
        parameters: Mapping[str, Fraction | int | str],
    ) -> Event:
        """Charge, and write the ledger line. Raises BudgetError before anything is computed or drawn."""
        self._accountant.spend(cost)
        event = Event(mechanism=mechanism, purpose=purpose, cost=cost, moves=moves, parameters=parameters)
        self._ledger = self._ledger.plus(event)
        return event

    def _noisy_number(
        self,
        exact: Callable[[], int],
        draw: Callable[[], int],
        mechanism: str,
        purpose: str,
        cost: Cost,
        moves: Fraction,
        parameters: Mapping[str, Fraction | int | str],
    ) -> int:
        event = self._event(mechanism, purpose, cost, moves, parameters)
        noisy = self._add(np.array([exact()], dtype=object), lambda _: np.array([draw()], dtype=object), event)
        value = int(noisy[0])
        self._ledger = Ledger(self._ledger.composition, (*self._ledger.events[:-1], replace(event, noisy=value)))
        return value

    def _noisy_numbers(self, exact: Callable[[], Numbers], draw: Callable[[int], Numbers], event: Event) -> Numbers:
        return self._add(exact(), draw, event)

    def _add(self, exact: Numbers, draw: Callable[[int], Numbers], event: Event) -> Numbers:
        """exact + noise. Replay tests stand here."""
        return _narrow(_wide(exact) + _wide(draw(len(exact))))

    def _chosen(self, exact_scores: Callable[[], Numbers], rate: Fraction, event: Event) -> int:
        """A candidate, by the exponential mechanism. Replay tests stand here."""
        return noise.exponential_choice(exact_scores(), rate=rate)

    def _require_minted(self, bound: Bound) -> None:
        if not any(bound is known for known in self._minted):
            raise BudgetError("a sensitivity bound must be minted by this Curator; ask it for one")

    def _group_churn(self, group: Group) -> int:
        """By how much enforced bounds multiply the squared move of a group: added and removed rows. Proof: P-62."""
        if not self._churn:
            return 1
        if all(low >= 0 for low, _ in weight_ranges(group)):
            return 1 + self._churn**2
        return (1 + self._churn) ** 2

    # -- exact values, private ---------------------------------------------------------------------------

    def prepare(self, groups: Sequence[Group]) -> None:
        """Compute the exact answers of these groups in one go. Nothing is released and nothing is charged."""
        missing = [g for g in groups if id(g) not in self._memo]
        for group, exact in zip(missing, self._engine.exact_answers(missing), strict=True):
            self._memo[id(group)] = (group, exact)

    def _exact(self, group: Group) -> Numbers:
        self.prepare([group])
        return self._memo[id(group)][1]

    def _exact_join_size(self) -> int:
        if self._exact_count is None:
            self._exact_count = self._engine.exact_join_size()
        return self._exact_count

    def _exact_centred(self, group: Group) -> Numbers:
        """2q - (low + high) count for each query, with the true count: whole numbers of half units."""
        middles = np.array([low + high for low, high in weight_ranges(group)], dtype=object)
        exact: Numbers = 2 * _wide(self._exact(group)) - middles * self._exact_join_size()
        return exact


@lru_cache(maxsize=512)
def _widest(group: Group, *, centred: bool) -> int:
    """The largest |weight| of any query in the group, on the grid its answers are given on."""
    ranges = weight_ranges(group)
    if centred:
        return max(high - low for low, high in ranges)
    return max(max(abs(low), abs(high)) for low, high in ranges)


def _public_boundaries(schema: Schema, engine: Engine) -> Boundaries:
    """What is public of the boundary values: those of public tables alone, and what declared bounds imply.

    The others are written as zero; no public curve looks at them.
    """
    private = frozenset(schema.private_tables)
    values = {tables: 0 if tables & private else engine.exact_boundary(tables) for tables in subsets(schema)}
    return Boundaries(
        tables=tuple(t.name for t in schema.tables),
        private=private,
        values=values,
        caps=degree_caps(schema),
        factors=degree_factors(schema),
    )


def _paper_beta(cost: Approximate) -> Fraction:
    """beta = 1/lambda = epsilon / ln(1/delta) of the whole release, twice what the bound gets; any value is sound."""
    return Fraction(round(2 * float(cost.epsilon) / math.log(1 / (2 * float(cost.delta))) * 2**20), 2**20)


@lru_cache(maxsize=512)
def _varying(group: Group) -> NDArray[np.int64]:
    """The queries of a group that do not give every join result the same weight."""
    return np.array([i for i, (low, high) in enumerate(weight_ranges(group)) if low < high], dtype=np.int64)


def _wide(numbers: Numbers) -> Numbers:
    """Python integers, which neither wrap nor raise; int64 where every value is far from its limit."""
    small = numbers.dtype == np.int64 and (
        not len(numbers) or (int(numbers.max()) < 2**60 and int(numbers.min()) > -(2**60))
    )
    if small:
        return numbers
    return np.asarray(numbers.astype(object), dtype=object)


def _scaled(numbers: Numbers, factor: int) -> Numbers:
    return numbers if factor == 1 else np.asarray(numbers.astype(object) * factor, dtype=object)


def _narrow(numbers: Numbers) -> Numbers:
    """int64 where it fits, so that what follows is fast."""
    if numbers.dtype == np.int64:
        return numbers
    if all(-(2**62) < int(v) < 2**62 for v in numbers):
        return numbers.astype(np.int64)
    return numbers
