"""Estimated times, in picoseconds: of a kernel's terms and points, and of whole statements.

They decide what threads divide (`ostinato.schedule.share`) and how often compiled code asks whether
it should stop (`ostinato.codegen.safepoints`). Both need magnitudes only.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ostinato.program.expr import ITEM_BYTES, Expr, Load, Op, walk
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Loop, Stmt, bodies
from ostinato.sizes.dims import Size, maximum, minimum, product

# Magnitudes, and the same on all machines, so that safepoints and threads are too. From
# `benchmarks.roofline` on a core of 3 GHz with vectors of 32 bytes, per lane: a multiply-add of
# operands that rows share, of weights from the second-level cache, and of weights that exceed it;
# any other operation, load or store of a lane.
_SHARED_PRODUCT = 10
_PRODUCT = 25
_FAR_PRODUCT = 100
OPERATION = 20
# A kernel's weights are far away from this many bytes on: half of a second-level cache.
_FAR_BYTES = 1 << 20
# The fixed cost of a statement: a call, or a branch (`benchmarks.bench_calls`).
STATEMENT = 2000


def operations(roots: Iterable[Expr]) -> int:
    """Count the operations and loads of expressions together."""
    return sum(isinstance(node, Op | Load) for node in walk(*roots))


def store_time(kernel: Kernel) -> int:
    """Time of the stores of a point."""
    return OPERATION * (1 + operations(e for s in kernel.stores for e in s.expressions()))


def product_time(kernel: Kernel, reduce: Reduce, products: Size) -> int:
    """Time of a multiply-add; a single row reads a weight for each of `products`."""
    if kernel.tile is not None and kernel.tile.height > 1:
        time = _SHARED_PRODUCT
    else:
        is_far = isinstance(products, int) and 4 * products * len(kernel.reductions) >= _FAR_BYTES
        time = _FAR_PRODUCT if is_far else _PRODUCT
    return max(1, time * ITEM_BYTES[reduce.dtype] // 4)


def term_time(kernel: Kernel, reduce: Reduce) -> int:
    """Time of a term of a reduction, its operands included."""
    points = product([axis.extent for axis in (*kernel.axes, *reduce.axes)])
    return product_time(kernel, reduce, points) + OPERATION * operations(reduce.operands) // 16


def point_time(kernel: Kernel, most: int) -> Size:
    """Time of a point, its reductions included; `most` if it is more."""
    time: Size = store_time(kernel)
    for reduce in kernel.reductions:
        extents = [axis.extent for axis in reduce.axes]
        time = time + bounded_product([term_time(kernel, reduce), *extents], most)
    return minimum(time, most)


def kernel_time(kernel: Kernel, most: int) -> Size:
    """Time of a kernel; about `most` if it is more."""
    number, rest = kernel_factors(kernel, most)
    return STATEMENT + minimum(number * rest, most)


def kernel_factors(kernel: Kernel, most: int) -> tuple[int, Size]:
    """Time of a kernel but for `STATEMENT`, as factors: a number, and one that only a run tells."""
    extents = [axis.extent for axis in kernel.axes]
    return bounded_factors((point_time(kernel, most), *extents), most)


def known_time(body: Iterable[Stmt], most: int) -> int:
    """Time of statements, both sides of a branch; `most` if it is more, or known at run time."""
    total = 0
    for statement in body:
        if isinstance(statement, Kernel):
            time = kernel_time(statement, most)
        else:
            time = STATEMENT + sum(known_time(inner, most) for inner in bodies(statement))
            if isinstance(statement, Loop):
                time = bounded_product([time, statement.axis.extent], most)
        total += time if isinstance(time, int) else most
        if total >= most:
            return most
    return total


def bounded_product(sizes: Iterable[Size], most: int) -> Size:
    """The product, or `most` if it is more; no step of it overflows. Sizes below 1 count as 1."""
    number, rest = bounded_factors(tuple(sizes), most)
    return minimum(number * rest, most)


# Kernels of a model have the same few extents.
@lru_cache(maxsize=1024)
def bounded_factors(sizes: tuple[Size, ...], most: int) -> tuple[int, Size]:
    """As `bounded_product`, in two factors: the product of the numbers, and that of other sizes.

    Kernels of a model have the latter in common.
    """
    number: int = 1
    rest: Size = 1
    for size in sizes:
        if isinstance(size, int):
            number = min(number * max(size, 1), most)
        else:
            rest = minimum(rest * maximum(minimum(size, most), 1), most)
    return number, rest
