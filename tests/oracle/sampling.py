"""GridSample, DeformConv, RoiAlign and MaxRoiPool as documents define them, point by point."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tests.oracle.graph import Array, Node, op


def _keys(t: float) -> list[float]:
    """Weights of elements at -1, 0, 1 and 2 for a place t behind the second (Keys, 1981)."""

    def kernel(d: float) -> float:
        d, a = abs(d), -0.75
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a

    return [kernel(t + 1), kernel(t), kernel(1 - t), kernel(2 - t)]


def _reflected(x: float, low: float, high: float) -> float:
    span = high - low
    if span <= 0:
        return low
    x = (x - low) % (2 * span)
    return low + min(x, 2 * span - x)


def _place(g: float, extent: int, node: Node) -> float:
    if node.get("align_corners", 0):
        return (g + 1) / 2 * (extent - 1)
    return ((g + 1) * extent - 1) / 2


@op("GridSample")
def _grid_sample(node: Node, x: Array, grid: Array) -> Array:
    spatial = x.shape[2:]
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *place in np.ndindex(len(x), *grid.shape[1:-1]):
        taps = [
            _taps(_place(g, extent, node), extent, node)
            for g, extent in zip(grid[(n, *place)][::-1], spatial, strict=True)
        ]
        for chosen in itertools.product(*taps):
            if all(0 <= i < extent for (i, _), extent in zip(chosen, spatial, strict=True)):
                element = x[(n, slice(None), *(i for i, _ in chosen))]
                y[(n, slice(None), *place)] += element * math.prod(w for _, w in chosen)
    return y


def _taps(place: float, extent: int, node: Node) -> list[tuple[int, float]]:
    """Positions and weights along an axis, which padding moves to elements that exist."""
    mode, corners = node.get("mode", "linear"), node.get("align_corners", 0)
    padding = node.get("padding_mode", "zeros")
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    if mode == "nearest":
        found = [(float(np.rint(place)), 1.0)]
    elif mode in ("cubic", "bicubic"):
        base = math.floor(place)
        found = list(zip(range(base - 1, base + 3), _keys(place - base), strict=True))
    else:
        if padding == "border":
            place = min(max(place, 0), extent - 1)
        elif padding == "reflection":
            place = _reflected(place, low, high)
        base = math.floor(place)
        found = [(base, 1 - place + base), (base + 1, place - base)]
    if padding == "border":
        return [(int(min(max(i, 0), extent - 1)), w) for i, w in found]
    if padding == "reflection":
        return [(min(max(int(_reflected(i, low, high)), 0), extent - 1), w) for i, w in found]
    return [(int(i), w) for i, w in found]


@op("RoiAlign")
def _roi_align(node: Node, x: Array, regions: Array, images: Array) -> Array:
    bins = node.get("output_height", 1), node.get("output_width", 1)
    centred = node.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    offset = 0.5 if centred and node.opset >= 16 else 0.0
    y = np.zeros((len(regions), x.shape[1], *bins))
    for r, region in enumerate(regions):
        corners = region * node.get("spatial_scale", 1.0) - offset
        starts, sizes = corners[1::-1], corners[3:1:-1] - corners[1::-1]
        if not offset:
            sizes = np.maximum(sizes, 1)
        sizes = sizes / bins
        counts = [node.get("sampling_ratio", 0) or max(math.ceil(s), 0) for s in sizes]
        for place in np.ndindex(*bins):
            samples = [
                [b + p * s + (i + 0.5) * s / n for i in range(n)]
                for b, p, s, n in zip(starts, place, sizes, counts, strict=True)
            ]
            values = [
                _between(x[images[r]], at, node.get("mode", "avg"))
                for at in itertools.product(*samples)
            ]
            if values:
                combined = np.max(values, 0) if node.get("mode") == "max" else np.mean(values, 0)
                y[(r, slice(None), *place)] = combined
    return y


def _between(image: Array, at: tuple[float, ...], mode: str) -> Array:
    """A sample of all channels: the sum of four weighted elements, or the largest of them."""
    taps = []
    for place, extent in zip(at, image.shape[1:], strict=True):
        if not -1 <= place <= extent:
            return np.zeros(len(image))
        place = min(max(place, 0), extent - 1)
        low = math.floor(place)
        taps.append([(low, 1 - place + low), (min(low + 1, extent - 1), place - low)])
    values = [image[:, i, j] * v * w for (i, v), (j, w) in itertools.product(*taps)]
    return np.max(values, 0) if mode == "max" else np.sum(values, 0)


@op("DeformConv")
def _deform_conv(
    node: Node,
    x: Array,
    w: Array,
    offsets: Array,
    bias: Array | None = None,
    mask: Array | None = None,
) -> Array:
    group, parts = node.get("group", 1), node.get("offset_group", 1)
    kernel, rank, (n, channels) = w.shape[2:], x.ndim - 2, x.shape[:2]
    strides, dilations = (node.get(name, [1] * rank) for name in ("strides", "dilations"))
    begins = node.get("pads", [0] * rank)[:rank]
    spatial = offsets.shape[2:]
    moved = offsets.reshape(n, parts, *kernel, rank, *spatial)
    scale = np.ones((n, parts, *kernel, *spatial)) if mask is None else mask
    scale = scale.reshape(n, parts, *kernel, *spatial)
    y = np.zeros((n, len(w), *spatial))
    for b, c, *rest in np.ndindex(n, channels, *kernel, *spatial):
        tap, out = rest[:rank], rest[rank:]
        part = c // (channels // parts)
        ends = []
        for i in range(rank):
            place = float(moved[(b, part, *tap, i, *out)])
            place += out[i] * strides[i] - begins[i] + tap[i] * dilations[i]
            low = math.floor(place)
            ends.append([(low, 1 - place + low), (low + 1, place - low)])
        value = 0.0
        for chosen in itertools.product(*ends):
            if all(0 <= p < size for (p, _), size in zip(chosen, x.shape[2:], strict=True)):
                element = x[(b, c, *(p for p, _ in chosen))]
                value += element * math.prod(share for _, share in chosen)
        first = c // w.shape[1] * (len(w) // group)
        filters = slice(first, first + len(w) // group)
        column = w[(filters, c % w.shape[1], *tap)]
        y[(b, filters, *out)] += column * value * scale[(b, part, *tap, *out)]
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


@op("MaxRoiPool")
def _max_roi_pool(node: Node, x: Array, regions: Array) -> Array:
    bins, scale = node.get("pooled_shape"), node.get("spatial_scale", 1.0)
    y = np.zeros((len(regions), x.shape[1], *bins))
    for r, (image, *corners) in enumerate(regions):
        left, top, right, bottom = (
            int(math.copysign(math.floor(abs(c * scale) + 0.5), c)) for c in corners
        )
        for place in np.ndindex(*bins):
            taken = []
            for p, count, low, high, extent in zip(
                place, bins, (top, left), (bottom, right), x.shape[2:], strict=True
            ):
                size = max(high - low + 1, 1) / count
                ends = low + math.floor(p * size), low + math.ceil((p + 1) * size)
                taken.append(slice(*(min(max(end, 0), extent) for end in ends)))
            part = x[(int(image), slice(None), *taken)]
            if part.size:
                y[(r, slice(None), *place)] = part.max((1, 2))
    return y
