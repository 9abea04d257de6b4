from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.machine.record import AVX2, AVX512, Machine
from ostinato.program.expr import Access, Axis, Index, Load, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Tile
from ostinato.program.nodes import Program
from ostinato.program.printer import text
from ostinato.schedule.operands import DEPTH, RUN_DEPTH, row_axes_of_windows
from ostinato.schedule.shapes import row_tiles, sums_at_once
from ostinato.schedule.tile import tile, tile_kernel
from ostinato.sizes.dims import Size, floordiv, symbol
from tests.program.programs import at, program, reduction, store
from tests.schedule.test_pipeline import REGISTERS, assert_same_results, pointwise, product

WIDE, NARROW = REGISTERS[0], REGISTERS[2]


def points(extent, dtype: str = "float32") -> Program:
    i = Axis("i", extent)
    value = op("add", at("x", (i, 1), dtype=dtype), at("x", (i, 1), dtype=dtype))
    kernel = Kernel("k", (i,), (), (store("y", value, (i, 1)),))
    symbols = () if isinstance(extent, int) else ("N",)
    return program({"x": (extent,)}, {"y": (extent,)}, (kernel,), symbols=symbols, dtype=dtype)


def matmul(rows, depth: int, columns: int) -> Program:
    i, j, k = Axis("i", rows), Axis("j", columns), Axis("k", depth)
    kernel = product("k", at("x", (i, depth), (k, 1)), at("W", (k, columns), (j, 1)), "y", k, i, j)
    weights = np.ones((depth, columns), np.float32)
    symbols = () if isinstance(rows, int) else ("N",)
    return program(
        {"x": (rows, depth)}, {"y": (rows, columns)}, (kernel,), {"W": weights}, symbols=symbols
    )


def only(source: Program) -> Kernel:
    (kernel,) = source.kernels()
    return kernel


def test_an_axis_that_fills_registers_is_split_without_a_guard():
    source = points(64)
    tiled = tile(source, WIDE)
    kernel = only(tiled)
    assert kernel.guard is None and kernel.tile is not None
    assert (kernel.tile.width, kernel.tile.vectors, kernel.tile.limit) == (16, 2, None)
    assert [axis.extent for axis in kernel.axes] == [2, 32]
    assert_same_results(source, tiled)


def test_an_axis_that_does_not_is_padded():
    source = points(21)
    tiled = tile(source, WIDE)
    assert "where 16*" not in text(tiled)
    kernel = only(tiled)
    assert kernel.tile is not None and kernel.tile.limit == 21
    assert text(tiled).endswith(
        "kernel k [io < 2, iv < 16]\n"
        "  where io * 16 + iv < 21\n"
        "  v0 = x[16*io + iv]\n"
        "  y[16*io + iv] = v0 + v0\n"
    )
    assert_same_results(source, tiled)


def test_an_axis_of_less_than_a_register_takes_a_part_of_one():
    source = points(5)
    tiled = tile(source, WIDE)
    kernel = only(tiled)
    assert kernel.tile is not None
    assert (kernel.tile.width, kernel.tile.block, kernel.tile.limit) == (8, None, 5)
    assert kernel.guard is op("lt", Index(kernel.axes[0]), constant(5, "int64"))
    assert_same_results(source, tiled)


def test_an_axis_known_at_run_time():
    source = points(symbol("N"))
    tiled = tile(source, WIDE)
    kernel = only(tiled)
    assert kernel.tile is not None and kernel.tile.limit == symbol("N")
    assert str(kernel.axes[0].extent) == "((N + 31) // 32)"
    assert_same_results(source, tiled)


def test_kernels_without_axes_and_reductions_in_chains_have_no_lanes():
    for source in (reduction("sum", 9), reduction("sum", 9, chains=4)):
        kernel = only(tile(source, WIDE))
        assert kernel.tile is not None and kernel.tile.lane is None
        assert_same_results(source, tile(source, WIDE))


def test_constants_that_lie_apart_are_stored_one_after_the_other():
    i = Axis("i", 100)
    kernel = Kernel("k", (i,), (), (store("y", constant(0.0, "float32"), (i, 30)),))
    source = program({}, {"y": (3000,)}, (kernel,))
    assert only(tile(source, WIDE)).tile == Tile(None, 1)
    beside = replace(kernel, stores=(store("y", constant(0.0, "float32"), (i, 1)),))
    lanes = only(tile(source.with_body((beside,)), WIDE)).tile
    assert lanes is not None and lanes.lane is not None


def test_lanes_run_where_memory_is_dense():
    i, j = Axis("i", 64), Axis("j", 64)
    rows = Kernel(
        "k", (i, j), (), (store("y", op("exp", at("x", (i, 64), (j, 1))), (i, 64), (j, 1)),)
    )
    columns = Kernel(
        "k", (i, j), (), (store("y", op("exp", at("x", (j, 64), (i, 1))), (j, 64), (i, 1)),)
    )
    for kernel, name in ((rows, "jv"), (columns, "iv")):
        tiled = tile_kernel(kernel, WIDE, points(64 * 64).buffers)
        assert tiled.tile is not None and tiled.tile.lane is not None
        assert tiled.tile.lane.name == name


def test_rows_share_what_the_lanes_load():
    kernel = only(tile(matmul(12, 64, 64), WIDE))
    assert kernel.tile is not None and kernel.tile.row is not None
    assert kernel.tile.row.name == "i"
    assert kernel.tile.rows > 1
    single = only(tile(matmul(1, 64, 64), WIDE))
    assert single.tile is not None and single.tile.rows == 1


@pytest.mark.parametrize("registers", REGISTERS, ids=lambda r: f"{r.vector_bytes}-bytes")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rows", [1, 5, 64, symbol("N")], ids=str)
def test_accumulators_fit_in_the_registers(rows, count, registers):
    source = only(matmul(rows, 32, 96))
    (reduce,) = source.reductions
    total = Reduced(0, "float32")
    for n in range(1, count):
        total = op("add", total, Reduced(n, "float32"))
    more = replace(
        source, reductions=(reduce,) * count, stores=(replace(source.stores[0], value=total),)
    )
    found = tile_kernel(more, registers, matmul(rows, 32, 96).buffers).tile
    assert found is not None
    vectors = found.rows * found.vectors
    assert sums_at_once(count, vectors, found.held) * vectors <= registers.vector_registers


@pytest.mark.parametrize("registers", [*REGISTERS, Machine(8, 4)], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 7, 12, symbol("N")], ids=str)
@pytest.mark.parametrize("columns", [1, 3, 16, 20])
def test_every_tiling_has_the_same_bits(columns, rows, registers):
    source = matmul(rows, 5, columns)
    assert_same_results(source, tile(source, registers))


def test_sources_and_names_are_kept():
    kernel = pointwise("k", op("exp", at("x", (Axis("i", 9), 1))), "y", Axis("i", 9))
    tiled = tile_kernel(kernel, WIDE, points(9).buffers)
    assert (tiled.name, tiled.sources) == ("k", ("k",))


def test_other_ways_to_combine_are_tiled_alike():
    i, k = Axis("i", 20), Axis("k", 3)
    for combine in ("sum", "prod", "min", "max"):
        reduce = Reduce((k,), combine, at("x", (k, 20), (i, 1)))
        kernel = Kernel("k", (i,), (reduce,), (store("y", Reduced(0, "float32"), (i, 1)),))
        source = program({"x": (60,)}, {"y": (20,)}, (kernel,))
        assert_same_results(source, tile(source, WIDE))


@pytest.mark.parametrize(
    ("rows", "columns", "stride", "lane"), [(9, 40, 1, "jv"), (64, 3, 1, "jv"), (9, 40, 2, None)]
)
def test_lanes_run_across_the_axes_with_an_order(rows, columns, stride, lane):
    """Along neighbours in memory, or not at all: steps that wait should not gather."""
    i, j = Axis("i", rows), Axis("j", columns)
    wide = columns * stride
    first = op("eq", Index(i), constant(0, "int64"))
    before = Load(
        Access("y", -wide, ((i, wide), (j, stride))),
        "float32",
        op("not", first),
        constant(0.0, "float32"),
    )
    total = op("add", before, at("x", (i, wide), (j, stride)))
    kernel = Kernel("k", (i, j), (), (store("y", total, (i, wide), (j, stride)),), ordered=(i,))
    source = program({"x": (rows, wide)}, {"y": (rows, wide)}, (kernel,))
    tiled = only(tile(source, WIDE))
    assert tiled.tile is not None
    assert (tiled.tile.lane and tiled.tile.lane.name) == lane
    assert tiled.ordered == (i,) and i in tiled.axes
    if stride == 1:
        assert_same_results(source, tile(source, WIDE))


def convolution(filters: int, width: int, depth: int, taps: int = 3) -> Program:
    """`y[m, w] = sum_ct x[c, w + t] W[m, c, t]`."""
    m, w, c, t = Axis("m", filters), Axis("w", width), Axis("c", depth), Axis("t", taps)
    extent = width + taps - 1
    left = at("x", (c, extent), (w, 1), (t, 1))
    right = at("c0", (m, depth * taps), (c, taps), (t, 1))
    reduce = Reduce((c, t), "sum", left, right)
    kernel = Kernel(
        "k", (m, w), (reduce,), (store("y", Reduced(0, "float32"), (m, width), (w, 1)),)
    )
    weights = np.ones((filters, depth, taps), np.float32)
    return program({"x": (depth, extent)}, {"y": (filters, width)}, (kernel,), {"c0": weights})


@pytest.mark.parametrize(("width", "depth"), [(20, 4), (28, 64), (14, 300), (57, 64)])
def test_rows_of_a_window_keep_what_they_share_in_registers(width, depth):
    found = only(tile(convolution(64, width, depth), WIDE)).tile
    assert found is not None and found.lane is not None and found.row is not None
    assert (found.lane.name[0], found.row.name) == ("m", "w")
    assert found.rows >= 5
    assert found.rows * found.vectors + found.vectors + found.rows <= WIDE.vector_registers


def test_panels_that_no_cache_holds_are_narrow():
    found = only(tile(convolution(256, 14, 700), WIDE)).tile
    assert found is not None
    assert found.vectors * 64 * 2100 <= 256 * 1024


def test_tilings_of_windows_have_the_same_bits():
    source = convolution(40, 17, 3)
    for registers in REGISTERS:
        assert_same_results(source, tile(source, registers))


@pytest.mark.parametrize("batch", [2, symbol("N")], ids=str)
def test_the_size_of_a_batch_decides_no_lanes(batch) -> None:
    """Lanes along filters, whose sums cost less than those along times of so many channels."""
    n, o, t = Axis("n", batch), Axis("o", 256), Axis("t", 3000)
    r, w = Axis("r", 256), Axis("w", 3)
    window = at("x", (n, 256 * 3002), (r, 3002), (t, 1), (w, 1))
    total = Reduce((r, w), "sum", window, at("c0", (o, 768), (r, 3), (w, 1)))
    stored = store("y", Reduced(0, "float32"), (n, 256 * 3000), (o, 3000), (t, 1))
    kernel = Kernel("k", (n, o, t), (total,), (stored,))
    shapes = {"x": (batch, 256, 3002)}, {"y": (batch, 256, 3000)}
    symbols = () if isinstance(batch, int) else ("N",)
    weights = {"c0": np.ones((256, 256, 3), np.float32)}
    found = only(tile(program(*shapes, (kernel,), weights, symbols=symbols), AVX2)).tile
    assert found is not None and found.lane is not None and found.lane.name == "ov"


def test_rows_follow_the_longer_of_two_run_time_axes() -> None:
    """Weights are read once for several rows, whichever of batch and time has them."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 17]>
        m (float[N, T, 8] x, float[8, 32] w) => (float[T, N, 32] y) {
            t = Transpose <perm = [1, 0, 2]> (x)
            y = MatMul(t, w)
        }"""
    )
    session = ostinato.InferenceSession(model, cache_dir=None)
    w = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    for n, t in ((1, 1), (1, 9), (9, 1), (7, 5), (5, 7), (0, 3), (3, 0)):
        x = np.random.default_rng(n).standard_normal((n, t, 8)).astype(np.float32)
        (y,) = session.run(None, {"x": x, "w": w})
        for i in range(n):
            (alone,) = session.run(None, {"x": x[i : i + 1], "w": w})
            np.testing.assert_array_equal(y[:, i : i + 1], alone)
        np.testing.assert_allclose(y, x.transpose(1, 0, 2) @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("height", "width", "other"),
    [
        (symbol("N"), symbol("T"), True),
        (symbol("N"), floordiv(symbol("W") + 1, 2), True),
        (floordiv(symbol("H") + 1, 2), floordiv(symbol("W") + 1, 2), False),
    ],
    ids=str,
)
def test_only_a_batch_may_have_the_rows_of_a_longer_axis(height, width, other):
    depth, columns = 8, 64
    h, w, j, k = Axis("h", height), Axis("w", width), Axis("j", columns), Axis("k", depth)
    # Lines of an image lie apart.
    left = at("x", (h, depth * (width + 2)), (w, depth), (k, 1))
    reduce = Reduce((k,), "sum", left, at("c0", (k, columns), (j, 1)))
    stored = store("y", Reduced(0, "float32"), (h, columns * width), (w, columns), (j, 1))
    source = program(
        {"x": (height, width + 2, depth)},
        {"y": (height, width, columns)},
        (Kernel("k", (h, w, j), (reduce,), (stored,)),),
        {"c0": np.ones((depth, columns), np.float32)},
    )
    tiled = only(tile(source, WIDE))
    assert tiled.tile.row == w
    assert (tiled.tile.other == h) == other


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("apart", [False, True])
def test_rows_that_are_neighbours_need_not_be_the_most(step, apart):
    """A longer axis along which rows lie apart takes their place only where they are few."""
    count, length, depth, columns = symbol("N"), symbol("T"), 8, 64
    n, t, j, k = Axis("n", count), Axis("t", length), Axis("j", columns), Axis("k", depth)
    steps = ((k, 1), (t, step * depth)) if apart else ((k, length), (t, step))
    first = (length - 1) * (depth if apart else 1) if step < 0 else 0
    left = at("x", (n, depth * length), *steps, offset=first)
    reduce = Reduce((k,), "sum", left, at("c0", (k, columns), (j, 1)))
    stored = store("y", Reduced(0, "float32"), (t, columns * count), (n, columns), (j, 1))
    source = program(
        {"x": (count, length, depth) if apart else (count, depth, length)},
        {"y": (length, count, columns)},
        (Kernel("k", (t, n, j), (reduce,), (stored,)),),
        {"c0": np.ones((depth, columns), np.float32)},
        symbols=("N", "T"),
    )
    tiled = tile(source, WIDE)
    found = only(tiled).tile
    assert {found.row, found.other} == {n, t}
    assert found.enough == (None if apart else 4 * found.rows) and (apart or found.row == t)
    assert_same_results(source, tiled)


def gradient(depth, adds: bool = False) -> Program:
    """`z[i, j] = sum_k x[k, i] w[k, j]`; it may also be added to `y`, in a store before."""
    i, j, k = Axis("i", 40), Axis("j", 48), Axis("k", depth)
    total = Reduce((k,), "sum", at("x", (k, 40), (i, 1)), at("w", (k, 48), (j, 1)))
    places = (i, 48), (j, 1)
    added = op("add", Reduced(0, "float32"), at("y", *places))
    stores = (store("y", added, *places), store("z", Reduced(0, "float32"), *places))
    kernel = Kernel("gradient", (i, j), (total,), stores if adds else stores[1:])
    inputs = {"x": (depth, 40), "w": (depth, 48)}
    outputs = {"y": (40, 48), "z": (40, 48)} if adds else {"z": (40, 48)}
    symbols = () if isinstance(depth, int) else (str(depth),)
    return program(inputs, outputs, (kernel,), symbols=symbols)


@pytest.mark.parametrize("depth", [DEPTH + 1, symbol("N")], ids=str)
def test_long_sums_over_rows_are_added_in_pieces(depth):
    found = only(tile(gradient(depth), WIDE)).tile
    assert found is not None and (found.depth, found.kept) == (DEPTH, (0,))
    assert only(tile(gradient(DEPTH), WIDE)).tile.depth is None


def test_pieces_leave_registers_for_one_factor():
    (kernel,) = tile(gradient(400), WIDE).kernels()
    chosen = kernel.tile
    assert chosen is not None and chosen.depth is not None
    factor = min(chosen.rows, chosen.vectors)
    assert chosen.rows * chosen.vectors + factor < WIDE.vector_registers


def test_partial_results_wait_where_nothing_is_read():
    found = only(tile(gradient(DEPTH + 1, adds=True), WIDE)).tile
    assert found is not None and found.kept == (1,)


def test_sums_of_several_products_may_have_loops_of_their_own():
    """Four sums whose rows read different elements, as in the gradient of a step of an LSTM."""
    i, j, k = Axis("i", symbol("N")), Axis("j", 128), Axis("k", 128)
    reductions = tuple(
        Reduce((k,), "sum", at(f"x{n}", (i, 128), (k, 1)), at(f"c{n}", (k, 128), (j, 1)))
        for n in range(4)
    )
    total = Reduced(0, "float32")
    for n in range(1, 4):
        total = op("add", total, Reduced(n, "float32"))
    kernel = Kernel("k", (i, j), reductions, (store("y", total, (i, 128), (j, 1)),))
    inputs = {f"x{n}": (symbol("N"), 128) for n in range(4)}
    weights = {f"c{n}": np.ones((128, 128), np.float32) for n in range(4)}
    outputs = {"y": (symbol("N"), 128)}
    buffers = program(inputs, outputs, (kernel,), weights, symbols=("N",)).buffers
    found = tile_kernel(kernel, WIDE, buffers).tile
    assert found is not None and found.held is not None and found.vectors > 1
    assert sums_at_once(4, found.rows * found.vectors, found.held) < 4
    alike = replace(kernel, reductions=(reductions[0],) * 4)
    found = tile_kernel(alike, WIDE, buffers).tile
    assert found is not None and found.held is None


def test_several_sums_beside_others_of_another_length_may_have_loops_of_their_own():
    """Gates of a cell that reads two vectors of 256 elements and one of 192."""
    i, j, k, m = Axis("i", 4), Axis("j", 256), Axis("k", 256), Axis("m", 192)
    parts = (("h", k), ("h", k), ("x", m), ("x", m), ("c", k), ("c", k))
    reductions = tuple(
        Reduce((a,), "sum", at(x, (i, a.extent), (a, 1)), at(f"w{n}", (a, 256), (j, 1)))
        for n, (x, a) in enumerate(parts)
    )
    total = Reduced(0, "float32")
    for n in range(1, 6):
        total = op("add", total, Reduced(n, "float32"))
    kernel = Kernel("k", (i, j), reductions, (store("y", total, (i, 256), (j, 1)),))
    inputs = {"h": (4, 256), "x": (4, 192), "c": (4, 256)}
    weights = {f"w{n}": np.ones((a.extent, 256), np.float32) for n, (_, a) in enumerate(parts)}
    buffers = program(inputs, {"y": (4, 256)}, (kernel,), weights).buffers
    found = tile_kernel(kernel, AVX2, buffers).tile
    assert found is not None and found.held is not None and found.rows == 4
    assert sums_at_once(4, found.rows * found.vectors, found.held) == 2


def gates(rows, count: int, hidden: int) -> Kernel:
    """The sums of a step of a recurrence, one for each gate."""
    i, j, k = Axis("i", rows), Axis("j", hidden), Axis("k", hidden)
    reductions = tuple(
        Reduce((k,), "sum", at("h", (i, hidden), (k, 1)), at(f"c{n}", (k, hidden), (j, 1)))
        for n in range(count)
    )
    total = Reduced(0, "float32")
    for n in range(1, count):
        total = op("add", total, Reduced(n, "float32"))
    return Kernel("k", (i, j), reductions, (store("y", total, (i, hidden), (j, 1)),))


@pytest.mark.parametrize(
    ("rows", "count", "hidden", "groups"),
    [
        (symbol("N"), 3, 64, 2),
        (symbol("N"), 4, 64, 2),
        (symbol("N"), 3, 16, 1),  # one group
        (symbol("N"), 1, 64, 1),  # one sum has wider tiles
        (symbol("N"), 1, 128, 2),
        (symbol("N"), 6, 64, 1),  # enough sums in flight
        (5, 3, 64, 1),  # never a single row
    ],
    ids=str,
)
def test_batches_that_may_be_one_row_have_a_second_way(rows, count, hidden, groups):
    kernel = gates(rows, count, hidden)
    shape, symbols = (rows, hidden), () if isinstance(rows, int) else ("N",)
    weights = {f"c{n}": np.ones((hidden, hidden), np.float32) for n in range(count)}
    source = program({"h": shape}, {"y": shape}, (kernel,), weights, symbols=symbols)
    found = only(tile(source, WIDE)).tile
    assert found is not None and found.groups == groups


def image(height, breadth: int) -> Program:
    """A convolution of an image of 32 channels with a window of 3 x 3."""
    y, x, j = Axis("y", height), Axis("x", breadth), Axis("j", 32)
    c, u, v = Axis("c", 32), Axis("u", 3), Axis("v", 3)
    pitch = breadth + 2
    left = at("a", (c, (height + 2) * pitch), (y, pitch), (u, pitch), (x, 1), (v, 1))
    right = at("W", (j, 288), (c, 9), (u, 3), (v, 1))
    reduce = Reduce((c, u, v), "sum", left, right)
    stored = store("z", Reduced(0, "float32"), (j, height * breadth), (y, breadth), (x, 1))
    return program(
        {"a": (32, height + 2, pitch)},
        {"z": (32, height, breadth)},
        (Kernel("k", (j, y, x), (reduce,), (stored,)),),
        {"W": np.ones((32, 32, 3, 3), np.float32)},
    )


@pytest.mark.parametrize(
    ("height", "breadth", "narrow"), [(4, 4, True), (8, 2, True), (40, 40, False), (8, 24, False)]
)
def test_tiles_have_whole_rows_of_narrow_images(height, breadth, narrow):
    kernel = only(tile(image(height, breadth), WIDE))
    assert kernel.tile is not None and (kernel.tile.across is not None) == narrow
    if narrow:
        assert kernel.tile.across == Axis("x", breadth)
        assert kernel.tile.height == kernel.tile.rows * breadth > breadth


def test_lanes_two_apart_are_cheaper_than_a_gather():
    """A window that moves by two, as in pooling: lanes run along it, not across the planes."""
    c, x, k = Axis("c", 64), Axis("x", 32), Axis("k", 2)
    reduce = Reduce((k,), "max", at("a", (c, 65), (x, 2), (k, 1)))
    stored = store("z", Reduced(0, "float32"), (c, 32), (x, 1))
    kernel = Kernel("k", (c, x), (reduce,), (stored,))
    source = program({"a": (64, 65)}, {"z": (64, 32)}, (kernel,))
    tiled = only(tile(source, WIDE)).tile
    assert tiled is not None and tiled.lane == x


def one_row(terms: Size, columns: int, sums: int = 1, heads: int = 2) -> Program:
    """`yn[h, j] = sum_k x[h, k] w[n, h, k, j] + b[j]`: matrices that are read once."""
    h, j, k = Axis("h", heads), Axis("j", columns), Axis("k", terms)
    of_one = terms * columns
    x = at("x", (h, terms), (k, 1))
    reductions, stores = [], []
    for n in range(sums):
        w = at("w", (h, of_one), (k, columns), (j, 1), offset=n * heads * of_one)
        reductions.append(Reduce((k,), "sum", x, w))
        value = op("add", Reduced(n, "float32"), at("b", (j, 1)))
        stores.append(store(f"y{n}", value, (h, columns), (j, 1)))
    kernel = Kernel("k", (h, j), tuple(reductions), tuple(stores))
    inputs = {"x": (heads, terms), "w": (sums, heads, terms, columns), "b": (columns,)}
    outputs = {f"y{n}": (heads, columns) for n in range(sums)}
    names = () if isinstance(terms, int) else (str(terms),)
    return program(inputs, outputs, (kernel,), symbols=names)


@pytest.mark.parametrize(
    ("terms", "columns", "machine", "depth"),
    [
        (300, 512, AVX2, RUN_DEPTH),
        (symbol("P"), 512, AVX2, RUN_DEPTH),
        (300, 512, AVX512, None),  # runs are long
        (300, 96, AVX2, None),  # a tile has all of a row
        (DEPTH, 512, AVX2, None),
    ],
    ids=str,
)
def test_rows_that_are_read_once_in_short_runs_pass_side_by_side(terms, columns, machine, depth):
    for sums in (1, 2):
        found = only(tile(one_row(terms, columns, sums), machine)).tile
        assert found is not None and found.depth == depth
        assert len(found.kept) == (0 if depth is None else sums)


def test_what_is_laid_out_for_its_kernel_is_read_in_one_stream():
    found = only(tile(matmul(1, 300, 512), AVX2)).tile
    assert found is not None and found.depth is None


def depthwise(stride: int, channels_last: bool, lines: Size = 12) -> Program:
    """A convolution of 40 channels, each with a window of 3 x 3 of its own."""
    c, y, x, u, v = Axis("c", 40), Axis("y", lines), Axis("x", 20), Axis("u", 3), Axis("v", 3)
    height, breadth = lines * stride + 2, 20 * stride + 2
    plane, pixel = (1, 40) if channels_last else (height * breadth, 1)
    line = breadth * pixel
    rows, columns = ((y, line * stride), (u, line)), ((x, pixel * stride), (v, pixel))
    reduce = Reduce((u, v), "sum", at("a", (c, plane), *rows, *columns), weights_of(c, u, v))
    places = [(c, 1), (y, 800), (x, 40)] if channels_last else [(c, 240), (y, 20), (x, 1)]
    kernel = Kernel("k", (c, y, x), (reduce,), (store("z", Reduced(0, "float32"), *places),))
    weights = np.random.default_rng(0).standard_normal((40, 3, 3)).astype(np.float32)
    return program({"a": (40, height, breadth)}, {"z": (40, lines, 20)}, (kernel,), {"W": weights})


def weights_of(c: Axis, u: Axis, v: Axis) -> Load:
    return at("W", (c, 9), (u, 3), (v, 1))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels_last", "lane"), [(True, "c"), (False, "x")])
def test_windows_that_share_only_weights_have_rows(stride, channels_last, lane):
    source = depthwise(stride, channels_last)
    tiled = tile(source, WIDE)
    chosen = only(tiled).tile
    assert chosen is not None and chosen.lane is not None and chosen.row is not None
    # A multiply-add takes four cycles: fewer sums than these would wait for each other.
    assert chosen.lane.name.rstrip("v") == lane and chosen.rows * chosen.vectors >= 4
    assert_same_results(source, tiled)


@pytest.mark.parametrize(("channels", "breadth"), [(256, 16), (24, 64)])
def test_lanes_run_along_what_takes_the_fewest_cycles(channels, breadth):
    """Filters or positions: neither needs a gather, and stores of long sums hardly count."""
    y, x, j, c = Axis("y", breadth), Axis("x", breadth), Axis("j", channels), Axis("c", 64)
    plane = breadth * breadth
    left = at("a", (c, plane), (y, breadth), (x, 1))
    reduce = Reduce((c,), "sum", left, at("W", (j, 64), (c, 1)))
    stored = store("z", Reduced(0, "float32"), (j, plane), (y, breadth), (x, 1))
    source = program(
        {"a": (64, plane)},
        {"z": (channels, plane)},
        (Kernel("k", (j, y, x), (reduce,), (stored,)),),
        {"W": np.ones((channels, 64), np.float32)},
    )
    tiled = only(tile(source, WIDE)).tile
    assert tiled is not None and tiled.lane is not None
    wanted = "x" if channels % 16 else "j"
    assert tiled.lane.name.startswith(wanted)


@pytest.mark.parametrize("rows", [7, 13, 16, 32, 49])
def test_tiles_of_known_rows_are_even(rows):
    """No tile is left with a row or two; chunks, and windows, have full tiles."""
    source = matmul(rows, 64, 64)
    tiled = tile(source, WIDE)
    found = only(tiled).tile
    assert found is not None and found.even
    heights = [height for count, height in row_tiles(rows, found.rows, even=True) if count]
    assert max(heights) - min(heights) <= 1 and max(heights) <= found.rows
    assert sum(count * height for count, height in row_tiles(rows, found.rows, True)) == rows
    assert_same_results(source, tiled)
    windows = only(tile(convolution(64, 20, 4), WIDE)).tile
    assert windows is not None and not windows.even


def test_tiles_of_pieces_have_few_rows():
    """Neighbours of a row lie in few lines, which each tile fetches again."""
    k, i, j = Axis("k", 1600), Axis("i", 512), Axis("j", 128)
    kernel = product("g", at("d", (k, 512), (i, 1)), at("x", (k, 128), (j, 1)), "y", k, i, j)
    source = program({"d": (1600, 512), "x": (1600, 128)}, {"y": (512, 128)}, (kernel,))
    found = only(tile(source, WIDE)).tile
    assert found.row == i and found.depth == DEPTH and found.kept == (0,)
    assert found.rows < 2 * found.vectors


@pytest.mark.parametrize(("breadth", "lane"), [(64, "x"), (60, "j")])
def test_planes_that_are_pages_apart_are_stored_along_their_rows(breadth, lane):
    """Of windows that move by two: lines of 32 planes of 64 x 64 have one place in the cache."""
    j, y, x, c, u, v = (
        Axis(name, n) for name, n in zip("jyxcuv", (32, breadth, breadth, 16, 3, 3), strict=True)
    )
    line = 2 * breadth + 2
    left = at("a", (c, line * line), (y, 2 * line), (u, line), (x, 2), (v, 1))
    reduce = Reduce((c, u, v), "sum", left, at("W", (j, 144), (c, 9), (u, 3), (v, 1)))
    stored = store("z", Reduced(0, "float32"), (j, breadth * breadth), (y, breadth), (x, 1))
    source = program(
        {"a": (16, line, line)},
        {"z": (32, breadth, breadth)},
        (Kernel("k", (j, y, x), (reduce,), (stored,)),),
        {"W": np.ones((32, 16, 3, 3), np.float32)},
    )
    tiled = only(tile(source, WIDE)).tile
    assert tiled is not None and tiled.lane is not None
    assert tiled.lane.name.startswith(lane)


def test_windows_of_images_that_only_a_run_tells_have_rows():
    (kernel,) = depthwise(1, channels_last=True, lines=symbol("H")).kernels()
    lane, *rows = kernel.axes
    assert row_axes_of_windows(kernel, lane) == tuple(rows)


def test_rows_are_those_that_are_stored_beside_each_other():
    windows, i, j, k = Axis("w", 64), Axis("i", 49), Axis("j", 48), Axis("k", 32)
    x = at("x", (windows, 49 * 32), (i, 32), (k, 1))
    product = Reduce((k,), "sum", x, at("W", (k, 48), (j, 1)))
    for place, row in (
        (((windows, 48 * 49), (i, 1), (j, 49)), i),
        (((windows, 1), (i, 64), (j, 3136)), windows),
    ):
        kernel = Kernel(
            "k", (windows, i, j), (product,), (store("y", Reduced(0, "float32"), *place),)
        )
        source = program(
            {"x": (64, 49, 32)},
            {"y": (64, 49, 48)},
            (kernel,),
            {"W": np.ones((32, 48), np.float32)},
        )
        tiled = tile_kernel(kernel, WIDE, source.buffers).tile
        assert tiled is not None and tiled.lane is not None and tiled.row == row


def images_of(source: Program) -> tuple[Axis, Kernel]:
    """The kernel of a program for a number of images that only a run tells, and their axis."""
    (kernel,) = source.kernels()
    (reduce,), (stored,) = kernel.reductions, kernel.stores
    images = Axis("n", symbol("N"))

    def of_images(access: Access) -> Access:
        return replace(access, terms=((images, symbol("P")), *access.terms))

    assert isinstance(reduce.expr, Load)
    image = replace(reduce.expr, access=of_images(reduce.expr.access))
    return images, replace(
        kernel,
        axes=(images, *kernel.axes),
        reductions=(replace(reduce, expr=image),),
        stores=(replace(stored, access=of_images(stored.access)),),
    )


def test_rows_of_any_number_of_images_are_lines_of_one():
    source = depthwise(1, channels_last=False, lines=symbol("H"))
    images, batch = images_of(source)
    assert images in row_axes_of_windows(batch, batch.axes[-1])
    tiled = tile_kernel(batch, WIDE, source.buffers).tile
    assert tiled is not None and tiled.row == batch.axes[2]


@pytest.mark.parametrize(("places", "has_rows"), [(16, True), (symbol("T"), False)])
def test_images_are_no_rows_where_places_are_as_many(places, has_rows):
    """There may be a single image, whose multiply-adds would wait for each other."""
    c, x, u = Axis("c", 40), Axis("x", places), Axis("u", 3)
    window = at("a", (c, 3 * places), (u, places), (x, 1))
    reduce = Reduce((u,), "sum", window, at("W", (c, 3), (u, 1)))
    stored = store("z", Reduced(0, "float32"), (c, places), (x, 1))
    source = program(
        {"a": (40, 3, places)},
        {"z": (40, places)},
        (Kernel("k", (c, x), (reduce,), (stored,)),),
        {"W": np.ones((40, 3), np.float32)},
        symbols=() if isinstance(places, int) else ("T",),
    )
    images, batch = images_of(source)
    tiled = tile_kernel(batch, WIDE, source.buffers).tile
    assert tiled is not None and tiled.row == (images if has_rows else None)
    assert tiled.rows * tiled.vectors >= 4


@pytest.mark.parametrize("columns", [17, 64])
def test_long_sums_have_the_bits_of_single_rows(columns):
    """Twenty rows are added in pieces, one row is not."""
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((20, 5000), (5000, columns))
    )

    def run(rows: np.ndarray, **options: int) -> np.ndarray:
        model = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 21]>
            g (float[{len(rows)}, 5000] x, float[{columns}] b) => (float[A, B] y)
            {{ p = MatMul(x, w)  q = Add(p, b)  y = Relu(q) }}"""
        )
        model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
        bias = np.linspace(-9, 9, columns, dtype=np.float32)
        session = ostinato.InferenceSession(model, cache_dir=None, **options)
        return session.run(None, {"x": rows, "b": bias})[0]

    whole = run(x)
    np.testing.assert_array_equal(whole, np.concatenate([run(x[i : i + 1]) for i in range(20)]))
    np.testing.assert_array_equal(whole, run(x, threads=2))


def heads(terms: int, count: int, each: int) -> Program:
    """One row times weights whose results are those of heads, with a factor for each head."""
    i, j, k = Axis("i", count), Axis("j", each), Axis("k", terms)
    width = count * each
    weights = at("W", (k, width), (i, each), (j, 1))
    scaled = op("mul", Reduced(0, "float32"), at("a", (i, 1)))
    kernel = Kernel(
        "heads",
        (i, j),
        (Reduce((k,), "sum", at("x", (k, 1)), weights),),
        (store("y", scaled, (i, each), (j, 1)),),
    )
    return program(
        {"x": (terms,), "a": (count,)},
        {"y": (width,)},
        (kernel,),
        {"W": np.ones(terms * width, np.float32)},
    )


@pytest.mark.parametrize(
    ("terms", "count", "each", "apart"),
    [(2048, 4, 256, False), (2048, 16, 32, False), (4096, 16, 16, True), (64, 8, 64, True)],
)
def test_far_weights_of_heads_are_one_stream_where_a_head_has_sums_enough(
    terms, count, each, apart
):
    tiled = only(tile(heads(terms, count, each), AVX512)).tile
    assert tiled is not None
    assert (tiled.row is not None) == apart
