# Everything runs inside .venv, which the first command builds.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-full lint bench clean
