"""Shared set-up: one BLAS thread, so that the two cores serve two test workers, and noise that a run can repeat.

Some tests compare medians of noisy releases, so with fresh noise one of them fails by chance once in a while.
`make test` is to say the same about the same code every time: each test gets its own stream of bits in place of the
operating system's, and Hypothesis its usual examples. `--fresh` (and `make test-full`) draws new ones for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scipy.linalg  # noqa: F401 (its BLAS has threads of its own)
from hypothesis import settings
from threadpoolctl import threadpool_limits

from dpjoin.model.ensemble import ensemble
from dpjoin.privacy import noise

pytest.register_assert_rewrite("support")
from support import postgres, sparks  # noqa: E402
from support.bits import BITS  # noqa: E402

threadpool_limits(1)

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fresh", action="store_true", help="new noise and new examples in every run")
    parser.addoption("--update-goldens", action="store_true", help="write tests/fixtures/goldens.json anew")


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
    settings.register_profile("fresh", deadline=None)
    fresh = bool(config.getoption("--fresh"))
    settings.load_profile("fresh" if fresh else "repeatable")
    if not fresh:
        noise.os, noise.secrets = BITS, BITS  # type: ignore[attr-defined, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A folder of tests is a kind of tests: `-m replay` chooses those in tests/replay."""
    for item in items:
        if item.path.parent.parent == TESTS and item.path.parent.name != "support":
            item.add_marker(item.path.parent.name)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests that need Spark go to one process, which has one session; others by file or each by itself."""
    from xdist.scheduler import LoadScopeScheduling

    by_file = config.getoption("dist") == "loadfile"

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if sparks.is_for_spark(nodeid) else nodeid.partition("::")[0] if by_file else nodeid

    return Scheduling(config, log)


def stream_of(nodeid: str) -> str:
    """A test has the same noise in every folder."""
    path, *rest = nodeid.split("::")
    return "::".join((f"tests/{Path(path).name}" if path.startswith("tests/") else path, *rest))


def pytest_runtest_setup(item: pytest.Item) -> None:
    BITS.begin(stream_of(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """What tests share has its own stream: it does not matter which of them asks for it first."""
    if fixturedef.scope == "function":
        return (yield)
    before = BITS._stream.getstate()
    BITS.begin(f"{stream_of(fixturedef.baseid)}::{fixturedef.argname}")
    try:
        return (yield)
    finally:
        BITS._stream.setstate(before)


@pytest.fixture(autouse=True)
def few_members(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error bars come after the last question to the Curator: where questions are judged, two members will do."""
    if request.path.parent.name in ("replay", "known_bad"):
        monkeypatch.setitem(ensemble.__kwdefaults__, "members", 2)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL for the tests of one process; without one, they are skipped and say why."""
    if (why := postgres.missing()) is not None:
        pytest.skip(why)
    with postgres.server() as found:
        yield found


@pytest.fixture(scope="session")
def spark_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sparks.Sessions]:
    """The Spark of this process; without one, tests that ask for it are skipped and say why."""
    sessions = sparks.Sessions(tmp_path_factory.mktemp("spark"))
    yield sessions
    sessions.end()


@pytest.fixture
def spark(spark_sessions: sparks.Sessions) -> Any:
    """A session with two executors in processes of their own."""
    return spark_sessions.of(sparks.LOCAL_CLUSTER)
