"""Rows of a constant of a narrow type are gathered first, and widened then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.graphs import graphs, is_standard
from ostinato.model.names import Names
from ostinato.model.schema import opset_of, schema_of
from ostinato.model.types import known_type
from ostinato.model.values import constant_array, optional_input, static_dims
from ostinato.records import dataclass

INT32, FLOAT = ir.DataType.INT32, ir.DataType.FLOAT
_WHOLE = (np.int8, np.uint8, np.int16, np.uint16)


@dataclass(frozen=True)
class _Rows:
    """A Gather: positions, their rank, the axis, and its writer."""

    indices: ir.Value
    rank: int
    axis: int
    writer: Writer

    def of(self, table: Operand, role: str, dtype: ir.DataType | None) -> ir.Value:
        """The rows of a table."""
        attributes = {"axis": self.axis}
        return self.writer.op("Gather", [table, self.indices], role, attributes, dtype)

    def moved(self, axis: int) -> int:
        """The place of another axis of the table in the rows."""
        return axis + (self.rank - 1 if axis > self.axis else 0)


def gather_first(model: ir.Model) -> int:
    """Move a Gather in front of what widens its constant; returns how many moved.

    Matches `Gather(DequantizeLinear(q, s, z), i)` and `Gather(Cast(q), i)` of constants, in loops
    too. Makes `DequantizeLinear(Gather(q, i), ..)`, or what it stands for where each row has a
    scale of its own: `float(Gather(q, i) - Gather(z, i)) * Gather(s, i)`. Valid because both
    compute the same of each element, and fail for the same positions; an embedding then dequantises
    the rows that it takes, not its table. Where there are more positions than rows it stays.
    """
    opset, names, moved = opset_of(model), Names(model), 0
    for graph in graphs(model):
        for node in list(graph):
            if not is_standard(node, "Gather") or None in node.inputs:
                continue
            table, indices = node.inputs
            assert table is not None and indices is not None
            widening = table.producer()
            source = None if widening is None else _source(widening, opset)
            dims = static_dims(indices)
            if widening is None or source is None or dims is None:
                continue
            axis = node.attributes.get_int("axis", 0)
            known = [size for size in dims if size is not None]
            if not -source.ndim <= axis < source.ndim:
                continue
            axis %= source.ndim
            if len(known) == len(dims) and np.prod(known) > source.shape[axis]:
                continue
            writer = Writer(model.graph, names, opset, FLOAT, node.name or "Gather")
            rows = _Rows(indices, len(dims), axis, writer)
            new = _cast(widening, rows) if widening.op_type == "Cast" else None
            if widening.op_type == "DequantizeLinear":
                new = _dequantised(widening, source, rows)
            if new is None:
                continue
            old = node.outputs[0]
            new.type, new.shape = old.type, old.shape
            supersede(node, [new], writer.nodes)
            moved += 1
    return moved


def _source(widening: ir.Node, opset: int) -> Array | None:
    """The constant that a node makes wider elements of, if it does; a Gather may read it."""
    if widening.domain or widening.op_type not in ("Cast", "DequantizeLinear"):
        return None
    # It takes no floats of 8 bits and no integers of 4.
    schema, kind = schema_of("Gather", "", opset), known_type(widening.inputs[0])
    if schema is None or kind not in schema.inputs[0].types:
        return None
    operands = [constant_array(value) for value in widening.inputs if value is not None]
    source, result = operands[0], widening.outputs[0].dtype
    if source is None or any(a is None for a in operands) or result is None or source.ndim == 0:
        return None
    return source if source.dtype.itemsize < result.itemsize else None


def _cast(widening: ir.Node, rows: _Rows) -> ir.Value:
    table = widening.inputs[0]
    assert table is not None
    return _again(widening, [rows.of(table, "rows", table.dtype)], rows, {})


def _dequantised(widening: ir.Node, source: Array, rows: _Rows) -> ir.Value | None:
    """The rows, dequantised; None where scales are cut by the axis of the Gather."""
    table, scale, *_ = widening.inputs
    point = optional_input(widening, 2)
    assert table is not None and scale is not None
    scales = constant_array(scale)
    axis = widening.attributes.get_int("axis", 1)
    block = widening.attributes.get_int("block_size", 0)
    assert scales is not None
    if scales.shape in ((), (1,)) and not block:
        taken = rows.of(table, "rows", table.dtype)
        return _again(widening, [taken, scale, *([point] if point else [])], rows, {})
    if not -source.ndim <= axis < source.ndim:
        return None
    axis %= source.ndim
    if block:
        if axis == rows.axis or scales.ndim != source.ndim:
            return None
        given = [table, scale, *([point] if point else [])]
        taken_all = [rows.of(value, "rows", value.dtype) for value in given]
        return _again(widening, taken_all, rows, {"axis": rows.moved(axis)})
    if axis != rows.axis:
        taken = rows.of(table, "rows", table.dtype)
        given = [taken, scale, *([point] if point else [])]
        return _again(widening, given, rows, {"axis": rows.moved(axis)})
    return _scaled(source, [table, scale, point], rows)


def _scaled(source: Array, operands: Sequence[ir.Value | None], rows: _Rows) -> ir.Value | None:
    """The rows, each with a scale of its own, by what the document of DequantizeLinear says."""
    table, scale, point = operands
    scales, points = constant_array(scale), constant_array(point)
    shape = [-1 if i == rows.axis else 1 for i in range(source.ndim)]
    if scales is None or scales.dtype != np.float32 or source.dtype not in _WHOLE or table is None:
        return None
    if scales.shape != (source.shape[rows.axis],):
        return None
    writer = rows.writer
    number = writer.op("Cast", [rows.of(table, "rows", table.dtype)], "wide", {"to": INT32}, INT32)
    if points is not None and points.any():
        if points.shape != scales.shape:
            return None
        zero = rows.of(points.astype(np.int32).reshape(shape), "points", INT32)
        number = writer.op("Sub", [number, zero], "less", dtype=INT32)
    wide = writer.op("Cast", [number], "float", {"to": FLOAT})
    return writer.op("Mul", [wide, rows.of(scales.reshape(shape), "scales", FLOAT)], "scaled")


def _again(
    widening: ir.Node, operands: Sequence[Operand], rows: _Rows, changed: dict[str, int]
) -> ir.Value:
    """The node on other operands, with some attributes changed."""
    own = [a for a in widening.attributes.values() if a.name not in changed]
    added = [ir.AttrInt64(name, value) for name, value in changed.items()]
    result = rows.writer.declare("widened", None, widening.outputs[0].dtype)
    rows.writer.node(widening.op_type, operands, [result], [*own, *added])
    return result
