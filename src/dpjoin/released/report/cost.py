"""What a release cost: each charge in the ledger with its law of noise, and the budget by purpose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from dpjoin.privacy.ledger import Ledger
from dpjoin.released.ledger_json import ledger_from_json

CURRENCIES = {
    "rho": "rho",
    "laplace_epsilon": "epsilon of Laplace noise",
    "epsilon": "epsilon",
    "epsilon_each": "epsilon, paid by its block of rounds",
}
"""What is spent, in the ledger's words and for people. Approximate stages pay epsilon, rounds are paid together."""
DELTAS = {"truncation_delta": "for noise with a bounded range", "conversion_delta": "for turning rho into epsilon"}


def cost_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger as the page shows it."""
    ledger, promised = manifest["ledger"], manifest["guarantee"]
    spent, events = promised["spent"], [told(e) for e in manifest["ledger"]["events"]]
    return {
        "composition": ledger["composition"],
        "totals": {key: _number(spent[key]) for key in ("rho", "laplace_epsilon", "epsilon") if key in spent},
        "deltas": {DELTAS.get(k, k): _number(v) for k, v in spent.items() if k in DELTAS or k == "delta"},
        "budget": {"epsilon": promised["epsilon"], "delta": promised["delta"]},
        "currencies": CURRENCIES,
        "parts": [{"name": p["name"], "stage": p["stage"]} for p in ledger.get("parts", [])],
        "events": events,
        "stages": stages_of(ledger_from_json(ledger), events),
        "planned": manifest["facts"].get("planned", []),
    }


def told(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event in numbers that people read: moves, noise and result in the units of what was asked."""
    given = event["parameters"]
    unit = Fraction(given.get("unit", 1))
    currency = next((c for c in CURRENCIES if _number(event["cost"].get(c, "0"))), None)
    noisy = event.get("noisy")
    return {
        "purpose": event["purpose"],
        "stage": stage_of(event["purpose"]),
        "mechanism": event["mechanism"],
        "currency": currency,
        "cost": _number(event["cost"][currency]) if currency else 0.0,
        "moves": float(Fraction(event["moves"]) * unit),
        "deviation": _deviation(given, unit),
        "bar": _bar(given, unit),
        "noisy": None if noisy is None else float(noisy * unit),
        "part": event.get("part"),
    }


def stages_of(ledger: Ledger, events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What one row, or one owner, pays at most for each purpose, by currency, by the ledger's own rule."""
    found: dict[str, dict[str, float]] = {}
    for currency in CURRENCIES:
        for stage in dict.fromkeys(e["stage"] for e in events if e["currency"] == currency):
            some = [i for i, e in enumerate(events) if (e["stage"], e["currency"]) == (stage, currency)]
            own = replace(ledger, events=tuple(ledger.events[i] for i in some))
            # Rounds are paid by their block; by themselves they are what they cost.
            each = sum(events[i]["cost"] for i in some)
            paid = {"rho": own.rho, "laplace_epsilon": own.epsilon, "epsilon": own.epsilon}.get(currency, each)
            found.setdefault(currency, {})[stage] = float(paid)
    return found


def stage_of(purpose: str) -> str:
    """What a charge was for, in a word or two: "measure a x b" is one of many marginals.

    >>> stage_of("measure a x b"), stage_of("ranks of r by k"), stage_of("degrees degrees of r")
    ('marginals', 'ranks', 'degrees')
    """
    if purpose.startswith("measure "):
        return "marginals"
    words = purpose.partition(" of ")[0].partition(" by ")[0].split()
    return " ".join(dict.fromkeys(words))


def _deviation(given: Mapping[str, Any], unit: Fraction) -> float | None:
    """The noise's standard deviation; of a truncated law, before it was cut."""
    if "variance" in given:
        return math.sqrt(Fraction(given["variance"])) * float(unit)
    return math.sqrt(2) * float(Fraction(given["scale"]) * unit) if "scale" in given else None


def _bar(given: Mapping[str, Any], unit: Fraction) -> float | None:
    """What the noise stays within nine times in ten; not told of truncated noise, which is shifted."""
    if "half_width" in given:
        return None
    if "variance" in given:
        return NormalDist().inv_cdf(0.95) * math.sqrt(Fraction(given["variance"])) * float(unit)
    return math.log(10) * float(Fraction(given["scale"]) * unit) if "scale" in given else None


def _number(amount: str) -> float:
    return float(Fraction(amount))
