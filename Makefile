# Everything runs inside .venv, which the first command builds.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-full lint bench theory report docs proofs mutate clean

help:                           ## what there is to make
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-11s %s\n", $$1, $$2 }'

demo: .venv/core.stamp          ## the whole job on embedded real data
	$(BIN)/dpjoin demo

test: lint .venv/debian.stamp    ## everything that must hold, in about ten minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not full" --doctest-modules src tests

test-full: lint .venv/debian.stamp ## the same with new noise, new examples and the statistics at full size
	$(BIN)/python -m pytest -n 2 --fresh --doctest-modules src tests

lint: .venv/dev.stamp           ## style, types, import contracts, proofs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/proofs.py --check

bench: .venv/bench.stamp        ## accuracy and speed against peers, into benchmarks/results
	$(BIN)/python benchmarks/run.py

theory: .venv/bench.stamp       ## what the paper's theorems say, measured and drawn, into docs/figures; ten minutes
	$(BIN)/python -m dpjoin.theory.reproduce
	$(BIN)/python benchmarks/theory.py

report: .venv/dev.stamp         ## docs/report.md as report.pdf; needs Chromium
	$(BIN)/python tools/report.py

docs: .venv/dev.stamp           ## the documentation as a site, into build/site
	$(BIN)/python tools/pages.py --write
	$(BIN)/python tools/pages.py

proofs: .venv/dev.stamp         ## after reading code and proof side by side: record that they fit
	$(BIN)/python tools/proofs.py --update

mutate: .venv/dev.stamp         ## break what the proofs hash, one definition at a time, into docs/mutation.md
	nice -n 10 $(BIN)/python tools/mutate.py --page docs/mutation.md

clean:                          ## remove .venv and releases of the demo
	rm -rf .venv demo-release*

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "dpjoin needs Python 3.11 or later; set PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv .venv; \
	  else echo "cannot make a virtual environment; install python3-venv first"; exit 1; fi; }

# What tests of pages and stores need besides Python. Without them those tests are skipped, and say so.
DEBIAN := postgresql chromium chromium-driver openjdk-17-jre-headless

.venv/debian.stamp: .venv/dev.stamp
	-@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=$$(for p in $(DEBIAN); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	  [ -z "$$missing" ] || { apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null 2>&1 \
	    || echo "not installed: $$missing"; fi
	@touch $@

.venv/core.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev,spark]'
	@touch .venv/core.stamp $@

.venv/bench.stamp: .venv/dev.stamp
	$(PIP) -e '.[dev,bench,spark]'
	@touch $@
