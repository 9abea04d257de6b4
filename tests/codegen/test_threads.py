"""Shares of kernels: together they are the whole, each element computed once."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.module import module_text
from ostinato.codegen.target import host_target
from ostinato.codegen.team import systems
from ostinato.native import memory
from ostinato.native import threads as workers
from ostinato.program import interpreter
from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.laid import lay_out
from ostinato.program.nodes import CALL, Program
from ostinato.schedule.arena import plan
from ostinato.schedule.pipeline import schedule
from ostinato.schedule.share import Part, Shares, undivided
from ostinato.sizes.dims import Size, symbol
from ostinato.sizes.substitution import evaluate
from tests.codegen.test_kernels import in_groups, matmul, random
from tests.codegen.test_module import AARCH64, Guarded
from tests.program.programs import at, program, store

N = symbol("N")
# Calls `share` for one thread's number after the other.
_ONE = """
define i64 @one(ptr %buffers, ptr %symbols, i64 %call, i64 %share, i64 %shares) {
  %code = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr null, i64 %share, i64 %shares, ptr null, ptr null)
  ret i64 %code
}
"""


class InShares:
    """A program of one kernel over `x` and weights, divided by `part`, compiled as it is."""

    def __init__(self, source: Program, part: Part) -> None:
        self._source = source
        (kernel,) = source.kernels()
        shares = Shares(undivided(source.body), {kernel.name: part}, 1)
        blob, target = lay_out(source.constants), host_target()
        text = module_text(source, plan(source), blob, target, shares) + _ONE
        names = ("one", *workers.exports(2))
        self._code = objects.load(emit_object(text, target), names, workers.imports(2))
        self._constants = memory.aligned(blob.data)
        self._one = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)(
            self._code.address("one")
        )

    def check(self, x: np.ndarray, shares: int, count: int = 0, call: int = 0) -> None:
        """Every element is computed by exactly one thread, in any order of threads."""
        expected = interpreter.run(self._source, {"x": x})["y"]
        whole = np.full(expected.shape, np.nan, "f")
        symbols = np.array([count], np.int64)
        for number in reversed(range(shares)):
            y, arena = Guarded(expected.nbytes), Guarded(64)
            values = y.bytes.view("f").reshape(expected.shape)
            values[...] = np.nan
            table = np.array(
                [x.ctypes.data, y.address, self._constants.ctypes.data, arena.address], np.uint64
            )
            assert self._one(table.ctypes.data, symbols.ctypes.data, call, number, shares) == 0
            assert y.intact() and arena.intact()
            mine = ~np.isnan(values)
            assert np.isnan(whole[mine]).all(), "two threads computed an element"
            whole[mine] = values[mine]
        assert whole.tobytes() == expected.tobytes()


def part_along(kernel: Kernel, which: str) -> Part:
    """The division along the axis that a tile calls `which`."""
    assert kernel.tile is not None
    axis = getattr(kernel.tile, which)
    return Part(axis, kernel.tile.rows if which == "row" else 1)


def scheduled(rows: Size, columns: Size, tile: Tile | None = None) -> Program:
    """A product with 5 terms in each sum, tiled and packed."""
    source = program(
        {"x": (rows, 5)}, {"y": (rows, columns)}, (matmul("", rows, 5, columns, "x", "W", "y"),),
        {"W": random(5, evaluate(columns, {}))}, symbols=("N",),
    )  # fmt: skip
    return schedule(source, host_target().machine, ("collapse",)).program


@pytest.mark.parametrize("columns", [520, 1000, 1024])
@pytest.mark.parametrize("call", [0, 1])
def test_groups_of_lanes(columns: int, call: int) -> None:
    """The last group may be smaller; every other call goes through them backwards."""
    source = scheduled(3, columns)
    (kernel,) = source.kernels()
    assert kernel.tile is not None and kernel.tile.block is not None
    kernel = replace(kernel, tile=replace(kernel.tile, serpentine=CALL))
    source = source.with_body((kernel,))
    divided = InShares(source, part_along(kernel, "block"))
    for shares in range(1, 8):
        divided.check(random(3, 5), shares, call=call)


@pytest.mark.parametrize("columns", [40, 56, 100])
@pytest.mark.parametrize("which", ["block", "row"])
def test_groups_of_lanes_of_a_single_row(columns: int, which: str) -> None:
    """Threads divide pairs of groups, in runs of many rows as well."""
    source = in_groups(columns, 2)
    (kernel,) = source.kernels()
    assert kernel.tile is not None
    part = Part(getattr(kernel.tile, which), 2 if which == "block" else kernel.tile.rows)
    divided = InShares(source, part)
    for rows in (1, 3, 11):
        for shares in (1, 2, 3, 5):
            divided.check(random(rows, 5), shares, rows)


@pytest.mark.parametrize("which", ["block", "row"])
def test_chunks_of_rows(which: str) -> None:
    source = in_groups(40, 1)
    (kernel,) = source.kernels()
    assert kernel.tile is not None
    kernel = replace(kernel, tile=replace(kernel.tile, chunk=2 * kernel.tile.rows))
    divided = InShares(source.with_body((kernel,)), part_along(kernel, which))
    for rows in (1, 7, 40):
        for shares in (1, 2, 3, 5):
            divided.check(random(rows, 5), shares, rows)


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("run_time", [False, True])
def test_rows_in_tiles(rows: int, run_time: bool) -> None:
    for count in (1, 2, rows, 2 * rows + 1, 17):
        extent: Size = N if run_time else count
        whole = matmul("", extent, 4, 16, "x", "W", "y")
        row, lane = whole.axes
        kernel = replace(whole, tile=Tile(lane, 8, 2, None, None, row, rows))
        source = program(
            {"x": (extent, 4)}, {"y": (extent, 16)}, (kernel,), {"W": random(4, 16)},
            symbols=("N",),
        )  # fmt: skip
        divided = InShares(source, Part(row, rows))
        for shares in (1, 2, 3, 5):
            divided.check(random(count, 4), shares, count)


@pytest.mark.parametrize("enough", [None, 3, 7])
def test_rows_along_the_longer_axis(enough: int | None) -> None:
    """Only a run tells which of two axes is cut into tiles; either may be dealt out."""
    first, second = symbol("N"), 6
    whole = matmul("", first, 4, 16, "x", "W", "y")
    row, lane = whole.axes
    other = Axis("other", second)
    reduce = whole.reductions[0]
    k = reduce.axes[0]
    moved = replace(reduce, expr=at("x", (other, 4 * N), (row, 4), (k, 1)))
    stores = (store("y", whole.stores[0].value, (other, 16 * N), (row, 16), (lane, 1)),)
    kernel = Kernel("k", (other, row, lane), (moved,), stores)
    kernel = replace(kernel, tile=Tile(lane, 8, 2, None, None, row, 4, other=other, enough=enough))
    source = program(
        {"x": (second, N, 4)}, {"y": (second, N, 16)}, (kernel,), {"W": random(4, 16)},
        symbols=("N",),
    )  # fmt: skip
    for axis in (row, other):
        divided = InShares(source, Part(axis, 4))
        for count in (1, 3, 6, 7, 18):
            for shares in (1, 2, 3):
                divided.check(random(second, count, 4), shares, count)


def test_other_axes() -> None:
    whole = matmul("", 7, 4, 16, "x", "W", "y")
    row, lane = whole.axes
    kernel = replace(whole, tile=Tile(lane, 8, 2))
    source = program({"x": (7, 4)}, {"y": (7, 16)}, (kernel,), {"W": random(4, 16)})
    divided = InShares(source, Part(row))
    for shares in range(1, 9):
        divided.check(random(7, 4), shares)


def test_other_machines() -> None:
    source = scheduled(40, 64)
    (kernel,) = source.kernels()
    shares = Shares(undivided(source.body), {kernel.name: part_along(kernel, "row")}, 1)
    text = module_text(source, plan(source), lay_out(source.constants), AARCH64, shares)
    assert "llvm.x86" not in text
    assert emit_object(text, AARCH64)


def test_a_module_of_one_thread_knows_no_others() -> None:
    source = scheduled(40, 64)
    text = module_text(source, plan(source), lay_out(source.constants), host_target())
    assert "team" not in text and "%share" not in text
    assert not workers.exports(1) and not workers.imports(1)
    assert set(workers.imports(2)) == set(systems.system(host_target().system).imports)
