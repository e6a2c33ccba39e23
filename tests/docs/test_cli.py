"""Every verb, as a user runs it: results on stdout, words on stderr, exit codes 0, 1 and 2."""

from __future__ import annotations

import pytest

from support.shop import run

VERBS = ("init", "plan", "release", "answer", "report", "compare", "synthesize", "evaluate", "demo")


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_ends_with_an_example(capsys, verb):
    """The last line of a verb's help is a command that can be copied, and it fits the screen."""
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    lines = out.rstrip().splitlines()
    assert lines[-2].strip() == "Example:"
    assert lines[-1].strip().startswith(f"dpjoin {verb}")
    assert max(map(len, lines)) <= 100
