"""Random operators that few models have."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tools.fuzz.random_graph import Builder, Value, operator, two
from tools.fuzz.random_inferred import inferred

BITS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SMOOTH = (
    ("Elu", {"alpha": 0.5}),
    ("Celu", {"alpha": 0.5}),
    ("Selu", {}),
    ("LeakyRelu", {"alpha": -0.25}),
    ("HardSwish", {}),
    ("Mish", {}),
    ("HardSigmoid", {"alpha": 0.7, "beta": 0.1}),
    ("Sinh", {}),
    ("Asinh", {}),
    ("Exp", {}),
)
JUMPS = (
    ("ThresholdedRelu", {"alpha": 0.3}),
    ("Shrink", {"lambd": 0.3, "bias": 0.5}),
)


@operator(3)
def _by_attributes(b: Builder) -> None:
    x = b.pick(lambda v: v.is_float)
    if x.is_exact and b.chance(0.3):
        op, settings = b.choose(JUMPS)
    else:
        x = inferred(b, "Tanh", [x])[0]
        op, settings = b.choose(SMOOTH)
    inferred(b, op, [x], **settings)


@operator(2)
def _bits(b: Builder) -> None:
    x, y, _ = two(b, lambda v: v.is_exact and v.dtype in BITS)
    op = b.choose(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if op == "BitwiseNot":
        inferred(b, op, [x], True)
    elif op == "BitShift":
        if not x.dtype.startswith("u"):
            raise LookupError
        few = b.random.integers(0, 8, x.shape[-1:]).astype(x.dtype)
        inferred(b, op, [x, few], True, direction=b.choose(("LEFT", "RIGHT")))
    else:
        inferred(b, op, [x, y], True)


@operator(2)
def _remainders(b: Builder) -> None:
    """Of either sign."""
    x = b.pick(lambda v: v.is_exact and v.dtype not in ("bool", "float16"))
    divisor = np.array(b.choose((1, 2, 3) if x.dtype.startswith("u") else (-3, -2, 1, 2, 3)))
    with_sign = 1 if x.is_float else int(b.chance(0.5))
    inferred(b, "Mod", [x, divisor.astype(x.dtype)], True, fmod=with_sign)


@operator(2)
def _powers(b: Builder) -> None:
    x = b.pick(lambda v: v.is_exact and v.dtype in ("int32", "int64", "float32", "float64"))
    exponent = np.array(b.choose((0, 1, 2, 3)), b.choose((x.dtype, "int32", "float32")))
    inferred(b, "Pow", [x, exponent], not x.is_float and exponent.dtype.kind == "i")


@operator(3)
def _einsum(b: Builder) -> None:
    """One or two operands with any of their axes."""
    x = b.pick(lambda v: v.dtype in ("float32", "float64") and 0 < len(v.shape) < 4)
    left = "abc"[: len(x.shape)]
    size = dict(zip(left, x.shape, strict=True)) | {"d": 3}
    shared = "".join(c for c in left if b.chance(0.5))
    letters = [*shared, *("d" if b.chance(0.7) else "")]
    right = "".join(letters[i] for i in b.random.permutation(len(letters)))
    every = sorted({*left, *right})
    kept = [c for c in every if b.chance(0.6)]
    result = "".join(kept[i] for i in b.random.permutation(len(kept)))
    other = b.data(x.dtype, tuple(size[c] for c in right))
    like = (x.dtype, tuple(size[c] for c in result), False)
    if b.chance(0.2):
        result = "".join(c for c in result if c in left)
        like = (x.dtype, tuple(size[c] for c in result), False)
        b.add("Einsum", [x.name], like, equation=f"{left}->{result}")
    else:
        b.add("Einsum", [x.name, b.constant(other)], like, equation=f"{left},{right}->{result}")


@operator(2)
def _scattered(b: Builder) -> None:
    """Several updates of one place, by slices or elements; those of integers are exact."""
    x = b.pick(lambda v: v.dtype in ("int64", "int32", "float32") and v.shape and 0 not in v.shape)
    reduction = b.choose(("add", "mul", "max", "min"))
    is_exact = x.is_exact and (reduction in ("max", "min") or not x.is_float)
    if b.chance(0.5):
        depth, count = int(b.random.integers(1, len(x.shape) + 1)), b.choose((0, 1, 3))
        places = np.stack([b.random.integers(-n, n, count) for n in x.shape[:depth]], -1)
        updates = b.data(x.dtype, (count, *x.shape[depth:]))
        inferred(b, "ScatterND", [x, places, updates], is_exact, reduction=reduction)
    else:
        axis = b.axis(x)
        shape = tuple(int(b.random.integers(1, n + 1)) for n in x.shape)
        places = b.random.integers(-x.shape[axis], x.shape[axis], shape)
        operands = [x, places, b.data(x.dtype, shape)]
        inferred(b, "ScatterElements", operands, is_exact, axis=axis, reduction=reduction)


@operator(2)
def _gathered(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != () and 0 not in v.shape)
    batch = int(b.chance(0.3) and len(x.shape) > 1)
    depth = int(b.random.integers(1, len(x.shape) - batch + 1))
    shape = (*x.shape[:batch], *b.choose(((), (1,), (2,), (2, 2))))
    bounds = x.shape[batch : batch + depth]
    places = np.stack([b.random.integers(-n, n, shape) for n in bounds], -1)
    inferred(b, "GatherND", [x, places], x.is_exact, batch_dims=batch)


@operator(3)
def _moved(b: Builder) -> None:
    """Blocks, reversed rows, the middle, parts of conditions."""
    x = b.pick(lambda v: len(v.shape) > 1 and 0 not in v.shape)
    kind = b.random.integers(6)
    if kind == 0 and len(x.shape) == 4 and x.dtype == "float32" and x.shape[1] % 4 == 0:
        inferred(b, "DepthToSpace", [x], x.is_exact, blocksize=2, mode=b.choose(("DCR", "CRD")))
    elif kind == 1 and len(x.shape) == 4 and x.dtype == "float32" and x.shape[2] % 2 == 0:
        if x.shape[3] % 2:
            raise LookupError
        inferred(b, "SpaceToDepth", [x], x.is_exact, blocksize=2)
    elif kind == 2:
        time = int(b.chance(0.5))
        lengths = b.random.integers(0, x.shape[time] + 1, x.shape[1 - time])
        settings = {"time_axis": time, "batch_axis": 1 - time}
        inferred(b, "ReverseSequence", [x, lengths], x.is_exact, **settings)
    elif kind == 3:
        axis = b.axis(x)
        size = np.array([int(b.random.integers(1, 8))])
        inferred(b, "CenterCropPad", [x, size], x.is_exact, axes=[axis])
    elif kind == 4:
        axis = b.axis(x)
        chosen = b.random.random(x.shape[axis]) < 0.6
        size = tuple(
            int(chosen.sum()) if i == axis % len(x.shape) else n for i, n in enumerate(x.shape)
        )
        name = b.constant(chosen)
        b.add("Compress", [x.name, name], (x.dtype, size, x.is_exact), axis=axis)
    else:
        k = np.array(b.random.integers(-3, 4))
        if x.dtype not in ("float32", "int64", "bool", "float64"):
            raise LookupError
        inferred(b, "Trilu", [x, k], x.is_exact, upper=int(b.chance(0.5)))


@operator(2)
def _quantised(b: Builder) -> None:
    """By powers of two, along an axis or all alike."""
    x = b.pick(lambda v: v.is_exact and v.dtype == "float32")
    axis = b.axis(x) if x.shape else 0
    shape = (x.shape[axis],) if x.shape and b.chance(0.5) else ()
    scale = np.asarray(2.0 ** b.random.integers(-3, 2, shape), np.float32)
    to = b.choose(("int8", "uint8"))
    zero = b.data(to, shape)
    made = inferred(b, "QuantizeLinear", [x, scale, zero], True, axis=axis)[0]
    if b.chance(0.7):
        inferred(b, "DequantizeLinear", [made, scale, zero], True, axis=axis)


@operator(2)
def _found(b: Builder) -> None:
    x = b.pick(lambda v: v.is_exact and v.dtype in ("float32", "int64", "int32") and v.shape != ())
    if 0 in x.shape:
        raise LookupError
    kind = b.random.integers(4)
    if kind == 0:
        op = b.choose(("ArgMax", "ArgMin"))
        inferred(b, op, [x], True, axis=b.axis(x), select_last_index=1)
    elif kind == 1 and x.is_float:
        inferred(b, "Hardmax", [x], True, axis=b.axis(x))
    elif kind == 2 and x.is_float:
        zero = b.constant(np.zeros((), x.dtype))
        quotient = b.add("Div", [x.name, zero], (x.dtype, x.shape, True))
        inferred(b, b.choose(("IsNaN", "IsInf")), [quotient], True)
    else:
        _unique(b, x)


def _unique(b: Builder, x: Value) -> None:
    """How many elements there are, and which."""
    names = [b.names.next() for _ in range(4)]
    settings = {"sorted": int(b.chance(0.5))}
    node = helper.make_node("Unique", [x.name], names, **settings)
    b.nodes.append(node)
    b.values.append(Value(names[2], "int64", (x.size,), True))


@operator(3)
def _integer_products(b: Builder) -> None:
    """Of bytes, with zero points; by powers of two where results are rounded."""
    kinds = ("int8", "uint8")
    x = b.pick(lambda v: v.is_exact and v.dtype in kinds and len(v.shape) > 1 and 0 not in v.shape)
    zero, other = b.data(x.dtype, ()), b.choose(kinds)
    if len(x.shape) > 2 and b.chance(0.5):
        kernel = [int(b.random.integers(1, n + 1)) for n in x.shape[2:]]
        weights = b.data(other, (int(b.random.integers(1, 5)), x.shape[1], *kernel))
        point = b.data(other, ())
        inferred(b, "ConvInteger", [x, weights, zero, point], True)
        return
    columns = int(b.random.integers(1, 20))
    weights = b.data(other, (x.shape[-1], columns))
    point = b.data(other, (columns,) if b.chance(0.5) else ())
    if b.chance(0.5):
        inferred(b, "MatMulInteger", [x, weights, zero, point], True)
        return
    scale, half = np.float32(0.25), np.asarray(0.5, np.float32)
    scales = np.full(point.shape, scale)
    operands = [x, half, zero, weights, scales, point, half, b.data(x.dtype, ())]
    if other == x.dtype:
        inferred(b, "QLinearMatMul", operands, True)


@operator(3)
def _other_types(b: Builder) -> None:
    """Operators of floats on other numbers."""
    x = b.pick(lambda v: v.is_exact and v.shape != () and 0 not in v.shape)
    axis = np.array([b.axis(x)])
    kind = b.random.integers(6)
    narrow = x.dtype in ("int8", "uint8", "float16", "float64", "uint32", "uint64", "int64")
    if kind == 0 and narrow:
        inferred(b, b.choose(("ReduceMax", "ReduceMin")), [x, axis], True)
    elif kind == 1 and x.dtype in ("int8", "uint8") and 2 < len(x.shape) < 5:
        kernel = [int(b.random.integers(1, n + 1)) for n in x.shape[2:]]
        inferred(b, "MaxPool", [x], True, kernel_shape=kernel)
    elif kind == 2 and x.dtype in ("uint32", "uint64", "float64", "int64"):
        flags = {"exclusive": int(b.chance(0.4)), "reverse": int(b.chance(0.4))}
        inferred(b, "CumSum", [x, axis[0]], x.dtype != "float64", **flags)
    elif kind == 3 and x.dtype in ("uint32", "uint64", "int64") and len(x.shape) > 1:
        inferred(b, "MatMul", [x, b.data(x.dtype, (x.shape[-1], 5))], True)
    elif kind == 4 and narrow:
        pads = b.random.integers(-1, 3, 2)
        inferred(b, "Pad", [x, pads, b.data(x.dtype, ()), axis], True)
    elif kind == 5 and narrow:
        inferred(b, "TopK", [x, np.array([1])], True, outputs=2, axis=int(axis[0]))
    else:
        raise LookupError
