"""Joins in which all tables share attributes: a value of this common key has all its rows in one part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpjoin.errors import SpecError
from dpjoin.measure.join import domain_of
from dpjoin.methods.refusals import refuse_replacement
from dpjoin.model.terms import BoolArray, support_of
from dpjoin.privacy.accounting import Approximate, Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import Labels, NoisyDegrees, Question, Rules
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def common_attributes(schema: Schema) -> tuple[str, ...]:
    """The attributes that every table has."""
    return tuple(a for a in schema.join_attributes if len(schema.tables_with(a)) == len(schema.tables))


def check_common(schema: Schema, method: str = "uniformize") -> None:
    refuse_replacement(schema, method)
    if len(schema.tables) < 2 or not common_attributes(schema):
        raise SpecError(
            f"method {method!r} must have an attribute that all tables share; "
            "use method 'auto', or 'hierarchical' for a hierarchical join"
        )


def listed_degrees(curator: Curator, cost: Approximate | Concentrated, width: int) -> dict[str, NoisyDegrees]:
    """Each table's noisy degrees by the common key, where they are large enough to be listed. A row is in one table."""
    by = common_attributes(curator.schema)
    questions = [Question(name=f"degrees of {t.name}", rules={t.name: {}}, by=by) for t in curator.schema.tables]
    answers = curator.noisy_degrees("degrees", questions, cost, half_width=width)
    return {t.name: answer for t, answer in zip(curator.schema.tables, answers, strict=True)}


def everywhere(schema: Schema, labels: Labels, bucket: int) -> dict[str, Mapping[Labels, int]]:
    """One bucket of common attributes, in all tables."""
    return {t.name: {labels: bucket} for t in schema.tables}


def part_facts(n: int, words: str, bound: int, size: int, strategy: str, **numbers: float) -> dict[str, Any]:
    """The public facts of a part, for the manifest."""
    rounded = {name: float(f"{value:.3g}") for name, value in numbers.items()}
    return {"part": n, "values": words, "sensitivity_bound": bound, "size": size, **rounded, "strategy": strategy}


def cells_of(workload: Workload, rules: Mapping[str, Rules]) -> BoolArray | None:
    """The cells in which a part can have anything, as far as labels of the workload's attributes tell; None: all."""
    found: BoolArray | None = None
    for labels, bucket in {(labels, b): None for part in rules.values() for labels, b in part.items()}:
        some = _cells_of_bucket(workload, labels, bucket)
        if some is not None:
            found = some if found is None else found & some
    return found if found is not None and found.any() else None


def _cells_of_bucket(workload: Workload, labels: Labels, bucket: int) -> BoolArray | None:
    schema = workload.schema
    attributes = [schema.attribute(a) for a in labels.attributes]
    # A cell has none of bucket 0 only if it stands for one value, and that one is in another bucket.
    several = any((a.values is None and a.range is None) or a.other for a in attributes)
    if not attributes or not set(labels.attributes) <= set(workload.attributes) or (bucket == 0 and several):
        return None
    allowed = np.full(schema.shape(labels.attributes), bucket == 0)
    for value, own in labels.buckets.items():
        code: Sequence[int | None] = [a.code(x) for a, x in zip(attributes, value, strict=True)]
        if None not in code and (own == bucket if bucket else own > 0):
            allowed[tuple(code)] = bucket > 0
    return support_of(domain_of(workload), labels.attributes, allowed)
