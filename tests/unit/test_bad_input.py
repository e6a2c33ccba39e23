"""Wrong specs and files beyond those of docs/bad-inputs.md: one line; exit code 2; nothing left behind.

Wrong rows are another matter: they are private, so they follow a public rule and never raise.
"""

from __future__ import annotations

import copy
import math
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpjoin
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.schema import DegreeBound
from support.shop import SPEC, journal_lines, make_shop, offers, run, visits

BIG = "\n".join(
    ["[tables.wide]", "source = 'visits.parquet'", f"attributes = {[f'a{i}' for i in range(9)]}"]
    + [f"[attributes.a{i}]\nrange = [0, 9]" for i in range(9)]
)


PRIVACY = "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"


def check_refused(capsys, spec, *words: str) -> str:
    """Release refuses with one line that names the spec and the words, and leaves nothing behind."""
    before = sorted(spec.parent.iterdir())
    code, out, err = run(capsys, "release", spec, "-o", spec.parent / "out")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {spec}: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert sorted(spec.parent.iterdir()) == before
    assert journal_lines(spec) == []
    return err


def test_a_bound_on_no_attribute_is_refused():
    """It would bound the table's rows, which the engine cannot do."""
    with pytest.raises(dpjoin.SpecError, match=r"'r': a degree bound \(5\) must name at least one attribute"):
        dpjoin.Schema(
            (dpjoin.Table(name="r", attributes=("a",), bounds=(DegreeBound(attributes=(), limit=5),)),),
            (dpjoin.Attribute(name="a", range=(0, 1)),),
        )


def test_attributes_that_differ_in_case_only_are_refused():
    """SQL over the synthetic rows would take one for the other."""
    with pytest.raises(dpjoin.SpecError, match="'a' and 'A' must differ in more than case"):
        dpjoin.Schema(
            (dpjoin.Table(name="r", attributes=("a",)), dpjoin.Table(name="s", attributes=("A",))),
            (dpjoin.Attribute(name="a", range=(0, 1)), dpjoin.Attribute(name="A", range=(0, 1))),
        )


def test_a_marginal_too_large_for_memory_is_refused(capsys, tmp_path):
    """The line says how many cells and bytes, and what to do; `plan` says the same."""
    wide = PRIVACY + BIG + '\n[workload]\nmarginals = [["a0"], ["a1"], ["a2", "a3", "a4", "a5", "a6", "a7", "a8"]]\n'
    spec = make_shop(tmp_path, spec=wide)
    line = check_refused(capsys, spec, "1,000,000,000 cells", "a8 10", "GB", "coarser bins")
    assert run(capsys, "plan", spec) == (2, "", line)


def test_a_parquet_file_damaged_inside_says_that_the_budget_counts(capsys, tmp_path):
    """Damage that shows only while rows are read: one line, no folder, and the journal has begun and failed."""
    spec = make_shop(tmp_path, first=visits(50_000))
    file = tmp_path / "visits.parquet"
    content = bytearray(file.read_bytes())
    content[100:60_000] = b"\xff" * 59_900
    file.write_bytes(bytes(content))
    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "counts as spent" in err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
    assert [e["what"] for e in journal_lines(spec)] == ["begun", "failed"]


ODD_ROWS = {
    "NULLs": pa.table({"day": [None, 1, 2], "age": [20.0, None, None], "city": [None, "Oslo", None]}),
    "nothing but NULL": pa.table(
        {
            "day": pa.array([None] * 5, pa.int64()),
            "age": pa.array([None] * 5, pa.float64()),
            "city": pa.array([None] * 5, pa.string()),
        }
    ),
    "outside the domain": pa.table(
        {"day": [1, 2, -(2**63)], "age": [-5.0, 1e300, math.nan], "city": ["", "Atlantis", "x" * 10_000]}
    ),
    "infinities": pa.table({"day": [1, 1, 1], "age": [math.inf, -math.inf, 30.0], "city": ["Oslo"] * 3}),
    "no rows": visits().slice(0, 0),
}


@pytest.mark.parametrize("case", ODD_ROWS)
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_odd_rows_never_raise(capsys, tmp_path, case, form):
    """Missing and foreign values and empty tables follow the public rule; the release looks like any other."""
    spec = make_shop(tmp_path, first=ODD_ROWS[case])
    if form == "csv":
        from pyarrow.csv import write_csv

        write_csv(ODD_ROWS[case], tmp_path / "visits.csv")
        spec.write_text(SPEC.replace("visits.parquet", "visits.csv"))
    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "out", "--json")
    assert code == 0
    assert "Atlantis" not in out + err
    assert run(capsys, "evaluate", spec, tmp_path / "out")[0] == 0


ODD_TIMES = {
    "seconds": (pa.timestamp("s"), 10**16),
    "milliseconds": (pa.timestamp("ms"), 10**16),
    "microseconds": (pa.timestamp("us"), -(2**63) + 2),
    "seconds with a zone": (pa.timestamp("s", "UTC"), 10**16),
    "time of day": (pa.time64("us"), -5),
    "duration": (pa.duration("s"), 2**62),
}


@pytest.mark.parametrize("case", ODD_TIMES)
@pytest.mark.parametrize("place", ["joined", "bounded", "carried"])
def test_one_odd_time_stops_no_release(case, place):
    """A release that fails on one of two neighbours tells which one it was, so no time may stop one."""
    kind, odd = ODD_TIMES[case]
    bounds = (DegreeBound(attributes=("k",) if place == "carried" else ("k", "t"), limit=2),)
    first = dpjoin.Table(
        name="r", attributes=("k", "t", "a"), bounds=() if place == "joined" else bounds, enforce=place != "joined"
    )
    second = dpjoin.Table(name="s", attributes=("k", "t", "b") if place == "joined" else ("k", "b"))
    attributes = (
        *(dpjoin.Attribute(name=n, key=True) for n in ("k", "t")),
        *(dpjoin.Attribute(name=n, range=(0, 1)) for n in ("a", "b")),
    )
    schema = dpjoin.Schema((first, second), attributes)

    def table(times: list[int], name: str) -> pa.Table:
        columns = {"t": pa.array(times, pa.int64()).view(kind), "k": [1] * len(times), name: [0] * len(times)}
        return pa.table(columns)

    workload = dpjoin.Workload.marginals(schema, 1)
    sizes = []
    for times in ([0, 1], [0, 1, odd]):
        tables = {"r": table(times, "a"), "s": table([0, 1], "b")}
        dpjoin.release(schema, workload, tables, dpjoin.Budget(epsilon=1.0, delta=1e-6))
        engine = DuckEngine(schema, tables, attributes=workload.attributes)
        sizes.append(engine.exact_join_size())
    # NULL is a value like others in a key that joins nothing, so the row stays within the bound.
    assert sizes == {"joined": [2, 2], "bounded": [4, 6], "carried": [4, 4]}[place]


def test_two_empty_tables_can_be_released(capsys, tmp_path):
    """Whether a table is empty is private."""
    spec = make_shop(tmp_path, first=visits().slice(0, 0), second=offers().slice(0, 0))
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0
    assert run(capsys, "release", spec, "-o", tmp_path / "paper", "--profile", "paper")[0] == 0
    assert pq.read_table(tmp_path / "out" / "synthetic.parquet").num_rows > 0


JUNK = (
    None, True, -1, 0, 3, 2**70, 1.5, math.nan, math.inf, "", "day", "...", [], ["day"], [1], [[]], [["day"]], [[1]],
    ["day", "day"], [{}], [{"attribute": 1}], [{"attribute": "age", "by": "city"}], [{"weights": 3}],
    [{"weights": {"offers": {"kind": ["a", "b"]}}}], [{"weights": {"offers": 3}}], [{"name": 3, "weights": {}}],
    [{"factors": ["cells"], "scope": ["age"], "name": "x"}], [{"factors": [3], "scope": ["age"]}], {}, {"a": 1},
    {"age": 1}, [1, "a"], [True, 1], [None], [math.nan, 1], [0, math.inf], ["inf", "-inf"], ["SELECT"], [3],
)  # fmt: skip


WORKLOAD_KEYS = ("marginals", "prefixes", "ranges", "sums", "products", "queries", "groups")


def places(node: dict, path: tuple = ()):
    """Every place in a nested dictionary."""
    for key, child in node.items():
        yield (*path, key)
        if isinstance(child, dict):
            yield from places(child, (*path, key))


def test_junk_anywhere_in_a_spec_is_one_of_our_errors(tmp_path):
    """Whatever stands at a place of the spec, the user gets a line and never a traceback."""
    make_shop(tmp_path)
    known = [*places(tomllib.loads(SPEC)), *(("workload", key) for key in WORKLOAD_KEYS)]
    known += [("tables", "visits", "columns"), ("tables", "visits", "private"), ("tables", "visits", "table")]
    known += [("tables", "visits", "encoding"), ("tables", "visits", "source"), ("privacy", "rows")]
    known += [("attributes", "age", key) for key in ("values", "range", "bins", "key", "other")]
    for place in dict.fromkeys(known):
        for junk in JUNK:
            data = copy.deepcopy(tomllib.loads(SPEC))
            node = data
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = junk
            try:
                dpjoin.Spec.from_dict(data, folder=tmp_path)
            except dpjoin.DpjoinError as error:
                assert "\n" not in str(error)  # noqa: PT017 (accepting the junk is fine too)
            except Exception as error:
                pytest.fail(f"{'.'.join(place)} = {junk!r}: {type(error).__name__}: {error}")
