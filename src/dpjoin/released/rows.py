"""Rows from a model: post-processing, so public randomness with a seed is fine here.

A model knows bins, and rows have numbers: each is drawn evenly within its bin, by rules that `bin_ends` and
`numbers_within` state. Nobody may take them for more than their bin.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.spec.dates import DATE, FIRST_DAY, LAST_DAY
from dpjoin.spec.schema import Attribute, Schema
from dpjoin.spec.sql_tree import bins_name

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
    schema: Schema, attributes: tuple[str, ...], counts: NDArray[np.int64], rng: np.random.Generator
) -> pa.Table:
    """One row per count, in random order."""
    index = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    codes = np.unravel_index(index, schema.shape(attributes)) if attributes else ()
    return labelled(schema, dict(zip(attributes, codes, strict=True)), len(index), rng)


def sampled_table(
    schema: Schema, model: Model | Joined, rows: int, rng: np.random.Generator, *, even: bool = False
) -> pa.Table:
    """Rows drawn from a model whose cells cannot be written down, some at a time; `even`: as close to it as can be."""
    import pyarrow as pa

    sizes = [min(CHUNK_ROWS, rows - done) for done in range(0, rows, CHUNK_ROWS)] or [0]
    return pa.concat_tables(_chunk(schema, model, n, rng, even) for n in sizes)


def _chunk(schema: Schema, model: Model | Joined, rows: int, rng: np.random.Generator, even: bool) -> pa.Table:
    """Some rows in random order; each chunk is drawn from the whole model, so all of them are."""
    drawn = model.rows(rows, rng, even=even)
    order = rng.permutation(rows) if even else slice(None)
    return labelled(schema, {a: codes[order] for a, codes in drawn.items()}, rows, rng)


def labelled(schema: Schema, codes: Mapping[str, NDArray[np.int64]], rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows of codes as columns of numbers and labels, then the bins of numbers; numbered rows without attributes."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    bins: dict[str, Any] = {}
    for name, code in codes.items():
        attribute = schema.attribute(name)
        labels = pa.array(list(attribute.labels))
        if pa.types.is_string(labels.type):
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), labels)
        else:
            columns[name] = labels.take(pa.array(code))
        if attribute.bins is not None:
            bins[bins_name(schema, name)] = columns[name]
            columns[name] = numbers_within(attribute, code, rng)
        elif attribute.part == DATE:
            known = labels.filter(pa.array(np.arange(len(labels)) < attribute.size - attribute.other)).cast(pa.date32())
            columns[name] = pa.concat_arrays([known, pa.nulls(int(attribute.other), pa.date32())]).take(pa.array(code))
    if not columns:
        columns["row"] = pa.array(np.arange(rows))
    return pa.table(columns | bins)


def numbers_within(attribute: Attribute, codes: NDArray[np.int64], rng: np.random.Generator) -> pa.Array:
    """A number for each code of a binned attribute, drawn evenly within its bin; `other` is missing.

    Whole numbers where all finite edges are whole, otherwise floats; dates where the attribute has dates.
    """
    import pyarrow as pa

    edges = attribute.bins or ()
    ends = bin_ends(edges)
    dates = attribute.part == DATE
    ends = tuple(min(max(e, FIRST_DAY), LAST_DAY) for e in ends) if dates else ends
    missing = codes == len(edges) - 1
    at = np.where(missing, 0, codes)
    if all(e == math.floor(e) and abs(e) <= 2**53 for e in ends):
        whole = np.array(ends, dtype=np.int64)
        above = whole[1:].copy()
        above[-1] += math.isfinite(edges[-1])  # the last bin has its right edge
        numbers = rng.integers(whole[:-1][at], above[at])
    else:
        low, high = np.array(ends[:-1], dtype=np.float64)[at], np.array(ends[1:], dtype=np.float64)[at]
        share = rng.random(len(codes))
        numbers = np.clip(low * (1.0 - share) + high * share, low, np.nextafter(high, low))
    drawn = pa.array(numbers, mask=missing)
    return drawn.cast(pa.int32()).cast(pa.date32()) if dates else drawn


def bin_ends(edges: tuple[float, ...]) -> tuple[float, ...]:
    """The edges with finite ends: an endless bin is taken to be as wide as the bin next to it.

    Next to another endless one, as wide as the edge between them is far from zero, and at least 1.

    >>> bin_ends((-math.inf, 0, 15, 60, math.inf)), bin_ends((-math.inf, 32, math.inf)), bin_ends((-math.inf, math.inf))
    ((-15, 0, 15, 60, 105), (0, 32, 64), (0, 1))
    """
    finite = [e for e in edges if math.isfinite(e)]
    if not finite:
        return (0, 1)
    alone = len(finite) == 1
    first, last = (abs(finite[0]),) * 2 if alone else (finite[1] - finite[0], finite[-1] - finite[-2])
    most = sys.float_info.max
    below = () if edges[0] == finite[0] else (max(finite[0] - max(first, 1 if alone else 0), -most),)
    above = () if edges[-1] == finite[-1] else (min(finite[-1] + max(last, 1 if alone else 0), most),)
    return (*below, *finite, *above)
