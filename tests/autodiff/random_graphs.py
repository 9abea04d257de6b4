"""Small random graphs of differentiable operators; the loss is a weighted sum of all results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
Shape = tuple[int, ...]

SMOOTH = ("Tanh", "Sigmoid", "Sin", "Cos", "Softplus", "Erf", "Gelu", "Atan", "Mish", "Neg")
KINKED = ("Abs", "Relu", "LeakyRelu", "Elu", "HardSigmoid", "Identity", "Softsign")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2")
MORE_REDUCTIONS = ("ReduceLogSumExp", "ReduceSumSquare", "ReduceProd")
SIZES = (1, 2, 3, 4)
LARGEST = 64


@dataclass
class Graph:
    """A graph that grows.

    shapes: of the values that more nodes may read, whatever the model says of them.
    is_named: whether sizes are run-time sizes in the model.
    """

    random: np.random.Generator
    is_named: bool
    shapes: dict[str, Shape] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def choose(self, items: Sequence[Any]) -> Any:
        return items[int(self.random.integers(len(items)))]

    def constant(self, array: object) -> str:
        name = self.name()
        self.constants[name] = np.asarray(array)
        return name

    def add(self, op: str, inputs: list[str], shape: Shape | None, **attributes: object) -> str:
        """One node with one output; with a shape it can be read by those to come."""
        name = self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{name}", **attributes))
        self.used.update(inputs)
        if shape is not None:
            self.shapes[name] = shape
        return name

    def pick(self, fits: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        """A value, newer ones more often."""
        names = [name for name, shape in self.shapes.items() if fits(shape)]
        if not names:
            return None
        return names[int(len(names) * self.random.random() ** 0.6)]


def unary(graph: Graph) -> None:
    x = graph.pick()
    graph.add(graph.choose(SMOOTH + KINKED), [x], graph.shapes[x])


def steep(graph: Graph) -> None:
    x = graph.pick()
    shape = graph.shapes[x]
    inner = graph.add(graph.choose(("Tanh", "Sin")), [x], None)
    op = graph.choose(("Exp", "Asin", "Sqrt", "Log", "Reciprocal", "Clip", "Pow", "Sinh"))
    if op == "Asin":
        inner = graph.add("Mul", [inner, graph.constant(np.float32(0.7))], None)
    elif op not in ("Exp", "Clip", "Sinh"):
        inner = graph.add("Add", [inner, graph.constant(np.float32(1.5))], None)
    more = {
        "Clip": [graph.constant(np.float32(-0.4)), graph.constant(np.float32(0.6))],
        "Pow": [graph.constant(graph.choose(np.array([2, 3, 0.5, -1.5], np.float32)))],
    }
    graph.add(op, [inner, *more.get(op, [])], shape)


def broadcastable(graph: Graph, x: str) -> str | None:
    def fits(other: Shape) -> bool:
        try:
            return math.prod(np.broadcast_shapes(graph.shapes[x], other)) <= LARGEST
        except ValueError:
            return False

    return graph.pick(fits)


def binary(graph: Graph) -> None:
    x = graph.pick()
    y = broadcastable(graph, x)
    shape = np.broadcast_shapes(graph.shapes[x], graph.shapes[y])
    graph.add(graph.choose(BINARY), [x, y] if graph.random.random() < 0.5 else [y, x], shape)


def quotient(graph: Graph) -> None:
    x = graph.pick()
    y = broadcastable(graph, x)
    shape = np.broadcast_shapes(graph.shapes[x], graph.shapes[y])
    below = graph.add("Softplus", [y], None)
    below = graph.add("Add", [below, graph.constant(np.float32(0.5))], None)
    graph.add("Div", [x, below], shape)


def where(graph: Graph) -> None:
    x = graph.pick()
    y, z = broadcastable(graph, x), broadcastable(graph, x)
    try:
        shape = np.broadcast_shapes(*(graph.shapes[n] for n in (x, y, z)))
    except ValueError:
        return
    condition = graph.add("Less", [x, y], None)
    graph.add("Where", [condition, z, x], shape)


def reduction(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = graph.shapes[x]
    axes = np.flatnonzero(graph.random.random(len(shape)) < 0.6)
    keep = int(graph.random.integers(2))
    op = graph.choose(REDUCTIONS + MORE_REDUCTIONS)
    inputs = [x]
    if axes.size:
        signed = axes - len(shape) * graph.random.integers(2, size=axes.size)
        inputs.append(graph.constant(signed.astype(np.int64)))
    gone = set(axes.tolist()) if axes.size else set(range(len(shape)))
    left = tuple(1 if i in gone else size for i, size in enumerate(shape) if keep or i not in gone)
    graph.add(op, inputs, left, keepdims=keep)


def transposition(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 1)
    if x is None:
        return
    perm = graph.random.permutation(len(graph.shapes[x])).tolist()
    graph.add("Transpose", [x], tuple(graph.shapes[x][i] for i in perm), perm=perm)


def reshape(graph: Graph) -> None:
    x = graph.pick()
    rest, shape = math.prod(graph.shapes[x]), []
    while rest > 1 and len(shape) < 3:
        size = graph.choose([n for n in range(1, rest + 1) if rest % n == 0])
        shape.append(size)
        rest //= size
    shape.append(rest)
    target = list(shape)
    if graph.random.random() < 0.5:
        target[int(graph.random.integers(len(target)))] = -1
    graph.add("Reshape", [x, graph.constant(np.array(target, np.int64))], tuple(shape))


def slices(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = list(graph.shapes[x])
    axis = int(graph.random.integers(len(shape)))
    start, end = np.sort(graph.random.integers(0, shape[axis] + 1, 2))
    step = int(graph.choose((1, 1, 2, -1, -2)))
    if step < 0:
        start, end = end - 1, start - 1
    taken = len(range(start, end, step))
    if not taken or start < 0:
        return
    if end < 0:
        end = np.iinfo(np.int64).min
    numbers = [graph.constant(np.array([n], np.int64)) for n in (start, end, axis, step)]
    shape[axis] = taken
    graph.add("Slice", [x, *numbers], tuple(shape))


def concat(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = list(graph.shapes[x])
    axis = int(graph.random.integers(len(shape)))

    def fits(other: Shape) -> bool:
        return len(other) == len(shape) and all(
            i == axis or a == b for i, (a, b) in enumerate(zip(shape, other, strict=True))
        )

    y = graph.pick(fits)
    shape[axis] += graph.shapes[y][axis]
    if math.prod(shape) <= LARGEST:
        graph.add("Concat", [x, y], tuple(shape), axis=axis - len(shape))


def gather(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = graph.shapes[x]
    axis = int(graph.random.integers(len(shape)))
    size = shape[axis]
    of = graph.choose(((), (1,), (3,), (2, 2)))
    if math.prod(of) * math.prod(shape) // size > LARGEST:
        return
    places = graph.random.integers(-size, size, of)
    result = (*shape[:axis], *of, *shape[axis + 1 :])
    graph.add("Gather", [x, graph.constant(places.astype(np.int64))], result, axis=axis)


def gather_elements(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = graph.shapes[x]
    axis = int(graph.random.integers(len(shape)))
    places = graph.random.integers(-shape[axis], shape[axis], shape).astype(np.int64)
    if graph.random.random() < 0.5:
        graph.add("GatherElements", [x, graph.constant(places)], shape, axis=axis)
        return
    y = graph.pick(lambda other: other == shape)
    graph.add("ScatterElements", [x, graph.constant(places), y], shape, axis=axis, reduction="add")


def pad(graph: Graph) -> None:
    x = graph.pick(lambda shape: 0 < len(shape) < 4)
    if x is None:
        return
    shape = graph.shapes[x]
    mode = graph.choose(("constant", "edge", "reflect", "wrap"))
    ends = []
    for _ in range(2):
        ends += [int(graph.random.integers(0, size if mode == "reflect" else 2)) for size in shape]
    if mode == "constant":
        ends[0] -= int(shape[0] > 1)
    result = tuple(size + ends[i] + ends[len(shape) + i] for i, size in enumerate(shape))
    if math.prod(result) <= LARGEST and min(result) > 0:
        graph.add("Pad", [x, graph.constant(np.array(ends, np.int64))], result, mode=mode)


def repeat(graph: Graph) -> None:
    x = graph.pick()
    shape = graph.shapes[x]
    if graph.random.random() < 0.5:
        times = graph.random.integers(1, 3, len(shape))
        result, op, numbers = tuple((np.array(shape, int) * times).tolist()), "Tile", times
    else:
        front = graph.choose(((), (2,), (1,)))
        result = (*front, *(int(graph.choose(SIZES)) if size == 1 else size for size in shape))
        op, numbers = "Expand", np.array(result)
    if math.prod(result) <= LARGEST and len(result) < 5:
        graph.add(op, [x, graph.constant(numbers.astype(np.int64))], result)


def squeeze(graph: Graph) -> None:
    x = graph.pick()
    shape = graph.shapes[x]
    ones = [i for i, size in enumerate(shape) if size == 1]
    if ones and graph.random.random() < 0.5:
        axis = graph.choose(ones)
        left = shape[:axis] + shape[axis + 1 :]
        graph.add("Squeeze", [x, graph.constant(np.array([axis], np.int64))], left)
    elif len(shape) < 4:
        axis = int(graph.random.integers(len(shape) + 1))
        more = (*shape[:axis], 1, *shape[axis:])
        graph.add("Unsqueeze", [x, graph.constant(np.array([axis], np.int64))], more)


def along(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = graph.shapes[x]
    axis = int(graph.random.integers(-len(shape), len(shape)))
    op = graph.choose(("Softmax", "LogSoftmax", "CumSum", "LpNormalization", "LayerNormalization"))
    if op == "CumSum":
        flags = {"exclusive": int(graph.choose((0, 1))), "reverse": int(graph.choose((0, 1)))}
        graph.add(op, [x, graph.constant(np.array(axis, np.int64))], shape, **flags)
    elif op == "LayerNormalization":
        scale = graph.random.standard_normal(shape[axis % len(shape) :])
        graph.add(op, [x, graph.constant(scale.astype(np.float32))], shape, axis=axis, epsilon=0.1)
    else:
        graph.add(op, [x], shape, axis=axis)


def matmul(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    shape = graph.shapes[x]

    def fits(other: Shape) -> bool:
        if not other or other[max(len(other) - 2, 0)] != shape[-1]:
            return False
        try:
            np.broadcast_shapes(shape[:-2], other[:-2])
        except ValueError:
            return False
        return True

    y = graph.pick(fits)
    if y is None:
        width = int(graph.choose(SIZES))
        weights = graph.random.standard_normal((shape[-1], width)).astype(np.float32)
        y = graph.constant(weights)
        graph.shapes[y] = weights.shape
    result = np.matmul(np.zeros(shape), np.zeros(graph.shapes[y])).shape
    if math.prod(result) <= LARGEST:
        graph.add("MatMul", [x, y], result)


def gemm(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) == 2)
    if x is None:
        return
    left, right = (int(n) for n in graph.random.integers(2, size=2))
    rows, inner = graph.shapes[x][:: -1 if left else 1]
    y = graph.pick(lambda s: len(s) == 2 and s[1 if right else 0] == inner)
    if y is None:
        return
    columns = graph.shapes[y][0 if right else 1]

    def fits(shape: Shape) -> bool:
        try:
            return np.broadcast_shapes(shape, (rows, columns)) == (rows, columns)
        except ValueError:
            return False

    third = graph.pick(fits)
    inputs = [x, y] + ([third] if third else [])
    if rows * columns <= LARGEST:
        graph.add("Gemm", inputs, (rows, columns), transA=left, transB=right, alpha=0.7, beta=-1.3)


def windows(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) == 3)
    if x is None:
        return
    rows, channels, size = graph.shapes[x]
    kernel, stride = int(graph.choose((1, 2, 3))), int(graph.choose((1, 2)))
    ends = [int(n) for n in graph.random.integers(0, kernel, 2)]
    last = (size + sum(ends) - kernel) // stride + 1
    if size + sum(ends) < kernel:
        return
    shared = {"kernel_shape": [kernel], "strides": [stride], "pads": ends}
    # Pools have no gradient for channels of a run-time size.
    pools = () if graph.is_named else ("MaxPool", "AveragePool")
    op = graph.choose(("Conv", "ConvTranspose", *pools))
    if op in ("MaxPool", "AveragePool"):
        graph.add(op, [x], (rows, channels, last), **shared)
        return
    outs = int(graph.choose((1, 2)))
    if op == "ConvTranspose":
        last = (size - 1) * stride - sum(ends) + kernel
        shape = (channels, outs, kernel)
    else:
        shape = (outs, channels, kernel)
    if last > 0:
        weights = graph.constant(graph.random.standard_normal(shape).astype(np.float32))
        graph.shapes[weights] = shape
        graph.add(op, [x, weights], (rows, outs, last), **shared)


BODY = """<ir_version: 9, opset_import: ["": 20]>
b (float[{s}] h, float[{s}] x) => (float[{s}] n, float[{s}] y) {{
    p = Mul(h, {w})  z = Add(p, x)  n = Tanh(z)  y = Mul(n, h) }}"""
THEN = """<ir_version: 9, opset_import: ["": 20]>
t () => (float[{s}] y) {{ p = Mul({x}, {w})  y = Sin(p) }}"""
ELSE = """<ir_version: 9, opset_import: ["": 20]>
e () => (float[{s}] y) {{ p = Sigmoid({x})  y = Mul(p, {x}) }}"""


def body(text: str, **names: object) -> onnx.GraphProto:
    return onnx.parser.parse_model(text.format(**names)).graph


def loop(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0)
    if x is None:
        return
    axis = int(graph.random.integers(len(graph.shapes[x])))
    inner = list(graph.shapes[x])
    del inner[axis]
    start = graph.pick(lambda shape: shape == tuple(inner))
    if start is None:
        start = graph.constant(graph.random.standard_normal(inner).astype(np.float32))
        graph.shapes[start] = tuple(inner)
    factor = graph.pick(lambda shape: shape in ((), (1,), tuple(inner))) if inner else None
    step = body(BODY, s=",".join(map(str, inner)), w=factor or start)
    out = graph.name(), graph.name()
    direction = int(graph.choose((0, 1)))
    node = helper.make_node(
        "Scan",
        [start, x],
        list(out),
        name=f"n{out[0]}",
        body=step,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[direction],
        scan_output_axes=[axis],
    )
    graph.nodes.append(node)
    graph.used.update([start, x, factor or start])
    graph.shapes |= {out[0]: tuple(inner), out[1]: graph.shapes[x]}


def branch(graph: Graph) -> None:
    x = graph.pick()
    shape = graph.shapes[x]
    factor = graph.pick(lambda other: other in ((), shape))
    total = graph.add("ReduceSum", [x], None, keepdims=0)
    condition = graph.add("Less", [total, graph.constant(np.float32(0.1))], None)
    names = {"s": ",".join(map(str, shape)), "x": x, "w": factor or x}
    graph.add(
        "If", [condition], shape, then_branch=body(THEN, **names), else_branch=body(ELSE, **names)
    )
    graph.used.update([x, factor or x])


def several(graph: Graph) -> None:
    x = graph.pick(lambda shape: len(shape) > 0 and max(shape) > 1)
    if x is None:
        return
    shape = list(graph.shapes[x])
    axis = int(np.argmax(shape))
    names = [graph.name(), graph.name()]
    if graph.random.random() < 0.5:
        first = int(graph.random.integers(1, shape[axis]))
        parts = graph.constant(np.array([first, shape[axis] - first], np.int64))
        graph.nodes.append(helper.make_node("Split", [x, parts], names, axis=axis))
        sizes = (first, shape[axis] - first)
        for name, size in zip(names, sizes, strict=True):
            graph.shapes[name] = (*shape[:axis], size, *shape[axis + 1 :])
    else:
        count = int(graph.random.integers(1, shape[axis] + 1))
        k = graph.constant(np.array([count], np.int64))
        graph.nodes.append(helper.make_node("TopK", [x, k], names, axis=axis))
        graph.shapes[names[0]] = (*shape[:axis], count, *shape[axis + 1 :])
    graph.used.add(x)


RULES: tuple[Callable[[Graph], None], ...] = (
    *(unary, steep, binary, binary, binary, quotient, where, reduction, transposition, reshape),
    *(slices, slices, concat, gather, gather_elements, pad, repeat, squeeze, along, along),
    *(matmul, matmul, gemm, windows, loop, branch, several),
)


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, Array], list[str]]:
    """A model with the output `loss`, its inputs, and what to differentiate it by.

    In every second model the sizes of inputs, but for those of 1, are names.
    """
    random = np.random.default_rng(seed)
    is_named = seed % 2 == 1
    graph = Graph(random, is_named)
    feeds = {}
    for _ in range(int(random.integers(1, 4))):
        shape = tuple(int(n) for n in random.choice(SIZES, int(random.integers(0, 4))))
        name = graph.name()
        graph.shapes[name] = shape
        feeds[name] = random.standard_normal(shape).astype(np.float32)
    wanted = len(graph.nodes) + int(random.integers(3, 11))
    while len(graph.nodes) < wanted:
        graph.choose(RULES)(graph)
    terms = []
    for name, shape in list(graph.shapes.items()):
        if name not in graph.used and name not in feeds:
            factors = graph.constant(random.standard_normal(shape).astype(np.float32))
            product = graph.add("Mul", [name, factors], None)
            terms.append(graph.add("ReduceSum", [product], None, keepdims=0))
    graph.nodes.append(helper.make_node("Sum", terms, ["loss"]))
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT, [f"D{n}" if is_named and n > 1 else n for n in array.shape]
        )
        for name, array in feeds.items()
    ]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "random",
            inputs,
            [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
            [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    weights = [name for name in graph.constants if name in graph.shapes]
    return model, feeds, [*feeds, *weights]
