"""Where tables meet, from noisy ranks and noisy join sizes alone, and what a join of models would make of it.

Noisy ranks tell how many values have how many rows in each table, though not which. The size of the join tells how far
they are the same. That is enough to work out about how large the error of `per_table` would be, before it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from dpjoin.measure.laplace import ANYHOW
from dpjoin.measure.ranks import MOST_VALUES, chance_size, degree_sequence
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods.hybrid import clear_share, fitted_variance, marginals_of
from dpjoin.methods.parts import CLEAR, GUESSED, SHRINKAGE
from dpjoin.methods.table_models import Scope, measured_scopes
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import NoisyRanks
from dpjoin.privacy.public_tables import public_links
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

VARIES = 0.1
"""A model of all values learns from all of them what they have in common, so that it is off by less than one of a few
heavy values would be: how far a value's share in a cell is likely to be from that of others, squared, in its units."""
TOGETHER, APART = 1.6, 1.5
"""What two parts of the error of `per_table` count: fitted to 48 random pairs of `benchmarks/unseen.py` (seeds 200 to
247) and the first seven rows of `benchmarks/methods.py`, where the forecast is off by a factor of 1.5 on average."""
UNTOLD = 0.06
"""The third part, where noise drowns what tables say of each value: how the attributes of one go with those of others
is then lost. A guess at what is usual: joins of the development data, and random pairs, lose from next to nothing to
several times as much."""

DEGREES_KNOWN = 0.4
"""Of a table's budget, about what tells how many rows each value has."""
ALL_NOISE = 0.25
"""What the noise of all values together comes to, as a share, where there is nothing else: a fit then falls back on
what the attributes' values have in common."""
TANGLED = 3.0
"""By how much more a join of models is off where tables meet in a circle: what several keys have in common counts. Like
the number above, seen on 45 random joins of three and four tables (seeds 1000 to 1059)."""
DOUBT = 2.0
"""By how many deviations a noisy size may be off, where it tells how far the same values are frequent."""
HALVINGS = 40
"""How closely the degree is found to which frequent values are the same."""

Degrees = Mapping[str, FloatArray]
"""Each table's rows by value, the most first."""
Public = Mapping[tuple[str, Scope], FloatArray]
"""The same of public tables, by what values are of."""
NONE: Public = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Meeting:
    """Tables that meet by the values of some attributes: each one's rows by value, the most first."""

    rows: Degrees
    values: int
    aligned: float = 0.0
    """0: rows meet by chance. 1: the most frequent values of one table are those of every other."""

    def total(self, each: Degrees) -> float:
        """About the sum over values of the product of something that each table has for them, in the order of rows."""
        chance = chance_size(each.values(), self.values)
        return (1 - self.aligned) * chance + self.aligned * float(np.prod(list(each.values()), axis=0).sum())

    @property
    def size(self) -> float:
        return self.total(self.rows)


def public_degrees(curator: Curator) -> Public:
    """How many rows of each public table share a value, by what it shares with one other table and with all."""
    schema, found = curator.schema, {}
    for table, links in public_links(schema).items():
        for by in links:
            if not any(schema.attribute(a).key for a in by) and schema.cells(by) <= MOST_VALUES:
                rows = np.asarray(curator.public_counts(table, by), dtype=np.float64)
                found[table, by] = np.sort(rows)[::-1]
    return found


def meetings_of(schema: Schema, ranks: Sequence[NoisyRanks], size: float, public: Public = NONE) -> list[Meeting]:
    """Where ranks show how tables meet, if the join has about this size; nothing unless all tables are there.

    `public` tables are known as they are.
    """
    links: dict[Scope, dict[str, FloatArray]] = {}
    for r in ranks:
        links.setdefault(r.question.by, {})[next(iter(r.question.rules))] = degree_sequence(r)
    for by, found in links.items():
        for table in schema.tables:
            if not set(by) <= set(table.attributes) or table.name in found:
                continue
            if (table.name, by) in public:
                found[table.name] = public[table.name, by]
            elif _is_key(schema, table.name, by):
                found[table.name] = np.ones(min(schema.cells(by), MOST_VALUES))
    for (name, by), rows in reversed(list(public.items())):  # what it shares with all comes last
        if all(name not in found for found in links.values()):
            links.setdefault(by, {})[name] = rows
    if {t for found in links.values() for t in found} != {t.name for t in schema.tables}:
        return []
    return aligned_to(schema, [meeting(schema, by, found) for by, found in links.items()], size)


def alignments(
    schema: Schema, ranks: Sequence[NoisyRanks], size: NoisyTotal, public: Public = NONE
) -> tuple[float, float]:
    """Between which degrees the same values may be frequent in all tables, if the join has about this size."""
    ends = [max(1.0, size.noisy + sign * DOUBT * size.deviation) for sign in (-1, 1)]
    met = [meetings_of(schema, ranks, end, public) for end in ends]
    return (met[0][0].aligned, met[1][0].aligned) if all(met) else ANYHOW


def _is_key(schema: Schema, table: str, by: Scope) -> bool:
    """Whether a table is declared to have one row of a value at most."""
    return any(b.limit == 1 and set(b.attributes) <= set(by) for b in schema.table(table).bounds)


def meeting(schema: Schema, by: Scope, degrees: Degrees) -> Meeting:
    """Tables that meet by some attributes, with zeros for values that have no rows, as far as is written down."""
    values = schema.cells(by)
    written = min(values, MOST_VALUES)
    return Meeting({t: np.append(d, np.zeros(max(0, written - len(d))))[:written] for t, d in degrees.items()}, values)


def aligned_to(schema: Schema, meetings: Sequence[Meeting], size: float) -> list[Meeting]:
    """The same with frequent values as much the same, everywhere, as makes the join this large."""
    chance = by_chance(schema, meetings)
    least, most = ([replace(m, aligned=end).size for m in meetings] for end in (0.0, 1.0))
    larger = [high / low if low > 0 else 1.0 for low, high in zip(least, most, strict=True)]

    def too_small(aligned: float) -> bool:
        return chance * math.prod(1 - aligned + aligned * times for times in larger) < size

    low, high = (1.0, 1.0) if too_small(1.0) else (0.0, 1.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return [replace(m, aligned=low) for m in meetings]


def by_chance(schema: Schema, meetings: Sequence[Meeting]) -> float:
    """About the size of the join, if rows meet by chance."""
    found = math.prod(_rows(meetings).values())
    for a in schema.join_attributes:
        found /= schema.cells((a,)) ** (len(schema.tables_with(a)) - 1)
    return found


def is_tangled(schema: Schema) -> bool:
    """Whether tables meet in a circle: two of them in two ways, or each with the next until the first comes again."""
    links = {frozenset(schema.tables_with(a)) for a in schema.join_attributes}
    # One link after the other: one that has two tables which are connected already closes a circle.
    connected = [{t.name} for t in schema.tables]
    for link in links:
        if any(len(some & link) > 1 for some in connected):
            return True
        apart = [some for some in connected if not some & link]
        connected = [*apart, set().union(*(some for some in connected if some & link))]
    return False


def _rows(meetings: Sequence[Meeting]) -> dict[str, float]:
    """About how many rows each table has."""
    found: dict[str, float] = {}
    for place in meetings:
        for table, rows in place.rows.items():
            found[table] = max(found.get(table, 1.0), float(rows.sum()))
    return found


def per_table_error(workload: Workload, meetings: Sequence[Meeting], *, size: float, rho: Fraction) -> float:
    """The error of joining a model of each table, keys included, where the join has about this size.

    There is noise in what a table says of all values together, noise in what it says of each of them, and what it blurs
    because noise drowns single values. All but the first depend on whether frequent values are the same in all tables.
    """
    scopes = measured_scopes(workload) or [()]
    together = float(np.mean([_together(workload, _rows(meetings), scope, rho) for scope in scopes]))
    apart = float(np.mean([math.hypot(*(_apart(workload, m, scope, rho) for m in meetings)) for scope in scopes]))
    error = TOGETHER * together + APART * apart + UNTOLD * drowned_share(workload, meetings, rho)
    error += key_error(workload, meetings, rho)
    return size * error * (TANGLED if is_tangled(workload.schema) else 1.0)


def _together(workload: Workload, rows: Mapping[str, float], scope: Sequence[str], rho: Fraction) -> float:
    """The noise of what tables say of a scope for all values together, as a share."""
    found = 0.0
    for table, count in rows.items():
        own = _own(workload, table, scope)
        if own and workload.schema.table(table).private:
            deviation = math.sqrt(
                marginals_of(workload, table, workload.schema.join_attributes, sums=False) / (2 * float(rho))
            )
            noise = 0.4 * SHRINKAGE * workload.schema.cells(own) * deviation / max(1.0, count)
            found += noise * min(1.0, math.sqrt(0.4 * CLEAR / noise))  # as in `fitted_noise`
    return found / (1 + found / ALL_NOISE)


def _apart(workload: Workload, meeting: Meeting, scope: Sequence[str], rho: Fraction) -> float:
    """The noise of what tables say of a scope at each value, as a share: see `heavy_errors`."""
    both, clean = {}, {}
    for table, rows in meeting.rows.items():
        squared = (rows / workload.schema.cells(_own(workload, table, scope))) ** 2
        noise = _variance(workload, table, rho)
        left = fitted_variance(noise, VARIES * squared) if noise else 0.0
        both[table], clean[table] = squared + left, squared
    cells = workload.schema.cells(tuple(a for t in meeting.rows for a in _own(workload, t, scope)))
    noise = math.sqrt(max(0.0, meeting.total(both) - meeting.total(clean)))
    return 0.4 * SHRINKAGE * cells * noise / max(1.0, meeting.size)


def drowned_share(workload: Workload, meetings: Sequence[Meeting], rho: Fraction) -> float:
    """Of the join results, how many are at values of which noise drowns what some table says: see `blurred`."""
    return 1 - _right(workload, meetings, rho, lambda clear: clear)


def key_error(workload: Workload, meetings: Sequence[Meeting], rho: Fraction) -> float:
    """What it adds that the workload looks at the values that tables meet by: there errors do not even out.

    Of the marginals that do, a value that noise drowns is a guess; of others a part of the noise is left.
    """
    key, scopes = set(workload.schema.join_attributes), measured_scopes(workload) or [()]
    asked = sum(bool(key & set(scope)) for scope in scopes) / len(scopes)
    noise = 0.4 * SHRINKAGE / GUESSED
    return asked * GUESSED * (1 - _right(workload, meetings, rho, lambda c: c - noise * np.sqrt(c * (1 - c))))


def _right(
    workload: Workload, meetings: Sequence[Meeting], rho: Fraction, part: Callable[[FloatArray], FloatArray]
) -> float:
    """Which share of the join results is right, if each table has this part of its rows right."""
    key, private = workload.schema.join_attributes, workload.schema.private_tables
    found = 1.0
    for meeting in meetings:
        right = {
            t: rows * part(clear_share(workload, t, key, rows, rho)) if t in private else rows
            for t, rows in meeting.rows.items()
        }
        found *= min(1.0, meeting.total(right) / meeting.size) if meeting.size > 0 else 0.0
    return found


def _variance(workload: Workload, table: str, rho: Fraction) -> float:
    """Of the noise in a cell of a table's marginals; none in a public one."""
    if not workload.schema.table(table).private:
        return 0.0
    return marginals_of(workload, table, workload.schema.join_attributes, sums=False) / (2 * float(rho))


def _own(workload: Workload, table: str, scope: Sequence[str]) -> Scope:
    """What a scope has of a table, beside what tables meet by."""
    schema = workload.schema
    return tuple(a for a in scope if a in schema.table(table).attributes and a not in schema.join_attributes)


def flattened_size(schema: Schema, meetings: Sequence[Meeting], *, size: float, rho: Fraction) -> float | None:
    """By how many join results that join may be too small, where the join has this size; None: ranks do not tell.

    Noise hides how many rows each value has, so a fit pulls them towards each other: what values with many rows in all
    tables have beyond others is lost in part. That is what the join has beyond rows that meet by chance, and about the
    square root of as much again, if values with many rows meet by chance.
    """
    if len(meetings) != 1 or is_tangled(schema):
        return None
    (only,) = meetings
    values = only.values
    chance = chance_size(only.rows.values(), values)
    variance = 1 / (2 * float(rho) * DEGREES_KNOWN)
    spread = {t: float((r**2).sum()) / values - (float(r.sum()) / values) ** 2 for t, r in only.rows.items()}
    kept = math.prod(v / (v + variance) for t, v in spread.items() if schema.table(t).private)
    return (1 - kept) * math.hypot(max(0.0, size - chance), math.sqrt(values * math.prod(spread.values())))


def counted_doubt(workload: Workload, meeting: Meeting, *, rho: Fraction) -> float:
    """By how many join results the size by counted rows is likely to be off, where tables meet in one place.

    What a table counted of a value adds up its noise over the cells there; see `Joined.counted`.
    """
    schema = workload.schema
    variance = {}
    for table in meeting.rows:
        variance[table] = schema.cells(_own(workload, table, workload.attributes)) * _variance(workload, table, rho)
    squared = meeting.values * math.prod(variance.values())
    for table, noise in variance.items():
        others = [rows**2 for name, rows in meeting.rows.items() if name != table]
        squared += noise * float(np.prod(others, axis=0).sum())
    return math.sqrt(squared)
