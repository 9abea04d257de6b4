"""Models whose `If`s give results of different ranks, with those as last results.

    y = If(c) <neg(x): [4, 3] | sum(x): [3]>       y, sizes_of_y, z = If(c) <
    z = f(y)                                  =>       flat(neg(x)), [4, 3], f(neg(x))
                                                     | flat(sum(x)), [3, -1], f(sum(x))>

A library is one function, in which every value has one rank. So what follows from such a result
moves into both branches. What is an output of the model and still has different ranks there is
given as its elements, and its sizes are an output of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from ostinato.errors import UnsupportedError
from ostinato.graph.random import may_draw
from ostinato.model.attributes import describe
from ostinato.model.captures import captures
from ostinato.model.graphs import BRANCHES, branches, is_if, maker_of
from ostinato.model.load import load_model
from ostinato.model.order import bodies
from ostinato.model.write import to_model_proto

SIZES = "sizes_of_"
"""An output with the sizes of another one begins so."""
# Moves into branches, of four `If`s in a row: each doubles those of the next.
_MOST = 7


class _Found(NamedTuple):
    """An `If` whose results of different ranks are read, and the nodes that follow from it.

    path: the places and branches of the `If`s around it. place, following: in its graph.
    results: names of outputs of the graph that are among what it and they make.
    """

    path: tuple[tuple[int, str], ...]
    node: ir.Node
    place: int
    following: tuple[ir.Node, ...]
    results: tuple[str, ...]


def with_equal_ranks(model: onnx.ModelProto | ir.Model) -> onnx.ModelProto | None:
    """The model in which no value has one of two ranks.

    None where there is no such value, or one of a rank that is not known. Raises `UnsupportedError`
    for random numbers that follow from one, which would be others, and for more than `_MOST` moves.
    """
    current, moves = load_model(model), 0
    while (found := _first(current.graph)) is not None:
        moves += 1
        if moves > _MOST:
            raise _refusal(found.node, "many of these follow from each other")
        if any(map(may_draw, found.following)):
            raise _refusal(found.node, "random numbers follow from them")
        proto = to_model_proto(current)
        _sink(proto.graph, found)
        current = load_model(proto)
    proto = to_model_proto(current)
    flat = 0
    for value in current.graph.outputs:
        ranks = dict(_ranks(value))
        known = [rank for rank in ranks.values() if rank is not None]
        if len(set(ranks.values())) > 1:
            if len(known) < len(ranks):
                return None
            _return_flat(proto.graph, value.name or "", dict(zip(ranks, known, strict=True)))
            flat += 1
    return proto if moves or flat else None


def _refusal(node: ir.Node, why: str) -> UnsupportedError:
    reason = (
        f"its branches give results of different ranks, expected one for a library where {why}: "
        "build a model of the branch that is meant"
    )
    return UnsupportedError(describe(node), "If", reason)


def _ranks(value: ir.Value) -> Iterator[tuple[str, int | None]]:
    """The values of which one becomes this one, by name, and their ranks."""
    node = maker_of(value, "If")
    if node is None:
        yield value.name or "", None if value.shape is None else len(value.shape)
        return
    place = list(node.outputs).index(value)
    for branch in branches(node):
        yield from _ranks(branch.outputs[place])


def _first(graph: ir.Graph, path: tuple[tuple[int, str], ...] = ()) -> _Found | None:
    """The first `If`, in the graph or in branches, from whose results of two ranks nodes follow."""
    nodes, returned = list(graph), {value.name for value in graph.outputs}
    for place, node in enumerate(nodes):
        if not is_if(node):
            continue
        if any(len({rank for _, rank in _ranks(value)}) > 1 for value in node.outputs):
            values, following = set(node.outputs), []
            for later in nodes[place + 1 :]:
                if values.intersection(captures(later)):
                    following.append(later)
                    values.update(later.outputs)
            made = [value.name or "" for one in (node, *following) for value in one.outputs]
            results = tuple(name for name in made if name in returned)
            if following and results:
                return _Found(path, node, place, tuple(following), results)
        for name in BRANCHES:
            found = _first(node.attributes[name].as_graph(), (*path, (place, name)))
            if found is not None:
                return found
    return None


def _branch(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    body: onnx.GraphProto
    (body,) = (a.g for a in node.attribute if a.name == name)
    return body


def _sink(graph: onnx.GraphProto, found: _Found) -> None:
    """Move what follows into both branches, which return the outputs of the graph."""
    for place, name in found.path:
        graph = _branch(graph.node[place], name)
    node = graph.node[found.place]
    names_made = {value.name for one in found.following for value in one.outputs}
    moved = [one for one in graph.node if names_made.intersection(one.output)]
    for name in BRANCHES:
        branch = _branch(node, name)
        names = {made: f"{made}/{name}" for one in moved for made in one.output if made}
        names |= {o: b.name for o, b in zip(node.output, branch.output, strict=True)}
        for one in moved:
            copy = branch.node.add()
            copy.CopyFrom(one)
            _rename(copy, names)
        del branch.output[:]
        branch.output.extend(onnx.ValueInfoProto(name=names[result]) for result in found.results)
    del node.output[:]
    node.output.extend(found.results)
    for one in moved:
        graph.node.remove(one)


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Give the values other names that the node and its bodies read and make."""
    for listed in (node.input, node.output):
        for i, name in enumerate(listed):
            listed[i] = names.get(name, name)
    for body in bodies(node):
        for inner in body.node:
            _rename(inner, names)
        for value in body.output:
            value.name = names.get(value.name, value.name)


def _return_flat(graph: onnx.GraphProto, name: str, ranks: Mapping[str, int]) -> None:
    """Return the elements of an output of the model in its place, and its sizes in another one.

    ranks: of the values that it may be, by name.
    """
    sizes = SIZES + name
    while sizes in {value.name for value in (*graph.input, *graph.output)}:
        sizes += "_"
    most = max(ranks.values())
    node = next(node for node in graph.node if name in node.output)
    _flatten(graph, name, ranks, most)
    node.output[-1] = sizes
    graph.output.append(helper.make_tensor_value_info(sizes, onnx.TensorProto.INT64, [most]))
    value = next(output for output in graph.output if output.name == name)
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    dims.add(dim_param=f"elements of {name}")


def _flatten(
    graph: onnx.GraphProto, name: str, ranks: Mapping[str, int], most: int
) -> tuple[str, str]:
    """The names of the elements of a value and of its sizes, with -1 for axes that are missing."""
    node = next((node for node in graph.node if name in node.output), None)
    if node is None or node.op_type != "If" or node.domain:
        return _add_flat(graph, name, most - ranks[name])
    place = list(node.output).index(name)
    for branch in (_branch(node, which) for which in BRANCHES):
        elements, sizes = _flatten(branch, branch.output[place].name, ranks, most)
        branch.output[place].CopyFrom(onnx.ValueInfoProto(name=elements))
        branch.output.append(onnx.ValueInfoProto(name=sizes))
    node.output.append(f"{name}/sizes")
    return name, node.output[-1]


def _add_flat(graph: onnx.GraphProto, name: str, missing: int) -> tuple[str, str]:
    def add(op_type: str, inputs: list[str], role: str, **attributes: Any) -> str:
        output = f"{graph.name}/{name}/{role}"
        graph.node.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def numbers(values: list[int], role: str) -> str:
        return add("Constant", [], role, value=numpy_helper.from_array(np.array(values, np.int64)))

    sizes = add("Shape", [name], "shape")
    if missing:
        sizes = add("Concat", [sizes, numbers([-1] * missing, "missing")], "sizes", axis=0)
    return add("Reshape", [name, numbers([-1], "all")], "elements"), sizes
