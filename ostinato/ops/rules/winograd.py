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

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, slice_axis
from ostinato.ops.rules.gather import at_place
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import terms_of, window_load
from ostinato.ops.rules.winograd_ways import Winograd
from ostinato.program.expr import Expr, Load, Reduced, constant
from ostinato.program.kernel import Reduce, Store
from ostinato.program.transformed import TAPS, transformed
from ostinato.sizes.bounds import unless_negative
from ostinato.sizes.dims import Size, product
from ostinato.sizes.strides import Shape, dense_strides

# A tile of a dozen rows meets a line of memory below each tap: those of this many taps stay in the
# first-level cache until the next channel, which lies beside the last one, is summed up. Else
# channels are summed up tap by tap: 84 taps of 32 channels take 0.61 of the time so, 4 taps of 256
# channels 1.37.
_MOST_TAPS = 32
# Elements of lines of a cache; rows this many apart fall into an eighth of its sets, or less, and
# evict each other (`schedule.layout`).
_LINE = 16
_CROWDED = 128


def convolve_together(context: Context, x: Tensor, way: Winograd) -> Tensor:
    """The convolution of `x`, [rows, channels, sizes..]: elements, their products, the results."""
    depth = way.u.channels // math.prod(way.strides)
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
    shape = (math.prod(way.single), rows, way.u.channels, *starts)
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
    u = builder.constants.transformed(way.u)
    shape = (groups, rows, way.u.filters, *(window.outputs for window in windows))
    target = _groups(builder, v.dtype, shape, way.has_long_lines)
    outer = builder.axes(target.shape)
    inner = [builder.axis(depth, "r"), *(builder.axis(window.kernel, "r") for window in windows)]
    channel = [(outer[0], v.strides[0]), (inner[0], v.strides[2])]
    zero = constant(0, v.dtype)
    left = window_load(at_place(v, 0), outer[1], channel, outer[3:], inner[1:], windows, zero)
    along = zip((outer[0], *inner, outer[2]), u.strides, strict=True)
    terms = terms_of([*along])
    right = Load(replace(u.address, terms=u.address.terms + terms), u.dtype)
    is_far = math.prod(taps) > _MOST_TAPS
    order = [*inner[1:], inner[0]] if is_far else inner
    kept = tuple(axis for axis in order if axis.extent != 1) or (inner[0],)
    store = Store(builder.access(target, outer), Reduced(0, v.dtype))
    builder.emit.kernel(outer, [store], [Reduce(kept, "sum", left, right)])
    return target


def _results_of(builder: Builder, sums: Tensor, way: Winograd) -> Tensor:
    """The y, [rows, filters, positions..], of all phases."""
    spread = [way.spread[axis] for axis in way.axes]
    filters = way.u.filters // math.prod(way.spread)
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
    builder.draft.keep_layout(dense.buffer)
    of_lines = groups * of_groups if by_lines else of_line
    of_channels, *of_sizes = reversed(dense_strides((*sizes, apart(channels))))
    strides = (of_groups, line * of_lines, of_channels, of_lines, *reversed(of_sizes))
    return replace(dense, shape=shape, strides=strides)
