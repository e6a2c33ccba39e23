"""The Curator: the only way from private tables to public numbers.

Callers hand it queries, never values. Every method checks what it gets, asks the instance how far one row moves the
answer, picks the mechanism and passes the gate, where budget is spent before anything is computed or drawn. Nothing
exact ever leaves. Sensitivity bounds are minted here and only here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine.interface import Clip, Engine, RowWeights
from dpjoin.errors import BudgetError
from dpjoin.privacy import accounting, parts
from dpjoin.privacy.accounting import Approximate, Composition, Concentrated, Pure, Split
from dpjoin.privacy.columns import Column, ColumnOf
from dpjoin.privacy.degree_bounds import Limit, declared_limits
from dpjoin.privacy.gate import Book, Gate, values_above
from dpjoin.privacy.instance import Bound, Instance, varying, widest
from dpjoin.privacy.ledger import Ledger, Places, worst_row
from dpjoin.privacy.numbers import Numbers, narrow, scaled, taken, wide
from dpjoin.privacy.owners import MOST_EDGES, NoisyOwners, owners_by_results
from dpjoin.privacy.parts import CHECK, Labels, NoisyDegrees, NoisyRanks, OneTable, Question, Rules, Value
from dpjoin.privacy.public_tables import public_counts
from dpjoin.spec.learning import with_domains
from dpjoin.spec.schema import Attribute, DegreeBound, Schema
from dpjoin.spec.workload import Group, Kronecker, Products, check_fits

__all__ = ["Bound", "Curator", "Measurement", "NoisySize"]


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


@dataclass(frozen=True)
class NoisySize:
    """A noisy join size on a public grid, with the variance of its noise."""

    noisy: int
    unit: Fraction
    """What one step of the grid is worth in join results."""
    variance: Fraction
    """Of the noise, in steps squared; at most, where it is one-sided."""


class Curator:
    """Answers queries about one set of private tables until its accountant says stop.

    `restrict`, `capped` and `weighted` give Curators of other instances of the same tables. They share its gate, and so
    its ledger.
    """

    def __init__(self, engine: Engine, split: Split) -> None:
        """Proof: P-74."""
        # A copy is checked again, and works out its amounts itself.
        accountant = accounting.accountant_of(replace(CHECK.instance(split, Split, "what a Curator may spend")))
        options = tuple(option.epsilon for option in accountant.options)
        ledger = Ledger(accountant.name, options=options, owner=engine.schema.unit)
        self._begin(Instance.of(engine), Gate(accountant, Book(ledger)))

    def _begin(self, instance: Instance, gate: Gate) -> None:
        self._instance, self._gate = instance, replace(gate, unit=instance.unit)
        self._minted: list[Bound] = []
        self._answered: list[NoisyDegrees] = []
        self._labels: dict[Labels, tuple[NoisyDegrees, ...]] = {}

    @property
    def _engine(self) -> Engine:
        return self._instance.engine

    @property
    def schema(self) -> Schema:
        return self._instance.schema

    @property
    def ledger(self) -> Ledger:
        return self._gate.book.ledger

    @property
    def rows_moved(self) -> int:
        """How many rows of a table one row more or less adds or removes: one, unless bounds are enforced."""
        return self._instance.rows_moved

    @property
    def unit(self) -> Fraction:
        """What a count of one is worth, in join results: less than one where rows have weights."""
        return self._instance.unit

    @property
    def rho_left(self) -> Fraction:
        """What is left to spend (tight profile)."""
        return self._gate.accountant.left.rho

    @property
    def laplace_left(self) -> Fraction:
        """What is left of epsilon for Laplace noise (tight profile)."""
        return self._gate.accountant.left.epsilon if self._gate.accountant.composition else Fraction(0)

    @property
    def composition(self) -> Composition:
        """How Concentrated costs add up here (tight profile)."""
        if self._gate.accountant.composition is None:
            raise BudgetError("a Concentrated cost needs the concentrated accountant; use Approximate or Pure")
        return self._gate.accountant.composition

    @property
    def options(self) -> tuple[Concentrated, ...]:
        """All exchanges for Laplace noise that were planned."""
        return self._gate.accountant.options

    @property
    def offer(self) -> Concentrated | None:
        """What an exchange for Laplace noise would leave to spend; None where there is none to be had."""
        return self._gate.accountant.offer

    def exchange(self) -> None:
        """Give up most of rho for Laplace noise: a decision that may rest on what was released. Proof: P-70."""
        self._require_whole("rho is exchanged")
        self._gate.book.ledger = replace(self.ledger, exchanged=self._gate.accountant.exchange())

    # -- sensitivity ---------------------------------------------------------------------------------

    def public_bound(self) -> Bound | None:
        """The bound that needs no privacy: from public tables, declared degree bounds and weights. Proof: P-27.

        None where a private table joins others that are neither public nor bounded; then `sensitivity_bound`
        must be paid for.
        """
        return self._mint(self._instance.public_bound())

    def part_bound(self) -> Bound:
        """The bound of a sub-instance that its caps imply, for each table apart. Proof: P-48."""
        bound = self._mint(self._instance.part_bound())
        if bound is None:
            raise BudgetError("this sub-instance has no caps for every table; ask for a sensitivity bound")
        return bound

    def sensitivity_bound(self, cost: Approximate | Concentrated, *, half_width: int | None = None) -> Bound:
        """G(L + X) with X >= 0: never below the local sensitivity of the join size. Proof: P-28.

        Concentrated: L is the gauge of the boundary values (the largest degree for two tables) and X the
        truncated discrete Gaussian with the given half-width. Approximate: X is the paper's truncated Laplace,
        on the largest degree for two tables and on the logarithm of the residual sensitivity for more.
        """
        cost = _of_kind(cost, Approximate, Concentrated)
        width = None if half_width is None else CHECK.whole(half_width, "half_width", least=0)
        if isinstance(cost, Concentrated) == (width is None):
            raise BudgetError(f"half_width ({width}) must be given for a Concentrated cost, and for no other")
        level, cap = self._instance.sensitivity_level(cost), self._instance.part_bound()
        mechanism = self._gate.hiding(level.moves, cost, half_width=width)
        noisy = level.bound(self._gate.number("sensitivity bound", mechanism, level.exact, **level.parameters))
        bound = Bound(max(1, noisy if cap is None else min(cap.value, noisy)))
        self._minted.append(bound)
        return bound

    def _mint(self, bound: Bound | None) -> Bound | None:
        self._minted += [] if bound is None else [bound]
        return bound

    # -- other instances -------------------------------------------------------------------------------

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> Curator:
        """A Curator of the same tables with only the rows within the caps, which may be any public numbers.

        It spends from the same budget. Nothing is released and nothing is charged here. Proof: P-63.
        """
        found = {
            self.schema.table(CHECK.text(table, "a table")).name: tuple(
                CHECK.instance(bound, DegreeBound, "a cap") for bound in CHECK.items(bounds, "caps of a table")
            )
            for table, bounds in CHECK.mapping(caps, "caps").items()
        }
        return _Inner(self._instance.capped(found), self._gate)

    def weighted(self, weights: Mapping[str, RowWeights]) -> Curator:
        """A Curator of the same tables in which a row counts by how many share its value; any public weights.

        It spends from the same budget, answers marginals and the join size, and counts in its `unit`. Nothing is
        released and nothing is charged here. Proof: P-68.
        """
        found = {
            self.schema.table(CHECK.text(table, "a table")).name: CHECK.instance(w, RowWeights, "weights of rows")
            for table, w in CHECK.mapping(weights, "weights").items()
        }
        return _Inner(self._instance.weighted(found), self._gate)

    def clipped(self, clip: Clip) -> Curator:
        """A Curator of the same tables in which a join result counts by how many its owner has; any public limit.

        It spends from the same budget and counts in its `unit`. Nothing is released and nothing is charged here.
        Proof: P-78.
        """
        return _Inner(self._instance.clipped(CHECK.instance(clip, Clip, "a clip")), self._gate)

    def restrict(
        self,
        stage: str,
        parts: Mapping[str, Mapping[str, Rules] | OneTable],
        costs: Sequence[Approximate | Concentrated],
    ) -> list[Curator]:
        """A Curator for each sub-instance, with its allowance; charged is what one row can pay at most. Proof: P-50.

        A sub-instance of one table is paid for by that table's rows only.
        """
        self._require_whole("sub-instances are taken")
        found = {
            CHECK.text(name, "a sub-instance"): self._part(part)
            for name, part in CHECK.mapping(parts, "sub-instances").items()
        }
        given = [_of_kind(cost, Approximate, Concentrated) for cost in CHECK.items(costs, "costs")]
        if len(given) != len(found):
            raise BudgetError(f"costs ({len(given)}) must be as many as sub-instances ({len(found)})")
        gates = self._enter(stage, {name: rules for name, (rules, _) in found.items()}, given)
        return [
            _Inner(self._instance.restricted(name, rules, self._limits(rules), alone), gates[name])
            for name, (rules, alone) in found.items()
        ]

    def participation(self, asked: Sequence[Question | Mapping[str, Rules] | OneTable]) -> int:
        """In how many of these questions or sub-instances one row can be at most: a public number. Proof: P-44."""
        self._require_whole("participation is counted")
        found = [q.rules if type(q) is Question else self._part(q)[0] for q in CHECK.items(asked, "parts")]
        return int(worst_row([self._places(r) for r in found], [Fraction(1)] * len(found)))

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
        self._require_whole("labels are made")
        if self._instance.replaced:
            raise BudgetError("labels must be of rows that are added or removed; one replaced may change its bucket")
        name = CHECK.text(name, "a name of labels")
        degrees = CHECK.items(degrees, f"labels {name!r}: degrees")
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

    def _part(self, part: object) -> tuple[Mapping[str, Rules], OneTable | None]:
        """A sub-instance's rules, copied: of one table alone, or of every table, none for one that is not named."""
        alone = part if type(part) is OneTable else None
        rules = alone.rules if alone else parts.canonical_rules(part, "sub-instance")
        for table in rules:
            self.schema.table(table)  # which refuses a name that is not there
        return rules if alone else {t.name: rules.get(t.name, {}) for t in self.schema.tables}, alone

    def _limits(self, rules: Mapping[str, Rules]) -> list[Limit]:
        """Declared bounds, and what the labels say."""
        return [*declared_limits(self.schema), *parts.part_limits(self.schema, rules, self._labels)]

    def _places(self, rules: Mapping[str, Rules]) -> Places:
        """By private table and name of labels, the bucket that a row needs."""
        for part in rules.values():
            for labels in part:
                if labels not in self._labels:
                    raise BudgetError(f"labels {labels.name!r} must be made by this Curator; ask it for them")
        private = set(self.schema.private_tables)
        return {t: {labels.name: b for labels, b in part.items()} for t, part in rules.items() if t in private}

    def _enter(
        self, stage: object, parts: Mapping[str, Mapping[str, Rules]], costs: Sequence[Approximate | Concentrated]
    ) -> dict[str, Gate]:
        """Charge what one row can pay at most in these sub-instances together, and give each its allowance."""
        places = {name: self._places(rules) for name, rules in parts.items()}
        return self._gate.enter(CHECK.text(stage, "a stage"), places, costs, person=bool(self._instance.owner))

    # -- domains -----------------------------------------------------------------------------------------

    def columns(self, stage: str, asked: Sequence[ColumnOf], costs: Sequence[Concentrated]) -> list[Column]:
        """Columns whose domain is to be learned, each with its allowance; charged is what one row pays. Proof: P-82.

        Those of public tables have none, and cost nothing.
        """
        self._require_whole("columns are read")
        found = [CHECK.instance(a, ColumnOf, "a column") for a in CHECK.items(asked, "columns")]
        given = [_of_rho(_of_kind(cost, Concentrated)) for cost in CHECK.items(costs, "costs")]
        if len(given) != len(found) or len({a.attribute for a in found}) < len(found):
            raise BudgetError(f"columns must be different ones, with as many costs ({len(given)})")
        for one in found:
            if one.attribute not in self.schema.learned:
                raise BudgetError(f"attribute {one.attribute!r} must be one to be learned; its domain is declared")
        tables = [self.schema.table(self.schema.owner(a.attribute)) for a in found]
        private = {f"domain of {a.attribute}": t.name for a, t in zip(found, tables, strict=True) if t.private}
        paid = [cost for cost, t in zip(given, tables, strict=True) if t.private]
        gates = self._enter(stage, {name: {table: {}} for name, table in private.items()}, paid) if private else {}
        moves = [self._instance.move_of_column(t, a.values) for a, t in zip(found, tables, strict=True)]
        return [
            Column(self._engine, a, moved, gates.get(f"domain of {a.attribute}"))
            for a, moved in zip(found, moves, strict=True)
        ]

    def learned(self, domains: Sequence[Attribute], *, public_bounds: bool = False) -> Curator:
        """A Curator of the same tables with these domains; it goes on with the same budget and ledger. Proof: P-83.

        `public_bounds` reads off public tables how many of their rows share a value.
        """
        self._require_whole("domains are set")
        found = {}
        for one in CHECK.items(domains, "domains"):
            domain: Attribute = CHECK.instance(one, Attribute, "a domain")
            if domain.name not in self.schema.learned or domain.learned is not None or domain.key or not domain.other:
                raise BudgetError(f"domain {domain.name!r} must be of an attribute to be learned, and have other")
            found[domain.name] = domain
        if set(found) != set(self.schema.learned):
            raise BudgetError("domains must be of all attributes that are to be learned")
        schema = with_domains(self.schema, found)
        bounds = CHECK.flag(public_bounds, "public_bounds")
        return _Inner(self._instance.learned(schema, public_bounds=bounds), self._gate)

    # -- degrees -----------------------------------------------------------------------------------------

    def noisy_degrees(
        self, stage: str, questions: Sequence[Question], cost: Approximate | Concentrated, *, half_width: int
    ) -> list[NoisyDegrees]:
        """Each question's values with a noisy degree above twice the half-width. Costs `cost` a question. Proof: P-49.

        Questions about public tables alone are answered exactly, at no cost, with the same threshold.
        """
        self._require_whole("degrees are asked")
        self._instance.require_rows("noisy degrees")
        width = CHECK.whole(half_width, "half_width", least=0)
        cost = _of_kind(cost, Approximate, Concentrated)
        mechanism = self._gate.hiding(self.rows_moved, cost, half_width=width)
        asked = self._asked(questions)
        private = {q.name: q.rules for q in asked if self._places(q.rules)}
        gates = self._enter(stage, private, [cost] * len(private))
        for question in asked:
            exact = partial(self._engine.exact_degrees, question.rules, question.by, question.distinct)
            if question.name in gates:
                told = f"degrees {question.name}"
                answer = NoisyDegrees(question, *gates[question.name].values(told, mechanism, exact))
            else:
                degrees = exact()
                answer = NoisyDegrees(question, 2 * width, values_above(degrees, degrees.exact_counts, 2 * width))
            self._answered.append(answer)
        return self._answered[len(self._answered) - len(asked) :]

    def noisy_ranks(
        self, stage: str, questions: Sequence[Question], edges: Sequence[int], cost: Concentrated
    ) -> list[NoisyRanks]:
        """How many rows have a rank between one edge and the next, for each question about rows. Proof: P-52.

        Costs `cost` a question. This is what degrees are like, all in all: no value is named.
        """
        self._require_whole("ranks are asked")
        cost, asked = _of_rho(_of_kind(cost, Concentrated)), self._asked(questions)
        for question in asked:
            if question.distinct or not self._places(question.rules):
                raise BudgetError(f"question {question.name!r} must be about rows of a private table")
        self._instance.require_rows("ranks")
        cuts = _edges(edges)
        mechanism = self._gate.hiding(self.rows_moved, cost)
        gates = self._enter(stage, {q.name: q.rules for q in asked}, [cost] * len(asked))

        def exact(question: Question) -> Numbers:
            return parts.rows_by_rank(self._engine.exact_degrees(question.rules, question.by).exact_counts, cuts)

        noisy = [gates[q.name].numbers(q.name, mechanism, partial(exact, q)) for q in asked]
        deviation = math.sqrt(mechanism.law.variance)
        return [NoisyRanks(q, cuts, tuple(map(int, n)), deviation) for q, n in zip(asked, noisy, strict=True)]

    def noisy_owners(self, owner: Sequence[str], edges: Sequence[int], cost: Concentrated) -> NoisyOwners:
        """How many owners have a number of join results between one edge and the next. Proof: P-79."""
        self._require_whole("owners are counted")
        names, cost = CHECK.names(owner, "owner"), _of_rho(_of_kind(cost, Concentrated))
        cuts = _edges(edges)
        mechanism = self._gate.hiding(self._instance.move_of_owners(names), cost)

        def exact() -> Numbers:
            return owners_by_results(self._engine.exact_results(names).exact_counts, cuts)

        noisy = self._gate.numbers("owners by join results", mechanism, exact)
        return NoisyOwners(names, cuts, tuple(map(int, noisy)), math.sqrt(mechanism.law.variance))

    def public_counts(self, table: str, attributes: tuple[str, ...]) -> Numbers:
        """How many rows a public table has in each cell of some of its attributes: exact, at no cost. Proof: P-71."""
        self._require_whole("a public table is counted")
        table = CHECK.text(table, "a public table")
        return public_counts(self._engine, table, CHECK.names(attributes, "attributes"))

    def _asked(self, questions: object) -> tuple[Question, ...]:
        """Questions that one row changes at one value each, under names of their own."""
        found = tuple(CHECK.instance(q, Question, "a question") for q in CHECK.items(questions, "questions"))
        if len({q.name for q in found}) < len(found):
            raise BudgetError("questions of one stage must have different names")
        for question in found:
            parts.check_question(self.schema, question)
        return found

    # -- numbers -------------------------------------------------------------------------------------

    def join_size(self, bound: Bound, cost: Approximate | Concentrated) -> NoisySize:
        """A noisy join size: unbiased for a Concentrated cost, the paper's upper bound for an Approximate one.

        Proof: P-29.
        """
        cost = _of_kind(cost, Approximate, Concentrated)
        self._require_minted(bound)
        if isinstance(cost, Approximate):
            self._instance.require_unweighted("the paper's join size")
        mechanism = self._gate.hiding(self._instance.move_of_size(bound), cost)
        noisy = self._gate.number("join size", mechanism, lambda: self._instance.exact_join_size)
        return NoisySize(noisy, self.unit, mechanism.law.variance)

    def measure(self, group: Group, bound: Bound, cost: Concentrated) -> Measurement:
        """All answers of a group at once, with the discrete Gaussian or, for a cost of Laplace noise, with that.

        Proof: P-30.
        """
        cost, group = _of_kind(cost, Concentrated), self._group(group)
        self._require_minted(bound)
        mechanism = self._gate.hiding(self._instance.move_of_group(group, bound), cost)
        exact = partial(self._instance.exact_answers, group)
        noisy = self._gate.numbers(f"measure {group.name}", mechanism, exact)
        return Measurement(group, noisy, group.unit * self.unit, mechanism.law.variance)

    def measure_query(self, group: Group, index: int, bound: Bound, cost: Pure | Concentrated) -> Measurement:
        """One query of a group. Proof: P-31.

        For a Concentrated cost the query is centred, 2q - (low + high) count, on a grid of half units,
        with the discrete Gaussian. For a Pure cost it is taken as it is, with the discrete Laplace.
        """
        cost, group = _of_rho(_of_kind(cost, Pure, Concentrated)), self._group(group)
        index = CHECK.whole(index, "a query's number", least=0)
        if index >= len(group):
            raise BudgetError(f"a query's number ({index}) must be less than {len(group)}, which {group.name!r} has")
        self._require_minted(bound)
        centred = isinstance(cost, Concentrated)
        moves = self._instance.move_of_query(group, index, bound, centred=centred)
        if centred and not moves:
            raise BudgetError(f"query {index} of {group.name!r} is constant; its answer is a multiple of the join size")
        mechanism = self._gate.hiding(moves, cost)

        def exact() -> Numbers:
            return self._instance.exact_answers(group, centred=centred)[index : index + 1]

        noisy = self._gate.numbers(f"measure {group.name}", mechanism, exact, query=index)
        return Measurement(group, noisy, group.unit * self.unit / (2 if centred else 1), mechanism.law.variance)

    def worst_query(
        self, groups: Sequence[Group], model: Sequence[Numbers], bound: Bound, cost: Pure | Concentrated
    ) -> tuple[int, int]:
        """The exponential mechanism over all queries, by how far the model is off: (group, query). Proof: P-32.

        `model` holds public whole numbers, one per query, on the grid of the answers: units for a Pure
        cost, half units of the centred query for a Concentrated one. Queries of different groups are
        compared in multiples of the largest weight of their group; constant ones are not candidates,
        since no update can improve them.
        """
        cost = _of_kind(cost, Pure, Concentrated)
        asked = tuple(map(self._group, CHECK.items(groups, "groups")))
        answers = [CHECK.whole_numbers(m, "answers") for m in CHECK.items(model, "a model")]
        if [m.shape for m in answers] != [(len(group),) for group in asked]:
            raise BudgetError("a model must have one answer for each query of each group")
        self._require_minted(bound)
        candidates = [varying(group) for group in asked]
        if not any(len(c) for c in candidates):
            raise BudgetError("every query is constant; its answer is a multiple of the join size")
        centred = isinstance(cost, Concentrated)
        widths = [widest(group, centred=centred) for group in asked]
        common = math.lcm(*(w for w in widths if w))
        mechanism = self._gate.choosing(self._instance.move_of_scores(common, bound), cost)

        def exact_scores() -> Numbers:
            scores = []
            for group, known, kept, width in zip(asked, answers, candidates, widths, strict=True):
                if len(kept):
                    exact = self._instance.exact_answers(group, centred=centred)
                    off = np.abs(wide(taken(exact, kept)) - wide(taken(known, kept)))
                    scores.append(scaled(off, common // width))
            return narrow(scores[0] if len(scores) == 1 else np.concatenate(scores))

        chosen = self._gate.choice("select a query", mechanism, exact_scores)
        places = np.cumsum([0, *map(len, candidates)])
        g = int(np.searchsorted(places, chosen, side="right")) - 1
        return g, int(candidates[g][chosen - places[g]])

    def reserve_rounds(self, count: int, each: Pure, cost: Approximate) -> None:
        """Pay for `count` Pure mechanisms at once (the paper's composition). Proof: P-24."""
        count = CHECK.whole(count, "rounds", least=1)
        each, cost = _of_kind(each, Pure), _of_kind(cost, Approximate)
        self._gate.reserve(count, each, cost)

    def prepare(self, groups: Sequence[Group]) -> None:
        """Compute the exact answers of these groups in one go. Nothing is released and nothing is charged."""
        self._instance.prepare([self._group(group) for group in CHECK.items(groups, "groups")])

    # -- checks ----------------------------------------------------------------------------------------

    def _group(self, group: object) -> Group:
        """A group of queries that fits the schema."""
        if (seen := self._instance.known(group)) is not None:
            return seen
        known: Group = CHECK.instance(group, (Kronecker, Products), "a group")
        check_fits(self.schema, known)
        if isinstance(known, Kronecker) and any(abs(w) >= 2**63 for f in known.factors for w in f.row):
            raise BudgetError(f"group {known.name!r} must have weights below 2^63; give it a larger unit")
        return known

    def _require_minted(self, bound: Bound) -> None:
        if not any(bound is known for known in self._minted):
            raise BudgetError("a sensitivity bound must be minted by this Curator; ask it for one")

    def _require_whole(self, what: str) -> None:
        if not self._instance.whole:
            raise BudgetError(f"{what} of the whole instance; give rules instead of asking a part of it")


class _Inner(Curator):
    """A Curator of another instance of the same tables; only a Curator makes one."""

    def __init__(self, instance: Instance, gate: Gate) -> None:
        self._begin(instance, gate)


def _of_kind(cost: object, *kinds: type) -> Any:
    """A cost of one of these kinds. Proof: P-73."""
    return CHECK.instance(cost, kinds, "a cost")


def _of_rho(cost: Any) -> Any:
    """The cost, unless it is one of Laplace noise, which hides join sizes and groups only. Proof: P-73."""
    if accounting.is_laplace(cost):
        raise BudgetError("this must have some rho to spend, not Laplace noise; nothing was drawn")
    return cost


def _edges(edges: object) -> tuple[int, ...]:
    """Edges between which is counted. Proof: P-73."""
    cuts = tuple(CHECK.whole(e, "edges") for e in CHECK.items(edges, "edges"))
    if not 0 < len(cuts) <= MOST_EDGES or list(cuts) != sorted({e for e in cuts if 0 < e < 2**62}):
        raise BudgetError("edges must be some increasing whole numbers from 1 on, below 2^62")
    return cuts
