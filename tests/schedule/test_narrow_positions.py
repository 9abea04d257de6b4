"""Comparisons of positions in 32 bits."""

from __future__ import annotations

import pytest

from ostinato.machine.record import AVX2, AVX512
from ostinato.program.expr import Axis, Expr, Index, Load, constant, dtype_of, op, walk
from ostinato.program.kernel import Kernel
from ostinato.schedule.index_maps import Affine, substitute
from ostinato.schedule.narrow_positions import narrow_positions
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results


def padded(extent: Size, width: int = 58):
    """Rows of which the first and the last element are zeros."""
    i, j = Axis("i", extent), Axis("j", width)
    source = at("x", (i, width - 2), (j, 1), offset=-1)
    inside = op("and", op("ge", Index(j), constant(1, "int64")), op("lt", Index(j), number(width)))
    load = Load(source.access, "float32", inside, constant(0, "float32"))
    kernel = Kernel("k", (i, j), (), (store("y", load, (i, width), (j, 1)),))
    names = () if isinstance(extent, int) else (str(extent),)
    shapes = {"x": (extent, width - 2)}, {"y": (extent, width)}
    return program(*shapes, (kernel,), symbols=names)


def number(width: int) -> Expr:
    return constant(width - 1, "int64")


def compared(kernel: Kernel) -> set[str]:
    nodes = [node for load in kernel.loads() if load.mask is not None for node in walk(load.mask)]
    return {dtype_of(node) for node in nodes} - {"bool"}


@pytest.mark.parametrize("extent", [7, symbol("N")])
def test_positions_along_known_axes_have_32_bits(extent):
    source = padded(extent)
    found = narrow_positions(source)
    (kernel,) = found.kernels()
    assert "int32" in compared(kernel)
    assert_same_results(source, found)


@pytest.mark.parametrize(("machine", "width"), [(AVX2, 8), (AVX512, 16)])
def test_vectors_have_as_many_lanes_as_floats(machine, width):
    wide, narrow = (tile(source, machine) for source in (padded(7), narrow_positions(padded(7))))
    (before,), (after,) = wide.kernels(), narrow.kernels()
    assert before.tile is not None and after.tile is not None
    assert (before.tile.width, after.tile.width) == (width // 2, width)
    # What the axis became is as narrow: no lanes of 64 bits are left in a condition.
    loads = [load for load in after.loads() if load.mask is not None]
    sums = [n for load in loads for n in walk(load.mask) if getattr(n, "name", "") == "add"]
    assert sums and {dtype_of(n) for n in sums} == {"int32"}
    assert_same_results(wide, narrow)


def test_positions_that_do_not_fit_keep_their_bits():
    i = Axis("i", 2**20)
    far = op("mul", Index(i), constant(2**12, "int64"))
    for value, expected in ((Index(i), "int32"), (far, "int64")):
        load = Load(at("x", (i, 1)).access, "float32", op("lt", value, constant(5, "int64")))
        load = Load(load.access, load.dtype, load.mask, constant(0, "float32"))
        kernel = Kernel("k", (i,), (), (store("y", load, (i, 1)),))
        source = program({"x": (2**20,)}, {"y": (2**20,)}, (kernel,))
        (found,) = narrow_positions(source).kernels()
        assert compared(found) >= {expected}
        assert ("int32" in compared(found)) == (expected == "int32")


def test_sizes_of_a_run_are_not_known_to_fit():
    i = Axis("i", symbol("N"))
    mask = op("lt", Index(i), constant(5, "int64"))
    load = Load(at("x", (i, 1)).access, "float32", mask, constant(0, "float32"))
    kernel = Kernel("k", (i,), (), (store("y", load, (i, 1)),))
    source = program({"x": (symbol("N"),)}, {"y": (symbol("N"),)}, (kernel,), symbols=("N",))
    assert narrow_positions(source).body == source.body


def test_what_a_narrow_position_becomes_is_narrow():
    i, o, v = Axis("i", 64), Axis("o", 8), Axis("v", 8)
    position = op("lt", Index(i), constant(60, "int64"))
    narrow = narrow_positions_of(position)
    found = substitute(narrow, {i: Affine(0, ((o, 8), (v, 1)))})
    (left, _) = found.args  # type: ignore[attr-defined]
    assert dtype_of(left) == "int32" and {dtype_of(arg) for arg in left.args} == {"int32"}


def narrow_positions_of(condition: Expr) -> Expr:
    i = next(node.axis for node in walk(condition) if isinstance(node, Index))
    load = Load(at("x", (i, 1)).access, "float32", condition, constant(0, "float32"))
    kernel = Kernel("k", (i,), (), (store("y", load, (i, 1)),))
    (found,) = narrow_positions(program({"x": (64,)}, {"y": (64,)}, (kernel,))).kernels()
    (only,) = found.loads()
    assert only.mask is not None
    return only.mask
