"""Rewritings of loops: other operators, directions, states and numbers of steps, the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.rewriting import Array, Rewriter, rewriting

# Beyond the end of any axis.
FAR = 2**62
# Squeeze and Unsqueeze take axes as operands from this version on.
LEAST_VERSION = 13
LOOPS = ("Scan", "Loop")
RECURRENT = ("GRU", "LSTM", "RNN")


# Graphs


def owned(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of all values that a graph and those in it make."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from filter(None, node.output)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from owned(attribute.g)


def renamed(graph: onnx.GraphProto, names: Mapping[str, str]) -> onnx.GraphProto:
    """A copy with other names of values."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    del copy.value_info[:]
    for value in (*copy.input, *copy.output, *copy.initializer):
        value.name = names.get(value.name, value.name)
    for node in copy.node:
        node.name = ""
        for names_of in (node.input, node.output):
            names_of[:] = [names.get(name, name) for name in names_of]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                attribute.g.CopyFrom(renamed(attribute.g, names))
    return copy


def fresh(r: Rewriter, graph: onnx.GraphProto, given: Mapping[str, str] | None = None) -> Any:
    """A copy whose values have names that nothing has; those in `given` have these."""
    names = {name: r.name("copy") for name in owned(graph)}
    return renamed(graph, names | dict(given or {}))


def replace(r: Rewriter, place: int, nodes: Iterable[onnx.NodeProto]) -> None:
    """Put nodes in the place of one."""
    rest = [*r.graph.node[:place], *nodes, *r.graph.node[place + 1 :]]
    del r.graph.node[:]
    r.graph.node.extend(rest)


def read_in(graph: onnx.GraphProto) -> Iterator[str]:
    """The values that the nodes and results of a graph, and of those in it, name."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from filter(None, node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from read_in(attribute.g)


def value_of(graph: onnx.GraphProto, name: str) -> Array | None:
    """The constant of a name."""
    for tensor in graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output and node.attribute[0].name == "value":
            return numpy_helper.to_array(node.attribute[0].t)
        if node.op_type == "Identity" and name in node.output:
            return value_of(graph, node.input[0])
    return None


# Loops


@dataclass
class Steps:
    """A Scan or a Loop of the graph, at a place."""

    rewriter: Rewriter
    place: int
    node: onnx.NodeProto

    @property
    def is_scan(self) -> bool:
        return bool(self.node.op_type == "Scan")

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return helper.get_attribute_value(attribute)
        return default

    @property
    def body(self) -> onnx.GraphProto:
        found: onnx.GraphProto = self.attribute("body", None)
        return found

    @property
    def read(self) -> int:
        """How many operands give a piece to each step."""
        return int(self.attribute("num_scan_inputs", 0))

    @property
    def states(self) -> int:
        return len(self.node.input) - (self.read if self.is_scan else 2)

    @property
    def collected(self) -> int:
        return len(self.body.output) - self.states - (0 if self.is_scan else 1)

    def integers(self, name: str) -> list[int]:
        """An attribute with a number for each operand or result of a Scan that has pieces."""
        count = self.read if "input" in name else self.collected
        return list(self.attribute(f"scan_{name}", [0] * count))

    def input_axes(self) -> list[int]:
        axes = self.integers("input_axes")
        names = self.node.input[self.states :]
        return [
            a if a >= 0 else a + self.rewriter.rank(n) for a, n in zip(axes, names, strict=True)
        ]

    def output_axes(self) -> list[int]:
        axes, pieces = self.integers("output_axes"), self.body.output[self.states :]
        ranks = [len(p.type.tensor_type.shape.dim) for p in pieces]
        known = [p.type.tensor_type.HasField("shape") for p in pieces]
        if any(a != 0 and not k for a, k in zip(axes, known, strict=True)):
            raise LookupError
        return [a if a >= 0 else a + n + 1 for a, n in zip(axes, ranks, strict=True)]

    @property
    def is_endless(self) -> bool:
        """Whether nothing but the number of its steps ends a Loop."""
        going, result = self.body.input[1].name, self.body.output[0].name
        first, own = self.node.input[1], value_of(self.body, result)
        given = value_of(self.rewriter.graph, first) if first else np.array(True)
        if given is None or not given.all():
            return False
        passed = {going} | {
            n.output[0] for n in self.body.node if n.op_type == "Identity" and n.input[0] == going
        }
        return result in passed or (own is not None and bool(own.all()))


def some_steps(r: Rewriter, *ops: str) -> Steps:
    """A loop of the graph. Raises `LookupError`."""
    places = [
        i
        for i, node in enumerate(r.graph.node)
        if node.op_type in (ops or LOOPS) and node.domain == ""
    ]
    if not places or r.version < LEAST_VERSION:
        raise LookupError
    place = int(r.choose(places))
    found = Steps(r, place, r.graph.node[place])
    missing = found.states + found.collected - len(found.node.output)
    found.node.output.extend([""] * missing)
    return found


def backward(r: Rewriter, value: str, axis: int) -> tuple[Any, str]:
    """All rows in the other order."""
    return r.node("Slice", value, r.ints(-1), r.ints(-FAR), r.ints(axis), r.ints(-1))


def named_result(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    """The node, whose only result gets a name."""
    node.output[0] = name
    return node


@rewriting
def scan_as_loop(r: Rewriter) -> None:
    """A Scan becomes a Loop that takes its rows by number."""
    s = some_steps(r, "Scan")
    axes, backwards = s.input_axes(), s.integers("input_directions")
    places, reverse = s.output_axes(), s.integers("output_directions")
    sequences = list(s.node.input[s.states :])
    shape, sizes = r.node("Shape", sequences[0])
    index = r.constant(np.array(axes[0], np.int64))
    size, count = r.node("Gather", sizes, index)
    body = fresh(r, s.body)
    step, going = r.name("step"), r.name("going")
    taking = []
    for value, row, axis, turned in zip(
        sequences, body.input[s.states :], axes, backwards, strict=True
    ):
        at = step
        if turned:
            less, before = r.node("Sub", count, step)
            one = r.constant(np.array(1, np.int64))
            last, at = r.node("Sub", before, one)
            taking += [less, last]
        take, _ = r.node("Gather", value, at, axis=axis)
        taking.append(named_result(take, row.name))
    again, following = r.node("Identity", going)
    results = _apart(r, body)
    number = helper.make_tensor_value_info(step, TensorProto.INT64, [])
    flag = helper.make_tensor_value_info(going, TensorProto.BOOL, [])
    graph = helper.make_graph(
        [*taking, *body.node, *results, again],
        r.name("body"),
        [number, flag, *body.input[: s.states]],
        [helper.make_tensor_value_info(following, TensorProto.BOOL, []), *body.output],
        body.initializer,
    )
    loop = helper.make_node(
        "Loop", [count, "", *s.node.input[: s.states]], list(s.node.output), body=graph
    )
    after = []
    for i, (place, turned) in enumerate(zip(places, reverse, strict=True)):
        after += _placed(r, loop, s.states + i, place, turned, s.body.output[s.states + i])
    replace(r, s.place, [shape, size, loop, *after])


def _apart(r: Rewriter, body: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Give each result of a body a name of its own; the nodes that do it."""
    nodes = []
    for value in body.output:
        node, made = r.node("Identity", value.name)
        nodes.append(node)
        value.name = made
    return nodes


def _placed(
    r: Rewriter, loop: onnx.NodeProto, at: int, axis: int, turned: int, piece: onnx.ValueInfoProto
) -> list[onnx.NodeProto]:
    """What brings the pieces of a Loop, which lie along the first axis, into another order."""
    nodes, name = [], loop.output[at]
    if not name or (not turned and not axis):
        return []
    value = loop.output[at] = r.name()
    if turned:
        node, value = backward(r, value, 0)
        nodes.append(node)
    if axis:
        rank = len(piece.type.tensor_type.shape.dim) + 1
        order = [i for i in range(1, rank)]
        order.insert(axis, 0)
        node, value = r.node("Transpose", value, perm=order)
        nodes.append(node)
    named_result(nodes[-1], name)
    return nodes


def _may_agree(kinds: Sequence[onnx.TypeProto.Tensor | None]) -> bool:
    """Whether all have as many axes, of the same size where numbers say so."""
    if any(kind is None or not kind.HasField("shape") for kind in kinds):
        return False
    shapes = [kind.shape.dim for kind in kinds if kind is not None]
    if len({len(dims) for dims in shapes}) > 1:
        return False
    known = [
        {d.dim_value for d in dims if d.HasField("dim_value")} for dims in zip(*shapes, strict=True)
    ]
    return all(len(sizes) <= 1 for sizes in known)


@rewriting
def loop_as_scan(r: Rewriter) -> None:
    """A Loop of a given number of steps, whose states keep their shapes, becomes a Scan."""
    s = some_steps(r, "Loop")
    if not s.node.input[0] or not s.is_endless:
        raise LookupError
    pairs = zip(s.node.input[2:], s.body.input[2:], s.body.output[1 : 1 + s.states], strict=True)
    for first, own, following in pairs:
        told = [own.type.tensor_type, following.type.tensor_type]
        if not _may_agree([r.types.get(first), *told]):
            raise LookupError
    flat, line = r.node("Reshape", s.node.input[0], r.constant(np.zeros(0, np.int64)))
    least, count = r.node("Max", line, r.constant(np.array(0, np.int64)))
    zero, one = (r.constant(np.array(n, np.int64)) for n in (0, 1))
    range_, numbers = r.node("Range", zero, count, one)
    body = fresh(r, s.body)
    results = _apart(r, body)
    truth = helper.make_tensor(body.input[1].name, TensorProto.BOOL, [], [True])
    row = helper.make_tensor_value_info(body.input[0].name, TensorProto.INT64, [])
    graph = helper.make_graph(
        [*body.node, *results],
        r.name("body"),
        [*body.input[2:], row],
        list(body.output[1:]),
        [*body.initializer, truth],
    )
    scan = helper.make_node(
        "Scan", [*s.node.input[2:], numbers], list(s.node.output), body=graph, num_scan_inputs=1
    )
    replace(r, s.place, [flat, least, range_, scan])


@rewriting
def turned(r: Rewriter) -> None:
    """A Scan takes rows, or puts them, in the other direction, and who gives or reads them too."""
    s = some_steps(r, "Scan")
    before, after = [], []
    directions = {}
    for side, axes in (("input", s.input_axes()), ("output", s.output_axes())):
        directions[side] = s.integers(f"{side}_directions")
        for i, axis in enumerate(axes):
            place = s.states + i
            name = (s.node.input if side == "input" else s.node.output)[place]
            if not name or r.chance(0.4):
                continue
            directions[side][i] = 1 - directions[side][i]
            if side == "input":
                node, s.node.input[place] = backward(r, name, axis)
                before.append(node)
            else:
                s.node.output[place] = r.name()
                node, _ = backward(r, s.node.output[place], axis)
                after.append(named_result(node, name))
    for side, values in directions.items():
        name = f"scan_{side}_directions"
        kept = [a for a in s.node.attribute if a.name != name]
        del s.node.attribute[:]
        s.node.attribute.extend(kept)
        if values:
            s.node.attribute.append(helper.make_attribute(name, values))
    copy = onnx.NodeProto()
    copy.CopyFrom(s.node)
    replace(r, s.place, [*before, copy, *after])


def _recurrent(r: Rewriter) -> tuple[int, onnx.NodeProto, dict[str, Any]]:
    """A recurrent layer in one direction over sequences of one length, and its attributes."""
    fitting = [
        (i, node)
        for i, node in enumerate(r.graph.node)
        if node.op_type in RECURRENT and node.domain == "" and not any(node.input[4:5])
    ]
    if not fitting or r.version < LEAST_VERSION:
        raise LookupError
    place, node = r.choose(fitting)
    known = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if known.get("direction", b"forward") == b"bidirectional":
        raise LookupError
    return place, node, known


@rewriting
def turned_layer(r: Rewriter) -> None:
    """A recurrent layer runs in the other direction over what is turned around."""
    place, node, known = _recurrent(r)
    axis = known.get("layout", 0)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    before, copy.input[0] = backward(r, node.input[0], axis)
    kept = [a for a in copy.attribute if a.name != "direction"]
    other = "reverse" if known.get("direction", b"forward") == b"forward" else "forward"
    del copy.attribute[:]
    copy.attribute.extend([*kept, helper.make_attribute("direction", other)])
    after = []
    if node.output[0]:
        copy.output[0] = r.name()
        behind, _ = backward(r, copy.output[0], axis)
        after.append(named_result(behind, node.output[0]))
    replace(r, place, [before, copy, *after])


@rewriting
def split_layer(r: Rewriter) -> None:
    """A recurrent layer takes its first step, and another one the rest."""
    place, node, known = _recurrent(r)
    axis = known.get("layout", 0)
    is_reverse = known.get("direction", b"forward") == b"reverse"
    ranges = [(-1, FAR), (0, -1)] if is_reverse else [(0, 1), (1, FAR)]
    states = 2 if node.op_type == "LSTM" else 1
    nodes, pieces = [], []
    carried = [node.input[i] if i < len(node.input) else "" for i in range(5, 5 + states)]
    for start, end in ranges:
        cut, rows = r.node("Slice", node.input[0], r.ints(start), r.ints(end), r.ints(axis))
        part = onnx.NodeProto()
        part.CopyFrom(node)
        part.name = r.name()
        given = [*node.input, *[""] * 8][: 8 if node.op_type == "LSTM" else 6]
        given[0], given[5 : 5 + states] = rows, carried
        part.input[:] = given
        part.output[:] = [r.name() for _ in range(1 + states)]
        carried = list(part.output[1:])
        nodes += [cut, part]
        pieces.append(part.output[0])
    results = [*node.output, *[""] * states]
    if results[0]:
        join, _ = r.node("Concat", *(pieces[::-1] if is_reverse else pieces), axis=axis)
        nodes.append(named_result(join, results[0]))
    for name, value in zip(results[1:], carried, strict=False):
        if name:
            nodes.append(named_result(r.node("Identity", value)[0], name))
    replace(r, place, nodes)


# The first steps apart from the others


def _inline(r: Rewriter, s: Steps, given: Sequence[str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """The nodes of one step, and its results."""
    names = dict(zip((v.name for v in s.body.input), given, strict=True))
    body = fresh(r, s.body, names)
    # Constants of the step are those of the graph.
    r.graph.initializer.extend(body.initializer)
    return list(body.node), [value.name for value in body.output]


def _joined(
    r: Rewriter, rows: Sequence[str], rest: str, axis: int, is_reverse: bool, name: str
) -> list[onnx.NodeProto]:
    """The pieces of the first steps, in the order of the steps, and what has those behind them."""
    nodes, parts = [], []
    for row in rows:
        node, part = r.node("Unsqueeze", row, r.ints(axis))
        nodes.append(node)
        parts.append(part)
    parts += [rest] if rest else []
    join, _ = r.node("Concat", *(parts[::-1] if is_reverse else parts), axis=axis)
    return [*nodes, named_result(join, name)]


@rewriting
def peeled_scan(r: Rewriter) -> None:
    """The first step of a Scan stands before it."""
    s = some_steps(r, "Scan")
    axes, backwards = s.input_axes(), s.integers("input_directions")
    places, reverse = s.output_axes(), s.integers("output_directions")
    states, nodes, rest = list(s.node.input[: s.states]), [], []
    given = list(states)
    for value, axis, is_turned in zip(s.node.input[s.states :], axes, backwards, strict=True):
        at = r.constant(np.array(-1 if is_turned else 0, np.int64))
        take, row = r.node("Gather", value, at, axis=axis)
        ends = (0, -1) if is_turned else (1, FAR)
        cut, others = r.node("Slice", value, r.ints(ends[0]), r.ints(ends[1]), r.ints(axis))
        nodes += [take, cut]
        given.append(row)
        rest.append(others)
    step, results = _inline(r, s, given)
    scan = onnx.NodeProto()
    scan.CopyFrom(s.node)
    scan.input[:] = [*results[: s.states], *rest]
    nodes += [*step, scan]
    for i, (axis, is_reverse) in enumerate(zip(places, reverse, strict=True)):
        name = s.node.output[s.states + i]
        if name:
            scan.output[s.states + i] = r.name()
            row, others = results[s.states + i], scan.output[s.states + i]
            nodes += _joined(r, [row], others, axis, bool(is_reverse), name)
    replace(r, s.place, nodes)


@rewriting
def unrolled_loop(r: Rewriter) -> None:
    """The steps of a Loop of a constant number of them stand behind each other."""
    s = some_steps(r, "Loop")
    count = value_of(r.graph, s.node.input[0]) if s.node.input[0] else None
    if count is None or not 0 < int(count.item()) <= 6 or not s.is_endless:
        raise LookupError
    going = s.node.input[1] or r.constant(np.array(True))
    states, nodes = list(s.node.input[2:]), []
    rows: list[list[str]] = []
    for step in range(int(count.item())):
        number = r.constant(np.array(step, np.int64))
        made, results = _inline(r, s, [number, going, *states])
        nodes += made
        going, states = results[0], results[1 : 1 + s.states]
        rows.append(results[1 + s.states :])
    for name, value in zip(s.node.output, states, strict=False):
        if name:
            nodes.append(named_result(r.node("Identity", value)[0], name))
    for i, name in enumerate(s.node.output[s.states :]):
        if name:
            nodes += _joined(r, [row[i] for row in rows], "", 0, False, name)
    replace(r, s.place, nodes)


@rewriting
def split_loop(r: Rewriter) -> None:
    """A Loop takes some of its steps, and another one the rest."""
    s = some_steps(r, "Loop")
    for piece in s.body.output[1 + s.states :]:
        # A Loop that makes no step leaves sizes open that nobody tells.
        kind = piece.type.tensor_type
        if not kind.HasField("shape") or not all(d.HasField("dim_value") for d in kind.shape.dim):
            raise LookupError
    number = r.constant(np.array(r.choose((1, 2, 3)), np.int64))
    nodes, first, left = [], number, ""
    if s.node.input[0]:
        flat, most = _scalar(r, s.node.input[0])
        fewer, first = r.node("Min", most, number)
        sub, left = r.node("Sub", most, first)
        nodes += [flat, fewer, sub]
    values, parts = [s.node.input[1], *s.node.input[2:]], []
    is_endless = s.is_endless
    for offset, limit in (("", first), (number, left)):
        made, values, part = _part(r, s, limit, offset, values, is_endless)
        nodes += made
        parts.append(part)
    for name, value in zip(s.node.output, values[1:], strict=False):
        if name:
            nodes.append(named_result(r.node("Identity", value)[0], name))
    for i, name in enumerate(s.node.output[s.states :]):
        if name:
            join, _ = r.node("Concat", *(part[i] for part in parts), axis=0)
            nodes.append(named_result(join, name))
    replace(r, s.place, nodes)


def _scalar(r: Rewriter, value: str) -> tuple[onnx.NodeProto, str]:
    """The only element of a value."""
    return r.node("Reshape", value, r.constant(np.zeros(0, np.int64)))


def _part(
    r: Rewriter, s: Steps, limit: str, offset: str, values: Sequence[str], is_endless: bool
) -> tuple[list[onnx.NodeProto], list[str], list[str]]:
    """A Loop of some of the steps, from one on: nodes, whether more follow and states, pieces.

    values: whether there is a first step, and the states.
    """
    body, nodes = fresh(r, s.body), []
    steps = list(body.node)
    if offset:
        step = r.name("step")
        add, _ = r.node("Add", step, offset)
        steps.insert(0, named_result(add, body.input[0].name))
        body.input[0].name = step
    outputs = [r.name() for _ in range(s.states + s.collected)]
    going, states = values[0], list(values[1:])
    inputs, results = list(body.input), list(body.output)
    if not is_endless:
        # What ends the steps ends those of the other loop, too.
        going = going or r.constant(np.array(True))
        flat, going = _scalar(r, going)
        scalar, following = _scalar(r, body.output[0].name)
        nodes.append(flat)
        steps.append(scalar)
        states.append(going)
        own = r.name("going")
        inputs.append(helper.make_tensor_value_info(own, TensorProto.BOOL, []))
        following_info = helper.make_tensor_value_info(following, TensorProto.BOOL, [])
        results.insert(1 + s.states, following_info)
        outputs.insert(s.states, r.name("going"))
    graph = helper.make_graph(steps, r.name("body"), inputs, results, body.initializer)
    nodes.append(helper.make_node("Loop", [limit, going, *states], outputs, body=graph))
    after = going if is_endless else outputs[s.states]
    return nodes, [after, *outputs[: s.states]], outputs[s.states + (not is_endless) :]
