"""Anything at all, sent through every constructor that callers use and every method that asks about private tables."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpjoin as dj
import dpjoin.privacy
from dpjoin.engine import interface
from dpjoin.engine.interface import Clip, Labels, RowWeights
from dpjoin.measure.shares import half_width
from dpjoin.privacy.accounting import Approximate, Concentrated, Pure, Split
from dpjoin.privacy.columns import Column, ColumnOf
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.instance import Instance
from dpjoin.privacy.parts import OneTable, Question
from dpjoin.spec import learning, schema, workload
from dpjoin.spec.learning import Learn
from dpjoin.spec.workload import CELLS, Factor, Kronecker, Products, kronecker
from support.brute import BruteEngine

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
PAIR = dj.Schema(
    (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b"))),
    (dj.Attribute(name="k", key=True), dj.Attribute(name="a", range=(0, 3)), dj.Attribute(name="b", range=(0, 1))),
)
ROWS = {"r": [{"k": k % 3, "a": k % 4} for k in range(12)], "s": [{"k": k % 3, "b": k % 2} for k in range(9)]}
LEARNING = dj.Schema(PAIR.tables, (*PAIR.attributes[:2], dj.Attribute(name="b", learn=True)))
PERSONS = replace(PAIR, unit=("k",))
OPEN = replace(PAIR, tables=(PAIR.tables[0], replace(PAIR.tables[1], private=False)))
COST, ASIDE = Concentrated(Fraction(1, 10**6)), Concentrated(Fraction(1, 10**6), Fraction(1, 10**9))
ROUND, BLOCK = Pure(Fraction(1, 100)), Approximate(Fraction(1, 2), Fraction(1, 10**7))
WIDTH = half_width(BUDGET.composition, ASIDE.rho, ASIDE.delta, moves=2)
GROUP = kronecker(PAIR, {"a": CELLS})
ONES = np.array([[1, 0, 0, 1]], dtype=np.int64)
Given = dict[str, Any]

# What callers make ----------------------------------------------------------------------------------------------------

MADE: dict[type, Given] = {
    dj.Attribute: {
        "name": "x", "values": ("u", "v"), "range": None, "bins": None, "key": False, "other": True, "part": None,
        "learn": None,
    },
    dj.DegreeBound: {"attributes": ("k",), "limit": 3},
    dj.Table: {
        "name": "r", "attributes": ("k", "a"), "columns": {"a": "c"}, "private": True, "source": ("x", "y"),
        "source_table": "t", "encoding": "latin-1", "bounds": (dj.DegreeBound(attributes=("k",), limit=3),),
        "enforce": True, "owner": ("k",), "owner_via": "k", "owners": 2,
    },
    dj.Schema: {
        "tables": PAIR.tables, "attributes": PAIR.attributes, "unit": ("k",), "max_results": 9, "neighbours": "replace",
    },
    Learn: {"bins": 3, "values": 9, "whole": True},
    Factor: {"kind": "weights", "row": (1, 2), "unit": Fraction(1, 2), "packed": b"12345678"},
    Kronecker: {"name": "g", "scope": ("a",), "factors": (CELLS,), "shape": (4,)},
    Products: {"name": "g", "scope": ("a",), "shape": (4,), "parts": ((("a",), ONES),), "unit": Fraction(1)},
    dj.Workload: {"schema": PAIR, "groups": (GROUP,), "importance": (2.0,)},
    dj.Budget: {
        "epsilon": 1.0, "delta": 1e-6, "composition": BUDGET.composition, "laplace": Fraction(1, 9),
        "options": (Fraction(1, 4),), "domains": None,
    },
    Split: {"budget": BUDGET, "truncation_delta": Fraction(1, 10**7), "paper": False},
    Pure: {"epsilon": Fraction(1)},
    Approximate: {"epsilon": Fraction(1), "delta": Fraction(1, 100)},
    Concentrated: {"rho": Fraction(1), "delta": Fraction(1, 100), "epsilon": Fraction(0)},
    ColumnOf: {"attribute": "b", "values": 2},
    Question: {"name": "q", "rules": {"r": {Labels("l", ("k",), {(1,): 1}): 1}}, "by": ("k",), "distinct": ("k",)},
    OneTable: {"table": "r", "keep": ("a",), "labels": Labels("l", ("k",), {(1,): 1}), "bucket": 1},
    Labels: {"name": "l", "attributes": ("k",), "buckets": {(1,): 1, ("x",): 2}},
    RowWeights: {"attributes": ("k",), "weights": np.array([2, 1]), "full": 2},
    Clip: {"owner": ("k",), "limit": 3, "full": 10, "steep": True},
}  # fmt: skip
"""A call of each that is fine."""
MADE_OTHERWISE: dict[str, tuple[type, Given]] = {
    "Attribute, learned": (dj.Attribute, {"name": "x", "learn": Learn(bins=3)}),
    "Attribute, learned by words": (dj.Attribute, {"name": "x", "learn": {"bins": 3}}),
    "Attribute, binned": (dj.Attribute, {"name": "x", "bins": (0, 0.5, 1)}),
    "Attribute, ranged": (dj.Attribute, {"name": "x", "range": (0, 3), "part": "year"}),
    "Attribute, of dates": (dj.Attribute, {"name": "x", "values": (date(2020, 1, 1),)}),
    "Attribute, listed": (dj.Attribute, {"name": "x", "values": (1, 2)}),
    "Budget, with domains": (dj.Budget, {"epsilon": 1.0, "delta": 1e-6, "domains": COST}),
    "Factor, of rows": (Factor, {"kind": "rows", "packed": ONES.tobytes()}),
    "Kronecker, of rows": (
        Kronecker,
        {"name": "g", "scope": ("a",), "factors": (Factor("rows", packed=ONES.tobytes()),), "shape": (4,)},
    ),
}
NOT_TAKEN = {
    "Composition": "nobody makes one: tests/known_bad/test_boundary.py",
    "Accountant Book Draws Exact Gate Instance Law Level Limit Mechanism Move Noise DiscreteGaussian DiscreteLaplace "
    "Exponential Boundaries Ranges": "inside ring 1: no caller's object reaches them but by the Curator",
    "Event Ledger Part": "written by ring 1; a Release adds them up",
    "Bound NoisyDegrees": "taken back by identity",
    "Column Measurement NoisyCounts NoisyOwners NoisyRanks NoisySize NoisyValues": "answers",
    "Engine ExactDegrees ExactNumbers": "of ring 2",
    "Average Masked": "asked of a Release; the Curator refuses them",
    "Curator": "below",
}


def classes() -> set[type]:
    """All public ones of ring 1, and of what callers describe tables and questions by."""
    inside = [
        importlib.import_module(f"dpjoin.privacy.{m.name}") for m in pkgutil.iter_modules(dpjoin.privacy.__path__)
    ]
    modules = [*inside, interface, learning, schema, workload]
    found = {c for module in modules for c in vars(module).values() if inspect.isclass(c)}
    return {c for c in found if c.__module__ in {m.__name__ for m in modules} and not c.__name__.startswith("_")}


def test_every_class_is_sent_anything_or_is_known_not_to_be_taken() -> None:
    known = {c.__name__ for c in MADE} | {name for names in NOT_TAKEN for name in names.split()}
    assert {c.__name__ for c in classes()} == known
    for kind, given in MADE.items():
        assert [p for p in inspect.signature(kind).parameters if p != "_"] == list(given), kind.__name__


# What callers ask -----------------------------------------------------------------------------------------------------


def whole() -> Curator:
    return Curator(BruteEngine(PAIR, ROWS), Split(budget=BUDGET, truncation_delta=Fraction(1, 10**7)))


def of_rounds() -> Curator:
    return Curator(BruteEngine(OPEN, ROWS), Split(budget=BUDGET, paper=True))


def learning_one() -> Curator:
    return Curator(BruteEngine(LEARNING, ROWS), Split(budget=BUDGET, truncation_delta=Fraction(1, 10**7)))


def of_persons() -> Curator:
    return Curator(BruteEngine(PERSONS, ROWS), Split(budget=BUDGET))


def of_replaced() -> Curator:
    schema = replace(PAIR, neighbours="replace")
    return Curator(BruteEngine(schema, ROWS), Split(budget=BUDGET, truncation_delta=Fraction(1, 10**7)))


def with_public() -> Curator:
    return Curator(BruteEngine(OPEN, ROWS), Split(budget=BUDGET, truncation_delta=Fraction(1, 10**7)))


def exchanging() -> Curator:
    return Curator(BruteEngine(PAIR, ROWS), Split(budget=replace(BUDGET, options=(Fraction(1, 4),))))


def capped() -> Curator:
    bounds = (dj.DegreeBound(attributes=("k",), limit=2),)
    return whole().capped({"r": bounds, "s": bounds})


def weighted() -> Curator:
    weights = RowWeights(("k",), np.array([2, 1]), 2)
    return whole().weighted({"r": weights, "s": weights})


def clipped() -> Curator:
    return whole().clipped(Clip(owner=("k",), limit=3))


def clipped_by_person() -> Curator:
    return of_persons().clipped(Clip(owner=("k",), limit=3))


def part() -> Curator:
    curator = whole()
    degrees = curator.noisy_degrees("d", [question("r"), question("s")], ASIDE, half_width=WIDTH)
    labels = curator.labels("l", degrees, {(1,): 1})
    return curator.restrict("s", {"p": {"r": {labels: 0}, "s": {labels: 0}}}, [ASIDE])[0]


KINDS = (
    whole, of_rounds, learning_one, of_persons, of_replaced, with_public, exchanging, capped, weighted, clipped,
    clipped_by_person, part,
)  # fmt: skip


def question(table: str) -> Question:
    return Question(name=table, rules={table: {}}, by=("k",))


def bound(curator: Curator) -> Any:
    return curator.public_bound() or curator.sensitivity_bound(ASIDE, half_width=WIDTH)


ASKED: dict[str, tuple[Callable[[], Curator], Callable[[Curator], Given]]] = {
    "exchange": (exchanging, lambda c: {}),
    "public_bound": (with_public, lambda c: {}),
    "part_bound": (part, lambda c: {}),
    "sensitivity_bound": (whole, lambda c: {"cost": ASIDE, "half_width": WIDTH}),
    "capped": (whole, lambda c: {"caps": {"r": (dj.DegreeBound(attributes=("k",), limit=2),)}}),
    "weighted": (whole, lambda c: {"weights": {"r": RowWeights(("k",), np.array([2, 1]), 2)}}),
    "clipped": (of_persons, lambda c: {"clip": Clip(owner=("k",), limit=3)}),
    "restrict": (
        whole,
        lambda c: {
            "stage": "s",
            "parts": {"p": {"r": {c.labels("l", (), {(1,): 1}, attributes=("k",)): 1}}, "q": OneTable("r", ("a",))},
            "costs": [COST, COST],
        },
    ),
    "participation": (whole, lambda c: {"asked": [question("r"), {"r": {}}, OneTable("s", ("b",))]}),
    "labels": (
        whole,
        lambda c: {
            "name": "l",
            "degrees": c.noisy_degrees("d", [question("r")], ASIDE, half_width=WIDTH),
            "buckets": {(1,): 1},
            "attributes": ("k",),
        },
    ),
    "columns": (learning_one, lambda c: {"stage": "s", "asked": [ColumnOf(attribute="b")], "costs": [COST]}),
    "learned": (
        learning_one,
        lambda c: {"domains": [dj.Attribute(name="b", range=(0, 1), other=True)], "public_bounds": True},
    ),
    "noisy_degrees": (
        whole, lambda c: {"stage": "s", "questions": [question("r")], "cost": ASIDE, "half_width": WIDTH},
    ),
    "noisy_ranks": (whole, lambda c: {"stage": "s", "questions": [question("r")], "edges": [1, 2], "cost": COST}),
    "noisy_owners": (whole, lambda c: {"owner": ("k",), "edges": [1, 2], "cost": COST}),
    "public_counts": (with_public, lambda c: {"table": "s", "attributes": ("b",)}),
    "join_size": (clipped, lambda c: {"bound": bound(c), "cost": COST}),
    "measure": (weighted, lambda c: {"group": GROUP, "bound": bound(c), "cost": COST}),
    "measure_query": (of_replaced, lambda c: {"group": GROUP, "index": 1, "bound": bound(c), "cost": COST}),
    "worst_query": (
        whole,
        lambda c: {"groups": [GROUP], "model": [np.zeros(4, dtype=np.int64)], "bound": bound(c), "cost": COST},
    ),
    "reserve_rounds": (of_rounds, lambda c: {"count": 2, "each": ROUND, "cost": BLOCK}),
    "prepare": (whole, lambda c: {"groups": [GROUP]}),
}  # fmt: skip
"""For every method of a Curator: one that can answer, and a call that is fine."""


def column() -> Column:
    return learning_one().columns("s", [ColumnOf(attribute="b")], [ASIDE])[0]


READ: dict[str, Given] = {
    "noisy_values": {"cost": ASIDE, "half_width": WIDTH},
    "noisy_counts": {"edges": [0.0, 1.0], "cost": COST},
}
"""The same for a column's."""
QUESTIONS: dict[str, Given] = {
    "marginals": {"schema": PAIR, "which": [1, ("a", "b")]},
    "prefixes": {"schema": PAIR, "attributes": ["a"], "by": ["b"]},
    "ranges": {"schema": PAIR, "attributes": ["a"], "by": ["b"]},
    "sums": {"schema": PAIR, "attributes": ["a"], "by": ["b"]},
    "products": {"schema": PAIR, "weights": {"r": (["a"], [[1, 0, 0.5, 1]])}, "name": "p"},
    "crossed": {"schema": PAIR, "weights": {"a": [[1, 0, 0.5, 1]]}, "name": "p"},
    "sql": {"schema": PAIR, "statements": "SELECT COUNT(*) FROM joined WHERE a = 1"},
    "important": {"factor": 2.0},
}
"""And for what makes a workload."""


def methods(kind: type) -> dict[str, Any]:
    found = {name: getattr(kind, name) for name, f in vars(kind).items() if callable(f) or isinstance(f, classmethod)}
    return {name: f for name, f in found.items() if not name.startswith("_")}


def test_every_method_is_sent_anything() -> None:
    asked = {name: given(kind()) for name, (kind, given) in ASKED.items()}
    inside = ("over", "importance_of")  # which releases use, of a Workload that was checked
    for kind, given, aside in ((Curator, asked, ()), (Column, READ, ()), (dj.Workload, QUESTIONS, inside)):
        found = {n: [p for p in inspect.signature(f).parameters if p != "self"] for n, f in methods(kind).items()}
        assert {n: p for n, p in found.items() if n not in aside} == {n: list(g) for n, g in given.items()}


def calls() -> dict[str, Callable[[], tuple[Callable[..., Any], Given]]]:
    """Every constructor and method: what is called, and with what it is fine."""

    def asking(name: str, kind: Callable[[], Curator]) -> Callable[[], tuple[Callable[..., Any], Given]]:
        def call() -> tuple[Callable[..., Any], Given]:
            curator = kind()
            return getattr(curator, name), ASKED[name][1](curator)

        return call

    def wordy(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda statements, **more: f(more["schema"], statements)

    made = dj.Workload.marginals(PAIR, 1)
    found: dict[str, Callable[[], tuple[Callable[..., Any], Given]]] = {}
    for kind, given in MADE.items():
        found[kind.__name__] = lambda kind=kind, given=given: (kind, given)  # type: ignore[misc]
    for name, (kind, given) in MADE_OTHERWISE.items():
        found[name] = lambda kind=kind, given=given: (kind, given)  # type: ignore[misc]
    for name, (kind, _) in ASKED.items():
        found[f"Curator.{name}"] = asking(name, kind)
        for other in KINDS:
            found[f"Curator.{name} of {other.__name__}"] = asking(name, other)
    for name, given in READ.items():
        found[f"Column.{name}"] = lambda name=name, given=given: (getattr(column(), name), given)  # type: ignore[misc]
    for name, given in QUESTIONS.items():
        f = wordy(made.sql) if name == "sql" else getattr(made, name)
        found[f"Workload.{name}"] = lambda f=f, given=given: (f, given)  # type: ignore[misc]
    return found


@pytest.mark.parametrize("name", [n for n in calls() if " of " not in n])
def test_the_calls_are_fine(name: str) -> None:
    """Else whatever is put into one would be refused because of the rest."""
    call, given = calls()[name]()
    call(**given)


# What they are sent ---------------------------------------------------------------------------------------------------


def liar(kind: type, /, *contents: Any, **more: Any) -> Any:
    """A value of a subclass that lies about all it can."""

    def says(answer: Any) -> Callable[..., Any]:
        return lambda *_: answer

    lies = {f"__{name}__": says(True) for name in ("eq", "lt", "le", "ge", "gt", "contains", "bool")}
    lies |= {f"__{name}__": says(1) for name in ("hash", "index", "int", "len", "trunc", "floor")}
    lies |= {"__ne__": says(False), "__float__": says(1.0), "__str__": says("r"), "__repr__": says("r")}
    lies |= {"__iter__": lambda _: iter(("k",)), "__getitem__": says("k"), "__radd__": says(Fraction(1, 10**9))}
    return type(f"Lying{kind.__name__}", (kind,), lies)(*contents, **more)


SECRETS = pd.DataFrame({"k": ["SECRET", "SECRET"]})


class Index:
    def __index__(self) -> int:
        return 3


def values(rng: np.random.Generator) -> Iterator[Any]:
    """Random values of every kind, for ever."""
    kinds = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
    while True:
        kind = kinds[rng.integers(len(kinds))]
        limits = np.iinfo(kind)
        number = kind(rng.integers(limits.min, limits.max, dtype=kind, endpoint=True))
        small, real = int(rng.integers(-3, 9)), float(rng.normal())
        yield from (number, kind(abs(small)), small, 2 ** int(rng.integers(0, 200)), -small, real)
        yield from (np.float16(real), np.float32(real), np.float64(real), np.longdouble(1) / 3, complex(1), -0.0)
        yield from (Decimal(small), Decimal("sNaN"), Fraction(small, 7), Fraction(number), Fraction(real), Index())
        yield from (True, False, np.bool_(False), float("nan"), float("inf"), -float("inf"), None, object(), Ellipsis)
        yield from ("k", "a", "r", "", "\ud800", "\0", "K", np.str_("k"), b"k", bytearray(b"k"), date(2020, 1, 1))
        yield from (datetime(2020, 1, 1), np.datetime64("2020-01-01"), slice(2), range(3), type, len, iter(["k"]))
        yield from ([], (), {}, [small], ("k",), [float("nan")], {"k": small}, {("k",): "x"}, {small}, [[]], {"r": {}})
        yield from (SECRETS, pa.Table.from_pandas(SECRETS), [SECRETS], {"k": SECRETS}, np.array(["k"]))
        yield from (np.arange(3), np.ones(2), np.array(3), np.array([small], dtype=object))
        yield from (liar(int, small), liar(float, real), liar(str, "k"), liar(bytes, b"k"), liar(Fraction, small, 7))
        yield from (liar(tuple, ("k",)), liar(list, ["k"]), liar(dict, {"k": 1}), liar(set, {"k"}), liar(Decimal, "1"))
        yield from (liar(np.int64, small), liar(np.float64, real), liar(np.str_, "k"), liar(date, 2020, 1, 1))


def twin(value: Any) -> Any:
    """The same value of a class of the caller's own."""
    if type(value) in MADE:
        return liar(type(value), **{f.name: getattr(value, f.name) for f in fields(value) if f.init and f.name != "_"})
    return liar(type(value), value) if type(value) in (int, float, str, tuple, list, dict) else value


Put = Callable[[Callable[[Any], Any]], Any]


def places(value: Any) -> list[Put]:
    """The value with something else in each of its places, itself included: what is there is given to a function."""
    found: list[Put] = [lambda change: change(value)]
    if type(value) in (list, tuple):
        for i, inner in enumerate(value):
            around = value[:i], value[i + 1 :]
            found += [lambda f, put=put, a=around: type(value)([*a[0], put(f), *a[1]]) for put in places(inner)]
    if type(value) is dict:
        for key, inner in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            found += [lambda f, k=key, put=put, rest=rest: {**rest, k: put(f)} for put in places(inner)]
            found += [
                lambda f, put=put, v=inner, rest=rest: {**rest, **({k: v} if is_key(k := put(f)) else {})}
                for put in places(key)
            ]
    return found


def is_key(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True


def is_plain(value: Any) -> bool:
    """Whether a value that was accepted holds Python's own kinds of value and ours only."""
    if isinstance(value, Fraction):
        return type(value) is Fraction and type(value.numerator) is type(value.denominator) is int
    if isinstance(value, tuple):
        return type(value) is tuple and all(map(is_plain, value))
    if isinstance(value, dict | MappingProxyType):
        return type(value) is not dict or all(map(is_plain, [*value, *value.values()]))
    if is_dataclass(value):
        known = type(value).__module__.startswith("dpjoin.")
        return known and all(is_plain(getattr(value, f.name)) for f in fields(value) if f.init)
    kinds = (int, float, str, bool, bytes, type(None), date, datetime, np.ndarray)
    return type(value) in kinds or isinstance(value, Enum)


@pytest.mark.filterwarnings("ignore")
def test_any_value_is_refused_with_our_own_error_or_used_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 values in all places of all calls, on Curators of every kind, so that each method of an instance runs."""
    ran = set()

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            ran.add(name)
            return method(*arguments, **more)

        return run

    of_instance = {n: f for n, f in vars(Instance).items() if inspect.isfunction(f) and not n.startswith("_")}
    for name, method in of_instance.items():
        monkeypatch.setattr(Instance, name, watched(name, method))
    rng = np.random.default_rng(20)
    made, drawn = calls(), values(rng)
    names, wrong = list(made), {}
    for number in range(10_000):
        name, value = names[number % len(names)], next(drawn)
        change = twin if rng.random() < 0.2 else lambda _, value=value: value
        what = f"{name} with {type(value).__name__}" if change is not twin else f"{name} with a twin"
        try:
            call, given = made[name]()
            if given:
                key = list(given)[int(rng.integers(len(given)))]
                options = places(given[key])
                given, what = {**given, key: options[int(rng.integers(len(options)))](change)}, f"{what} in {key}"
            result = call(**given)
        except dj.DpjoinError as error:
            if "SECRET" in str(error):
                wrong[what] = f"rows in a message (value {number})"
            continue
        except Exception as error:
            wrong[what] = f"{type(error).__name__}: {error} (value {number})"
            continue
        results = result if isinstance(result, list) else [result]
        ledger = [call.__self__.ledger] if isinstance(getattr(call, "__self__", None), Curator) else []
        checked = [r for r in (*results, *ledger) if not isinstance(r, Curator | Column)]
        if not all(map(is_plain, checked)):
            wrong[what] = f"kept as it was (value {number})"
    assert not wrong, "\n".join(f"{place}: {what}" for place, what in wrong.items())
    assert ran == set(of_instance)


# What nobody writes to ------------------------------------------------------------------------------------------------


def held() -> Iterator[tuple[Any, str]]:
    """Every field of what callers make and get, and what a Curator and a column tell of themselves."""
    for kind, given in MADE.items():
        yield from ((kind(**given), f.name) for f in fields(kind))
    curator = whole()
    answers = [bound(curator), *curator.noisy_degrees("d", [question("r")], ASIDE, half_width=WIDTH), curator.ledger]
    for answer in answers:
        yield from ((answer, f.name) for f in fields(answer))
    for asked in (curator, column()):
        yield from ((asked, name) for name, p in vars(type(asked)).items() if isinstance(p, property))


def test_nothing_can_be_assigned() -> None:
    for value, name in held():
        if name.startswith("_"):
            continue
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(value, name, None)
