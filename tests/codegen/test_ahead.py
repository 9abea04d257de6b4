"""Fetching the next panel of weights: which lines each tile asks for, and that results stay."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ostinato.codegen.ahead import STREAM_BYTES
from ostinato.codegen.kernels import KernelEmitter
from ostinato.codegen.target import find_target
from ostinato.machine.record import AVX512, Machine
from ostinato.program.expr import Axis, Reduced, op
from ostinato.program.kernel import Kernel, Reduce, Tile
from ostinato.program.nodes import CALL, Buffer, Program
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import Dim, Size, Symbol, symbol
from tests.codegen.test_module import check
from tests.codegen.test_transposed_load import feeds, keys
from tests.program.programs import at, program, store

# Whose second-level cache the weights of these tests leave before they are read again, and which
# reads that cache while it multiplies.
# One copy of a step, whatever the tile.
SMALL = replace(AVX512, second_level_bytes=32 << 10, packed_cycles=(0.1, 0.1, 3.0), unroll=1)
ROWS, DEPTH, BLOCKS, VECTORS = 10, 64, 3, 2


def packed(rows: int, number: Size = ROWS, **tile) -> Program:
    """`y[i, j] = sum_k x[i, k] W[j / 32, k, j % 32]`, the weights of a group of lanes together."""
    i, o, j, k = Axis("i", number), Axis("o", BLOCKS), Axis("j", 16 * VECTORS), Axis("k", DEPTH)
    group = j.extent
    right = at("W", (j, 1), (k, group), (o, group * DEPTH))
    reduce = Reduce((k,), "sum", at("x", (i, DEPTH), (k, 1)), right)
    stored = store("y", Reduced(0, "float32"), (i, BLOCKS * group), (o, group), (j, 1))
    shape = Tile(j, 16, VECTORS, block=o, row=i, rows=rows, **{"inside": (i,), **tile})
    kernel = Kernel("k", (i, o, j), (reduce,), (stored,), tile=shape)
    weights = np.random.default_rng(0).standard_normal((BLOCKS, DEPTH, group)).astype(np.float32)
    shapes = {"x": (number, DEPTH)}, {"y": (number, BLOCKS * group)}
    names = () if isinstance(number, int) else (str(number),)
    source = program(*shapes, (kernel,), {"W": weights}, symbols=names)
    return replace(source, buffers={**source.buffers, "W": padded(source.buffers["W"])})


def padded(buffer: Buffer) -> Buffer:
    return replace(buffer, padded=True)


def fetches(source: Program, machine: Machine = SMALL) -> int:
    (kernel,) = source.kernels()
    text = KernelEmitter(kernel, source.buffers, source.symbols, set(), machine).text()
    return len(re.findall("call void @llvm.prefetch", text))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 10])
def test_results_are_those_without(rows):
    source = packed(rows)
    x = np.random.default_rng(rows).standard_normal((ROWS, DEPTH)).astype(np.float32)
    check(source, {"x": x}, tiled=False)


def test_tiles_share_the_lines_of_a_step():
    # A step reads two lines: one of two tiles each, and one for each of more tiles than lines.
    assert fetches(packed(5)) == fetches(packed(1)) > 0


@pytest.mark.parametrize("number", [0, 4, 5, 13, 41])
def test_results_are_those_without_however_many_rows_a_run_has(number):
    x = np.random.default_rng(number).standard_normal((number, DEPTH)).astype(np.float32)
    for serpentine in (None, CALL):
        check(packed(5, symbol("N"), serpentine=serpentine), {"x": x}, tiled=False)


def test_each_of_the_first_tiles_of_a_run_fetches_a_line():
    """A step reads two lines; those behind the full tiles, and rows alone, fetch nothing."""
    source = packed(5, symbol("N"))
    (kernel,) = source.kernels()
    text = KernelEmitter(kernel, source.buffers, source.symbols, set(), SMALL).text()
    assert 0 < fetches(source) == len(re.findall(r"icmp slt i64 %[^,]+, 128\b", text))
    assert fetches(source) == fetches(packed(5))
    assert fetches(packed(1, symbol("N"))) == 0


def test_a_single_tile_of_each_chunk_of_a_run_fetches_nothing():
    enough = Dim((((Symbol("N", low=5),), 1),))
    assert fetches(packed(5, enough, chunk=5)) == 0


@pytest.mark.parametrize("tile", [{"inside": ()}, {"block": None}])
def test_panels_that_are_near_or_alone_are_not_fetched(tile):
    source = packed(5)
    (kernel,) = source.kernels()
    changed = replace(kernel, tile=replace(kernel.tile, **tile))
    assert fetches(replace(source, body=(changed,))) == 0


def test_tiles_that_keep_the_cache_busy_fetch_nothing():
    # Two vectors of weights in the time of 2, 4 or 10 multiply-adds, two of which take a cycle.
    slow = replace(SMALL, packed_cycles=AVX512.packed_cycles)
    assert [fetches(packed(rows), slow) for rows in (1, 2, 5)] == [0, 0, 0]


@pytest.mark.parametrize(("depth", "count"), [(64, 5), (8, 0)])
def test_what_is_added_to_a_long_sum_is_fetched_before_it(depth, count):
    """A line for each row of a tile; a short sum is done before it would be there."""
    i, j, k = Axis("i", 1000), Axis("j", 16), Axis("k", depth)
    total = Reduce((k,), "sum", at("x", (i, depth), (k, 1)), at("W", (k, 16), (j, 1)))
    value = op("add", at("z", (i, 16), (j, 1)), Reduced(0, "float32"))
    shape = Tile(j, 16, 1, row=i, rows=5)
    kernel = Kernel("k", (i, j), (total,), (store("y", value, (i, 16), (j, 1)),), tile=shape)
    weights = {"W": np.ones((depth, 16), np.float32)}
    shapes = {"x": (1000, depth), "z": (1000, 16)}
    source = program(shapes, {"y": (1000, 16)}, (kernel,), weights)
    assert fetches(source, AVX512) == count
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    check(source, feeds, tiled=False)


@pytest.mark.parametrize(("known", "steps"), [(True, True), (False, True), (True, False)])
def test_what_steps_write_elsewhere_is_fetched_before_a_long_sum(known, steps):
    """A line for each row of a tile, however many steps there are."""
    i, j, k, t = (
        Axis("i", 5),
        Axis("j", 16),
        Axis("k", 64),
        Axis("t", 200 if known else symbol("T")),
    )
    total = Reduce((k,), "sum", at("x", (i, 64), (k, 1)), at("W", (k, 16), (j, 1)))
    around = ((t, 80),) if steps else ()
    stored = store("y", Reduced(0, "float32"), *around, (i, 16), (j, 1))
    kernel = Kernel("k", (i, j), (total,), (stored,), tile=Tile(j, 16, 1, row=i, rows=5))
    shapes = {"x": (5, 64)}, {"y": (t.extent, 5, 16)}
    source = program(*shapes, (kernel,), {"W": np.ones((64, 16), np.float32)})
    body = KernelEmitter(kernel, source.buffers, source.symbols, set(), AVX512)
    assert len(re.findall("call void @llvm.prefetch", body.text())) == 5 * steps


def test_a_single_tile_fetches_its_own_stream():
    source = packed(ROWS)
    (kernel,) = source.kernels()
    text = KernelEmitter(kernel, source.buffers, source.symbols, set(), SMALL).text()
    # A step of 32 weights is two lines.
    ahead = re.findall(rf"getelementptr i8, ptr %[^,]+, i64 {STREAM_BYTES}\b", text)
    assert ahead and fetches(source) == 2 * len(ahead)


@pytest.mark.parametrize(
    ("held", "number", "depth", "count"),
    # Both sums in a loop each; in one loop; rows that stay in a cache; long rows.
    [(8, 100, 64, 2), (None, 100, 64, 0), (8, 6, 64, 0), (8, 100, 1024, 0)],
)
def test_short_rows_of_sums_one_after_the_other_are_fetched(held, number, depth, count):
    """Each step fetches a line of one of the next rows, those of its own sum."""
    i, j, k = Axis("i", number), Axis("j", 16), Axis("k", depth)
    sums = tuple(
        Reduce((k,), "sum", at(f"x{n}", (i, depth), (k, 1)), at(f"W{n}", (k, 16), (j, 1)))
        for n in range(2)
    )
    value = op("add", Reduced(0, "float32"), Reduced(1, "float32"))
    shape = Tile(j, 16, 1, row=i, rows=8, held=held)
    kernel = Kernel("k", (i, j), sums, (store("y", value, (i, 16), (j, 1)),), tile=shape)
    random = np.random.default_rng(0)
    weights = {f"W{n}": random.standard_normal((depth, 16)).astype(np.float32) for n in range(2)}
    shapes = {f"x{n}": (number, depth) for n in range(2)}
    source = program(shapes, {"y": (number, 16)}, (kernel,), weights)
    machine = replace(AVX512, second_level_bytes=32 << 10, first_level_bytes=8 << 10, unroll=1)
    assert fetches(source, machine) == count
    feeds = {name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    check(source, feeds, tiled=False)


def test_weights_that_stay_in_a_cache_are_not_fetched():
    assert fetches(packed(5), AVX512) == 0


def test_a_machine_without_such_an_instruction_fetches_nothing():
    assert fetches(packed(5), replace(SMALL, fetches=False)) == 0


def test_groups_that_run_backwards_fetch_the_one_before():
    source = packed(5, serpentine=CALL)
    (kernel,) = source.kernels()
    text = KernelEmitter(kernel, source.buffers, source.symbols, set(), SMALL).text()
    panel = 4 * 16 * VECTORS * DEPTH
    assert f"i64 {-panel}, i64 {panel}" in text


@pytest.mark.parametrize(
    ("rows", "lanes", "terms", "lines"),
    [
        (1, 1024, 64, 8),  # two vectors of lanes, a line of one from each of 16 terms
        (1, symbol("P"), 64, 16),  # full groups, and the last one
        (1, 128, 64, 0),  # all of it lies in the first-level cache
        (1, 1024, 256, 0),  # rows so long that caches foresee them
        (1, 1024, 1024, 0),  # lines of the next lanes would evict these
        (3, 1024, 64, 0),
        (5, 1024, 64, 0),  # the row behind a full tile finds them in a cache
    ],
    ids=str,
)
def test_terms_fetch_lines_of_the_next_lanes_of_short_rows(rows, lanes, terms, lines):
    names = () if isinstance(lanes, int) else (str(lanes),)
    assert fetches(tile(keys(rows, lanes, terms, names), AVX512), AVX512) == lines


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize(("count", "lanes"), [(1, 77), (1, 640), (2, 77)])
def test_results_are_those_without_next_lanes(count, lanes, target):
    source = keys(symbol("M"), symbol("P"), 64, ("M", "P"))
    check(source, feeds(count, lanes, 64), target=find_target(target))
