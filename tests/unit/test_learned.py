"""Learned domains from the spec to the release: what is refused, what a plan says, what a release shows."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.learned import fitting
from dpjoin.auto.plan import check_feasible
from dpjoin.measure.domains import Learned
from dpjoin.spec.learning import same_domains
from dpjoin.spec.toml import Spec

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


def keyed(**learn: Any) -> dj.Schema:
    """Two tables over a key, with one attribute each."""
    return dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b"))),
        (
            dj.Attribute(name="k", key=True),
            dj.Attribute(name="a", **learn.get("a", {"learn": True})),
            dj.Attribute(name="b", **learn.get("b", {"learn": {"bins": 4}})),
        ),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"learn": {"bins": 0}}, "bins"),
        ({"learn": {"bins": 65}}, "at most 64"),
        ({"learn": {"values": 1001}}, "at most 1000"),
        ({"learn": {"bin": 3}}, "did you mean 'bins'"),
        ({"learn": {"bins": 3, "values": 3}}, "one of them"),
        ({"learn": {}}, "one of them"),
        ({"learn": "yes"}, "must be true"),
        ({"learn": True, "range": (0, 3)}, "it has range and learn"),
        ({"learn": True, "part": "month"}, "remove learn"),
    ],
)
def test_what_cannot_be_learned_so(given: dict[str, Any], said: str) -> None:
    """One line that names the attribute."""
    with pytest.raises(dj.SpecError, match=said) as caught:
        dj.Attribute(name="x", **given)
    assert "x" in str(caught.value)
    assert "\n" not in str(caught.value)


def _tables(**more: Any) -> tuple[dj.Table, ...]:
    return (dj.Table(name="r", attributes=("k", "a"), **more), dj.Table(name="s", attributes=("k", "b")))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (lambda a: dj.Schema(_tables(), (replace(a, name="k"), *keyed().attributes[1:])), "'k' joins tables"),
        (lambda a: dj.Schema(_tables()[:1], (dj.Attribute(name="k", key=True), a), ("a",)), "'a' names owners"),
        (
            lambda a: dj.Schema(
                _tables(bounds=(dj.DegreeBound(attributes=("a",), limit=3),)), (keyed().attributes[0], a, a_b())
            ),
            "'a' has a bound on its degrees",
        ),
    ],
)
def test_keys_owners_and_bounds_are_never_learned(schema: Any, said: str) -> None:
    """Unlisted values would be taken for one value; the message says what to write."""
    with pytest.raises(dj.SpecError, match=said) as caught:
        schema(dj.Attribute(name="a", learn=True))
    assert "write key = true, or declare its domain" in str(caught.value)


def a_b() -> dj.Attribute:
    return dj.Attribute(name="b", range=(0, 1))


def test_questions_that_must_wait() -> None:
    """Conditions on values, weights for them and sums of lists; groups, marginals and sums of bins need not."""
    schema = keyed()
    for statement in ("SELECT COUNT(*) FROM joined WHERE a = 'x'", "SELECT COUNT(*) FROM joined WHERE b > 3"):
        with pytest.raises(dj.SpecError, match="is learned, and its values are not known before the release"):
            dj.Workload.sql(schema, statement)
    with pytest.raises(dj.SpecError, match="cannot be summed"):
        dj.Workload.sums(schema, ["a"])
    with pytest.raises(dj.SpecError, match="weights for its values must wait"):
        dj.Workload.crossed(schema, {"a": np.ones((2, 17))})
    with pytest.raises(dj.SpecError, match="weights for its values must wait"):
        dj.Workload.products(schema, {"r": (["a"], np.ones((1, 17)))})
    asked = dj.Workload.marginals(schema, 2) + dj.Workload.sql(schema, "SELECT a, SUM(b) FROM joined GROUP BY a")
    known = replace(
        schema,
        attributes=(
            schema.attributes[0],
            dj.Attribute(name="a", values=("x", "y"), other=True),
            dj.Attribute(name="b", bins=(0, 2, 6), other=True),
        ),
    )
    over = asked.over(known)
    assert [g.name for g in over.groups] == [g.name for g in asked.groups]
    assert (
        over.groups
        == (dj.Workload.marginals(known, 2) + dj.Workload.sql(known, "SELECT a, SUM(b) FROM joined GROUP BY a")).groups
    )


SPEC = """
[privacy]
epsilon = 1.0
delta = 1e-6
[tables.f]
source = "f.csv"
attributes = ["o", "carrier", "delay", "day", "code"]
[tables.w]
source = "w.csv"
attributes = ["o", "temp", "sky"]
{public}
[attributes]
o = {{ key = true }}
carrier = {{ learn = true }}
delay = {{ learn = {{ bins = 4 }} }}
day = {{ part = "date", learn = {{ bins = 3 }} }}
code = {{ learn = {{ values = 3 }} }}
temp = {{ learn = {{ bins = 4 }} }}
sky = {{ values = ["clear", "rain"] }}
[workload]
marginals = 2
queries = ["SELECT sky, SUM(temp) FROM joined GROUP BY sky"]
"""


def written(folder: Path, *, public: bool = False, rows: int = 6000) -> Path:
    """CSV files, which have no types, and their spec."""
    rng = np.random.default_rng(7)
    first = date(2013, 1, 1)
    with (folder / "f.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["o", "carrier", "delay", "day", "code"])
        for _ in range(rows):
            day = first + timedelta(days=int(rng.integers(365)))
            carrier = rng.choice(["UA", "AA", "it's", "other", ""], p=[0.4, 0.3, 0.2, 0.05, 0.05])
            code = rng.choice([7, 8, 9, 10], p=[0.4, 0.3, 0.2, 0.1])
            out.writerow([rng.integers(200), carrier, f"{rng.normal(10, 30):.1f}", day, code])
        out.writerow([0, "Only one", "nan", "not a date", "x"])
    with (folder / "w.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["o", "temp", "sky"])
        for i in range(2 * rows):
            out.writerow([i % 200, f"{rng.normal(50, 10):.2f}", "rain" if i % 3 else "clear"])
    spec = folder / "spec.toml"
    spec.write_text(SPEC.format(public="private = false" if public else ""), encoding="utf-8")
    return spec


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spec, dj.Release, Path]:
    folder = tmp_path_factory.mktemp("learned")
    spec = Spec.from_toml(written(folder))
    return spec, dj.release(spec.schema, spec.workload, spec.sources(), spec.budget), folder


def test_a_release_shows_what_was_learned(made: tuple[Spec, dj.Release, Path]) -> None:
    """Lists, whole numbers from text, dates as dates, numbers as numbers; the rest is `other`, not dropped."""
    spec, release, _ = made
    carrier, delay, day, code = (release.schema.attribute(a) for a in ("carrier", "delay", "day", "code"))
    assert carrier.values == ("AA", "UA", "it's")  # "other" is what it says
    assert code.values == (7, 8, 9)
    assert carrier.other
    assert code.other
    assert day.part == "date"
    assert day.bins is not None
    assert date(2012, 9, 1) < date(1970, 1, 1) + timedelta(days=int(day.bins[0])) < date(2013, 2, 1)
    assert delay.bins is not None
    assert delay.bins[0] < -20
    assert 40 < delay.bins[-1] < 300
    rows = release.synthetic
    assert rows.schema.field("day").type == pa.date32()
    assert pa.types.is_floating(rows.schema.field("delay").type) or pa.types.is_integer(rows.schema.field("delay").type)
    assert set(rows.column("carrier").to_pylist()) == {"AA", "UA", "it's", "other"}
    answers = release.ask("SELECT carrier, COUNT(*), AVG(temp) FROM joined WHERE carrier = 'UA' GROUP BY carrier")
    assert len(answers) == 1
    assert release.schema.learned == ()
    assert same_domains(spec.schema, release.schema)


def test_what_was_learned_is_in_ledger_and_manifest(made: tuple[Spec, dj.Release, Path]) -> None:
    """With its cost; and the folder is read back as it was, without the rare value."""
    spec, release, folder = made
    told = release.manifest()["facts"]["learned"]
    assert set(told) == set(spec.schema.learned)
    assert told["carrier"]["listed"] == 3
    assert told["code"]["left_out"] >= 0
    assert told["delay"]["bins"] >= 3
    purposes = [e.purpose for e in release.ledger.events]
    assert purposes.count("domain of delay: counts") == 4
    assert "domain of carrier: values" in purposes
    stage = {p.name for p in release.ledger.parts if p.stage == "domains"}
    assert stage == {f"domain of {a}" for a in spec.schema.learned}
    out = release.save(folder / "out")
    again = dj.load(out)
    assert again.schema.attributes == release.schema.attributes
    np.testing.assert_array_equal(again.answer(), release.answer())
    assert "Only one" not in (out / "manifest.json").read_text(encoding="utf-8")
    found = dj.evaluate(again, spec.sources())
    assert found.mean_total_variation is not None
    assert found.mean_total_variation < 0.2
    assert json.dumps(told)


def test_a_plan_says_how_many_rows_a_value_must_have(made: tuple[Spec, dj.Release, Path], tmp_path: Path) -> None:
    """Before there are any files; the release lists exactly above that."""
    _, release, _ = made
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(public=""), encoding="utf-8")
    plan = dj.plan(Spec.from_toml(path))
    by_name = {d.attribute: d for d in plan.domains}
    assert by_name["carrier"].listed_above == release.facts["learned"]["carrier"]["listed_above"]
    assert by_name["carrier"].rank_off is None
    assert by_name["delay"].listed_above is None
    assert 50 < (by_name["delay"].rank_off or 0) < 1000
    assert plan.stages[0].name == "domains"
    assert 0.05 <= plan.stages[0].share <= 0.1
    assert sum(s.share for s in plan.stages) == pytest.approx(1.0)
    notes = " ".join(plan.notes)
    assert f"more than {by_name['carrier'].listed_above:,} rows have it" in notes
    assert "taken to have 16 values" in notes
    assert "Declared ones would make all other noise" in notes
    assert json.dumps(plan.to_json())


def test_domains_of_public_tables_are_read(tmp_path: Path) -> None:
    """At no cost: everybody may see them."""
    spec = Spec.from_toml(written(tmp_path, public=True, rows=1500))
    plan = dj.plan(spec)
    assert [d.attribute for d in plan.domains if d.public] == ["temp"]
    release = dj.release(spec.schema, spec.workload, spec.sources(), spec.budget)
    assert release.facts["learned"]["temp"]["rho"] == "0"
    assert "domain of temp: counts" not in [e.purpose for e in release.ledger.events]
    bins = release.schema.attribute("temp").bins
    assert bins is not None
    assert bins[2] == pytest.approx(50, abs=1)


def test_persons_are_counted_where_they_are_protected() -> None:
    """One person with a thousand rows of a value of its own does not get it listed."""
    rng = np.random.default_rng(8)
    owners = [*range(1500), *[9999] * 4000]
    values = [*rng.choice(["x", "y"], 1500).tolist(), *["mine"] * 4000]
    schema = dj.Schema(
        (dj.Table(name="t", attributes=("who", "a", "n")),),
        (
            dj.Attribute(name="who", key=True),
            dj.Attribute(name="a", learn=True),
            dj.Attribute(name="n", learn={"bins": 3}),
        ),
        ("who",),
    )
    table = pa.table({"who": owners, "a": values, "n": rng.integers(0, 100, len(owners))})
    release = dj.release(schema, dj.Workload.marginals(schema, 2), {"t": table}, BUDGET)
    assert release.schema.attribute("a").values == ("x", "y")
    plan = dj.plan(Spec(schema, dj.Workload.marginals(schema, 2), BUDGET))
    assert plan.domains[0].counts == "who"


def test_nothing_to_list_is_a_domain_too() -> None:
    """Of a tiny table only `other` is left, and the release is made all the same."""
    schema = keyed()
    tables = {"r": pa.table({"k": [1, 2], "a": ["x", "y"]}), "s": pa.table({"k": [1, 2], "b": [0.5, None]})}
    release = dj.release(schema, dj.Workload.marginals(schema, 2), tables, BUDGET)
    assert release.schema.attribute("a").values == ()
    assert release.schema.attribute("a").labels == ("other",)


def test_long_lists_are_cut_to_what_can_be_released() -> None:
    """The longest first, to their most frequent values; the facts say how many were left out."""
    schema = keyed(b={"learn": True})
    workload = dj.Workload.marginals(schema, 2)
    every = tuple(range(1000))
    found = [Learned(dj.Attribute(name=a, values=every, other=True), {"listed": 1000}, every[::-1]) for a in ("a", "b")]

    def check(known: dj.Schema, asked: dj.Workload) -> None:
        check_feasible(known, asked)
        if known.cells(("a", "b")) > 100_000:
            raise dj.SpecError("too large")

    fitted = fitting(found, schema, workload, "auto", "tight", check)
    assert {x.attribute.name: x.facts for x in fitted} == {
        "a": {"listed": 250, "left_out": 750},
        "b": {"listed": 250, "left_out": 750},
    }
    assert fitted[0].attribute.values == tuple(range(750, 1000))


def test_the_paper_learns_nothing() -> None:
    """Its profile needs declared domains, and says which are not."""
    schema = keyed()
    tables = {"r": pa.table({"k": [1], "a": ["x"]}), "s": pa.table({"k": [1], "b": [1.0]})}
    with pytest.raises(dj.SpecError, match="declare those of a, b"):
        dj.release(schema, dj.Workload.marginals(schema, 2), tables, BUDGET, profile="paper")


@pytest.mark.parametrize("learn", [True, {"bins": 3}])
def test_columns_of_dates_must_say_so(learn: Any) -> None:
    """Their type is public: refused before any row is read."""
    schema = dj.Schema((dj.Table(name="t", attributes=("x",)),), (dj.Attribute(name="x", learn=learn),))
    table = pa.table({"x": pa.array([date(2020, 1, 1)])})
    with pytest.raises(dj.SourceError, match=r"attribute 'x' is learned as .*; add part"):
        dj.release(schema, dj.Workload.marginals(schema, 1), {"t": table}, BUDGET)


def test_a_spec_with_learned_domains_is_written_and_read() -> None:
    """TOML keeps what is to be learned, and a domain without values."""
    schema = keyed(a={"learn": {"values": 9}})
    spec = Spec(schema, dj.Workload.marginals(schema, 2), BUDGET)
    import tomllib

    text = spec.to_toml()
    assert tomllib.loads(text)["attributes"]["a"] == {"learn": {"values": 9}}
    assert Spec.from_dict(tomllib.loads(text)).schema == schema
    empty = keyed(a={"values": (), "other": True}, b={"bins": (0, 1)})
    assert Spec.from_dict(tomllib.loads(Spec(empty, dj.Workload.marginals(empty, 2), BUDGET).to_toml())).schema == empty


def test_whole_numbers_of_text_files_stay_whole(tmp_path: Path) -> None:
    """`whole` says what a text file's types cannot: edges are whole, few are a range, rows have no fractions."""
    rng = np.random.default_rng(9)
    lines = [f"{y},{n}" for y, n in zip(rng.choice([2013, 2014], 4000), rng.poisson(300, 4000), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["year,n", *lines, "x,1.5"]), encoding="utf-8")
    learn = {"bins": 4, "whole": True}
    schema = dj.Schema(
        (dj.Table(name="t", attributes=("year", "n")),),
        tuple(dj.Attribute(name=a, learn=learn) for a in ("year", "n")),
    )
    release = dj.release(schema, dj.Workload.marginals(schema, 2), {"t": tmp_path / "t.csv"}, BUDGET)
    year, n = release.schema.attributes
    assert year.range == (2013, 2014)
    assert n.bins is not None
    assert all(isinstance(e, int) for e in n.bins)
    assert pa.types.is_integer(release.synthetic.schema.field("n").type)
    assert set(release.synthetic.column("year").to_pylist()) <= {2013, 2014, None}
    for wrong in ({"whole": True}, {"values": 3, "whole": True}):
        with pytest.raises(dj.SpecError, match="whole stands beside bins"):
            dj.Attribute(name="x", learn=wrong)
