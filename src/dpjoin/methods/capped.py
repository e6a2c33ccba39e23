"""Capped: count at most so many rows of each key value, and release what is left as one join.

A noisy bound must exceed the largest degree, so it is that degree plus a shift, whatever the other degrees are. A cap
needs no shift: it is a public number, and rows beyond it go. What it costs are the join results that are lost, and
what a row more moves by pushing others out. Where marginals are asked and one cap a table is enough, the rows of a
value fade instead: they count less, the more of them there are (`fading`), which costs less of both. Elsewhere rows
beyond the cap are removed, which costs a factor of the square root of two (P-62).

Where to cap is decided from noisy numbers. First how many rows have which rank within their value, for each table: that
shows what degrees are like at the price of a histogram. Then the join sizes that a few caps leave.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from dpjoin.errors import SpecError
from dpjoin.measure.estimates import LEAST_KEPT, Left, likely_shares, likely_size
from dpjoin.measure.join import measure_join, varying_products
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import (
    EDGES,
    aligned_size,
    both_looks,
    chance_size,
    degree_sequence,
    looked_beyond,
    rows_beyond,
)
from dpjoin.measure.shares import COUNT_SHARE, results_of, round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods import fading
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.parts import fitted_noise, size_noise
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.degree_bounds import RowWeights, bound_is_public, degree_caps
from dpjoin.privacy.parts import NoisyRanks, Question
from dpjoin.spec.schema import DegreeBound, Schema, with_caps
from dpjoin.spec.workload import Workload

RANKS_SHARE = Fraction(4, 100)
"""Of rho, for the ranks of all tables: a count of rows is then off by about 23 at (1, 1e-6)."""
SIZES_SHARE = Fraction(5, 100)
"""Of rho, for the join sizes that the candidates leave."""
RANKS_OF_LOOK, SIZES_OF_LOOK = Fraction(30, 100), Fraction(40, 100)
"""The same of what may be spent before an exchange for Laplace noise. The rest is for the join size afterwards."""
FIRST_RANKS, FIRST_SIZE = Fraction(45, 100), Fraction(25, 100)
"""The same before an early exchange, which leaves next to nothing of rho."""
ONE_LOOK = 0.2
"""How far off a size by one look under caps may be beyond noise, as a share: nothing says what they lose."""
SHOWN = 0.85
"""Of a join, what caps must leave that are to tell whether the same values are frequent in all tables."""
LEVELS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5)
"""Candidates: caps beyond which this share of a table's rows lies, or too few rows to be seen."""
LOST, LOST_ASKED = 0.25, 1.0
"""What a lost join result counts, against one that is noise: its absence shifts the shape by a part of it; or all of
it, where the workload looks at what rows are capped by, so that the very values are asked about that lose most."""
DIFFERS = 0.5
"""By which factor, as a logarithm, a value may be more or less frequent in what is lost."""
ROOM = 2
"""By how many edges caps exceed the largest rank that is seen, where they are meant to lose nothing."""
DOUBT = 6
"""The same for the most generous caps, which tell whether a few values have far more rows: three times as many."""
HIDDEN = 6.0
"""A bucket of ranks hides a value's rows in it where these are fewer than so many deviations of its noise."""
SURPRISE = 3.0
"""By how many deviations noisy sizes must contradict what ranks promise, so that the promise does not count."""
CONTRADICTS = 2.5
"""Likewise, for what a cap leaves to be less than it should be of the whole join."""
ALIGNED = 0.5
"""From this share on of the largest join that degrees allow, frequent values are taken to be the same in all tables."""
ROWS_DOUBT = 3.0
"""By how many deviations of one rank's noise a table may have more rows than ranks say."""

MOST_WAYS = 2000
"""How many ways to cap the tables are tried, to find one with few caps for each."""

Caps = dict[tuple[str, tuple[str, ...]], int]
"""By table and attributes: how many of its rows may share a value."""


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
        return bound_is_public(_with(schema, caps))

    if not serves(possible.values()):
        raise SpecError(
            "method 'capped' must have tables that meet: every private one is to share an attribute with another; "
            "use method 'multi_table'"
        )
    for most in range(max(map(len, possible.values())) + 1):
        ways = [[c for n in range(most + 1) for c in combinations(sets, n)] for sets in possible.values()]
        if math.prod(map(len, ways)) > MOST_WAYS:
            break
        fitting = [chosen for chosen in product(*ways) if serves(chosen)]
        if fitting:
            best = min(fitting, key=lambda chosen: sum(map(len, chosen)))
            return {name: list(sets) for name, sets in zip(possible, best, strict=True) if sets}
    return {name: sets for name, sets in possible.items() if sets}


def check_capped(schema: Schema) -> None:
    if len(schema.private_tables) < 2:
        raise SpecError("method 'capped' must have two or more private tables; use auto")
    if any(t.private and t.enforce and t.bounds for t in schema.tables):
        raise SpecError(
            "method 'capped' removes rows itself, so no bounds must be enforced; remove bounds = \"enforce\", or use "
            "method 'multi_table'"
        )
    if not cap_attributes(schema):
        raise SpecError("method 'capped' must have something to cap, and keys serve already; use auto")


@dataclass(frozen=True)
class CappedShares:
    """The split: ranks, the sizes of candidates, the join size; the rest is for queries. No delta is set aside."""

    split: Split
    ranks: Concentrated
    """Of one question; a row takes part in those of its table."""
    size: Concentrated
    """Of one candidate."""
    count: Concentrated
    first: FirstLook | None = None


@dataclass(frozen=True)
class FirstLook:
    """The cost of a look before all others, after which an early exchange for Laplace noise is due."""

    ranks: Concentrated
    """Of one question."""
    size: Concentrated


def capped_shares(budget: Budget, schema: Schema) -> CappedShares:
    return split_capped(Split(budget=budget), schema)


def split_capped(split: Split, schema: Schema) -> CappedShares:
    questions = max((len(sets) for sets in cap_attributes(schema).values()), default=1)
    look = look_shares(split)
    ranks = Concentrated(round_down(look.ranks / questions))
    size = Concentrated(round_down(look.sizes / (2 + len(LEVELS))))
    count = Concentrated(round_down(split.rho * (1 - RANKS_SHARE - SIZES_SHARE) * COUNT_SHARE))
    first = None
    if look.first_ranks:
        first = FirstLook(Concentrated(round_down(look.first_ranks / questions)), Concentrated(look.first_size))
    return CappedShares(split, ranks, size, count, first)


@dataclass(frozen=True)
class LookShares:
    """Of rho, what looks at ranks and at sizes may cost: little enough for an exchange after each."""

    ranks: Fraction
    sizes: Fraction
    first_ranks: Fraction = Fraction(0)
    first_size: Fraction = Fraction(0)

    @property
    def whole(self) -> Fraction:
        return self.ranks + self.sizes + self.first_ranks + self.first_size


def look_shares(split: Split) -> LookShares:
    if not split.options:
        return LookShares(split.rho * RANKS_SHARE, split.rho * SIZES_SHARE)
    early, late = (min(split.options, key=lambda o: sign * o.epsilon).rho for sign in (-1, 1))
    first = round_down(early * FIRST_RANKS)
    ranks = max(late * RANKS_OF_LOOK - first, late * RANKS_OF_LOOK / 4)
    return LookShares(ranks, late * SIZES_OF_LOOK, first, round_down(early * FIRST_SIZE))


ALL, NOTHING = Left(1.0, 1.0), NoisyTotal(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Caps, with what they leave of the join, and the error that this promises, in join results."""

    caps: Caps
    curator: Curator
    bound: Bound
    total: NoisyTotal
    price: float | None = None
    """At which price rows beyond the caps fade; None where they go."""
    left: Left = ALL
    share: float = 0.0
    """About which share of the join the caps lose, by ranks and by sizes under all caps."""
    lost: NoisyTotal = NOTHING
    error: float = math.inf
    among: tuple[Candidate, ...] = ()
    """All that it was chosen from, the most generous first."""
    most: float = math.inf
    """How large the whole join can be, by declared bounds and noisy rows."""


def capped_tight(curator: Curator, workload: Workload, shares: CappedShares, progress: Progress) -> Outcome:
    """The `tight` profile: ranks, candidates, the best of them. Spends the whole budget."""
    progress("caps", 0, 2)
    ranks = measure_ranks(curator, shares.ranks)
    progress("caps", 1, 2)
    levels = measure_levels(curator, workload, ranks, shares.size)
    progress("caps", 2, 2)
    best = best_level(workload, levels, curator.rho_left)
    return release_candidate(best, workload, shares.count, progress)


def measure_ranks(curator: Curator, cost: Concentrated, *, before: Sequence[NoisyRanks] = ()) -> list[NoisyRanks]:
    """The ranks of each table by the attributes that it may be capped by; with what a look before this one told."""
    stage = "ranks again" if before else "ranks"
    questions = [
        Question(name=f"{stage} of {table} by {', '.join(by)}", rules={table: {}}, by=by)
        for table, sets in cap_attributes(curator.schema).items()
        for by in sets
    ]
    found = curator.noisy_ranks(stage, questions, EDGES, cost)
    return [both_looks(first, second) for first, second in zip(before, found, strict=True)] if before else found


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


def price_for(caps: Caps, price: float | None) -> float | None:
    """The same price, unless weights would be a long list."""
    return price if max(caps.values()) <= fading.LARGEST else None


def measure_candidates(
    curator: Curator, candidates: Sequence[Caps], cost: Concentrated, price: float | None
) -> list[Candidate]:
    """The join sizes that caps leave, each at this cost; rows beyond them fade at a price, or go."""
    found: list[Candidate] = []
    for caps in candidates:
        own = price_for(caps, price)
        child = curator.capped(_bounds(caps)) if own is None else curator.weighted(fades_of(caps, own))
        bound = child.public_bound()
        assert bound is not None, "caps were chosen so that the bound is public"
        found.append(Candidate(caps, child, bound, measure_total(child, bound, cost), own))
    return found


def measure_first_size(
    curator: Curator, workload: Workload, ranks: Sequence[NoisyRanks], cost: Concentrated
) -> NoisyTotal:
    """About the size of the join, by one look under the caps that show best how far the same values are frequent."""
    schema, price = curator.schema, fading_price(workload)
    choice = [(caps, left_under(schema, ranks, caps, price_for(caps, price))) for caps in candidate_caps(schema, ranks)]
    shown = [some for some in choice if some[1].aligned >= SHOWN] or choice[:1]
    caps, left = max(shown, key=lambda some: some[1].aligned / public_bound_of(schema, some[0]))
    (candidate,) = measure_candidates(curator, [caps], cost, price)
    size = whole_size([replace(candidate, left=left, most=most_by_rows(schema, ranks))])
    return replace(size, deviation=math.hypot(size.deviation, ONE_LOOK * size.noisy))


def candidate_caps(schema: Schema, ranks: Sequence[NoisyRanks]) -> list[Caps]:
    """Different caps, from those beyond which nothing is seen downwards: a function of noisy ranks alone."""
    rows = {_place(r): rows_beyond(r) for r in ranks}
    unseen = {place: 2 * r.deviation for place, r in zip(rows, ranks, strict=True)}

    def capped_at(share: float) -> Caps:
        found = {}
        for place, beyond in rows.items():
            least = max(unseen[place], share * float(beyond[0]))
            found[place] = EDGES[min(int(np.argmax(beyond[1:] <= least)), len(EDGES) - 1)]
        return found

    # Rows beyond what can be seen are few, and not none: the first candidates have room for them.
    noise = {place: r.deviation for place, r in zip(rows, ranks, strict=True)}
    seen = capped_at(0.0)
    wide, top = ({place: _with_room(cap, room, noise[place]) for place, cap in seen.items()} for room in (DOUBT, ROOM))
    candidates = [_raised(schema, caps) for caps in (wide, top, *(capped_at(share) for share in LEVELS))]
    return [caps for i, caps in enumerate(candidates) if caps not in candidates[:i]]


def _with_room(cap: int, room: int, noise: float) -> int:
    """A cap above this one by so many edges, or fewer: a value with rows all through a wide bucket would be seen."""
    at = EDGES.index(cap)
    hiding = (n for n in range(at, min(at + room, len(EDGES) - 1)) if EDGES[n + 1] - EDGES[n] < HIDDEN * noise)
    return EDGES[1 + max(hiding, default=at - 1)]


def _raised(schema: Schema, caps: Caps) -> Caps:
    """Every cap as large as it can be without a larger bound: what is free is not cut, though nothing be seen there."""
    bound = public_bound_of(schema, caps)
    for place in sorted(caps):
        for edge in reversed([e for e in EDGES if caps[place] < e <= bound]):
            raised = {**caps, place: edge}
            if public_bound_of(schema, raised) <= bound:
                caps = raised
                break
    return caps


def public_bound_of(schema: Schema, caps: Caps) -> int:
    """The bound that caps give: the most join results that one row can be in."""
    capped = _with(schema, caps)
    names = frozenset(t.name for t in schema.tables)
    found = degree_caps(capped)
    return max(found.get(names - {t}, 1) for t in schema.private_tables)


def best_candidate(
    workload: Workload,
    candidates: Sequence[Candidate],
    rho: Fraction,
    *,
    promised: Sequence[float],
    unseen: float,
    whole: NoisyTotal,
) -> Candidate:
    """The candidate with the least predicted error: noise of its bound, and what it loses. From noisy numbers alone.

    `promised` is how many join results each candidate's caps lose, as far as is known without their sizes; `unseen`,
    how many the most generous ones may lose; `whole`, the size of the join.
    """
    found: list[Candidate] = []
    asked = any(set(by) & set(workload.attributes) for candidate in candidates[:1] for _, by in candidate.caps)
    counts = LOST_ASKED if asked else LOST
    for candidate, expected in zip(candidates, promised, strict=True):
        # What is lost: as far as noisy sizes show it, and as was promised. Rows that go may join more than others do,
        # so a promise may be off by twice itself.
        seen = max(0.0, whole.noisy - candidate.total.noisy)
        told = NoisyTotal(seen, math.hypot(whole.deviation, candidate.total.deviation))
        promise = NoisyTotal(expected, max(1.0, unseen, 2 * expected))
        surprising = seen - expected > SURPRISE * math.hypot(told.deviation, promise.deviation)
        lost = told if surprising else told.combined(promise)
        error = predicted_noise(workload, candidate, rho, size=whole.noisy) + counts * lost.noisy
        found.append(replace(candidate, lost=lost, error=error))
    return min(found, key=lambda c: c.error)


@dataclass(frozen=True, eq=False)
class Levels:
    """Candidates that ranks suggest, and what is known of the join."""

    candidates: tuple[Candidate, ...]
    promised: tuple[float, ...]
    """How many join results each one's caps lose, as far as is known without their sizes."""
    unseen: float
    """How many the most generous ones may lose."""
    whole: NoisyTotal


def measure_levels(curator: Curator, workload: Workload, ranks: Sequence[NoisyRanks], cost: Concentrated) -> Levels:
    """The join sizes that candidate caps leave, each at this cost."""
    price = fading_price(workload)
    candidates = measure_candidates(curator, candidate_caps(curator.schema, ranks), cost, price)
    candidates = [replace(c, left=left_under(curator.schema, ranks, c.caps, c.price)) for c in candidates]
    totals, left = [c.total for c in candidates], [c.left for c in candidates]
    shares, most = likely_shares(totals, left), most_by_rows(curator.schema, ranks)
    candidates = [replace(c, share=share, most=most) for c, share in zip(candidates, shares, strict=True)]
    whole = whole_size(candidates)
    size = max(1.0, whole.noisy)
    promised = tuple(size * share for share in shares)
    return Levels(tuple(candidates), promised, size * unseen_share(ranks), whole)


def best_level(workload: Workload, levels: Levels, rho: Fraction) -> Candidate:
    """The best of the candidates, if what follows has noise as of this rho."""
    best = best_candidate(
        workload, levels.candidates, rho, promised=levels.promised, unseen=levels.unseen, whole=levels.whole
    )
    return replace(best, among=levels.candidates)


def left_under(schema: Schema, ranks: Sequence[NoisyRanks], caps: Caps, price: float | None) -> Left:
    """Which share of the join caps leave, as far as ranks tell."""
    aligned = larger = 1.0
    hidden: list[NoisyTotal] = []
    for by in dict.fromkeys(r.question.by for r in ranks):
        meeting = [r for r in ranks if r.question.by == by]
        degrees = [degree_sequence(r) for r in meeting]
        kept = [rows_left(d, caps[_place(r)], price) for d, r in zip(degrees, meeting, strict=True)]
        # Nothing is known of others that come there, so one of these stands for each of them as well.
        others = degrees[:1] * _others(schema, by, {_place(r)[0] for r in meeting})
        degrees, kept = [*degrees, *others], [*kept, *others]
        whole, chance = aligned_size(degrees), chance_size(degrees)
        if chance > 0:
            aligned *= min(1.0, aligned_size(kept) / whole)
            larger *= whole / chance
            # A value with rows that are hidden has the most of its table, and may have the most of every other.
            most = [float(k.max(initial=0.0)) for k in kept]
            for n, r in enumerate(meeting):
                rows, each = hidden_rows(r, caps[_place(r)], price), math.prod(most[:n] + most[n + 1 :]) / whole
                share = rows.noisy / float(rows_beyond(r)[0])
                hidden.append(NoisyTotal(min(share, 0.5), min(each * rows.deviation, 0.5)))
    by_chance = 1 - lost_share(ranks, caps, price)
    size = chance_size([degree_sequence(r) for r in ranks]) if _meet_in_one(schema, ranks) else None
    return Left(
        max(by_chance, LEAST_KEPT),
        max(min(aligned, by_chance), LEAST_KEPT),
        larger,
        size,
        hidden=1 - math.prod(1 - share.noisy for share in hidden),
        doubt=math.hypot(*(share.deviation for share in hidden)),
    )


def _others(schema: Schema, by: Sequence[str], known: Collection[str]) -> int:
    """How many private tables may have several rows of a value of these attributes, beside those that are known."""
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


def _meet_in_one(schema: Schema, ranks: Sequence[NoisyRanks]) -> bool:
    """Whether all tables share the attributes by which their ranks are known, and nothing else."""
    shared = {schema.in_order(set(a.attributes) & set(b.attributes)) for a, b in combinations(schema.tables, 2)}
    return len(ranks) == len(schema.tables) and shared == {r.question.by for r in ranks} and len(shared) == 1


def lost_share(ranks: Sequence[NoisyRanks], caps: Caps, price: float | None) -> float:
    """About which share of the join caps lose, if the rows they cut join like all others."""
    ends = np.array([0, *EDGES], dtype=np.float64)
    left = 1.0
    for r in ranks:
        cap, beyond = caps[_place(r)], rows_beyond(r)
        kept = rows_left(ends, cap, price)
        lost = (beyond[:-1] - beyond[1:]) * (1 - np.diff(kept) / np.diff(ends))
        left *= max(0.0, 1 - float(lost.sum()) / max(1.0, float(beyond[0])))
    return 1 - left


def rows_left(degrees: FloatArray, cap: int, price: float | None) -> FloatArray:
    """How many rows' worth of values with so many rows a cap leaves."""
    return np.minimum(degrees, cap) if price is None else fading.rows_kept(cap, price, degrees)


def unseen_share(ranks: Sequence[NoisyRanks]) -> float:
    """About which share of the join lies with rows whose rank cannot be seen for noise."""
    return min(1.0, sum(2 * r.deviation / max(1.0, float(rows_beyond(r)[0])) for r in ranks))


def predicted_noise(workload: Workload, candidate: Candidate, rho: Fraction, *, size: float) -> float:
    """The noise of measuring what the caps leave of a join of about this size, in join results."""
    removed = max(sum(1 for table, _ in candidate.caps if table == t) for t, _ in candidate.caps)
    results = results_of(candidate.curator, candidate.bound)
    bound = results * math.sqrt(1 + removed**2) if candidate.price is None else results
    return fitted_noise(workload, bound=bound, size=max(1.0, size), rho=rho) + size_noise(results, rho)


def release_candidate(best: Candidate, workload: Workload, count: Concentrated, progress: Progress) -> Outcome:
    """Measure the join that the caps leave, and scale it to the size of the whole one."""
    with one_blas_thread():
        whole, kept = measure_sizes(best, count)
        # How uncertain the size is comes in with the whole one.
        model, strategy = measure_join(best.curator, workload, best.bound, NoisyTotal(kept, 1.0), progress)
    caps = ", ".join(f"{limit:,} of {table} by {'+'.join(by)}" for (table, by), limit in sorted(best.caps.items()))
    how = f"at most {caps}" if best.price is None else f"rows of a value beyond {caps} fade"
    grew = grown(model, NoisyTotal(max(0.0, whole.noisy - model.total), whole.deviation))
    changed = math.ceil(results_of(best.curator, best.bound))
    return Outcome(grew, changed, max(1, round(grew.total)), f"{how}; {strategy}")


def measure_sizes(best: Candidate, count: Concentrated) -> tuple[NoisyTotal, float]:
    """The size of the whole join, and of what the caps leave of it, each with half of what is for the size.

    The whole size is measured under caps of its own: under generous ones that lose nothing there is more noise, under
    strict ones more is lost.
    """
    half = round_down(count.rho / 2)
    among = _looked_again(best.among, most_telling(best.among, half), half)
    among = _looked_again(among, best, count.rho - half)
    whole = whole_size(among)
    kept = next(c.total for c in among if c.curator is best.curator)
    left = (1 - best.share) * (1 - best.left.hidden)
    promised = NoisyTotal(whole.noisy * left, math.hypot(whole.deviation, best.share * whole.noisy))
    return whole, max(1.0, min(kept.combined(promised).noisy, best.most))


def measure_whole(among: Sequence[Candidate], cost: Concentrated) -> NoisyTotal:
    """The size of the whole join, after one more look under the caps that tell most of it."""
    return whole_size(_looked_again(among, most_telling(among, cost.rho), cost.rho))


def whole_size(among: Sequence[Candidate]) -> NoisyTotal:
    found = likely_size([c.total for c in among], [c.left for c in among])
    return replace(found, noisy=min(found.noisy, among[0].most))


def most_by_rows(schema: Schema, ranks: Sequence[NoisyRanks]) -> float:
    """How many results the join has at most, by declared bounds: a row that refers to keys is in one at most.

    How many rows a table has is known far better than what caps leave.
    """
    results, names = degree_caps(schema), frozenset(t.name for t in schema.tables)
    rows = {_place(r)[0]: float(rows_beyond(r)[0]) + ROWS_DOUBT * r.deviation for r in ranks}
    return min((n * results[names - {t}] for t, n in rows.items() if names - {t} in results), default=math.inf)


def most_telling(among: Sequence[Candidate], rho: Fraction) -> Candidate:
    """The caps under which a look at this cost leaves the least doubt about the size of the whole join."""
    before = whole_size(among)

    def doubt(candidate: Candidate) -> float:
        noise = size_noise(results_of(candidate.curator, candidate.bound), rho)
        missing = before.noisy - candidate.total.noisy
        seen = missing > CONTRADICTS * math.hypot(before.deviation, candidate.total.deviation)
        return math.hypot(noise, max(candidate.share * before.noisy, missing if seen else 0.0))

    return min(among, key=doubt)


def _looked_again(among: Sequence[Candidate], which: Candidate, rho: Fraction) -> tuple[Candidate, ...]:
    seen = measure_total(which.curator, which.bound, Concentrated(rho))
    return tuple(replace(c, total=c.total.combined(seen)) if c.curator is which.curator else c for c in among)


def grown(model: Model, lost: NoisyTotal) -> Model:
    """With the size that was lost; its shape is taken to be that of what is left.

    Members stand for what is uncertain: this size, and that shape. What is lost may have any value more or less often
    by some factor; as a share of all, that factor's logarithm adds to the value's potential.
    """
    whole = model.total + lost.noisy
    rng = np.random.default_rng(len(model.members))  # public randomness
    off = lost.deviation * rng.standard_normal(len(model.members))
    differs = DIFFERS * max(0.0, lost.noisy) / whole
    members = []
    for (potentials, total), more in zip(model.members, off, strict=True):
        shifted = potentials.copy()
        for where in model.single_terms.values():
            shifted[where] += differs * rng.standard_normal(where.stop - where.start)
        # Not in proportion: what is left may be next to nothing, and members of it many times as large.
        members.append((shifted, max(1.0, total + lost.noisy + more)))
    return replace(model, total=whole, members=tuple(members))


def _place(ranks: NoisyRanks) -> tuple[str, tuple[str, ...]]:
    return next(iter(ranks.question.rules)), ranks.question.by


def _bounds(caps: Caps) -> dict[str, list[DegreeBound]]:
    found: dict[str, list[DegreeBound]] = {}
    for (table, by), limit in caps.items():
        found.setdefault(table, []).append(DegreeBound(attributes=by, limit=limit))
    return found


def _with(schema: Schema, caps: Caps) -> Schema:
    return with_caps(schema, _bounds(caps))
