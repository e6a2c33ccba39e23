"""Domains that are learned privately: what is asked for, and what stands for them until they are known.

`learn = true` asks for a list of the values that many rows have, `learn = { bins = 8 }` for bins of numbers or dates
with about equally many rows each. Which values there are is private, so both are bought with noise, before the workload
is built. Until then an attribute has a domain of an assumed size, by which releases can be planned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dpjoin.canonical import flag, mapping, set_canonical, shown, whole
from dpjoin.errors import SpecError, suggest

if TYPE_CHECKING:
    from dpjoin.spec.schema import Attribute, Schema

MOST_LISTED, MOST_BINS = 1000, 64
"""Of a learned domain: with more values a release would hardly fit in memory, and more edges are not told apart."""
WHOLE_TEXT = re.compile(r"-?(0|[1-9]\d{0,17})")
"""Text that stands for a whole number, in a column of which nothing is said."""
ASSUMED_VALUES = 16
"""How many values a plan takes a list to have, before anybody knows."""


@dataclass(frozen=True)
class Learn:
    """How a domain is learned: a list of at most so many values or, with `bins`, about so many bins.

    `whole`: bins of whole numbers, in columns whose type does not say so, as in text files.
    """

    bins: int | None = None
    values: int = MOST_LISTED
    whole: bool = False

    def __post_init__(self) -> None:
        positive = partial(whole, least=1)
        set_canonical(self, "learn", values=positive, whole=flag, **({} if self.bins is None else {"bins": positive}))
        for key, given, most in (("bins", self.bins or 1, MOST_BINS), ("values", self.values, MOST_LISTED)):
            if given > most:
                raise SpecError(f"learn: {key} ({given}) must be at most {most}")

    def to_plain(self) -> bool | dict[str, int]:
        """As it is written in a spec."""
        if self.bins is not None:
            return {"bins": self.bins} | ({"whole": True} if self.whole else {})
        return True if self.values == MOST_LISTED else {"values": self.values}


def learn_of(given: object, what: str) -> Learn | None:
    """`true`, `{ bins = 8 }` or `{ values = 50 }`; None where nothing is learned."""
    if given is None or given is False:
        return None
    if given is True:
        return Learn()
    if type(given) is Learn:  # what a subclass says of itself need not be so
        return given
    if not isinstance(given, Mapping):
        raise SpecError(f"{what} ({shown(given)}) must be true, {{ bins = 8 }} or {{ values = 50 }}")
    for key in (found := mapping(given, what)):
        if key not in ("bins", "values", "whole"):
            raise SpecError(f"{what}.{key} is not known; {suggest(str(key), ('bins', 'values', 'whole'))}")
    if ("bins" in found) == ("values" in found) or ("whole" in found and "bins" not in found):
        raise SpecError(f"{what} must have bins or values, one of them; whole stands beside bins")
    try:
        return Learn(**found)
    except SpecError as error:
        raise SpecError(f"{what}{str(error).removeprefix('learn')}") from None


def assumed(attribute: Attribute) -> Attribute:
    """The attribute with a domain of the size that plans assume: its values mean nothing."""
    learn = attribute.learned
    assert learn is not None
    if learn.bins is not None:
        return replace(attribute, learn=None, part=None, bins=tuple(range(learn.bins + 1)), other=True)
    listed = min(learn.values, ASSUMED_VALUES)
    return replace(
        attribute, learn=None, part=None, values=tuple(f"value {i}" for i in range(1, listed + 1)), other=True
    )


def check_learned(schema: Schema) -> None:
    """Refuse to learn what tables are joined, owned or bounded by: unlisted values would be taken for one."""
    via = {t.owner_via for t in schema.tables}
    bounded = {a for t in schema.tables for b in t.bounds for a in b.attributes}
    owners = {*schema.unit, *(a for t in schema.tables for a in t.owner)}
    for name in schema.learned:
        joins = len(schema.tables_with(name)) > 1
        does = "joins tables" if joins else "names owners" if name in owners else "is a foreign key" * (name in via)
        does = does or "has a bound on its degrees" * (name in bounded)
        if does:
            raise SpecError(
                f"attribute {name!r} {does}, so its domain cannot be learned; write key = true, or declare its domain"
            )


def with_domains(schema: Schema, domains: Mapping[str, Attribute]) -> Schema:
    """The schema with these attributes in place of those of the same names."""
    return replace(schema, attributes=tuple(domains.get(a.name, a) for a in schema.attributes))


def same_domains(asked: Schema, released: Schema) -> bool:
    """Whether a release is of these attributes: with the domains that are declared, and any that were learned."""
    known = {a.name: a for a in released.attributes}
    attributes = tuple(known.get(a.name, a) if a.learned is not None else a for a in asked.attributes)
    return attributes == released.attributes
