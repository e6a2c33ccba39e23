"""Count the functions and files of dpjoin that one `auto` release of the demo runs through.

python tools/touched.py            how many, by folder
python tools/touched.py --list     every function, by file

This is what a newcomer reads to follow one release. Functions are those that were called, methods included. Functions
inside functions, lambdas and comprehensions belong to the one that holds them. What runs while a module is imported
does not count, nor does reading the spec.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "dpjoin"


def touched(job: Callable[[], object], package: Path = PACKAGE) -> dict[str, set[str]]:
    """The functions of the package that a job calls, by file."""
    seen: set[CodeType] = set()
    importing = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        if frame.f_code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing:
            seen.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found: dict[str, set[str]] = {}
    for code in seen:
        path = Path(code.co_filename)
        if path.is_relative_to(package):
            found.setdefault(str(path.relative_to(package)), set()).add(code.co_qualname.partition(".<locals>")[0])
    return found


def demo_release() -> Callable[[], object]:
    """The release of the demo, ready to run: its spec is read."""
    from dpjoin.api import release
    from dpjoin.spec.toml import Spec

    spec = Spec.from_toml(PACKAGE / "data" / "demo.toml")
    sources = spec.sources()

    def job() -> object:
        return release(spec.schema, spec.workload, sources, spec.budget, method="auto")

    return job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="every function, by file")
    found = touched(demo_release())
    by_folder: Counter[str] = Counter()
    for name, functions in found.items():
        by_folder[name.rpartition("/")[0] or "."] += len(functions)
    if parser.parse_args().list:
        for name in sorted(found):
            print(name, *sorted(found[name]), sep="\n    ")
    for folder, count in by_folder.most_common():
        print(f"{count:6,}  {folder}")
    print(f"{sum(by_folder.values()):6,}  functions in {len(found)} files")


if __name__ == "__main__":
    main()
