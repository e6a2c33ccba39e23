"""Wrong specs and wrong files: one line that names file, key, value and fix; exit code 2; nothing left behind.

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


WRONG_SPECS = {
    "unknown key": (("epsilon = 1.0", "epsilon = 1.0\nrho = 2"), ("privacy.rho", "known: delta, epsilon")),
    "unknown section": (("[privacy]", "[private]"), ("private", "did you mean 'privacy'?")),
    "misspelt key": (("epsilon = 1.0", "epsilom = 1.0"), ("privacy.epsilom", "did you mean 'epsilon'?")),
    "misspelt attribute key": (("other = true", "othr = true"), ("attributes.city.othr", "did you mean 'other'?")),
    "missing delta": (("delta = 1e-6", ""), ("privacy.delta is missing", "add it")),
    "attribute in no table": (('"price", "kind"]', '"price"]'), ("'kind' is in no table", "add it to a table")),
    "attribute not declared": (('"age", "city"]', '"age", "city", "zip"]'), ("'zip'", "not declared")),
    "overlapping bins": (("[0, 18, 65, 120]", "[0, 65, 18, 120]"), ("attributes.age", "18 follows 65", "increasing")),
    "no domain": (("range = [1, 4]", ""), ("attributes.price", "must have one of values, range, bins")),
    "two domains": (("range = [1, 4]", "range = [1, 4]\nkey = true"), ("attributes.price", "range and key")),
    "range backwards": (("range = [1, 4]", "range = [4, 1]"), ("[4, 1]", "swap them")),
    "repeated value": (('["tea", "cake"]', '["tea", "tea"]'), ("attributes.kind", "'tea'", "remove the repetition")),
    "bins that are text": (("[0, 18, 65, 120]", '[0, "old"]'), ("attributes.age.bins", "'old'", "must be a number")),
    "weight outside [-1, 1]": (
        ("marginals = 2", 'marginals = 2\nproducts = [{ name = "p", weights = { offers = { kind = [1, 2.5] } } }]'),
        ("'p'", "weight (2.5)", "[-1, 1]", "scale the query"),
    ),
    "too few weights": (
        ("marginals = 2", 'marginals = 2\nproducts = [{ name = "p", weights = { offers = { kind = [1] } } }]'),
        ("'p'", "'kind'", "2 numbers"),
    ),
    "epsilon zero": (("epsilon = 1.0", "epsilon = 0.0"), ("privacy.epsilon (0.0)", "greater than 0")),
    "epsilon negative": (("epsilon = 1.0", "epsilon = -1"), ("epsilon (-1.0)", "greater than 0")),
    "epsilon is text": (("epsilon = 1.0", "epsilon = 'one'"), ("privacy.epsilon", "'one'", "must be a number")),
    "delta zero": (("delta = 1e-6", "delta = 0"), ("privacy.delta (0.0)", "between")),
    "delta one": (("delta = 1e-6", "delta = 1"), ("delta (1.0)", "between")),
    "delta negative": (("delta = 1e-6", "delta = -0.1"), ("delta (-0.1)", "between")),
    "wrong marginals": (("marginals = 2", "marginals = 7"), ("marginals (7)", "between 1 and")),
    "marginal of one attribute twice": (
        ("marginals = 2", 'marginals = [["city", "city"]]'),
        ("workload.marginals", "['city', 'city']", "each attribute once", "remove the repetition"),
    ),
    "wrong SQL": (("WHERE age >= 18", "WHERE age >= 20"), ("workload.queries[0]", "age >= 20", "18, 65")),
    "wrong profile": (
        ("[tables.visits]", '[release]\nprofile = "loose"\n[tables.visits]'),
        ("'loose'", "tight, paper"),
    ),
    "missing file": (("visits.parquet", "vists.parquet"), ("tables.visits.source", "vists.parquet", "correct")),
    "folder": (("visits.parquet", "."), ("'visits'", "is a folder and must be one file (.csv", "tables.visits.source")),
    "folder whose columns are to be listed": (
        ('"visits.parquet"\nattributes = ["day", "age", "city"]', '"."'),
        ("'visits'", "is a folder and must be one file", "tables.visits.source"),
    ),
    "unknown extension": (("visits.parquet", "visits.xls"), ("visits.xls",)),
    "duplicate table": (("[tables.offers]", "[tables.visits]"), ("TOML", "visits", "twice")),
    "one file twice": (
        ("offers.parquet", "visits.parquet"),
        ("'visits' and 'offers' have the same source", "split the rows"),
    ),
    "missing column": (
        ('"age", "city"]', '"age", "city"]\ncolumns = { age = "years" }'),
        ("'years'", "it has: day, age"),
    ),
    "wrong column type": (("bins = [0, 18, 65, 120]", 'values = ["young"]'), ("visits", "'age'", "text", "convert")),
    "missing column where attributes are read off the file": (
        ('attributes = ["day", "age", "city"]', 'columns = { age = "Age" }'),
        ("tables.visits.columns.age", "has no column 'Age'", "did you mean 'age'?"),
    ),
    "a table inside a file that is no database": (
        ('"visits.parquet"', '"visits.parquet"\ntable = "visits"'),
        ("tables.visits.table ('visits')", "inside a database", "'visits.parquet'", "remove it"),
    ),
    "epsilon beyond all numbers": (("epsilon = 1.0", f"epsilon = 1{'0' * 400}"), ("privacy.epsilon", "between")),
    "marginals as one list": (
        ("marginals = 2", 'marginals = ["age", "city"]'),
        ("workload.marginals (['age', 'city'])", "lists of attributes", "write [['age', 'city']]"),
    ),
    "prefixes of an unknown attribute": (
        ("marginals = 2", 'prefixes = ["agee"]'),
        ("workload.prefixes: ", "'agee' is not declared", "did you mean 'age'?"),
    ),
    "a sum over more values than a model holds": (
        ("range = [1, 4]", "range = [1, 100_000_000]"),
        ("workload", "'price' has 100,000,000 values", "4,194,304 at most", "use bins"),
    ),
    "more ranges than fit into memory": (
        (
            '4]\n[attributes.kind]\nvalues = ["tea", "cake"]\n\n[workload]\nmarginals = 2',
            '20_000]\n[attributes.kind]\nvalues = ["tea", "cake"]\n\n[workload]\nranges = ["price"]',
        ),
        ("'price ranges' has 200,010,000 queries", "at most 16,777,216", "prefixes"),
    ),
    "a key of no columns": (
        ('"age", "city"]', '"age", "city"]\nunique = []'),
        ("tables.visits.unique ([])", "at least one attribute", "leave it out"),
    ),
    "not TOML": (("[privacy]", "[privacy"), ("not valid TOML", "line 1")),
}


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


@pytest.mark.parametrize("case", WRONG_SPECS)
def test_wrong_specs_are_refused_before_anything_is_opened(capsys, tmp_path, case):
    """The line names file, key, value and fix; no folder and no journal line are left."""
    (old, new), words = WRONG_SPECS[case]
    assert old in SPEC
    spec = make_shop(tmp_path, spec=SPEC.replace(old, new, 1))
    if case == "wrong column type":
        spec.write_text(spec.read_text().replace(" WHERE age >= 18", ""))
    check_refused(capsys, spec, *words)


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


def test_an_unreadable_parquet_file_is_refused(capsys, tmp_path):
    """A file that is not Parquet is named, and nothing of it is repeated."""
    spec = make_shop(tmp_path)
    (tmp_path / "visits.parquet").write_bytes(b"Secretville" * 100)
    assert "Secretville" not in check_refused(capsys, spec, "visits.parquet", "cannot be read as Parquet")


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


def test_a_missing_spec_is_named(capsys, tmp_path):
    """The line says how to write one."""
    code, out, err = run(capsys, "plan", tmp_path / "none.toml")
    assert (code, out) == (2, "")
    assert "none.toml" in err
    assert "dpjoin init" in err


def test_an_existing_output_folder_is_kept(capsys, tmp_path):
    """It is checked first: nothing is opened, spent or changed."""
    spec = make_shop(tmp_path)
    (tmp_path / "out").mkdir()
    code, _, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert code == 2
    assert "exists already; choose another with -o" in err
    assert list((tmp_path / "out").iterdir()) == []
    assert journal_lines(spec) == []


def test_a_place_that_cannot_be_written_is_refused_first(capsys, tmp_path):
    """Budget is not spent on a result that cannot be saved."""
    spec = make_shop(tmp_path)
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "release", spec, "-o", tmp_path / "file" / "out")
    assert code == 2
    assert "choose another place" in err
    assert journal_lines(spec) == []


@pytest.mark.parametrize("missing", ["manifest.json", "model.npz"])
def test_a_broken_release_folder_is_named(capsys, tmp_path, missing):
    """Half a release cannot be asked."""
    loaded = dpjoin.Spec.from_toml(make_shop(tmp_path))
    dpjoin.release(loaded.schema, loaded.workload, loaded.sources(), loaded.budget).save(tmp_path / "out")
    (tmp_path / "out" / missing).unlink()
    code, _, err = run(capsys, "answer", tmp_path / "out", "SELECT COUNT(*) FROM joined")
    assert code == 2
    assert "not a release folder" in err
    (tmp_path / "out" / missing).write_text("[]")
    code, _, err = run(capsys, "answer", tmp_path / "out", "SELECT COUNT(*) FROM joined")
    assert code == 2
    assert "cannot be read" in err


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
