"""Size rules: the sizes of the results of a node from those of its operands.

    Transpose <perm=[2, 0, 1]> (x[a, b, c])       [c, a, b]
    Add (x[a, 1], y[b])                           [a, b]
    ReduceSum <axes=[1]> (x[a, b])                [a, 1]
    Concat <axis=0> (x[a, b], y[c, b])            [a + c, b]
    Conv <strides=[2]> (x[n, c, t], w[m, c, k])   [n, m, (t - k) // 2 + 1]

Where results only have axes of operands, their sizes follow from the axis map (`placed`). What the
others are follows from attributes and constants. A size is a number, a polynomial of named ones, or
None where it is not known. `tests/graph/test_size_rules.py` holds the rules against reference
kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from ostinato.graph import axis_maps
from ostinato.graph.axis_maps import Along, Form
from ostinato.graph.pieces import even_pieces
from ostinato.graph.windows import placed as placed_window
from ostinato.graph.windows import read_moves, spread
from ostinato.model.attributes import Attributes
from ostinato.sizes.dims import Size, exact_quotient, floordiv, product, symbol
from ostinato.sizes.slices import slice_range

Sizes: TypeAlias = "tuple[Size | None, ...]"

# NumPy's arrays have no more, whatever a file says.
_MOST_AXES = 64

Rule: TypeAlias = "Callable[[Form], Sequence[Sizes | None] | None]"
"""The sizes of the first results; None for one of unknown rank, or where no rank is known."""


def sizes_of(form: Form, index: int = 0) -> Sizes | None:
    """The sizes of an operand; None where it is left out or of unknown rank."""
    dims = form.dims[index] if index < len(form.dims) else None
    return None if dims is None else tuple(symbol(n) if isinstance(n, str) else n for n in dims)


def _integers(form: Form, index: int, attribute: str | None = None) -> list[int] | None:
    """The elements of an operand, or of the attribute that it was in earlier versions."""
    if not form.has(index):
        given = None if attribute is None else form.attribute(attribute)
        return None if given is None else [int(n) for n in given]
    array = form.constant(index)
    return None if array is None else [int(n) for n in np.ravel(array)]


def _elements(form: Form, index: int, attribute: str | None = None) -> Sequence[Size | None] | None:
    """As `_integers`, but some may be sizes of a run or unknown."""
    if form.elements is not None and form.has(index):
        return form.elements(index)
    return _integers(form, index, attribute)


def _as_many(form: Form, index: int) -> list[Sizes | None] | None:
    """Sizes that only a run tells, one for each element of an operand."""
    sizes = sizes_of(form, index)
    if sizes is None or len(sizes) != 1:
        return None
    (count,) = sizes
    return [(None,) * count] if isinstance(count, int) and count <= _MOST_AXES else None


def like(index: int) -> Rule:
    """The sizes of an operand."""
    return lambda form: [sizes_of(form, index)]


kept = like(0)


def joined(sizes: Sequence[Size | None]) -> Size | None:
    """The size of axes that are broadcast to one."""
    wide = [size for size in sizes if size != 1]
    numbers = [size for size in wide if isinstance(size, int)]
    return 1 if not wide else numbers[0] if numbers else wide[0] if len({*wide}) == 1 else None


def placed(axes: axis_maps.Rule) -> Rule:
    """Each axis of the results is one of the operands, as the axis map has it."""

    def rule(form: Form) -> list[Sizes | None] | None:
        rows = axes(form)
        if rows is None or form.dims[0] is None:
            return None
        found: dict[int, list[Size | None]] = {}
        for index, row in enumerate(rows):
            for place, size in zip(row or (), sizes_of(form, index) or (), strict=False):
                if isinstance(place, int):
                    found.setdefault(place, []).append(size)
        return [tuple(joined(found[place]) for place in range(len(found)))]

    return rule


def reduced(axes: axis_maps.Rule) -> Rule:
    """Axes that are mixed have one element, or are gone."""

    def rule(form: Form) -> Sequence[Sizes | None] | None:
        if not form.attribute("keepdims", 1):
            return placed(axes)(form)
        rows, sizes = axes(form), sizes_of(form)
        if sizes is None:
            return None
        if rows is None or rows[0] is None:
            return [(None,) * len(sizes)]
        pairs = zip(rows[0], sizes, strict=True)
        return [tuple(1 if place is Along.ALL else size for place, size in pairs)]

    return rule


def unsqueezed(form: Form) -> list[Sizes | None] | None:
    """New axes have one element."""
    axes, sizes = form.axes(1), sizes_of(form)
    if axes is None or sizes is None:
        return None
    rank, left = len(sizes) + len(axes), iter(sizes)
    new = {axis % rank for axis in axes}
    if len(new) < len(axes):
        return None  # lowering says what is wrong with them
    return [tuple(1 if i in new else next(left) for i in range(rank))]


def squeezed(form: Form) -> Sequence[Sizes | None] | None:
    """The named axes are gone, or all of one element, if it is known which these are."""
    sizes = sizes_of(form)
    if sizes is not None and not form.axes(1) and all(isinstance(n, int) for n in sizes):
        return None if form.has(1) else [tuple(n for n in sizes if n != 1)]
    return placed(axis_maps.squeeze)(form)


def flattened(form: Form) -> list[Sizes | None] | None:
    """A matrix."""
    sizes, axis = sizes_of(form), form.attribute("axis", 1)
    if sizes is None:
        return None
    axis += len(sizes) if axis < 0 else 0
    return [tuple(_product(part) for part in (sizes[:axis], sizes[axis:]))]


def _product(sizes: Sizes) -> Size | None:
    known = [size for size in sizes if size is not None]
    return 0 if 0 in sizes else product(known) if len(known) == len(sizes) else None


def _with(sizes: Sizes, axis: int, size: Size | None) -> Sizes:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def concatenated(form: Form) -> list[Sizes | None] | None:
    """The sum along attribute `axis`."""
    given = [sizes_of(form, index) for index in range(len(form.dims))]
    operands = [sizes for sizes in given if sizes is not None]
    if len(operands) < len(given):
        return None
    axis = form.axis(0)
    parts = [sizes[axis] for sizes in operands]
    known = [size for size in parts if size is not None]
    total = reduce(lambda a, b: a + b, known) if len(known) == len(parts) else None
    others = [joined(column) for column in zip(*operands, strict=True)]
    return [_with(tuple(others), axis, total)]


def split(form: Form) -> list[Sizes | None] | None:
    """Split: the sizes that are given, or equal parts of which the last may be smaller."""
    sizes, axis, count = sizes_of(form), form.axis(0), len(form.node.outputs)
    if sizes is None:
        return None
    parts, extent = _integers(form, 1, "split"), sizes[axis]
    if parts is None and not form.has(1) and isinstance(extent, int):
        parts = even_pieces(extent, count)
    return [_with(sizes, axis, None if parts is None else parts[i]) for i in range(count)]


def sliced(form: Form) -> list[Sizes | None] | None:
    """Clamped bounds; axes that no bound names are whole."""
    sizes = sizes_of(form)
    if sizes is None:
        return None
    starts, ends = _integers(form, 1, "starts"), _integers(form, 2, "ends")
    axes, steps = _integers(form, 3, "axes"), _integers(form, 4)
    if axes is not None and any(form.has(i) and form.constant(i) is None for i in (1, 2, 4)):
        for axis in axes:
            sizes = _with(sizes, axis % len(sizes), None)
        return [sizes]
    if any(form.has(i) and form.constant(i) is None for i in (3, 4)) or not starts or not ends:
        return [(None,) * len(sizes)]
    result = sizes
    named = range(len(starts)) if axes is None else axes
    for i, axis in enumerate(named):
        extent, step = sizes[axis], 1 if steps is None else steps[i]
        known = isinstance(extent, int) and step != 0
        count = len(slice_range(starts[i], ends[i], step, extent)) if known else None  # type: ignore[arg-type]
        result = _with(result, axis % len(sizes), count)
    return [result]


def padded(form: Form) -> list[Sizes | None] | None:
    """More in front and behind, or less."""
    sizes, pads, axes = sizes_of(form), _integers(form, 1, "pads"), _integers(form, 3)
    if sizes is None:
        return None
    if pads is None or (form.has(3) and axes is None):
        return [(None,) * len(sizes)]
    named, result = range(len(sizes)) if axes is None else axes, sizes
    for i, axis in enumerate(named):
        size = sizes[axis]
        more = pads[i] + pads[i + len(named)]
        result = _with(result, axis % len(sizes), None if size is None else size + more)
    return [result]


def expanded(form: Form) -> list[Sizes | None] | None:
    """Broadcast to the sizes that the operand says."""
    sizes, target = sizes_of(form), _elements(form, 1)
    if sizes is None or target is None:
        return None
    rank = max(len(sizes), len(target))
    own = (*[1] * (rank - len(sizes)), *sizes)
    wanted = [*[1] * (rank - len(target)), *target]
    return [tuple(joined(pair) for pair in zip(own, wanted, strict=True))]


def tiled(form: Form) -> list[Sizes | None] | None:
    """Multiples."""
    sizes, repeats = sizes_of(form), _elements(form, 1)
    if sizes is None:
        return None
    if repeats is None or len(repeats) != len(sizes):
        return [(None,) * len(sizes)]
    pairs = zip(sizes, repeats, strict=True)
    return [tuple(None if n is None or k is None else n * k for n, k in pairs)]


def reshaped(form: Form) -> list[Sizes | None] | None:
    """Sizes of which 0 is that of the operand and -1 what is left; else as many."""
    sizes, target = sizes_of(form), _elements(form, 1, "shape")
    if target is None:
        return _as_many(form, 1)
    literal = form.attribute("allowzero", 0)
    own = (None,) * len(target) if sizes is None else (*sizes, *[None] * len(target))
    found: Sizes = tuple(own[i] if n == 0 and not literal else n for i, n in enumerate(target))
    if -1 in found:
        at, whole = found.index(-1), None if sizes is None else _product(sizes)
        others = _product(_with(found, at, 1))
        is_open = whole is None or others is None or others == 0
        found = _with(found, at, None if is_open else exact_quotient(whole, others))
    return [found]


def filled(form: Form) -> list[Sizes | None] | None:
    """Sizes that the operand says, or as many as it has elements."""
    sizes = _integers(form, 0)
    return _as_many(form, 0) if sizes is None else [tuple(sizes)]


def counted(form: Form) -> list[Sizes | None]:
    """Range: one axis."""
    given = [form.constant(i) for i in range(3)]
    bounds = [array.item() for array in given if array is not None and array.size == 1]
    if len(bounds) < 3 or not bounds[2]:
        return [(None,)]
    start, limit, step = bounds
    return [(max(int(np.ceil((limit - start) / step)), 0),)]


def one_hot(form: Form) -> list[Sizes | None] | None:
    """A new axis of `depth` elements."""
    sizes, depth = sizes_of(form), _integers(form, 1)
    if sizes is None:
        return None
    axis = form.axis(-1, rank=len(sizes) + 1)
    return [(*sizes[:axis], depth[0] if depth else None, *sizes[axis:])]


def cropped(form: Form) -> list[Sizes | None] | None:
    """CenterCropPad: the sizes that are given, along all axes or those of attribute `axes`."""
    sizes, target, axes = sizes_of(form), _integers(form, 1), form.attribute("axes")
    if sizes is None:
        return None
    result = sizes
    for i, axis in enumerate(range(len(sizes)) if axes is None else axes):
        result = _with(result, axis % len(sizes), None if target is None else target[i])
    return [result]


def blocks(form: Form) -> list[Sizes | None] | None:
    """DepthToSpace and SpaceToDepth: blocks of an image become channels, or channels blocks."""
    sizes, block = sizes_of(form), form.attribute("blocksize")
    if sizes is None or not all(isinstance(n, int) for n in sizes[1:]):
        return None
    channels, *image = (n for n in sizes[1:] if isinstance(n, int))
    if form.node.op_type == "DepthToSpace":
        return [(sizes[0], channels // block**2, *(n * block for n in image))]
    return [(sizes[0], channels * block**2, *(n // block for n in image))]


def compressed(form: Form) -> list[Sizes | None] | None:
    """Compress: as many as the operand chooses."""
    sizes, chosen = sizes_of(form), _integers(form, 1)
    if sizes is None:
        return None
    count = None if chosen is None else sum(map(bool, chosen))
    return [(count,)] if form.attribute("axis") is None else [_with(sizes, form.axis(), count)]


def shape(form: Form) -> list[Sizes | None] | None:
    """One axis, of as many elements as axes are asked for."""
    sizes = sizes_of(form)
    if sizes is None:
        return None
    return [(len(sizes[form.attribute("start", 0) : form.attribute("end")]),)]


def scalar(form: Form) -> list[Sizes | None]:
    """No axes."""
    return [()]


def frames(form: Form) -> list[Sizes | None] | None:
    """STFT: signals, frames, bins, and the parts of a complex number."""
    sizes = sizes_of(form)
    return None if sizes is None else [(sizes[0], None, None, 2)]


def transformed(form: Form) -> list[Sizes | None] | None:
    """DFT: bins along one axis, and the parts of a number along the last one."""
    sizes, read = sizes_of(form), Attributes(form.node)
    if not sizes:
        return None
    inverse, onesided = bool(read.int("inverse", 0)), bool(read.int("onesided", 0))
    found: list[Size | None] = [*sizes[:-1], 1 if inverse and onesided else 2]
    axes = axis_maps.transform_axes(form)
    if axes is None:
        return [(*(None for _ in sizes[:-1]), found[-1])]
    axis = axes[0] % len(sizes)
    points = _integers(form, 1)
    count = sizes[axis] if not form.has(1) else points[0] if points and points[0] > 0 else None
    if inverse and onesided:
        found[axis] = count if form.has(1) else None
    else:
        found[axis] = floordiv(count, 2) + 1 if onesided and count is not None else count
    return [tuple(found)]


def _moved(form: Form, kernel: Sequence[Size | None], channels: Size | None) -> Sizes | None:
    """The sizes of an image below a window of `kernel`."""
    sizes, read = sizes_of(form), Attributes(form.node)
    if sizes is None:
        return None
    rank, ceil = len(sizes) - 2, bool(read.int("ceil_mode", 0))
    moves = read_moves(read, rank)
    image = [
        placed_window(moves, i, taps, extent, ceil).outputs
        if isinstance(taps, int) and extent is not None
        else None
        for i, (taps, extent) in enumerate(zip(kernel, sizes[2:], strict=True))
    ]
    return (sizes[0], channels, *image)


def pooled(form: Form) -> list[Sizes | None] | None:
    """Places of the window, for each channel; indices have the same sizes."""
    sizes = sizes_of(form)
    found = None if sizes is None else _moved(form, form.attribute("kernel_shape"), sizes[1])
    return [found] * len(form.node.outputs)


def convolved(weights: int) -> Rule:
    """Places of the window, for each filter; `weights` is the operand that has these."""

    def rule(form: Form) -> list[Sizes | None] | None:
        filters = sizes_of(form, weights)
        if filters is None or sizes_of(form) is None:
            return None
        return [_moved(form, filters[2:], filters[0])]

    return rule


def transposed(form: Form) -> list[Sizes | None] | None:
    """ConvTranspose: the extents that its windows fill."""
    sizes, filters, read = sizes_of(form), sizes_of(form, 1), Attributes(form.node)
    if sizes is None or filters is None:
        return None
    rank, per_group = len(sizes) - 2, filters[1]
    moves, extra = read_moves(read, rank), read.ints("output_padding", (0,) * rank)
    asked = read.ints("output_shape", None)
    image = [
        spread(moves, i, taps, extent, extra[i], asked[i - rank] if asked else None).outputs
        if isinstance(taps, int) and extent is not None
        else None
        for i, (taps, extent) in enumerate(zip(filters[2:], sizes[2:], strict=True))
    ]
    channels = None if per_group is None else per_group * read.int("group", 1)
    return [(sizes[0], channels, *image)]


def recurrent(gates: int) -> Rule:
    """RNN, GRU and LSTM of this many gates: all steps, then the last states."""

    def rule(form: Form) -> list[Sizes | None] | None:
        sizes, weights = sizes_of(form), sizes_of(form, 1)
        if sizes is None or weights is None:
            return None
        rows, (steps, batch) = weights[1], sizes[:2]
        hidden = rows // gates if isinstance(rows, int) else None
        whole: Sizes = (steps, weights[0], batch, hidden)
        last: Sizes = (weights[0], batch, hidden)
        if form.attribute("layout", 0):
            whole, last = (*sizes[:2], weights[0], hidden), (sizes[0], weights[0], hidden)
        found: list[Sizes | None] = [whole, last, last]
        return found[: len(form.node.outputs)]

    return rule
