"""Cases of reductions, normalisations and softmax."""

from __future__ import annotations

import numpy as np

from tests.cases.case import BATCHES, Case, In, ints, node, weights

FLOAT_OPS = (
    "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceSumSquare",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
# (shape, axes, keepdims): rows around 32, the number of chains, and axes anywhere.
FORMS = (
    ((5, 7), (1,), 1), ((5, 7), (0,), 0), ((5, 32), (-1,), 0), ((3, 33), (1,), 1),
    ((2, 100), (1,), 0), ((4, 3, 5), (0, 2), 1), ((4, 3, 5), (1, 2), 0), ((4, 3, 5), (-3, 1), 0),
    ((1, 6), (0,), 1), ((3, 1), (1,), 0), ((31,), (0,), 0),
)  # fmt: skip

INF, NAN = float("inf"), float("nan")
SPECIAL_ROWS = [1.0, NAN, -2.0, 3.0, INF, -INF, -0.0, 0.0, -0.0, -INF, -INF, -INF]


def positive(shape: tuple[int | str, ...]) -> In:
    return In(shape, values=np.linspace(0.3, 1.9, 101).tolist())


def reductions() -> list[Case]:
    cases = []
    for op in FLOAT_OPS:
        operand = positive if op == "ReduceLogSum" else In
        since13 = op == "ReduceSum"
        cases.append(node("all", op, operand((3, 4)), opset=18, length=12))
        cases.append(
            node("old", op, operand((3, 4, 2)), opset=11, axes=[0, -1], keepdims=0, length=6)
        )
        cases.append(node("old-all", op, operand((3, 40)), opset=11, keepdims=0, length=120))
        cases.append(
            node(
                "noop",
                op,
                operand((3, 4)),
                opset=18,
                noop_with_empty_axes=1,
                witness=False,
                length=1,
            )
        )
        cases.append(
            node("empty-axes", op, operand((3, 4)), np.zeros(0, np.int64), opset=18, length=12)
        )
        cases.append(
            node(
                "batch",
                op,
                operand(("N", 35)),
                ints(1),
                sizes=BATCHES,
                batch=True,
                opset=18,
                length=35,
            )
        )
        cases.append(
            node(
                "columns",
                op,
                operand((35, "N")),
                ints(0),
                sizes=BATCHES,
                opset=18,
                length=35,
                witness=False,
            )
        )
        cases.append(
            node(
                "runtime",
                op,
                operand((3, "T")),
                ints(1),
                keepdims=0,
                opset=18,
                length=70,
                witness=False,
                sizes=({"T": 4}, {"T": 1}, {"T": 70}, {"T": 0}),
            )
        )
        if since13:
            cases.append(node("since13", op, In((3, 4)), ints(0), opset=13, keepdims=0, length=3))
        cases.append(
            node(
                "f64",
                op,
                In((3, 34), "float64", values=[0.5, 1.5, 0.7]),
                ints(1),
                opset=18,
                length=34,
            )
        )
    for op in ("ReduceSum", "ReduceMax", "ReduceMean"):
        cases += [
            node(
                f"{list(shape)}-{list(axes)}-{keep}",
                op,
                In(shape),
                ints(*axes),
                keepdims=keep,
                opset=18,
                length=100,
            )
            for shape, axes, keep in FORMS
        ]
    for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"):
        for dtype in ("int32", "int64"):
            x = In((3, 37), dtype, low=-3, high=4)
            cases.append(node(dtype, op, x, ints(1), opset=18, witness=op != "ReduceL1"))
    # onnxruntime cuts each exponential to an integer: it has the largest element and logarithms of
    # how often it is there. Here the sums are those of the function body, in float64.
    for op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        for dtype in ("int32", "int64", "uint32"):
            x = In((3, 37), dtype, low=1, high=90)
            agrees = op != "ReduceLogSumExp" and dtype != "uint32"
            cases.append(node(dtype, op, x, ints(1), opset=18, witness=agrees))
        x = In((3, 4), "int64", low=1, high=9)
        cases.append(node("int64-noop", op, x, opset=18, noop_with_empty_axes=1, witness=False))
    cases += [
        node("bool", op, In((3, 4), "bool"), ints(1), opset=20, witness=False)
        for op in ("ReduceMax", "ReduceMin")
    ]
    big = 2**31 - 1
    cases += [
        *(node(f"{dtype}-negative", "ReduceLogSum", In((2, 3), dtype, values=[-3, 2, -4, 0, 9]),
               ints(1), opset=18, witness=False)
          for dtype in ("int32", "int64")),
        node("int64-negative", "ReduceLogSumExp", In((2, 3), "int64", values=[-3, -5, -4, 0, -9]),
             ints(1), opset=18, witness=False),
        node("int32", "ReduceMean", In((3, 37), "int32", low=-big, high=big), ints(1), opset=18,
             witness=False),
        node("int64", "ReduceMean", In((3, 37), "int64", low=-9, high=5), ints(1), opset=18,
             keepdims=0),
    ]  # fmt: skip
    for dtype in ("int8", "uint8"):
        limits = np.iinfo(dtype)
        x = In((5, 37), dtype, low=limits.min, high=limits.max)
        cases += [node(dtype, op, x, ints(1), opset=18) for op in ("ReduceMax", "ReduceMin")]
    for dtype in ("uint32", "uint64"):
        x = In((3, 37), dtype, high=9)
        cases += [
            node(dtype, op, x, ints(0), opset=18, witness=False)
            for op in ("ReduceSum", "ReduceMax", "ReduceProd", "ReduceL1")
        ]
    special = [1.0, -2.0, float("nan"), 3.0, float("inf"), float("-inf"), 0.5, -0.0, 0.0]
    cases += [
        node("special", op, In((5, 3), values=special), ints(1), opset=18, length=3, witness=False)
        for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp")
    ]
    cases += [
        node(
            "huge",
            "ReduceLogSumExp",
            In((2, 3), values=[1e4, 1.00001e4, -1e30]),
            ints(1),
            opset=18,
            length=3,
        ),
        node("scalar", "ReduceSum", In(()), opset=13, length=1),
        node("rows-int8", "ReduceMax", In((3, 40), "int8", low=-128, high=127), ints(1), opset=18),
        node("columns-uint8", "ReduceMin", In((3, 40), "uint8", high=255), ints(0), opset=18),
    ]
    return cases


def softmaxes() -> list[Case]:
    cases = []
    for op in ("Softmax", "LogSoftmax"):
        cases += [
            node("last", op, In((3, 33)), length=33),
            node("first", op, In((5, 4)), axis=0, length=5),
            node("middle", op, In((2, 6, 3)), axis=1, length=6),
            node("old", op, In((2, 3, 4)), opset=12, length=12),
            node("old-last", op, In((2, 3, 4)), opset=11, axis=-1, length=12),
            node("huge", op, In((2, 5), values=[1e4, -1e4, 9.9e3, 1.00002e4, 3.0]), length=5),
            node("batch", op, In(("N", 7)), sizes=BATCHES, batch=True, length=7),
            node(
                "runtime",
                op,
                In((2, "T")),
                sizes=({"T": 3}, {"T": 1}, {"T": 65}, {"T": 0}),
                length=65,
            ),
            node("f64", op, In((3, 5), "float64"), length=5),
            # In turn: NaN, infinity, zeros of both signs, nothing but -infinity.
            node("special", op, In((4, 3), values=SPECIAL_ROWS), length=3, witness=False),
            node("many-special", op, In((3, 513), values=[0.5, NAN, -INF, 2.0]), length=513,
                 witness=False),
            node("masked", op, In((3, 600), values=[0.5, -INF, -200.0, 2.0, -1e30]), length=600),
        ]  # fmt: skip
    return cases


def normalizations() -> list[Case]:
    return [
        node(
            "last",
            "LayerNormalization",
            In((4, 33)),
            weights(33),
            weights(33, seed=1),
            opset=17,
            length=33,
        ),
        node("no-bias", "LayerNormalization", In((4, 5)), weights(5), opset=17, length=5),
        node(
            "axis",
            "LayerNormalization",
            In((2, 3, 4)),
            weights(3, 4),
            weights(3, 4),
            opset=17,
            axis=1,
            epsilon=0.1,
            length=12,
        ),
        node(
            "broadcast",
            "LayerNormalization",
            In((2, 3, 4)),
            weights(4),
            weights(1),
            opset=17,
            axis=-2,
            length=12,
            witness=False,
        ),
        node(
            "batch",
            "LayerNormalization",
            In(("N", 40)),
            weights(40),
            weights(40),
            opset=17,
            sizes=BATCHES,
            batch=True,
            length=40,
        ),
        node(
            "f64",
            "LayerNormalization",
            In((4, 5), "float64"),
            weights(5, dtype="float64"),
            opset=17,
            length=5,
        ),
    ]


def ngrams() -> list[Case]:
    pool = {
        "ngram_counts": [0, 3, 9],
        "ngram_indexes": [2, 0, 5, 1, 3, 7, 4],
        "pool_int64s": [1, 2, 3, 0, 1, 1, 1, 2, 3, 1, 0, 2],
        "min_gram_length": 1,
        "max_gram_length": 3,
        "opset": 9,
    }
    weights = [0.5, 2.0, -1.0, 1.0, 3.0, 0.25, 8.0]
    rows = In(("N", "T"), "int64", high=4)
    sizes = ({"N": 3, "T": 9}, {"N": 1, "T": 2}, {"N": 5, "T": 33})
    return [
        *(
            node(mode, "TfIdfVectorizer", rows, mode=mode, max_skip_count=1, sizes=sizes,
                 weights=weights, batch=True, **pool)
            for mode in ("TF", "IDF", "TFIDF")
        ),
        node("one-row", "TfIdfVectorizer", In((12,), "int32", high=4), mode="IDF",
             max_skip_count=3, **pool),
        node("pairs", "TfIdfVectorizer", In((2, 6), "int32", high=4), mode="TF",
             max_skip_count=0, **{**pool, "min_gram_length": 2, "max_gram_length": 2}),
        node("too-short", "TfIdfVectorizer", In((2, 1), "int64", high=4), mode="TFIDF",
             max_skip_count=2, weights=weights, **pool),
    ]  # fmt: skip


CASES = [*reductions(), *softmaxes(), *normalizations(), *ngrams()]
