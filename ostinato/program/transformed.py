"""Constants that are computed from others once the memory of all constants is there.

Weights of convolutions that compute several positions together (`ops.rules.winograd`) are sums of
taps, with more elements than the taps. What they are made of is data, so that it can be stored and
made again of other weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from ostinato.records import dataclass

Array: TypeAlias = np.ndarray[Any, Any]
Transform: TypeAlias = Callable[..., "list[Array]"]

# Along one axis the taps of each phase, by their numbers; NONE is a zero.
Taps: TypeAlias = "tuple[tuple[int, ...], ...]"
NONE = -1
# The taps that a form takes.
TAPS = 3
# Weights that are transformed at once: the 1 MB made on the way then stays in a cache.
_AT_ONCE = 1 << 15
# The points of the form of four positions but 0 and infinity: these, and the same below 0.
NEAR, FAR = 0.75, 1.5
NEAR_2, FAR_2 = NEAR**2, FAR**2


def transformed(values: Array, axes: Sequence[int], transforms: Sequence[Transform]) -> Array:
    """The values transformed along these axes, one after the other, each as its transform says."""

    def once(values: Array, along: tuple[int, Transform]) -> Array:
        axis, transform = along
        return np.stack(transform(*np.moveaxis(values, axis, 0)), axis)

    return reduce(once, zip(axes, transforms, strict=True), values)


def _two(g0: Array, g1: Array, g2: Array) -> list[Array]:
    ends = g0 + g2
    return [g0, (ends + g1) * 0.5, (ends - g1) * 0.5, g2]


def _four(g0: Array, g1: Array, g2: Array) -> list[Array]:
    """The polynomial of the taps at each point, over the distances of the point to the others."""
    at_points = []
    for point, other in ((NEAR, FAR_2), (FAR, NEAR_2)):
        square = point * point
        even, odd, apart = g0 + g2 * square, g1 * point, 2 * square * (square - other)
        at_points += [(even + odd) / apart, (even - odd) / apart]
    return [g0 / (NEAR_2 * FAR_2), *at_points, g2]


# By the number of positions together: from the three taps, in this precision.
_FORMS: dict[int, tuple[Transform, type[np.floating]]] = {
    2: (_two, np.float32),
    4: (_four, np.float64),
}


@dataclass(frozen=True)
class Transformed:
    """The weights of products: float32[products, channels, taps.., filters], flat.

    weights: float32[filters, channels, taps..]. taps: those of `weights` that each phase along each
    spatial axis has. together: how many positions along each axis are computed together: 1, 2 or 4.
    is_transposed: whether phases are filters of their own, or channels of their own.
    """

    weights: Array
    taps: tuple[Taps, ...]
    together: tuple[int, ...]
    is_transposed: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        dtype: np.dtype[Any] = self.weights.dtype
        return dtype

    @property
    def phases(self) -> tuple[int, ...]:
        """The number of phases along each spatial axis."""
        return tuple(map(len, self.taps))

    @property
    def filters(self) -> int:
        """The number of filters, of all phases where these are filters of their own."""
        filters: int = self.weights.shape[0]
        return filters * (math.prod(self.phases) if self.is_transposed else 1)

    @property
    def channels(self) -> int:
        """The number of channels to sum over, of all phases where these are channels."""
        channels: int = self.weights.shape[1]
        return channels * (1 if self.is_transposed else math.prod(self.phases))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        products = (count + TAPS - 1 for count in self.together if count > 1)
        taps = [
            self.groups(axis) if count > 1 else len(self.taps[axis][0])
            for axis, count in enumerate(self.together)
        ]
        return math.prod(products), self.channels, *taps, self.filters

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes in memory."""
        return self.size * self.dtype.itemsize

    def write(self, target: Array) -> None:
        """Write the elements to flat memory of this type and size."""
        target[:] = self.elements()

    def elements(self) -> Array:
        """Compute the elements into memory of their own, flat."""
        weights = self._by_phases()
        places = [2 + axis for axis, count in enumerate(self.together) if count > 1]
        groups = {place: self.groups(place - 2) for place in places}
        filled = [
            (0, groups[axis] * TAPS - taps if axis in groups else 0)
            for axis, taps in enumerate(weights.shape)
        ]
        parted: list[int] = []
        inner: list[int] = []
        outer: list[int] = []
        for axis, taps in enumerate(weights.shape[2:], 2):
            outer.append(2 + len(parted))
            parted.append(groups.get(axis, taps))
            if axis in groups:
                inner.append(2 + len(parted))
                parted.append(TAPS)
        whole = np.pad(weights, filled) if np.any(filled) else weights
        each = whole.reshape(*weights.shape[:2], *parted)
        each = each.transpose((*inner, 1, *outer, 0))
        forms = [_FORMS[self.together[place - 2]] for place in places]
        single = tuple(self.together[place - 2] + TAPS - 1 for place in places)
        u = np.empty(single + each.shape[len(places) :], each.dtype)
        precision = np.result_type(*(kind for _, kind in forms))
        transforms = [transform for transform, _ in forms]
        step = max(_AT_ONCE * weights.shape[1] // max(weights.size, 1), 1)
        for first in range(0, weights.shape[1], step):
            some = (*(slice(None) for _ in places), slice(first, first + step))
            u[some] = transformed(each[some].astype(precision), range(len(places)), transforms)
        return u.reshape(-1)

    def groups(self, axis: int) -> int:
        """The number of groups of `TAPS` along a spatial axis."""
        return -(-len(self.taps[axis][0]) // TAPS)

    def _by_phases(self) -> Array:
        """The weights [filters, channels, taps..] of all phases."""
        if self.taps == tuple((tuple(range(count)),) for count in self.weights.shape[2:]):
            return self.weights
        rank = len(self.taps)
        # Behind the last tap is the zero that `NONE` takes.
        found = np.pad(self.weights, [(0, 0), (0, 0), *[(0, 1)] * rank])
        for axis, taps in enumerate(self.taps):
            found = np.take(found, taps, 2 + 2 * axis)
        phases, taps_of = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
        pair = (*phases, 0, 1) if self.is_transposed else (0, *phases, 1)
        turned = found.transpose(*pair, *taps_of)
        return turned.reshape(self.filters, self.channels, *turned.shape[rank + 2 :])
