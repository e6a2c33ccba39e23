"""`dpjoin init --metadata`: what CSVW-EO metadata declare goes into the first spec, and nothing else of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dpjoin as dj
from dpjoin.cli.commands import main

VISITS = {
    "@context": ["http://www.w3.org/ns/csvw"],
    "@type": "Table",
    "privacyUnit": "patient",
    "maxContributions": 9,
    "tableSchema": {
        "columns": [
            {"name": "patient", "datatype": "string"},
            {"name": "ward", "datatype": "string", "keyValues": ["surgery", "children"], "exhaustiveKeys": True},
            {"name": "kind", "datatype": "string", "keyValues": ["a", None, "b"]},
            {"name": "urgent", "datatype": "boolean"},
            {"name": "age", "datatype": "integer", "minimum": 0, "maximum": 90, "nullableProportion": 0.25},
            {"name": "cost", "datatype": "double", "minimum": 0, "maximum": 800},
            {
                "name": "stay",
                "datatype": "double",
                "partitions": [
                    {"predicate": {"lowerBound": 7, "upperBound": 30}, "maxLength": 41},
                    {"predicate": {"lowerBound": 0, "upperBound": 7}, "maxLength": 77},
                ],
            },
        ]
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("patient,ward,kind,urgent,age,cost,stay\n1,surgery,a,true,3,5.5,2\n")
    Path("visits-metadata.json").write_text(json.dumps(VISITS))
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "csvw-eo:"])
def test_declared_domains_are_taken(folder: Path, prefix: str) -> None:
    """Listed values, ranges, bins; nothing that was counted in the rows. Names may have the vocabulary's prefix."""
    told = json.dumps(VISITS)
    for name in ("privacyUnit", "keyValues", "exhaustiveKeys", "partitions", "predicate", "lowerBound", "upperBound"):
        told = told.replace(f'"{name}"', f'"{prefix}{name}"')
    Path("visits-metadata.json").write_text(told)
    main(["init", "visits.csv", "--metadata", "visits-metadata.json"])
    spec = dj.Spec.from_toml("spec.toml")
    assert spec.schema.unit == ("patient",)
    found = {a.name: a for a in spec.schema.attributes}
    assert found["ward"].values == ("surgery", "children")
    assert not found["ward"].other
    assert (found["kind"].values, found["kind"].other) == (("a", "b"), True)
    assert found["urgent"].values == (False, True)
    assert found["age"].range == (0, 90)
    assert found["cost"].bins == tuple(float(x) for x in range(0, 801, 100))
    assert found["stay"].bins == (0, 7, 30)
    text = Path("spec.toml").read_text()
    assert not {"41", "77", "0.25"} & set(text.split())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "must be JSON"),
        ("[]", "must have tableSchema.columns"),
        (json.dumps({"tableSchema": {"columns": [{}]}}), "each column must have a name"),
        (json.dumps({**VISITS, "url": "others.csv"}), "must be about a table given here"),
    ],
)
def test_other_files_are_refused_in_a_line(
    content: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no spec is written."""
    Path("other.json").write_text(content)
    with pytest.raises(SystemExit) as stopped:
        main(["init", "visits.csv", "--metadata", "other.json"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not Path("spec.toml").exists()
