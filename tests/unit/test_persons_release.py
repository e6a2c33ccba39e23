"""Releases that protect a person: replay on neighbours, ledgers, refusals, an attack, and the way from a spec file."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpjoin as dj
from dpjoin.cli import screens
from dpjoin.engine.interface import Clip
from dpjoin.measure.shares import without_choices
from dpjoin.methods.capped import CAPPED
from dpjoin.paper.alg1_two_table import TWO_TABLE
from dpjoin.privacy.instance import Instance
from dpjoin.spec.persons import protects
from support.brute import BruteEngine
from support.owners import (
    SHAPES,
    marginals,
)
from support.persons_release import GENEROUS, bound_by, table
from support.shop import run


def test_moves_are_stated_for_the_unit() -> None:
    """A person moves a clipped group by the limit whatever its signs; a row by √2 times that, if there are any."""
    person, clip = SHAPES["two tables"], Clip(owner=("o",), limit=3, full=10)
    (plain,) = marginals(person)[:1]
    signed = dj.Workload.products(person, {"r": (["a"], np.array([[1.0, -1.0, 0.5]]))}).groups[0]
    for schema, times in ((person, 1), (replace(person, unit=()), 2)):
        inside = Instance.of(BruteEngine(schema, {"r": [], "s": []})).clipped(clip)
        bound = inside.public_bound()
        assert bound is not None
        assert bound.value == inside.move_of_size(bound) == 30
        assert inside.move_of_group(plain, bound).euclidean == 30
        move, unit = inside.move_of_group(signed, bound), 2**16
        assert (30 * unit) ** 2 * times <= move.euclidean**2 <= (30 * unit + 1) ** 2 * times
        assert move.absolute == move.euclidean


SPEC = """
[privacy]
epsilon = 1.0
delta = 1e-6
unit = "patient"

[tables.admissions]
source = "admissions.parquet"
attributes = ["patient", "ward"]

[tables.visits]
source = "visits.parquet"
attributes = ["visit", "kind"]
owner = "pid"
unique = ["visit"]

[tables.prescriptions]
source = "prescriptions.parquet"
attributes = ["visit", "drug"]
owner_via = "visit"

[attributes.patient]
key = true
[attributes.visit]
key = true
[attributes.ward]
values = ["north", "south"]
[attributes.kind]
values = ["urgent", "planned"]
[attributes.drug]
values = ["x", "y", "z"]

[workload]
marginals = 2
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    patients, visits = 600, 2000
    tables = {
        "admissions": {"patient": np.arange(patients), "ward": rng.choice(["north", "south"], patients)},
        "visits": {
            "pid": rng.integers(0, patients, visits),
            "visit": np.arange(visits),
            "kind": rng.choice(["urgent", "planned"], visits),
        },
        "prescriptions": {"visit": rng.integers(0, visits, 4000), "drug": rng.choice(["x", "y", "z"], 4000)},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    (tmp_path / "clinic.toml").write_text(SPEC)
    return tmp_path


PROTECTS = "one patient with all rows in admissions, visits, prescriptions"


def test_three_tables_from_the_command_line(clinic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan, release, evaluate; the unit is in every one of them, and in the manifest."""
    spec, out = clinic / "clinic.toml", clinic / "out"
    code, told, _ = run(capsys, "plan", spec)
    assert code == 0
    assert PROTECTS in " ".join(told.split())
    assert "join results of each patient" in " ".join(told.split())
    assert "clipped at" in told
    assert "largest degree" not in told
    code, told, _ = run(capsys, "release", spec, "-o", out)
    assert code == 0
    assert PROTECTS in " ".join(told.split())
    assert "one patient moves what is measured by at most" in " ".join(told.split())
    assert "one row" not in told
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["guarantee"]["unit"] == ["patient"]
    assert manifest["guarantee"]["neighbours"] == PROTECTS
    assert manifest["method"] == "clipped"
    assert any("belongs to the patient of its visit" in a for a in manifest["assumptions"])
    assert manifest["ledger"]["owner"] == ["patient"]
    assert dj.load(out).schema.unit == ("patient",)
    assert run(capsys, "evaluate", spec, out)[0] == 0
    assert protects(dj.Spec.from_toml(spec).schema) == PROTECTS


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('unit = "patient"', 'unit = "paitent"', "privacy.unit ('paitent') must be an attribute, or 'row'"),
        ('unit = "patient"', 'unit = "ward"', "attribute 'ward' is declared with text"),
        ('unit = "patient"', 'unit = ""', "privacy.unit ('') must be an attribute"),
        ('unit = "patient"', "unit = 3", "privacy.unit (3) must be"),
        ('unit = "patient"', 'unit = "patient"\nmax_results = 0', "privacy.max_results (0) must be a whole number"),
        ('unit = "patient"', 'unit = "patient"\nmax_results = 99999999', "max_results (99999999) must be at most"),
        ('owner_via = "visit"', "", "table 'prescriptions' must say whose its rows are"),
        ('owner_via = "visit"', 'owner_via = "drug"', "must be unique in the table it points to"),
        ('owner_via = "visit"', 'owner_via = "dose"', "owner_via ('dose') must be one of its attributes"),
        ('owner = "pid"', 'owner = "pid"\nowner_via = "visit"', "owner_via ('visit') must be left out"),
        ('owner = "pid"', 'owner = "pid"\nmax_rows = 0', "max_rows (0) must be a whole number"),
        ('owner = "pid"', 'owner = "nobody"', "has no column 'nobody'"),
        ('owner_via = "visit"', 'owner_via = "visit"\nmax_rows = 2', "must be of a table that has patient"),
        (
            'owner = "pid"\nunique = ["visit"]',
            'owner_via = "visit"\nunique = ["visit"]',
            "table 'visits': owner_via ('visit') must be unique in the table it points to",
        ),
        ('owner_via = "visit"', "owners = 0", "owners (0) must be a whole number, at least 1"),
        ('unique = ["visit"]', "", "must be unique in the table it points to"),
        ('unique = ["visit"]', 'unique = ["visit"]\nbounds = "enforce"', "must be unique in the table it points to"),
        ('unit = "patient"', 'unit = "row"', "is about persons"),
        ("[workload]", '[release]\nmethod = "capped"\n[workload]', "protects one row and not one patient"),
        ("[workload]", '[release]\nprofile = "paper"\n[workload]', "protects one row and not one patient"),
    ],
)
def test_a_wrong_unit_gets_one_line_and_costs_nothing(
    clinic: Path, old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = clinic / "clinic.toml"
    spec.write_text(SPEC.replace(old, new))
    before = sorted(p.name for p in clinic.iterdir())
    code, _, told = run(capsys, "release", spec, "-o", clinic / "out")
    told = " ".join(told.split())
    assert code == 2
    assert words in told
    assert "Traceback" not in told
    assert sorted(p.name for p in clinic.iterdir()) == before


def test_a_clipped_release_of_rows_says_that_it_protects_owners_too() -> None:
    """Alone, and not after looks of `auto` that are about single rows."""
    rows = {"r": {"k": [1, 1, 2], "a": [0, 1, 0]}, "s": {"k": [1, 2, 2], "b": [0, 1, 1]}}
    attributes = (dj.Attribute(name="k", key=True), *(dj.Attribute(name=n, range=(0, 1)) for n in "ab"))
    tables = (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b")))
    schema = dj.Schema(tables, attributes)
    workload = dj.Workload.marginals(schema, 1)
    frames = {name: pa.table(columns) for name, columns in rows.items()}
    release = dj.release(schema, workload, frames, dj.Budget(epsilon=1.0, delta=1e-6), method="clipped")
    assert release.facts["also_protects"] == "one k with all rows in r, s"
    assert "also_protects" not in dj.release(schema, workload, frames, dj.Budget(epsilon=1.0, delta=1e-6)).facts


@pytest.mark.parametrize("unit", ["o", "row"])
def test_a_replacement_is_told_to_move_what_is_measured_by_both(unit: str) -> None:
    """One goes and one comes; the manifest and the screen say so."""
    schema = replace(SHAPES["two tables"], unit=() if unit == "row" else ("o",), neighbours="replace")
    frames = {"r": pa.table({"o": [1, 2], "a": [0, 1]}), "s": pa.table({"o": [1, 2], "b": [0, 1]})}
    release = dj.release(schema, dj.Workload.marginals(schema, 1), frames, GENEROUS, method="clipped")
    told = screens._sensitivity_words(release)
    assert told.startswith(f"one {unit} moves what is measured by at most ")
    assert told.endswith("; in place of another, by both")
    assert protects(schema).endswith("replaced by another")


def test_a_release_whose_domains_were_learned_of_rows_does_not_protect_owners() -> None:
    """Somebody with most of the rows of a value makes it listed."""
    rows = {"r": {"k": [0] * 900 + [1] * 5, "a": ["rare"] * 900 + ["x"] * 5}, "s": {"k": [0, 1], "b": [0, 1]}}
    attributes = (
        dj.Attribute(name="k", key=True),
        dj.Attribute(name="a", learn=True),
        dj.Attribute(name="b", range=(0, 1)),
    )
    tables = (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b")))
    schema = dj.Schema(tables, attributes)
    frames = {name: pa.table(columns) for name, columns in rows.items()}
    budget = dj.Budget(epsilon=10.0, delta=1e-6)
    release = dj.release(schema, dj.Workload.marginals(schema, 1), frames, budget, method="clipped")
    assert release.schema.attribute("a").values == ("rare",)
    assert "also_protects" not in release.facts


VISITS, DRUGS, ONCE = *SHAPES["deep"].tables, SHAPES["deep"].tables[0].bounds
BOUNDED = replace(VISITS, bounds=(*ONCE, *bound_by(2, "o")))
MET = (table("r", "o", "w", "a", bounds=bound_by(2, "o")), table("s", "w", "b", owners=2))


@pytest.mark.parametrize(
    ("method", "tables", "words"),
    [
        ("per_table", (MET[0], table("s", "o", "b")), "must know how many rows of table 's' one o has; set max_rows"),
        (
            "per_table",
            (BOUNDED, DRUGS),
            "must find the o in table 's' itself; use method 'clipped'",
        ),
        ("per_table", MET, "must find an owner in table 's' itself; use method 'clipped'"),
        ("two_table", (MET[0], table("s", "o", "b")), "must know how many rows of table 's' one o has; set max_rows"),
        ("two_table", MET, "must know how many join results one row is in to protect one o"),
    ],
)
def test_a_method_that_lacks_what_protects_a_person_is_refused_before_rows_are_read(
    method: str, tables: tuple[dj.Table, ...], words: str
) -> None:
    key = {t.attributes[-1]: dj.Attribute(name=t.attributes[-1], range=(0, 2)) for t in tables}
    names = dict.fromkeys(a for t in tables for a in t.attributes)
    schema = dj.Schema(tables, tuple(key.get(a) or dj.Attribute(name=a, range=(0, 2)) for a in names), ("o",))
    with pytest.raises(dj.SpecError, match=words):
        dj.release(schema, dj.Workload.marginals(schema, 1), {t.name: None for t in tables}, GENEROUS, method=method)


def test_the_plan_knows_that_a_replaced_row_moves_more() -> None:
    """Cells by √2; twice as much, and the size as well, where each of two rows pushes out another one."""
    noise = {}
    for neighbours, method, enforce in product(("add", "replace"), (TWO_TABLE, CAPPED), (False, True)):
        if method is CAPPED and enforce:
            continue  # it has caps of its own
        first = table("r", "o", "a", bounds=bound_by(3, "a"), enforce=enforce)
        declared = tuple(dj.Attribute(name=n, range=(0, 2)) for n in ("o", "a", "b"))
        schema = dj.Schema((first, table("s", "o", "b")), declared, neighbours=neighbours)
        assert method.noise_level is not None
        shares = method.split(without_choices(GENEROUS), schema)
        level = method.noise_level(shares, dj.Workload.marginals(schema, 2), 10**6)
        noise[neighbours, method.name, enforce] = np.array([level.count, level.cell])
    for (name, enforce), times in {("two_table", False): [1, 2**0.5], ("two_table", True): [2, 2]}.items():
        assert noise["replace", name, enforce] / noise["add", name, enforce] == pytest.approx(times, rel=0.01)
    assert noise["replace", "capped", False] / noise["add", "capped", False] == pytest.approx([2, 2])
