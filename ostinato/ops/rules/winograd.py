"""Convolutions of three taps, two positions at a time: four products where there were six.

    v0 = d0 - d2    u0 = g0                     y0 = m0 + m1 + m2
    v1 = d1 + d2    u1 = (g0 + g2 + g1) / 2     y1 = m1 - m2 - m3
    v2 = d2 - d1    u2 = (g0 + g2 - g1) / 2     m_j: the sum of v_j * u_j over channels and
    v3 = d1 - d3    u3 = g2                          all other taps

along one axis, or along one after the other: Winograd's F(2, 3), as A. Lavin and S. Gray have it in
Fast Algorithms for Convolutional Neural Networks, 2015. Each v_j and m_j is a tensor, and each m_j
a convolution of its own, of as many taps fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeAlias, cast

import numpy as np

from ostinato.graph.windows import Window
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.ops.rules.gather import without_axes
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import terms_of, window_load
from ostinato.program.expr import Expr, Load, Reduced, constant, op
from ostinato.program.nodes import Reduce, Store
from ostinato.records import dataclass
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape

TAPS = 3
POSITIONS = 2
# Elements that a pair of positions meets, and products that it takes.
PRODUCTS = TAPS + POSITIONS - 1
# Fitted to `benchmarks.bench_micro`: multiply-adds that take as long as to make, store and load an
# element of the v or of the m; the rows that a product with a matrix of weights needs to take
# longer than loading it; and the share of the time that may be left.
OF_AN_ELEMENT = 25
LEAST_ROWS = 20
MOST_LEFT = 0.92
# Elements of lines of a cache; rows so many apart fall into an eighth of its sets, or less, and
# evict each other (`schedule.layout`).
LINE = 16
CROWDED = 128

# Weights that are transformed at once: the 1 MB made on the way then stays in a cache.
AT_ONCE = 1 << 16

_add, _sub = (np.frompyfunc(partial(op, name), 2, 1) for name in ("add", "sub"))
Transform: TypeAlias = Callable[..., "list[np.ndarray]"]


def _elements(d0: np.ndarray, d1: np.ndarray, d2: np.ndarray, d3: np.ndarray) -> list[np.ndarray]:
    return [_sub(d0, d2), _add(d1, d2), _sub(d2, d1), _sub(d1, d3)]


def _weights(g0: np.ndarray, g1: np.ndarray, g2: np.ndarray) -> list[np.ndarray]:
    half, ends = g0.dtype.type(0.5), g0 + g2
    return [g0, (ends + g1) * half, (ends - g1) * half, g2]


def _results(m0: np.ndarray, m1: np.ndarray, m2: np.ndarray, m3: np.ndarray) -> list[np.ndarray]:
    return [_add(_add(m0, m1), m2), _sub(_sub(m1, m2), m3)]


def _along(values: np.ndarray, axes: Sequence[int], transform: Transform) -> np.ndarray:
    """The values transformed along these axes, one after the other."""

    def once(values: np.ndarray, axis: int) -> np.ndarray:
        return np.stack(transform(*np.moveaxis(values, axis, 0)), axis)

    return reduce(once, axes, values)


@dataclass(frozen=True)
class Pairs:
    """A convolution by pairs of positions.

    weights: float32[filters, channels, taps..]. windows: one per spatial axis. axes: the spatial
    axes along which positions are paired.
    """

    weights: np.ndarray
    windows: tuple[Window[int], ...]
    axes: tuple[int, ...]

    @property
    def places(self) -> list[int]:
        """The paired axes of tensors with rows and channels."""
        return [2 + axis for axis in self.axes]

    @property
    def counts(self) -> list[int]:
        """The number of pairs along each of the paired axes."""
        return [-(-self.windows[axis].outputs // POSITIONS) for axis in self.axes]

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of the products of a pair."""
        return (PRODUCTS,) * len(self.axes)

    @property
    def inside(self) -> list[Window[int]]:
        """What is left to sum over, on elements that are padded and paired."""
        windows = [replace(window, before=0, after=0, beyond=0) for window in self.windows]
        for axis, count in zip(self.axes, self.counts, strict=True):
            windows[axis] = replace(windows[axis], kernel=1, outputs=count)
        return windows


def in_pairs(weights: Value, windows: Sequence[Window[Size]], group: int) -> Pairs | None:
    """How a convolution is computed by pairs where that takes less time, else None.

    The weights and the sizes in the model alone decide it, so that the bits are the same for any
    batch, machine and number of threads.
    """
    known = weights.known
    if known is None or known.dtype != np.float32 or group != 1 or len(windows) < 2:
        return None
    if not all(isinstance(window.outputs, int) and window.outputs > 0 for window in windows):
        return None
    fit = [
        axis
        for axis, window in enumerate(windows)
        if (window.kernel, window.stride, window.dilation) == (TAPS, 1, 1)
    ]
    whole = Pairs(known, tuple(cast("Sequence[Window[int]]", windows)), ())
    choices = [replace(whole, axes=tuple(fit[-count:])) for count in (1, 2) if len(fit) >= count]
    best = min(choices, key=_cost, default=whole)
    return best if _cost(best) < MOST_LEFT * _cost(whole) else None


def _cost(pairs: Pairs) -> float:
    """Multiply-adds of the convolution, and what else takes as long as so many."""
    products, elements, rows = math.prod(pairs.weights.shape[:2]), sum(pairs.weights.shape[:2]), 1
    for axis, window in enumerate(pairs.inside):
        number = PRODUCTS if axis in pairs.axes else 1
        products *= number * window.outputs * window.kernel
        elements *= number * window.outputs
        rows *= window.outputs
    if not pairs.axes:
        return products
    return math.inf if rows < LEAST_ROWS else products + elements * OF_AN_ELEMENT


def convolve_pairs(context: Context, x: Tensor, pairs: Pairs) -> Tensor:
    """The convolution of `x`, [rows, channels, sizes..]: elements, their products, the results."""
    depth = pairs.weights.shape[1]
    context.builder.require.equal(x.shape[1], depth, "channels of the input and the weights")
    v = _elements_of(context.builder, _padded(context, x, pairs), pairs)
    return _results_of(context.builder, _products(context.builder, v, pairs), pairs)


def _padded(context: Context, x: Tensor, pairs: Pairs) -> Tensor:
    """The input with its padding in memory, as far as the last pair reaches."""
    before: list[Size] = [0, 0, *(window.before for window in pairs.windows)]
    after: list[Size] = [0, 0, *(window.after + window.beyond for window in pairs.windows)]
    for place, axis, count in zip(pairs.places, pairs.axes, pairs.counts, strict=True):
        after[place] += POSITIONS * count - pairs.windows[axis].outputs
    if all(n == 0 for n in (*before, *after)):
        return x
    return pad(context, x, before, after, 0, partial(_channels_last, context.builder))


def _elements_of(builder: Builder, x: Tensor, pairs: Pairs) -> Tensor:
    """The v, [products, rows, channels, pairs..], of a padded input."""
    d = np.empty(pairs.single, object)
    shape = _every_other(x, pairs, (0,) * len(pairs.axes)).shape
    points = builder.axes(shape)
    for number in np.ndindex(d.shape):
        d[number] = builder.load(_every_other(x, pairs, number), points)
    values: list[Expr] = _along(d, range(d.ndim), _elements).reshape(-1).tolist()
    target = _groups(builder, x.dtype, (d.size, *shape))
    stores = [
        Store(builder.access(_at(target, number), points), value)
        for number, value in enumerate(values)
    ]
    builder.emit.kernel(points, stores)
    return target


def _products(builder: Builder, v: Tensor, pairs: Pairs) -> Tensor:
    """The m, [products, rows, filters, pairs..]: for each the sums over channels and taps."""
    u = builder.strided(builder.constant(_transformed(pairs)))
    windows = pairs.inside
    groups, rows, depth, *_ = v.shape
    target = _groups(
        builder, v.dtype, (groups, rows, u.shape[-1], *(window.outputs for window in windows))
    )
    outer = builder.axes(target.shape)
    inner = [builder.axis(depth, "r"), *(builder.axis(window.kernel, "r") for window in windows)]
    channel = [(outer[0], v.strides[0]), (inner[0], v.strides[2])]
    zero = constant(0, v.dtype)
    left = window_load(_at(v, 0), outer[1], channel, outer[3:], inner[1:], windows, zero)
    along = zip((outer[0], *inner, outer[2]), u.strides, strict=True)
    terms = terms_of([*along])
    assert u.base is not None
    right = Load(replace(u.base, terms=u.base.terms + terms), u.dtype)
    kept = tuple(axis for axis in inner if axis.extent != 1) or (inner[0],)
    store = Store(builder.access(target, outer), Reduced(0, v.dtype))
    builder.emit.kernel(outer, [store], [Reduce(kept, "sum", left, right)])
    return target


def _transformed(pairs: Pairs) -> np.ndarray:
    """The u, [products, channels, taps.., filters], where those of paired axes are 1."""
    weights, places = pairs.weights, pairs.places
    others = [axis for axis in range(2, weights.ndim) if axis not in places]
    taps = weights.transpose((*places, 1, *others, 0))
    u = np.empty(pairs.single + taps.shape[len(places) :], taps.dtype)
    step = max(AT_ONCE * weights.shape[1] // max(weights.size, 1), 1)
    for first in range(0, weights.shape[1], step):
        some = (*(slice(None) for _ in places), slice(first, first + step))
        u[some] = _along(np.ascontiguousarray(taps[some]), range(len(places)), _weights)
    sizes = (1 if axis in places else weights.shape[axis] for axis in range(2, weights.ndim))
    return u.reshape(-1, weights.shape[1], *sizes, weights.shape[0])


def _results_of(builder: Builder, sums: Tensor, pairs: Pairs) -> Tensor:
    """The y, [rows, filters, positions..]."""
    points = builder.axes(sums.shape[1:])
    m = np.empty(pairs.single, object)
    for place, number in enumerate(np.ndindex(m.shape)):
        m[number] = builder.load(_at(sums, place), points)
    y = _along(m, range(m.ndim), _results)
    shape = list(sums.shape[1:])
    for place in pairs.places:
        shape[place] *= POSITIONS
    whole = _channels_last(builder, sums.dtype, tuple(shape))
    parts = {number: _every_other(whole, pairs, number) for number in np.ndindex(y.shape)}
    stores = [Store(builder.access(part, points), y.item(number)) for number, part in parts.items()]
    builder.emit.kernel(points, stores)
    outputs = (window.outputs for window in pairs.windows)
    return replace(whole, shape=(*shape[:2], *outputs))


def _every_other(x: Tensor, pairs: Pairs, firsts: Sequence[int]) -> Tensor:
    """Every other element of the paired axes, from a first one on."""
    for place, first, count in zip(pairs.places, firsts, pairs.counts, strict=True):
        x = slice_axis(x, place, first, POSITIONS, count)
    return x


def _channels_last(builder: Builder, dtype: str, shape: Shape, step: Size | None = None) -> Tensor:
    """A tensor not yet written, whose second axis is the innermost one in memory.

    step: how far its rows are apart there, by default one behind the other.
    """
    rows, channels, *sizes = shape
    dense = builder.empty(dtype, (rows, *sizes, step or channels))
    last = len(shape) - 1
    order = (0, last, *range(1, last))
    return replace(dense, shape=shape, strides=tuple(dense.strides[axis] for axis in order))


def _groups(builder: Builder, dtype: str, shape: Shape) -> Tensor:
    """Tensors not yet written, by the first axis, each as `_channels_last` has it."""
    groups, rows, channels, *sizes = shape
    is_crowded = isinstance(channels, int) and channels % CROWDED == 0
    step = channels + LINE if is_crowded else channels
    dense = _channels_last(builder, dtype, (groups * rows, channels, *sizes), step)
    assert dense.base is not None
    builder.draft.keep_layout(dense.base.buffer)
    return replace(dense, shape=shape, strides=(dense.strides[0] * rows, *dense.strides))


def _at(x: Tensor, place: int) -> Tensor:
    """The tensor at a place of its first axis."""
    return without_axes(slice_axis(x, 0, place, 1, 1), 0)
