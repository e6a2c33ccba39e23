"""Differentially private synthetic data over joined tables.

>>> import dpjoin as dj
>>> dj.Budget(epsilon=1.0, delta=1e-6)
Budget(epsilon=1.0, delta=1e-06)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dpjoin.api import release
    from dpjoin.auto.plan import plan
    from dpjoin.cli.evaluate import evaluate
    from dpjoin.errors import (
        BudgetError,
        DpjoinError,
        JoinedTableWarning,
        PublicSourceWarning,
        ReleaseError,
        SourceError,
        SpecError,
        UnjoinedTableWarning,
    )
    from dpjoin.privacy.accounting import Budget
    from dpjoin.released.release import Release, load
    from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
    from dpjoin.spec.toml import Spec
    from dpjoin.spec.workload import Workload

_HOMES = {
    "release": "api",
    "BudgetError": "errors",
    "DpjoinError": "errors",
    "JoinedTableWarning": "errors",
    "PublicSourceWarning": "errors",
    "ReleaseError": "errors",
    "SourceError": "errors",
    "SpecError": "errors",
    "UnjoinedTableWarning": "errors",
    "evaluate": "cli.evaluate",
    "plan": "auto.plan",
    "Budget": "privacy.accounting",
    "Release": "released.release",
    "load": "released.release",
    "Attribute": "spec.schema",
    "DegreeBound": "spec.schema",
    "Schema": "spec.schema",
    "Table": "spec.schema",
    "Spec": "spec.toml",
    "Workload": "spec.workload",
}

__all__ = [
    "Attribute",
    "Budget",
    "BudgetError",
    "DegreeBound",
    "DpjoinError",
    "JoinedTableWarning",
    "PublicSourceWarning",
    "Release",
    "ReleaseError",
    "Schema",
    "SourceError",
    "Spec",
    "SpecError",
    "Table",
    "UnjoinedTableWarning",
    "Workload",
    "evaluate",
    "load",
    "plan",
    "release",
]


def __getattr__(name: str) -> Any:
    """Load parts when they are first used, so that `import dpjoin` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dpjoin' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"dpjoin.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
