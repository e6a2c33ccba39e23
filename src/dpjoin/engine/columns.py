"""Arrow's columns as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def array_of(column: Any) -> NDArray[Any]:
    """A column of numbers without nulls. Arrow's own `to_numpy` imports pandas where it is installed: 0.3 seconds."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.asarray(column.to_numpy())
    found = [np.from_dlpack(chunk) for chunk in chunks if len(chunk)]
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.zeros(0, dtype=column.type.to_pandas_dtype())
