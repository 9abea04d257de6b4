from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.machine.record import AVX2, AVX512
from ostinato.program.expr import Load, constant
from ostinato.schedule.overlaps import overlap
from ostinato.schedule.sums import WindowLoads
from ostinato.schedule.tile import tile_kernel
from ostinato.sizes.dims import symbol
from tests.codegen.test_overlapping import windows


@pytest.mark.parametrize(("step", "taps", "found"), [(1, 3, (1, 3)), (2, 3, (2, 3)), (3, 3, None)])
def test_windows_of_rows_overlap_where_they_move_by_fewer_lines_than_they_have(step, taps, found):
    (kernel,) = windows(4, (taps, 2), step, 4, True).kernels()
    result = overlap(kernel, *kernel.axes[1:])
    assert (result and (result.step, result.taps)) == found


def test_windows_of_images_of_any_width_overlap_alike():
    width = symbol("W")
    (kernel,) = windows(4, (3, 2), 2, 4, True).kernels()
    (reduce,), (_, row, lane) = kernel.reductions, kernel.axes
    assert isinstance(reduce.expr, Load)
    strides = {row: 2 * width + 4, reduce.axes[0]: width + 2}
    terms = tuple((axis, strides.get(axis, step)) for axis, step in reduce.expr.access.terms)
    image = replace(reduce.expr, access=replace(reduce.expr.access, terms=terms))
    found = overlap(replace(kernel, reductions=(replace(reduce, expr=image),)), row, lane)
    assert found is not None and (found.step, found.taps) == (2, 3)


def test_kernels_that_do_more_are_left_alone():
    (kernel,) = windows(4, (3, 3), 1, 4, True).kernels()
    (reduce,), (images, row, lane) = kernel.reductions, kernel.axes
    assert overlap(kernel, row, lane) is not None
    turned = replace(reduce, axes=reduce.axes[:1], factor=None)
    for other in (
        replace(kernel, reductions=(reduce, reduce)),
        replace(kernel, reductions=(replace(reduce, combine="max", factor=None),)),
        replace(kernel, reductions=(turned,)),
        replace(kernel, reductions=(replace(reduce, factor=constant(1.0, "float32")),)),
    ):
        assert overlap(other, row, lane) is None
    assert overlap(kernel, images, lane) is None


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("machine", [AVX2, AVX512])
def test_rows_that_read_lines_together_fill_a_tile(machine, weights):
    source = windows(56, (5, 5), 1, 1, weights)
    (kernel,) = source.kernels()
    tile = tile_kernel(replace(kernel, tile=None), machine, source.buffers).tile
    assert tile is not None and tile.row == kernel.axes[1] and tile.rows > 1
    # Accumulators, the vectors of a line, and a tap of all lanes.
    assert tile.rows * tile.vectors + tile.vectors + 1 <= machine.vector_registers


def test_rows_together_load_the_lines_between_the_first_and_the_last_window():
    assert WindowLoads(0, 1.0, 1, (5, 1)).loaded(6) == 10 / 5
    assert WindowLoads(0, 1.0, 1, (3, 2)).loaded(2) == 5 / 3
    assert WindowLoads(0, 1.0, 1).loaded(4) == 4
