"""Checks that a mechanism keeps its promise: replay on neighbours, ledger against noise, black-box distinguishing.

Each returns what it found wrong, in words; an empty list means nothing was found. `tests/known_bad` shows
that each of them can find something.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from dpjoin.engine.interface import Engine, ExactDegrees, Value
from dpjoin.measure.progress import silent
from dpjoin.methods.method import gaussian_only
from dpjoin.model.model import Model
from dpjoin.privacy.accounting import Approximate, Budget, Concentrated, Pure, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.gate import Draws
from dpjoin.privacy.ledger import Event, Ledger
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.truncated import gaussian_delta, laplace_delta


@dataclass
class Tape:
    """Every private access of one run: the event, the exact value, and what was released."""

    entries: list[tuple[Event, Any, Any]] = field(default_factory=list)


class OwnDraws(Draws, Curator):
    """A Curator that draws by its own methods `add`, `listed` and `chosen`, which may be overridden."""

    def __init__(self, engine: Engine, split: Split) -> None:
        super().__init__(engine, split)
        self._gate.book.draws = self


class Recorder(OwnDraws):
    """It writes down what it computes and releases."""

    tape: Tape

    def add(self, exact: Numbers, draw: Callable[[int], Numbers], event: Event) -> Numbers:
        noisy = super().add(exact, draw, event)
        self.tape.entries.append((event, exact, noisy))
        return noisy

    def listed(
        self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
    ) -> dict[Value, int]:
        listed = super().listed(exact, draw, threshold, event)
        self.tape.entries.append((event, _degrees(exact), listed))
        return listed

    def chosen(self, exact_scores: Callable[[], Numbers], rate: Fraction, event: Event) -> int:
        scores = exact_scores()
        chosen = super().chosen(lambda: scores, rate, event)
        self.tape.entries.append((event, scores, chosen))
        return chosen


class ReplayError(AssertionError):
    """The second run left the tape, or a value moved more than declared."""


class Replayer(OwnDraws):
    """It releases what the tape says, and compares its own exact values with the tape's."""

    tape: Tape
    position: int = 0
    moved: list[tuple[Event, Fraction]]
    """By how much each event's exact values moved between the two instances, in l2 (Laplace noise: l1), squared."""

    def _old(self, event: Event) -> tuple[Any, Any]:
        if self.position >= len(self.tape.entries):
            raise ReplayError(f"control flow: {event.purpose!r} was not asked on the neighbour")
        old_event, old_exact, released = self.tape.entries[self.position]
        self.position += 1
        if old_event != event:
            raise ReplayError(f"control flow: {event.purpose!r} where the neighbour had {old_event.purpose!r}")
        return old_exact, released

    def _next(self, event: Event, exact: Numbers) -> Any:
        old_exact, released = self._old(event)
        if len(old_exact) != len(exact):
            raise ReplayError(f"shape: {event.purpose!r} has {len(exact)} values, the neighbour {len(old_exact)}")
        moved = [abs(int(a) - int(b)) for a, b in zip(exact, old_exact, strict=True)]
        if event.mechanism == "exponential mechanism":
            squared = max(moved, default=0) ** 2
        elif event.mechanism == "discrete Laplace":
            squared = sum(moved) ** 2
        else:
            squared = sum(m * m for m in moved)
        self._note(event, Fraction(squared))
        return released

    def _note(self, event: Event, squared: Fraction) -> None:
        if squared > event.moves**2:
            raise ReplayError(f"sensitivity: {event.purpose!r} moves more than the declared {float(event.moves):g}")
        self.__dict__.setdefault("moved", []).append((event, squared))

    def listed(
        self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
    ) -> dict[Value, int]:
        old, listed = self._old(event)
        here = _degrees(exact)
        self._note(event, Fraction(sum((here.get(v, 0) - old.get(v, 0)) ** 2 for v in {*here, *old})))
        for value, noisy in listed.items():
            if value not in here or not here[value] <= noisy <= here[value] + threshold:
                raise ReplayError(f"support: {event.purpose!r} lists a value that the neighbour cannot list")
        # Noise is never negative, so a degree above the threshold is always listed.
        if any(count > threshold and value not in listed for value, count in here.items()):
            raise ReplayError(f"support: {event.purpose!r} leaves out a value that the neighbour must list")
        return listed

    def add(self, exact: Numbers, draw: Callable[[int], Numbers], event: Event) -> Numbers:
        return self._next(event, exact)

    def chosen(self, exact_scores: Callable[[], Numbers], rate: Fraction, event: Event) -> int:
        return int(self._next(event, exact_scores()))


Run = Callable[[type[Curator], Any, Tape], Any]
"""Runs a mechanism with a Curator class on tables, with the tape attached; returns what it publishes."""


def replay_violations(run: Run, tables: Any, neighbour: Any) -> list[str]:
    """Run on one instance, replay on its neighbour: same questions, small moves, same publication."""
    tape = Tape()
    published = run(Recorder, tables, tape)
    try:
        again = run(Replayer, neighbour, tape)
    except ReplayError as error:
        return [str(error)]
    if not _same(published, again):
        return ["publication: it differs although every noisy answer was the same"]
    return []


def overpaid(curator: Replayer) -> list[str]:
    """Whether the changed row pays more than the ledger says one row can: in all, and in every stage by itself."""
    ledger, moved = curator.ledger, curator.__dict__.get("moved", [])
    found = [f"participation: {problem}" for problem in _overpaid(ledger, moved)]
    for stage in dict.fromkeys(part.stage for part in ledger.parts):
        parts = tuple(part for part in ledger.parts if part.stage == stage)
        names = {part.name for part in parts}
        only = Ledger(ledger.composition, tuple(e for e in ledger.events if e.part in names), parts, owner=ledger.owner)
        paid = [(e, squared) for e, squared in moved if e.part in names]
        found += [f"participation: stage {stage!r}: {problem}" for problem in _overpaid(only, paid)]
    return found


def _overpaid(ledger: Ledger, moved: list[tuple[Event, Fraction]]) -> list[str]:
    shares = [(e, squared / e.moves**2) for e, squared in moved if squared]
    blocks = {e.part for e, _ in shares if isinstance(e.cost, Pure)}
    paid = [(e, share) for e, share in shares if not isinstance(e.cost, Pure)]
    paid += [(e, Fraction(1)) for e in ledger.events if e.mechanism == "advanced composition" and e.part in blocks]
    rho = sum((e.cost.rho * share for e, share in paid if isinstance(e.cost, Concentrated)), Fraction())
    epsilon = sum((e.cost.epsilon for e, _ in paid if isinstance(e.cost, Approximate)), Fraction())
    epsilon += sum((e.cost.epsilon * _root(share) for e, share in paid if isinstance(e.cost, Concentrated)), Fraction())
    delta = sum((e.cost.delta for e, _ in paid if not isinstance(e.cost, Pure)), Fraction())
    stated = {"rho": (rho, ledger.rho), "epsilon": (epsilon, ledger.epsilon), "delta": (delta, ledger.delta)}
    return [
        f"the row pays {name} {float(amount):.3g}, the ledger says {float(most):.3g}"
        for name, (amount, most) in stated.items()
        if amount > most
    ]


def _root(square: Fraction) -> Fraction:
    """Rounded up; exact for the square of a fraction."""
    above = math.isqrt(square.numerator - 1) + 1 if square else 0
    return Fraction(above, math.isqrt(square.denominator))


DELTA_LEFT = "total: delta is left"


def not_the_budget(curator: Curator, budget: Budget) -> list[str]:
    """The ledger must add up to the budget exactly. Delta that was set aside and not used is a finding of its own."""
    ledger, accountant = curator.ledger, curator._gate.accountant
    limit = accountant.limit
    if isinstance(limit, Approximate):
        exact = (ledger.epsilon, ledger.delta) == (budget.exact.epsilon, budget.exact.delta)
    else:
        exact = (ledger.rho, ledger.epsilon) == (limit.rho, limit.epsilon)
        if exact and ledger.delta != limit.delta:
            return [DELTA_LEFT]
    return [] if exact else ["total: not the budget"]


def audited(
    run: Callable[[type[Curator], Any, Tape], tuple[Any, Curator]], rows: Any, other: Any, budget: Budget
) -> tuple[list[str], Any]:
    """All that replay on a neighbour, participation and the ledger find wrong, and the first run's outcome."""
    outcomes: list[Any] = []
    curators: list[Any] = []

    def told(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        outcome, curator = run(kind, tables, tape)
        outcomes.append(outcome)
        curators.append(curator)
        return published(outcome)

    found = replay_violations(told, rows, other)
    if not found:
        found = overpaid(curators[1]) + ledger_violations(curators[0].ledger, budget)
        found += not_the_budget(curators[0], budget)
    return found, outcomes[0]


def tight_run(
    make: Callable[[Any], Any],
    shares_of: Callable[..., Any],
    run: Callable[..., Any],
    workload: Any,
    budget: Budget,
    spend: Callable[[Budget, Any], Budget] = gaussian_only,
) -> Callable[[type[Curator], Any, Tape], tuple[Any, Curator]]:
    """A method's tight profile as `audited` wants it: `make` an engine of some tables, split the budget, run.

    `spend` decides about the noise: after_a_look gives an option on Laplace noise, for instance.
    """

    def ran(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Any, Curator]:
        engine = make(tables)
        shares = shares_of(spend(budget, workload), engine.schema)
        curator = attach(kind(engine, shares.split), tape)
        return run(curator, workload, shares, silent), curator

    return ran


def published(outcome: Any) -> Any:
    """What an algorithm's outcome makes public, as one array."""
    if isinstance(outcome.model, Model) and outcome.model.tree is not None:
        model = outcome.model
        parts = [model.potentials, *(p for p, _ in model.members), [t for _, t in model.members], model.deviations]
        parts += [[m.ratio for m in model.misfits], [model.total, outcome.noisy_total, outcome.sensitivity]]
        return np.concatenate([np.asarray(p, dtype=np.float64) for p in parts])
    return np.append(outcome.model.table.reshape(-1), [outcome.noisy_total, outcome.sensitivity])


def _degrees(exact: ExactDegrees) -> dict[Value, int]:
    values = exact.exact_values(np.arange(len(exact.exact_counts)))
    return dict(zip(values, exact.exact_counts.tolist(), strict=True))


def attach(curator: Curator, tape: Tape) -> Curator:
    """Give a Recorder or Replayer its tape."""
    curator.tape = tape  # type: ignore[attr-defined]
    return curator


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.array_equal(a, b))
    return bool(a == b)


def ledger_violations(ledger: Ledger, budget: Budget) -> list[str]:
    """Recompute every event's cost from its noise parameters, and the total by a second formula."""
    gaussian = ledger.composition == "Gaussian"
    found = [f"{e.purpose}: {problem}" for e in ledger.events for problem in _event_violations(e, gaussian=gaussian)]
    if ledger.composition in ("zero-concentrated", "Gaussian"):
        convert = numeric_gaussian_delta if gaussian else numeric_zcdp_delta
        # Laplace noise takes its epsilon away from what the rest is converted to (P-69).
        rest = budget.exact.epsilon - ledger.epsilon
        if rest < 0 or (rest == 0 and ledger.rho > 0):
            found.append(f"total: epsilon {float(ledger.epsilon):.3g} of Laplace noise exceeds what there is")
        delta = float(ledger.delta) + (convert(float(ledger.rho), float(rest)) if rest > 0 and ledger.rho else 0.0)
        if delta > budget.delta * (1 + 1e-9):
            found.append(f"total: delta {delta:.3g} exceeds {budget.delta:.3g}")
    elif ledger.epsilon > Fraction(budget.epsilon) or ledger.delta > Fraction(budget.delta):
        found.append("total: exceeds the budget")
    return found


def _event_violations(event: Event, *, gaussian: bool) -> list[str]:
    p = {k: Fraction(v) for k, v in event.parameters.items() if k != "query"}
    cost, moves = event.cost, event.moves
    if event.mechanism == "discrete Laplace" and isinstance(cost, Concentrated):
        alone = cost.rho == 0 and cost.delta == 0
        return [] if alone and moves / p["scale"] <= cost.epsilon else ["scale too small for epsilon"]
    if isinstance(cost, Concentrated) and cost.epsilon:
        return [f"{event.mechanism} has a cost of Laplace noise"]
    if gaussian and not event.mechanism.endswith("discrete Gaussian"):
        return [f"{event.mechanism} does not go with Gaussian composition"]
    # Under Gaussian composition a part of the variance only rounds (P-66).
    grain = 3 if gaussian else 0
    if event.mechanism == "discrete Gaussian" and isinstance(cost, Concentrated):
        return [] if moves**2 / (2 * (p["variance"] - grain)) <= cost.rho else ["variance too small for rho"]
    if event.mechanism == "truncated discrete Gaussian" and isinstance(cost, Concentrated):
        # A list of values says how many of them move, by one each: every one has a price (P-82).
        values, step = (int(p["values"]), 1) if "values" in p else (1, int(moves))
        square = values * step**2
        enough = moves**2 >= square and square / (2 * (p["variance"] - grain)) <= cost.rho
        delta = values * gaussian_delta(variance=p["variance"], sensitivity=step, half_width=int(p["half_width"]))
        # Under Gaussian composition the tails that are cut off have a price as well (P-67).
        tails = 2**-11 * math.exp(-float((p["half_width"] + 1) ** 2 / (2 * p["variance"]))) if gaussian else 0.0
        return (
            []
            if enough and float(delta) + values * step * tails <= float(cost.delta) * (1 + 1e-9)
            else ["truncated Gaussian does not fit its cost"]
        )
    if event.mechanism == "truncated discrete Laplace" and isinstance(cost, Approximate):
        enough = moves / p["scale"] <= cost.epsilon
        delta = laplace_delta(epsilon=cost.epsilon, sensitivity=int(moves), half_width=int(p["half_width"]))
        return [] if enough and delta <= cost.delta else ["truncated Laplace does not fit its cost"]
    if event.mechanism == "discrete Laplace" and isinstance(cost, Pure):
        return [] if moves / p["scale"] <= cost.epsilon else ["scale too small for epsilon"]
    if event.mechanism == "exponential mechanism":
        if isinstance(cost, Pure):
            return [] if p["epsilon"] <= cost.epsilon else ["selection too sharp for epsilon"]
        if isinstance(cost, Concentrated):
            return [] if p["epsilon"] ** 2 / 8 <= cost.rho else ["selection too sharp for rho"]
    if event.mechanism == "advanced composition" and isinstance(cost, Approximate):
        k, each = int(p["count"]), float(p["epsilon_each"])
        epsilon = math.sqrt(2 * k * math.log(1 / float(cost.delta))) * each + k * each * math.expm1(each)
        return [] if epsilon <= float(cost.epsilon) else ["rounds do not fit their block"]
    return [f"unknown mechanism {event.mechanism!r}"]


def numeric_zcdp_delta(rho: float, epsilon: float) -> float:
    """The conversion of zCDP to delta, minimised numerically: independent of the certified code."""
    from scipy.optimize import minimize_scalar

    def log_delta(t: float) -> float:
        a = 1 + math.exp(t)
        return (a - 1) * (a * rho - epsilon) - math.log(a - 1) + a * math.log1p(-1 / a)

    best = minimize_scalar(log_delta, bounds=(-8, 12), method="bounded", options={"xatol": 1e-12})
    return math.exp(best.fun)


def numeric_gaussian_delta(rho: float, epsilon: float) -> float:
    """The delta of a Gaussian with mu²/2 = rho, in floats: independent of the certified code."""
    mu = math.sqrt(2 * rho)
    far, near = -epsilon / mu - mu / 2, -epsilon / mu + mu / 2
    return float(stats.norm.cdf(near) - math.exp(epsilon) * stats.norm.cdf(far))


def scale_violations(measure: Callable[[], tuple[Numbers, Fraction]], exact: Numbers, runs: int) -> list[str]:
    """Whether the noise around a known exact value has the declared variance."""
    noise, variance = [], Fraction(1)
    for _ in range(runs):
        noisy, variance = measure()
        noise += [int(a) - int(b) for a, b in zip(noisy, exact, strict=True)]
    statistic = float(np.sum(np.square(np.array(noise, dtype=float))) / float(variance))
    low, high = stats.chi2.ppf([1e-7, 1 - 1e-7], df=len(noise))
    return [] if low <= statistic <= high else [f"noise: its variance is {statistic / len(noise):.2f} of the declared"]


def distinguishing_violations(
    mechanism: Callable[[Any], bool], tables: Any, neighbour: Any, *, budget: Budget, runs: int
) -> list[str]:
    """Estimate an event's probability on both inputs; complain if (epsilon, delta) is refuted at 99.9 %."""
    hits = [sum(bool(mechanism(t)) for _ in range(runs)) for t in (tables, neighbour)]
    found = []
    for first, second in (hits, hits[::-1]):
        for a, b, what in ((first, second, "event"), (runs - first, runs - second, "its complement")):
            at_least = stats.beta.ppf(5e-4, a, runs - a + 1) if a else 0.0
            at_most = stats.beta.ppf(1 - 5e-4, b + 1, runs - b) if b < runs else 1.0
            if at_least > math.exp(budget.epsilon) * at_most + budget.delta:
                found.append(f"distinguishable: {what} has probability >= {at_least:.2f} against <= {at_most:.2f}")
    return found
