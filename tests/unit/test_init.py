"""The first draft: column names and types, and no value that was not declared public."""

from __future__ import annotations

import re
import sqlite3
import tomllib

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpjoin
from support.shop import offers, run, visits


@pytest.fixture
def tables(tmp_path):
    secret = visits(50).append_column("name", pa.array([f"Secret {i}" for i in range(50)]))
    secret = secret.append_column("vip", pa.array([True] * 50)).append_column("born", pa.array([0] * 50, pa.date32()))
    pq.write_table(secret, tmp_path / "visits.parquet")
    pyarrow.csv.write_csv(offers(20), tmp_path / "offers.csv")
    return tmp_path / "visits.parquet", tmp_path / "offers.csv"


def test_a_draft_holds_names_and_types_only(capsys, tables, tmp_path):
    """No value of the tables is in the draft; shared columns are keys; sources are relative to the spec."""
    spec = tmp_path / "specs" / "draft.toml"
    code, out, err = run(capsys, "init", *tables, "--no-learn", "-o", spec)
    assert (code, out) == (0, "")
    assert "dpjoin plan" in err
    text = spec.read_text()
    for value in ("Secret ", "Oslo", "Rome", '"tea"', "cake"):
        assert value not in text
    draft = tomllib.loads(text)
    assert draft["tables"]["visits"]["source"] == "../visits.parquet"
    assert draft["attributes"]["day"] == {"key": True}
    assert draft["attributes"]["vip"] == {"values": [False, True]}
    assert draft["attributes"]["age"] == {"bins": ["..."]}
    assert draft["attributes"]["born"] == {"part": "month"}
    assert "joins on     day (guessed from names; --on says otherwise)" in err


def test_the_draft_does_not_depend_on_the_rows(capsys, tmp_path):
    """Two files with the same columns and different rows give the same draft."""
    texts = []
    for rows in (0, 1, 50):
        pq.write_table(visits(rows), tmp_path / "visits.parquet")
        spec = tmp_path / f"draft{rows}.toml"
        assert run(capsys, "init", tmp_path / "visits.parquet", "-o", spec)[0] == 0
        texts.append(spec.read_text())
    assert len(set(texts)) == 1


def test_plan_says_in_one_line_what_to_fill_in(capsys, tables, tmp_path):
    """The draft is valid TOML, and every placeholder is named at once."""
    spec = tmp_path / "draft.toml"
    run(capsys, "init", *tables, "--no-learn", "-o", spec)
    code, out, err = run(capsys, "plan", spec)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for key in ("attributes.age.bins", "attributes.city.values", "attributes.price.bins", "fill in"):
        assert key in err


def test_a_filled_draft_can_be_planned_and_released(capsys, tables, tmp_path):
    """Filling in what the line asks for is enough."""
    spec = tmp_path / "draft.toml"
    run(capsys, "init", *tables, "-o", spec, "--public-domain", "visits.city", "--public-domain", "offers.price")
    text = spec.read_text()
    assert 'values = ["Oslo", "Rome", "Secretville"]' in text
    assert "values = [1, 2, 3, 4]" in text
    assert "Secret 1" not in text
    kept = [part for part in text.split("\n\n") if not part.startswith(("[attributes.name]", "[attributes.kind]"))]
    spec.write_text("\n\n".join(kept).replace('bins = ["..."]', "bins = [0, 50, 100]"))
    assert run(capsys, "plan", spec)[0] == 0
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0


def test_what_the_draft_offers_can_be_taken(capsys, tables, tmp_path):
    """Keys, bounds on degrees, the method and the profile stand in comments that are valid as they are."""
    pq.write_table(pa.table({"kind": ["tea"], "day": [1], "a,b": [1], "c d": [2]}), tmp_path / "kinds.parquet")
    pq.write_table(pa.table({"c d": [2], "a,b": [2]}), tmp_path / "odd.parquet")
    spec = tmp_path / "draft.toml"
    more = (tmp_path / "kinds.parquet", tmp_path / "odd.parquet")
    public = ("--public-domain", "visits.city", "--public-domain", "offers.price", "--public-domain", "offers.kind")
    run(
        capsys, "init", *tables, *more, "-o", spec, *public, "--on", "day", "--on", "kind", "--on", "c d", "--on", "a,b"
    )
    text = spec.read_text().replace('bins = ["..."]', "bins = [0, 50, 100]").replace('["..."]', '["x"]')
    offered = re.sub(r"(?m)^# (?=(unique|max_degree|method|profile) = )", "", text)
    spec.write_text(offered)
    draft = tomllib.loads(offered)
    assert draft["release"] == {"method": "auto", "profile": "tight"}
    assert draft["tables"]["visits"]["unique"] == ["day"]
    assert draft["tables"]["visits"]["max_degree"] == {"day": 100}
    assert draft["tables"]["kinds"]["max_degree"] == {"day": 100, "kind, day": 100}
    assert draft["tables"]["odd"]["unique"] == ["c d", "a,b"]
    assert "max_degree" not in draft["tables"]["odd"]
    assert run(capsys, "plan", spec)[0] == 0
    for line in text.splitlines():
        if line.startswith(("# unique =", "# max_degree =", "# method =", "# profile =")):
            assert "   # " in line


def test_a_draft_of_tables_that_share_nothing_offers_no_bounds(capsys, tables, tmp_path):
    """There is no likely key."""
    run(capsys, "init", tables[0], "-o", tmp_path / "one.toml")
    assert "# unique =" not in (tmp_path / "one.toml").read_text()


def test_a_table_that_shares_nothing_is_told_how_to_join(capsys, tables, tmp_path):
    """Two tables share a column and the third calls it otherwise: its section says so, the others' do not."""
    pq.write_table(pa.table({"the day": [1], "sky": ["blue"]}), tmp_path / "sky.parquet")
    spec = tmp_path / "draft.toml"
    run(capsys, "init", *tables, tmp_path / "sky.parquet", "-o", spec)
    told = [part for part in spec.read_text().split("[tables.") if "nothing joins it yet: columns = {" in part]
    assert [part.partition("]")[0] for part in told] == ["sky"]


def test_public_values_are_limited(capsys, tables, tmp_path):
    """Only text and whole numbers, at most a thousand, and only columns that exist."""
    pq.write_table(pa.table({"id": list(range(1001))}), tmp_path / "many.parquet")
    for item, words in (
        ("visits.age", "write bins"),
        ("visits.ages", "did you mean 'age'?"),
        ("vists.age", "did you mean 'visits'?"),
        ("many.id", "more than 1000 values"),
        ("visits", "must be TABLE.COLUMN"),
    ):
        code, _, err = run(
            capsys, "init", *tables, tmp_path / "many.parquet", "-o", tmp_path / "x.toml", "--public-domain", item
        )
        assert code == 2
        assert words in err
        assert err.count("\n") == 1
    assert not (tmp_path / "x.toml").exists()


def test_an_existing_spec_is_kept(capsys, tables, tmp_path):
    """init never overwrites."""
    spec = tmp_path / "draft.toml"
    spec.write_text("mine")
    code, _, err = run(capsys, "init", *tables, "-o", spec)
    assert code == 2
    assert "exists already" in err
    assert spec.read_text() == "mine"


def test_two_tables_of_one_name_and_missing_files_are_refused(capsys, tables, tmp_path):
    """Names come from files, so two files of one name collide."""
    assert "rename one" in run(capsys, "init", tables[0], tables[0], "-o", tmp_path / "x.toml")[2]
    code, _, err = run(capsys, "init", tmp_path / "none.parquet", "-o", tmp_path / "x.toml")
    assert code == 2
    assert "does not exist" in err
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, "init", tmp_path / "empty", "-o", tmp_path / "x.toml")
    assert code == 2
    assert "has no file of a known kind" in err


def test_tables_of_a_database(capsys, tmp_path):
    """FILE:TABLE names a table inside a database; odd names are quoted."""
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute('CREATE TABLE "big sales" ("unit price" INTEGER, "what""s" TEXT)')
        database.execute('INSERT INTO "big sales" VALUES (7, ?)', ["Secret"])
    database.close()
    spec = tmp_path / "draft.toml"
    assert run(capsys, "init", f"{tmp_path / 'shop.db'}:big sales", "-o", spec)[0] == 0
    draft = tomllib.loads(spec.read_text())
    assert draft["tables"]["big sales"] == {"source": "shop.db", "table": "big sales", "private": True}
    assert list(draft["attributes"]) == ["unit price", 'what"s']
    assert "Secret" not in spec.read_text()
    assert (
        "shop.db:TABLE (it has: big sales)" in run(capsys, "init", tmp_path / "shop.db", "-o", tmp_path / "x.toml")[2]
    )


def _csv(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def shop(tmp_path):
    orders = "id,customer_id,status,placed,at,paid,total,note_code\n1,7,sent,2020-01-31,10:30,true,3.50,007\n"
    orders += "2,8,Secret,2021-02-03,9:05,false,NA,012\n"
    customers = (
        "id,name,status,born,vip\n7,Secret Ann,gold,1980-01-01 10:00:00,True\n8,Secret Bob,,1990-01-01 11:30:00,\n"
    )
    return _csv(tmp_path, "orders.csv", orders), _csv(tmp_path, "customers.csv", customers)


def test_types_of_text_files_are_taken_from_their_rows(capsys, shop, tmp_path):
    """Dates, times, booleans and decimals are recognised; codes with leading zeros are text; init says where from."""
    spec = tmp_path / "shop.toml"
    code, _, err = run(capsys, "init", *shop, "--no-learn", "-o", spec)
    assert code == 0
    text = spec.read_text()
    assert "Secret" not in text + err
    draft = tomllib.loads(text)
    assert draft["attributes"] == {
        "customer_id": {"key": True},
        "orders_status": {"values": ["..."]},
        "placed": {"part": "month"},
        "at": {"part": "hour"},
        "paid": {"values": [False, True]},
        "total": {"bins": ["..."]},
        "note_code": {"values": ["..."]},
        "name": {"values": ["..."]},
        "customers_status": {"values": ["..."]},
        "born": {"part": "month"},
        "vip": {"values": [False, True]},
    }
    assert draft["tables"]["orders"]["columns"] == {"orders_status": "status"}
    assert draft["tables"]["customers"]["columns"] == {"customer_id": "id", "customers_status": "status"}
    for told in (
        "customer_id (customers.id, orders.customer_id)",
        "status is orders_status, customers_status",
        "types",
    ):
        assert told in err
    assert len(err.splitlines()) < 24
    filled = text.replace('values = ["..."]', 'values = ["gold"]\nother = true').replace('["..."]', "[0, 5]")
    spec.write_text(filled)
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0


def test_numbers_and_dates_as_people_write_them_are_told(capsys, tmp_path):
    """Before anything is spent: decimal commas, currencies, percents and such dates are text to a release."""
    rows = "3,5;$1,200;12%;31.12.2020;2/3/1999 10:00;05123;A1;12\n-7;$5;3%;1.2.2021;12/30/2001 9:00;00012;B,2;7\n"
    rows += ";;;;;;;NA\n"
    table = _csv(tmp_path, "t.csv", "comma;money;share;german;american;code;word;whole\n" + rows)
    spec = tmp_path / "t.toml"
    code, _, err = run(capsys, "init", table, "-o", spec)
    assert code == 0
    (told,) = [line for line in err.splitlines() if line.startswith("stays text")]
    assert told.startswith(
        "stays text   comma, money, share, german, american (numbers or dates like 3,5 or 31.12.2020;"
    )
    learned = {a: body.get("learn") for a, body in tomllib.loads(spec.read_text())["attributes"].items()}
    assert learned == dict.fromkeys(("comma", "money", "share", "german", "american", "code", "word"), True) | {
        "whole": {"bins": 8, "whole": True}
    }


def test_a_draft_can_be_released_as_it_is(capsys, shop, tmp_path):
    """What nobody declared is learned: lists of text, bins of numbers and of dates; nothing is left to fill in."""
    spec = tmp_path / "shop.toml"
    code, _, err = run(capsys, "init", *shop, "-o", spec)
    assert code == 0
    assert "fill in" not in err
    assert "learned" in err
    draft = tomllib.loads(spec.read_text())["attributes"]
    assert draft["orders_status"] == {"learn": True}
    assert draft["total"] == {"learn": {"bins": 8}}
    assert draft["placed"] == draft["born"] == {"part": "date", "learn": {"bins": 8}}
    assert run(capsys, "plan", spec)[0] == 0
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert "Secret" not in text  # too few rows have it
    assert run(capsys, "evaluate", spec, tmp_path / "out")[0] == 0


@pytest.mark.parametrize(
    ("first", "second", "on", "keys"),
    [
        ("order_id,status,x", "order_id,status,y", (), {"order_id"}),
        ("orderId,Code,x", "orderId,Code,y", (), {"orderId", "Code"}),
        ("day,x", "day,y", (), {"day"}),
        ("id,day,x", "id,day,y", ("day",), {"day"}),
        ("a,b,x", "a,b,y", ("a,b",), {"a", "b"}),
        ("person,x", "patient,y", ("person=patient",), {"person"}),
        ("x", "y", (), set()),
    ],
)
def test_keys_come_from_names(capsys, tmp_path, first, second, on, keys):
    """Names called like keys join, and of others the only one; --on decides otherwise."""
    files = _csv(tmp_path, "one.csv", f"{first}\n"), _csv(tmp_path, "two.csv", f"{second}\n")
    given = [word for column in on for word in ("--on", column)]
    assert run(capsys, "init", *files, *given, "-o", tmp_path / "s.toml")[0] == 0
    attributes = tomllib.loads((tmp_path / "s.toml").read_text())["attributes"]
    assert {name for name, body in attributes.items() if body.get("key")} == keys


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ((), "tables share the columns a, b, and none is called like a key; say which ones join them, as in --on a"),
        (("c",), "--on c: no table has a column 'c'"),
        (("x",), "--on x: only table 'one' has a column 'x'"),
        (("x=z",), "no table has a column 'z'"),
    ],
)
def test_what_names_do_not_tell_is_asked_for(capsys, tmp_path, on, words):
    """One line, and no spec."""
    files = _csv(tmp_path, "one.csv", "a,b,x\n"), _csv(tmp_path, "two.csv", "a,b,y\n")
    given = [word for column in on for word in ("--on", column)]
    code, _, err = run(capsys, "init", *files, *given, "-o", tmp_path / "s.toml")
    assert (code, err.count("\n")) == (2, 1)
    assert words in err
    assert not (tmp_path / "s.toml").exists()


def test_init_asks_when_told_to(capsys, monkeypatch, tmp_path):
    """Keys and domains as answered; an answer that is no list of numbers is asked for again."""
    files = _csv(tmp_path, "one.csv", "a,b,x\n1,2,u\n"), _csv(tmp_path, "two.csv", "a,b,y\n1,2,3\n")
    answers = iter(["a", "skip", "u, v", "skip", "low", "0, 5, inf"])
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    assert run(capsys, "init", *files, "--interactive", "-o", tmp_path / "s.toml")[0] == 0
    assert tomllib.loads((tmp_path / "s.toml").read_text())["attributes"] == {
        "a": {"key": True},
        "x": {"values": ["u", "v"], "other": True},
        "y": {"bins": [0, 5, float("inf")]},
    }
    assert run(capsys, "plan", tmp_path / "s.toml")[0] == 0


def test_what_is_only_called_like_an_identifier_can_be_kept(capsys, tmp_path):
    """The draft says how: without the marks of a comment the column is an attribute."""
    rows = {"player_id": list(range(40)), "yearID": [2000 + i % 4 for i in range(40)], "paid": [True, False] * 20}
    pq.write_table(pa.table(rows), tmp_path / "pay.parquet")
    spec = tmp_path / "draft.toml"
    run(capsys, "init", tmp_path / "pay.parquet", "-o", spec)
    text = spec.read_text()
    assert list(tomllib.loads(text)["attributes"]) == ["paid"]
    kept = text.replace("# [attributes.yearID]\n# learn", "[attributes.yearID]\nlearn")
    assert kept != text
    spec.write_text(kept)
    assert dpjoin.Spec.from_toml(spec).schema.learned == ("yearID",)
