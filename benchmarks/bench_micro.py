"""Single ops beside other runtimes, and what share of this core's FMA peak they reach.

    taskset -c 1 python -m benchmarks.bench_micro [--models 'conv*'] [--peers A,B] [--json FILE]

Weights are constants, one thread, buffers bound once. The share counts the multiply-adds of the
definition, two operations each; ops that are no sums of products have none.
"""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import harness, models


def _model(
    op: str,
    shape: Sequence[int],
    constants: Sequence[np.ndarray],
    output: Sequence[int],
    flops: float = 0.0,
    **attributes: object,
) -> models.Model:
    names = [f"w{i}" for i in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        op.lower(),
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(a, n) for a, n in zip(constants, names, strict=True)],
    )
    opset = helper.make_opsetid("", models.OPSET)
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=models.IR_VERSION)
    onnx.checker.check_model(proto, full_check=True)
    return models.Model(proto, models.Work(flops))


def _weights(*shape: int) -> np.ndarray:
    fan_in = max(1, prod(shape[1:]))
    random = np.random.default_rng(8)
    return (random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def conv(
    channels: tuple[int, int],
    size: Sequence[int],
    kernel: Sequence[int],
    *,
    stride: int = 1,
    dilation: int = 1,
    group: int = 1,
    causal: bool = False,
) -> models.Model:
    """A convolution with bias, padded to keep its size (before stride)."""
    inputs, outputs = channels
    reach = [(k - 1) * dilation for k in kernel]
    pads = [*reach, *[0] * len(kernel)] if causal else [r // 2 for r in reach] * 2
    weight = _weights(outputs, inputs // group, *kernel)
    result = [-(-n // stride) for n in size]
    return _model(
        "Conv",
        [1, inputs, *size],
        [weight, _weights(outputs, 1)[:, 0]],
        [1, outputs, *result],
        2.0 * weight.size * prod(result),
        strides=[stride] * len(size),
        dilations=[dilation] * len(size),
        group=group,
        pads=pads,
    )


def two_convs(inputs: int, inner: int, size: int) -> models.Model:
    """3 x 3 filters to `inner` channels, which only the 1 x 1 filters to 8 behind them read."""
    image, weights = f"{size}, {size}", [_weights(inner, inputs, 3, 3), _weights(8, inner, 1, 1)]
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["" : {models.OPSET}]>
        two_convs (float[1, {inputs}, {image}] x) => (float[1, 8, {image}] y) {{
            c = Conv<pads = [1, 1, 1, 1]>(x, w)  r = Relu(c)  y = Conv(r, v)
        }}"""
    )
    arrays = zip(weights, "wv", strict=True)
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for a, name in arrays)
    return models.Model(proto, models.Work(2.0 * sum(w.size for w in weights) * size**2))


def conv_transpose(
    channels: tuple[int, int], size: Sequence[int], kernel: Sequence[int], stride: int
) -> models.Model:
    """A transposed convolution whose output is `stride` times as large."""
    inputs, outputs = channels
    weight = _weights(inputs, outputs, *kernel)
    result = [n * stride for n in size]
    return _model(
        "ConvTranspose",
        [1, inputs, *size],
        [weight, _weights(outputs, 1)[:, 0]],
        [1, outputs, *result],
        2.0 * weight.size * prod(size),
        strides=[stride] * len(size),
        pads=[(k - stride) // 2 for k in kernel] * 2,
    )


def pool(op: str, channels: int, size: int, kernel: int, stride: int = 1) -> models.Model:
    """A pool over square images, padded to keep their size (before stride)."""
    pads = [(kernel - 1) // 2] * 2 + [(kernel - stride) // 2] * 2
    about = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
    return _model(op, [1, channels, size, size], [], [1, channels, *[size // stride] * 2], **about)


def matmul(*sizes: int, batch: Sequence[int] = ()) -> models.Model:
    """A product of x [batch, m, k] and a constant [k, n]."""
    rows, inner, columns = sizes
    return _model(
        "MatMul",
        [*batch, rows, inner],
        [_weights(inner, columns)],
        [*batch, rows, columns],
        2.0 * prod(batch) * rows * inner * columns,
    )


def softmax(rows: int, length: int) -> models.Model:
    """Softmax of every row."""
    return _model("Softmax", [rows, length], [], [rows, length], axis=-1)


def top_k(rows: int, length: int, count: int) -> models.Model:
    """The largest elements of every row."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["": {models.OPSET}]>
        topk (float[{rows}, {length}] x) => (float[{rows}, {count}] y, int64[{rows}, {count}] i) {{
            k = Constant<value_ints = [{count}]>()  y, i = TopK(x, k)
        }}"""
    )
    return models.Model(proto, models.Work(0.0))


def of_bytes(function: str, count: int) -> models.Model:
    """A function of floats between DequantizeLinear and QuantizeLinear."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["": {models.OPSET}]>
        of_bytes (uint8[{count}] x) => (uint8[{count}] y)
        <float s = {{0.05}}, uint8 p = {{7}}, float t = {{0.02}}, uint8 q = {{3}}> {{
            w = DequantizeLinear(x, s, p)  f = {function}(w)  y = QuantizeLinear(f, t, q)
        }}"""
    )
    return models.Model(proto, models.Work(0.0))


def layer_norm(rows: int, length: int) -> models.Model:
    """Layer normalisation of every row."""
    constants = [np.ones(length, np.float32), np.zeros(length, np.float32)]
    return _model("LayerNormalization", [rows, length], constants, [rows, length], axis=-1)


def attention(heads: int, positions: int, width: int) -> models.Model:
    """Softmax(q k') v for each head."""
    shape = f"float[{heads}, {positions}, {width}]"
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["" : {models.OPSET}]>
        attention ({shape} q, {shape} k, {shape} v) => ({shape} y) {{
            t = Transpose<perm = [0, 2, 1]>(k)
            s = MatMul(q, t)
            p = Softmax<axis = -1>(s)
            y = MatMul(p, v)
        }}"""
    )
    return models.Model(proto, models.Work(4.0 * heads * positions**2 * width))


def open_queries(heads: int, positions: int, width: int) -> models.Model:
    """Attention of queries whose number only the run tells, one here, to keys that are scaled."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["" : {models.OPSET}]>
        open_queries (float[{heads}, Q, {width}] q, float[{heads}, {positions}, {width}] k,
            float[{heads}, {positions}, {width}] v) => (float[{heads}, Q, {width}] y)
        <float scale = {{0.35}}> {{
            t = Transpose<perm = [0, 2, 1]>(k)
            u = Mul(t, scale)
            s = MatMul(q, u)
            p = Softmax<axis = -1>(s)
            y = MatMul(p, v)
        }}"""
    )
    return models.Model(proto, models.Work(4.0 * heads * positions * width))


def given_rows(inner: int, columns: int) -> models.Model:
    """A row x [1, inner] times an input w [inner, columns]."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["" : {models.OPSET}]>
        given_rows (float[1, {inner}] x, float[{inner}, {columns}] w) => (float[1, {columns}] y) {{
            y = MatMul(x, w)
        }}"""
    )
    return models.Model(proto, models.Work(2.0 * inner * columns))


def across(heads: int, rows: int, columns: int, inner: int) -> models.Model:
    """q k' of inputs q [heads, rows, inner] and k [heads, columns, inner]."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: {models.IR_VERSION}, opset_import: ["" : {models.OPSET}]>
        across (float[{heads}, {rows}, {inner}] q, float[{heads}, {columns}, {inner}] k)
            => (float[{heads}, {rows}, {columns}] y) {{
            t = Transpose<perm = [0, 2, 1]>(k)
            y = MatMul(q, t)
        }}"""
    )
    return models.Model(proto, models.Work(2.0 * heads * rows * columns * inner))


CASES: dict[str, Callable[[], models.Model]] = {
    "conv1d causal k3 64ch t100": lambda: conv((64, 64), [100], [3], causal=True),
    "conv1d dilated k3 d8 64ch t400": lambda: conv((64, 64), [400], [3], dilation=8, causal=True),
    "conv1d dilated k29 d2 64to128 t51": lambda: conv((64, 128), [51], [29], dilation=2),
    "conv1d depthwise k9 256ch t200": lambda: conv((256, 256), [200], [9], group=256),
    "conv1d grouped k3 128ch g4 t200": lambda: conv((128, 128), [200], [3], group=4),
    "conv1d strided k8 s4 1to64 t4000": lambda: conv((1, 64), [4000], [9], stride=4),
    "conv2d 1x1 64ch 56x56": lambda: conv((64, 64), [56, 56], [1, 1]),
    "conv2d 1x1 256to64 28x28": lambda: conv((256, 64), [28, 28], [1, 1]),
    "conv2d 3x3 3to32 112x112 s2": lambda: conv((3, 32), [112, 112], [3, 3], stride=2),
    "conv2d 3x3 3to24 640x640 s2": lambda: conv((3, 24), [640, 640], [3, 3], stride=2),
    "conv2d 3x3 16ch 64x64": lambda: conv((16, 16), [64, 64], [3, 3]),
    "two convs 3x3 32to64 48x48": lambda: two_convs(32, 64, 48),
    "conv2d 3x3 32ch 225x30": lambda: conv((32, 32), [225, 30], [3, 3]),
    "conv2d 3x3 64ch 56x56": lambda: conv((64, 64), [56, 56], [3, 3]),
    "conv2d 3x3 128ch 28x28": lambda: conv((128, 128), [28, 28], [3, 3]),
    "conv2d 3x3 256ch 14x14": lambda: conv((256, 256), [14, 14], [3, 3]),
    "conv2d 3x3 64to128 32x32": lambda: conv((64, 128), [32, 32], [3, 3]),
    "conv2d 5x5 64ch 56x56": lambda: conv((64, 64), [56, 56], [5, 5]),
    "conv2d 21x11 32ch 81x100": lambda: conv((32, 32), [81, 100], [21, 11]),
    "conv2d 3x3 64to128 56x56 s2": lambda: conv((64, 128), [56, 56], [3, 3], stride=2),
    "conv2d 3x3 d2 512ch 28x28": lambda: conv((512, 512), [28, 28], [3, 3], dilation=2),
    "conv2d 3x3 d12 960to256 14x14": lambda: conv((960, 256), [14, 14], [3, 3], dilation=12),
    "conv2d 3x3 d12 2048to256 33x33": lambda: conv((2048, 256), [33, 33], [3, 3], dilation=12),
    "conv2d depthwise 3x3 128ch 56x56": lambda: conv((128, 128), [56, 56], [3, 3], group=128),
    "conv2d depthwise 3x3 s2 116ch 28x28": lambda: conv(
        (116, 116), [28, 28], [3, 3], group=116, stride=2
    ),
    "convT1d k16 s8 64to32 t100": lambda: conv_transpose((64, 32), [100], [16], 8),
    "convT2d 2x2 s2 64to32 28x28": lambda: conv_transpose((64, 32), [28, 28], [2, 2], 2),
    "convT2d 4x4 s2 64to32 28x28": lambda: conv_transpose((64, 32), [28, 28], [4, 4], 2),
    "maxpool 2x2 s2 64ch 56x56": lambda: pool("MaxPool", 64, 56, 2, 2),
    "maxpool 3x3 s2 64ch 112x112": lambda: pool("MaxPool", 64, 112, 3, 2),
    "maxpool 3x3 192ch 28x28": lambda: pool("MaxPool", 192, 28, 3),
    "maxpool 5x5 128ch 20x20": lambda: pool("MaxPool", 128, 20, 5),
    "avgpool 3x3 192ch 28x28": lambda: pool("AveragePool", 192, 28, 3),
    "avgpool 3x3 s2 256ch 28x28": lambda: pool("AveragePool", 256, 28, 3, 2),
    "matmul 64x64x64": lambda: matmul(64, 64, 64),
    "matmul 128x128x128": lambda: matmul(128, 128, 128),
    "matmul 256x256x256": lambda: matmul(256, 256, 256),
    "matmul 512x512x512": lambda: matmul(512, 512, 512),
    "matmul 1x512x512": lambda: matmul(1, 512, 512),
    "matmul 32x8192x256": lambda: matmul(32, 8192, 256),
    "matmul 100x3072x768": lambda: matmul(100, 3072, 768),
    "matmul 2000x64x64": lambda: matmul(2000, 64, 64),
    "matmul 256x64x4": lambda: matmul(256, 64, 4),
    "matmul 8x(32x128)x128": lambda: matmul(32, 128, 128, batch=[8]),
    "attention 12x197x64": lambda: attention(12, 197, 64),
    "attention 8x512x64": lambda: attention(8, 512, 64),
    "attention 8x1500x64": lambda: attention(8, 1500, 64),
    "open queries 6x1500x64": lambda: open_queries(6, 1500, 64),
    "one query 4x1024x64": lambda: across(4, 1, 1024, 64),
    "given weights 1x512x512": lambda: across(1, 1, 512, 512),
    "given rows 1x512x2048": lambda: given_rows(512, 2048),
    "softmax 512x32": lambda: softmax(512, 32),
    "softmax 128x257": lambda: softmax(128, 257),
    "softmax 16x4096": lambda: softmax(16, 4096),
    "bytes erf 131072": lambda: of_bytes("Erf", 131072),
    "topk 128x128 k8": lambda: top_k(128, 128, 8),
    "topk 128x300 k16": lambda: top_k(128, 300, 16),
    "topk 64x1000 k4": lambda: top_k(64, 1000, 4),
    "topk 64x1000 k10": lambda: top_k(64, 1000, 10),
    "topk 64x1000 k48": lambda: top_k(64, 1000, 48),
    "layernorm 128x256": lambda: layer_norm(128, 256),
    "layernorm 512x768": lambda: layer_norm(512, 768),
}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("single ops, side by side")
    parser.add_argument("--models", default="*", help="pattern of row names")
    harness.add_limits(parser)
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    wanted = harness.start(arguments)
    limits = harness.limits(arguments.limits)
    with tempfile.TemporaryDirectory() as folder:

        def one(name: str) -> harness.Figures:
            model = CASES[name]()
            path = model.save(Path(folder))
            # A row without multiply-adds has no bound.
            bound = model.work.bound(limits) or None
            feeds = models.feeds(model.proto)
            return harness.measure(name, path, feeds, wanted, arguments.seconds, bound)

        rows = harness.each("Micro", fnmatch.filter(CASES, arguments.models), one)
    harness.console.print(harness.peer_table("Single ops (bound: FMA peak)", rows, wanted))
    harness.notes(rows)
    harness.save(arguments.json, {"rows": harness.rows_as_json(rows)})


if __name__ == "__main__":
    main()
