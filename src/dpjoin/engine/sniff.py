"""Which type the texts of a column look like: for drafting a spec from a CSV file, never for reading one.

A draft is public, so these types are as well. A release reads each value by itself, whatever was guessed here.
"""

from __future__ import annotations

from dpjoin.engine.dialect import identifier
from dpjoin.engine.sources import connected, open_source, unreadable

SNIFFED_ROWS = 20_000
TEXT = "text"
_MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
_LOOKS = {
    "BOOLEAN": "lower({0}) IN ('true', 'false')",
    "BIGINT": r"regexp_full_match({0}, '[+-]?(0|[1-9]\d{{0,17}})')",
    "DOUBLE": r"regexp_full_match({0}, '[+-]?(0|[1-9]\d*)?(\.\d*)?([eE][+-]?\d+)?') "
    "AND TRY_CAST({0} AS DOUBLE) IS NOT NULL",
    "DATE": r"regexp_full_match({0}, '\d{{4}}-\d\d?-\d\d?') AND TRY_CAST({0} AS DATE) IS NOT NULL",
    "TIMESTAMP": "strlen({0}) >= 8 AND TRY_CAST({0} AS TIMESTAMP) IS NOT NULL",
    "TIME": r"regexp_full_match({0}, '\d\d?:\d\d(:\d\d(\.\d+)?)?')",
}
"""By type, narrowest first, what every text of such a column looks like. A number with leading zeros is a code."""

ODD = "text, as 3,5 or 31.12.2020"
_WHOLE = r"regexp_full_match({0}, '[+-]?\d+')"
_ODD = (
    r"regexp_full_match({0}, '[+-]?[\d. ]*,[\d.,]+|[$€£] ?[+-]?[\d.,]+|[+-]?[\d.,]+ ?[%$€£]"
    r"|\d\d?[./-]\d\d?[./-](\d\d)?\d\d( .*)?')"
)
"""Numbers and dates as people write them: a release reads them as text, and their owner should know before."""


def column_types(source: object, table: str | None = None, encoding: str | None = None) -> list[tuple[str, str]]:
    """Names and types of a source's columns; where the format has no types, those that its first rows look like."""
    with connected() as connection:
        opened = open_source(connection, "table", source, table=table, encoding=encoding)
        untyped = [c.name for c in opened.columns if c.untyped]
        if not untyped:
            return [(c.name, c.type) for c in opened.columns]
        missing = ", ".join(f"'{word}'" for word in _MISSING)
        tests = []
        for name in untyped:
            value = f"trim({identifier(name)})"
            present = f"lower({value}) NOT IN ({missing})"
            tests += [f"bool_and({look.format(value)}) FILTER ({present})" for look in _LOOKS.values()]
            odd, whole = _ODD.format(value), _WHOLE.format(value)
            tests.append(f"bool_and({odd} OR {whole}) FILTER ({present}) AND bool_or({odd})")
        with unreadable("table", opened.origin, "tabular"):
            rows = f"(SELECT * FROM {opened.view} LIMIT {SNIFFED_ROWS})"
            (found,) = connection.execute(f"SELECT {', '.join(tests)} FROM {rows}").fetchall()
        kinds, looks = (*_LOOKS, ODD), {}
        for i, name in enumerate(untyped):
            held = found[i * len(kinds) : (i + 1) * len(kinds)]
            looks[name] = next((kind for kind, holds in zip(kinds, held, strict=True) if holds), TEXT)
        return [(c.name, looks.get(c.name, c.type)) for c in opened.columns]
