"""Tables with more cells than can be written down."""

from __future__ import annotations

import dpjoin as dj
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import Schema

SHARP = Budget(epsilon=20.0, delta=1e-6)


def names_of(count: int) -> tuple[str, ...]:
    return tuple(f"x{i:02}" for i in range(count))


def one_table(count: int, values: int) -> Schema:
    names = names_of(count)
    return Schema(
        (dj.Table(name="t", attributes=names),), tuple(dj.Attribute(name=a, range=(0, values - 1)) for a in names)
    )


def pair_of_tables(count: int, values: int) -> Schema:
    names = names_of(count)
    return Schema(
        (
            dj.Table(name="r", attributes=("k", *names[: count // 2])),
            dj.Table(name="s", attributes=("k", *names[count // 2 :])),
        ),
        (dj.Attribute(name="k", key=True), *(dj.Attribute(name=a, range=(0, values - 1)) for a in names)),
    )
