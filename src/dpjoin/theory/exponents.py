"""How large joins and their errors can be: exponents of the number of rows, from fractional edge covers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    return cover_and_packing({t.name: t.attributes for t in schema.tables})[0]


def agm_exponent(schema: Schema) -> Fraction:
    """ρ of the join: it has at most n^ρ results if no table repeats a row."""
    return sum(edge_cover(schema).values(), Fraction(0))


def boundary_exponent(schema: Schema, tables: frozenset[str]) -> Fraction:
    """ρ(H_{E,∂E}): at one value of their boundary these tables have at most n^ρ results if none repeats a row."""
    fixed = set(boundary(schema, tables))
    edges = {name: set(schema.table(name).attributes) - fixed for name in sorted(tables)}
    return sum(cover_and_packing(edges)[0].values(), Fraction(0))


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
    if not holds:
        return dict.fromkeys(edges, Fraction(0)), {}
    matrix = [[int(name in held) for name in edges] for held in holds.values()]
    cover = dict(zip(edges, _corner(matrix, cover=True), strict=True))
    packing = dict(zip(holds, _corner(list(map(list, zip(*matrix, strict=True))), cover=False), strict=True))
    covers = all(sum(cover[name] for name in held) >= 1 for held in holds.values())
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
