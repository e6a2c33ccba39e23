"""Algorithm 6, Partition-Hierarchical: cut a hierarchical join by the degrees along its attribute tree.

The paper asks for the degrees of every sub-instance anew, so that a row takes part in a number of questions that
depends on the data. Here each degree is asked once, from the leaves up: a leaf counts the rows of its table, and an
inner node counts, for each type (the buckets of all nodes below it), its values of that type. A sub-instance fixes a
bucket for every node. It takes whole values, so no join result is lost or counted twice, and its buckets' caps
multiply to a bound. In how many questions and sub-instances one row can be is a public number, by which the budget is
divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import half_width, round_down
from dpjoin.measure.totals import measure_total
from dpjoin.methods.common_key import cells_of
from dpjoin.methods.method import GAUSSIAN_NOISE, TRUNCATED_GAUSSIAN, Method, Outcome, Stage
from dpjoin.methods.refusals import refuse_replacement
from dpjoin.model.threads import one_blas_thread
from dpjoin.paper.alg7_decompose import Kind, Known, fitting_buckets
from dpjoin.paper.partition import MeasuredPart, measure_paper_parts, measure_parts, paper_stages
from dpjoin.privacy.accounting import Approximate, Budget, Composition, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import Question, Rules, bucket_cap
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.hypergraph import AttributeNode, attribute_tree
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

MOST_PARTS = 64
"""Buckets are made coarser until there are no more sub-instances than this."""

C = TypeVar("C", bound=Approximate | Concentrated)


def check_hierarchical(schema: Schema, workload: Workload | None = None) -> None:
    refuse_replacement(schema, "hierarchical")
    if len(schema.tables) < 2 or attribute_tree(schema) is None:
        raise SpecError(
            "method 'hierarchical' must have two or more tables, and attributes whose tables are nested or disjoint; "
            "use method 'uniformize' where all tables share an attribute, else 'multi_table'"
        )


# Budgets


@dataclass(frozen=True)
class HierarchicalShares:
    """The tight profile's split: one stage of degrees per level of the tree; what is left goes to the parts."""

    split: Split
    stage: Concentrated
    """What one row can pay in one stage, however many of its questions the row takes part in."""


def hierarchical_shares(budget: Budget, schema: Schema) -> HierarchicalShares:
    """Split a budget. How many questions a row takes part in shows only later, so a fixed delta is set aside."""
    stages = len(_levels(_tree(schema)))
    aside = budget.exact.delta * constants.TRUNCATION_SHARE
    split = Split(budget=budget, truncation_delta=aside)
    return HierarchicalShares(
        split, Concentrated(round_down(split.rho * constants.SENSITIVITY_SHARE / stages), aside / stages)
    )


def gaussian_question(
    composition: Composition, stage: Concentrated, questions: int, moves: int
) -> tuple[Concentrated, int]:
    """What one of several questions of a stage may cost, and its half-width. All of the stage's delta is used up."""
    cost = Concentrated(round_down(stage.rho / questions), stage.delta / questions)
    return cost, half_width(composition, cost.rho, cost.delta, moves=moves)


def laplace_question(stage: Approximate, questions: int, moves: int) -> tuple[Approximate, int]:
    cost = Approximate(stage.epsilon / questions, stage.delta / questions)
    return cost, paper_laplace_half_width(epsilon=cost.epsilon, delta=cost.delta, sensitivity=moves)


# Release


def hierarchical_tight(curator: Curator, workload: Workload, shares: HierarchicalShares, progress: Progress) -> Outcome:
    """The `tight` profile: truncated Gaussian degrees, caps as bounds. Spends all of the budget."""
    parts = partition(curator, shares.stage, partial(gaussian_question, curator.composition), progress)
    rules = {f"part {n}": part.rules for n, part in enumerate(parts)}
    rho = curator.rho_left / curator.participation(list(rules.values()))
    measured = []
    for n, inside in enumerate(curator.restrict("parts", rules, [Concentrated(rho)] * len(parts))):
        progress("sizes", n, len(parts))
        bound = inside.part_bound()
        total = measure_total(inside, bound, Concentrated(round_down(rho * constants.COUNT_SHARE)))
        support = cells_of(workload, parts[n].rules)
        measured.append(MeasuredPart(inside, bound, total, parts[n].words, support))
    progress("sizes", len(parts), len(parts))
    with one_blas_thread():
        return measure_parts(workload, measured, progress)


def hierarchical_paper(curator: Curator, workload: Workload, whole: Approximate, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on truncated Laplace degrees, half on Algorithm 1 or 3 in every part."""
    half = Approximate(whole.epsilon / 2, whole.delta / 2)
    stages = len(_levels(_tree(curator.schema)))
    stage = Approximate(half.epsilon / stages, half.delta / stages)
    parts = partition(curator, stage, laplace_question, progress)
    rules = {f"part {n}": part.rules for n, part in enumerate(parts)}
    times = curator.participation(list(rules.values()))
    each = Approximate(half.epsilon / times, half.delta / times)
    curators = curator.restrict("parts", rules, [each] * len(parts))
    return measure_paper_parts(curators, [part.words for part in parts], workload, each, progress)


# Partition


@dataclass(frozen=True, eq=False)
class PartOfJoin:
    """A sub-instance: which rows of each table are in it, and its caps in words."""

    rules: Mapping[str, Rules]
    words: str


def partition(
    curator: Curator, stage: C, question: Callable[[C, int, int], tuple[C, int]], progress: Progress
) -> list[PartOfJoin]:
    """Ask for the degrees of every node, one stage for each level of the tree, and list all sub-instances.

    `stage` is what one row can pay in one stage; `question` says what each question costs if a row takes part in so
    many of them, and the half-width of its noise.
    """
    root, known = _tree(curator.schema), Known()
    levels, labelled = _levels(root), 0
    for number, level in enumerate(levels):
        progress("degrees", number, len(levels))
        asked = {
            (node, kind): _question(known, above, node, kind, f", type {n}" if node.children else "")
            for above, node in level
            for n, kind in enumerate(known.kinds(node))
        }
        times = max(1, curator.participation(list(asked.values())))
        cost, width = question(stage, times, curator.rows_moved)
        answers = curator.noisy_degrees(f"degrees {number}", list(asked.values()), cost, half_width=width)
        degrees = dict(zip(asked, answers, strict=True))
        # Every node may multiply the number of sub-instances by about the same factor.
        labelled += len(level)
        most = MOST_PARTS ** (labelled / sum(map(len, levels)))
        for spot, buckets in fitting_buckets(root, known, degrees, most).items():
            known.labels[spot] = curator.labels(asked[spot].name, [degrees[spot]], buckets)
            known.buckets[spot] = tuple(sorted({0, *buckets.values()}))
        known.degrees.update(degrees)
    progress("degrees", len(levels), len(levels))
    return [PartOfJoin(known.rules(root, kind), _words(known, root, kind)) for kind in known.kinds(root)]


def _tree(schema: Schema) -> AttributeNode:
    check_hierarchical(schema)
    root = attribute_tree(schema)
    assert root is not None, "checked"
    return root


def _levels(root: AttributeNode) -> list[list[tuple[AttributeNode, AttributeNode]]]:
    """All nodes but the root, each with the one above it; first the leaves, then nodes by their height."""
    levels: dict[int, list[tuple[AttributeNode, AttributeNode]]] = {}
    for above in root.walk():
        for node in above.children:
            levels.setdefault(_height(node), []).append((above, node))
    return [levels[height] for height in sorted(levels)]


def _height(node: AttributeNode) -> int:
    return max((1 + _height(child) for child in node.children), default=0)


def _question(known: Known, above: AttributeNode, node: AttributeNode, kind: Kind, suffix: str) -> Question:
    """How many rows of the leaf's table, or values of the node that have the type, each value of the node above has."""
    counted = f"values of {', '.join(node.path)}" if node.children else f"rows of {', '.join(node.tables)}"
    name = f"{counted}{' per ' if above.path else ''}{', '.join(above.path)}{suffix}"
    return Question(
        name=name, rules=known.rules(node, kind), by=above.path, distinct=node.path if node.children else ()
    )


def _words(known: Known, node: AttributeNode, kind: Kind) -> str:
    """The caps of a sub-instance, for people."""
    found = []
    for child, (inner, bucket) in zip(node.children, kind, strict=True):
        labels, degrees = known.labels[child, inner], known.degrees[child, inner]
        found.append(f"at most {bucket_cap(labels, bucket, degrees):,} {labels.name}")
        if child.children:
            found.append(_words(known, child, inner))
    return "; ".join(found)


def stages(shares: HierarchicalShares, workload: Workload) -> tuple[Stage, ...]:
    degrees = float(shares.stage.rho * len(_levels(_tree(workload.schema))) / shares.split.rho)
    deviation = 1 / math.sqrt(2 * float(shares.stage.rho))
    note = f"one stage for each level of the tree, with a deviation of {deviation:.1f} or more"
    count = (1 - degrees) * float(constants.COUNT_SHARE)
    return (
        Stage("degrees", TRUNCATED_GAUSSIAN, degrees, note),
        Stage("sizes", GAUSSIAN_NOISE, count, "of each part, unbiased"),
        Stage("queries", GAUSSIAN_NOISE, 1 - degrees - count, "divided by the number of parts that one row can be in"),
    )


HIERARCHICAL = Method(
    name="hierarchical",
    why=lambda _: "parts by noisy degrees along the attribute tree, each part with its own bound",
    check=check_hierarchical,
    split=hierarchical_shares,
    stages=stages,
    run=hierarchical_tight,
    paper=hierarchical_paper,
    paper_stages=paper_stages,
)
