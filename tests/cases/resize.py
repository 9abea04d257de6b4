"""Cases of resampling and transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cases.case import BATCHES, Case, In, Sizes, node, text, weights

EXTENTS: tuple[Sizes, ...] = ({"T": 5}, {"T": 40}, {"T": 1})


def transposed(
    name: str,
    shape: tuple[int | str, ...],
    weight: tuple[int, ...],
    bias: bool = False,
    dtype: str = "float32",
    **rest: Any,
) -> Case:
    operands: list[Any] = [In(shape, dtype), weights(*weight, dtype=dtype)]
    if bias:
        operands.append(weights(weight[1] * rest.get("group", 1), dtype=dtype, seed=1))
    length = float(np.prod(weight) / weight[1]) + 1
    opset = rest.pop("opset", 11)
    return node(name, "ConvTranspose", *operands, length=length, opset=opset, **rest)


def transposed_convolutions() -> list[Case]:
    one = transposed
    cases = [
        one("1d", (2, 3, 9), (3, 4, 3), bias=True),
        one("1d-one-tap", (2, 3, 9), (3, 20, 1)),
        one("2d", (1, 3, 4, 5), (3, 5, 3, 2), bias=True),
        one("3d", (1, 2, 3, 2, 4), (2, 3, 2, 3, 2), strides=[1, 2, 2], pads=[0, 1, 0, 1, 0, 1]),
        one("doubles", (1, 4, 6, 7), (4, 3, 4, 4), bias=True, strides=[2, 2], pads=[1, 1, 1, 1]),
        one("doubles-2", (1, 4, 6, 18), (4, 3, 2, 2), strides=[2, 2]),
        one("odd-kernel", (2, 3, 6), (3, 4, 3), strides=[2], bias=True),
        one("odd-kernel-padded", (2, 3, 6), (3, 4, 3), strides=[2], pads=[1, 1]),
        one("output-padding", (1, 2, 5, 4), (2, 3, 3, 3), strides=[3, 2], output_padding=[2, 1],
            bias=True),
        one("kernel-below-stride", (1, 3, 6), (3, 4, 2), strides=[5], bias=True),
        one("hop", (1, 3, 6), (3, 1, 16), strides=[8], pads=[4, 4]),
        one("dilated", (1, 2, 7), (2, 3, 3), dilations=[2], pads=[1, 2]),
        one("dilated-strided", (1, 2, 7), (2, 3, 4), dilations=[3], strides=[2], pads=[1, 0]),
        one("dilated-common", (1, 2, 7), (2, 3, 4), dilations=[4], strides=[6], bias=True),
        one("grouped", (2, 4, 6), (4, 3, 3), group=2, strides=[2], bias=True),
        one("depthwise", (1, 6, 5, 5), (6, 1, 3, 3), group=6, strides=[2, 2], pads=[1, 1, 1, 1]),
        one("crops-all-of-one", (1, 2, 1), (2, 3, 3), pads=[1, 1]),
        one("everything", (2, 4, 5, 4), (4, 3, 3, 2), group=2, strides=[2, 3], dilations=[1, 2],
            pads=[1, 0, 2, 1], output_padding=[1, 0], kernel_shape=[3, 2], bias=True),
        one("output-shape", (1, 2, 3, 3), (2, 3, 3, 3), strides=[3, 2], output_shape=[8, 6]),
        one("output-shape-upper", (1, 2, 5), (2, 3, 4), strides=[2], output_shape=[9],
            auto_pad="SAME_UPPER"),
        # Larger than what the kernel reaches: zeros follow. onnxruntime agrees on nothing here.
        one("output-shape-beyond", (1, 2, 3), (2, 3, 3), strides=[3], output_shape=[11],
            bias=True, witness=False),
        one("valid", (1, 2, 5), (2, 3, 3), strides=[2], auto_pad="VALID"),
        one("same-small-kernel", (1, 2, 5), (2, 3, 2), strides=[3], auto_pad="SAME_UPPER",
            witness=False),
        one("f64", (1, 2, 5), (2, 3, 3), strides=[2], dtype="float64", witness=False),
        one("opset22", (1, 2, 5), (2, 3, 3), strides=[2], opset=22),
        one("batch", ("N", 2, 9), (2, 3, 4), sizes=BATCHES, batch=True, strides=[2], pads=[1, 1]),
        one("runtime", (1, 2, "T"), (2, 17, 3), sizes=EXTENTS, strides=[2], bias=True),
        one("runtime-hop", (1, 2, "T"), (2, 3, 16), sizes=EXTENTS, strides=[8], pads=[4, 3]),
        one("runtime-same", (1, 2, "T"), (2, 3, 4), sizes=EXTENTS, auto_pad="SAME_LOWER",
            strides=[3]),
        one("winograd", ("N", 48, 17, 18), (48, 56, 4, 5), sizes=({"N": 1}, {"N": 2}), batch=True,
            strides=[2, 2], pads=[1, 2, 1, 2], output_padding=[0, 1], bias=True),
        one("winograd-runtime", (1, 56, 16, "T"), (56, 64, 5, 2), strides=[2, 1],
            pads=[2, 0, 2, 1], output_padding=[1, 0], bias=True,
            sizes=({"T": 20}, {"T": 2}, {"T": 33})),
        one("runtime-2d", (1, 2, "T", "U"), (2, 3, 3, 3), strides=[2, 2],
            sizes=({"T": 3, "U": 5}, {"T": 9, "U": 20})),
        node("runtime-weights", "ConvTranspose", In((1, 3, 6)), In((3, 5, 2)), In((5,)),
             opset=11, length=7),
    ]  # fmt: skip
    for pad in ("SAME_UPPER", "SAME_LOWER"):
        for stride in (1, 2, 3):
            # onnxruntime swaps the two where the padding is odd.
            cases.append(
                one(f"{pad}-{stride}", (1, 2, 5, 4), (2, 3, 3, 4), auto_pad=pad,
                    strides=[stride, stride])
            )  # fmt: skip
    cases.append(
        text(
            "ConvTranspose-activated",
            """agraph (float[1, 3, T] x) => (float[1, 4, U] y) {
                a = ConvTranspose<strides = [2], pads = [1, 1]>(x, w, b)  y = Tanh(a)
            }""",
            EXTENTS,
            constants={"w": weights(3, 4, 4), "b": weights(4)},
            length=7,
        )
    )
    return cases


TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resized(
    name: str,
    x: In,
    *,
    scales: Sequence[float] | None = None,
    to: Sequence[int] | None = None,
    roi: Sequence[float] | None = None,
    opset: int = 19,
    **rest: Any,
) -> Case:
    """A case of Resize. Weights follow from coordinates in float32, which are off by some ulps of
    the largest coordinate."""
    operands = [
        None if roi is None else np.array(roi, x.dtype),
        None if scales is None else np.array(scales, np.float32),
        None if to is None else np.array(to, np.int64),
    ]
    if opset < 11:
        operands = operands[1:2]
    while operands[-1] is None:
        operands.pop()
    return node(name, "Resize", x, *operands, opset=opset, length=64, **rest)


def resizes() -> list[Case]:
    one, image, line = resized, In((1, 2, 6, 8)), In((2, 3, 8))
    # onnxruntime cuts fractions off.
    cases = [
        one(f"{mode}-{dtype}", In((1, 2, 6, 8), dtype, low=0, high=120), scales=[1, 1, 2, 4],
            mode=mode, witness=False)
        for mode in ("linear", "cubic")
        for dtype in ("uint8", "int8", "int32", "uint32", "int64", "uint64")
    ]  # fmt: skip
    for number, transform in enumerate(TRANSFORMS):
        for shift, mode in enumerate(("nearest", "linear", "cubic")):
            how = {"mode": mode, "coordinate_transformation_mode": transform}
            # onnxruntime aligns corners to the whole number of outputs.
            same = transform != "align_corners"
            found = [
                one(f"{mode}-{transform}-up", image, scales=[1, 1, 2, 1.5], **how),
                one(f"{mode}-{transform}-down", image, scales=[1, 1, 0.5, 0.625], **how),
                one(f"{mode}-{transform}-inexact", image, scales=[1, 1, 0.6, 2.2],
                    witness=same, **how),
                one(f"{mode}-{transform}-sizes", image, to=[1, 2, 9, 5], **how),
                one(f"{mode}-{transform}-one", image, to=[1, 2, 1, 1], **how),
            ]  # fmt: skip
            # Coordinates are constants by then: every mode runs each size with one of them.
            chosen = found[(number + shift) % len(found)]
            cases += [replace(case, every_mode=case is chosen) for case in found]
        for place, rounding in enumerate(ROUNDINGS):
            how = {"nearest_mode": rounding, "coordinate_transformation_mode": transform}
            found = [
                one(f"{rounding}-{transform}-twice", image, scales=[1, 1, 2, 3], **how),
                one(f"{rounding}-{transform}-down", image, to=[1, 2, 3, 5], **how),
            ]
            cases += [replace(case, every_mode=place == number) for case in found]
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "to": [1, 2, 5, 4]}
    region = [0, 0, 0.25, -0.2, 1, 1, 0.75, 1.1]
    for mode in ("nearest", "linear", "cubic"):
        cases += [
            one(f"{mode}-crop", image, roi=region, mode=mode, extrapolation_value=7.5, **crop),
            one(f"{mode}-antialias", image, scales=[1, 1, 0.4, 0.7], mode=mode, antialias=1)
            if mode != "nearest"
            else one("nearest-crop-one", image, roi=region, **{**crop, "to": [1, 2, 1, 1]}),
        ]  # fmt: skip
    cases += [
        one("tf-half-pixel", image, scales=[1, 1, 2, 1.5], opset=11, roi=[],
            coordinate_transformation_mode="tf_half_pixel_for_nn"),
        one("cubic-excludes", image, scales=[1, 1, 1.5, 0.8], mode="cubic", exclude_outside=1,
            cubic_coeff_a=-0.5),
        one("cubic-antialias-excludes", image, scales=[1, 1, 0.5, 0.8], mode="cubic", antialias=1,
            exclude_outside=1),
        one("axes", image, scales=[2, 1.5], axes=[3, 2], mode="linear"),
        one("negative-axes", image, to=[3, 4], axes=[-1, -2]),
        one("not-larger", image, to=[9, 9], axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
        one("not-smaller", image, to=[9, 9], axes=[2, 3], keep_aspect_ratio_policy="not_smaller",
            mode="linear"),
        *(node(f"runtime-{policy}", "Resize", In((1, 2, "T", 8)), None, None,
               In((2,), "int64", values=["H", "W"]), axes=[2, 3], opset=19, mode="linear",
               keep_aspect_ratio_policy=policy, length=64,
               sizes=({"T": 6, "H": 9, "W": 9}, {"T": 12, "H": 3, "W": 5}, {"T": 3, "H": 3, "W": 8})
               )
          for policy in ("not_larger", "not_smaller")),
        *(node(f"runtime-antialias-{mode}", "Resize", image, None, None,
               In((2,), "int64", values=["H", "W"]), axes=[2, 3], opset=19, mode=mode, antialias=1,
               length=64, sizes=({"H": 2, "W": 3}, {"H": 1, "W": 12}))
          for mode in ("linear", "cubic")),
        *(node(f"any-scale-{mode}", "Resize", In((2, "T", "U")), None,
               np.array([1, 0.3, 2.6], np.float32), mode=mode, opset=19, length=64,
               sizes=({"T": 10, "U": 5}, {"T": 45, "U": 17}, {"T": 3, "U": 1}))
          for mode in ("linear", "nearest")),
        one("every-axis", In((2, 3, 4)), scales=[2, 2, 2], opset=11, roi=[], mode="linear"),
        one("opset10", image, scales=[1, 1, 2, 1.5], opset=10, mode="linear"),
        one("opset10-nearest-down", image, scales=[1, 1, 0.7, 0.4], opset=10),
        one("opset10-nearest-both", image, scales=[1, 1, 0.6, 1.7], opset=10),
        one("opset13", line, scales=[1, 1, 2], opset=13, mode="linear", witness=False),
        one("identity", image, scales=[1, 1, 1, 1], mode="cubic"),
        one("none", image, to=[1, 2, 0, 4], mode="linear", witness=False),
        one("no-rows", In((0, 2, 6, 8)), scales=[1, 1, 2, 2], mode="linear", witness=False),
        one("f64", In((1, 1, 4, 5), "float64"), scales=[1, 1, 2, 1.5], mode="linear",
            witness=False),
        one("int8", In((1, 1, 4, 5), "int8", low=-9, high=9), scales=[1, 1, 3, 1.5]),
        one("runtime-twice", In((1, 2, "T", "U")), scales=[1, 1, 2, 2],
            sizes=({"T": 3, "U": 5}, {"T": 1, "U": 1}, {"T": 9, "U": 20})),
        one("runtime-linear", In((1, 2, "T")), scales=[1, 1, 1.5], sizes=EXTENTS, mode="linear"),
        one("runtime-down", In((1, 2, "T")), scales=[1, 1, 0.25], sizes=EXTENTS,
            nearest_mode="floor", coordinate_transformation_mode="align_corners", witness=False),
        one("runtime-to-seven", In((1, 2, "T")), to=[1, 2, 7], sizes=EXTENTS, mode="cubic",
            witness=False),
        node("height-width", "Upsample", image, opset=1, ranks=[4], height_scale=2.0,
             width_scale=1.5, mode="bilinear", length=64, witness=False),
        node("scales", "Upsample", image, opset=7, scales=[1.0, 1.0, 2.0, 3.0]),
        node("linear-int64", "Upsample", In((1, 2, 6), "int64", low=-99, high=99),
             np.array([1, 1, 1.5], np.float32), opset=9, mode="linear", witness=False),
        node("linear", "Upsample", image, np.array([1, 1, 2, 1.5], np.float32), opset=9,
             mode="linear", length=64),
        text(
            "Resize-batch",
            """agraph (float[N, 2, 9] x) => (float[N, 2, 13] y) {
                y = Resize<mode = "linear">(x, , scales)
            }""",
            BATCHES,
            constants={"scales": np.array([1, 1, 1.5], np.float32)},
            opset=19,
            batch=True,
            length=64,
        ),
        text(
            "Resize-to-the-size-of-another",
            """agraph (float[1, 2, T] x, float[1, 2, U] like) => (float[1, 2, U] y) {
                s = Shape(like)  y = Resize<mode = "linear">(x, , , s)
            }""",
            ({"T": 4, "U": 9}, {"T": 20, "U": 3}, {"T": 1, "U": 1}, {"T": 3, "U": 0}),
            opset=19,
            length=64,
            witness=False,
        ),
    ]  # fmt: skip
    return cases


CASES: list[Case] = [*transposed_convolutions(), *resizes()]
