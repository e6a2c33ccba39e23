"""Algorithm 7, Decompose: at each node of the attribute tree, values in buckets by how many there are below them.

A sub-instance fixes one bucket for every node. The type of a value is the buckets of everything below its node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from dpjoin.privacy.parts import Labels, NoisyDegrees, Rules, Value
from dpjoin.spec.hypergraph import AttributeNode

Kind = tuple[tuple["Kind", int], ...]
"""The type of a value of a node: for each child the type of its values, and the bucket of how many there are."""
Spot = tuple[AttributeNode, Kind]
"""What is counted: the values of a node that have a type."""


@dataclass(eq=False)
class Known:
    """The labels so far, the buckets that something can be in, and the answers they rest on."""

    labels: dict[Spot, Labels] = field(default_factory=dict)
    buckets: dict[Spot, tuple[int, ...]] = field(default_factory=dict)
    degrees: dict[Spot, NoisyDegrees] = field(default_factory=dict)

    def kinds(self, node: AttributeNode) -> Iterator[Kind]:
        """Every type that a value of the node can have, also if none has it: nodes below must be labelled."""
        return product(
            *([(kind, b) for kind in self.kinds(child) for b in self.buckets[child, kind]] for child in node.children)
        )

    def rules(self, node: AttributeNode, kind: Kind) -> dict[str, Rules]:
        """For each table below the node, which of its rows have the type."""
        if not node.children:
            return {table: {} for table in node.tables}
        below = list(zip(node.children, kind, strict=True))
        here = {self.labels[child, inner]: bucket for child, (inner, bucket) in below}
        return {
            table: {**here, **more} for child, (inner, _) in below for table, more in self.rules(child, inner).items()
        }


def fitting_buckets(
    root: AttributeNode, known: Known, degrees: Mapping[Spot, NoisyDegrees], most: float
) -> dict[Spot, dict[Value, int]]:
    """Buckets that leave at most so many sub-instances: a function of the noisy degrees alone.

    All values of a node start in one bucket. Where noisy degrees differ most, those above the threshold get one of
    their own, then two, and so on, until caps double from bucket to bucket or there would be too many sub-instances.
    """
    found: dict[Spot, dict[Value, int]] = {spot: {} for spot in degrees}
    sizes = {spot: len(buckets) for spot, buckets in known.buckets.items()} | dict.fromkeys(degrees, 1)
    # Without attributes there is one value only, which needs no bucket of its own.
    widths = {spot: _doublings(answer) for spot, answer in degrees.items() if answer.listed and answer.question.by}
    while widths:
        spot = max(widths, key=lambda s: (widths[s], not found[s]))
        width = (widths[spot] + 1) // 2 if found[spot] else widths[spot]
        finer = _buckets(degrees[spot], 2**width)
        after = sizes | {spot: len({0, *finer.values()})}
        if (found[spot] and width == widths[spot]) or _count(root, after) > most:
            del widths[spot]
        else:
            found[spot], sizes, widths[spot] = finer, after, width
    return found


def _doublings(degrees: NoisyDegrees) -> int:
    """How often the threshold must be doubled to reach the largest noisy degree."""
    return (-(-max(degrees.listed.values()) // degrees.threshold) - 1).bit_length()


def _buckets(degrees: NoisyDegrees, factor: int) -> dict[Value, int]:
    """Each listed value's bucket: how often the threshold must be multiplied to reach its noisy degree."""
    found = {}
    for value, noisy in degrees.listed.items():
        bucket, cap = 1, degrees.threshold * factor
        while cap < noisy:
            bucket, cap = bucket + 1, cap * factor
        found[value] = bucket
    return found


def _count(node: AttributeNode, sizes: Mapping[Spot, int]) -> int:
    """How many types the node's values have if those not labelled yet get one bucket; not listed, for they explode."""

    def each(child: AttributeNode) -> int:
        known = [size for (labelled, _), size in sizes.items() if labelled == child]
        return sum(known) if known else _count(child, sizes)

    return math.prod(each(child) for child in node.children)
