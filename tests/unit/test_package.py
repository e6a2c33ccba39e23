"""The release folder is a data package that other people's programs open."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dpjoin as dj
from dpjoin.released.package import escaped, package_files
from support.release import BUDGET, SCHEMA, make_tables

HOSTILE = 'a|<script>alert("1")</script>\n---\n# `x` [l](u) \u202e'
PACKAGE = ("README.md", "croissant.json", "datapackage.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = dj.release(SCHEMA, dj.Workload.marginals(SCHEMA, 2), make_tables(2_000, 200), BUDGET)
    return release.save(tmp_path_factory.mktemp("package") / "out")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    attributes = (dj.Attribute(name=HOSTILE, values=("</td>", "--- x: y")), dj.Attribute(name="n", range=(0, 2)))
    schema = dj.Schema((dj.Table(name="t: '<b>", attributes=(HOSTILE, "n")),), attributes)
    rows = {"t: '<b>": pa.table({HOSTILE: ["</td>", "--- x: y"] * 100, "n": [0, 2] * 100})}
    release = dj.release(schema, dj.Workload.marginals(schema, 1), rows, BUDGET)
    return release.save(tmp_path_factory.mktemp("hostile") / "out")


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def front_matter(folder: Path) -> tuple[Any, str]:
    _, front, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


def test_it_is_a_function_of_the_manifest_and_hashes_are_right(folder: Path) -> None:
    """The three texts come out again from the manifest and the rows' columns; each file has the hash stated."""
    manifest = read(folder / "manifest.json")
    stated = manifest["sha256"]
    assert set(stated) == {f.name for f in folder.iterdir()} - {"manifest.json"}
    for name, digest in stated.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    again = package_files(manifest, pq.read_schema(folder / "synthetic.parquet"), stated["synthetic.parquet"])
    assert again == {name: (folder / name).read_text(encoding="utf-8") for name in PACKAGE}


@pytest.mark.parametrize("which", ["folder", "hostile"])
def test_frictionless_opens_and_validates_it(which: str, request: pytest.FixtureRequest) -> None:
    """Types, categories and the hash hold for every row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from frictionless import Package

        place = request.getfixturevalue(which)
        package = Package(str(place / "datapackage.json"))
        report = package.validate()
        assert report.valid, report.flatten(["type", "message"])[:3]
        table = pq.read_table(place / "synthetic.parquet")
        assert [f.name for f in package.resources[0].schema.fields] == table.column_names
        assert len(package.resources[0].read_rows()) == table.num_rows


@pytest.mark.parametrize("which", ["folder", "hostile"])
def test_croissant_is_valid_and_loads_rows(
    which: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an error or a word of missing context; the guarantee is in our namespace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlcroissant

        place = request.getfixturevalue(which)
        dataset = mlcroissant.Dataset(str(place / "croissant.json"))
        assert not dataset.metadata.ctx.issues.errors
        assert "@context" not in caplog.text
        rows = [row for row, _ in zip(dataset.records("rows"), range(5), strict=False)]
    assert len(rows) == 5
    assert len(rows[0]) == pq.read_schema(place / "synthetic.parquet").names.__len__()
    told, promised = read(place / "croissant.json"), read(place / "manifest.json")["guarantee"]
    assert {key: told[f"dp:{key}"] for key in ("epsilon", "delta", "unit", "neighbours")} == {
        key: promised[key] for key in ("epsilon", "delta", "unit", "neighbours")
    }
    assert told["dp:mechanism"]


def test_the_card_parses(folder: Path) -> None:
    """Its front matter is YAML that names the rows, and every column has a line."""
    front, body = front_matter(folder)
    assert front["configs"] == [{"config_name": "default", "data_files": "synthetic.parquet"}]
    for name in pq.read_schema(folder / "synthetic.parquet").names:
        assert f"| {name} |" in body


def test_hostile_names_stay_text(hostile: Path) -> None:
    """No tag, no new line, no cell and no heading comes from a name."""
    front, body = front_matter(hostile)
    assert front["pretty_name"] == "Synthetic join of t: '<b>"
    assert "<script" not in body
    assert "<b>" not in body
    assert sum(line.startswith("#") for line in body.splitlines()) == 3
    (line,) = [line for line in body.splitlines() if "alert" in line]
    assert line.replace("\\|", "").count("|") == 4
    assert escaped("a\n`|`<") == "a \\`\\|\\`&lt;"


def test_columns_are_described_in_the_parquet_file(folder: Path) -> None:
    """The schema's metadata hold the descriptions of the data package."""
    schema = pq.read_schema(folder / "synthetic.parquet")
    fields = read(folder / "datapackage.json")["resources"][0]["schema"]["fields"]
    assert [schema.field(f["name"]).metadata[b"description"].decode() for f in fields] == [
        f["description"] for f in fields
    ]
    told = {f["name"]: f["description"] for f in fields}
    assert told["a"] == "Of r. One of 4 values."
    assert told["b"] == "Of r. One of 2 values; whatever else is other or missing."


def test_a_folder_without_them_loads(folder: Path, tmp_path: Path) -> None:
    """As version 0.1 wrote it."""
    old = shutil.copytree(folder, tmp_path / "old")
    for name in PACKAGE:
        (old / name).unlink()
    manifest = read(old / "manifest.json")
    del manifest["sha256"]
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert dj.load(old).join_size == dj.load(folder).join_size
