"""Bars of sums and averages of numbers in bins cover the raw numbers."""

from __future__ import annotations

import numpy as np

from support.asked import release_of_one_table, rows_of_one_table


def test_bars_cover_the_raw_numbers() -> None:
    """Over several releases and groups, for values that lie low in their bins."""
    held = []
    for seed in range(4):
        table, release = rows_of_one_table(5_000, seed).to_pandas(), release_of_one_table(seed)
        known = table[table["x"].between(0, 100)]
        for group in ("<b>a</b>", "b & c", "d"):
            name = "other" if group == "d" else group
            raw = known[known["g"] == group]["x"]
            for function, truth in (("AVG", raw.mean()), ("SUM", raw.sum())):
                row = release.ask(f"SELECT {function}(x) FROM joined WHERE g = '{name}'").rows[0]
                held.append(abs(row[1][0] - truth) <= row[2][0])  # type: ignore[operator]
    assert np.mean(held) >= 0.85
