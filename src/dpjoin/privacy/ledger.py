"""What ran, as frozen data that travels inside the release, so that anybody can account for it again.

An event holds public parameters, its cost and, where it is one number, the noisy result. Never an exact value.
An event on a sub-instance concerns only the rows in it; the ledger knows which rows those are, and adds up what one
row can pay at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dpjoin.canonical import instance
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import (
    GAUSSIAN,
    OPTION_SHARE,
    ZERO_CONCENTRATED,
    Approximate,
    Budget,
    Composition,
    Concentrated,
    Cost,
    PaperAccountant,
    Pure,
)
from dpjoin.privacy.conversion import advanced_composition_epsilon
from dpjoin.privacy.participation import Place, largest_total


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
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    """By which factor a row of a table pays less rho, because it moves less than `moves`; 1 where not named."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A sub-instance: which rows of which private tables are in it. Other private tables play no part."""

    name: str
    stage: str
    """Parts of one stage are compared row by row; stages add up."""
    places: Mapping[str, Place]


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

    def plus(self, event: Event) -> Ledger:
        return replace(self, events=(*self.events, event))

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
        if self.composition == PaperAccountant.name:
            enough = enough and not self.rho and self._rounds_are_paid()
        else:
            known = {c.name: c for c in (ZERO_CONCENTRATED, GAUSSIAN)}
            composition = known.get(self.composition)
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
        def paid(event: Event, table: str | None) -> Fraction:
            if not isinstance(event.cost, Concentrated):
                return Fraction(0)
            return event.cost.rho * (event.shares.get(table, Fraction(1)) if table is not None else 1)

        return self._total(paid)

    @property
    def epsilon(self) -> Fraction:
        """Of (epsilon, delta) stages and of Laplace noise; rounds inside a reserved block are paid by the block."""
        return self._total(lambda e, _: Fraction(0) if isinstance(e.cost, Pure) else e.cost.epsilon)

    @property
    def delta(self) -> Fraction:
        return self._total(lambda e, _: Fraction(0) if isinstance(e.cost, Pure) else e.cost.delta)

    def _total(self, paid: Callable[[Event, str | None], Fraction]) -> Fraction:
        """What one row pays at most: everything that looks at all rows, and the worst of each stage. Proof: P-45."""
        total = sum((paid(e, None) for e in self.events if e.part is None), Fraction(0))
        of_part: dict[str, list[Event]] = {part.name: [] for part in self.parts}
        for event in self.events:
            if event.part is not None:
                of_part[event.part].append(event)
        for stage in dict.fromkeys(part.stage for part in self.parts):
            parts = [part for part in self.parts if part.stage == stage]
            tables = dict.fromkeys(table for part in parts for table in part.places)
            total += max(
                (
                    largest_total(
                        [
                            (part.places[table], sum((paid(e, table) for e in of_part[part.name]), Fraction(0)))
                            for part in parts
                            if table in part.places
                        ]
                    )
                    for table in tables
                ),
                default=Fraction(0),
            )
        return total

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {"composition": self.composition}
        if self.parts:
            written["parts"] = [
                {"name": p.name, "stage": p.stage, "places": {t: dict(place) for t, place in p.places.items()}}
                for p in self.parts
            ]
        if self.options:
            taken = {} if self.exchanged is None else {"taken": str(self.exchanged)}
            written["exchange"] = {"options": list(map(str, self.options)), "delta_share": str(OPTION_SHARE), **taken}
        return written | {"events": [_event_to_json(e) for e in self.events]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ledger:
        parts = tuple(Part(name=p["name"], stage=p["stage"], places=p["places"]) for p in data.get("parts", ()))
        exchange = data.get("exchange", {})
        options = tuple(map(Fraction, exchange.get("options", ())))
        taken = Fraction(exchange["taken"]) if "taken" in exchange else None
        return cls(data["composition"], tuple(_events(data["events"])), parts, options, taken)


def _is_covered(event: Event, composition: Composition) -> bool:
    """Whether costs of the event may be added up so: Laplace noise by epsilon, what the composition covers by rho."""
    if not isinstance(event.cost, Concentrated):
        return False
    laplace = event.mechanism == "discrete Laplace"
    return (laplace or not event.cost.epsilon) and (composition.covers(event.mechanism) or not event.cost.rho)


def _cost_to_json(cost: Cost) -> dict[str, str]:
    if isinstance(cost, Pure):
        return {"epsilon_each": str(cost.epsilon)}
    if isinstance(cost, Approximate):
        return {"epsilon": str(cost.epsilon), "delta": str(cost.delta)}
    laplace = {"laplace_epsilon": str(cost.epsilon)} if cost.epsilon else {}
    return {"rho": str(cost.rho), "delta": str(cost.delta), **laplace}


def _cost_from_json(data: Mapping[str, str]) -> Cost:
    if "epsilon_each" in data:
        return Pure(Fraction(data["epsilon_each"]))
    if "epsilon" in data:
        return Approximate(Fraction(data["epsilon"]), Fraction(data["delta"]))
    return Concentrated(Fraction(data["rho"]), Fraction(data["delta"]), Fraction(data.get("laplace_epsilon", 0)))


def _event_to_json(event: Event) -> dict[str, Any]:
    out: dict[str, Any] = {
        "mechanism": event.mechanism,
        "purpose": event.purpose,
        "cost": _cost_to_json(event.cost),
        "moves": str(event.moves),
        "parameters": {k: v if isinstance(v, int) else str(v) for k, v in event.parameters.items()},
    }
    if event.noisy is not None:
        out["noisy"] = event.noisy
    if event.part is not None:
        out["part"] = event.part
    if event.shares:
        out["shares"] = {table: str(share) for table, share in event.shares.items()}
    return out


def _events(items: Iterable[Mapping[str, Any]]) -> Iterable[Event]:
    for item in items:
        yield Event(
            mechanism=item["mechanism"],
            purpose=item["purpose"],
            cost=_cost_from_json(item["cost"]),
            moves=Fraction(item["moves"]),
            parameters=dict(item["parameters"]),
            noisy=item.get("noisy"),
            part=item.get("part"),
            shares={table: Fraction(share) for table, share in item.get("shares", {}).items()},
        )
