"""All benchmarks with the sizes of `make bench`: `benchmarks/run.py [--only PART] [--quick]`."""

from __future__ import annotations

import argparse
import sys

import accuracy
import fading
import few
import gap
import hybrid
import joins
import kernel
import large
import learned
import methods
import persons
import shop
import speed
import stores
import stores_spark
import sums
import trap
import uniformize
import unseen
import wide


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("accuracy", "uniformize", "methods", "large", "kernel", "speed"))
    parser.add_argument("--quick", action="store_true", help="small, once, nothing written: does it run?")
    options = parser.parse_args(arguments)
    status = 0
    if options.only in (None, "accuracy"):
        wanted = ["--runs", "1", "--query", "sandag_m2m", "--no-write"] if options.quick else ["--runs", "7"]
        status = accuracy.main(wanted)
        quick = ["--quick"] if options.quick else []
        status = status or shop.main(quick) or fading.main(quick) or few.main(quick) or sums.main(quick)
        status = status or learned.main(quick)
        status = status or persons.main(["--runs", "1", "--query", "sandag_m2m", "--no-write"] if options.quick else [])
        if not options.quick:
            status = status or joins.main([])
    if options.only in (None, "uniformize"):
        wanted = ["--quick"] if options.quick else []
        status = status or uniformize.main(wanted) or gap.main(wanted) or hybrid.main(wanted)
        status = status or trap.main(wanted)
    if options.only in (None, "methods"):
        wanted = ["--quick"] if options.quick else []
        status = status or methods.main(wanted) or unseen.main(wanted)
    if options.only in (None, "large"):
        wanted = ["--quick"] if options.quick else []
        status = status or large.main(wanted) or wide.main(wanted)
    if options.only in (None, "kernel"):
        status = status or kernel.main(["--quick"] if options.quick else [])
    if options.only in (None, "speed"):
        status = status or speed.main(["--quick", "--no-write"] if options.quick else [])
        status = status or stores.main(["--quick"] if options.quick else [])
        if not options.quick:  # tests/oracle/test_spark.py runs it with the session that it has
            status = status or stores_spark.main([])
    return status


if __name__ == "__main__":
    sys.exit(main())
