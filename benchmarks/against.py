"""Is `auto` as accurate as it was? `python benchmarks/against.py [REVISION] [--runs N]` on every real join.

The present code and REVISION (by default the last one of 0.1) take turns, each with its own loaders, domains and
declared bounds, in processes of their own; only the data are shared. `--query NAME ...` takes some of the joins and
keeps what was measured of the others with the same revision.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from queries import DATA, ROOT
from report import RESULTS, command, markdown_table, number, versions, write

OLD = "ee5d89c"
TURNS = 4
"""Each revision makes its runs in so many processes, in turns."""
CHILD = """
import json, sys, warnings
import dpjoin as dj, joins
from pathlib import Path
warnings.simplefilter("ignore")
joins.DATA = Path(sys.argv[1])
schema, tables = joins.load(sys.argv[2], bounds=sys.argv[3] == "True")
workload = dj.Workload.marginals(schema, (1, 2))
for _ in range(int(sys.argv[4])):
    told = dj.evaluate(dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6)), tables)
    print(json.dumps([told.mean_total_variation, told.covered]))
"""
PAGE = """# Against {revision}

Made by `{command}` with {versions}.

Budget (1, 1e-06), all 1- and 2-way marginals, `auto`, {runs} runs of each code, in turns. Mean total variation,
medians; below 1 the present code is more accurate. Interval: 95 %, by drawing the runs again. `+` marks declared
bounds. Domains are read off the data here, which a real release must not do.

{table}

{told}
"""


def names() -> list[tuple[str, bool]]:
    """Every real join, and again with bounds where some are known from outside."""
    import joins

    found = [q["name"] for path in sorted(DATA.glob("*/queries.json")) for q in json.loads(path.read_text("utf-8"))]
    return [(name, bounds) for name in found for bounds in (False, True) if name in joins.BOUNDS or not bounds]


def runs_of(tree: Path, name: str, bounds: bool, runs: int) -> list[list[float]]:
    call = [sys.executable, "-c", CHILD, str(DATA), name, str(bounds), str(runs)]
    places = {"PYTHONPATH": f"{tree / 'src'}:{tree / 'benchmarks'}", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=places)
    return [json.loads(line) for line in done.stdout.splitlines()]


def row(name: str, found: dict[str, list[list[float]]]) -> tuple[list[str], float]:
    """A line of the table, and the ratio."""
    old, new = (np.array([r[0] for r in found[which]]) for which in ("old", "new"))
    rng = np.random.default_rng(0)
    again = [np.median(rng.choice(new, len(new))) / np.median(rng.choice(old, len(old))) for _ in range(2000)]
    low, high = np.quantile(again, (0.025, 0.975))
    ratio = float(np.median(new) / np.median(old))
    covered = median(r[1] for r in found["new"])
    told = [name, number(np.median(old)), number(np.median(new)), f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"]
    return [*told, f"{covered:.3f}"], ratio


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", nargs="?", default=OLD)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--query", nargs="+", help="only these joins")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    if not DATA.exists():
        print(f"{DATA} is absent; nothing was measured", file=sys.stderr)
        return 0
    kept = RESULTS / "against.json"
    found = json.loads(kept.read_text("utf-8")) if options.query and kept.exists() else {}
    if found.get("revision") != options.revision:
        found = {"revision": options.revision, "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", tree, options.revision], check=True)
        try:
            for name, bounds in names():
                if options.query and name not in options.query:
                    continue
                here: dict[str, list[list[float]]] = {"old": [], "new": []}
                for _ in range(TURNS):
                    for which, place in (("old", tree), ("new", ROOT)):
                        here[which] += runs_of(place, name, bounds, -(-options.runs // TURNS))
                found["runs"][name + "+" * bounds] = here
                print(" ".join(row(name + "+" * bounds, here)[0]), file=sys.stderr, flush=True)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)
    rows = [row(name, here) for name, here in found["runs"].items()]
    table = markdown_table(["join", options.revision, "now", "ratio", "interval", "covered"], [r for r, _ in rows])
    worse = [r[0] for r, ratio in rows if ratio > 1.03]
    told = (
        f"Worse by more than 3 %: {', '.join(worse) or 'none'}. The median ratio is {median(x for _, x in rows):.2f}."
    )
    counts = sorted({len(here["new"]) for here in found["runs"].values()})
    filled = {"table": table, "told": told, "runs": " or ".join(map(str, counts)), "revision": options.revision}
    page = PAGE.format(command=command("against.py", *sys.argv[1:]), versions=versions(), **filled)
    print(page)
    if not options.no_write:
        write("against", page, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
