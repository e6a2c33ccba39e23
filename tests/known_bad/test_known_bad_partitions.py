"""Broken partitions, each caught by an audit that lets the correct one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from dpjoin.engine.interface import ExactDegrees, Rules, Value
from dpjoin.measure.shares import partition_shares
from dpjoin.methods.common_key import common_attributes
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.parts import Question
from support.audit import Replayer, Tape, attach, overpaid, published, replay_violations
from support.brute import BruteEngine
from support.skewed import GENEROUS, Rows, schema_of
from support.uniformized import run_on

SCHEMA = schema_of("two")


TRIES = 12
"""Noise is drawn, so a fault shows in some runs only; each of these shows in at least a third."""


def rows(r: Mapping[int, int], s: Mapping[int, int]) -> Rows:
    """Tables with the given numbers of rows per key."""
    return {
        "r": [{"A": key, "p": i % 3} for key, count in r.items() for i in range(count)],
        "s": [{"A": key, "q": i % 3} for key, count in s.items() for i in range(count)],
    }


HOT, ONE_LESS = rows({1: 2, 2: 20}, {1: 2, 2: 40}), rows({1: 2, 2: 19}, {1: 2, 2: 40})


LONE, ABSENT = rows({1: 2, 3: 1}, {1: 2}), rows({1: 2}, {1: 2})


Change = Callable[[type[Curator]], type[Curator]]


def problems(run: Callable[[type[Curator], Any, Tape], Curator], first: Rows, second: Rows) -> Iterator[str]:
    """Everything that replay finds in some tries, one after the other, on the pair in both directions."""
    for turn in range(TRIES):
        pair = (first, second) if turn % 2 else (second, first)
        curators: list[Any] = []

        def told(kind: type[Curator], tables: Any, tape: Tape) -> Any:
            curators.append(run(kind, tables, tape))  # noqa: B023
            return getattr(curators[-1], "published", None)  # noqa: B023

        yield from replay_violations(told, *pair)
        if len(curators) == 2 and isinstance(curators[1], Replayer):
            yield from overpaid(curators[1])


def uniformized(change: Change) -> Callable[[type[Curator], Any, Tape], Curator]:
    def run(kind: type[Curator], tables: Any, tape: Tape) -> Curator:
        outcome, curator = run_on(BruteEngine(SCHEMA, tables), change(kind), "tight", tape)
        curator.published = published(outcome)  # type: ignore[attr-defined]
        return curator

    return run


def unchanged(kind: type[Curator]) -> type[Curator]:
    return kind


@pytest.mark.parametrize("pair", [(HOT, ONE_LESS), (LONE, ABSENT)])
def test_the_correct_algorithm_is_not_flagged(pair: tuple[Rows, Rows]) -> None:
    assert not any(problems(uniformized(unchanged), *pair))


def listing(change: Callable[[Callable[[int], Numbers], int], tuple[Callable[[int], Numbers], int]]) -> Change:
    """A Curator that lists with other noise or another threshold than it says."""

    def changed(kind: type[Curator]) -> type[Curator]:
        class Mutant(kind):  # type: ignore[misc,valid-type]
            def listed(
                self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
            ) -> dict[Value, int]:
                draw, threshold = change(draw, threshold)
                listed: dict[Value, int] = super().listed(exact, draw, threshold, event)
                return listed

        return Mutant

    return changed


def test_caps_with_two_sided_noise_are_caught() -> None:
    """A cap below the degree: a row changes more results than its part declares."""
    found = problems(uniformized(listing(lambda draw, t: (lambda n: draw(n) - t // 2, t))), HOT, ONE_LESS)
    assert any("support" in f or "sensitivity" in f for f in found)


def test_two_sided_caps_are_caught_by_what_a_row_changes() -> None:
    """The same where only the caps are looked at: the support check set aside."""

    def changed(kind: type[Curator]) -> type[Curator]:
        class Mutant(kind):  # type: ignore[misc,valid-type]
            def listed(
                self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
            ) -> dict[Value, int]:
                if issubclass(kind, Replayer):
                    return self._old(event)[1]  # type: ignore[no-any-return]
                listed: dict[Value, int] = super().listed(exact, lambda n: draw(n) - threshold // 2, threshold, event)
                return listed

        return Mutant

    # Noise decides whether a cap ends below the degree: some tries see nothing.
    assert any("sensitivity" in f for _ in range(6) for f in problems(uniformized(changed), HOT, ONE_LESS))


def test_noise_for_present_keys_with_a_narrow_first_bucket_is_caught() -> None:
    """A key with one row is listed half of the time; where it is absent it never can be."""
    found = problems(uniformized(listing(lambda draw, t: (draw, t // 2))), LONE, ABSENT)
    assert any("cannot list" in f for f in found)


def test_a_censored_degree_that_is_used_is_caught() -> None:
    """Every present key listed, however small its noisy degree."""
    found = problems(uniformized(listing(lambda draw, _: (draw, 0))), LONE, ABSENT)
    assert any("cannot list" in f for f in found)


def measured_parts(
    change: Change, rules: Callable[[Any, int], dict[str, Rules]], *, skip_empty: bool = False
) -> Callable[[type[Curator], Any, Tape], Curator]:
    """Two parts by a public label, whose sizes are released."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Curator:
        shares = partition_shares(GENEROUS, gauge=False)
        curator = attach(change(kind)(BruteEngine(SCHEMA, tables), shares.split), tape)
        by = common_attributes(SCHEMA)
        questions = [Question(name=f"degrees of {t}", rules={t: {}}, by=by) for t in "rs"]
        degrees = curator.noisy_degrees("degrees", questions, shares.degrees, half_width=shares.degrees_width)
        labels = curator.labels("part", degrees, {(1,): 1, (2,): 2})
        parts = {f"part {b}": rules(labels, b) for b in (0, 1, 2)}
        cost = Concentrated(curator.rho_left / curator.participation(list(parts.values())))
        for part in curator.restrict("parts", parts, [cost] * 3):
            if skip_empty and part._engine.exact_join_size() == 0:
                continue
            part.join_size(part.part_bound(), cost)
        return curator

    return run


def test_an_empty_part_that_is_skipped_is_caught() -> None:
    """Whether a part is empty is private."""
    both = measured_parts(unchanged, lambda labels, b: {t: {labels: b} for t in "rs"})
    assert not any(problems(both, LONE, ABSENT))
    skipping = measured_parts(unchanged, lambda labels, b: {t: {labels: b} for t in "rs"}, skip_empty=True)
    full, empty = rows({2: 1}, {2: 1}), rows({}, {2: 1})
    assert any("control flow" in f for f in problems(skipping, full, empty))
