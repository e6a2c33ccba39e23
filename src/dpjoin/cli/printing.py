"""Answers on stdout, for people and for programs; nothing here imports what makes a release."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from typing import Any

from dpjoin.released.result import Answers
from dpjoin.released.shown import console, table


def show_answers(answers: Answers) -> None:
    """A result with error bars where they are known; one that is longer than the terminal is paged."""
    out = console()
    made = table(*answers.shown())
    if out.is_terminal and len(answers) + 4 > out.height:
        with out.pager():
            out.print(made)
    else:
        out.print(made)


def show_json(document: object) -> None:
    """JSON on stdout."""
    sys.stdout.write(json_text(document))


def json_text(document: object) -> str:
    """JSON; numbers that are not numbers become null."""
    return json.dumps(_clean(document), indent=1, ensure_ascii=False) + "\n"


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
