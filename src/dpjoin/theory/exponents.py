"""How large joins and their errors can be: exponents of the number of rows, from fractional edge covers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from dpjoin.spec.hypergraph import boundary
from dpjoin.spec.schema import Schema

LARGEST_DENOMINATOR = 10_000
"""Corners of a cover problem with up to 13 tables have denominators below this (largest 0/1 determinant: 9,477)."""


def edge_cover(schema: Schema) -> dict[str, Fraction]:
    """A smallest fractional edge cover: weights of the tables that sum to ≥ 1 at every attribute.

    A join of sets with n rows each has at most n to the sum of the weights results (Atserias, Grohe and Marx).
    The weights are exact: a fractional packing of the attributes with the same value proves that none is smaller.
    """
    return cover_and_packing(_edges(schema, [t.name for t in schema.tables]))[0]


def agm_exponent(schema: Schema, among: frozenset[str] | None = None) -> Fraction:
    """ρ of the join of these tables (all, unless told): it has at most n^ρ results if no table repeats a row."""
    names = [t.name for t in schema.tables] if among is None else among
    return sum(cover_and_packing(_edges(schema, names))[0].values(), Fraction(0))


def boundary_exponent(schema: Schema, tables: frozenset[str]) -> Fraction:
    """ρ(H_{E,∂E}): at one value of their boundary these tables have at most n^ρ results if none repeats a row."""
    return sum(cover_and_packing(_edges(schema, tables, boundary(schema, tables)))[0].values(), Fraction(0))


def _edges(schema: Schema, tables: Iterable[str], without: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Each table with its attributes, but for some of them."""
    wanted = {schema.table(name).name for name in tables}
    return {t.name: frozenset(t.attributes) - set(without) for t in schema.tables if t.name in wanted}


def worst_case_error_exponent(schema: Schema, *, repeated_rows: bool = False) -> Fraction:
    """The exponent of n in the paper's worst-case error of MultiTable (appendix, Worst-Case Error Bound).

    Tables without repeated rows: sqrt(n^ρ(H) · max_{E ⊊ [m]} n^ρ(H_{E,∂E})), so (ρ(H) + max_E ρ(H_{E,∂E})) / 2.
    Tables with repeated rows: n^(m - 1/2).
    Logarithms of n, the number of queries and the domain, and the privacy parameters are not in the exponent.

    An attribute inside E but off its boundary is off the boundary of every larger set, so a cover for the larger
    set also serves E, and the maximum is attained where E leaves out one table.
    """
    if repeated_rows:
        return len(schema.tables) - Fraction(1, 2)
    everything = frozenset(t.name for t in schema.tables)
    largest = max(boundary_exponent(schema, everything - {name}) for name in everything)
    return (agm_exponent(schema) + largest) / 2


def cover_and_packing(edges: Mapping[str, Collection[str]]) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """A smallest cover of any hypergraph by its edges, and a packing of its attributes with the same value.

    A packing has weights that sum to ≤ 1 in every edge. Empty edges weigh nothing.
    """
    holds = {a: frozenset(name for name, e in edges.items() if a in e) for a in sorted(set().union(*edges.values()))}
    # Where the tables of one attribute are among those of another, covering the first covers the second.
    rows = {held: a for a, held in holds.items() if not any(other < held for other in holds.values())}
    if not rows:
        return dict.fromkeys(edges, Fraction(0)), {}
    matrix = [[int(name in held) for name in edges] for held in rows]
    cover = dict(zip(edges, _corner(matrix, cover=True), strict=True))
    packed = _corner(list(map(list, zip(*matrix, strict=True))), cover=False)
    packing = dict.fromkeys(holds, Fraction(0)) | dict(zip(rows.values(), packed, strict=True))
    covers = all(sum(cover[name] for name in held) >= 1 for held in rows)
    packs = all(sum(packing[a] for a in e) <= 1 for e in edges.values())
    weigh_alike = sum(cover.values()) == sum(packing.values())
    if not (covers and packs and weigh_alike and min(*cover.values(), *packing.values()) >= 0):
        raise ArithmeticError(f"the edge cover of {len(edges)} tables has no proof with small fractions")
    return cover, packing


def _corner(matrix: list[list[int]], *, cover: bool) -> list[Fraction]:
    """The fractions next to a solution of min Σw, Mw ≥ 1 (cover) or max Σw, Mw ≤ 1, w ≥ 0. The caller verifies."""
    from scipy.optimize import linprog

    sign = 1 if cover else -1
    signed = [[-sign * v for v in row] for row in matrix]
    solved = linprog([sign] * len(matrix[0]), A_ub=signed, b_ub=[-sign] * len(matrix), method="highs-ds")
    if not solved.success:
        raise ArithmeticError(f"the edge cover could not be computed: {solved.message}")
    return [Fraction(float(w)).limit_denominator(LARGEST_DENOMINATOR) for w in solved.x]
