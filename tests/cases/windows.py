"""Cases of pooling, normalisations over channels, blocks, tiles and generated values."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.cases.case import BATCHES, Case, In, Sizes, ints, node, text, weights

EXTENTS: tuple[Sizes, ...] = ({"T": 5}, {"T": 40}, {"T": 9})


def pools() -> list[Case]:
    x1, x2 = In((2, 3, 11)), In((1, 2, 7, 8))
    forms: dict[str, tuple[In, dict[str, Any]]] = {
        "1d": (x1, {"kernel_shape": [3]}),
        "2d": (x2, {"kernel_shape": [2, 3], "strides": [2, 1]}),
        "3d": (In((1, 1, 4, 4, 4)), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
        "pads": (x2, {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2]}),
        "3d-pads": (
            In((1, 2, 5, 4, 6)),
            {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]},
        ),
        "one-axis": (x2, {"kernel_shape": [9, 1], "strides": [1, 2], "pads": [4, 0, 4, 0]}),
        "dilated": (x1, {"kernel_shape": [3], "dilations": [3]}),
        "dilated-2d": (x2, {"kernel_shape": [3, 4], "dilations": [2, 2], "pads": [0, 1, 1, 0]}),
        "ceil": (x2, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        "ceil-pads": (
            x2,
            {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        ),
        "same": (x2, {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        "same-lower": (x2, {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
        "one": (x1, {"kernel_shape": [1], "strides": [2]}),
        "one-padded": (x1, {"kernel_shape": [1], "pads": [0, 0]}),
    }
    cases = []
    for op in ("MaxPool", "AveragePool"):
        for name, (x, attributes) in forms.items():
            cases.append(node(name, op, x, opset=19, ulps=2, length=9, **attributes))
        runtime = node("runtime", op, In((1, 3, "T")), opset=11, sizes=EXTENTS, length=9,
                       kernel_shape=[4], strides=[2], pads=[1, 2])  # fmt: skip
        batch = node("batch", op, In(("N", 3, 6)), opset=11, sizes=BATCHES, batch=True, length=9,
                     kernel_shape=[2])  # fmt: skip
        cases += [runtime, batch]
        open_ = In((1, 2, "T", 8))
        for name in ("pads", "ceil", "ceil-pads", "same", "same-lower"):
            about = {"sizes": EXTENTS, "ulps": 2, "length": 9, **forms[name][1]}
            cases.append(node(f"runtime-{name}", op, open_, opset=19, **about))
    cases += positions()
    counted = {"kernel_shape": [3, 3], "count_include_pad": 1, "pads": [1, 1, 1, 1]}
    ceiled = {**counted, "strides": [2, 2], "ceil_mode": 1}
    cases += [
        node("counts-pads", "AveragePool", x2, opset=19, length=9, **counted),
        # onnxruntime counts what ceil_mode adds behind the padding in some versions.
        node("counts-pads-ceil", "AveragePool", x2, opset=19, length=9, witness=False, **ceiled),
        node("int8", "MaxPool", In((1, 2, 9), "int8", low=-128, high=127), opset=12,
             kernel_shape=[3], pads=[1, 1]),
        node("f64", "AveragePool", In((1, 2, 9), "float64"), opset=11, kernel_shape=[3], length=3),
        node("global", "GlobalAveragePool", In((2, 3, 5, 7)), opset=11, length=35),
        node("global", "GlobalMaxPool", In((2, 3, 5, 7)), opset=11),
        node("runtime", "GlobalAveragePool", In((2, 3, "T")), opset=11, sizes=EXTENTS, length=40),
    ]  # fmt: skip
    return cases


def positions() -> list[Case]:
    """MaxPool with its second output, and MaxUnpool."""
    low = {"low": -3, "high": 3}
    x1, x2 = In((2, 3, 11), "int8", **low), In((2, 2, 5, 6), "uint8", high=4)
    nan = In((1, 2, 9), values=[np.nan, 1.0, 2.0, 2.0, -np.inf, np.nan, 0.0, -0.0])
    unpool, sparse = "MaxUnpool", np.random.default_rng(0).permutation(40)
    forms: dict[str, tuple[In, dict[str, Any]]] = {
        "1d": (x1, {"kernel_shape": [3], "pads": [1, 2]}),
        "2d": (x2, {"kernel_shape": [2, 3], "strides": [2, 1], "dilations": [2, 1]}),
        "columns": (x2, {"kernel_shape": [3, 2], "storage_order": 1, "pads": [1, 0, 2, 1]}),
        "3d": (In((1, 2, 4, 3, 5), "float64"), {"kernel_shape": [2, 1, 2], "storage_order": 1}),
        "same": (x2, {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        "ceil": (x2, {"kernel_shape": [3, 3], "strides": [3, 2], "ceil_mode": 1}),
    }
    return [
        *(node(f"where-{name}", "MaxPool", x, opset=12, outputs=2, **about)
          for name, (x, about) in forms.items()),
        node("where-half", "MaxPool", In((1, 2, 9), "float16"), opset=12, outputs=2,
             kernel_shape=[3]),
        # onnxruntime passes over NaN.
        node("where-nan", "MaxPool", nan, opset=12, outputs=2, kernel_shape=[3], witness=False),
        node("where-runtime", "MaxPool", In(("N", 3, "T")), opset=11, outputs=2, kernel_shape=[4],
             strides=[2], pads=[1, 2], sizes=({"N": 2, "T": 5}, {"N": 1, "T": 41})),
        node("pads", unpool, In((1, 1, 2, 3)), sparse[:6].reshape(1, 1, 2, 3) % 9, opset=11,
             kernel_shape=[2, 2], strides=[2, 2], pads=[0, 1, 1, 0]),
        node("shape", unpool, In((1, 2, 4)), sparse[:8].reshape(1, 2, 4), ints(1, 2, 20),
             kernel_shape=[2], strides=[2], ranks=[3]),
        text(
            "pool-and-unpool",
            """agraph (float[N, 2, T, 5] x) => (float[N, 2, T, 5] y) {
                m, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)  s = Shape(x)
                y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(m, i, s)
            }""",
            ({"N": 2, "T": 4}, {"N": 1, "T": 7}),
        ),
    ]  # fmt: skip


def normalizations() -> list[Case]:
    x, per_channel = In((2, 4, 5, 3)), [weights(4, seed=seed) for seed in range(2)]
    positive = np.abs(weights(4, seed=3)) + 0.1
    statistics = [*per_channel, weights(4, seed=2), positive]
    batch_norm = "BatchNormalization"
    cases = [
        node(f"since-{opset}", batch_norm, x, *statistics, opset=opset, epsilon=0.01, length=4)
        for opset in (8, 9, 14, 15)
    ]
    cases += [
        node("test", batch_norm, x, *statistics, opset=6, is_test=1, length=4, witness=False),
        node("matrix", batch_norm, In((3, 4)), *statistics, opset=15, length=4),
        node("batch", batch_norm, In(("N", 4, 2)), *statistics, opset=15, sizes=BATCHES,
             batch=True, length=4),
        *(node(f"training-{opset}", batch_norm, x, *statistics, opset=opset, outputs=3,
               training_mode=1, momentum=0.7, epsilon=0.01, length=40) for opset in (14, 15)),
        node("training-momentum", batch_norm, In((3, 4)), *statistics, opset=15, outputs=3,
             training_mode=1, length=10),
        node("training-runtime", batch_norm, In(("N", 4, "T")), *(In((4,)) for _ in range(4)),
             opset=15, outputs=3, training_mode=1, length=90,
             sizes=({"N": 3, "T": 5}, {"N": 1, "T": 40})),
        node("training-vector", batch_norm, In((9,)), *(weights(1, seed=seed) for seed in range(3)),
             np.ones(1, "f"), opset=15, outputs=3, training_mode=1, length=10, witness=False),
        node("training-half", batch_norm, In((2, 4, 5), "float16"),
             *(v.astype("float16") for v in statistics[:2]), *statistics[2:], opset=15, outputs=3,
             training_mode=1, length=10, witness=False),
        node("instance", "InstanceNormalization", x, *per_channel, opset=6, length=15),
        node("runtime", "InstanceNormalization", In((2, 4, "T")), *per_channel, opset=6,
             sizes=EXTENTS, length=40),
        node("channel", "GroupNormalization", x, *per_channel, opset=21, num_groups=2, length=30,
             ranks=[4], epsilon=0.1),
        node("rms", "RMSNormalization", In((3, 40)), weights(40), opset=23, length=40),
        node("rms-axis", "RMSNormalization", In((3, 4, 5)), weights(4, 5), opset=23, axis=1,
             epsilon=0.5, length=20),
        node("statistics", "LayerNormalization", In((3, 4, 5)), weights(5), opset=17, outputs=3,
             length=5),
        node("rows", "LayerNormalization", In((30, 330), "float64"),
             *(weights(330, dtype="float64", seed=seed) for seed in range(2)), opset=17,
             stash_type=11, length=330, witness=False),
        node("rows-runtime", "LayerNormalization", In(("N", 300)), weights(300), opset=17,
             sizes=BATCHES, batch=True, length=300),
        node("rows", "Softmax", In((15, 700), "float64", 4.0), opset=13, length=4),
        node("rows-runtime", "Softmax", In(("N", 300), scale=4.0), opset=13, sizes=BATCHES,
             batch=True, length=4),
        node("rows-runtime", "LogSoftmax", In(("N", 300), scale=4.0), opset=13, sizes=BATCHES,
             batch=True, length=4),
        node("double", "LayerNormalization", In((3, 5), "float64"), weights(5, dtype="float64"),
             opset=17, stash_type=11, length=5, witness=False),
    ]  # fmt: skip
    return cases


def blocks() -> list[Case]:
    return [
        node("dcr", "DepthToSpace", In((1, 8, 2, 3)), opset=13, blocksize=2),
        node("crd", "DepthToSpace", In((2, 8, 2, 3)), opset=13, blocksize=2, mode="CRD"),
        node("runtime", "DepthToSpace", In((1, 9, "T", 2)), opset=13, blocksize=3, sizes=EXTENTS),
        node("blocks", "SpaceToDepth", In((1, 2, 4, 6)), opset=13, blocksize=2),
        node("both", "Tile", In((2, 3)), ints(2, 3)),
        node("none", "Tile", In((2, 3)), ints(0, 1)),
        node("runtime", "Tile", In(("T", 3)), ints(1, 4), sizes=EXTENTS),
        node("runtime-axis", "Tile", In(("T", 3)), ints(3, 1), sizes=EXTENTS),
    ]


def generated() -> list[Case]:
    seven = numpy_helper.from_array(np.array([7], np.int32))
    return [
        text(
            "zeros-of-a-shape",
            """agraph (float[T, 3] x) => (float[T, 3] y) {
                s = Shape(x)  z = ConstantOfShape(s)  y = Add(x, z)
            }""",
            EXTENTS,
        ),
        node("value", "ConstantOfShape", ints(2, 3), value=seven),
        node("large", "ConstantOfShape", ints(20, 30), value=seven),
        node("scalar", "ConstantOfShape", np.zeros(0, np.int64)),
        node("empty", "ConstantOfShape", ints(0, 3), value=seven),
        node("up", "Range", np.array(2), np.array(12), np.array(3)),
        node("down", "Range", np.array(5), np.array(-4), np.array(-2)),
        node("none", "Range", np.array(5), np.array(5), np.array(1)),
        node("floats", "Range", *(np.float32(v) for v in (-1, 3, 0.7)), length=6),
        node("doubles", "Range", *(np.float64(v) for v in (1, 0, -0.1)), length=10),
        node("halves", "Range", *(np.float16(v) for v in (0, 3, 0.5)), opset=27, witness=False),
        node("no-floats", "Range", *(np.float32(v) for v in (3, -1, 0.5))),
        node("long", "Range", *(np.array(n, np.int32) for n in (-7, 700, 7))),
        text(
            "positions",
            """agraph (float[T, 3] x) => (float[T, 3] y, int64[T] p) {
                s = Shape<start = 0, end = 1>(x)  n = Squeeze(s)  p = Range(zero, n, one)
                f = Cast<to = 1>(p)  u = Unsqueeze(f, axis)  y = Mul(x, u)
            }""",
            EXTENTS,
            constants={"zero": np.array(0), "one": np.array(1), "axis": ints(1)},
        ),
        text(
            "expand-keeps-dimensions",
            """agraph (float[T, 1] x) => (float[T, 4] y) {
                s = Shape(x)  w = Concat<axis = 0>(minus, four)  e = Equal(w, minus)
                c = Where(e, s, w)  y = Expand(x, c)
            }""",
            EXTENTS,
            constants={"minus": ints(-1), "four": ints(4)},
        ),
    ]


def legacy() -> list[Case]:
    x = In((2, 3, 4))
    table = {
        "suffix": (In((3, 4)), {"broadcast": 1}),
        "axis": (In((3,)), {"broadcast": 1, "axis": 1}),
        "first-axis": (In((2, 3)), {"broadcast": 1, "axis": 0}),
        "same": (In((2, 3, 4)), {}),
        "scalar": (In(()), {"broadcast": 1}),
    }
    cases = [
        node(f"opset6-{name}", op, x, y, opset=6, ranks=[3], ulps=3, witness=False, **attributes)
        for op in ("Sub", "Div")
        for name, (y, attributes) in table.items()
    ]
    cases += [
        node("opset6", "PRelu", x, weights(3), opset=6, ranks=[3], ulps=1, witness=False),
        node("opset6-shared", "PRelu", x, weights(1), opset=6, ranks=[3], ulps=1, witness=False),
        node("opset6", "Gemm", In((2, 3)), weights(3, 4), weights(4), opset=6, broadcast=1,
             length=4, ranks=[2], witness=False),
        node("opset5", "Dropout", x, opset=6, is_test=1, ranks=[3], witness=False),
        node("opset2", "Pad", In((2, 3)), opset=2, ranks=[2], pads=[1, 0, 0, 1], value=2.0,
             witness=False),
        node("opset2", "Split", In((4, 3)), opset=2, outputs=2, ranks=[2, 2], witness=False),
    ]  # fmt: skip
    return cases


CASES = [*pools(), *normalizations(), *blocks(), *generated(), *legacy()]
