"""The one boundary: whatever a caller hands over becomes a canonical, immutable Python value, or is refused.

Proofs speak of whole numbers that do not wrap, of fractions that add up, of names and values that equal what they
equal. A numpy integer wraps, a float rounds, a `Decimal(5)` equals 5 in Python and not in the engine, and an object may
say one thing now and another later. So every value that enters a `Schema`, a `Workload`, a `Budget` or ring 1 passes
one of these functions. They look at the exact type: a subclass may lie in `__eq__`, `__hash__` or `__index__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.errors import DpjoinError, SpecError

Error = type[DpjoinError]
INTEGERS = frozenset(
    {int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.longlong, np.ulonglong}
)
FLOATS = frozenset({float, np.float16, np.float32, np.float64})
"""Types whose values are all values of `float`; numpy's long double is not among them."""


def whole(value: object, what: str, *, least: int | None = None, error: Error = SpecError) -> int:
    """An int, from an int or a numpy integer; nothing else, and no boolean. Proof: P-73.

    >>> whole(np.uint8(200), "limit") * 2
    400
    >>> whole(True, "limit")
    Traceback (most recent call last):
    dpjoin.errors.SpecError: limit (True) must be a whole number
    """
    if type(value) not in INTEGERS:
        raise error(f"{what} ({shown(value)}) must be a whole number")
    number: int = int(value)  # type: ignore[call-overload]
    if least is not None and number < least:
        raise error(f"{what} ({shown(number)}) must be at least {least}")
    return number


def fraction(value: object, what: str, *, negative: bool = False, error: Error = SpecError) -> Fraction:
    """A Fraction of two ints, from a whole number or a Fraction; no float, which would be rounded. Proof: P-73.

    >>> type(fraction(Fraction(np.int64(2**40)), "rho").numerator)
    <class 'int'>
    """
    if type(value) is Fraction:
        top = whole(value.numerator, what, error=error)
        bottom = whole(value.denominator, what, least=1, error=error)
        exact = Fraction(top, bottom)
    elif type(value) in INTEGERS:
        exact = Fraction(whole(value, what, error=error))
    else:
        raise error(f"{what} ({shown(value)}) must be a Fraction or a whole number, and not negative")
    if exact < 0 and not negative:
        raise error(f"{what} ({shown(exact)}) must be a Fraction or a whole number, and not negative")
    return exact


def real(value: object, what: str, *, error: Error = SpecError) -> float:
    """A float with the same value; callers compare it, and nan fails every comparison. Proof: P-73.

    >>> real(np.int64(1), "epsilon"), real(np.float32(0.5), "epsilon")
    (1.0, 0.5)
    """
    number: float | int | None
    if type(value) in FLOATS:
        number = float(value)  # type: ignore[arg-type]
    else:
        number = whole(value, what, error=error) if type(value) in INTEGERS else None
    if number is None or (isinstance(number, int) and not _is_float(number)):
        raise error(f"{what} ({shown(value)}) must be a number")
    return float(number)


def text(value: object, what: str, *, error: Error = SpecError) -> str:
    """A str that can be written as UTF-8, from a str or numpy's. Proof: P-73."""
    if type(value) not in (str, np.str_):
        raise error(f"{what} ({shown(value)}) must be text")
    found = "".join(value)  # type: ignore[arg-type]
    if found.encode(errors="replace").decode() != found:
        raise error(f"{what} ({shown(found)}) must be text that can be written as UTF-8")
    return found


def flag(value: object, what: str, *, error: Error = SpecError) -> bool:
    """A bool, from a bool or numpy's: not 0, not "false". Proof: P-73."""
    if type(value) not in (bool, np.bool_):
        raise error(f"{what} ({shown(value)}) must be true or false")
    return bool(value)


def plain(value: object, what: str, *, error: Error = SpecError) -> str | int | float | bool:
    """Text, a number or a boolean as Python has it, of the kind it was. Proof: P-73."""
    if type(value) in (bool, np.bool_):
        return flag(value, what, error=error)
    if type(value) in INTEGERS:
        return whole(value, what, error=error)
    return float(value) if type(value) in FLOATS else text(value, what, error=error)  # type: ignore[arg-type]


def join_value(value: object, what: str, *, error: Error = SpecError) -> object:
    """One value of a join attribute, equal in Python to what the engine takes for equal. Proof: P-73.

    The engine compares 1, 1.0 and true alike, so all three are 1. Decimals and times with a zone are refused.

    >>> join_value(-0.0, "a value"), join_value(np.bool_(True), "a value"), join_value(0.5, "a value")
    (0, 1, 0.5)
    """
    if value is None or type(value) is date or (type(value) is datetime and value.tzinfo is None):
        return value  # a missing value joins nothing, in Python and in the engine
    found = plain(value, what, error=error)
    if found != found:
        return None  # nan is missing, as the engine has it
    if isinstance(found, bool) or (isinstance(found, float) and found.is_integer()):
        return int(found)
    return found


def items(value: object, what: str, *, error: Error = SpecError) -> tuple[Any, ...]:
    """A list, a tuple, an array or another sequence as a tuple, read once. Proof: P-73."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise error(f"{what} ({shown(value)}) must be a list")
    try:
        return tuple(value)
    except Exception:
        raise error(f"{what} ({shown(value)}) must be a list that can be read") from None


def names(value: object, what: str, *, error: Error = SpecError) -> tuple[str, ...]:
    """A sequence of names as a tuple of str. Proof: P-73."""
    return tuple(text(name, what, error=error) for name in items(value, what, error=error))


def mapping(value: object, what: str, *, error: Error = SpecError) -> dict[Any, Any]:
    """A mapping as a dict of its own, read once. Proof: P-73."""
    if not isinstance(value, Mapping):
        raise error(f"{what} ({shown(value)}) must map names to values")
    try:
        return dict(value.items())
    except Exception:
        raise error(f"{what} ({shown(value)}) must be a mapping that can be read") from None


def instance(value: object, kind: type | tuple[type, ...], what: str, *, error: Error = SpecError) -> Any:
    """A value of exactly one of these classes: what a subclass says of itself need not be so. Proof: P-73."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if type(value) not in kinds:
        raise error(f"{what} ({shown(value)}) must be a {' or a '.join(k.__name__ for k in kinds)}")
    return value


def whole_numbers(value: object, what: str, *, error: Error = SpecError) -> NDArray[Any]:
    """An array of whole numbers of any size: int64, or Python integers where these are too narrow. Proof: P-73."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuO":
        raise error(f"{what} must be an array of whole numbers")
    array = np.asarray(value)
    if array.dtype.kind == "O" and any(type(x) is not int for x in array.reshape(-1)):
        raise error(f"{what} must be an array of whole numbers")
    return array.astype(object if array.dtype.kind == "O" or array.dtype == np.uint64 else np.int64, copy=False)


def frozen(array: Any) -> NDArray[Any]:
    """An array that nobody can write to any more: as it is, or a copy if somebody could. Proof: P-73.

    An array that owns its memory can be made writable again by whoever holds it; one that rests on `bytes` cannot.
    """
    found = np.asarray(array)
    owner: object = found
    while isinstance(owner, np.ndarray) and not owner.flags.writeable and owner.base is not None:
        owner = owner.base
    if type(owner) is bytes:
        return found
    if found.dtype == object:  # bytes cannot hold these
        if isinstance(owner, np.ndarray) and not owner.flags.writeable:
            return found
        copied = found.copy()
        copied.setflags(write=False)
        return copied
    return np.frombuffer(found.tobytes(), dtype=found.dtype).reshape(found.shape)


def shown(value: object) -> str:
    """A value for a message: as written where that is short and safe, otherwise its type.

    A list or a dict that holds anything but plain values may hold tables: its type.
    """
    if type(value) is int and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    if type(value) is Fraction:
        top, bottom = int(value.numerator), int(value.denominator)
        return str(top / bottom) if max(abs(top), bottom).bit_length() < 1000 else "a Fraction"
    try:
        written = repr(value.item() if isinstance(value, np.generic) else value) if _is_plain(value) else ""
    except Exception:
        written = ""
    return (written if len(written) <= 200 else f"{written[:200]}…") or f"a {type(value).__name__}"


def _is_plain(value: object) -> bool:
    if type(value) is dict:
        return all(map(_is_plain, [*value, *value.values()]))
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))  # type: ignore[call-overload]
    return type(value) in (str, int, float, bool, bytes, type(None)) or isinstance(value, np.generic)


def _is_float(number: int) -> bool:
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def set_canonical(value: object, what: str, **checks: Callable[[object, str], object]) -> None:
    """Put canonical values into fields of a frozen dataclass that is being made. Proof: P-73."""
    for name, check in checks.items():
        object.__setattr__(value, name, check(getattr(value, name), f"{what}: {name}"))


class Checks:
    """The functions of this module, refusing with one kind of error. Proof: P-73."""

    def __init__(self, error: Error) -> None:
        self.whole = partial(whole, error=error)
        self.fraction = partial(fraction, error=error)
        self.text = partial(text, error=error)
        self.flag = partial(flag, error=error)
        self.items = partial(items, error=error)
        self.names = partial(names, error=error)
        self.mapping = partial(mapping, error=error)
        self.instance = partial(instance, error=error)
        self.whole_numbers = partial(whole_numbers, error=error)
