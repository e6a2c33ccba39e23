"""Rows from a model: post-processing, so public randomness with a seed is fine here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.spec.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 2**18
"""How many rows are drawn at a time: with thirty attributes their codes take 60 MB."""


def whole_counts(cells: FloatArray, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers that add up to `rows`, each cell rounded up or down at random without bias.

    Systematic rounding: one uniform offset for all cells, so every sum over consecutive cells is off by
    less than one.
    """
    edges = np.concatenate([[0.0], np.cumsum(_weights(cells))])
    # In two steps, so that the last edge is exact and an empty cell at the end gets no row.
    edges /= edges[-1]
    edges *= rows
    marks = np.floor(edges + rng.random())
    marks[0], marks[-1] = 0.0, rows
    counts: NDArray[np.int64] = np.diff(np.minimum(marks, marks[-1])).astype(np.int64)
    return counts


def drawn_counts(cells: FloatArray, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often each cell occurs among `rows` independent draws."""
    weights = _weights(cells)
    counts: NDArray[np.int64] = rng.multinomial(rows, weights / weights.sum()).astype(np.int64)
    return counts


def _weights(cells: FloatArray) -> FloatArray:
    """The cells in one line; all alike where there is nothing in any of them."""
    weights = cells.reshape(-1)
    return weights if weights.any() else np.ones_like(weights)


def rows_table(
    schema: Schema,
    attributes: tuple[str, ...],
    counts: NDArray[np.int64],
    order: NDArray[np.int64] | None = None,
) -> pa.Table:
    """One row per count, with the attributes' labels as columns. `order` shuffles the rows."""
    index = np.repeat(np.arange(len(counts)), counts)
    if order is not None:
        index = index[order]
    codes = np.unravel_index(index, schema.shape(attributes)) if attributes else ()
    return labelled(schema, dict(zip(attributes, codes, strict=True)), int(counts.sum()))


def labelled(schema: Schema, codes: Mapping[str, NDArray[np.int64]], rows: int) -> pa.Table:
    """Rows of codes with the attributes' labels as columns; numbered rows where there is no attribute."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for attribute, code in codes.items():
        labels = pa.array(list(schema.attribute(attribute).labels))
        if pa.types.is_string(labels.type):
            columns[attribute] = pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), labels)
        else:
            columns[attribute] = labels.take(pa.array(code))
    if not columns:
        columns["row"] = pa.array(np.arange(rows))
    return pa.table(columns)


def sampled_table(
    schema: Schema, model: Model | Joined, rows: int, rng: np.random.Generator, *, even: bool = False
) -> pa.Table:
    """Rows drawn from a model whose cells cannot be written down, some at a time; `even`: as close to it as can be."""
    import pyarrow as pa

    sizes = [min(CHUNK_ROWS, rows - done) for done in range(0, rows, CHUNK_ROWS)] or [0]
    return pa.concat_tables(labelled(schema, model.rows(n, rng, even=even), n) for n in sizes)
