"""Sums of models over a small domain."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.model.fit import start
from dpjoin.model.terms import Domain, Terms, support_of
from dpjoin.spec.workload import product_group
from support.naive import table_of

SIZES = {"a": 4, "b": 3, "c": 5, "d": 2}


NAMES = tuple(SIZES)


SCHEMA = dj.Schema(
    (dj.Table(name="r", attributes=("k", "a", "b")), dj.Table(name="s", attributes=("k", "c", "d"))),
    (dj.Attribute(name="k", key=True), *(dj.Attribute(name=a, range=(0, n - 1)) for a, n in SIZES.items())),
)


PRODUCTS = product_group(
    SCHEMA,
    {
        "r": (("b", "a"), np.random.default_rng(7).uniform(-1, 1, (6, 3, 4))),
        "s": (("c",), np.random.default_rng(8).uniform(0, 1, (6, 5))),
    },
)


DOMAIN = Domain.split(SIZES, [PRODUCTS])


CLIQUES = (*((a,) for a in NAMES), *itertools.combinations(NAMES, 2))


CORNER = support_of(DOMAIN, ("c", "a"), np.add.outer(np.arange(5), np.arange(4)) < 4)
"""Half of the cells, cut across both sides of the domain."""


def make_truth(rng: np.random.Generator, total: float, support: Any = None) -> np.ndarray:
    """A join with moderate interactions of pairs, as a table of cells."""
    terms = Terms(DOMAIN, CLIQUES, (), support)
    widths = np.repeat([1.0 if len(c) == 1 else 0.4 for c in CLIQUES], [s.stop - s.start for s in terms.slices])
    drawn = dataclasses.replace(start(terms, total), potentials=widths * rng.standard_normal(terms.size))
    return table_of(drawn)
