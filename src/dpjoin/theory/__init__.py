"""The paper's theory as code: bounds, hard instances, flawed ideas, and the reproduction of what it states.

`bounds` compares a release with the theorems. Computed on private tables the answer is private, and says so.
"""

from __future__ import annotations

from dpjoin.theory.comparison import Bounds, PrivateBounds, bounds
from dpjoin.theory.facts import Facts, PrivateFacts, facts
from dpjoin.theory.upper import Task

__all__ = ["Bounds", "Facts", "PrivateBounds", "PrivateFacts", "Task", "bounds", "facts"]
