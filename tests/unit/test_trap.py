"""Joining first, or joining nothing: dpjoin warns, and the benchmark shows why the first matters."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpjoin as dj
import trap
from dpjoin.api import spec_warnings
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.warnings import PAGE, joined_table_warning, unjoined_table_warning
from support.paths import ROOT
from support.shop import make_shop, run

SPEC = """\
[privacy]
epsilon = 1.0
delta = 1e-6

[tables.stays]
source = "stays.parquet"
attributes = ["patient", "visit", "ward"]

[attributes.patient]
key = true
[attributes.visit]
key = true
[attributes.ward]
range = [0, 3]

[workload]
marginals = 1
"""


_KEYS = "[attributes.patient]\nkey = true\n[attributes.visit]\nkey = true\n"


GENUINE = SPEC.replace('"patient", "visit", ', "").replace(_KEYS, "")


def schema(
    tables: dict[str, str], *, public: str = "", unique: str = "", limit: int = 1, keys: str = "kln"
) -> dj.Schema:
    """Tables with one letter per attribute. `unique` are keys declared so in the first table."""
    bounds = tuple(DegreeBound(attributes=(k,), limit=limit) for k in unique)
    made = [dj.Table(name=name, attributes=tuple(a), private=name not in public) for name, a in tables.items()]
    made[0] = replace(made[0], bounds=bounds)
    names = sorted(set("".join(tables.values())))
    declared = [dj.Attribute(name=a, key=True) if a in keys else dj.Attribute(name=a, range=(0, 3)) for a in names]
    return dj.Schema(tuple(made), tuple(declared))


def write_stays(folder: Path, spec: str = SPEC) -> Path:
    rows = np.arange(200)
    pq.write_table(pa.table({"patient": rows // 4, "visit": rows, "ward": rows % 4}), folder / "stays.parquet")
    path = folder / "stays.toml"
    path.write_text(spec, encoding="utf-8")
    return path


SUSPECTED = {
    "one table, two keys": schema({"j": "klab"}),
    "three keys": schema({"j": "klnab"}),
    "one of two keys unique": schema({"j": "klab"}, unique="l"),
    "keys of bounded degree": schema({"j": "klab"}, unique="kl", limit=2),
    "a public table explains one key": schema({"j": "klab", "p": "lc"}, public="p"),
    "two keys beside a public table that joins on a value": schema({"j": "klab", "p": "ac"}, public="p"),
}


ORDINARY = {
    "two private tables": schema({"r": "ka", "s": "kb"}),
    "two private tables with leftover keys": schema({"r": "klna", "s": "kb"}),
    "a composite key": schema({"r": "kla", "s": "klb"}),
    "three private tables": schema({"r": "ka", "s": "klb", "t": "lc"}),
    "one table without keys": schema({"r": "ab"}),
    "one table with one key": schema({"r": "kab"}),
    "a composite key of a public table": schema({"r": "kla", "p": "klb"}, public="p"),
    "a star of public tables": schema({"r": "kla", "p": "kb", "q": "lc"}, public="pq"),
    "several keys in the public table only": schema({"r": "ka", "p": "klnb"}, public="p"),
    "every key unique": schema({"r": "kla"}, unique="kl"),
}


@pytest.mark.parametrize("which", SUSPECTED)
def test_a_table_with_several_keys_is_suspected(which: str) -> None:
    """One line that names the table, its keys, what to do and where to read on."""
    said = joined_table_warning(SUSPECTED[which])
    assert said is not None
    assert "\n" not in said
    for words in ("table 'j'", "(k, l", "declare those tables apart", "leave out the keys", PAGE):
        assert words in said
    assert (ROOT / PAGE).exists()


@pytest.mark.parametrize("which", ORDINARY)
def test_ordinary_schemas_are_not(which: str) -> None:
    assert joined_table_warning(ORDINARY[which]) is None


def test_release_in_python_warns_before_it_reads_anything(tmp_path: Path) -> None:
    """A proper category, at the caller's line. Where warnings are errors, no source is opened."""
    spec = dj.Spec.from_toml(write_stays(tmp_path))
    with pytest.warns(dj.JoinedTableWarning, match="'stays' has several keys") as caught:
        made = dj.release(spec.schema, spec.workload, spec.sources(), spec.budget)
    assert [Path(w.filename) for w in caught] == [Path(__file__)]
    assert made.facts["sensitivity_bound"] == 1
    nowhere = {"stays": tmp_path / "missing.parquet"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dj.JoinedTableWarning):
            dj.release(spec.schema, spec.workload, nowhere, spec.budget)


@pytest.mark.parametrize("verb", ["plan", "release"])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_line_warns_once_and_goes_on(capsys: Any, tmp_path: Path, verb: str, as_json: bool) -> None:
    """One line on stderr with the spec's name, exit code 0, and nothing of Python's own format."""
    spec = write_stays(tmp_path)
    more = ["-o", tmp_path / "out"] if verb == "release" else []
    code, out, err = run(capsys, verb, spec, *more, *(["--json"] if as_json else []))
    assert code == 0
    (line,) = [one for one in err.splitlines() if one.startswith(f"warning: {spec}:")]
    assert line == f"warning: {spec}: {joined_table_warning(dj.Spec.from_toml(spec).schema)}"
    assert "JoinedTableWarning" not in err
    assert "warning" not in out
    assert (tmp_path / "out").exists() is (verb == "release")


@pytest.mark.parametrize("silent", ["keys left out", "every key unique"])
def test_a_genuine_table_can_say_so(capsys: Any, tmp_path: Path, silent: str) -> None:
    """Keys that join nothing can be left out of the spec, and unique ones declared; then nothing is said."""
    both = '"ward"]\nmax_degree = { patient = 1, visit = 1 }'
    spec = write_stays(tmp_path, GENUINE if silent == "keys left out" else SPEC.replace('"ward"]', both))
    code, _, err = run(capsys, "plan", spec)
    assert (code, "warning" in err) == (0, False)
    code, _, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert (code, "warning" in err) == (0, False)


def test_two_tables_are_released_without_a_word(capsys: Any, tmp_path: Path) -> None:
    spec = make_shop(tmp_path)
    for verb, more in (("plan", []), ("release", ["-o", tmp_path / "out"])):
        code, _, err = run(capsys, verb, spec, *more)
        assert (code, "warning" in err) == (0, False)


# Joining nothing -------------------------------------------------------------------------------------------------

APART = {
    "two tables": (schema({"r": "ka", "s": "lb"}), "tables 'r' and 's' share no attribute with any other"),
    "one of three": (schema({"r": "ka", "s": "kb", "t": "lc"}), "table 't' shares no attribute with any other"),
    "the first of three": (schema({"r": "ka", "s": "lb", "t": "lc"}), "table 'r' shares no attribute with any other"),
    "a public table": (schema({"r": "ka", "p": "lc"}, public="p"), "tables 'r' and 'p' share"),
    "two pairs": (
        schema({"r": "ka", "s": "kb", "t": "lc", "u": "ld"}),
        "tables 't' and 'u' share no attribute with the",
    ),
}


PEOPLE = '[tables.people]\nsource = "people.parquet"\nattributes = ["patient"]\n\n[attributes.patient]\nkey = true\n'


WARDS = GENUINE.replace("[attributes.ward]", f"{PEOPLE}[attributes.ward]")


@pytest.mark.parametrize("which", APART)
def test_tables_that_share_nothing_are_named(which: str) -> None:
    """One line with the tables and what to do."""
    said = unjoined_table_warning(APART[which][0])
    assert said is not None
    assert "\n" not in said
    for words in (APART[which][1], "every row is joined with every row", "columns = {"):
        assert words in said


@pytest.mark.parametrize("which", ORDINARY)
def test_tables_that_join_are_not(which: str) -> None:
    assert unjoined_table_warning(ORDINARY[which]) is None


def test_a_cross_product_is_released_with_a_warning(capsys: Any, tmp_path: Path) -> None:
    """One line of each verb, a warning at the caller's line in Python, and the release is made."""
    pq.write_table(pa.table({"patient": np.arange(5)}), tmp_path / "people.parquet")
    spec = write_stays(tmp_path, WARDS)
    loaded = dj.Spec.from_toml(spec)
    for verb, more in (("plan", []), ("release", ["-o", tmp_path / "out"])):
        code, out, err = run(capsys, verb, spec, *more)
        assert code == 0
        (line,) = [one for one in err.splitlines() if one.startswith(f"warning: {spec}:")]
        assert line == f"warning: {spec}: {unjoined_table_warning(loaded.schema)}"
        assert f"warning: {spec}" not in out
    with pytest.warns(dj.UnjoinedTableWarning, match="'stays' and 'people'") as caught:
        dj.release(loaded.schema, loaded.workload, loaded.sources(), loaded.budget)
    assert [Path(w.filename) for w in caught] == [Path(__file__)]


@pytest.mark.parametrize("public", [False, True])
def test_private_rows_that_are_also_public_are_told(capsys: Any, tmp_path: Path, public: bool) -> None:
    """One line of plan and release, a warning in Python; and none where the two sources differ."""
    units = f"""[tables.units]
source = "{"stays" if public else "units"}.parquet"
private = false
attributes = ["patient", "unit"]
columns = {{ unit = "ward" }}

[attributes.unit]
range = [0, 3]
"""
    private = SPEC.replace('"visit", ', "").replace("[attributes.visit]\nkey = true\n", "")
    spec = write_stays(tmp_path, private.replace("[attributes.patient]", f"{units}[attributes.patient]"))
    pq.write_table(pq.read_table(tmp_path / "stays.parquet"), tmp_path / "units.parquet")
    loaded = dj.Spec.from_toml(spec)
    found = spec_warnings(loaded.schema, loaded.sources(), loaded.budget)
    assert [type(w) for w in found] == [dj.PublicSourceWarning] * public
    for verb, more in (("plan", []), ("release", ["-o", tmp_path / "out"])):
        code, _, err = run(capsys, verb, spec, *more)
        assert code == 0
        lines = [one for one in err.splitlines() if one.startswith(f"warning: {spec}:")]
        assert lines == [f"warning: {spec}: {said}" for said in found]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dj.release(loaded.schema, loaded.workload, loaded.sources(), loaded.budget)
    assert [w.category for w in caught] == [dj.PublicSourceWarning] * public
    assert [Path(w.filename) for w in caught] == [Path(__file__)] * public


# The measurement -------------------------------------------------------------------------------------------------


def test_the_bound_on_epsilon_by_hand() -> None:
    """All against none of 20: ln(x / (1 - x)) with x = 0.025^(1/20). Equal counts show nothing."""
    least = 0.025 ** (1 / 20)
    assert trap.epsilon_bound(20, 0, 20) == pytest.approx(math.log(least / (1 - least)))
    assert trap.epsilon_bound(0, 0, 20) == trap.epsilon_bound(20, 20, 20) == trap.epsilon_bound(9, 10, 20) == 0
    assert trap.epsilon_bound(20, 0, 20, delta=0.5) < trap.epsilon_bound(20, 0, 20)


def test_the_attack_keeps_its_confidence_on_randomised_response() -> None:
    """At epsilon = 1 the bound exceeds 1 in at most a twentieth of the cases, and comes near it with many runs."""
    rng = np.random.default_rng(5)
    truth = math.e / (1 + math.e)

    def bound(runs: int) -> float:
        present, absent = rng.random(runs) < truth, rng.random(runs) >= truth
        return trap.attack(present.astype(float), absent.astype(float), 0.0)["epsilon"]

    # A binomial with 200 trials at 0.05 exceeds 20 with probability 0.001; the seed is fixed.
    assert sum(bound(100) > 1 for _ in range(200)) <= 20
    assert 0.85 < bound(20_000) < 1
    swapped = trap.attack(np.zeros(40), np.arange(1.0, 41.0), 0.0)
    assert swapped["epsilon"] == pytest.approx(trap.epsilon_bound(20, 0, 20))


def test_the_epsilon_of_the_noise() -> None:
    """Known points of the Gaussian curve; the budget's own rho gives one row at most the epsilon asked for."""
    assert trap.real_epsilon(0.5, 1, 0.126936737) == pytest.approx(1.0, abs=1e-6)
    rho = trap.single_table_rho()
    assert 0.8 < trap.real_epsilon(rho, 1, 1e-6) <= 1
    assert trap.real_epsilon(rho, 50, 1e-6) > 100


@pytest.mark.parametrize("partners", trap.PARTNERS)
def test_one_row_moves_as_many_joined_rows_as_it_has_partners(partners: int) -> None:
    """The two instances are neighbours as tables and far apart as a join."""
    present, absent = (trap.make(partners, present=p) for p in (True, False))
    assert present["visits"].equals(absent["visits"])
    assert present["patients"].slice(0, absent["patients"].num_rows).equals(absent["patients"])
    assert present["patients"].num_rows == absent["patients"].num_rows + 1
    rows = [trap.joined(t)["joined"].num_rows for t in (present, absent)]
    assert rows[0] - rows[1] == partners
    assert joined_table_warning(trap.JOINED) is not None
    assert joined_table_warning(trap.APART) is None


def test_a_quick_run_writes_nothing(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trap, "compare", lambda partners, _: {w: {s: {"epsilon": 0.0, "hits": 0.0, "false": 0.0}
                        for s in trap.STATISTICS} for w in trap.WAYS} | {"partners": partners})  # fmt: skip
    monkeypatch.setattr(trap, "write", lambda *_: pytest.fail("written"))
    assert trap.main(["--quick"]) == 0
    assert trap.main(["--no-write", "--runs", "4"]) == 0
    assert "50 partners" in capsys.readouterr().out
    written: list[Any] = []
    monkeypatch.setattr(trap, "write", lambda *what: written.append(what))
    assert trap.main(["--runs", "4"]) == 0
    ((name, page, data),) = written
    assert name == "trap"
    assert len(data["instances"]) == len(trap.PARTNERS)
    assert "| 50 | 113 |" in page
