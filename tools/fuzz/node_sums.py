"""Reductions, products of matrices, norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.random_node import EVERY, NUMBERS, Drawer, Drawn, recipe

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@recipe(8)
def _reduced(d: Drawer) -> Drawn:
    op = d.choose(REDUCTIONS)
    dtype, shape = d.type(op, EVERY), d.shape(0, 4, 0.15)
    axes = d.axes(shape) if d.chance(0.7) else None
    about: dict[str, Any] = {"keepdims": d.flag()}
    strange = 0.1 if op in ("ReduceMax", "ReduceMin") else 0.0
    x = d.data(dtype, shape, strange)
    if d.opset >= (13 if op == "ReduceSum" else 18):
        about["noop_with_empty_axes"] = d.flag()
        return Drawn(op, [x, *([] if axes is None else [np.array(axes, np.int64)])], about)
    if axes:
        about["axes"] = axes if d.opset >= 11 else sorted(a % len(shape) for a in axes)
    return Drawn(op, [x], about)


@recipe(4)
def _product(d: Drawer) -> Drawn:
    dtype = d.type("MatMul", NUMBERS)
    batch, (i, k, j) = d.shape(0, 2), [d.choose((0, 1, 2, 3, 9, 33)) for _ in range(3)]
    left, right = (*d.broadcast(batch), i, k), (*batch, k, j)
    kind = d.number(0, 5)
    left = (k,) if kind == 0 else left
    right = (k,) if kind == 1 else right
    return Drawn("MatMul", [d.data(dtype, left), d.data(dtype, right)])


@recipe(3)
def _gemm(d: Drawer) -> Drawn:
    dtype = d.type("Gemm", NUMBERS)
    i, k, j = [d.choose((0, 1, 2, 3, 9, 33)) for _ in range(3)]
    turned = [d.flag(), d.flag()]
    a, b = ((k, i) if turned[0] else (i, k)), ((j, k) if turned[1] else (k, j))
    about: dict[str, Any] = {"transA": turned[0], "transB": turned[1]}
    about |= {n: d.choose((0.0, 0.5, 1.0, 2.0, -1.5)) for n in ("alpha", "beta") if d.chance(0.5)}
    c = d.data(dtype, d.broadcast((i, j))) if d.opset < 11 or d.chance(0.7) else None
    return Drawn("Gemm", [d.data(dtype, a), d.data(dtype, b), c], about)


@recipe(5)
def _einsum(d: Drawer) -> Drawn:
    """Letters that repeat in an operand or stand in one alone, an ellipsis, spaces."""
    dtype = d.type("Einsum", NUMBERS)
    sizes = {c: d.choose((1, 2, 3, 4)) for c in "abcdE"}
    if d.chance(0.1):
        sizes[d.choose("abcd")] = 0
    more = tuple(d.choose((1, 2, 3)) for _ in range(d.number(0, 2)))
    terms, operands, used = [], [], ""
    ellipsis = False
    for _ in range(d.number(1, 3)):
        letters = "".join(d.choose("abcd") for _ in range(d.number(0, 3)))
        shape = [sizes[c] for c in letters]
        if d.chance(0.4):
            ellipsis = True
            place = d.number(0, len(letters))
            shape[place:place] = d.broadcast(more)
            term = f"{letters[:place]}...{letters[place:]}"
        else:
            term = letters
        used += letters
        terms.append(term)
        operands.append(d.data(dtype, tuple(shape)))
    equation = ",".join(terms)
    if d.chance(0.7):
        kept = [c for c in sorted(set(used)) if d.chance(0.6)]
        result = "".join(kept[i] for i in d.random.permutation(len(kept)))
        if ellipsis:
            place = d.number(0, len(result))
            result = f"{result[:place]}...{result[place:]}"
        equation += f"->{result}"
    if d.chance(0.1):
        equation = equation.replace(",", " , ").replace("->", " -> ")
    return Drawn("Einsum", operands, {"equation": equation})


@recipe(3)
def _integers(d: Drawer) -> Drawn:
    left, right = d.choose(("int8", "uint8")), d.choose(("int8", "uint8"))
    batch = d.shape(0, 1)
    i, k, j = [d.choose((0, 1, 2, 5, 17, 40)) for _ in range(3)]
    a, b = d.data(left, (*d.broadcast(batch), i, k), 0.5), d.data(right, (*batch, k, j), 0.5)
    rows = d.data(left, d.choose(((), (1,))), 0.5) if d.chance(0.7) else None
    columns = d.data(right, d.choose(((), (j,))), 0.5) if d.chance(0.7) else None
    return Drawn("MatMulInteger", [a, b, rows, columns])


@recipe(2)
def _quantised(d: Drawer) -> Drawn:
    left = d.choose(("int8", "uint8"))
    right = d.choose(("int8", left))
    i, k, j = [d.choose((1, 2, 5, 17)) for _ in range(3)]
    grains = d.choose(((), (j,)))
    scale = (2.0 ** d.random.integers(-4, 1, grains)).astype(np.float32)
    one = np.float32(2.0 ** d.number(-4, 1))
    a, b = d.data(left, (i, k), 0.5), d.data(right, (k, j), 0.5)
    operands = [a, one, d.data(left, ()), b, scale, d.data(right, grains)]
    operands += [np.float32(2.0 ** d.number(-2, 4)), d.data(left, (), 0.3)]
    return Drawn("QLinearMatMul", [np.asarray(x) for x in operands])


@recipe(4)
def _normalised(d: Drawer) -> Drawn:
    op = d.choose(("LayerNormalization", "RMSNormalization", "LpNormalization"))
    op = d.choose((op, "MeanVarianceNormalization", "InstanceNormalization"))
    shape = d.shape(3, 4) if op == "InstanceNormalization" else d.shape(1, 4)
    dtype = d.type(op, ("float32", "float64", "float16", "bfloat16"))
    x, axis = d.data(dtype, shape), d.axis(shape)
    if op == "LpNormalization":
        return Drawn(op, [x], {"axis": axis, "p": d.choose((1, 2))})
    if op == "MeanVarianceNormalization":
        axes = d.axes(shape)
        return Drawn(op, [x], {"axes": axes} if axes else {})
    epsilon = {"epsilon": d.choose((1e-5, 1e-3, 0.5))} if d.chance(0.6) else {}
    if op == "InstanceNormalization":
        parts = [d.data(dtype, shape[1:2]) for _ in range(2)]
        return Drawn(op, [x, *parts], epsilon)
    inner = shape[axis % len(shape) :]
    scale = d.data(dtype, inner if d.chance(0.7) else d.broadcast(inner))
    if op == "RMSNormalization":
        return Drawn(op, [x, scale], {"axis": axis, **epsilon})
    bias = d.data(dtype, inner) if d.chance(0.6) else None
    count = d.choose((1, 2, 3))
    return Drawn(op, [x, scale, bias], {"axis": axis, **epsilon}, count)


@recipe(3)
def _by_channel(d: Drawer) -> Drawn:
    op = d.choose(("BatchNormalization", "GroupNormalization"))
    dtype = d.type(op, ("float32", "float64", "float16"))
    groups = d.number(1, 3)
    channels = groups * d.number(1, 3)
    shape = (d.number(1, 3), channels, *d.shape(0 if op[0] == "B" else 1, 2))
    x = d.data(dtype, shape)
    if op == "GroupNormalization":
        count = channels if d.opset >= 21 else groups
        parts = [d.data(dtype, (count,)) for _ in range(2)]
        return Drawn(op, [x, *parts], {"num_groups": groups})
    parts = [d.data(dtype, (channels,)) for _ in range(4)]
    parts[3] = np.abs(parts[3]) + np.asarray(0.25, parts[3].dtype)
    about: dict[str, Any] = {"epsilon": d.choose((1e-5, 0.1)), "momentum": d.choose((0.5, 0.9))}
    if d.opset >= 14 and d.chance(0.4):
        return Drawn(op, [x, *parts], {**about, "training_mode": 1}, d.choose((1, 3)))
    return Drawn(op, [x, *parts], about)


@recipe(1)
def _determinant(d: Drawer) -> Drawn:
    n = d.number(0, 5)
    return Drawn("Det", [d.data(d.type("Det", NUMBERS), (*d.shape(0, 2), n, n))])


@recipe(2)
def _losses(d: Drawer) -> Drawn:
    op = d.choose(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    dtype = d.type(op, ("float32", "float64", "float16"))
    n, classes, more = d.number(1, 4), d.number(1, 5), d.shape(0, 2, 0.0)
    about: dict[str, Any] = {"reduction": d.choose(("none", "mean", "sum"))}
    low = 0
    if d.chance(0.5):
        about["ignore_index"] = d.choose((-1, 0, 2))
        low = min(0, about["ignore_index"])
    target = d.random.integers(low, classes, (n, *more)).astype(d.choose(("int32", "int64")))
    weights = np.abs(d.data(dtype, (classes,))) if d.chance(0.5) else None
    operands = [d.data(dtype, (n, classes, *more)), target, weights]
    count = d.choose((1, 2)) if op[0] == "S" else 1
    return Drawn(op, operands, about, count)
