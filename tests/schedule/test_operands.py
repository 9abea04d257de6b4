"""Analyses of loads: along lanes, along rows, beside each point."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.machine.record import AVX512, KIB
from ostinato.program.expr import Access, Axis, Load, Reduced
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Buffer, Kind
from ostinato.schedule.operands import (
    DEPTH,
    LONG_DEPTH,
    TYPICAL_EXTENT,
    accesses,
    depth_of,
    loaded_by_lanes,
    loads_of_a_row,
    neighbour_axes,
    neighbouring_stores,
    partial_result_stores,
    row_axes_of_windows,
    rows_overlap,
    shared_axes,
    typical,
)
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import at, store

ROW, LANE, DEEP = Axis("m", 6), Axis("n", 8), Axis("k", 2 * DEPTH)


def product(row_stride: int = 2 * DEPTH) -> Kernel:
    """y[m, n] = sum over k of x[m, k] w[k, n]."""
    x, w = at("x", (ROW, row_stride), (DEEP, 1)), at("w", (DEEP, 8), (LANE, 1))
    total = store("y", Reduced(0, "float32"), (ROW, 8), (LANE, 1))
    return Kernel("k", (ROW, LANE), (Reduce((DEEP,), "sum", x, w),), (total,))


def test_sizes_of_a_run_count_as_typical() -> None:
    assert (typical(3), typical(symbol("T"))) == (3, TYPICAL_EXTENT)


def test_weights_are_loaded_by_lanes_and_shared_by_rows() -> None:
    assert [load.access.buffer for load in loaded_by_lanes(product(), LANE)] == ["w"]
    assert shared_axes(product(), LANE) == (ROW,)
    assert loads_of_a_row(product(), LANE, ROW) == 1


def test_loads_of_a_sum_happen_for_each_of_its_terms() -> None:
    counts = {access.buffer: count for access, count, _ in accesses(product())}
    assert counts == {"x": 2 * DEPTH, "w": 2 * DEPTH, "y": 1}


def test_long_sums_of_many_rows_are_added_in_pieces() -> None:
    def depth(rows: Size, terms: Size, kind: Kind = "constant") -> int | None:
        m, k = Axis("m", rows), Axis("k", terms)
        x, w = at("x", (m, terms), (k, 1)), at("w", (k, 64), (LANE, 1))
        total = store("y", Reduced(0, "float32"), (m, 64), (LANE, 1))
        kernel = Kernel("k", (m, LANE), (Reduce((k,), "sum", x, w),), (total,))
        buffers = {"w": Buffer("w", "float32", 64 * 8192, kind)}
        return depth_of(kernel, LANE, m, AVX512, buffers)

    assert depth(100, 3072) == depth(16, 8192) == LONG_DEPTH
    # A single tile reads nothing again, and short sums are near; what a run gives is copied first.
    assert depth(8, 8192) is depth(50, 3072) is depth(400, 2 * LONG_DEPTH - 1) is None
    assert depth(symbol("N"), 8192) is depth(100, symbol("T")) is None
    assert depth(100, 3072, "input") is None


def test_long_sums_of_windows_are_added_in_pieces_of_channels() -> None:
    def depth(pixels: int, channels: int, taps: int) -> int | None:
        p, c, t = Axis("p", pixels), Axis("c", channels), Axis("t", taps)
        x = at("x", (p, channels), (c, 1), (t, channels))
        w = at("w", (c, 64 * taps), (t, 64), (LANE, 1))
        total = store("y", Reduced(0, "float32"), (p, 64), (LANE, 1))
        kernel = Kernel("k", (p, LANE), (Reduce((c, t), "sum", x, w),), (total,))
        buffers = {"w": Buffer("w", "float32", 64 * channels * taps, "constant")}
        return depth_of(kernel, LANE, p, AVX512, buffers)

    assert depth(1000, 2048, 9) == LONG_DEPTH // 9
    assert depth(1000, 16, 2 * LONG_DEPTH) == 1
    assert depth(1000, 128, 9) is depth(8, 2048, 9) is None


def test_pieces_over_scattered_lines_are_as_many_as_are_fetched_ahead() -> None:
    """Channels of 33 x 33 pixels: windows meet all lines of each."""
    side, channels = 33, 2048
    p, q, c, t = Axis("p", 12), Axis("q", side), Axis("c", channels), Axis("t", 3)
    x = at("x", (c, side * side), (p, side), (q, 1), (t, 10 * side))
    w = at("w", (c, 64 * 3), (t, 64), (LANE, 1))
    total = store("y", Reduced(0, "float32"), (p, 64 * side), (q, 64), (LANE, 1))
    kernel = Kernel("k", (p, q, LANE), (Reduce((c, t), "sum", x, w),), (total,))
    buffers = {"w": Buffer("w", "float32", 64 * 3 * channels, "constant")}
    small = replace(AVX512, second_level_bytes=1024 * KIB)
    assert depth_of(kernel, LANE, q, small, buffers) == small.followed_pages // t.extent
    few = replace(small, second_level_bytes=256 * KIB)
    assert depth_of(kernel, LANE, q, few, buffers) == few.panel_bytes // (side * side * 4)
    large = replace(AVX512, second_level_bytes=4096 * KIB)
    assert depth_of(kernel, LANE, q, large, buffers) == LONG_DEPTH // 3


def test_rows_of_memory_are_added_in_pieces() -> None:
    buffers = {"w": Buffer("w", "float32", 16 * DEPTH, "input")}
    assert depth_of(product(1), LANE, ROW, AVX512, buffers) == DEPTH
    assert depth_of(product(), LANE, ROW, AVX512, buffers) is None
    assert depth_of(product(), LANE, None, AVX512, buffers) is None


def test_rows_overlap_where_a_window_moves() -> None:
    assert not rows_overlap(product(), ROW) and rows_overlap(product(2), ROW)
    assert neighbour_axes(product(1), LANE) == {ROW}


def test_rows_of_windows_share_weights_or_overlap() -> None:
    c, x, k = Axis("c", 8), Axis("x", 8), Axis("k", 3)
    image, weights = at("a", (c, 10), (x, 1), (k, 1)), at("w", (c, 3), (k, 1))
    stored = store("y", Reduced(0, "float32"), (c, 8), (x, 1))
    for operands in ((image, weights), (image,)):
        kernel = Kernel("k", (c, x), (Reduce((k,), "sum", *operands),), (stored,))
        assert row_axes_of_windows(kernel, c) == (x,)
    # Nothing is gained where windows do not touch, nor where all rows share all weights.
    apart = Reduce((k,), "max", at("a", (c, 24), (x, 3), (k, 1)))
    assert row_axes_of_windows(Kernel("k", (c, x), (apart,), (stored,)), x) == ()
    assert row_axes_of_windows(product(), LANE) == ()


@pytest.mark.parametrize("is_of_a_row", [False, True])
def test_rows_share_weights_beside_what_lanes_gather_unless_each_gathers_its_own(
    is_of_a_row: bool,
) -> None:
    n, x, k = Axis("n", 8), Axis("x", 8), Axis("k", 3)
    own = [(n, 24)] if is_of_a_row else []
    place = Load(Access("p", 0, (*own, (k, 8), (x, 1))), "int64")
    image = Load(Access("a", 0, ()), "float32", index=((place, 1),))
    sums = Reduce((k,), "sum", image, at("w", (k, 1)))
    stored = store("y", Reduced(0, "float32"), (n, 8), (x, 1))
    kernel = Kernel("k", (n, x), (sums,), (stored,))
    rows = () if is_of_a_row else (n,)
    assert (row_axes_of_windows(kernel, x) or shared_axes(kernel, x)) == rows


def test_partial_results_wait_in_the_place_of_the_result() -> None:
    assert partial_result_stores(product(), LANE) == (0,)
    assert partial_result_stores(product(), ROW) == ()


def groups(buffer: str, offsets: list[int], ordered: bool = False) -> list[list[int]]:
    i = Axis("i", 4)
    stores = tuple(store("y", at(buffer, (i, 1)), (i, 4), offset=n) for n in offsets)
    kernel = Kernel("k", (i,), (), stores, ordered=(i,) if ordered else ())
    return [[s.access.offset for s in group] for group in neighbouring_stores(kernel)]


def test_stores_side_by_side_are_one_group() -> None:
    assert groups("x", [0, 1, 2]) == [[0, 1, 2]]
    assert groups("x", [0, 2, 1, 3]) == [[0, 1], [2, 3]]


def test_where_a_point_reads_what_it_writes_the_order_stays() -> None:
    assert groups("y", [0, 1]) == [[0], [1]]
    assert groups("x", [0, 1], ordered=True) == [[0], [1]]
