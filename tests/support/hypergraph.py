"""Joins by the letters of their attributes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from dpjoin.spec.schema import Attribute, Schema, Table


def join(*tables: Sequence[str], names: Sequence[str] = ()) -> Schema:
    """A schema of key attributes: table x1 has the first attributes (letters, unless given as a list), and so on."""
    attributes = sorted({a for t in tables for a in t})
    names = names or [f"x{i + 1}" for i in range(len(tables))]
    return Schema(
        tuple(Table(name=n, attributes=tuple(t)) for n, t in zip(names, tables, strict=True)),
        tuple(Attribute(name=a, key=True) for a in attributes),
    )


FIGURE_4 = join("ABD", "ABF", "ABGK", "ABGL", "AC")


ONE = join("AB")


TWO = join("AB", "BC")


TRIANGLE = join("AB", "BC", "AC")


PATH_3 = join("AB", "BC", "CD")


STAR_3 = join("AB", "AC", "AD")


def tables(*numbers: int) -> frozenset[str]:
    return frozenset(f"x{i}" for i in numbers)


@st.composite
def joins(draw: st.DrawFn, most_tables: int = 5, letters: str = "ABCDEF") -> Schema:
    """A join of up to five tables over up to six attributes, of any shape."""
    edge = st.sets(st.sampled_from(letters), min_size=1, max_size=4).map(lambda s: "".join(sorted(s)))
    return join(*draw(st.lists(edge, min_size=1, max_size=most_tables)))
