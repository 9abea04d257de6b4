"""Operators on bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.random_contributed import (
    Contributed,
    contributed,
    image,
    maybe,
    real,
    scale,
    windows,
)
from tools.fuzz.random_node import Array, Drawer, Shape

BYTES = ("uint8", "int8")


def _operand(d: Drawer, kind: str, shape: Shape) -> list[Array]:
    """Bytes, their scale and zero point."""
    return [d.data(kind, shape, 0.4), scale(d), d.data(kind, ())]


def _result(d: Drawer, kind: str) -> list[Array]:
    return [scale(d), d.data(kind, ())]


def _kinds(d: Drawer) -> tuple[str, str]:
    """Types of two factors that onnxruntime multiplies."""
    return d.choose((("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")))


@contributed(4)
def _pair(d: Drawer) -> Contributed:
    op, kind, shape = d.choose(("QLinearAdd", "QLinearMul")), d.choose(BYTES), d.shape(1, 4, 0)
    left, right = _operand(d, kind, shape), _operand(d, kind, d.broadcast(shape))
    if d.chance(0.3):
        left, right = right, left
    return Contributed(op, [*left, *right, *_result(d, kind)], fixed=(1, 2, 4, 5, 6, 7))


@contributed(4)
def _single(d: Drawer) -> Contributed:
    op, kind = d.choose(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")), d.choose(BYTES)
    shape = d.shape(1, 4, 0)
    about: dict[str, Any] = {}
    operands = [*_operand(d, kind, shape), *_result(d, kind)]
    if op == "QLinearLeakyRelu" and d.chance(0.7):
        about["alpha"] = d.choose((0.1, 1.5, -0.5))
    if op == "QLinearSoftmax":
        about = {"axis": d.axis(shape), "opset": d.choose((11, 13))}
        if shape[about["axis"]] == 1:
            # onnxruntime lets a single 1 wrap around to 0.
            raise LookupError
        operands[3:] = [np.float32(1 / 256).reshape(()), np.zeros((), kind)]
        if kind == "int8":
            operands[4] = np.array(-128, np.int8)
    return Contributed(op, operands, about, fixed=(1, 2, 3, 4))


@contributed(4)
def _pooled(d: Drawer) -> Contributed:
    op, kind = d.choose(("QLinearGlobalAveragePool", "QLinearAveragePool")), d.choose(BYTES)
    is_last, rank = d.flag(), d.choose((1, 2, 2, 3))
    kernel = [d.number(1, 3) for _ in range(rank)]
    about: dict[str, Any] = {"channels_last": is_last}
    if op == "QLinearAveragePool":
        about |= windows(d, rank, kernel, False) | {"kernel_shape": kernel}
        # onnxruntime divides sums of windows beyond the padding by all of the window.
        about |= {d.choose(("ceil_mode", "count_include_pad")): d.flag()}
    x, *rest = _operand(d, kind, image(d, d.number(1, 17), rank))
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if is_last else x
    return Contributed(op, [x, *rest, *_result(d, kind)], about, fixed=(1, 2, 3, 4))


@contributed(2)
def _joined(d: Drawer) -> Contributed:
    kind, shape = d.choose(BYTES), d.shape(1, 4, 0)
    axis, parts = d.axis(shape), []
    for _ in range(d.number(1, 3)):
        size = [*shape]
        size[axis] = d.number(1, 4)
        parts += [d.data(kind, tuple(size), 0.4), scale(d), d.data(kind, ())]
    head = [scale(d), d.data(kind, ())]
    fixed = [i for i in range(2 + len(parts)) if i % 3 != 2]
    return Contributed("QLinearConcat", [*head, *parts], {"axis": axis}, fixed=fixed)


@contributed(2)
def _chosen(d: Drawer) -> Contributed:
    kind, shape = d.choose(BYTES), d.shape(1, 3, 0)
    left, right = (
        [d.data(kind, d.broadcast(shape), 0.4), scale(d), d.data(kind, ())] for _ in "xy"
    )
    operands = [d.data("bool", shape), *left, *right, scale(d), d.data(kind, ())]
    return Contributed("QLinearWhere", operands, fixed=(2, 3, 5, 6, 7, 8))


@contributed(4)
def _convolved(d: Drawer) -> Contributed:
    kind, rank, group = d.choose(BYTES), d.choose((1, 2, 2)), d.choose((1, 1, 2))
    kernel, is_last = [d.number(1, 3) for _ in range(rank)], d.flag()
    inner, outer = d.number(1, 5), d.number(1, 5)
    x = d.data(kind, image(d, group * inner, rank), 0.3)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if is_last else x
    weights = d.data(
        "int8" if kind == "int8" else d.choose(BYTES), (group * outer, inner, *kernel), 0.3
    )
    grains: Shape = d.choose(((), (group * outer,)))
    bias = maybe(d, d.data("int32", (group * outer,)))
    about = windows(d, rank, kernel) | {"group": group, "channels_last": is_last}
    about |= {"kernel_shape": kernel}
    zeros = np.zeros(grains, weights.dtype)
    operands = [x, scale(d), d.data(kind, ()), weights, scale(d, *grains), zeros]
    operands += [scale(d), d.data(kind, ())]
    return Contributed("QLinearConv", [*operands, bias], about, fixed=range(1, 9))


@contributed(4)
def _products(d: Drawer) -> Contributed:
    (kind, other), k, n = _kinds(d), d.choose((1, 4, 9, 16)), d.choose((1, 3, 8))
    lead = [d.number(1, 4) for _ in range(d.number(1, 2))]
    a, b = d.data(kind, (*lead, k), 0.3), d.data(other, (k, n), 0.3)
    grains: Shape = d.choose(((), (1,), (n,)))
    by_column = scale(d, *grains)
    zeros = maybe(d, d.data(b.dtype.name, grains))
    bias = maybe(d, real(d, "float32", n))
    if d.chance(0.5):
        narrow = real(d, "float32", *lead, k)
        operands: list[Any] = [narrow, b, by_column, zeros, bias]
        return Contributed("DynamicQuantizeMatMul", operands)
    first = maybe(d, d.data(kind, d.choose(((), (1,)))))
    operands = [a, b, scale(d, *d.choose(((), (1,)))), by_column, first, zeros, bias]
    return Contributed("MatMulIntegerToFloat", operands)


@contributed(4)
def _gemm(d: Drawer) -> Contributed:
    kind, other = _kinds(d)
    left, right, m, k, n = d.flag(), d.flag(), d.number(1, 5), d.number(1, 9), d.number(1, 9)
    a = d.data(kind, (k, m) if left else (m, k), 0.3)
    b = d.data(other, (n, k) if right else (k, n), 0.3)
    grains: Shape = d.choose(((), (n,)))
    c = maybe(d, d.data("int32", d.choose(((n,), (1, n), (m, n), (m, 1), ()))))
    about = {"transA": left, "transB": right, "alpha": d.choose((1.0, 0.5))}
    result: list[Any] = [None, None] if d.chance(0.3) else [scale(d), d.data(kind, ())]
    operands = [a, scale(d), d.data(kind, ()), b, scale(d, *grains), d.data(other, grains), c]
    return Contributed("QGemm", [*operands, *result], about)


@contributed(3)
def _linear(d: Drawer) -> Contributed:
    op, kind = (
        d.choose(("QuantizeLinear", "DequantizeLinear")),
        d.choose((*BYTES, "int16", "uint16")),
    )
    shape = d.shape(1, 4, 0)
    axis = d.axis(shape)
    grains: Shape = () if d.chance(0.5) else (shape[axis],)
    x = real(d, "float32", *shape) if op == "QuantizeLinear" else d.data(kind, shape, 0.3)
    zero = d.data(kind, grains)
    point = maybe(d, zero, 0.7)
    return Contributed(op, [x, scale(d, *grains), point], {"axis": axis})


@contributed(2)
def _attention(d: Drawer) -> Contributed:
    batch, rows, heads, size = d.number(1, 2), d.number(1, 5), d.choose((1, 2)), 4
    width, inner = heads * size, d.number(3, 9)
    kind, other = _kinds(d)
    x, w = d.data(kind, (batch, rows, inner), 0.3), d.data(other, (inner, 3 * width), 0.3)
    bias = real(d, "float32", 3 * width)
    grains: Shape = d.choose(((), (3 * width,)))
    mask = maybe(d, d.random.integers(1, rows + 1, batch).astype(np.int32))
    points = [maybe(d, d.data(kind, ())), d.data(other, grains)]
    about: dict[str, Any] = {"num_heads": heads, "unidirectional": d.flag()}
    operands = [x, w, bias, scale(d) / 16, scale(d, *grains) / 16, mask, *points]
    return Contributed("QAttention", operands, about, fixed=(3, 4, 6, 7))


@contributed(3)
def _recurrent(d: Drawer) -> Contributed:
    steps, batch, inner, size = d.number(1, 4), d.number(1, 3), d.number(1, 5), d.choose((1, 4, 7))
    direction = d.choose(("forward", "reverse", "bidirectional"))
    ways, kind = 2 if direction == "bidirectional" else 1, d.choose(BYTES)
    x = real(d, "float32", steps, batch, inner)
    w = d.data(kind, (ways, inner, 4 * size), 0.2)
    r = d.data(kind, (ways, size, 4 * size), 0.2)
    bias = maybe(d, real(d, "float32", ways, 8 * size))
    lengths = maybe(d, d.random.integers(1, steps + 1, batch).astype(np.int32), 0.3)
    states = [maybe(d, real(d, "float32", ways, batch, size), 0.4) for _ in range(2)]
    peepholes = maybe(d, real(d, "float32", ways, 3 * size), 0.3)
    grains: Shape = d.choose(((ways,), (ways, 4 * size)))
    scales = [(scale(d, *grains) / 32).astype(np.float32) for _ in range(2)]
    points = [d.data(kind, grains) for _ in range(2)]
    about: dict[str, Any] = {"hidden_size": size, "direction": direction}
    if d.chance(0.2):
        about["clip"] = 0.5
    if d.chance(0.2):
        about["input_forget"] = 1
    operands = [x, w, r, bias, lengths, *states, peepholes, scales[0], points[0], scales[1]]
    fixed = (1, 2, 8, 9, 10, 11)
    return Contributed("DynamicQuantizeLSTM", [*operands, points[1]], about, 3, fixed)
