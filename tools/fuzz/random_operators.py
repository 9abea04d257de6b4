"""Random operators that compute: pointwise, reductions, contractions, convolutions, recurrences."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from tools.fuzz.random_graph import DTYPES, FLOATS, Builder, Value, operator, two

SMOOTH = ("Tanh", "Sigmoid", "Sin", "Cos", "Erf", "Softplus", "Softsign", "Atan", "HardSigmoid")
EXACT_UNARY = ("Abs", "Neg", "Relu", "Identity")
JUMPS = ("Floor", "Ceil", "Round", "Sign")
COMPARISONS = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")


@operator(6)
def _smooth(b: Builder) -> None:
    x = b.pick(lambda v: v.is_float)
    b.add(b.choose(SMOOTH), [x.name], (x.dtype, x.shape, False))


@operator(3)
def _steep(b: Builder) -> None:
    x = b.pick(lambda v: v.is_float)
    inner = b.add("Abs", [x.name], (x.dtype, x.shape, x.is_exact))
    one = b.constant(np.array(1, x.dtype))
    above = b.add("Add", [inner.name, one], (x.dtype, x.shape, x.is_exact))
    op = b.choose(("Log", "Sqrt", "Reciprocal", "Pow"))
    more = [b.constant(np.array(b.choose((0.5, -1.0, 2.0)), x.dtype))] if op == "Pow" else []
    b.add(op, [above.name, *more], (x.dtype, x.shape, False))


@operator(3)
def exact_unary(b: Builder) -> None:
    """A function of each element that every runtime computes alike."""
    x = b.pick(lambda v: v.is_float or v.dtype in ("int64", "int32", "int8"))
    ops = EXACT_UNARY if x.is_float else ("Abs", "Neg", "Identity")
    b.add(b.choose(ops), [x.name], (x.dtype, x.shape, x.is_exact))


@operator(2)
def _jump(b: Builder) -> None:
    x = b.pick(lambda v: v.is_float and v.is_exact)
    b.add(b.choose(JUMPS), [x.name], (x.dtype, x.shape, True))


@operator(2)
def _clip(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype != "bool")
    low, high = (b.constant(np.array(n, x.dtype)) for n in (1, 3))
    bounds = [low if b.chance(0.7) else "", high if b.chance(0.7) else ""]
    b.add("Clip", [x.name, *bounds], (x.dtype, x.shape, x.is_exact))


@operator(10)
def arithmetic(b: Builder) -> None:
    """Of two values that broadcast."""
    x, y, shape = two(b, lambda v: v.dtype != "bool")
    ops = ("Add", "Sub", "Mul", "Max", "Min")
    op = b.choose(ops)
    # Products double the number of digits.
    is_exact = x.is_exact and y.is_exact and (not x.is_float or op in ("Max", "Min"))
    if x.is_float and x.is_exact and y.is_exact and op in ("Add", "Sub") and b.chance(0.5):
        is_exact = x.dtype != "float16"
    b.add(op, [x.name, y.name], (x.dtype, shape, is_exact))


@operator(2)
def _variadic(b: Builder) -> None:
    x, y, shape = two(b, lambda v: v.dtype in ("float32", "float64"))
    b.add(b.choose(("Sum", "Mean", "Max")), [x.name, y.name, x.name], (x.dtype, shape, False))


@operator(2)
def _divide(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype != "bool")
    divisor = b.constant(np.array(b.choose((1, 2, 3)), x.dtype))
    is_exact = x.is_exact and not x.is_float
    if is_exact and b.chance(0.5):
        b.add("Mod", [x.name, divisor], (x.dtype, x.shape, True))
    else:
        b.add("Div", [x.name, divisor], (x.dtype, x.shape, is_exact))


@operator(3)
def _compare(b: Builder) -> None:
    x, y, shape = two(b, lambda v: v.is_exact and v.dtype != "bool")
    b.add(b.choose(COMPARISONS), [x.name, y.name], ("bool", shape, True))


@operator(1)
def _logic(b: Builder) -> None:
    x, y, shape = two(b, lambda v: v.dtype == "bool")
    op = b.choose(("And", "Or", "Xor", "Not"))
    inputs, shape = ([x.name], x.shape) if op == "Not" else ([x.name, y.name], shape)
    b.add(op, inputs, ("bool", shape, True))


@operator(3)
def _where(b: Builder) -> None:
    x, y, shape = two(b, lambda v: True)

    def fits(v: Value) -> bool:
        try:
            return v.dtype == "bool" and math.prod(np.broadcast_shapes(v.shape, shape)) < 400
        except ValueError:
            return False

    c = b.pick(fits)
    shape = np.broadcast_shapes(c.shape, shape)
    b.add("Where", [c.name, x.name, y.name], (x.dtype, shape, x.is_exact and y.is_exact))


@operator(3)
def _cast(b: Builder) -> None:
    x = b.pick()
    to = b.choose(DTYPES)
    if x.is_float and to not in FLOATS:
        if not x.is_exact:
            raise LookupError
        low, high = (b.constant(np.array(n, x.dtype)) for n in (0, 100))
        x = b.add("Clip", [x.name, low, high], (x.dtype, x.shape, True))
    number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    is_exact = x.is_exact and to != "float16"
    b.add("Cast", [x.name], (to, x.shape, is_exact), to=number)


@operator(5)
def _reduce(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "float64", "int64", "int32") and len(v.shape) > 0)
    count = int(b.random.integers(1, 1 + len(x.shape)))
    axes = sorted(int(a) for a in b.random.choice(len(x.shape), count, replace=False))
    ops = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"]
    ops += ["ReduceMean", "ReduceL2", "ReduceProd", "ReduceLogSumExp"] if x.is_float else []
    op = b.choose(ops)
    if 0 in [x.shape[a] for a in axes] and op not in ("ReduceSum", "ReduceL1", "ReduceSumSquare"):
        raise LookupError
    keep = int(b.chance(0.5))
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
    written = [a - len(x.shape) if b.chance(0.3) else a for a in axes]
    is_exact = x.is_exact and (not x.is_float or op in ("ReduceMax", "ReduceMin"))
    inputs = [x.name]
    inputs.append(b.constant(np.array(written, np.int64)))
    b.add(op, inputs, (x.dtype, shape, is_exact), keepdims=keep)


@operator(2)
def _index_of(b: Builder) -> None:
    x = b.pick(lambda v: v.is_exact and v.dtype in ("float32", "int64", "int32") and v.shape != ())
    axis = b.axis(x)
    if x.shape[axis] == 0:
        raise LookupError
    keep = int(b.chance(0.5))
    place = axis % len(x.shape)
    shape = tuple(1 if i == place else n for i, n in enumerate(x.shape) if keep or i != place)
    b.add(
        b.choose(("ArgMax", "ArgMin")), [x.name], ("int64", shape, True), axis=axis, keepdims=keep
    )


@operator(1)
def _top(b: Builder) -> None:
    x = b.pick(lambda v: v.is_exact and v.dtype in ("float32", "int64") and v.shape != ())
    axis = b.axis(x)
    k = int(b.random.integers(0, x.shape[axis] + 1))
    place = axis % len(x.shape)
    shape = tuple(k if i == place else n for i, n in enumerate(x.shape))
    likes = [(x.dtype, shape, True), ("int64", shape, True)]
    amount = b.constant(np.array([k], np.int64))
    b.add_several("TopK", [x.name, amount], likes, axis=axis, largest=int(b.chance(0.5)))


@operator(2)
def _running(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "int64", "int32") and v.shape != ())
    axis = b.constant(np.array(b.axis(x), np.int64))
    like = (x.dtype, x.shape, x.is_exact and not x.is_float)
    flags = {"exclusive": int(b.chance(0.4)), "reverse": int(b.chance(0.4))}
    b.add("CumSum", [x.name, axis], like, **flags)


@operator(2)
def _softmax(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "float64") and v.shape != ())
    op = b.choose(("Softmax", "LogSoftmax"))
    b.add(op, [x.name], (x.dtype, x.shape, False), axis=b.axis(x))


@operator(1)
def _normalise(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype == "float32" and v.shape != () and 0 not in v.shape)
    axis = int(b.random.integers(len(x.shape)))
    scale = b.constant(b.data("float32", x.shape[axis:]) + 3)
    b.add("LayerNormalization", [x.name, scale], (x.dtype, x.shape, False), axis=axis)


@operator(5)
def _matmul(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "float64", "int32") and v.shape != ())
    columns = int(b.random.integers(0, 9))
    if b.chance(0.3):
        y = b.pick(lambda v: v.dtype == x.dtype and len(v.shape) > 0)
        inner = y.shape[-2] if len(y.shape) > 1 else y.shape[0]
        if inner != x.shape[-1]:
            raise LookupError
        name, other = y.name, y.shape
    else:
        other = (x.shape[-1], columns) if b.chance(0.8) else (x.shape[-1],)
        name = b.constant(b.data(x.dtype, other))
    try:
        shape = np.matmul(np.zeros(x.shape), np.zeros(other)).shape
    except ValueError:
        raise LookupError from None
    b.add("MatMul", [x.name, name], (x.dtype, shape, x.is_exact and not x.is_float))


@operator(2)
def _gemm(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("float32", "float64") and len(v.shape) == 2)
    across, columns = int(b.chance(0.3)), int(b.random.integers(1, 9))
    rows, inner = x.shape[::-1] if across else x.shape
    turned = int(b.chance(0.5))
    weight = b.constant(b.data(x.dtype, (columns, inner) if turned else (inner, columns)))
    bias = b.constant(b.data(x.dtype, b.choose(((columns,), (1, columns), (1,), (1, 1)))))
    numbers = {"alpha": b.choose((1.0, 0.5)), "beta": b.choose((1.0, 2.0))}
    like = (x.dtype, (rows, columns), False)
    b.add("Gemm", [x.name, weight, bias], like, transA=across, transB=turned, **numbers)


@operator(2)
def _conv(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype == "float32" and len(v.shape) in (3, 4) and 0 not in v.shape)
    rank = len(x.shape) - 2
    kernel = [int(n) for n in b.random.integers(1, 4, rank)]
    strides = [int(n) for n in b.random.integers(1, 3, rank)]
    pads = [int(n) for n in b.random.integers(0, 2, 2 * rank)]
    sizes_out = [
        (n + pads[i] + pads[i + rank] - k) // s + 1
        for i, (n, k, s) in enumerate(zip(x.shape[2:], kernel, strides, strict=True))
    ]
    if min(sizes_out) < 1:
        raise LookupError
    if b.chance(0.5):
        outputs = int(b.random.integers(1, 6))
        weight = b.constant(b.data("float32", (outputs, x.shape[1], *kernel)))
        shape = (x.shape[0], outputs, *sizes_out)
        b.add("Conv", [x.name, weight], ("float32", shape, False), pads=pads, strides=strides)
        return
    if any(p >= k for p, k in zip(pads, kernel * 2, strict=True)):
        raise LookupError
    op = b.choose(("MaxPool", "AveragePool"))
    like = ("float32", (*x.shape[:2], *sizes_out), False)
    b.add(op, [x.name], like, kernel_shape=kernel, pads=pads, strides=strides)


@operator(2)
def _recurrent(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype == "float32" and len(v.shape) == 3 and v.shape[2] > 0)
    if 0 in x.shape[1:]:
        raise LookupError
    time, batch, inputs = x.shape
    op, gates = b.choose((("GRU", 3), ("LSTM", 4), ("RNN", 1)))
    hidden = int(b.random.integers(1, 6))
    direction = b.choose(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    names = [
        b.constant((b.data("float32", (count, gates * hidden, n)) / 4).astype(np.float32))
        for n in (inputs, hidden)
    ]
    likes = [("float32", (time, count, batch, hidden), False)]
    likes.append(("float32", (count, batch, hidden), False))
    attributes = {"linear_before_reset": int(b.chance(0.5))} if op == "GRU" else {}
    b.add_several(
        op, [x.name, *names], likes, hidden_size=hidden, direction=direction, **attributes
    )
