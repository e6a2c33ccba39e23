"""How results look on a terminal. Every number shown here is public, except in `show_evaluation`."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dpjoin.auto.plan import Plan, memory_text
from dpjoin.auto.registry import METHODS
from dpjoin.compare import Comparison
from dpjoin.evaluation import Evaluation
from dpjoin.measure.progress import Progress, silent
from dpjoin.model.joined import Joined
from dpjoin.model.union import Union
from dpjoin.privacy.degree_bounds import churn
from dpjoin.released.noticed import size_bar
from dpjoin.released.release import Release
from dpjoin.released.shown import console, number, table
from dpjoin.spec.persons import protects
from dpjoin.spec.sql_tree import in_sql
from dpjoin.spec.workload import Workload

GROUPS_SHOWN = 40


def _facts(lines: Mapping[str, str]) -> Table:
    """What is to be said in a word or a sentence each."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in lines.items():
        table.add_row(name, text)
    return table


def show_plan(plan: Plan) -> None:
    """What a release would do."""
    out = console()
    queries = _counted(plan.queries, "query", "queries")
    facts = {
        "join": plan.join if plan.join_class in plan.join else f"{plan.join} ({plan.join_class})",
        "method": f"{plan.method} ({plan.profile}): {plan.why}",
        "guarantee": f"epsilon {plan.epsilon:g}, delta {plan.delta:g}, for {plan.protects}",
        "model": f"{plan.cells:,} cells over {', '.join(plan.attributes) or 'nothing but the join size'}",
        "kept as": plan.model,
        "memory": f"about {memory_text(plan.memory)} for the model, besides the tables",
        "workload": f"{queries} in {_counted(len(plan.groups), 'group', 'groups')}",
    }
    out.print(_facts(facts))
    if "\n" in plan.drawing:
        out.print(plan.drawing + "\n")
    stages = ((s.name, f"{100 * s.share:.0f} %", s.mechanism, s.note) for s in plan.stages)
    out.print(table(("budget for", ">share", "mechanism", ""), stages))
    groups = ((g.name, f"{g.queries:,}", f"{g.cells:,}") for g in plan.groups[:GROUPS_SHOWN])
    out.print(table(("group", ">queries", ">cells"), groups))
    _say_cut(out, len(plan.groups))
    if plan.expected:
        clipped = plan.method == "clipped"
        heads = (">clipped at" if clipped else ">largest degree", ">sensitivity", ">join size ±", ">each count ±")
        sized = (">of the join",) if plan.expected[0].share_of_join is not None else ()
        rows = (
            (f"{e.degree:,}", f"{e.sensitivity:,}", number(e.count), number(e.cell))
            + (() if e.share_of_join is None else (f"{100 * e.share_of_join:.2g} %",))
            for e in plan.expected
        )
        out.print(table(heads + sized, rows))
        # Laplace noise is for few marginals, which leave a fit little to add.
        few = all(s.mechanism == "discrete Laplace" for s in plan.stages)
        out.print(
            f"Expected noise, 90 % half-widths, before fitting"
            f"{'' if few else '; the fit usually makes counts two to four times better'}."
            + ((_LOOK_UP_CLIPPED if clipped else _LOOK_UP) if len(plan.expected) > 1 else "")
        )
    if plan.buckets:
        buckets = ((b.degrees, f"{b.sensitivity:,}", number(b.count), number(b.cell)) for b in plan.buckets)
        out.print(table((">noisy degree", ">sensitivity", ">size ±", ">each count ±"), buckets))
        out.print(_BUCKETS)
    for note in plan.notes:
        out.print(note)


_LOOK_UP = (
    " The largest degree (how many rows of one table share one join value) is private: look up the row that resembles "
    "your data."
)
_LOOK_UP_CLIPPED = (
    " Noisy numbers decide where join results are clipped: look up about how many of them most owners have, at most."
)
_BUCKETS = (
    "Parts that may come about, with 90 % half-widths before fitting. Every part is processed, also an empty one; "
    "neighbours are merged where less error is expected, and of a part with more noise than signal only the size is "
    "measured."
)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _say_cut(out: Console, groups: int) -> None:
    if groups > GROUPS_SHOWN:
        out.print(f"… and {groups - GROUPS_SHOWN:,} more groups (--json lists them all)\n")


def group_errors(release: Release, most: int | None = None, progress: Progress = silent) -> list[dict[str, Any]]:
    """The public error bars of each group, or of the first ones, in short: a large model takes its time for each."""
    rows = []
    groups = release.workload.groups[:most]
    for done, group in enumerate(groups):
        progress("bars", done, len(groups))
        bars = release.error(Workload(release.schema, (group,)))
        rows.append(
            {
                "group": group.name,
                "queries": len(group),
                "median_error": float(np.median(bars)),
                "largest_error": float(np.max(bars)),
            }
        )
    progress("bars", len(groups), len(groups))
    return rows


def release_summary(release: Release, folder: str, progress: Progress = silent) -> dict[str, Any]:
    """A release as plain data."""
    manifest = release.manifest()
    return {
        "folder": folder,
        "guarantee": manifest["guarantee"],
        "method": release.method,
        "profile": release.profile,
        **release.facts,
        "rows": manifest["rows"],
        "coverage": 0.9,
        "groups": group_errors(release, progress=progress),
    }


def show_release(release: Release, folder: str) -> None:
    """What was released."""
    out = console()
    rows = f"{_counted(release.synthetic.num_rows, 'row', 'rows')} in synthetic.parquet"
    if release.rows_stand_for > 1.0001:
        rows += f", each standing for {release.rows_stand_for:,.1f} join results"
    facts = {
        "released": f"{folder}/ (safe to publish)",
        "guarantee": f"({release.budget.epsilon:g}, {release.budget.delta:g})-differential privacy",
        "protects": "; and ".join(filter(None, (protects(release.schema), release.facts.get("also_protects")))),
        "method": _method_words(release),
        "join size": _size_words(release),
        "sensitivity": _sensitivity_words(release),
        "strategy": str(release.facts["strategy"]),
        "synthetic": rows,
    }
    if learned := release.facts.get("learned"):
        facts["learned"] = _learned_words(learned)
    if known := release.facts.get("rows"):
        told_rows = (f"{table} {r['noisy']:,} ± {r['bar']:,}" for table, r in known.items())
        facts["rows"] = f"within the domains: {', '.join(told_rows)}"
    out.print(_facts(facts))
    for words in release.warnings:
        out.print(f"warning: {words}", style="bold")
    parts = release.facts.get("parts", [])
    if len(parts) > 1:
        told = (
            (str(p["part"]), str(p["values"]), f"{p['sensitivity_bound']:,}", f"{p['size']:,}", str(p["strategy"]))
            for p in parts
        )
        out.print(table((">part", "values", ">sensitivity", ">size", ""), told))
    groups = (
        (g["group"], f"{g['queries']:,}", number(g["median_error"]), number(g["largest_error"]))
        for g in group_errors(release, GROUPS_SHOWN)
    )
    out.print(table(("group", ">queries", ">median ±", ">largest ±"), groups))
    _say_cut(out, len(release.workload.groups))
    out.print("± are error bars for 90 % coverage, computed from the noise; they are part of the release.")


def _size_words(release: Release) -> str:
    """The join size with its bar."""
    bar = size_bar(release)
    return f"{release.join_size:,}" + (f" ± {number(bar)} (noisy, 90 %)" if math.isfinite(bar) else " (noisy)")


def _learned_words(learned: Mapping[str, Mapping[str, Any]]) -> str:
    """How large the domains are that were learned."""
    told = [
        f"{name} {_counted(of['bins'], 'bin', 'bins') if 'bins' in of else _counted(of['listed'], 'value', 'values')}"
        for name, of in learned.items()
    ]
    return ", ".join(told)


def _method_words(release: Release) -> str:
    """What the method that ran does, and what `auto` expected of it and of the others, if it chose."""
    words = f"{release.method} ({release.profile})"
    if (known := METHODS.get(release.method)) is not None:
        words += f": {known.why(release.schema)}"
    if release.facts.get("chosen_by") != "auto":
        return words
    expected = sorted(release.facts.get("predicted_error", {}).items(), key=lambda e: (e[0] != release.method, e[1]))
    told = ", ".join(f"{name} {number(error)}" for name, error in expected)
    return f"{words}. Chosen by auto" + (f", for the least error expected in join results: {told}" if told else "")


def _sensitivity_words(release: Release) -> str:
    """How far one row, or person, moves what is measured: of the join, or of tables with a model each."""
    one = f"one {' and '.join(release.schema.unit) or 'row'}"
    strategy, parts = str(release.facts["strategy"]), release.model.parts if isinstance(release.model, Union) else ()
    kind = "row" if len(release.schema.tables) == 1 else "join result"
    bound = f"by at most {_counted(release.facts['sensitivity_bound'], kind, f'{kind}s')} (upper bound)"
    if isinstance(release.model, Joined) and release.schema.unit:
        most = _counted(release.facts["sensitivity_bound"], "row", "rows")
        words = f"{one} moves each table by at most {most}; tables are modelled one by one, and joined afterwards"
    elif isinstance(release.model, Joined):
        words = "one row moves one cell of its own table by one; tables are modelled one by one, and joined afterwards"
    elif any(isinstance(part, Joined) for part in parts):
        words = f"one row moves what is measured of light values {bound}, and of heavy ones only its own table"
    else:
        words = f"{one} moves what is measured {'in each part ' if len(parts) > 1 else ''}{bound}"
    # Rows within enforced bounds, or within caps that do not fade.
    pushes = churn(release.schema) > 0 or (release.method in ("capped", "heavy_light") and "at most" in strategy)
    words += "; rows that it pushes out move as much each" if pushes else ""
    return words + ("; in place of another, by both" if release.schema.neighbours == "replace" else "")


def show_evaluation(evaluation: Evaluation, *, sample: bool = False) -> None:
    """The true error of a release. PRIVATE, unless the tables are sample data."""
    out = console()
    groups = (
        (
            g.name,
            f"{g.queries:,}",
            number(g.max_error),
            number(g.mean_error),
            "" if g.total_variation is None else f"{g.total_variation:.3f}",
            "" if g.mean_bar is None else number(g.mean_bar),
            f"{100 * g.covered:.0f} %",
        )
        for g in evaluation.groups[:GROUPS_SHOWN]
    )
    out.print(table(("group", ">queries", ">max", ">mean", ">TV", ">bar", ">covered"), groups))
    _say_cut(out, len(evaluation.groups))
    mean_tv = evaluation.mean_total_variation
    shown_tv = f"mean total variation {mean_tv:.3f}; " if mean_tv is not None else ""
    out.print(
        f"Join size off by {evaluation.join_size_error:,.0f}; {shown_tv}"
        f"the {100 * evaluation.coverage:.0f} % error bars hold the "
        f"truth for {100 * evaluation.covered:.0f} % of all queries."
    )
    out.print(
        "max, mean: error. TV: total variation, 0 alike, 1 disjoint. "
        "bar: mean length of error bars. covered: queries within theirs."
    )
    if not sample:
        out.print("PRIVATE: these numbers were computed from exact answers; do not publish them.")


def show_comparison(found: Comparison) -> None:
    """Two releases or plans side by side; a mark where they differ."""
    out = console()
    rows = (("*" if a and b and a != b else "", what, a, b) for what, a, b in found.facts)
    out.print(table(("", "", found.a.name, found.b.name), rows))
    known = [(name, a, b) for name, a, b in found.groups if a is not None and b is not None]
    if known:
        told = ((name, number(a), number(b), number(b / a) if a else "?") for name, a, b in known[:GROUPS_SHOWN])
        out.print(table(("median ± of", f">{found.a.name}", f">{found.b.name}", ">ratio"), told))
        _say_cut(out, len(known))
    elif found.groups:
        out.print("A plan knows no error bars; compare two releases for these.")


def next_commands(folder: str, attributes: Sequence[str]) -> str:
    """What an analyst can do with a release folder."""
    first = in_sql(attributes[0]) if attributes else ""
    asked = f"SELECT {first}, COUNT(*) FROM joined GROUP BY {first}" if first else "SELECT COUNT(*) FROM joined"
    asked, quoted = shlex.quote(asked) if re.search(r'["$`!\\]', asked) else f'"{asked}"', shlex.quote(folder)
    dpjoin, python = _typed("dpjoin"), _typed("python")
    return (
        "Next:\n"
        f"  {dpjoin} answer {quoted} {asked}\n"
        f"  {dpjoin} synthesize {quoted} --rows 1000 --seed 1 -o rows.csv\n"
        f'  {python} -c "import duckdb; duckdb.sql(\\"FROM \'{folder}/synthetic.parquet\' USING SAMPLE 5\\").show()"'
    )


def _typed(command: str) -> str:
    """How to type a command of this environment here: its bare name where that finds it, else its path."""
    ours = Path(sys.executable).parent / command
    found = shutil.which(command)
    if not ours.exists() or (found and Path(found).resolve() == ours.resolve() and Path(found).parent == ours.parent):
        return command
    return os.path.relpath(ours) if ours.is_relative_to(Path.cwd()) else str(ours)
