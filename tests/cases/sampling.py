"""Cases of values between elements and of parts of images."""

from __future__ import annotations

import itertools

import numpy as np

from tests.cases.case import Case, In, Sizes, node, weights

PADDINGS = ("zeros", "border", "reflection")
# Places in the middle, on edges, on elements, and beyond both ends, some of them by far.
PLACES = [0.1, -0.45, 1.0, -1.0, 0.95, -1.05, 1.3, -2.7, 0.0, 0.5, 6.25, -9.5, -0.97]
SIZES: tuple[Sizes, ...] = ({"N": 2, "H": 5, "M": 7}, {"N": 1, "H": 1, "M": 1},
                            {"N": 3, "H": 2, "M": 0})  # fmt: skip


def grids() -> list[Case]:
    x, grid = In((2, 3, 5, 6)), In((2, 4, 5, 2), values=PLACES)
    cases = [
        node(f"{mode}-{padding}-{corners}", "GridSample", x, grid, opset=opset, mode=mode,
             padding_mode=padding, align_corners=corners, length=length)
        for (opset, mode, length), padding, corners in itertools.product(
            ((16, "bilinear", 40), (20, "nearest", 0), (22, "cubic", 100)), PADDINGS, (0, 1)
        )
        if mode != "nearest" or corners == (padding == "border")
    ]  # fmt: skip
    volume, places = In((1, 2, 3, 4, 5)), In((1, 2, 3, 2, 3), values=PLACES)
    cases += [
        node("volume", "GridSample", volume, places, opset=20, padding_mode="reflection",
             length=40),
        # onnxruntime has cubic sampling of images only.
        node("volume-cubic", "GridSample", volume, places, opset=20, mode="cubic",
             padding_mode="border", length=200, witness=False),
        node("line", "GridSample", In((2, 3, 6)), In((2, 4, 1), values=PLACES), opset=20,
             length=20, witness=False),
        node("double", "GridSample", In((1, 1, 4, 4), "float64"),
             In((1, 3, 3, 2), "float64", values=PLACES), length=20, witness=False),
        node("half", "GridSample", In((1, 1, 4, 4), "float16"),
             In((1, 3, 3, 2), "float16", values=PLACES), length=20, witness=False),
        node("bytes", "GridSample", In((1, 2, 4, 4), "uint8", high=255),
             In((1, 3, 3, 2), values=PLACES), mode="nearest", witness=False),
    ]  # fmt: skip
    cases += [
        node(f"runtime-{padding}", "GridSample", In(("N", 2, "H", 3)),
             In(("N", 3, "M", 2), values=PLACES), mode=mode, padding_mode=padding, sizes=SIZES,
             batch=True, length=100)
        for mode, padding in (("linear", "border"), ("cubic", "reflection"))
    ]  # fmt: skip
    # Lanes run along channels, of which there are more than in a vector, or fewer.
    cases += [
        node(f"channels-{count}-{padding}", "GridSample", In((2, count, 3, 4)),
             In((2, 3, 5, 2), values=PLACES), opset=20, padding_mode=padding, length=40)
        for count, padding in ((8, "zeros"), (11, "border"), (33, "zeros"))
    ]  # fmt: skip
    cases += [
        node("channels-line", "GridSample", In((2, 9, 5)), In((2, 11, 1), values=PLACES), opset=20,
             mode="cubic", length=40, witness=False),
        # A run decides whether channels are laid beside each other.
        node("channels-open", "GridSample", In(("N", 9, "H", 6)),
             In(("N", "M", 1, 2), values=PLACES), opset=20, batch=True, length=40,
             sizes=(*SIZES, {"N": 1, "H": 9, "M": 3})),
        node("channels-runtime", "GridSample", In(("N", 16, "H", "M")),
             In(("N", "H", "M", 2), values=PLACES), opset=20, sizes=SIZES, batch=True, length=40),
    ]  # fmt: skip
    return cases


# Two corners: inside, beyond, tiny, wide, the wrong way around.
REGIONS = [
    *(1.2, 0.7, 6.1, 5.9),
    *(-3.0, -2.5, 4.0, 3.0),
    *(2.0, 3.0, 2.3, 3.1),
    *(0.0, 4.0, 5.9, 5.0),
    *(7.0, 6.0, 3.0, 2.0),
]
# Far larger than the image, on both sides or on one.
FAR = [*(-30.0, -40.0, 50.0, 35.0), *(0.5, -90.0, 2.5, 1.5)]


def regions() -> list[Case]:
    x, where = In((2, 3, 6, 5)), In((5, 4), values=REGIONS)
    images = np.array([0, 1, 1, 0, 1])
    cases = []
    for mode, ratio in itertools.product(("avg", "max"), (0, 2)):
        about = {"mode": mode, "sampling_ratio": ratio, "output_height": 3, "output_width": 2}
        name = f"{mode}-{ratio}"
        opset = 16 if mode == "avg" else 10
        cases.append(node(name, "RoiAlign", x, where, images, opset=opset, length=60,
                          spatial_scale=0.75, **about))  # fmt: skip
    cases += [
        node("far", "RoiAlign", In((1, 2, 2, 3)), In((2, 4), values=FAR), np.array([0, 0]),
             opset=16, output_height=2, length=500),
        node("far-max", "RoiAlign", In((1, 2, 2, 3)), In((2, 4), values=FAR), np.array([0, 0]),
             opset=16, mode="max"),
        node("corners", "RoiAlign", x, where, images, opset=22, output_width=3, length=60,
             coordinate_transformation_mode="output_half_pixel", witness=False),
        node("double", "RoiAlign", In((1, 2, 4, 4), "float64"),
             In((2, 4), "float64", values=REGIONS), np.array([0, 0]), opset=16, length=40),
        node("runtime", "RoiAlign", In(("N", 2, "H", 9)), In(("M", 4), values=REGIONS),
             In(("M",), "int64", high=1), opset=16, output_height=2, length=60,
             sizes=({"N": 1, "H": 8, "M": 5}, {"N": 2, "H": 1, "M": 1}, {"N": 1, "H": 3, "M": 0})),
    ]  # fmt: skip
    cases += [
        node("channels-open", "RoiAlign", In(("N", 9, "H", 9)), In(("M", 4), values=REGIONS),
             In(("M",), "int64", high=1), opset=16, output_height=2, length=60, sampling_ratio=1,
             sizes=({"N": 2, "H": 3, "M": 5}, {"N": 2, "H": 9, "M": 1}, {"N": 2, "H": 3, "M": 0}))
    ]  # fmt: skip
    cases += [
        node(
            f"channels-{ratio}",
            "RoiAlign",
            In((2, 10, 6, 5)),
            where,
            images,
            opset=16,
            sampling_ratio=ratio,
            output_height=3,
            output_width=2,
            length=60,
        )
        for ratio in (0, 2)
    ]
    return cases


# An image, a corner and the one across: inside, of one element, beyond, the wrong way around.
PARTS = [
    *(0.0, 1.0, 0.0, 5.0, 5.0),
    *(1.0, 2.0, 3.0, 2.0, 3.0),
    *(1.0, -4.0, -2.5, 2.5, 20.0),
    *(0.0, 30.0, 3.0, 40.0, 9.0),
    *(1.0, 4.0, 4.0, 1.0, 1.0),
]


def maxima() -> list[Case]:
    x, where = In((2, 3, 6, 5)), In((5, 5), values=PARTS)
    return [
        node("parts", "MaxRoiPool", x, where, opset=21, pooled_shape=[3, 2], ranks=(4,)),
        node("tall", "MaxRoiPool", In((2, 2, 33, 6)), where, opset=21, pooled_shape=[2, 3],
             spatial_scale=1.5),
        node("taller", "MaxRoiPool", In((2, 1, 130, 3)), where, opset=21, pooled_shape=[2, 2],
             spatial_scale=4.0),
        node("flat", "MaxRoiPool", In((2, 2, 1, 9)), where, opset=21, pooled_shape=[2, 2]),
        node("scaled", "MaxRoiPool", x, where, opset=21, pooled_shape=[1, 4], spatial_scale=0.5),
        node("runtime", "MaxRoiPool", In((2, "C", "H", 7)), In(("M", 5), values=PARTS), opset=22,
             pooled_shape=[2, 2], witness=False,
             sizes=({"C": 3, "H": 8, "M": 5}, {"C": 1, "H": 1, "M": 1}, {"C": 2, "H": 3, "M": 0})),
    ]  # fmt: skip


# Offsets: none, between elements, whole elements, and beyond all of them.
OFFSETS = [0.0, 0.3, -0.7, 1.0, -1.25, 2.5, 0.5, -9.0, 0.2, 14.0, -0.1, 1e30, -0.4]


def deformed() -> list[Case]:
    plane = In((2, 4, 5, 6))
    return [
        node("plain", "DeformConv", plane, weights(3, 4, 2, 3), In((2, 12, 4, 4), values=OFFSETS),
             opset=19, length=24),
        node("groups", "DeformConv", plane, weights(6, 2, 3, 2),
             In((2, 24, 3, 3), values=OFFSETS), weights(6), In((2, 12, 3, 3)), opset=22, length=12,
             group=2, offset_group=2, strides=[2, 2], pads=[1, 0, 1, 1], kernel_shape=[3, 2]),
        node("dilated", "DeformConv", In((1, 2, 7, 5)), In((2, 1, 2, 2)), In((1, 8, 5, 3)), None,
             In((1, 4, 5, 3)), opset=19, length=8, group=2, dilations=[2, 2]),
        node("channels-open", "DeformConv", In(("N", 8, "H", 4)), weights(2, 8, 2, 1),
             In(("N", 4, "M", 4), values=OFFSETS), opset=19, length=16, batch=True,
             sizes=({"N": 2, "H": 5, "M": 4}, {"N": 1, "H": 2, "M": 1}, {"N": 0, "H": 3, "M": 2})),
        node("channels", "DeformConv", In((2, 18, 5, 6)), weights(3, 18, 2, 3),
             In((2, 24, 4, 4), values=OFFSETS), opset=19, length=108, offset_group=2),
        # onnxruntime has images of float32 and float64 only.
        node("volume", "DeformConv", In((1, 2, 2, 3, 3)), weights(2, 2, 2, 2, 2),
             In((1, 24, 1, 2, 2), values=OFFSETS), opset=22, length=24, witness=False),
        node("double", "DeformConv", In((1, 1, 3, 4), "float64"), weights(1, 1, 2, 2, dtype="f8"),
             In((1, 8, 2, 3), "float64"), opset=22, length=4),
        node("half", "DeformConv", In((1, 2, 3, 4), "float16"), weights(2, 2, 2, 2, dtype="f2"),
             In((1, 8, 2, 3), "float16"), opset=22, length=8, witness=False),
        node("runtime", "DeformConv", In(("N", 2, "H", 4)), weights(2, 2, 2, 1),
             In(("N", 4, "M", 4), values=OFFSETS), opset=19, length=8, batch=True,
             sizes=({"N": 2, "H": 5, "M": 4}, {"N": 1, "H": 2, "M": 1}, {"N": 0, "H": 3, "M": 2})),
    ]  # fmt: skip


CASES = [*grids(), *regions(), *maxima(), *deformed()]
