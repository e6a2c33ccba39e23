"""The spec as a file: what is written is read back, in TOML and in a release's manifest."""

from __future__ import annotations

import itertools
import json
import tomllib
import tracemalloc
from importlib.resources import files

import numpy as np
import pytest

from dpjoin.errors import SourceError, SpecError
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import CELLS, PREFIXES, RANGES, Workload, group_to_json, kronecker
from support.shop import SPEC, make_shop, run
from support.spec import same_workload


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.float32, object])
def test_prefixes_and_ranges_are_what_their_matrices_say(dtype):
    """Running sums in place of a matrix, along either axis, for all rows of the first factor and for some."""
    schema = Schema(
        (Table(name="r", attributes=("a", "c")),),
        (Attribute(name="a", range=(0, 6)), Attribute(name="c", range=(0, 3))),
    )
    cells = np.random.default_rng(3).integers(0, 1000, (7, 4))
    for kinds in itertools.product((CELLS, PREFIXES, RANGES), repeat=2):
        group = kronecker(schema, dict(zip("ac", kinds, strict=True)))
        first, second = (factor.matrix(n) for factor, n in zip(group.factors, group.shape, strict=True))
        for rows in (slice(None), slice(2, 5)):
            found = group.apply(cells.astype(dtype), rows)
            assert found.dtype == dtype
            assert np.array_equal(found.astype(np.float64), (first[rows] @ cells @ second.T).reshape(-1))


def test_domains_may_be_lists_and_arrays():
    """They become tuples of Python's numbers, so that labels, comparisons and manifests are as from a file."""
    bins = Attribute(name="a", bins=np.linspace(0, 1, 5))
    assert bins.labels == ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
    assert (
        Attribute(name="a", values=np.arange(3))
        == Attribute(name="a", values=[0, 1, 2])
        == Attribute(name="a", values=(0, 1, 2))
    )
    listed = Schema([Table(name="r", attributes=["a"])], [Attribute(name="a", range=[0, 3])])
    assert listed == Schema((Table(name="r", attributes=("a",)),), (Attribute(name="a", range=(0, 3)),))
    assert len({listed.attributes, listed.attributes}) == 1


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ({"values": "abc"}, "values \\('abc'\\) must be a list"),
        ({"range": 5}, "range \\(5\\) must be a list"),
        ({"bins": (0, float("nan"), 3)}, "bins \\(nan\\) must be a number"),
        ({"bins": ("a", "b")}, "bins \\('a'\\) must be a number"),
    ],
)
def test_domains_of_the_wrong_kind_are_refused(domain, words):
    """In Python as in a file: one line, no error of Python's own."""
    with pytest.raises(SpecError, match=words):
        Attribute(name="x", **domain)


def test_ranges_of_many_values_take_no_matrix():
    """Half a million ranges of a thousand values: a matrix of them would take four gigabytes."""
    schema = Schema((Table(name="r", attributes=("a",)),), (Attribute(name="a", range=(1, 1000)),))
    (group,) = Workload.ranges(schema, ["a"]).groups
    tracemalloc.start()
    found = group.apply(np.ones(1000))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(found), found[0], found[999], group.max_abs) == (500_500, 1.0, 1000.0, 1)
    assert most < 2**26


def test_sums_are_called_alike_and_asked_once():
    """A sum of the spec's `sums` and the same in SQL are one group, with a name that says what it is."""
    schema = Schema(
        (Table(name="r", attributes=("a", "c")),),
        (Attribute(name="a", range=(0, 6)), Attribute(name="c", range=(0, 3))),
    )
    sums = Workload.sums(schema, ["a"], by=["c"]) + Workload.sums(schema, ["a"])
    assert [g.name for g in sums.groups] == ["sum of a by c", "sum of a"]
    asked = Workload.sql(schema, "SELECT c, SUM(a) FROM joined GROUP BY c", "SELECT SUM(a) FROM joined")
    assert len((sums + asked).groups) == 2


def test_the_demo_spec_survives_toml():
    """The exemplary spec, its SQL and its `other` values included."""
    spec = Spec.from_toml(str(files("dpjoin") / "data" / "demo.toml"))
    again = Spec.from_dict(tomllib.loads(spec.to_toml()))
    assert again.schema == spec.schema
    assert same_workload(again.workload, spec.workload)


def test_a_saved_release_holds_the_spec_without_its_sources(tmp_path):
    """The manifest describes schema and workload, and no path of the custodian's machine."""
    import dpjoin

    spec = Spec.from_toml(make_shop(tmp_path))
    made = dpjoin.release(spec.schema, spec.workload, spec.sources(), spec.budget)
    made.save(tmp_path / "out")
    again = dpjoin.load(tmp_path / "out")
    assert again.schema.attributes == spec.schema.attributes
    assert [group_to_json(g) for g in again.workload.groups] == [group_to_json(g) for g in spec.workload.groups]
    np.testing.assert_allclose(again.answer(), made.answer())
    np.testing.assert_allclose(again.error(), made.error())
    assert "visits.parquet" not in (tmp_path / "out" / "manifest.json").read_text()


def test_attributes_may_be_left_out_where_the_file_is_there(tmp_path):
    """Without a list a table has the declared attributes among its columns, under their column names."""
    text = SPEC.replace('attributes = ["day", "age", "city"]\n', "")
    spec = Spec.from_toml(make_shop(tmp_path, spec=text))
    assert spec.schema.table("visits").attributes == ("day", "age", "city")
    (tmp_path / "visits.parquet").unlink()
    with pytest.raises(SourceError, match=r"shop.toml: tables.visits.source: file .* list tables.visits.attributes"):
        Spec.from_toml(tmp_path / "shop.toml")


def test_placeholders_are_refused_wherever_they_stand(tmp_path):
    """A list with "..." in it is not a domain yet."""
    text = SPEC.replace('["tea", "cake"]', '["tea", "..."]')
    with pytest.raises(SpecError, match=r"attributes.kind.values still holds the placeholder"):
        Spec.from_toml(make_shop(tmp_path, spec=text))


def test_groups_of_one_name_are_both_kept(tmp_path):
    """Adding workloads drops a group only when an equal one is there."""
    schema = Spec.from_toml(make_shop(tmp_path)).schema
    first, second = (Workload.products(schema, {"offers": (["kind"], [w])}) for w in ([1, 0], [0, 1]))
    assert len(first + second) == 2
    assert len(Workload.marginals(schema, 1) + Workload.marginals(schema, 1)) == len(Workload.marginals(schema, 1))


def test_equal_questions_are_asked_once(capsys, tmp_path):
    """A marginal in SQL is the marginal in `marginals`."""
    text = SPEC.replace(
        "SELECT city, SUM(price) FROM joined WHERE age >= 18", "SELECT city, kind, COUNT(*) FROM joined"
    )
    text = text.replace("GROUP BY city", "GROUP BY ALL")
    code, out, _ = run(capsys, "plan", make_shop(tmp_path, spec=text), "--json")
    assert code == 0
    assert [g["name"] for g in json.loads(out)["groups"]].count("city x kind") == 1
