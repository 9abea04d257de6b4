from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import AVX512, Machine
from ostinato.program.expr import Access, Axis, Index, Load, Reduced, cast, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.laid import elements
from ostinato.program.nodes import Loop, Program
from ostinato.program.printer import text
from ostinato.program.verify import verify
from ostinato.schedule.interleave import interleave
from ostinato.schedule.pack import pack
from ostinato.schedule.relayout import relayout
from ostinato.schedule.tile import tile, tile_readers
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

# Vectors of 4 floats.
NARROW = Machine(16, 8)


def packed_narrowly(source):
    return pack(source, NARROW)


def gates(
    units: int, depth: int, count: int, transposed: bool = False
) -> tuple[Program, np.ndarray]:
    """`count` sums for each unit, of one operand in pieces; and the operand as [gate, k, unit]."""
    u, k = Axis("u", units), Axis("k", depth)
    weights = np.arange(1, count * units * depth + 1, dtype=np.float32)
    piece = units * depth
    terms = ((u, depth), (k, 1)) if transposed else ((k, units), (u, 1))
    reductions = tuple(
        Reduce((k,), "sum", at("x", (k, 1)), at("W", *terms, offset=gate * piece))
        for gate in range(count)
    )
    total = Reduced(0, "float32")
    for gate in range(1, count):
        total = op("add", total, Reduced(gate, "float32"))
    kernel = Kernel("k", (u,), reductions, (store("y", total, (u, 1)),))
    source = program({"x": (depth,)}, {"y": (units,)}, (kernel,), {"W": weights})
    shaped = (
        weights.reshape(count, units, depth) if transposed else weights.reshape(count, depth, units)
    )
    return source, shaped.swapaxes(1, 2) if transposed else shaped


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("units", [1, 3, 4, 10, 16, 37])
def test_operands_lie_in_the_order_in_which_they_are_read(units, count, transposed):
    """packed[block][k][operand][lane], zeros where the axis ends."""
    source, weights = gates(units, 5, count, transposed)
    tiled = tile(source, NARROW)
    packed = pack(tiled, NARROW)
    assert_same_results(source, packed)
    (kernel,) = packed.kernels()
    assert kernel.tile is not None and kernel.tile.lane is not None
    lanes = kernel.tile.lane.extent
    blocks = 1 if kernel.tile.block is None else kernel.tile.block.extent
    (name,) = packed.constants
    assert name == "packed.k.0" and packed.buffers[name].padded
    data = elements(packed.constants[name]).reshape(blocks, 5, count, lanes)
    padded = np.zeros((count, 5, blocks * lanes), np.float32)
    padded[:, :, :units] = weights
    expected = padded.reshape(count, 5, blocks, lanes).transpose(2, 1, 0, 3)
    order = [
        load.access.offset // lanes
        for reduce in kernel.reductions
        for load in (reduce.factor,)
        if isinstance(load, Load)
    ]
    assert sorted(order) == list(range(count))
    np.testing.assert_array_equal(data[:, :, order], expected)


def test_the_kernel_reads_one_stream():
    source, _ = gates(10, 3, 2)
    packed = pack(tile(source, NARROW), NARROW)
    (kernel,) = packed.kernels()
    assert "constant packed.k.0: float32[72]" in text(packed)
    steps = [dict(reduce.factor.access.terms) for reduce in kernel.reductions]
    assert all(sorted(step.values()) == [1, 2 * 12] for step in steps)


def reading(load, k: Axis, i: Axis, symbols=(), **inputs) -> Program:
    reduce = Reduce((k,), "sum", load, at("x", (k, 1)))
    kernel = Kernel("k", (i,), (reduce,), (store("y", Reduced(0, "float32"), (i, 1)),))
    weights = np.arange(48, dtype=np.float32)
    return program(
        {"x": (k.extent,), **inputs}, {"y": (i.extent,)}, (kernel,), {"W": weights},
        symbols=symbols,
    )  # fmt: skip


K, I = Axis("k", 4), Axis("i", 6)  # noqa: E741
MASK = op("lt", Index(K), constant(2, "int64"))


@pytest.mark.parametrize(
    "load",
    [
        Load(Access("W", 0, ((K, 6), (I, 1))), "float32", MASK, constant(0.0, "float32")),
        Load(Access("W", 0, ((I, 1),)), "float32", None, None, ((Index(K), 6),)),
        at("W", (K, 6)),
    ],
    ids=["masked", "computed", "the same in every lane"],
)
def test_operands_that_stay_where_they_are(load):
    check_unchanged(packed_narrowly, tile(reading(load, K, I), NARROW))


def test_operands_over_an_axis_known_at_run_time_stay():
    n = Axis("n", symbol("N"))
    source = tile(reading(at("W", (n, 6), (I, 1)), n, I, ("N",)), NARROW)
    verify(source)
    assert text(pack(source, NARROW)) == text(source)
    i = Axis("i", symbol("N"))
    source = tile(reading(at("W", (i, 4), (K, 1)), K, i, ("N",), z=(symbol("N"),)), NARROW)
    assert text(pack(source, NARROW)) == text(source)


@pytest.mark.parametrize(
    "load",
    [
        at("W", (K, 6), (I, 1), offset=6 * symbol("N")),
        at("W", (K, symbol("N")), (I, 1)),
    ],
    ids=["offset", "stride"],
)
def test_operands_at_places_known_at_run_time_stay(load):
    source = tile(reading(load, K, I, ("N",), z=(symbol("N"),)), NARROW)
    verify(source)
    assert text(pack(source, NARROW)) == text(source)


def test_inputs_are_not_packed():
    source = reading(at("z", (K, 6), (I, 1)), K, I, z=(24,))
    check_unchanged(packed_narrowly, tile(source.with_body(source.body), NARROW))


def test_reductions_in_chains_are_not_packed():
    reduce = Reduce((K,), "sum", at("W", (K, 1), (I, 4)), at("x", (K, 1)), 4)
    kernel = Kernel("k", (I,), (reduce,), (store("y", Reduced(0, "float32"), (I, 1)),))
    source = program({"x": (4,)}, {"y": (6,)}, (kernel,), {"W": np.ones(24, np.float32)})
    check_unchanged(packed_narrowly, tile(source, NARROW))


def test_values_of_stores_are_not_packed():
    i = Axis("i", 6)
    kernel = Kernel(
        "k", (i,), (), (store("y", op("add", at("x", (i, 1)), at("W", (i, 1))), (i, 1)),)
    )
    source = program({"x": (6,)}, {"y": (6,)}, (kernel,), {"W": np.ones(6, np.float32)})
    check_unchanged(packed_narrowly, tile(source, NARROW))


def test_kernels_that_read_equal_operands_share_them():
    """The steps of a loop that was written out read their weights from one place."""
    source, _ = gates(8, 3, 2)
    (kernel,) = source.body
    other = replace(
        kernel,
        name="o",
        stores=(replace(kernel.stores[0], access=at("z", (kernel.axes[0], 1)).access),),
    )
    both = program({"x": (3,)}, {"y": (8,), "z": (8,)}, (kernel, other), dict(source.constants))
    packed = pack(tile(both, NARROW), NARROW)
    assert list(packed.constants) == ["packed.k.0"]
    assert_same_results(both, packed)


def test_operands_of_different_loops_have_a_stream_each():
    u, k, m = Axis("u", 8), Axis("k", 3), Axis("m", 5)
    reductions = (
        Reduce((k,), "sum", at("x", (k, 1)), at("W", (k, 8), (u, 1))),
        Reduce((m,), "sum", at("z", (m, 1)), at("R", (u, 5), (m, 1))),
    )
    total = op("add", Reduced(0, "float32"), Reduced(1, "float32"))
    kernel = Kernel("k", (u,), reductions, (store("y", total, (u, 1)),))
    weights = {"W": np.arange(24, dtype=np.float32), "R": np.arange(40, dtype=np.float32)}
    source = program({"x": (3,), "z": (5,)}, {"y": (8,)}, (kernel,), weights)
    packed = pack(tile(source, NARROW), NARROW)
    assert {n: d.size for n, d in packed.constants.items()} == {"packed.k.0": 24, "packed.k.1": 40}
    assert_same_results(source, packed)


def repeated(units, depth, count: int = 1) -> Program:
    """`count` sums for each unit in each of 4 steps, of operands that are inputs."""
    u, k, t = Axis("u", units), Axis("k", depth), Axis("t", 4)
    total = Reduced(0, "float32")
    for gate in range(1, count):
        total = op("add", total, Reduced(gate, "float32"))
    reductions = tuple(
        Reduce((k,), "sum", at("x", (t, depth), (k, 1)), at("W", (u, depth), (k, 1), offset=start))
        for start in (gate * units * depth for gate in range(count))
    )
    kernel = Kernel("k", (u,), reductions, (store("y", total, (t, units), (u, 1)),))
    inputs = {"x": (4, depth), "W": (count, units, depth)}
    for size in (units, depth):
        if not isinstance(size, int):
            inputs[f"z{size}"] = (size,)
    symbols = tuple(str(n) for n in (units, depth) if not isinstance(n, int))
    return program(inputs, {"y": (4, units)}, (Loop(t, (), (kernel,)),), symbols=symbols)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("depth", [5, symbol("K")])
@pytest.mark.parametrize("units", [8, 10, 16, 37, symbol("N")])
def test_copies_are_written_in_the_order_in_which_they_are_read(units, depth, count):
    source = repeated(units, depth, count)
    packed = pack(tile_readers(relayout(source, NARROW), NARROW), NARROW)
    assert_same_results(source, packed)
    assert_same_results(source, tile(packed, NARROW))
    (name,) = (n for n in packed.buffers if n.startswith("copy."))
    assert packed.buffers[name].padded
    *writers, loop = packed.body
    assert isinstance(loop, Loop)
    (reader,) = loop.body
    assert all(isinstance(w, Kernel) and w.writes() == {name} for w in writers)
    assert all(len(w.stores) == count for w in writers)
    assert reader.reads() == {"x", name}


@pytest.mark.parametrize("filters", [16, 31, 48])
def test_copies_of_sums_that_took_the_place_of_a_short_axis(filters):
    """A transposed convolution of widened weights, two results for each of 9 positions."""
    count = 2
    n, f, i, j = Axis("n", 8), Axis("f", filters), Axis("i", 9), Axis("j", count)
    c = Axis("c", 3)
    w = at("w", (c, filters * count), (f, count), (j, 1), dtype="int8")
    total = Reduce((c,), "sum", at("x", (n, 27), (c, 9), (i, 1)), cast(w, "float32"))
    size = 9 * count
    y = store("y", Reduced(0, "float32"), (n, filters * size), (f, size), (i, count), (j, 1))
    kernel = Kernel("k", (n, f, i, j), (total,), (y,))
    weights = {"w": (np.arange(3 * filters * count) % 100).astype("int8")}
    shape = (8, filters, size)
    source = program({"x": (8, 3, 9)}, {"y": shape}, (kernel,), weights)
    short = interleave(relayout(source, AVX512), AVX512)
    assert [len(k.reductions) for k in short.kernels()] == [0, count]
    packed = pack(tile_readers(short, AVX512), AVX512)
    assert any(name.startswith("copy.packed") for name in packed.buffers)
    assert_same_results(source, packed)


def test_copies_and_constants_of_a_kernel_have_a_panel_each():
    source = repeated(10, 5)
    (loop,) = source.body
    (kernel,) = loop.body
    u, m = kernel.axes[0], Axis("m", 3)
    more = Reduce((m,), "sum", at("v", (m, 1)), at("c0", (u, 3), (m, 1)))
    both = op("add", Reduced(0, "float32"), Reduced(1, "float32"))
    y = replace(kernel.stores[0], value=both)
    kernel = replace(kernel, reductions=(*kernel.reductions, more), stores=(y,))
    source = program(
        {"x": (4, 5), "W": (1, 10, 5), "v": (3,)},
        {"y": (4, 10)},
        (replace(loop, body=(kernel,)),),
        {"c0": np.arange(30, dtype=np.float32)},
    )
    packed = pack(tile_readers(relayout(source, NARROW), NARROW), NARROW)
    assert_same_results(source, packed)
    assert sum(b.padded for b in packed.buffers.values()) == 2


@pytest.mark.parametrize(("held", "count"), [(None, 1), (2, 2), (1, 4)])
def test_sums_of_several_loops_have_an_operand_for_each(held, count):
    """Of 4 sums with a vector each, 4, 2 or 1 are added up together."""
    source, _ = gates(4, 5, 4)
    tiled = tile(source, NARROW)
    (kernel,) = tiled.kernels()
    assert kernel.tile is not None
    changed = replace(kernel, tile=replace(kernel.tile, vectors=1, rows=1, held=held))
    packed = pack(replace(tiled, body=(changed,)), NARROW)
    (kernel,) = packed.kernels()
    assert len(kernel.reads() & packed.constants.keys()) == count
    assert_same_results(source, packed)
