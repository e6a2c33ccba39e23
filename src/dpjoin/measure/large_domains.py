"""Measure marginals for a model too large to write down, and choose which of them it is made of.

A factored model grows with how its marginals hang together: all pairs of twelve attributes would be one table of all
cells. So every wanted marginal is looked at once, and from these noisy looks (all that follows is post-processing) the
model takes the marginals by which it is furthest off, beyond what noise explains, as long as it stays small. The rest
of the budget goes to those. What is looked at and not taken still tells how far off the model is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.measure.laplace import Spread, laplace_shares, laplace_unit, measure_laplace, total_of
from dpjoin.measure.marginals import costs_by_gain, split
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import results_of, round_down
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.fit import Evidence, Fit, learn, maximise, start
from dpjoin.model.junction import JunctionTree
from dpjoin.model.model import Misfit, cell_errors
from dpjoin.model.terms import FloatArray, Scope
from dpjoin.model.triangulate import tree_of
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.spec.workload import Group

TREE_CELLS = 10 * 2**17
"""What is chosen has at most so many cells (or two of its largest marginals, if that is more). Tuned on the data of
benchmarks/large.py, 3 to 8 runs each: 2^19 take nine tenths of the time, and on 10^12 cells errors are a twenty-fifth
larger on average and the largest a tenth; 2^21 take half as long again and half as much memory for hardly less."""
ALL_CELLS = TREE_CELLS
"""If the tree of all wanted marginals has at most so many cells, all are taken."""
CLIQUE_CELLS = 2**20
"""A marginal of more cells is refused: a tree of twice as many takes a gigabyte and half a minute."""
REFIT_EVERY = 4
"""How many marginals are chosen before the model is fitted again. One by one is no better."""
REFIT_STEPS = 15
MOST_LOOKS = 1000
"""Of more marginals than this not all are looked at: they would be nothing but noise. Which ones are, is public."""


@dataclass(frozen=True, eq=False)
class NoisyMarginal:
    """A marginal as it was measured: noisy counts, and the variance of their noise."""

    noisy: FloatArray
    variance: float

    def combined(self, other: NoisyMarginal) -> NoisyMarginal:
        """Both by precision."""
        ours, theirs = 1 / self.variance, 1 / other.variance
        return NoisyMarginal((self.noisy * ours + other.noisy * theirs) / (ours + theirs), 1 / (ours + theirs))

    def missed(self, model: FloatArray) -> float:
        """How far off a model's counts are, squared and summed, beyond what the noise explains."""
        return float(((self.noisy - model) ** 2).sum()) - len(self.noisy) * self.variance


NoisyMarginals = Mapping[Scope, NoisyMarginal]


@dataclass(frozen=True, eq=False)
class Chosen:
    """A fitted model, what it was fitted to, how far off it is elsewhere, and how it came about in words."""

    fit: Fit[JunctionTree]
    evidence: Evidence
    misfits: tuple[Misfit, ...]
    strategy: str


def measure_chosen(
    curator: Curator,
    groups: Mapping[Scope, Group],
    sizes: Mapping[str, int],
    importance: Mapping[Scope, float],
    bound: Bound,
    rho: Fraction,
    total: float,
    progress: Progress,
) -> Chosen:
    """Spend exactly `rho` on marginals, given by scope, one-way ones of all attributes in wider ones included."""
    single = [c for c in groups if len(c) == 1]
    wanted = [c for c in groups if len(c) > 1]
    wide = looked_at(wanted)
    curator.prepare([groups[c] for c in [*single, *wide]])
    looks: dict[Scope, NoisyMarginal] = {}

    def measure(cliques: Iterable[Scope], costs: Iterable[Fraction]) -> None:
        for clique, cost in zip(cliques, costs, strict=True):
            found = curator.measure(groups[clique], bound, Concentrated(cost))
            look = NoisyMarginal(found.values, found.noise_variance)
            looks[clique] = looks[clique].combined(look) if clique in looks else look

    if not wide:
        measure(single, split(rho, [importance[c] for c in single]))
        tree = tree_of(sizes, single)
        evidence = evidence_of(tree, looks)
        return Chosen(learn(start(tree, total), evidence), evidence, (), f"{len(single)} marginals once")

    progress("measure", 0, 3)
    first = split(round_down(rho * constants.SINGLES_SHARE), [importance[c] for c in single])
    pilot = split(round_down(rho * constants.LARGE_PILOT), [importance[c] for c in wide])
    measure(single, first)
    measure(wide, pilot)
    progress("measure", 1, 3)
    tree = tree_of(sizes, [*single, *wide])
    if tree.cells <= ALL_CELLS:
        fit = start(tree, total)
    else:
        fit = _chosen(sizes, single, {c: looks[c] for c in wide}, looks, importance, total)
    fit = learn(fit, evidence_of(fit.terms, looks), rounds=3, steps=20)
    progress("measure", 2, 3)

    rest = rho - sum(first, Fraction(0)) - sum(pilot, Fraction(0))
    counts = [importance[c] for c in fit.cliques]
    costs = costs_by_gain(fit, evidence_of(fit.terms, looks), counts, rest, results_of(curator, bound))
    measure([fit.cliques[i] for i in costs], costs.values())
    evidence = evidence_of(fit.terms, looks)
    fit = learn(fit, evidence, steps=30)
    progress("measure", 3, 3)
    held = set(fit.terms.cliques)
    misfits = misfits_of(fit, {c: looks[c] for c in wide if c not in held})
    return Chosen(fit, evidence, misfits, _words(len(single), len(wanted), len(wide), len(wide) - len(misfits)))


def holds_all(sizes: Mapping[str, int], cliques: Sequence[Scope]) -> bool:
    """Whether a model of all these marginals stays small: a public fact."""
    wide = sum(len(c) > 1 for c in cliques)
    return wide <= MOST_LOOKS and tree_of(sizes, cliques).cells <= ALL_CELLS


def measure_all_laplace(
    curator: Curator,
    groups: Mapping[Scope, Group],
    sizes: Mapping[str, int],
    importance: Mapping[Scope, float],
    bound: Bound,
    total: NoisyTotal,
    progress: Progress,
) -> tuple[Chosen, NoisyTotal]:
    """Spend all epsilon that is left for Laplace noise on a model of all marginals, which was seen to stay small."""
    tree = tree_of(sizes, groups)
    cells = {c: curator.schema.cells(c) for c in tree.cliques}
    spread = Spread(total.whole / laplace_unit(curator, bound))
    shares, _ = laplace_shares(tree.cliques, [importance[c] for c in tree.cliques], cells, spread)
    asked = [groups[c] for c in tree.cliques]
    evidence = measure_laplace(curator, asked, tree.slices, shares, bound, progress)
    total = total_of(evidence, tree.slices, total)
    fit = learn(start(tree, float(total.whole)), evidence)
    measured = sum(share > 0 for share in shares)
    return Chosen(fit, evidence, (), f"{measured} marginals once, with Laplace noise, in a factored model"), total


def _words(single: int, wanted: int, looked: int, held: int) -> str:
    if held == wanted:
        return f"{single + wanted} marginals, pilot then by expected gain, in a factored model"
    which = f"all {wanted}" if looked == wanted else f"{looked} of {wanted}"
    return f"{which} wider marginals looked at, {held} of them in a factored model and measured again"


def cells_limit(wide: Iterable[int]) -> int:
    """How many cells the tree of what is chosen may have, where the wider marginals have so many."""
    return max([TREE_CELLS, *(2 * cells for cells in wide)])


def looked_at(wanted: Sequence[Scope]) -> list[Scope]:
    """Which marginals to look at: all, or a public choice that connects as many attributes as it can.

    First those that connect what was not connected, then others, each in an order that is random but always the same.
    """
    if len(wanted) <= MOST_LOOKS:
        return list(wanted)
    shuffled = [wanted[int(i)] for i in np.random.default_rng(0).permutation(len(wanted))]
    part = {a: frozenset([a]) for c in wanted for a in c}
    connecting, others = [], []
    for clique in shuffled:
        joined = frozenset().union(*(part[a] for a in clique))
        if any(part[a] != joined for a in clique):
            connecting.append(clique)
            part.update(dict.fromkeys(joined, joined))
        else:
            others.append(clique)
    taken = {*[*connecting, *others][:MOST_LOOKS]}
    return [c for c in wanted if c in taken]


def evidence_of(tree: JunctionTree, looks: NoisyMarginals) -> Evidence:
    """What the looks say of a tree's cliques."""
    evidence = Evidence.none(tree.size)
    for clique, where in zip(tree.cliques, tree.slices, strict=True):
        evidence = evidence.add(where, looks[clique].noisy, looks[clique].variance)
    return evidence


def _chosen(
    sizes: Mapping[str, int],
    single: Sequence[Scope],
    candidates: NoisyMarginals,
    looks: NoisyMarginals,
    importance: Mapping[Scope, float],
    total: float,
) -> Fit[JunctionTree]:
    """A model of the marginals by which it would be furthest off without them, as many as stay small."""
    tree = tree_of(sizes, single)
    fit = learn(start(tree, total), evidence_of(tree, looks), rounds=2, steps=20)
    waiting = dict(candidates)
    most = cells_limit(len(look.noisy) for look in candidates.values())
    while waiting:
        missed = {c: importance[c] ** 2 * look.missed(fit.marginal(c).reshape(-1)) for c, look in waiting.items()}
        ranked = sorted((c for c in waiting if missed[c] > 0), key=missed.__getitem__, reverse=True)
        cliques, grown = list(tree.cliques), 0
        for clique in ranked:
            if grown == REFIT_EVERY:
                break
            if clique in cliques:
                continue
            larger = tree_of(sizes, [*cliques, clique])
            if larger.cells > most:
                # It will not fit later either: trees only grow.
                del waiting[clique]
                continue
            # What else the bags hold now costs no cells.
            free = [c for c in waiting if c != clique and c not in cliques and larger.home(c) is not None]
            cliques += [clique, *free]
            grown += 1
        if not grown:
            break
        waiting = {c: look for c, look in waiting.items() if c not in cliques}
        tree = tree_of(sizes, cliques)
        fit = maximise(_moved(fit, tree), evidence_of(tree, looks), steps=REFIT_STEPS)
    return fit


def _moved(fit: Fit[JunctionTree], tree: JunctionTree) -> Fit[JunctionTree]:
    """The same distribution on a tree of more cliques."""
    moved = start(tree, fit.total)
    before = {c: n for n, c in enumerate(fit.terms.cliques)}
    for n, (clique, where) in enumerate(zip(tree.cliques, tree.slices, strict=True)):
        if clique in before:
            moved.potentials[where] = fit.potentials[fit.terms.slices[before[clique]]]
            moved.tau[n] = fit.tau[before[clique]]
    return moved


def misfits_of(fit: Fit[JunctionTree], left_out: NoisyMarginals) -> tuple[Misfit, ...]:
    """How far off the model is at marginals that it does not hold, as far as the looks tell.

    One look says it roughly, so each is averaged with all.
    """
    if not left_out:
        return ()
    found = {}
    for clique, look in left_out.items():
        model = fit.marginal(clique).reshape(-1)
        found[clique] = look.missed(model) / float(cell_errors(model).sum())
    usual = max(0.0, sum(found.values()) / len(found))
    return tuple(Misfit(c, (max(0.0, found[c]) + usual) / 2, left_out[c].variance ** 0.5) for c in left_out)
