"""Cases of resampling and transposed convolution."""

from __future__ import annotations

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


CASES: list[Case] = transposed_convolutions()
