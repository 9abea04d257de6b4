"""Random loops, branches, calls of functions, and sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tools.fuzz.random_graph import DOMAIN, OPSET, Builder, Shape, Value, grow, operator, two

DEEPEST = 3


def _inner(b: Builder) -> Builder:
    return Builder(b.random, b.names, b.functions, b.depth + 1, b)


def _graph_of(
    b: Builder, name: str, inputs: list[Any], outputs: Sequence[Value]
) -> onnx.GraphProto:
    """The graph of a body; values that it only captures pass through an Identity."""
    own = {v.name for v in b.values}
    infos = []
    seen: set[str] = set()
    passed = {i.name for i in inputs} | {t.name for t in b.constants}
    for value in outputs:
        if value.name not in own or value.name in seen or value.name in passed:
            copied = b.names.next()
            b.nodes.append(helper.make_node("Identity", [value.name], [copied]))
            value = Value(copied, value.dtype, value.shape, value.is_exact)
        seen.add(value.name)
        infos.append(_info(value, b, is_body=True))
    return helper.make_graph(b.nodes, name, inputs, infos, b.constants)


def _info(value: Value, b: Builder, is_body: bool = False) -> onnx.ValueInfoProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    shape = None if is_body and b.chance(0.5) else [None] * len(value.shape)
    return helper.make_tensor_value_info(value.name, number, shape)


def _like_state(b: Builder, state: Value) -> Value:
    """The next value of a state: of its type and shape."""

    def fits(v: Value) -> bool:
        try:
            return (
                v.dtype == state.dtype and np.broadcast_shapes(v.shape, state.shape) == state.shape
            )
        except ValueError:
            return False

    other = b.pick(fits)
    like = (state.dtype, state.shape, False)
    if state.is_float:
        mixed = b.add("Add", [state.name, other.name], like)
        return b.add(b.choose(("Tanh", "Sigmoid", "Sin")), [mixed.name], like)
    if state.dtype == "bool":
        return b.add("Xor", [state.name, other.name], (state.dtype, state.shape, True))
    is_exact = other.is_exact
    return b.add("Max", [state.name, other.name], (state.dtype, state.shape, is_exact))


def _condition(b: Builder) -> str:
    """A scalar that only exact values decide."""
    if b.chance(0.2):
        return b.constant(np.array(b.chance(0.5)))
    x = b.pick(lambda v: v.is_exact and v.dtype in ("float32", "int64") and v.size > 0)
    axes = b.constant(np.arange(len(x.shape), dtype=np.int64))
    total = (
        x if x.shape == () else b.add("ReduceMax", [x.name, axes], (x.dtype, (), True), keepdims=0)
    )
    limit = b.constant(np.array(b.choose((0, 1, 2)), x.dtype))
    return b.add("Less", [total.name, limit], ("bool", (), True)).name


@operator(4)
def _branch(b: Builder) -> None:
    if b.depth >= DEEPEST:
        raise LookupError
    decides = _condition(b)
    x = b.pick(lambda v: v.is_float or v.dtype == "int64")
    graphs = []
    for name in ("then_branch", "else_branch"):
        body = _inner(b)
        grow(body, int(b.random.integers(0, 4)))
        results = [
            _like_state(body, x),
            body.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape),
        ]
        graphs.append((name, _graph_of(body, name, [], results)))
    like = (x.dtype, x.shape, False)
    b.add_several("If", [decides], [like, like], **dict(graphs))


@operator(6)
def _loop(b: Builder) -> None:
    if b.depth >= DEEPEST:
        raise LookupError
    states = [
        b.pick(lambda v: v.is_float or v.dtype in ("int64", "bool"))
        for _ in range(b.choose((1, 2)))
    ]
    trip = int(b.random.integers(0, 6))
    body = _inner(b)
    number = Value(b.names.next(), "int64", (), True)
    going = Value(b.names.next(), "bool", (), True)
    own = [Value(b.names.next(), s.dtype, s.shape, False) for s in states]
    body.values += [number, going, *own]
    is_counted = b.chance(0.7)
    if is_counted:
        # The steps make no other values exact: all that follows from states is not.
        limit = ""
        known = trip
    else:
        limit = "by condition"
        known = int(b.random.integers(1, 5))
    grow(body, int(b.random.integers(1, 5)))
    following = [_like_state(body, s) for s in own]
    # No document says what shape the values of a loop without steps would have had.
    most = 0 if is_counted and trip == 0 else 4
    collected = body.pick(lambda v: v.dtype != "float16" and v.size <= 60 and len(v.shape) <= most)
    if limit:
        last = body.constant(np.array(known - 1, np.int64))
        again = body.add("Less", [number.name, last], ("bool", (), True))
        if b.chance(0.5):
            # Ended by what the steps before it counted.
            again = body.add("And", [again.name, going.name], ("bool", (), True))
        bound = "" if b.chance(0.5) else b.constant(np.array(20, np.int64))
        steps = known
    else:
        again = going
        steps = trip
        bound = b.constant(np.array(trip, np.int64))
        if b.chance(0.3):
            x = b.pick(lambda v: v.shape != () and 0 < v.shape[0] < 6)
            steps = x.shape[0]
            shape = b.add("Shape", [x.name], ("int64", (len(x.shape),), True))
            first = b.constant(np.array(0, np.int64))
            bound = b.add("Gather", [shape.name, first], ("int64", (), True), axis=0).name
    inputs = [_info(v, b) for v in (number, going, *own)]
    graph = _graph_of(body, "body", inputs, [again, *following, collected])
    going_first = b.constant(np.array(True)) if limit or b.chance(0.5) else ""
    likes = [(s.dtype, s.shape, False) for s in states]
    likes.append((collected.dtype, (steps, *collected.shape), False))
    b.add_several("Loop", [bound, going_first, *(s.name for s in states)], likes, body=graph)


@operator(6)
def _scan(b: Builder) -> None:
    if b.depth >= DEEPEST:
        raise LookupError
    x = b.pick(lambda v: v.shape != () and v.dtype != "float16")
    axis = b.axis(x)
    length = x.shape[axis]
    if length == 0 or length > 12:
        raise LookupError
    read = [(x, axis)]
    if b.chance(0.4):
        y = b.pick(lambda v: v.dtype != "float16" and length in v.shape)
        place = y.shape.index(length)
        read.append((y, place - len(y.shape) if b.chance(0.3) else place))
    states = [
        b.pick(lambda v: v.is_float or v.dtype == "int64") for _ in range(b.choose((0, 1, 2)))
    ]
    body = _inner(b)
    own = [Value(b.names.next(), s.dtype, s.shape, False) for s in states]
    pieces = [
        Value(b.names.next(), v.dtype, _without(v.shape, axis), v.is_exact) for v, axis in read
    ]
    body.values += [*own, *pieces]
    grow(body, int(b.random.integers(1, 5)))
    following = [_like_state(body, s) for s in own]
    collected = [
        body.pick(lambda v: v.dtype != "float16" and v.size <= 60)
        for _ in range(b.choose((1, 1, 2)))
    ]
    inputs = [_info(v, b) for v in (*own, *pieces)]
    graph = _graph_of(body, "body", inputs, [*following, *collected])
    places = [int(b.random.integers(len(v.shape) + 1)) for v in collected]
    likes = [(s.dtype, s.shape, False) for s in states]
    likes += [
        (v.dtype, (*v.shape[:out], length, *v.shape[out:]), False)
        for v, out in zip(collected, places, strict=True)
    ]
    b.add_several(
        "Scan",
        [*(s.name for s in states), *(v.name for v, _ in read)],
        likes,
        body=graph,
        num_scan_inputs=len(read),
        scan_input_axes=[axis for _, axis in read],
        scan_input_directions=[int(b.chance(0.4)) for _ in read],
        scan_output_axes=[
            out - len(v.shape) - 1 if b.chance(0.3) else out
            for v, out in zip(collected, places, strict=True)
        ],
        scan_output_directions=[int(b.chance(0.4)) for _ in collected],
    )


def _without(shape: Shape, axis: int) -> Shape:
    """The shape of the pieces along an axis."""
    place = axis % len(shape)
    return (*shape[:place], *shape[place + 1 :])


@operator(2)
def _function(b: Builder) -> None:
    x, y, shape = two(b, lambda v: v.dtype == "float32")
    if not b.functions or b.chance(0.5):
        name = f"local{len(b.functions)}"
        ops = b.choose((("Add", "Tanh"), ("Mul", "Sigmoid"), ("Sub", "Softplus")))
        nodes = [
            helper.make_node(ops[0], ["a", "b"], ["c"]),
            helper.make_node(ops[1], ["c"], ["d"]),
            helper.make_node("Add", ["d", "a"], ["e"]),
        ]
        opset = [helper.make_opsetid("", OPSET)]
        b.functions[name] = helper.make_function(DOMAIN, name, ["a", "b"], ["e", "c"], nodes, opset)
    name = b.choose(list(b.functions))
    like = ("float32", shape, False)
    b.add_several(name, [x.name, y.name], [like, like], domain=DOMAIN)


@operator(2)
def _sequence(b: Builder) -> None:
    x = b.pick(lambda v: v.shape != ())
    y = b.pick(lambda v: v.dtype == x.dtype)
    made = b.names.next()
    b.nodes.append(helper.make_node("SequenceConstruct", [x.name, y.name], [made]))
    place = b.choose((0, 1, -1, -2))
    chosen = (x, y)[place]
    index = b.constant(np.array(place, np.int64))
    b.add("SequenceAt", [made, index], (x.dtype, chosen.shape, chosen.is_exact))
    if b.chance(0.5):
        b.add("SequenceLength", [made], ("int64", (), True))
    if x.shape == y.shape and b.chance(0.5):
        stacked = (2, *x.shape)
        like = (x.dtype, stacked, x.is_exact and y.is_exact)
        b.add("ConcatFromSequence", [made], like, axis=0, new_axis=1)
