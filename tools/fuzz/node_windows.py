"""Convolutions, pools, samples and signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.random_node import FLOATS, Drawer, Drawn, recipe

REAL = ("float32", "float64", "float16")


def _windows(d: Drawer, rank: int, kernel: list[int], dilated: bool = True) -> dict[str, Any]:
    about: dict[str, Any] = {}
    if d.chance(0.6):
        about["strides"] = [d.choose((1, 1, 2, 3)) for _ in range(rank)]
    if dilated and d.chance(0.4):
        about["dilations"] = [d.choose((1, 2, 3)) for _ in range(rank)]
    if d.chance(0.25):
        about["auto_pad"] = d.choose(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    elif d.chance(0.6):
        about["pads"] = [d.number(0, max(0, k - 1)) for k in (*kernel, *kernel)]
    return about


@recipe(5)
def _pooled(d: Drawer) -> Drawn:
    op = d.choose(("MaxPool", "AveragePool", "LpPool"))
    rank = d.choose((1, 2, 2, 3))
    kernel = [d.number(1, 3) for _ in range(rank)]
    shape = (d.number(1, 2), d.number(1, 3), *[d.number(1, 8) for _ in range(rank)])
    dtype = d.type(op, (*REAL, "int8", "uint8") if op == "MaxPool" else REAL)
    since = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    about = _windows(d, rank, kernel, d.opset >= since) | {"kernel_shape": kernel}
    if d.chance(0.4) and d.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op]:
        about["ceil_mode"] = 1
    if op == "AveragePool":
        about["count_include_pad"] = d.flag()
    if op == "LpPool":
        about["p"] = d.number(1, 3)
    count = 1
    if op == "MaxPool" and d.opset >= 8:
        count, about["storage_order"] = d.number(1, 2), d.flag()
    return Drawn(op, [d.data(dtype, shape, 0.05)], about, count)


@recipe(1)
def _global(d: Drawer) -> Drawn:
    op = d.choose(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"))
    about = {"p": d.number(1, 3)} if op == "GlobalLpPool" else {}
    return Drawn(op, [d.data(d.type(op, REAL), d.shape(3, 5))], about)


@recipe(5)
def _convolved(d: Drawer) -> Drawn:
    op = d.choose(("Conv", "ConvTranspose", "ConvInteger"))
    rank, group = d.choose((1, 2, 2, 3)), d.choose((1, 1, 2, 3))
    kernel = [d.number(1, 4) for _ in range(rank)]
    inner, outer = d.number(1, 3), d.number(1, 3)
    shape = (d.number(0 if d.chance(0.05) else 1, 2), group * inner)
    shape = (*shape, *[d.number(1, 8) for _ in range(rank)])
    about = _windows(d, rank, kernel) | {"group": group}
    if d.chance(0.5):
        about["kernel_shape"] = kernel
    sizes = (group * outer, inner, *kernel)
    if op == "ConvTranspose":
        sizes = (group * inner, outer, *kernel)
        strides = about.get("strides", [1] * rank)
        if d.chance(0.3):
            about["output_padding"] = [d.number(0, s - 1) for s in strides]
        if d.chance(0.2):
            about.pop("pads", None)
            about["output_shape"] = [n * s for n, s in zip(shape[2:], strides, strict=True)]
    if op == "ConvInteger":
        left, right = d.choose(("int8", "uint8")), d.choose(("int8", "uint8"))
        x, w = d.data(left, shape, 0.4), d.data(right, sizes, 0.4)
        zeros = [d.data(left, ()), d.data(right, d.choose(((), (group * outer,))))]
        return Drawn(op, [x, w, *zeros[: d.number(0, 2)]], about)
    dtype = d.type(op, REAL)
    bias = d.data(dtype, (group * outer,)) if d.chance(0.5) else None
    return Drawn(op, [d.data(dtype, shape), d.data(dtype, sizes), bias], about)


@recipe(2)
def _quantised(d: Drawer) -> Drawn:
    kind = d.choose(("int8", "uint8"))
    weights = "int8" if kind == "int8" else d.choose(("int8", "uint8"))
    kernel = [d.number(1, 3), d.number(1, 3)]
    group, inner, outer = d.choose((1, 2)), d.number(1, 3), d.number(1, 3)
    x = d.data(kind, (1, group * inner, d.number(3, 6), d.number(3, 6)), 0.4)
    w = d.data(weights, (group * outer, inner, *kernel), 0.4)
    grains = d.choose(((), (group * outer,)))
    scale = (2.0 ** d.random.integers(-4, 1, grains)).astype(np.float32)
    zeros = np.zeros(grains, weights)
    bias = d.data("int32", (group * outer,)) if d.chance(0.5) else None
    one = np.float32(0.25)
    operands = [x, one, d.data(kind, ()), w, scale, zeros, np.float32(2.0), d.data(kind, ()), bias]
    about = _windows(d, 2, kernel) | {"group": group}
    return Drawn("QLinearConv", [None if o is None else np.asarray(o) for o in operands], about)


@recipe(4)
def _sampled(d: Drawer) -> Drawn:
    rank = 3 if d.opset >= 20 and d.chance(0.3) else 2
    n, c = d.number(1, 2), d.number(1, 2)
    sizes = [d.number(1, 5) for _ in range(rank)]
    count = [d.number(1, 4) for _ in range(rank)]
    dtype = d.type("GridSample", ("float32", "float64"))
    modes = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    about = {
        "mode": d.choose(modes if rank == 2 else modes[:2]),
        "padding_mode": d.choose(("zeros", "border", "reflection")),
        "align_corners": d.flag(),
    }
    grid = (d.random.integers(-12, 13, (n, *count, rank)) / 8 + 1 / 64).astype(dtype)
    return Drawn("GridSample", [d.data(dtype, (n, c, *sizes)), grid], about)


@recipe(3)
def _regions(d: Drawer) -> Drawn:
    n, c, h, w = d.number(1, 2), d.number(1, 2), d.number(2, 7), d.number(2, 7)
    count = d.number(0, 3)
    dtype = d.type("RoiAlign", ("float32", "float64"))
    corners = d.random.integers(-2, 8, (count, 2, 2)) + d.random.choice((0.0, 0.25), (count, 2, 2))
    boxes = np.concatenate([corners.min(1), corners.max(1)], -1).astype(dtype).reshape(count, 4)
    batch = d.random.integers(0, n, count)
    about: dict[str, Any] = {
        "output_height": d.number(1, 3),
        "output_width": d.number(1, 3),
        "sampling_ratio": d.number(0, 3),
        "spatial_scale": d.choose((0.5, 1.0)),
        "mode": d.choose(("avg", "max")),
    }
    if d.opset >= 16:
        about["coordinate_transformation_mode"] = d.choose(("half_pixel", "output_half_pixel"))
    x = d.data(dtype, (n, c, h, w))
    if d.chance(0.7):
        return Drawn("RoiAlign", [x, boxes, batch], about)
    rows = np.concatenate([batch[:, None].astype(dtype), boxes], -1)
    shape = [d.number(1, 3), d.number(1, 3)]
    return Drawn("MaxRoiPool", [x, rows], {"pooled_shape": shape, "spatial_scale": 1.0})


@recipe(1)
def _unpooled(d: Drawer) -> Drawn:
    n, c, h, w = d.number(1, 2), d.number(1, 2), d.number(1, 3), d.number(1, 3)
    dtype = d.type("MaxUnpool", REAL)
    size = n * c * 4 * h * w
    places = d.random.permutation(size)[: n * c * h * w].reshape(n, c, h, w)
    about = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return Drawn("MaxUnpool", [d.data(dtype, (n, c, h, w)), places], about)


@recipe(1)
def _neighbours(d: Drawer) -> Drawn:
    about: dict[str, Any] = {"size": d.choose((1, 2, 3, 5))}
    about |= {n: d.choose((0.1, 0.75, 1.0)) for n in ("alpha", "beta", "bias") if d.chance(0.5)}
    return Drawn("LRN", [d.data(d.type("LRN", REAL), d.shape(3, 4))], about)


@recipe(2)
def _signal(d: Drawer) -> Drawn:
    kind = d.number(0, 2)
    if kind == 0:
        op = d.choose(("HannWindow", "HammingWindow", "BlackmanWindow"))
        size = np.array(d.choose((0, 1, 2, 5, 16)), d.choose(("int32", "int64")))
        to = d.choose((1, 11, 10, 7, 3))
        return Drawn(op, [size], {"periodic": d.flag(), "output_datatype": to})
    dtype = d.type("DFT", ("float32", "float64"))
    if kind == 1:
        shape = (*d.shape(2, 3, 0.0), d.choose((1, 2)))
        axis = d.number(-len(shape), len(shape) - 2)
        axis = axis if axis != -1 else 0
        length = np.array(d.number(1, 9)) if d.chance(0.5) else None
        flags = {"inverse": d.flag(), "onesided": d.flag()}
        if flags["inverse"] and flags["onesided"] and shape[-1] == 1:
            raise LookupError
        x = d.data(dtype, shape)
        if d.opset >= 20:
            return Drawn("DFT", [x, length, np.array(axis)], flags)
        return Drawn("DFT", [x, length], {**flags, "axis": axis})
    frame, step, size = d.choose((1, 4, 7)), d.number(1, 3), d.number(7, 20)
    window = np.abs(d.data(dtype, (frame,))) if d.chance(0.6) else None
    sided = d.flag()
    x = d.data(dtype, (d.number(1, 2), size, 1 if sided else d.choose((1, 2))))
    given = np.array(frame) if window is None or d.chance(0.5) else None
    return Drawn("STFT", [x, np.array(step), window, given], {"onesided": sided})


@recipe(1)
def _deformed(d: Drawer) -> Drawn:
    dtype = d.type("DeformConv", ("float32", "float64"))
    kernel, group, offsets = [d.number(1, 3), d.number(1, 3)], d.choose((1, 2)), d.choose((1, 2))
    inner = d.number(1, 2) * offsets
    h, w = d.number(3, 6), d.number(3, 6)
    taps = kernel[0] * kernel[1]
    out = (h - kernel[0] + 1, w - kernel[1] + 1)
    x = d.data(dtype, (1, group * inner, h, w))
    weights = d.data(dtype, (group * 2, inner, *kernel))
    moved = (d.random.integers(-8, 9, (1, offsets * taps * 2, *out)) / 8 + 1 / 64).astype(dtype)
    bias = d.data(dtype, (group * 2,)) if d.chance(0.5) else None
    mask = d.data(dtype, (1, offsets * taps, *out)) if d.chance(0.5) else None
    about = {"group": group, "offset_group": offsets, "kernel_shape": kernel}
    return Drawn("DeformConv", [x, weights, moved, bias, mask], about)


@recipe(1)
def _affine(d: Drawer) -> Drawn:
    dtype, rank = d.type("AffineGrid", FLOATS), d.choose((2, 3))
    n = d.number(1, 2)
    sizes = np.array([n, 2, *[d.number(1, 4) for _ in range(rank)]])
    theta = d.data(dtype, (n, rank, rank + 1))
    return Drawn("AffineGrid", [theta, sizes], {"align_corners": d.flag()})
