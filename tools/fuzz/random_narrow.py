"""Random networks of products, convolutions and recurrences, for quantisers.

Weights are multiples of 1/64 and inputs of 1/8, so that products of them are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tools.fuzz.text import Array, Text

OPSET = 21
BATCH = 2
Shape = tuple[int, ...]


@dataclass
class Network(Text):
    """A network under construction. values: its values with their shapes, the last one last."""

    values: list[tuple[str, Shape]] = field(default_factory=list)

    def weights(self, *shape: int) -> str:
        scale = 0.9 / max(1.0, float(np.prod(shape[1:]))) ** 0.5
        exact = np.round(self.random.standard_normal(shape) * scale * 64) / 64
        return self.constant(exact, np.float32)

    @property
    def last(self) -> tuple[str, Shape]:
        return self.values[-1]

    def put(self, expression: str, shape: Shape) -> None:
        self.values.append((self.emit(expression), shape))

    def earlier(self, fits: Callable[[Shape], bool]) -> str | None:
        found = [name for name, shape in self.values[:-1] if fits(shape)]
        return str(self.choose(found)) if found else None


Layer = Callable[[Network], None]
RANKS: dict[int, list[Layer]] = {2: [], 3: [], 4: []}
"""Layers by the ranks of what they take: `[N, n]`, `[N, n, n]` and images `[N, n, n, n]`."""


def layer(*ranks: int, weight: int = 1) -> Callable[[Layer], Layer]:
    """Register what adds a layer to the last value."""

    def register(function: Layer) -> Layer:
        for rank in ranks:
            RANKS[rank] += [function] * weight
        return function

    return register


@layer(2, 3, 4, weight=2)
def _function(n: Network) -> None:
    x, shape = n.last
    kind = n.choose(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip", "Softmax"))
    more = f", {n.real(-0.5)}, {n.real(2.0)}" if kind == "Clip" else ""
    n.put(f"{kind} ({x}{more})", shape)


@layer(2, 3, 4)
def _joined(n: Network) -> None:
    x, shape = n.last
    other = n.earlier(lambda s: s == shape) or x
    how = n.choose(("Add", "Mul", "Sub", "Concat", "Max"))
    if how == "Concat":
        n.put(f"Concat <axis=1> ({x}, {other})", (shape[0], 2 * shape[1], *shape[2:]))
    else:
        n.put(f"{how} ({x}, {other})", shape)


@layer(2, 3, 4)
def _moved(n: Network) -> None:
    x, shape = n.last
    order = [0, *(1 + int(a) for a in n.random.permutation(len(shape) - 1))]
    n.put(f"Transpose <perm={order}> ({x})", tuple(shape[a] for a in order))


@layer(2, 3, 4, weight=3)
def _product(n: Network) -> None:
    x, shape = n.last
    count = n.choose((1, 3, 8, 16, 33))
    n.put(f"MatMul ({x}, {n.weights(shape[-1], count)})", (*shape[:-1], count))
    if n.chance(0.5):
        x, shape = n.last
        n.put(f"Add ({x}, {n.weights(count)})", shape)


@layer(2, weight=3)
def _gemm(n: Network) -> None:
    x, (batch, terms) = n.last
    count, turned = n.choose((1, 4, 16, 31)), n.choose((0, 1))
    weights = n.weights(count, terms) if turned else n.weights(terms, count)
    bias = f", {n.weights(count)}" if n.chance(0.6) else ""
    alpha, beta = n.choose(((1.0, 1.0), (0.5, 2.0), (1.0, 1.0)))
    about = f"transB={turned}, alpha={alpha}, beta={beta}"
    n.put(f"Gemm <{about}> ({x}, {weights}{bias})", (batch, count))


@layer(3)
def _left(n: Network) -> None:
    x, (batch, terms, rest) = n.last
    count = n.choose((2, 8))
    n.put(f"MatMul ({n.weights(count, terms)}, {x})", (batch, count, rest))


@layer(3, 4)
def _attended(n: Network) -> None:
    x, shape = n.last
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    keys = n.emit(f"Transpose <perm={order}> ({x})")
    scores = n.emit(f"MatMul ({x}, {keys})")
    shares = n.emit(f"Softmax ({n.emit(f'Mul ({scores}, {n.real(0.25)})')})")
    n.put(f"MatMul ({shares}, {x})", shape)


@layer(3, 4, weight=4)
def _convolution(n: Network) -> None:
    x, (batch, channels, *places) = n.last
    taps = [min(n.choose((1, 2, 3)), size) for size in places]
    group = n.choose((1, 1, 1, channels))
    filters = group * n.choose((1, 2)) if group > 1 else n.choose((1, 4, 16, 17))
    stride = [n.choose((1, 1, 2)) for _ in places]
    pads = [n.choose((0, 0, 1)) for _ in range(2 * len(places))]
    rank = len(places)
    sizes = [
        (size + pads[a] + pads[a + rank] - taps[a]) // stride[a] + 1
        for a, size in enumerate(places)
    ]
    about = f"strides={stride}, pads={pads}, group={group}, kernel_shape={taps}"
    bias = f", {n.weights(filters)}" if n.chance(0.6) else ""
    weights = n.weights(filters, channels // group, *taps)
    n.put(f"Conv <{about}> ({x}, {weights}{bias})", (batch, filters, *sizes))


@layer(3, 4)
def _transposed(n: Network) -> None:
    x, (batch, channels, *places) = n.last
    filters, stride, taps = n.choose((1, 4)), n.choose((1, 2)), n.choose((1, 2, 3))
    sizes = [(size - 1) * stride + taps for size in places]
    weights = n.weights(channels, filters, *[taps for _ in places])
    strides = [stride for _ in places]
    n.put(f"ConvTranspose <strides={strides}> ({x}, {weights})", (batch, filters, *sizes))


@layer(3, 4)
def _pooled(n: Network) -> None:
    x, (batch, channels, *places) = n.last
    if n.chance(0.4):
        n.put(f"GlobalAveragePool ({x})", (batch, channels, *[1 for _ in places]))
    elif min(places) > 1:
        op, kernel = n.choose(("MaxPool", "AveragePool")), [2 for _ in places]
        sizes = [size - 1 for size in places]
        n.put(f"{op} <kernel_shape={kernel}> ({x})", (batch, channels, *sizes))


@layer(3, 4)
def _flat(n: Network) -> None:
    x, (batch, *sizes) = n.last
    n.put(f"Flatten ({x})", (batch, int(np.prod(sizes))))


@layer(3, weight=3)
def _recurrent(n: Network) -> None:
    x, (batch, steps, width) = n.last
    op, gates = n.choose((("GRU", 3), ("LSTM", 4), ("RNN", 1)))
    hidden, both = n.choose((4, 8, 17)), n.choose((1, 1, 2))
    direction = n.choose(("forward", "reverse")) if both == 1 else "bidirectional"
    operands = [n.emit(f"Transpose <perm=[1, 0, 2]> ({x})")]
    operands += [n.weights(both, gates * hidden, width), n.weights(both, gates * hidden, hidden)]
    operands += [n.weights(both, 2 * gates * hidden)] if n.chance(0.6) else []
    about = f'hidden_size={hidden}, direction="{direction}"'
    if op == "GRU":
        about += f", linear_before_reset={n.choose((0, 1))}"
    y = n.emit(f"{op} <{about}> ({', '.join(operands)})")
    y = n.emit(f"Transpose <perm=[2, 0, 1, 3]> ({y})")
    n.put(f"Reshape ({y}, {n.ints(0, 0, both * hidden)})", (batch, steps, both * hidden))


@layer(3, weight=2)
def _scan(n: Network) -> None:
    x, (batch, steps, width) = n.last
    hidden = n.choose((4, 9))
    start = n.emit(
        f"MatMul ({n.emit(f'Gather <axis=1> ({x}, {n.scalar(0)})')}, {n.weights(width, hidden)})"
    )
    inner = f"a = MatMul (f, {n.weights(width, hidden)}) b = Gemm (h, {n.weights(hidden, hidden)})"
    inner += f" d = Add (a, b) r = {n.choose(('Tanh', 'Sigmoid', 'Relu'))} (d)"
    inner += f" y = MatMul (r, {n.weights(hidden, 3)})"
    infos = f"(float[M, {hidden}] h, float[M, {width}] f) => (float[M, {hidden}] r, float[M, 3] y)"
    about = "num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]"
    _, y = n.emit(f"Scan <{about}, body = body {infos} {{ {inner} }}> ({start}, {x})", 2)
    n.values.append((y, (batch, steps, 3)))


def random_network(seed: int) -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    """A network, and inputs to calibrate it with, of which the first are those to run it with."""
    n = Network(np.random.default_rng(seed))
    rank = n.choose((2, 3, 3, 4))
    shape: Shape = (BATCH, *[n.choose((3, 4, 7, 8, 16)) for _ in range(rank - 1)])
    n.values.append(("x", shape))
    for _ in range(n.number(1, 5)):
        n.choose(RANKS[len(n.last[1])])(n)
        if np.prod(n.last[1]) > 20000:
            break
    if len(n.values) == 1:
        _product(n)
    results = {n.emit(f"Identity ({name})"): s for name, s in n.values[1:][-2:]}
    batch = n.choose(("N", str(BATCH)))

    def listed(sizes: Shape) -> str:
        return ", ".join([batch, *map(str, sizes[1:])])

    outputs = [f"float[{listed(sizes)}] {name}" for name, sizes in results.items()]
    model = n.model([f"float[{listed(shape)}] x"], outputs, OPSET)
    samples: list[dict[str, Any]] = [
        {"x": (np.round(8 * n.random.standard_normal(shape)) / 8).astype(np.float32)}
        for _ in range(3)
    ]
    return model, samples
