"""Elements that a condition chooses: a run tells how many there are.

The number is a size that a kernel computes (`RunSizes.computed`); memory is laid out for all
elements. Another kernel, whose points run in order, writes the chosen ones one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.ops.rules.casts import convert
from ostinato.ops.rules.views import axis_of
from ostinato.program.expr import Axis, Expr, Index, Load, Reduced, cast, constant
from ostinato.program.kernel import Reduce, Store
from ostinato.sizes.dims import Size


def count_chosen(builder: Builder, chosen: Tensor, what: str, bound: Size | None = None) -> Size:
    """Count true elements, as a computed size.

    bound: what it is at most, by default the number of the bools.
    """
    flat = builder.reshaped(chosen, (chosen.size,))
    if flat.size == 0:
        return 0
    axis = builder.axis(flat.size, "r")
    element = cast(builder.load(flat, [axis]), "int64")
    reduce = Reduce((axis,), "sum", element, None, ROW_CHAINS)
    size = builder.sizes.declared(flat.size if bound is None else bound, what)
    builder.sizes.compute(size, Reduced(0, "int64"), [reduce])
    return size


def collect_chosen(
    builder: Builder,
    chosen: Tensor,
    axes: Sequence[Axis | None],
    stores: Sequence[tuple[Tensor, Expr]],
) -> None:
    """Write a value for each of the bools that are true, in their order.

    axes: those of `chosen`. stores: tensors of one axis, whose next element each chosen point
    writes, and the values.
    """
    # The place of the next one; of the whole, since the first point has none before it.
    place = builder.stored((), (), constant(0, "int64"))
    here = Load(place.address, "int64")
    mask = builder.load(chosen, axes)
    written = []
    for target, value in stores:
        access = builder.access(slice_axis(target, 0, 0, 1, 1), [None])
        written.append(Store(access, value, mask, ((here, target.strides[0]),)))
    following = here + cast(mask, "int64")
    builder.emit.kernel(axes, [*written, Store(place.address, following)], ordered=axes)


def chosen_positions(builder: Builder, chosen: Tensor, count: Size) -> Tensor:
    """int64 positions of the `count` bools, of one axis, that are true, in order."""
    found = builder.empty("int64", (count,))
    axis = builder.axis(chosen.shape[0])
    collect_chosen(builder, chosen, [axis], [(found, Index(axis))])
    return found


def taken(builder: Builder, value: Tensor, positions: Tensor, axis: int) -> Tensor:
    """Elements of an axis at positions that exist."""
    shape = (*value.shape[:axis], positions.shape[0], *value.shape[axis + 1 :])
    if value.shape[axis] == 0:
        return builder.empty(value.dtype, shape)
    first = slice_axis(value, axis, 0, 1, 1)

    def element(axes: Sequence[Axis | None]) -> Expr:
        position = builder.load(positions, [axes[axis]])
        access = builder.access(first, (*axes[:axis], None, *axes[axis + 1 :]))
        return Load(access, value.dtype, None, None, ((position, value.strides[axis]),))

    return builder.compute(shape, element)


def taken_from_each(builder: Builder, vectors: Sequence[Tensor], positions: Tensor) -> list[Tensor]:
    """Elements of each of some vectors at positions that exist, all by one kernel."""
    axis = builder.axis(positions.shape[0])
    place = builder.load(positions, [axis])
    results = [builder.empty(vector.dtype, positions.shape) for vector in vectors]
    stores = []
    for vector, result in zip(vectors, results, strict=True):
        access = builder.access(slice_axis(vector, 0, 0, 1, 1), [None])
        element = Load(access, vector.dtype, index=((place, vector.strides[0]),))
        stores.append(Store(builder.access(result, [axis]), element))
    builder.emit.kernel([axis], stores)
    return results


@lowers("NonZero")
def lower_non_zero(context: Context) -> Value:
    """int64[rank, count]: where the elements are that are not 0, in their order.

    A single element without axes counts as one of a vector.
    """
    builder = context.builder
    x = builder.strided(context.input(0))
    if not x.shape:
        x = builder.reshaped(x, (1,))
    chosen = builder.pointwise(lambda e: convert(e, "bool"), x)
    count = count_chosen(builder, chosen, "elements that are not 0")
    rank = len(x.shape)
    result = builder.empty("int64", (rank, count))
    # Each position is known by its index, even if it is the only one.
    axes = [builder.axis(n) for n in x.shape]
    rows = [slice_axis(result, 0, i, 1, 1) for i in range(rank)]
    columns = [builder.reshaped(row, (count,)) for row in rows]
    stores = [(column, Index(axis)) for column, axis in zip(columns, axes, strict=True)]
    collect_chosen(builder, chosen, axes, stores)
    return result


@lowers("Compress")
def lower_compress(context: Context) -> Value:
    """The elements, or the slices along an axis, that a condition names; it may be shorter."""
    builder = context.builder
    value, condition = builder.strided(context.input(0)), builder.strided(context.input(1))
    axis = context.attributes.int("axis", None)
    if len(condition.shape) != 1:
        raise context.invalid(f"input 'condition' has the shape {condition.shape}")
    if axis is None:
        value, axis = builder.reshaped(value, (value.size,)), 0
    axis = axis_of(context, axis, len(value.shape))
    length, extent = condition.shape[0], value.shape[axis]
    what = "elements of the axis beyond the condition"
    if isinstance(length, int) and isinstance(extent, int) and length > extent:
        raise context.invalid(f"a condition of {length} elements for {extent}")
    builder.require.nonnegative(extent - length, what)
    count = count_chosen(builder, condition, "elements chosen", extent)
    positions = chosen_positions(builder, condition, count)
    return taken(builder, value, positions, axis)
