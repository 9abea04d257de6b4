"""The cost model: widths of lanes, sums of a loop, and which tile is the cheapest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import AVX2, AVX512, NEON, WASM, Machine
from ostinato.program.expr import Access, Axis, Cast, Reduced, op
from ostinato.program.nodes import Kernel, Reduce
from ostinato.schedule.cost import (
    Rows,
    cheapest_shape,
    evict_each_other,
    lane_width,
    lines_apart,
    sums_at_once,
)
from ostinato.schedule.operands import TYPICAL_EXTENT
from ostinato.schedule.tile import estimated_cycles
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_tile import matmul, only, points

WIDE, NARROW = AVX512, NEON


@pytest.mark.parametrize(
    ("registers", "dtype", "extent", "width"),
    [
        (WIDE, "float32", 100, 16),
        (WIDE, "float64", 100, 8),
        (WIDE, "int8", 100, 64),
        (NARROW, "float32", 100, 4),
        (NARROW, "int64", 100, 2),
        (WIDE, "float32", 9, 16),
        (WIDE, "float32", 8, 8),
        (WIDE, "float32", 1, 1),
        (WIDE, "float32", symbol("N"), 16),
    ],
)
def test_lanes_fill_a_register_of_the_widest_dtype(registers, dtype, extent, width):
    kernel = only(points(extent, dtype))
    assert lane_width(kernel, extent, registers) == width


def test_casts_are_as_wide_as_the_wider_dtype():
    i = Axis("i", 100)
    kernel = Kernel("k", (i,), (), (store("y", Cast(at("x", (i, 1)), "float64"), (i, 1)),))
    assert lane_width(kernel, 100, WIDE) == 8


@pytest.mark.parametrize(
    ("sums", "vectors", "held", "count"),
    [(4, 8, None, 4), (4, 8, 16, 2), (3, 8, 16, 2), (4, 5, 16, 2), (4, 4, 16, 4), (2, 99, 16, 1)],
)
def test_sums_are_dealt_out_evenly(sums, vectors, held, count):
    assert sums_at_once(sums, vectors, held) == count


def shape_of(rows, depth: int, columns: int, machine: Machine):
    source = matmul(rows, depth, columns)
    kernel = only(source)
    row, lane = kernel.axes
    width = lane_width(kernel, lane.extent, machine)
    return cheapest_shape(kernel, lane, [Rows(row)], width, machine, source.buffers).shape


@pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=lambda m: f"{m.vector_bytes}-bytes")
def test_many_rows_take_as_many_accumulators_as_fit(machine):
    found = shape_of(64, 64, 96, machine)
    assert machine.accumulators // 2 < found.block <= machine.accumulators


def test_registers_of_rows_are_counted_where_products_take_a_lane_of_them():
    found = shape_of(64, 64, 96, NEON)
    assert found.block + found.rows + found.vectors <= NEON.vector_registers
    without = shape_of(64, 64, 96, replace(NEON, lane_operands=False))
    assert without.block > found.block


def test_panels_beyond_a_cache_are_narrower():
    """What the tiles share is read from the cache that the record says holds it."""
    depth = 2000
    small = replace(AVX512, first_level_bytes=1024, second_level_bytes=8 * 1024)
    assert shape_of(64, depth, 512, small).vectors <= shape_of(64, depth, 512, AVX512).vectors


def test_panels_that_several_tiles_read_leave_room_for_the_next():
    depth = 8000
    found = shape_of(symbol("N"), depth, 512, AVX512)
    assert found.rows < TYPICAL_EXTENT
    assert found.vectors * AVX512.vector_bytes * depth <= AVX512.paired_bytes
    # Rows whose number is known pass in pieces, so panels are short.
    assert shape_of(28, depth, 512, AVX512).vectors > found.vectors
    # One tile reads each panel once, whatever its size.
    single = shape_of(4, depth, 512, AVX512)
    assert single.vectors * AVX512.vector_bytes * depth > AVX512.paired_bytes


def test_slow_loads_are_shared_by_more_rows():
    slow = replace(AVX512, packed_cycles=(8.0, 8.0, 8.0))
    assert shape_of(64, 64, 96, slow).rows > shape_of(64, 64, 96, AVX512).rows


def test_engines_have_registers_for_operands_beside_accumulators():
    shape = shape_of(64, 64, 96, WASM)
    assert shape.block >= 8 and shape.block + shape.vectors + 1 <= WASM.vector_registers


def test_rows_cost_what_loads_for_all_lanes_do():
    cheap, dear = (replace(WASM, broadcast_loads=loads) for loads in (1.0, 1.75))
    assert shape_of(64, 64, 96, dear).rows < shape_of(64, 64, 96, cheap).rows


def test_sums_in_one_loop_wait_for_those_in_the_next():
    """A tile is as high as if the sums of the loops were kernels of their own."""
    i, j, k, m = Axis("i", 64), Axis("j", 64), Axis("k", 96), Axis("m", 48)
    sums = [
        Reduce((n,), "sum", at(x, (i, n.extent), (n, 1)), at(w, (n, 64), (j, 1)))
        for n, x, w in ((k, "x", "W"), (m, "y", "V"))
    ]
    value = op("add", Reduced(0, "float32"), Reduced(1, "float32"))
    kernel = Kernel("k", (i, j), tuple(sums), (store("z", value, (i, 64), (j, 1)),))
    weights = {n: np.ones((e, 64), np.float32) for n, e in (("W", 96), ("V", 48))}
    inputs = {"x": (64, 96), "y": (64, 48)}
    source = program(inputs, {"z": (64, 64)}, (kernel,), weights)
    both = cheapest_shape(kernel, j, [Rows(i)], 16, AVX512, source.buffers)
    first = replace(kernel, reductions=kernel.reductions[:1])
    alone = cheapest_shape(first, j, [Rows(i)], 16, AVX512, source.buffers)
    assert both.shape.block == alone.shape.block


def gates_shape(sums: int, apart: int):
    """The tile of so many sums over one window, whose neighbours begin `apart` steps later."""
    c, p = Axis("c", 16), Axis("p", 32)
    k, w = Axis("k", 120), Axis("w", 5 * apart)
    shared = at("x", (k, 1), (p, 120 * apart), (w, 120))
    weights = {f"W{n}": np.ones((120, w.extent, 16), np.float32) for n in range(sums)}
    gates = tuple(
        Reduce((k, w), "sum", shared, at(name, (k, 16 * w.extent), (w, 16), (c, 1)))
        for name in weights
    )
    value = Reduced(0, "float32")
    for n in range(1, sums):
        value = op("add", value, Reduced(n, "float32"))
    kernel = Kernel("k", (c, p), gates, (store("z", value, (p, 16), (c, 1)),))
    source = program({"x": (36 * apart, 120)}, {"z": (32, 16)}, (kernel,), weights)
    return cheapest_shape(kernel, c, [Rows(p)], 16, AVX512, source.buffers).shape


@pytest.mark.parametrize("sums", [1, 2, 4])
def test_registers_of_neighbouring_rows_are_counted_for_all_sums(sums):
    """Rows keep what the next one reads beside the weights and the results of every gate."""
    found = gates_shape(sums, 1)
    at_once = sums_at_once(sums, found.block, found.held)
    taken = at_once * (found.block + found.vectors) + found.rows
    assert found.rows > 1 and taken <= AVX512.vector_registers


def test_rows_share_nothing_beyond_the_copies_of_a_loop():
    assert gates_shape(4, AVX512.unroll).block > gates_shape(4, 1).block


@pytest.mark.parametrize(
    ("channels", "times", "turned", "lines"),
    [
        pytest.param(512, 8000, False, 512 * 8000 // 16, id="a page for each channel"),
        pytest.param(16, 256000, False, 0, id="few pages"),
        pytest.param(512, 600, False, 0, id="channels side by side within pages"),
        pytest.param(64, 4000, False, 0, id="all in the cache"),
        pytest.param(512, 8000, True, 0, id="channels are neighbours"),
    ],
)
def test_lines_are_apart_in_more_pages_than_are_fetched_ahead(channels, times, turned, lines):
    k, t = Axis("k", channels), Axis("t", times)
    strides = (1, channels) if turned else (times, 1)
    access = Access("x", 0, tuple(zip((k, t), strides, strict=True)))
    assert lines_apart(access, channels * times, 4, (k,), AVX512) == lines


@pytest.mark.parametrize(
    ("rows", "columns", "evicted"),
    [
        pytest.param(1600, 1024, True, id="a page for each row"),
        pytest.param(1600, 1040, False, id="an odd number of lines"),
        pytest.param(512, 1024, False, id="as many pages as places"),
    ],
)
def test_lines_a_page_apart_evict_each_other(rows, columns, evicted):
    k, j = Axis("k", rows), Axis("j", columns)
    access = Access("g", 0, ((k, columns), (j, 1)))
    assert evict_each_other(access, 4, {k}, AVX512) == evicted
    assert not evict_each_other(access, 4, {j}, AVX512)


def test_sums_over_many_pages_take_longer():
    """Of channels; that many groups of lanes read all of them again makes it worse."""

    def cycles(columns: int, turned: bool) -> float:
        j, k, t = Axis("j", columns), Axis("k", 100), Axis("t", 8000)
        strides = (100, 1) if turned else (1, 8000)
        total = Reduce(
            (k,), "sum", at("x", (t, strides[0]), (k, strides[1])), at("W", (k, columns), (j, 1))
        )
        stored = store("y", Reduced(0, "float32"), (t, columns), (j, 1))
        kernel = Kernel("k", (t, j), (total,), (stored,))
        weights = {"W": np.ones((100, columns), np.float32)}
        source = program({"x": (8000, 100)}, {"y": (8000, columns)}, (kernel,), weights)
        return estimated_cycles(kernel, AVX512, source.buffers)

    extra = {n: cycles(n, False) - cycles(n, True) for n in (64, 1024)}
    assert extra[64] == 100 * 8000 // 16 * AVX512.apart_cycles
    assert extra[1024] > 4 * extra[64]
