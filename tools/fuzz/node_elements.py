"""Functions of elements, conversions between all types, quantised values."""

from __future__ import annotations

import numpy as np

from tools.fuzz.random_node import (
    EVERY,
    FLOATS,
    NARROW,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Drawer,
    Drawn,
    dtype_of,
    recipe,
)

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp",
    "Floor", "HardSwish", "IsNaN", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "BitwiseNot", "Identity",
)  # fmt: skip
SETTINGS = {
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "LeakyRelu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Shrink": ("lambd", "bias"),
    "Swish": ("alpha",),
}
BINARY = (
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal",
    "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "PRelu",
)  # fmt: skip
RARE = 0.3


@recipe(6)
def _unary(d: Drawer) -> Drawn:
    op = d.choose(UNARY)
    dtype = d.type(op, EVERY)
    # Periodic functions of huge numbers have no digits left.
    return Drawn(op, [d.data(dtype, d.shape(), 0.0 if op in ("Sin", "Cos", "Tan") else RARE)])


@recipe(3)
def _set(d: Drawer) -> Drawn:
    op = d.choose(sorted(SETTINGS))
    dtype = d.type(op, NUMBERS)
    about = {name: d.choose((-0.5, 0.0, 0.3, 1.0, 2.0)) for name in SETTINGS[op] if d.chance(0.7)}
    if op == "Celu" and about.get("alpha") == 0.0:
        del about["alpha"]
    return Drawn(op, [d.data(dtype, d.shape(), RARE)], about)


@recipe(1)
def _which(d: Drawer) -> Drawn:
    if d.chance(0.5):
        about = {"detect_negative": d.flag(), "detect_positive": d.flag()}
        return Drawn("IsInf", [d.data(d.type("IsInf", FLOATS), d.shape(), 0.9)], about)
    about = {"approximate": d.choose(("none", "tanh"))}
    return Drawn("Gelu", [d.data(d.type("Gelu", FLOATS), d.shape(), RARE)], about)


@recipe(10)
def _binary(d: Drawer) -> Drawn:
    op = d.choose(BINARY)
    dtype = d.type(op, EVERY)
    other = dtype
    if op == "Pow" and d.opset >= 12:
        other = d.type(op, NUMBERS, 1)
    shape = d.shape()
    pair = [d.data(dtype, shape, RARE), d.data(other, d.broadcast(shape), RARE)]
    if d.chance(0.3) and op != "PRelu" and other == dtype:
        pair.reverse()
    about = {}
    if op == "Mod":
        about["fmod"] = 1 if dtype in FLOATS else d.flag()
        if dtype in FLOATS and d.opset >= 28:
            about["fmod"] = d.flag()
    if op == "Pow" and dtype in FLOATS and d.chance(0.7):
        pair[1] = d.data(other, pair[1].shape)
    return Drawn(op, pair, about)


@recipe(2)
def _shift(d: Drawer) -> Drawn:
    dtype = d.type("BitShift", (*UNSIGNED, *SIGNED))
    shape = d.shape()
    bits = 8 * dtype_of(dtype).itemsize
    counts = d.random.integers(0, bits + 4, d.broadcast(shape)).astype(dtype)
    about = {"direction": d.choose(("LEFT", "RIGHT"))}
    return Drawn("BitShift", [d.data(dtype, shape, RARE), counts], about)


@recipe(2)
def _several(d: Drawer) -> Drawn:
    op = d.choose(("Sum", "Max", "Min", "Mean"))
    dtype, shape = d.type(op, NUMBERS), d.shape()
    shapes = [shape, *(d.broadcast(shape) for _ in range(d.number(0, 3)))]
    return Drawn(op, [d.data(dtype, s, RARE) for s in shapes])


@recipe(2)
def _logic(d: Drawer) -> Drawn:
    shape = d.shape()
    op = d.choose(("And", "Or", "Xor", "Where", "Where"))
    if op != "Where":
        return Drawn(op, [d.data("bool", shape), d.data("bool", d.broadcast(shape))])
    dtype = d.type(op, EVERY, 1)
    parts = [d.data("bool", d.broadcast(shape))]
    parts += [d.data(dtype, d.broadcast(shape), RARE), d.data(dtype, shape, RARE)]
    return Drawn(op, parts)


@recipe(3)
def _clipped(d: Drawer) -> Drawn:
    dtype, shape = d.type("Clip", NUMBERS), d.shape()
    x = d.data(dtype, shape, RARE)
    bounds = [d.data(dtype, (), RARE) if d.chance(0.7) else None for _ in range(2)]
    if d.opset >= 11:
        return Drawn("Clip", [x, *bounds])
    names = ("min", "max")
    found = {n: float(b) for n, b in zip(names, bounds, strict=True) if b is not None}
    return Drawn("Clip", [x], found)


@recipe(8)
def _cast(d: Drawer) -> Drawn:
    every = (*EVERY, *NARROW)
    dtype, to = d.type("Cast", every), d.choose(every)
    # NumPy converts what is no number, or too large, in another way than C does.
    strange = 0.0 if dtype in NARROW else 0.6
    x, real = d.data(dtype, d.shape(), strange), dtype_of(to)
    about = {"saturate": d.flag()} if d.opset >= 19 and to.startswith("float8") else {}
    if d.opset >= 19 and d.chance(0.3):
        d.type("CastLike", (to,), 1)
        return Drawn("CastLike", [x, np.zeros((1,), real)], about)
    number = int(_number(to))
    return Drawn("Cast", [x], {"to": number, **about})


def _number(name: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype_of(name)))


@recipe(2)
def _bit_cast(d: Drawer) -> Drawn:
    dtype, to = d.type("BitCast", NUMBERS), d.choose(NUMBERS)
    return Drawn("BitCast", [d.data(dtype, d.shape(), 0.6)], {"to": _number(to)})


@recipe(5)
def _quantize(d: Drawer) -> Drawn:
    shape = d.shape(1)
    x = d.data(d.type("QuantizeLinear", ("float32", "float16", "int32")), shape, RARE)
    to = d.type("QuantizeLinear", (*SIGNED, *UNSIGNED, *NARROW), 2)
    scales, about = _grain(d, shape)
    scale = (2.0 ** d.random.integers(-4, 3, scales)).astype(np.float32)
    if x.dtype.kind == "i":
        scale = np.maximum(scale, 1)
    if d.opset >= 19:
        scale = scale.astype(x.dtype if x.dtype.kind == "f" or d.opset < 23 else np.float32)
    zero = None
    if d.chance(0.8):
        zero = d.data(to, scales) if not to.startswith("float8") else np.zeros(scales, dtype_of(to))
    if to.startswith("float8"):
        about["saturate"] = d.flag()
    return Drawn("QuantizeLinear", [x, scale, zero], about)


@recipe(4)
def _dequantize(d: Drawer) -> Drawn:
    shape = d.shape(1)
    dtype = d.type("DequantizeLinear", (*SIGNED, *UNSIGNED, *NARROW))
    scales, about = _grain(d, shape)
    kind = d.type("DequantizeLinear", ("float32", "float16", "bfloat16"), 1)
    scale = (2.0 ** d.random.integers(-4, 3, scales)).astype(dtype_of(kind))
    zero = d.data(dtype, scales, RARE) if d.chance(0.8) and dtype != "int32" else None
    if zero is not None and dtype.startswith("float8"):
        zero = np.zeros(scales, dtype_of(dtype))
    return Drawn("DequantizeLinear", [d.data(dtype, shape, RARE), scale, zero], about)


def _grain(d: Drawer, shape: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, int]]:
    """The shape of scales: one, along an axis, or of blocks."""
    kind = d.number(0, 2)
    if kind == 0 or d.opset < 13:
        return (), {}
    axis = d.axis(shape)
    if kind == 1 or d.opset < 21:
        return (shape[axis],), {"axis": axis}
    size = d.choose((1, 2, 3))
    scales = list(shape)
    scales[axis] = -(-shape[axis] // size)
    return tuple(scales), {"axis": axis, "block_size": size}


@recipe(1)
def _dynamic(d: Drawer) -> Drawn:
    x = d.data("float32", d.shape(empty=0.05))
    return Drawn("DynamicQuantizeLinear", [x], outputs=3)
