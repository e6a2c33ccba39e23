"""Shared set-up: one BLAS thread, so that the two cores serve two test workers."""

from __future__ import annotations

import sys
from pathlib import Path

from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))
threadpool_limits(1)
