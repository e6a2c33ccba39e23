"""The Curator: the only way from private tables to public numbers.

Callers hand it queries, never values. Each method computes, charges and perturbs in one act, in this
order: check, write the event into the ledger, compute exactly, draw. So there is no noisy value without
its ledger line, and nothing exact ever leaves. Sensitivity bounds are minted here and only here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import flag, instance, items, mapping, names, text, whole, whole_numbers
from dpjoin.engine.interface import Engine, ExactDegrees, Fade
from dpjoin.errors import BudgetError
from dpjoin.privacy import noise
from dpjoin.privacy.accounting import (
    Accountant,
    Approximate,
    Composition,
    Concentrated,
    ConcentratedAccountant,
    ConcentratedAllowance,
    Cost,
    PaperAccountant,
    Pure,
    Split,
    accountant_of,
)
from dpjoin.privacy.conversion import selection_epsilon
from dpjoin.privacy.degree_bounds import (
    Limit,
    bound_is_public,
    churn,
    declared_limits,
    degree_caps,
    degree_factors,
    most_results,
    subsets,
)
from dpjoin.privacy.fading import check_fade, faded_bound
from dpjoin.privacy.gauge import Boundaries, gauge, gauge_bound
from dpjoin.privacy.lagging import Lagging, LateChoice, LateScores
from dpjoin.privacy.ledger import Event, Ledger, Part
from dpjoin.privacy.numbers import Numbers, narrow, scaled, taken, wide
from dpjoin.privacy.participation import largest_total
from dpjoin.privacy.parts import (
    Alone,
    Labels,
    NoisyDegrees,
    NoisyRanks,
    Question,
    Rules,
    Value,
    canonical_rules,
    check_question,
    part_limits,
    rows_by_rank,
)
from dpjoin.privacy.public_tables import public_counts
from dpjoin.privacy.residual import residual_bound, residual_level
from dpjoin.privacy.sensitivity import absolute_norm, squared_norm, weight_ranges
from dpjoin.privacy.truncated import laplace_delta, paper_laplace_half_width
from dpjoin.spec.schema import DegreeBound, Schema, with_caps
from dpjoin.spec.workload import Group, Kronecker, Products, check_fits

RESIDUAL_STEPS = 16
"""Grid of the paper's noisy logarithm: a factor e^(beta/16) per step, well below one per cent."""


@dataclass(frozen=True, eq=False)
class Bound:
    """An upper bound on how many join results one row can change. Only a Curator mints one."""

    value: int
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    """By which factor a row of a table pays less, because it can change fewer; 1 where not named."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", MappingProxyType(dict(self.shares)))  # charges rest on them


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
    """Answers queries about one set of private tables until its accountant says stop.

    `restrict` gives Curators of sub-instances. They share the ledger and the doors of the one they come from.
    """

    def __init__(self, engine: Engine, split: Split) -> None:
        """Proof: P-74."""
        # A copy is checked again, and works out its amounts itself.
        self._begin(
            engine, accountant_of(replace(instance(split, Split, "what a Curator may spend", error=BudgetError)))
        )

    def _begin(self, engine: Engine, accountant: Accountant) -> None:
        """Nothing asked, nothing spent."""
        self.schema: Schema = engine.schema
        self._open: Callable[[], Engine] = lambda: engine
        self._accountant = accountant
        self._ledger = Ledger(accountant.name, options=tuple(option.epsilon for option in self.options))
        self._minted: list[Bound] = []
        self._memo: dict[int, tuple[Group, Numbers]] = {}
        self._late: LateChoice | None = None
        self._exact_count: int | None = None
        self._churn = churn(engine.schema)
        self._rows = max(1, self._churn)
        self._answered: list[NoisyDegrees] = []
        self._labels: dict[Labels, tuple[NoisyDegrees, ...]] = {}
        self._root = self
        self._minted_in_parts: list[tuple[Bound, Mapping[str, Rules]]] = []
        self._part: str | None = None
        self._scattered = False
        self._rules: Mapping[str, Rules] = {}
        self._limits: list[Limit] = []
        self._shares: Mapping[str, Fraction] = {}
        self._fades: Mapping[str, Fade] = {}
        self._altered = False

    @cached_property
    def _engine(self) -> Engine:
        return self._open()

    @property
    def ledger(self) -> Ledger:
        return self._root._ledger

    @property
    def rows_moved(self) -> int:
        """How many rows of a table one row more or less adds or removes: one, unless bounds are enforced."""
        return 1 + self._churn

    @property
    def rho_left(self) -> Fraction:
        """What is left to spend (tight profile)."""
        if not isinstance(self._accountant, ConcentratedAllowance):
            raise BudgetError("the paper's accountant has no rho; use its reserved rounds")
        return self._accountant.left

    @property
    def laplace_left(self) -> Fraction:
        """What is left of epsilon for Laplace noise (tight profile)."""
        return self._accountant.laplace_left if isinstance(self._accountant, ConcentratedAllowance) else Fraction(0)

    @property
    def options(self) -> tuple[Concentrated, ...]:
        """All exchanges that were planned: see `ConcentratedAccountant`."""
        return self._accountant.options if isinstance(self._accountant, ConcentratedAccountant) else ()

    @property
    def offer(self) -> Concentrated | None:
        """What an exchange for Laplace noise would leave to spend; None where there is none to be had."""
        return self._accountant.offer if isinstance(self._accountant, ConcentratedAccountant) else None

    def exchange(self) -> None:
        """Give up most of rho for Laplace noise: a decision that may rest on what was released. Proof: P-70."""
        self._require_whole("rho is exchanged")
        if not isinstance(self._accountant, ConcentratedAccountant):
            raise BudgetError("the paper's accountant has no rho; use its reserved rounds")
        before = self._accountant.laplace
        self._accountant.exchange()
        self._ledger = replace(self._ledger, exchanged=self._accountant.laplace - before)

    @property
    def composition(self) -> Composition:
        """How Concentrated costs add up here (tight profile)."""
        if not isinstance(self._accountant, ConcentratedAllowance):
            raise BudgetError("a Concentrated cost needs the concentrated accountant; use Approximate or Pure")
        return self._accountant.composition

    @property
    def unit(self) -> Fraction:
        """What a count of one is worth, in join results: less than one where rows have weights."""
        return 1 / Fraction(math.prod(fade.full for fade in self._fades.values()))

    # -- sensitivity ---------------------------------------------------------------------------------

    def public_bound(self) -> Bound | None:
        """The bound that needs no privacy: from public tables and declared degree bounds. Proof: P-27.

        None where a private table joins others that are neither public nor bounded; then `sensitivity_bound`
        must be paid for.
        """
        names = frozenset(t.name for t in self.schema.tables)
        if self._fades:
            every = [*self._limits, *declared_limits(self.schema)]
            return self._mint(faded_bound(self.schema, every, self._fades))
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
        cost = _of_kind(cost, Approximate, Concentrated)
        if half_width is not None:
            half_width = _half_width(half_width)
        self._require_rows("a noisy bound")
        schema, rows = self.schema, self._rows
        public = _public_boundaries(schema, self._engine)
        if isinstance(cost, Concentrated):
            moves, variance = rows, self.composition.variance(rows**2, cost.rho)
            if half_width is None or self._truncation(cost, half_width, rows) > cost.delta:
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
        cap = self._capped()
        return self._mint(max(1, bound_of(noisy) if cap is None else min(cap.value, bound_of(noisy))))

    def part_bound(self) -> Bound:
        """The bound of a sub-instance that its caps imply, for each table apart. Proof: P-48."""
        self._require_rows("a bound of caps")
        bound = self._capped()
        if bound is None:
            raise BudgetError("this sub-instance has no caps for every table; ask for a sensitivity bound")
        return self._keep(bound)

    def bound_of_levels(self, bounds: Sequence[Bound]) -> Bound:
        """The largest of the bounds of sub-instances that together hold this one. Proof: P-51.

        This one and those must take whole values of attributes that all tables share, and be cut by the same labels.
        """
        self._require_rows("a bound of levels")
        bounds = items(bounds, "bounds of levels", error=BudgetError)
        ours = _cut(self.schema, self._rules)
        found = [rules for bound in bounds for minted, rules in self._root._minted_in_parts if minted is bound]
        cuts = [cut for cut in (_cut(self.schema, rules) for rules in found) if cut is not None]
        if ours is None or not cuts or len(cuts) < len(bounds) or any(labels is not cuts[0][0] for labels, _ in cuts):
            raise BudgetError("bounds must come from sub-instances that one kind of labels cuts by common attributes")
        labels, bucket = ours
        others, levels = cuts[0][0], {level for _, level in cuts}
        if labels.attributes != others.attributes:
            raise BudgetError("bounds must come from labels of the same attributes in the same order as this one's")
        held = {v for v in {*labels.buckets, *others.buckets} if labels.buckets.get(v, 0) == bucket}
        if any(others.buckets.get(v, 0) not in levels for v in held) or (bucket == 0 and 0 not in levels):
            raise BudgetError("bounds must come from sub-instances that together hold this one")
        return self._mint(max(bound.value for bound in bounds))

    def _capped(self) -> Bound | None:
        """The largest number of join results of one row, by caps and declared bounds, and each table's share of it."""
        return _capped(self.schema, self._limits) if self._part is not None else None

    def _exact_boundaries(self, public: Boundaries) -> Boundaries:
        """T_F for every proper subset F of the tables."""
        values = {tables: self._engine.exact_boundary(tables) for tables in subsets(self.schema)}
        return replace(public, values=values)

    def _mint(self, value: int) -> Bound:
        return self._keep(Bound(value))

    def _keep(self, bound: Bound) -> Bound:
        self._minted.append(bound)
        if not self._altered:  # a bound of fewer rows, or of lighter ones, says nothing about the part itself
            self._root._minted_in_parts.append((bound, self._rules))
        return bound

    # -- sub-instances -------------------------------------------------------------------------------

    def participation(self, rules: Sequence[Mapping[str, Rules]]) -> int:
        """In how many of these sub-instances one row can be at most: a public number. Proof: P-44."""
        rules = [canonical_rules(r, "sub-instance") for r in items(rules, "sub-instances", error=BudgetError)]
        return int(self._worst([self._places(r) for r in rules], [{}] * len(rules), [Fraction(1)] * len(rules)))

    def unit_charge(self, parts: Mapping[str, Mapping[str, Rules] | Alone], *, by_table: bool = False) -> Fraction:
        """What `restrict` would charge if every sub-instance cost one: a public number. Proof: P-50."""
        rules = list(self._whole(self._parts(parts)).values())
        return self._worst([self._places(r) for r in rules], self._granted(rules, by_table), [Fraction(1)] * len(rules))

    def noisy_degrees(
        self, stage: str, questions: Sequence[Question], cost: Approximate | Concentrated, *, half_width: int
    ) -> list[NoisyDegrees]:
        """Each question's values with a noisy degree above twice the half-width. Costs `cost` a question. Proof: P-49.

        Questions about public tables alone are answered exactly, at no cost, with the same threshold.
        """
        self._require_whole("degrees are asked")
        cost = _of_kind(cost, Approximate, Concentrated)
        half_width = _half_width(half_width)
        stage, questions = text(stage, "a stage", error=BudgetError), self._asked(questions)
        moves = 1 + self._churn
        mechanism, parameters, draw = self._one_sided(cost, moves, half_width)
        private = [q for q in questions if self._places(q.rules)]
        self._charge_stage([self._places(q.rules) for q in private], [{}] * len(private), [cost] * len(private))
        self._enter(stage, {q.name: q.rules for q in private})
        answers = []
        for question in questions:
            exact = self._engine.exact_degrees(question.rules, question.by, question.distinct)
            if question in private:
                event = Event(
                    mechanism=mechanism,
                    purpose=f"degrees {question.name}",
                    cost=cost,
                    moves=Fraction(moves),
                    parameters=parameters,
                    part=question.name,
                )
                self._ledger = self._ledger.plus(event)
                listed = self._listed(exact, draw, 2 * half_width, event)
            else:
                listed = _above(exact, exact.exact_counts, 2 * half_width)
            answers.append(NoisyDegrees(question, 2 * half_width, listed))
            self._answered.append(answers[-1])
        return answers

    def noisy_ranks(
        self, stage: str, questions: Sequence[Question], edges: Sequence[int], cost: Concentrated
    ) -> list[NoisyRanks]:
        """How many rows have a rank between one edge and the next, for each question about rows. Proof: P-52.

        Costs `cost` a question. This is what degrees are like, all in all: no value is named.
        """
        self._require_whole("ranks are asked")
        cost = _of_kind(cost, Concentrated)
        stage, questions = text(stage, "a stage", error=BudgetError), self._asked(questions)
        for question in questions:
            if question.distinct or not self._places(question.rules):
                raise BudgetError(f"question {question.name!r} must be about rows of a private table")
        edges = tuple(whole(e, "edges of ranks", error=BudgetError) for e in items(edges, "edges", error=BudgetError))
        if list(edges) != sorted({e for e in edges if 0 < e < 2**62}):
            raise BudgetError("edges of ranks must be increasing whole numbers from 1 on, below 2^62")
        moves = 1 + self._churn
        variance = self.composition.variance(moves**2, cost.rho)
        places = [self._places(q.rules) for q in questions]
        self._charge_stage(places, [{}] * len(questions), [cost] * len(questions))
        self._enter(stage, {q.name: q.rules for q in questions})
        answers = []
        for question in questions:
            event = Event(
                mechanism="discrete Gaussian",
                purpose=question.name,
                cost=cost,
                moves=Fraction(moves),
                parameters={"variance": variance},
                part=question.name,
            )
            self._ledger = self._ledger.plus(event)
            exact = self._engine.exact_degrees(question.rules, question.by)
            noisy = self._noisy_numbers(
                partial(rows_by_rank, exact.exact_counts, edges),
                lambda size: noise.discrete_gaussian_array(variance=variance, size=size),
                event,
            )
            deviation = math.sqrt(float(variance))
            answers.append(NoisyRanks(question, edges, tuple(int(n) for n in noisy), deviation))
        return answers

    def public_counts(self, table: str, attributes: tuple[str, ...]) -> Numbers:
        """How many rows a public table has in each cell of some of its attributes: exact, at no cost. Proof: P-71."""
        self._require_whole("a public table is counted")
        table = text(table, "a public table", error=BudgetError)
        return public_counts(self._engine, table, names(attributes, "attributes", error=BudgetError))

    def _asked(self, questions: object) -> tuple[Question, ...]:
        """Questions that one row changes at one value each, under names of their own."""
        found = tuple(
            instance(q, Question, "a question", error=BudgetError)
            for q in items(questions, "questions", error=BudgetError)
        )
        if len({q.name for q in found}) < len(found):
            raise BudgetError("questions of one stage must have different names")
        for question in found:
            check_question(self.schema, question)
        return found

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> Curator:
        """A Curator of the same tables with only the rows within the caps, which may be any public numbers.

        It spends from the same budget. Nothing is released and nothing is charged here. Proof: P-63.
        """
        if self._churn or self._fades:
            raise BudgetError("rows are removed or have weights already; that is done once")
        caps = {
            self.schema.table(text(table, "a table", error=BudgetError)).name: tuple(
                instance(bound, DegreeBound, "a cap", error=BudgetError)
                for bound in items(bounds, "caps of a table", error=BudgetError)
            )
            for table, bounds in mapping(caps, "caps", error=BudgetError).items()
        }
        if any(caps.get(t.name) for t in self.schema.tables if not t.private):
            raise BudgetError("caps must be of private tables; the rows of public ones all stay")
        child = Curator.__new__(type(self))
        child._begin(self._engine, self._accountant)
        child.schema = with_caps(self.schema, caps)
        child._open = partial(self._engine.capped, caps)
        child._root, child._part, child._rules, child._shares = self._root, self._part, self._rules, self._shares
        child._limits = [*self._limits, *declared_limits(child.schema)]
        child._altered = True
        child._churn = max((len(bounds) for bounds in caps.values()), default=0)
        child._rows = max(1, child._churn)
        return child

    def faded(self, fades: Mapping[str, Fade]) -> Curator:
        """A Curator of the same tables in which a row counts by how many share its value; any public weights.

        It spends from the same budget, answers marginals and the join size, and counts in its `unit`. Nothing is
        released and nothing is charged here. Proof: P-68.
        """
        if self._churn or self._fades:
            raise BudgetError("rows are removed or have weights already; that is done once")
        fades = {
            self.schema.table(text(table, "a table", error=BudgetError)).name: instance(
                fade, Fade, "weights of rows", error=BudgetError
            )
            for table, fade in mapping(fades, "weights", error=BudgetError).items()
        }
        if any(not set(fade.attributes) <= set(self.schema.table(t).attributes) for t, fade in fades.items()):
            raise BudgetError("weights must go by attributes that their table has")
        if not fades or any(not t.private for t in self.schema.tables if t.name in fades):
            raise BudgetError("weights must be of private tables, and of one at least")
        for fade in fades.values():
            check_fade(fade)
        child = Curator.__new__(type(self))
        child._begin(self._engine, self._accountant)
        child._open = partial(self._engine.faded, fades)
        child._root, child._part, child._rules, child._shares = self._root, self._part, self._rules, self._shares
        child._limits, child._fades, child._altered = self._limits, fades, True
        return child

    def labels(
        self,
        name: str,
        degrees: Sequence[NoisyDegrees],
        buckets: Mapping[Value, int],
        *,
        attributes: tuple[str, ...] | None = None,
    ) -> Labels:
        """Sort values into buckets; the given answers put a cap on each bucket. Values not named get bucket 0.

        Without answers (then `attributes` says what values are of) buckets have no caps.
        """
        name = text(name, "a name of labels", error=BudgetError)
        degrees = items(degrees, f"labels {name!r}: degrees", error=BudgetError)
        if any(not any(d is known for known in self._answered) for d in degrees):
            raise BudgetError(f"labels {name!r} must rest on degrees that this Curator answered")
        if any(known.name == name for known in self._labels):
            raise BudgetError(f"labels {name!r} exist already; one name stands for one function")
        if attributes is None:
            if not degrees:
                raise BudgetError(f"labels {name!r} must rest on degrees or name their attributes")
            attributes = degrees[0].question.by
        made = Labels(name, attributes, buckets)
        if any(d.question.by != made.attributes for d in degrees):
            raise BudgetError(f"labels {name!r} must rest on degrees of the same attributes")
        self._labels[made] = degrees
        return made

    def restrict(
        self,
        stage: str,
        parts: Mapping[str, Mapping[str, Rules] | Alone],
        costs: Sequence[Approximate | Concentrated],
        *,
        by_table: bool = False,
    ) -> list[Curator]:
        """A Curator for each sub-instance, with its allowance; charged is what one row can pay at most. Proof: P-50.

        `by_table`: a row pays by how many results it can change, not by the largest number any row can.
        A sub-instance of one table alone is paid for by that table's rows only.
        """
        self._require_whole("sub-instances are taken")
        stage, by_table = text(stage, "a stage", error=BudgetError), flag(by_table, "by_table", error=BudgetError)
        parts = self._parts(parts)
        allowed = Approximate if isinstance(self._accountant, PaperAccountant) else Concentrated
        costs = [_of_kind(cost, allowed) for cost in items(costs, "costs", error=BudgetError)]
        if len(costs) != len(parts):
            raise BudgetError(f"costs ({len(costs)}) must be as many as sub-instances ({len(parts)})")
        every = self._whole(parts)
        shares = self._granted(list(every.values()), by_table)
        self._charge_stage([self._places(rules) for rules in every.values()], shares, costs)
        self._enter(stage, every)
        made = []
        for (name, rules), given, cost, granted in zip(every.items(), parts.values(), costs, shares, strict=True):
            child = Curator.__new__(type(self))
            if isinstance(given, Alone):
                by = given.labels.attributes if given.labels is not None else ()
                engine = self._engine.alone(given.table, by, given.values, given.keep)
                child._begin(engine, self._allowance(cost))
            else:
                child._begin(self._engine, self._allowance(cost))
                child._open = partial(self._engine.restricted, rules)
            child._root, child._part, child._rules = self, name, rules
            child._limits, child._shares = self._limits_of(rules), granted
            # Where bounds are enforced, the rows that one row adds and removes may lie in different parts.
            child._churn, child._rows, child._scattered = self._churn, 1 + self._churn, self._churn > 0
            made.append(child)
        return made

    def _allowance(self, cost: Approximate | Concentrated) -> Accountant:
        """An accountant for a sub-instance, which adds up as this one does."""
        if isinstance(cost, Approximate):
            return PaperAccountant(cost)
        return ConcentratedAllowance(cost.rho, cost.delta, self.composition, cost.epsilon)

    def _parts(self, parts: object) -> dict[str, dict[str, dict[Labels, int]] | Alone]:
        """Sub-instances by name, copied: each is of one table alone, or has rules."""
        return {
            text(name, "a sub-instance", error=BudgetError): part
            if type(part) is Alone
            else canonical_rules(part, "sub-instance")
            for name, part in mapping(parts, "sub-instances", error=BudgetError).items()
        }

    def _whole(self, parts: Mapping[str, Mapping[str, Rules] | Alone]) -> dict[str, dict[str, Rules]]:
        """The rules of every table: one that is not named is in the sub-instance whole, unless one is alone."""
        tables = [t.name for t in self.schema.tables]
        for part in parts.values():
            for table in part.rules if isinstance(part, Alone) else part:
                self.schema.table(table)  # which refuses a name that is not there
        return {
            name: part.rules if isinstance(part, Alone) else {t: dict(part.get(t, {})) for t in tables}
            for name, part in parts.items()
        }

    def _limits_of(self, rules: Mapping[str, Rules]) -> list[Limit]:
        """Declared bounds, and what the labels say."""
        return [*declared_limits(self.schema), *part_limits(self.schema, rules, self._labels)]

    def _granted(self, rules: Sequence[Mapping[str, Rules]], by_table: bool) -> list[Mapping[str, Fraction]]:
        """Each table's share of what a sub-instance costs: 1 unless it pays by what its rows can change."""
        if not by_table:
            return [{}] * len(rules)
        capped = [_capped(self.schema, self._limits_of(r)) for r in rules]
        return [{} if bound is None else bound.shares for bound in capped]

    def _places(self, rules: Mapping[str, Rules]) -> dict[str, dict[str, int]]:
        """By private table and name of labels, the bucket that a row needs."""
        private = set(self.schema.private_tables)
        for part in rules.values():
            for labels in part:
                if labels not in self._labels:
                    raise BudgetError(f"labels {labels.name!r} must be made by this Curator; ask it for them")
        return {t: {labels.name: b for labels, b in part.items()} for t, part in rules.items() if t in private}

    def _charge_stage(
        self,
        places: Sequence[Mapping[str, Mapping[str, int]]],
        shares: Sequence[Mapping[str, Fraction]],
        costs: Sequence[Approximate | Concentrated],
    ) -> None:
        """Spend what one row can pay at most in these sub-instances together."""
        deltas = self._worst(places, [{}] * len(places), [c.delta for c in costs])
        epsilons = self._worst(places, [{}] * len(places), [c.epsilon for c in costs])
        if all(isinstance(c, Concentrated) for c in costs):
            rhos = [c.rho for c in costs if isinstance(c, Concentrated)]
            self._accountant.spend(Concentrated(self._worst(places, shares, rhos), deltas, epsilons))
        else:
            self._accountant.spend(Approximate(epsilons, deltas))

    def _worst(
        self,
        places: Sequence[Mapping[str, Mapping[str, int]]],
        shares: Sequence[Mapping[str, Fraction]],
        amounts: Sequence[Fraction],
    ) -> Fraction:
        """The largest total of amounts that one row of any table meets."""
        rows = list(zip(places, shares, amounts, strict=True))
        tables = {table for place in places for table in place}
        return max(
            (
                largest_total(
                    [(place[t], amount * share.get(t, Fraction(1))) for place, share, amount in rows if t in place]
                )
                for t in tables
            ),
            default=Fraction(0),
        )

    def _truncation(self, cost: Concentrated, half_width: int, moves: int) -> Fraction:
        """What truncated Gaussian noise of this half-width costs in delta. Proof: P-49."""
        try:
            return self.composition.truncation_delta(cost.rho, half_width, moves=moves)
        except ValueError as error:  # of public numbers: too narrow for its proof
            raise BudgetError(str(error)) from None

    def _one_sided(
        self, cost: Approximate | Concentrated, moves: int, half_width: int
    ) -> tuple[str, dict[str, Fraction | int | str], Callable[[int], Numbers]]:
        """Noise from 0 to twice the half-width for values that one row moves by `moves` together. Proof: P-49."""
        parameters: dict[str, Fraction | int | str]
        if isinstance(cost, Concentrated):
            variance = self.composition.variance(moves**2, cost.rho)
            mechanism, parameters = "truncated discrete Gaussian", {"variance": variance, "half_width": half_width}
            needed = self._truncation(cost, half_width, moves)

            def draw(size: int) -> Numbers:
                return noise.truncated_discrete_gaussian_array(variance=variance, half_width=half_width, size=size)
        else:
            scale = Fraction(moves) / cost.epsilon
            mechanism, parameters = "truncated discrete Laplace", {"scale": scale, "half_width": half_width}
            needed = laplace_delta(epsilon=cost.epsilon, sensitivity=moves, half_width=half_width)

            def draw(size: int) -> Numbers:
                return noise.truncated_discrete_laplace_array(scale=scale, half_width=half_width, size=size)

        if needed > cost.delta:
            raise BudgetError(f"half_width ({half_width}) must be large enough for delta {float(cost.delta):.3g}")
        return mechanism, parameters, draw

    def _enter(self, stage: str, parts: Mapping[str, Mapping[str, Rules]]) -> None:
        """Write the sub-instances into the ledger."""
        known = {part.name for part in self._ledger.parts}
        if known & set(parts) or any(part.stage == stage for part in self._ledger.parts):
            raise BudgetError(f"stage {stage!r} and its sub-instances must have names that are not taken")
        new = tuple(Part(name=n, stage=stage, places=self._places(rules)) for n, rules in parts.items())
        self._ledger = replace(self._ledger, parts=(*self._ledger.parts, *new))

    # -- numbers -------------------------------------------------------------------------------------

    def join_size(self, bound: Bound, cost: Approximate | Concentrated) -> int:
        """A noisy join size: unbiased for a Concentrated cost, the paper's upper bound for an Approximate one.

        Proof: P-29.
        """
        cost = _of_kind(cost, Approximate, Concentrated)
        self._require_minted(bound)
        moves = bound.value * self._rows
        if _is_laplace(cost):
            scale = Fraction(moves) / cost.epsilon
            mechanism, parameters = "discrete Laplace", {"scale": scale}

            def draw() -> int:
                return noise.discrete_laplace(scale=scale)
        elif isinstance(cost, Concentrated):
            variance = self.composition.variance(moves**2, cost.rho)
            mechanism, parameters = "discrete Gaussian", {"variance": variance}

            def draw() -> int:
                return noise.discrete_gaussian(variance=variance)
        else:
            self._require_rows("the paper's join size")
            width = paper_laplace_half_width(epsilon=cost.epsilon, delta=cost.delta, sensitivity=moves)
            scale = Fraction(moves) / cost.epsilon
            mechanism, parameters = (
                "truncated discrete Laplace",
                {"scale": scale, "half_width": Fraction(width)},
            )

            def draw() -> int:
                return noise.truncated_discrete_laplace(scale=scale, half_width=width)

        return self._noisy_number(
            self._exact_join_size, draw, mechanism, "join size", cost, Fraction(moves), parameters, bound
        )

    def measure(self, group: Group, bound: Bound, cost: Concentrated) -> Measurement:
        """All answers of a group at once, with the discrete Gaussian or, for a cost of Laplace noise, with that.

        Proof: P-30.
        """
        cost, group = _of_kind(cost, Concentrated), self._group(group)
        self._require_minted(bound)
        parameters: dict[str, Fraction | int | str]
        if _is_laplace(cost):
            square = (absolute_norm(group) * bound.value) ** 2 * (2 if self._fades else (1 + self._churn) ** 2)
            moves = Fraction(max(1, _root_up(square)))
            scale = moves / cost.epsilon
            mechanism, parameters, variance = "discrete Laplace", {"scale": scale}, 2 * scale**2

            def draw(size: int) -> Numbers:
                return noise.discrete_laplace_array(scale=scale, size=size)
        else:
            moves = Fraction(_root_up(squared_norm(group) * bound.value**2 * self._group_churn(group)))
            variance = self.composition.variance(moves**2, cost.rho)
            mechanism, parameters = "discrete Gaussian", {"variance": variance}

            def draw(size: int) -> Numbers:
                return noise.discrete_gaussian_array(variance=variance, size=size)

        event = self._event(mechanism, f"measure {group.name}", cost, moves, parameters, bound)
        noisy = self._noisy_numbers(lambda: self._exact(group), draw, event)
        return Measurement(group, noisy, group.unit * self.unit, variance)

    def measure_query(self, group: Group, index: int, bound: Bound, cost: Pure | Concentrated) -> Measurement:
        """One query of a group. Proof: P-31.

        For a Concentrated cost the query is centred, 2q - (low + high) count, on a grid of half units,
        with the discrete Gaussian. For a Pure cost it is taken as it is, with the discrete Laplace.
        """
        cost, group = _of_kind(cost, Pure, Concentrated), self._group(group)
        index = whole(index, "a query's number", least=0, error=BudgetError)
        if index >= len(group):
            raise BudgetError(f"a query's number ({index}) must be less than {len(group)}, which {group.name!r} has")
        self._require_minted(bound)
        self._require_rows("a single query")
        low, high = weight_ranges(group).of(index)
        if isinstance(cost, Concentrated):
            moves = Fraction((high - low) * bound.value * (1 + self._churn))
            unit, variance = group.unit / 2, self.composition.variance(moves**2, cost.rho)
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
                bound,
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
                "discrete Laplace", f"measure {group.name}", cost, moves, {"scale": scale, "query": index}, bound
            )

            def exact() -> Numbers:
                return self._exact(group)[index : index + 1]

            def draw(size: int) -> Numbers:
                return noise.discrete_laplace_array(scale=scale, size=size)

        return Measurement(group, self._noisy_numbers(exact, draw, event), unit, variance)

    # -- choices -------------------------------------------------------------------------------------

    def worst_query(
        self, groups: Sequence[Group], model: Sequence[Numbers] | Lagging, bound: Bound, cost: Pure | Concentrated
    ) -> tuple[int, int]:
        """The exponential mechanism over all queries, by how far the model is off: (group, query). Proof: P-32.

        `model` holds public whole numbers, one per query, on the grid of the answers: units for a Pure
        cost, half units of the centred query for a Concentrated one. Queries of different groups are
        compared in multiples of the largest weight of their group; constant ones are not candidates,
        since no update can improve them. A `Lagging` model (for a Pure cost) gives the same law as today's
        answers would, as long as none has moved further than it says.
        """
        cost = _of_kind(cost, Pure, Concentrated)
        groups = tuple(map(self._group, items(groups, "groups", error=BudgetError)))
        if type(model) is not Lagging:
            model = [whole_numbers(m, "answers", error=BudgetError) for m in items(model, "a model", error=BudgetError)]
            if [m.shape for m in model] != [(len(group),) for group in groups]:
                raise BudgetError("a model must have one answer for each query of each group")
        self._require_minted(bound)
        self._require_rows("a choice")
        centred = isinstance(cost, Concentrated)
        if isinstance(model, Lagging):
            if centred:
                raise BudgetError("answers that lag behind are for a Pure cost; give today's")
            model.check(groups)
        candidates = [_varying(group) for group in groups]
        if not any(len(c) for c in candidates):
            raise BudgetError("every query is constant; its answer is a multiple of the join size")
        widest = [_widest(group, centred=centred) for group in groups]
        common = math.lcm(*(w for w in widest if w))
        moves = Fraction(common * bound.value * (1 + self._churn))
        epsilon = selection_epsilon(cost.rho) if isinstance(cost, Concentrated) else cost.epsilon
        rate = epsilon / (2 * moves)
        event = self._event("exponential mechanism", "select a query", cost, moves, {"epsilon": epsilon}, bound)

        def scores_of(model: Sequence[Numbers]) -> Numbers:
            parts = []
            for group, answers, kept, width in zip(groups, model, candidates, widest, strict=True):
                if len(kept):
                    exact = self._exact_centred(group) if centred else self._exact(group)
                    off = np.abs(wide(taken(exact, kept)) - wide(taken(answers, kept)))
                    parts.append(scaled(off, common // width))
            return narrow(parts[0] if len(parts) == 1 else np.concatenate(parts))

        places = np.cumsum([0, *map(len, candidates)])

        def place_of(candidate: int) -> tuple[int, int]:
            g = int(np.searchsorted(places, candidate, side="right")) - 1
            return g, int(candidates[g][candidate - places[g]])

        if isinstance(model, Lagging):
            late, today = self._late_choice(groups, model, rate, scores_of), model
            largest = max(d * (common // w) for d, w in zip(today.drift, widest, strict=True) if w)

            def exact_gap(candidate: int) -> int:
                g, i = place_of(candidate)
                exact, factor = int(self._exact(groups[g])[i]), common // widest[g]
                real = today.today(groups, g, i)
                now = round(real) if math.isfinite(real) else 0
                before = abs(exact - int(today.answers[g][i]))
                return (before - min(abs(exact - now), before + today.drift[g])) * factor + largest

            return place_of(self._root._chosen(LateScores(late, exact_gap), rate, event))
        return place_of(self._root._chosen(lambda: scores_of(model), rate, event))

    def _late_choice(
        self,
        groups: Sequence[Group],
        model: Lagging,
        rate: Fraction,
        scores_of: Callable[[Sequence[Numbers]], Numbers],
    ) -> noise.Choice:
        """The exponential mechanism on answers that lag behind; kept as long as they and the queries stay."""
        if (
            self._late is None
            or self._late.rate != rate
            or self._late.answers is not model.answers
            or len(self._late.groups) != len(groups)
            or any(a is not b for a, b in zip(self._late.groups, groups, strict=True))
        ):
            choice = noise.Choice(scores_of(model.answers), rate=rate)
            self._late = LateChoice(tuple(groups), model.answers, rate, choice)
        return self._late.choice

    def reserve_rounds(self, count: int, each: Pure, cost: Approximate) -> None:
        """Pay for `count` Pure mechanisms at once (the paper's composition). Proof: P-24."""
        count = whole(count, "rounds", least=1, error=BudgetError)
        each, cost = _of_kind(each, Pure), _of_kind(cost, Approximate)
        self._accountant.reserve(count, each, cost)
        parameters: dict[str, Fraction | int | str] = {"count": count, "epsilon_each": each.epsilon}
        event = Event(
            mechanism="advanced composition",
            purpose="rounds",
            cost=cost,
            moves=Fraction(0),
            parameters=parameters,
            part=self._part,
        )
        self._root._ledger = self._root._ledger.plus(event)

    # -- the doors: nothing else touches exact values or draws noise ------------------------------------

    def _event(
        self,
        mechanism: str,
        purpose: str,
        cost: Cost,
        moves: Fraction,
        parameters: Mapping[str, Fraction | int | str],
        bound: Bound | None = None,
    ) -> Event:
        """Charge, and write the ledger line. Raises BudgetError before anything is computed or drawn."""
        shares = bound.shares if bound is not None else {}
        if any(shares.get(table, Fraction(1)) > granted for table, granted in self._shares.items()):
            raise BudgetError("this sub-instance pays by table, so only its caps may be used as a bound")
        if _is_laplace(cost):
            if mechanism != "discrete Laplace":
                raise BudgetError(f"{mechanism} must not be paid for as Laplace noise; nothing was drawn")
        elif isinstance(cost, Concentrated) and not self.composition.covers(mechanism):
            raise BudgetError(f"{mechanism} does not go with {self.composition.name} composition; nothing was drawn")
        self._accountant.spend(cost)
        event = Event(
            mechanism=mechanism,
            purpose=purpose,
            cost=cost,
            moves=moves,
            parameters={**parameters, "unit": self.unit} if self._fades else parameters,
            part=self._part,
            shares=self._shares,
        )
        self._root._ledger = self._root._ledger.plus(event)
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
        bound: Bound | None = None,
    ) -> int:
        event = self._event(mechanism, purpose, cost, moves, parameters, bound)
        root = self._root
        noisy = root._add(np.array([exact()], dtype=object), lambda _: np.array([draw()], dtype=object), event)
        value = int(noisy[0])
        root._ledger = replace(root._ledger, events=(*root._ledger.events[:-1], replace(event, noisy=value)))
        return value

    def _noisy_numbers(self, exact: Callable[[], Numbers], draw: Callable[[int], Numbers], event: Event) -> Numbers:
        return self._root._add(exact(), draw, event)

    def _add(self, exact: Numbers, draw: Callable[[int], Numbers], event: Event) -> Numbers:
        """exact + noise. Replay tests stand here."""
        return narrow(wide(exact) + wide(draw(len(exact))))

    def _listed(
        self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
    ) -> dict[Value, int]:
        """The values whose noisy degree exceeds the threshold, in the order of their text. Replay tests stand here."""
        return _above(exact, exact.exact_counts + draw(len(exact.exact_counts)), threshold)

    def _chosen(self, exact_scores: Callable[[], Numbers], rate: Fraction, event: Event) -> int:
        """A candidate, by the exponential mechanism. Replay tests stand here."""
        if isinstance(exact_scores, LateScores):
            return exact_scores.chosen(rate)
        return noise.exponential_choice(exact_scores(), rate=rate)

    def _group(self, group: object) -> Group:
        """A group of queries that fits the schema."""
        if (seen := self._memo.get(id(group))) is not None and seen[0] is group:
            return seen[0]
        known: Group = instance(group, (Kronecker, Products), "a group", error=BudgetError)
        check_fits(self.schema, known)
        if isinstance(known, Kronecker) and any(abs(w) >= 2**63 for f in known.factors for w in f.row):
            raise BudgetError(f"group {known.name!r} must have weights below 2^63; give it a larger unit")
        return known

    def _require_minted(self, bound: Bound) -> None:
        if not any(bound is known for known in self._minted):
            raise BudgetError("a sensitivity bound must be minted by this Curator; ask it for one")

    def _require_whole(self, what: str) -> None:
        if self._root is not self:
            raise BudgetError(f"{what} of the whole instance; give rules instead of asking a part of it")

    def _require_rows(self, what: str) -> None:
        if self._fades:
            raise BudgetError(f"{what} must be of rows that all count alike; use caps instead of weights")

    def _group_churn(self, group: Group) -> int:
        """By how much enforced bounds or weights multiply the squared move of a group. Proofs: P-62, P-68."""
        if self._fades:
            return 1 if weight_ranges(group).none_negative else 2
        if not self._churn:
            return 1
        if not self._scattered and weight_ranges(group).none_negative:
            return 1 + self._churn**2
        return (1 + self._churn) ** 2

    # -- exact values, private ---------------------------------------------------------------------------

    def prepare(self, groups: Sequence[Group]) -> None:
        """Compute the exact answers of these groups in one go. Nothing is released and nothing is charged."""
        missing = [self._group(g) for g in items(groups, "groups") if id(g) not in self._memo]
        if not missing:
            return  # a round asks for them again and again
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
        middles = weight_ranges(group).sum.astype(object)
        exact: Numbers = 2 * wide(self._exact(group)) - middles * self._exact_join_size()
        return exact


def _of_kind(cost: object, *kinds: type) -> Any:
    """A cost of one of these kinds. Proof: P-73."""
    return instance(cost, kinds, "a cost", error=BudgetError)


def _half_width(value: object) -> int:
    """A half-width whose noise fits int64. Proof: P-73."""
    width = whole(value, "half_width", least=0, error=BudgetError)
    if width >= 2**61:
        raise BudgetError("half_width must be below 2^61; spend more, or set more of delta aside")
    return width


def _is_laplace(cost: Cost) -> TypeGuard[Concentrated]:
    """Whether this is a cost of Laplace noise, and of nothing else."""
    if not isinstance(cost, Concentrated) or not cost.epsilon:
        return False
    if cost.rho or cost.delta:
        raise BudgetError("one mechanism must have a cost of one kind; charge Laplace noise apart")
    return True


def _above(exact: ExactDegrees, counts: Numbers, threshold: int) -> dict[Value, int]:
    """The values that count more than a threshold, by their text: the engine's order may tell of private rows."""
    at = np.flatnonzero(counts > threshold)
    listed = dict(zip(exact.exact_values(at), counts[at].tolist(), strict=True))
    return {value: listed[value] for value in sorted(listed, key=repr)}


def _root_up(square: int) -> int:
    """The least whole number whose square is no less."""
    return math.isqrt(square - 1) + 1 if square else 0


def _capped(schema: Schema, limits: Sequence[Limit]) -> Bound | None:
    """The bound that limits on degrees give, with each private table's share of it squared. Proof: P-48."""
    names = frozenset(t.name for t in schema.tables)
    found = {t: most_results(schema, names - {t}, limits) for t in schema.private_tables}
    caps = {t: max(1, cap) for t, cap in found.items() if cap is not None}
    if len(caps) < len(found):
        return None
    largest = max(caps.values())
    return Bound(largest, {t: Fraction(cap, largest) ** 2 for t, cap in caps.items()})


def _cut(schema: Schema, rules: Mapping[str, Rules]) -> tuple[Labels, int] | None:
    """The labels and the bucket by which every table is cut, if it is one and its attributes are common to all."""
    if set(rules) != {t.name for t in schema.tables} or any(len(part) != 1 for part in rules.values()):
        return None
    ((labels, bucket), *rest) = [next(iter(part.items())) for part in rules.values()]
    common = all(set(labels.attributes) <= set(t.attributes) for t in schema.tables)
    return (labels, bucket) if common and all(found == (labels, bucket) for found in rest) else None


@lru_cache(maxsize=512)
def _widest(group: Group, *, centred: bool) -> int:
    """The largest |weight| of any query in the group, on the grid its answers are given on."""
    ranges = weight_ranges(group)
    return int((ranges.width if centred else ranges.largest).max())


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
    return np.flatnonzero(weight_ranges(group).width > 0)
