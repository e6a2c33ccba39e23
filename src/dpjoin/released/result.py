"""What a release answers: labelled rows of numbers with error bars, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpjoin.errors import ReleaseError
from dpjoin.released.shown import NUMBERS, exact, html_lines, html_table, may_be_years, number, text_table
from dpjoin.spec.schema import OTHER, Attribute

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN = 60
"""Of a longer result a notebook or a prompt shows the beginning."""


@dataclass(frozen=True, repr=False)
class Answers:
    """A small result: labels, then numbers; `bars` has one half-width per number, or None where none is known."""

    labels: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[tuple[tuple[Any, ...], tuple[Any, ...], tuple[float | None, ...]], ...]
    coverage: float | None
    """None: the answers come from the synthetic rows and have no error bars."""
    notes: tuple[str, ...] = ()
    """What one should know of these numbers."""
    guarantee: str = ""
    domains: tuple[Attribute, ...] = ()
    """What each label is a value of, where it is one of an attribute."""
    plain: frozenset[str] = frozenset()
    """Titles of numbers that may be years: neither counts nor sums."""
    table: Any = field(default=None, compare=False)
    """The result over the synthetic rows, with its types."""

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        heads, rows = self.shown(ROWS_SHOWN)
        return "\n".join([text_table(heads, rows), *self._below()])

    def _repr_html_(self) -> str:
        return html_table(*self.shown(ROWS_SHOWN)) + "\n" + html_lines([*self._below(), self.guarantee])

    def _below(self) -> list[str]:
        more = len(self.rows) - ROWS_SHOWN
        return [f"… and {more:,} more rows"] * (more > 0) + [f"note: {note}" for note in self.notes]

    def shown(self, most: int | None = None) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as people read them; > marks columns of numbers."""
        rows = self.rows[:most]
        heads = list(self.labels)
        columns = [[str(labels[i]) for labels, _, _ in rows] for i in range(len(self.labels))]
        for i, title in enumerate(self.titles):
            values = [numbers[i] for _, numbers, _ in rows]
            numeric = all(isinstance(v, NUMBERS) or v is None for v in values)
            heads.append(f">{title}" if numeric else title)
            if self.coverage is None:
                written = [exact(v) for v in values]
            else:
                bars = [bars[i] for _, _, bars in rows]
                # Numbers with a bar are rounded to what the noise leaves.
                written = ["" if v is None else number(v, bar) for v, bar in zip(values, bars, strict=True)]
            if title in self.plain:
                written = [w.replace(",", "") if may_be_years([v]) else w for w, v in zip(written, values, strict=True)]
            elif self.coverage is None and may_be_years(values):
                written = [w.replace(",", "") for w in written]
            columns.append(written)
            if self.coverage is not None:
                heads.append(f">± {100 * self.coverage:g} %")
                columns.append(["" if v is None else number(bar) for v, bar in zip(values, bars, strict=True)])
        return heads, [list(row) for row in zip(*columns, strict=True)]

    def to_json(self) -> dict[str, Any]:
        rows = []
        for labels, numbers, bars in self.rows:
            row = dict(zip(self.labels, labels, strict=True)) | dict(zip(self.titles, numbers, strict=True))
            if self.coverage is not None:
                row |= {f"{title} ±": bar for title, bar in zip(self.titles, bars, strict=True)}
            rows.append(row)
        source = "model" if self.coverage is not None else "synthetic rows"
        return {"source": source, "coverage": self.coverage, "rows": rows, "notes": list(self.notes)}

    def to_arrow(self) -> pa.Table:
        """One column per label, then each number and its bar (`count`, `count ±`); bins know their order."""
        import pyarrow as pa

        if self.table is not None:
            return self.table
        columns: dict[str, Any] = {}
        for i, name in enumerate(self.labels):
            values = [labels[i] for labels, _, _ in self.rows]
            known = self.domains[i].labels if self.domains else ()
            if self.domains and self.domains[i].bins is not None:
                codes = {label: code for code, label in enumerate(known)}
                indices = pa.array([codes[v] for v in values], pa.int32())
                columns[name] = pa.DictionaryArray.from_arrays(indices, pa.array(known), ordered=True)
            elif known and not isinstance(known[0], str):
                missing = [None if v == OTHER else v for v in values]
                columns[name] = pa.array(missing, pa.bool_() if isinstance(known[0], bool) else pa.int64())
            else:
                columns[name] = pa.array(values, pa.string() if known else None)
        for i, title in enumerate(self.titles):
            columns[title] = pa.array([numbers[i] for _, numbers, _ in self.rows], pa.float64(), from_pandas=True)
            if self.coverage is not None:
                columns[f"{title} ±"] = pa.array([bars[i] for _, _, bars in self.rows], pa.float64())
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """A pandas DataFrame, as `to_arrow`."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """A Polars DataFrame, as `to_arrow`."""
        frame = to_polars(self.to_arrow())
        binned = {name: a for name, a in zip(self.labels, self.domains, strict=False) if a.bins is not None}
        if not binned:
            return frame
        import polars as pl

        return frame.cast({name: pl.Enum(list(a.labels)) for name, a in binned.items()})


def to_pandas(table: pa.Table) -> Any:
    try:
        return table.to_pandas()
    except ImportError:
        raise ReleaseError("pandas is not installed; install it, or use to_arrow()") from None


def to_polars(table: pa.Table) -> Any:
    try:
        import polars as pl
    except ImportError:
        raise ReleaseError("Polars is not installed; install it, or use to_arrow()") from None
    return pl.from_arrow(table)
