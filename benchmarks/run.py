"""Both benchmarks with the sizes of `make bench`: `python benchmarks/run.py [--only accuracy|speed] [--quick]`."""

from __future__ import annotations

import argparse
import sys

import accuracy
import joins
import speed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("accuracy", "speed"))
    parser.add_argument("--quick", action="store_true", help="small, once, nothing written: does it run?")
    options = parser.parse_args(arguments)
    status = 0
    if options.only != "speed":
        wanted = ["--runs", "1", "--query", "sandag_m2m", "--no-write"] if options.quick else ["--runs", "7"]
        status = accuracy.main(wanted)
        if not options.quick:
            status = status or joins.main([])
    if options.only != "accuracy":
        status = status or speed.main(["--quick", "--no-write"] if options.quick else [])
    return status


if __name__ == "__main__":
    sys.exit(main())
