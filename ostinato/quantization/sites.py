"""Find where a model multiplies by constant weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.definitions.recurrent_node import is_recurrent
from ostinato.graph.writer import Array
from ostinato.model.attributes import describe
from ostinato.model.graphs import is_standard, maker_of, nodes_of
from ostinato.model.values import constant_array, optional_input

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
INPUT_WEIGHTS, RECURRENT_WEIGHTS = 1, 2
"""The positions of W and R among the inputs of RNN, GRU and LSTM."""


Place: TypeAlias = "tuple[int, int, int, int]"
"""The first four fields of a `Site` behind the node."""

# The axes of a matrix that is turned.
_TURNED = 1, 0
# Scales of shorter rows of a table are as many bytes as its numbers.
_SHORTEST_ROW = 16


@dataclass(frozen=True)
class Site:
    """An operand of a node that is a constant matrix.

    position: of the weights among the inputs of `node`. axis: of the weights, along which products
    are summed; for a convolution the axis of input channels, for a table that of a row. other: the
    position of the operand that they are multiplied with. other_axis: the axis of it along which
    products are summed.
    weight, array: the initializer and its contents, also after the node reads another value.
    turn: the Transpose through which the node reads the weights, see `tied_transposes`.
    """

    node: ir.Node
    position: int
    axis: int
    other: int
    other_axis: int
    weight: ir.Value
    array: Array
    turn: ir.Node | None = None

    def read(self, value: ir.Value) -> None:
        """Let the node read `value` in place of the weights."""
        if self.turn is None:
            self.node.replace_input_with(self.position, value)
        else:
            self.turn.replace_input_with(0, value)

    @property
    def name(self) -> str:
        """The name of the node, with that of the operand where it has several."""
        name = describe(self.node)
        return f"{name}/{'WR'[self.position - 1]}" if self.is_recurrent else name

    @property
    def is_recurrent(self) -> bool:
        """Whether the node is an RNN, GRU or LSTM."""
        return is_recurrent(self.node)

    @property
    def is_convolution(self) -> bool:
        """Whether the sums also run over the taps of a kernel."""
        return self.node.op_type in ("Conv", "ConvTranspose")

    @property
    def is_table(self) -> bool:
        """Whether rows of the matrix are taken, and nothing is multiplied."""
        return self.node.op_type == "Gather"

    @property
    def is_left(self) -> bool:
        """Whether the weights are the first operand."""
        return self.position == 0

    @property
    def channel_axis(self) -> int | None:
        """The one axis that counts sums; None where several do."""
        shape = self.array.shape
        if self.is_convolution:
            return 1 - self.axis
        others = [i for i, n in enumerate(shape) if i != self.axis and (n != 1 or len(shape) == 2)]
        return others[0] if len(others) == 1 else None

    def rows(self, array: Array) -> Array:
        """Weights as `[groups, sums, terms of a sum]`."""
        if self.is_convolution:
            moved = np.moveaxis(array, self.axis, 1)
            return moved.reshape(1, len(moved), -1)
        moved = np.moveaxis(array, self.axis, -1)
        return moved.reshape(-1, *moved.shape[-2:])

    def restored(self, rows: Array) -> Array:
        """The inverse of `rows`; the last axis may have one element for each block of terms."""
        shape = list(self.array.shape)
        terms = shape.pop(self.axis)
        if self.is_convolution:
            kept = [shape[0], terms, *shape[1:]]
            return np.ascontiguousarray(np.moveaxis(rows.reshape(kept), 1, self.axis))
        return np.ascontiguousarray(
            np.moveaxis(rows.reshape(*shape, rows.shape[-1]), -1, self.axis)
        )

    @property
    def terms(self) -> int:
        """The number of products of a sum."""
        shape: tuple[int, ...] = self.array.shape
        if self.is_convolution:
            return math.prod(shape) // shape[1 - self.axis]
        return shape[self.axis]


def is_product(node: ir.Node) -> bool:
    """Whether the operator multiplies by matrices, or takes rows of one."""
    return node.domain == "" and node.op_type in _RULES


def tied_transposes(model: ir.Model) -> set[ir.Node]:
    """Nodes that turn a constant matrix for one product, where something else reads it as it is.

    So a language model computes scores with the table of its embedding. Folded, they would make it
    two tables, each with bytes, and in training with values, of its own.
    """
    found = set()
    for turn in map(_turn, nodes_of(model)):
        matrix = None if turn is None else turn.inputs[0]
        array = None if matrix is None else constant_array(matrix)
        if turn is None or matrix is None or array is None or array.ndim != 2:
            continue
        if tuple(turn.attributes.get_ints("perm", _TURNED)) != _TURNED:
            continue
        is_alone = len(turn.outputs[0].uses()) == 1 and not turn.outputs[0].is_graph_output()
        if is_alone and len(matrix.uses()) > 1:
            found.add(turn)
    return found


def find_sites(model: ir.Model) -> list[Site]:
    """Give every operand of a product, and every table, that is a constant, in the order of nodes.

    Matches MatMul, Gemm, Conv, ConvTranspose, RNN, GRU, LSTM, and Gather of rows of 16 numbers or
    more, in the main graph and in all bodies, with weights of type float32 or float16.
    One-dimensional operands are no matrix.
    """
    found = []
    tied = tied_transposes(model)
    for node in nodes_of(model):
        turn = _turn(node)
        if turn is not None and turn in tied:
            found += _sites(node, (1, 1, 0, -1), turn.inputs[0], turn)
            continue
        for place in _RULES[node.op_type](node) if is_product(node) else ():
            found += _sites(node, place, node.inputs[place[0]])
    return found


def _sites(
    node: ir.Node, place: Place, weight: ir.Value | None, turn: ir.Node | None = None
) -> list[Site]:
    array = None if weight is None else constant_array(weight)
    if weight is None or array is None or weight.dtype not in _FLOATS:
        return []
    is_matrix = array.ndim >= 2 and array.size > 0
    return [Site(node, *place, weight, array, turn)] if is_matrix else []


def _turn(node: ir.Node) -> ir.Node | None:
    """The Transpose that makes the right operand of a MatMul."""
    return maker_of(node.inputs[1], "Transpose") if is_standard(node, "MatMul") else None


def _mat_mul(node: ir.Node) -> Iterator[Place]:
    for position in (0, 1):
        array = constant_array(node.inputs[position])
        if array is not None and array.ndim >= 2:
            axis = array.ndim - (1 if position == 0 else 2)
            yield position, axis, 1 - position, (-2 if position == 0 else -1)
            return


def _gemm(node: ir.Node) -> Iterator[Place]:
    flipped = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
    for position in (0, 1):
        if constant_array(node.inputs[position]) is not None:
            axis = (1 - flipped[0]) if position == 0 else flipped[1]
            other = flipped[1] if position == 0 else 1 - flipped[0]
            yield position, axis, 1 - position, other - 2
            return


def _conv(node: ir.Node) -> Iterator[Place]:
    yield 1, (1 if node.op_type == "Conv" else 0), 0, 1


def _recurrent(node: ir.Node) -> Iterator[Place]:
    for position in (INPUT_WEIGHTS, RECURRENT_WEIGHTS):
        if optional_input(node, position) is not None:
            yield position, 2, 0, -1


def _gather(node: ir.Node) -> Iterator[Place]:
    table = constant_array(node.inputs[0])
    is_of_rows = table is not None and table.ndim == 2 and table.shape[1] >= _SHORTEST_ROW
    if is_of_rows and not node.attributes.get_int("axis", 0):
        yield 0, 1, 1, 0


_RULES: dict[str, Callable[[ir.Node], Iterator[Place]]] = {
    "MatMul": _mat_mul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "RNN": _recurrent,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "Gather": _gather,
}
