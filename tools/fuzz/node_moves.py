"""Nodes that move elements: slices, pads, shapes, blocks, Resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.random_node import EVERY, INDICES, Drawer, Drawn, recipe

FAR = (-(2**63), -(2**31), 2**31 - 1, 2**63 - 1)


@recipe(4)
def _slice(d: Drawer) -> Drawn:
    dtype, shape = d.type("Slice", EVERY), d.shape(1)
    axes = d.axes(shape)
    if d.opset < 11:
        axes = sorted(a % len(shape) for a in axes)
    count = len(axes)
    names = INDICES if d.opset >= 10 else ("int64",)
    kind = d.choose(names)

    def ends() -> list[int]:
        far = FAR if kind == "int64" else FAR[1:3]
        return [d.choose(far) if d.chance(0.2) else d.number(-9, 9) for _ in range(count)]

    starts, stops = ends(), ends()
    x = d.data(dtype, shape)
    if d.opset < 10:
        if not count:
            raise LookupError
        return Drawn("Slice", [x], {"starts": starts, "ends": stops, "axes": axes})
    steps = [d.choose((-(2**31) + 1, -2, -1, 1, 1, 2, 3, 2**31 - 1)) for _ in range(count)]
    operands = [np.array(v, kind) for v in (starts, stops, axes, steps)]
    return Drawn("Slice", [x, *operands[: d.choose((3, 4, 4))]])


@recipe(4)
def _pad(d: Drawer) -> Drawn:
    dtype, shape = d.type("Pad", EVERY), d.shape(1)
    modes = ["constant", "reflect", "edge", *(["wrap"] if d.opset >= 19 else [])]
    mode = d.choose(modes)
    axes = None
    if d.opset >= 18 and d.chance(0.5):
        axes = d.axes(shape)
    # Who mirrors what negative pads leave, and how often, is not agreed on.
    chosen = shape if axes is None else [shape[a] for a in axes]
    least = -2 if mode in ("constant", "edge") else 0
    most = [n - 1 if mode == "reflect" else 3 for n in (*chosen, *chosen)]
    if min(most, default=0) < 0:
        raise LookupError
    pads = [d.number(least, n) for n in most]
    value = d.data(dtype, ()) if d.chance(0.6) and mode == "constant" else None
    x = d.data(dtype, shape)
    if d.opset < 11:
        about: dict[str, Any] = {"pads": pads, "mode": mode}
        return Drawn("Pad", [x], about | ({} if value is None else {"value": float(value)}))
    places = None if axes is None else np.array(axes, d.choose(INDICES))
    operands = [x, np.array(pads, np.int64), value]
    return Drawn("Pad", operands + ([] if places is None else [places]), {"mode": mode})


@recipe(3)
def _split(d: Drawer) -> Drawn:
    dtype, shape = d.type("Split", EVERY), d.shape(1)
    axis = d.axis(shape) if d.opset >= 11 else d.number(0, len(shape) - 1)
    size, count = shape[axis], d.number(1, 4)
    x, about = d.data(dtype, shape), {"axis": axis}
    if d.chance(0.5):
        cuts = sorted(d.number(0, size) for _ in range(count - 1))
        sizes = [int(n) for n in np.diff([0, *cuts, size])]
        if d.opset >= 13:
            return Drawn("Split", [x, np.array(sizes)], about, count)
        return Drawn("Split", [x], {**about, "split": sizes}, count)
    if d.opset >= 18:
        return Drawn("Split", [x], {**about, "num_outputs": count}, count)
    if size % count:
        raise LookupError
    return Drawn("Split", [x], about, count)


@recipe(3)
def _shaped(d: Drawer) -> Drawn:
    """Reshape with zeros and what is left, Flatten from any axis."""
    shape = d.shape()
    if d.chance(0.3):
        axis = d.number(-len(shape) if d.opset >= 11 else 0, len(shape))
        return Drawn("Flatten", [d.data(d.type("Flatten", EVERY), shape)], {"axis": axis})
    sizes, allow = list(shape), d.flag() if d.opset >= 14 else 0
    if d.chance(0.5):
        sizes = [int(n) for n in d.random.permutation(sizes)]
    for place, size in enumerate(sizes):
        if not allow and d.chance(0.3) and place < len(shape) and shape[place] == size:
            sizes[place] = 0
    if sizes and d.chance(0.5) and 0 not in (shape if allow else ()):
        sizes[d.number(0, len(sizes) - 1)] = -1
    about = {"allowzero": allow} if d.opset >= 14 else {}
    dtype = d.type("Reshape", EVERY)
    return Drawn("Reshape", [d.data(dtype, shape), np.array(sizes, np.int64)], about)


@recipe(2)
def _squeezed(d: Drawer) -> Drawn:
    op = d.choose(("Squeeze", "Unsqueeze"))
    dtype, shape = d.type(op, EVERY), d.shape(0, 3)
    if op == "Squeeze":
        shape = tuple(1 if d.chance(0.5) else n for n in shape)
        axes = [a for a in d.axes(shape) if shape[a] == 1]
        if not axes and d.chance(0.5):
            return Drawn(op, [d.data(dtype, shape)])
    else:
        axes = d.axes((*shape, 1, 1))
    if d.opset < 11:
        axes = sorted(a % (len(shape) + (2 if op == "Unsqueeze" else 0)) for a in axes)
    if op == "Unsqueeze":
        rank = len(shape) + len(axes)
        axes = [a for a in axes if -rank <= a < rank]
        if len({a % (len(shape) + len(axes)) for a in axes}) < len(axes):
            raise LookupError
    x = d.data(dtype, shape)
    if d.opset >= 13:
        return Drawn(op, [x, np.array(axes, np.int64)])
    return Drawn(op, [x], {"axes": axes})


@recipe(3)
def _repeated(d: Drawer) -> Drawn:
    shape = d.shape()
    if d.chance(0.5):
        counts = [d.choose((0, 1, 1, 2, 3)) for _ in shape]
        dtype = d.type("Tile", EVERY)
        return Drawn("Tile", [d.data(dtype, shape), np.array(counts, np.int64)])
    small = d.broadcast(shape)
    asked = [1 if d.chance(0.2) else n for n in shape]
    asked = asked if d.chance(0.8) else asked[d.number(0, len(asked)) :]
    dtype = d.type("Expand", EVERY)
    return Drawn("Expand", [d.data(dtype, small), np.array(asked, np.int64)])


@recipe(2)
def _joined(d: Drawer) -> Drawn:
    dtype, shape = d.type("Concat", EVERY), d.shape(1)
    axis = d.axis(shape)
    parts = []
    for _ in range(d.number(1, 4)):
        sizes = list(shape)
        sizes[axis] = d.number(0, 4)
        parts.append(d.data(dtype, tuple(sizes)))
    return Drawn("Concat", parts, {"axis": axis if d.opset >= 11 else axis % len(shape)})


@recipe(2)
def _turned(d: Drawer) -> Drawn:
    shape = d.shape()
    order = [int(a) for a in d.random.permutation(len(shape))]
    about = {"perm": order} if d.chance(0.7) else {}
    return Drawn("Transpose", [d.data(d.type("Transpose", EVERY), shape)], about)


@recipe(2)
def _sizes(d: Drawer) -> Drawn:
    shape = d.shape()
    kind = d.number(0, 2)
    if kind == 0:
        return Drawn("Size", [d.data(d.type("Size", EVERY), shape)])
    if kind == 1:
        ends = {n: d.number(-6, 6) for n in ("start", "end") if d.opset >= 15 and d.chance(0.6)}
        return Drawn("Shape", [d.data(d.type("Shape", EVERY), shape)], ends)
    from onnx import numpy_helper

    value = numpy_helper.from_array(d.data(d.choose(EVERY), (1,), 0.5))
    about = {"value": value} if d.chance(0.7) else {}
    return Drawn("ConstantOfShape", [np.array(shape, np.int64)], about)


@recipe(2)
def _blocks(d: Drawer) -> Drawn:
    op, size = d.choose(("DepthToSpace", "SpaceToDepth")), d.choose((1, 2, 3))
    n, c, h, w = (d.number(0 if d.chance(0.1) else 1, 3) for _ in range(4))
    about: dict[str, Any] = {"blocksize": size}
    shape = (n, c * size * size, h, w)
    if op == "SpaceToDepth":
        shape = (n, c, h * size, w * size)
        if d.opset >= 28:
            about["mode"] = d.choose(("DCR", "CRD"))
    elif d.opset >= 11:
        about["mode"] = d.choose(("DCR", "CRD"))
    return Drawn(op, [d.data(d.type(op, EVERY), shape)], about)


@recipe(2)
def _cropped(d: Drawer) -> Drawn:
    dtype, shape = d.type("CenterCropPad", EVERY), d.shape(1)
    axes = d.axes(shape) if d.chance(0.6) else None
    count = len(shape) if axes is None else len(axes)
    sizes = np.array([d.number(0, 9) for _ in range(count)], d.choose(INDICES))
    about = {} if axes is None else {"axes": axes}
    return Drawn("CenterCropPad", [d.data(dtype, shape), sizes], about)


@recipe(10)
def _resize(d: Drawer) -> Drawn:
    if d.opset < 10:
        return _upsample(d)
    mode = d.choose(("nearest", "linear", "cubic"))
    rank = d.choose((1, 2, 3, 4))
    shape = tuple(d.choose((1, 2, 3, 5, 8)) for _ in range(rank))
    dtype = d.type("Resize", ("float32", "float64", "float16", "uint8", "int8", "int32"))
    x, about = d.data(dtype, shape), {"mode": mode}
    axes = None
    if d.opset >= 18 and d.chance(0.4):
        axes = d.axes(shape)
    count = rank if axes is None else len(axes)
    changed = [d.chance(0.7) for _ in range(count)]
    scales = [d.choose((0.3, 0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 2.6, 3.0)) if c else 1 for c in changed]
    sizes = [d.number(1, 12) for _ in range(count)]
    if d.opset > 10 and (mode == "nearest" or x.dtype.kind in "iu"):
        # Places are exact, so that they, or whole numbers between elements, are rounded alike.
        extents = shape if axes is None else [shape[a] for a in axes]
        scales = [d.choose((0.5, 1.0, 2.0, 4.0)) if c else 1 for c in changed]
        sizes = [n * d.choose((1, 2, 4)) for n in extents]
    if d.opset == 10:
        about["mode"] = "nearest" if x.dtype.kind in "iu" else d.choose(("nearest", "linear"))
        return Drawn("Resize", [x, np.array(scales, np.float32)], about)
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]
    ways += ["tf_half_pixel_for_nn"] if d.opset < 13 and mode == "nearest" else []
    ways += ["half_pixel_symmetric"] if d.opset >= 19 else []
    way = d.choose(ways)
    about["coordinate_transformation_mode"] = way
    if mode == "nearest":
        nearest = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        about["nearest_mode"] = d.choose(nearest)
    if mode == "cubic":
        about["cubic_coeff_a"] = d.choose((-0.75, -0.5))
    if mode == "cubic" or (d.opset >= 18 and mode == "linear"):
        about["exclude_outside"] = d.flag() if mode == "cubic" else 0
    if d.opset >= 18:
        about["antialias"] = d.flag() if mode != "nearest" else 0
        if axes is not None:
            about["axes"] = axes
    roi = None
    if way == "tf_crop_and_resize":
        low = d.random.integers(0, 3, count) / 4
        roi = np.concatenate([low, low + d.random.integers(1, 4, count) / 4]).astype(np.float32)
        about["extrapolation_value"] = d.choose((0.0, 2.5))
    by_sizes = d.chance(0.5)
    if by_sizes and d.opset >= 18:
        policies = ("stretch", "stretch", "not_larger", "not_smaller")
        about["keep_aspect_ratio_policy"] = d.choose(policies)
    empty = None if d.opset >= 13 else np.zeros(0, np.float32)
    scaled = empty if by_sizes else np.array(scales, np.float32)
    roi = roi if roi is not None else empty
    return Drawn("Resize", [x, roi, scaled, np.array(sizes) if by_sizes else None], about)


def _upsample(d: Drawer) -> Drawn:
    shape = tuple(d.choose((1, 2, 3, 5)) for _ in range(d.choose((2, 4))))
    x = d.data(d.type("Upsample", ("float32", "float64", "int32", "uint8")), shape)
    factors = (1.0, 2.0, 4.0) if x.dtype.kind in "iu" else (1.0, 1.5, 2.0, 2.6, 3.0)
    scales = [d.choose(factors) for _ in shape]
    about = {"mode": d.choose(("nearest", "linear"))}
    if d.opset >= 9:
        return Drawn("Upsample", [x, np.array(scales, np.float32)], about)
    return Drawn("Upsample", [x], {**about, "scales": scales})


@recipe(1)
def _columns(d: Drawer) -> Drawn:
    block, image = [d.number(1, 3), d.number(1, 3)], [d.number(3, 7), d.number(3, 7)]
    strides, dilations = [d.number(1, 2), d.number(1, 2)], [d.number(1, 2), d.number(1, 2)]
    pads = [d.number(0, 2) for _ in range(4)]
    counts = [
        (image[a] + pads[a] + pads[a + 2] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a in range(2)
    ]
    if min(counts) < 1:
        raise LookupError
    shape = (d.number(1, 2), d.number(1, 3) * block[0] * block[1], counts[0] * counts[1])
    about = {"strides": strides, "dilations": dilations, "pads": pads}
    x = d.data(d.type("Col2Im", EVERY), shape)
    return Drawn("Col2Im", [x, np.array(image), np.array(block)], about)
