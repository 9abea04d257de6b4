"""Rewritings of a whole model: it becomes a branch, a function, or the steps of a loop."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools.fuzz.rewriting import DOMAIN, Rewriter, rewriting
from tools.fuzz.rewriting_loops import FAR, fresh, named_result, read_in

# How the models of the tests name their batch.
BATCH = "N"


def _whole(r: Rewriter) -> onnx.GraphProto:
    """A copy of the main graph, whose results nodes of its own make and whose inputs keep names."""
    if not r.is_main:
        raise LookupError
    kept = {value.name: value.name for value in r.graph.input}
    if any(tensor.name in kept for tensor in r.graph.initializer):
        raise LookupError
    graph: onnx.GraphProto = fresh(r, r.graph, kept)
    for value in graph.output:
        node, made = r.node("Identity", value.name)
        graph.node.append(node)
        value.name = made
    return graph


def _instead(r: Rewriter, nodes: list[onnx.NodeProto]) -> None:
    """Let these be all nodes of the main graph."""
    del r.graph.node[:]
    r.graph.node.extend(nodes)
    del r.graph.value_info[:]
    read = set(read_in(r.graph))
    kept = [tensor for tensor in r.graph.initializer if tensor.name in read]
    del r.graph.initializer[:]
    r.graph.initializer.extend(kept)


@rewriting
def branched(r: Rewriter) -> None:
    """The model is a branch of an If; the other branch is the model, too."""
    graphs = []
    for name in ("then", "else"):
        graph = _whole(r)
        graph.name = name
        del graph.input[:]
        graphs.append(graph)
    condition = r.name("condition")
    truth = np.array(r.chance(0.5))
    if r.chance(0.5):
        r.feeds[condition] = truth
        r.graph.input.append(helper.make_tensor_value_info(condition, onnx.TensorProto.BOOL, []))
    else:
        r.graph.initializer.append(numpy_helper.from_array(truth, condition))
    results = [value.name for value in r.graph.output]
    node = helper.make_node(
        "If", [condition], results, then_branch=graphs[0], else_branch=graphs[1]
    )
    _instead(r, [node])


@rewriting
def function(r: Rewriter) -> None:
    """The model is a function, which is called twice; each call gives some of the results."""
    graph, name = _whole(r), r.name("model")
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]
    inputs, outputs = ([value.name for value in v] for v in (graph.input, graph.output))
    r.model.functions.append(
        helper.make_function(
            DOMAIN, name, inputs, outputs, [*constants, *graph.node], r.model.opset_import
        )
    )
    if DOMAIN not in [opset.domain for opset in r.model.opset_import]:
        r.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        r.model.functions[-1].opset_import.append(helper.make_opsetid(DOMAIN, 1))
    r.model.ir_version = max(r.model.ir_version, 8)
    results = [value.name for value in r.graph.output]
    chosen = [r.chance(0.5) for _ in results]
    calls = [
        helper.make_node(
            name,
            inputs,
            [n if is_first is c else r.name() for n, c in zip(results, chosen, strict=True)],
            domain=DOMAIN,
        )
        for is_first in (True, False)
    ]
    _instead(r, calls)


@rewriting
def stepped(r: Rewriter) -> None:
    """The model is what a Scan does with each row of its inputs, of which there are some alike."""
    if not all(v.type.HasField("tensor_type") for v in (*r.graph.input, *r.graph.output)):
        raise LookupError
    body, times, at = _whole(r), int(r.choose((1, 2))), r.name("row")
    nodes, rows, names = [], [], {}
    r.graph.initializer.append(numpy_helper.from_array(np.array(times - 1, np.int64), at))
    for value in body.input:
        wide, row = r.node("Unsqueeze", value.name, r.ints(0))
        join, all_rows = r.node("Concat", *[row] * times, axis=0)
        nodes += [wide, join]
        rows.append(all_rows)
        names[value.name] = r.name("row")
    inner = fresh(r, body, names)
    scan = helper.make_node(
        "Scan", rows, [r.name() for _ in body.output], body=inner, num_scan_inputs=len(rows)
    )
    nodes.append(scan)
    for value, name in zip(r.graph.output, scan.output, strict=True):
        take, _ = r.node("Gather", name, at, axis=0)
        nodes.append(named_result(take, value.name))
    _instead(r, nodes)


@rewriting
def doubled(r: Rewriter) -> None:
    """Each row of the batch is there twice."""
    body = _whole(r)
    places = {}
    for value in (*r.graph.input, *r.graph.output):
        sizes = [d.dim_param for d in value.type.tensor_type.shape.dim]
        if sizes.count(BATCH) == 1:
            places[value.name] = sizes.index(BATCH)
    own = [value.name for value in r.graph.input]
    if any(v.name not in places for v in r.graph.output) or not any(n in places for n in own):
        raise LookupError
    before, after = [], []
    names = {}
    for name in filter(places.__contains__, own):
        join, names[name] = r.node("Concat", name, name, axis=places[name])
        before.append(join)
    inner = fresh(r, body, {name: names.get(name, name) for name in own})
    first = next(filter(places.__contains__, own))
    shape, sizes = r.node("Shape", first)
    axis = r.ints(places[first])
    take, count = r.node("Gather", sizes, axis)
    before += [shape, take]
    for value, result in zip(r.graph.output, inner.output, strict=True):
        ends = (r.ints(0), count) if r.chance(0.5) else (count, r.ints(FAR))
        cut, _ = r.node("Slice", result.name, *ends, r.ints(places[value.name]))
        after.append(named_result(cut, value.name))
    r.graph.initializer.extend(inner.initializer)
    _instead(r, [*before, *inner.node, *after])
