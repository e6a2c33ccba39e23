"""The boundary, function by function: what becomes a plain Python value, and what is refused with our own error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpjoin import canonical, evaluate
from dpjoin.errors import BudgetError, ReleaseError, SpecError

INTEGER_TYPES = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


OTHER_INTEGER_TYPES = (np.longlong, np.ulonglong, np.intp, np.uintp)


class Lying(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Almost:
    """Has items, and is no mapping."""

    def items(self) -> list[tuple[str, int]]:
        return [("a", 1)]


@pytest.mark.parametrize("kind", [int, *INTEGER_TYPES, *OTHER_INTEGER_TYPES])
def test_integers_of_every_width_become_int(kind: type) -> None:
    """As a whole number, a fraction, a real and a value."""
    found = canonical.whole(kind(100), "n"), canonical.plain(kind(100), "n"), canonical.join_value(kind(100), "n")
    assert [type(x) for x in found] == [int] * 3
    assert set(found) == {100}
    assert canonical.fraction(kind(100), "n") == Fraction(100)
    assert canonical.real(kind(100), "n") == 100.0


@pytest.mark.parametrize("kind", [float, np.float16, np.float32, np.float64])
def test_floats_of_every_width_become_float(kind: type) -> None:
    """With the same value; where it is whole, a join attribute has the whole number."""
    assert [type(f(kind(0.5), "x")) for f in (canonical.real, canonical.plain, canonical.join_value)] == [float] * 3
    assert type(canonical.join_value(kind(3.0), "x")) is int


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (canonical.whole, [True, 1.0, "1", None, Lying(1), Fraction(1), Decimal(1)]),
        (canonical.fraction, [-1, 0.5, True, "1", Decimal(1), Fraction(-1, 2)]),
        (canonical.real, [True, "1", None, Decimal(1), np.longdouble(1)]),
        (canonical.text, [b"a", None, 1, "\ud800"]),
        (canonical.flag, [0, 1, "false", None, 1.0]),
        (canonical.plain, [None, Decimal(1), Fraction(1), b"a", Lying(1)]),
        (canonical.join_value, [Decimal(5), Fraction(1), datetime(2020, 1, 1, tzinfo=UTC), b"a"]),
        (canonical.items, ["ab", b"ab", bytearray(b"ab"), {"a": 1}, 5, None]),
        (canonical.names, ["ab", ["a", 1], [None]]),
        (canonical.mapping, [[("a", 1)], "ab", None, Almost()]),
        (canonical.whole_numbers, [[1, 2], np.array([0.5]), np.array([True]), np.array([1, True], dtype=object), None]),
    ],
)
def test_what_is_not_of_the_kind_is_refused(function: Callable[..., object], values: list[object]) -> None:
    """With an error of ours that names what it was for."""
    for value in values:
        with pytest.raises(SpecError, match="the thing"):
            function(value, "the thing")


def test_sequences_and_mappings_are_copied() -> None:
    """What a caller changes afterwards changes nothing here."""
    names, sizes = ["a", np.str_("b")], {"a": 1}
    found, table = canonical.names(names, "names"), canonical.mapping(sizes, "sizes")
    names.append("c")
    sizes["b"] = 2
    assert found == ("a", "b")
    assert [type(name) for name in found] == [str, str]
    assert table == {"a": 1}
    assert canonical.items(np.array([1, 2]), "items") == (1, 2)


def test_an_instance_has_exactly_the_class() -> None:
    """Not a subclass, which may say anything."""
    assert canonical.instance(1, int, "n") == 1
    assert canonical.instance("a", (int, str), "n") == "a"
    for value in (Lying(1), True, 1.0):
        with pytest.raises(SpecError, match="n"):
            canonical.instance(value, int, "n")


def test_values_that_the_engine_takes_for_equal_are_equal() -> None:
    """1, 1.0 and true are one value; nan and None are none; days and moments without a zone stay."""
    assert [type(canonical.join_value(x, "v")) for x in (1, 1.0, True, np.bool_(True))] == [int] * 4
    assert canonical.join_value(float("nan"), "v") is canonical.join_value(None, "v") is None
    for value in (date(2020, 1, 1), datetime(2020, 1, 1, 12), "1", 0.5, float("inf")):
        assert canonical.join_value(value, "v") == value
        assert type(canonical.join_value(value, "v")) is type(value)
    assert canonical.flag(np.bool_(False), "f") is False
    assert canonical.plain(np.bool_(True), "p") is True


def test_whole_numbers_of_any_size() -> None:
    """int64 where every value fits; uint64 may not, so it becomes Python integers."""
    assert canonical.whole_numbers(np.array([1, 2], dtype=np.uint8), "n").dtype == np.int64
    assert canonical.whole_numbers(np.array([2**64 - 1], dtype=np.uint64), "n").tolist() == [2**64 - 1]
    assert canonical.whole_numbers(np.array([10**30], dtype=object), "n").tolist() == [10**30]


@pytest.mark.parametrize("kind", [np.int64, np.float64, object])
def test_frozen_arrays_cannot_be_written(kind: type) -> None:
    """Neither through the result nor through what it was made of; a second time it is the same array."""
    given = np.array([1, 2, 3], dtype=kind)
    found = canonical.frozen(given)
    given[0] = 9
    assert found.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 9
    assert canonical.frozen(found) is found


def test_a_view_that_somebody_can_write_to_is_copied() -> None:
    """A read-only view of an array that its owner still writes to."""
    given = np.array([1, 2, 3])
    view = given[:]
    view.setflags(write=False)
    found = canonical.frozen(view)
    given[0] = 9
    assert found.tolist() == [1, 2, 3]


def test_messages_are_short_and_call_nothing_of_the_value() -> None:
    """Plain values as written, up to 200 characters; of others the type."""
    assert canonical.shown(np.int64(5)) == "5"
    assert canonical.shown(Fraction(1, 4)) == "0.25"
    assert canonical.shown(Fraction(1, 1 << 2000)) == canonical.shown(Fraction(1 << 2000)) == "a Fraction"
    assert canonical.shown(1 << 300) == "a number of 301 bits"
    assert canonical.shown(Lying(5)) == "a Lying"
    assert len(canonical.shown("x" * 1000)) == 201


def test_messages_hold_no_rows_of_a_table_in_the_wrong_place() -> None:
    """Tables handed over where a release, a budget or a list of names belongs: their type, not their values."""
    private = pa.table({"zip": [90210]})
    assert canonical.shown(["a", [1, None]]) == "['a', [1, None]]"
    assert canonical.shown([private]) == canonical.shown([[private]]) == "a list"
    assert canonical.shown({"people": private}) == canonical.shown({"people": {"rows": (Lying(5),)}}) == "a dict"
    with pytest.raises(ReleaseError, match=r"^what is evaluated \(a dict\) must be a release"):
        evaluate({"people": private}, {})  # type: ignore[arg-type]


def test_checks_refuse_with_their_own_error() -> None:
    """The same functions, for a caller whose errors are of one kind."""
    check = canonical.Checks(BudgetError)
    bad: dict[str, object] = dict.fromkeys(vars(check)) | {"instance": 5}
    assert {"whole", "fraction", "text", "flag", "items", "names", "mapping", "instance", "whole_numbers"} <= set(bad)
    for name, value in bad.items():
        more = (str,) if name == "instance" else ()
        with pytest.raises(BudgetError, match="the thing"):
            getattr(check, name)(value, *more, "the thing")
