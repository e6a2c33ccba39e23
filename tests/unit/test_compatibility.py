"""Folders that earlier versions wrote are read, with the same answers and bars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from support.paths import FIXTURES

FOLDER = FIXTURES / "releases-0.1"
"""Made by 0.1.0 from random rows: one folder for each kind of model, and what it answered then."""


KEPT: dict[str, Any] = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", KEPT)
def test_a_release_of_0_1_gives_the_answers_it_gave(name: str, tmp_path: Path) -> None:
    """So it does once it is saved again by this version."""
    kept = KEPT[name]
    for folder in (FOLDER / name, dj.load(FOLDER / name).save(tmp_path / name)):
        release = dj.load(folder)
        assert release.method == kept["method"]
        assert release.answer().tolist() == pytest.approx(kept["answers"], rel=1e-6, abs=1e-5)
        bars = np.nan_to_num(release.error(), nan=-1.0)
        assert bars.tolist() == pytest.approx([-1.0 if b is None else b for b in kept["bars"]], rel=1e-6, abs=1e-5)


def test_every_format_is_kept() -> None:
    """The folders cover all layouts that this version can read."""
    formats = {json.loads((FOLDER / name / "manifest.json").read_text(encoding="utf-8"))["format"] for name in KEPT}
    assert formats == {1, 2, 3}
