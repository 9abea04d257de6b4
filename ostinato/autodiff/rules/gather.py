"""Gradients of operators that take elements from computed places, or put them there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.contributions import zeros
from ostinato.autodiff.registry import differentiates
from ostinato.graph.writer import Array, Operand


def scatter(
    context: Context, target: ir.Value, indices: Operand, updates: Term, axis: int, adds: bool
) -> Term:
    """`target` with updates at an index for each along `axis`, added to what is there or not."""
    attributes = {"axis": axis, "reduction": "add" if adds else "none"}
    return context.ops.op("ScatterElements", [target, indices, updates], attributes=attributes)


def zeros_like(context: Context, index: int) -> ir.Value:
    """Zeros with the shape of input `index`."""
    return zeros(context.writer, context.sizes(context.given(index)))


def _places(context: Context) -> Operand:
    """The indices, which are input 1."""
    known = context.constant(1)
    return context.input(1).value if known is None else known


@differentiates("Gather")
def _gather(context: Context) -> None:
    """Add the gradient of each element at the place that it was taken from.

    Operators that scatter whole rows are not used for it: onnxruntime's threads get in each other's
    way where rows are added to one place.
    """
    axis, places = context.axis(0), _places(context)
    given = _with_one_axis(context, axis)
    known = _neighbours(places, context.dims(context.given(0))[axis])
    if known is not None:
        context.give_part(0, given, axis, *known)
        return
    context.give_rows(0, places, given, axis)


def _with_one_axis(context: Context, axis: int) -> Term:
    """The gradient with one axis in place of those of the indices."""
    given, indices = context.gradient(), context.given(1)
    rank = context.rank(indices)
    if rank == 0:
        return given.unsqueeze([axis])
    if rank == 1:
        return given
    result = context.node.outputs[0]
    sizes = [context.size(result, i) for i in range(context.rank(result))]
    count = sizes[axis]
    for size in sizes[axis + 1 : axis + rank]:
        count = context.ops.integers("Mul", count, size)
    merged = [*sizes[:axis], count, *sizes[axis + rank :]]
    return given.reshape(context.writer.concat(merged, 0, "sizes"))


def _neighbours(places: Operand, extent: int | str | None) -> tuple[int, int] | None:
    """The first of known places and their number, if they follow one another in a known axis."""
    if isinstance(places, ir.Value) or not isinstance(extent, int) or not places.size:
        return None
    flat: Array = np.where(places < 0, places + extent, places).reshape(-1).astype(np.int64)
    return (int(flat[0]), flat.size) if (np.diff(flat) == 1).all() else None


@differentiates("GatherElements")
def _gather_elements(context: Context) -> None:
    """Add the gradient of each element at the place that it was taken from."""
    axis, given = context.axis(0), context.gradient()
    context.give(0, scatter(context, zeros_like(context, 0), _places(context), given, axis, True))


@differentiates("TopK")
def _top_k(context: Context) -> None:
    """The gradient of the values goes where they were found."""
    axis = context.axis(-1)
    for name in ("largest", "sorted"):
        context.attributes.int(name, 1)
    target, places = zeros_like(context, 0), context.output(1).value
    context.give(0, scatter(context, target, places, context.gradient(), axis, adds=False))


@differentiates("GatherND")
def _gather_nd(context: Context) -> None:
    """Add the gradient of each element at the place that it was taken from."""
    batch, places = context.attributes.int("batch_dims", 0), _places(context)
    if batch:
        places = _with_batch(context, places, batch)
    room = Term(context.ops, zeros_like(context, 0))
    context.give(0, room.op("ScatterND", places, context.gradient(), reduction="add"))


def _with_batch(context: Context, places: Operand, batch: int) -> ir.Value:
    """The indices with their own place in the batch in front: one number more for each axis."""
    indices, writer = context.given(1), context.writer
    rank = context.rank(indices)
    sizes = [context.size(indices, i) for i in range(rank - 1)]
    shape = writer.concat([*sizes, np.ones(1, np.int64)], 0, "sizes")
    columns: list[Operand] = []
    for axis in range(batch):
        steps = writer.positions(context.input(1).value, axis)
        column = np.ones(rank, np.int64)
        column[axis] = -1
        numbers = context.ops.index("Reshape", steps, column, role="row")
        columns.append(context.ops.index("Expand", numbers, shape, role="rows"))
    return writer.op("Concat", [*columns, places], "places", {"axis": -1}, ir.DataType.INT64)


@differentiates("ScatterElements", "ScatterND")
def _scatter(context: Context) -> None:
    """Gather the gradient of updates from their places; only for replacement and addition.

    Without a reduction, places that are updated twice have no defined result, nor gradient.
    """
    reduction = context.attributes.string("reduction", "none")
    if reduction not in ("none", "add"):
        raise context.refuse(f"has no gradient with reduction {reduction!r}")
    given, places = context.gradient(), _places(context)
    named, taker = dict[str, Any](), "GatherND"
    if context.op_type == "ScatterElements":
        named, taker = {"axis": context.axis(0)}, "GatherElements"
    if context.wants(0) and reduction == "add":
        context.give(0, given)
    elif context.wants(0):
        context.give(0, given.op(context.op_type, places, zeros_like(context, 2), **named))
    if context.wants(2):
        context.give(2, given.op(taker, places, **named))
