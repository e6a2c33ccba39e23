"""The wheel holds all that dpjoin needs: it is built, installed in a clean environment and used there, offline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import dpjoin as dj
from support.paths import ROOT
from support.shop import make_shop


def ran(*command: object, cwd: Path) -> str:
    """What a command prints; nothing of this environment's Python path reaches it."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the project's folder stays as it is."""
    copy = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    ran(*build, "--wheel-dir", copy / "dist", copy, cwd=copy)
    (built,) = (copy / "dist").iterdir()
    return built


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Modules, proofs, the demo's data and the mark of types; and the version that `__init__.py` states."""
    with ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("dpjoin/")}
    package = ROOT / "src" / "dpjoin"
    files = (p for p in package.rglob("*") if p.is_file() and p.suffix != ".pyc")
    assert inside == {f"dpjoin/{p.relative_to(package).as_posix()}" for p in files}
    assert wheel.name == f"dpjoin-{dj.__version__}-py3-none-any.whl"


def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """Nothing but the wheel and the packages that it names: the command line makes a release and answers from it."""
    clean = tmp_path / "clean"
    ran(sys.executable, "-m", "venv", "--without-pip", clean, cwd=tmp_path)
    python, command = clean / "bin" / "python", clean / "bin" / "dpjoin"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    ran(*pip, wheel, cwd=tmp_path)
    # The packages that dpjoin needs are those of this environment. A path in a .pth file brings no editable installs.
    own = Path(ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    ours = [path for path in sys.path if path.endswith("-packages")]
    (own / "dependencies.pth").write_text("\n".join(ours) + "\n", encoding="utf-8")
    assert ran(command, "--version", cwd=tmp_path) == f"dpjoin {dj.__version__}\n"
    used = ran(python, "-c", "import dpjoin; print(dpjoin.__file__)", cwd=tmp_path)
    assert Path(used.strip()).is_relative_to(clean)
    make_shop(tmp_path)
    ran(command, "release", "shop.toml", "-o", "out", cwd=tmp_path)
    answers = ran(command, "answer", "out", "SELECT city, COUNT(*) FROM joined GROUP BY city", cwd=tmp_path)
    assert "Oslo" in answers


def test_the_version_is_stated_once() -> None:
    """In `__init__.py`; what else names it agrees."""
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dynamic"]
    assert f"\nversion: {dj.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {dj.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
