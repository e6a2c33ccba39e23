"""The gate: the only place where budget is spent, exact values are read and noise is drawn.

Always in this order: spend, write the event into the ledger, compute exactly, draw, write the noisy number. So there is
no noisy value without its ledger line, and a crash cannot buy a second try for free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpjoin.engine.interface import ExactDegrees, Value
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import Accountant, Approximate, Concentrated, Cost, Pure
from dpjoin.privacy.ledger import Event, Ledger, Part, Places, worst_row
from dpjoin.privacy.mechanisms import Mechanism, Move, choosing, hiding
from dpjoin.privacy.noise import Exponential, Noise, exponential_choice
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
        return values_above(exact, wide(exact.exact_counts) + wide(draw(len(exact.exact_counts))), threshold)

    def chosen(self, exact_scores: Callable[[], Numbers], rate: Fraction, event: Event) -> int:
        """A candidate, by the exponential mechanism."""
        return exponential_choice(exact_scores(), rate=rate)


class Book:
    """What all Curators of one release share: the ledger, and how noise is drawn."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.draws = Draws()

    def write(self, event: Event) -> None:
        """One line more."""
        self.ledger = replace(self.ledger, events=(*self.ledger.events, event))


@dataclass(frozen=True, eq=False)
class Gate:
    """What one Curator or column may spend, and the book that it writes to. Proof: P-33."""

    accountant: Accountant
    book: Book
    part: str | None = None
    """The sub-instance that it is for; None for all rows."""
    unit: Fraction = Fraction(1)
    """What a count of one is worth, in join results."""

    def hiding(self, move: Move | int, cost: Cost, *, half_width: int | None = None) -> Mechanism[Noise]:
        """The noise that hides a move at this cost, as costs add up here."""
        return hiding(move, cost, self.accountant.composition, half_width=half_width)

    def choosing(self, moves: int, cost: Pure | Concentrated) -> Mechanism[Exponential]:
        """The choice that hides how far scores move at this cost, as costs add up here."""
        return choosing(moves, cost, self.accountant.composition)

    def number(
        self, purpose: str, mechanism: Mechanism[Noise], exact: Callable[[], int], **more: Fraction | int
    ) -> int:
        """One noisy number, which the ledger keeps; so are its parameters, as fractions."""
        event = self._event(purpose, mechanism, more)
        event = replace(event, parameters={name: Fraction(x) for name, x in event.parameters.items()})
        self._charge(event)

        def draw(_: int) -> Numbers:
            return np.array([mechanism.law.one()], dtype=object)

        noisy = int(self.book.draws.add(np.array([exact()], dtype=object), draw, event)[0])
        events = (*self.book.ledger.events[:-1], replace(event, noisy=noisy))
        self.book.ledger = replace(self.book.ledger, events=events)
        return noisy

    def numbers(
        self, purpose: str, mechanism: Mechanism[Noise], exact: Callable[[], Numbers], **more: Fraction | int
    ) -> Numbers:
        """Noisy numbers, each with noise of its own."""
        event = self._charge(self._event(purpose, mechanism, more))
        return self.book.draws.add(exact(), mechanism.law.many, event)

    def values(
        self, purpose: str, mechanism: Mechanism[Noise], exact: Callable[[], ExactDegrees], **more: Fraction | int
    ) -> tuple[int, dict[Value, int]]:
        """A threshold, which is the largest noise, and the values with a noisy degree above it."""
        if (width := mechanism.law.half_width) is None:
            raise BudgetError("a list must have one-sided noise; nothing was drawn")
        event = self._charge(self._event(purpose, mechanism, more))
        return 2 * width, self.book.draws.listed(exact(), mechanism.law.many, 2 * width, event)

    def choice(self, purpose: str, mechanism: Mechanism[Exponential], exact_scores: Callable[[], Numbers]) -> int:
        """One of the candidates."""
        event = self._charge(self._event(purpose, mechanism, {}))
        return self.book.draws.chosen(exact_scores, mechanism.law.epsilon / (2 * mechanism.moves), event)

    def reserve(self, count: int, each: Pure, cost: Approximate) -> None:
        """Pay for so many Pure mechanisms at once. Proof: P-24."""
        self.accountant.reserve(count, each, cost)
        self.book.write(
            Event(
                mechanism="advanced composition",
                purpose="rounds",
                cost=cost,
                moves=Fraction(0),
                parameters={"count": count, "epsilon_each": each.epsilon},
                part=self.part,
            )
        )

    def enter(
        self, stage: str, parts: Mapping[str, Places], costs: Sequence[Approximate | Concentrated], *, person: bool
    ) -> dict[str, Gate]:
        """Charge what one row can pay at most in these sub-instances; each gets its allowance. Proof: P-50."""
        ledger, limit = self.book.ledger, self.accountant.limit
        if {p.name for p in ledger.parts} & set(parts) or any(p.stage == stage for p in ledger.parts):
            raise BudgetError(f"stage {stage!r} and its sub-instances must have names that are not taken")
        allowances = [self.accountant.allowance(cost) for cost in costs]
        amounts = {name: [getattr(cost, name) for cost in costs] for name in vars(limit)}
        worst = {name: worst_row([*parts.values()], paid, person=person) for name, paid in amounts.items()}
        self.accountant.spend(type(limit)(**worst))
        new = [Part(name=name, stage=stage, places=places) for name, places in parts.items()]
        self.book.ledger = replace(ledger, parts=(*ledger.parts, *new))
        return {name: Gate(purse, self.book, name) for name, purse in zip(parts, allowances, strict=True)}

    def _event(
        self, purpose: str, mechanism: Mechanism[Noise] | Mechanism[Exponential], more: Mapping[str, Fraction | int]
    ) -> Event:
        unit = {"unit": self.unit} if self.unit != 1 else {}
        return Event(
            mechanism=mechanism.law.name,
            purpose=purpose,
            cost=mechanism.cost,
            moves=Fraction(mechanism.moves),
            parameters={**mechanism.law.parameters, **more, **unit},
            part=self.part,
        )

    def _charge(self, event: Event) -> Event:
        """Spend, and write the ledger line; or raise BudgetError before anything is computed or drawn."""
        self.accountant.spend(event.cost)
        self.book.write(event)
        return event


def values_above(exact: ExactDegrees, counts: Numbers, threshold: int) -> dict[Value, int]:
    """The values that count more than a threshold, by their text: the engine's order may tell of private rows."""
    at = np.flatnonzero(counts > threshold)
    listed = dict(zip(exact.exact_values(at), counts[at].tolist(), strict=True))
    return {value: listed[value] for value in sorted(listed, key=repr)}
