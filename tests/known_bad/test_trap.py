"""Joining first, or joining nothing: dpjoin warns, and the benchmark shows why the first matters."""

from __future__ import annotations

import trap


def test_joining_first_breaks_the_guarantee_and_tables_apart_keep_it() -> None:
    """40 releases on either neighbour refute epsilon = 1 for the joined table, and not for the two tables."""
    found = trap.compare(50, 40)
    assert found["moved"] == 50
    assert found["joined first"]["cell"]["epsilon"] > 1
    assert all(found["tables apart"][s]["epsilon"] < 1 for s in trap.STATISTICS)
