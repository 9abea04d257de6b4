"""A Scan of opset 8, over the rows of a batch, becomes two nested Scans of opset 9."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import replace_value
from ostinato.graph.loop_form import SCAN_WITHOUT_BATCH, detach
from ostinato.graph.raise_opset import raise_opset
from ostinato.graph.writer import Writer
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import graphs, is_standard
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import filled


def batched_scan(model: ir.Model) -> int:
    """Rewrite every Scan of version 8 in place and return their number.

    Matches Scan nodes in any graph of a model of opset 8 whose other operators mean the same in
    opset 9, which the model then imports. Makes a Scan over the rows of the batch, without a state,
    around one over time. In steps from a row's `sequence_lens` on, states stay as they are and
    results are zero; valid because the operator defines the rows apart from each other, and leaves
    those results open. Reverse sequences begin at the end of the row.
    """
    opset = opset_of(model)
    nodes = [n for g in graphs(model) for n in g if is_standard(n, "Scan")]
    if opset >= SCAN_WITHOUT_BATCH or not nodes or not all(map(_is_typed, nodes)):
        return 0
    try:
        opset = raise_opset(model, frozenset(nodes))
    except UnsupportedError:
        return 0
    names = Names(model)
    for node in nodes:
        _replace(node, Writer(model.graph, names, opset, ir.DataType.FLOAT, describe(node)))
    return len(nodes)


def _is_typed(node: ir.Node) -> bool:
    """Whether a zero can be written for every result of the body."""
    return all(value.dtype is not None for value in node.attributes["body"].as_graph().outputs)


def _replace(node: ir.Node, writer: Writer) -> None:
    attributes = Attributes(node)
    body: ir.Graph = attributes.graph("body")
    scans = attributes.int("num_scan_inputs")
    directions = attributes.ints("directions", (0,) * scans)
    attributes.finish()
    lengths, *given = node.inputs
    inputs = [value for value in given if value is not None]
    row = writer.within("row")
    elements = [ir.Value(name=row.name(str(v.name)), type=v.type) for v in body.inputs]
    outer_inputs, formals = list(inputs), list(elements)
    if lengths is not None:
        to = {"to": ir.DataType.INT64.value}
        outer_inputs.append(writer.op("Cast", [lengths], "lengths", to, ir.DataType.INT64))
        length = row.declare("length", [], ir.DataType.INT64)
        formals.append(length)
        step = _stop_at_the_end(body, elements, directions, length, writer.within("body"))
        elements.insert(0, row.value(np.zeros((), np.int64), "first_step"))
        body.inputs.insert(0, step)
        directions = (0,) * scans
    results = _scan(row, elements, body, scans, directions)
    rows = ir.Graph(formals, results[-len(node.outputs) :], nodes=row.nodes, name=row.name("rows"))
    finals = _scan(writer, outer_inputs, rows, len(outer_inputs), ())
    node.prepend(writer.nodes)
    for old, final in zip(node.outputs, finals, strict=True):
        replace_value(old, final)
    detach(node)


def _stop_at_the_end(
    body: ir.Graph,
    elements: Sequence[ir.Value],
    directions: Sequence[int],
    length: ir.Value,
    writer: Writer,
) -> ir.Value:
    """Let the body keep its states, and return zero, in steps from `length` on.

    elements: what a row has for each input of the body. Sequences that run backwards are read from
    the last of `length` elements on. Returns the number of the step, a state of the body that is
    its first output, and is to become its first input.
    """
    integer, one = ir.DataType.INT64, np.ones((), np.int64)
    states = len(elements) - len(directions)
    step = writer.declare("step", [], integer)
    valid = writer.op("Less", [step, length], "valid", dtype=ir.DataType.BOOL)
    last = writer.op("Sub", [length, one], "last", dtype=integer)
    back = writer.op("Sub", [last, step], "from_the_end", dtype=integer)
    index = writer.op("Where", [valid, back, 1 - one], "index", dtype=integer)
    results = list(body.outputs)
    for formal, sequence, backward in zip(
        body.inputs[states:], elements[states:], directions, strict=True
    ):
        if backward:
            readers = formal.uses()
            element = writer.op("Gather", [sequence, index], "element", {"axis": 0}, formal.dtype)
            for reader, position in readers:
                reader.replace_input_with(position, element)
            results = [element if value is formal else value for value in results]
    beginning, writer.nodes = writer.nodes, []
    for position, value in enumerate(results):
        old = body.inputs[position] if position < states else filled(value)
        results[position] = writer.op(
            "Where", [valid, value, old], f"{value.name}_valid", dtype=value.dtype
        )
    results.insert(0, writer.op("Add", [step, one], "next_step", dtype=integer))
    nodes = list(body)
    body.outputs.clear()
    body.remove(nodes)
    body.extend([*beginning, *nodes, *writer.nodes])
    body.outputs.extend(results)
    return step


def _scan(
    writer: Writer,
    inputs: Sequence[ir.Value],
    body: ir.Graph,
    scans: int,
    directions: Sequence[int],
) -> list[ir.Value]:
    attributes = {"body": body, "num_scan_inputs": scans}
    if any(directions):
        attributes["scan_input_directions"] = list(directions)
    roles = [f"{value.name}_all" for value in body.outputs]
    results = writer.ops("Scan", inputs, roles, attributes)
    for result, value in zip(results, body.outputs, strict=True):
        result.type = value.type
    return list(results)
