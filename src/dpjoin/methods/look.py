"""First noisy measurements of degrees and sizes, at little cost: where to cap, and which method has the least error.

First how many rows have which rank within their value, for each table: that tells the degree distribution at the price
of a histogram. Then the join sizes that a few caps leave. Everything decided from it is a function of noisy numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product

import numpy as np

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.estimates import Left, likely_shares, likely_size
from dpjoin.measure.join import varying_products
from dpjoin.measure.owner_counts import Owners
from dpjoin.measure.ranks import (
    EDGES,
    aligned_size,
    chance_size,
    combined_ranks,
    degree_sequence,
    looked_beyond,
    rows_beyond,
    rows_told,
)
from dpjoin.measure.shares import results_of, round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods import fading
from dpjoin.methods.noise_forecast import size_noise
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.degree_bounds import RowWeights, bound_is_public, declared_limits, degree_caps, most_results
from dpjoin.privacy.parts import NoisyRanks, Question
from dpjoin.spec.schema import DegreeBound, Schema, with_caps
from dpjoin.spec.workload import Workload

MOST_CHOICES = 2000
"""How many ways to cap the tables are tried, to find one with few caps for each."""

Caps = dict[tuple[str, tuple[str, ...]], int]
"""By table and attributes: how many of its rows may share a value."""


# What is capped


def cap_attributes(schema: Schema) -> dict[str, list[tuple[str, ...]]]:
    """By which attributes each private table is capped, so that the join has a public bound: as few for each as can be.

    A table with fewer caps pays less for them. Tables with declared bounds need none where those serve; where they make
    the whole bound public, caps are as if only keys were declared, and may be far below the other bounds. Those of
    public tables stay: nothing else bounds their degrees.
    """
    if bound_is_public(schema) and any(b.limit > 1 for t in schema.tables if t.private for b in t.bounds):
        only_keys = (
            replace(t, bounds=tuple(b for b in t.bounds if b.limit == 1 or not t.private)) for t in schema.tables
        )
        return cap_attributes(Schema(tuple(only_keys), schema.attributes))
    possible: dict[str, list[tuple[str, ...]]] = {}
    for table in schema.tables:
        others = [o for o in schema.tables if o.name != table.name]
        shared = (schema.in_order(set(table.attributes) & set(o.attributes)) for o in others)
        possible[table.name] = [s for s in dict.fromkeys(shared) if s] if table.private else []

    def serves(chosen: Iterable[Sequence[tuple[str, ...]]]) -> bool:
        caps = {(t, by): 1 for t, sets in zip(possible, chosen, strict=True) for by in sets}
        return bound_is_public(with_caps(schema, cap_bounds(caps)))

    if not serves(possible.values()):
        raise SpecError(
            "method 'capped' must have tables that meet: every private one is to share an attribute with another; "
            "use method 'multi_table'"
        )
    for most in range(max(map(len, possible.values())) + 1):
        ways = [[c for n in range(most + 1) for c in combinations(sets, n)] for sets in possible.values()]
        if math.prod(map(len, ways)) > MOST_CHOICES:
            break
        fitting = [chosen for chosen in product(*ways) if serves(chosen)]
        if fitting:
            best = min(fitting, key=lambda chosen: sum(map(len, chosen)))
            return {name: list(sets) for name, sets in zip(possible, best, strict=True) if sets}
    return {name: sets for name, sets in possible.items() if sets}


def cap_bounds(caps: Caps) -> dict[str, list[DegreeBound]]:
    found: dict[str, list[DegreeBound]] = {}
    for (table, by), limit in caps.items():
        found.setdefault(table, []).append(DegreeBound(attributes=by, limit=limit))
    return found


def public_bound_of(schema: Schema, caps: Caps) -> int:
    """The bound that caps give: the most join results that one row can be in."""
    names, capped = frozenset(t.name for t in schema.tables), with_caps(schema, cap_bounds(caps))
    limits = declared_limits(capped)
    return max(most_results(capped, names - {t}, limits) or 1 for t in schema.private_tables)


def fading_price(workload: Workload) -> float | None:
    """At which price rows may fade; None if they cannot: marginals alone must be asked, with one cap for each table.

    From public numbers alone.
    """
    sets = cap_attributes(workload.schema)
    if varying_products(workload) or any(len(some) > 1 for some in sets.values()):
        return None
    return fading.best_price(workload.schema, [(table, some[0]) for table, some in sets.items()])


def fades_of(caps: Caps, price: float) -> dict[str, RowWeights]:
    """Weights that are full up to the caps."""
    return {table: fading.fade(by, cap, price) for (table, by), cap in caps.items()}


def price_for(cap: int, price: float | None) -> float | None:
    """The same price, unless weights would be a long list."""
    return price if cap <= fading.LARGEST else None


def rows_left(degrees: FloatArray, cap: int, price: float | None) -> FloatArray:
    """How many rows' worth of values with so many rows a cap leaves."""
    return np.minimum(degrees, cap) if price is None else fading.rows_kept(cap, price, degrees)


# What a look costs


@dataclass(frozen=True)
class LookShares:
    """What a look costs: little enough for an exchange for Laplace noise after it, where that is an option."""

    ranks: Concentrated
    """Of one question; a row takes part in those of its table."""
    size: Concentrated
    """Of one candidate."""
    whole: Fraction
    """Of all of rho, at most."""
    first_ranks: Concentrated | None = None
    """Of a first and smaller look, after which more Laplace noise is to be had; None where there is none."""
    first_size: Concentrated | None = None


def look_shares(split: Split, schema: Schema) -> LookShares:
    questions = max((len(sets) for sets in cap_attributes(schema).values()), default=1)

    def each(rho: Fraction, times: int) -> Concentrated:
        return Concentrated(round_down(rho / times))

    candidates = len(constants.CAP_LEVELS) + 2
    if not split.options:
        ranks, sizes = split.rho * constants.RANKS_SHARE, split.rho * constants.SIZES_SHARE
        return LookShares(each(ranks, questions), each(sizes, candidates), ranks + sizes)
    early, late = (min(split.options, key=lambda o: sign * o.epsilon).rho for sign in (-1, 1))
    first_ranks, first_size = round_down(early * constants.FIRST_RANKS), round_down(early * constants.FIRST_SIZE)
    ranks, sizes = (
        max(late * constants.RANKS_OF_LOOK - first_ranks, late * constants.RANKS_OF_LOOK / 4),
        late * constants.SIZES_OF_LOOK,
    )
    whole = ranks + sizes + first_ranks + first_size
    first = each(first_ranks, questions), Concentrated(first_size)
    return LookShares(each(ranks, questions), each(sizes, candidates), whole, *first)


def count_after_look(split: Split) -> Concentrated:
    """What the join size costs after a look."""
    return Concentrated(
        round_down(split.rho * (1 - constants.RANKS_SHARE - constants.SIZES_SHARE) * constants.COUNT_SHARE)
    )


# What is seen


@dataclass(frozen=True, eq=False)
class Candidate:
    """Caps, with what they leave of the join."""

    caps: Caps
    curator: Curator
    bound: Bound
    total: NoisyTotal
    price: float | None
    """At which price rows beyond the caps fade; None where they go."""
    left: Left = field(default_factory=lambda: Left(1.0, 1.0))
    share: float = 0.0
    """About which share of the join the caps lose, by ranks and by sizes under all caps."""

    @property
    def results(self) -> float:
        """How many join results one row can change."""
        return results_of(self.curator, self.bound)


@dataclass(frozen=True, eq=False)
class Levels:
    """Candidates that ranks suggest, the most generous first, and what is known of the join."""

    candidates: tuple[Candidate, ...]
    unseen: float = 0.0
    """Which share of the join the most generous ones may lose."""
    most: float = math.inf
    """How large the join can be, by declared bounds and noisy rows."""

    @cached_property
    def whole(self) -> NoisyTotal:
        """About the size of the whole join."""
        found = likely_size([c.total for c in self.candidates], [c.left for c in self.candidates])
        return replace(found, noisy=min(found.noisy, self.most))

    def measured_again(self, which: Candidate, rho: Fraction) -> Levels:
        """With one more measurement of what these caps leave."""
        seen = measure_total(which.curator, which.bound, Concentrated(rho))
        again = (replace(c, total=c.total.combined(seen)) if c.curator is which.curator else c for c in self.candidates)
        return replace(self, candidates=tuple(again))

    def most_telling(self, rho: Fraction) -> Candidate:
        """The caps under which a measurement at this cost leaves the least doubt about the size of the whole join."""

        def doubt(candidate: Candidate) -> float:
            missing = self.whole.noisy - candidate.total.noisy
            seen = missing > constants.CONTRADICTS * math.hypot(self.whole.deviation, candidate.total.deviation)
            lost = max(candidate.share * self.whole.noisy, missing if seen else 0.0)
            return math.hypot(size_noise(candidate.results, rho), lost)

        return min(self.candidates, key=doubt)


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen: ranks of each table by what it may be capped by, and about the size of the join."""

    curator: Curator
    workload: Workload
    ranks: tuple[NoisyRanks, ...]
    size: NoisyTotal
    levels: Levels | None = None
    """The sizes under several caps; None after a first look."""
    owners: Owners | None = None
    """Values of what all tables share by their join results; None where these were not counted."""

    @property
    def rows(self) -> dict[str, NoisyTotal]:
        """About how many rows each table has, by the ranks that tell it best."""
        told = sorted(((place(r)[0], rows_told(r)) for r in self.ranks), key=lambda found: -found[1].deviation)
        return dict(told)

    @property
    def visible(self) -> bool:
        """Whether the join stands out of noise under caps. If not, it may be empty, or they may lose nearly all."""
        return self.size.noisy >= constants.VISIBLE * self.size.deviation


def first_look(curator: Curator, workload: Workload, shares: LookShares) -> Look:
    """Ranks, and one size."""
    assert shares.first_ranks is not None
    assert shares.first_size is not None
    ranks = measure_ranks(curator, shares.first_ranks)
    return Look(curator, workload, ranks, measure_first_size(curator, workload, ranks, shares.first_size))


def closer_look(curator: Curator, workload: Workload, shares: LookShares, before: Look | None = None) -> Look:
    """Ranks, with those of a look before, and sizes under several caps."""
    ranks = measure_ranks(curator, shares.ranks, before=before.ranks if before else ())
    levels = measure_levels(curator, workload, ranks, shares.size)
    return Look(curator, workload, ranks, levels.whole, levels)


def measure_ranks(curator: Curator, cost: Concentrated, *, before: Sequence[NoisyRanks] = ()) -> tuple[NoisyRanks, ...]:
    """The ranks of each table by the attributes that it may be capped by; with what a look before this one told."""
    stage = "ranks again" if before else "ranks"
    questions = [
        Question(name=f"{stage} of {table} by {', '.join(by)}", rules={table: {}}, by=by)
        for table, sets in cap_attributes(curator.schema).items()
        for by in sets
    ]
    found = curator.noisy_ranks(stage, questions, EDGES, cost)
    return tuple(map(combined_ranks, before, found)) if before else tuple(found)


def measure_candidates(
    curator: Curator, candidates: Sequence[Caps], cost: Concentrated, price: float | None
) -> list[Candidate]:
    """The join sizes that caps leave, each at this cost; rows beyond them fade at a price, or go."""
    found: list[Candidate] = []
    for caps in candidates:
        own = price_for(max(caps.values()), price)
        child = curator.capped(cap_bounds(caps)) if own is None else curator.weighted(fades_of(caps, own))
        bound = child.public_bound()
        assert bound is not None, "caps were chosen so that the bound is public"
        found.append(Candidate(caps, child, bound, measure_total(child, bound, cost), own))
    return found


def measure_first_size(
    curator: Curator, workload: Workload, ranks: Sequence[NoisyRanks], cost: Concentrated
) -> NoisyTotal:
    """About the size of the join, by one size under the caps that tell best how correlated the tables' degrees are."""
    schema, price = curator.schema, fading_price(workload)
    choice = [
        (caps, left_under(schema, ranks, caps, price_for(max(caps.values()), price)))
        for caps in candidate_caps(schema, ranks)
    ]
    shown = [some for some in choice if some[1].aligned >= constants.SHOWN] or choice[:1]
    caps, left = max(shown, key=lambda some: some[1].aligned / public_bound_of(schema, some[0]))
    (candidate,) = measure_candidates(curator, [caps], cost, price)
    size = Levels((replace(candidate, left=left),), most=most_by_rows(schema, ranks)).whole
    return replace(size, deviation=math.hypot(size.deviation, constants.ONE_SIZE * size.noisy))


def measure_levels(curator: Curator, workload: Workload, ranks: Sequence[NoisyRanks], cost: Concentrated) -> Levels:
    """The join sizes that candidate caps leave, each at this cost."""
    schema, price = curator.schema, fading_price(workload)
    candidates = measure_candidates(curator, candidate_caps(schema, ranks), cost, price)
    left = [left_under(schema, ranks, c.caps, c.price) for c in candidates]
    shares = likely_shares([c.total for c in candidates], left)
    candidates = [replace(c, left=some, share=s) for c, some, s in zip(candidates, left, shares, strict=True)]
    unseen = min(1.0, sum(2 * r.deviation / max(1.0, float(rows_beyond(r)[0])) for r in ranks))
    return Levels(tuple(candidates), unseen, most_by_rows(schema, ranks))


# Post-processing of noisy ranks


def candidate_caps(schema: Schema, ranks: Sequence[NoisyRanks]) -> list[Caps]:
    """Different caps, from those beyond which nothing is seen downwards: a function of noisy ranks alone."""
    rows = {place(r): rows_beyond(r) for r in ranks}
    noise = {place(r): r.deviation for r in ranks}

    def capped_at(share: float) -> Caps:
        found = {}
        for at, beyond in rows.items():
            least = max(2 * noise[at], share * float(beyond[0]))
            found[at] = EDGES[min(int(np.argmax(beyond[1:] <= least)), len(EDGES) - 1)]
        return found

    # Rows beyond what can be seen are few, and not none: the first candidates have room for them.
    seen = capped_at(0.0)
    roomy = (
        {at: _with_room(cap, room, noise[at]) for at, cap in seen.items()}
        for room in (constants.WIDE_ROOM, constants.CAP_ROOM)
    )
    candidates = [_raised(schema, caps) for caps in (*roomy, *(capped_at(share) for share in constants.CAP_LEVELS))]
    return [caps for i, caps in enumerate(candidates) if caps not in candidates[:i]]


def _with_room(cap: int, room: int, noise: float) -> int:
    """A cap above this one by so many edges, or fewer: a value with rows all through a wide bucket would be seen."""
    at = EDGES.index(cap)
    hiding = (
        n
        for n in range(at, min(at + room, len(EDGES) - 1))
        if EDGES[n + 1] - EDGES[n] < constants.HIDDEN_BUCKET * noise
    )
    return EDGES[1 + max(hiding, default=at - 1)]


def _raised(schema: Schema, caps: Caps) -> Caps:
    """Every cap as large as it can be without a larger bound: what is free is not cut, though nothing be seen there."""
    bound = public_bound_of(schema, caps)
    for at in sorted(caps):
        edges = [e for e in EDGES if caps[at] < e <= bound]
        free = bisect_right(edges, bound, key=lambda e: public_bound_of(schema, {**caps, at: e}))
        if free:
            caps = {**caps, at: edges[free - 1]}
    return caps


def left_under(schema: Schema, ranks: Sequence[NoisyRanks], caps: Caps, price: float | None) -> Left:
    """Which share of the join caps leave, as far as ranks tell."""
    aligned = larger = 1.0
    hidden: list[NoisyTotal] = []
    for by in dict.fromkeys(r.question.by for r in ranks):
        known = [r for r in ranks if r.question.by == by]
        degrees = [degree_sequence(r) for r in known]
        kept = [rows_left(d, caps[place(r)], price) for d, r in zip(degrees, known, strict=True)]
        # Nothing is known of others that come there, so one of these stands for each of them as well.
        others = degrees[:1] * _unranked(schema, by, {place(r)[0] for r in known})
        degrees, kept = [*degrees, *others], [*kept, *others]
        whole, chance = aligned_size(degrees), chance_size(degrees)
        if chance > 0:
            aligned *= min(1.0, aligned_size(kept) / whole)
            larger *= whole / chance
            # A value with rows that are hidden has the most of its table, and may have the most of every other.
            most = [float(k.max(initial=0.0)) for k in kept]
            for n, r in enumerate(known):
                rows, each = hidden_rows(r, caps[place(r)], price), math.prod(most[:n] + most[n + 1 :]) / whole
                share = rows.noisy / float(rows_beyond(r)[0])
                hidden.append(NoisyTotal(min(share, 0.5), min(each * rows.deviation, 0.5)))
    by_chance = 1 - lost_share(ranks, caps, price)
    shared = {schema.in_order(set(a.attributes) & set(b.attributes)) for a, b in combinations(schema.tables, 2)}
    one_key = len(ranks) == len(schema.tables) and shared == {r.question.by for r in ranks} and len(shared) == 1
    return Left(
        max(by_chance, constants.LEAST_KEPT),
        max(min(aligned, by_chance), constants.LEAST_KEPT),
        larger,
        chance_size([degree_sequence(r) for r in ranks]) if one_key else None,
        hidden=1 - math.prod(1 - share.noisy for share in hidden),
        doubt=math.hypot(*(share.deviation for share in hidden)),
    )


def _unranked(schema: Schema, by: Sequence[str], known: Collection[str]) -> int:
    """How many private tables may have several rows of a value of these attributes, and have no ranks by them."""
    return sum(
        set(by) <= set(t.attributes) and not any(set(b.attributes) <= set(by) and b.limit == 1 for b in t.bounds)
        for t in schema.tables
        if t.private and t.name not in known
    )


def hidden_rows(ranks: NoisyRanks, cap: int, price: float | None) -> NoisyTotal:
    """About how many rows a cap loses that noise hides."""
    ends, found = np.array([0, *EDGES], dtype=np.float64), looked_beyond(ranks)
    lost = 1 - np.diff(rows_left(ends, cap, price)) / np.diff(ends)
    first = max(int(np.argmax(lost > 0)), int(np.argmax(found.seen == 0)))
    if first >= len(EDGES):
        return NoisyTotal(0.0, 0.0)
    rows = float(lost @ (found.hidden[:-1] - found.hidden[1:]))
    return NoisyTotal(max(0.0, rows), float(lost[first] * found.doubt[first]))


def lost_share(ranks: Sequence[NoisyRanks], caps: Caps, price: float | None) -> float:
    """About which share of the join caps lose, if the rows they cut join like all others."""
    ends = np.array([0, *EDGES], dtype=np.float64)
    left = 1.0
    for r in ranks:
        beyond, kept = rows_beyond(r), rows_left(ends, caps[place(r)], price)
        lost = (beyond[:-1] - beyond[1:]) * (1 - np.diff(kept) / np.diff(ends))
        left *= max(0.0, 1 - float(lost.sum()) / max(1.0, float(beyond[0])))
    return 1 - left


def most_by_rows(schema: Schema, ranks: Sequence[NoisyRanks]) -> float:
    """How many results the join has at most, by declared bounds: a row that refers to keys is in one at most.

    How many rows a table has is known far better than what caps leave.
    """
    results, names = degree_caps(schema), frozenset(t.name for t in schema.tables)
    rows = {place(r)[0]: float(rows_beyond(r)[0]) + constants.ROWS_DOUBT * r.deviation for r in ranks}
    return min((n * results[names - {t}] for t, n in rows.items() if names - {t} in results), default=math.inf)


def ranked_by(ranks: Sequence[NoisyRanks], common: Sequence[str]) -> dict[str, FloatArray]:
    """About the degrees of tables by some attributes, where these are known."""
    return {place(r)[0]: degree_sequence(r) for r in ranks if r.question.by == tuple(common)}


def place(ranks: NoisyRanks) -> tuple[str, tuple[str, ...]]:
    return next(iter(ranks.question.rules)), ranks.question.by
