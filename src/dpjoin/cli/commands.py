"""The command line. It parses and prints; results go to stdout, words for people to stderr.

Exit codes: 0 done, 2 the user must change something, 1 our fault, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpjoin.cli.specs import about, opened_sources, read_spec, say, show_warnings
from dpjoin.cli.writing import check_file, check_new, csv_text, free_folder, write_new, write_table
from dpjoin.errors import DpjoinError, ReleaseError, SpecError, is_interrupt

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
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="What it may take, as 4GB; more rows wait on disk.  [default: half]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    try:
        code = app(args=arguments, prog_name="dpjoin", standalone_mode=False)
    except DpjoinError as error:
        _leave(f"error: {' '.join(str(error).split())}", 2)
    except BrokenPipeError:
        # The reader has seen enough. Python must not complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except typer.Abort:
        _leave("\nerror: the input ended before all was asked; nothing was written", 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong verb, option or argument, as Typer found it
            _leave(_usage(error), 2)
        if is_interrupt(error):
            sys.exit(130)
        # A traceback or a message could quote private rows, so neither is shown unless asked for.
        if os.environ.get("DPJOIN_DEBUG"):
            raise
        verb = next((a for a in (sys.argv[1:] if arguments is None else arguments) if not a.startswith("-")), "")
        _leave(
            f"internal error ({type(error).__name__}) in dpjoin {verb}; please report it. DPJOIN_DEBUG=1 shows the "
            "traceback, which may hold private values",
            1,
        )
    if isinstance(code, int) and code:
        sys.exit(code)


def _usage(error: Any) -> str:
    """What is wrong with the words of a command, in one line; of no words at all, the help."""
    said = error.format_message()
    if "NoArgs" in type(error).__name__:
        return str(said)
    path = getattr(getattr(error, "ctx", None), "command_path", "dpjoin")
    return f"error: {' '.join(said.rstrip('.').split())}; see: {path} --help"


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


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


On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="COLUMN",
        help="A column that joins tables; A=B if it has two names. May be repeated.  [default: by name]",
    ),
]


@app.command(epilog=_example("dpjoin init orders.csv customers.csv --on customer_id -o shop.toml"))
def init(
    tables: Annotated[list[str], _argument("TABLES", "Table files; FILE:TABLE for a DuckDB or SQLite file.")],
    out: Annotated[Path, _out("FILE", "Where to write the spec.")] = Path("spec.toml"),
    on: On = None,
    learn: Annotated[
        bool, typer.Option("--learn/--no-learn", help="Learn domains privately, or leave them to be filled in.")
    ] = True,
    interactive: Annotated[bool, typer.Option("--interactive", help="Ask what names and types do not tell.")] = False,
    public_domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.COLUMN",
            help="The set of values in this column is public: read it into the spec. May be repeated.",
        ),
    ] = None,
    metadata: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="CSVW-EO metadata: take the domains that it declares. May be repeated."),
    ] = None,
) -> None:
    """Write a first spec, from column names and types.

    A CSV file has no types: they are those that its first rows look like. The spec, types included, is public.
    """
    from dpjoin.cli.init import Wishes, draft, read_source

    check_new(out)
    ask = (lambda question, default: str(typer.prompt(question, default, err=True))) if interactive else None
    public, described = tuple(public_domain or ()), tuple(metadata or ())
    wishes = Wishes(on=tuple(on or ()), learn=learn, public=public, metadata=described, ask=ask)
    made = draft([read_source(t) for t in tables], wishes, folder=out.parent)
    write_new(out, made.text.encode(), mode=0o644)
    for line in made.decisions:
        say(line)
    todo = (
        f'; fill in what holds "..." ({made.placeholders} of its attributes), then' if made.placeholders else "; next"
    )
    say(f"wrote {out}{todo}: dpjoin plan {out}")


@app.command(epilog=_example("dpjoin plan flights.toml --degree 40 --join-size 300000"))
def plan(
    spec: SpecPath,
    degree: Annotated[int | None, _number("N", "The largest degree you expect, for the expected noise.", 1)] = None,
    join_size: Annotated[int | None, _number("N", "The join size you expect, for relative errors.", 1)] = None,
    rows: Annotated[int | None, _number("N", "The rows you expect in a table, for a warning about delta.", 1)] = None,
    check: Annotated[bool, typer.Option("--check", help="Open the files, and tell all that is wrong.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page to look at: a new .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a release would do.

    No row is read. The files may even be missing, if the spec lists the attributes of its tables.
    """
    if check:
        from dpjoin.cli.check import check as check_all

        check_all(spec)
    if html is not None:
        check_file(html, (".html", ".htm"))
    loaded = read_spec(spec)
    from dpjoin.auto.plan import plan as make_plan
    from dpjoin.cli.printing import show_json
    from dpjoin.cli.screens import show_plan

    with about(spec):
        planned = make_plan(loaded, degree=degree, join_size=join_size)
    show_warnings(spec, loaded, rows)
    if html is not None:
        from dpjoin.auto.plan_page import plan_page

        write_new(html, plan_page(loaded, planned, degree=degree, join_size=join_size).encode(), mode=0o644)
        say(f"wrote {html}")
    if as_json:
        show_json(planned.to_json())
    elif html is None:
        show_plan(planned)
        say(f"No row was read. To release: dpjoin release {spec} -o DIR")


@app.command(epilog=_example("dpjoin release orders.csv customers.csv --on customer_id --epsilon 1 -o shop-release"))
def release(
    tables: Annotated[list[str], _argument("SPEC|TABLES", "A spec file (.toml); or table files, as init takes them.")],
    out: Annotated[Path, _out("DIR", "The new folder to write.", show_default=False)],
    on: On = None,
    epsilon: Annotated[
        float | None, typer.Option(metavar="E", help="Of tables: how far one row may change the release; 1 is common.")
    ] = None,
    delta: Annotated[float | None, typer.Option(metavar="D", help="Of tables.  [default: 1e-6]")] = None,
    unit: Annotated[
        str | None, _named("Of tables: the column that names who is protected.  [default: one row]")
    ] = None,
    profile: Annotated[str | None, _named("tight (the spec's default) or paper.")] = None,
    method: Annotated[
        str | None, _named("auto (the spec's default), capped, heavy_light, per_table, two_table, multi_table, …")
    ] = None,
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Release the join once, under the spec's budget.

    The one verb that spends it. There is no seed: the noise is drawn from the operating system. Without a spec, the
    first draft that init would write is released, and goes into the folder as spec.toml.
    """
    check_new(out, "output folder")
    given = {"--on": on, "--epsilon": epsilon, "--delta": delta, "--unit": unit}
    of_spec = any(t.endswith(".toml") for t in tables)
    if of_spec and (len(tables) > 1 or any(given.values())):
        what = "tables" if len(tables) > 1 else next(name for name, value in given.items() if value)
        raise SpecError(f"a spec says all by itself, so {what} cannot stand beside it; change the spec instead")
    if not of_spec and epsilon is None:
        raise SpecError("--epsilon is missing: how far one row may change the release; 1 is a common choice")
    from dpjoin.cli.init import Wishes
    from dpjoin.cli.releasing import job_of_spec, job_of_tables, release_job

    if of_spec:
        job = job_of_spec(Path(tables[0]), out, profile=profile, method=method)
    else:
        assert epsilon is not None
        wishes = Wishes(on=tuple(on or ()), learn=True, epsilon=epsilon, unit=unit)
        wishes = wishes if delta is None else replace(wishes, delta=delta)
        job = job_of_tables(tables, out, wishes, profile=profile, method=method)
    release_job(job, out, memory=memory, as_json=as_json)


@app.command(epilog=_example("dpjoin resume shop-release.unwritten -o /elsewhere/shop-release"))
def resume(
    kept: Annotated[Path, _argument("KEPT", "What a release that could not be written said it kept.")],
    out: Annotated[Path, _out("DIR", "The new folder to write.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Write a finished release that could not be written.

    Nothing is spent: its noise was drawn, and what was kept of it is public.
    """
    check_new(out, "output folder")
    from dpjoin.cli.releasing import resume as write

    write(kept, out, as_json=as_json)


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
        check_file(out, (".csv", ".json", ".parquet"))
    answers = load(folder).ask(sys.stdin.read() if statement == "-" else statement, coverage=coverage)
    for note in answers.notes:
        say(f"note: {note}")
    if out is not None and out.suffix == ".json":
        write_new(out, json_text(answers.to_json()).encode(), mode=0o644)
    elif out is not None:
        write_table(answers.to_arrow(), out)
    if out is not None:
        rows = "1 row" if len(answers) == 1 else f"{len(answers):,} rows"
        say(f"wrote {rows} to {out}")
    if as_json:
        show_json(answers.to_json())
    elif as_csv:
        sys.stdout.write(csv_text(answers.to_arrow()).decode())
    elif out is None:
        show_answers(answers)


@app.command(epilog=_example("dpjoin report flights-release --open"))
def report(
    folder: Folder,
    out: Annotated[Path | None, _out("FILE", "A new .html file.  [default: DIR/report.html]")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Show a release as a page: what it promises, an explorer, how good it is, what it cost.

    Every release folder has its page, report.html. It is written anew where it is missing, or elsewhere with -o.
    """
    from dpjoin.released.files import report_of
    from dpjoin.released.report.page import REPORT

    page = folder / REPORT if out is None else out
    if out is not None:
        check_file(out, (".html", ".htm"))
    if out is not None or not page.exists():
        write_new(page, report_of(folder).encode(), mode=0o644)
        say(f"wrote {page}")
    else:
        say(f"the page is {page}")
    if show:
        import webbrowser

        if not webbrowser.open(page.absolute().as_uri()):
            say("no browser could be started here; open the page yourself")


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

    check_file(out, (".parquet", ".csv"))
    try:
        table = load(folder).sample(rows, seed=seed, bins=bins)
    except MemoryError:
        raise ReleaseError(f"--rows ({rows:,}) must fit into memory; ask for fewer, each part with its seed") from None
    write_table(table, out)
    say(f"wrote {rows:,} rows to {out}")


@app.command(epilog=_example("dpjoin evaluate flights.toml flights-release -o private-errors.json"))
def evaluate(
    spec: SpecPath,
    folder: Folder,
    out: Annotated[Path | None, _out("FILE", "Write JSON to a new file that only you can read.")] = None,
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Compare a release with the truth (PRIVATE).

    Opens the private tables. What it prints is for the custodian and must not be published.
    """
    from dpjoin.cli.printing import show_json
    from dpjoin.cli.screens import show_evaluation
    from dpjoin.evaluation import evaluate as compare
    from dpjoin.released.files import load
    from dpjoin.spec.learning import same_domains
    from dpjoin.terminal import terminal_progress

    if out is not None:
        check_new(out)
    loaded, opened = read_spec(spec), load(folder)
    if not same_domains(loaded.schema, opened.schema):
        raise SpecError(f"{spec}: {folder} was released from another spec; use the one it was made with")
    with about(spec):
        sources = opened_sources(loaded)
    say("PRIVATE: this opens the private tables and shows exact errors. Do not publish what it prints.")
    with terminal_progress() as progress:
        found = compare(opened, sources, memory=memory, progress=progress)
    if out is not None:
        import json

        write_new(out, (json.dumps(found.to_json(), indent=1) + "\n").encode(), mode=0o600)
        say(f"wrote {out} (PRIVATE)")
    if as_json:
        show_json(found.to_json())
    elif out is None:
        show_evaluation(found)


@app.command(epilog=_example("dpjoin compare flights.toml flights-release --html compared.html"))
def compare(
    first: Annotated[Path, _argument("A", "A release folder or a spec file.")],
    second: Annotated[Path, _argument("B", "Another one.")],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page to look at: a new .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show two releases or plans side by side.

    What each promises and does, and the error bars of the questions that both answer. No row is read.
    """
    from dpjoin.cli.printing import show_json
    from dpjoin.cli.screens import show_comparison
    from dpjoin.compare import compare as compare_both
    from dpjoin.compare import comparison_page

    if html is not None:
        check_file(html, (".html", ".htm"))
    found = compare_both(first, second)
    if html is not None:
        write_new(html, comparison_page(found).encode(), mode=0o644)
        say(f"wrote {html}")
    if as_json:
        show_json(found.to_json())
    elif html is None:
        show_comparison(found)


@app.command(epilog=_example("dpjoin doctor postgresql:service=clinic"))
def doctor(
    stores: Annotated[list[str] | None, _argument("[STORE]...", "Servers to try, as a source names them.")] = None,
    as_json: Json = False,
) -> None:
    """Say which stores can be reached.

    Their versions, what is missing, and the command that installs it. No table is opened.
    """
    from dpjoin.cli import doctor as found
    from dpjoin.cli.printing import show_json

    states = found.examined(stores or [])
    if as_json:
        show_json(found.as_json(states))
    else:
        for line in found.lines(states):
            typer.echo(line)


@app.command(epilog=_example("dpjoin demo -o my-first-release"))
def demo(out: Annotated[Path | None, _out("DIR", "The new folder to write.  [default: demo-release]")] = None) -> None:
    """Run the whole flow on sample data.

    It comes with dpjoin (flights and weather) and takes less than a minute.
    """
    from importlib.resources import as_file, files

    folder = out or free_folder(Path("demo-release"))
    check_new(folder, "output folder")
    with as_file(files("dpjoin") / "data") as data:
        _demo(data / "demo.toml", folder)


def _demo(path: Path, folder: Path) -> None:
    from dpjoin.api import release as run
    from dpjoin.auto.plan import plan as make_plan
    from dpjoin.cli.printing import show_answers
    from dpjoin.cli.screens import next_commands, show_evaluation, show_release
    from dpjoin.evaluation import evaluate as compare

    spec = read_spec(path)
    planned = make_plan(spec)
    say("Sample data: all 336,776 flights that left New York in 2013, and the weather there, hour by hour.")
    say(f"The spec is {path}\n")
    say(f"1. plan      {planned.join}")
    say(f"             {planned.why}")
    say(f"             {planned.queries} queries over {planned.cells:,} cells: {', '.join(planned.attributes)}")
    say(f"2. release   epsilon {planned.epsilon:g}, delta {planned.delta:g}\n")
    sources = spec.sources()
    made = run(spec.schema, spec.workload, sources, spec.budget, progress=True)
    made.save(folder)
    say("")
    show_release(made, str(folder))
    question = "SELECT carrier, COUNT(*) FROM joined WHERE delay >= 60 GROUP BY carrier ORDER BY 2 DESC LIMIT 5"
    say(f"\n3. answer    the five carriers with most departures an hour late or more\n             {question}")
    show_answers(made.ask(question))
    say("4. evaluate  true errors; this is sample data, so they may be shown. Yours stay PRIVATE.")
    show_evaluation(compare(made, sources), sample=True)
    say(f"\nThe release is in {folder}/. " + next_commands(str(folder), ["carrier"]))


if __name__ == "__main__":
    main()
