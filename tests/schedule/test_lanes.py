"""Lanes fill vectors, and what lies too far apart counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import AVX512, NEON
from ostinato.program.expr import Access, Axis, Cast, Reduced, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.schedule.lanes import evict_each_other, lane_score, lane_width, lines_apart
from ostinato.schedule.tile import estimated_cycles
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_tile import only, points

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
    assert lane_width(kernel, kernel.axes[0], registers) == width


def test_casts_are_as_wide_as_the_wider_dtype():
    i = Axis("i", 100)
    kernel = Kernel("k", (i,), (), (store("y", Cast(at("x", (i, 1)), "float64"), (i, 1)),))
    assert lane_width(kernel, i, WIDE) == 8


@pytest.mark.parametrize(("is_common", "width"), [(True, 16), (False, 8)])
def test_positions_that_all_lanes_have_in_common_take_no_register(is_common, width):
    """The row of a table that an index chooses is a scalar, but not the element of each lane."""
    i, j = Axis("i", 20), Axis("j", 100)
    index = at("indices", (i if is_common else j, 1), dtype="int64")
    row = replace(at("table", (j, 1)), index=((index, 100),))
    kernel = Kernel("k", (i, j), (), (store("y", row, (i, 100), (j, 1)),))
    assert lane_width(kernel, j, WIDE) == width


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


def test_lanes_do_not_gather_where_others_are_neighbours():
    """Rows `index[i]` of a table, scaled: along the elements of a row one load takes all lanes."""
    i, j = Axis("i", 100), Axis("j", symbol("N"))
    total = at("bias", (i, 1), dtype="float64")
    for tap in range(30):
        index, scale, shift = (
            replace(at(name, (i, 1), dtype=dtype), access=Access(name, 100 * tap, ((i, 1),)))
            for name, dtype in (("index", "int64"), ("scale", "float64"), ("shift", "float64"))
        )
        row = replace(at("table", (j, 1), dtype="float64"), index=((index, j.extent),))
        total = op("add", total, op("mul", op("add", row, shift), scale))
    kernel = Kernel("k", (i, j), (), (store("y", total, (i, j.extent), (j, 1)),))
    scores = [lane_score(kernel, axis, WIDE, {}) for axis in (i, j)]
    assert scores[1] > scores[0]
