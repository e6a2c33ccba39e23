"""A Release: a function of public inputs and the Curator's noisy answers, and of nothing else.

Everything here is post-processing. A release can be asked, copied and published freely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjoin.canonical import flag, real, shown, whole
from dpjoin.errors import BudgetError, ReleaseError, suggest
from dpjoin.model.averages import average_half_widths, averages
from dpjoin.model.joined import Joined
from dpjoin.model.junction import TooLargeError
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Part, Union
from dpjoin.privacy.accounting import Budget
from dpjoin.privacy.ledger import Ledger
from dpjoin.released.bin_widths import widened
from dpjoin.released.result import Answers, to_pandas, to_polars
from dpjoin.released.rows import drawn_counts, rows_table, sampled_table, whole_counts
from dpjoin.released.shown import html_lines
from dpjoin.spec.hypergraph import describe_join
from dpjoin.spec.persons import protects
from dpjoin.spec.schema import Schema
from dpjoin.spec.sql import Measure, parse_measures
from dpjoin.spec.sql_tree import bins_name, with_bins
from dpjoin.spec.workload import Average, Group, Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from dpjoin.released.plot import Plot

MAX_SYNTHETIC_ROWS = 2_000_000
"""Above this join size `synthetic.parquet` is a scaled-down copy, and the manifest says by how much."""
SCALED_ROWS = 1_000_000
WRITTEN_CELLS = 2**22
"""Rows of a join of models with more cells are drawn without writing these down."""

Asked = Group | Average | Measure


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """An immutable released model with its guarantee, its ledger and its error bars."""

    schema: Schema
    workload: Workload
    budget: Budget
    method: str
    profile: str
    model: Part | Union
    ledger: Ledger
    facts: Mapping[str, Any]
    """Public facts of the run: the sensitivity bound, the noisy join size, the strategy."""

    def __post_init__(self) -> None:
        kinds = {"schema": Schema, "workload": Workload, "budget": Budget, "ledger": Ledger}
        for name, kind in {**kinds, "facts": Mapping}.items():
            given = getattr(self, name)
            # A subclass of a ledger could say that it is within any budget.
            if not isinstance(given, kind) or (name in kinds and type(given) is not kind):
                raise ReleaseError(
                    f"a release's {name} ({shown(given)}) must be a {kind.__name__}; dj.release makes "
                    "one, and dj.load opens one"
                )
        self.ledger.check_within(self.budget)
        if self.ledger.owner != self.schema.unit:
            raise BudgetError("a ledger must be of the unit that its schema protects")

    def __repr__(self) -> str:
        budget = f"epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}"
        return (
            f"<Release of {describe_join(self.schema)}: {self.method} ({self.profile}), {budget}, "
            f"noisy join size {self.join_size:,}, columns {', '.join(self.attributes)}>"
        )

    def _repr_html_(self) -> str:
        """The release in a notebook: what it is of, pictures of its attributes, its columns with error bars."""
        from dpjoin.released.plot import glance

        told = [
            f"Release of {describe_join(self.schema)}: {self.method} ({self.profile}), noisy join size "
            f"{self.join_size:,}",
            *(f"warning: {words}" for words in self.warnings),
        ]
        return html_lines(told) + "\n" + glance(self) + "\n" + self.describe()._repr_html_()

    @property
    def guarantee(self) -> str:
        """What is promised, and to whom, in one sentence."""
        budget = f"({self.budget.epsilon:g}, {self.budget.delta:g})"
        return f"{budget}-differential privacy for {protects(self.schema)}"

    def ask(self, statement: str, *, coverage: float = 0.9) -> Answers:
        """Answer a statement in SQL over the table `joined`: labelled rows with numbers and error bars.

        Counts, sums and averages come from the model, with bars that cover with the given probability. Whatever else
        SQL can say is computed over the synthetic rows, and has none. Also the numbers in bins: see `to_arrow`.
        """
        from dpjoin.released.query import ask

        return ask(self, statement, coverage=coverage)

    def describe(self, *, coverage: float = 0.9) -> Answers:
        """One row per column: its kind and domain, its most frequent value, how many rows have one, their average."""
        from dpjoin.released.query import describe

        return describe(self, coverage=coverage)

    def plot(self, first: str, second: str | None = None, *, kind: str | None = None, coverage: float = 0.9) -> Plot:
        """A picture of the counts of one attribute's values, or of the pairs of two, with their error bars.

        A notebook shows it; `save("carrier.svg")` writes it. Kinds: bars, lines (of one) and heat (of two).
        """
        from dpjoin.released.plot import plot

        return plot(self, first, second, kind=kind, coverage=coverage)

    def answer(self, workload: Workload | Average | Measure | str | None = None) -> FloatArray:
        """One number per query, from the model. Queries may be a statement in SQL, as in `Workload.sql`, with AVG.

        nan for averages of no rows at all.
        """
        return _each(self._checked(workload), self._answer)

    def error(self, workload: Workload | Average | Measure | str | None = None, *, coverage: float = 0.9) -> FloatArray:
        """Half-widths of error bars, one per query: public, and meant to cover with the given probability.

        nan where the release knows no bar: queries that look at attributes never measured together. A workload's sums
        take numbers to be at the middle of their bins. A statement's are of the numbers themselves, so that their bars
        are wider.
        """
        checked = checked_coverage(coverage)
        return _each(self._checked(workload), lambda group: self._error(group, checked))

    def _answer(self, group: Asked) -> FloatArray:
        if isinstance(group, Measure):
            return self._answer(group.asked)
        return averages(self.model, group) if isinstance(group, Average) else self.model.answer(group)

    def _error(self, group: Asked, coverage: float) -> FloatArray:
        if isinstance(group, Measure):
            return widened(self.model, group, self._error(group.asked, coverage), coverage)
        if isinstance(group, Average):
            return average_half_widths(self.model, group, coverage)
        return self.model.error(group, coverage)

    def _checked(self, workload: Workload | Average | Measure | str | None) -> Sequence[Asked]:
        groups: Sequence[Asked]
        if isinstance(workload, str):
            groups = parse_measures(self.schema, workload)
        elif isinstance(workload, Average | Measure):
            groups = (workload,)
        elif workload is None or isinstance(workload, Workload):
            groups = (self.workload if workload is None else workload).groups
        else:
            raise ReleaseError(f"a question ({shown(workload)}) must be a statement in SQL or a dj.Workload")
        for group in groups:
            for attribute in group.asked.scope if isinstance(group, Measure) else group.scope:
                if attribute not in self.model.domain.attributes:
                    raise ReleaseError(
                        f"attribute {attribute!r} is not in this release; {suggest(attribute, self.attributes)}"
                    )
        return groups

    @property
    def attributes(self) -> tuple[str, ...]:
        """The columns of the synthetic data."""
        return self.model.domain.attributes

    @property
    def join_size(self) -> int:
        """The noisy size of the join."""
        return int(self.facts["join_size"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What looked wrong when it was made: keys that hardly match, values written otherwise, nothing but noise."""
        return tuple(map(str, self.facts.get("warnings", ())))

    @property
    def rows_stand_for(self) -> float:
        """How many join results one row of `synthetic.parquet` stands for: 1 unless the join is huge."""
        return self.join_size / int(self.synthetic.num_rows)

    @property
    def _unwritten(self) -> Part | None:
        """The model, if its cells are too many to be written down."""
        if isinstance(self.model, Model):
            return self.model if self.model.tree is not None else None
        return self.model if isinstance(self.model, Joined) and self.model.domain.cells > WRITTEN_CELLS else None

    @property
    def synthetic(self) -> pa.Table:
        """The synthetic rows that are saved with the release: whole rows, adding up to the noisy join size."""
        return self.to_arrow()

    def to_arrow(self, *, bins: bool = False) -> pa.Table:
        """The synthetic rows, in random order.

        Where the model knows bins, numbers are drawn evenly within them: whole ones if all finite edges are whole, and
        within the width of its neighbour for an endless bin. `bins` adds the bins themselves, as text (`delay_bin`).
        """
        return self._selected(self._rows, bins)

    def to_pandas(self, *, bins: bool = False) -> Any:
        """The synthetic rows as a pandas DataFrame, as `to_arrow`."""
        return to_pandas(self.to_arrow(bins=bins))

    def to_polars(self, *, bins: bool = False) -> Any:
        """The synthetic rows as a Polars DataFrame, as `to_arrow`."""
        return to_polars(self.to_arrow(bins=bins))

    def _selected(self, rows: pa.Table, bins: bool) -> pa.Table:
        if flag(bins, "bins", error=ReleaseError) or not self.attributes:
            return rows
        return rows.select(list(self.attributes))

    @cached_property
    def _rows(self) -> pa.Table:
        rng = np.random.default_rng(0)
        rows = self.join_size if self.join_size <= MAX_SYNTHETIC_ROWS else SCALED_ROWS
        if (model := self._unwritten) is not None:
            return sampled_table(self.schema, model, rows, rng, even=True)
        return rows_table(self.schema, self.attributes, whole_counts(self.model.table, rows, rng), rng)

    def sample(self, n: int = 1000, *, seed: int | None = None, bins: bool = False) -> pa.Table:
        """n independent synthetic rows, in random order: others each time, or the same for the same seed."""
        n = whole(n, "rows", least=0, error=ReleaseError)
        if n >= 2**62:
            raise ReleaseError(f"rows ({shown(n)}) must fit into memory; ask for fewer, each part with its seed")
        rng = np.random.default_rng(None if seed is None else whole(seed, "seed", least=0, error=ReleaseError))
        if (model := self._unwritten) is not None:
            return self._selected(sampled_table(self.schema, model, n, rng), bins)
        counts = drawn_counts(self.model.table, n, rng)
        return self._selected(rows_table(self.schema, self.attributes, counts, rng), bins)

    def sql(self, statement: str) -> pa.Table:
        """DuckDB SQL over the synthetic rows, as the table `joined`, with columns of bins if one is named."""
        import duckdb

        if not isinstance(statement, str):
            raise ReleaseError(f"SQL ({shown(statement)}) must be a SELECT over the table joined")
        statement = with_bins(self.schema, statement)
        named = (bins_name(self.schema, a) for a in self.attributes if self.schema.attribute(a).bins is not None)
        bins = any(name.lower() in statement.lower() for name in named)
        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            connection.register("joined", self.to_arrow(bins=bins))
            try:
                return connection.sql(statement).to_arrow_table()
            except duckdb.Error as error:
                raise ReleaseError(f"SQL: {str(error).splitlines()[0]}") from None
            except AttributeError:
                raise ReleaseError("SQL must be a SELECT over the table joined") from None

    def manifest(self) -> dict[str, Any]:
        """The self-description of a release folder."""
        from dpjoin.released.files import manifest_of

        return manifest_of(self)

    def save(self, folder: str | Path) -> Path:
        """Write the release folder: all of it or nothing. The folder must not exist yet."""
        from dpjoin.released.files import save

        return save(self, folder)


def checked_coverage(coverage: float) -> float:
    """A probability that bars can cover with."""
    found = real(coverage, "coverage", error=ReleaseError)
    if not 0 < found < 1:
        raise ReleaseError(f"coverage ({coverage}) must lie between 0 and 1; 0.9 is usual")
    return found


def _each(groups: Sequence[Asked], ask: Callable[[Asked], FloatArray]) -> FloatArray:
    """What each group gets, one after the other."""
    try:
        # Answers of large models are thousands of small products, for which two threads mostly wait for each other.
        with one_blas_thread():
            return np.concatenate([ask(group) for group in groups]) if groups else np.zeros(0)
    except TooLargeError as error:
        raise ReleaseError(str(error)) from None
