"""Tiles of the last group of lanes, which an axis may not fill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Access, Axis, Index, Load, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.nodes import CALL, Program
from tests.codegen.test_module import check
from tests.program.programs import at, program

DEPTH, WIDTH, GROUP = 4, 8, 16


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def products(columns: int, panels: bool) -> Program:
    """Five rows of sums in two groups of two vectors, of weights in rows or in padded panels."""
    i, block, lane, k = (Axis("i", 5), Axis("o", 2), Axis("v", GROUP), Axis("k", DEPTH))
    place = op("add", op("mul", Index(block), constant(GROUP, "int64")), Index(lane))
    strides = (GROUP * DEPTH, GROUP) if panels else (GROUP, columns)
    weights = Access("w", 0, ((block, strides[0]), (k, strides[1]), (lane, 1)))
    stored = Access("y", 0, ((i, columns), (block, GROUP), (lane, 1)))
    kernel = Kernel(
        "k",
        (i, block, lane),
        (Reduce((k,), "sum", at("x", (i, DEPTH), (k, 1)), Load(weights, "float32")),),
        (Store(stored, op("max", Reduced(0, "float32"), constant(0.0, "float32"))),),
        guard=op("lt", place, constant(columns, "int64")),
        tile=Tile(lane, WIDTH, 2, block, columns, i, 3),
    )
    values = random(DEPTH, columns)
    if panels:
        wide = np.pad(values, ((0, 0), (0, 2 * GROUP - columns))).reshape(DEPTH, 2, GROUP)
        values = np.ascontiguousarray(wide.transpose(1, 0, 2))
    source = program({"x": (5, DEPTH)}, {"y": (5, columns)}, (kernel,), {"w": values})
    buffers = dict(source.buffers)
    buffers["w"] = replace(buffers["w"], padded=panels)
    return replace(source, buffers=buffers)


# Tiles of three rows and of two.
ROWS = 3 + 2


@pytest.mark.parametrize("columns", [25, 27])
@pytest.mark.parametrize("backwards", [False, True])
def test_sums_of_padded_operands_are_written_once_for_all_groups(columns, backwards):
    source = products(columns, panels=True)
    if backwards:
        (kernel,) = source.kernels()
        source = source.with_body((replace(kernel, tile=replace(kernel.tile, serpentine=CALL)),))
    native = check(source, {"x": random(5, DEPTH)}, tiled=False)
    assert native.text.count("call <8 x float> @llvm.fma") == ROWS * 2 * DEPTH


@pytest.mark.parametrize(
    ("columns", "panels", "vectors"),
    [(17, False, 1), (17, True, 1), (24, False, 1), (24, True, 1), (25, False, 2)],
)
def test_the_last_group_has_no_vectors_without_lanes(columns, panels, vectors):
    native = check(products(columns, panels), {"x": random(5, DEPTH)}, tiled=False)
    assert native.text.count("call <8 x float> @llvm.fma") == ROWS * (2 + vectors) * DEPTH


@pytest.mark.parametrize("panels", [False, True])
def test_lanes_that_fill_their_vectors_have_no_masks(panels):
    native = check(products(24, panels), {"x": random(5, DEPTH)}, tiled=False)
    assert "masked" not in native.text
