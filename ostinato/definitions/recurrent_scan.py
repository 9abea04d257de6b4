"""RNN, GRU and LSTM as a Scan for each direction, around a cell that writes one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.definitions.recurrent_cells import Parameters, Step, gru, lstm, rnn
from ostinato.definitions.recurrent_node import Recurrent
from ostinato.graph.writer import Operand, Writer
from ostinato.limits import MOST_STORED

# (node, writer, direction) -> the step of that direction, with its weights laid out
Cell: TypeAlias = Callable[[Recurrent, Writer, int], Step]


def write_recurrent(
    recurrent: Recurrent,
    writer: Writer,
    used: Sequence[str],
    clean_padding: bool = False,
    cell: Cell | None = None,
    together: bool = False,
) -> list[ir.Value]:
    """Write all directions; returns the values of the outputs `used`, by documented name.

    cell: in place of that of the operator. together: for cells that relate rows to each other: all
    rows begin in the first step, backward too, and the cell sees zeros as `h` of rows that ended.
    """
    initial = _initial_states(recurrent, writer)
    valid = _valid_steps(recurrent, writer)
    together = together and valid is not None
    made: dict[str, list[ir.Value]] = {name: [] for name in used}
    for d, direction in enumerate(recurrent.directions):
        part = writer.within(direction)
        step = (cell or _cell)(recurrent, part, d)
        results = _write_scan(
            recurrent, part, d, step, initial[d], valid, "Y" in used, clean_padding, together
        )
        writer.nodes.extend(part.nodes)
        for name in used:
            made[name].append(results[name])
    return [_join(recurrent, writer, name, made[name]) for name in used]


def _cell(recurrent: Recurrent, writer: Writer, d: int) -> Step:
    return step_of(recurrent, parameters_of(recurrent, writer, d))


def parameters_of(recurrent: Recurrent, writer: Writer, d: int) -> Parameters:
    """The parameters of direction `d`."""
    kind, h = recurrent.kind, recurrent.hidden_size
    w, r = direction_of(recurrent, writer, "W", d), direction_of(recurrent, writer, "R", d)
    assert w is not None and r is not None
    b = direction_of(recurrent, writer, "B", d)
    wb = rb = None
    if b is not None:
        rows = len(kind.gates) * h
        wb = writer.take(b, range(rows), 0, "Wb")
        rb = writer.take(b, range(rows, 2 * rows), 0, "Rb")
    p = direction_of(recurrent, writer, "P", d)
    return Parameters(
        writer, kind.gates, h, w, r, wb, rb, p, recurrent.activations[d], recurrent.clip
    )


def step_of(recurrent: Recurrent, parameters: Parameters) -> Step:
    """Lay out the weights of a direction and return the step that uses them."""
    if recurrent.node.op_type == "RNN":
        return rnn(parameters)
    if recurrent.node.op_type == "GRU":
        return gru(parameters, recurrent.linear_before_reset)
    return lstm(parameters, recurrent.input_forget)


def direction_of(
    recurrent: Recurrent, writer: Writer, name: str, d: int, axis: int = 0
) -> Operand | None:
    """Direction `d` of an input, without the axis of directions; None for an absent input."""
    whole = recurrent.operand(name)
    if whole is None:
        return None
    if len(recurrent.directions) == 1:
        return writer.squeeze(whole, axis, name)
    return writer.take(whole, d, axis, name)


def _initial_states(recurrent: Recurrent, writer: Writer) -> list[list[ir.Value]]:
    """The states before the first step, `[B, H]` each, for every direction; zero when absent."""
    zero: ir.Value | None = None
    states: list[list[ir.Value]] = []
    for d, direction in enumerate(recurrent.directions):
        states.append([])
        for letter in recurrent.kind.states:
            name = f"initial_{letter}"
            given = direction_of(recurrent, writer, name, d, recurrent.direction_axis)
            if given is None:
                zero = given = zero or _zero_state(recurrent, writer)
            elif isinstance(given, ir.Value) and not _has_rows_of_x(
                recurrent, name, 1 - recurrent.direction_axis
            ):
                # Rows of a state are never repeated: this refuses other numbers of them.
                shape = _state_shape(recurrent, writer)
                given = writer.op("Reshape", [given, shape], f"{direction}/{name}_rows")
            states[d].append(writer.value(given, f"{direction}/{name}"))
    return states


def _has_rows_of_x(recurrent: Recurrent, name: str, axis: int) -> bool:
    """Whether an input has one row for each sequence of X, by the names of their sizes."""
    value, x = recurrent.input(name), recurrent.x
    if value is None or value.shape is None or x.shape is None:
        return False
    rows = value.shape[axis]
    many = x.shape[recurrent.batch_axis]
    if isinstance(rows, int) or isinstance(many, int):
        return rows == many
    return rows.value is not None and rows.value == many.value


def _batch(recurrent: Recurrent, writer: Writer) -> Operand:
    """The number of sequences, `[B]`."""
    batch = recurrent.x_size(recurrent.batch_axis)
    if batch is not None:
        return np.array([batch], np.int64)
    return writer.size(recurrent.x, recurrent.batch_axis)


def _state_shape(recurrent: Recurrent, writer: Writer) -> Operand:
    """The sizes `[B, H]` of a state."""
    units = np.array([recurrent.hidden_size], np.int64)
    return writer.concat([_batch(recurrent, writer), units], 0, "state_shape")


def _zero_state(recurrent: Recurrent, writer: Writer) -> ir.Value:
    shape, zero = _state_shape(recurrent, writer), np.zeros(1, recurrent.dtype.numpy())
    if not isinstance(shape, ir.Value) and math.prod(shape.tolist()) <= MOST_STORED:
        return writer.value(np.zeros(shape, recurrent.dtype.numpy()), "zero_state")
    return writer.op("ConstantOfShape", [shape], "zero_state", {"value": ir.tensor(zero)})


def _valid_steps(recurrent: Recurrent, writer: Writer) -> ir.Value | None:
    """Mask of the steps that belong to a sequence: bool `[S, B, 1]`; None when all do."""
    if recurrent.sequence_lens is None:
        return None
    places = writer.positions(recurrent.x, recurrent.time_axis)
    lengths = recurrent.sequence_lens
    if not _has_rows_of_x(recurrent, "sequence_lens", 0):
        # Lengths are never repeated: this refuses other numbers of them.
        rows, dtype = _batch(recurrent, writer), ir.DataType.INT32
        lengths = writer.op("Reshape", [lengths, rows], "lengths_of_rows", dtype=dtype)
    if isinstance(lengths, ir.Value):
        lengths = _checked_lengths(recurrent, writer, lengths, places)
    else:
        lengths = lengths.astype(np.int64)
    steps = writer.unsqueeze(places, (1, 2), "step")
    lengths = writer.unsqueeze(lengths, (1,), "lengths")
    if isinstance(steps, ir.Value) or isinstance(lengths, ir.Value):
        return writer.op("Less", [steps, lengths], "valid", dtype=ir.DataType.BOOL)
    return writer.value(np.less(steps, lengths), "valid")


def _checked_lengths(
    recurrent: Recurrent, writer: Writer, lengths: ir.Value, places: Operand
) -> ir.Value:
    """The lengths as int64, picked from 0 .. S: a Gather refuses those that are out of range."""
    index = ir.DataType.INT64
    wide = writer.op("Cast", [lengths], "lengths", {"to": index.value}, index)
    if isinstance(places, ir.Value):
        longest = writer.size(recurrent.x, recurrent.time_axis)
        known = writer.concat([places, longest], 0, "possible_lengths")
    else:
        known = np.arange(places.size + 1)
    # A Gather would count from the end.
    zero, beyond = np.zeros(1, np.int64), np.full(1, np.iinfo(np.int64).max)
    negative = writer.op("Less", [wide, zero], "negative", dtype=ir.DataType.BOOL)
    wanted = writer.op("Where", [negative, beyond, wide], "wanted", dtype=index)
    return writer.op("Gather", [known, wanted], "sequence_lens", dtype=index)


def _write_scan(
    recurrent: Recurrent,
    writer: Writer,
    d: int,
    step: Step,
    initial: Sequence[ir.Value],
    valid: ir.Value | None,
    with_sequence: bool,
    clean_padding: bool,
    together: bool,
) -> dict[str, ir.Value]:
    """Write the Scan of direction `d`; returns its results by the documented output names.

    Time runs over the padding too, and a row's state stays what it is there: that is the reverse
    of a row's own steps when Scan runs from the end, and it reads nothing that was padded.
    """
    body = _body(recurrent, writer, step, valid is not None, with_sequence, clean_padding, together)
    direction, x = recurrent.directions[d], recurrent.x
    is_turned = together and direction == "reverse"
    if is_turned:
        direction, x = "forward", _turned(recurrent, writer, x, "x_turned")
    scanned = [x, *([] if valid is None else [valid])]
    roles = [*recurrent.kind.outputs[1:], *["h_seen"] * together, *["Y"] * with_sequence]
    outputs = writer.ops(
        "Scan",
        [*initial, *[initial[0]] * together, *scanned],
        roles,
        _scan_attributes(recurrent, direction, body, len(scanned), with_sequence),
    )
    found = dict(zip(roles, outputs, strict=True))
    if is_turned and with_sequence:
        found["Y"] = _turned(recurrent, writer, found["Y"], "Y_turned")
    return found


def _body(
    recurrent: Recurrent,
    writer: Writer,
    step: Step,
    is_ragged: bool,
    with_sequence: bool,
    clean_padding: bool,
    together: bool,
) -> ir.Graph:
    """One step of all rows; that of a row that has ended changes nothing but what is seen of it."""
    batch, h = recurrent.x_size(recurrent.batch_axis), recurrent.hidden_size
    body, letters = writer.within("body"), recurrent.kind.states
    states = [body.declare(letter, [batch, h]) for letter in letters]
    read, inputs = [*states], [*states]
    if together:
        read[0] = body.declare("h_seen", [batch, h])
        inputs.append(read[0])
    x = body.declare("x", [batch, recurrent.x_size(2)])
    inputs.append(x)
    if is_ragged:
        now = body.declare("valid", [batch, 1], ir.DataType.BOOL)
        inputs.append(now)
        if clean_padding:
            x = body.op("Where", [now, x, body.scalar(0.0)], "x_clean")
    results = list(step(body, x, tuple(read)))
    sequence = results[0]
    if is_ragged:
        results = [
            body.op("Where", [now, new, old], f"{letter}_next")
            for letter, new, old in zip(letters, results, states, strict=True)
        ]
        results += [
            body.op("Where", [now, sequence, body.scalar(0.0)], role)
            for role in [*["h_seen_next"] * together, *["y"] * with_sequence]
        ]
    elif with_sequence:
        results.append(body.op("Identity", [sequence], "y"))
    for result in results:
        result.shape = ir.Shape([batch, h])
    return ir.Graph(inputs, results, nodes=body.nodes, name=writer.name("body"))


def _turned(recurrent: Recurrent, writer: Writer, x: ir.Value, role: str) -> ir.Value:
    """The steps of each row backward, and those behind its end as they are."""
    index, lengths = ir.DataType.INT64, recurrent.sequence_lens
    if isinstance(lengths, ir.Value):
        lengths = writer.op("Cast", [lengths], "lengths", {"to": index.value}, index)
    else:
        assert lengths is not None
        lengths = lengths.astype(np.int64)
    axes = {"time_axis": recurrent.time_axis, "batch_axis": recurrent.batch_axis}
    turned = writer.op("ReverseSequence", [x, lengths], role, axes)
    turned.shape = x.shape
    return turned


def _scan_attributes(
    recurrent: Recurrent, direction: str, body: ir.Graph, scanned: int, with_sequence: bool
) -> dict[str, ir.Graph | int | list[int]]:
    attributes: dict[str, ir.Graph | int | list[int]] = {"body": body, "num_scan_inputs": scanned}
    if direction == "reverse":
        attributes["scan_input_directions"] = [1] * scanned
        if with_sequence:
            attributes["scan_output_directions"] = [1]
    if recurrent.time_axis:
        # Only X follows the layout: the marks of valid steps are made [S, B, 1] in either.
        attributes["scan_input_axes"] = [recurrent.time_axis, 0][:scanned]
        if with_sequence:
            attributes["scan_output_axes"] = [recurrent.time_axis]
    return attributes


def _join(recurrent: Recurrent, writer: Writer, name: str, parts: Sequence[ir.Value]) -> ir.Value:
    """The output `name` from the results of every direction, side by side on a new axis."""
    axis = recurrent.direction_axis
    shape = [recurrent.x_size(recurrent.batch_axis), recurrent.hidden_size]
    if name == "Y":
        axis += 1
        shape.insert(recurrent.time_axis, recurrent.x_size(recurrent.time_axis))
    shape.insert(axis, len(recurrent.directions))
    joined = writer.concat([writer.unsqueeze(part, (axis,), name) for part in parts], axis, name)
    assert isinstance(joined, ir.Value)
    joined.shape = ir.Shape(shape)
    return joined
