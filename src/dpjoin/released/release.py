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
from dpjoin.released.rows import drawn_counts, rows_table, sampled_table, whole_counts
from dpjoin.spec.hypergraph import describe_join
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Average, Group, Workload

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SYNTHETIC_ROWS = 2_000_000
"""Above this join size `synthetic.parquet` is a scaled-down copy, and the manifest says by how much."""
SCALED_ROWS = 1_000_000
WRITTEN_CELLS = 2**22
"""Rows of a join of models with more cells are drawn without writing these down."""


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
        self.ledger.check_within(self.budget)
        if self.ledger.owner != self.schema.unit:
            raise BudgetError("a ledger must be of the unit that its schema protects")

    def __repr__(self) -> str:
        budget = f"epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}"
        return (
            f"<Release of {describe_join(self.schema)}: {self.method} ({self.profile}), {budget}, "
            f"noisy join size {self.join_size:,}, columns {', '.join(self.attributes)}>"
        )

    def answer(self, workload: Workload | Average | str | None = None) -> FloatArray:
        """One number per query, from the model. Queries may be a statement in SQL, as in `Workload.sql`, with AVG.

        nan for averages of no rows at all.
        """
        return _each(self._checked(workload), self._answer)

    def error(self, workload: Workload | Average | str | None = None, *, coverage: float = 0.9) -> FloatArray:
        """Half-widths of error bars, one per query: public, and meant to cover with the given probability.

        nan where the release knows no bar: queries that look at attributes never measured together.
        """
        if not 0 < coverage < 1:
            raise ReleaseError(f"coverage ({coverage}) must lie between 0 and 1; 0.9 is usual")
        return _each(self._checked(workload), lambda group: self._error(group, coverage))

    def _answer(self, group: Group | Average) -> FloatArray:
        return averages(self.model, group) if isinstance(group, Average) else self.model.answer(group)

    def _error(self, group: Group | Average, coverage: float) -> FloatArray:
        if isinstance(group, Average):
            return average_half_widths(self.model, group, coverage)
        return self.model.error(group, coverage)

    def _checked(self, workload: Workload | Average | str | None) -> Sequence[Group | Average]:
        groups: Sequence[Group | Average]
        if isinstance(workload, str):
            from dpjoin.spec.sql import parse_measures

            groups = parse_measures(self.schema, workload)
        elif isinstance(workload, Average):
            groups = (workload,)
        else:
            groups = (workload or self.workload).groups
        for group in groups:
            for attribute in group.scope:
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
    def rows_stand_for(self) -> float:
        """How many join results one row of `synthetic.parquet` stands for: 1 unless the join is huge."""
        return self.join_size / int(self.synthetic.num_rows)

    @property
    def _unwritten(self) -> Part | None:
        """The model, if its cells are too many to be written down."""
        if isinstance(self.model, Model):
            return self.model if self.model.tree is not None else None
        return self.model if isinstance(self.model, Joined) and self.model.domain.cells > WRITTEN_CELLS else None

    @cached_property
    def synthetic(self) -> pa.Table:
        """The synthetic rows that are saved with the release: whole rows, adding up to the noisy join size."""
        rows = self.join_size if self.join_size <= MAX_SYNTHETIC_ROWS else SCALED_ROWS
        if (model := self._unwritten) is not None:
            return sampled_table(self.schema, model, rows, np.random.default_rng(0), even=True)
        counts = whole_counts(self.model.table, rows, np.random.default_rng(0))
        return rows_table(self.schema, self.attributes, counts)

    def sample(self, n: int, *, seed: int) -> pa.Table:
        """n independent synthetic rows, in random order."""
        for what, number in (("rows", n), ("seed", seed)):
            if not isinstance(number, int | np.integer) or number < 0:
                raise ReleaseError(f"{what} ({number!r}) must be a whole number, at least 0")
        rng = np.random.default_rng(seed)
        if (model := self._unwritten) is not None:
            return sampled_table(self.schema, model, n, rng)
        counts = drawn_counts(self.model.table, n, rng)
        return rows_table(self.schema, self.attributes, counts, rng.permutation(n))

    def sql(self, statement: str) -> pa.Table:
        """DuckDB SQL over the synthetic rows, as the table `joined`."""
        import duckdb

        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            connection.register("joined", self.synthetic)
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


def _each(groups: Sequence[Group | Average], ask: Callable[[Group | Average], FloatArray]) -> FloatArray:
    """What each group gets, one after the other."""
    try:
        # Answers of large models are thousands of small products, for which two threads mostly wait for each other.
        with one_blas_thread():
            return np.concatenate([ask(group) for group in groups]) if groups else np.zeros(0)
    except TooLargeError as error:
        raise ReleaseError(str(error)) from None
