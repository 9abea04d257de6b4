from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.codegen.transposed_store import is_transposed
from ostinato.program.expr import Axis, Cast, Index, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.nodes import Program
from ostinato.sizes.dims import symbol
from tests.codegen.test_module import Native, check
from tests.program.programs import at, program, store


def columns(
    rows: int,
    lanes: int,
    width: int,
    dtype: str = "float32",
    by: int = 0,
    stored: str | None = None,
) -> Program:
    """`y[j, i] = -sum_k x[i, k] W[k, j]`: lanes along `j`, whose neighbours are `i` in memory.

    stored: the type of integers that they are stored as.
    """
    i, j, k = Axis("i", rows), Axis("j", lanes), Axis("k", 3)
    left, right = at("x", (i, 3), (k, 1), dtype=dtype), at("W", (k, lanes), (j, 1), dtype=dtype)
    reduce = Reduce((k,), "sum", left, right)
    value = op("neg", Reduced(0, dtype)) if stored is None else Cast(Reduced(0, dtype), stored)
    tile = Tile(j, width, lanes // width, None, None, i, by or rows)
    kernel = Kernel("k", (i, j), (reduce,), (store("y", value, (j, rows), (i, 1)),), tile=tile)
    weights = np.arange(3 * lanes).reshape(3, lanes).astype(dtype)
    made = program({"x": (rows, 3)}, {"y": (lanes, rows)}, (kernel,), {"W": weights}, dtype=dtype)
    if stored is None:
        return made
    buffers = {**made.buffers, "y": replace(made.buffers["y"], dtype=stored)}
    outputs = tuple(replace(output, dtype=stored) for output in made.outputs)
    return replace(made, buffers=buffers, outputs=outputs)


def only_store(source: Program) -> tuple[Store, Tile]:
    (kernel,) = source.kernels()
    assert kernel.tile is not None
    return kernel.stores[0], kernel.tile


@pytest.mark.parametrize("rows", range(2, 15))
@pytest.mark.parametrize(("width", "dtype"), [(16, "float32"), (4, "float32"), (8, "float64")])
@pytest.mark.parametrize("stored", (None, "uint8", "int64"))
def test_every_number_of_rows(rows, width, dtype, stored):
    source = columns(rows, 2 * width, width, dtype, stored=stored)
    found, tile = only_store(source)
    assert is_transposed([found], tile.lane, tile.row, tile.width)
    x = np.random.default_rng(rows).uniform(0, 1, (rows, 3)).astype(dtype)
    check(source, {"x": x}, tiled=False)


@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("rows", range(2, 8))
def test_rows_of_several_neighbours(rows, count, width):
    """`y[j, count * i + n] = x[i, j] * n`, as the positions beside each other of a convolution."""
    i, j = Axis("i", rows), Axis("j", width)
    stores = tuple(
        store(
            "y",
            op("mul", at("x", (i, width), (j, 1)), constant(n, "float32")),
            (j, rows * count),
            (i, count),
            offset=n,
        )
        for n in range(count)
    )
    tile = Tile(j, width, row=i, rows=rows)
    kernel = Kernel("k", (j, i), (), stores, tile=tile)
    assert is_transposed(stores, tile.lane, tile.row, tile.width)
    x = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)
    inputs, outputs = {"x": (rows, width)}, {"y": (width, rows * count)}
    check(program(inputs, outputs, (kernel,)), {"x": x}, tiled=False)


@pytest.mark.parametrize("lanes", [20, 24, 31])
def test_lanes_that_do_not_fill_the_last_vector(lanes):
    """The two vectors of a tile are stored alike, without a scatter."""
    i, j, k = Axis("i", 8), Axis("jv", 32), Axis("k", 3)
    reduce = Reduce((k,), "sum", at("x", (i, 3), (k, 1)), at("W", (k, 32), (j, 1)))
    kernel = Kernel(
        "k",
        (i, j),
        (reduce,),
        (store("y", Reduced(0, "float32"), (j, 8), (i, 1)),),
        guard=op("lt", Index(j), constant(lanes, "int64")),
        tile=Tile(j, 16, 2, None, lanes, i, 8),
    )
    weights = np.arange(96).reshape(3, 32).astype(np.float32)
    source = program({"x": (8, 3)}, {"y": (lanes, 8)}, (kernel,), {"W": weights})
    x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    check(source, {"x": x}, tiled=False)
    assert "masked.scatter" not in Native(source, tiled=False).text


def test_rows_that_do_not_fill_the_last_tile():
    source = columns(23, 16, 16, by=10)
    x = np.random.default_rng(0).standard_normal((23, 3)).astype(np.float32)
    check(source, {"x": x}, tiled=False)


@pytest.mark.parametrize("extents", [(1, 1), (1, 40), (8, 16), (23, 37), (40, 1), (0, 5)])
def test_distances_known_at_run_time(extents):
    m, n = symbol("M"), symbol("N")
    i, j = Axis("i", m), Axis("j", n)
    value = op("neg", at("x", (i, n), (j, 1)))
    kernel = Kernel("k", (j, i), (), (store("y", value, (j, m), (i, 1)),))
    source = program({"x": (m, n)}, {"y": (n, m)}, (kernel,), symbols=("M", "N"))
    x = np.random.default_rng(0).standard_normal(extents).astype(np.float32)
    check(source, {"x": x})


@pytest.mark.parametrize(
    ("height", "breadth", "rows"), [(7, 7, 2), (4, 4, 4), (5, 3, 3), (2, 2, 2)]
)
@pytest.mark.parametrize("gap", [0, 3])
def test_all_points_across_for_each_row(height, breadth, rows, gap):
    """Narrow images whose rows may lie apart in memory."""
    y, x, j, k = Axis("y", height), Axis("x", breadth), Axis("j", 16), Axis("k", 3)
    plane, pitch = height * breadth, breadth + gap
    left = at("a", (k, plane), (y, breadth), (x, 1))
    reduce = Reduce((k,), "sum", left, at("W", (k, 16), (j, 1)))
    moved = op("mul", Reduced(0, "float32"), op("add", number(x), number(y)))
    stored = store("z", moved, (j, height * pitch), (y, pitch), (x, 1))
    tile = Tile(j, 16, row=y, rows=rows, across=x)
    kernel = Kernel("k", (j, y, x), (reduce,), (stored,), tile=tile)
    weights = np.arange(48).reshape(3, 16).astype(np.float32)
    fill = Kernel("f", (Axis("n", 16 * height * pitch),), (), ())
    fill = replace(fill, stores=(store("z", constant(0, "float32"), (fill.axes[0], 1)),))
    inputs, outputs = {"a": (3, height, breadth)}, {"z": (16, height, pitch)}
    source = program(inputs, outputs, (fill, kernel), {"W": weights})
    a = np.random.default_rng(rows).standard_normal((3, height, breadth)).astype(np.float32)
    check(source, {"a": a}, tiled=False)


def number(axis: Axis) -> Cast:
    """The index along an axis as a float."""
    return Cast(Index(axis), "float32")


def test_other_stores_are_left_alone():
    found, tile = only_store(columns(4, 16, 16))
    lane, row = tile.lane, tile.row
    assert lane is not None and row is not None
    dense = store("y", found.value, (row, 16), (lane, 1))
    spread = store("y", found.value, (lane, 64), (row, 2))
    whole = store("y", op("lt", found.value, found.value), (lane, 4), (row, 1))
    masked = replace(found, mask=op("lt", found.value, found.value))
    for other in (dense, spread, whole, masked):
        assert not is_transposed([other], lane, row, 16)
    assert not is_transposed([found], lane, None, 16)
    assert not is_transposed([found], lane, row, 1)
