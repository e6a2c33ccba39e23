"""Every error a user can meet.

DpjoinError                 one line: what (value) must be rule; what to do
├── SpecError               the spec, a schema or a workload is wrong (file and key named)
├── SourceError             a table's source cannot be opened or has the wrong columns
├── BudgetError             a charge would exceed the budget; nothing was drawn
└── ReleaseError            a release folder is missing, exists already, or cannot answer

SpecWarning                 a spec that is probably not meant so
├── JoinedTableWarning      a table looks like a join made beforehand
├── UnjoinedTableWarning    a table shares no attribute with any other
├── DeltaWarning            delta is so large that it hardly protects
└── PublicSourceWarning     a public table has the rows of a private one

No message holds a value that came from private rows: an error is an output.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DpjoinError(Exception):
    """Something the user can mend; the message says how."""


class SpecError(DpjoinError):
    """The spec, the schema or the workload breaks a rule."""


class SourceError(DpjoinError):
    """A table's source cannot be opened, or its columns do not fit the schema."""


class BudgetError(DpjoinError):
    """A charge exceeds what is left of the budget. Raised before any noise is drawn."""


class ReleaseError(DpjoinError):
    """A release cannot be written, read, or asked this."""


STOPPED = "Query interrupted"


class SpecWarning(UserWarning):
    """The spec is probably not meant so; the message says what to change."""


class JoinedTableWarning(SpecWarning):
    """The only private table looks like a join: the guarantee would be for a joined row."""


class UnjoinedTableWarning(SpecWarning):
    """A table shares no attribute with any other: the join is a cross product."""


class DeltaWarning(SpecWarning):
    """A delta so large that some rows might be published as they are."""


class PublicSourceWarning(SpecWarning):
    """A private and a public table have the same source: its rows go into the release as they are."""


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody stopped the program; DuckDB at work says so in an error of its own."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and str(error) == STOPPED)


def suggest(word: object, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known one, or all of them.

    >>> suggest("epsilom", ["epsilon", "delta"])
    "did you mean 'epsilon'?"
    >>> suggest("q", ["epsilon", "delta"])
    'known: delta, epsilon'
    >>> suggest("icu", ["ICU", "ward"])
    "did you mean 'ICU'?"
    """
    words, word = sorted(known), str(word)
    lower = {w.lower(): w for w in reversed(words)}
    near = get_close_matches(word, words, n=1) or [lower[w] for w in get_close_matches(word.lower(), lower, n=1)]
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(words)}"
