"""The cost model: which tile of sums is the cheapest."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ostinato.machine.record import AVX2, AVX512, NEON, WASM, Machine
from ostinato.program.expr import Axis, Reduced, cast, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.schedule.cost import cheapest_shape
from ostinato.schedule.lanes import lane_width
from ostinato.schedule.operands import TYPICAL_EXTENT
from ostinato.schedule.shapes import Rows, sums_at_once
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_tile import matmul, only

WIDE, NARROW = AVX512, NEON


def shape_of(rows, depth: int, columns: int, machine: Machine):
    source = matmul(rows, depth, columns)
    kernel = only(source)
    row, lane = kernel.axes
    width = lane_width(kernel, lane, machine)
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


@pytest.mark.parametrize("columns", [192, 512, 1024])
def test_what_lanes_load_stays_in_a_register_until_all_rows_have_met_it(columns):
    """Four rows of three vectors, not three of four: those would load each vector three times."""
    found = shape_of(symbol("N"), 256, columns, AVX2)
    assert found.block + found.vectors + 1 <= AVX2.vector_registers


@pytest.mark.parametrize("rows", [12, 64])
def test_sums_that_share_no_element_take_two_registers_each(rows):
    """A row has one vector: LLVM adds up in the register of what it is multiplied by."""
    found = shape_of(rows, 512, 8, AVX2)
    assert found.vectors == 1 and 2 * found.rows + 2 <= AVX2.vector_registers
    assert shape_of(rows, 512, 16, AVX512).rows > found.rows


def test_halves_of_words_that_products_take_have_registers():
    row, lane, words = Axis("i", 64), Axis("j", 96), Axis("r", 64)
    left = at("x", (row, 64), (words, 1), dtype="int32")
    total = Reduce((words,), "sum", left, at("w", (words, 96), (lane, 1), dtype="int32"))
    kernel = Kernel(
        "k", (row, lane), (total,), (store("y", Reduced(0, "int32"), (row, 96), (lane, 1)),)
    )
    source = program({"x": (64, 64), "w": (64, 96)}, {"y": (64, 96)}, (kernel,))

    def found(machine: Machine):
        return cheapest_shape(kernel, lane, [Rows(row)], 8, machine, source.buffers).shape

    taken_out = found(AVX2)
    assert taken_out.block + 2 * (taken_out.vectors + 1) < AVX2.vector_registers
    assert found(replace(AVX2, byte_dots="vnni")).block > taken_out.block


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


@pytest.mark.parametrize("meet", [True, False])
def test_results_that_wait_for_what_meets_them_take_half_of_the_registers(meet):
    """Stores of single sums have no need of more, and take all accumulators."""
    i, j, k = Axis("i", 12), Axis("j", 256), Axis("k", 256)
    weights = {f"W{n}": np.ones((256, 256), np.float32) for n in range(4)}
    gates = tuple(
        Reduce((k,), "sum", at("x", (i, 256), (k, 1)), at(name, (k, 256), (j, 1)))
        for name in weights
    )
    values = [Reduced(n, "float32") for n in range(4)]
    if meet:
        values = [op("add", op("add", values[0], values[1]), op("add", values[2], values[3]))]
    stores = tuple(store(f"z{n}", v, (i, 256), (j, 1)) for n, v in enumerate(values))
    kernel = Kernel("k", (i, j), gates, stores)
    outputs = {f"z{n}": (12, 256) for n in range(len(values))}
    source = program({"x": (12, 256)}, outputs, (kernel,), weights)
    found = cheapest_shape(kernel, j, [Rows(i)], 16, AVX512, source.buffers).shape
    most = AVX512.vector_registers // 2 if meet else AVX512.accumulators
    assert 4 * found.block == most


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


def filter_shape(columns: int, channels: int, given: int):
    """The tile of filters of three taps over `given` channels, which neighbouring rows share."""
    c, p, k, w = Axis("c", channels), Axis("p", columns), Axis("k", given), Axis("w", 3)
    image = at("x", (k, columns + 2), (p, 1), (w, 1))
    taps = Reduce((k, w), "sum", image, at("W", (k, 3 * channels), (w, channels), (c, 1)))
    stored = store("z", Reduced(0, "float32"), (p, channels), (c, 1))
    kernel, weights = Kernel("k", (c, p), (taps,), (stored,)), np.ones((given, 3, channels), "f4")
    shapes = {"x": (given, columns + 2)}, {"z": (columns, channels)}
    source = program(*shapes, (kernel,), {"W": weights})
    return cheapest_shape(kernel, c, [Rows(p)], 8, AVX2, source.buffers).shape


def test_of_equal_tiles_rows_that_share_have_more():
    """Four rows of two vectors load six elements for three taps, two rows of four eight vectors.

    Of 96 terms, panels of either stay in the first-level cache.
    """
    found = filter_shape(48, 64, 32)
    assert (found.rows, found.vectors) == (4, 2)


def test_panels_of_neighbouring_rows_stay_in_a_cache_of_32_kib():
    """Of 288 terms four vectors take 36 KiB: two of them are read twice, for twice as many rows."""
    found = filter_shape(30, 32, 96)
    assert found.vectors * AVX2.vector_bytes * 288 <= AVX2.near_bytes == 32 * 1024


def test_rows_share_nothing_beyond_the_copies_of_a_loop():
    assert gates_shape(4, AVX512.unroll).block > gates_shape(4, 1).block


@pytest.mark.parametrize("dilation", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("machine", [AVX512, AVX2], ids=lambda m: f"{m.vector_bytes}-bytes")
def test_rows_share_what_dilated_windows_meet_again(machine, dilation):
    """Rows keep what so many rows further on the next tap reads; nearer ones share nothing."""
    c, p, k, w = Axis("c", 64), Axis("p", 160), Axis("k", 64), Axis("w", 11)
    taps = Reduce(
        (k, w),
        "sum",
        at("x", (k, 1), (p, 64), (w, 64 * dilation)),
        at("W", (k, 704), (w, 64), (c, 1)),
    )
    kernel = Kernel("k", (c, p), (taps,), (store("z", Reduced(0, "float32"), (p, 64), (c, 1)),))
    weights = {"W": np.ones((64, 11, 64), np.float32)}
    source = program({"x": (160 + 10 * dilation, 64)}, {"z": (160, 64)}, (kernel,), weights)
    width = machine.vector_bytes // 4
    found = cheapest_shape(kernel, c, [Rows(p)], width, machine, source.buffers).shape
    kept = max(found.rows - dilation + 1, 0) if found.rows > dilation else 0
    assert found.block + found.vectors + kept <= machine.vector_registers
    assert found.block >= 8


@pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=lambda m: f"{m.vector_bytes}-bytes")
@pytest.mark.parametrize("sums", [1, 4, 6, 8])
def test_words_of_two_terms_have_registers(sums, machine):
    j, k = Axis("j", 512), Axis("k", 512)
    weights = {f"W{n}": np.ones((512, 512), ml_dtypes.bfloat16) for n in range(sums)}
    gates = tuple(
        Reduce(
            (k,),
            "sum",
            at("x", (k, 1)),
            cast(at(name, (k, 512), (j, 1), dtype="bfloat16"), "float32"),
        )
        for name in weights
    )
    value = Reduced(0, "float32")
    for n in range(1, sums):
        value = op("add", value, Reduced(n, "float32"))
    kernel = Kernel("k", (j,), gates, (store("z", value, (j, 1)),))
    source = program({"x": (512,)}, {"z": (512,)}, (kernel,), weights)
    width = lane_width(kernel, j, machine)
    found = cheapest_shape(kernel, j, [Rows(None)], width, machine, source.buffers).shape
    at_once = sums_at_once(sums, found.block, found.held)
    assert found.block == 1 or at_once * 2 * found.block < machine.vector_registers
