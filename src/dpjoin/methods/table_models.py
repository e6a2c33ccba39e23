"""Model tables one by one: a row is in one table, so each may spend everything, and moves one cell by one.

At one value of the key the join is a cross product, so the join of the models is post-processing. The model of a public
table is the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.join import measure_join
from dpjoin.measure.laplace import ByValue
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.model.model import Model, clique_scopes
from dpjoin.model.terms import Domain
from dpjoin.privacy.accounting import Concentrated, laplace_cost
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.parts import LISTED
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, Scope, Workload, kronecker, widest

Count = Callable[[str, Scope], Numbers]
"""How many rows a public table has in each cell of some attributes."""


def shared_attributes(schema: Schema, common: Sequence[str]) -> tuple[str, ...]:
    """Join attributes beyond the common ones."""
    return tuple(a for a in schema.join_attributes if a not in common)


def check_joinable(schema: Schema, names: Sequence[str], method: str) -> None:
    """Refuse join attributes whose codes do not stand for one value each: models would join different values."""
    for name in names:
        a = schema.attribute(name)
        if a.key or a.bins is not None or a.other:
            has = "key = true" if a.key else "bins" if a.bins is not None else "other = true"
            raise SpecError(
                f"method {method!r} must know every value of join attribute {name!r}, which has {has}; "
                "declare its values or range, or use method 'auto'"
            )


def kept_attributes(workload: Workload, table: str, common: Sequence[str]) -> tuple[str, ...]:
    """What a table's model must tell apart: where it meets other tables, and what the workload asks of it."""
    schema = workload.schema
    wanted = {*shared_attributes(schema, common), *workload.attributes} - set(common)
    return tuple(a for a in schema.table(table).attributes if a in wanted)


def own_scopes(workload: Workload, table: str, common: Sequence[str]) -> list[tuple[str, ...]]:
    """The marginals of a table that the workload's queries are made of, without the listed value."""
    kept = kept_attributes(workload, table, common)
    shared = set(shared_attributes(workload.schema, common))
    return widest(tuple(a for a in kept if a in shared or a in g.scope) for g in workload.groups)


def measure_tables(
    workload: Workload,
    tables: Mapping[str, Curator],
    common: Sequence[str],
    *,
    listed: bool,
    progress: Progress,
    by_rank: Mapping[str, Sequence[ByValue]] | None = None,
) -> tuple[Model, ...]:
    """A model of each table over its listed value and the attributes it keeps. Spends all that is left to each.

    `by_rank` tells about how many rows values of some of a table's join attributes have.
    """
    models = []
    for n, (table, curator) in enumerate(tables.items()):
        scopes = asked = own_scopes(workload, table, common)
        head = (LISTED,) if listed else ()
        schema = curator.schema
        key = (*head, *shared_attributes(workload.schema, common))
        own_key = schema.in_order(set(key) & {a.name for a in schema.attributes})
        ranked = by_rank.get(table, ()) if by_rank is not None else ()
        links = [] if listed else links_of(workload.schema, table)
        bound = curator.public_bound()
        assert bound is not None, "a table by itself has sensitivity one"
        looks = [measure_total(curator, bound, cost) for cost in _for_size(curator)]
        total = reduce(NoisyTotal.combined, looks)
        if links:
            scopes = [s for s in asked if any(stands_out(by, schema.cells(s), schema.cells(by.key)) for by in ranked)]
            scopes += _with_enough_rows(schema, [s for s in asked if s not in scopes], key, links, total.noisy)
            scopes = widest(scopes)
        elif not listed:
            scopes = without_hidden(schema, asked, key, ranked, total.noisy / _deviation(curator, len(asked)))
        in_parts = bool(links) or set(scopes) != set(asked)
        groups = tuple(
            kronecker(schema, dict.fromkeys(schema.in_order(s), CELLS)) for s in (head + scope for scope in scopes) if s
        )
        # What replaces a hidden marginal costs no more than it would have: others are not to suffer from it.
        fewer = min(1.0, len(asked) / max(1, len(scopes))) ** 1.5 if not links else 1.0
        own = Workload(schema, groups, tuple(fewer * _importance(workload, g.scope) for g in groups))

        def say(stage: str, done: int, total: int, name: str = table) -> None:
            progress(f"table {name}: {stage}", done, total)

        also, implied = _parts_of(schema, scopes, key)
        if in_parts:
            also = [s for s in _parts_of(schema, asked, key)[0] if s not in scopes]
        if links:
            also += [s for s in _at_each_link(schema, asked, key, links) if s not in scopes]
        rows = next((by for by in ranked if set(by.key) == set(own_key)), None)
        model, _ = measure_join(
            curator, own, bound, total, say, also=also, implied=implied, by_value=rows, to_join=True, seed=1000 + n
        )
        models.append(replace(model, known=(*model.known, *map(frozenset, asked))) if in_parts else model)
    return tuple(models)


def public_model(count: Count, workload: Workload, table: str) -> Model:
    """A public table, counted by the attributes it keeps: nothing is spent, and nothing is uncertain."""
    kept = kept_attributes(workload, table, ())
    domain = Domain.split(dict(zip(kept, workload.schema.shape(kept), strict=True)))
    rows = np.asarray(count(table, domain.attributes), dtype=np.float64)
    plain = rows.reshape(domain.rows, domain.columns)
    return Model(domain, float(rows.sum()), plain=plain, known=(frozenset(kept),), certain=True)


def _for_size(curator: Curator) -> list[Concentrated]:
    """Of what a table has left, what goes to its number of rows.

    Where the rest is Laplace noise that is all of rho, and some of that noise if there is little rho.
    """
    rho = curator.rho_left
    if not curator.laplace_left:
        return [Concentrated(round_down(rho * constants.COUNT_SHARE))]
    laplace = laplace_cost(round_down(curator.laplace_left * constants.COUNT_SHARE))
    enough = 4 * rho > laplace.epsilon**2
    return [*([Concentrated(rho)] if rho else []), *([] if enough else [laplace])]


def _parts_of(schema: Schema, scopes: Sequence[Scope], key: Sequence[str]) -> tuple[list[Scope], list[Scope]]:
    """Of marginals of several attributes by value of the key: those of the attributes alone, and of each by value.

    How a table's attributes go together is hardly seen at any one value, and nor does how one of them changes with the
    value where it is cut by another.
    """
    own = dict.fromkeys(tuple(a for a in scope if a not in key) for scope in scopes)
    several = [scope for scope in own if len(scope) > 1]
    each = dict.fromkeys(a for scope in several for a in scope)
    return [schema.in_order(s) for s in several], [schema.in_order((*key, a)) for a in each]


def links_of(schema: Schema, table: str) -> list[Scope]:
    """By which attributes a table meets others, if not by the same all of them."""
    own = set(schema.table(table).attributes)
    shared = (schema.in_order(own & set(t.attributes)) for t in schema.tables if t.name != table)
    links = [s for s in dict.fromkeys(shared) if s]
    every = set().union(*links) if links else set()
    return [link for link in links if set(link) < every]


def stands_out(by_value: ByValue, cells: int, values: int) -> bool:
    """Whether most rows, as a join counts them, belong to values that have several in each of their cells.

    Then noise does not hide what counts, however many other cells there are. Rows of frequent values count more as far
    as other tables are likely to have the same ones.
    """
    rows, each, aligned = by_value.rows[by_value.rows > 0], max(1.0, cells / values), sum(by_value.correlation) / 2
    weight = rows * (aligned * rows + (1 - aligned) * float(rows.sum()) / max(1, len(rows)))
    return bool(weight[rows >= constants.SEVERAL * each].sum() > weight.sum() / 2)


def without_hidden(
    schema: Schema, scopes: Sequence[Scope], key: Sequence[str], ranked: Sequence[ByValue], rows: float
) -> list[Scope]:
    """The same marginals, but for those of several attributes by value of the key that noise hides: their parts.

    These are one attribute by value of the key each. What attributes have to do with each other at one value does not
    show there, and hundreds of thousands of potentials that stay where their prior is would take nearly all the time
    and a part of the budget. `rows` are in multiples of the noise's deviation.
    """
    found: dict[Scope, None] = {}
    for scope in scopes:
        at, own = ([a for a in scope if (a in key) == inside] for inside in (True, False))
        cells = schema.cells(scope)
        few = len(own) < 2 or cells <= constants.MANY_CELLS or cells <= constants.NOISE_OVER_ROWS * rows
        if few or any(stands_out(by, cells, schema.cells(by.key)) for by in ranked):
            found[scope] = None
        else:
            found |= dict.fromkeys(schema.in_order((*at, a)) for a in own)
    return widest(found)


def _deviation(curator: Curator, marginals: int) -> float:
    """About that of the noise in a cell, if so many marginals are measured with all that is left."""
    if curator.laplace_left:
        return math.sqrt(2) * marginals / float(curator.laplace_left)
    return math.sqrt(marginals / (2 * float(curator.rho_left)))


def _with_enough_rows(
    schema: Schema, scopes: Sequence[Scope], key: Sequence[str], links: Sequence[Scope], rows: float
) -> list[Scope]:
    """Of marginals that have more cells than the table has rows, their parts: noise would hide all of them.

    These are one attribute at each value of the key, or else at each value of every link, and the key's values.
    """
    found: dict[Scope, None] = {}
    for scope in scopes:
        at, own = (tuple(a for a in scope if (a in key) == inside) for inside in (True, False))
        each = [schema.in_order((*at, a)) for a in own]
        if schema.cells(scope) <= rows or not own:
            found[scope] = None
        elif all(schema.cells(s) <= rows for s in each):
            found |= dict.fromkeys(each)
        else:
            found |= dict.fromkeys([at, *(schema.in_order((*link, a)) for link in links for a in own)])
    return widest(found)


def _at_each_link(schema: Schema, scopes: Sequence[Scope], key: Sequence[str], links: Sequence[Scope]) -> list[Scope]:
    """Each attribute by value of each link: what noise hides where the values of several links are told apart."""
    each = dict.fromkeys(a for scope in scopes for a in scope if a not in key)
    return [schema.in_order((*link, a)) for link in links for a in each]


def _importance(workload: Workload, scope: Sequence[str]) -> float:
    """The largest importance of a group to which a table's marginal contributes all it has."""
    table = set(workload.attributes) & set(scope)
    return max((workload.importance_of(g) for g in workload.groups if table & set(g.scope) == table), default=1.0)


def measured_scopes(workload: Workload) -> list[tuple[str, ...]]:
    """The scopes that a workload's error is predicted over: those in no other."""
    return widest(clique_scopes(workload.groups) + [g.scope for g in workload.groups]) or [()]
