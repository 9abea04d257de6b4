"""Maps: dicts of Python numbers, as ai.onnx.ml's ZipMap makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Maps = list[dict[int | str, float]]
# A function of more names than that would take long to compile.
_MOST_NAMES = 100


def map_maker(keys: Sequence[int] | Sequence[str]) -> Callable[[np.ndarray[Any, Any]], Maps]:
    """The function that makes a dict of each row, of its elements by these keys.

    It raises `ValueError` for rows of another length. A row becomes a dict by a display, whose keys
    and values have names: that takes a third of the time of `dict(zip(keys, row))`.
    """
    count = len(keys)
    make = _by_display(keys) if 0 < count <= _MOST_NAMES else _by_pairs(keys)

    def maps_of(rows: np.ndarray[Any, Any]) -> Maps:
        if rows.ndim != 2:
            rows = np.atleast_2d(rows)
        if rows.shape[1] != count:
            raise ValueError(f"{rows.shape[1]} columns for {count} class labels")
        return make(rows)

    return maps_of


def _by_display(keys: Sequence[Any]) -> Callable[[np.ndarray[Any, Any]], Maps]:
    names = [f"v{i}" for i in range(len(keys))]
    items = ", ".join(f"k{name}: {name}" for name in names)
    given, taken = (", ".join(f"{prefix}{name}" for name in names) for prefix in ("k", ""))
    text = f"lambda {given}: lambda rows: [{{{items}}} for {taken}, in zip(*rows.T.tolist())]"
    made: Callable[[np.ndarray[Any, Any]], Maps] = eval(text, {"__builtins__": {"zip": zip}})(*keys)
    return made


def _by_pairs(keys: Sequence[Any]) -> Callable[[np.ndarray[Any, Any]], Maps]:
    return lambda rows: [dict(zip(keys, row, strict=True)) for row in rows.tolist()]
