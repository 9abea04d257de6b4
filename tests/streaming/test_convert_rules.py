"""Each rule alone: chunks of 1, 2, 3, 7 and 40 frames give the bits of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.defs
import onnx.parser
import pytest

from ostinato.streaming import ConversionError, convert
from ostinato.streaming.registry import RULES
from tests.streaming.streams import assert_streams, model

# name: (nodes from x [N, 4, T] to y, constants, delay of y, opset)
# A frame and the size of all, and where to cut them.
ALIKE: dict[str, Any] = {
    **{"c": np.array([1, 4]), "V": (1, 4, 1)},
    **{"i": np.array([2]), "far": np.array([2**40])},
}
WINDOWS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "conv": ("y = Conv (x, W)", {"W": (5, 4, 3)}, 2, 18),
    "conv same": ("y = Conv <pads=[1, 1]> (x, W)", {"W": (5, 4, 3)}, 1, 18),
    "conv causal": ("y = Conv <pads=[4, 0], dilations=[2]> (x, W)", {"W": (5, 4, 3)}, 0, 18),
    "conv padded more than it sees": ("y = Conv <pads=[5, 0]> (x, W)", {"W": (5, 4, 3)}, 0, 18),
    "conv of one frame": ("y = Conv <strides=[3]> (x, W)", {"W": (5, 4, 1)}, 0, 18),
    "conv strided": ("y = Conv <strides=[3], pads=[2, 2]> (x, W)", {"W": (5, 4, 5)}, 0, 18),
    "conv strided, late": ("y = Conv <strides=[2]> (x, W)", {"W": (5, 4, 5)}, 2, 18),
    "conv by groups": (
        "y = Conv <group=4, pads=[2, 0]> (x, W, B)",
        {"W": (4, 1, 3), "B": (4,)},
        0,
        18,
    ),
    "conv same upper": ('y = Conv <auto_pad="SAME_UPPER"> (x, W)', {"W": (5, 4, 4)}, 2, 18),
    "conv same lower": ('y = Conv <auto_pad="SAME_LOWER"> (x, W)', {"W": (5, 4, 4)}, 1, 18),
    "conv same lower, of a frame more": (
        'p = Pad (x, w)  y = Conv <auto_pad="SAME_LOWER", strides=[3]> (p, W)',
        {"w": np.array([0, 0, 1, 0, 0, 0]), "W": (5, 4, 4)},
        0,
        18,
    ),
    "conv same upper, of a frame more": (
        'p = Pad (x, w)  y = Conv <auto_pad="SAME_UPPER", strides=[3]> (p, W)',
        {"w": np.array([0, 0, 1, 0, 0, 0]), "W": (5, 4, 4)},
        0,
        18,
    ),
    "conv after look-ahead": (
        "a = Conv <pads=[0, 2]> (x, W, B)  y = Conv <pads=[2, 0]> (a, W, B)",
        {"W": (4, 4, 3), "B": (4,)},
        2,
        18,
    ),
    "two dimensions": (
        "a = Unsqueeze (x, one)  b = Conv <pads=[1, 2, 1, 0]> (a, W)  y = Squeeze (b, one)",
        {"W": (1, 1, 3, 3), "one": np.array([1])},
        0,
        18,
    ),
    "padding other than zero": (
        "p = Pad (x, w, c)  y = Conv <pads=[1, 0]> (p, W)",
        {"W": (5, 4, 4), "w": np.array([0, 0, 2, 0, 0, 0]), "c": np.array(0.5, np.float32)},
        0,
        18,
    ),
    "padding of what is late": (
        "a = Conv <pads=[0, 2]> (x, W)  p = Pad (a, w, c)  y = Conv (p, W)",
        {"W": (4, 4, 3), "w": np.array([0, 0, 2, 0, 0, 0]), "c": np.array(0.5, np.float32)},
        2,
        18,
    ),
    "padding that is cropped": (
        "p = Pad (x, w)  y = Tanh (p)",
        {"w": np.array([0, 0, -3, 0, 0, -2])},
        3,
        18,
    ),
    "padding that is sent": (
        "p = Pad (x, w, c)  y = Exp (p)",
        {"w": np.array([0, 0, 2, 0, 0, 0]), "c": np.array(0.5, np.float32)},
        0,
        18,
    ),
    "padding that is the output": ("y = Pad (x, w)", {"w": np.array([0, 1, 2, 0, 0, 0])}, 0, 18),
    "constants in front": (
        "p = Concat <axis=2> (F, x)  y = Conv (p, W)",
        {"F": (1, 4, 2), "W": (5, 4, 3)},
        0,
        18,
    ),
    "max pool": ("y = MaxPool <kernel_shape=[3], pads=[1, 1]> (x)", {}, 1, 18),
    "max pool strided": (
        "y = MaxPool <kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1> (x)",
        {},
        0,
        18,
    ),
    "max pool of what is late": (
        "a = Conv (x, W)  y = MaxPool <kernel_shape=[3], pads=[2, 0]> (a)",
        {"W": (4, 4, 3)},
        2,
        18,
    ),
    "average pool": ("y = AveragePool <kernel_shape=[4], strides=[4]> (x)", {}, 0, 18),
    "average pool with padding": (
        "y = AveragePool <kernel_shape=[3], pads=[2, 0], count_include_pad=1> (x)",
        {},
        0,
        18,
    ),
    "lp pool": ("y = LpPool <kernel_shape=[3], pads=[2, 0]> (x)", {}, 0, 18),
    "transposed": ("y = ConvTranspose <strides=[2]> (x, W, B)", {"W": (4, 5, 5), "B": (5,)}, 0, 18),
    "transposed, cropped": (
        "y = ConvTranspose <strides=[2], pads=[1, 1]> (x, W)",
        {"W": (4, 5, 4)},
        1,
        18,
    ),
    "transposed with gaps": (
        "y = ConvTranspose <strides=[3]> (x, W, B)",
        {"W": (4, 5, 2), "B": (5,)},
        0,
        22,
    ),
    "transposed without stride": (
        "y = ConvTranspose <dilations=[2]> (x, W)",
        {"W": (4, 5, 3)},
        0,
        18,
    ),
    "transposed, of what is late": (
        "a = Conv (x, V, B)  y = ConvTranspose <strides=[2]> (a, W)",
        {"V": (4, 4, 3), "B": (4,), "W": (4, 5, 5)},
        4,
        18,
    ),
    "transposed, padded by what it crops": (
        "p = Pad (x, w)  y = ConvTranspose <dilations=[2], pads=[4, 4]> (p, W, B)",
        {"w": np.array([0, 0, 4, 0, 0, 0]), "W": (4, 5, 3), "B": (5,)},
        0,
        18,
    ),
    "transposed, padded by more than it crops": (
        "p = Pad (x, w, one)  y = ConvTranspose <strides=[2], pads=[3, 0]> (p, W, B)",
        {
            **{"w": np.array([0, 0, 3, 0, 0, 0]), "one": np.array(1, np.float32)},
            **{"W": (4, 5, 5), "B": (5,)},
        },
        1,
        18,
    ),
    "transposed, frames in front": (
        "p = Concat <axis=2> (V, x)  y = ConvTranspose <strides=[2], pads=[5, 1]> (p, W)",
        {"V": (1, 4, 2), "W": (4, 5, 6)},
        1,
        18,
    ),
    "overlapping blocks": (
        "h = Shape <start=2> (x)  d = Mul (h, two)  e = Sub (d, i)  s = Concat <axis=0> (i, e)"
        "  f = Col2Im <strides=[1, 2], pads=[0, 2, 0, 1]> (x, s, b)  y = Squeeze (f, two)",
        {"two": np.array([2]), "i": np.array([1]), "b": np.array([1, 4])},
        2,
        18,
    ),
    "blocks of every second place, of what is late": (
        "a = Conv <pads=[1, 1]> (x, W)  h = Shape <start=2> (x)  e = Add (h, two)"
        "  s = Concat <axis=0> (e, i)  f = Col2Im <dilations=[2, 1]> (a, s, b)"
        "  y = Squeeze (f, three)",
        {
            "W": (4, 4, 3),
            "two": np.array([2]),
            "three": np.array([3]),
            "i": np.array([1]),
            "b": np.array([2, 1]),
        },
        1,
        18,
    ),
    "interpolated frames": (
        'y = Resize <mode="linear"> (x, , s)',
        {"s": np.array([1, 1, 2], np.float32)},
        1,
        18,
    ),
    "interpolated frames that are all alike": (
        "n = Shape <start=2> (x)  m = Concat <axis=0> (c, n)  a = Expand (W, m)"
        '  r = Resize <mode="linear"> (a, , s)  b = Resize <mode="linear"> (x, , s)'
        "  y = Add (r, b)",
        {"c": np.array([1, 4]), "W": (1, 4, 1), "s": np.array([1, 1, 2], np.float32)},
        1,
        18,
    ),
    "more constants in front than a stream is late": (
        "a = Conv (x, W)  b = Concat <axis=2> (V, a)  y = CumSum (b, t)",
        {"W": (4, 4, 3), "V": (1, 4, 5), "t": np.array(2)},
        0,
        18,
    ),
    "frames that are all alike, zeros behind, the first ones cut off": (
        "n = Shape <start=2> (x)  m = Concat <axis=0> (c, n)  a = Expand (V, m)"
        "  p = Concat <axis=2> (a, O)  b = Slice (p, i, far, i)  y = Conv <pads=[1, 1]> (b, W)",
        {**ALIKE, "O": np.zeros((1, 4, 2), np.float32), "W": (5, 4, 6)},
        6,
        18,
    ),
    "frames that are all alike, the first ones cut off, zeros behind": (
        "n = Shape <start=2> (x)  m = Concat <axis=0> (c, n)  a = Expand (V, m)"
        "  b = Slice (a, i, far, i)  p = Pad (b, w)  q = Concat <axis=2> (b, O)"
        "  d = Conv <pads=[0, 4]> (b, W)  e = Concat <axis=1> (p, q, d)  y = CumSum (e, t)",
        {
            **{**ALIKE, "O": np.zeros((1, 4, 2), np.float32), "w": np.array([0, 0, 0, 0, 0, 2])},
            **{"t": np.array(2), "W": (5, 4, 3)},
        },
        4,
        18,
    ),
    "padded frames that are all alike, the first ones cut off": (
        "n = Shape <start=2> (x)  m = Concat <axis=0> (c, n)  a = Expand (V, m)"
        "  p = Pad (a, w)  b = Slice (p, i, far, i)  y = Conv <pads=[1, 1]> (b, W)",
        {**ALIKE, "w": np.array([0, 0, 0, 0, 0, 2]), "W": (5, 4, 6)},
        6,
        18,
    ),
    "interpolated pixels of frames at a lower rate": (
        "p = Pad (x, w)  a = Conv <strides=[2]> (p, W)  u = Unsqueeze (a, m)"
        '  r = Resize <mode="linear", coordinate_transformation_mode="pytorch_half_pixel"> (u, , s)'
        "  b = ReduceMax <keepdims=0> (r, m)  y = Tanh (b)",
        {
            "w": np.array([0, 0, 1, 0, 0, 0]),
            "W": (4, 4, 2),
            "m": np.array([3]),
            "s": np.array([1, 1, 4, 3], np.float32),
        },
        2,
        18,
    ),
    "interpolated frames beside windows of the same": (
        'a = Conv <pads=[0, 1]> (x, V)  r = Resize <mode="linear"> (x, , s)'
        "  b = Conv <strides=[2]> (r, W)  y = Add (a, b)",
        {"V": (4, 4, 2), "W": (4, 4, 2), "s": np.array([1, 1, 2], np.float32)},
        1,
        18,
    ),
    "mirrored frames": (
        'p = Pad <mode="reflect"> (x, w)  y = Conv <strides=[2]> (p, W)',
        {"w": np.array([0, 0, 4, 0, 0, 3]), "W": (5, 4, 8)},
        2,
        18,
    ),
    "mirrored frames, moved and cut": (
        'u = Unsqueeze (x, i)  p = Pad <mode="reflect"> (u, w)  q = Squeeze (p, i)'
        "  c = Slice (q, i, far, two)  y = MaxPool <kernel_shape=[4], strides=[3]> (c)",
        {
            "w": np.array([0, 0, 0, 5, 0, 0, 0, 0]),
            "i": np.array([1]),
            "two": np.array([2]),
            "far": np.array([2**62]),
        },
        1,
        18,
    ),
    "every second frame": (
        "y = Slice (x, s, e, a, t)",
        {"s": np.array([3]), "e": np.array([2**40]), "a": np.array([2]), "t": np.array([2])},
        1,
        18,
    ),
    "every third frame of padding": (
        "p = Pad (x, w)  b = Slice (p, s, e, a, t)  y = Conv <strides=[2], pads=[4, 0]> (b, W)",
        {
            "w": np.array([0, 0, 1, 0, 0, 0]),
            "s": np.array([0]),
            "e": np.array([2**40]),
            "a": np.array([2]),
            "t": np.array([3]),
            "W": (4, 4, 1),
        },
        0,
        18,
    ),
    "from a frame on": (
        "b = Slice (x, s, e, a)  y = Add (b, b)",
        {"s": np.array([3, 1]), "e": np.array([2**40, 3]), "a": np.array([2, 1])},
        3,
        18,
    ),
    "frames stacked": (
        "t = Transpose <perm=[0, 2, 1]> (x)  r = Reshape (t, s)  y = MatMul (r, W)",
        {"s": np.array([0, -1, 12]), "W": (12, 3)},
        0,
        18,
    ),
    "frames stacked that are late": (
        "a = Conv (x, V)  t = Transpose <perm=[0, 2, 1]> (a)  y = Reshape (t, s)",
        {"s": np.array([0, -1, 8]), "V": (4, 4, 3)},
        1,
        18,
    ),
    "frames taken apart": (
        "t = Transpose <perm=[0, 2, 1]> (x)  y = Reshape (t, s)",
        {"s": np.array([0, -1, 2])},
        0,
        18,
    ),
    "frames repeated": (
        'y = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", '
        'nearest_mode="floor"> (x, , s)',
        {"s": np.array([1, 1, 3], np.float32)},
        0,
        18,
    ),
    "running sum": ("y = CumSum (x, two)", {"two": np.array(2)}, 0, 18),
    "running sum, exclusive": ("y = CumSum <exclusive=1> (x, two)", {"two": np.array(2)}, 0, 18),
    "running sum of short floats": (
        "h = Cast <to=10> (x)  a = CumSum (h, two)  b = Cast <to=16> (x)"
        "  c = CumSum <exclusive=1> (b, two)  d = Cast <to=1> (a)  e = Cast <to=1> (c)"
        "  y = Sub (d, e)",
        {"two": np.array(2)},
        0,
        18,
    ),
    "running sum of what is late": (
        "a = Conv (x, V, B)  y = CumSum (a, two)",
        {"V": (4, 4, 3), "B": (4,), "two": np.array(2)},
        2,
        18,
    ),
    "running mean": (
        "a = CumSum (x, two)  h = Shape <start=2> (x)  l = Squeeze (h)  o = Add (l, one)"
        "  r = Range (one, o, one)  n = Cast <to=1> (r)  y = Div (a, n)",
        {"two": np.array(2), "one": np.array(1)},
        0,
        18,
    ),
    "positions": (
        "h = Shape (x)  l = Gather (h, two)  r = Range (zero, l, one)  n = Cast <to=1> (r)"
        "  f = Mul (n, w)  s = Sin (f)  y = Add (x, s)",
        {
            "two": np.array(2),
            "zero": np.array(0),
            "one": np.array(1),
            "w": np.array(0.01, np.float32),
        },
        0,
        18,
    ),
    "as long as the sequence": (
        "h = Shape (x)  e = Expand (v, h)  c = Concat <axis=1> (x, e)"
        "  y = Conv <pads=[1, 1]> (c, W)",
        {"v": (1, 4, 1), "W": (3, 8, 3)},
        1,
        18,
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_and_rates(name: str) -> None:
    nodes, weights, delay, opset = WINDOWS[name]
    graph = f"g (float[N, 4, T] x) => (float[N, C, S] y) {{ {nodes} }}"
    if "Concat <axis=2>" in nodes:
        graph = graph.replace("N", "1")
    if "Reshape" in nodes:
        graph = graph.replace("[N, C, S] y", "[N, S, C] y")
    conversion = assert_streams(model(graph, weights, opset), T=336)
    assert conversion.delay == {"y": delay}


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_operator_sets_without_all_operators_that_steps_take(opset: int) -> None:
    nodes = "a = Conv <pads=[1, 1]> (x, W) b = Sigmoid (a) y = Conv <pads=[1, 1]> (b, V)"
    graph = f"g (float[N, 4, T] x) => (float[N, C, S] y) {{ {nodes} }}"
    conversion = assert_streams(model(graph, {"W": (5, 4, 3), "V": (2, 5, 3)}, opset), T=336)
    assert conversion.delay == {"y": 2}


# Nodes from x [N, T, 6], y [N, T, ..], that leave time alone.
FEATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("y = MatMul (x, W)", {"W": (6, 70)}),
    "long sums": ("a = MatMul (x, W)  y = MatMul (a, V)", {"W": (6, 70), "V": (70, 3)}),
    "product from the left": (
        "t = Transpose <perm=[0, 2, 1]> (x)  a = MatMul (W, t)  y = Transpose <perm=[0, 2, 1]> (a)",
        {"W": (3, 6)},
    ),
    "long product from the left": (
        "a = MatMul (x, U)  t = Transpose <perm=[0, 2, 1]> (a)  b = MatMul (W, t)"
        "  y = Transpose <perm=[0, 2, 1]> (b)",
        {"U": (6, 70), "W": (3, 70)},
    ),
    "layer norm": ("y = LayerNormalization (x, s)", {"s": (6,)}),
    "softmax": ("y = Softmax (x)", {}),
    "reduce": ("a = ReduceMean <keepdims=1> (x, m)  y = Sub (x, a)", {"m": np.array([-1])}),
    "reduce, dropping": (
        "a = Transpose <perm=[2, 0, 1]> (x)  b = ReduceMax <keepdims=0> (a, z)"
        "  y = Unsqueeze (b, two)",
        {"z": np.array([0]), "two": np.array([2])},
    ),
    "split and concat": (
        "a, b = Split <axis=2, num_outputs=2> (x)  c = Sigmoid (b)  d = Mul (a, c)"
        "  y = Concat <axis=2> (d, x)",
        {},
    ),
    "gather": ("y = Gather <axis=2> (x, i)", {"i": np.array([3, 1, 1])}),
    "einsum": ('y = Einsum <equation="ntc,cd->ntd"> (x, W)', {"W": (6, 4)}),
    "batch norm": (
        "t = Transpose <perm=[0, 2, 1]> (x)  b = BatchNormalization (t, s, o, m, v)"
        "  y = Transpose <perm=[0, 2, 1]> (b)",
        {"s": (6,), "o": (6,), "m": (6,), "v": np.full(6, 0.7)},
    ),
    "rows": (
        "a = Squeeze (x1, z)  b = Gemm <transB=1> (a, W, c)  y = Unsqueeze (b, z)",
        {"W": (3, 6), "c": (3,), "z": np.array([0])},
    ),
    "heads": (
        "a = Reshape (x, s)  b = Transpose <perm=[0, 2, 1, 3]> (a)  c = MatMul (b, W)"
        "  d = Transpose <perm=[0, 2, 1, 3]> (c)  y = Reshape (d, r)",
        {"s": np.array([0, 0, 2, 3]), "W": (2, 3, 3), "r": np.array([0, -1, 6])},
    ),
    "sizes from shapes": (
        "h = Shape (x)  n = Gather (h, z)  t = Gather (h, o)  m = Unsqueeze (n, z1)"
        "  u = Unsqueeze (t, z1)  s = Concat <axis=0> (m, u, two, three)  a = Reshape (x, s)"
        "  b = ReduceSum <keepdims=0> (a, two)  y = Identity (b)",
        {
            "z": np.array(0),
            "o": np.array(1),
            "z1": np.array([0]),
            "two": np.array([2]),
            "three": np.array([3]),
        },
    ),
    "pooled features": ("y = MaxPool <kernel_shape=[2], strides=[2]> (x)", {}),
    "running sum of features": ("y = CumSum (x, two)", {"two": np.array(2)}),
    "the largest": ("i = ArgMax <axis=2> (x)  y = GatherElements <axis=2> (x, i)", {}),
    "one of six": (
        "a = ArgMax <axis=2, keepdims=0> (x)  y = OneHot (a, six, v)",
        {"six": np.array(6), "v": (2,)},
    ),
    "tile": ("y = Tile (x, r)", {"r": np.array([1, 1, 2])}),
    "top k": ("y, i = TopK (x, k)", {"k": np.array([2])}),
    "clip and where": (
        "a = Clip (x, lo)  b = Greater (x, lo)  y = Where (b, a, x)",
        {"lo": np.array(-0.5, np.float32)},
    ),
    "a constant for each frame": ("y = Add (x, B)", {"B": (1, 1, 6)}),
    "quantised": (
        "q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)",
        {"s": np.array(0.05, np.float32), "z": np.array(3, np.uint8)},
    ),
    "embedding": (
        "a = ArgMax <axis=2, keepdims=0> (x)  y = Gather (E, a)",
        {"E": (6, 5)},
    ),
    "layers that share their weights": (
        "h0 = Relu (x)"
        + "".join(f" a{i} = MatMul (h{i}, W)  h{i + 1} = Tanh (a{i})" for i in range(8))
        + "  y = Sub (h8, x)",
        {"W": (6, 6)},
    ),
    "product of bytes": (
        "q = QuantizeLinear (x, s, z)  r = QLinearMatMul (q, s, z, W, v, w, s, z)"
        "  y = DequantizeLinear (r, s, z)",
        {
            "s": np.array(0.05, np.float32),
            "z": np.array(128, np.uint8),
            "W": np.arange(24, dtype=np.uint8).reshape(6, 4),
            "v": np.full(4, 0.01, np.float32),
            "w": np.full(4, 9, np.uint8),
        },
    ),
    "some features": ("y = Compress <axis=-1> (x, c)", {"c": np.arange(6) % 2 == 0}),
    "more features": ("y = CenterCropPad <axes=[2]> (x, n)", {"n": np.array([9])}),
    "features that are replaced": (
        "a = Transpose <perm=[2, 1, 0]> (x)  u = Slice (a, two, four)  v = Exp (u)"
        "  b = ScatterND (a, i, v)  y = Transpose <perm=[2, 1, 0]> (b)",
        {"i": np.array([[5], [0]]), "two": np.array([2]), "four": np.array([4])},
    ),
    "transform of features": (
        "a = Unsqueeze (x, three)  d = DFT <axis=2> (a)"
        "  y = ReduceSumSquare <axes=[3], keepdims=0> (d)",
        {"three": np.array([3])},
    ),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features(name: str) -> None:
    nodes, weights = FEATURES[name]
    rows = "1" if "x1" in nodes else "N"
    nodes = nodes.replace("x1", "x")
    graph = f"g (float[{rows}, T, 6] x) => (float[{rows}, T, C] y) {{ {nodes} }}"
    conversion = assert_streams(model(graph, weights, 17 if "DFT" in nodes else 18))
    assert conversion.states == {} and conversion.delay == {"y": 0}


@pytest.mark.parametrize("shape", ["N, T, 1", "N, T"])
def test_frames_of_a_fourier_transform(shape: str) -> None:
    conversion = assert_streams(
        model(
            f"g (float[{shape}] x) => (float[N, S, 9, 2] y) {{ y = STFT (x, step, w) }}",
            {"step": np.array(4), "w": np.hanning(17)[:16].astype(np.float32)},
        ),
        T=336,
    )
    assert conversion.multiple == 4 and conversion.delay == {"y": 3}


def test_integer_convolutions_pad_with_their_zero_point() -> None:
    conversion = assert_streams(
        model(
            """g (uint8[N, 4, T] x) => (int32[N, 5, T] y) {
                y = ConvInteger <pads=[2, 0]> (x, W, z)
            }""",
            {
                "W": np.random.default_rng(0).integers(0, 9, (5, 4, 3)).astype(np.uint8),
                "z": np.array(3, np.uint8),
            },
        )
    )
    assert conversion.initial["y_past_in"].min() == 3


@pytest.mark.parametrize("state", ["float[4]", "float"])
def test_what_a_scan_carries_is_a_state(state: str) -> None:
    text = f"""g (float[T, 4] x, {state} h) => (float[T, 4] y, {state} last) {{
        last, y = Scan <num_scan_inputs=1, body = step ({state} s, float[4] e) =>
            ({state} t, float[4] o) {{ t = Mul (s, half) u = Add (t, e) o = Tanh (u) }}> (h, x)
    }}"""
    conversion = assert_streams(model(text, {"half": np.array(0.5, np.float32)}))
    assert conversion.outputs["last"].axis is None


def test_a_late_recurrence_whose_frames_only_tell_a_size_keeps_its_state() -> None:
    text = """g (float[N, 3, 36] x) => (float[N, 3, 72] wide, float[N, 2, 32] e, float[1, N, 3] h) {
        late = Slice (x, four, end, two)  t = Transpose <perm = [2, 0, 1]> (late)
        y, h = RNN <hidden_size = 3> (t, W, R)  v = Transpose <perm = [2, 1, 3, 0]> (y)
        all = Shape <start = 2, end = 3> (v)  part = Slice (v, zero, all, two)
        size = Shape <start = 2, end = 3> (part)  batch = Shape <start = 0, end = 1> (x)
        sizes = Concat <axis = 0> (batch, two, size)  e = Expand (column, sizes)
        wide = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
            nearest_mode = "floor"> (x, "", twice)
    }"""
    weights = {
        "W": (1, 3, 3),
        "R": (1, 3, 3),
        "column": (1, 2, 1),
        "four": np.array([4]),
        "end": np.array([2**40]),
        "two": np.array([2]),
        "zero": np.array([0]),
        "twice": np.array([1, 1, 2], np.float32),
    }
    conversion = assert_streams(model(text, weights), {"x": 2}, N=2)
    assert any("carry" in state for state in conversion.states)


def test_the_last_frame_is_the_last_so_far() -> None:
    text = """g (float[T, N, 4] x) => (float[N, 3] y, float[1, N, 5] h, float[2, N, 4] z) {
        a, h = GRU <hidden_size=5> (x, W, R)
        b = Gather <axis=0> (a, last)
        c = Squeeze (b, zero)
        y = MatMul (c, V)
        z = Slice (x, minus_two, end, zero)
    }"""
    weights = {
        "W": (1, 15, 4),
        "R": (1, 15, 5),
        "V": (5, 3),
        "last": np.array(-1),
        "zero": np.array([0]),
        "minus_two": np.array([-2]),
        "end": np.array([2**40]),
    }
    conversion = assert_streams(model(text, weights))
    assert all(timing.axis is None for timing in conversion.outputs.values())


def test_the_last_frame_of_windows_is_known_where_nothing_is_padded_behind() -> None:
    text = """g (float[N, 4, T] x) => (float[1, N, 5] h, float[N, 4] m) {
        a = Conv (x, V)
        b = Conv <pads=[4, 0], strides=[2]> (a, V5)
        c = Transpose <perm=[2, 0, 1]> (b)
        d, h = GRU <hidden_size=5> (c, W, R)
        p = Pad (x, w)
        m = Gather <axis=2> (p, last)
    }"""
    weights = {
        "V": (4, 4, 3),
        "V5": (4, 4, 5),
        "W": (1, 15, 4),
        "R": (1, 15, 5),
        "w": np.array([0, 0, 3, 0, 0, 0]),
        "last": np.array(-1),
    }
    conversion = assert_streams(model(text, weights), chunks=(2, 7, 40), T=96)
    assert conversion.multiple == 2


def test_inputs_that_are_the_same_for_all_frames() -> None:
    text = """g (float[N, T, 4] x, float[N, 1, 4] speaker) => (float[N, T, 4] y) {
        a = Mul (x, speaker)
        y = Tanh (a)
    }"""
    assert_streams(model(text))


def test_inputs_with_time_keep_in_step() -> None:
    text = """g (float[N, 4, T] x, float[N, 4, T] z) => (float[N, 4, T] y) {
        a = Conv <pads=[1, 1]> (x, W)
        y = Mul (a, z)
    }"""
    conversion = assert_streams(model(text, {"W": (4, 4, 3)}))
    assert conversion.time == {"x": 2, "z": 2} and conversion.delay == {"y": 1}


def test_every_rule_is_of_an_operator() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert known >= RULES.keys()


def test_the_time_axis_keeps_its_name_or_gets_the_size_of_a_chunk() -> None:
    proto = model(
        "g (float[N, 4, T] x) => (float[N, 4, T] y) { y = Conv <pads=[2, 0]> (x, W) }",
        {"W": (4, 4, 3)},
    )
    for chunk, expected in ((None, "T"), (5, 5)):
        graph = convert(proto, "T", chunk=chunk).model.graph
        for value in (graph.input[0], graph.output[0]):
            size = value.type.tensor_type.shape.dim[2]
            assert (size.dim_param or size.dim_value) == expected


FIXED: dict[str, tuple[str, dict[str, Any], int]] = {
    "counts, rows of a table, and both for what is late": (
        "a = Div (x, counts)  b = Add (a, table)  c = Conv <pads=[1, 1]> (b, W)"
        "  d = Mul (c, table)  e = Sub (d, counts)  f = Concat <axis=1> (e, counts)  y = Tanh (f)",
        {
            "counts": np.arange(1, 337, dtype=np.float32).reshape(1, 1, 336),
            "table": (4, 336),
            "W": (4, 4, 3),
        },
        1,
    ),
    "most of the frames": (
        "a = Conv (x, W)  b = Slice (x, begin, end, two)  y = Add (a, b)",
        {
            "W": (4, 4, 3),
            "begin": np.array([-334]),
            "end": np.array([336]),
            "two": np.array([2]),
        },
        2,
    ),
    "frames that overlap, by their numbers": (
        "p = Pad (x, w)  f = Gather <axis=2> (p, i)  y = ReduceMax <keepdims=0> (f, three)",
        {
            "w": np.array([0, 0, 3, 0, 0, 0]),
            "i": np.arange(336)[:, None] + np.array([0, 3, 1]),
            "three": np.array([3]),
        },
        0,
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_constants_of_a_sequence_of_fixed_length(name: str) -> None:
    nodes, weights, delay = FIXED[name]
    text = f"g (float[1, 4, 336] x) => (float[1, C, S] y) {{ {nodes} }}"
    assert assert_streams(model(text, weights), {"x": 2}, (1, 3, 7)).delay == {"y": delay}


def test_blocks_of_a_fixed_number() -> None:
    text = """g (float[1, 8, 336] x) => (float[1, 2, 1, 674] y) {
        y = Col2Im <strides=[1, 2]> (x, image, block)
    }"""
    weights = {"image": np.array([1, 674]), "block": np.array([1, 4])}
    assert assert_streams(model(text, weights), {"x": 2}).outputs["y"].rate == 2


def test_a_sequence_of_fixed_length_streams_too() -> None:
    text = """g (float[1, 336, 4] x) => (float[1, 336, 6] y) {
        s = Reshape (x, apart)
        t = ReduceSum <keepdims=0> (s, two)
        a = MatMul (t, W)
        b = Add (a, table)
        y = Relu (b)
    }"""
    weights = {
        "apart": np.array([1, 336, 2, 2]),
        "two": np.array([2]),
        "W": (2, 6),
        "table": np.full((1, 336, 6), 0.25),
    }
    conversion = assert_streams(model(text, weights), {"x": 1})
    assert conversion.chunk is None
    assert conversion.model.graph.input[0].type.tensor_type.shape.dim[1].dim_param == "frames"


def test_sizes_taken_in_steps_that_only_a_run_tells_are_refused() -> None:
    text = """g (float[2, 4, T, 5] x, int64[1] step) => (float[2, 4, T, 5] y)
        <int64[1] first = {0}, int64[1] end = {4}, int64[1] second = {1}> {
            sizes = Shape(x)  taken = Slice(sizes, first, end, first, step)
            size = Gather(taken, second)  factor = Cast<to = 1>(size)  y = Mul(x, factor)
        }"""
    whole = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    with pytest.raises(ConversionError, match=r"taken.*\(Slice\)"):
        convert(whole, {"x": 2})
