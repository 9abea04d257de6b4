from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import AVX512, Machine
from ostinato.program.expr import Axis, Reduced, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Loop, Program
from ostinato.schedule.chunk import chunk
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import Size, symbol
from tests.codegen.test_module import check
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results
from tests.schedule.test_tile import depthwise, matmul

MACHINE = replace(Machine(16, 16), second_level_bytes=32 * 1024)


def product(rows: int, depth: int, columns: int) -> Program:
    return tile(matmul(rows, depth, columns), MACHINE)


def chunk_of(source: Program) -> int | None:
    (kernel,) = chunk(source, MACHINE).kernels()
    assert kernel.tile is not None
    return kernel.tile.chunk


def test_rows_that_exceed_the_cache_pass_in_whole_tiles():
    source = product(500, 32, 64)
    (kernel,) = source.kernels()
    found = chunk_of(source)
    assert kernel.tile is not None and found is not None
    assert found % kernel.tile.rows == 0
    # An eighth of the cache, in rows of 128 bytes.
    assert found * 128 <= MACHINE.panel_bytes


def test_layers_that_differ_in_sizes_have_chunks_in_common():
    """Of rows that only a run counts; so layers share a function (`codegen/general.py`)."""
    machine = replace(MACHINE, second_level_bytes=1 << 20)
    found = set()
    for depth in range(33, 49):
        (kernel,) = chunk(tile(matmul(symbol("N"), depth, 64), machine), machine).kernels()
        assert kernel.tile is not None
        found.add(kernel.tile.chunk)
    assert len(found) <= 2 and None not in found


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_each_group_pass_in_chunks(stride: int):
    """Of a depthwise convolution whose channels lie together; in the other layout all are near."""
    source = tile(depthwise(stride, channels_last=True), MACHINE)
    found = chunk_of(source)
    # An eighth of the cache, in rows of 42 pixels of 40 channels; there are 12 of them.
    assert found == max(1, 12 * MACHINE.panel_bytes // (source.buffers["a"].size * 4))
    assert_same_results(source, chunk(source, MACHINE))
    assert chunk_of(tile(depthwise(stride, channels_last=False), MACHINE)) is None


@pytest.mark.parametrize("taps", [3, 5, 9])
def test_windows_along_one_axis_pass_in_whole_tiles(taps: int):
    """Where the axis that passes has the rows of a tile, none of them lies beyond its chunk."""
    c, x, k = Axis("c", 80), Axis("x", 203), Axis("k", taps)
    window = at("a", (c, 1), (x, 80), (k, 80))
    total = Reduce((k,), "sum", window, at("W", (c, taps), (k, 1)))
    stored = store("z", Reduced(0, "float32"), (c, 1), (x, 80))
    random = np.random.default_rng(0)
    image = random.standard_normal((202 + taps, 80)).astype(np.float32)
    weights = {"W": random.standard_normal((80, taps)).astype(np.float32)}
    kernel = Kernel("k", (c, x), (total,), (stored,))
    source = program({"a": image.shape}, {"z": (203, 80)}, (kernel,), weights)
    machine = replace(AVX512, second_level_bytes=32 * 1024)
    chunked = chunk(tile(source, machine), machine)
    (kernel,) = chunked.kernels()
    assert kernel.tile is not None and kernel.tile.chunk is not None
    assert kernel.tile.row == x and kernel.tile.chunk % kernel.tile.rows == 0
    check(chunked, {"a": image}, tiled=False)


def test_steps_of_the_loop_around_are_not_counted():
    """Each reads its own rows of what all of them add: these stay in the cache."""
    source = product(16, 32, 64)
    (kernel,) = source.kernels()
    around = Axis("t", 1000)
    added = at("a", (around, 16 * 64), (kernel.axes[0], 64), (kernel.axes[-1], 1))
    (stored,) = kernel.stores
    kernel = replace(kernel, stores=(replace(stored, value=op("add", stored.value, added)),))
    buffers = {**source.buffers, "a": replace(source.buffers["x"], size=1000 * 16 * 64)}
    source = replace(source, buffers=buffers, body=(Loop(around, (), (kernel,)),))
    assert chunk_of(source) is None


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [
        pytest.param(64, 32, 64, id="all of it stays in the cache"),
        pytest.param(500, 128, 64, id="the weights leave the cache"),
        pytest.param(500, 32, 4, id="a single group"),
    ],
)
def test_others_pass_as_a_whole(rows: int, depth: int, columns: int):
    assert chunk_of(product(rows, depth, columns)) is None


def test_rows_that_only_a_run_tells_pass_as_many_do():
    """In chunks as long as those of a known number of rows that exceeds the cache."""
    known, unknown = (tile(matmul(rows, 32, 64), MACHINE) for rows in (4096, symbol("N")))
    found = chunk_of(unknown)
    (a,), (b,) = known.kernels(), unknown.kernels()
    assert a.tile is not None and b.tile is not None and found is not None
    assert (
        found % b.tile.rows == 0 and abs(found - (chunk_of(known) or 0)) < a.tile.rows + b.tile.rows
    )
    assert_same_results(unknown, chunk(unknown, MACHINE))


def test_elements_of_a_batch_pass_in_chunks_one_after_the_other():
    """Windows of three places over 250 rows of 32 terms, as many of them as a run tells."""
    size = symbol("N")
    n, i, j = Axis("n", size), Axis("i", 250), Axis("j", 64)
    k, w = Axis("k", 32), Axis("w", 3)
    window = at("x", (n, 252 * 32), (i, 32), (k, 1), (w, 32))
    total = Reduce((k, w), "sum", window, at("W", (k, 192), (w, 64), (j, 1)))
    stored = store("y", Reduced(0, "float32"), (n, 250 * 64), (i, 64), (j, 1))
    kernel, weights = Kernel("k", (n, i, j), (total,), (stored,)), {"W": np.ones((32, 192), "f4")}
    shapes = {"x": (size, 252, 32)}, {"y": (size, 250, 64)}
    source = program(*shapes, (kernel,), weights, symbols=("N",))
    machine = replace(MACHINE, second_level_bytes=64 * 1024)
    found = chunk(tile(source, machine), machine)
    (kernel,) = found.kernels()
    assert kernel.tile is not None
    # Rows of 32 and of 64 floats fill a panel; each is met once by its windows.
    rows = kernel.tile.rows
    most = 250 * machine.panel_bytes // (252 * 128 + 250 * 256)
    assert kernel.tile.chunk == most // rows * rows
    assert_same_results(source, found)


def test_channels_that_only_a_run_tells_apart_are_counted():
    """Chunks of sequences of any length are those of a long one, rounded down to two bits."""
    chunks = []
    for times in (4096, symbol("N")):
        t, o, r, w = Axis("t", times), Axis("o", 64), Axis("r", 32), Axis("w", 3)
        window = at("x", (r, times + 2), (t, 1), (w, 1))
        total = Reduce((r, w), "sum", window, at("W", (r, 192), (w, 64), (o, 1)))
        stored = store("y", Reduced(0, "float32"), (t, 64), (o, 1))
        kernel = Kernel("k", (t, o), (total,), (stored,))
        symbols = () if isinstance(times, int) else ("N",)
        shapes = {"x": (32, times + 2)}, {"y": (times, 64)}
        weights = {"W": np.ones((32, 192), np.float32)}
        source = program(*shapes, (kernel,), weights, symbols=symbols)
        machine = replace(MACHINE, second_level_bytes=128 * 1024)
        found = next(chunk(tile(source, machine), machine).kernels()).tile
        assert found is not None and found.chunk is not None
        chunks.append(found.chunk)
    shift = chunks[0].bit_length() - 2
    assert chunks[1] == chunks[0] >> shift << shift


def convolution(times: Size) -> Program:
    """Of three places, whose weights of 96 KiB leave the cache."""
    o, t, r, w = Axis("o", 128), Axis("t", times), Axis("r", 64), Axis("w", 3)
    window = at("x", (t, 64), (r, 1), (w, 64))
    total = Reduce((r, w), "sum", window, at("W", (r, 384), (w, 128), (o, 1)))
    stored = store("y", Reduced(0, "float32"), (t, 128), (o, 1))
    kernel = Kernel("k", (t, o), (total,), (stored,))
    weights = {"W": np.ones((64, 384), np.float32)}
    return program({"x": (times + 2, 64)}, {"y": (times, 128)}, (kernel,), weights)


@pytest.mark.parametrize(("times", "most"), [(1000, 0), (3000, 192), (symbol("N"), 192)], ids=str)
def test_weights_that_leave_the_cache_meet_chunks_of_long_signals(times: Size, most: int):
    """Three eighths of the cache, in points of 256 bytes."""
    machine = replace(MACHINE, second_level_bytes=128 * 1024)
    (kernel,) = chunk(tile(convolution(times), machine), machine).kernels()
    assert kernel.tile is not None
    assert most - kernel.tile.rows <= (kernel.tile.chunk or 0) <= most
    shorter = replace(machine, second_level_bytes=64 * 1024)
    (kernel,) = chunk(tile(convolution(times), shorter), shorter).kernels()
    assert kernel.tile is not None and kernel.tile.chunk is None
