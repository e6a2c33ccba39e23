"""What a release says of itself: keys that hardly match, rows that were dropped, values written otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.measure.ranks import EDGES, rows_told
from dpjoin.privacy.parts import NoisyRanks, Question, rows_by_rank
from support.shop import make_shop, offers, run, visits

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
SCHEMA = dj.Schema(
    [dj.Table(name="r", attributes=["k", "a"]), dj.Table(name="s", attributes=["k", "b"])],
    [
        dj.Attribute(name="k", key=True),
        dj.Attribute(name="a", values=("x", "y"), other=True),
        dj.Attribute(name="b", values=("u", "v")),
    ],
)


def released(
    left: Callable[[int], str] = str,
    right: Callable[[int], str] = str,
    *,
    a: tuple[str, str] = ("x", "y"),
    b: tuple[str, str] = ("u", "v"),
    rows: int = 6_000,
    budget: dj.Budget = BUDGET,
) -> dj.Release:
    """A join of two tables whose keys and values are written in some way."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 1500, rows), rng.integers(0, 1500, rows // 2)
    tables = {
        "r": pa.table({"k": [left(int(k)) for k in keys[0]], "a": rng.choice(a, rows).tolist()}),
        "s": pa.table({"k": [right(int(k)) for k in keys[1]], "b": rng.choice(b, rows // 2).tolist()}),
    }
    return dj.release(SCHEMA, dj.Workload.marginals(SCHEMA, 2), tables, budget)


def test_nothing_is_said_of_a_join_that_is_as_it_should_be() -> None:
    """And the numbers of rows are near the truth, within about their bars."""
    made = released()
    assert made.warnings == ()
    assert "warnings" not in made.facts
    rows = made.facts["rows"]
    assert set(rows) == {"r", "s"}
    assert abs(rows["r"]["noisy"] - 6_000) <= 3 * rows["r"]["bar"]
    assert abs(rows["s"]["noisy"] - 3_000) <= 3 * rows["s"]["bar"]
    assert rows["r"]["bar"] < 600


@pytest.mark.parametrize(
    "written",
    [
        (lambda k: f"{k}.0", str),
        (lambda k: f"{k},5", lambda k: f"{k}.5"),
        (lambda k: f"K{k}", lambda k: f"k{k}"),
        (lambda k: f"{k:06}", str),
    ],
    ids=["1.0 and 1", "decimal comma", "capitals", "leading zeros"],
)
def test_keys_that_hardly_match_are_noticed(written: tuple[Callable[[int], str], Callable[[int], str]]) -> None:
    """The usual reasons, of which the warning tells; it names the key, and no value of it."""
    (said,) = released(*written).warnings
    assert said.startswith("keys hardly match")
    assert "look at k" in said


def test_rows_that_were_dropped_are_noticed() -> None:
    """Where hardly any row of a table lies in its domains, the table is named."""
    found = released(b=("U", "V")).warnings
    assert any(said.startswith("hardly any row of s lies within its domains") for said in found)
    assert not any("of r " in said for said in found)


def test_values_that_are_other_are_noticed() -> None:
    """Where nearly all join results are `other`, with the share that they are."""
    (said,) = released(a=("X", "Y")).warnings
    assert said.startswith("a: 'other' or missing in about ")
    share = int(said.removeprefix("a: 'other' or missing in about ").partition(" ")[0])
    assert share > 90


def test_many_attributes_that_are_other_make_one_warning() -> None:
    """The first ones are named, and how many there are besides."""
    names = [f"a{i}" for i in range(9)]
    schema = dj.Schema(
        [dj.Table(name="r", attributes=names)], [dj.Attribute(name=n, values=("x", "y"), other=True) for n in names]
    )
    table = pa.table({n: ["X"] * 3_000 if n != "a0" else ["x"] * 3_000 for n in names})
    (said,) = dj.release(schema, dj.Workload.marginals(schema, 1), {"r": table}, BUDGET).warnings
    assert said.startswith("a1, a2, a3, a4, a5, a6 and 2 more: 'other' or missing in about ")


def test_a_join_within_its_noise_is_noticed() -> None:
    """Also where no numbers of rows are known: one table, few rows, a small epsilon."""
    schema = dj.Schema([dj.Table(name="r", attributes=["a"])], [dj.Attribute(name="a", values=("x", "y"))])
    small = dj.Budget(epsilon=0.05, delta=1e-6)
    made = dj.release(schema, dj.Workload.marginals(schema, 1), {"r": pa.table({"a": ["x"]})}, small)
    (said,) = made.warnings
    assert said.startswith("the rows (")
    assert "within its noise" in said


def test_warnings_travel_with_the_release(capsys: Any, tmp_path: Path) -> None:
    """In the manifest, in a loaded release, in a notebook and on the terminal; no value of a row is in them."""
    days = visits(4_000)
    apart = days.set_column(0, "day", pa.array([d + 1_000_000 for d in days.column("day").to_pylist()]))
    spec = make_shop(tmp_path, first=apart, second=offers(3_000))
    code, shown, _ = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert code == 0
    assert "warning: keys hardly match" in " ".join(shown.split())
    assert "1000" not in "".join(line for line in shown.splitlines() if "warning" in line)
    facts = json.loads((tmp_path / "out" / "manifest.json").read_text())["facts"]
    assert "## Look at this first\n- keys hardly match" in (tmp_path / "out" / "README.md").read_text()
    loaded = dj.load(tmp_path / "out")
    assert loaded.warnings == tuple(facts["warnings"])
    assert "warning: keys hardly match" in loaded._repr_html_()
    assert "join size" in shown
    assert "(noisy, 90 %)" in shown


def test_how_many_rows_ranks_tell() -> None:
    """Over many draws of noise the bar holds the number of rows nine times in ten or more, and is not far too long."""
    rng = np.random.default_rng(3)
    degrees = rng.geometric(0.2, 900)
    exact = rows_by_rank(degrees, EDGES)
    question = Question(name="ranks of r by k", rules={"r": {}}, by=("k",))
    off = []
    for _ in range(200):
        noisy = exact + np.rint(rng.normal(0, 20, len(exact))).astype(int)
        told = rows_told(NoisyRanks(question, EDGES, tuple(map(int, noisy)), 20.0))
        off.append(abs(told.noisy - degrees.sum()) / (1.645 * told.deviation))
    assert np.mean(np.array(off) <= 1) >= 0.85
    assert np.median(off) >= 0.1
