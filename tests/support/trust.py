"""What ring 1 is given by callers."""

from __future__ import annotations

from dpjoin.spec.schema import Attribute, Schema, Table

ONE = Schema((Table(name="r", attributes=("a",)),), (Attribute(name="a", range=(0, 3)),))
