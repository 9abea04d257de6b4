"""Dilated windows: which taps lie on data, and what they are over each phase of an axis.

Places that are `d` apart see neighbours where the taps are `d` apart: each of the `d` phases of an
axis is an image of its own, over which the window has no dilation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ostinato.graph.windows import Window
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv


@dataclass(frozen=True)
class Span:
    """Places of a window along an axis that have the same taps on data.

    first, count: of the places; tap, taps: of the taps.
    """

    first: int
    count: int
    tap: int
    taps: int


def spans(window: Window[Size], extent: Size) -> list[Span] | None:
    """The places over an axis of so many elements by their taps on data.

    None where only a run tells them.
    """
    before, outputs = window.before, window.outputs
    if not (isinstance(extent, int) and isinstance(before, int) and isinstance(outputs, int)):
        return None
    # A tap enters the data at one place, and leaves it at another.
    reach = [before - k * window.dilation for k in range(window.kernel)]
    ends = {-(-n // window.stride) for r in reach for n in (r, r + extent)}
    places = sorted({0, outputs, *(place for place in ends if 0 < place < outputs)})
    found: list[Span] = []
    for first, last in pairwise(places):
        inside = [k for k, r in enumerate(reach) if 0 <= first * window.stride - r < extent]
        found.append(Span(first, last - first, inside[0] if inside else 0, len(inside)))
    return found


def share_on_data(windows: Sequence[Window[Size]], extents: Sequence[Size]) -> float:
    """The share of the taps of all places that lie on data; 1 where only a run tells it."""
    share = 1.0
    for window, extent in zip(windows, extents, strict=True):
        along = spans(window, extent)
        if not along:
            return 1.0
        met = sum(span.count * span.taps for span in along)
        share *= met / (window.kernel * sum(span.count for span in along))
    return share


def phases(windows: Sequence[Window[Size]]) -> tuple[Window[Size], ...]:
    """The windows over one phase of every axis: without dilation, and without padding."""
    return tuple(
        replace(
            window,
            dilation=1,
            before=0,
            after=0,
            beyond=0,
            outputs=ceildiv(window.outputs, window.dilation),
        )
        for window in windows
    )


def count_of_phases(windows: Sequence[Window[Size]]) -> int:
    """The number of images that the phases of all axes are."""
    return math.prod(window.dilation for window in windows)
