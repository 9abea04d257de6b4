"""A sequence that a Loop appends to becomes a scan output."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import LoopForm, Stacked, State, origin, read_loop, scopes_within
from ostinato.graph.writer import Writer
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of

_READERS = frozenset("ConcatFromSequence SequenceAt SequenceLength".split())

_logger = logging.getLogger(__name__)


def sequence_to_scan_output(model: ir.Model) -> int:
    """Let a Loop stack tensors instead of appending them to a sequence; returns how many.

    Matches a carried value of a Loop that begins as SequenceEmpty, that a step only appends one
    tensor to (SequenceInsert without a position), and that is read after the loop by
    ConcatFromSequence, SequenceAt and SequenceLength alone. All tensors must provably have one
    shape. Makes a scan output of the tensor, and for the readers: a Transpose that puts the new
    axis where ConcatFromSequence wants it, and for `new_axis = 0` a Reshape that merges it into
    the next one; Gather for SequenceAt; Gather of Shape for SequenceLength. Valid because the
    sequence then holds the slices of the scan output in order. Only where a sequence without
    elements, or an index out of range, is an error, the error may be another or none.
    """
    opset = opset_of(model)
    loops = [node for node in nodes_of(model, "Loop") if _appending_states(node, opset)]
    if not loops:
        return 0
    sizes, names, replaced = infer_sizes(model), Names(model), 0
    for loop in loops:
        for form, state, insert in _appending_states(loop, opset):
            reason = _obstacle(form, state, insert, sizes)
            if reason is None:
                _Stacking(model, form, state, insert, names, opset).apply(sizes)
                replaced += 1
            else:
                _logger.debug("sequence %s stays a sequence: %s", state.final.name, reason)
    return replaced


def _appending_states(node: ir.Node, opset: int) -> list[tuple[LoopForm, State, ir.Node]]:
    """The sequences that a Loop appends to, each with its SequenceInsert."""
    form = read_loop(node, opset)
    if form is None:
        return []
    pairs = ((state, _appending(state)) for state in form.states)
    return [(form, state, insert) for state, insert in pairs if insert is not None]


def _appending(state: State) -> ir.Node | None:
    """The SequenceInsert by which a step appends to a sequence that begins empty."""
    insert = maker_of(origin(state.after), "SequenceInsert")
    if insert is None or maker_of(state.initial, "SequenceEmpty") is None:
        return None
    appends = insert.inputs[0] is state.before and not any(insert.inputs[2:])
    return insert if appends else None


def _obstacle(
    form: LoopForm, state: State, insert: ir.Node, sizes: Mapping[str, Sizes]
) -> str | None:
    """Why a sequence that is appended to cannot be a scan output, None when it can."""
    if len(state.before.uses()) != 1 or not _only_handed_on(insert.outputs[0], state.after):
        return "the body reads it"
    readers = [reader for reader, _ in state.final.uses()]
    if state.final.is_graph_output() or any(r.op_type not in _READERS for r in readers):
        return "it is read as a sequence"
    element = insert.inputs[1]
    dims = sizes.get(element.name or "") if element is not None else None
    if dims is None:
        return "the rank of its elements is not known"
    # A size that has its name from inside of the body may differ from step to step.
    inner = {name for graph in scopes_within(form.body) for name in _value_names(graph)}
    outer = {size for name, shape in sizes.items() if name not in inner for size in shape}
    if any(size is None or (isinstance(size, str) and size not in outer) for size in dims):
        return "its elements may differ in shape"
    return None


def _only_handed_on(value: ir.Value, last: ir.Value) -> bool:
    """Whether nothing reads `value` but the Identity nodes from it to the body output `last`."""
    while value is not last:
        readers = [reader for reader, _ in value.uses()]
        if value.is_graph_output() or [reader.op_type for reader in readers] != ["Identity"]:
            return False
        value = readers[0].outputs[0]
    return not value.uses()


def _value_names(graph: ir.Graph) -> set[str]:
    names = {value.name or "" for value in graph.inputs}
    return names | {value.name or "" for node in graph for value in node.outputs}


class _Stacking:
    """Replaces one sequence that a Loop carries."""

    def __init__(
        self,
        model: ir.Model,
        form: LoopForm,
        state: State,
        insert: ir.Node,
        names: Names,
        opset: int,
    ) -> None:
        self._form, self._state, self._names = form, state, names
        element = insert.inputs[1]
        assert element is not None
        self._element = element
        dtype = element.dtype or ir.DataType.FLOAT
        prefix = state.final.name or "sequence"
        self._writer = Writer(model.graph, names, opset, dtype, prefix)

    def apply(self, sizes: Mapping[str, Sizes]) -> None:
        dims = sizes[self._element.name or ""]
        form, name = self._form, self._names.fresh(f"{self._state.final.name}_stacked")
        whole = ir.Value(name=name, type=self._element.type)
        form.states.remove(self._state)
        form.stacked.append(Stacked(self._element, whole))
        readers = [reader for reader, _ in self._state.final.uses()]
        form.write(self._names)
        whole = form.stacked[-1].result
        for reader in dict.fromkeys(readers):
            result = self._read(reader, whole, dims)
            supersede(reader, [result], self._writer.nodes)
            self._writer.nodes.clear()

    def _read(self, reader: ir.Node, whole: ir.Value, dims: Sizes) -> ir.Value:
        """Write the result of `reader` for the sequence in terms of the stack `whole`."""
        attributes = Attributes(reader)
        if reader.op_type == "ConcatFromSequence":
            axis, is_new = attributes.int("axis"), attributes.int("new_axis", 0)
            attributes.finish()
            rank = len(dims) + (1 if is_new else 0)
            if not -rank <= axis < rank:
                raise attributes.refuse(f"attribute 'axis' is {axis} for tensors of rank {rank}")
            axis %= rank
            moved = self._move_first_axis(whole, len(dims), axis)
            return moved if is_new else self._merge_axes(moved, dims, axis)
        attributes.finish()
        if reader.op_type == "SequenceLength":
            shape = self._writer.op("Shape", [whole], "shape", dtype=ir.DataType.INT64)
            length = self._writer.take(shape, 0, 0, "length")
            assert isinstance(length, ir.Value)
            length.shape = ir.Shape([])
            return length
        position = reader.inputs[1]
        assert position is not None, describe(reader)
        return self._writer.op("Gather", [whole, position], "element", {"axis": 0})

    def _move_first_axis(self, whole: ir.Value, rank: int, axis: int) -> ir.Value:
        """`whole`, whose first axis goes before the other `rank` ones, with it at `axis`."""
        if axis == 0:
            return whole
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        return self._writer.op("Transpose", [whole], "moved", {"perm": order})

    def _merge_axes(self, moved: ir.Value, dims: Sizes, axis: int) -> ir.Value:
        """`moved` with its axes `axis` and `axis + 1` as one."""
        writer, behind = self._writer, dims[axis + 1 :]
        # Reshape copies a size written as 0 from the same position, and infers one written as -1.
        target = np.array([0] * axis + [-1], np.int64)
        if all(isinstance(size, int) and size > 0 for size in behind):
            known = np.concatenate([target, np.array(behind, np.int64)])
            return writer.op("Reshape", [moved, known], "merged")
        shape = writer.op("Shape", [moved], "shape", dtype=ir.DataType.INT64)
        bounds = (np.array([n], np.int64) for n in (axis + 2, len(dims) + 1))
        rest = writer.op("Slice", [shape, *bounds], "sizes", dtype=ir.DataType.INT64)
        sizes = writer.concat([target, rest], 0, "target")
        return writer.op("Reshape", [moved, sizes], "merged")
