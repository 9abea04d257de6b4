"""Dilated windows: which taps lie on data, and what they are over each phase of an axis.

Places that are `d` apart see neighbours where the taps are `d` apart: each of the `d` phases of an
axis is an image of its own, over which the window has no dilation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ostinato.graph.windows import Window
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv

# A part takes as long as this many places at least: it loads the weights of its taps. 29 taps, 2
# apart, of 64 channels to 128 over 51 places: 26 parts take 2.7 of the time of the whole.
_FEWEST_PLACES = 8
# Axes of more spans are not divided.
_MOST_SPANS = 128


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
    """The places over an axis of this many elements by their taps on data.

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


def parts(windows: Sequence[Window[Size]], extents: Sequence[Size]) -> list[list[Span]] | None:
    """The places along each axis in parts that are worth weights of their own.

    The taps of a part are those on data at any of its places. None where only a run tells them.
    """
    found = [spans(window, extent) for window, extent in zip(windows, extents, strict=True)]
    if not all(axis and len(axis) <= _MOST_SPANS for axis in found):
        return None
    along = [axis for axis in found if axis is not None]
    counts = [sum(span.count for span in axis) / len(axis) for axis in along]
    return [
        _merged(axis, _FEWEST_PLACES / math.prod(counts[:i] + counts[i + 1 :]))
        for i, axis in enumerate(along)
    ]


def _merged(axis: Sequence[Span], least: float) -> list[Span]:
    """Neighbours as one where that takes less; a part takes as long as `least` places or longer."""
    best: list[tuple[float, list[Span]]] = [(0.0, [])]
    for end in range(len(axis)):
        ways = []
        for start in range(end + 1):
            joined = _joined(axis[start : end + 1])
            before, others = best[start]
            ways.append((before + joined.taps * max(joined.count, least), [*others, joined]))
        best.append(min(ways, key=lambda way: (way[0], -len(way[1]))))
    return best[-1][1]


def _joined(neighbours: Sequence[Span]) -> Span:
    """All places of neighbours, with every tap of theirs."""
    met = [span for span in neighbours if span.taps]
    first = min((span.tap for span in met), default=0)
    last = max((span.tap + span.taps for span in met), default=0)
    count = sum(span.count for span in neighbours)
    return Span(neighbours[0].first, count, first, last - first)


def share_on_data(windows: Sequence[Window[Size]], extents: Sequence[Size]) -> float:
    """The share of the time that `parts` take of the whole; 1 where only a run tells them."""
    along = parts(windows, extents)
    if along is None:
        return 1.0

    def time(part: Sequence[Span]) -> float:
        places = math.prod([span.count for span in part])
        return math.prod([span.taps for span in part]) * max(places, _FEWEST_PLACES)

    counts = [sum(span.count for span in axis) for axis in along]
    whole = [Span(0, n, 0, w.kernel) for n, w in zip(counts, windows, strict=True)]
    return sum(map(time, itertools.product(*along))) / time(whole)


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
