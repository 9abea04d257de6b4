"""Models that ask for what cannot be, and what becomes of each of them.

    python -m tests.bad_models [NAME ...]

prints a line of JSON for each variant of the models named, in the standard input where none is: the
error it ended with, and how much memory that took. Runs in a process of its own with little memory
to give away.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.parser
from onnx import TensorProto, helper

import ostinato
import ostinato.compiler
from tests import unoptimized
from tests.cases.case import Array, In, element_type, ints, weights

HUGE = 2**40
LARGEST = 2**63 - 1
# What a refusal may allocate; all that is refused here would need far more.
MEMORY = 256 << 20
# And how long the refusals of a model may take, all variants together.
SECONDS = 20


@dataclass(frozen=True)
class Bad:
    """A node that contradicts itself, its inputs, or the size of any memory.

    outputs: how many."""

    op: str
    operands: Sequence[In | Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1


@dataclass(frozen=True)
class Variant:
    """How the node's operands reach it: sizes and small integers as constants or at run time."""

    name: str
    sizes: bool
    values: bool


VARIANTS = (
    Variant("known", False, False),
    Variant("sizes", True, False),
    Variant("values", False, True),
    Variant("sizes-and-values", True, True),
)

X = In((2, 3, 4))
IMAGE = In((1, 2, 5, 5))
EMPTY = In((0, 3))


def _conv(kernel: int = 3, image: In = IMAGE, **attributes: Any) -> Bad:
    return Bad("Conv", (image, np.ones((2, 2, kernel, kernel), "f")), attributes)


def _pool(op: str, **attributes: Any) -> Bad:
    return Bad(op, (IMAGE,), {"kernel_shape": [2, 2], **attributes})


def _scatter(**attributes: Any) -> Bad:
    return Bad("ScatterElements", (X, In((2, 3, 4), "int64"), X), attributes)


BAD: dict[str, Bad] = {
    # Shapes that contradict each other.
    "add": Bad("Add", (X, In((2, 3)))),
    "where": Bad("Where", (In((5,), "bool"), X, X)),
    "matmul": Bad("MatMul", (In((2, 3)), In((4, 2)))),
    "matmul-batch": Bad("MatMul", (In((2, 2, 3)), In((3, 3, 2)))),
    "matmul-scalar": Bad("MatMul", (In(()), In((3, 2)))),
    "gemm": Bad("Gemm", (In((2, 3)), In((4, 2)))),
    "gemm-bias": Bad("Gemm", (In((2, 3)), In((3, 2)), In((3, 2)))),
    "einsum": Bad("Einsum", (In((2, 3)), In((4, 2))), {"equation": "ij,jk->ik"}),
    "einsum-rank": Bad("Einsum", (In((2, 3)),), {"equation": "ijk->i"}),
    "concat-rank": Bad("Concat", (X, In((2, 3))), {"axis": 0}),
    "concat-sizes": Bad("Concat", (X, In((2, 4, 4))), {"axis": 0}),
    "concat-axis": Bad("Concat", (X, X), {"axis": 3}),
    "concat-axis-huge": Bad("Concat", (X, X), {"axis": HUGE}),
    "prelu": Bad("PRelu", (X, In((5,)))),
    "layer-norm": Bad("LayerNormalization", (X, In((5,)))),
    "batch-norm": Bad("BatchNormalization", (X, *[In((5,))] * 4)),
    "instance-norm": Bad("InstanceNormalization", (X, In((5,)), In((5,)))),
    "attention-like": Bad("MatMul", (In((2, 0)), In((3, 2)))),
    # Views.
    "reshape": Bad("Reshape", (X, ints(5, 5))),
    "reshape-rest": Bad("Reshape", (X, ints(5, -1))),
    "reshape-two-rests": Bad("Reshape", (X, ints(-1, -1))),
    "reshape-negative": Bad("Reshape", (X, ints(-2, 12))),
    "reshape-zero": Bad("Reshape", (X, ints(0, 0, 0, 0))),
    "reshape-allow-zero": Bad("Reshape", (X, ints(0, -1)), {"allowzero": 1}),
    "reshape-huge": Bad("Reshape", (X, ints(HUGE, HUGE, HUGE))),
    "reshape-wraps": Bad("Reshape", (In((0,)), ints(2**32, 2**32)), {"allowzero": 1}),
    "reshape-rank": Bad("Reshape", (X, np.ones((2, 2), np.int64))),
    "transpose-twice": Bad("Transpose", (X,), {"perm": [0, 0, 1]}),
    "transpose-beyond": Bad("Transpose", (X,), {"perm": [0, 1, 3]}),
    "transpose-negative": Bad("Transpose", (X,), {"perm": [0, 1, -1]}),
    "transpose-short": Bad("Transpose", (X,), {"perm": [0, 1]}),
    "squeeze": Bad("Squeeze", (X, ints(0))),
    "squeeze-beyond": Bad("Squeeze", (X, ints(5))),
    "unsqueeze-beyond": Bad("Unsqueeze", (X, ints(7))),
    "unsqueeze-twice": Bad("Unsqueeze", (X, ints(1, 1))),
    "flatten": Bad("Flatten", (X,), {"axis": 4}),
    "expand": Bad("Expand", (X, ints(2, 5, 4))),
    "expand-negative": Bad("Expand", (X, ints(-2, 3, 4))),
    "expand-huge": Bad("Expand", (In((1,)), ints(HUGE))),
    "expand-wraps": Bad("Expand", (In((1,)), ints(2**32, 2**32))),
    "expand-wraps-small": Bad("Expand", (In((1, 1)), ints(2**33, 2**31, 3))),
    "tile-negative": Bad("Tile", (X, ints(-1, 1, 1))),
    "tile-count": Bad("Tile", (X, ints(1, 1))),
    "tile-huge": Bad("Tile", (X, ints(HUGE, 1, 1))),
    "tile-wraps": Bad("Tile", (X, ints(2**31, 2**31, 2**31))),
    "depth-to-space": Bad("DepthToSpace", (IMAGE,), {"blocksize": 2}),
    "depth-to-space-zero": Bad("DepthToSpace", (IMAGE,), {"blocksize": 0}),
    "space-to-depth": Bad("SpaceToDepth", (IMAGE,), {"blocksize": 2}),
    "space-to-depth-negative": Bad("SpaceToDepth", (IMAGE,), {"blocksize": -1}),
    # Parts.
    "split-sum": Bad("Split", (X, ints(1, 1)), {"axis": 1}, outputs=2),
    "split-negative": Bad("Split", (X, ints(-1, 4)), {"axis": 1}, outputs=2),
    "split-count": Bad("Split", (X, ints(1, 1, 1)), {"axis": 1}, outputs=2),
    "split-axis": Bad("Split", (X, ints(1, 1)), {"axis": 3}, outputs=2),
    "split-wraps": Bad("Split", (X, ints(LARGEST, LARGEST, 5)), {"axis": 1}, outputs=3),
    "split-uneven": Bad("Split", (X,), {"axis": 1}, opset=13, outputs=2),
    "split-outputs": Bad("Split", (X,), {"axis": 1, "num_outputs": 3}, outputs=2),
    "slice-step": Bad("Slice", (X, ints(0), ints(1), ints(0), ints(0))),
    "slice-axis": Bad("Slice", (X, ints(0), ints(1), ints(3))),
    "slice-axis-twice": Bad("Slice", (X, ints(0, 0), ints(1, 1), ints(1, -2))),
    "slice-lengths": Bad("Slice", (X, ints(0), ints(1, 2), ints(0))),
    "gather": Bad("Gather", (X, ints(0, 2)), {"axis": 0}),
    "gather-before": Bad("Gather", (X, ints(-4)), {"axis": 1}),
    "gather-huge": Bad("Gather", (X, ints(HUGE)), {"axis": 0}),
    "gather-least": Bad("Gather", (X, ints(-(2**63)))),
    "gather-axis": Bad("Gather", (X, ints(0)), {"axis": 3}),
    "gather-empty": Bad("Gather", (EMPTY, ints(0))),
    "gather-elements": Bad("GatherElements", (X, np.full((2, 3, 4), 4)), {"axis": 2}),
    "gather-elements-rank": Bad("GatherElements", (X, ints(0)), {"axis": 2}),
    "gather-elements-shape": Bad("GatherElements", (X, np.zeros((3, 3, 4), int)), {"axis": 2}),
    "gather-nd": Bad("GatherND", (X, np.array([[0, 3]]))),
    "gather-nd-depth": Bad("GatherND", (X, np.array([[0, 0, 0, 0]]))),
    "gather-nd-batch": Bad("GatherND", (X, np.zeros((3, 1), int)), {"batch_dims": 1}),
    "gather-nd-batches": Bad("GatherND", (X, np.zeros((2, 1), int)), {"batch_dims": 3}),
    "scatter-elements": Bad("ScatterElements", (X, np.full((2, 3, 4), 9), X)),
    "scatter-elements-axis": _scatter(axis=3),
    "scatter-elements-shape": Bad("ScatterElements", (X, np.zeros((2, 3, 4), int), In((2, 3, 3)))),
    "scatter-nd": Bad("ScatterND", (X, np.array([[0, 3]]), In((1, 4)))),
    "scatter-nd-shape": Bad("ScatterND", (X, np.array([[0, 1]]), In((1, 3)))),
    "pad-count": Bad("Pad", (X, ints(1, 1))),
    "pad-away": Bad("Pad", (X, ints(-1, 0, 0, -2, 0, 0))),
    "pad-huge": Bad("Pad", (X, ints(HUGE, 0, 0, 0, 0, 0))),
    "pad-wraps": Bad("Pad", (X, ints(2**31, 2**31, 2**31, 0, 0, 0))),
    "pad-largest": Bad("Pad", (X, ints(LARGEST, 0, 0, 0, 0, 0))),
    "pad-reflect-empty": Bad("Pad", (EMPTY, ints(1, 0, 0, 0)), {"mode": "reflect"}),
    "pad-edge-empty": Bad("Pad", (EMPTY, ints(1, 0, 0, 0)), {"mode": "edge"}),
    "pad-wrap-empty": Bad("Pad", (EMPTY, ints(1, 0, 0, 0)), {"mode": "wrap"}),
    "pad-axes": Bad("Pad", (X, ints(1, 1), None, ints(3))),
    "pad-mode": Bad("Pad", (X, ints(0, 0, 1, 0, 0, 1)), {"mode": "nearest"}),
    "trilu-rank": Bad("Trilu", (In((3,)),)),
    "compress-axis": Bad("Compress", (X, np.array([True])), {"axis": 3}),
    "one-hot-depth": Bad("OneHot", (ints(0), np.array(-1), np.array([0.0, 1.0], "f"))),
    "one-hot-huge": Bad("OneHot", (ints(0), np.array(HUGE), np.array([0.0, 1.0], "f"))),
    "one-hot-axis": Bad("OneHot", (ints(0), np.array(2), np.array([0.0, 1.0], "f")), {"axis": 3}),
    "reverse-sequence": Bad("ReverseSequence", (X, ints(9, 9, 9)), {"time_axis": 0}),
    "eye-like-rank": Bad("EyeLike", (X,)),
    "center-crop": Bad("CenterCropPad", (X, ints(-1, 2, 2))),
    "center-crop-huge": Bad("CenterCropPad", (X, ints(HUGE, 2, 2))),
    "center-crop-count": Bad("CenterCropPad", (X, ints(2, 2))),
    # Values made of sizes.
    "range-delta": Bad("Range", (np.array(0), np.array(3), np.array(0))),
    "range-huge": Bad("Range", (np.array(0), np.array(HUGE), np.array(1))),
    "range-largest": Bad("Range", (np.array(-LARGEST), np.array(LARGEST), np.array(1))),
    "range-float": Bad("Range", (np.float32(0), np.float32(3), np.float32(0))),
    "range-float-huge": Bad("Range", (np.float32(0), np.float32(1e30), np.float32(1))),
    "range-nan": Bad("Range", (np.float32(0), np.float32("nan"), np.float32(1))),
    "constant-of-shape-negative": Bad("ConstantOfShape", (ints(2, -1),)),
    "constant-of-shape-huge": Bad("ConstantOfShape", (ints(HUGE),)),
    "constant-of-shape-wraps": Bad("ConstantOfShape", (ints(2**32, 2**32),)),
    "constant-of-shape-largest": Bad("ConstantOfShape", (ints(LARGEST, LARGEST),)),
    # Windows.
    "conv-large-kernel": _conv(7),
    "conv-empty-image": _conv(3, In((1, 2, 0, 5))),
    "conv-stride-zero": _conv(strides=[0, 1]),
    "conv-stride-negative": _conv(strides=[-1, 1]),
    "conv-dilation-zero": _conv(dilations=[0, 1]),
    "conv-dilation-negative": _conv(dilations=[1, -1]),
    "conv-dilation-large": _conv(dilations=[9, 9]),
    "conv-group-zero": _conv(group=0),
    "conv-group-negative": _conv(group=-1),
    "conv-group": _conv(group=2),
    "conv-kernel-shape": _conv(kernel_shape=[2, 2]),
    "conv-kernel-rank": _conv(kernel_shape=[3]),
    "conv-strides-rank": _conv(strides=[1]),
    "conv-pads-rank": _conv(pads=[1, 1]),
    "conv-pads-negative": _conv(pads=[-2, -2, -2, -2]),
    "conv-pads-huge": _conv(pads=[HUGE, 0, 0, 0]),
    "conv-pads-wrap": _conv(pads=[2**62, 2**62, 2**62, 2**62]),
    "conv-auto-pad": _conv(auto_pad="SAME"),
    "conv-channels": _conv(image=In((1, 3, 5, 5))),
    "conv-rank": _conv(image=In((1, 2, 5))),
    "conv-no-space": _conv(image=In((1, 2))),
    "conv-bias": Bad("Conv", (IMAGE, np.ones((2, 2, 3, 3), "f"), np.ones(3, "f"))),
    "conv-transpose-stride": Bad("ConvTranspose", (IMAGE, np.ones((2, 2, 3, 3), "f")),
                                 {"strides": [0, 1]}),
    "conv-transpose-channels": Bad("ConvTranspose", (IMAGE, np.ones((3, 2, 3, 3), "f"))),
    "conv-transpose-pads": Bad("ConvTranspose", (IMAGE, np.ones((2, 2, 3, 3), "f")),
                               {"pads": [9, 9, 9, 9]}),
    "conv-transpose-huge": Bad("ConvTranspose", (IMAGE, np.ones((2, 2, 3, 3), "f")),
                               {"strides": [2**31, 2**31]}),
    "max-pool-zero": _pool("MaxPool", kernel_shape=[0, 2]),
    "max-pool-negative": _pool("MaxPool", kernel_shape=[-1, 2]),
    "max-pool-large": _pool("MaxPool", kernel_shape=[9, 9]),
    "max-pool-huge": _pool("MaxPool", kernel_shape=[HUGE, HUGE]),
    "max-pool-stride": _pool("MaxPool", strides=[0, 1]),
    "max-pool-dilation": _pool("MaxPool", dilations=[0, 1]),
    "max-pool-rank": _pool("MaxPool", kernel_shape=[2]),
    "average-pool-zero": _pool("AveragePool", kernel_shape=[0, 2]),
    "average-pool-stride": _pool("AveragePool", strides=[-1, 1]),
    "average-pool-large": _pool("AveragePool", kernel_shape=[9, 9]),
    "lp-pool-zero": _pool("LpPool", kernel_shape=[0, 2]),
    "lp-pool-p": _pool("LpPool", p=0),
    "resize-scale": Bad("Resize", (IMAGE, None, np.array([1, 1, 0, 1], "f"))),
    "resize-negative": Bad("Resize", (IMAGE, None, np.array([1, 1, -1, 1], "f"))),
    "resize-nan": Bad("Resize", (IMAGE, None, np.array([1, 1, np.nan, 1], "f"))),
    "resize-huge": Bad("Resize", (IMAGE, None, np.array([1, 1, 1e12, 1], "f"))),
    "resize-infinite": Bad("Resize", (IMAGE, None, np.array([1, 1, np.inf, 1], "f"))),
    "resize-sizes": Bad("Resize", (IMAGE, None, None, ints(1, 2, -5, 5))),
    "resize-sizes-huge": Bad("Resize", (IMAGE, None, None, ints(1, 2, HUGE, 5))),
    "resize-count": Bad("Resize", (IMAGE, None, np.array([1, 1], "f"))),
    "resize-neither": Bad("Resize", (IMAGE,)),
    "resize-empty": Bad("Resize", (In((1, 2, 0, 5)), None, None, ints(1, 2, 4, 5))),
    # Reductions, sorting.
    "reduce-axis": Bad("ReduceSum", (X, ints(3))),
    "reduce-axis-twice": Bad("ReduceSum", (X, ints(1, -2))),
    "reduce-axis-huge": Bad("ReduceMax", (X, ints(HUGE))),
    "softmax-axis": Bad("Softmax", (X,), {"axis": 3}),
    "arg-max-axis": Bad("ArgMax", (X,), {"axis": 3}),
    "arg-max-empty": Bad("ArgMax", (EMPTY,), {"axis": 0}),
    "cum-sum-axis": Bad("CumSum", (X, np.array(3))),
    "top-k": Bad("TopK", (X, ints(5)), outputs=2),
    "top-k-negative": Bad("TopK", (X, ints(-1)), outputs=2),
    "top-k-huge": Bad("TopK", (X, ints(HUGE)), outputs=2),
    "top-k-axis": Bad("TopK", (X, ints(1)), {"axis": 3}, outputs=2),
    "group-norm": Bad("GroupNormalization", (IMAGE, In((2,)), In((2,))), {"num_groups": 0}),
    "group-norm-groups": Bad("GroupNormalization", (In((1, 4, 3)), In((4,)), In((4,))),
                             {"num_groups": 3}),
    "lrn-size": Bad("LRN", (IMAGE,), {"size": 0}),
    # Recurrence.
    "gru-hidden": Bad("GRU", (In((2, 1, 3)), In((1, 6, 3)), In((1, 6, 2))), {"hidden_size": 3}),
    "gru-input": Bad("GRU", (In((2, 1, 4)), In((1, 6, 3)), In((1, 6, 2))), {"hidden_size": 2}),
    "gru-directions": Bad("GRU", (In((2, 1, 3)), In((1, 6, 3)), In((1, 6, 2))),
                          {"hidden_size": 2, "direction": "bidirectional"}),
    "gru-zero": Bad("GRU", (In((2, 1, 3)), In((1, 0, 3)), In((1, 0, 0))), {"hidden_size": 0}),
    "lstm-state": Bad("LSTM", (In((2, 1, 3)), In((1, 8, 3)), In((1, 8, 2)), None, None,
                               In((1, 2, 2))), {"hidden_size": 2}),
    # Signals.
    "dft-length": Bad("DFT", (In((1, 8, 1)), np.array(-4))),
    "dft-axis": Bad("DFT", (In((1, 8, 1)), None, np.array(5)), opset=20),
    "dft-huge": Bad("DFT", (In((1, 8, 1)), np.array(HUGE)), opset=20),
    "stft-step": Bad("STFT", (In((1, 8, 1)), np.array(0), None, np.array(4))),
    "stft-frame": Bad("STFT", (In((1, 8, 1)), np.array(1), None, np.array(10))),
    "stft-step-negative": Bad("STFT", (In((1, 8, 1)), np.array(-2), None, np.array(4))),
    "window-negative": Bad("HannWindow", (np.array(-3),)),
    "window-huge": Bad("HannWindow", (np.array(HUGE),)),
    "mel-huge": Bad("MelWeightMatrix", (np.array(8), np.array(HUGE), np.array(8000),
                                        np.float32(0), np.float32(4000))),
    "col2im": Bad("Col2Im", (In((1, 4, 9)), ints(5, 5), ints(2, 2))),
    "col2im-zero": Bad("Col2Im", (In((1, 4, 9)), ints(5, 5), ints(0, 2))),
    "affine-grid-huge": Bad("AffineGrid", (In((1, 2, 3)), ints(1, 1, 2**20, 2**20))),
    "mel-bands": Bad("MelWeightMatrix", (np.array(-3), np.array(64), np.array(8000),
                                         np.float32(0), np.float32(4000))),
    "mel-edge": Bad("MelWeightMatrix", (np.array(8), np.array(64), np.array(8000),
                                        np.float32(0), np.float32(1e9))),
    "deform-conv": Bad("DeformConv", (IMAGE, weights(1, IMAGE.shape[1], 2, 2), In((1, 5, 1, 1)))),
    "max-roi-pool": Bad("MaxRoiPool", (IMAGE, np.full((1, 5), 7, np.float32)),
                        {"pooled_shape": [1, 1]}),
    "roi-align": Bad("RoiAlign", (IMAGE, In((1, 4)), ints(7))),
}  # fmt: skip

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'


def _floats(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


# Models of several nodes, and their inputs: the node called "n" is the one that cannot be.
GRAPHS: dict[str, tuple[str, Mapping[str, Array]]] = {
    "between-nodes": (
        """g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {1,2,3,4,5,6,7,8,9,10,11,12},
            float[5] b = {1,2,3,4,5}> { a = MatMul(x, w) [n] y = Add(a, b) }""",
        {"x": _floats(2, 4)},
    ),
    "size-below-zero": (
        """g (float[N] x) => (float[M] y) <int64[1] five = {5}> {
            s = Shape(x) d = Sub(s, five) [n] y = ConstantOfShape(d) }""",
        {"x": _floats(3)},
    ),
    "half-of-odd": (
        """g (float[N] x) => (float[2, M] y) <int64[1] two = {2}> {
            s = Shape(x) h = Div(s, two) t = Concat<axis = 0>(two, h) [n] y = Reshape(x, t) }""",
        {"x": _floats(5)},
    ),
    "division-by-zero": (
        """g (float[N] x) => (float[M] y) <int64[1] zero = {0}> {
            s = Shape(x) [n] h = Div(s, zero) y = ConstantOfShape(h) }""",
        {"x": _floats(5)},
    ),
    "division-by-a-size-that-is-zero": (
        """g (float[N] x, float[K] z) => (float[M] y) {
            s = Shape(x) d = Shape(z) [n] h = Div(s, d) y = ConstantOfShape(h) }""",
        {"x": _floats(5), "z": _floats(0)},
    ),
    "product-of-sizes": (
        """g (float[N] x) => (float[A, B, C, D] y) {
            s = Shape(x) t = Concat<axis = 0>(s, s, s, s) [n] y = Expand(x, t) }""",
        {"x": _floats(2**16)},
    ),
    "sizes-wrap": (
        """g (float[N] x) => (float[M] y) <int64[1] big = {4611686018427387904}> {
            s = Shape(x) t = Mul(s, big) [n] y = ConstantOfShape(t) }""",
        {"x": _floats(5)},
    ),
    "range-of-sizes": (
        """g (float[N] x) => (int64[M] y)
            <int64 big = {1099511627776}, int64 o = {0}, int64 i = {1}> {
            s = Size(x) t = Mul(s, big) [n] y = Range(o, t, i) }""",
        {"x": _floats(5)},
    ),
    "index-in-a-loop": (
        """g (float[T, 3] x, int64[T] i, float[3] s) => (float[3] z, float[T, 3] y) {
            z, y = Scan <num_scan_inputs = 2, body = b (float[3] h, float[3] e, int64 j) =>
                (float[3] k, float[3] o) { [n] c = Gather(e, j) k = Add(h, c) o = Neg(k) }>
            (s, x, i) }""",
        {"x": _floats(4, 3), "i": np.array([0, 1, 5, 2]), "s": _floats(3)},
    ),
    "lengths-of-a-scan": (
        """g (float[T] x, float[S] w, float s) => (float z, float[T] y) {
            [n] z, y = Scan <num_scan_inputs = 2, body = b (float h, float e, float j) =>
                (float k, float o) { k = Add(h, e) o = Add(k, j) }> (s, x, w) }""",
        {"x": _floats(4), "w": _floats(3), "s": np.float32(0)},
    ),
    "endless-rows": (
        """g (float[3] x) => (float[3] z, float[T, 3] y)
            <int64 m = {1099511627776}, bool c = {1}> {
            z, y = Loop <body = b (int64 i, bool d, float[3] h) =>
                (bool e, float[3] k, float[3] o) { e = Identity(d) k = Neg(h) [n] o = Exp(h) }>
            (m, c, x) }""",
        {"x": _floats(3)},
    ),
    "shapes-of-branches": (
        """g (bool c, float[N] x) => (float[M] y) <float[4] w = {1,2,3,4}, float[3] v = {1,2,3}> {
            y = If (c) <
                then_branch = a () => (float[P] p) { [n] p = Add(x, w) },
                else_branch = b () => (float[Q] q) { q = Add(x, v) }> }""",
        {"c": np.array(True), "x": _floats(3)},
    ),
    "reference-then-native": (
        """g (float[N] x) => (float[M] y) <float[2] w = {1,2}> {
            p = NonZero(x) f = Cast<to = 1>(p) [n] y = Add(f, w) }""",
        {"x": np.ones(3, np.float32)},
    ),
}

# What kernels of onnx.reference take that the documents forbid. Where an op has a native form, it
# refuses.
LENIENT = frozenset(
    "lp-pool-zero lrn-size stft-step roi-align slice-axis-twice slice-lengths resize-scale".split()
)

# Ranks of outputs that differ from the rank of the first operand.
RANKS = {
    "where": 3,
    "matmul-scalar": 1,
    "einsum-rank": 1,
    "reshape": 2,
    "reshape-rest": 2,
    "reshape-two-rests": 2,
    "reshape-negative": 2,
    "reshape-zero": 4,
    "reshape-allow-zero": 2,
    "reshape-wraps": 2,
    "squeeze": 2,
    "squeeze-beyond": 2,
    "unsqueeze-beyond": 4,
    "unsqueeze-twice": 5,
    "flatten": 2,
    "expand-wraps": 2,
    "expand-wraps-small": 3,
    "gather-nd": 2,
    "gather-nd-depth": 1,
    "gather-nd-batch": 3,
    "gather-nd-batches": 1,
    "one-hot-depth": 2,
    "one-hot-huge": 2,
    "one-hot-axis": 2,
    "range-delta": 1,
    "range-huge": 1,
    "range-largest": 1,
    "range-float": 1,
    "range-float-huge": 1,
    "range-nan": 1,
    "constant-of-shape-negative": 2,
    "constant-of-shape-wraps": 2,
    "constant-of-shape-largest": 2,
    "gru-hidden": 4,
    "gru-input": 4,
    "gru-directions": 4,
    "gru-zero": 4,
    "lstm-state": 4,
    "stft-step": 4,
    "stft-frame": 4,
    "stft-step-negative": 4,
    "window-negative": 1,
    "window-huge": 1,
    "mel-huge": 2,
    "col2im": 4,
    "col2im-zero": 4,
    "affine-grid-huge": 4,
}


def model(name: str, variant: Variant) -> tuple[onnx.ModelProto, dict[str, Array]] | None:
    """The model of one node called "n" and its inputs; None where the variant is no other."""
    bad = BAD[name]
    names, inputs, constants, feeds = [], [], [], {}
    random = np.random.default_rng(0)
    changed = False
    for i, operand in enumerate(bad.operands):
        names.append("" if operand is None else f"x{i}")
        if isinstance(operand, In):
            array = operand.array({}, random)
            shape = [f"d{i}_{axis}" for axis in range(array.ndim)] if variant.sizes else array.shape
            changed |= variant.sizes and array.ndim > 0
        elif operand is None:
            continue
        else:
            array, shape = np.asarray(operand), np.shape(operand)
            if not variant.values or array.size > 64:
                constants.append(onnx.numpy_helper.from_array(array, f"x{i}"))
                continue
            changed = True
        inputs.append(helper.make_tensor_value_info(f"x{i}", element_type(array.dtype), shape))
        feeds[f"x{i}"] = array
    if (variant.sizes or variant.values) and not changed:
        return None
    results = [f"y{i}" for i in range(bad.outputs)]
    node = helper.make_node(bad.op, names, results, name="n", **bad.attributes)
    schema = onnx.defs.get_schema(bad.op, bad.opset)
    first = bad.operands[0]
    rank = len(first.shape) if isinstance(first, In) else np.ndim(first)
    rank = RANKS.get(name, rank)
    outputs = []
    for position, result in enumerate(results):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)]
        outputs.append(helper.make_tensor_value_info(result, _type(formal), [None] * rank))
    graph = helper.make_graph([node], "bad", inputs, outputs, constants)
    opset = helper.make_opsetid("", bad.opset)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10), feeds


def _type(formal: Any) -> int:
    return TensorProto.FLOAT if "tensor(float)" in formal.types else TensorProto.INT64


UNFOLDED = {"disable": ("constant_folding", "infer_shapes")}


def outcome(proto: onnx.ModelProto, feeds: Mapping[str, Array], options: dict[str, Any]) -> str:
    """What became of the model: that it ran, where, or the type and text of the error."""
    try:
        session = ostinato.InferenceSession(proto, cache_dir=None, **options)
        session.run(None, feeds)
    except ostinato.OstinatoError as error:
        return f"refused: {type(error).__name__}: {error}"
    except BaseException as error:
        return f"leaked: {type(error).__name__}: {error}"
    return "ran: on a reference kernel" if session.report().interpreted else "ran: natively"


def variants(name: str) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array], dict[str, Any]]]:
    """Every variant of a bad model that differs from the others."""
    if name in GRAPHS:
        text, feeds = GRAPHS[name]
        proto = onnx.parser.parse_model(HEADER + text)
        yield f"{name}/known", proto, dict(feeds), {}
        yield f"{name}/unfolded", proto, dict(feeds), UNFOLDED
        return
    for variant in VARIANTS:
        made = model(name, variant)
        if made is not None:
            yield f"{name}/{variant.name}", *made, {}
            if variant.name == "known":
                yield f"{name}/unfolded", *made, UNFOLDED


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(names: Iterable[str]) -> None:
    """Print what becomes of all variants of each model named, and an empty line behind them."""
    warnings.simplefilter("ignore")
    # What is refused is so before LLVM optimizes anything.
    ostinato.compiler.emit_object = unoptimized.emit_object
    report("add")
    print(flush=True)
    # Collections would touch, and so copy, what children share with this process.
    gc.freeze()
    gc.disable()
    for name in names:
        child = os.fork()
        if not child:
            report(name.strip())
            os._exit(0)
        _wait(child)
        print(flush=True)


def _wait(child: int) -> None:
    """Wait for a process, and end it where it does not end."""
    end = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.002)


def report(name: str) -> None:
    """Print what becomes of the variants of a model, each with little memory to give away."""
    for full, proto, feeds, options in variants(name):
        print(json.dumps({"name": full}), flush=True)
        limit = _in_use() + 2 * MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        before, start = _peak(), time.perf_counter()
        text = outcome(proto, feeds, options)
        record = {
            "name": full,
            "outcome": text,
            "grown": _peak() - before,
            "seconds": time.perf_counter() - start,
        }
        print(json.dumps(record), flush=True)


def _in_use() -> int:
    """The size of the address space of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1:] or sys.stdin)
