"""MatMul and Gemm: sums of products of two operands."""

from __future__ import annotations

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import (
    Joined,
    Tensor,
    Value,
    insert_ones,
    slice_axis,
    static_shape,
    transpose,
)
from ostinato.ops.rules.casts import convert
from ostinato.program.expr import FLOATS, INTEGERS, Expr, cast, dtype_of
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape

# Tall weights of fewer columns than this leave most lanes idle: their sums run along lanes instead.
NARROW = 8
TALL = 2 * ROW_CHAINS
# Products of more parts than that cost more than copying them side by side: 64 rows of 8 parts,
# of 4 to 64 columns each, by 256 columns of weights take 1.1 to 1.4 of the time, of 32 up to 2.3.
# 5 parts take 0.8 to 1.06 of it; of 6 to 8, those that do not depend on a state can leave a loop.
_MOST_PARTS = 8


def is_tall_and_narrow(shape: Shape, narrow: int = NARROW) -> bool:
    """Whether weights have fewer columns than `narrow`, with many rows for each sum."""
    static = static_shape(shape)
    return static is not None and static[0] >= TALL and static[1] < narrow


@lowers("MatMul")
def lower_matmul(context: Context) -> Value:
    """Matrix product of the last two axes, the others broadcast, vectors as in NumPy."""
    left, right, added = as_matrices(context, context.input(0), context.input(1))
    return without_added(matmul(context, left, right, context.is_constant(1)), added)


def as_matrices(context: Context, left: Value, right: Value) -> tuple[Value, Value, list[int]]:
    """The operands with vectors as matrices, and the axes that this adds to the product."""
    if not left.shape or not right.shape:
        shapes = f"{left.shape} and {right.shape}"
        raise context.invalid(f"operands of shapes {shapes}, expected vectors or matrices")
    added: list[int] = []
    if len(left.shape) == 1:
        left = insert_ones(left, (0,))
        added.append(-2)
    if len(right.shape) == 1:
        right = insert_ones(right, (1,))
        added.append(-1)
    return left, right, added


def without_added(result: Tensor, added: list[int]) -> Tensor:
    """A product without the axes that `as_matrices` added."""
    kept = [i for i in range(len(result.shape)) if i - len(result.shape) not in added]
    return Tensor(
        result.dtype,
        tuple(result.shape[i] for i in kept),
        result.base,
        tuple(result.strides[i] for i in kept),
    )


def matmul(context: Context, left: Value, right: Value, is_constant: bool) -> Tensor:
    """`left [.., m, k] @ right [.., k, n]`.

    is_constant: whether the right operand is. Only then may its shape choose the order of the sum,
    since run-time sizes must give the bits of specialised ones.

    Where the left operand is few parts joined along `k`, the result is the sum of one product for
    each part, from left to right: a part that does not depend on a loop's state can then leave the
    loop.
    """
    builder = context.builder
    is_joined = isinstance(left, Joined) and left.axis == len(left.shape) - 1
    if isinstance(left, Joined) and is_joined and len(left.parts) <= _MOST_PARTS:
        return _matmul_parts(context, left, builder.strided(right), is_constant)
    a = builder.strided(left)
    narrow = is_constant and a.dtype in FLOATS and is_tall_and_narrow(right.shape[-2:])
    b = columns_in_a_piece(context, right) if narrow else builder.strided(right)
    builder.require.equal(a.shape[-1], b.shape[-2], "contracted axes")
    batch = builder.broadcasting.shape(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    axes = builder.axes(shape)
    inner = builder.axis(a.shape[-1], "r")
    outer, row, column = axes[:-2], axes[-2], axes[-1]
    return builder.contract(
        shape,
        axes,
        (inner,),
        builder.load(a, (*outer, row, inner)),
        builder.load(b, (*outer, inner, column)),
        ROW_CHAINS if narrow else 1,
    )


def columns_in_a_piece(context: Context, weights: Value) -> Tensor:
    """The weights; a constant's columns lie in one piece, as lanes along the sum read them."""
    order = (*range(len(weights.shape) - 2), len(weights.shape) - 1, len(weights.shape) - 2)
    turned = context.builder.strided(transpose(weights, order))
    return context.builder.strided(transpose(turned, order))


def _matmul_parts(context: Context, left: Joined, right: Tensor, is_constant: bool) -> Tensor:
    builder = context.builder
    builder.require.equal(left.shape[-1], right.shape[-2], "contracted axes")
    start: Size = 0
    total: Tensor | None = None
    for part in left.parts:
        extent = part.shape[-1]
        rows = slice_axis(right, len(right.shape) - 2, start, 1, extent)
        product = matmul(context, part, rows, is_constant)
        start = start + extent
        total = product if total is None else builder.pointwise(lambda a, b: a + b, total, product)
    assert total is not None
    return total


@lowers("Gemm")
def lower_gemm(context: Context) -> Value:
    """alpha * A' @ B' + beta * C."""
    alpha, beta = context.float("alpha"), context.float("beta")
    flips = [context.attributes.int(name, 0) for name in ("transA", "transB")]
    left, right = (
        transpose(value, (1, 0)) if flip else value
        for value, flip in zip((_matrix(context, 0), _matrix(context, 1)), flips, strict=True)
    )
    builder = context.builder
    result = matmul(context, left, right, context.is_constant(1))
    is_whole = result.dtype not in INTEGERS or (alpha.is_integer() and beta.is_integer())
    if not is_whole:
        # Integers are scaled as numbers that are not whole, and cut off once.
        result = builder.pointwise(lambda x: cast(x, "float64"), result)
    if alpha != 1.0:
        result = builder.pointwise(lambda x: alpha * x, result)
    bias = context.optional(2)
    if context.since < 7 and bias is not None and not context.attributes.int("broadcast", 0):
        for axis, (n, wanted) in enumerate(zip(bias.shape, result.shape, strict=True)):
            builder.require.equal(n, wanted, f"axis {axis} of input 'C'")
    if bias is not None and beta != 0.0:
        bias = builder.expanded(bias, result.shape, one_way=True)
        result = builder.pointwise(lambda x, c: x + _times(beta, x, c), result, bias)
    return result if is_whole else builder.pointwise(lambda x: convert(x, left.dtype), result)


def _times(factor: float, like: Expr, x: Expr) -> Expr:
    """A multiple of x, in the type of `like`."""
    wide = cast(x, dtype_of(like))
    return wide if factor == 1.0 else factor * wide


def _matrix(context: Context, position: int) -> Value:
    value = context.input(position)
    if len(value.shape) != 2:
        raise context.invalid(f"input {position} has {len(value.shape)} axes, expected 2")
    return value
