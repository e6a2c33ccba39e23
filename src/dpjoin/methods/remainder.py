"""What is left to spend after a look: Gaussian noise, or Laplace noise in exchange, where few marginals are asked for.

The look at degrees and sizes costs little rho. What is left may be exchanged for Laplace noise (see `measure.laplace`).
Which of the two is better depends on what is measured with it, and so on the method that the look suggests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.join import is_large, varying_products
from dpjoin.measure.shares import with_laplace_options
from dpjoin.methods.method import gaussian_only
from dpjoin.methods.table_models import check_joinable, own_scopes
from dpjoin.model.model import clique_scopes
from dpjoin.privacy.accounting import Budget, Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


@dataclass(frozen=True)
class Remainder:
    """What is left, and what it is worth as rho of Gaussian noise."""

    one_table: Fraction
    """For marginals of single tables."""
    capped: Fraction
    """For those of a join in which rows are capped, or fade."""
    as_one: Fraction
    """For those of a join with all rows."""
    epsilon: Fraction = Fraction(0)
    """Of Laplace noise; none: it is Gaussian."""

    @property
    def laplace(self) -> bool:
        return self.epsilon > 0


def remainders(curator: Curator, workload: Workload) -> list[Remainder]:
    """The ways to go on: from public numbers alone."""
    rho, offer = curator.rho_left, curator.offer
    found = [Remainder(rho, rho, rho)]
    if offer is not None and offer.rho > rho * constants.LEAST_LEFT:
        found.append(laplace_remainder(workload, offer.epsilon))
    return found


def laplace_remainder(workload: Workload, epsilon: Fraction) -> Remainder:
    """With k marginals Laplace noise has k√2/ε, and Gaussian noise √(k/2ρ): equal for ρ = ε²/4k."""
    schema = workload.schema
    square = epsilon**2 / 4
    scopes = [own_scopes(workload, name, schema.join_attributes) for name in schema.private_tables]
    of_tables = max(len(own) * (constants.STAGES_MATTER if any(len(s) > 1 for s in own) else 1) for own in scopes)
    whole = square / (constants.ONE_STAGE * max(1, len(clique_scopes(workload.groups))))
    return Remainder(square / max(1, of_tables), whole / constants.CAPPED_L1, whole, epsilon)


def after_look_budget(budget: Budget, workload: Workload) -> Budget:
    """A budget that may be exchanged after a look, where Laplace noise may be the smaller one. Public.

    It is for single tables, where the values of join attributes are declared, and for joins whose bound is public.
    """
    schema, budget = workload.schema, gaussian_only(budget, workload)
    if varying_products(workload) or is_large(workload):
        return budget
    best = laplace_remainder(workload, budget.exact.epsilon * constants.LAPLACE_SHARE)
    worth = [best.as_one] if bound_is_public(schema) else []
    if len(schema.private_tables) == len(schema.tables) and joinable(schema):
        worth.append(best.one_table)
    return (
        with_laplace_options(budget, (constants.EARLY_LAPLACE, constants.LAPLACE_SHARE))
        if max(worth, default=0) > budget.rho()
        else budget
    )


def for_tables(budget: Budget, workload: Workload) -> Budget:
    """The same for single tables: if one is private, nothing is looked at first, and all may be Laplace. Public."""
    if workload.schema.unit:
        return gaussian_only(budget, workload)
    if len(workload.schema.private_tables) > 1:
        return after_look_budget(budget, workload)
    plain = gaussian_only(budget, workload)
    if varying_products(workload) or is_large(workload):
        return plain
    pays = laplace_remainder(workload, budget.exact.epsilon).one_table > plain.rho()
    return replace(budget, laplace=budget.exact.epsilon) if pays else plain


def joinable(schema: Schema) -> bool:
    """Whether all values of join attributes are declared."""
    try:
        check_joinable(schema, schema.join_attributes, "per_table")
    except SpecError:
        return False
    return True


def exchanged(curator: Curator, left: Remainder, count: Concentrated) -> Concentrated:
    """Go on with this noise; what there is then for the join size. After an exchange that is all of rho."""
    if not left.laplace:
        return count
    curator.exchange()
    return Concentrated(curator.rho_left)


def rest_of(curator: Curator) -> Concentrated:
    """All that is left to spend, as what a sub-instance may cost."""
    return Concentrated(curator.rho_left, epsilon=curator.laplace_left)
