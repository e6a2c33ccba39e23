"""Releases for the page: of many attributes, and with names that want to be more than text. No table is opened."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain
from dpjoin.model.triangulate import tree_of
from dpjoin.privacy.ledger import Ledger
from dpjoin.released.release import Release
from support.release import BUDGET

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "' onmouseover='document.title=1' \"",
    "]]><!-- --><b>{{bold}}</b>${1}`",
    "\u202eright to left\u2066 مرحبا שלום",
    "👩‍👩‍👧‍👦 e\u0301 \u0000 \u2028 \ud800"[:-1],
    "long " * 2_000,
    "=1+1",
)
"""Names and labels. The long one has 10 kB."""


@lru_cache
def hostile_release() -> Release:
    """One attribute named so, with all these values; another to join it with in pictures."""
    attributes = (dj.Attribute(name=HOSTILE[0], values=HOSTILE), dj.Attribute(name="n", range=(0, 3)))
    schema = dj.Schema((dj.Table(name=HOSTILE[1], attributes=(HOSTILE[0], "n")),), attributes)
    rows = {HOSTILE[1]: pa.table({HOSTILE[0]: list(HOSTILE) * 100, "n": [0, 1, 2, 3] * (25 * len(HOSTILE))})}
    return dj.release(schema, dj.Workload.marginals(schema, 2), rows, BUDGET)


@lru_cache
def wide_release(count: int, values: int = 8, size: int = 30_000) -> Release:
    """A chain of attributes, each measured with the next: text, whole numbers and bins by turns."""
    names = [f"attribute_{i:03}" for i in range(count)]
    domains = (
        {"values": tuple(f"value {chr(65 + v)}" for v in range(values - 1)), "other": True},
        {"range": (1, values)},
        {"bins": tuple(float(10 * v) for v in range(values + 1))},
    )
    attributes = tuple(dj.Attribute(name=a, **domains[i % 3]) for i, a in enumerate(names))
    schema = dj.Schema((dj.Table(name="survey", attributes=tuple(names)),), attributes)
    pairs = list(itertools.pairwise(names))
    rng = np.random.default_rng(count)
    tree = tree_of(dict.fromkeys(names, values), pairs)
    potentials = rng.normal(size=tree.size)
    members = tuple((potentials + 0.1 * rng.normal(size=tree.size), size * 1.0) for _ in range(3))
    known = tuple(map(frozenset, [*((a,) for a in names), *pairs]))
    model = Model(
        Domain(tuple(names), (), dict.fromkeys(names, values)),
        float(size),
        tree,
        potentials,
        members=members,
        known=known,
    )
    workload = dj.Workload.marginals(schema, [(a,) for a in names]) + dj.Workload.marginals(schema, pairs)
    facts = {"sensitivity_bound": 1, "join_size": size, "strategy": "pairs in a chain, made up for a test"}
    return Release(schema, workload, BUDGET, "single_table", "tight", model, Ledger("Gaussian"), facts)


@lru_cache
def long_release() -> Release:
    """Domains of which no picture can show every value."""
    attributes = (
        dj.Attribute(name="zip", range=(0, 299_999)),
        dj.Attribute(name="age", range=(0, 119)),
        dj.Attribute(name="text", values=tuple(f"t{i}" for i in range(3_000))),
        dj.Attribute(name="few", values=("a", "b", "c")),
    )
    schema = dj.Schema((dj.Table(name="t", attributes=tuple(a.name for a in attributes)),), attributes)
    rng = np.random.default_rng(1)
    rows = {a.name: rng.integers(0, a.size, 20_000) for a in attributes[:2]}
    rows |= {a.name: np.array(a.values)[rng.integers(0, a.size, 20_000)] for a in attributes[2:]}
    workload = dj.Workload.marginals(schema, [("zip",), ("age", "few"), ("text",)])
    return dj.release(schema, workload, {"t": pa.table(rows)}, BUDGET)


@lru_cache
def every_kind_release() -> Release:
    """One attribute of each kind, with `other` where there can be one, and names that SQL must quote."""
    attributes = (
        dj.Attribute(name="text", values=("it's", 'say "x"', "plain"), other=True),
        dj.Attribute(name="select", values=(3, 1, 2), other=True),
        dj.Attribute(name="true or false", values=(True, False), other=True),
        dj.Attribute(name="years", range=(2019, 2022), other=True),
        dj.Attribute(name="bins", bins=(-float("inf"), 0.5, 2, float("inf")), other=True),
        dj.Attribute(name="day", bins=("2020-01-01", "2020-03-01", "2021-01-01"), part="date", other=True),
        dj.Attribute(name="Date", values=("2020-01-01", "2020-05-05"), part="date", other=True),
        dj.Attribute(name="month", part="month"),
    )
    names = tuple(a.name for a in attributes)
    schema = dj.Schema((dj.Table(name="t", attributes=names),), attributes)
    rng = np.random.default_rng(5)
    days = np.datetime64("2020-01-01") + rng.integers(0, 500, 3_000)
    rows = {
        "text": rng.choice(["it's", 'say "x"', "plain", "else"], 3_000),
        "select": rng.integers(1, 5, 3_000),
        "true or false": pa.array([None if v == 2 else bool(v) for v in rng.integers(0, 3, 3_000)]),
        "years": rng.integers(2018, 2024, 3_000),
        "bins": rng.normal(1, 1, 3_000),
        "day": pa.array(days),
        "Date": pa.array(np.where(rng.random(3_000) < 0.5, np.datetime64("2020-01-01"), np.datetime64("2020-05-05"))),
        "month": pa.array(days),
    }
    return dj.release(schema, dj.Workload.marginals(schema, 2), {"t": pa.table(rows)}, BUDGET)
