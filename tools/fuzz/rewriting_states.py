"""Rewritings of what loops carry and read: more states, other names, other places of constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.fuzz.rewriting import Rewriter, rename, rewriting
from tools.fuzz.rewriting_loops import Steps, fresh, owned, read_in, some_steps


def info(name: str, like: onnx.TypeProto.Tensor, rank: int | None = None) -> onnx.ValueInfoProto:
    """What tells the type and rank of a value, not its sizes."""
    count = len(like.shape.dim) if rank is None else rank
    return helper.make_tensor_value_info(name, like.elem_type, [None] * count)


def _with_state(s: Steps, first: str, own: Any, following: Any, result: str) -> None:
    """Add a state behind the others."""
    node, body, before = s.node, s.body, 0 if s.is_scan else 1
    count = s.states
    node.input.insert(count if s.is_scan else count + 2, first)
    node.output.insert(count, result)
    for values, place, value in (
        (body.input, count + 2 * before, own),
        (body.output, count + before, following),
    ):
        rest = list(values)
        rest.insert(place, value)
        del values[:]
        values.extend(rest)


@rewriting
def counted(r: Rewriter) -> None:
    """One more state that nothing else reads."""
    s = some_steps(r)
    first = r.constant(np.zeros(r.choose((1, 3)), np.float32))
    own, made = r.name("unread"), r.name("unread")
    kind = r.choose(("Identity", "Add", "Tanh"))
    like = helper.make_tensor_type_proto(TensorProto.FLOAT, None).tensor_type
    step = helper.make_node(kind, [own, own] if kind == "Add" else [own], [made], name=made)
    s.body.node.append(step)
    _with_state(s, first, info(own, like, 1), info(made, like, 1), r.name("unread"))


@rewriting
def carried(r: Rewriter) -> None:
    """What the steps read from outside is a state that they leave as it is."""
    s = some_steps(r)
    inside = set(owned(s.body))
    fitting = [
        name
        for name in dict.fromkeys(read_in(s.body))
        if name not in inside and r.types.get(name) is not None
    ]
    fitting = [n for n in fitting if r.types[n].HasField("shape") and r.types[n].elem_type]
    if not fitting:
        raise LookupError
    value = r.choose(fitting)
    own, made = r.name("carried"), r.name("carried")
    for node in s.body.node:
        rename(node, value, own)
    for output in s.body.output:
        if output.name == value:
            output.name = own
    s.body.node.append(helper.make_node("Identity", [own], [made], name=made))
    kind = r.types[value]
    _with_state(s, value, info(own, kind), info(made, kind), r.name("carried"))


@rewriting
def called(r: Rewriter) -> None:
    """All values in the steps have other names, and the states another order."""
    s = some_steps(r)
    before = 0 if s.is_scan else 1
    order = r.random.permutation(s.states)
    body = fresh(r, s.body)
    for values, place in (
        (s.node.input, 2 * before),
        (s.node.output, 0),
        (body.input, 2 * before),
        (body.output, before),
    ):
        kept = list(values)
        kept[place : place + s.states] = [kept[place + i] for i in order]
        del values[:]
        values.extend(kept)
    s.body.CopyFrom(body)


@rewriting
def moved_in(r: Rewriter) -> None:
    """The steps have a copy of a constant that they read from outside."""
    s = some_steps(r)
    constants = [t for t in r.graph.initializer if t.name in set(read_in(s.body))]
    constants = [t for t in constants if t.name not in [v.name for v in r.graph.input]]
    if not constants:
        raise LookupError
    copy = onnx.TensorProto()
    copy.CopyFrom(r.choose(constants))
    old, copy.name = copy.name, r.name("constant")
    for node in s.body.node:
        rename(node, old, copy.name)
    for output in s.body.output:
        if output.name == old:
            output.name = copy.name
    s.body.initializer.append(copy)


@rewriting
def moved_out(r: Rewriter) -> None:
    """The steps read a constant of theirs from outside."""
    s = some_steps(r)
    if not s.body.initializer:
        raise LookupError
    tensor = r.choose(list(s.body.initializer))
    r.graph.initializer.append(tensor)
    s.body.initializer.remove(tensor)
