"""The one verb that spends budget: release a join into a new folder, with every beginning in the journal."""

from __future__ import annotations

import tempfile
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from dpjoin.api import release as run
from dpjoin.auto.plan import check_feasible
from dpjoin.auto.registry import chosen_method
from dpjoin.cli.init import Wishes, draft, read_source
from dpjoin.cli.journal import journal_of, recorded, sources_of, spent_before
from dpjoin.cli.printing import show_json
from dpjoin.cli.screens import next_commands, release_summary, show_release
from dpjoin.cli.specs import about, changed_spec, opened_sources, read_spec, say, show_warnings
from dpjoin.cli.writing import claimed
from dpjoin.engine.memory import memory_of
from dpjoin.errors import DpjoinError, ReleaseError, SpecError, SpecWarning, is_interrupt
from dpjoin.privacy.accounting import Budget
from dpjoin.released.files import load, save
from dpjoin.released.kept import forget, keep, texts_of
from dpjoin.released.package import ROWS_FILE
from dpjoin.released.release import Release
from dpjoin.spec.plain import under
from dpjoin.spec.toml import Spec
from dpjoin.spec.warnings import unjoined_table_warning
from dpjoin.terminal import terminal_progress

SPEC = "spec.toml"
"""What the spec is called in the folder of a release that had none."""


@dataclass(frozen=True)
class Job:
    """What is to be released."""

    spec: Path
    """The spec's file. Of tables without one: where it would be; the journal goes by it."""
    loaded: Spec
    text: bytes
    """Of the spec, for the journal."""
    again: str
    """The command that would do it once more."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What else belongs in the folder: the spec, where it has no file."""


def job_of_spec(spec: Path, out: Path, **changed: str | None) -> Job:
    """The release of a spec file."""
    return Job(spec, read_spec(spec, **changed), spec.read_bytes(), f"dpjoin release {spec} -o {out}")


def job_of_tables(tables: Sequence[str], out: Path, wishes: Wishes, **changed: str | None) -> Job:
    """The release of tables without a spec: by a first draft, which goes into the folder.

    The draft there has the names of the files. Of folders it names none but those beside the release.
    """
    with under("--"):
        Budget(epsilon=wishes.epsilon, delta=wishes.delta)
    sources = [read_source(t) for t in tables]
    made = draft(sources, wishes, folder=Path())
    if made.placeholders:
        raise SpecError(
            f'{made.placeholders} of the attributes have no domain yet; write a spec, fill in what holds "...", and '
            f"release that: dpjoin init {' '.join(tables)}"
        )
    loaded = changed_spec(Spec.from_dict(tomllib.loads(made.text)), **changed)
    if apart := unjoined_table_warning(loaded.schema):
        said = apart.partition(", so")[0]
        raise SpecError(f"{said}; name what joins them, as --on COLUMN, or --on COLUMN=OTHER if it has two names")
    for line in made.decisions:
        say(line)
    protected = f"all rows of one {wishes.unit}" if wishes.unit else "one row of one table (--unit says otherwise)"
    say(f"protects     {protected}")
    say(f"budget       epsilon {wishes.epsilon:g}, delta {wishes.delta:g} (well below one over the number of rows)")
    home = out.absolute().parent.resolve()
    places = [s.path if s.stored or s.path.resolve().is_relative_to(home) else out / s.path.name for s in sources]
    told = draft([replace(s, path=p) for s, p in zip(sources, places, strict=True)], wishes, folder=out)
    kept = {SPEC: told.text}
    names = [s.path.name for s, place in zip(sources, places, strict=True) if place is not s.path]
    if names:
        say(f"spec         {out}/{SPEC} names {', '.join(names)} without the folder, which is not published")
    again = f"dpjoin release {' '.join(tables)} … -o {out}"
    return Job(out.with_name(f"{out.name}.toml"), loaded, made.text.encode(), again, kept)


def release_job(job: Job, out: Path, *, memory: str | None, as_json: bool) -> None:
    """Check all that can be checked, note the beginning, release, and say what was made."""
    spec, loaded = job.spec, job.loaded
    memory_of(memory)
    with about(spec) if not job.texts else nullcontext():
        check_feasible(loaded.schema, loaded.workload)
        chosen_method(loaded.schema, loaded.method, loaded.profile, loaded.workload)
        sources = opened_sources(loaded)
    show_warnings(spec if not job.texts else None, loaded)
    private = sources_of(spec, loaded.schema, sources)
    before = spent_before(spec, private)
    if before.times:
        times = "once" if before.times == 1 else f"{before.times} times"
        say(
            f"note: already released {times} from this spec or its private tables; by basic composition the total with "
            f"this one is epsilon {before.epsilon + loaded.budget.epsilon:g}, delta "
            f"{before.delta + loaded.budget.delta:g} ({', '.join(before.journals)})"
        )
    with claimed(out), recorded(spec, loaded.budget, out, private, text=job.text), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        how = {"method": loaded.method, "profile": loaded.profile}
        with _counted(job, out):
            made = run(loaded.schema, loaded.workload, sources, loaded.budget, **how, memory=memory, progress=True)
            kept = keep(made, out.name, (spec.absolute().parent, Path(tempfile.gettempdir())), job.texts)
        with _kept(kept, job, out):
            save(made, out, texts=job.texts)
        forget(kept)
    _show(made, out, as_json=as_json)


def resume(kept: Path, out: Path, *, as_json: bool) -> None:
    """Write a release that was kept, and forget what was kept of it."""
    made = load(kept)
    if (kept / ROWS_FILE).exists():
        raise ReleaseError(f"{kept}: this release is written already; resume is for what a failed one has kept")
    try:
        texts = texts_of(kept)
    except (OSError, UnicodeDecodeError):
        raise ReleaseError(f"{kept}: the release that was kept cannot be read") from None
    with claimed(out):
        save(made, out, texts=texts)
    forget(kept)
    _show(made, out, as_json=as_json)


def _show(made: Release, out: Path, *, as_json: bool) -> None:
    if as_json:
        with terminal_progress() as progress:
            summary = release_summary(made, str(out), progress)
        show_json(summary)
    else:
        show_release(made, str(out))
        say(next_commands(str(out), _example_attributes(made)))


@contextmanager
def _counted(job: Job, out: Path) -> Iterator[None]:
    """Errors after the beginning, and an interruption, say that the budget is gone."""
    counts = f"the budget counts as spent ({journal_of(job.spec)})"
    try:
        yield
    except DpjoinError as error:
        raise type(error)(f"{error}; {counts}") from None
    except BaseException as error:
        if is_interrupt(error):
            told = (
                f"nothing was written to {out}, and {counts}; to run it again, which spends it once more: {job.again}"
            )
            say(f"interrupted: {told}")
        raise


@contextmanager
def _kept(kept: Path | None, job: Job, out: Path) -> Iterator[None]:
    """Errors while a finished release is written, and an interruption, say where it is kept."""
    told = f"it is kept in {kept}, and writing it elsewhere spends nothing: dpjoin resume {kept} -o DIR"
    if kept is None:
        told = f"it could be kept nowhere, and the budget counts as spent ({journal_of(job.spec)})"
    try:
        yield
    except DpjoinError as error:
        raise type(error)(f"{error}; {told}") from None
    except BaseException as error:
        if out.exists():
            forget(kept)
        else:
            what = "interrupted" if is_interrupt(error) else "failed"
            say(f"{what}: the release is finished, but nothing was written to {out}; {told}")
        raise


def _example_attributes(made: Release) -> list[str]:
    """An attribute for the example, preferably one that only one table has."""
    joins = made.schema.join_attributes
    return sorted(made.attributes, key=lambda a: a in joins)
