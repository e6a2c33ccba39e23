"""Instances: which rows a question is about, and how far one row moves every kind of answer.

A frozen value. Restricting, capping or weighting gives another one. All sensitivities are stated here, for the unit
that is protected: one row of one private table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine.interface import Clip, Engine, RowWeights
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import Approximate, Concentrated
from dpjoin.privacy.degree_bounds import (
    Limit,
    bound_is_public,
    check_weights,
    churn,
    declared_limits,
    degree_caps,
    degree_factors,
    most_results,
    subsets,
    weighted_results,
)
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.mechanisms import Move
from dpjoin.privacy.numbers import Numbers, root, root_up, wide
from dpjoin.privacy.owners import check_removals, owners_per_row, rows_per_owner
from dpjoin.privacy.parts import CHECK, OneTable, Rules
from dpjoin.privacy.public_tables import with_public_bounds
from dpjoin.privacy.residual import Boundaries, residual_bound, residual_level
from dpjoin.privacy.sensitivity import absolute_norm, squared_norm, weight_ranges
from dpjoin.spec.persons import owner_of, owners_counted
from dpjoin.spec.schema import REPLACE, DegreeBound, Schema, Table, with_caps
from dpjoin.spec.workload import Group

RESIDUAL_STEPS = 16
"""Grid of the paper's noisy logarithm: a factor e^(beta/16) per step, well below one per cent."""


ROOT_TWO = Fraction(665857, 470832)
ROOT_SIX = Fraction(4801, 1960)
"""Above √2 and √6 by less than 10^-7, as their squares show."""


@dataclass(frozen=True, eq=False)
class Bound:
    """An upper bound on how many join results one row can change. Only a Curator mints one."""

    value: int


@dataclass(frozen=True, eq=False)
class Level:
    """A whole number that one row moves by at most `moves`, and the sensitivity bound that a level implies."""

    moves: int
    exact: Callable[[], int]
    bound: Callable[[int], int]
    parameters: Mapping[str, Fraction] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Instance:
    """Some rows of the private tables, with public facts about them."""

    schema: Schema
    open_engine: Callable[[], Engine]
    part: str | None = None
    """The sub-instance, as the ledger calls it; None for all rows."""
    whole: bool = False
    """Whether these are all rows, as they are."""
    limits: tuple[Limit, ...] = ()
    """What labels and caps say about degrees, beside what the schema declares."""
    owner: tuple[str, ...] = ()
    """Who is protected, with all rows in all tables: the attributes that name an owner; none where a row is."""
    replaced: bool = False
    """Whether neighbours have one row, or one owner's rows, replaced by others, instead of added or removed."""
    rows_per_owner: Mapping[str, int] = field(default_factory=dict)
    clip: Clip | None = None
    """How join results of an owner count, where they are clipped."""
    weights: Mapping[str, RowWeights] = field(default_factory=dict)
    pushed_out: int = 0
    """How many rows of its table one more row can push out, where bounds are enforced."""
    scattered: bool = False
    """Whether those rows may lie in another sub-instance than the row itself."""
    _answers: dict[int, tuple[Group, Numbers]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, engine: Engine) -> Instance:
        """All rows."""
        schema: Schema = CHECK.instance(engine.schema, Schema, "an engine's schema")
        if schema.unit:
            check_removals(schema, schema.unit)
        return cls(
            schema=schema,
            open_engine=lambda: engine,
            owner=schema.unit,
            replaced=schema.neighbours == REPLACE,
            rows_per_owner=rows_per_owner(schema),
            # An owner pushes out rows of its own only.
            pushed_out=0 if schema.unit else churn(schema),
            whole=True,
        )

    @cached_property
    def engine(self) -> Engine:
        return self.open_engine()

    @property
    def unit(self) -> Fraction:
        """What a count of one is worth, in join results: less than one where rows have weights."""
        clipped = self.clip.full if self.clip is not None else 1
        return 1 / Fraction(clipped * math.prod(weights.full for weights in self.weights.values()))

    # -- other instances ------------------------------------------------------------------------------

    def restricted(
        self, name: str, rules: Mapping[str, Rules], limits: Sequence[Limit], alone: OneTable | None = None
    ) -> Instance:
        """The rows that satisfy rules; of one table alone, where the others play no part. Proof: P-50."""
        inside = replace(
            self,
            open_engine=partial(self.engine.restricted, rules),
            part=name,
            whole=False,
            limits=tuple(limits),
            scattered=self.pushed_out > 0,
        )
        if alone is None:
            return inside
        if self.owner and not owner_of(self.schema, self.schema.table(alone.table)):
            raise BudgetError(f"table {alone.table!r} by itself must have the owner; its rows may have none")
        by = alone.labels.attributes if alone.labels is not None else ()
        engine = self.engine.one_table(alone.table, by, alone.values, alone.keep)
        return replace(inside, schema=engine.schema, open_engine=lambda: engine)

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> Instance:
        """Only the rows within the caps. Proof: P-63."""
        self._require_as_they_are()
        if any(caps.get(t.name) for t in self.schema.tables if not t.private):
            raise BudgetError("caps must be of private tables; the rows of public ones all stay")
        schema = with_caps(self.schema, caps)
        return replace(
            self,
            schema=schema,
            open_engine=partial(self.engine.capped, caps),
            whole=False,
            limits=(*self.limits, *declared_limits(schema)),
            pushed_out=max((len(bounds) for bounds in caps.values()), default=0),
        )

    def weighted(self, weights: Mapping[str, RowWeights]) -> Instance:
        """The same rows, each counted by how many share its value. Proof: P-68."""
        self._require_as_they_are()
        if any(not set(w.attributes) <= set(self.schema.table(t).attributes) for t, w in weights.items()):
            raise BudgetError("weights must go by attributes that their table has")
        if not weights or any(not self.schema.table(t).private for t in weights):
            raise BudgetError("weights must be of private tables, and of one at least")
        for of_table in weights.values():
            check_weights(of_table)
        return replace(self, open_engine=partial(self.engine.weighted, weights), whole=False, weights=weights)

    def learned(self, schema: Schema, *, public_bounds: bool) -> Instance:
        """The same rows with a domain for each attribute; bounds on public tables, if wanted. Proof: P-83."""
        engine = self.engine.learned(schema)
        return Instance.of(with_public_bounds(engine) if public_bounds else engine)

    def clipped(self, clip: Clip) -> Instance:
        """The same rows, each join result counted by how many its owner has. Proof: P-78."""
        self._require_as_they_are()
        if not self.whole:
            raise BudgetError("join results are clipped once, of all rows")
        owners_per_row(self.schema, clip)
        return replace(self, open_engine=partial(self.engine.clipped, clip), whole=False, clip=clip)

    def _require_as_they_are(self) -> None:
        if self.pushed_out or self.weights or self.clip is not None:
            raise BudgetError("rows are removed or have weights already; that is done once")

    def require_unweighted(self, what: str) -> None:
        if self.weights:
            raise BudgetError(f"{what} must be of rows that all count alike; use caps instead of weights")

    def require_rows(self, what: str) -> None:
        """Refuse what is stated for one row, where a person is protected or join results are clipped."""
        if self.owner or self.clip is not None:
            raise BudgetError(f"{what} must be of single rows, with one row as the unit; clip join results by owner")

    # -- bounds on join results -----------------------------------------------------------------------

    def public_bound(self) -> Bound | None:
        """From public tables, declared bounds and weights; None where these are not enough. Proof: P-27."""
        if self.clip is not None:
            return Bound(self.clip.full * self.clip.limit * owners_per_row(self.schema, self.clip))
        results = self._results_per_row()
        if results is None or not self.owner:
            return None if results is None else Bound(max(1, *results.values()))
        # All rows of an owner go one by one; a table without owners is protected row by row. Proof: P-80.
        owned = {t.name for t in self.schema.tables if t.private and t.owners is None}
        if not owned <= set(self.rows_per_owner):
            return None
        together = sum(self.rows_per_owner[table] * most for table, most in results.items() if table in owned)
        return Bound(max(1, together, *(most for table, most in results.items() if table not in owned)))

    def _results_per_row(self) -> dict[str, int] | None:
        """By private table, how many join results one of its rows changes at most; None where that is not public."""
        if self.weights:
            return weighted_results(self.schema, [*self.limits, *declared_limits(self.schema)], self.weights)
        if not bound_is_public(self.schema):
            return None
        caps, private = degree_caps(self.schema), set(self.schema.private_tables)
        found = {}
        for table in private:
            others = frozenset(t.name for t in self.schema.tables) - {table}
            known = [caps[others]] if others in caps else []
            if not others & private:
                known.append(self.engine.exact_boundary(others))
            found[table] = min(known)
        return found

    def part_bound(self) -> Bound | None:
        """From the caps of a sub-instance; None where these are not enough. Proof: P-48."""
        self.require_unweighted("a bound of caps")
        self.require_rows("a bound of caps")
        if self.part is None:
            return None
        names = frozenset(t.name for t in self.schema.tables)
        caps = [most_results(self.schema, names - {t}, self.limits) for t in self.schema.private_tables]
        known = [cap for cap in caps if cap is not None]
        return Bound(max(1, *known)) if len(known) == len(caps) else None

    def sensitivity_level(self, cost: Approximate | Concentrated) -> Level:
        """What a noisy sensitivity bound hides: the gauge, or the paper's residual sensitivity. Proof: P-28."""
        self.require_unweighted("a noisy bound")
        self.require_rows("a noisy bound")
        public = self._public_boundaries()
        if isinstance(cost, Concentrated) or len(self.schema.tables) == 2:
            return Level(self._rows, lambda: gauge(self._exact_boundaries(public)), partial(gauge_bound, public))
        beta = _paper_beta(cost)
        return Level(
            self._rows * RESIDUAL_STEPS,
            lambda: residual_level(self._exact_boundaries(public), beta=beta, steps=RESIDUAL_STEPS),
            partial(residual_bound, beta=beta, steps=RESIDUAL_STEPS),
            {"beta": beta, "steps": Fraction(RESIDUAL_STEPS)},
        )

    def _public_boundaries(self) -> Boundaries:
        """Public boundary values: of public tables, and what declared bounds imply; zero for the others, which no
        public curve looks at."""
        private = frozenset(self.schema.private_tables)
        return Boundaries(
            tables=tuple(t.name for t in self.schema.tables),
            private=private,
            values={f: 0 if f & private else self.engine.exact_boundary(f) for f in subsets(self.schema)},
            caps=degree_caps(self.schema),
            factors=degree_factors(self.schema),
        )

    def _exact_boundaries(self, public: Boundaries) -> Boundaries:
        """T_F for every proper subset F of the tables."""
        return replace(public, values={f: self.engine.exact_boundary(f) for f in subsets(self.schema)})

    # -- how far one row moves an answer --------------------------------------------------------------

    @property
    def rows_moved(self) -> int:
        """How many rows of a table, and so values of degrees, one row changes. Proof: P-62, P-81."""
        return (1 + self.pushed_out) * (2 if self.replaced else 1)

    @property
    def _rows(self) -> int:
        """The same where rows that come and rows that go cannot add up. Proof: P-62, P-81."""
        rows = 1 + self.pushed_out if self.scattered else max(1, self.pushed_out)
        return rows if self._one_sided or not self.replaced else 2 * rows

    @property
    def _one_sided(self) -> bool:
        """Whether one row, or one owner, only adds join results, so that one for another moves no size by both."""
        return (self.clip is None or self._by_person) and not self.pushed_out and not self.weights

    def move_of_column(self, table: Table, values: int) -> tuple[Move, Move]:
        """Of a list, with so many values of each owner, and of counts: these many change by one. Proof: P-82."""
        units = 2 if self.replaced else 1
        listed = units * values if owners_counted(self.schema, table) else units
        return Move(root(listed), listed, listed), Move(root(units), units)

    def move_of_size(self, bound: Bound) -> int:
        """Of the join size. Proof: P-29."""
        return bound.value * self._rows

    def move_of_group(self, group: Group, bound: Bound) -> Move:
        """Of all answers of a group together. Proof: P-30, P-62, P-68, P-78."""
        positive = weight_ranges(group).none_negative
        if self.clip is not None:
            times_absolute = self._signed
            times = times_absolute if self._by_person or not positive else times_absolute // 2
        elif self.weights:
            times, times_absolute = 1 if positive else 2, 2
        else:
            times_absolute = (1 + self.pushed_out) ** 2
            times = 1 + self.pushed_out**2 if positive and not self.scattered else times_absolute
        if self.replaced:
            times, times_absolute = times * (2 if positive and self._one_sided else 4), 4 * times_absolute
        squares = squared_norm(group) * times, absolute_norm(group) ** 2 * times_absolute
        return Move(*(root_up(square * bound.value**2) for square in squares))

    def move_of_query(self, group: Group, index: int, bound: Bound, *, centred: bool) -> int:
        """Of one query; centred, in half units. Proof: P-31."""
        low, high = weight_ranges(group).of(index)
        return self.move_of_scores(high - low if centred else max(abs(low), abs(high)), bound)

    def move_of_scores(self, width: int, bound: Bound) -> int:
        """Of numbers that one join result moves by at most `width`. Proof: P-32."""
        self.require_unweighted("a single query or a choice")
        return root_up((width * bound.value * self.rows_moved) ** 2 * self._signed)

    def move_of_owners(self, clip_owner: tuple[str, ...]) -> Move:
        """Of the histogram of owners by join results. Proof: P-79."""
        owners = owners_per_row(self.schema, Clip(owner=clip_owner, limit=1))
        if self._by_person:
            return Move(ROOT_TWO, 2) if self.replaced else Move(1, 1)
        return Move(ROOT_SIX * owners, 4 * owners) if self.replaced else Move(ROOT_TWO * owners, 2 * owners)

    @property
    def _signed(self) -> int:
        """By how much clipping multiplies the squared move of signed weights, and the move in l1. Proof: P-78."""
        if self.clip is None or self._by_person:
            return 1
        return 4 if self.owner else 2

    @property
    def _by_person(self) -> bool:
        """Whether no table is protected row by row, so that only whole owners come or go. Proof: P-78."""
        return bool(self.owner) and all(t.owners is None for t in self.schema.tables if t.private)

    # -- exact values, private --------------------------------------------------------------------------

    def known(self, group: object) -> Group | None:
        """The group itself, if its answers are computed already."""
        seen = self._answers.get(id(group))
        return seen[0] if seen is not None and seen[0] is group else None

    def prepare(self, groups: Sequence[Group]) -> None:
        """Compute the exact answers of these groups in one go."""
        missing = [group for group in groups if self.known(group) is None]
        if missing:
            for group, exact in zip(missing, self.engine.exact_answers(missing), strict=True):
                self._answers[id(group)] = (group, exact)

    @cached_property
    def exact_join_size(self) -> int:
        return self.engine.exact_join_size()

    def exact_answers(self, group: Group, *, centred: bool = False) -> Numbers:
        """Those of a group; centred, 2q - (low + high) count with the true count, in half units."""
        self.prepare([group])
        exact = self._answers[id(group)][1]
        if not centred:
            return exact
        middles = weight_ranges(group).sum.astype(object)
        moved: Numbers = 2 * wide(exact) - middles * self.exact_join_size
        return moved


@lru_cache(maxsize=512)
def widest(group: Group, *, centred: bool) -> int:
    """The largest |weight| of any query in the group, on the grid its answers are given on. Proof: P-32."""
    ranges = weight_ranges(group)
    return int((ranges.width if centred else ranges.largest).max())


@lru_cache(maxsize=512)
def varying(group: Group) -> NDArray[np.int64]:
    """The queries of a group that do not give every join result the same weight. Proof: P-32."""
    return np.flatnonzero(weight_ranges(group).width > 0)


def _paper_beta(cost: Approximate) -> Fraction:
    """beta = 1/lambda = epsilon / ln(1/delta) of the whole release, twice what the bound gets; any value is sound."""
    if not (cost.epsilon and 0 < cost.delta < Fraction(1, 2)):
        raise BudgetError("a noisy bound must have some epsilon, and a delta below 1/2, to spend; nothing was drawn")
    return Fraction(round(2 * float(cost.epsilon) / math.log(1 / (2 * float(cost.delta))) * 2**20), 2**20)
