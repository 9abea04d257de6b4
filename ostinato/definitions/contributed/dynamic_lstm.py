"""LSTM with 8-bit weights, whose inputs and states are quantised over their range in every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT64, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.products import dynamically_quantized, integer_product
from ostinato.definitions.contributed.tables import microsoft
from ostinato.definitions.recurrent_cells import Parameters, Step, lstm
from ostinato.definitions.recurrent_node import Recurrent, read_recurrent
from ostinato.definitions.recurrent_scan import direction_of, write_recurrent
from ostinato.graph.writer import Array, Writer
from ostinato.model.attributes import describe
from ostinato.records import dataclass


@dataclass(frozen=True)
class _Bytes(Parameters):
    """What onnxruntime's kernel computes; so its `clip` bounds gates, not the cell that `h` sees.

    x_scale, x_point: of the whole input, which the steps read as whole numbers.

    scales, points: of the weights that `x` and `h` are multiplied with.
    """

    x_scale: ir.Value
    x_point: ir.Value
    scales: dict[str, Array]
    points: dict[str, Array]

    def product(self, body: Writer, x: ir.Value, weights: ir.Value, role: str) -> ir.Value:
        """Write a product of bytes; `x` is the quantised input, or the state."""
        if role == "xw":
            kind = ir.DataType.UINT8
            data = body.op("Cast", [x], "x_bytes", {"to": int(kind)}, kind)
            scale, point = self.x_scale, self.x_point
        else:
            data, scale, point = dynamically_quantized(body, x)
        whole = body.op("Mul", [scale, self.scales[role]], f"{role}_scale")
        return integer_product(body, data, weights, (point, self.points[role]), whole)

    def activate(self, body: Writer, which: int, x: ir.Value, role: str) -> ir.Value:
        """Write an activation; that of the cell is not bounded."""
        if which == 2:
            return self.activations[which].write(body, x, role)
        return super().activate(body, which, x, role)


# Products of a step, and the weights of each.
_ROLES = (("xw", "W"), ("hr", "R"))


@microsoft.register("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(call: Call) -> Sequence[Maybe]:
    """LSTM whose weights `[directions, inputs, 4 * hidden]` have a scale each, or one a column.

    Raises `ShapeError` for weights of another rank, and scales and zero points of another shape.
    """
    w, r = _constant(call, "W"), _constant(call, "R")
    for name, array in (("W", w), ("R", r)):
        if array.ndim != 3:
            raise call.wrong_shape(name, array, "[directions, inputs, 4 * hidden]")
    scales = {role: _of_columns(call, f"{n}_scale", w) for role, n in _ROLES}
    points = {role: _of_columns(call, f"{n}_zero_point", w) for role, n in _ROLES}
    call.refuse_unless("input_forget", 0)
    data, x_scale, x_point = dynamically_quantized(call.writer, _within_rows(call))
    x = call.shaped(call.cast(data, FLOAT), *call.dims(call["X"]))
    node = _plain(call, x, w, r)

    def cell(recurrent: Recurrent, writer: Writer, d: int) -> Step:
        rows, bias = 4 * recurrent.hidden_size, direction_of(recurrent, writer, "B", d)
        wb = None if bias is None else writer.take(bias, range(rows), 0, "Wb")
        rb = None if bias is None else writer.take(bias, range(rows, 2 * rows), 0, "Rb")
        parameters = _Bytes(
            writer,
            recurrent.kind.gates,
            recurrent.hidden_size,
            np.ascontiguousarray(w[d].T),
            np.ascontiguousarray(r[d].T),
            wb,
            rb,
            direction_of(recurrent, writer, "P", d),
            recurrent.activations[d],
            recurrent.clip,
            x_scale,
            x_point,
            {role: np.asarray(array[d]) for role, array in scales.items()},
            {role: np.asarray(array[d]) for role, array in points.items()},
        )
        return lstm(parameters, input_forget=False)

    recurrent = read_recurrent(node, call.writer.opset)
    names = ("Y", "Y_h", "Y_c")
    used = [name for i, name in enumerate(names) if call.wanted(i)]
    written = write_recurrent(recurrent, call.writer, used, cell=cell, together=True)
    made = dict(zip(used, written, strict=True))
    for position in range(len(node.inputs)):
        node.replace_input_with(position, None)
    return [made.get(name) for name in names]


def _within_rows(call: Call) -> ir.Value:
    """X with zeros behind the end of the longest row, which do not count for its range."""
    x, lengths, writer = call["X"], call.input("sequence_lens"), call.writer
    if lengths is None:
        return x
    longest = call.cast(call.reduce("ReduceMax", lengths, [0], keepdims=True), INT64)
    known = writer.op("Less", [writer.positions(x, 0), longest], "known", dtype=ir.DataType.BOOL)
    return call.op("Where", writer.unsqueeze(known, (1, 2), "known"), x, call.number(0.0, x))


def _constant(call: Call, name: str) -> Array:
    array = call.constant(name)
    if array is None:
        raise call.refuse(f"input {name!r} is no constant")
    return array


def _of_columns(call: Call, name: str, weights: Array) -> Array:
    """Scales or zero points `[directions]` or `[directions, 4 * hidden]`."""
    array, (directions, _, columns) = _constant(call, name), weights.shape
    if array.shape not in ((directions,), (directions, columns)):
        raise call.wrong_shape(name, array, f"[{directions}] or [{directions}, {columns}]")
    return array


def _plain(call: Call, x: ir.Value, w: Array, r: Array) -> ir.Node:
    """An LSTM of the standard with these attributes, for those who read and check such a node."""
    inputs: list[Maybe] = [x]
    for name, array in (("W", w), ("R", r)):
        shape = np.swapaxes(array, 1, 2).shape
        zeros = ir.tensor(np.broadcast_to(np.float32(0), shape))
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(FLOAT))
        value.const_value = zeros
        inputs.append(value)
    rest = ("B", "sequence_lens", "initial_h", "initial_c", "P")
    inputs += [call.input(name) for name in rest]
    attributes = list(call.node.attributes.values())
    for name in ("activation_alpha", "activation_beta", "activations", "clip", "direction"):
        call.attribute(name)
    call.attribute("hidden_size")
    return ir.Node("", "LSTM", inputs, attributes, num_outputs=3, name=describe(call.node))
