"""The junction tree equals the whole table on domains small enough to write down, and is quick on larger ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.junction import check


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.data())
def test_equals_the_whole_table(sizes: list[int], data: st.DataObject) -> None:
    """Log-partition, marginals in and across bags and their derivative, on any set of cliques."""
    some = st.lists(st.integers(0, len(sizes) - 1), max_size=3, unique=True).map(tuple)
    check(sizes, data.draw(st.lists(some, max_size=7)), data.draw(st.integers(0, 99)))
