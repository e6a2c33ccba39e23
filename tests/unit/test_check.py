"""`dpjoin plan --check` tells all that is wrong with a spec at once, with lines; it reads no row and spends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpjoin.cli.check import lines_of, problems
from support.shop import SPEC, make_shop, run

WRONG = """\
[privacy]
epsilon = 1.0
delta = 1e-6

[tables.visits]
source = "visits.parquet"
attributes = ["day", "age", "town", "city"]
columns = { age = "years" }

[tables.offers]
source = "offers.csv"
attributes = ["day", "price"]

[tables.again]
source = "visits.parquet"
attributes = ["day"]

[attributes]
day = { key = true }
price = { range = [4, 1] }
town = { values = ["Oslo"] }

[attributes.age]
bins = [0, 18]
[attributes.city]
range = [1, 2]
"""


def test_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing file, missing columns, a wrong type, a wrong key, one file twice: each with the line to change."""
    spec = make_shop(tmp_path)
    spec.write_text(WRONG)
    before = sorted(tmp_path.iterdir())
    code, out, err = run(capsys, "plan", "--check", spec)
    assert (code, out) == (2, "")
    told = [line.removeprefix(f"error: {spec}, line ") for line in err.splitlines()[:-1]]
    expected = {
        7: "has no column 'town'",
        8: "has no column 'years'",
        11: "offers.csv' does not exist; correct tables.offers.source",
        15: "tables 'visits' and 'again' have the same source",
        20: "range ([4, 1]) must run from low to high; swap them",
    }
    for line, words in expected.items():
        assert any(t.startswith(f"{line}: ") and words in t for t in told), (line, told)
    assert any("column 'city' has type VARCHAR" in t for t in told)
    assert len(told) == 6
    assert err.splitlines()[-1] == f"error: {spec}: 6 things are wrong; nothing was spent"
    assert sorted(tmp_path.iterdir()) == before


def test_nothing_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound spec is planned as without --check."""
    spec = make_shop(tmp_path)
    assert problems(spec) == []
    assert run(capsys, "plan", "--check", spec)[:2] == run(capsys, "plan", spec)[:2]


@pytest.mark.parametrize("part", ["tables", "attributes", "privacy", "workload", "release"])
@pytest.mark.parametrize("junk", ["3", "[]", '"x"', "{ x = 3 }", "{ x = {} }", "{ unit = 3 }"])
def test_junk(tmp_path: Path, part: str, junk: str) -> None:
    """Junk in place of a section is told, and stops nothing."""
    spec = make_shop(tmp_path)
    spec.write_text(f"{part} = {junk}\n" + "".join(b for b in _blocks() if not b.startswith(f"[{part}")))
    found = problems(spec)
    assert found
    assert all("\n" not in line for line in found)


def _blocks() -> list[str]:
    found: list[str] = []
    for line in SPEC.splitlines(keepends=True):
        found += [line] if line.startswith("[") else []
        found[-1] += "" if line.startswith("[") else line
    return found


def test_lines() -> None:
    """Sections, dotted, quoted and inline keys have the line they begin on."""
    text = '# a\n["tables"."r s"]\nsource = "x"\n\n[attributes]\na.key = true\nb = { range = [0,\n 3] }\n'
    found = lines_of(text)
    assert found["tables", "r s", "source"] == 3
    assert (found["attributes", "a", "key"], found["attributes", "b", "range"]) == (6, 7)
