"""Cases of order, position and running sums."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, ints, node, text

X = In((3, 5, 4))
TIES = In((4, 37), "int32", low=-3, high=4)
SPECIAL = In(
    (3, 11), values=[0.0, -0.0, np.nan, 1.0, -np.inf, np.inf, -np.nan, -1.0, 1e-45, -1e-45, 1.0]
)
SIZES = ({"N": 3, "T": 70}, {"N": 1, "T": 7}, {"N": 5, "T": 9}, {"N": 0, "T": 8})


def sums() -> list[Case]:
    axis = In((), "int64", low=-3, high=3)
    both = {"exclusive": 1, "reverse": 1}
    return [
        node("first", "CumSum", X, np.array(0), length=3),
        node("middle", "CumSum", X, ints(1), length=5),
        node("last", "CumSum", X, np.array(-1), length=4),
        node("exclusive", "CumSum", X, np.array(1), exclusive=1, length=5),
        node("reverse", "CumSum", X, np.array(2, np.int32), reverse=1, length=4),
        node("both", "CumSum", X, np.array(1), **both, length=5),
        node("long", "CumSum", In((3, 200)), np.array(1), opset=11, length=200),
        node("double", "CumSum", In((7,), "float64"), np.array(0), length=7),
        node("int32", "CumSum", In((7, 3), "int32", high=2**31 - 1), np.array(0)),
        node("int64", "CumSum", In((7, 3), "int64", high=9), np.array(1)),
        node("half", "CumSum", In((2, 3), "float16"), np.array(1), length=3, witness=False),
        node("single", "CumSum", In((1,)), np.array(0)),
        node("single-exclusive", "CumSum", In((1, 2)), np.array(0), exclusive=1),
        node("empty", "CumSum", In((0, 2)), np.array(0), witness=False),
        node("axis-at-run-time", "CumSum", X, axis, length=5),
        node("only-axis-at-run-time", "CumSum", In((9,)), In((1,), "int32", high=1), **both,
             length=9),
        node("runtime", "CumSum", In(("N", "T", 3)), np.array(1), sizes=SIZES, batch=True,
             length=70),
        node("runtime-rows", "CumSum", In(("N", "T")), np.array(-1), sizes=SIZES, batch=True,
             length=70, reverse=1),
        node("product", "CumProd", X, np.array(1), opset=26, length=5, witness=False),
        node("product-both", "CumProd", X, np.array(-1), opset=26, **both, length=5,
             witness=False),
        node("product-int", "CumProd", In((9,), "int32", low=1, high=4), np.array(0), opset=26,
             witness=False),
        text(
            "positions-of-a-mask",
            """agraph (int64[N, T] tokens) => (int64[N, T] y) {
                padding = Equal(tokens, zero)  kept = Not(padding)  mask = Cast<to = 7>(kept)
                sums = CumSum(mask, axis)  y = Mul(sums, mask)
            }""",
            SIZES,
            constants={"zero": np.array(0), "axis": np.array(1)},
            inputs={"tokens": In(("N", "T"), "int64", high=3)},
            batch=True,
        ),
        text(
            "running-sum-in-a-scan",
            """agraph (float[3] s, float[T, 3] x) => (float[3] last, float[T, 3] all) {
                last, all = Scan<num_scan_inputs = 1, body = step
                    (float[3] h, float[3] r) => (float[3] next, float[3] out) {
                    e = Exp(r)  c = CumSum(e, axis)  next = Add(h, c)  out = CumSum(next, axis)
                }>(s, x)
            }""",
            ({"T": 5}, {"T": 1}, {"T": 0}),
            constants={"axis": np.array(0)},
            length=30,
        ),
    ]  # fmt: skip


def extremes() -> list[Case]:
    found = []
    for op in ("ArgMax", "ArgMin"):
        found += [
            node("first", op, X),
            node("middle", op, X, axis=1, keepdims=0),
            node("last", op, X, axis=-1),
            node("ties", op, TIES, axis=1),
            node("last-of-ties", op, TIES, axis=1, select_last_index=1, keepdims=0),
            node("last-of-ties-down", op, TIES, axis=0, select_last_index=1, opset=12),
            node("special", op, SPECIAL, axis=1, witness=False),
            node("special-last", op, SPECIAL, axis=0, select_last_index=1, witness=False),
            node("bytes", op, In((3, 100), "uint8", high=200), axis=1),
            node("double", op, In((100,), "float64"), keepdims=0),
            node("half", op, In((3, 100), "float16"), axis=1, witness=False),
            node("old", op, X, axis=2, opset=1),
            node("one", op, In((3, 1)), axis=1),
            node("runtime", op, In(("N", "T", 3)), axis=1, sizes=SIZES, batch=True),
            node("runtime-rows", op, In(("N", "T")), axis=1, sizes=SIZES, batch=True),
        ]
    return [
        *found,
        node("last", "Hardmax", X),
        node("first", "Hardmax", X, axis=0),
        node("ties", "Hardmax", In((4, 9), values=[1, 2, 2, 0, 2]), axis=-1),
        node("old", "Hardmax", X, axis=1, opset=11),
        node("empty", "Hardmax", In(("T", 2)), axis=0, sizes=({"T": 0}, {"T": 3})),
        node("runtime", "Hardmax", In(("N", "T")), sizes=SIZES, batch=True),
    ]


def tops() -> list[Case]:
    return [
        node("largest", "TopK", X, ints(3), outputs=2),
        node("smallest", "TopK", X, ints(2), outputs=2, axis=1, largest=0),
        node("all", "TopK", X, ints(3), outputs=2, axis=0),
        node("none", "TopK", X, ints(0), outputs=2, witness=False),
        node("ties", "TopK", TIES, ints(20), outputs=2),
        node("ties-down", "TopK", TIES, ints(3), outputs=2, axis=0, largest=0),
        node("special", "TopK", SPECIAL, ints(11), outputs=2, witness=False),
        node("special-smallest", "TopK", SPECIAL, ints(11), outputs=2, largest=0, witness=False),
        node("long", "TopK", In((2, 300)), ints(300), outputs=2),
        node("long-ties", "TopK", In((300, 2), "int32", high=9), ints(40), outputs=2, axis=0,
             largest=0),
        node("long-special", "TopK", In((2, 66), values=SPECIAL.values), ints(66), outputs=2,
             witness=False),
        node("groups", "TopK", In((2, 1000)), ints(10), outputs=2),
        node("groups-ties", "TopK", In((601, 2), "int32", high=4), ints(10), outputs=2, axis=0),
        node("groups-special", "TopK", In((2, 450), values=SPECIAL.values), ints(9), outputs=2,
             witness=False),
        node("groups-of-groups", "TopK", In((9001,)), ints(3), outputs=2, largest=0),
        node("threshold", "TopK", In((2, 400)), ints(90), outputs=2),
        node("threshold-ties", "TopK", In((301, 2), "int32", high=4), ints(100), outputs=2, axis=0,
             largest=0),
        node("threshold-special", "TopK", In((2, 330), values=SPECIAL.values), ints(140),
             outputs=2, witness=False),
        node("threshold-double", "TopK", In((3, 210), "float64"), ints(70), outputs=2),
        node("threshold-open", "TopK", In(("N", "T")), ints(70), outputs=2, largest=0,
             sizes=({"N": 2, "T": 150}, {"N": 1, "T": 70}, {"N": 0, "T": 71})),
        node("chosen-ties", "TopK", In((3, 64), "int32", high=4), ints(20), outputs=2),
        node("chosen-special", "TopK", In((2, 66), values=SPECIAL.values), ints(9), outputs=2,
             witness=False),
        node("chosen-bytes", "TopK", In((33, 5), "int8", low=-9, high=9), ints(7), outputs=2,
             axis=0, largest=0, witness=False),
        node("chosen-long", "TopK", In((2, 300)), ints(8), outputs=2),
        node("chosen-open", "TopK", In(("N", "T")), ints(2), outputs=2, largest=0,
             sizes=({"N": 2, "T": 9}, {"N": 1, "T": 300})),
        node("double", "TopK", In((100,), "float64"), ints(7), outputs=2),
        node("int64", "TopK", In((3, 80), "int64", low=-99, high=99), ints(7), outputs=2),
        node("bytes", "TopK", In((3, 80), "uint8", high=200), ints(7), outputs=2, witness=False),
        node("half", "TopK", In((3, 8), "float16"), ints(7), outputs=2, witness=False),
        node("unsorted", "TopK", In((3, 8)), ints(8), outputs=2, sorted=0, witness=False),
        node("single", "TopK", In((1,)), ints(1), outputs=2),
        node("old", "TopK", X, outputs=2, k=2, opset=1, ranks=(3, 3)),
        node("older", "TopK", X, ints(2), outputs=2, opset=10),
        node("runtime", "TopK", In(("N", "T")), ints(5), outputs=2, sizes=SIZES),
        node("runtime-rows", "TopK", In(("N", 3, 9)), ints(5), outputs=2,
             sizes=({"N": 3}, {"N": 1}, {"N": 20}), batch=True),
        text(
            "routing",
            """agraph (float[N, 8] x) => (float[N, 2] y, int64[N, 2] experts) {
                p = Softmax(x)  v, experts = TopK(p, k)  s = ReduceSum(v, axis)  y = Div(v, s)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 20}),
            constants={"k": ints(2), "axis": ints(1)},
            batch=True,
        ),
    ]  # fmt: skip


CASES = [*sums(), *extremes(), *tops()]
