"""Known-bad code: what proofs rest on is weakened, and the check of proofs names it. In 0.1 it named none of these."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from support.paths import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "proofs.py"))
PROOFS = ROOT / "src" / "dpjoin" / "privacy" / "PROOFS.md"


@pytest.mark.parametrize(
    ("module", "old", "new", "name"),
    [
        ("privacy.parts", "self.listed.get(value, self.threshold)", "self.listed.get(value, 0)", "NoisyDegrees"),
        ("privacy.instance", "else churn(schema)", "else 0", "Instance"),
        ("privacy.curator", "self._require_minted(bound)", "pass", "Curator.join_size"),
        ("spec.schema", 'whole(self.limit, "a degree bound")', "self.limit", "DegreeBound"),
        ("spec.workload", 'whole(weight, "weight of a factor")', "weight", "Factor"),
        ("canonical", "type(value) not in INTEGERS", "not isinstance(value, int)", "whole"),
    ],
)
def test_a_weakened_definition_is_named(module: str, old: str, new: str, name: str, tmp_path: Path) -> None:
    """By the check of proofs, before any test runs."""
    path = Path(*f"dpjoin.{module}".split(".")).with_suffix(".py")
    code = (ROOT / "src" / path).read_text()
    weak = tmp_path / path
    weak.parent.mkdir(parents=True)
    weak.write_text(code.replace(old, new))
    assert weak.read_text() != code, "there is something to weaken"
    recorded = {m["name"]: m["hash"] for m in TOOL["PROVES"].finditer(PROOFS.read_text())}
    of_module = {n: h for n, h in recorded.items() if n.startswith(f"dpjoin.{module}.")}
    changed = {n for n, h in of_module.items() if TOOL["current_hash"](n, source=tmp_path) != h}
    assert f"dpjoin.{module}.{name}" in changed
