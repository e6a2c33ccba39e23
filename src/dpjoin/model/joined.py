"""A join of models: one per table, multiplied where the tables meet and added up over everything they share.

At a fixed value b of the common key the join is a cross product, so F(cells) = sum_b prod_j F_j(b, cells_j). The
attribute `listed` numbers the values b. Join attributes with a domain that several tables' models have are multiplied
at each of their values likewise. Answers come from small marginals of each table, never from all cells of the join.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dpjoin.model.factor import Factor, contracted, contraction, product, sizes_of
from dpjoin.model.junction import Ancestral, Passes
from dpjoin.model.model import Estimate, Model
from dpjoin.model.terms import Domain, FloatArray, Scope
from dpjoin.model.triangulate import tree_of
from dpjoin.spec.workload import Group, IntArray, Kronecker, Products

TOGETHER_CELLS = 2**21
"""Listed values are taken together as long as what lies between the tables and the result stays this small."""
CACHE_BYTES = 2**24
"""Marginals of the tables are kept up to this much."""
MOST_DRAWN_CELLS = 2**27
"""Rows are drawn from a join whose models, joined pairwise where they form cycles, have at most so many cells."""
LEAST_COUNT = 1e-300
QUERY = "\0query"
"""The axis of product queries, beside those of attributes; no attribute is called so."""


@dataclass(frozen=True, eq=False)
class Joined(Estimate):
    """The natural join of one model per table, as an estimate on the cells of the workload.

    Attributes of different tables are different, but for `listed` and for join attributes with a domain.
    """

    domain: Domain
    tables: tuple[Model, ...]
    listed: str | None = None
    """The attribute of the tables' models that numbers the listed values of the common key."""
    codes: Mapping[str, IntArray] = field(default_factory=dict)
    """For the key's attributes that the workload looks at, the code of each listed value; the ones that have no code
    (-1) in one of them are in no cell, and left out."""

    def __post_init__(self) -> None:
        if not self.tables:
            raise ValueError("a join of models must have at least one table")
        for table in self.tables:
            for a in table.domain.attributes:
                if {table.domain.sizes[a], self.domain.sizes.get(a, self._sizes[a])} != {self._sizes[a]}:
                    raise ValueError(f"attribute {a!r} must have the same size in every table of the join")
        if self.listed is not None and (self.listed not in self._sizes or self.listed in self.domain.attributes):
            raise ValueError(f"{self.listed!r} must be an attribute of a table's model, and none of the workload's")
        for a, codes in self.codes.items():
            if self.listed is None or a in self._sizes or a not in self.domain.attributes:
                raise ValueError(f"attribute {a!r} has codes: it must be the workload's, and in no table's model")
            if codes.shape != (self._sizes[self.listed],) or codes.dtype.kind != "i":
                raise ValueError(f"the codes of {a!r} must be whole numbers, one per listed value")
            if len(codes) and not -1 <= codes.min() <= codes.max() < self.domain.sizes[a]:
                raise ValueError(f"the codes of {a!r} must lie between -1 and {self.domain.sizes[a] - 1}")
        if missing := [a for a in self.domain.attributes if a not in self._sizes and a not in self.codes]:
            raise ValueError(f"attribute {missing[0]!r} must be in a table's model or have codes")

    # -- structure -----------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The sizes of the attributes of all tables."""
        return {a: table.domain.sizes[a] for table in self.tables for a in table.domain.attributes}

    @cached_property
    def links(self) -> frozenset[str]:
        """The attributes by which tables meet."""
        every = [a for table in self.tables for a in table.domain.attributes]
        return frozenset(a for a in every if a == self.listed or every.count(a) > 1)

    @cached_property
    def _live(self) -> IntArray | None:
        """The listed values that have a code in every attribute; None: all of them."""
        inside = [codes >= 0 for codes in self.codes.values()]
        if all(part.all() for part in inside):
            return None
        return np.flatnonzero(np.all(inside, axis=0))

    @cached_property
    def _code(self) -> dict[str, IntArray]:
        """The codes of the live listed values."""
        return {a: codes if self._live is None else codes[self._live] for a, codes in self.codes.items()}

    def knows(self, scope: Sequence[str]) -> bool:
        """Whether error bars are known within a scope."""
        wanted = self.links.union(scope)
        return all(table.knows(tuple(wanted.intersection(table.domain.attributes))) for table in self.tables)

    # -- answers -------------------------------------------------------------------------------------

    @cached_property
    def total(self) -> float:
        return float(self._marginal((), None))

    @cached_property
    def table(self) -> FloatArray:
        """Cells as a matrix, left by right."""
        return self.tabulated()

    def tabulated(self) -> FloatArray:
        """The table, worked out anew and not kept."""
        return self._marginal(self.domain.attributes, None).reshape(self.domain.rows, self.domain.columns)

    @cached_property
    def member_totals(self) -> FloatArray:
        """The size of each join of members."""
        return np.array([float(self._marginal((), m)) for m in range(self._members)])

    @cached_property
    def by_chance(self) -> float:
        """The size of the join if each table's rows were spread evenly over what tables meet by."""
        found = math.prod(table.total for table in self.tables)
        for a in self.links:
            found /= self._sizes[a] ** (sum(a in table.domain.attributes for table in self.tables) - 1)
        return found

    @cached_property
    def link_certainty(self) -> float:
        """How much of what values of the links differ by the models have seen: one if they are sure, zero if not."""
        shares = []
        for number, table in enumerate(self.tables):
            links = self.links & set(table.domain.attributes)
            rows = self._factor(number, None, links).array
            unsure = [float(((self._factor(number, m, links).array - rows) ** 2).mean()) for m in range(self._members)]
            seen = float(rows.var())
            doubt = float(np.mean(unsure)) if unsure else 0.0
            shares.append(seen / (seen + doubt) if seen + doubt else 1.0)
        return math.prod(shares)

    @cached_property
    def counted(self) -> tuple[float, float] | None:
        """The size of the join by each table's rows where tables meet, as noise left them, and about how far off it is.

        A join of models is too small: they have no negative cells, and pull values together. Noise in one table has
        nothing to do with that in others, so products of what they counted are unbiased, and so is their sum. Its
        variance is about that of each table's noise, times what others counted there, squared; their noise makes that a
        little too large. None where a table did not count what it meets others by.
        """
        factors, variances = [], []
        for table in self.tables:
            names = tuple(a for a in table.domain.attributes if a in self.links)
            found = table.counted(names)
            if found is None:
                return None
            factors.append(Factor(names, found[0]))
            variances.append(found[1])
        size = float(_contracted(factors, (), None))
        squared = 0.0
        for n, (factor, variance) in enumerate(zip(factors, variances, strict=True)):
            others = _contracted([f for i, f in enumerate(factors) if i != n], factor.names, None)
            squared += variance * float((others**2).sum())
        return size, math.sqrt(squared)

    def resized(self, total: float, deviation: float) -> Joined:
        """The same shape with another size, known from elsewhere: one table's model is scaled, and so are its members.

        Each join of members gets a size that is off by about the deviation, whatever size it has now.
        """
        counts = [len(table.members) for table in self.tables]
        which = int(np.argmax(counts))
        table = self.tables[which]
        # Public randomness: the members stand for what is uncertain.
        off = deviation * np.random.default_rng(len(counts)).standard_normal(counts[which])
        sizes = np.maximum(total + off, 1.0) / np.maximum(self.member_totals[: counts[which]], 1.0)
        scaled = table.scaled(total / max(self.total, 1.0), sizes.tolist())
        return replace(self, tables=(*self.tables[:which], scaled, *self.tables[which + 1 :]))

    @cached_property
    def _members(self) -> int:
        return max(len(table.variants) for table in self.tables)

    def answer(self, group: Group) -> FloatArray:
        """The group's answers on the join of the models."""
        return self._answer(group, None)

    @property
    def shared(self) -> float:
        """See `Estimate`."""
        return max((part.shared for part in self.tables), default=0.0)

    def spreads(self, group: Group) -> list[FloatArray]:
        """How far the answers of each join of members are from the estimate's: one independent part."""
        # The tables' noise is independent, and so are their members: one of each, as they come, is a plausible join.
        answers = [self._answer(group, m) for m in range(self._members)]
        return [np.array(answers) - self.answer(group)] if answers else []

    def unfitted(self, group: Group) -> FloatArray | float:
        """The variance of a marginal's cells that members do not have, because rows are whole."""
        if isinstance(group, Kronecker) and group.is_marginal and self.listed is None:
            return self.grain(group.scope).reshape(-1)
        return 0.0

    def grain(self, scope: tuple[str, ...]) -> FloatArray:
        """The variance that a scope's cells have because rows are whole, where they are below the noise.

        Cells of a table below the noise have about the same number of rows in its model and in all of its members, m
        of them, which need not be a whole number. In truth some have none and some have several: their variance is
        about m. Of cells above the noise the members know how far off they are.
        """
        factors, found = self._factors(scope, None), np.zeros([self._sizes[a] for a in scope])
        for n, (rows, table) in enumerate(zip(factors, self.tables, strict=True)):
            if table.members:
                noise = table.variance(rows.names)
                clear = np.divide(rows.array, noise, where=noise > 0, out=np.full(rows.array.shape, np.inf))
                others = [Factor(f.names, f.array**2) for i, f in enumerate(factors) if i != n]
                hidden = Factor(rows.names, rows.array / (1 + clear) ** 2)
                found += _contracted([hidden, *others], scope, None)
        return found

    def slack(self, group: Group) -> FloatArray:
        """What the tables' floors add to each query's bar."""
        return np.full(len(group), self._floor * group.max_abs * float(group.unit))

    @cached_property
    def _floor(self) -> float:
        """How far off a query with weights up to one is at most if every table is off by its floor.

        prod T_j - prod F_j = sum_j (prod_{i<j} T_i) (T_j - F_j) (prod_{i>j} F_i), and a table's rows are weighted by
        what the others have where they meet.
        """
        links = [frozenset(table.domain.attributes) & self.links for table in self.tables]
        bounds = [self._factor(i, None, names) for i, names in enumerate(links)]
        total = 0.0
        for j, table in enumerate(self.tables):
            if table.floor:
                others = [f for i, f in enumerate(bounds) if i != j]
                meet = tuple(a for a in bounds[j].names if any(a in f.names for f in others))
                most = _contracted(others, meet, self.listed) if others else np.ones(1)
                total += table.floor * float(most.max(initial=0.0))
                bounds[j] = Factor(bounds[j].names, bounds[j].array + table.floor)
        return total

    def rows(self, rows: int, rng: np.random.Generator, *, even: bool = False) -> dict[str, IntArray]:
        """Synthetic rows, one array of codes per attribute, without the join's cells; `even` as in `Calibrated.sample`.

        The join of the tables' models is a log-linear model with a clique for each table.
        """
        codes = self._ancestral.sample(rows, rng, even=even)
        return {a: codes[a] for a in self.domain.attributes}

    @cached_property
    def _ancestral(self) -> Ancestral:
        if self.listed is not None:
            raise ValueError("rows are drawn from a join of models only if no values are listed")
        tree = tree_of(self._sizes, [table.domain.attributes for table in self.tables])
        tree.check(MOST_DRAWN_CELLS)
        logits = [np.log(np.maximum(table.table, LEAST_COUNT)).reshape(-1) for table in self.tables]
        return Passes(tree, np.float64).ancestral(np.concatenate(logits))

    # -- sums of products ----------------------------------------------------------------------------

    @cached_property
    def _kept(self) -> dict[tuple[int, int, frozenset[str]], Factor]:
        return {}

    def _factor(self, number: int, member: int | None, names: frozenset[str]) -> Factor:
        """The marginal of a table's model, or of one of its members, over live listed values; `listed` comes first."""
        model = self.tables[number]
        which = -1 if member is None or not model.variants else member % len(model.variants)
        key = (number, which, names)
        if key in self._kept:
            return self._kept[key]
        ordered = tuple(sorted((a for a in model.domain.attributes if a in names), key=lambda a: a != self.listed))
        array = (model.marginal if which < 0 else model.variants[which])(ordered)
        if self._live is not None and self.listed in ordered:
            array = array[self._live]
        made = Factor(ordered, np.asarray(array, order="C"))
        if made.array.nbytes <= CACHE_BYTES:
            if sum(f.array.nbytes for f in self._kept.values()) + made.array.nbytes > CACHE_BYTES:
                self._kept.clear()
            self._kept[key] = made
        return made

    def _factors(self, scope: Sequence[str], member: int | None) -> list[Factor]:
        """What each table has to say of a scope."""
        wanted = self.links | set(scope)
        return [self._factor(i, member, wanted & set(t.domain.attributes)) for i, t in enumerate(self.tables)]

    def _answer(self, group: Group, member: int | None) -> FloatArray:
        if isinstance(group, Products):
            answers = self._products(group, member)
        else:
            answers = group.apply(self._marginal(group.scope, member))
        return np.asarray(answers, dtype=np.float64) * float(group.unit)

    def _marginal(self, scope: tuple[str, ...], member: int | None) -> FloatArray:
        """The cells of a scope, axes in its order."""
        factors = self._factors(scope, member)
        keys = tuple(a for a in scope if a in self._code)
        rest = tuple(a for a in scope if a not in self._code)
        if not keys:
            return _contracted(factors, rest, self.listed)
        assert self.listed is not None
        sizes = [self.domain.sizes[a] for a in keys]
        flat = np.ravel_multi_index(tuple(self._code[a] for a in keys), sizes)
        # In the order of their cells, so that the listed values of a cell lie side by side and are summed as they are.
        order = np.argsort(flat, kind="stable")
        factors = [Factor(f.names, f.array[order] if self.listed in f.names else f.array) for f in factors]
        cells = _contracted(factors, rest, self.listed, (math.prod(sizes), flat[order]))
        shaped = cells.reshape([*sizes, *(self._sizes[a] for a in rest)])
        return np.transpose(shaped, [(keys + rest).index(a) for a in scope])

    def _products(self, group: Products, member: int | None) -> FloatArray:
        """Answers to product queries, in units: each table is weighted before the tables are joined."""
        factors = self._factors(group.scope, member)
        loose, links_and_scope = [], {QUERY, *self.links, *group.scope}
        for attributes, whole in group.parts:
            weights = self._weights(attributes, whole)
            own = [i for i, f in enumerate(factors) if set(weights.names) - {QUERY} <= set(f.names)]
            if own:
                factors[own[0]] = product(weights, factors[own[0]], links_and_scope - (set(attributes) - self.links))
            else:
                loose.append(weights)
        return _contracted([*factors, *loose], (QUERY,), self.listed)

    def _weights(self, attributes: tuple[str, ...], whole: IntArray) -> Factor:
        """The weights of a part of product queries; those of the key's attributes at each live listed value."""
        array = whole.astype(np.float64).reshape([-1, *(self.domain.sizes[a] for a in attributes)])
        keys = [a for a in attributes if a in self._code]
        if keys:
            array = np.moveaxis(array, [1 + attributes.index(a) for a in keys], range(len(keys)))
            array = np.moveaxis(array[tuple(self._code[a] for a in keys)], 0, 1)
            assert self.listed is not None
            return Factor((QUERY, self.listed, *(a for a in attributes if a not in keys)), array)
        return Factor((QUERY, *attributes), array)


def _contracted(
    factors: Sequence[Factor], keep: Scope, listed: str | None, places: tuple[int, IntArray] | None = None
) -> FloatArray:
    """As `factor.contracted`, some listed values at a time where they are many.

    With `places`, how many cells there are and the one of each listed value (ascending), the result has a first axis
    for these.
    """
    sizes = sizes_of(factors)
    inner = (listed, *keep) if places and listed else keep
    steps = contraction([f.names for f in factors], inner, sizes)
    if listed is None or listed not in sizes or (listed in keep and places is None):
        return contracted(factors, keep, steps)
    # All that the steps leave, per listed value; the result itself is needed in any case.
    left = [names for _, _, names in (steps if places else steps[:-1])]
    per_value = max((math.prod(sizes[a] for a in names if a != listed) for names in left), default=1)
    at_once = max(1, TOGETHER_CELLS // per_value)
    if places is None and sizes[listed] <= at_once:
        return contracted(factors, keep, steps)
    shape = tuple(sizes[a] for a in keep)
    out = np.zeros(shape if places is None else (places[0], *shape))
    for first in range(0, sizes[listed], at_once):
        here = slice(first, first + at_once)
        some = [Factor(f.names, _cut(f, listed, here)) for f in factors]
        if places is None:
            out += contracted(some, keep, steps)
        else:
            cells, starts = np.unique(places[1][here], return_index=True)
            out[cells] += np.add.reduceat(contracted(some, inner, steps), starts, axis=0)
    return out


def _cut(factor: Factor, name: str, where: slice) -> FloatArray:
    if name not in factor.names:
        return factor.array
    return factor.array[(slice(None),) * factor.names.index(name) + (where,)]
