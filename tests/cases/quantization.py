"""Cases of linear quantisation, and of products of quantised values."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np

from tests.cases.case import BATCHES, Array, Case, In, element_type, node, text
from tests.oracle import evaluator

# Ties, saturation on both sides, no numbers; multiples of 1/4 so that quotients are exact.
CORNERS = (
    0.0, -0.0, 0.25, 0.75, -0.25, -0.75, 1.25, 62.0, 63.25, 63.75, 64.0, -64.25, -64.5, 127.5, 1e9,
    -1e9, 3e38, -3e38, float("inf"), float("-inf"), float("nan"), 16383.75, -16384.25,
)  # fmt: skip
LIMITS = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max) + 1)
          for name in ("int8", "uint8", "int16", "uint16", "int32")}  # fmt: skip


def any_of(shape: tuple[int | str, ...], dtype: str) -> In:
    low, high = LIMITS[dtype]
    return In(shape, dtype, low=low, high=high)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(*LIMITS[dtype], shape, dtype)


def positive(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(3).uniform(0.05, 0.6, shape).astype(dtype)


def by_reference(case: Case) -> Case:
    """The case with results of `onnx.reference`, where the oracle's float64 hides a rounding."""
    return dataclasses.replace(case, expected=lambda feeds: evaluator.run(case.model, feeds))


def quantize() -> list[Case]:
    op, x = "QuantizeLinear", In((23,), values=CORNERS)
    half = np.float32(0.5)
    cases = [
        node(f"{dtype}", op, x, half, np.array(zero, dtype), opset=21)
        for dtype, zero in (("uint8", 128), ("int8", 3), ("uint16", 40000), ("int16", -7))
    ]
    cases += [
        node(f"since{opset}", op, In((5, 4), scale=30), half, np.uint8(100), opset=opset)
        for opset in (10, 13, 19, 23, 25)
    ]
    scales = {1: positive(5), 0: positive(3), -1: positive(37)}
    cases += [
        node(f"axis{axis}", op, In((3, 5, 37), scale=5), scale,
             numbers(scale.shape, "uint8"), axis=axis)
        for axis, scale in scales.items()
    ]  # fmt: skip
    cases += [
        node("no-zero-point", op, x, half),
        node("output-dtype", op, x, half, output_dtype=element_type("int8"), opset=21),
        node("one-scale", op, In((3, 4)), positive(1), numbers((1,), "int8")),
        node("scalar", op, In(()), half, np.int8(1)),
        node("empty", op, In((0, 3)), half, np.int8(1)),
        node("int32", op, In((40,), "int32", low=-300, high=300), half, np.uint8(100), opset=13),
        node("runtime", op, In((4, 5), scale=9), In((5,), values=[0.5, 0.3, 2.0]),
             In((5,), "int8", low=-9, high=9), axis=1),
        node("batch", op, In(("N", 19), scale=9), positive(19), numbers((19,), "uint8"),
             axis=-1, sizes=BATCHES, batch=True),
        node("runtime-axis", op, In(("N", 3), scale=9), In(("N",), values=[0.5, 0.3]), axis=0,
             sizes=BATCHES),
        node("blocked", op, In((6, 5), scale=9), positive(3, 5), numbers((3, 5), "int8"), axis=0,
             block_size=2, opset=21),
        node("blocked-last", op, In((3, 64), scale=9), positive(3, 4), numbers((3, 4), "uint8"),
             axis=-1, block_size=16, opset=21),
        node("blocks-of-one", op, In((2, "N"), scale=9), In((2, "N"), values=[0.5, 2.0]), axis=1,
             block_size=1, opset=21, sizes=({"N": 3}, {"N": 0})),
        node("blocked-rest", op, In((2, 7, 3), scale=9), positive(2, 3, 3), axis=1, block_size=3,
             opset=21),
        node("blocked-batch", op, In(("N", 8), scale=9), In(("N", 2), values=[0.5, 0.3]), axis=1,
             block_size=4, opset=21, sizes=BATCHES),
        node("precision", op, In((50,), scale=40), np.float32(0.3), np.uint8(9), opset=23,
             precision=element_type("float16"), witness=False),
        by_reference(node("f16", op, In((50,), "float16", scale=40), np.float16(0.3), np.uint8(9),
                          opset=21, witness=False)),
        by_reference(node("bf16", op, In((50,), "bfloat16", values=[0.1, 5.5, 7.25, -30.0]),
                          np.array(0.3, "bfloat16"), np.uint8(9), opset=21, witness=False)),
    ]  # fmt: skip
    return cases


def dequantize() -> list[Case]:
    op, scale = "DequantizeLinear", np.float32(0.3)
    cases = [
        node(dtype, op, any_of((40,), dtype), scale, np.array(zero, dtype), opset=21, ulps=1)
        for dtype, zero in (("uint8", 128), ("int8", 3), ("uint16", 40000), ("int16", -7))
    ]
    cases += [
        node(f"since{opset}", op, any_of((5, 4), "uint8"), scale, np.uint8(9), opset=opset, ulps=1)
        for opset in (10, 13, 19, 23, 25)
    ]
    scales = {1: positive(5), 0: positive(3), -1: positive(37)}
    cases += [
        node(f"axis{axis}", op, any_of((3, 5, 37), "uint8"), scale, numbers(scale.shape, "uint8"),
             axis=axis, ulps=1)
        for axis, scale in scales.items()
    ]  # fmt: skip
    cases += [
        node("int32", op, In((40,), "int32", low=-(2**20), high=2**20), scale, ulps=1),
        node("no-zero-point", op, any_of((40,), "int8"), scale, ulps=1),
        node("runtime", op, any_of((4, 5), "int8"), In((5,), values=[0.5, 0.3, 2.0]),
             any_of((5,), "int8"), axis=1, ulps=1),
        node("batch", op, any_of(("N", 19), "uint8"), positive(19), numbers((19,), "uint8"),
             axis=-1, sizes=BATCHES, batch=True, ulps=1),
        node("blocked", op, any_of((6, 5), "int8"), positive(3, 5), numbers((3, 5), "int8"), axis=0,
             block_size=2, opset=21, ulps=1),
        node("blocked-rest", op, any_of((2, 7, 3), "int8"), positive(2, 3, 3), axis=1,
             block_size=3, opset=21, ulps=1),
        node("blocked-constant", op, numbers((4, 64), "int8"), positive(4, 2), axis=1,
             block_size=32, opset=21, ulps=1),
        node("f16", op, any_of((40,), "uint8"), np.float16(0.3), np.uint8(9), ulps=1),
        node("output-dtype", op, any_of((40,), "uint8"), np.float32(0.3), opset=23,
             output_dtype=element_type("float16"), witness=False, ulps=1),
    ]  # fmt: skip
    return cases


def dynamic() -> list[Case]:
    op = "DynamicQuantizeLinear"
    return [
        node("around", op, In((7, 9), scale=3), outputs=3, ulps=0),
        node("above", op, In((40,), values=[1.0, 2.1, 1.3, 2.5, 3.34, 4.0]), outputs=3, ulps=0),
        node("below", op, In((33,), values=[-1.0, -2.1, -1.3, -2.5]), outputs=3, ulps=0),
        node("zeros", op, In((3, 4), values=[0.0]), outputs=3, ulps=0),
        node("scalar", op, In(()), outputs=3, ulps=0),
        node("runtime", op, In(("N", 5)), outputs=3, ulps=0, witness=False, sizes=BATCHES),
        node("runtime-witness", op, In(("N", 5)), outputs=3, ulps=0, sizes=({"N": 3}, {"N": 70})),
    ]


def tiles() -> list[Case]:
    """Products with rows, terms and columns that registers of tiles do not divide."""
    x, w = any_of((35, 70), "uint8"), numbers((70, 33), "int8")
    return [node("tiles", "MatMulInteger", x, w, np.uint8(99), numbers((33,), "int8"), opset=10)]


PAIRS = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"))


def products() -> list[Case]:
    op = "MatMulInteger"
    cases = []
    for left, right in PAIRS:
        # onnxruntime has no kernels for int8 times uint8.
        about = {"opset": 10, "witness": (left, right) != ("int8", "uint8")}
        a, b = any_of(("N", 37), left), numbers((37, 50), right)
        name, zeros = f"{left}-{right}", (numbers((), left), numbers((), right, 1))
        cases += [
            node(name, op, a, b, *zeros, sizes=BATCHES, batch=True, **about),
            node(f"{name}-plain", op, a, b, sizes=BATCHES, batch=True, **about),
            node(f"{name}-runtime", op, any_of((9, 37), left), any_of((37, 5), right),
                 any_of((), left), any_of((), right), **about),
        ]  # fmt: skip
    a, b = any_of((5, 8), "uint8"), any_of((8, 20), "int8")
    cases += [
        node("left-zero", op, a, b, numbers((), "uint8"), opset=10),
        node("right-zero", op, a, b, None, numbers((), "int8"), opset=10, witness=False),
        node("columns", op, a, b, numbers((), "uint8"), numbers((20,), "int8"), opset=10),
        node("rows", op, a, b, numbers((5,), "uint8"), numbers((20,), "int8"), opset=10,
             witness=False),
        node("batched", op, any_of((2, 3, 5, 8), "uint8"), any_of((3, 8, 4), "int8"),
             numbers((), "uint8"), numbers((), "int8"), opset=10),
        node("batched-zeros", op, any_of((2, 5, 8), "uint8"), any_of((2, 8, 4), "int8"),
             numbers((2, 5, 1), "uint8"), numbers((2, 1, 4), "int8"), opset=10, witness=False),
        node("vectors", op, any_of((40,), "uint8"), numbers((40,), "int8"), opset=10,
             witness=False),
        node("deep", op, any_of((3, 300), "uint8"), numbers((300, 33), "int8"), np.uint8(255),
             np.int8(-128), opset=10),
        node("narrow", op, any_of(("N", 300), "uint8"), numbers((300, 2), "int8"), np.uint8(7),
             opset=10, sizes=BATCHES, batch=True),
        node("column", op, any_of((3, 270), "int8"), numbers((270, 1), "uint8"), np.int8(-7),
             np.uint8(9), opset=10, witness=False),
        node("extremes", op, np.full((2, 70), 255, np.uint8), np.full((70, 9), -128, np.int8),
             opset=10),
        node("empty", op, any_of((4, 0), "uint8"), any_of((0, 3), "int8"), np.uint8(3), opset=10,
             witness=False),
        node("run-time-depth", op, any_of((4, "T"), "uint8"), any_of(("T", 6), "int8"),
             np.uint8(3), np.int8(5), opset=10, sizes=({"T": 5}, {"T": 1}, {"T": 34})),
        text(
            "dynamic-quantized-linear",
            """agraph (float[N, 37] x, int8[37, 20] w, float[20] ws, float[20] b)
                => (float[N, 20] y) <int8 wz = {0}> {
                q, s, z = DynamicQuantizeLinear(x)
                i = MatMulInteger(q, w, z, wz)
                f = Cast <to = 1> (i)
                p = Mul(s, ws)
                m = Mul(f, p)
                y = Add(m, b)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 37}),
            inputs={"w": any_of((37, 20), "int8")},
            opset=17,
            ulps=2,
            length=2,
        ),
    ]  # fmt: skip
    return cases


def sums_in_blocks() -> list[Case]:
    """Rows and weights of bytes in blocks with scales of their own; weights need fewer bits."""
    random = np.random.default_rng(5)
    return [
        text(
            f"{kind}-blocks-of-{block}-by-{bits}-bits{'-of-runs' if open_rows else ''}",
            f"""agraph ({kind}[{rows}, 3, {block}] x, float[{rows}, 3, 1] s)
                => (float[{rows}, 35] y) {{
                blocks = Transpose<perm = [1, 0, 2]> (x)
                scales = Transpose<perm = [1, 0, 2]> (s)
                sums = MatMulInteger (blocks, w, x_zero, w_zero)
                wide = Cast<to = 1> (sums)
                scaled = Mul (wide, scales)
                y = Einsum<equation = "kmn,kn->mn"> (scaled, columns)
            }}""",
            BATCHES if open_rows else ({},),
            inputs={"x": any_of((rows, 3, block), kind), "s": In((rows, 3, 1), low=0.1, high=1)},
            constants={
                "w": random.integers(0, 1 << bits, (3, block, 35)).astype(np.uint8),
                "x_zero": np.array(zero, kind),
                "w_zero": np.array(1 << bits - 1, np.uint8),
                "columns": positive(3, 35),
            },
            opset=17,
            batch=open_rows,
            length=3,
            # onnxruntime has no kernels for int8 times uint8.
            witness=kind == "uint8",
        )
        for kind, zero, block, bits, rows in (
            ("int8", 0, 16, 4, "N"),
            ("int8", 0, 32, 2, 1),
            ("int8", 3, 18, 8, 5),
            ("uint8", 7, 12, 4, "N"),
        )
        for open_rows in [rows == "N"]
    ]


def scaled_products() -> list[Case]:
    op = "QLinearMatMul"
    cases = []
    scales = np.float32(0.02), np.float32(0.01), np.float32(0.7)
    for left, right in PAIRS:
        left_zero, right_zero = numbers((), left), numbers((), right, 1)
        cases.append(
            node(f"{left}-{right}", op, any_of(("N", 37), left), scales[0], left_zero,
                 numbers((37, 50), right), scales[1], right_zero, scales[2], np.array(3, left),
                 opset=10, sizes=BATCHES, batch=True, witness=(left, right) != ("int8", "uint8"))
        )  # fmt: skip
    a, b = any_of((5, 8), "uint8"), any_of((8, 20), "int8")
    zeros = numbers((), "uint8"), numbers((), "int8"), np.uint8(100)
    cases += [
        node("columns", op, a, scales[0], zeros[0], b, positive(20), numbers((20,), "int8"),
             np.float32(9), zeros[2], opset=10),
        node("rows", op, a, positive(5), numbers((5,), "uint8"), b, scales[1], zeros[1],
             positive(5), numbers((5,), "uint8"), opset=10, witness=False),
        node("batched", op, any_of((2, 5, 8), "uint8"), scales[0], zeros[0],
             any_of((2, 8, 4), "int8"), scales[1], zeros[1], scales[2], zeros[2], opset=10),
        node("f16", op, a, np.float16(0.02), zeros[0], b, np.float16(0.01), zeros[1],
             np.float16(0.7), zeros[2], opset=21, witness=False),
    ]  # fmt: skip
    return cases


def convolutions() -> list[Case]:
    cases = []
    forms = {
        "plain": {},
        "padded": {"pads": [1, 0, 2, 1]},
        "strided": {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 1, 1, 1]},
        "same": {"auto_pad": "SAME_UPPER"},
    }
    x_zero, y_zero = numbers((), "uint8"), np.uint8(90)
    filters = (numbers((4,), "int8"), positive(4))
    for name, attributes in forms.items():
        x, w = any_of((2, 3, 7, 6), "uint8"), numbers((4, 3, 3, 2), "int8")
        cases += [
            node(name, "ConvInteger", x, w, x_zero, np.int8(0), opset=10, **attributes),
            node(name, "QLinearConv", x, np.float32(0.02), x_zero, w, np.float32(0.03), np.int8(0),
                 np.float32(0.9), y_zero, numbers((4,), "int16").astype(np.int32), opset=10,
                 **attributes),
        ]  # fmt: skip
    x = any_of(("N", 4, 9), "uint8")
    w = numbers((4, 2, 3), "int8")
    cases += [
        node("groups", "ConvInteger", x, w, x_zero, np.int8(-3), group=2, opset=10, sizes=BATCHES,
             batch=True, pads=[1, 1], witness=False),
        node("filters", "ConvInteger", x, w, x_zero, filters[0], group=2, opset=10,
             sizes=BATCHES, witness=False),
        node("no-zeros", "ConvInteger", any_of((1, 2, 5), "int8"), numbers((3, 2, 2), "uint8"),
             opset=10, witness=False),
        node("runtime", "ConvInteger", any_of((1, 2, "T"), "uint8"), any_of((3, 2, 2), "int8"),
             any_of((), "uint8"), any_of((3,), "int8"), opset=10, witness=False,
             sizes=({"T": 5}, {"T": 2}, {"T": 40}), pads=[1, 1]),
        node("runtime-int8", "ConvInteger", any_of((1, 5, "T"), "int8"), numbers((3, 5, 2), "int8"),
             any_of((), "int8"), opset=10, witness=False,
             sizes=({"T": 5}, {"T": 2}, {"T": 40}), pads=[1, 1]),
        node("one-filter", "QLinearConv", any_of((1, 8, "T"), "uint8"), np.float32(0.02), x_zero,
             numbers((1, 8, 1), "int8"), np.float32(0.1), np.int8(0), np.float32(0.9), y_zero,
             opset=10, sizes=({"T": 5}, {"T": 2}, {"T": 40})),
        node("many-filters", "QLinearConv", any_of((1, 6, 5, 7), "uint8"), np.float32(0.02), x_zero,
             numbers((20, 6, 3, 3), "int8"), np.float32(0.1), np.int8(0), np.float32(5), y_zero,
             opset=10, pads=[1, 1, 1, 1]),
        node("filters", "QLinearConv", x, np.float32(0.02), x_zero, w, filters[1],
             np.zeros(4, np.int8), np.float32(7), y_zero, group=2, opset=10, sizes=BATCHES,
             batch=True, pads=[1, 1]),
        node("int8", "QLinearConv", any_of((1, 2, 9), "int8"), np.float32(0.02), np.int8(-3),
             numbers((3, 2, 3), "int8"), np.float32(0.1), np.int8(0), np.float32(0.9), np.int8(4),
             opset=10),
    ]  # fmt: skip
    return cases


NARROW = {
    "int8": (
        "w = DequantizeLinear<axis = 1> (q, s)",
        {"q": numbers((8, 8), "int8"), "s": positive(8) / 64},
    ),
    "int4": (
        "w = DequantizeLinear<axis = 0, block_size = 4> (q, s)",
        {"q": (numbers((8, 8), "int8") % 8 - 4).astype(np.int8), "s": positive(2, 8) / 4},
    ),
    "bf16": (
        "w = Cast<to = 1> (q)",
        {"q": np.random.default_rng(1).uniform(-0.4, 0.4, (8, 8)).astype(ml_dtypes.bfloat16)},
    ),
}
STEP = """
    p = MatMul (before, w)
    sum = Add (p, xt)
    after = Tanh (sum)
    out = Identity (after)
"""


def narrow_weights_in_loops() -> list[Case]:
    """One recurrence as a Scan, and what a Loop differs from it: nothing."""
    return [
        text(
            f"{name}-weights-in-loops",
            f"""agraph (float[N, 8] h, float[S, N, 8] x)
                => (float[N, 8] last, float[S, N, 8] all, float[S, N, 8] nothing) {{
                {widened}
                last, all = Scan<num_scan_inputs = 1, body = step
                    (float[N, 8] before, float[N, 8] xt) => (float[N, 8] after, float[N, 8] out)
                    {{ {STEP} }}> (h, x)
                shape = Shape<end = 1> (x)
                count = Squeeze (shape)
                unused, looped = Loop<body = step
                    (int64 t, bool more, float[N, 8] before)
                    => (bool on, float[N, 8] after, float[N, 8] out)
                    {{ on = Identity (more)  xt = Gather (x, t) {STEP} }}> (count, , h)
                nothing = Sub (all, looped)
            }}""",
            ({"S": 4, "N": 2}, {"S": 1, "N": 1}, {"S": 23, "N": 3}),
            constants=constants,
            batch=True,
            states={"h": "last"},
            length=64,
        )
        for name, (widened, constants) in NARROW.items()
    ]


def narrow_transposed_convolutions() -> list[Case]:
    """Weights that the rows of a batch share: widened once, into the order of two frames each."""
    return [
        text(
            f"{filters}-narrow-filters-of-two-frames",
            f"""agraph (float[N, 3, 9] x) => (float[N, {filters}, L] y) {{
                w = DequantizeLinear (q, s)
                y = ConvTranspose<strides = [2]> (x, w)
            }}""",
            ({"N": 1}, {"N": 5}),
            constants={"q": numbers((3, filters, 4), "int8"), "s": np.float32(0.02)},
            batch=True,
            # Three channels, and every other one of four taps.
            length=6,
        )
        for filters in (16, 31)
    ]


def sums_of_open_columns() -> list[Case]:
    """Products of bytes, whose zero points take part in sums of every other byte of an operand."""
    return [
        text(
            "sums-of-columns-of-open-length",
            """agraph (uint8[K, 2] x, int8[9, N] w, int8[N] zero) => (int32[2, N] y) {
                turned = Transpose<perm = [1, 0]> (x)
                y = MatMulInteger (turned, w, x_zero, zero)
            }""",
            ({"K": 9, "N": 3}, {"K": 9, "N": 40}),
            inputs={
                "x": any_of(("K", 2), "uint8"),
                "w": any_of((9, "N"), "int8"),
                "zero": any_of(("N",), "int8"),
            },
            constants={"x_zero": np.uint8(3)},
        )
    ]


def attention() -> list[Case]:
    """Few queries that meet keys and values as quantised by a run; words that are full or not."""
    return [
        text(
            f"{kind}-attention-over-{depth}",
            f"""agraph ({kind}[2, M, {depth}] q, float[2, T, {depth}] k)
                => ({kind}[2, M, {depth}] y) {{
                turned = Transpose<perm = [0, 2, 1]> (k)
                keys = QuantizeLinear (turned, s, z)
                p = QLinearMatMul (q, s, z, keys, s, z, p_scale, z)
                values = QuantizeLinear (k, s, z)
                y = QLinearMatMul (p, p_scale, z, values, s, z, y_scale, z)
            }}""",
            ({"M": 1, "T": 37}, {"M": 5, "T": 37}, {"M": 1, "T": 3}),
            inputs={
                "q": any_of((2, "M", depth), kind),
                "k": In((2, "T", depth), scale=30),
            },
            constants={
                "s": np.float32(0.5),
                "z": np.array(zero, kind),
                "p_scale": np.float32(64),
                "y_scale": np.float32(4096),
            },
        )
        for kind, zero, depth in (("uint8", 131, 24), ("int8", -3, 24), ("uint8", 7, 27))
    ]


def byte_floats() -> list[Case]:
    """Floats of 8 bits; the way back, since NumPy cannot compare all of them."""
    body = """
        q = QuantizeLinear{0}(x, scale, zero)  y = DequantizeLinear{1}(q, scale, zero)
    """
    return [
        text(
            f"{name}-quantized-by-row",
            f"""agraph (float[N, 5] x) => (float[N, 5] y) {{
                {body.format("<axis = 1, saturate = 1>", "<axis = 1>")}
            }}""",
            ({"N": 3}, {"N": 0}, {"N": 40}),
            inputs={"x": In(("N", 5), scale=300)},
            constants={
                "scale": np.array([0.5, 1, 2, 0.1, 3], np.float32),
                "zero": np.zeros(5, getattr(ml_dtypes, f"float8_{name}")),
            },
        )
        for name in ("e4m3fn", "e5m2fnuz")
    ]


def of_one_byte() -> list[Case]:
    """A chain from bytes to bytes, for fewer elements than a table has, and for more."""
    return [
        by_reference(
            text(
                f"swish-of-{dtype}",
                f"""agraph ({dtype}[N, 31] x) => ({dtype}[N, 31] y) {{
                    wide = DequantizeLinear (x, scale, point)
                    gate = HardSigmoid (wide)
                    product = Mul (wide, gate)
                    y = QuantizeLinear (product, scale, point)
                }}""",
                ({"N": 3}, {"N": 0}, {"N": 40}),
                inputs={"x": any_of(("N", 31), dtype)},
                constants={"scale": np.float32(0.0625), "point": np.array(7, dtype)},
            )
        )
        for dtype in ("int8", "uint8")
    ]


CASES = [
    *of_one_byte(),
    *byte_floats(),
    *narrow_weights_in_loops(),
    *narrow_transposed_convolutions(),
    *sums_of_open_columns(),
    *attention(),
    *quantize(),
    *dequantize(),
    *dynamic(),
    *products(),
    *tiles(),
    *sums_in_blocks(),
    *scaled_products(),
    *convolutions(),
]
