"""The command line. It parses and prints; results go to stdout, words for people to stderr.

Exit codes: 0 done, 2 the user must change something, 1 our fault, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpjoin.errors import DpjoinError, ReleaseError, SpecError, SpecWarning

if TYPE_CHECKING:
    from dpjoin.released.release import Release
    from dpjoin.spec.toml import Spec

app = typer.Typer(
    name="dpjoin",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
    help="Differentially private synthetic data over joined tables.\n\n"
    "Only release spends budget; what it writes can be shared and asked freely. Start with: dpjoin demo",
)


def _example(command: str) -> str:
    """An example that keeps its line."""
    return f"\b\nExample:\n  {command}"


def _argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def _out(metavar: str, help: str, **more: Any) -> Any:
    return typer.Option("-o", "--out", metavar=metavar, help=help, **more)


def _number(metavar: str, help: str, least: int = 0, **more: Any) -> Any:
    return typer.Option(min=least, metavar=metavar, help=help, **more)


def _named(help: str) -> Any:
    return typer.Option(metavar="NAME", help=help, show_default=False)


SpecPath = Annotated[Path, _argument("SPEC", "The spec file (TOML).")]
Folder = Annotated[Path, _argument("DIR", "A release folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    try:
        app(args=arguments, prog_name="dpjoin")
    except DpjoinError as error:
        _leave(f"error: {' '.join(str(error).split())}", 2)
    except BrokenPipeError:
        # The reader has seen enough. Python must not complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        # A traceback or a message could quote private rows, so neither is shown unless asked for.
        if os.environ.get("DPJOIN_DEBUG"):
            raise
        verb = next((a for a in (sys.argv[1:] if arguments is None else arguments) if not a.startswith("-")), "")
        _leave(
            f"internal error ({type(error).__name__}) in dpjoin {verb}; please report it. DPJOIN_DEBUG=1 shows the "
            "traceback, which may hold private values",
            1,
        )


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _version(wanted: bool) -> None:
    if wanted:
        from dpjoin import __version__

        print(f"dpjoin {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(epilog=_example("dpjoin init flights.parquet weather.csv --public-domain flights.carrier -o flights.toml"))
def init(
    tables: Annotated[list[str], _argument("TABLES", "Table files; FILE:TABLE for a DuckDB or SQLite file.")],
    out: Annotated[Path, _out("FILE", "Where to write the spec.")] = Path("spec.toml"),
    public_domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.COLUMN",
            help="The set of values in this column is public: read it into the spec. May be repeated.",
        ),
    ] = None,
) -> None:
    """Write a first spec, from column names and types only."""
    from dpjoin.cli.init import draft, read_source

    _check_new(out)
    text = draft([read_source(t) for t in tables], folder=out.parent, public=public_domain or ())
    _write_new(out, text.encode(), mode=0o644)
    _say(f'wrote {out}; fill in the domains that hold "...", then: dpjoin plan {out}')


@app.command(epilog=_example("dpjoin plan flights.toml --degree 40 --join-size 300000"))
def plan(
    spec: SpecPath,
    degree: Annotated[int | None, _number("N", "The largest degree you expect, for the expected noise.", 1)] = None,
    join_size: Annotated[int | None, _number("N", "The join size you expect, for relative errors.", 1)] = None,
    as_json: Json = False,
) -> None:
    """Show what a release would do.

    No row is read. The files may even be missing, if the spec lists the attributes of its tables.
    """
    loaded = _spec(spec)
    from dpjoin.auto.plan import plan as make_plan
    from dpjoin.cli.printing import show_json
    from dpjoin.cli.screens import show_plan

    with _about(spec):
        planned = make_plan(loaded, degree=degree, join_size=join_size)
    _warn(spec, loaded)
    if as_json:
        show_json(planned.to_json())
    else:
        show_plan(planned)
        _say(f"No row was read. To release: dpjoin release {spec} -o DIR")


@app.command(epilog=_example("dpjoin release flights.toml -o flights-release"))
def release(
    spec: SpecPath,
    out: Annotated[Path, _out("DIR", "The new folder to write.", show_default=False)],
    profile: Annotated[str | None, _named("tight (the spec's default) or paper.")] = None,
    method: Annotated[
        str | None, _named("auto (the spec's default), capped, heavy_light, per_table, two_table, multi_table, …")
    ] = None,
    as_json: Json = False,
) -> None:
    """Release the join once, under the spec's budget.

    The one verb that spends it. There is no seed: the noise is drawn from the operating system.
    """
    _check_new(out, "output folder")
    loaded = _spec(spec, profile=profile, method=method)
    from dpjoin.api import release as run
    from dpjoin.auto.plan import check_feasible
    from dpjoin.auto.registry import chosen_method
    from dpjoin.cli.journal import recorded, sources_of, spent_before
    from dpjoin.cli.printing import show_json
    from dpjoin.cli.screens import next_commands, release_summary, show_release
    from dpjoin.terminal import terminal_progress

    with _about(spec):
        check_feasible(loaded.schema, loaded.workload)
        chosen_method(loaded.schema, loaded.method, loaded.profile, loaded.workload)
        sources = _sources(loaded)
    _warn(spec, loaded)
    private = sources_of(spec, loaded.schema, sources)
    before = spent_before(spec, private)
    if before.times:
        times = "once" if before.times == 1 else f"{before.times} times"
        _say(
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
        with terminal_progress() as say:
            summary = release_summary(made, str(out), say)
        show_json(summary)
    else:
        show_release(made, str(out))
        _say(next_commands(str(out), _example_attributes(made)))


@app.command(epilog=_example('dpjoin answer flights-release "SELECT carrier, COUNT(*) FROM joined GROUP BY carrier"'))
def answer(
    folder: Folder,
    statement: Annotated[str, _argument("SQL", "A SELECT over the table joined; - reads stdin.")],
    coverage: Annotated[float, typer.Option(metavar="P", help="How often a bar is to hold the truth.")] = 0.9,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout.")] = False,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="A new .csv, .json or .parquet file.")
    ] = None,
) -> None:
    """Ask a release in SQL, with error bars.

    Counts, sums and averages come from the model, with error bars; anything else is computed over the synthetic rows.
    """
    from dpjoin.cli.printing import json_text, show_answers, show_json
    from dpjoin.released.files import load

    if as_csv and as_json:
        raise ReleaseError("--csv and --json exclude each other; choose one")
    if out is not None:
        _check_file(out, (".csv", ".json", ".parquet"))
    answers = load(folder).ask(sys.stdin.read() if statement == "-" else statement, coverage=coverage)
    for note in answers.notes:
        _say(f"note: {note}")
    if out is not None and out.suffix == ".json":
        _write_new(out, json_text(answers.to_json()).encode(), mode=0o644)
    elif out is not None:
        _write_table(answers.to_arrow(), out)
    if out is not None:
        rows = "1 row" if len(answers) == 1 else f"{len(answers):,} rows"
        _say(f"wrote {rows} to {out}")
    if as_json:
        show_json(answers.to_json())
    elif as_csv:
        sys.stdout.write(_csv(answers.to_arrow()).decode())
    elif out is None:
        show_answers(answers)


@app.command(epilog=_example("dpjoin synthesize flights-release --rows 100000 --seed 7 -o rows.parquet"))
def synthesize(
    folder: Folder,
    rows: Annotated[int, _number("N", "How many rows.", show_default=False)],
    out: Annotated[Path, _out("FILE", "A new .parquet or .csv file.", show_default=False)],
    seed: Annotated[int, _number("S", "The same seed draws the same rows.")] = 0,
    bins: Annotated[bool, typer.Option("--bins", help="Add columns with the bins of numbers.")] = False,
) -> None:
    """Draw synthetic rows from a release.

    The release is public already, so a seed does no harm.
    """
    from dpjoin.released.files import load

    _check_file(out, (".parquet", ".csv"))
    try:
        table = load(folder).sample(rows, seed=seed, bins=bins)
    except MemoryError:
        raise ReleaseError(f"--rows ({rows:,}) must fit into memory; ask for fewer, each part with its seed") from None
    _write_table(table, out)
    _say(f"wrote {rows:,} rows to {out}")


@app.command(epilog=_example("dpjoin evaluate flights.toml flights-release -o private-errors.json"))
def evaluate(
    spec: SpecPath,
    folder: Folder,
    out: Annotated[Path | None, _out("FILE", "Write JSON to a new file that only you can read.")] = None,
    as_json: Json = False,
) -> None:
    """Compare a release with the truth (PRIVATE).

    Opens the private tables. What it prints is for the custodian and must not be published.
    """
    from dpjoin.cli.printing import show_json
    from dpjoin.cli.screens import show_evaluation
    from dpjoin.evaluation import evaluate as compare
    from dpjoin.released.files import load
    from dpjoin.terminal import terminal_progress

    if out is not None:
        _check_new(out)
    loaded, opened = _spec(spec), load(folder)
    if loaded.schema.attributes != opened.schema.attributes:
        raise SpecError(f"{spec}: {folder} was released from another spec; use the one it was made with")
    with _about(spec):
        sources = _sources(loaded)
    _say("PRIVATE: this opens the private tables and shows exact errors. Do not publish what it prints.")
    with terminal_progress() as say:
        found = compare(opened, sources, progress=say)
    if out is not None:
        import json

        _write_new(out, (json.dumps(found.to_json(), indent=1) + "\n").encode(), mode=0o600)
        _say(f"wrote {out} (PRIVATE)")
    if as_json:
        show_json(found.to_json())
    elif out is None:
        show_evaluation(found)


@app.command(epilog=_example("dpjoin demo -o my-first-release"))
def demo(
    out: Annotated[Path | None, _out("DIR", "The new folder to write.  [default: demo-release]")] = None,
) -> None:
    """Run the whole flow on sample data.

    It comes with dpjoin (flights and weather) and takes less than a minute.
    """
    from importlib.resources import as_file, files

    folder = out or _free(Path("demo-release"))
    _check_new(folder, "output folder")
    with as_file(files("dpjoin") / "data") as data:
        _demo(data / "demo.toml", folder)


def _demo(path: Path, folder: Path) -> None:
    from dpjoin.api import release as run
    from dpjoin.auto.plan import plan as make_plan
    from dpjoin.cli.printing import show_answers
    from dpjoin.cli.screens import next_commands, show_evaluation, show_release
    from dpjoin.evaluation import evaluate as compare

    spec = _spec(path)
    planned = make_plan(spec)
    _say("Sample data: all 336,776 flights that left New York in 2013, and the weather there, hour by hour.")
    _say(f"The spec is {path}\n")
    _say(f"1. plan      {planned.join}")
    _say(f"             {planned.why}")
    _say(f"             {planned.queries} queries over {planned.cells:,} cells: {', '.join(planned.attributes)}")
    _say(f"2. release   epsilon {planned.epsilon:g}, delta {planned.delta:g}\n")
    sources = spec.sources()
    made = run(spec.schema, spec.workload, sources, spec.budget, progress=True)
    made.save(folder)
    _say("")
    show_release(made, str(folder))
    question = "SELECT carrier, COUNT(*) FROM joined WHERE delay >= 60 GROUP BY carrier ORDER BY 2 DESC LIMIT 5"
    _say(f"\n3. answer    the five carriers with most departures an hour late or more\n             {question}")
    show_answers(made.ask(question))
    _say("4. evaluate  true errors; this is sample data, so they may be shown. Yours stay PRIVATE.")
    show_evaluation(compare(made, sources), sample=True)
    _say(f"\nThe release is in {folder}/. " + next_commands(str(folder), ["carrier"]))


# -- shared ------------------------------------------------------------------------------------------


def _spec(path: Path, **changed: str | None) -> Spec:
    """The spec of a file, with another profile or method where one was given."""
    from dataclasses import replace

    from dpjoin.spec.plain import check_choice
    from dpjoin.spec.toml import METHODS, PROFILES, Spec

    spec = Spec.from_toml(path)
    given = {key: value for key, value in changed.items() if value is not None}
    for key, value in given.items():
        check_choice(f"--{key}", value, {"profile": PROFILES, "method": METHODS}[key])
    return replace(spec, **given)  # type: ignore[arg-type]


def _sources(spec: Spec) -> dict[str, Any]:
    """Where the tables are, once it is known that they can be opened and fit the schema."""
    from dpjoin.api import check_sources

    sources = spec.sources()
    check_sources(spec.schema, sources)
    return sources


def _warn(path: Path, spec: Spec) -> None:
    from dpjoin.api import spec_warnings

    # A plan may be made before all sources are named.
    sources = {t.name: (spec.folder / t.source, t.source_table) for t in spec.schema.tables if t.source is not None}
    for warning in spec_warnings(spec.schema, sources):
        _say(f"warning: {path}: {warning}")


@contextmanager
def _about(spec: Path) -> Iterator[None]:
    """Errors that come from a spec name its file."""
    try:
        yield
    except DpjoinError as error:
        raise type(error)(f"{spec}: {error}") from None


@contextmanager
def _spent(spec: Path, out: Path) -> Iterator[None]:
    """Errors after the beginning, and an interruption, say that the budget is gone."""
    from dpjoin.cli.journal import journal_of

    try:
        yield
    except DpjoinError as error:
        raise type(error)(f"{error}; the budget counts as spent ({journal_of(spec)})") from None
    except KeyboardInterrupt:
        if not out.exists():
            _say(
                f"interrupted: nothing was written to {out}, and the budget counts as spent ({journal_of(spec)}); to "
                f"run it again, which spends it once more: dpjoin release {spec} -o {out}"
            )
        raise


def _check_new(out: Path, what: str = "file") -> None:
    """Find out that a result cannot be written before it is computed."""
    import tempfile

    if out.exists():
        raise ReleaseError(f"{out}: the {what} exists already; choose another with -o, or remove it")
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    try:
        # Permissions do not tell everything (a read-only or special file system), so try.
        with tempfile.TemporaryDirectory(prefix=".dpjoin-", dir=parent):
            pass
    except OSError:
        raise ReleaseError(f"{out}: nothing can be written in {parent}; choose another place with -o") from None


def _write_new(path: Path, content: bytes, *, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise ReleaseError(f"{path}: the file cannot be written: {error.strerror}") from None


def _check_file(out: Path, suffixes: tuple[str, ...]) -> None:
    if out.suffix not in suffixes:
        raise ReleaseError(f"{out}: the file must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}; rename it")
    _check_new(out)


def _write_table(table: Any, out: Path) -> None:
    """A table as a new CSV or Parquet file: all of it or nothing."""
    partial = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".csv":
            _write_csv(table, partial)
        else:
            from pyarrow.parquet import write_table

            write_table(table, partial, compression="zstd")
        partial.rename(out)
    except OSError as error:
        raise ReleaseError(f"{out}: the rows cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)  # gone already, unless something stopped it


def _write_csv(table: Any, where: Any) -> None:
    import pyarrow as pa
    from pyarrow.csv import write_csv

    # The CSV writer knows no dictionaries.
    plain = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema]
    schema = pa.schema([f.with_type(t) for f, t in zip(table.schema, plain, strict=True)])
    write_csv(table.cast(schema), where)


def _csv(table: Any) -> bytes:
    import io

    held = io.BytesIO()
    _write_csv(table, held)
    return held.getvalue()


def _example_attributes(made: Release) -> list[str]:
    """An attribute for the example, preferably one that only one table has."""
    joins = made.schema.join_attributes
    return sorted(made.attributes, key=lambda a: a in joins)


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that does not exist."""
    candidate, count = folder, 1
    while candidate.exists():
        count += 1
        candidate = folder.with_name(f"{folder.name}-{count}")
    return candidate


if __name__ == "__main__":
    main()
