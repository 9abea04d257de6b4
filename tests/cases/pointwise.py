"""Cases of ops that work on each element alone, of every type and form of broadcasting."""

from __future__ import annotations

import itertools

import numpy as np

from tests.cases.case import BATCHES, Case, In, ints, node, text, weights

# Signed zeros, ties, huge and tiny numbers, infinities, NaN, both signs, 21 elements.
CORNERS = (
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 1.0, -1.0, 3.25, -7.75, 1e-30, -1e-30, 88.0, -104.0,
    3e38, -3e38, 1e-40, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
FINITE = tuple(v for v in CORNERS if abs(v) < 1e38)
UNIT = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 0.99, -0.3, 1e-9, 2.0, float("nan"))
FROM_ONE = (1.0, 1.0001, 1.5, 3.0, 1e4, 1e30, 0.5, float("inf"))

# op -> values to try, allowed error
UNARY: dict[str, tuple[tuple[float, ...], float]] = {
    "Abs": (CORNERS, 0),
    "Neg": (CORNERS, 0),
    "Sqrt": (CORNERS, 0.5),
    "Exp": (CORNERS, 2),
    "Log": (CORNERS, 2),
    "Sigmoid": (CORNERS, 3),
    "Tanh": (CORNERS, 3),
    "Erf": (CORNERS, 2),
    "Floor": (CORNERS, 0),
    "Ceil": (CORNERS, 0),
    "Round": (CORNERS, 0),
    "Sin": (FINITE, 2),
    "Cos": (FINITE, 2),
    "Tan": (FINITE, 4),
    "Sinh": (FINITE, 4),
    "Cosh": (FINITE, 4),
    "Asin": (UNIT, 3),
    "Acos": (UNIT, 3),
    "Atan": (CORNERS, 3),
    "Asinh": (CORNERS, 4),
    "Acosh": (FROM_ONE, 4),
    "Atanh": (UNIT, 4),
    "Relu": (CORNERS, 0),
    "Reciprocal": (CORNERS, 0.5),
    "Sign": (CORNERS, 0),
    "Softplus": (CORNERS, 4),
    "Softsign": (CORNERS, 1.5),
    "HardSwish": (FINITE, 3),
    "Mish": (FINITE, 8),
    "IsNaN": (CORNERS, 0),
    "IsInf": (CORNERS, 0),
}


def unary() -> list[Case]:
    cases = []
    for op, (values, ulps) in UNARY.items():
        opset = 22
        # exp(-104) is no float32, but a product of it and of 104 would be.
        length = 1 if op == "Mish" else 0
        x = In((3, 7), values=values)
        cases.append(node("corners", op, x, opset=opset, ulps=ulps, length=length))
        # Subnormal float32 inputs are ordinary float64 numbers, so float64 has its own run.
        cases.append(
            node("f64", op, In((13,), "float64"), opset=opset, ulps=ulps + 2, witness=False)
        )
    cases += [
        node(f"{op}-{dtype}".lower(), op, In((5, 3), dtype, low=low, high=9))
        for op, dtype, low in (
            ("Abs", "int32", -9), ("Neg", "int64", -9), ("Sign", "int32", -2), ("Sign", "uint8", 0),
            ("Abs", "int8", -128), ("Neg", "int8", -128), ("Relu", "int32", -9),
            ("Abs", "uint64", 0),
        )
    ]  # fmt: skip
    cases += [
        node("int16", "Erf", In((5, 3), "int16", low=-9, high=9), opset=9, witness=False),
        node("uint64", "Erf", In((5, 3), "uint64", high=9), opset=9, witness=False),
        node("batch", "Exp", In(("N", 5)), sizes=BATCHES, batch=True, ulps=2),
        node("scalar", "Tanh", In(()), ulps=3),
        node("empty", "Exp", In((0, 3))),
        node("not", "Not", In((2, 9), "bool")),
        node("u8", "BitwiseNot", In((17,), "uint8", high=255)),
        node("i64", "BitwiseNot", In((4,), "int64", low=-5, high=5)),
        node("positive", "IsInf", In((21,), values=CORNERS), opset=20, detect_negative=0),
        node("negative", "IsInf", In((21,), values=CORNERS), opset=20, detect_positive=0),
        node(
            "neither",
            "IsInf",
            In((21,), values=CORNERS),
            opset=20,
            detect_positive=0,
            detect_negative=0,
        ),
    ]
    return cases


BROADCASTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 7), (3, 7)), ((3, 7), (7,)), ((3, 1), (1, 7)), ((), (2, 3)), ((2, 1, 5), (4, 1)),
    ((1,), (6,)), ((0, 4), (1, 4)), ((2, 3, 1, 1), (33,)),
)  # fmt: skip


def binary() -> list[Case]:
    cases = [node(f"{list(a)}{list(b)}", "Sub", In(a), In(b), ulps=0.5) for a, b in BROADCASTS]
    for op in ("Add", "Mul", "Div"):
        left, right = zip(*itertools.product(CORNERS, CORNERS), strict=True)
        operands = (In((441,), values=left), In((441,), values=right))
        cases.append(node("corners", op, *operands, ulps=0.5))
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max"):
        left, right = zip(*itertools.product(CORNERS, CORNERS), strict=True)
        operands = (In((441,), values=left), In((441,), values=right))
        cases.append(node("corners", op, *operands, ulps=0))
        cases.append(
            node("int", op, In((4, 9), "int32", low=-3, high=3), In((9,), "int32", low=-3, high=3))
        )
    for op, dtype in itertools.product(("Add", "Sub", "Mul"), ("int8", "uint8", "int32", "int64")):
        limits = np.iinfo(dtype)
        operand = In((9,), dtype, low=limits.min, high=limits.max)
        cases.append(node(f"wraps-{dtype}", op, operand, operand))
    cases += [
        node(
            "int",
            "Div",
            In((40,), "int32", low=-9, high=9),
            ints(-4, -3, -2, 2, 3).astype(np.int32).repeat(8),
        ),
        node("uint8", "Div", In((40,), "uint8", high=255), In((40,), "uint8", low=1, high=9)),
        node(
            "int",
            "Mod",
            In((40,), "int32", low=-9, high=9),
            ints(-4, -3, -2, 2, 3).astype(np.int32).repeat(8),
        ),
        node("uint8", "Mod", In((40,), "uint8", high=255), In((40,), "uint8", low=1, high=9)),
        node("fmod", "Mod", In((40,), scale=5), In((40,)), fmod=1, ulps=0),
        node("fmod-far", "Mod", In((4, 40), scale=1e30), In((40,), scale=1e-5), fmod=1, ulps=0),
        node("fmod-f64", "Mod", In((40,), "float64", 1e200), In((40,), "float64"), fmod=1, ulps=0),
        node("fmod-half", "Mod", In((40,), "float16", 9), In((40,), "float16"), fmod=1, ulps=0),
        node("floats", "Mod", In((4, 40), scale=5), In((40,)), opset=28, ulps=0, witness=False),
        node(
            "fmod-int",
            "Mod",
            In((40,), "int64", low=-9, high=9),
            ints(-4, -3, -2, 2, 3).repeat(8),
            fmod=1,
        ),
        node("bool", "Equal", In((8,), "bool"), In((8,), "bool")),
        node("f64", "Div", In((8,), "float64"), In((8,), "float64")),
    ]
    for op in ("And", "Or", "Xor"):
        cases.append(node("bool", op, In((4, 5), "bool"), In((5,), "bool")))
        bits = In((4, 5), "int32", low=-(2**31), high=2**31 - 1)
        cases.append(node("int32", f"Bitwise{op}", bits, In((5,), "int32", high=2**31 - 1)))
    for op in ("Sum", "Mean", "Max", "Min"):
        cases.append(node("three", op, In((4, 1)), In((5,)), In((1, 1)), ulps=2, length=2))
        cases.append(node("one", op, In((4, 1)), ulps=0))
    cases += [
        node("constant", "Add", In(("N", 3)), weights(3), sizes=BATCHES, batch=True),
        node("runtime-one", "Mul", In(("N", 3)), In((1, 3)), sizes=BATCHES),
        node("three", "Where", In((4, 1), "bool"), In((1, 5)), In(()), ulps=0),
        node("int64", "Where", In((7,), "bool"), In((7,), "int64", high=99), ints(-1)),
        node("bool", "Where", In((7,), "bool"), In((7,), "bool"), In((1,), "bool")),
    ]
    return cases


def parametric() -> list[Case]:
    x = In((3, 7), values=FINITE)
    alphas = {
        "LeakyRelu": {"alpha": 0.3}, "Elu": {"alpha": 0.7}, "Celu": {"alpha": 1.7},
        "Selu": {"alpha": 1.1, "gamma": 0.9}, "ThresholdedRelu": {"alpha": 0.4},
        "HardSigmoid": {"alpha": 0.4, "beta": 0.3}, "Shrink": {"lambd": 0.75, "bias": 0.25},
    }  # fmt: skip
    cases = []
    for op, attributes in alphas.items():
        cases.append(node("default", op, x, ulps=4))
        cases.append(node("given", op, x, ulps=4, **attributes))
        cases.append(
            node("f64", op, In((9,), "float64"), opset=28, ulps=6, witness=False, **attributes)
        )
    cases += [
        node("overlap", "Shrink", In((3, 7)), lambd=-1.0, bias=0.5),
        node("old", "Selu", In((9,)), opset=5, ranks=[1], witness=False),
        node("default", "Swish", x, opset=24, witness=False, ulps=4, length=1),
        node("given", "Swish", x, opset=24, witness=False, alpha=1.5, ulps=4, length=1),
        node("none", "Gelu", In((3, 7)), opset=20, ulps=8, length=1),
        node("tanh", "Gelu", In((3, 7)), opset=20, approximate="tanh", ulps=8, length=1),
        node("slope", "PRelu", In((2, 4, 5)), weights(4, 1), ulps=1),
        node("runtime", "PRelu", In((2, 5)), In((1,)), ulps=1),
        node("int", "PRelu", In((9,), "int32", low=-9, high=9), In((1,), "int32", low=2, high=3)),
    ]  # fmt: skip
    cases += integer_powers()
    base = In((3, 7), values=[abs(v) + 0.1 for v in FINITE])
    cases += [node(f"{p}", "Pow", base, np.float32(p), ulps=3) for p in (0.5, 1.0, 2.0, 3.0, -1.5)]
    corners, powers = zip(*itertools.product(CORNERS, (0.0, 1.0, -2.0, 3.0, 0.5)), strict=True)
    cases += [
        node("corners", "Pow", In((105,), values=corners), In((105,), values=powers), ulps=3),
        node("int-exponent", "Pow", In((8,)), ints(0, 1, 2, 3, -1, -2, 5, 7), ulps=4),
        node("f64-exponent", "Pow", base, np.array([0.1], np.float64), ulps=4),
        node(
            "f64", "Pow", In((5,), "float64", values=[0.5, 2.0, 3.0]), In((5,), "float64"), ulps=4
        ),
    ]
    for opset in (6, 11, 13):
        cases += clip(opset)
    return cases


FAR = 2**63 - 1


def integer_powers() -> list[Case]:
    bases, powers = zip(*itertools.product((-3, -2, -1, 0, 1, 2, 5), range(14)), strict=True)
    base = In((98,), "int32", values=bases)
    roots = In((7,), "int64", values=[4, 27, 8, 16, 10, 1_000_000, 32])
    return [
        node("int32-int64", "Pow", base, In((98,), "int64", values=powers)),
        node("int64-uint8", "Pow", In((9,), "int64", low=-9, high=9), In((9,), "uint8", high=18),
             witness=False),
        node("int32-float", "Pow", base, In((98,), values=powers)),
        node("int64-roots", "Pow", roots, np.array([1/2, 1/3, 1/3, 1/4, 1/3, 3/2, 2/5])),
        node("negative", "Pow", In((8,), "int32", values=[1, -1, -1, 2, -5, 7, 1, 100]),
             ints(-1, -1, -2, -1, -2, -3, -63, -1)),
        node("huge", "Pow", In((7,), "int64", values=[0, 1, -1, -1, 2, 4, 1]),
             ints(64, 2**40, 2**63 - 1, 2**62, 64, FAR, -(2**63)), witness=False),
        *(
            node(f"wraps-{dtype}", "Pow", In((24,), dtype, values=[3, 2, 7, -5, 6, 0, 1, -1]),
                 In((24,), "int64", values=(127, 128, 1000, 65537, 2**31 - 1, 2**62 + 3, FAR)),
                 witness=False)
            for dtype in ("int32", "int64")
        ),
        node("wraps-uint64", "Pow", In((9,), "int64", values=[3, 2, 5]),
             In((9,), "uint64", values=[2**63 + 5, 2**64 - 1, 2**63, 129]), witness=False),
        node("wraps-constant", "Pow", In((4,), "int32", values=[3, 2, -7, 10]), ints(300),
             witness=False),
        node("two", "Pow", In((5, 9), "int32", low=-9, high=9), np.float32(2)),
    ]  # fmt: skip


def shifts() -> list[Case]:
    cases = []
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        limits = np.iinfo(dtype)
        values = [limits.max, 1, 2, 5, 100, limits.max // 3, limits.max - 5, 0, limits.max // 2 + 1]
        value = In((5, 9), dtype, values=values[::2] + values)
        for direction in ("LEFT", "RIGHT"):
            cases.append(
                node(
                    f"{dtype}-{direction}".lower(),
                    "BitShift",
                    value,
                    In((9,), dtype, high=limits.bits),
                    opset=11,
                    direction=direction,
                )
            )
    for dtype in ("int8", "int16", "int32", "int64"):
        limits = np.iinfo(dtype)
        value = In((5, 12), dtype, low=limits.min, high=limits.max)
        counts = In((12,), dtype, values=[0, 1, 3, 7, 8, 15, 31, 32, 63, 64, -1, limits.min])
        for direction in ("LEFT", "RIGHT"):
            cases.append(
                node(
                    f"{dtype}-{direction}".lower(),
                    "BitShift",
                    value,
                    counts,
                    opset=28,
                    direction=direction,
                    witness=False,
                )
            )
    cases.append(
        node(
            "beyond",
            "BitShift",
            In((9,), "uint8", high=255),
            In((9,), "uint8", low=7, high=11),
            direction="RIGHT",
            witness=False,
        )
    )
    return cases


def clip(opset: int) -> list[Case]:
    x = In((3, 7), values=CORNERS)
    if opset < 11:
        return [
            node("old", "Clip", x, opset=opset, min=-0.5, max=1.25, ulps=0),
            node("old-default", "Clip", x, opset=opset, ulps=0),
        ]
    low, high = np.float32(-0.5), np.float32(1.25)
    return [
        node(f"both-{opset}", "Clip", x, low, high, opset=opset, ulps=0),
        node(f"low-{opset}", "Clip", x, low, opset=opset, ulps=0),
        node(f"high-{opset}", "Clip", x, None, high, opset=opset, ulps=0),
        node(f"crossed-{opset}", "Clip", x, high, low, opset=opset, ulps=0),
        node(f"runtime-{opset}", "Clip", x, In(()), high, opset=opset, ulps=0),
        *(
            [node("int", "Clip", In((9,), "int8", low=-99, high=99), np.int8(-5), np.int8(50))]
            * (opset == 13)
        ),
    ]


def halves() -> list[Case]:
    x = In(("N", 9), "float16")
    return [
        node("f16", "Add", x, In((9,), "float16"), sizes=BATCHES, batch=True, ulps=0.51),
        node("f16", "Tanh", x, sizes=BATCHES, batch=True, ulps=0.51),
        node("f16", "Softmax", x, sizes=BATCHES, batch=True, ulps=1),
        node("f16", "ReduceMean", x, ints(1), opset=18, sizes=BATCHES, batch=True, ulps=1,
             length=1),
        node("f16", "MatMul", x, weights(9, 20, dtype="float16"), sizes=BATCHES, batch=True,
             ulps=0.51, length=0.1, witness=False),
        node("f16", "Transpose", In((3, 7), "float16")),
        node("f16", "Concat", In((3, 7), "float16"), In((3, 2), "float16"), axis=1),
        node("f16", "Less", x, In((9,), "float16"), sizes=BATCHES),
        node("f16-f32", "Cast", x, to=1, sizes=BATCHES),
        node("f32-f16", "Cast", In((3, 7), values=CORNERS), to=10, ulps=0.5),
        text(
            "rounded-after-each-op",
            """agraph (float16[N, 9] x) => (float16[N, 9] y) {
                a = Exp(x)  b = Mul(a, x)  y = Sub(b, a)
            }""",
            BATCHES,
            batch=True,
            ulps=8,
            length=4,
        ),
    ]  # fmt: skip


def chains() -> list[Case]:
    return [
        text(
            "mul-add-is-not-fused",
            """agraph (float[N, 9] x, float[9] a, float[N, 1] b) => (float[N, 9] y, float[N, 9] z) {
                p = Mul(x, a)  y = Add(p, b)  q = Mul(y, y)  z = Sub(q, p)
            }""",
            BATCHES,
            batch=False,
            length=3,
        ),
        text(
            "shared-subexpressions",
            """agraph (float[4, 5] x) => (float[4, 5] y, bool[4, 5] m, float[4, 5] z) {
                t = Tanh(x)  s = Sigmoid(t)  u = Mul(t, s)  m = Less(s, u)
                y = Where(m, t, u)  z = Max(y, s, t)
            }""",
            length=2,
        ),
    ]


CASES = [*unary(), *binary(), *parametric(), *shifts(), *halves(), *chains()]
