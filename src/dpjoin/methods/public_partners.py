"""One private table with public ones: released as one join with them, or by itself and joined afterwards.

As one join, a row moves as many results as it meets rows of the public tables at most, and all marginals of the join
share the budget. By itself it moves one cell by one, and only marginals of its own table share the budget; but what the
public tables have multiplies the noise of every cell, and the noise of many keys adds up. Both errors follow from
public numbers, so that nothing is spent on choosing.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.measure.join import varying_products
from dpjoin.methods.as_one import as_one_name
from dpjoin.methods.noise_forecast import MEAN_DEVIATION, shape_noise, size_noise, table_noise
from dpjoin.methods.table_models import Count, measured_scopes, public_model
from dpjoin.model.joined import Joined
from dpjoin.model.terms import Domain, FloatArray
from dpjoin.spec.workload import CELLS, Scope, Workload, kronecker

PARTNER_CELLS = 2**22
"""Of the public tables' join, by the values that they share with the private table and a scope: larger ones are not
written down, and the join is released as one."""


def public_partner_errors(
    workload: Workload, count: Count, *, as_one: Fraction, one_table: Fraction
) -> dict[str, float]:
    """The error to expect of a release as one join and of the table by itself, in join results: public numbers.

    `as_one` and `one_table` are what the budget is worth as rho in either case. Nothing where that cannot be told:
    product queries are asked, the tables share nothing, or the public ones are too large.
    """
    schema = workload.schema
    (private,) = schema.private_tables
    links = schema.in_order(set(schema.table(private).attributes) & set(schema.join_attributes))
    met = {
        scope: schema.in_order({*links, *_of_others(workload, private, scope)}) for scope in measured_scopes(workload)
    }
    if varying_products(workload) or not links or max(map(schema.cells, met.values())) > PARTNER_CELLS:
        return {}
    names = schema.in_order(a for over in met.values() for a in over)
    others = (t.name for t in schema.tables if t.name != private)
    domain = Domain.split(dict(zip(names, schema.shape(names), strict=True)))
    public = Joined(domain, tuple(public_model(count, workload, table) for table in others))

    def rows_met(scope: Scope) -> FloatArray:
        """How many rows of the public tables together each value of these attributes has."""
        return public.answer(kronecker(schema, dict.fromkeys(scope, CELLS))).reshape(schema.shape(scope))

    bound = max(1.0, float(rows_met(links).max(initial=0.0)))
    deviation = math.sqrt(table_noise(workload, private, schema.join_attributes, one_table))
    noise = []
    for scope, over in met.items():
        summed = tuple(i for i, a in enumerate(over) if a in links and a not in scope)
        own = schema.cells([a for a in scope if a not in over])
        noise.append(own * float(np.sqrt((rows_met(over) ** 2).sum(axis=summed)).sum()))
    return {
        as_one_name(schema): shape_noise(workload, bound=bound, size=1.0, rho=as_one) + size_noise(bound, as_one),
        "per_table": MEAN_DEVIATION
        * constants.SHRINKAGE
        * deviation
        * float(np.mean(noise))
        / constants.ONE_TABLE_GAIN,
    }


def _of_others(workload: Workload, private: str, scope: Scope) -> set[str]:
    """What a scope has of the public tables."""
    return set(scope) - set(workload.schema.table(private).attributes)
