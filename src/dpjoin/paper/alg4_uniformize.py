"""Algorithm 4, Uniformize: cut the join by noisy degrees of its common key, and release each part with its own bound.

A key value's rows are all in one part, so every row is in exactly one, and each part may spend what the partition has
left. Where one hot value would give the rest its noise, it gets a part of its own. Algorithm 5 makes the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import PartitionShares, partition_shares
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.common_key import cells_of, check_common, common_attributes, everywhere, listed_degrees
from dpjoin.methods.method import GAUSSIAN_NOISE, TRUNCATED_GAUSSIAN, Method, NoiseLevel, Outcome, Stage
from dpjoin.model.threads import one_blas_thread
from dpjoin.paper.alg5_partition_two_table import best_runs, bucket_numbers, expected_results, levels_of
from dpjoin.paper.partition import MeasuredPart, measure_paper_parts, measure_parts, paper_stages, predicted
from dpjoin.privacy.accounting import Approximate, Budget, Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import churn
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def uniformize_shares(budget: Budget, schema: Schema) -> PartitionShares:
    """From three tables on each part also gets a noisy bound."""
    return partition_shares(budget, gauge=len(schema.tables) > 2, sensitivity=1 + churn(schema))


def stages(shares: PartitionShares, workload: Workload) -> tuple[Stage, ...]:
    whole, width = shares.split.rho, shares.degrees_width
    note = f"each table's degrees plus a shift of {width} on average; listed above {2 * width}"
    found = [Stage("degrees", TRUNCATED_GAUSSIAN, float(shares.degrees.rho / whole), note)]
    if shares.bound is not None:
        note = f"of each part, with a shift of {shares.bound_width} on average"
        found.append(Stage("sensitivity", TRUNCATED_GAUSSIAN, float(shares.bound.rho / whole), note))
    found.append(Stage("sizes", GAUSSIAN_NOISE, float(shares.count.rho / whole), "of each part, unbiased"))
    note = "in each part: a row is in one part only, so each has all of it"
    return *found, Stage("queries", GAUSSIAN_NOISE, float(shares.queries / whole), note)


@dataclass(frozen=True)
class Bucket:
    """Key values of similar degree that may be released as one part, and the noise there."""

    degrees: str
    sensitivity: int
    count: float
    cell: float


def degree_buckets(shares: PartitionShares, workload: Workload, degree: int) -> tuple[Bucket, ...]:
    """The parts that noisy degrees up to `degree` can fall into."""
    found: list[Bucket] = []
    low, high = 0, 2 * shares.degrees_width
    times = 1 + churn(workload.schema)
    while not found or low < degree:
        cap = high ** (len(workload.schema.tables) - 1)
        noise = NoiseLevel.gaussian(
            workload, cap, count=shares.count.rho, queries=shares.queries, times=times, cells=times
        )
        found.append(Bucket(f"{low:,} to {high:,}", cap, noise.count, noise.cell))
        low, high = high, 2 * high
    return tuple(found)


def uniformize_tight(curator: Curator, workload: Workload, shares: PartitionShares, progress: Progress) -> Outcome:
    """The `tight` profile: levels by truncated Gaussian degrees, merged by predicted error. Spends the whole budget."""
    schema = curator.schema
    progress("degrees", 0, 1)
    degrees = listed_degrees(curator, shares.degrees, shares.degrees_width)
    levels, every = levels_of(schema, degrees), list(degrees.values())
    progress("degrees", 1, 1)
    labels = curator.labels("level", every, bucket_numbers(levels, range(len(levels))))
    rules = {f"level {n}": everywhere(schema, labels, n) for n in range(len(levels))}
    caps, sizes = [], []
    for n, level in enumerate(curator.restrict("levels", rules, [shares.count] * len(levels))):
        progress("sizes", n, len(levels))
        caps.append(level.part_bound())
        sizes.append(measure_total(level, caps[n], shares.count))
    progress("sizes", len(levels), len(levels))

    rho = curator.rho_left - (shares.bound.rho if shares.bound else 0)

    def error(begin: int, end: int) -> float:
        bound, size = max(c.value for c in caps[begin:end]), sum(max(0.0, s.noisy) for s in sizes[begin:end])
        return predicted(workload, bound=bound, size=size, rho=rho).error

    runs = best_runs(len(levels), error)
    labels = curator.labels("part", every, bucket_numbers(levels, [n for n, run in enumerate(runs) for _ in run]))
    rules = {f"part {n}": everywhere(schema, labels, n) for n in range(len(runs))}
    rest = Concentrated(curator.rho_left, shares.bound.delta if shares.bound else Fraction(0))
    measured = []
    for n, (part, run) in enumerate(zip(curator.restrict("parts", rules, [rest] * len(runs)), runs, strict=True)):
        if shares.bound is None:
            bound = part.part_bound()
        else:
            bound = part.sensitivity_bound(shares.bound, half_width=shares.bound_width)
        size = NoisyTotal(sum(sizes[at].noisy for at in run), math.hypot(*(sizes[at].deviation for at in run)))
        inside = [v for at in run for v in levels[at].values]
        expected = expected_results(degrees, inside, shares.degrees_width) if n else None
        support = cells_of(workload, rules[f"part {n}"])
        measured.append(MeasuredPart(part, bound, size, _words(n, len(inside)), support, expected))
    with one_blas_thread():
        return measure_parts(workload, measured, progress)


def uniformize_paper(curator: Curator, workload: Workload, whole: Approximate, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on truncated Laplace degrees, half on Algorithm 1 or 3 in every bucket."""
    schema = curator.schema
    half = Approximate(whole.epsilon / 2, whole.delta / 2)
    progress("degrees", 0, 1)
    width = paper_laplace_half_width(epsilon=half.epsilon, delta=half.delta, sensitivity=curator.rows_moved)
    degrees = listed_degrees(curator, half, width)
    levels = levels_of(schema, degrees)
    progress("degrees", 1, 1)
    labels = curator.labels("part", list(degrees.values()), bucket_numbers(levels, range(len(levels))))
    rules = {f"part {n}": everywhere(schema, labels, n) for n in range(len(levels))}
    words = [_words(n, len(level.values)) for n, level in enumerate(levels)]
    curators = curator.restrict("parts", rules, [half] * len(levels))
    return measure_paper_parts(curators, words, workload, half, progress)


def _words(n: int, listed: int) -> str:
    """What a part holds, for people."""
    if n:
        return f"{listed} listed"
    return "all that are not listed" + (f", and {listed} listed" if listed else "")


UNIFORMIZE = Method(
    name="uniformize",
    why=lambda s: f"values of {', '.join(common_attributes(s))} in parts by noisy degree, each part with its own bound",
    check=lambda schema, _: check_common(schema),
    split=uniformize_shares,
    stages=stages,
    run=uniformize_tight,
    paper=uniformize_paper,
    paper_stages=paper_stages,
)
