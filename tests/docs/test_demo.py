"""The demo: the whole flow on the data that comes with the package."""

from __future__ import annotations

import subprocess
from importlib.resources import files

import dpjoin
from support.shop import run


def test_the_packaged_data_is_small_and_described():
    """Two Parquet files, a spec and their provenance, under a megabyte."""
    data = files("dpjoin") / "data"
    names = {p.name for p in data.iterdir()}
    assert {"flights.parquet", "weather.parquet", "demo.toml", "PROVENANCE.md"} <= names
    assert sum(len((data / n).read_bytes()) for n in names if n.endswith(".parquet")) < 1_000_000
    assert "CC0" in (data / "PROVENANCE.md").read_text()


def test_the_demo_runs_and_its_next_command_works(capsys, tmp_path, monkeypatch):
    """Plan, release, answer, evaluate; a second run takes the next free folder."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "demo")
    assert code == 0
    for words in ("join size", "carrier x delay", "covered", "± 90 %"):
        assert words in out
    for words in ("1. plan", "2. release", "3. answer", "4. evaluate", "dpjoin answer demo-release"):
        assert words in err
    shown, _, following = err.partition("Next:")
    assert max(map(len, (out + shown).splitlines())) <= 110
    for command, words in zip(following.strip().splitlines(), ("UA", "1,000 rows", "carrier"), strict=True):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        assert words in done.stdout + done.stderr
    (tmp_path / "rows.csv").unlink()
    release = dpjoin.load("demo-release")
    assert abs(release.join_size - 335_000) < 15_000
    assert run(capsys, "demo")[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo-release", "demo-release-2"]
    assert run(capsys, "demo", "-o", "demo-release")[0] == 2
