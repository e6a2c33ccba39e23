"""PostgreSQL's SQL, from version 14 on. It has no TRY_CAST: every cast is guarded, so that no value can make it raise.

CASE evaluates no branch before its condition holds, unless the branch is constant; all of ours look at a column.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpjoin.engine.dialect import DAYS, Dialect, literal

_CAST_TYPES = {"SMALLINT", "INTEGER", "BIGINT"}
_RANGES = {"INTEGER": 2**31, "BIGINT": 2**63}
_MOMENT = (
    "^ *([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?(?:(Z)|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)? *$"
)
_CLOCK = r"^ *([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)? *$"


class PostgresDialect(Dialect):
    """How PostgreSQL writes what `Dialect` asks for."""

    types: Mapping[str, str] = {
        "DOUBLE": "double precision",
        "FLOAT": "real",
        "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
        "VARCHAR": "text",
        "HUGEINT": "numeric",
    }
    parts: Mapping[str, str] = {
        "year": "CAST(extract(year FROM {}) AS bigint)",
        "month": "CAST(extract(month FROM {}) AS bigint)",
        "weekday": "CAST(extract(isodow FROM {}) AS bigint)",
        "hour": "CAST(extract(hour FROM {}) AS bigint)",
        DAYS: "CAST(CAST({} AS date) - DATE '1970-01-01' AS bigint)",
    }
    texts: Mapping[str, str] = {
        "TIMESTAMP": "CAST(CAST(extract(epoch FROM {}) * 1000000 AS bigint) AS text)",
        "TIMESTAMP WITH TIME ZONE": "CAST({} AT TIME ZONE 'UTC' AS text) || '+00'",
        "DATE": "CAST({} - DATE '1970-01-01' AS text)",
        "BLOB": "upper(encode({}, 'hex'))",
        "DECIMAL": "CAST(trim_scale({}) AS text)",
    }

    def holds(self, text: str) -> bool:
        return "\0" not in text and text.encode(errors="ignore").decode() == text

    def cast(self, value: str, kind: str, target: str) -> str:
        if kind == target:
            return value
        if kind == "BOOLEAN":
            value, kind = f"CAST({value} AS integer)", "INTEGER"
        if target in _RANGES and kind in {"DOUBLE", "HUGEINT", "BIGINT"}:
            return self._within(value, kind, target)
        if target == "DOUBLE" and kind.startswith("DECIMAL"):
            return _double_of_decimal(value)
        if target == "TIMESTAMP" and kind == "DATE":
            within = f"{value} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
            return f"CASE WHEN {within} THEN CAST({value} AS timestamp) END"
        if target == "TIME" and kind == "VARCHAR":
            return _clock(value)
        if target == "VARCHAR" or (target == "HUGEINT" and kind.startswith("DECIMAL")):
            return value
        assert kind in _CAST_TYPES or (kind, target) == ("FLOAT", "DOUBLE"), f"no cast of {kind} to {target}"
        return f"CAST({value} AS {self.types.get(target, target)})"

    def _within(self, value: str, kind: str, target: str) -> str:
        limit = _RANGES[target]
        if (kind, target) == ("DOUBLE", "BIGINT"):
            within = f"{value} >= -{float(limit)!r} AND {value} < {float(limit)!r}"
        else:
            within = f"{value} BETWEEN -{limit} AND {limit - 1}"
        return f"CASE WHEN {within} THEN CAST({value} AS {target}) END"

    def by_bytes(self, text: str) -> str:
        return f'({text}) COLLATE "C"'

    def length(self, text: str) -> str:
        return f"octet_length({text})"

    def is_nan(self, value: str) -> str:
        return f"{value} = CAST('NaN' AS double precision)"

    def moment(self, value: str, kind: str) -> str:
        return f"({value} AT TIME ZONE 'UTC')" if "ZONE" in kind else _moment(value)

    def small(self, code: str, size: int) -> str:
        return f"CAST({code} AS {'smallint' if size <= 2**15 else 'integer' if size <= 2**31 else 'bigint'})"


POSTGRES_SQL = PostgresDialect()


def _double_of_decimal(value: str) -> str:
    """Numbers beyond all of DOUBLE are infinite, and those too close to zero for it are zero."""
    return (
        f"CASE WHEN {value} > 1.797e308 THEN CAST('Infinity' AS double precision) "
        f"WHEN {value} < -1.797e308 THEN CAST('-Infinity' AS double precision) "
        f"WHEN abs({value}) < 1e-300 THEN CAST(0 AS double precision) "
        f"WHEN {value} IS NOT NULL THEN CAST({value} AS double precision) END"
    )


def _moment(value: str) -> str:
    """A text of the form 2024-02-29, then perhaps a time of day, then perhaps a zone; NULL for all others."""
    found = [f"CAST((regexp_match({value}, {literal(_MOMENT)}))[{i}] AS integer)" for i in range(1, 12)]
    year, month, day = found[:3]
    hour, minute, second, zone_hour, zone_minute = (f"coalesce({found[i]}, 0)" for i in (3, 4, 5, 9, 10))
    fraction = f"rpad(left(coalesce((regexp_match({value}, {literal(_MOMENT)}))[7], ''), 6), 6, '0')"
    sign = f"CASE WHEN (regexp_match({value}, {literal(_MOMENT)}))[9] = '-' THEN 1 ELSE -1 END"
    last = f"extract(day FROM make_date({year}, {month}, 1) + interval '1 month' - interval '1 day')"
    seconds = f"({second} + CAST({fraction} AS double precision) / 1000000)"
    moment = f"make_timestamp({year}, {month}, {day}, {hour}, {minute}, {seconds})"
    moved = f"{moment} + {sign} * make_interval(hours => {zone_hour}, mins => {zone_minute})"
    return (
        f"CASE WHEN {value} ~ {literal(_MOMENT)} THEN "
        f"CASE WHEN {year} >= 1 AND {month} BETWEEN 1 AND 12 THEN "
        f"CASE WHEN {day} BETWEEN 1 AND {last} AND {hour} <= 23 AND {minute} <= 59 AND {second} <= 59 "
        f"AND {zone_minute} <= 59 THEN {moved} END END END"
    )


def _clock(value: str) -> str:
    """A text of the form 23:59 or 23:59:59; NULL for all others."""
    hour, minute, second = (
        f"coalesce(CAST((regexp_match({value}, {literal(_CLOCK)}))[{i}] AS integer), 0)" for i in (1, 2, 3)
    )
    within = f"{hour} <= 23 AND {minute} <= 59 AND {second} <= 59"
    return (
        f"CASE WHEN {value} ~ {literal(_CLOCK)} THEN CASE WHEN {within} "
        f"THEN make_time({hour}, {minute}, CAST({second} AS double precision)) END END"
    )
