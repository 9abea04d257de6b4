"""Elements at positions that are computed while running."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.ops.builder import literal
from ostinato.ops.registry import Context
from ostinato.ops.tensor import Tensor, Value
from ostinato.program.dims import Size
from ostinato.program.expr import Axis, Expr, Extent, Load, cast, constant, dtype_of, op
from ostinato.program.nodes import Require, Store


def normalized(index: Expr, extent: Size) -> tuple[Expr, Expr]:
    """A position counted from the start, and whether it was in range; negative ones count back."""
    position = cast(index, "int64")
    count = constant(extent, "int64") if isinstance(extent, int) else Extent(extent)
    negative = op("lt", position, literal(0, position))
    moved = op("select", negative, op("add", position, count), position)
    inside = op("and", op("ge", moved, literal(0, moved)), op("lt", moved, count))
    return moved, inside


def require_in_range(context: Context, indices: Value, axis: int, extent: Size) -> None:
    """Stop the run with an error that names the node if an index is out of range."""
    builder = context.builder
    axes = tuple(range(len(indices.shape)))
    within = builder.pointwise(lambda i: normalized(i, extent)[1], indices)
    if axes:
        within = builder.reduce(within, axes, "min", lambda x: x)
    assert within.base is not None
    builder.append(
        Require(
            within.base.buffer,
            f"node {builder.node!r} ({context.node.op_type}): "
            f"an index is out of range for axis {axis} of {extent} elements",
        )
    )


def gather(context: Context, value: Tensor, indices: Value, axis: int) -> Tensor:
    """`value[.., indices, ..]`: the indices' axes take the place of `axis`."""
    builder = context.builder
    require_in_range(context, indices, axis, value.shape[axis])
    places = builder.strided(indices)
    rank = len(indices.shape)
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    rest = Tensor(
        value.dtype,
        value.shape[:axis] + value.shape[axis + 1 :],
        value.base,
        value.strides[:axis] + value.strides[axis + 1 :],
    )

    def element(axes: Sequence[Axis | None]) -> Expr:
        inner = axes[axis : axis + rank]
        outer = (*axes[:axis], *axes[axis + rank :])
        position, inside = normalized(builder.load(places, inner), value.shape[axis])
        fill = constant(0, value.dtype)
        access = builder.access(rest, outer)
        return Load(access, value.dtype, inside, fill, ((position, value.strides[axis]),))

    axes = builder.axes(shape)
    target = builder.empty(value.dtype, shape)
    expr = element(axes)
    assert dtype_of(expr) == value.dtype
    builder.kernel(axes, [Store(builder.access(target, axes), expr)])
    return target
