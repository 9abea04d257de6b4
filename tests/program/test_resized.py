from __future__ import annotations

from ostinato.program.expr import Axis, Extent, Index, Reduced, cast, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.resized import Resized
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import at, store

N = symbol("N")


def twice(size: Size) -> Size:
    return 2 * size


def kernel(extent: Size, length: Size, stride: Size, number: int) -> Kernel:
    """Every place where a kernel has sizes, lanes and computed positions apart."""
    i, k = Axis("i", extent), Axis("k", length)
    reduce = Reduce((k,), "sum", at("x", (i, stride), (k, 2), offset=stride), at("w", (k, 2)))
    place = op("add", Index(i), op("add", Extent(extent), constant(number, "int64")))
    value = op("add", Reduced(0, "float32"), cast(place, "float32"))
    guard = op("lt", Index(i), Extent(extent))
    return Kernel("k", (i,), (reduce,), (store("y", value, (i, 2), offset=4),), guard, ordered=(i,))


def test_every_size_of_a_kernel_is_asked_for():
    before, after = kernel(N, 3, 5, 7), kernel(2 * N, 6, 10, 7)
    changed = Resized(twice).of(before)
    assert changed.axes == changed.ordered == after.axes
    reduce, expected = changed.reductions[0], after.reductions[0]
    assert reduce.axes == expected.axes
    assert reduce.expr == at("x", (after.axes[0], 10), (reduce.axes[0], 4), offset=10)
    assert changed.guard == after.guard and changed.stores[0].value == after.stores[0].value
    assert changed.stores[0].access.offset == 8


def test_an_axis_is_one_axis_in_all_kernels():
    sizes = Resized(twice)
    first, second = sizes.of(kernel(N, 3, 5, 7)), sizes.of(kernel(N, 3, 5, 7))
    assert first.axes[0] is second.axes[0] is sizes.axis(Axis("i", N))


def test_numbers_of_expressions_may_become_sizes():
    changed = Resized(lambda size: N + 1 if size == 7 else size).of(kernel(N, 3, 5, 7))
    extents = [node.size for node in changed.nodes if isinstance(node, Extent)]
    assert sorted(map(str, extents)) == ["N", "N + 1"]


def test_literals_that_are_no_sizes_are_asked_for_on_their_own():
    half, one = constant(0.5, "float32"), constant(1.0, "float32")
    before = Kernel("k", (), (), (store("y", op("add", half, cast(Extent(N), "float32"))),))
    asked = []
    changed = Resized(twice, lambda const: asked.append(const) or one).of(before)
    assert asked == [half]
    assert changed.stores[0].value == op("add", one, cast(Extent(2 * N), "float32"))
