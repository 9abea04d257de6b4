"""Ops that only look at memory in another way: views, and a copy only where strides cannot."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.guards import Guards
from ostinato.ops.core.known_sizes import known_ints, known_sizes
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Value, drop_ones, insert_ones, transpose
from ostinato.sizes.conditions import choose, is_equal
from ostinato.sizes.dims import Size, exact_quotient, floordiv, is_signed, product
from ostinato.sizes.strides import Shape


def axis_of(context: Context, axis: int, rank: int) -> int:
    """A possibly negative axis as a position in 0 .. rank - 1."""
    if not -rank <= axis < rank:
        raise context.invalid(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def border_of(context: Context, axis: int, rank: int) -> int:
    """A possibly negative border between axes as the number of axes in front of it."""
    if not -rank <= axis <= rank:
        raise context.invalid(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def axes_of(context: Context, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Possibly negative axes as sorted distinct positions."""
    positions = sorted(axis_of(context, axis, rank) for axis in axes)
    if len(set(positions)) != len(positions):
        raise context.invalid(f"axes {list(axes)} name an axis twice")
    return tuple(positions)


def optional_axes(context: Context, from_opset: int) -> list[int] | None:
    """Axes from the attribute, or from opset `from_opset` on from input 1; None when left out."""
    if context.since < from_opset:
        axes = context.attributes.ints("axes", None)
        return None if axes is None else list(axes)
    if context.optional(1) is None:
        return None
    return known_ints(context, 1, "input 'axes'")


@lowers("Transpose")
def lower_transpose(context: Context) -> Value:
    """Axes in another order; reversed by default."""
    value = context.input(0)
    rank = len(value.shape)
    order = context.attributes.ints("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise context.invalid(f"attribute 'perm' {list(order)} does not order {rank} axes")
    return transpose(value, order)


@lowers("Unsqueeze")
def lower_unsqueeze(context: Context) -> Value:
    """Insert axes of extent 1."""
    value = context.input(0)
    axes = optional_axes(context, 13)
    if axes is None:
        raise context.invalid("'axes' is missing, expected the axes to insert")
    return insert_ones(value, axes_of(context, axes, len(value.shape) + len(axes)))


@lowers("Squeeze")
def lower_squeeze(context: Context) -> Value:
    """Remove axes of extent 1: those named, or all of them.

    Without names a size of the run is likely to be another one, unless some other node needs a 1: a
    program may be for such sizes. Another one is made for a single row when that comes: the first
    such axis has the extent 1 then.
    """
    value, builder = context.input(0), context.builder
    axes = optional_axes(context, 13)
    if axes is None:
        axes = [i for i, n in enumerate(value.shape) if builder.require.is_required(n, 1)]
        open_axes = {axis: is_equal(n, 1) for axis, n in enumerate(value.shape) if axis not in axes}
        is_other = builder.guarded is Guards.OTHERWISE
        for axis, is_one in open_axes.items():
            if isinstance(is_one, int):
                axes += [axis] * is_one
            elif not builder.guarded or not builder.sizes.is_given(value.shape[axis]):
                raise context.unknown_extents(
                    "'axes' is missing, and only a run tells which are 1", 0
                )
            elif is_other:
                is_other = False
                axes.append(axis)
                builder.require.guard(is_one, f"axis {axis} has the extent 1")
            else:
                builder.require.guard(1 - is_one, f"axis {axis} has not the extent 1")
    return squeezed(context, value, axes_of(context, axes, len(value.shape)))


def squeezed(context: Context, value: Value, axes: tuple[int, ...]) -> Value:
    """The value without these axes, which must have an extent of 1."""
    for axis in axes:
        context.builder.require.equal(value.shape[axis], 1, f"axis {axis} to squeeze")
    dropped = drop_ones(value, axes)
    if dropped is None:
        dropped = drop_ones(context.builder.strided(value), axes)
    assert dropped is not None
    return dropped


def reshape(context: Context, value: Value, shape: Shape) -> Value:
    """The value with another shape, which must have as many elements."""
    context.builder.require.equal(value.size, product(shape), "number of elements")
    return context.builder.reshaped(value, shape)


@lowers("Reshape")
def lower_reshape(context: Context) -> Value:
    """Another shape; 0 keeps a dimension (without allowzero), -1 is what is left."""
    value = context.input(0)
    keeps = not context.attributes.int("allowzero", 0)
    if context.since < 5:
        target: list[Size] = list(context.attributes.ints("shape"))
    else:
        target = known_sizes(context, 1, "input 'shape'")
    if any(map(is_signed, target)):
        return reshape(context, value, _decided(context, value, target, keeps))
    if any(isinstance(n, int) and n < -1 for n in target) or target.count(-1) > 1:
        raise context.invalid(f"{target} is no shape")
    if keeps:
        if any(n == 0 for n in target[len(value.shape) :]):
            raise context.invalid(f"shape {target} keeps a dimension that the input does not have")
        target = [value.shape[i] if n == 0 else n for i, n in enumerate(target)]
    if -1 in target:
        rest = product([n for n in target if n != -1])
        if rest == 0:
            raise context.invalid(f"shape {target}: -1 cannot be found beside a 0")
        target[target.index(-1)] = floordiv(value.size, rest)
    return reshape(context, value, tuple(target))


def _decided(context: Context, value: Value, target: list[Size], keeps: bool) -> Shape:
    """The shape that a target means whose elements may turn out to be 0 or -1."""
    builder = context.builder
    rests = [builder.sizes.defined(is_equal(n, -1), "whether an axis is the rest") for n in target]
    builder.require.nonnegative(1 - sum(rests, 0), "one axis minus those that are -1")
    sizes: list[Size] = []
    for axis, (n, is_rest) in enumerate(zip(target, rests, strict=True)):
        is_kept = is_equal(n, 0) if keeps else 0
        if axis < len(value.shape):
            n = choose(is_kept, value.shape[axis], n)
        else:
            builder.require.nonnegative(-is_kept, f"axis {axis}, which the input does not have")
        sizes.append(builder.sizes.defined(choose(is_rest, 1, n), f"axis {axis} of the shape"))
    others = product(sizes)
    builder.require.nonnegative(others - sum(rests, 0), "-1 beside a 0")
    rest = floordiv(value.size, others)
    return tuple(
        builder.sizes.defined(choose(is_rest, rest, n), f"axis {axis} of the shape")
        for axis, (n, is_rest) in enumerate(zip(sizes, rests, strict=True))
    )


@lowers("Flatten")
def lower_flatten(context: Context) -> Value:
    """Two axes: everything before `axis`, and the rest."""
    value = context.input(0)
    rank = len(value.shape)
    axis = border_of(context, context.attributes.int("axis", 1), rank)
    return reshape(context, value, (product(value.shape[:axis]), product(value.shape[axis:])))


@lowers("Expand")
def lower_expand(context: Context) -> Value:
    """Broadcast to a shape."""
    asked = enumerate(known_sizes(context, 1, "input 'shape'"))
    shape = tuple(context.builder.sizes.defined(n, f"axis {i} of the shape") for i, n in asked)
    return context.builder.expanded(context.input(0), shape)


@lowers("Tile")
def lower_tile(context: Context) -> Value:
    """The value repeated along each axis: `n` times the axis is an axis of `n` before it."""
    if context.since < 6:
        raise context.refuse("the form of opset 1 has no native form")
    value = context.input(0)
    repeats = known_sizes(context, 1, "input 'repeats'")
    if len(repeats) != len(value.shape):
        raise context.invalid(f"{len(repeats)} repeats for rank {len(value.shape)}")
    builder = context.builder
    repeats = [builder.sizes.defined(n, f"repeats of axis {i}") for i, n in enumerate(repeats)]
    apart = insert_ones(value, tuple(range(0, 2 * len(repeats), 2)))
    pairs = zip(repeats, value.shape, strict=True)
    wide = tuple(size for pair in pairs for size in pair)
    shape = tuple(count * n for count, n in zip(repeats, value.shape, strict=True))
    return builder.reshaped(builder.expanded(apart, wide), shape)


@lowers("DepthToSpace", "SpaceToDepth")
def lower_blocks(context: Context) -> Value:
    """Channels become blocks of an image, or blocks channels."""
    value = context.input(0)
    block = context.attributes.int("blocksize")
    if len(value.shape) != 4 or block < 1:
        raise context.invalid(f"blocksize {block} of a value of shape {value.shape}")
    mode = context.attributes.string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise context.invalid(f"attribute 'mode' is {mode!r}")
    is_dcr = mode == "DCR"
    batch, channels, height, width = value.shape
    if context.node.op_type == "SpaceToDepth":
        rows, columns = (_divided(context, n, block) for n in (height, width))
        split: Shape = (batch, channels, rows, block, columns, block)
        order = (0, 3, 5, 1, 2, 4) if is_dcr else (0, 1, 3, 5, 2, 4)
        shape: Shape = (batch, channels * block * block, rows, columns)
    else:
        depth = _divided(context, channels, block * block)
        blocks = (block, block, depth) if is_dcr else (depth, block, block)
        split = (batch, *blocks, height, width)
        order = (0, 3, 4, 1, 5, 2) if is_dcr else (0, 1, 4, 2, 5, 3)
        shape = (batch, depth, height * block, width * block)
    return reshape(context, transpose(reshape(context, value, split), order), shape)


def _divided(context: Context, size: Size, count: int) -> Size:
    exact = exact_quotient(size, count)
    if exact is None and isinstance(size, int):
        raise context.invalid(f"{size} is no multiple of {count}")
    return floordiv(size, count) if exact is None else exact
