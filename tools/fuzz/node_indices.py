"""Gathering, scattering, sorting, and what depends on indices or comparisons."""

from __future__ import annotations

import numpy as np

from tools.fuzz.random_node import EVERY, INDICES, NUMBERS, Drawer, Drawn, recipe

RARE = 0.2


@recipe(3)
def _gather(d: Drawer) -> Drawn:
    dtype, shape = d.type("Gather", EVERY), d.shape(1)
    axis = d.axis(shape)
    places = d.places(shape[axis], d.shape(0, 2), d.choose(INDICES))
    return Drawn("Gather", [d.data(dtype, shape), places], {"axis": axis})


@recipe(3)
def _gather_elements(d: Drawer) -> Drawn:
    dtype, shape = d.type("GatherElements", EVERY), d.shape(1)
    axis = d.axis(shape)
    sizes = [d.number(0 if d.chance(0.1) else min(n, 1), n) for n in shape]
    sizes[axis] = d.number(0, 6)
    places = d.places(shape[axis], tuple(sizes), d.choose(INDICES))
    return Drawn("GatherElements", [d.data(dtype, shape), places], {"axis": axis})


@recipe(3)
def _gather_nd(d: Drawer) -> Drawn:
    dtype, shape = d.type("GatherND", EVERY), d.shape(1)
    batch = d.number(0, len(shape) - 1) if d.opset >= 12 else 0
    depth = d.number(1, len(shape) - batch)
    sizes = (*shape[:batch], *d.shape(0, 2))
    bounds = shape[batch : batch + depth]
    places = np.stack([d.places(n, sizes) for n in bounds], -1)
    about = {"batch_dims": batch} if d.opset >= 12 else {}
    return Drawn("GatherND", [d.data(dtype, shape), places], about)


def _reduction(d: Drawer) -> dict[str, str]:
    if d.opset < 16:
        return {}
    names = ("none", "add", "mul", "max", "min")
    return {"reduction": d.choose(names if d.opset >= 18 else names[:3])}


@recipe(4)
def _scatter_elements(d: Drawer) -> Drawn:
    op = "ScatterElements" if d.opset >= 11 else "Scatter"
    dtype, shape = d.type(op, EVERY), d.shape(1)
    axis = d.axis(shape)
    sizes = tuple(d.number(0 if d.chance(0.1) else min(n, 1), n) for n in shape)
    places = d.places(shape[axis], sizes, d.choose(INDICES))
    about = {} if op == "Scatter" else _reduction(d)
    if about.get("reduction", "none") == "none" and d.chance(0.5) and shape[axis]:
        rows = d.random.permutation(shape[axis])[: sizes[axis]]
        order = np.reshape(rows, [-1 if a == axis % len(shape) else 1 for a in range(len(shape))])
        places = np.broadcast_to(order, sizes).astype(places.dtype).copy()
    x, updates = d.data(dtype, shape, RARE), d.data(dtype, sizes, RARE)
    return Drawn(op, [x, places, updates], {"axis": axis, **about})


@recipe(4)
def _scatter_nd(d: Drawer) -> Drawn:
    dtype, shape = d.type("ScatterND", EVERY), d.shape(1)
    depth, sizes = d.number(1, len(shape)), d.shape(0, 2)
    places = np.stack([d.places(n, sizes) for n in shape[:depth]], -1)
    updates = d.data(dtype, (*sizes, *shape[depth:]), RARE)
    return Drawn("ScatterND", [d.data(dtype, shape, RARE), places, updates], _reduction(d))


@recipe(3)
def _top(d: Drawer) -> Drawn:
    dtype, shape = d.type("TopK", NUMBERS), d.shape(1)
    axis = d.axis(shape)
    about = {"axis": axis}
    if d.opset >= 11:
        about |= {"largest": d.flag()}
    k, x = d.number(0, shape[axis]), d.data(dtype, shape, RARE)
    if d.opset >= 10:
        return Drawn("TopK", [x, np.array([k])], about, 2)
    return Drawn("TopK", [x], {**about, "k": max(k, 1)}, 2)


@recipe(3)
def _extreme(d: Drawer) -> Drawn:
    op = d.choose(("ArgMax", "ArgMin"))
    dtype, shape = d.type(op, NUMBERS), d.shape(1)
    about = {"axis": d.axis(shape) if d.opset >= 11 else d.number(0, len(shape) - 1)}
    about["keepdims"] = d.flag()
    if d.opset >= 12:
        about["select_last_index"] = d.flag()
    return Drawn(op, [d.data(dtype, shape, RARE)], about)


@recipe(2)
def _unique(d: Drawer) -> Drawn:
    dtype, shape = d.type("Unique", EVERY), d.shape(1)
    about = {"sorted": d.flag()}
    if d.chance(0.6):
        about["axis"] = d.axis(shape)
    return Drawn("Unique", [d.data(dtype, shape, RARE)], about, 4)


@recipe(2)
def _non_zero(d: Drawer) -> Drawn:
    return Drawn("NonZero", [d.data(d.type("NonZero", EVERY), d.shape(), RARE)])


@recipe(2)
def _running(d: Drawer) -> Drawn:
    op = d.choose(("CumSum", "CumSum", "CumProd"))
    dtype, shape = d.type(op, NUMBERS), d.shape(1)
    about = {"exclusive": d.flag(), "reverse": d.flag()}
    axis = np.array(d.axis(shape), d.choose(INDICES))
    return Drawn(op, [d.data(dtype, shape), axis], about)


@recipe(2)
def _compress(d: Drawer) -> Drawn:
    dtype, shape = d.type("Compress", EVERY), d.shape(1)
    axis = d.axis(shape) if d.chance(0.6) else None
    if d.opset < 11 and axis is not None:
        axis %= len(shape)
    size = int(np.prod(shape)) if axis is None else shape[axis]
    mask = d.data("bool", (d.number(0, size),))
    return Drawn("Compress", [d.data(dtype, shape), mask], {} if axis is None else {"axis": axis})


@recipe(2)
def _one_hot(d: Drawer) -> Drawn:
    dtype, shape = d.type("OneHot", NUMBERS), d.shape(0, 3)
    depth = d.number(1, 6)
    places = d.random.integers(-depth - 2, depth + 3, shape).astype(dtype)
    size = np.asarray(depth, d.type("OneHot", NUMBERS, 1)).reshape(d.choose(((), (1,))))
    values = d.data(d.type("OneHot", EVERY, 2), (2,))
    return Drawn("OneHot", [places, size, values], {"axis": d.axis(shape, 1)})


@recipe(2)
def _range(d: Drawer) -> Drawn:
    dtype = d.type("Range", ("int16", "int32", "int64", "float32", "float64"))
    scale = 4 if dtype.startswith("f") else 1
    start, limit = d.number(-20, 20) / scale, d.number(-20, 20) / scale
    step = d.choose((-7, -3, -1, 1, 2, 5)) / scale
    return Drawn("Range", [np.asarray(n, dtype) for n in (start, limit, step)])


@recipe(2)
def _triangle(d: Drawer) -> Drawn:
    dtype = d.type("Trilu", EVERY)
    k = np.array(d.choose((-(2**40), -9, -2, -1, 0, 1, 2, 9, 2**40)))
    operands = [d.data(dtype, d.shape(2)), k if d.chance(0.8) else None]
    return Drawn("Trilu", operands, {"upper": d.flag()})


@recipe(1)
def _eye(d: Drawer) -> Drawn:
    x = d.data(d.type("EyeLike", EVERY), d.shape(2, 2))
    return Drawn("EyeLike", [x], {"k": d.number(-6, 6)})


@recipe(1)
def _hardmax(d: Drawer) -> Drawn:
    dtype, shape = d.type("Hardmax", NUMBERS), d.shape(1)
    return Drawn("Hardmax", [d.data(dtype, shape, RARE)], {"axis": _softmax_axis(d, shape)})


def _softmax_axis(d: Drawer, shape: tuple[int, ...]) -> int:
    return d.axis(shape) if d.opset >= 11 else d.number(0, len(shape) - 1)


@recipe(3)
def _softmax(d: Drawer) -> Drawn:
    op = d.choose(("Softmax", "LogSoftmax"))
    dtype, shape = d.type(op, NUMBERS), d.shape(1)
    about = {"axis": _softmax_axis(d, shape)} if len(shape) == 1 or d.chance(0.8) else {}
    return Drawn(op, [d.data(dtype, shape, 0.1)], about)


@recipe(1)
def _reverse(d: Drawer) -> Drawn:
    dtype, shape = d.type("ReverseSequence", EVERY), d.shape(2)
    time = d.flag()
    lengths = d.random.integers(0, shape[time] + 1, shape[1 - time])
    about = {"time_axis": time, "batch_axis": 1 - time}
    return Drawn("ReverseSequence", [d.data(dtype, shape), lengths], about)


@recipe(1)
def _tensor_scatter(d: Drawer) -> Drawn:
    dtype, shape = d.type("TensorScatter", EVERY), d.shape(3, 4, 0)
    axis = d.number(1, len(shape) - 1)
    mode = d.choose(("linear", "circular"))
    count = d.number(1, shape[axis])
    sizes = [count if a == axis else n for a, n in enumerate(shape)]
    most = shape[axis] - count if mode == "linear" else shape[axis] - 1
    starts = d.random.integers(0, most + 1, shape[0]) if d.chance(0.8) else None
    about = {"mode": mode, "axis": axis - (len(shape) if d.chance(0.4) else 0)}
    operands = [d.data(dtype, shape), d.data(dtype, tuple(sizes)), starts]
    return Drawn("TensorScatter", operands, about)


@recipe(2)
def _suppressed(d: Drawer) -> Drawn:
    batch, boxes, classes = d.number(1, 2), d.choose((0, 1, 5, 12)), d.number(1, 3)
    corners = d.data("float32", (batch, boxes, 4))
    scores = np.round(d.random.random((batch, classes, boxes)) * 8).astype(np.float32) / 8
    limits = [
        np.array([d.choose((0, 1, 3, 2**40))]) if d.chance(0.8) else None,
        np.array([d.choose((0.0, 0.3, 1.0))], np.float32) if d.chance(0.7) else None,
        np.array([d.choose((-1.0, 0.0, 0.5))], np.float32) if d.chance(0.7) else None,
    ]
    about = {"center_point_box": d.flag()}
    if about["center_point_box"]:
        corners[..., 2:] = np.abs(corners[..., 2:])
    return Drawn("NonMaxSuppression", [corners, scores, *limits], about)
