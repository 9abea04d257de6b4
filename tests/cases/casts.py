"""Cases of conversions between element types."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.cases.case import BATCHES, Case, In, element_type, model_of, node, text

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
    return Case(f"Cast-{name}", build, {"x": x}, ulps=0.51, witness=witness, operator="Cast")


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


def _to_int32(case: Case) -> Case:
    """The case with an output declared as what it is, which no inference knows in old versions."""

    def build() -> onnx.ModelProto:
        model = case.build()
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
        return model

    return dataclasses.replace(case, build=build)


def versions() -> list[Case]:
    return [
        node(f"since{opset}", "Cast", In((9,), scale=50), to=6, opset=opset)
        for opset in (6, 9, 13, 19, 23)
    ] + [
        _to_int32(
            node("named", "Cast", In((9,), scale=50), to="INT32", opset=1, witness=False, ranks=[1])
        ),
        node("like", "CastLike", In((5,), "int32", high=9), In((2,), "float64")),
        node("like-half", "CastLike", In((5,)), In((2,), "float16"), ulps=0.5),
        node("batch", "Cast", In(("N", 19), scale=1e5), to=3, sizes=BATCHES, batch=True),
        node("batch-f16", "Cast", In(("N", 19), "int16", low=-3000, high=3000), to=10,
             sizes=BATCHES, batch=True, ulps=0.5),
        node("scalar", "Cast", In(()), to=7),
    ]  # fmt: skip


# What floats of 8 bits hold, its neighbours and ties, and numbers that are too large or small.
BYTES = (
    *(sign * 2.0**power * part for sign in (1, -1) for power in (-17, -10, -7, -1, 0, 7, 15)
      for part in (1.0, 1.0625, 1.125, 1.1875, 1.25, 1.875, 1.9375)),
    448.0, 464.0, 465.0, 240.0, 248.0, 249.0, 57344.0, 61440.0, 61441.0, 1e9, -1e9, 0.0, -0.0,
    1e-30, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


def byte_floats() -> list[Case]:
    names = ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
    x = In((len(BYTES),), values=BYTES)
    cases = []
    for number, name in enumerate(names, 17):
        source = f"""agraph (float[{len(BYTES)}] x)
                => (float[N] y, float16[N] half, float[N] open, int32[N] whole, float[A, B] moved,
                    float[C] like) {{
            a = Cast<to = {number}>(x)  y = Cast<to = 1>(a)  half = Cast<to = 10>(a)
            b = Cast<to = {number}, saturate = 0>(x)  open = Cast<to = 1>(b)
            c = Cast<to = {number}>(small)  whole = Cast<to = 6>(c)
            d = Reshape(a, rows)  e = Transpose<perm = [1, 0]>(d)  moved = Cast<to = 1>(e)
            f = CastLike(small, e)  like = Cast<to = 1>(f)
        }}"""
        constants = {
            "small": np.array([1, -3, 200, 0, 40]),
            "rows": np.array([5, -1]),
        }
        # onnxruntime takes NaN for what is too large for e5m2, where the documents have infinity.
        demands = {"constants": constants, "ulps": 0, "witness": name != "e5m2"}
        cases.append(text(f"Cast-bytes-{name}", source, inputs={"x": x}, **demands))
    modes = "  ".join(
        f'{mode}{s} = Cast<to = 24, saturate = {s}, round_mode = "{mode}">(x)  '
        f"y{mode}{s} = Cast<to = 1>({mode}{s})"
        for mode in ("up", "down", "nearest")
        for s in (0, 1)
    )
    outputs = ", ".join(f"float[N] y{m}{s}" for m in ("up", "down", "nearest") for s in (0, 1))
    source = f"agraph (float[{len(BYTES)}] x) => ({outputs}) {{ {modes} }}"
    powers = text("Cast-powers-of-two", source, inputs={"x": x}, opset=24, ulps=0, witness=False)
    return [*cases, powers]


def of_sizes() -> list[Case]:
    """Sizes, some of them negative, as every type of integers."""
    types = {"int8": 3, "int16": 5, "int32": 6, "uint8": 2, "uint16": 4, "uint32": 12, "uint64": 13}
    outputs = ", ".join(f"{name}[1] {name}_size" for name in types)
    casts = "  ".join(f"{name}_size = Cast<to = {to}>(n)" for name, to in types.items())
    source = f"""agraph (float[M] x) => ({outputs}) {{
        m = Shape(x)  three = Constant<value_ints = [3]>()  n = Sub(three, m)  {casts}
    }}"""
    return [text("Cast-sizes", source, ({"M": 1}, {"M": 7}, {"M": 300}, {"M": 0}))]


CASES = [*from_each_type(), *bit_casts(), *versions(), *byte_floats(), *of_sizes()]
