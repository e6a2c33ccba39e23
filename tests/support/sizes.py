"""How join sizes fall with caps."""

from __future__ import annotations

CURVES = [(1.0, 1.0), (0.98, 0.8), (0.85, 0.35), (0.6, 0.1), (0.4, 0.04)]
"""What five caps leave, by chance and aligned."""
