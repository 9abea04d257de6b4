"""Transposed convolutions, several positions at a time: each phase of the results is a filter.

All positions of a phase meet the same taps at neighbouring elements, and those of all phases lie
within one window of the input that moves by one element. With zeros where a phase has no tap, they
are a convolution with as many times the filters (`ops.rules.winograd`), whose elements are
transformed once for all phases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ostinato.graph.windows import Window
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Value
from ostinato.ops.core.together import Counts
from ostinato.ops.rules.winograd_forms import FORMS
from ostinato.ops.rules.winograd_ways import (
    TYPICAL_SIDE,
    Winograd,
    cheapest,
    decided,
    may_transform,
)
from ostinato.program.transformed import NONE, TAPS, Taps, Transformed
from ostinato.sizes.bounds import unless_negative
from ostinato.sizes.dims import Size, ceildiv
from ostinato.sizes.strides import Shape

# The taps that each phase along an axis meets, by how far the element lies behind the position.
Met: TypeAlias = "Sequence[Mapping[int, int]]"


def winograd_transposed(
    context: Context,
    weights: Value,
    windows: Sequence[Window[Size]],
    met: Sequence[Met],
    extents: Shape,
    group: int,
) -> Winograd | None:
    """How a transposed convolution computes several positions at a time; None if it does not.

    windows, met: along each axis, as `graph.windows.spread` has them and by phase; axes of which
        some phases meet nothing have no `met`.
    """
    known = weights.known
    counts = decided(context, lambda: _fastest(weights, windows, met, extents, group))
    return _way_of(known, windows, met, extents, counts) if known is not None and counts else None


def _fastest(
    weights: Value,
    windows: Sequence[Window[Size]],
    met: Sequence[Met],
    extents: Shape,
    group: int,
) -> Counts:
    """As `winograd_ways.fastest`; all phases of an axis are computed together, or none."""
    known = weights.known
    if known is None or not may_transform(known, windows, group):
        return ()
    if len(met) < len(windows) or any(window.dilation > 1 for window in windows):
        return ()
    forms = [_forms(window, along) for window, along in zip(windows, met, strict=True)]
    found = (counts for counts in itertools.product(*forms) if 0 < _several(counts) <= 2)
    ways = [_way_of(known, windows, met, extents, counts) for counts in found]
    alone = math.prod(known.shape[:2])
    for window, along in zip(windows, met, strict=True):
        outputs = window.outputs if isinstance(window.outputs, int) else TYPICAL_SIDE
        alone *= sum(map(len, along)) * -(-outputs // window.stride)
    return cheapest([way for way in ways if way is not None], alone)


def _forms(window: Window[Size], met: Met) -> tuple[int, ...]:
    """How many positions along an axis may be computed together; none where it has no form."""
    is_strided = window.stride > 1
    is_long = isinstance(window.outputs, int) and _span(met) >= (2 if is_strided else TAPS)
    return (*(() if is_strided else (1,)), *(FORMS if is_long else ()))


def _several(counts: Counts) -> int:
    return sum(count > 1 for count in counts)


def _ends(met: Met) -> tuple[int, int]:
    """The first and the last element that any phase meets."""
    places = [place for taps in met for place in taps]
    return min(places), max(places)


def _span(met: Met) -> int:
    first, last = _ends(met)
    return last - first + 1


def _way_of(
    known: np.ndarray,
    windows: Sequence[Window[Size]],
    met: Sequence[Met],
    extents: Shape,
    together: Counts,
) -> Winograd | None:
    """This many positions together; None where windows begin behind the first element."""
    moved = list(_moved(windows, met, extents))
    is_behind = any(_ends(along)[0] > 0 for along in met)
    if is_behind or not all(isinstance(window.after, int) for window in moved):
        return None
    # The model has the channels first.
    weights = known.swapaxes(0, 1)
    u = Transformed(weights, tuple(map(_taps, met)), together, is_transposed=True)
    return Winograd(u, tuple(moved))


def _taps(met: Met) -> Taps:
    """The taps of each phase at the elements that any of them meets, in their order."""
    first, last = _ends(met)
    return tuple(tuple(one.get(n, NONE) for n in range(first, last + 1)) for one in met)


def _moved(
    windows: Sequence[Window[Size]], met: Sequence[Met], extents: Shape
) -> Iterator[Window[Size]]:
    """The windows that move over the input by one element, for a position of every phase."""
    for window, along, extent in zip(windows, met, extents, strict=True):
        first, _ = _ends(along)
        kernel, outputs = _span(along), ceildiv(window.outputs, window.stride)
        after = unless_negative(outputs + kernel - 1 + first - extent)
        moved = replace(window, kernel=kernel, stride=1, before=-first, after=after)
        yield replace(moved, outputs=outputs, beyond=0)
