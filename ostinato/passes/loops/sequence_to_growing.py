"""Sequences of pieces that loops append to, and that are joined in the end, become tensors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.ruled_sizes import ruled_sizes
from ostinato.graph.writer import Operand, Writer
from ostinato.model.attributes import Attributes
from ostinato.model.graphs import graphs, nodes_of, operands, subgraphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import dims_of
from ostinato.records import dataclass
from ostinato.sizes.dims import is_symbol

_STARTS = ("SequenceEmpty", "SequenceConstruct")

_logger = logging.getLogger(__name__)


def sequence_to_growing(model: ir.Model) -> int:
    """Let loops join tensors as they go in place of appending them to a sequence.

    Returns how many sequences are gone. Matches what `sequence_to_scan_output` leaves because the
    tensors differ in size, or are appended by branches or nested loops: a sequence that begins as
    SequenceEmpty or SequenceConstruct, that goes through Loop, If, Identity and SequenceInsert at
    its end alone, and of which nothing is read but by ConcatFromSequence along one axis. Other axes
    have sizes that are numbers or those of an input of the model. Each value of the sequence
    becomes the tensor of its pieces joined, which grows by a Concat. Only where the sequence has no
    elements, which is an error, the result is an empty tensor.
    """
    opset, names, replaced = opset_of(model), Names(model), 0
    starts = [node for node in nodes_of(model) if node.op_type in _STARTS]
    outer = _owners(model) if starts else {}
    for start in starts:
        flow = _Flow(start)
        reason = flow.follow(outer) or _join(model, flow, names, opset)
        replaced += reason is None
        if reason is not None:
            _logger.debug("sequence %s stays a sequence: %s", start.outputs[0].name, reason)
    return replaced


def _owners(model: ir.Model) -> dict[ir.Value, list[tuple[ir.Node, int]]]:
    """The nodes that have a value among the outputs of their bodies, with its place."""
    found: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
    for node in nodes_of(model):
        for body in subgraphs(node):
            for place, value in enumerate(body.outputs):
                found.setdefault(value, []).append((node, place))
    return found


@dataclass
class _Flow:
    """The flow of a sequence: its values, the nodes that append to it, and those that join it."""

    start: ir.Node
    values: dict[ir.Value, None] = field(default_factory=dict)
    inserts: list[ir.Node] = field(default_factory=list)
    joins: dict[ir.Node, None] = field(default_factory=dict)
    through_loop: bool = False

    def follow(self, outer: dict[ir.Value, list[tuple[ir.Node, int]]]) -> str | None:
        """Find them; says why not where the sequence is used in another way."""
        work = [self.start.outputs[0]]
        while work:
            value = work.pop()
            if value in self.values:
                continue
            self.values[value] = None
            if value.is_graph_output() and value not in outer:
                return "it is an output of the model"
            for node, place in outer.get(value, ()):
                work += self._around(node, place - (node.op_type == "Loop"))
            for node, place in value.uses():
                found = self._used(node, place)
                if found is None:
                    return f"{node.op_type} reads it"
                work += found
        if not self.through_loop or not self.inserts:
            return "no loop appends to it"
        return None if self._is_whole() else "another sequence takes its place"

    def _used(self, node: ir.Node, place: int) -> list[ir.Value] | None:
        """The values that the sequence becomes by a node; None where it is read otherwise."""
        if node.op_type == "SequenceInsert" and place == 0 and not any(node.inputs[2:]):
            self.inserts.append(node)
            return [node.outputs[0]]
        if node.op_type == "Identity":
            return [node.outputs[0]]
        if node.op_type == "ConcatFromSequence":
            self.joins[node] = None
            return []
        return self._around(node, place - 2) if node.op_type == "Loop" and place >= 2 else None

    def _around(self, node: ir.Node, place: int) -> list[ir.Value]:
        """The values of state `place` of a Loop, or of output `place` of an If."""
        if node.op_type != "Loop":
            return [node.outputs[place], *(body.outputs[place] for body in subgraphs(node))]
        (body,) = subgraphs(node)
        self.through_loop = True
        # Runtimes ask for the rank of these two, which the operator's document gives.
        for scalar in body.inputs[:2]:
            scalar.shape = ir.Shape([])
        found = [node.outputs[place], body.inputs[2 + place], body.outputs[1 + place]]
        initial = node.inputs[2 + place]
        return found if initial is None else [*found, initial]

    def _is_whole(self) -> bool:
        """Whether what makes each of the values takes the sequence, too."""
        makers = (value.producer() for value in self.values)
        return all(
            maker is None
            or maker is self.start
            or maker.op_type in ("Loop", "If")
            or maker.inputs[0] in self.values
            for maker in makers
        )

    def pieces(self) -> Iterator[ir.Value]:
        """The tensors that the sequence has."""
        yield from (value for value in self.start.inputs if value is not None)
        yield from (value for node in self.inserts if (value := node.inputs[1]) is not None)


def _join(model: ir.Model, flow: _Flow, names: Names, opset: int) -> str | None:
    """Replace one sequence; says why not where it cannot."""
    pieces = list(flow.pieces())
    for graph in graphs(model):
        _follow(graph, opset)
    inferred = infer_sizes(model) if any(piece.shape is None for piece in pieces) else {}
    shapes = [_shape(piece, inferred) for piece in pieces]
    ranks = {None if shape is None else len(shape) for shape in shapes}
    axes = {_joined_axis(node, max(n or 0 for n in ranks)) for node in flow.joins}
    axis = axes.pop() if len(axes) == 1 else None
    if axis is None or len(ranks) != 1 or None in ranks:
        return "it is not joined along one axis, or the rank of its elements is not known"
    dims = {
        tuple(0 if n == axis else size for n, size in enumerate(shape or ())) for shape in shapes
    }
    dtype = pieces[0].dtype
    if len(dims) != 1 or dtype is None:
        return "its elements differ along other axes than they are joined along"
    (sizes,) = dims
    writer = Writer(model.graph, names, opset, dtype, flow.start.outputs[0].name or "sequence")
    initial = _initial(model, flow.start, axis, sizes, writer)
    if initial is None:
        return "sizes of its elements are not known before the loop"
    for value in flow.values:
        value.type = ir.TensorType(dtype)
        known = (size if isinstance(size, int) else None for size in sizes)
        value.shape = ir.Shape([None if n == axis else size for n, size in enumerate(known)])
    _put(flow.start, writer, writer.value(initial, "empty"))
    for insert in flow.inserts:
        step = writer.within("step")
        _put(insert, step, step.op("Concat", operands(insert.outputs[0]), "joined", {"axis": axis}))
    for join in flow.joins:
        _put(join, writer.within("end"), join.inputs[0])
    return None


def _put(node: ir.Node, writer: Writer, value: ir.Value | None) -> None:
    """Let a value that `writer` has written nodes for take the place of a node."""
    assert value is not None
    supersede(node, [value], writer.nodes)


def _follow(graph: ir.Graph, opset: int) -> None:
    """Write the sizes that follow from those of operands, which inference leaves to a name."""
    for value in (value for node in graph for value in node.outputs):
        found = ruled_sizes(value, opset)
        if value.shape is not None and found is not None and len(found) == len(value.shape):
            names = (str(n) if n is not None and is_symbol(n) else n for n in found)
            pairs = zip(names, value.shape, strict=True)
            value.shape = ir.Shape([n if isinstance(n, (int, str)) else old for n, old in pairs])


def _shape(piece: ir.Value, inferred: Mapping[str, Sizes]) -> Sizes | None:
    return inferred.get(piece.name or "") if piece.shape is None else dims_of(piece)


def _joined_axis(reader: ir.Node, rank: int) -> int | None:
    """The axis along which a node joins tensors of a sequence; None where it makes a new one."""
    attributes = Attributes(reader)
    axis, is_new = attributes.int("axis"), attributes.int("new_axis", 0)
    attributes.finish()
    return None if is_new or not -rank <= axis < rank else axis % rank


def _initial(
    model: ir.Model, start: ir.Node, axis: int, sizes: tuple[int | str | None, ...], writer: Writer
) -> Operand | None:
    """The tensors that a sequence begins with, joined; None where a size is unknown."""
    if start.op_type == "SequenceConstruct":
        return writer.concat([value for value in start.inputs if value is not None], axis, "joined")
    parts = [_size(model, size, writer) for size in sizes]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    if all(isinstance(size, int) for size in sizes):
        return np.zeros([size for size in sizes if isinstance(size, int)], writer.dtype.numpy())
    value = ir.tensor(np.zeros(1, writer.dtype.numpy()))
    shape = writer.concat(known, 0, "shape")
    return writer.op("ConstantOfShape", [shape], "empty", {"value": value})


def _size(model: ir.Model, size: int | str | None, writer: Writer) -> Operand | None:
    """A size as a vector of one element: a number, or an axis of an input of the model."""
    if isinstance(size, int):
        return np.array([size], np.int64)
    for argument in model.graph.inputs if size is not None else ():
        for place, other in enumerate(dims_of(argument) or ()):
            if other == size:
                shape = writer.op("Shape", [argument], "sizes", dtype=ir.DataType.INT64)
                return writer.take(shape, [place], 0, "size")
    return None
