"""Maps: dicts of Python numbers, as ai.onnx.ml's ZipMap makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def maps_of(
    keys: Sequence[int] | Sequence[str], rows: np.ndarray[Any, Any]
) -> list[dict[int | str, float]]:
    """A dict for each row, of its elements by these keys; raises `ValueError` for other lengths."""
    rows = np.atleast_2d(rows)
    if rows.shape[1] != len(keys):
        raise ValueError(f"{rows.shape[1]} columns for {len(keys)} class labels")
    return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]
