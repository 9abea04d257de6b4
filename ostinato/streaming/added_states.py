"""States of the converted model: what a step keeps for the next one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.writer import Operand, Writer
from ostinato.streaming.context import Context
from ostinato.streaming.result import State


def add_state(
    context: Context,
    role: str,
    dims: Sequence[int | str | None],
    initial: np.ndarray,
    purpose: str,
    grows: int | None = None,
) -> tuple[ir.Value, Callable[[ir.Value], None]]:
    """A state input, and the function that is to be given its value for the next step.

    grows: the axis along which steps add to it.

    Raises `UnsupportedError` where a size is neither a number nor one that an input names.
    """
    converter = context.converter
    names = {*converter.size_names, *converter.multiples}
    for axis, size in enumerate(dims):
        if axis != grows and not isinstance(size, int) and size not in names:
            raise context.refuse(
                f"has to keep {purpose}, and the size of axis {axis} of these is not known: "
                "give the sizes of the inputs as numbers, or fix the operand that decides it"
            )
    merged = [axis for axis, size in enumerate(dims) if size in converter.multiples]
    if merged and grows is None:
        return _add_apart(context, role, dims, initial, purpose, merged[-1])
    stem = re.sub(r"\W+", "_", context.name).strip("_") or "state"
    base = converter.names.fresh(f"{stem}_{role}")
    before = ir.Value(
        name=converter.names.fresh(f"{base}_in"),
        shape=ir.Shape(dims),
        type=ir.TensorType(ir.DataType.from_numpy(initial.dtype)),
    )
    converter.sizes[str(before.name)] = tuple(dims)

    def give(after: ir.Value) -> None:
        name = converter.names.fresh(f"{base}_out")
        state = State(
            str(before.name), name, tuple(dims), initial.dtype, initial, context.name, purpose
        )
        converter.states.append((state, before, after))

    return before, give


def _add_apart(
    context: Context,
    role: str,
    dims: Sequence[int | str | None],
    initial: np.ndarray,
    purpose: str,
    axis: int,
) -> tuple[ir.Value, Callable[[ir.Value], None]]:
    """A state whose axis of a multiple of a size is two axes: inputs name one of them."""
    converter = context.converter
    factor, name = converter.multiples[str(dims[axis])]
    apart = [*dims[:axis], name, factor, *dims[axis + 1 :]]
    first = np.repeat(np.expand_dims(initial, axis + 1), factor, axis + 1)
    kept, give = add_state(context, role, apart, first, purpose)

    def sizes_of(writer: Writer, value: ir.Value, beyond: int) -> list[int | ir.Value]:
        """The sizes of the other axes, which are `beyond` later behind this one in `value`."""
        return [
            size if isinstance(size, int) else writer.size(value, i + beyond * (i > axis))
            for i, size in enumerate(dims)
        ]

    sizes = sizes_of(context.writer, kept, 1)
    sizes[axis] = -1
    whole = _resized(context.writer, kept, sizes)
    converter.sizes[str(whole.name)] = tuple(dims)

    def give_apart(after: ir.Value) -> None:
        sizes = sizes_of(converter.behind, after, 0)
        give(_resized(converter.behind, after, [*sizes[:axis], -1, factor, *sizes[axis + 1 :]]))

    return whole, give_apart


def _resized(writer: Writer, value: ir.Value, sizes: Sequence[int | ir.Value]) -> ir.Value:
    """`value` with these sizes, one of which may be -1."""
    parts: list[Operand] = [
        np.array([size], np.int64) if isinstance(size, int) else size for size in sizes
    ]
    target = writer.concat(parts, 0, "sizes")
    return writer.op("Reshape", [value, target], "kept", dtype=value.dtype)
