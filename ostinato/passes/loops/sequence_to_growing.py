"""A sequence of pieces that a Loop appends to, and that is joined behind it, becomes a state."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import LoopForm, State
from ostinato.graph.ruled_sizes import ruled_sizes
from ostinato.graph.writer import Operand, Writer
from ostinato.model.attributes import Attributes
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.passes.loops.sequence_to_scan_output import appending_states, only_handed_on
from ostinato.sizes.dims import is_symbol

_logger = logging.getLogger(__name__)


def sequence_to_growing(model: ir.Model) -> int:
    """Let a Loop join tensors as it goes in place of appending them to a sequence.

    Returns how many sequences are gone. Matches what `sequence_to_scan_output` leaves because the
    tensors differ in size, where ConcatFromSequence along one axis is all that reads the sequence
    behind the loop, and other axes have sizes that are numbers or those of an input of the model.
    Makes a state that begins without rows and grows by a Concat in each step. Only where the
    sequence has no elements, which is an error, the result is an empty tensor.
    """
    opset = opset_of(model)
    loops = [node for graph in graphs(model) for node in graph if appending_states(node, opset)]
    if not loops:
        return 0
    sizes, names, replaced = infer_sizes(model), Names(model), 0
    for loop in loops:
        for form, state, insert in appending_states(loop, opset):
            piece = insert.inputs[1]
            dtype = (piece.dtype if piece is not None else None) or ir.DataType.FLOAT
            writer = Writer(model.graph, names, opset, dtype, state.final.name or "sequence")
            reason = _join(model, form, state, insert, sizes, writer, names)
            replaced += reason is None
            if reason is not None:
                _logger.debug("sequence %s stays a sequence: %s", state.final.name, reason)
    return replaced


def _join(
    model: ir.Model,
    form: LoopForm,
    state: State,
    insert: ir.Node,
    sizes: Mapping[str, Sizes],
    writer: Writer,
    names: Names,
) -> str | None:
    """Replace one sequence; says why not where it cannot."""
    piece = insert.inputs[1]
    assert piece is not None
    _follow(form.body, writer.opset)
    if piece.shape is None:
        return "the rank of its elements is not known"
    dims = tuple(size if isinstance(size, int) else size.value for size in piece.shape)
    if len(state.before.uses()) != 1 or not only_handed_on(insert.outputs[0], state.after):
        return "the body reads it"
    readers = list(dict.fromkeys(reader for reader, _ in state.final.uses()))
    axes = {_joined_axis(reader, len(dims)) for reader in readers}
    axis = axes.pop() if len(axes) == 1 else None
    if axis is None or state.final.is_graph_output():
        return "it is not joined along one axis"
    empty = _empty(model, dims, axis, sizes, writer)
    if empty is None:
        return "its elements differ along other axes than they are joined along"
    shape = [None if place == axis else size for place, size in enumerate(dims)]
    static = [size if isinstance(size, int) else None for size in shape]
    before = writer.declare("before", static)
    inner = writer.within("step")
    after = inner.op("Concat", [before, piece], "after", {"axis": axis})
    insert.prepend(inner.nodes)
    for node in writer.nodes:
        form.node.prepend(node)
    form.states.remove(state)
    final = ir.Value(name=writer.name("joined"), type=piece.type)
    form.states.append(State(writer.value(empty, "empty"), before, after, final))
    form.write(names)
    for reader in readers:
        replace_value(reader.outputs[0], form.states[-1].final)
        discard(reader)
    return None


def _follow(body: ir.Graph, opset: int) -> None:
    """Write the sizes that follow from those of operands, which inference leaves to a name."""
    for value in (value for node in body for value in node.outputs):
        found = ruled_sizes(value, opset)
        if value.shape is not None and found is not None and len(found) == len(value.shape):
            names = (str(n) if n is not None and is_symbol(n) else n for n in found)
            pairs = zip(names, value.shape, strict=True)
            value.shape = ir.Shape([n if isinstance(n, (int, str)) else old for n, old in pairs])


def _joined_axis(reader: ir.Node, rank: int) -> int | None:
    """The axis along which a node joins tensors of a sequence, None for any other node."""
    if reader.op_type != "ConcatFromSequence":
        return None
    attributes = Attributes(reader)
    axis, is_new = attributes.int("axis"), attributes.int("new_axis", 0)
    attributes.finish()
    return None if is_new or not -rank <= axis < rank else axis % rank


def _empty(
    model: ir.Model, dims: Sizes, axis: int, sizes: Mapping[str, Sizes], writer: Writer
) -> Operand | None:
    """A tensor of such sizes but along `axis`, where it has no elements; None if one is unknown."""
    parts = [_size(model, 0 if n == axis else size, sizes, writer) for n, size in enumerate(dims)]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    if all(isinstance(part, np.ndarray) for part in known):
        return np.zeros(
            [int(part[0]) for part in known if isinstance(part, np.ndarray)], writer.dtype.numpy()
        )
    shape = writer.concat(known, 0, "shape")
    value = ir.tensor(np.zeros(1, writer.dtype.numpy()))
    return writer.op("ConstantOfShape", [shape], "empty", {"value": value})


def _size(
    model: ir.Model, size: int | str | None, sizes: Mapping[str, Sizes], writer: Writer
) -> Operand | None:
    """A size as a vector of one element: a number, or an axis of an input of the model."""
    if isinstance(size, int):
        return np.array([size], np.int64)
    for argument in model.graph.inputs if size is not None else ():
        for place, other in enumerate(sizes.get(argument.name or "", ())):
            if other == size:
                shape = writer.op("Shape", [argument], "sizes", dtype=ir.DataType.INT64)
                return writer.take(shape, [place], 0, "size")
    return None
