"""Parts of dates and times: the public rule that makes a whole number of a value before anything else looks at it.

A date is its number of days since 1970-01-01, so that bins, ranges and listed values of dates are those of whole
numbers. A time with a zone counts as it is in UTC. Years are 1 to 9999.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time

from dpjoin.errors import SpecError

DATE = "date"
IMPLIED = {"month": (1, 12), "weekday": (1, 7), "hour": (0, 23)}
"""The parts that have a public domain of their own; weekdays begin with Monday, which is 1."""
DATE_PARTS = ("year", *IMPLIED, DATE)
EPOCH = datetime(1970, 1, 1)
FIRST_DAY, LAST_DAY = (d.toordinal() - EPOCH.toordinal() for d in (date.min, date.max))
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII)


def part_of(part: str, value: object) -> int | None:
    """A part of a value: a date, a time or its text; None if it has none. A whole number is a part already.

    >>> part_of("weekday", date(2024, 2, 29)), part_of("hour", "2024-02-29 17:45:00"), part_of("hour", "noon")
    (4, 17, None)
    """
    if type(value) is int:
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if _ISO.fullmatch(value) else None
        except ValueError:
            return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    if part == "hour" and isinstance(value, datetime | time):
        return value.hour
    if not isinstance(value, date):
        return None
    if part == DATE:
        return value.toordinal() - EPOCH.toordinal()
    return value.isoweekday() if part == "weekday" else 0 if part == "hour" else int(getattr(value, part))


def days(given: Sequence[object], what: str) -> list[object]:
    """Dates, or their text, as days; what is endless or a whole number stays."""
    found: list[object] = []
    for one in given:
        if isinstance(one, datetime) and one.time() != time():
            raise SpecError(f"{what} ({one.isoformat(' ')}) must be a date without a time; write {one.date()}")
        day = part_of(DATE, one) if isinstance(one, date | str) else None
        if isinstance(one, str) and day is None:
            raise SpecError(f"{what} ({one!r}) must be a date; write it like 2020-12-31")
        found.append(one if day is None else day)
    return found


def date_text(day: float) -> str:
    """A number of days as a date.

    >>> date_text(0), date_text(18262), date_text(math.inf)
    ('1970-01-01', '2020-01-01', 'inf')
    """
    return date.fromordinal(int(day) + EPOCH.toordinal()).isoformat() if math.isfinite(day) else str(day)
