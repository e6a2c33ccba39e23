"""How correlated the degrees of tables are, from noisy ranks and noisy sizes, and what a join of models makes of it.

Noisy ranks tell how many values have how many rows in each table, though not which. The size of the join tells how far
frequent values are the same in all tables. That is enough to forecast the error of `per_table` before it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from dpjoin import constants
from dpjoin.measure.laplace import ANY_CORRELATION
from dpjoin.measure.ranks import RANKED_VALUES, chance_size, degree_sequence
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods.look import place
from dpjoin.methods.noise_forecast import MEAN_DEVIATION, after_fit, clear_share, fitted_variance, table_noise
from dpjoin.methods.table_models import measured_scopes
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import NoisyRanks
from dpjoin.privacy.public_tables import public_links
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Scope, Workload

HALVINGS = 40
"""How closely a correlation is found."""

Degrees = Mapping[str, FloatArray]
"""Each table's rows by value, the most first."""
Public = Mapping[tuple[str, Scope], FloatArray]
"""The same of public tables, by what values are of."""
NONE: Public = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class KeyDegrees:
    """The degrees of tables that share some attributes: each one's rows by value, the most first."""

    rows: Degrees
    values: int
    correlation: float = 0.0
    """0: rows meet by chance. 1: the most frequent values of one table are those of every other."""

    def total(self, each: Degrees) -> float:
        """About the sum over values of the product of something that each table has for them, in the order of rows."""
        chance = chance_size(each.values(), self.values)
        same = float(np.prod(list(each.values()), axis=0).sum())
        return (1 - self.correlation) * chance + self.correlation * same

    @property
    def size(self) -> float:
        return self.total(self.rows)


def public_degrees(curator: Curator) -> Public:
    """How many rows of each public table share a value, by what it shares with one other table and with all."""
    schema, found = curator.schema, {}
    for table, links in public_links(schema).items():
        for by in links:
            if not any(schema.attribute(a).key for a in by) and schema.cells(by) <= RANKED_VALUES:
                rows = np.asarray(curator.public_counts(table, by), dtype=np.float64)
                found[table, by] = np.sort(rows)[::-1]
    return found


def key_degrees(schema: Schema, ranks: Sequence[NoisyRanks], size: float, public: Public = NONE) -> list[KeyDegrees]:
    """The degrees that ranks show on each key, correlated as a join of this size tells; nothing unless all are known.

    `public` tables are known as they are.
    """
    links: dict[Scope, dict[str, FloatArray]] = {}
    for r in ranks:
        links.setdefault(r.question.by, {})[place(r)[0]] = degree_sequence(r)
    for by, found in links.items():
        for table in schema.tables:
            if not set(by) <= set(table.attributes) or table.name in found:
                continue
            if (table.name, by) in public:
                found[table.name] = public[table.name, by]
            elif any(b.limit == 1 and set(b.attributes) <= set(by) for b in table.bounds):
                found[table.name] = np.ones(min(schema.cells(by), RANKED_VALUES))
    for (name, by), rows in reversed(list(public.items())):  # what it shares with all comes last
        if all(name not in found for found in links.values()):
            links.setdefault(by, {})[name] = rows
    if {t for found in links.values() for t in found} != {t.name for t in schema.tables}:
        return []
    return correlated_to(schema, [on_key(schema, by, found) for by, found in links.items()], size)


def on_key(schema: Schema, by: Scope, degrees: Degrees) -> KeyDegrees:
    """Degrees by some attributes, with zeros for values that have no rows, as far as is written down."""
    values = schema.cells(by)
    kept = min(values, RANKED_VALUES)
    return KeyDegrees({t: np.append(d, np.zeros(max(0, kept - len(d))))[:kept] for t, d in degrees.items()}, values)


def correlation_range(
    schema: Schema, ranks: Sequence[NoisyRanks], size: NoisyTotal, public: Public = NONE
) -> tuple[float, float]:
    """Between which bounds the correlation lies, if the join has about this size."""
    ends = [max(1.0, size.noisy + sign * constants.SIZE_DOUBT * size.deviation) for sign in (-1, 1)]
    found = [key_degrees(schema, ranks, end, public) for end in ends]
    return (found[0][0].correlation, found[1][0].correlation) if all(found) else ANY_CORRELATION


def correlated_to(schema: Schema, keys: Sequence[KeyDegrees], size: float) -> list[KeyDegrees]:
    """The same with the correlation, alike on every key, that makes the join this large."""
    chance = size_by_chance(schema, keys)
    least, most = ([replace(k, correlation=end).size for k in keys] for end in (0.0, 1.0))
    larger = [high / low if low > 0 else 1.0 for low, high in zip(least, most, strict=True)]

    def too_small(correlation: float) -> bool:
        return chance * math.prod(1 - correlation + correlation * times for times in larger) < size

    low, high = (1.0, 1.0) if too_small(1.0) else (0.0, 1.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return [replace(k, correlation=low) for k in keys]


def size_by_chance(schema: Schema, keys: Sequence[KeyDegrees]) -> float:
    """About the size of the join, if rows meet by chance."""
    found = math.prod(_rows(keys).values())
    for a in schema.join_attributes:
        found /= schema.cells((a,)) ** (len(schema.tables_with(a)) - 1)
    return found


def is_berge_cyclic(schema: Schema) -> bool:
    """Whether tables meet in a circle: two of them by two keys, or each with the next until the first comes again."""
    links = {frozenset(schema.tables_with(a)) for a in schema.join_attributes}
    # One link after the other: one that has two tables which are connected already closes a circle.
    connected = [{t.name} for t in schema.tables]
    for link in links:
        if any(len(some & link) > 1 for some in connected):
            return True
        apart = [some for some in connected if not some & link]
        connected = [*apart, set().union(*(some for some in connected if some & link))]
    return False


def _rows(keys: Sequence[KeyDegrees]) -> dict[str, float]:
    """About how many rows each table has."""
    found: dict[str, float] = {}
    for key in keys:
        for table, rows in key.rows.items():
            found[table] = max(found.get(table, 1.0), float(rows.sum()))
    return found


def per_table_error(workload: Workload, keys: Sequence[KeyDegrees], *, size: float, rho: Fraction) -> float:
    """The error of joining a model of each table, keys included, where the join has about this size.

    There is noise in what a table says of all values together, noise in what it says of each of them, and what is
    lost at values with a low signal-to-noise ratio. All but the first depend on how correlated degrees are.
    """
    scopes = measured_scopes(workload)
    together = float(np.mean([_noise_over_all(workload, _rows(keys), scope, rho) for scope in scopes]))
    apart = float(np.mean([math.hypot(*(_noise_by_value(workload, k, scope, rho) for k in keys)) for scope in scopes]))
    error = (
        constants.NOISE_ERROR * together
        + constants.BY_VALUE_ERROR * apart
        + constants.UNTOLD * lost_to_noise(workload, keys, rho)
    )
    error += key_error(workload, keys, rho)
    return size * error * (constants.CYCLIC_FACTOR if is_berge_cyclic(workload.schema) else 1.0)


def _noise_over_all(workload: Workload, rows: Mapping[str, float], scope: Sequence[str], rho: Fraction) -> float:
    """The noise of what tables say of a scope for all values together, as a share."""
    found = 0.0
    for table, count in rows.items():
        if own := _own(workload, table, scope):
            deviation = math.sqrt(table_noise(workload, table, workload.schema.join_attributes, rho))
            noise = MEAN_DEVIATION * constants.SHRINKAGE * workload.schema.cells(own) * deviation / max(1.0, count)
            found += after_fit(noise)
    return found / (1 + found / constants.ALL_NOISE)


def _noise_by_value(workload: Workload, key: KeyDegrees, scope: Sequence[str], rho: Fraction) -> float:
    """The noise of what tables say of a scope at each value, as a share."""
    both, clean = {}, {}
    for table, rows in key.rows.items():
        squared = (rows / workload.schema.cells(_own(workload, table, scope))) ** 2
        noise = table_noise(workload, table, workload.schema.join_attributes, rho)
        left = fitted_variance(noise, constants.VALUES_VARY * squared) if noise else 0.0
        both[table], clean[table] = squared + left, squared
    cells = workload.schema.cells(tuple(a for t in key.rows for a in _own(workload, t, scope)))
    noise = math.sqrt(max(0.0, key.total(both) - key.total(clean)))
    return MEAN_DEVIATION * constants.SHRINKAGE * cells * noise / max(1.0, key.size)


def lost_to_noise(workload: Workload, keys: Sequence[KeyDegrees], rho: Fraction) -> float:
    """Of the join results, how many are at values of which some table tells nothing for noise."""
    return 1 - _right(workload, keys, rho, lambda clear: clear)


def key_error(workload: Workload, keys: Sequence[KeyDegrees], rho: Fraction) -> float:
    """What it adds that the workload asks about join attributes: there errors do not even out.

    Of the marginals that do, a value that is lost to noise is a guess; of others a part of the noise is left.
    """
    shared, scopes = set(workload.schema.join_attributes), measured_scopes(workload)
    asked = sum(bool(shared & set(scope)) for scope in scopes) / len(scopes)
    noise = MEAN_DEVIATION * constants.SHRINKAGE / constants.GUESSED
    return asked * constants.GUESSED * (1 - _right(workload, keys, rho, lambda c: c - noise * np.sqrt(c * (1 - c))))


def _right(
    workload: Workload, keys: Sequence[KeyDegrees], rho: Fraction, part: Callable[[FloatArray], FloatArray]
) -> float:
    """Which share of the join results is right, if each table has this part of its rows right."""
    shared, private = workload.schema.join_attributes, workload.schema.private_tables
    found = 1.0
    for key in keys:
        right = {
            t: rows * part(clear_share(workload, t, shared, rows, rho)) if t in private else rows
            for t, rows in key.rows.items()
        }
        found *= min(1.0, key.total(right) / key.size) if key.size > 0 else 0.0
    return found


def _own(workload: Workload, table: str, scope: Sequence[str]) -> Scope:
    """What a scope has of a table, without join attributes."""
    schema = workload.schema
    return tuple(a for a in scope if a in schema.table(table).attributes and a not in schema.join_attributes)


def size_shrinkage(schema: Schema, keys: Sequence[KeyDegrees], *, size: float, rho: Fraction) -> float | None:
    """By how many results a join of models may be too small, where the join has this size; None: ranks do not tell.

    Noise hides how many rows each value has, so a fit pulls them towards each other: what values with many rows in all
    tables have beyond others is lost in part. That is what the join has beyond rows that meet by chance, and about the
    square root of as much again, if values with many rows meet by chance.
    """
    if len(keys) != 1 or is_berge_cyclic(schema):
        return None
    (only,) = keys
    values = only.values
    chance = chance_size(only.rows.values(), values)
    variance = 1 / (2 * float(rho) * constants.DEGREES_KNOWN)
    spread = {t: float((r**2).sum()) / values - (float(r.sum()) / values) ** 2 for t, r in only.rows.items()}
    kept = math.prod(v / (v + variance) for t, v in spread.items() if schema.table(t).private)
    return (1 - kept) * math.hypot(max(0.0, size - chance), math.sqrt(values * math.prod(spread.values())))


def counted_deviation(workload: Workload, key: KeyDegrees, *, rho: Fraction) -> float:
    """By how many join results the size by counted rows is likely to be off, where tables share one key.

    What a table counted of a value adds up its noise over the cells there; see `Joined.counted`.
    """
    schema = workload.schema
    variance = {
        t: schema.cells(_own(workload, t, workload.attributes)) * table_noise(workload, t, schema.join_attributes, rho)
        for t in key.rows
    }
    squared = key.values * math.prod(variance.values())
    for table, noise in variance.items():
        others = [rows**2 for name, rows in key.rows.items() if name != table]
        squared += noise * float(np.prod(others, axis=0).sum())
    return math.sqrt(squared)
