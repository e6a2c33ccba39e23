"""What ran, as frozen data that travels inside the release, so that anybody can account for it again.

An event holds public parameters, its cost and, where it is one number, the noisy result. Never an exact value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpjoin.privacy.budget import Approximate, Concentrated, Cost, Pure


@dataclass(frozen=True, kw_only=True)
class Event:
    """One mechanism that ran."""

    mechanism: str
    purpose: str
    cost: Cost
    moves: Fraction
    """How far one row can move what was hidden: absolute for a number, l2 for a vector, each score for a choice."""
    parameters: Mapping[str, Fraction | int | str] = field(default_factory=dict)
    noisy: int | None = None


@dataclass(frozen=True)
class Ledger:
    """All events of one release, in order, and how to add them up."""

    composition: str
    events: tuple[Event, ...] = ()

    def plus(self, event: Event) -> Ledger:
        return Ledger(self.composition, (*self.events, event))

    @property
    def rho(self) -> Fraction:
        return sum((e.cost.rho for e in self.events if isinstance(e.cost, Concentrated)), Fraction(0))

    @property
    def epsilon(self) -> Fraction:
        """Sum of the (epsilon, delta) stages; rounds inside a reserved block are paid by the block."""
        return sum((e.cost.epsilon for e in self.events if isinstance(e.cost, Approximate)), Fraction(0))

    @property
    def delta(self) -> Fraction:
        return sum((e.cost.delta for e in self.events if not isinstance(e.cost, Pure)), Fraction(0))

    def to_json(self) -> dict[str, Any]:
        return {"composition": self.composition, "events": [_event_to_json(e) for e in self.events]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ledger:
        return cls(data["composition"], tuple(_events(data["events"])))


def _cost_to_json(cost: Cost) -> dict[str, str]:
    if isinstance(cost, Pure):
        return {"epsilon_each": str(cost.epsilon)}
    if isinstance(cost, Approximate):
        return {"epsilon": str(cost.epsilon), "delta": str(cost.delta)}
    return {"rho": str(cost.rho), "delta": str(cost.delta)}


def _cost_from_json(data: Mapping[str, str]) -> Cost:
    if "epsilon_each" in data:
        return Pure(Fraction(data["epsilon_each"]))
    if "epsilon" in data:
        return Approximate(Fraction(data["epsilon"]), Fraction(data["delta"]))
    return Concentrated(Fraction(data["rho"]), Fraction(data["delta"]))


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
        )
