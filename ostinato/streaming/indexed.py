"""Tables of frames by frames that follow from the numbers of the frames alone.

A bias `-slope * (i - j)`, a decay `gamma ** (i - j)`, a bucket of distances: the given model makes
them for all frames by all frames, from Range and arithmetic. A step needs the rows of its own
frames, and the columns of those that are kept. So the nodes are written once more, from the result
back: an axis of the result is one of rows or of columns, and a Range that lies along it becomes the
numbers of these frames. Every element is computed as in the given model, and has its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Array, Operand
from ostinato.model.values import constant_array, filled, optional_input
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Sizes

Roles: TypeAlias = "tuple[ir.Value | None, ...]"
"""For each axis of a value: the numbers of the frames along it; None where it has none."""


class Indexed:
    """Writes such values for the frames `rows` and `columns`, int64 vectors of their numbers."""

    def __init__(self, context: Context, rows: ir.Value, columns: ir.Value) -> None:
        self._context, self._writer = context, context.writer
        self._rows, self._columns = rows, columns
        self._facts = context.converter.facts_by_name()
        self._written: dict[tuple[str, Roles], ir.Value] = {}

    def table(self, name: str, rank: int) -> ir.Value:
        """The value `name` of the given model, whose last axes are rows and columns."""
        return self._write(name, (*[None] * (rank - 2), self._rows, self._columns)[-rank:])

    def _write(self, name: str, roles: Roles) -> ir.Value:
        if (name, roles) not in self._written:
            self._written[name, roles] = self._writer.value(self._made(name, roles), "table")
        return self._written[name, roles]

    def _made(self, name: str, roles: Roles) -> Operand:
        array = self._constant(name)
        if array is not None:
            sizes = array.shape[len(array.shape) - len(roles) :]
            if any(role is not None and n != 1 for role, n in zip(roles, sizes, strict=False)):
                raise self._refuse(f"{name!r} is a constant with an element for each frame")
            return array
        node = self._context.converter.lengths.maker(name)
        if node is None:
            raise self._refuse(f"{name!r} is not computed from the numbers of frames")
        rule = _RULES.get(node.op_type)
        if rule is None and facts_of(node.op_type).elementwise:
            rule = Indexed._elementwise
        if rule is None:
            raise self._refuse(f"{node.op_type} {node.name!r} computes {name!r}")
        return rule(self, node, roles)

    def _refuse(self, reason: str) -> UnsupportedError:
        return self._context.refuse(
            f"its table of frames by frames cannot be computed frame by frame: {reason}. Compute "
            "it from arange over the frames by operators of single elements"
        )

    def _constant(self, name: str) -> Array | None:
        """The elements of a value that is the same for all lengths, where they are known."""
        fact, maker = self._facts.get(name), self._context.converter.lengths.maker(name)
        known = fact.contents if isinstance(fact, Sizes) else None
        if known is not None:
            dtype = None if maker is None else maker.outputs[0].dtype
            return known if dtype is None else known.astype(dtype.numpy())
        if maker is None:
            return self._context.converter.lengths.constant(name)
        return constant_array(maker.outputs[0])

    def _number(self, node: ir.Node, index: int, default: int | None = None) -> int:
        """Input `index` as a whole number, whatever its type."""
        array = self._input(node, index)
        if array is None and default is not None and len(node.inputs) <= index:
            return default
        if array is None or array.size != 1 or array.item() % 1:
            raise self._refuse(f"input {index} of {node.op_type} {node.name!r} is no whole number")
        return int(array.item())

    def _input(self, node: ir.Node, index: int) -> Array | None:
        value = optional_input(node, index)
        return None if value is None else self._constant(str(value.name))

    def _rank(self, value: ir.Value) -> int:
        dims = self._context.converter.sizes.get(str(value.name))
        array = self._constant(str(value.name))
        if dims is None and array is None:
            raise self._refuse(f"the rank of {value.name!r} is not known")
        return len(dims or ()) if array is None else array.ndim

    def _axes(self, node: ir.Node) -> list[int]:
        array = self._input(node, 1)
        axes = [*node.attributes.get_ints("axes", ())] if array is None else array.reshape(-1)
        return [int(axis) for axis in axes]

    def _again(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value:
        """The node once more, over other operands."""
        (old,) = node.outputs
        new = ir.Value(name=self._writer.name("table"), type=old.type)
        attributes = list(node.attributes.values())
        name = self._writer.name(node.op_type)
        self._writer.nodes.append(
            ir.Node("", node.op_type, inputs, attributes, outputs=[new], name=name)
        )
        return new

    def _settings(self, node: ir.Node, first: ir.Value) -> ir.Value:
        """The node over `first` and its constant other operands."""
        others = [None if v is None else self._write(str(v.name), ()) for v in node.inputs[1:]]
        return self._again(node, [first, *others])

    def _elementwise(self, node: ir.Node, roles: Roles) -> Operand:
        inputs = [
            None
            if value is None
            else self._write(str(value.name), roles[len(roles) - self._rank(value) :])
            for value in node.inputs
        ]
        return self._again(node, inputs)

    def _range(self, node: ir.Node, roles: Roles) -> Operand:
        (numbers,) = roles
        dtype = node.outputs[0].dtype
        if numbers is None or dtype is None:
            raise self._refuse(f"Range {node.name!r} does not count its rows or columns")
        start, step = self._number(node, 0), self._number(node, 2)
        for op_type, number, neutral in (("Mul", step, 1), ("Add", start, 0)):
            if number != neutral:
                operands: list[Operand] = [numbers, np.array(number, np.int64)]
                numbers = self._writer.op(op_type, operands, "numbers", dtype=ir.DataType.INT64)
        if dtype is ir.DataType.INT64:
            return numbers
        return self._writer.op("Cast", [numbers], "numbers", {"to": int(dtype)}, dtype)

    def _constant_of_shape(self, node: ir.Node, roles: Roles) -> Operand:
        value = node.attributes.get("value")
        number = np.zeros(1, np.float32) if value is None else value.as_tensor().numpy()
        return np.reshape(number, [1] * len(roles))

    def _expand(self, node: ir.Node, roles: Roles) -> Operand:
        source = node.inputs[0]
        assert source is not None
        extra = len(roles) - self._rank(source)
        value = self._write(str(source.name), roles[extra:])
        return self._writer.unsqueeze(value, range(extra), "table") if extra else value

    def _unsqueeze(self, node: ir.Node, roles: Roles) -> Operand:
        axes = {axis % len(roles) for axis in self._axes(node)}
        kept = tuple(role for axis, role in enumerate(roles) if axis not in axes)
        return self._settings(node, self._write(_source(node), kept))

    def _squeeze(self, node: ir.Node, roles: Roles) -> Operand:
        given = self._axes(node)
        rank = len(roles) + len(given)
        axes, rest = {axis % rank for axis in given}, iter(roles)
        if not axes:
            raise self._refuse(f"Squeeze {node.name!r} does not say which axes go")
        source = tuple(None if axis in axes else next(rest) for axis in range(rank))
        return self._settings(node, self._write(_source(node), source))

    def _transpose(self, node: ir.Node, roles: Roles) -> Operand:
        perm = node.attributes.get_ints("perm", range(len(roles))[::-1])
        before = tuple(roles[list(perm).index(axis)] for axis in range(len(roles)))
        return self._again(node, [self._write(_source(node), before)])

    def _reshape(self, node: ir.Node, roles: Roles) -> Operand:
        """Add or remove axes of size 1."""
        sizes = self._context.converter.sizes
        given, made = sizes.get(_source(node)), sizes.get(str(node.outputs[0].name))
        if (
            given is None
            or made is None
            or [n for n in given if n != 1] != [n for n in made if n != 1]
        ):
            raise self._refuse(f"Reshape {node.name!r} changes axes of frames")
        kept = iter(role for role, size in zip(roles, made, strict=True) if size != 1)
        source = tuple(None if size == 1 else next(kept) for size in given)
        value: Operand = self._write(_source(node), source)
        gone, new = ([i for i, n in enumerate(part) if n == 1] for part in (given, made))
        for axis in reversed(gone):
            value = self._writer.squeeze(value, axis, "table")
        return self._writer.unsqueeze(value, new, "table") if new else value

    def _trilu(self, node: ir.Node, roles: Roles) -> Operand:
        low, high = roles[-2:]
        if low is None or high is None:
            raise self._refuse(f"Trilu {node.name!r} is not of frames by frames")
        source, offset = node.inputs[0], self._number(node, 1, 0)
        assert source is not None
        value, writer, boolean = self._write(_source(node), roles), self._writer, ir.DataType.BOOL
        ahead = writer.op(
            "Sub", [high, writer.unsqueeze(low, [1], "rows")], "ahead", dtype=ir.DataType.INT64
        )
        upper = node.attributes.get_int("upper", 1)
        test = "Less" if upper else "Greater"
        gone = writer.op(test, [ahead, np.array(offset, np.int64)], "is_zero", dtype=boolean)
        return writer.op("Where", [gone, filled(source), value], "table", dtype=source.dtype)

    def _gather(self, node: ir.Node, roles: Roles) -> Operand:
        """Elements of a table of weights by computed numbers."""
        data, indices = node.inputs
        assert data is not None and indices is not None
        axis = node.attributes.get_int("axis", 0) % self._rank(data)
        end = axis + self._rank(indices)
        weights = self._write(str(data.name), (*roles[:axis], None, *roles[end:]))
        return self._again(node, [weights, self._write(str(indices.name), roles[axis:end])])


def _source(node: ir.Node) -> str:
    (value, *_) = node.inputs
    assert value is not None
    return str(value.name)


_RULES: dict[str, Callable[[Indexed, ir.Node, Roles], Operand]] = {
    "Range": Indexed._range,
    "ConstantOfShape": Indexed._constant_of_shape,
    "Expand": Indexed._expand,
    "Unsqueeze": Indexed._unsqueeze,
    "Squeeze": Indexed._squeeze,
    "Transpose": Indexed._transpose,
    "Reshape": Indexed._reshape,
    "Trilu": Indexed._trilu,
    "Gather": Indexed._gather,
}
