"""Sums over windows that overlap from row to row, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.program.expr import Access, Axis, Load, Reduced
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.nodes import Program
from tests.codegen.test_kernels import random
from tests.codegen.test_module import Native, check
from tests.program.programs import at, program

WIDTH = 8


def windows(rows: int, taps: tuple[int, int], step: int, tile_rows: int, weights: bool) -> Program:
    """Two images of so many rows of 16 places: sums of taps over lines and along them."""
    lines, columns = step * (rows - 1) + taps[0], 15 + taps[1]
    c, i, v = Axis("c", 2), Axis("i", rows), Axis("v", 16)
    r, k = Axis("r", taps[0]), Axis("k", taps[1])
    terms = ((c, lines * columns), (i, step * columns), (r, columns), (v, 1), (k, 1))
    image = Load(Access("x", 0, terms), "float32")
    factor = at("w", (c, taps[0] * taps[1]), (r, taps[1]), (k, 1)) if weights else None
    store = Store(Access("y", 0, ((c, rows * 16), (i, 16), (v, 1))), Reduced(0, "float32"))
    kernel = Kernel(
        "k",
        (c, i, v),
        (Reduce((r, k), "sum", image, factor),),
        (store,),
        tile=Tile(v, WIDTH, 2, None, None, i, tile_rows),
    )
    inputs = {"x": (2, lines, columns), "w": (2, *taps)}
    return program(inputs, {"y": (2, rows, 16)}, (kernel,))


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("taps", [(3, 3), (5, 4), (2, 1)])
@pytest.mark.parametrize("tile_rows", [1, 2, 4])
def test_rows_read_lines_together(tile_rows, taps, step, weights):
    source = windows(9, taps, step, tile_rows, weights)
    feeds = {name: random(*shape) for name, shape in shapes(source).items()}
    check(source, feeds, tiled=False)


def shapes(source: Program) -> dict[str, tuple[int, ...]]:
    return {i.name: tuple(n for n in i.shape if isinstance(n, int)) for i in source.inputs}


@pytest.mark.parametrize(("step", "lines"), [(1, 6), (2, 9)])
def test_a_line_is_loaded_once_for_all_rows_of_a_tile(step, lines):
    native = Native(windows(4, (3, 3), step, 4, True), tiled=False)
    assert native.text.count(f"load <{WIDTH} x float>") == lines * 3 * 2


def test_infinite_lines_reach_the_rows_that_read_them_alone():
    source = windows(4, (2, 2), 1, 4, True)
    x = np.ones((2, 5, 17), np.float32)
    x[:, 2] = np.inf
    y = Native(source, tiled=False).run({"x": x, "w": np.ones((2, 2, 2), np.float32)})["y"]
    assert np.isinf(y).any(axis=(0, 2)).tolist() == [False, True, True, False]
