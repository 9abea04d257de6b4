"""Cases of ops that the standard defines as functions of others, and of Scan over batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cases.case import Array, Case, In, Sizes, ints, node, text, weights

SEQUENCES: tuple[Sizes, ...] = (
    {"N": 2, "S": 3}, {"N": 1, "S": 1}, {"N": 0, "S": 2}, {"N": 2, "S": 0}, {"N": 3, "S": 11},
)  # fmt: skip
LONG: tuple[Sizes, ...] = (*SEQUENCES, {"N": 2, "S": 23})

NEGATIVE = [-0.1, -2.0, -0.5, 0.0, -1.0, -0.03, -30.0]
RATES = [0.1, 0.9, 0.5, 1.0, 0.0, 0.7]


def linear_attention(
    name: str,
    rule: str,
    heads: int = 2,
    group: int = 1,
    key: int = 4,
    value: int = 5,
    *,
    decays: int = 0,
    rates: int = 0,
    past: str | None = "float32",
    dtype: str = "float32",
    sizes: tuple[Sizes, ...] = LONG,
    **attributes: Any,
) -> Case:
    about = {"q_num_heads": heads * group, "kv_num_heads": heads, "update_rule": rule}
    case = node(
        name,
        "LinearAttention",
        In(("N", "S", heads * group * key), dtype),
        In(("N", "S", heads * key), dtype, scale=0.3),
        In(("N", "S", heads * value), dtype),
        None if past is None else In(("N", heads, key, value), past),
        In(("N", "S", decays), dtype, values=NEGATIVE) if decays else None,
        In(("N", "S", rates), dtype, values=RATES) if rates else None,
        opset=27,
        outputs=2,
        sizes=sizes,
        ulps=32,
        length=64,
        witness=False,
        batch=True,
        **about,
        **attributes,
    )
    return replace(case, states={"x3": "y1"} if past == dtype else None)


def causal_convolution(name: str, taps: int, *, bias: bool, past: bool, **attributes: Any) -> Case:
    case = node(
        name,
        "CausalConvWithState",
        In(("N", 3, "S")),
        weights(3, 1, taps),
        weights(3, seed=1) if bias else None,
        In(("N", 3, taps - 1)) if past else None,
        opset=27,
        outputs=2,
        sizes=LONG,
        ulps=16,
        length=taps,
        witness=False,
        batch=True,
        **attributes,
    )
    return replace(case, states={"x3": "y1"} if past else None)


def attention(
    name: str,
    *operands: In | Array | None,
    opset: int = 23,
    outputs: int = 1,
    witness: bool = True,
    ulps: float = 16,
    length: float = 32,
    sizes: tuple[Sizes, ...] = (),
    **attributes: Any,
) -> Case:
    return node(
        name,
        "Attention",
        *operands,
        opset=opset,
        outputs=outputs,
        sizes=sizes
        or ({"N": 2, "S": 3, "L": 5}, {"N": 1, "S": 1, "L": 1}, {"N": 3, "S": 7, "L": 9}),
        ulps=ulps,
        length=length,
        witness=witness,
        ranks=(4,) * outputs,
        **attributes,
    )


CROSS: tuple[Sizes, ...] = (
    {"N": 2, "S": 3, "L": 5}, {"N": 1, "S": 1, "L": 1}, {"N": 3, "S": 7, "L": 9},
)  # fmt: skip
QUERY = In(("N", 4, "S", 6))
KEY, VALUE = In(("N", 4, "L", 6)), In(("N", 4, "L", 5))
SHARED = (QUERY, In(("N", 2, "L", 6)), In(("N", 2, "L", 5)))
PACKED = (In(("N", "S", 24)), In(("N", "L", 12)), In(("N", "L", 10)))
PAST = In(("N", 4, "P", 6)), In(("N", 4, "P", 5))
PASTS: tuple[Sizes, ...] = (
    {"N": 2, "S": 3, "L": 3, "P": 4}, {"N": 1, "S": 1, "L": 1, "P": 9},
    {"N": 1, "S": 2, "L": 2, "P": 0},
)  # fmt: skip
SOME = [True, False, True, True, False]

ATTENTION = [
    attention("four axes", QUERY, KEY, VALUE),
    attention("shared keys", *SHARED),
    attention("packed heads", *PACKED, q_num_heads=4, kv_num_heads=2),
    attention("scale and cap", QUERY, KEY, VALUE, scale=0.7, softcap=2.0),
    attention("float64", *(replace(x, dtype="float64") for x in (QUERY, KEY, VALUE)),
              witness=False),
    attention(
        "float16",
        *(replace(x, dtype="float16") for x in (QUERY, KEY, VALUE)),
        witness=False,
        ulps=2,
        length=2,
    ),
    attention("causal", QUERY, KEY, VALUE, is_causal=1),
    attention("causal, packed", *PACKED, q_num_heads=4, kv_num_heads=2, is_causal=1),
    attention("mask of two axes", *SHARED, In(("S", "L"))),
    attention("mask of choices", QUERY, KEY, VALUE, In(("N", 1, "S", "L"), "bool", values=SOME)),
    attention("mask for each head", *SHARED, In((1, 4, "S", "L"))),
    attention(
        "row that sees nothing",
        In((1, 2, 3, 4)),
        In((1, 2, 3, 4)),
        In((1, 2, 3, 4)),
        np.array([[True, False, True], [False] * 3, [False, True, True]]),
        outputs=1,
        sizes=({},),
        opset=25,
        witness=False,
    ),
    attention("short mask", QUERY, KEY, VALUE, In(("S", 1)), opset=24, witness=False),
    attention("past", QUERY, KEY, VALUE, None, *PAST, outputs=3, sizes=PASTS),
    attention("causal past", QUERY, KEY, VALUE, None, *PAST, outputs=3, sizes=PASTS, is_causal=1),
    attention(
        "lengths", QUERY, KEY, VALUE, None, None, None, In(("N",), "int64", values=[1, 3, 2]),
        opset=24, witness=False, sizes=({"N": 2, "S": 2, "L": 5}, {"N": 3, "S": 3, "L": 3}),
    ),
    attention(
        "causal lengths", QUERY, KEY, VALUE, None, None, None,
        In(("N",), "int64", values=[1, 3, 2]), opset=25, witness=False, is_causal=1,
        sizes=({"N": 2, "S": 2, "L": 5}, {"N": 3, "S": 3, "L": 3}),
    ),
    attention(
        "window", QUERY, KEY, VALUE, opset=25, witness=False, left_window_size=2,
        right_window_size=1,
    ),
    attention(
        "causal window with past", QUERY, KEY, VALUE, None, *PAST, opset=25, witness=False,
        left_window_size=1, is_causal=1, sizes=PASTS, outputs=3,
    ),
    *(
        attention(
            f"shown {mode}", QUERY, KEY, VALUE, In(("S", "L")), None, None, outputs=4,
            witness=False, softcap=1.5, qk_matmul_output_mode=mode,
        )
        for mode in range(4)
    ),
]  # fmt: skip

SCAN = """
    g (TYPES float[N, 2] h, float[N, S, 2] x, float[N, S] z)
        => (float[N, 2] hn, float[N, S, 2] y) {
        hn, y = Scan <num_scan_inputs = 2, directions = [DIRECTIONS],
            body = b (float[2] s, float[2] e, float f) => (float[2] t, float[2] o) {
                u = Mul(s, f)
                t = Add(u, e)
                o = Neg(t)
            }> (LENGTHS, h, x, z)
    }
    """


def scan(name: str, directions: tuple[int, int], lengths: list[int] | None = None) -> Case:
    source = SCAN.replace("DIRECTIONS", ", ".join(map(str, directions)))
    source = source.replace("TYPES", "int64[N] n," if lengths else "")
    source = source.replace("LENGTHS", "n" if lengths else '""')

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        h, x, z = (feeds[key].astype(np.float64) for key in ("h", "x", "z"))
        y = np.zeros(x.shape)
        for row in range(len(h)):
            last = feeds["n"][row] if lengths else x.shape[1]
            for t in range(last):
                a, b = (last - 1 - t if back else t for back in directions)
                h[row] = h[row] * z[row, b] + x[row, a]
                y[row, t] = -h[row]
        return [h, y]

    inputs = {"n": In(("N",), "int64", values=lengths)} if lengths else {}
    sizes = ({"N": 3, "S": 4}, {"N": 1, "S": 5}) if lengths else SEQUENCES
    return text(
        f"Scan-8 {name}", source, sizes, inputs=inputs, opset=8, length=16, witness=False,
        batch=not lengths, expected=expected,
    )  # fmt: skip


def loss(name: str, op: str, shape: tuple[int | str, ...], *operands: Any, **options: Any) -> Case:
    labels = In((shape[0], *shape[2:]), "int64", low=0, high=3)
    return node(name, op, In(shape), labels, *operands, length=16, ulps=32, **options)


BATCHES: tuple[Sizes, ...] = ({"N": 3, "D": 4}, {"N": 1, "D": 1})

CASES: list[Case] = [
    node("plain", "SwiGLU", In(("N", 5)), In(("N", 5)), opset=28, sizes=({"N": 3}, {"N": 0}),
         ulps=16, witness=False, batch=True),
    node("alpha", "SwiGLU", In((3, 7)), In((3, 7)), opset=28, ulps=16, witness=False, alpha=0.5),
    linear_attention("linear", "linear"),
    linear_attention("gated per head", "gated", decays=2),
    linear_attention("gated per key", "gated", decays=8),
    linear_attention("delta", "delta", rates=2),
    linear_attention("gated delta", "gated_delta", decays=2, rates=2),
    linear_attention("one rate, decay per key", "gated_delta", decays=8, rates=1),
    linear_attention("shared keys", "gated_delta", group=3, decays=2, rates=2),
    linear_attention("no past, scale", "gated_delta", decays=2, rates=2, past=None, scale=0.3),
    linear_attention("wide heads", "gated_delta", 1, 1, 40, 37, decays=1, rates=1),
    linear_attention(
        "one step", "gated_delta", decays=2, rates=2, sizes=({"N": 2, "S": 1}, {"N": 1, "S": 1})
    ),
    causal_convolution("four taps", 4, bias=True, past=True, activation="silu"),
    causal_convolution("no bias", 3, bias=False, past=True),
    causal_convolution("no past", 3, bias=True, past=False, activation="swish"),
    causal_convolution("one tap", 1, bias=True, past=False),
    *ATTENTION,
    node("four axes", "RotaryEmbedding", In(("N", 2, "S", 8)), In(("N", "S", 4)),
         In(("N", "S", 4)), opset=23, sizes=SEQUENCES, length=2, batch=True),
    node("packed, interleaved, partial", "RotaryEmbedding", In(("N", "S", 24)), weights(10, 2),
         weights(10, 2, seed=1), In(("N", "S"), "int64", low=0, high=10), opset=23,
         sizes=({"N": 2, "S": 3}, {"N": 1, "S": 1}), length=2, witness=False, num_heads=3,
         interleaved=1, rotary_embedding_dim=4),
    node("plane", "AffineGrid", In((2, 2, 3)), ints(2, 1, 4, 5), opset=20, length=8,
         witness=False),
    node("space", "AffineGrid", In((2, 3, 4)), ints(2, 1, 2, 3, 4), opset=20, length=8,
         witness=False, align_corners=1),
    node("one image", "AffineGrid", In((1, 2, 3)), ints(1, 3, 1, 4), opset=20, length=8,
         witness=False, align_corners=1),
    node("runtime", "AffineGrid", In(("N", 2, 3)), In((4,), "int64", values=["N", 1, "H", "W"]),
         opset=20, length=8, witness=False, ranks=(4,),
         sizes=({"N": 2, "H": 3, "W": 5}, {"N": 1, "H": 1, "W": 4})),
    node("double", "AffineGrid", In((1, 3, 4), "float64"), ints(1, 3, 2, 1, 3), opset=20, length=8,
         witness=False),
    scan("forward", (0, 0)),
    scan("reverse", (1, 1)),
    scan("both ways", (0, 1)),
    scan("lengths", (0, 0), [3, 0, 4]),
    scan("lengths, both ways", (1, 0), [3, 1, 4]),
    *(
        loss(f"{reduction}, opset {opset}", "NegativeLogLikelihoodLoss", ("N", 3, "D"), *weight,
             opset=opset, reduction=reduction, sizes=BATCHES, ignore_index=1)
        for reduction in ("none", "mean", "sum")
        for opset, weight in ((13, (weights(3),)), (22, ()))
    ),
    *(
        loss(reduction, "SoftmaxCrossEntropyLoss", ("N", 3), np.abs(weights(3)), outputs=2,
             opset=13, reduction=reduction, sizes=({"N": 3}, {"N": 1}))
        for reduction in ("none", "mean", "sum")
    ),
]  # fmt: skip
