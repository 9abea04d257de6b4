"""Convolutions of three taps or more, two or four positions at a time, with fewer products.

    v: sums of elements    u: sums of weights    m_j: the sum of v_j * u_j over channels and
    y: sums of the m                                  all other taps

along one axis, or along one after the other, by the forms of `ops.rules.winograd_forms`. Each v_j
and m_j is a tensor, and each m_j a convolution of its own, of as many taps fewer. More taps are
several groups of three, the last one filled up with zeros, whose products are added to the same
m_j: a convolution by every third place, which moves by two or four. Groups begin at any place, so
that there are v for every place. A window that moves by several elements has their phases, of which
each is read as a tensor of its own, whose channels are summed up beside those of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ostinato.graph.dilation import count_of_phases, phases, share_on_data
from ostinato.graph.windows import Window
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.ops.core.together import Counts
from ostinato.ops.rules.gather import at_place
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import terms_of, window_load
from ostinato.ops.rules.winograd_forms import FORMS, TAPS, Form, transformed
from ostinato.program.expr import Expr, Load, Reduced, constant
from ostinato.program.kernel import Reduce, Store
from ostinato.records import dataclass
from ostinato.sizes.bounds import unless_negative
from ostinato.sizes.dims import Size, ceildiv, computed, floordiv, product, symbols
from ostinato.sizes.strides import Shape, dense_strides

# Fitted to `benchmarks.bench_winograd`, with AVX2 and AVX-512: multiply-adds that take as long as
# to make, store and load an element of the v or of the m; the same where phases are apart, for the
# elements of many tensors that leave a second-level cache in between, and for weights beyond it;
# the rows that a product with a matrix of weights needs to take longer than loading it; and the
# share of the time that may be left.
_OF_AN_ELEMENT, _OF_A_FAR_ELEMENT = 20, 36
_OF_A_FAR_WEIGHT = 7
LEAST_ROWS = 16
MOST_LEFT = 0.92
# Each phase of a stride is transformed by a kernel of its own: 256 taps that move by 16 elements
# take as long by phases as plain sums, and load in 1.4 of the time.
_MOST_PHASES = 8
# Pixels along a side of an image where only a run tells how many there are. Bits depend on it, so
# it is no matter of schedules.
TYPICAL_SIDE = 64
# A tile of a dozen rows meets a line of memory below each tap: those of this many taps stay in the
# first-level cache until the next channel, which lies beside the last one, is summed up. Else
# channels are summed up tap by tap: 84 taps of 32 channels take 0.61 of the time so, 4 taps of 256
# channels 1.37.
_MOST_TAPS = 32
# Elements of lines of a cache; rows this many apart fall into an eighth of its sets, or less, and
# evict each other (`schedule.layout`).
_LINE = 16
_CROWDED = 128

# Bytes of the v that leave a second-level cache with the m, and of weights that are few enough to
# be read again for each block of lines, which passes through all steps at a time: three layers of
# 64 channels of 224 x 224 pixels take 0.9 of the time so, 32 of 256 x 256 pixels 0.7, 128 of
# 112 x 112 pixels 0.82 (by turns, with and without).
_MANY_BYTES = 1 << 21
_FEW_BYTES = 1 << 22

# Weights that are transformed at once: the 1 MB made on the way then stays in a cache.
_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Winograd:
    """A convolution of several positions at a time.

    weights: float32, as the model has them. arrange: makes [filters, channels, taps..] of them, in
    these numbers. windows: one per spatial axis. together: how many positions along each of them
    are computed together. strides: how many phases along each axis are channels of their own;
    `windows` move over them by one element. spread: how many phases of the results along each axis
    are filters of their own. images: the phases that are images of their own, where an axis along
    which there are several is dilated.
    """

    weights: np.ndarray
    arrange: Callable[[np.ndarray], np.ndarray]
    filters: int
    channels: int
    windows: tuple[Window[Size], ...]
    together: Counts
    strides: tuple[int, ...]
    spread: tuple[int, ...]
    images: int = 1

    @property
    def axes(self) -> tuple[int, ...]:
        """The spatial axes along which several positions are computed together."""
        return tuple(axis for axis, count in enumerate(self.together) if count > 1)

    @property
    def forms(self) -> list[Form]:
        """How that is done, along each of these axes."""
        return [FORMS[self.together[axis]] for axis in self.axes]

    @property
    def places(self) -> list[int]:
        """These axes of tensors with rows and channels."""
        return [2 + axis for axis in self.axes]

    @property
    def counts(self) -> list[Size]:
        """How often this many positions are computed along each of these axes."""
        return [ceildiv(self.windows[axis].outputs, self.together[axis]) for axis in self.axes]

    @property
    def groups(self) -> list[int]:
        """The number of groups of taps along each of these axes."""
        return [-(-self.windows[axis].kernel // TAPS) for axis in self.axes]

    @property
    def steps(self) -> list[int]:
        """How far apart the elements lie for which there are v, along each of these axes."""
        along = zip(self.forms, self.groups, strict=True)
        return [form.positions if groups == 1 else 1 for form, groups in along]

    @property
    def starts(self) -> list[Size]:
        """The number of elements for which there are v, along each of these axes."""
        along = zip(self.forms, self.counts, self.groups, self.steps, strict=True)
        return [
            floordiv(form.positions * (count - 1) + TAPS * (groups - 1), step) + 1
            for form, count, groups, step in along
        ]

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of the products of positions that are computed together."""
        return tuple(form.products for form in self.forms)

    @property
    def has_long_lines(self) -> bool:
        """Whether the v and m lie in memory line by line, all products of a line together."""
        (products, item), windows = (math.prod(self.single), self.weights.itemsize), self.inside
        filters, channels = self.filters, self.channels
        taps = math.prod(window.kernel for window in windows)
        lines, *sizes = (window.outputs for window in windows)
        places = math.prod(size for size in sizes if isinstance(size, int))
        if not isinstance(lines, int) or any(not isinstance(size, int) for size in sizes):
            return False
        is_large = products * channels * lines * places * item >= _MANY_BYTES
        has_few = products * channels * filters * taps * item <= _FEW_BYTES
        return is_large and has_few and places >= LEAST_ROWS

    @property
    def inside(self) -> list[Window[Size]]:
        """What is left to sum over, on elements that are padded and transformed."""
        windows = [replace(window, before=0, after=0, beyond=0) for window in self.windows]
        along = zip(self.axes, self.forms, self.counts, self.groups, self.steps, strict=True)
        for axis, form, count, groups, step in along:
            windows[axis] = replace(
                windows[axis],
                kernel=groups,
                stride=form.positions // step,
                dilation=TAPS // step,
                outputs=count,
            )
        return windows


def winograd(
    context: Context, weights: Value, windows: Sequence[Window[Size]], group: int
) -> Winograd | None:
    """How a convolution computes several positions at a time; None if it does not."""
    together, known = context.builder.together, weights.known
    if together is None:
        return None
    result = context.node.outputs[0].name or ""
    counts = together.of(result, lambda: fastest(weights, windows, group))
    return way_of(known, windows, counts) if known is not None and counts else None


def way_of(known: np.ndarray, windows: Sequence[Window[Size]], together: Counts) -> Winograd:
    """This many positions together, of all phases where one of their axes is dilated."""
    along = zip(windows, together, strict=True)
    strides = tuple(window.stride if count > 1 else 1 for window, count in along)
    over_phases = (
        window if stride == 1 else replace(window, kernel=-(-window.kernel // stride), stride=1)
        for window, stride in zip(windows, strides, strict=True)
    )
    found = Winograd(
        known,
        partial(_by_phases, strides=strides),
        known.shape[0],
        known.shape[1] * math.prod(strides),
        tuple(over_phases),
        together,
        strides,
        (1,) * len(windows),
    )
    if all(windows[axis].dilation == 1 for axis in found.axes):
        return found
    return replace(found, windows=phases(windows), images=count_of_phases(windows))


def fastest(weights: Value, windows: Sequence[Window[Size]], group: int) -> Counts:
    """How many positions together take the least time along each axis; () for each one alone.

    The weights and the sizes in the model alone decide it, so that the bits are the same for any
    batch, machine and number of threads. Nobody cuts an image along an axis whose size the model
    gives, nor along its height or width: no bit depends then on which positions are together.
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
        if window.kernel >= max(TAPS, window.stride + 1)
        and (window.stride == 1 or (isinstance(window.outputs, int) and window.dilation == 1))
        and (isinstance(window.outputs, int) or (is_image and window.dilation == 1))
    ]
    even = [a for a in fit if windows[a].dilation == 1 and windows[a].stride <= _MOST_PHASES]
    plain = [axis for axis in even if windows[axis].stride == 1]
    strided = {(axis,) for axis in even if windows[axis].stride > 1}
    # Phases of dilated axes take all axes apart, and each place of theirs.
    has_phases = all(w.stride == 1 and isinstance(w.outputs, int) for w in windows)
    choices = strided | {
        tuple(axes[-count:])
        for axes in (plain, even, fit if has_phases else even)
        for count in (1, 2)
        if len(axes) >= count
    }
    counts = (
        itertools.product(*(FORMS if axis in axes else (1,) for axis in range(len(windows))))
        for axes in sorted(choices)
    )
    ways = [way_of(known, windows, together) for one in counts for together in one]
    alone = way_of(known, windows, (1,) * len(windows))
    best = min(ways, key=cost, default=alone)
    most = MOST_LEFT * cost(alone) * _share_on_data(windows)
    return best.together if cost(best) < most else ()


def _share_on_data(windows: Sequence[Window[Size]]) -> float:
    """The share of the products that a plain convolution takes, not those of padding."""
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


def cost(way: Winograd) -> float:
    """Multiply-adds of the convolution, and what else takes as long as this many."""
    results, elements = way.filters, way.channels
    products, rows, weights = results * elements, 1, results * elements
    for axis, window in enumerate(way.inside):
        together, outputs = way.together[axis], window.outputs
        number = FORMS[together].products if together > 1 else 1
        if not isinstance(outputs, int):
            outputs = TYPICAL_SIDE // together
        products *= number * outputs * window.kernel
        weights *= number * window.kernel
        results *= number * outputs
        elements *= number * outputs * window.stride
        rows *= outputs
    if not way.axes:
        return products
    if rows * way.images < LEAST_ROWS:
        return math.inf
    passed, each, item = results + elements, _OF_AN_ELEMENT, way.weights.itemsize
    if way.images > 1:
        # Phases are copied apart, and together again.
        places = math.prod(w.outputs for w in way.windows if isinstance(w.outputs, int))
        passed += 2 * (way.filters + way.channels) * places
    loading = 0
    if math.prod((*way.strides, *way.spread)) > 1:
        is_far = len(way.axes) > 1 and elements * item >= 2 * _MANY_BYTES
        each = _OF_A_FAR_ELEMENT if is_far and not way.has_long_lines else each
        loading = max(weights - _MANY_BYTES // item, 0) * _OF_A_FAR_WEIGHT
    return (products + passed * each) * way.images + loading


def convolve_together(context: Context, x: Tensor, way: Winograd) -> Tensor:
    """The convolution of `x`, [rows, channels, sizes..]: elements, their products, the results."""
    depth = way.channels // math.prod(way.strides)
    context.builder.require.equal(x.shape[1], depth, "channels of the input and the weights")
    v = _elements_of(context.builder, _padded(context, x, way), way)
    return _results_of(context.builder, _products(context.builder, v, way), way)


def _padded(context: Context, x: Tensor, way: Winograd) -> Tensor:
    """The input with its padding in memory, as far as the last positions reach."""
    before: list[Size] = [0, 0, *(window.before for window in way.windows)]
    after: list[Size] = [0, 0, *(window.after + window.beyond for window in way.windows)]
    along = zip(way.places, way.axes, way.counts, way.groups, strict=True)
    for place, axis, count, groups in along:
        window, together, stride = way.windows[axis], way.together[axis], way.strides[axis]
        if stride == 1:
            after[place] += together * count - window.outputs + TAPS * groups - window.kernel
        else:
            end = stride * (together * count + TAPS * groups - 1)
            after[place] = unless_negative(end - window.before - x.shape[place])
    if all(n == 0 for n in (*before, *after)):
        return x
    return pad(context, x, before, after, 0, partial(channels_last, context.builder))


def _elements_of(builder: Builder, x: Tensor, way: Winograd) -> Tensor:
    """The v, [products, rows, channels, starts..], of a padded input."""
    strides, depth = [way.strides[axis] for axis in way.axes], x.shape[1]
    steps = [stride * step for stride, step in zip(strides, way.steps, strict=True)]
    rows, _, *starts = _spaced(x, way, (0,) * len(way.axes), steps, way.starts).shape
    shape = (math.prod(way.single), rows, way.channels, *starts)
    target = _groups(builder, x.dtype, shape, way.has_long_lines)
    for number, phase in enumerate(np.ndindex(*strides)):
        firsts = {
            element: [p + s * e for p, s, e in zip(phase, strides, element, strict=True)]
            for element in np.ndindex(way.single)
        }
        parts = {e: _spaced(x, way, first, steps, way.starts) for e, first in firsts.items()}
        channels = slice_axis(target, 2, number * depth, 1, depth)
        _transform_elements(builder, parts, channels, way)
    return target


def _transform_elements(
    builder: Builder, parts: Mapping[tuple[int, ...], Tensor], target: Tensor, way: Winograd
) -> None:
    """Write v, [products, rows, channels, starts..]. parts: the elements, by their number."""
    d, points = np.empty(way.single, object), builder.axes(target.shape[1:])
    for number, part in parts.items():
        d[number] = builder.load(part, points)
    transforms = [form.elements for form in way.forms]
    values: list[Expr] = transformed(d, range(d.ndim), transforms).reshape(-1).tolist()
    stores = [
        Store(builder.access(at_place(target, number), points), value)
        for number, value in enumerate(values)
    ]
    builder.emit.kernel(points, stores)


def _products(builder: Builder, v: Tensor, way: Winograd) -> Tensor:
    """The m, [products, rows, filters, way..]: for each the sums over channels and taps."""
    windows = way.inside
    groups, rows, depth, *_ = v.shape
    taps = [window.kernel for window in windows]
    matrices = (math.prod(way.single), way.channels, *taps, way.filters)
    make = partial(_transformed, way)
    places = tuple((window.kernel, window.before) for window in way.windows)
    key = way.together, way.strides, way.spread, places
    u = builder.constants.made(way.weights, key, matrices, make)
    shape = (groups, rows, way.filters, *(window.outputs for window in windows))
    target = _groups(builder, v.dtype, shape, way.has_long_lines)
    outer = builder.axes(target.shape)
    inner = [builder.axis(depth, "r"), *(builder.axis(window.kernel, "r") for window in windows)]
    channel = [(outer[0], v.strides[0]), (inner[0], v.strides[2])]
    zero = constant(0, v.dtype)
    left = window_load(at_place(v, 0), outer[1], channel, outer[3:], inner[1:], windows, zero)
    along = zip((outer[0], *inner, outer[2]), u.strides, strict=True)
    terms = terms_of([*along])
    assert u.base is not None
    right = Load(replace(u.base, terms=u.base.terms + terms), u.dtype)
    is_far = math.prod(taps) > _MOST_TAPS
    order = [*inner[1:], inner[0]] if is_far else inner
    kept = tuple(axis for axis in order if axis.extent != 1) or (inner[0],)
    store = Store(builder.access(target, outer), Reduced(0, v.dtype))
    builder.emit.kernel(outer, [store], [Reduce(kept, "sum", left, right)])
    return target


def _transformed(way: Winograd) -> np.ndarray:
    """The u, [products, channels, taps.., filters]: groups of taps along transformed axes."""
    weights, places = way.arrange(way.weights), way.places
    groups = dict(zip(places, way.groups, strict=True))
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
    whole = np.pad(weights, filled) if np.any(filled) else weights
    each = whole.reshape(*weights.shape[:2], *parted)
    each = each.transpose((*inner, 1, *outer, 0))
    u = np.empty(way.single + each.shape[len(places) :], each.dtype)
    transforms = [form.weights for form in way.forms]
    precision = np.result_type(*(form.precision for form in way.forms))
    step = max(_AT_ONCE * weights.shape[1] // max(weights.size, 1), 1)
    for first in range(0, weights.shape[1], step):
        some = (*(slice(None) for _ in places), slice(first, first + step))
        u[some] = transformed(each[some].astype(precision), range(len(places)), transforms)
    return u.reshape(-1, *u.shape[len(places) :])


def _by_phases(weights: np.ndarray, strides: Sequence[int]) -> np.ndarray:
    """Weights by phase, as channels of their own: tap `t` of phase `p` is tap `stride * t + p`."""
    if math.prod(strides) == 1:
        return weights
    filters, channels, *taps = weights.shape
    along = list(zip(taps, strides, strict=True))
    whole = np.pad(weights, [(0, 0), (0, 0), *((0, -n % stride) for n, stride in along)])
    parted = (size for n, stride in along for size in (-(-n // stride), stride))
    each = whole.reshape(filters, channels, *parted)
    order = (0, *range(3, each.ndim, 2), 1, *range(2, each.ndim, 2))
    return each.transpose(order).reshape(filters, -1, *each.shape[2::2])


def _results_of(builder: Builder, sums: Tensor, way: Winograd) -> Tensor:
    """The y, [rows, filters, positions..], of all phases."""
    spread, filters = [way.spread[axis] for axis in way.axes], way.filters // math.prod(way.spread)
    shape = [sums.shape[1], filters, *sums.shape[3:]]
    together = [form.positions for form in way.forms]
    steps = [count * apart for count, apart in zip(together, spread, strict=True)]
    for place, step in zip(way.places, steps, strict=True):
        shape[place] *= step
    whole = channels_last(builder, sums.dtype, tuple(shape))
    for number, phase in enumerate(np.ndindex(*spread)):
        firsts = {
            position: [p + s * e for p, s, e in zip(phase, spread, position, strict=True)]
            for position in np.ndindex(*together)
        }
        parts = {e: _spaced(whole, way, first, steps, way.counts) for e, first in firsts.items()}
        _transform_products(builder, slice_axis(sums, 2, number * filters, 1, filters), parts, way)
    along = zip(way.windows, way.spread, strict=True)
    outputs = (window.outputs * apart for window, apart in along)
    return replace(whole, shape=(*shape[:2], *outputs))


def _transform_products(
    builder: Builder, sums: Tensor, parts: Mapping[tuple[int, ...], Tensor], way: Winograd
) -> None:
    """Write results of the m, [products, rows, filters, way..]. parts: where, by their number."""
    points, m = builder.axes(sums.shape[1:]), np.empty(way.single, object)
    for place, number in enumerate(np.ndindex(m.shape)):
        m[number] = builder.load(at_place(sums, place), points)
    y = transformed(m, range(m.ndim), [form.results for form in way.forms])
    stores = [Store(builder.access(part, points), y.item(number)) for number, part in parts.items()]
    builder.emit.kernel(points, stores)


def _spaced(
    x: Tensor, way: Winograd, firsts: Sequence[int], steps: Sequence[int], counts: Sequence[Size]
) -> Tensor:
    """This many elements of each transformed axis, from a first one on, so far apart."""
    for place, first, step, count in zip(way.places, firsts, steps, counts, strict=True):
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

    by_lines: whether all tensors have their first line, then all their second one, and so on. The
    tensors' lines, or they, are an odd number of lines of a cache apart, and so in other sets.
    """
    groups, rows, channels, line, *sizes = shape
    of_line = product((*sizes, apart(channels)))
    size = of_line if by_lines else rows * line * of_line
    is_even = isinstance(of_line, int) and of_line % (2 * _LINE) == 0
    of_groups = size + _LINE if is_even else size
    whole = (rows, line, groups, of_groups) if by_lines else (groups, of_groups)
    dense = builder.empty(dtype, whole)
    assert dense.base is not None
    builder.draft.keep_layout(dense.base.buffer)
    of_lines = groups * of_groups if by_lines else of_line
    of_channels, *of_sizes = reversed(dense_strides((*sizes, apart(channels))))
    strides = (of_groups, line * of_lines, of_channels, of_lines, *reversed(of_sizes))
    return replace(dense, shape=shape, strides=strides)
