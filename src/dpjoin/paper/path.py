"""A path of three tables, cut by noisy degrees of all of them: every part with its own caps.

Experimental: the paper leaves joins that are not hierarchical open. Write the path as left – middle – right. Values on
which left and middle meet are sorted by their degree in left, those on which middle and right meet by their degree in
right; then both are sorted once more by their degree in each piece of middle that results. A row of middle is in one
part; rows of the others are copied into several, and the budget of a part is smaller by what that costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from dpjoin.errors import SpecError
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import COUNT_SHARE, SENSITIVITY_SHARE, TRUNCATION_SHARE, round_down
from dpjoin.measure.totals import measure_total
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.parts import MeasuredPart, cells_of, measure_parts
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import churn
from dpjoin.privacy.parts import Labels, NoisyDegrees, Question, Rules, Value
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

MOST_PARTS = 64
"""Each part adds its noise, so many parts help nobody."""
MOST_BUCKETS = 4
"""Of an end's degrees. With two each for the middle's degrees at every bucket this makes 64 parts."""
MIDDLE_QUESTIONS = 2
"""A row of the middle table is counted at its value to the left and at its value to the right."""

PartRules = Mapping[str, Rules]


@dataclass(frozen=True)
class Path:
    """The tables of a path in order, and the attributes on which they meet."""

    left: str
    middle: str
    right: str
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]


def check_path(schema: Schema) -> Path:
    """The path that the three tables form; an error for any other join."""
    if len(schema.tables) == 3:
        for at in range(3):
            left, right = (t for n, t in enumerate(schema.tables) if n != at)
            middle = schema.tables[at]
            left_key = schema.in_order(set(left.attributes) & set(middle.attributes))
            right_key = schema.in_order(set(right.attributes) & set(middle.attributes))
            if left_key and right_key and not set(left.attributes) & set(right.attributes):
                return Path(left.name, middle.name, right.name, left_key, right_key)
    raise SpecError(
        "method 'path' must have three tables, one of which shares attributes with both others, which share none; "
        "use method 'multi_table'"
    )


@dataclass(frozen=True)
class PathShares:
    """The tight profile's split for a path: degrees of the ends, degrees of the middle, then the parts."""

    split: Split
    ends: Concentrated
    """Of one question; a row takes part in one."""
    ends_width: int
    middle: Concentrated
    """Of one question; a row takes part in two."""
    middle_width: int

    @property
    def parts(self) -> Fraction:
        return self.split.rho - self.ends.rho - MIDDLE_QUESTIONS * self.middle.rho


def path_shares(budget: Budget, schema: Schema) -> PathShares:
    """Split a budget. One row moves degrees by one, unless bounds are enforced."""
    sensitivity = 1 + churn(schema)
    aside = budget.exact.delta * TRUNCATION_SHARE
    rho = budget.rho(truncation_delta=aside)

    def one_sided(questions: int) -> tuple[Concentrated, int]:
        share = round_down(rho * SENSITIVITY_SHARE / 2 / questions)
        return budget.one_sided(share, aside / 2 / questions, moves=sensitivity)

    (ends, ends_width), (middle, middle_width) = one_sided(1), one_sided(MIDDLE_QUESTIONS)
    split = Split(budget=budget, truncation_delta=ends.delta + MIDDLE_QUESTIONS * middle.delta)
    return PathShares(split, ends, ends_width, middle, middle_width)


def path_tight(curator: Curator, workload: Workload, shares: PathShares, progress: Progress) -> Outcome:
    """The `tight` profile: every public part is measured, also where it is empty. Spends all of the budget."""
    middle = check_path(curator.schema).middle
    progress("degrees", 0, 1)
    parts = path_parts(curator, shares)
    progress("degrees", 1, 1)
    rho = curator.rho_left / curator.unit_charge(parts, by_table=True)
    measured = []
    restricted = curator.restrict("parts", parts, [Concentrated(rho)] * len(parts), by_table=True)
    for n, (part, rules) in enumerate(zip(restricted, parts.values(), strict=True)):
        progress("sizes", n, len(parts))
        bound = part.part_bound()
        total = measure_total(part, bound, Concentrated(round_down(rho * COUNT_SHARE)))
        words = "; ".join(f"{labels.name}: {bucket}" for labels, bucket in rules[middle].items())
        measured.append(MeasuredPart(part, bound, total, words, cells_of(workload, rules)))
    progress("sizes", len(parts), len(parts))
    with one_blas_thread():
        return measure_parts(workload, measured, progress)


def path_parts(curator: Curator, shares: PathShares) -> dict[str, PartRules]:
    """Both stages of noisy degrees, and the parts that their labels make."""
    path = check_path(curator.schema)
    left, middle, right = path.left, path.middle, path.right
    ends = [
        Question(name=f"degrees of {left}", rules={left: {}}, by=path.left_key),
        Question(name=f"degrees of {right}", rules={right: {}}, by=path.right_key),
    ]
    answers = curator.noisy_degrees("degrees of the ends", ends, shares.ends, half_width=shares.ends_width)
    sorted_ends = sort_values(answers[:1], MOST_BUCKETS) + sort_values(answers[1:], MOST_BUCKETS)
    by_left, by_right = (
        curator.labels(f"degree in {table}", [answer], buckets)
        for table, answer, buckets in zip((left, right), answers, sorted_ends, strict=True)
    )
    lefts, rights = range(_count(by_left)), range(_count(by_right))
    questions = [
        Question(name=f"degrees of {middle} to the left, right {j}", rules={middle: {by_right: j}}, by=path.left_key)
        for j in rights
    ]
    questions += [
        Question(name=f"degrees of {middle} to the right, left {i}", rules={middle: {by_left: i}}, by=path.right_key)
        for i in lefts
    ]
    assert curator.participation([q.rules for q in questions]) <= MIDDLE_QUESTIONS, "the split counts on it"
    found = curator.noisy_degrees("degrees of the middle", questions, shares.middle, half_width=shares.middle_width)
    # The number of parts is the product of the two sums of bucket counts.
    most = int(MOST_PARTS**0.5)
    to_left, to_right = found[: len(rights)], found[len(rights) :]
    made = [
        curator.labels(answer.question.name, [answer], buckets)
        for group in (to_left, to_right)
        for answer, buckets in zip(group, sort_values(group, most), strict=True)
    ]
    at_left, at_right = made[: len(rights)], made[len(rights) :]

    rules: dict[str, PartRules] = {}
    for i, j in product(lefts, rights):
        for u, v in product(range(_count(at_left[j])), range(_count(at_right[i]))):
            name = f"part {len(rules)}"
            rules[name] = {
                left: {by_left: i, at_left[j]: u},
                middle: {by_left: i, by_right: j, at_left[j]: u, at_right[i]: v},
                right: {by_right: j, at_right[i]: v},
            }
    return rules


def sort_values(answers: Sequence[NoisyDegrees], most: int) -> list[dict[Value, int]]:
    """Listed values by noisy degree, for each answer: bucket 1 and up, with caps that grow by a constant factor.

    The factor is the least power of two with which all answers together have at most `most` buckets; bucket 0, of the
    values that are not listed, counts for each.
    """
    ratio = 2
    while True:
        sorted_values = [_by_size(answer, ratio) for answer in answers]
        count = sum(1 + len(set(buckets.values())) for buckets in sorted_values)
        if count <= most or all(len(set(buckets.values())) <= 1 for buckets in sorted_values):
            return sorted_values
        ratio *= 2


def _by_size(degrees: NoisyDegrees, ratio: int) -> dict[Value, int]:
    sizes = {}
    for value, noisy in degrees.listed.items():
        size, reach = 1, max(1, degrees.threshold) * ratio
        while reach < noisy:
            size, reach = size + 1, reach * ratio
        sizes[value] = size
    numbers = {size: n for n, size in enumerate(sorted(set(sizes.values())), start=1)}
    return {value: numbers[size] for value, size in sizes.items()}


def _count(labels: Labels) -> int:
    return 1 + max(labels.buckets.values(), default=0)
