"""The elements of an axis that a slice takes."""

from __future__ import annotations


def slice_range(start: int, end: int, step: int, extent: int) -> range:
    """The positions, as the operator of ONNX (version 13) clamps bounds; `step` is not 0.

    Unlike in Python, a falling slice that starts before the front begins with the first element.
    """
    first = min(max(start + extent if start < 0 else start, 0), extent - (step < 0))
    least = -1 if step < 0 else 0
    last = min(max(end + extent if end < 0 else end, least), extent + least)
    return range(first, last, step)
