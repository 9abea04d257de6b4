"""Kernels in compiled code: blocks, rows and reductions, against the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program import interpreter
from ostinato.program.expr import Access, Axis, Index, Load, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.nodes import CALL, Program
from ostinato.schedule.arena import plan
from ostinato.schedule.index_maps import Affine, substitute_kernel
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import symbol
from tests.codegen.test_module import TARGETS, WIDTHS, Native, assert_same_bits, check, mixed
from tests.program.programs import at, program, store

F = np.float32
ROWS = range(1, 26)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(F)


def matmul(name: str, rows, depth, columns, left: str, right: str, out: str) -> Kernel:
    """`out = left @ right`, with a factor, so as one fused multiply-add for each element."""
    i, j, k = Axis(f"i{name}", rows), Axis(f"j{name}", columns), Axis(f"k{name}", depth)
    reduce = Reduce((k,), "sum", at(left, (i, depth), (k, 1)), at(right, (k, columns), (j, 1)))
    value = op("max", Reduced(0, "float32"), constant(-1.0, "float32"))
    return Kernel(f"m{name}", (i, j), (reduce,), (store(out, value, (i, columns), (j, 1)),))


@pytest.mark.parametrize("columns", [1, 5, 16, 33, 100])
@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
def test_every_number_of_rows(target, columns):
    depth = 3
    inputs = {f"x{n}": (n, depth) for n in ROWS}
    outputs = {f"y{n}": (n, columns) for n in ROWS}
    kernels = tuple(matmul(str(n), n, depth, columns, f"x{n}", "W", f"y{n}") for n in ROWS)
    source = program(inputs, outputs, kernels, {"W": random(depth, columns)})
    check(source, {name: random(*shape) for name, shape in inputs.items()}, target=target)


@pytest.mark.parametrize("columns", [7, 40])
@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
def test_every_number_of_rows_known_at_run_time(target, columns):
    n, depth = symbol("N"), 5
    kernel = matmul("", n, depth, columns, "x", "W", "y")
    constants = {"W": random(depth, columns)}
    source = program({"x": (n, depth)}, {"y": (n, columns)}, (kernel,), constants, symbols=("N",))
    native = Native(source, target)
    for rows in (0, *ROWS):
        feeds = {"x": random(rows, depth)}
        assert_same_bits(native.run(feeds)["y"], interpreter.run(source, feeds)["y"], str(rows))


def in_tiles(rows: int, name: str, extent, left: str, out: str) -> Kernel:
    """A product in tiles of this many rows and 2 vectors of 8 lanes."""
    whole = matmul(name, extent, 4, 16, left, "W", out)
    row, lane = whole.axes
    return replace(whole, tile=Tile(lane, 8, 2, None, None, row, rows))


@pytest.mark.parametrize("rows", range(1, 9))
def test_every_height_of_a_tile(rows):
    """Tiles that the cost estimate may not choose: their rows do not divide those of the matrix."""
    extents = range(1, 18)
    kernels = [in_tiles(rows, str(n), n, f"x{n}", f"y{n}") for n in extents]
    inputs, outputs = ({f"{c}{n}": (n, m) for n in extents} for c, m in (("x", 4), ("y", 16)))
    source = program(inputs, outputs, tuple(kernels), {"W": random(4, 16)})
    check(source, {name: random(*shape) for name, shape in inputs.items()}, tiled=False)


@pytest.mark.parametrize("rows", range(1, 9))
def test_every_height_of_a_tile_of_rows_known_at_run_time(rows):
    n = symbol("N")
    source = program(
        {"x": (n, 4)}, {"y": (n, 16)}, (in_tiles(rows, "", n, "x", "y"),), {"W": random(4, 16)},
        symbols=("N",),
    )  # fmt: skip
    native = Native(source, tiled=False)
    for count in range(20):
        feeds = {"x": random(count, 4)}
        assert_same_bits(native.run(feeds)["y"], interpreter.run(source, feeds)["y"], str(count))


def in_groups(columns: int, groups: int) -> Program:
    """A product of a run-time number of rows, narrow tiles of lanes, several for a single row."""
    n = symbol("N")
    source = program(
        {"x": (n, 5)}, {"y": (n, columns)}, (matmul("", n, 5, columns, "x", "W", "y"),),
        {"W": random(5, columns)}, symbols=("N",),
    )  # fmt: skip
    tiled = tile(source, Machine(16, 4))
    (kernel,) = tiled.kernels()
    assert kernel.tile is not None and kernel.tile.block is not None and kernel.tile.row is not None
    return tiled.with_body((replace(kernel, tile=replace(kernel.tile, groups=groups)),))


@pytest.mark.parametrize("columns", [16, 17, 31, 40, 56, 100])
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_single_row_computes_groups_of_lanes_together(columns, groups, backwards):
    source = in_groups(columns, groups)
    if backwards:
        (kernel,) = source.kernels()
        source = source.with_body((replace(kernel, tile=replace(kernel.tile, serpentine=CALL)),))
    native = Native(source, tiled=False)
    for rows in (1, 0, 1, 2, 3, 1, 9):
        feeds = {"x": random(rows, 5)}
        assert_same_bits(native.run(feeds)["y"], interpreter.run(source, feeds)["y"], str(rows))


@pytest.mark.parametrize("columns", [32, 40, 100])
@pytest.mark.parametrize("tiles", [1, 2, 5])
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_of_lanes_take_turns_for_chunks_of_rows(columns, tiles, groups):
    source = in_groups(columns, groups)
    (kernel,) = source.kernels()
    chunk = tiles * kernel.tile.rows
    source = source.with_body((replace(kernel, tile=replace(kernel.tile, chunk=chunk)),))
    native = Native(source, tiled=False)
    for rows in (0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 2):
        feeds = {"x": random(rows, 5)}
        assert_same_bits(native.run(feeds)["y"], interpreter.run(source, feeds)["y"], str(rows))


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
def test_sizes_of_zero(target):
    """No rows, no columns, nothing to sum: outputs are empty, or sums are 0."""
    m, k, n = symbol("M"), symbol("K"), symbol("N")
    i, j, s = Axis("i", m), Axis("j", n), Axis("k", k)
    reduce = Reduce((s,), "sum", at("x", (i, k), (s, 1)), at("w", (s, n), (j, 1)))
    kernel = Kernel("m", (i, j), (reduce,), (store("y", Reduced(0, "float32"), (i, n), (j, 1)),))
    source = program({"x": (m, k), "w": (k, n)}, {"y": (m, n)}, (kernel,), symbols=("M", "K", "N"))
    native = Native(source, target)
    for sizes in ((0, 3, 5), (4, 0, 5), (4, 3, 0), (0, 0, 0), (4, 3, 5), (1, 1, 1)):
        feeds = {"x": random(*sizes[:2]), "w": random(*sizes[1:])}
        got = native.run(feeds)["y"]
        assert_same_bits(got, interpreter.run(source, feeds)["y"], str(sizes))


def test_names_that_llvm_would_have_to_quote():
    odd = "a b/c:0.é"
    i = Axis("i", 3)
    kernel = Kernel(odd, (i,), (), (store("y", at("x", (i, 1)), (i, 1)),))
    source: Program = program({"x": (3,)}, {"y": (3,)}, (kernel,))
    assert plan(source).size == 0
    check(source, {"x": random(3)})


def updates(dtype: str, lanes: bool, target_mask: bool) -> Program:
    """`y[n[i], j] += x[i, j]` for each i in order, where n is not negative."""
    i, j, a = Axis("i", 9), Axis("j", 21), Axis("a", 105)
    strides = (21, 1) if lanes else (1, 9)
    place = at("n", (i, 1), dtype="int64")
    index = ((place, 21),)
    access = Access("y", 0, ((j, 1),))
    mask = op("ge", place, constant(0, "int64")) if target_mask else None
    other = constant(0, dtype) if target_mask else None
    present = Load(access, dtype, mask, other, index)
    added = at("x", (i, strides[0]), (j, strides[1]), dtype=dtype)
    total = op("max" if dtype == "bool" else "add", present, added)
    kernels = (
        Kernel("zero", (a,), (), (store("y", constant(0, dtype), (a, 1)),)),
        Kernel("k", (i, j), (), (Store(access, total, mask, index),), ordered=(i,)),
    )
    inputs = {"x": (dtype, (189,)), "n": ("int64", (9,))}
    return mixed(inputs, {"y": (dtype, (105,))}, kernels)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool"])
def test_updates_in_order(dtype, lanes, target):
    values = np.random.default_rng(2).integers(0, 2, 189)
    places = np.array([1, 0, 1, 1, 4, 0, 3, 1, 4])
    for masked in (False, True):
        feeds = {"x": values.astype(dtype), "n": places - 2 * (masked & (places == 1))}
        check(updates(dtype, lanes, masked), feeds, target=target)


def test_what_all_points_read_is_loaded_before_the_first():
    i = Axis("i", 1000)
    value = op("div", at("x", (i, 1)), at("s"))
    kernel = Kernel("k", (i,), (), (store("y", value, (i, 1)),))
    source = program({"x": (1000,), "s": ()}, {"y": (1000,)}, (kernel,))
    native = check(source, {"x": random(1000), "s": F(3)})
    function = native.text[native.text.index('@"kernel.k"') :]
    assert function.index("= load float, ptr") < function.index("\nloop")


def test_nothing_is_loaded_where_there_are_no_points():
    n = symbol("N")
    i = Axis("i", n)
    value = op("div", at("x", (i, 1)), at("s"))
    kernel = Kernel("k", (i,), (), (store("y", value, (i, 1)),))
    source = program({"x": (n,), "s": ()}, {"y": (n,)}, (kernel,), symbols=("N",))
    native = check(source, {"x": random(40), "s": F(3)})
    assert native.run({"x": F([]), "s": F(3)})["y"].shape == (0,)
    function = native.text[native.text.index('@"kernel.k"') :]
    assert function.index("icmp sgt i64") < function.index("= load float, ptr")


@pytest.mark.parametrize("extent", [1, 5, 16, 40])
def test_running_sums(extent):
    i, j = Axis("i", extent), Axis("j", 3)
    first = op("eq", Index(i), constant(0, "int64"))
    zero = constant(0.0, "float32")
    before = Load(Access("y", -3, ((i, 3), (j, 1))), "float32", op("not", first), zero)
    total = op("add", before, at("x", (i, 3), (j, 1)))
    kernel = Kernel("k", (i, j), (), (store("y", total, (i, 3), (j, 1)),), ordered=(i,))
    check(program({"x": (extent, 3)}, {"y": (extent, 3)}, (kernel,)), {"x": random(extent, 3)})


@pytest.mark.parametrize("extent", [1, 5, 16, 40])
def test_stores_at_positions_by_lane(extent):
    """A permutation: points are independent, lanes write to scattered places, some to none."""
    i, j = Axis("i", extent), Axis("j", extent)
    place = at("n", (i, 1), dtype="int64")
    mask = op("lt", place, constant(extent - 1, "int64"))
    zero = Kernel("zero", (j,), (), (store("y", constant(7, "float32"), (j, 1)),))
    moved = Store(Access("y", 0, ()), at("x", (i, 1)), mask, ((place, 1),))
    source = mixed(
        {"x": ("float32", (extent,)), "n": ("int64", (extent,))},
        {"y": ("float32", (extent,))},
        (zero, Kernel("k", (i,), (), (moved,))),
    )
    order = np.random.default_rng(extent).permutation(extent)
    check(source, {"x": random(extent), "n": order})
    assert Native(source).run({"x": random(extent), "n": order})["y"][-1] == 7


def test_a_point_evaluates_everything_before_it_writes():
    """Two stores exchange two elements that both read."""
    i = Axis("i", 3)
    pair = [at("y", offset=n) for n in (0, 1)]
    one = op("add", pair[0], at("x", (i, 1)))
    stores = (store("y", one, offset=1), store("y", pair[1], offset=0))
    begin = Kernel("begin", (), (), tuple(store("y", at("x", offset=n), offset=n) for n in (0, 1)))
    swap = Kernel("swap", (i,), (), stores, ordered=(i,))
    source = program({"x": (3,)}, {"y": (2,)}, (begin, swap))
    check(source, {"x": F([1, 2, 4])})
    # (1, 2) -> (2, 2) -> (2, 4) -> (4, 6)
    np.testing.assert_array_equal(Native(source).run({"x": F([1, 2, 4])})["y"], [4, 6])


def gradient(extent, columns: int, stores: int = 2) -> Kernel:
    """`a.T @ b` over `extent` rows, 5 columns of `a`, used in one or two stores."""
    i, j, k = Axis("i", 5), Axis("j", columns), Axis("k", extent)
    reduce = Reduce((k,), "sum", at("a", (k, 5), (i, 1)), at("b", (k, columns), (j, 1)))
    places, total = ((i, columns), (j, 1)), Reduced(0, "float32")
    squared = store("squared", op("mul", total, total), *places)
    updated = store("updated", op("sub", at("w", *places), total), *places)
    return Kernel("gradient", (i, j), (reduce,), (squared, updated)[:stores])


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("columns", [16, 13])
@pytest.mark.parametrize("extent", [0, 1, 4, 5, 8, 11])
def test_long_sums_in_pieces(extent, columns, kept):
    """Partial results wait where the kernel stores in the end, beyond masked lanes as well."""
    kernel = gradient(extent, columns)
    (i, j), lane = kernel.axes, Axis("lane", 16)
    limit = None if columns == 16 else columns
    images = {j: Affine(0, ((lane, 1),))}
    kernel = replace(
        substitute_kernel(kernel, images),
        axes=(i, lane),
        guard=None if limit is None else op("lt", Index(lane), constant(limit, "int64")),
        tile=Tile(lane, 8, 2, None, limit, i, 3, depth=4, kept=(kept,)),
    )
    inputs = {"a": (extent, 5), "b": (extent, columns), "w": (5, columns)}
    outputs = {"squared": (5, columns), "updated": (5, columns)}
    source = program(inputs, outputs, (kernel,))
    check(source, {name: random(*shape) for name, shape in inputs.items()}, tiled=False)


def test_long_sums_in_pieces_that_only_a_run_counts():
    n = symbol("N")
    kernel = gradient(n, 16, stores=1)
    i, j = kernel.axes
    kernel = replace(kernel, tile=Tile(j, 8, 2, None, None, i, 3, depth=4, kept=(0,)))
    source = program({"a": (n, 5), "b": (n, 16)}, {"squared": (5, 16)}, (kernel,), symbols=("N",))
    native = Native(source, tiled=False)
    for extent in range(10):
        feeds = {"a": random(extent, 5), "b": random(extent, 16)}
        expected = interpreter.run(source, feeds)["squared"]
        assert_same_bits(native.run(feeds)["squared"], expected, str(extent))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_long_sums_of_windows_in_pieces(depth):
    """A piece has some steps of the outermost axis, and all terms of the others in each."""
    i, j, c, t = Axis("i", 7), Axis("j", 16), Axis("c", 5), Axis("t", 3)
    window = at("x", (i, 5), (c, 1), (t, 5))
    taps = at("W", (c, 48), (t, 16), (j, 1))
    reduce = Reduce((c, t), "sum", window, taps)
    total = store("y", op("neg", Reduced(0, "float32")), (i, 16), (j, 1))
    tile = Tile(j, 8, 2, None, None, i, 3, depth=depth, kept=(0,))
    kernel = Kernel("windows", (i, j), (reduce,), (total,), tile=tile)
    source = program({"x": (9, 5)}, {"y": (7, 16)}, (kernel,), {"W": random(5, 3, 16)})
    check(source, {"x": random(9, 5)}, tiled=False)


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize(("held", "loops"), [(1, 4), (6, 4), (12, 2), (24, 1), (100, 1)])
def test_several_sums_in_loops_of_their_own(held, loops, target):
    """What all loops but the last have summed up waits in memory if registers are too few."""
    i, j, k = Axis("i", 7), Axis("j", 16), Axis("k", 9)
    reductions = tuple(
        Reduce((k,), "sum", at(f"x{n}", (i, 9), (k, 1)), at("W", (k, 16), (j, 1), offset=144 * n))
        for n in range(4)
    )
    total = Reduced(0, "float32")
    for n in range(1, 4):
        total = op("sub", total, Reduced(n, "float32"))
    kernel = Kernel("m", (i, j), reductions, (store("y", total, (i, 16), (j, 1)),))
    kernel = replace(kernel, tile=Tile(j, 8, 2, None, None, i, 3, held=held))
    inputs = {f"x{n}": (7, 9) for n in range(4)}
    source = program(inputs, {"y": (7, 16)}, (kernel,), {"W": random(4, 9, 16)})
    feeds = {name: random(*shape) for name, shape in inputs.items()}
    native = check(source, feeds, tiled=False, target=target)
    is_aside = loops > 1 and target.machine.vector_registers <= 4 * 6 + 2
    assert ("store volatile <" in native.text) == is_aside
