"""Domains learned privately: how the budget is divided over columns, what a list holds, where the edges of bins are.

Rows of different tables pay for their own table's columns only; a person pays for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dpjoin import constants
from dpjoin.measure.progress import Progress
from dpjoin.measure.quantiles import noisy_edges
from dpjoin.measure.shares import half_width
from dpjoin.privacy.accounting import Budget, Composition, Concentrated
from dpjoin.privacy.columns import Column, ColumnOf, NoisyCounts
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.owners import rows_per_owner
from dpjoin.spec.dates import DATE
from dpjoin.spec.learning import WHOLE_TEXT
from dpjoin.spec.persons import owners_counted
from dpjoin.spec.schema import OTHER, REPLACE, Attribute, Schema


@dataclass(frozen=True)
class DomainCosts:
    """What each learned attribute may spend, and all of them together cost one row or one person."""

    total: Concentrated
    each: Mapping[str, Concentrated]
    """Of attributes of public tables nothing."""

    def half_width(self, schema: Schema, composition: Composition, attribute: str) -> int:
        """Of the noise on an attribute's list: a value is listed for certain above twice as many rows."""
        cost = self.each[attribute]
        return half_width(composition, cost.rho, cost.delta, moves=1, values=_moved(schema, attribute))


@dataclass(frozen=True)
class Learned:
    """A learned domain."""

    attribute: Attribute
    facts: Mapping[str, Any]
    """For the manifest: how large it is, from how many rows on a value is listed, what it cost."""
    ranked: tuple[Any, ...] = field(default=())
    """The values of a list, most frequent first."""

    @property
    def most(self) -> int:
        """Into how many values or bins it can be cut, at most; none where it cannot be smaller."""
        return len(self.ranked) if self.attribute.bins is None else len(self.attribute.bins) - 2

    def narrowed(self) -> Learned:
        """With half as many values, those that are most frequent; or with half as many bins."""
        if self.attribute.bins is not None:
            first, *inner, last = self.attribute.bins
            bins = (first, *inner[1::2], last)
            return Learned(replace(self.attribute, bins=bins), {**self.facts, "bins": len(bins) - 1})
        kept = self.ranked[: len(self.ranked) // 2]
        told = {**self.facts, "listed": len(kept), "left_out": int(self.facts.get("left_out", 0)) + len(self.ranked)}
        told["left_out"] -= len(kept)
        domain = replace(self.attribute, values=tuple(v for v in self.attribute.values or () if v in set(kept)))
        return Learned(domain, told, kept)


def domain_costs(schema: Schema, budget: Budget) -> DomainCosts:
    """Divide the share of a budget that goes to domains over the columns: public numbers. Tables have the same."""
    private = [a for a in schema.learned if schema.table(schema.owner(a)).private]
    free = {a: Concentrated(Fraction(0)) for a in schema.learned if a not in private}
    if not private:
        return DomainCosts(Concentrated(Fraction(0)), free)
    # One person pays for the columns of all tables, one row for those of its own.
    payers = [private] if schema.unit else [[a for a in private if schema.owner(a) == t] for t in schema.private_tables]
    most = max(map(len, payers))
    share = min(max(constants.DOMAIN_SHARE * most, constants.DOMAIN_LEAST), constants.DOMAIN_MOST)
    delta = budget.exact.delta * constants.DOMAIN_DELTA
    rho = budget.rho(truncation_delta=delta) * share
    each = dict(free)
    for columns in payers:
        lists = [a for a in columns if is_list(schema, a)]
        parts = {a: 1 if a in lists else constants.BINS_TO_LISTS for a in columns}
        for a, part in parts.items():
            of_delta = delta / len(lists) if a in lists else Fraction(0)
            each[a] = Concentrated(rho * part / sum(parts.values()), of_delta)
    used = max(sum((each[a].delta for a in columns), Fraction(0)) for columns in payers)
    return DomainCosts(Concentrated(rho, used), each)


def is_list(schema: Schema, attribute: str) -> bool:
    """Whether an attribute's values are listed, and not binned."""
    learn = schema.attribute(attribute).learned
    return learn is not None and learn.bins is None


def values_of_owner(schema: Schema, attribute: str) -> int:
    """At how many values of a list one owner counts."""
    table = schema.owner(attribute)
    return min(constants.VALUES_OF_OWNER, rows_per_owner(schema).get(table, constants.VALUES_OF_OWNER))


def _moved(schema: Schema, attribute: str) -> int:
    """How many values of a list one row or one owner moves; what the Curator says as well."""
    values = values_of_owner(schema, attribute)
    owned = owners_counted(schema, schema.table(schema.owner(attribute)))
    return (values if owned else 1) * (2 if schema.neighbours == REPLACE else 1)


def learn_domains(curator: Curator, costs: DomainCosts, progress: Progress) -> list[Learned]:
    """Learn every domain that is not declared, within these costs."""
    schema = curator.schema
    asked = [ColumnOf(attribute=a, values=values_of_owner(schema, a)) for a in schema.learned]
    columns = curator.columns("domains", asked, [costs.each[a] for a in schema.learned])
    found = []
    for done, column in enumerate(columns):
        progress("learn", done, len(columns))
        attribute, cost = schema.attribute(column.attribute), costs.each[column.attribute]
        if is_list(schema, column.attribute):
            width = costs.half_width(schema, curator.composition, column.attribute) if column.private else 0
            found.append(_listed(attribute, column, cost, width))
        else:
            found.append(_binned(attribute, column, cost))
    progress("learn", len(columns), len(columns))
    return found


def _listed(attribute: Attribute, column: Column, cost: Concentrated, width: int) -> Learned:
    """A list of the most frequent values that stand out; text that is whole numbers throughout becomes numbers."""
    assert attribute.learned is not None
    noisy = column.noisy_values(cost, half_width=width)
    known = {v: n for v, n in noisy.listed.items() if v != OTHER or not isinstance(v, str)}
    if column.kind == "untyped" and all(WHOLE_TEXT.fullmatch(str(v)) for v in known):
        known = {int(str(v)): n for v, n in known.items()}
    ranked: list[Any] = sorted(known, key=lambda v: (-known[v], repr(v)))
    kept = ranked[: attribute.learned.values]
    facts: dict[str, Any] = {"listed": len(kept), "listed_above": noisy.threshold, **_cost(column, cost)}
    facts |= {"left_out": len(ranked) - len(kept)} if len(ranked) > len(kept) else {}
    domain = replace(attribute, learn=None, values=tuple(sorted(kept)), other=True)
    return Learned(domain, facts, tuple(kept))


def _binned(attribute: Attribute, column: Column, cost: Concentrated) -> Learned:
    """Bins with edges at noisy quantiles; what is beyond the outermost ones, or no number, is `other`."""
    assert attribute.learned is not None
    assert attribute.learned.bins is not None
    whole = attribute.part is not None or column.kind in ("integer", "boolean") or attribute.learned.whole

    def count(edges: Sequence[float], share: float) -> NoisyCounts:
        return column.noisy_counts(edges, replace(cost, rho=cost.rho * Fraction(share).limit_denominator(1000)))

    edges = noisy_edges(count, attribute.learned.bins, whole=whole, part=attribute.part)
    if whole and attribute.part != DATE and edges[-1] - edges[0] < attribute.learned.bins:
        # So few whole numbers need no bins.
        domain = replace(attribute, learn=None, range=(int(edges[0]), int(edges[-1])), other=True)
        return Learned(domain, {"listed": domain.size - 1, **_cost(column, cost)})
    edges = edges if len(edges) > 1 else (edges[0], edges[0] + 1)
    facts = {"bins": len(edges) - 1, **_cost(column, cost)}
    return Learned(replace(attribute, learn=None, bins=edges, other=True), facts)


def _cost(column: Column, cost: Concentrated) -> dict[str, str]:
    return {"rho": str(cost.rho), "delta": str(cost.delta)} if column.private else {"rho": "0", "delta": "0"}
