"""How a release goes on after its first look: with Gaussian noise, or with Laplace noise, where few marginals are left.

A look at degrees and sizes costs little rho. What is left may be exchanged for Laplace noise (see `once`). Which of the
two is better depends on what is measured with it, and so on the method that the look suggests.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpjoin.errors import SpecError
from dpjoin.measure.composition import with_laplace_options
from dpjoin.measure.join import is_large, varying_products
from dpjoin.methods.table_models import check_joinable, own_scopes
from dpjoin.model.model import clique_scopes
from dpjoin.privacy.accounting import Budget, Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

AT_ONCE_SHARE = Fraction(9, 10)
"""Of epsilon, what there is of Laplace noise after ranks alone: enough is known where all values are clear."""
LAPLACE_SHARE = Fraction(75, 100)
"""Of epsilon, what there is of Laplace noise in exchange for rho. The rest buys about a sixteenth of rho, for the look
and for the size of the join. With more of Laplace noise shapes are better and sizes far worse."""
ONE_STAGE = 2
"""Gaussian noise on a join is spent in stages, and what the first ones tell makes it worth about twice its rho."""
LEAST_LEFT = Fraction(1, 500)
"""Of the rho that an exchange would give up, what it must leave: the size of the join is still to be measured."""
STAGES_MATTER = 64
"""Of a table with several attributes, noise drowns how they go together at single values or does not; Gaussian noise
finds out in stages, and Laplace noise is not worth it."""
PUSHED = 2
"""Where a new row pushes others out, or lets them fade, answers move by √2 times as much in l1 as in l2: squared."""


@dataclass(frozen=True)
class Finish:
    """What is left after a look, and what it is worth as rho of Gaussian noise."""

    alone: Fraction
    """For marginals of tables by themselves."""
    pushed: Fraction
    """For those of a join in which rows are capped, or fade."""
    whole: Fraction
    """For those of a join with all rows."""
    epsilon: Fraction = Fraction(0)
    """Of Laplace noise; none: it is Gaussian."""

    @property
    def laplace(self) -> bool:
        return self.epsilon > 0


def finishes(curator: Curator, workload: Workload) -> list[Finish]:
    """The ways to go on: from public numbers alone."""
    rho, offer = curator.rho_left, curator.offer
    found = [Finish(rho, rho, rho)]
    if offer is not None and offer.rho > rho * LEAST_LEFT:
        found.append(laplace_finish(workload, offer.epsilon))
    return found


def laplace_finish(workload: Workload, epsilon: Fraction) -> Finish:
    """With k marginals Laplace noise has k√2/ε, and Gaussian noise √(k/2ρ): equal for ρ = ε²/4k."""
    schema = workload.schema
    square = epsilon**2 / 4
    scopes = [own_scopes(workload, name, schema.join_attributes) for name in schema.private_tables]
    of_tables = max(len(own) * (STAGES_MATTER if any(len(s) > 1 for s in own) else 1) for own in scopes)
    whole = square / (ONE_STAGE * max(1, len(clique_scopes(workload.groups))))
    return Finish(square / max(1, of_tables), whole / PUSHED, whole, epsilon)


def with_options(budget: Budget, workload: Workload) -> Budget:
    """A budget that may be exchanged after a look, where Laplace noise may be the smaller one. Public.

    It is for tables by themselves, where the values they meet by are declared, and for joins whose bound is.
    """
    schema = workload.schema
    if varying_products(workload) or is_large(workload):
        return budget
    best = laplace_finish(workload, budget.exact.epsilon * LAPLACE_SHARE)
    worth = [best.whole] if bound_is_public(schema) else []
    if len(schema.private_tables) == len(schema.tables) and joinable(schema):
        worth.append(best.alone)
    return (
        with_laplace_options(budget, (AT_ONCE_SHARE, LAPLACE_SHARE)) if max(worth, default=0) > budget.rho() else budget
    )


def laplace_pays_alone(budget: Budget, workload: Workload) -> bool:
    """Whether all of epsilon as Laplace noise is worth more than rho to tables by themselves. Public."""
    if varying_products(workload) or is_large(workload):
        return False
    return laplace_finish(workload, budget.exact.epsilon).alone > budget.rho()


def joinable(schema: Schema) -> bool:
    """Whether all values that tables meet by are declared."""
    try:
        check_joinable(schema, schema.join_attributes, "per_table")
    except SpecError:
        return False
    return True


def exchanged(curator: Curator, finish: Finish, count: Concentrated) -> Concentrated:
    """Go on with this noise; what there is then for the join size. After an exchange that is all of rho."""
    if not finish.laplace:
        return count
    curator.exchange()
    return Concentrated(curator.rho_left)


def rest_of(curator: Curator) -> Concentrated:
    """All that is left to spend, as what a sub-instance may cost."""
    return Concentrated(curator.rho_left, epsilon=curator.laplace_left)
