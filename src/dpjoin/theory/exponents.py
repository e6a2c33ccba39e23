"""How large joins and their errors can be: exponents of the number of rows, from fractional edge covers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from dpjoin.spec.hypergraph import boundary
from dpjoin.spec.schema import Schema

LARGEST_DENOMINATOR = 10_000
"""Corners of a cover problem with up to 13 tables have denominators below this (largest 0/1 determinant: 9,477)."""


def agm_exponent(schema: Schema) -> Fraction:
    """ρ of the join: it has at most n^ρ results if no table repeats a row (Atserias, Grohe and Marx)."""
    return boundary_exponent(schema, frozenset(t.name for t in schema.tables))


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
    """A smallest fractional cover of a hypergraph by its edges, and a packing of its attributes with the same value.

    A cover's weights sum to ≥ 1 at every attribute, a packing's to ≤ 1 in every edge, so each proves that the other
    cannot be bettered. The solver's numbers are taken as the fractions next to them, and verified. Empty edges weigh 0.
    """
    from scipy.optimize import linprog

    holds = {a: frozenset(name for name, e in edges.items() if a in e) for a in sorted(set().union(*edges.values()))}
    if not holds:
        return dict.fromkeys(edges, Fraction(0)), {}
    matrix = [[-int(name in held) for name in edges] for held in holds.values()]
    solved = linprog([1] * len(edges), A_ub=matrix, b_ub=[-1] * len(holds), method="highs-ds")
    numbers = (solved.x, -solved.ineqlin.marginals)
    exact = [[Fraction(float(w)).limit_denominator(LARGEST_DENOMINATOR) for w in of] for of in numbers]
    cover, packing = dict(zip(edges, exact[0], strict=True)), dict(zip(holds, exact[1], strict=True))
    proofs = [sum(cover[name] for name in held) >= 1 for held in holds.values()]
    proofs += [sum(packing[a] for a in e) <= 1 for e in edges.values()]
    if not all([*proofs, sum(exact[0]) == sum(exact[1]), min(*exact[0], *exact[1]) >= 0]):
        raise ArithmeticError(f"the edge cover of {len(edges)} tables has no proof with small fractions")
    return cover, packing
