"""What ran, as frozen data that travels inside the release, so that anybody can account for it again.

An event holds public parameters, its cost and, where it is one number, the noisy result. Never an exact value.
An event on a sub-instance concerns only the rows in it; the ledger knows which rows those are, and adds up what one
row can pay at most.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpjoin.canonical import instance
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import OPTION_SHARE, PAPER, Approximate, Budget, Composition, Concentrated, Cost, Pure
from dpjoin.privacy.conversion import advanced_composition_epsilon

Place = Mapping[str, int]
"""Which bucket a row must have under which labels (by name) to be in a sub-instance."""
Places = Mapping[str, Place]
"""The same for each private table that takes part."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One mechanism that ran."""

    mechanism: str
    purpose: str
    cost: Cost
    moves: Fraction
    """How far one row can move what was hidden: absolute for a number, l2 for a vector (l1 under Laplace noise), each
    score for a choice."""
    parameters: Mapping[str, Fraction | int | str] = field(default_factory=dict)
    noisy: int | None = None
    part: str | None = None
    """The sub-instance it looked at; None for all rows."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A sub-instance: which rows of which private tables are in it. Other private tables play no part."""

    name: str
    stage: str
    """Parts of one stage are compared row by row; stages add up."""
    places: Places


@dataclass(frozen=True)
class Ledger:
    """All events of one release, in order, and how to add them up."""

    composition: str
    events: tuple[Event, ...] = ()
    parts: tuple[Part, ...] = ()
    options: tuple[Fraction, ...] = ()
    """Of epsilon, the Laplace noise that rho could have been exchanged for; each has OPTION_SHARE of delta (P-70)."""
    exchanged: Fraction | None = None
    """The option that was taken."""
    owner: tuple[str, ...] = ()
    """Who pays, with all rows in all tables: the attributes that name an owner; none where one row does."""

    def conversion_delta(self, delta: Fraction) -> Fraction:
        """Of a release's delta, what turned rho into epsilon in the case that came about: see P-70."""
        share = 1 - OPTION_SHARE * len(self.options) if self.exchanged is None else OPTION_SHARE
        return (delta - self.delta) * share if self.rho else Fraction(0)

    def check_within(self, budget: Budget) -> None:
        """Refuse a ledger that adds up to more than the budget, by the ledger's own rule. Proof: P-75."""
        whole = instance(budget, Budget, "budget", error=BudgetError).exact
        # What was exchanged for counts in full: the choice to exchange rested on what had been released.
        epsilon = max(self.epsilon, self.exchanged or Fraction(0))
        enough = epsilon <= whole.epsilon and self.delta <= whole.delta
        if self.composition == PAPER:
            enough = enough and not self.rho and self._rounds_are_paid()
        else:
            composition = {c.value: c for c in Composition}.get(self.composition)
            if composition is None or not all(_is_covered(e, composition) for e in self.events):
                raise BudgetError(f"composition ({self.composition!r}) must be one that is proved for every event")
            if enough and self.rho:
                try:
                    left, conversion = whole.epsilon - epsilon, self.conversion_delta(whole.delta)
                    enough = self.rho <= composition.largest_rho(epsilon=left, delta=conversion)
                except ValueError:  # what is left buys nothing
                    enough = False
        if not enough:
            raise BudgetError(
                f"the ledger must add up to at most epsilon {budget.epsilon:g} and delta {budget.delta:g}; it holds "
                f"rho {float(self.rho):.3g}, epsilon {float(self.epsilon):.3g}, delta {float(self.delta):.3g}"
            )

    def _rounds_are_paid(self) -> bool:
        """Whether every round is one of a block of its own part, and every block costs what its rounds do."""
        left: Counter[tuple[str | None, Fraction]] = Counter()
        for event in self.events:
            if event.mechanism == "advanced composition" and isinstance(event.cost, Approximate):
                count, each = int(event.parameters["count"]), Fraction(event.parameters["epsilon_each"])
                needed = advanced_composition_epsilon(count=count, epsilon_each=each, delta=event.cost.delta)
                if needed > event.cost.epsilon:
                    return False
                left[event.part, each] += count
            elif isinstance(event.cost, Pure):
                left[event.part, event.cost.epsilon] -= 1
        return min(left.values(), default=0) >= 0

    @property
    def rho(self) -> Fraction:
        return self._total("rho")

    @property
    def epsilon(self) -> Fraction:
        """Of (epsilon, delta) stages and of Laplace noise; rounds inside a reserved block are paid by the block."""
        return self._total("epsilon")

    @property
    def delta(self) -> Fraction:
        return self._total("delta")

    def _total(self, amount: str) -> Fraction:
        """What one row pays at most: everything that looks at all rows, and the worst of each stage. Proof: P-45."""
        paid: dict[str | None, Fraction] = defaultdict(Fraction)
        for event in self.events:
            paid[event.part] += Fraction(0) if isinstance(event.cost, Pure) else getattr(event.cost, amount, 0)
        if not set(paid) <= {None, *(part.name for part in self.parts)}:
            raise BudgetError("every event must be about all rows or about a sub-instance that the ledger knows")
        total = paid[None]
        for stage in dict.fromkeys(part.stage for part in self.parts):
            parts = [part for part in self.parts if part.stage == stage]
            total += worst_row([p.places for p in parts], [paid[p.name] for p in parts], person=bool(self.owner))
        return total


def _is_covered(event: Event, composition: Composition) -> bool:
    """Whether costs of the event may be added up so: Laplace noise by epsilon, what the composition covers by rho."""
    if not isinstance(event.cost, Concentrated):
        return False
    laplace = event.mechanism == "discrete Laplace"
    return (laplace or not event.cost.epsilon) and (composition.covers(event.mechanism) or not event.cost.rho)


def worst_row(places: Sequence[Places], amounts: Sequence[Fraction], *, person: bool = False) -> Fraction:
    """The most that one row of any table pays, where being in a place costs its amount. Proof: P-44.

    A person, who may have rows everywhere, pays for all of them. Proof: P-80.
    """
    paid = list(zip(places, amounts, strict=True))
    if person:
        return sum((amount for place, amount in paid if place), Fraction(0))
    tables = {table for place in places for table in place}
    of_table = (largest_total([(place[t], amount) for place, amount in paid if t in place]) for t in tables)
    return max(of_table, default=Fraction(0))


def largest_total(places: Sequence[tuple[Place, Fraction]]) -> Fraction:
    """The largest sum of amounts over places that one row can be in at once. Proof: P-44.

    >>> one = Fraction(1)
    >>> largest_total([({"size": 0}, one), ({"size": 1}, one)])
    Fraction(1, 1)
    >>> largest_total([({"left": 0, "right": 0}, one), ({"left": 0, "right": 1}, one), ({"left": 0}, one)])
    Fraction(2, 1)
    """
    merged: dict[frozenset[tuple[str, int]], Fraction] = {}
    for place, amount in places:
        key = frozenset(place.items())
        merged[key] = merged.get(key, Fraction(0)) + amount
    return _largest(merged)


def _largest(places: Mapping[frozenset[tuple[str, int]], Fraction]) -> Fraction:
    total = places.get(frozenset(), Fraction(0))
    for group in _apart([place for place in places if place]):
        # Choose a bucket for the label that most places look at; the others stay open.
        counts = Counter(name for place in group for name, _ in place)
        label = min(counts, key=lambda name: (-counts[name], name))
        branches = []
        for bucket in {b for place in group for name, b in place if name == label}:
            left: dict[frozenset[tuple[str, int]], Fraction] = {}
            for place in group:
                if all(name != label or b == bucket for name, b in place):
                    rest = place - {(label, bucket)}
                    left[rest] = left.get(rest, Fraction(0)) + places[place]
            branches.append(_largest(left))
        total += max(branches)
    return total


def _apart(places: Sequence[frozenset[tuple[str, int]]]) -> list[list[frozenset[tuple[str, int]]]]:
    """Places in groups that have no label in common: a row's buckets in one say nothing about another."""
    groups: list[tuple[set[str], list[frozenset[tuple[str, int]]]]] = []
    for place in places:
        names, members = {name for name, _ in place}, [place]
        for group in [g for g in groups if g[0] & names]:
            groups.remove(group)
            names |= group[0]
            members = group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]
