"""The gate: the only place where budget is spent, exact values are read and noise is drawn.

Always in this order: spend, write the event into the ledger, compute exactly, draw, write the noisy number. So there is
no noisy value without its ledger line, and a crash cannot buy a second try for free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpjoin.engine.interface import ExactDegrees, Value
from dpjoin.privacy import noise
from dpjoin.privacy.accounting import Accountant
from dpjoin.privacy.ledger import Event, Ledger
from dpjoin.privacy.mechanisms import Choice, Mechanism
from dpjoin.privacy.numbers import Numbers, narrow, wide


class Draws:
    """How exact values become noisy ones. Replay tests put their own in its place."""

    def add(self, exact: Numbers, draw: Callable[[int], Numbers], event: Event) -> Numbers:
        """exact + noise."""
        return narrow(wide(exact) + wide(draw(len(exact))))

    def listed(
        self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
    ) -> dict[Value, int]:
        """The values whose noisy degree exceeds the threshold."""
        return values_above(exact, exact.exact_counts + draw(len(exact.exact_counts)), threshold)

    def chosen(self, exact_scores: Callable[[], Numbers], rate: Fraction, event: Event) -> int:
        """A candidate, by the exponential mechanism."""
        return noise.exponential_choice(exact_scores(), rate=rate)


class Gate:
    """One for a Curator and all its sub-instances. Proof: P-77."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.draws = Draws()

    def charge(self, purse: Accountant, event: Event) -> None:
        """Spend, and write the ledger line; or raise BudgetError before anything is computed or drawn."""
        purse.spend(event.cost)
        self.ledger = self.ledger.plus(event)

    def number(self, purse: Accountant, event: Event, mechanism: Mechanism, exact: Callable[[], int]) -> int:
        """One noisy number, which the ledger keeps; so are its parameters, as fractions."""
        event = replace(event, parameters={name: Fraction(x) for name, x in event.parameters.items()})
        self.charge(purse, event)

        def draw(_: int) -> Numbers:
            return np.array([mechanism.law.one()], dtype=object)

        noisy = int(self.draws.add(np.array([exact()], dtype=object), draw, event)[0])
        self.ledger = replace(self.ledger, events=(*self.ledger.events[:-1], replace(event, noisy=noisy)))
        return noisy

    def numbers(self, purse: Accountant, event: Event, mechanism: Mechanism, exact: Callable[[], Numbers]) -> Numbers:
        """Noisy numbers, each with noise of its own."""
        self.charge(purse, event)
        return self.draws.add(exact(), mechanism.law.draw, event)

    def values(
        self, purse: Accountant, event: Event, mechanism: Mechanism, exact: Callable[[], ExactDegrees], threshold: int
    ) -> dict[Value, int]:
        """Values with a noisy degree above the threshold."""
        self.charge(purse, event)
        return self.draws.listed(exact(), mechanism.law.draw, threshold, event)

    def choice(self, purse: Accountant, event: Event, mechanism: Choice, exact_scores: Callable[[], Numbers]) -> int:
        """One of the candidates."""
        self.charge(purse, event)
        return self.draws.chosen(exact_scores, mechanism.rate, event)


def values_above(exact: ExactDegrees, counts: Numbers, threshold: int) -> dict[Value, int]:
    """The values that count more than a threshold, by their text: the engine's order may tell of private rows."""
    at = np.flatnonzero(counts > threshold)
    listed = dict(zip(exact.exact_values(at), counts[at].tolist(), strict=True))
    return {value: listed[value] for value in sorted(listed, key=repr)}
