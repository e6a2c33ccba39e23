"""The ledger in a release folder: JSON, with every amount as an exact fraction."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpjoin.privacy.accounting import OPTION_SHARE, Approximate, Concentrated, Cost, Pure
from dpjoin.privacy.ledger import Event, Ledger, Part


def ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    """What `ledger_from_json` reads."""
    written: dict[str, Any] = {"composition": ledger.composition}
    if ledger.owner:
        written["owner"] = list(ledger.owner)
    if ledger.parts:
        written["parts"] = [
            {"name": p.name, "stage": p.stage, "places": {t: dict(place) for t, place in p.places.items()}}
            for p in ledger.parts
        ]
    if ledger.options:
        taken = {} if ledger.exchanged is None else {"taken": str(ledger.exchanged)}
        written["exchange"] = {"options": list(map(str, ledger.options)), "delta_share": str(OPTION_SHARE), **taken}
    return written | {"events": [_event_to_json(e) for e in ledger.events]}


def ledger_from_json(data: Mapping[str, Any]) -> Ledger:
    """The ledger of a release folder."""
    parts = tuple(Part(name=p["name"], stage=p["stage"], places=p["places"]) for p in data.get("parts", ()))
    exchange = data.get("exchange", {})
    options = tuple(map(Fraction, exchange.get("options", ())))
    taken = Fraction(exchange["taken"]) if "taken" in exchange else None
    events, owner = tuple(map(_event_from_json, data["events"])), tuple(data.get("owner", ()))
    return Ledger(data["composition"], events, parts, options, taken, owner)


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
    return out


def _event_from_json(item: Mapping[str, Any]) -> Event:
    return Event(
        mechanism=item["mechanism"],
        purpose=item["purpose"],
        cost=_cost_from_json(item["cost"]),
        moves=Fraction(item["moves"]),
        parameters={k: v if isinstance(v, int) else Fraction(v) for k, v in item["parameters"].items()},
        noisy=item.get("noisy"),
        part=item.get("part"),
    )
