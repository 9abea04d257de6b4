"""Axis maps: which axis of an operand becomes which axis of the results.

    Transpose <perm=[2, 0, 1]> (x[a, b, c])     x: 1, 2, 0
    ReduceSum <axes=[1], keepdims=0> (x[a, b])  x: 0, ALL
    MatMul (x[n, i, k], w[k, j])                x: 0, 1, ALL    w: ALL, 2
    Conv (x[n, c, t], w[m, c, k])               x: 0, ALL, WINDOW    w: 1, ALL, ALL

Where an axis of an operand is axis `k` of the results, their elements at index `i` of `k` follow
from those at index `i` of the operand and do not depend on `i` itself. So nodes can run slice by
slice along such an axis, whatever they compute: streams are made that way, and gradients put axes
back.

A map follows from the attributes of a node, the sizes of its operands (their number, mostly) and
constants among them. The operators' documents are the source; `tests/graph/test_axis_maps.py` holds
the maps against reference kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.records import dataclass
from ostinato.sizes.dims import Size


class Along(Enum):
    """An axis of an operand that is no axis of the results."""

    ALL = "an element of the results may depend on all elements along it, or on its own place"
    WINDOW = "an element of the results depends on some neighbours along it"


AxisMap: TypeAlias = "tuple[tuple[int | Along, ...] | None, ...]"
"""An entry for each axis of each operand; None for operands left out or read as a whole."""


Row: TypeAlias = "Sequence[int | Along]"
"""For each axis of one operand: the axis of the results that it becomes, `ALL` or `WINDOW`."""


@dataclass(frozen=True)
class Form:
    """A node and what is known of its operands.

    dims: the sizes of each operand, None for those left out.
    constant: the elements of an operand, None where they are not known while compiling.
    elements: those of which some are sizes or unknown, where somebody follows these.
    read: names of the attributes that the map has asked for.
    """

    node: ir.Node
    dims: Sequence[tuple[int | str | None, ...] | None]
    constant: Callable[[int], np.ndarray | None]
    opset: int
    read: set[str] = field(default_factory=set)
    elements: Callable[[int], Sequence[Size | None] | None] | None = None

    def attribute(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def has(self, index: int) -> bool:
        return index < len(self.dims) and self.dims[index] is not None

    def rank(self, index: int = 0) -> int:
        dims = self.dims[index] if index < len(self.dims) else None
        return 0 if dims is None else len(dims)

    def axis(self, default: int | None = None, rank: int | None = None) -> int:
        """Attribute `axis`, counted from the front."""
        axis: int = self.attribute("axis", default)
        return axis % max(self.rank() if rank is None else rank, 1)

    def axes(self, index: int) -> tuple[int, ...] | None:
        """`axes`, an attribute or an operand by version; empty where absent, None where unknown."""
        found = self.attribute("axes")
        if found is None and self.has(index):
            found = self.constant(index)
            if found is None:
                return None
        return () if found is None else tuple(int(axis) for axis in np.ravel(found))

    def only(self, *maps: Row) -> AxisMap:
        """The map with these for the first operands; the others are read as a whole."""
        return tuple(
            tuple(maps[i]) if i < len(maps) and self.has(i) else None for i in range(len(self.dims))
        )


Rule: TypeAlias = "Callable[[Form], AxisMap | None]"
"""The map of a node; None where operands that decide it are not known."""


def _but(rank: int, mixed: Sequence[int], drops: bool = False) -> Row:
    """Each axis is itself, but for some along which elements are mixed.

    drops: whether the results do not have these.
    """
    gone = [axis % max(rank, 1) for axis in mixed]
    places = [axis - sum(g < axis for g in gone) if drops else axis for axis in range(rank)]
    return [Along.ALL if axis in gone else places[axis] for axis in range(rank)]


def _mixing(
    axes_of: Callable[[Form], Sequence[int] | None], drops: Callable[[Form], bool] | None = None
) -> Rule:
    """The axes of the first operand are themselves, but for those that `axes_of` a node mixes.

    drops: whether the results do not have these.
    """

    def rule(form: Form) -> AxisMap | None:
        axes, gone = axes_of(form), drops is not None and drops(form)
        return None if axes is None else form.only(_but(form.rank(), axes, gone))

    return rule


def along_axis(default: int) -> Rule:
    """Attribute `axis` is mixed."""
    return _mixing(lambda form: [form.axis(default)])


def _drops_axes(form: Form) -> bool:
    return not form.attribute("keepdims", 1)


def _reduced(form: Form) -> Sequence[int] | None:
    axes, reduces_none = form.axes(1), form.attribute("noop_with_empty_axes", 0)
    return range(form.rank()) if axes == () and not reduces_none else axes


def _softmax_axes(form: Form) -> Sequence[int]:
    return [form.axis(-1)] if form.opset >= 13 else range(form.axis(1), form.rank())


def _cumulative_axis(form: Form) -> Sequence[int] | None:
    axis = form.constant(1)
    return None if axis is None else [int(axis.item())]


def transform_axes(form: Form) -> Sequence[int] | None:
    """The axis of a DFT, and the last one, which holds real and imaginary parts."""
    if form.opset < 20:
        return [form.attribute("axis", 1), -1]
    axis = form.constant(2) if form.has(2) else np.array(-2)
    return None if axis is None or axis.size != 1 else [int(axis.item()), -1]


def _repeated(form: Form) -> Sequence[int] | None:
    repeats = form.constant(1)
    return None if repeats is None else np.flatnonzero(np.ravel(repeats) != 1).tolist()


def _sliced(form: Form) -> Sequence[int] | None:
    """The axes that bounds name: without names, as many as there are bounds."""
    axes = _named(form, 3)
    if axes is not None or form.has(3):
        return axes
    starts = form.attribute("starts") if not form.has(1) else None
    sizes = form.dims[1] if form.has(1) else None
    count = len(starts) if starts is not None else sizes[0] if sizes else None
    return range(count) if isinstance(count, int) else None


def _padded(form: Form) -> Sequence[int] | None:
    """The axes of Pad that get more or fewer elements."""
    pads = form.constant(1) if form.has(1) else form.attribute("pads", form.attribute("paddings"))
    axes = _named(form, 3)
    if pads is None or (axes is None and form.has(3)):
        return None
    named = range(form.rank()) if axes is None else axes
    pairs = np.reshape(pads, (2, -1)).T.tolist()
    return [axis for axis, pair in zip(named, pairs, strict=True) if any(pair)]


def _named(form: Form, index: int) -> list[int] | None:
    """Attribute `axes`, or the operand that it has become."""
    found = form.constant(index) if form.has(index) else form.attribute("axes")
    return None if found is None else [int(axis) for axis in np.ravel(found)]


def _resized(form: Form) -> Sequence[int] | None:
    """The axes of Resize whose scale is not 1; None where a region or sizes decide them."""
    at = 2 if form.node.op_type == "Resize" and form.opset >= 11 else 1
    scales = form.constant(at) if form.has(at) else form.attribute("scales")
    how = form.attribute("coordinate_transformation_mode", "half_pixel")
    axes = form.attribute("axes", range(form.rank()))
    if scales is None or len(scales) != len(axes) or how == "tf_crop_and_resize":
        return None
    return [axis for axis, scale in zip(axes, scales, strict=True) if scale != 1]


def _compressed(form: Form) -> Sequence[int]:
    """Attribute `axis`; without it the elements of all axes become one."""
    return range(form.rank()) if form.attribute("axis") is None else [form.axis()]


same = _mixing(lambda form: ())
whole = _mixing(lambda form: range(form.rank()))
blocks = _mixing(lambda form: range(1, form.rank()))
last_axes = _mixing(lambda form: (-2, -1))
softmax = _mixing(_softmax_axes)
reduction = _mixing(_reduced, _drops_axes)
arg_reduction = _mixing(lambda form: [form.axis(0)], _drops_axes)
mean_variance = _mixing(lambda form: form.attribute("axes", (0, 2, 3)))
cumulative = _mixing(_cumulative_axis)
transform = _mixing(transform_axes)
tile = _mixing(_repeated)
compressed = _mixing(_compressed)
cropped = _mixing(lambda form: form.attribute("axes", range(form.rank())))
sliced, padded, resized = _mixing(_sliced), _mixing(_padded), _mixing(_resized)
determinant = _mixing(lambda form: (-2, -1), lambda form: True)
# Which axes are dropped where none are named depends on their sizes.
squeeze = _mixing(lambda form: form.axes(1) or None, lambda form: True)


def broadcast(form: Form) -> AxisMap:
    """Right-aligned; before opset 7, the second operand where attribute `axis` puts it."""
    ranks = [form.rank(i) for i in range(len(form.dims))]
    starts = [max(ranks) - rank for rank in ranks]
    axis = form.attribute("axis") if form.opset < 7 else None
    if axis is not None:
        starts[1] = axis % max(ranks)
    return form.only(*(range(s, s + rank) for s, rank in zip(starts, ranks, strict=True)))


def concat(form: Form) -> AxisMap:
    """All operands are mixed along attribute `axis`."""
    row = _but(form.rank(), [form.axis(0)])
    return form.only(*[row] * len(form.dims))


def from_axis(form: Form) -> AxisMap:
    """All axes from `axis` on are mixed; weights are broadcast to them."""
    row = _but(form.rank(), range(form.axis(-1), form.rank()))
    return form.only(*(row[form.rank() - form.rank(i) :] for i in range(len(form.dims))))


def image(*mixed: int, rest: bool = False) -> Callable[[Form], AxisMap]:
    """The map of an image [N, C, ...]: all axes but `mixed` are kept; other operands have channels.

    rest: also the axes behind the channels are mixed.
    """

    def rule(form: Form) -> AxisMap:
        row = _but(form.rank(), [*mixed, *(range(2, form.rank()) if rest else ())])
        return form.only(row, *[row[1:2]] * (len(form.dims) - 1))

    return rule


def batch_norm(form: Form) -> AxisMap | None:
    """Statistics of the batch in training."""
    if form.attribute("training_mode", 0):
        return whole(form)
    return image()(form)


def windows(form: Form) -> AxisMap | None:
    """The map of pools; a second output numbers the elements of the whole image."""
    if len(form.node.outputs) > 1:
        return whole(form)
    return form.only([*range(min(form.rank(), 2)), *[Along.WINDOW] * (form.rank() - 2)])


def convolution(form: Form) -> AxisMap:
    """Windows of all channels; but for Conv of the image alone.

    In groups, a filter's own place says which channels it reads.
    """
    spatial = form.rank() - 2
    row: Row = [0, Along.ALL, *[Along.WINDOW] * spatial]
    if form.node.op_type != "Conv":
        return form.only(row)
    place = 1 if form.attribute("group", 1) == 1 else Along.ALL
    return form.only(row, [place, Along.ALL, *[Along.ALL] * spatial], [place])


def product(form: Form) -> AxisMap:
    """Rows, columns and, right-aligned, matrices; zero points are of rows and of columns.

    Those of several axes are as their operand with a single column, or a single row.
    """
    left, right = form.rank(0), form.rank(1)
    batch = max(left, right, 2) - 2
    row, column = batch, batch + (left > 1)
    a: Row = [*range(batch - max(left - 2, 0), batch), *[row] * (left > 1), Along.ALL]
    b: Row = [*range(batch - max(right - 2, 0), batch), Along.ALL, *[column] * (right > 1)]
    points = [
        operand[-rank:] if rank > 1 else [place] * rank
        for operand, place, rank in ((a, row, form.rank(2)), (b, column, form.rank(3)))
    ]
    return form.only(a, b, *points)


def quantized_product(form: Form) -> AxisMap:
    """QLinearMatMul: scales and zero points are of rows and of columns, or of everything."""
    a, b = product(Form(form.node, (form.dims[0], form.dims[3]), form.constant, form.opset))
    assert a is not None and b is not None

    def scale(index: int, operand: Row, axis: int) -> Row:
        if form.rank(index) != 1:
            return operand[: form.rank(index)]
        is_of_one = form.dims[index] != (1,) and len(operand) > 1
        return [operand[axis] if is_of_one else Along.ALL]

    rows, columns = [scale(i, a, -2) for i in (1, 2, 6, 7)], [scale(i, b, -1) for i in (4, 5)]
    return form.only(a, *rows[:2], b, *columns, *rows[2:])


def matrix_product(form: Form) -> AxisMap:
    """Gemm."""
    a: Row = [0, Along.ALL]
    b: Row = [Along.ALL, 1]
    return form.only(
        a[::-1] if form.attribute("transA", 0) else a,
        b[::-1] if form.attribute("transB", 0) else b,
        range(2 - form.rank(2), 2),
    )


def einsum(form: Form) -> AxisMap | None:
    """The letters of the result, but for those that an operand has twice: of a diagonal."""
    equation = form.attribute("equation").replace(" ", "")
    if "..." in equation:
        return None
    terms, arrow, result = equation.partition("->")
    if not arrow:
        letters = terms.replace(",", "")
        result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    given = terms.split(",")
    alone = {x for x in result if all(term.count(x) <= 1 for term in given)}
    return form.only(
        *([result.index(x) if x in alone else Along.ALL for x in term] for term in given)
    )


def transpose(form: Form) -> AxisMap:
    """The map of Transpose, by attribute `perm`."""
    order = form.attribute("perm", tuple(reversed(range(form.rank()))))
    return form.only([list(order).index(axis) for axis in range(form.rank())])


def unsqueeze(form: Form) -> AxisMap | None:
    """The axes of the result but new ones."""
    axes = form.axes(1)
    if axes is None:
        return None
    rank = form.rank() + len(axes)
    new = {axis % rank for axis in axes}
    return form.only([axis for axis in range(rank) if axis not in new])


def flatten(form: Form) -> AxisMap:
    """Each axis that is alone, but for axes of size 1, on its side of `axis`."""
    dims, axis = form.dims[0] or (), form.attribute("axis", 1)
    axis += form.rank() if axis < 0 else 0

    def is_alone(i: int) -> bool:
        group = range(axis) if i < axis else range(axis, len(dims))
        return all(dims[j] == 1 for j in group if j != i)

    return form.only([int(i >= axis) if is_alone(i) else Along.ALL for i in range(len(dims))])


def gather(form: Form) -> AxisMap:
    """The axes of the indices in place of one of the data."""
    axis, more = form.axis(0), form.rank(1)
    row = [i if i < axis else i + more - 1 for i in range(form.rank())]
    return form.only([*row[:axis], Along.ALL, *row[axis + 1 :]], range(axis, axis + more))


def gather_elements(form: Form) -> AxisMap:
    """The axes of the indices; the data is mixed along one."""
    return form.only(_but(form.rank(), [form.axis(0)]), range(form.rank(1)))


def gather_nd(form: Form) -> AxisMap | None:
    """Axes of the batch, then those of the indices, then those of the data that are left."""
    batch, indices = form.attribute("batch_dims", 0), form.dims[1] or ()
    depth, front = indices[-1], len(indices) - 1
    if not isinstance(depth, int):
        return None
    left = form.rank() - batch - depth
    data: Row = [*range(batch), *[Along.ALL] * depth, *range(front, front + left)]
    return form.only(data, [*range(front), Along.ALL])


def scattered(form: Form) -> AxisMap | None:
    """ScatterND: the axes of the data behind those that indices count along."""
    indices = form.dims[1] or ()
    depth, front = indices[-1], len(indices) - 1
    if not isinstance(depth, int):
        return None
    left = range(depth, form.rank())
    return form.only(
        [*[Along.ALL] * depth, *left], [Along.ALL] * len(indices), [*[Along.ALL] * front, *left]
    )


def updated(form: Form) -> AxisMap:
    """TensorScatter: all axes but the one along which rows are written; a place for each batch."""
    row = _but(form.rank(), [form.axis(-2)])
    return form.only(row, row, [0])


def reverse_sequence(form: Form) -> AxisMap:
    """The axis of the batch, of which each has a length, and those behind."""
    time, batch = form.attribute("time_axis", 0), form.attribute("batch_axis", 1)
    return form.only(_but(form.rank(), [time]), [batch])


def one_hot(form: Form) -> AxisMap:
    """The axes of the indices around a new one."""
    axis = form.axis(-1, rank=form.rank() + 1)
    return form.only([i + (i >= axis) for i in range(form.rank())])


def quantization(form: Form) -> AxisMap:
    """Scales and zero points are of an axis, or of blocks along it, or of everything."""
    axis, blocked = form.axis(1), form.attribute("block_size", 0)
    row = _but(form.rank(), [axis] if blocked else [])
    whole = form.dims[1] in ((), (1,))
    is_like_x = blocked or form.rank(1) == form.rank() > 1
    scale = row if is_like_x else [Along.ALL if whole else axis]
    return form.only(row, *[scale[: form.rank(i)] for i in range(1, len(form.dims))])


def signals(form: Form) -> AxisMap:
    """The map of STFT: rows of samples, below windows."""
    row: Row = [0, Along.WINDOW, Along.ALL]
    return form.only(row[: form.rank()])


def sampled(form: Form) -> AxisMap:
    """The map of GridSample: an image of places."""
    spatial = form.rank() - 2
    places: Row = [0, *range(2, 2 + spatial), Along.ALL]
    return form.only([0, 1, *[Along.ALL] * spatial], places)


def recurrent(form: Form) -> AxisMap | None:
    """The batch, where it is one axis of all results: states have no axis of time."""
    outputs = [i for i, value in enumerate(form.node.outputs) if value.name]
    batch_first, mixed = form.attribute("layout", 0), Along.ALL
    if not batch_first and 0 in outputs and len(outputs) > 1:
        return None
    place = 0 if batch_first else 2 if 0 in outputs else 1
    row: Row = [place, mixed, mixed] if batch_first else [mixed, place, mixed]
    return form.only(row, [mixed] * 3, [mixed] * 3, [mixed] * 2, [place], row, row)
