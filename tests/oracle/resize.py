"""Resampling and transposed convolution as their documents define them."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tests.oracle.graph import Array, Node, op


@op("ConvTranspose")
def _conv_transpose(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    rank, group = x.ndim - 2, node.get("group", 1)
    kernel, extents = w.shape[2:], x.shape[2:]
    strides = node.get("strides", [1] * rank)
    dilations = node.get("dilations", [1] * rank)
    extra = node.get("output_padding", [0] * rank)
    pads = node.get("pads", [0] * 2 * rank)
    full = [
        strides[i] * (extents[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        for i in range(rank)
    ]
    automatic, asked = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if asked is None and automatic.startswith("SAME"):
        asked = [n * s for n, s in zip(extents, strides, strict=True)]
    if asked is None:
        starts = pads[:rank]
        asked = [full[i] - pads[i] - pads[i + rank] for i in range(rank)]
    else:
        total = [max(0, f - o) for f, o in zip(full, asked, strict=True)]
        starts = [t // 2 if automatic == "SAME_UPPER" else t - t // 2 for t in total]
    per_group, depth = w.shape[1], x.shape[1] // group
    y = np.zeros((x.shape[0], per_group * group, *asked))
    for place in itertools.product(*map(range, extents)):
        for tap in itertools.product(*map(range, kernel)):
            at = [place[i] * strides[i] + tap[i] * dilations[i] - starts[i] for i in range(rank)]
            if not all(0 <= a < n for a, n in zip(at, asked, strict=True)):
                continue
            for g in range(group):
                c = slice(g * depth, (g + 1) * depth)
                y[(slice(None), slice(g * per_group, (g + 1) * per_group), *at)] += (
                    x[(slice(None), c, *place)] @ w[(c, slice(None), *tap)]
                )
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def _weight(mode: str, d: float, a: float) -> float:
    """The weight of an element at distance `d`."""
    d = abs(d)
    if mode == "linear":
        return max(0.0, 1 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _coordinate(transform: str, i: int, n: int, m: int, scale: float, ends: tuple) -> float:
    width = scale * n
    if transform == "align_corners":
        return 0.0 if width == 1 else i * (n - 1) / (width - 1)
    if transform == "asymmetric":
        return i / scale
    if transform == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if transform == "tf_crop_and_resize":
        start, end = ends
        if m == 1:
            return 0.5 * (start + end) * (n - 1)
        return start * (n - 1) + i * (end - start) * (n - 1) / (m - 1)
    if transform == "pytorch_half_pixel" and m == 1:
        return 0.0
    x = (i + 0.5) / scale - 0.5
    return x + n / 2 * (1 - m / width) if transform == "half_pixel_symmetric" else x


NEAREST = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
}


def _axis_weights(node: Node, n: int, m: int, scale: float, ends: tuple) -> tuple[Array, Array]:
    """A matrix [output, element], and which outputs lie outside."""
    mode = node.get("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    plain = node.opset < 11
    transform = node.get("coordinate_transformation_mode", "asymmetric" if plain else "half_pixel")
    # The document of opset 10 does not say how it rounds: as onnxruntime does.
    default = "ceil" if plain and scale < 1 else "floor" if plain else "round_prefer_floor"
    rounding = node.get("nearest_mode", default)
    a = node.get("cubic_coeff_a", -0.75)
    stretch = min(scale, 1.0) if node.get("antialias", 0) else 1.0
    matrix, outside = np.zeros((m, n)), np.zeros(m, bool)
    for i in range(m):
        x = _coordinate(transform, i, n, m, scale, ends)
        outside[i] = transform == "tf_crop_and_resize" and not 0 <= x <= n - 1
        if mode == "nearest":
            matrix[i, min(max(NEAREST[rounding](x), 0), n - 1)] = 1
            continue
        reach = math.ceil(2 / stretch) + 1
        taps = range(math.floor(x) - reach, math.floor(x) + reach + 2)
        found = np.array([_weight(mode, (k - x) * stretch, a) for k in taps])
        if node.get("exclude_outside", 0):
            found[[not 0 <= k < n for k in taps]] = 0
        for k, weight in zip(taps, found / found.sum(), strict=True):
            matrix[i, min(max(k, 0), n - 1)] += weight
    return matrix, outside


def _stretched(node: Node, x: Array, plan: dict[int, tuple[int, float, tuple]]) -> Array:
    filled = {}
    for axis, (m, scale, ends) in plan.items():
        matrix, filled[axis] = _axis_weights(node, x.shape[axis], m, scale, ends)
        moved = np.tensordot(matrix.astype(x.dtype), np.moveaxis(x, axis, 0), 1)
        x = np.moveaxis(moved, 0, axis)
    for axis, outside in filled.items():
        np.moveaxis(x, axis, 0)[outside] = node.get("extrapolation_value", 0)
    return x


@op("Resize", "Upsample")
def _resize(node: Node, x: Array, *operands: Array | None) -> Array:
    axes = [a % x.ndim for a in node.get("axes", range(x.ndim))]
    extents = [x.shape[a] for a in axes]
    roi, scales, sizes = (*operands, None, None, None)[:3]
    if node.opset < 11:
        roi, scales = None, node.get("scales") if roi is None else roi
        if scales is None:
            scales = [1, 1, node.get("height_scale"), node.get("width_scale")]
    if sizes is None:
        products = [np.float32(n) * np.float32(s) for n, s in zip(extents, scales, strict=True)]
        wanted = [math.floor(product) for product in products]
    else:
        ratios = [s / n for n, s in zip(extents, sizes, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        wanted = [int(s) for s in sizes]
        scales = ratios
        if policy != "stretch":
            common = min(ratios) if policy == "not_larger" else max(ratios)
            scales = [common] * len(axes)
            wanted = [math.floor(common * n + 0.5) for n in extents]
    count = len(axes)
    ends = (
        [(0, 1)] * count
        if roi is None or not len(roi)
        else list(zip(roi[:count], roi[count:], strict=True))
    )
    plan = zip(axes, zip(wanted, scales, ends, strict=True), strict=True)
    if x.dtype.kind == "f" or node.get("mode", "nearest") == "nearest":
        return _stretched(node, x, dict(plan))
    limits, wide = np.iinfo(x.dtype), _stretched(node, x.astype(np.float64), dict(plan))
    return np.clip(np.rint(wide), limits.min, limits.max).astype(x.dtype)
