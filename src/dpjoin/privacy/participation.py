"""In how many sub-instances one row can be, and what that costs it: public numbers.

A sub-instance takes, from each table, the rows whose values have certain buckets under public labels. A row has
one bucket under each label. So it is in two sub-instances at once only if no label tells them apart, and what it
pays is at most the largest sum over sub-instances that one choice of a bucket per label agrees with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

Place = Mapping[str, int]
"""Which bucket a row must have under which labels (by name) to be in a sub-instance."""


def largest_total(places: Sequence[tuple[Place, Fraction]]) -> Fraction:
    """The largest sum of amounts over places that one row can be in at once. Proof: P-44.

    >>> one = Fraction(1)
    >>> largest_total([({"size": 0}, one), ({"size": 1}, one)])
    Fraction(1, 1)
    >>> largest_total([({"left": 0, "right": 0}, one), ({"left": 0, "right": 1}, one), ({"left": 0}, one)])
    Fraction(2, 1)
    """
    merged: dict[frozenset[tuple[str, int]], Fraction] = {}
    for place, amount in places:
        key = frozenset(place.items())
        merged[key] = merged.get(key, Fraction(0)) + amount
    return _largest(merged)


def _largest(places: Mapping[frozenset[tuple[str, int]], Fraction]) -> Fraction:
    total = places.get(frozenset(), Fraction(0))
    for group in _apart([place for place in places if place]):
        # Choose a bucket for the label that most places look at; the others stay open.
        counts = Counter(name for place in group for name, _ in place)
        label = min(counts, key=lambda name: (-counts[name], name))
        branches = []
        for bucket in {b for place in group for name, b in place if name == label}:
            left: dict[frozenset[tuple[str, int]], Fraction] = {}
            for place in group:
                if all(name != label or b == bucket for name, b in place):
                    rest = place - {(label, bucket)}
                    left[rest] = left.get(rest, Fraction(0)) + places[place]
            branches.append(_largest(left))
        total += max(branches)
    return total


def _apart(places: Sequence[frozenset[tuple[str, int]]]) -> list[list[frozenset[tuple[str, int]]]]:
    """Places in groups that have no label in common: a row's buckets in one say nothing about another."""
    groups: list[tuple[set[str], list[frozenset[tuple[str, int]]]]] = []
    for place in places:
        names, members = {name for name, _ in place}, [place]
        for group in [g for g in groups if g[0] & names]:
            groups.remove(group)
            names |= group[0]
            members = group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]
