"""Readers of pieces of a tensor that was split into a sequence read the tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.writer import Operand, Writer
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, constant_scalar, optional_input

# Squeeze takes its axes as an input since this version.
_OPSET = 13
_READERS = ("SequenceAt", "SequenceLength", "ConcatFromSequence")
_INT64 = ir.DataType.INT64


def split_to_slice(model: ir.Model) -> int:
    """Replace readers of a SplitToSequence by what they read of the tensor; returns how many.

    Matches `SequenceAt(SplitToSequence(x, split, axis, keepdims), i)` with constant `split`, which
    may be absent, and `i`, of an axis whose size is known. Makes `Slice(x)`, and a Squeeze where
    pieces of one row lose the axis. Where only a run tells `i` or the size, rows are taken by a
    Gather. Where it tells the single number `split`, or pieces may differ, it computes where the
    piece begins. It makes the number of pieces of SequenceLength, and `x` of a ConcatFromSequence
    along the axis. Valid because that is what the piece is; what is out of range stays, or is
    refused by a Gather of the positions.
    """
    opset = opset_of(model)
    nodes = [
        (node, maker)
        for node in nodes_of(model)
        if node.op_type in _READERS and (maker := _split(node)) is not None
    ]
    if opset < _OPSET or not nodes:
        return 0
    sizes, names, replaced = infer_sizes(model), Names(model), 0
    for node, maker in nodes:
        source = maker.inputs[0]
        if source is None:
            continue
        prefix = node.name or str(node.outputs[0].name)
        writer = Writer(model.graph, names, opset, source.dtype or ir.DataType.FLOAT, prefix)
        size = sizes.get(str(source.name))
        position = constant_scalar(node.inputs[1]) if node.op_type == "SequenceAt" else None
        piece = None if position is None else _piece(maker, position, size)
        if piece is not None:
            assert size is not None
            result: ir.Value | None = _known(writer, maker, source, piece, _axis(maker, size))
        elif _is_of_rows(maker):
            result = _Rows(writer, maker, source, sizes).read(node)
        else:
            result = _Pieces(writer, maker, source, sizes).read(node)
        if result is None:
            continue
        supersede(node, [result], writer.nodes)
        replaced += 1
    return replaced


def _known(
    writer: Writer, maker: ir.Node, source: ir.Value, piece: tuple[int, int], axis: int
) -> ir.Value:
    begin, end = (np.array([place]) for place in piece)
    result = writer.op("Slice", [source, begin, end, np.array([axis])], "piece")
    if len(maker.inputs) < 2 and not maker.attributes.get_int("keepdims", 1):
        result = writer.op("Squeeze", [result, np.array([axis])], "row")
    return result


def _is_of_rows(maker: ir.Node) -> bool:
    """Whether each piece is one row: by default, by one number or by a vector of ones."""
    split = optional_input(maker, 1)
    numbers = constant_array(split)
    if split is None or numbers is not None:
        return numbers is None or (numbers.size > 0 and bool((numbers == 1).all()))
    return _ones(maker) is not None


def _ones(maker: ir.Node) -> ir.Value | None:
    """The vector of ones that tells how an axis is split; its length is then that of the axis."""
    split = optional_input(maker, 1)
    numbers = constant_array(split)
    if numbers is not None:
        return split if numbers.ndim == 1 and (numbers == 1).all() else None
    filler = maker_of(split, "ConstantOfShape")
    if split is None or filler is None:
        return None
    fill = filler.attributes.get("value")
    is_vector = split.shape is not None and len(split.shape) == 1
    return split if is_vector and fill is not None and fill.as_tensor().numpy() == 1 else None


class _Rows:
    """Pieces of one row each."""

    def __init__(
        self, writer: Writer, maker: ir.Node, source: ir.Value, sizes: Mapping[str, Sizes]
    ) -> None:
        self._writer, self._source, self._sizes = writer, source, sizes
        self._axis, self._ones = maker.attributes.get_int("axis", 0), _ones(maker)
        has_split = optional_input(maker, 1) is not None
        self._keeps = has_split or bool(maker.attributes.get_int("keepdims", 1))

    def read(self, node: ir.Node) -> ir.Value | None:
        """The value that a node reads of the rows; None for other nodes."""
        whole = self._sizes.get(str(self._source.name))
        if whole is None or not -len(whole) <= self._axis < len(whole):
            return None
        axis, writer = self._axis % len(whole), self._writer
        if self._ones is not None:
            self._source = self._checked(axis, len(whole), self._ones)
        if node.op_type == "SequenceLength":
            return writer.squeeze(writer.size(self._source, axis), 0, "count")
        if node.op_type == "SequenceAt":
            position = node.inputs[1]
            is_there = constant_array(position) is None or not isinstance(whole[axis], int)
            # A piece that is not there in that case is none.
            return self._row(position, axis) if position is not None and is_there else None
        is_new, place = node.attributes.get_int("new_axis", 0), node.attributes.get_int("axis", 0)
        is_whole = place in (axis, axis - len(whole)) and bool(is_new) != self._keeps
        return writer.copy(self._source) if is_whole else None

    def _checked(self, axis: int, rank: int, ones: ir.Value) -> ir.Value:
        """The tensor, which fails if it has not as many rows as there are ones."""
        writer = self._writer.within("rows")
        sizes = [writer.size(self._source, place) for place in range(rank)]
        sizes[axis] = writer.op("Shape", [ones], "count", dtype=_INT64)
        shape = writer.concat(sizes, 0, "shape")
        strict = {"allowzero": 1} if writer.opset >= 14 else None
        result = writer.op("Reshape", [self._source, shape], "checked", strict)
        self._writer.nodes += writer.nodes
        return result

    def _row(self, position: ir.Value, axis: int) -> ir.Value:
        writer = self._writer
        if self._sizes.get(str(position.name)) != ():
            scalar = np.zeros(0, np.int64)
            position = writer.op("Reshape", [position, scalar], "position", dtype=position.dtype)
        row = writer.op("Gather", [self._source, position], "row", {"axis": axis})
        return writer.unsqueeze(row, [axis], "piece") if self._keeps else row


class _Pieces:
    """Pieces of one size, but for the last, of which only a run tells how many there are."""

    def __init__(
        self, writer: Writer, maker: ir.Node, source: ir.Value, sizes: Mapping[str, Sizes]
    ) -> None:
        self._writer, self._source = writer, source
        self._axis = maker.attributes.get_int("axis", 0)
        self._whole = sizes.get(str(source.name))
        split = optional_input(maker, 1)
        number = None if split is None else constant_array(split)
        # One number for all pieces.
        self._length: Operand | None = None
        if number is not None:
            self._length = number.astype(np.int64) if number.ndim == 0 and number > 1 else None
        elif split is not None and sizes.get(str(split.name)) == ():
            self._length = writer.op("Cast", [split], "length", {"to": _INT64}, _INT64)

    def read(self, node: ir.Node) -> ir.Value | None:
        """The value that a node reads of the pieces; None for other nodes."""
        length = self._length
        if length is None or self._whole is None or self._is_even(self._whole, length):
            return None
        if not -len(self._whole) <= self._axis < len(self._whole):
            return None
        if node.op_type == "SequenceLength":
            return self._count(length)
        if node.op_type == "SequenceAt":
            position = node.inputs[1]
            is_known = isinstance(self._whole[self._axis], int) and isinstance(length, np.ndarray)
            # A piece that is not there in that case is none.
            if position is None or (is_known and constant_array(position) is not None):
                return None
            return self._piece(position, length)
        is_new, axis = node.attributes.get_int("new_axis", 0), node.attributes.get_int("axis", 0)
        return None if is_new or axis != self._axis else self._writer.copy(self._source)

    def _is_even(self, whole: Sizes, length: Operand) -> bool:
        """Whether all pieces are known to have one size, so that they are rows of one tensor."""
        size = whole[self._axis % len(whole)] if whole else None
        return isinstance(length, np.ndarray) and isinstance(size, int) and size % length == 0

    def _count(self, length: Operand) -> ir.Value:
        writer = self._writer.within("pieces")
        shape = writer.op("Shape", [self._source], "shape", dtype=_INT64)
        whole = writer.op("Gather", [shape, np.array(self._axis)], "whole", dtype=_INT64)
        minus = np.array(-1)
        most = writer.op("Add", [whole, length], "most", dtype=_INT64)
        most = writer.op("Add", [most, minus], "most", dtype=_INT64)
        count = writer.op("Div", [most, length], "count", dtype=_INT64)
        self._writer.nodes += writer.nodes
        return count

    def _piece(self, position: ir.Value, length: Operand) -> ir.Value:
        count, writer = self._count(length), self._writer
        every = writer.op("Range", [np.array(0), count, np.array(1)], "places", dtype=_INT64)
        one = writer.op("Reshape", [position, np.array([1])], "position", dtype=position.dtype)
        # It fails for a position that is out of range, and counts negative ones from the end.
        place = writer.op("Gather", [every, one], "place", dtype=_INT64)
        begin = writer.op("Mul", [place, length], "begin", dtype=_INT64)
        end = writer.op("Add", [begin, length], "end", dtype=_INT64)
        axes = np.array([self._axis])
        return writer.op("Slice", [self._source, begin, end, axes], "piece")


def _split(node: ir.Node) -> ir.Node | None:
    """The node that makes the sequence that another one reads, if it splits a tensor."""
    sequence = node.inputs[0]
    return None if node.domain else maker_of(sequence, "SplitToSequence")


def _axis(maker: ir.Node, size: Sizes) -> int:
    return maker.attributes.get_int("axis", 0) % len(size)


def _piece(maker: ir.Node, position: int, size: Sizes | None) -> tuple[int, int] | None:
    """The begin and end of a piece; None where these are unknown, or it does not exist."""
    axis = maker.attributes.get_int("axis", 0)
    if not size or not -len(size) <= axis < len(size):
        return None
    whole = size[axis]
    split = constant_array(maker.inputs[1]) if len(maker.inputs) > 1 else np.array(1)
    if not isinstance(whole, int) or split is None or np.any(split <= 0):
        return None
    if split.ndim:
        ends = np.cumsum(split)
    else:
        ends = np.minimum(np.arange(int(split), whole + int(split), int(split)), whole)
    if not len(ends) or ends[-1] != whole or not -len(ends) <= position < len(ends):
        return None
    place = position % len(ends)
    return int(ends[place - 1]) if place else 0, int(ends[place])
