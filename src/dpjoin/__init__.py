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
    from dpjoin.errors import (
        BudgetError,
        DeltaWarning,
        DpjoinError,
        JoinedTableWarning,
        PublicSourceWarning,
        ReleaseError,
        SourceError,
        SpecError,
        SpecWarning,
        UnjoinedTableWarning,
    )
    from dpjoin.evaluation import evaluate
    from dpjoin.privacy.accounting import Budget
    from dpjoin.released.files import load
    from dpjoin.released.release import Release
    from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
    from dpjoin.spec.toml import Spec
    from dpjoin.spec.workload import Workload

_PUBLIC = {
    "api": ("release",),
    "auto.plan": ("plan",),
    "errors": ("BudgetError", "DpjoinError", "ReleaseError", "SourceError", "SpecError"),
    "evaluation": ("evaluate",),
    "privacy.accounting": ("Budget",),
    "released.files": ("load",),
    "released.release": ("Release",),
    "spec.schema": ("Attribute", "DegreeBound", "Schema", "Table"),
    "spec.toml": ("Spec",),
    "spec.workload": ("Workload",),
}
_PUBLIC["errors"] += (
    "DeltaWarning",
    "JoinedTableWarning",
    "PublicSourceWarning",
    "SpecWarning",
    "UnjoinedTableWarning",
)
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "Attribute",
    "Budget",
    "BudgetError",
    "DegreeBound",
    "DeltaWarning",
    "DpjoinError",
    "JoinedTableWarning",
    "PublicSourceWarning",
    "Release",
    "ReleaseError",
    "Schema",
    "SourceError",
    "Spec",
    "SpecError",
    "SpecWarning",
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


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
