"""Rewrites a model into an equivalent one: each rewriting leaves every bit as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.choosing import Chooser

Array = np.ndarray[Any, Any]
DOMAIN = "rewritten"
POINTWISE = ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Exp", "Sqrt", "Erf", "Softplus")


@dataclass
class Rewriter(Chooser):
    """A model that is rewritten in place, and its inputs.

    done: what was done to it. graph, types: the graph that the next rewriting changes, the main one
        or that of a loop's or branch's body, and the types of what it may read. is_main: which.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    done: list[str] = field(default_factory=list)
    count: int = 0
    types: dict[str, onnx.TypeProto.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.enter(0.0)

    def enter(self, inside: float) -> None:
        """Choose a graph: one in the midst of another as often as `inside` says."""
        inferred = onnx.shape_inference.infer_shapes(self.model, data_prop=True)
        scopes = list(_scopes(self.model.graph, inferred.graph, {}))
        self.is_main = len(scopes) == 1 or not self.chance(inside)
        chosen = scopes[0] if self.is_main else scopes[int(self.random.integers(1, len(scopes)))]
        self.graph, self.types = chosen

    @property
    def version(self) -> int:
        """That of the standard operators."""
        return max(o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    def name(self, stem: str = "rewritten") -> str:
        """A name that nothing has."""
        self.count += 1
        return f"{stem}_{self.count}"

    def node(self, op: str, *inputs: str, **attributes: Any) -> tuple[onnx.NodeProto, str]:
        """A node with one output, and its name."""
        made = self.name()
        return helper.make_node(op, inputs, [made], name=made, **attributes), made

    def ints(self, *numbers: int) -> str:
        """The name of a new constant vector."""
        return self.constant(np.array(numbers, np.int64))

    def constant(self, array: Array) -> str:
        """The name of a new constant."""
        name = self.name("constant")
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def rank(self, value: str) -> int:
        """The number of axes. Raises `LookupError`."""
        kind = self.types.get(value)
        if kind is None or not kind.HasField("shape"):
            raise LookupError
        return len(kind.shape.dim)

    def value(self, least: int = 0, *kinds: int) -> tuple[int, str]:
        """A value of at least so many axes, and the place of the node that makes it.

        The place of an input is -1.
        """
        places = [(i, n) for i, node in enumerate(self.graph.node) for n in node.output if n]
        results = {value.name for value in self.graph.output}
        places += [(-1, v.name) for v in self.graph.input if v.name not in results]
        kinds = kinds or (TensorProto.FLOAT,)
        fitting = []
        for i, name in places:
            kind = self.types.get(name)
            if kind is None or kind.elem_type not in kinds or not kind.HasField("shape"):
                continue
            if len(kind.shape.dim) >= least:
                fitting.append((i, name))
        if not fitting:
            raise LookupError
        i, name = self.choose(fitting)
        return int(i), str(name)

    def put_behind(self, place: int, value: str, nodes: list[onnx.NodeProto], made: str) -> None:
        """Insert nodes behind a value; who read it reads what they make of it."""
        before = [n for n in self.graph.node[: place + 1]]
        rest = [n for n in self.graph.node[place + 1 :]]
        for node in rest:
            rename(node, value, made)
        if any(output.name == value for output in self.graph.output):
            # The output keeps its name.
            original = self.name("original")
            for i, output in enumerate(before[-1].output):
                if output == value:
                    before[-1].output[i] = original
            for node in nodes:
                rename(node, value, original)
                for i, output in enumerate(node.output):
                    if output == made:
                        node.output[i] = value
            for node in rest:
                rename(node, made, value)
        del self.graph.node[:]
        self.graph.node.extend([*before, *nodes, *rest])
        if value in self.types:
            self.types[made] = self.types[value]


def _scopes(
    graph: onnx.GraphProto, inferred: onnx.GraphProto, outside: Mapping[str, onnx.TypeProto.Tensor]
) -> Iterator[tuple[onnx.GraphProto, dict[str, onnx.TypeProto.Tensor]]]:
    """A graph and those in it, each with the types of what it may read."""
    every = (*inferred.value_info, *inferred.input, *inferred.output)
    types = {**outside, **{value.name: value.type.tensor_type for value in every}}
    constants = {
        t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer
    }
    types |= {name: kind.tensor_type for name, kind in constants.items()}
    yield graph, types
    for node, known in zip(graph.node, inferred.node, strict=True):
        for attribute, other in zip(node.attribute, known.attribute, strict=True):
            if attribute.HasField("g"):
                yield from _scopes(attribute.g, other.g, types)


def rename(node: onnx.NodeProto, old: str, new: str) -> None:
    """Let a node read another value, in its bodies too."""
    for i, name in enumerate(node.input):
        if name == old:
            node.input[i] = new
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                rename(inner, old, new)
            for output in graph.output:
                if output.name == old:
                    output.name = new


Rewriting = Callable[[Rewriter], None]
# By the module that has them.
REWRITINGS: dict[str, list[Rewriting]] = {}


def rewriting(function: Rewriting) -> Rewriting:
    """Register what changes a model, or raises `LookupError` where nothing fits."""
    REWRITINGS.setdefault(function.__module__, []).append(function)
    return function


@rewriting
def transposed(r: Rewriter) -> None:
    """Axes in another order, and back."""
    place, value = r.value(2)
    order = r.random.permutation(r.rank(value))
    there, moved = r.node("Transpose", value, perm=order.tolist())
    back, made = r.node("Transpose", moved, perm=np.argsort(order).tolist())
    r.put_behind(place, value, [there, back], made)


@rewriting
def cut(r: Rewriter) -> None:
    """Slices joined again."""
    place, value = r.value(1)
    axis = int(r.random.integers(r.rank(value)))
    zero, one, end, along = r.ints(0), r.ints(1), r.ints(2**62), r.ints(axis)
    first, left = r.node("Slice", value, zero, one, along)
    second, right = r.node("Slice", value, one, end, along)
    joined, made = r.node("Concat", left, right, axis=axis)
    r.put_behind(place, value, [first, second, joined], made)


@rewriting
def flattened(r: Rewriter) -> None:
    """One axis, and the shape that was there."""
    place, value = r.value(1)
    shape, sizes = r.node("Shape", value)
    flat, line = r.node("Reshape", value, r.ints(-1))
    back, made = r.node("Reshape", line, sizes)
    r.put_behind(place, value, [shape, flat, back], made)


@rewriting
def lifted(r: Rewriter) -> None:
    """One more axis, and none again."""
    place, value = r.value()
    axis = r.ints(int(r.random.integers(r.rank(value) + 1)))
    there, wide = r.node("Unsqueeze", value, axis)
    back, made = r.node("Squeeze", wide, axis)
    r.put_behind(place, value, [there, back], made)


@rewriting
def widened(r: Rewriter) -> None:
    """As float64, and back."""
    place, value = r.value()
    there, wide = r.node("Cast", value, to=TensorProto.DOUBLE)
    back, made = r.node("Cast", wide, to=TensorProto.FLOAT)
    r.put_behind(place, value, [there, back], made)


@rewriting
def repeated(r: Rewriter) -> None:
    """What other operators make of a value without changing it."""
    place, value = r.value(1)
    kind = r.choose(("Identity", "NegNeg", "Max", "Sum", "Expand", "Gather", "Pad", "Where"))
    nodes = []
    if kind == "NegNeg":
        first, minus = r.node("Neg", value)
        last, made = r.node("Neg", minus)
        nodes = [first]
    elif kind == "Expand":
        shape, sizes = r.node("Shape", value)
        last, made = r.node("Expand", value, sizes)
        nodes = [shape]
    elif kind == "Gather":
        shape, sizes = r.node("Shape", value)
        zero, one = r.ints(0), r.ints(1)
        size, count = r.node("Gather", sizes, zero)
        (flat, number), (a, start), (b, step) = (
            r.node("Squeeze", x, zero) for x in (count, zero, one)
        )
        all_, places = r.node("Range", start, number, step)
        last, made = r.node("Gather", value, places)
        nodes = [shape, size, flat, a, b, all_]
    elif kind == "Pad":
        last, made = r.node("Pad", value, r.ints(*[0] * (2 * r.rank(value))))
    elif kind == "Where":
        equal, mask = r.node("Equal", value, value)
        last, made = r.node("Where", mask, value, value)
        nodes = [equal]
    else:
        last, made = r.node(kind, *[value] * (2 if kind == "Max" else 1))
    r.put_behind(place, value, [*nodes, last], made)


@rewriting
def chosen(r: Rewriter) -> None:
    """By an If whose condition is a constant."""
    place, value = r.value()
    truth, kind = bool(r.chance(0.5)), r.types[value]
    condition = r.constant(np.array(truth))
    ways = []
    for is_taken in (truth, not truth):
        inner = r.name()
        body = helper.make_node("Identity" if is_taken else "Neg", [value], [inner])
        info = helper.make_tensor_value_info(inner, kind.elem_type, [None] * r.rank(value))
        ways.append(helper.make_graph([body], r.name("way"), [], [info]))
    node, made = r.node("If", condition, then_branch=ways[0], else_branch=ways[1])
    r.put_behind(place, value, [node], made)


@rewriting
def given(r: Rewriter) -> None:
    """A constant becomes an input, or the result of a Constant."""
    constants = [t for t in r.graph.initializer if t.data_type == TensorProto.FLOAT]
    if not constants:
        raise LookupError
    tensor = r.choose(constants)
    array = numpy_helper.to_array(tensor)
    r.graph.initializer.remove(tensor)
    if r.is_main and r.chance(0.5):
        r.feeds[tensor.name] = array
        info = helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, array.shape)
        if tensor.name not in [value.name for value in r.graph.input]:
            r.graph.input.append(info)
    else:
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        r.graph.node.insert(0, node)


@rewriting
def named(r: Rewriter) -> None:
    """A node becomes the call of a function."""
    fitting = [
        node
        for node in r.graph.node
        if node.domain == "" and node.op_type not in ("Constant", "If", "Loop", "Scan")
    ]
    if not fitting or any("" in (*n.input, *n.output) for n in fitting):
        raise LookupError
    node = r.choose(fitting)
    if len(set(node.input)) < len(node.input) or not node.input:
        raise LookupError
    copy, name = onnx.NodeProto(), r.name("function")
    copy.CopyFrom(node)
    opsets = [opset for opset in r.model.opset_import if opset.domain == ""]
    r.model.functions.append(
        helper.make_function(DOMAIN, name, list(node.input), list(node.output), [copy], opsets)
    )
    if DOMAIN not in [opset.domain for opset in r.model.opset_import]:
        r.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    r.model.ir_version = max(r.model.ir_version, 8)
    node.op_type, node.domain = name, DOMAIN
    del node.attribute[:]


@rewriting
def scanned(r: Rewriter) -> None:
    """Some function of elements becomes a Scan along the first axis."""
    places = [
        i
        for i, node in enumerate(r.graph.node)
        if node.op_type in POINTWISE and node.domain == "" and r.types.get(node.input[0])
    ]
    if not places:
        raise LookupError
    node = r.graph.node[int(r.choose(places))]
    kind, rank = r.types[node.input[0]].elem_type, r.rank(node.input[0])
    if rank < 1 or kind != TensorProto.FLOAT:
        raise LookupError
    row, result = r.name("row"), r.name("result")
    infos = [helper.make_tensor_value_info(n, kind, [None] * (rank - 1)) for n in (row, result)]
    step = helper.make_node(node.op_type, [row], [result])
    body = helper.make_graph([step], r.name("body"), infos[:1], infos[1:])
    made = helper.make_node("Scan", node.input, node.output, body=body, num_scan_inputs=1)
    made.name = r.name()
    node.CopyFrom(made)


@rewriting
def unread(r: Rewriter) -> None:
    """Something that nothing reads."""
    place, value = r.value()
    node, _ = r.node(r.choose(POINTWISE), value)
    nodes = [*r.graph.node[: place + 1], node, *r.graph.node[place + 1 :]]
    del r.graph.node[:]
    r.graph.node.extend(nodes)


@rewriting
def opened(r: Rewriter) -> None:
    """Sizes of an input or output, or of values, are not told, or have other names."""
    kind = int(r.random.integers(3))
    if kind == 0:
        del r.graph.value_info[:]
        return
    side = list(r.graph.output if kind == 1 else r.graph.input)
    if not side:
        raise LookupError
    value = r.choose(side)
    shape = value.type.tensor_type.shape
    if not value.type.HasField("tensor_type") or not shape.dim:
        raise LookupError
    dim = r.choose(list(shape.dim))
    if kind == 2 and r.chance(0.5):
        dim.dim_param = r.name("size")
    elif kind == 1:
        dim.Clear()
    else:
        raise LookupError
