"""Random graphs of pointwise, view, reduction and product ops: modes agree, values are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import ostinato
from ostinato.compiler import optional_passes
from tests.cases.case import Array, In, model_of
from tests.oracle import ops
from tests.test_modes import assert_same_bits

ROW = "T"
SIZES = (3, 1, 17, 0)
UNARY = ("Tanh", "Sigmoid", "Relu", "Neg", "Abs", "Softsign", "Sin")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")

Shape = tuple[int | str, ...]


class Graph:
    """A graph being drawn: nodes, constants, and the shape of every value so far."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.shapes: dict[str, Shape] = {}
        self.inputs: dict[str, In] = {}

    def input(self, shape: Shape) -> None:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = In(shape)
        self.shapes[name] = shape

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int) -> str:
        seed = self.draw(st.integers(0, 9))
        random = np.random.default_rng(seed)
        return self.constant(random.standard_normal(shape).astype(np.float32))

    def node(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.shapes[name] = shape

    def value(self) -> str:
        """One of the values, the newest being the likeliest."""
        names = list(self.shapes)
        return names[-1 - min(self.draw(st.integers(0, len(names) - 1)) // 2, len(names) - 1)]

    def last_axis(self, name: str) -> int | None:
        """The extent of the last axis, where it is known."""
        extent = self.shapes[name][-1] if self.shapes[name] else None
        return extent if isinstance(extent, int) else None

    def step(self) -> None:
        """Add one node."""
        kinds = [self.unary, self.binary, self.transpose, self.slice, self.join, self.reduce]
        self.draw(st.sampled_from([*kinds, self.product, self.softmax, self.pad, self.split]))()

    def unary(self) -> None:
        name = self.value()
        self.node(self.draw(st.sampled_from(UNARY)), [name], self.shapes[name])

    def binary(self) -> None:
        name = self.value()
        shape = self.shapes[name]
        same = [other for other, s in self.shapes.items() if s == shape]
        extent = self.last_axis(name)
        other = self.draw(st.sampled_from(same))
        if extent is not None and self.draw(st.booleans()):
            other = self.weights(self.draw(st.sampled_from([1, extent])))
        pair = [name, other] if self.draw(st.booleans()) else [other, name]
        self.node(self.draw(st.sampled_from(BINARY)), pair, shape)

    def transpose(self) -> None:
        name = self.value()
        if not self.shapes[name]:
            return
        order = self.draw(st.permutations(range(len(self.shapes[name]))))
        shape = tuple(self.shapes[name][i] for i in order)
        self.node("Transpose", [name], shape, perm=list(order))

    def slice(self) -> None:
        name = self.value()
        extent = self.last_axis(name)
        if not extent:
            return
        start, end = (self.draw(st.integers(-extent - 1, extent + 1)) for _ in range(2))
        step = self.draw(st.sampled_from([1, 2, -1, -3]))
        left = len(range(extent)[start:end:step])
        operands = [self.constant(np.array([v])) for v in (start, end, -1, step)]
        self.node("Slice", [name, *operands], (*self.shapes[name][:-1], left))

    def join(self) -> None:
        name = self.value()
        extent = self.last_axis(name)
        shape = self.shapes[name]
        others = [
            n for n, s in self.shapes.items() if s[:-1] == shape[:-1] and len(s) == len(shape)
        ]
        others = [n for n in others if self.last_axis(n) is not None]
        if extent is None or extent > 40:
            return
        other = self.draw(st.sampled_from(others))
        total = extent + (self.last_axis(other) or 0)
        self.node("Concat", [name, other], (*shape[:-1], total), axis=len(shape) - 1)

    def split(self) -> None:
        name = self.value()
        extent = self.last_axis(name)
        if not extent:
            return
        first = self.draw(st.integers(0, extent))
        sizes = self.constant(np.array([first, extent - first]))
        made = [f"v{len(self.nodes)}a", f"v{len(self.nodes)}b"]
        axis = len(self.shapes[name]) - 1
        self.nodes.append(helper.make_node("Split", [name, sizes], made, name=made[0], axis=axis))
        for output, size in zip(made, (first, extent - first), strict=True):
            self.shapes[output] = (*self.shapes[name][:-1], size)

    def pad(self) -> None:
        name = self.value()
        extent, rank = self.last_axis(name), len(self.shapes[name])
        if extent is None or extent > 40:
            return
        before, after = (self.draw(st.integers(0, 2)) for _ in range(2))
        pads = self.constant(np.array([0] * (rank - 1) + [before] + [0] * (rank - 1) + [after]))
        self.node("Pad", [name, pads], (*self.shapes[name][:-1], extent + before + after))

    def reduce(self) -> None:
        name = self.value()
        rank = len(self.shapes[name])
        if rank == 0:
            return
        axis = self.draw(st.integers(0, rank - 1))
        keep = self.draw(st.booleans())
        shape = list(self.shapes[name])
        shape[axis : axis + 1] = [1] if keep else []
        op = self.draw(st.sampled_from(["ReduceSum", "ReduceSumSquare", "ReduceL1"]))
        operand = self.constant(np.array([axis]))
        self.node(op, [name, operand], tuple(shape), keepdims=int(keep))

    def softmax(self) -> None:
        name = self.value()
        if self.last_axis(name):
            self.node("Softmax", [name], self.shapes[name], axis=-1)

    def product(self) -> None:
        name = self.value()
        extent = self.last_axis(name)
        if extent is None:
            return
        columns = self.draw(st.sampled_from([1, 3, 16, 20]))
        self.node(
            "MatMul", [name, self.weights(extent, columns)], (*self.shapes[name][:-1], columns)
        )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[onnx.ModelProto, onnx.ModelProto, dict[str, In]]:
    """A model with a run-time dimension, the same with all values as outputs, the inputs."""
    graph = Graph(draw)
    extent = draw(st.sampled_from([1, 4, 7, 33]))
    graph.input((ROW, extent))
    graph.input(draw(st.sampled_from([(ROW, extent), (2, ROW, extent), (ROW,)])))
    for _ in range(draw(st.integers(2, 9))):
        graph.step()
    made = [name for node in graph.nodes for name in node.output]
    if not made:
        graph.unary()
        made = [graph.nodes[-1].output[0]]
    outputs = sorted({made[-1], draw(st.sampled_from(made))})
    model, whole = (
        model_of(graph.nodes, graph.inputs, names, graph.constants, 21) for names in (outputs, made)
    )
    return model, whole, graph.inputs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(graphs(), st.sampled_from(SIZES))
def test_random_graphs(
    made: tuple[onnx.ModelProto, onnx.ModelProto, dict[str, In]], baked: int
) -> None:
    model, whole, inputs = made
    default = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    everything = optional_passes()
    plain = ostinato.InferenceSession(model, cache_dir=None, fallback=False, disable=everything)
    for size in SIZES:
        random = np.random.default_rng(size)
        feeds = {name: one.array({ROW: size}, random) for name, one in inputs.items()}
        got = default.run(None, feeds)
        assert_same_bits(plain.run(None, feeds), got, f"without passes, {size}")
        if size == baked:
            fixed = ostinato.InferenceSession(
                model, cache_dir=None, fallback=False, specialize={ROW: size}
            )
            assert_same_bits(fixed.run(None, feeds), got, f"specialised to {size}")
        # What cancels on the way leaves errors of the size of what cancelled.
        values = ops.run(whole, feeds)
        scale = max(1.0, *(float(np.abs(value).max(initial=0)) for value in values))
        for result, expected in zip(got, ops.run(model, feeds), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * scale)
