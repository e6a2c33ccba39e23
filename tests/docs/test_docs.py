"""The README does what it says, and names nothing that is not there."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpjoin as dj
from dpjoin.auto.choose import auto_shares
from dpjoin.auto.plan import plan
from dpjoin.constants import EARLY_LAPLACE, LAPLACE_SHARE, RANKS_SHARE, SIZES_SHARE
from dpjoin.methods.as_one import as_one_shares
from dpjoin.methods.capped import CAPPED
from dpjoin.methods.heavy_light import heavy_light_shares
from dpjoin.methods.look import fades_of, fading_price
from dpjoin.methods.method import gaussian_only
from dpjoin.paper.alg4_uniformize import uniformize_shares
from dpjoin.privacy.degree_bounds import weighted_bound
from dpjoin.released.query import ask
from dpjoin.spec.plain import KEYS
from dpjoin.spec.toml import Spec
from support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


HOW = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")


def test_the_python_example_runs(tmp_path: Path) -> None:
    """The README's ten lines run as they stand, from the project's root."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    code = code.replace('"my-release"', repr(str(tmp_path / "my-release")))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sensitivity_bound" in done.stdout


def test_every_link_leads_somewhere() -> None:
    """Relative links in the README and the docs point at files of the project."""
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("verb", ["init", "plan", "release", "answer", "synthesize", "evaluate", "demo"])
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    """`dpjoin VERB --help` ends with an example of that verb, and the README mentions it."""
    done = subprocess.run(
        [sys.executable, "-c", "from dpjoin.cli.commands import main; main()", verb, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert f"dpjoin {verb}" in done.stdout.split("Example")[-1]
    assert f"dpjoin {verb}" in README or f"make {verb}" in README


def test_the_page_on_specs_has_every_key() -> None:
    """Each key that a spec may have is a row of its section's table, and no other is; the spec shown can be planned."""
    page = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    told = {
        section: re.findall(r"^\| `(\w+)` \|", part, flags=re.MULTILINE)
        for section, part in re.findall(r"^## \[(\w+)[^\n]*\n(.*?)(?=^## )", page, flags=re.DOTALL | re.MULTILINE)
    }
    assert set(told) == set(KEYS)
    for section, known in KEYS.items():
        assert sorted(told[section]) == sorted(known), section
    (text,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    spec = Spec.from_dict(tomllib.loads(text))
    assert plan(spec).queries == len(spec.workload)
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(code, {})


def test_the_page_on_asking_does_what_it_says(tmp_path: Path) -> None:
    """Its Python runs beside a release of the demo, and its statement has bars."""
    page = (ROOT / "docs" / "asking.md").read_text(encoding="utf-8")
    spec = Spec.from_toml(ROOT / "src" / "dpjoin" / "data" / "demo.toml")
    release = dj.release(spec.schema, spec.workload, spec.sources(), spec.budget)
    folder = release.save(tmp_path / "demo-release")
    assert {file.name for file in folder.iterdir()} == set(re.findall(r"^\| `([\w.]+)` \|", page, flags=re.MULTILINE))
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (statement,) = re.findall(r'^dpjoin answer demo-release "(.*)"$', page, flags=re.MULTILINE)
    assert ask(release, statement).coverage == 0.9


def test_import_is_light() -> None:
    """`import dpjoin` pulls in none of the heavy packages."""
    code = (
        "import sys, dpjoin; print([m for m in ('duckdb', 'scipy', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("part", ["accuracy", "uniformize", "speed"])
def test_the_benchmarks_run(part: str) -> None:
    """With or without the development data and the peers. The other parts' quick runs are in test_benchmarks.py."""
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", "--only", part]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_figures_that_follow_from_the_budget_are_those_of_the_present_code() -> None:
    """Shifts, deviations and the noise that `plan` shows at (1, 1e-6)."""
    attributes = tuple(
        dj.Attribute(name=a, key=True) if a == "k" else dj.Attribute(name=a, range=(0, 7)) for a in ("k", "a", "c")
    )
    tables = dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "c"))
    schema = dj.Schema(tables, attributes)
    workload, asked = dj.Workload.marginals(schema, 2), dj.Budget(epsilon=1.0, delta=1e-6)
    budget = gaussian_only(asked, workload)
    bounded, caps = as_one_shares(budget, schema), CAPPED.split(budget, schema)
    shift = uniformize_shares(budget, schema).degrees_width
    ranks = math.sqrt(budget.composition.variance(1, caps.look.ranks.rho))
    gaussian = math.sqrt(budget.composition.variance(1, budget.rho()))
    assert f"one has a deviation of {gaussian:.1f} at (1, 1e-6)" in HOW
    assert f"for {float(EARLY_LAPLACE) * 100:.0f} % of ε" in HOW
    assert f"or for {float(LAPLACE_SHARE) * 100:.0f} % after" in HOW
    page = (ROOT / "docs" / "capped.md").read_text(encoding="utf-8")
    assert f"X is {bounded.half_width} on average" in page
    assert f"a deviation of {ranks:.0f} rows" in page
    assert f"rng.normal(0, {ranks:.2f}, exact.shape)" in page
    assert f"the deviation is {1 / math.sqrt(2 * caps.look.size.rho):.0f} times the bound" in page
    left, spent = caps.split.rho - caps.count.rho, caps.split.rho * (RANKS_SHARE + SIZES_SHARE)
    capped, dear = 1 / math.sqrt(2 * (left - spent)), 1 / math.sqrt(2 * (bounded.queries))
    price = fading_price(workload)
    assert price is not None
    for degree in (5, 10, 38, 100, 200, 575):
        fades = fades_of({(t, ("k",)): degree for t in ("r", "s")}, price)
        bound = weighted_bound(schema, [], fades) / math.prod(f.full for f in fades.values())
        by_bound = dear * (degree + (bounded.half_width or 0))
        fading, removing = capped * bound, capped * math.sqrt(2) * degree
        assert f"| {degree} | {by_bound:,.0f} | {fading:,.0f} | {removing:,.0f} | {by_bound / fading:.1f} |" in page
    _, listed = auto_shares(budget, schema).methods["heavy_light"]
    page = (ROOT / "docs" / "heavy-light.md").read_text(encoding="utf-8")
    assert f"s = {heavy_light_shares(budget, schema).width}. (Where `auto` chose it, s = {listed.width}:" in page
    page = (ROOT / "docs" / "uniformize.md").read_text(encoding="utf-8")
    assert f"a shift of {shift} on" in page
    bucket = plan(Spec(schema, workload, asked, "uniformize", "tight")).buckets[0]
    assert re.search(rf"0 to {2 * shift} +{bucket.sensitivity} +{bucket.count:,.0f} +{bucket.cell:,.0f}\n", page)
    page = (ROOT / "docs" / "three-tables.md").read_text(encoding="utf-8")
    toml = page[page.index("[privacy]") :]
    (told,) = plan(Spec.from_dict(tomllib.loads(toml[: toml.index("```")])), degree=12).expected
    assert re.search(rf" {told.sensitivity} +{told.count:,.0f} +{told.cell:,.0f}\n", page)
