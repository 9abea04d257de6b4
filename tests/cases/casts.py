"""Cases of conversions between element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.cases.case import BATCHES, Case, In, element_type, model_of, node

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TYPES = (*INTEGERS, "float16", "bfloat16", "float32", "float64", "bool")
# Those whose every conversion onnxruntime defines.
PLAIN = tuple(t for t in TYPES if t not in ("bfloat16", "uint32"))
# Both sides of what each integer type holds, ties of the 16-bit floats, fractions, no numbers.
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 2.75, -3.25, 0.5, -0.5, 100.0, -100.0, 127.5, -128.5, 200.7, 255.9,
    -129.0, 300.7, 32767.5, -32769.0, 40000.0, 65535.5, 70000.0, 2049.0, 2051.0, 65519.0, 65520.0,
    2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 3e9, 4294967040.0, 4294967296.0,
    -3e9, 1e10, -1e10, 9.2e18, 9223372036854775808.0, 1.8e19, -9.3e18, 1e20, -1e20, 1e-40,
    float("inf"), float("-inf"),
)  # fmt: skip


def values_of(dtype: str) -> list[Any]:
    if dtype == "bool":
        return [True, False, False]
    if dtype not in INTEGERS:
        return [*FLOATS]
    limits = np.iinfo(dtype)
    inner = [
        0,
        1,
        2,
        100,
        -1,
        -100,
        127,
        200,
        255,
        256,
        32767,
        40000,
        65536,
        2**24 + 1,
        2**31,
        -129,
    ]
    fitting = [n for n in inner if limits.min <= n <= limits.max]
    return [*fitting, limits.min, limits.max, limits.max // 3]


def from_each_type() -> list[Case]:
    nan = [float("nan"), 1.0]
    return [
        *(casts_of(source, source, values_of(source), TYPES) for source in TYPES),
        *(
            casts_of(f"plain-{source}", source, values_of(source), PLAIN)
            for source in TYPES
            if source != "bfloat16"
        ),
        # Comparing NaNs of bfloat16 is beyond NumPy.
        *(
            casts_of(f"nan-{source}", source, nan, PLAIN)
            for source in ("float16", "float32", "float64")
        ),
    ]


def casts_of(name: str, source: str, values: list[Any], to: Sequence[str]) -> Case:
    x = In((47,), source, values=values)
    targets = [t for t in to if t != source]
    # In onnxruntime it depends on the position what becomes of huge floats as uint32.
    witness = not {"bfloat16", "uint32"} & set(targets)

    def build() -> onnx.ModelProto:
        nodes = [helper.make_node("Cast", ["x"], [f"y.{t}"], to=element_type(t)) for t in targets]
        return model_of(nodes, {"x": x}, [f"y.{t}" for t in targets], {}, 21)

    # float64 is rounded to float16 by way of float32.
    return Case(f"Cast-{name}", build, {"x": x}, ulps=0.51, witness=witness)


def bit_casts() -> list[Case]:
    pairs = (
        ("float32", "int32"), ("uint32", "float32"), ("float64", "uint64"), ("int64", "float64"),
        ("float16", "uint16"), ("int16", "float16"), ("bfloat16", "uint16"), ("uint16", "bfloat16"),
        ("float16", "bfloat16"), ("int8", "uint8"), ("uint16", "int16"), ("bool", "uint8"),
        ("uint8", "bool"), ("int32", "int32"),
    )  # fmt: skip
    return [
        node(
            f"{source}-{target}",
            "BitCast",
            In(
                (3, 7),
                source,
                values=[0, 1, 77] if target in ("bool", "bfloat16") else values_of(source),
            ),
            to=element_type(target),
            opset=26,
            witness=False,
            ulps=0,
        )
        for source, target in pairs
    ]


def versions() -> list[Case]:
    return [
        node(f"since{opset}", "Cast", In((9,), scale=50), to=6, opset=opset)
        for opset in (6, 9, 13, 19, 23)
    ] + [
        node("named", "Cast", In((9,), scale=50), to="INT32", opset=1, witness=False, ranks=[1]),
        node("like", "CastLike", In((5,), "int32", high=9), In((2,), "float64")),
        node("like-half", "CastLike", In((5,)), In((2,), "float16"), ulps=0.5),
        node("batch", "Cast", In(("N", 19), scale=1e5), to=3, sizes=BATCHES, batch=True),
        node("batch-f16", "Cast", In(("N", 19), "int16", low=-3000, high=3000), to=10,
             sizes=BATCHES, batch=True, ulps=0.5),
        node("scalar", "Cast", In(()), to=7),
    ]  # fmt: skip


CASES = [*from_each_type(), *bit_casts(), *versions()]
