"""Random operators that move elements, and that make or read shapes."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper, numpy_helper

from tools.fuzz.random_graph import Builder, Shape, Value, operator

_MOST_WINDOWS = 6


@operator(3)
def _transpose(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    order = [int(i) for i in b.random.permutation(len(x.shape))]
    shape = tuple(x.shape[i] for i in order)
    b.add("Transpose", [x.name], (x.dtype, shape, x.is_exact), perm=order)


@operator(3)
def _reshape(b: Builder) -> None:
    x = b.pick()
    if b.chance(0.5):
        # A 0 in a shape stands for the size there is.
        like = b.pick(lambda v: v.size == x.size > 0)
        target = b.add("Shape", [like.name], ("int64", (len(like.shape),), True)).name
        shape = like.shape
    else:
        if x.size == 0:
            raise LookupError
        count = b.choose([n for n in range(1, x.size + 1) if x.size % n == 0])
        shape = (count, x.size // count)
        written = list(shape)
        if b.chance(0.5):
            written[b.choose((0, 1))] = -1
        target = b.constant(np.array(written, np.int64))
    b.add("Reshape", [x.name, target], (x.dtype, shape, x.is_exact))


@operator(1)
def _flatten(b: Builder) -> None:
    x = b.pick()
    axis = int(b.random.integers(-len(x.shape), len(x.shape) + 1))
    place = axis % len(x.shape) if axis < 0 else axis
    shape = (math.prod(x.shape[:place]), math.prod(x.shape[place:]))
    b.add("Flatten", [x.name], (x.dtype, shape, x.is_exact), axis=axis)


@operator(1)
def _squeeze(b: Builder) -> None:
    x = b.pick(lambda v: 1 in v.shape)
    axis = b.choose([i for i, n in enumerate(x.shape) if n == 1])
    axes = b.constant(np.array([axis], np.int64))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    b.add("Squeeze", [x.name, axes], (x.dtype, shape, x.is_exact))


@operator(2)
def _unsqueeze(b: Builder) -> None:
    x = b.pick(lambda v: len(v.shape) < 4)
    axis = int(b.random.integers(len(x.shape) + 1))
    axes = b.constant(np.array([axis], np.int64))
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    b.add("Unsqueeze", [x.name, axes], (x.dtype, shape, x.is_exact))


@operator(2)
def _expand(b: Builder) -> None:
    x = b.pick(lambda v: len(v.shape) < 4)
    like = b.pick()
    try:
        shape = np.broadcast_shapes(x.shape, like.shape)
    except ValueError:
        raise LookupError from None
    target = b.add("Shape", [like.name], ("int64", (len(like.shape),), True))
    b.add("Expand", [x.name, target.name], (x.dtype, shape, x.is_exact))


@operator(1)
def _tile(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    times = [int(n) for n in b.random.integers(0 if b.chance(0.1) else 1, 3, len(x.shape))]
    shape = tuple(n * t for n, t in zip(x.shape, times, strict=True))
    repeats = b.constant(np.array(times, np.int64))
    b.add("Tile", [x.name, repeats], (x.dtype, shape, x.is_exact))


@operator(3)
def _concat(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    axis = int(b.random.integers(len(x.shape)))

    def rest(v: Value) -> tuple[str, Shape, Shape]:
        return v.dtype, v.shape[:axis], v.shape[axis + 1 :]

    y = b.pick(lambda v: len(v.shape) == len(x.shape) and rest(v) == rest(x))
    shape = (*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :])
    written = axis - len(shape) if b.chance(0.3) else axis
    like = (x.dtype, shape, x.is_exact and y.is_exact)
    b.add("Concat", [x.name, y.name], like, axis=written)


@operator(2)
def _split(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    axis = b.axis(x)
    place = axis % len(x.shape)
    first = int(b.random.integers(x.shape[axis] + 1))
    sizes = (first, x.shape[axis] - first)
    likes = [(x.dtype, (*x.shape[:place], n, *x.shape[place + 1 :]), x.is_exact) for n in sizes]
    b.add_several("Split", [x.name, b.constant(np.array(sizes, np.int64))], likes, axis=axis)


@operator(4)
def _slice(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    axis = b.axis(x)
    start, end = (int(n) for n in b.random.integers(-7, 8, 2))
    step = b.choose((1, 1, 1, 2, -1, -2))
    size, place = x.shape[axis], axis % len(x.shape)
    if step < 0 and (start < -size or end < -size):
        end, start = -(2**40), max(start, -size)
    count = len(range(*slice(start, end, step).indices(size)))
    shape = (*x.shape[:place], count, *x.shape[place + 1 :])
    names = [b.constant(np.array([n], np.int64)) for n in (start, end, axis, step)]
    b.add("Slice", [x.name, *names], (x.dtype, shape, x.is_exact))


@operator(2)
def windows(b: Builder) -> None:
    """Rows beside each other, each from a place further on, as exporters write `unfold`."""
    x = b.pick(lambda v: any(n > 1 for n in v.shape))
    axis = b.choose([i for i, n in enumerate(x.shape) if n > 1])
    length, step = int(b.random.integers(1, x.shape[axis])), b.choose((1, 1, 2))
    starts = range(0, x.shape[axis] - length + 1, step)[:_MOST_WINDOWS]
    if b.chance(0.5):
        # As many values as there are, some of them several times.
        starts = starts[: x.shape[axis] // length]
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    row = (*x.shape[:axis], 1, *shape[axis:])
    along = b.constant(np.array([axis], np.int64))
    windows = []
    for start in starts:
        bounds = [b.constant(np.array([n], np.int64)) for n in (start, start + length)]
        made = b.add("Slice", [x.name, *bounds, along], (x.dtype, shape, x.is_exact))
        windows.append(b.add("Unsqueeze", [made.name, along], (x.dtype, row, x.is_exact)))
    whole = (*x.shape[:axis], len(windows), length, *x.shape[axis + 1 :])
    b.add("Concat", [w.name for w in windows], (x.dtype, whole, x.is_exact), axis=axis)


@operator(3)
def _gather(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    axis = b.axis(x)
    size, place = x.shape[axis], axis % len(x.shape)
    if size == 0:
        raise LookupError
    shape = b.choose(((), (1,), (2,), (2, 2), (0,)))
    places = b.constant(b.random.integers(-size, size, shape).astype(b.choose(("int64", "int32"))))
    result = (*x.shape[:place], *shape, *x.shape[place + 1 :])
    b.add("Gather", [x.name, places], (x.dtype, result, x.is_exact), axis=axis)


@operator(1)
def _gather_elements(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != () and 0 not in v.shape)
    axis = b.axis(x)
    places = b.constant(b.random.integers(-x.shape[axis], x.shape[axis], x.shape))
    b.add("GatherElements", [x.name, places], (x.dtype, x.shape, x.is_exact), axis=axis)


@operator(1)
def _scatter(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != () and 0 not in v.shape and v.dtype in ("float32", "int64"))
    axis = b.axis(x)
    place = axis % len(x.shape)
    size = x.shape[axis]
    line = b.random.permutation(size).reshape(
        [size if i == place else 1 for i in range(len(x.shape))]
    )
    places = b.constant(np.broadcast_to(line, x.shape).astype(np.int64).copy())
    updates = b.constant(b.data(x.dtype, x.shape))
    inputs = [x.name, places, updates]
    b.add("ScatterElements", inputs, (x.dtype, x.shape, x.is_exact), axis=axis)


@operator(2)
def _pad(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "float64", "int64", "int32") and v.shape != ())
    mode = b.choose(("constant", "constant", "edge", "reflect"))
    most = [max(0, n - 1) if mode == "reflect" else 3 for n in x.shape]
    if mode != "constant" and 0 in x.shape:
        raise LookupError
    before, after = ([int(b.random.integers(m + 1)) for m in most] for _ in range(2))
    shape = tuple(n + p + q for n, p, q in zip(x.shape, before, after, strict=True))
    pads = b.constant(np.array(before + after, np.int64))
    more = [b.constant(b.data(x.dtype, ()))] if mode == "constant" and b.chance(0.5) else []
    b.add("Pad", [x.name, pads, *more], (x.dtype, shape, x.is_exact), mode=mode)


@operator(1)
def _sizes(b: Builder) -> None:
    x = b.pick()
    if b.chance(0.5):
        b.add("Size", [x.name], ("int64", (), True))
    else:
        b.add("Shape", [x.name], ("int64", (len(x.shape),), True))


@operator(1)
def _filled(b: Builder) -> None:
    x = b.pick()
    target = b.add("Shape", [x.name], ("int64", (len(x.shape),), True))
    value = numpy_helper.from_array(b.data("float32", (1,)))
    b.add("ConstantOfShape", [target.name], ("float32", x.shape, True), value=value)


@operator(1)
def _counted(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    size = b.add("Size", [x.name], ("int64", (), True))
    start, step = (b.constant(np.array(n, np.int64)) for n in (0, 1))
    b.add("Range", [start, size.name, step], ("int64", (x.size,), True))


@operator(1)
def _triangle(b: Builder) -> None:
    x = b.pick(lambda v: len(v.shape) >= 2 and v.dtype in ("float32", "int64", "bool"))
    b.add("Trilu", [x.name], (x.dtype, x.shape, x.is_exact), upper=int(b.chance(0.5)))


@operator(1)
def _one_hot(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype == "int64" and 0 < len(v.shape) < 3)
    depth = b.constant(np.array(5, np.int64))
    values = b.constant(np.array([-1, 2], np.float32))
    b.add("OneHot", [x.name, depth, values], ("float32", (*x.shape, 5), True), axis=-1)


@operator(1)
def _places_of(b: Builder) -> None:
    x = b.pick(lambda v: v.is_exact and v.dtype in ("float32", "int64", "bool") and v.shape != ())
    found = Value(b.names.next(), "int64", (len(x.shape), 1), True)
    b.nodes.append(helper.make_node("NonZero", [x.name], [found.name], name=f"n{found.name}"))
    axes = b.constant(np.array([1], np.int64))
    b.add("ReduceSum", [found.name, axes], ("int64", (len(x.shape),), True), keepdims=0)
