"""The one verb that spends budget: release a spec's join into a new folder, with every beginning in the journal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpjoin.api import release as run
from dpjoin.auto.plan import check_feasible
from dpjoin.auto.registry import chosen_method
from dpjoin.cli.journal import journal_of, recorded, sources_of, spent_before
from dpjoin.cli.printing import show_json
from dpjoin.cli.screens import next_commands, release_summary, show_release
from dpjoin.cli.specs import about, opened_sources, say, show_warnings
from dpjoin.errors import DpjoinError, SpecWarning
from dpjoin.released.release import Release
from dpjoin.spec.toml import Spec
from dpjoin.terminal import terminal_progress


def release_spec(spec: Path, loaded: Spec, out: Path, *, as_json: bool) -> None:
    """Check all that can be checked, note the beginning, release, and say what was made."""
    with about(spec):
        check_feasible(loaded.schema, loaded.workload)
        chosen_method(loaded.schema, loaded.method, loaded.profile, loaded.workload)
        sources = opened_sources(loaded)
    show_warnings(spec, loaded)
    private = sources_of(spec, loaded.schema, sources)
    before = spent_before(spec, private)
    if before.times:
        times = "once" if before.times == 1 else f"{before.times} times"
        say(
            f"note: already released {times} from this spec or its private tables; by basic composition the total with "
            f"this one is epsilon {before.epsilon + loaded.budget.epsilon:g}, delta "
            f"{before.delta + loaded.budget.delta:g} ({', '.join(before.journals)})"
        )
    with _spent(spec, out), recorded(spec, loaded.budget, out, private), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        how = {"method": loaded.method, "profile": loaded.profile}
        made = run(loaded.schema, loaded.workload, sources, loaded.budget, **how, progress=True)
        made.save(out)
    if as_json:
        with terminal_progress() as progress:
            summary = release_summary(made, str(out), progress)
        show_json(summary)
    else:
        show_release(made, str(out))
        say(next_commands(str(out), _example_attributes(made)))


@contextmanager
def _spent(spec: Path, out: Path) -> Iterator[None]:
    """Errors after the beginning, and an interruption, say that the budget is gone."""
    try:
        yield
    except DpjoinError as error:
        raise type(error)(f"{error}; the budget counts as spent ({journal_of(spec)})") from None
    except KeyboardInterrupt:
        if not out.exists():
            say(
                f"interrupted: nothing was written to {out}, and the budget counts as spent ({journal_of(spec)}); to "
                f"run it again, which spends it once more: dpjoin release {spec} -o {out}"
            )
        raise


def _example_attributes(made: Release) -> list[str]:
    """An attribute for the example, preferably one that only one table has."""
    joins = made.schema.join_attributes
    return sorted(made.attributes, key=lambda a: a in joins)
