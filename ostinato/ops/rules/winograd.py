"""Convolutions of three taps or more, two positions at a time: four products where there were six.

    v0 = d0 - d2    u0 = g0                     y0 = m0 + m1 + m2
    v1 = d1 + d2    u1 = (g0 + g2 + g1) / 2     y1 = m1 - m2 - m3
    v2 = d2 - d1    u2 = (g0 + g2 - g1) / 2     m_j: the sum of v_j * u_j over channels and
    v3 = d1 - d3    u3 = g2                          all other taps

along one axis, or along one after the other: Winograd's F(2, 3), as A. Lavin and S. Gray have it in
Fast Algorithms for Convolutional Neural Networks, 2015. Each v_j and m_j is a tensor, and each m_j
a convolution of its own, of as many taps fewer. More taps are several groups of three, the last one
filled up with zeros, whose products are added to the same m_j: a convolution by every third place,
which moves by two. Groups begin at odd places too, so that there are v for every place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from ostinato.graph.dilation import count_of_phases, phases, share_on_data
from ostinato.graph.windows import Window
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.ops.rules.gather import at_place
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import terms_of, window_load
from ostinato.program.expr import Expr, Load, Reduced, constant, op
from ostinato.program.kernel import Reduce, Store
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv, computed, floordiv, symbols
from ostinato.sizes.strides import Shape

TAPS = 3
_POSITIONS = 2
# Elements that a pair of positions meets, and products that it takes.
_PRODUCTS = TAPS + _POSITIONS - 1
# Fitted to `benchmarks.bench_micro`: multiply-adds that take as long as to make, store and load an
# element of the v or of the m; the rows that a product with a matrix of weights needs to take
# longer than loading it; and the share of the time that may be left.
_OF_AN_ELEMENT = 25
LEAST_ROWS = 20
_MOST_LEFT = 0.92
# Pixels along a side of an image where only a run tells how many there are. Bits depend on it, so
# it is no matter of schedules.
_TYPICAL_SIDE = 64
# A tile of a dozen rows meets a line of memory below each tap: those of so many taps stay in the
# first-level cache until the next channel, which lies beside the last one, is summed up. Else
# channels are summed up tap by tap: 84 taps of 32 channels take 0.61 of the time so, 4 taps of 256
# channels 1.37.
_MOST_TAPS = 32
# Elements of lines of a cache; rows so many apart fall into an eighth of its sets, or less, and
# evict each other (`schedule.layout`).
_LINE = 16
_CROWDED = 128

# Bytes of the v that leave a second-level cache with the m, and of weights that are few enough to
# be read again for each block of lines, which passes through all steps at a time:
# 64 channels of 224 x 224 pixels take 0.85 of the time so, of 112 x 112 pixels 0.77, of 56 x 56
# pixels 0.89, 128 channels of 112 x 112 pixels 0.8 (`benchmarks.versions --onnx`).
_MANY_BYTES = 1 << 21
_FEW_BYTES = 1 << 21

# Weights that are transformed at once: the 1 MB made on the way then stays in a cache.
_AT_ONCE = 1 << 16

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
    axes along which positions are paired. images: the phases that are images of their own, where
    one of these axes is dilated.
    """

    weights: np.ndarray
    windows: tuple[Window[Size], ...]
    axes: tuple[int, ...]
    images: int = 1

    @property
    def places(self) -> list[int]:
        """The paired axes of tensors with rows and channels."""
        return [2 + axis for axis in self.axes]

    @property
    def counts(self) -> list[Size]:
        """The number of pairs along each of the paired axes."""
        return [ceildiv(self.windows[axis].outputs, _POSITIONS) for axis in self.axes]

    @property
    def groups(self) -> list[int]:
        """The number of groups of taps along each of the paired axes."""
        return [-(-self.windows[axis].kernel // TAPS) for axis in self.axes]

    @property
    def steps(self) -> list[int]:
        """How far apart the elements lie for which there are v, along each of the paired axes."""
        return [_POSITIONS if groups == 1 else 1 for groups in self.groups]

    @property
    def starts(self) -> list[Size]:
        """The number of elements for which there are v, along each of the paired axes."""
        along = zip(self.counts, self.groups, self.steps, strict=True)
        return [
            floordiv(_POSITIONS * (count - 1) + TAPS * (groups - 1), step) + 1
            for count, groups, step in along
        ]

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of the products of a pair."""
        return (_PRODUCTS,) * len(self.axes)

    @property
    def has_long_lines(self) -> bool:
        """Whether the v and m lie in memory line by line, all products of a line together."""
        (products, item), windows = (math.prod(self.single), self.weights.itemsize), self.inside
        filters, channels = self.weights.shape[:2]
        taps = math.prod(window.kernel for window in windows)
        lines, *sizes = (window.outputs for window in windows)
        pairs = math.prod(size for size in sizes if isinstance(size, int))
        if not isinstance(lines, int) or any(not isinstance(size, int) for size in sizes):
            return False
        is_large = products * channels * lines * pairs * item >= _MANY_BYTES
        has_few = products * channels * filters * taps * item <= _FEW_BYTES
        return is_large and has_few and pairs >= LEAST_ROWS

    @property
    def inside(self) -> list[Window[Size]]:
        """What is left to sum over, on elements that are padded and paired."""
        windows = [replace(window, before=0, after=0, beyond=0) for window in self.windows]
        along = zip(self.axes, self.counts, self.groups, self.steps, strict=True)
        for axis, count, groups, step in along:
            windows[axis] = replace(
                windows[axis],
                kernel=groups,
                stride=_POSITIONS // step,
                dilation=TAPS // step,
                outputs=count,
            )
        return windows


def in_pairs(
    context: Context, weights: Value, windows: Sequence[Window[Size]], group: int
) -> Pairs | None:
    """How a convolution is computed by pairs; None if it is not."""
    pairing, result = context.builder.pairing, context.node.outputs[0]
    if pairing is None:
        return None
    axes = pairing.of(result.name or "", lambda: paired_axes(weights, windows, group))
    return _pairs(weights.known, windows, axes) if weights.known is not None and axes else None


def _pairs(known: np.ndarray, windows: Sequence[Window[Size]], axes: tuple[int, ...]) -> Pairs:
    """A convolution by pairs along these axes, of all phases where one of them is dilated."""
    if all(windows[axis].dilation == 1 for axis in axes):
        return Pairs(known, tuple(windows), axes)
    return Pairs(known, phases(windows), axes, count_of_phases(windows))


def paired_axes(weights: Value, windows: Sequence[Window[Size]], group: int) -> tuple[int, ...]:
    """The axes along which pairs take less time.

    The weights and the sizes in the model alone decide it, so that the bits are the same for any
    batch, machine and number of threads. Nobody cuts an image along an axis whose size the model
    gives, nor along its height or width: no bit depends then on where a pair begins.
    """
    known = weights.known
    if known is None or known.dtype != np.float32 or group != 1 or len(windows) < 2:
        return ()
    if any(window.outputs == 0 for window in windows):
        return ()
    is_image = _are_height_and_width([window.outputs for window in windows])
    fit = [
        axis
        for axis, window in enumerate(windows)
        if window.kernel >= TAPS
        and window.stride == 1
        and (isinstance(window.outputs, int) or (is_image and window.dilation == 1))
    ]
    even = [axis for axis in fit if windows[axis].dilation == 1]
    choices = [
        tuple(axes[-count:]) for axes in (even, fit) for count in (1, 2) if len(axes) >= count
    ]
    # Phases take all axes apart, and each place of theirs.
    has_phases = all(w.stride == 1 and isinstance(w.outputs, int) for w in windows)
    ways = [_pairs(known, windows, axes) for axes in choices if has_phases or {*axes} <= {*even}]
    whole = Pairs(known, tuple(windows), ())
    best = min(ways, key=_cost, default=whole)
    return best.axes if _cost(best) < _MOST_LEFT * _cost(whole) * _share_on_data(windows) else ()


def _share_on_data(windows: Sequence[Window[Size]]) -> float:
    """The share of the products that a convolution without pairs takes, not those of padding."""
    if all(window.dilation == 1 for window in windows):
        return 1.0
    return share_on_data(
        windows, [(w.outputs - 1) * w.stride + w.span - w.before - w.after for w in windows]
    )


def _are_height_and_width(sizes: Sequence[Size]) -> bool:
    """Whether sizes follow from dimensions of the model, each from others."""
    names = [set(symbols(size)) for size in sizes]
    apart = len(set().union(*names)) == sum(map(len, names))
    return apart and all(names) and not computed(*sizes)


def _cost(pairs: Pairs) -> float:
    """Multiply-adds of the convolution, and what else takes as long as so many."""
    results: int
    elements: int
    results, elements = pairs.weights.shape[:2]
    products, rows = results * elements, 1
    for axis, window in enumerate(pairs.inside):
        number = _PRODUCTS if axis in pairs.axes else 1
        outputs = window.outputs
        if not isinstance(outputs, int):
            outputs = _TYPICAL_SIDE // _POSITIONS if axis in pairs.axes else _TYPICAL_SIDE
        products *= number * outputs * window.kernel
        results *= number * outputs
        elements *= number * outputs * window.stride
        rows *= outputs
    if not pairs.axes:
        return products
    if rows * pairs.images < LEAST_ROWS:
        return math.inf
    passed = results + elements
    if pairs.images > 1:
        # Phases are copied apart, and together again.
        places = math.prod(w.outputs for w in pairs.windows if isinstance(w.outputs, int))
        passed += 2 * sum(pairs.weights.shape[:2]) * places
    return (products + passed * _OF_AN_ELEMENT) * pairs.images


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
    along = zip(pairs.places, pairs.axes, pairs.counts, pairs.groups, strict=True)
    for place, axis, count, groups in along:
        window = pairs.windows[axis]
        after[place] += _POSITIONS * count - window.outputs + TAPS * groups - window.kernel
    if all(n == 0 for n in (*before, *after)):
        return x
    return pad(context, x, before, after, 0, partial(channels_last, context.builder))


def _elements_of(builder: Builder, x: Tensor, pairs: Pairs) -> Tensor:
    """The v, [products, rows, channels, starts..], of a padded input."""
    d = np.empty(pairs.single, object)
    shape = _spaced(x, pairs, (0,) * len(pairs.axes), pairs.steps, pairs.starts).shape
    points = builder.axes(shape)
    for number in np.ndindex(d.shape):
        place = _spaced(x, pairs, number, pairs.steps, pairs.starts)
        d[number] = builder.load(place, points)
    values: list[Expr] = _along(d, range(d.ndim), _elements).reshape(-1).tolist()
    target = _groups(builder, x.dtype, (d.size, *shape), pairs.has_long_lines)
    stores = [
        Store(builder.access(at_place(target, number), points), value)
        for number, value in enumerate(values)
    ]
    builder.emit.kernel(points, stores)
    return target


def _products(builder: Builder, v: Tensor, pairs: Pairs) -> Tensor:
    """The m, [products, rows, filters, pairs..]: for each the sums over channels and taps."""
    u = builder.strided(builder.constant(_transformed(pairs)))
    windows = pairs.inside
    groups, rows, depth, *_ = v.shape
    shape = (groups, rows, u.shape[-1], *(window.outputs for window in windows))
    target = _groups(builder, v.dtype, shape, pairs.has_long_lines)
    outer = builder.axes(target.shape)
    inner = [builder.axis(depth, "r"), *(builder.axis(window.kernel, "r") for window in windows)]
    channel = [(outer[0], v.strides[0]), (inner[0], v.strides[2])]
    zero = constant(0, v.dtype)
    left = window_load(at_place(v, 0), outer[1], channel, outer[3:], inner[1:], windows, zero)
    along = zip((outer[0], *inner, outer[2]), u.strides, strict=True)
    terms = terms_of([*along])
    assert u.base is not None
    right = Load(replace(u.base, terms=u.base.terms + terms), u.dtype)
    taps, channels = inner[1:], inner[:1]
    is_far = math.prod(window.kernel for window in windows) > _MOST_TAPS
    order = [*taps, *channels] if is_far else [*channels, *taps]
    kept = tuple(axis for axis in order if axis.extent != 1) or (inner[0],)
    store = Store(builder.access(target, outer), Reduced(0, v.dtype))
    builder.emit.kernel(outer, [store], [Reduce(kept, "sum", left, right)])
    return target


def _transformed(pairs: Pairs) -> np.ndarray:
    """The u, [products, channels, taps.., filters]: groups of taps along paired axes."""
    weights, places = pairs.weights, pairs.places
    groups = dict(zip(places, pairs.groups, strict=True))
    filled = [(0, groups[a] * TAPS - n if a in groups else 0) for a, n in enumerate(weights.shape)]
    parted: list[int] = []
    inner: list[int] = []
    outer: list[int] = []
    for axis, taps in enumerate(weights.shape[2:], 2):
        outer.append(2 + len(parted))
        parted.append(groups.get(axis, taps))
        if axis in groups:
            inner.append(2 + len(parted))
            parted.append(TAPS)
    each = np.pad(weights, filled).reshape(*weights.shape[:2], *parted)
    each = each.transpose((*inner, 1, *outer, 0))
    u = np.empty(pairs.single + each.shape[len(places) :], each.dtype)
    step = max(_AT_ONCE * weights.shape[1] // max(weights.size, 1), 1)
    for first in range(0, weights.shape[1], step):
        some = (*(slice(None) for _ in places), slice(first, first + step))
        u[some] = _along(np.ascontiguousarray(each[some]), range(len(places)), _weights)
    return u.reshape(-1, *u.shape[len(places) :])


def _results_of(builder: Builder, sums: Tensor, pairs: Pairs) -> Tensor:
    """The y, [rows, filters, positions..]."""
    points = builder.axes(sums.shape[1:])
    m = np.empty(pairs.single, object)
    for place, number in enumerate(np.ndindex(m.shape)):
        m[number] = builder.load(at_place(sums, place), points)
    y = _along(m, range(m.ndim), _results)
    shape = list(sums.shape[1:])
    for place in pairs.places:
        shape[place] *= _POSITIONS
    whole = channels_last(builder, sums.dtype, tuple(shape))
    apart = [_POSITIONS] * len(pairs.axes)
    parts = {
        number: _spaced(whole, pairs, number, apart, pairs.counts) for number in np.ndindex(y.shape)
    }
    stores = [Store(builder.access(part, points), y.item(number)) for number, part in parts.items()]
    builder.emit.kernel(points, stores)
    outputs = (window.outputs for window in pairs.windows)
    return replace(whole, shape=(*shape[:2], *outputs))


def _spaced(
    x: Tensor, pairs: Pairs, firsts: Sequence[int], steps: Sequence[int], counts: Sequence[Size]
) -> Tensor:
    """So many elements of each paired axis, from a first one on, so far apart."""
    for place, first, step, count in zip(pairs.places, firsts, steps, counts, strict=True):
        x = slice_axis(x, place, first, step, count)
    return x


def channels_last(builder: Builder, dtype: str, shape: Shape, step: Size | None = None) -> Tensor:
    """A tensor not yet written, whose second axis is the innermost one in memory.

    step: how far its rows are apart there, by default one behind the other.
    """
    rows, channels, *sizes = shape
    dense = builder.empty(dtype, (rows, *sizes, channels if step is None else step))
    last = len(shape) - 1
    order = (0, last, *range(1, last))
    return replace(dense, shape=shape, strides=tuple(dense.strides[axis] for axis in order))


def apart(channels: Size) -> Size:
    """How far rows of so many elements are apart that do not evict each other."""
    is_crowded = isinstance(channels, int) and channels % _CROWDED == 0
    return channels + _LINE if is_crowded else channels


def _groups(builder: Builder, dtype: str, shape: Shape, by_lines: bool) -> Tensor:
    """Tensors not yet written, by the first axis, each as `channels_last` has it.

    by_lines: whether all tensors have their first line, then all their second one, and so on.
    """
    groups, rows, channels, line, *sizes = shape
    within, outer = (*sizes, apart(channels)), (groups, rows, line)
    order = (1, 2, 0) if by_lines else (0, 1, 2)
    dense = builder.empty(dtype, (*(outer[axis] for axis in order), *within))
    assert dense.base is not None
    builder.draft.keep_layout(dense.base.buffer)
    of_groups, of_rows, of_lines = (dense.strides[order.index(axis)] for axis in range(3))
    *of_sizes, of_channels = dense.strides[3:]
    return replace(
        dense, shape=shape, strides=(of_groups, of_rows, of_channels, of_lines, *of_sizes)
    )
