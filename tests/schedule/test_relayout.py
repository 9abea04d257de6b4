from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

import numpy as np
import pytest

from ostinato.machine.record import AVX2, AVX512, Machine
from ostinato.program.expr import Axis, Op, Reduced, cast
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Branch, Buffer, Interface, Loop, Program
from ostinato.schedule.relayout import (
    LEAST_CONVERTED_USES,
    LEAST_CROSSING_USES,
    LEAST_EVICTED_USES,
    LEAST_FAR_USES,
    LEAST_FAR_WIDENED_USES,
    LEAST_NEAR_USES,
    LEAST_SHARED_USES,
    LEAST_SPLIT_LANES,
    LEAST_SPLIT_USES,
    LEAST_TURNED_USES,
    LEAST_USES,
    LEAST_WIDENED_USES,
)
from ostinato.schedule.relayout import relayout as relayout_for
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

relayout = partial(relayout_for, machine=Machine(64, 32))

DEPTH, COLUMNS = 5, 20
# Of weights with so many columns that exceed the second-level cache as floats.
FAR_DEPTH = Machine(64, 32).second_level_bytes // (4 * COLUMNS) + 1


def scores(
    queries,
    columns=COLUMNS,
    crosswise: bool = True,
    constant: bool = False,
    depth: int = DEPTH,
) -> Program:
    """`y[i, j] = sum_k q[i, k] b[j, k]`, or `b[k, j]`."""
    i, j, k = Axis("i", queries), Axis("j", columns), Axis("k", depth)
    strides = ((j, depth), (k, 1)) if crosswise else ((k, columns), (j, 1))
    name = "c0" if constant else "b"
    total = Reduce((k,), "sum", at("q", (i, depth), (k, 1)), at(name, *strides))
    y = store("y", Reduced(0, "float32"), (i, columns), (j, 1))
    inputs = {"q": (queries, depth), "b": (columns, depth)}
    return program(
        inputs,
        {"y": (queries, columns)},
        (Kernel("scores", (i, j), (total,), (y,)),),
        {"c0": np.ones((columns, depth), np.float32)} if constant else None,
        symbols=tuple(str(n) for n in (queries, columns) if not isinstance(n, int)),
    )


# Terms of which there are too few to be transposed in registers are gathered once, not often.
@pytest.mark.parametrize(("queries", "depth"), [(LEAST_TURNED_USES, DEPTH), (LEAST_USES, 3)])
def test_an_operand_across_the_lanes_is_transposed(queries, depth):
    source = scores(queries, depth=depth)
    changed = relayout(source)
    copy, reader = changed.body
    assert isinstance(copy, Kernel) and isinstance(reader, Kernel)
    assert changed.buffers[copy.stores[0].access.buffer].size == depth * COLUMNS
    lane = next(axis for axis in reader.axes if axis.name == "j")
    assert {load.access.stride(lane) for load in reader.loads()} == {0, 1}
    assert_same_results(source, changed)
    tiled = tile(changed, Machine(64, 32)).body[1]
    assert isinstance(tiled, Kernel) and tiled.tile is not None and tiled.tile.width == 16


def test_the_run_decides_where_it_alone_knows_how_often_elements_are_read():
    source = scores(symbol("N"))
    changed = relayout(source)
    decision, branch = changed.body
    assert isinstance(decision, Kernel) and isinstance(branch, Branch)
    assert len(branch.then) == 2
    (plain,) = branch.orelse
    assert isinstance(plain, Kernel) and plain.reductions == source.body[0].reductions
    assert_same_results(source, changed)


def test_run_time_lanes():
    source = scores(LEAST_TURNED_USES, symbol("N"))
    assert len(relayout(source).body) == 2
    assert_same_results(source, relayout(source))


@pytest.mark.parametrize(
    "source",
    [
        scores(LEAST_USES - 1, depth=3),  # few uses
        scores(LEAST_TURNED_USES - 1),  # few that are transposed in registers
        scores(9, crosswise=False),  # lanes find neighbours
        scores(9, columns=5),  # no full vectors
        scores(9, constant=True),  # packed
    ],
    ids=["few", "few rows", "neighbours", "short", "constant"],
)
def test_nothing_is_copied_in_vain(source):
    check_unchanged(relayout, source)


def test_windows_are_not_taken_apart():
    """What overlaps would need a copy larger than the operand."""
    i, j, k = Axis("i", 9), Axis("j", 10), Axis("k", DEPTH)
    window = at("x", (j, 2), (k, 1))
    total = Reduce((k,), "sum", at("q", (i, DEPTH), (k, 1)), window)
    kernel = Kernel("conv", (i, j), (total,), (store("y", Reduced(0, "float32"), (i, 10), (j, 1)),))
    source = program({"q": (9, DEPTH), "x": (23,)}, {"y": (9, 10)}, (kernel,))
    check_unchanged(relayout, source)


def steps(source: Program, extent=3) -> Program:
    return source.with_body((Loop(Axis("t", extent), (), source.body),))


def test_what_no_step_changes_is_copied_before_the_loop():
    source = steps(scores(2))
    changed = relayout(source)
    copy, loop = changed.body
    assert isinstance(copy, Kernel) and isinstance(loop, Loop)
    (reader,) = loop.body
    assert copy.writes() < reader.reads() and "b" not in reader.reads()
    assert_same_results(source, changed)


def test_what_each_image_has_of_its_own_is_copied_in_its_step():
    n, rows = Axis("n", 3), LEAST_TURNED_USES
    i, j, k = Axis("i", rows), Axis("j", COLUMNS), Axis("k", DEPTH)
    left = at("q", (n, rows * DEPTH), (i, DEPTH), (k, 1))
    right = at("b", (n, COLUMNS * DEPTH), (j, DEPTH), (k, 1))
    y = store("y", Reduced(0, "float32"), (n, rows * COLUMNS), (i, COLUMNS), (j, 1))
    kernel = Kernel("scores", (i, j), (Reduce((k,), "sum", left, right),), (y,))
    source = program(
        {"q": (3, rows, DEPTH), "b": (3, COLUMNS, DEPTH)},
        {"y": (3, rows, COLUMNS)},
        (Loop(n, (), (kernel,), is_independent=True),),
    )
    changed = relayout(source)
    (loop,) = changed.body
    assert isinstance(loop, Loop)
    copy, reader = loop.body
    assert copy.reads() == {"b"} and copy.writes() <= reader.reads() and "b" not in reader.reads()
    assert_same_results(source, changed)


def test_steps_that_only_a_run_counts_are_taken_to_be_many():
    assert len(relayout(steps(scores(1), symbol("T"))).body) == 2


def test_copies_of_nested_loops_stand_before_the_outermost_one():
    source = steps(scores(2), 2)
    changed = relayout(source.with_body((Loop(Axis("s", 2), (), source.body),)))
    assert [type(s) for s in changed.body] == [Kernel, Loop]


def test_what_the_outer_loop_changes_is_copied_before_the_inner_one():
    source = steps(scores(2), 2)
    n = Axis("n", COLUMNS * DEPTH)
    change = Kernel("change", (n,), (), (store("b", at("p", (n, 1)), (n, 1)),))
    buffers = {n: replace(b, kind="arena") if n == "b" else b for n, b in source.buffers.items()}
    buffers["p"] = Buffer("p", "float32", COLUMNS * DEPTH, "input")
    inputs = (source.inputs[0], Interface("p", "p", "float32", (COLUMNS * DEPTH,)))
    source = replace(source, inputs=inputs, buffers=buffers)
    source = source.with_body((Loop(Axis("s", 2), (), (change, *source.body)),))
    changed = relayout(source)
    (outer,) = changed.body
    assert isinstance(outer, Loop)
    assert [type(s) for s in outer.body] == [Kernel, Kernel, Loop]
    assert_same_results(source, changed)


def test_steps_may_read_sizes_that_are_computed_before_the_loop_not_within():
    i, j, k = Axis("i", 9), Axis("j", COLUMNS), Axis("k", DEPTH)
    first, row = symbol("first", computed=True), 9 * COLUMNS
    total = Reduce((k,), "sum", at("q", (i, DEPTH), (k, 1)), at("b", (j, DEPTH), (k, 1)))
    rows = store("y", Reduced(0, "float32"), (i, COLUMNS), (j, 1), offset=row * first)
    reader = Kernel("scores", (i, j), (total,), (rows,))
    count = Kernel("count", (), (), (store("first", at("n", dtype="int64")),))
    inputs = {"q": (9, DEPTH), "b": (COLUMNS, DEPTH)}
    source = program(inputs, {"y": (2 * row,)}, (), symbols=("first",))
    buffers = {
        **source.buffers,
        "n": Buffer("n", "int64", 1, "input"),
        "first": Buffer("first", "int64", 1, "size", bound=1),
    }
    given = (*source.inputs, Interface("n", "n", "int64", (1,)))
    source = replace(source, buffers=buffers, inputs=given)
    time = Axis("t", 3)
    before = source.with_body((count, Loop(time, (), (reader,))))
    assert [type(s) for s in relayout(before).body] == [Kernel, Kernel, Loop]
    check_unchanged(relayout, source.with_body((Loop(time, (), (count, reader)),)))


def test_few_steps_copy_nothing():
    check_unchanged(relayout, steps(scores(1), LEAST_USES - 1))


def test_what_might_lie_outside_of_the_operand_is_not_read_before_the_loop():
    """The loop may have no steps, and its operand then fewer elements than its kernels read."""
    i, j, k = Axis("i", 9), Axis("j", COLUMNS), Axis("k", symbol("K"))
    load = at("b", (j, symbol("K")), (k, 1), offset=symbol("K") - 1)
    total = Reduce((k,), "sum", at("q", (i, symbol("K")), (k, 1)), load)
    y = store("y", Reduced(0, "float32"), (i, COLUMNS), (j, 1))
    inputs = {"q": (9, symbol("K")), "b": (COLUMNS + 1, symbol("K")), "n": (symbol("K"),)}
    kernel = Kernel("scores", (i, j), (total,), (y,))
    source = program(inputs, {"y": (9, COLUMNS)}, (kernel,), symbols=("K",))
    assert len(relayout(source).body) == 2
    check_unchanged(relayout, steps(source))


def matrix_product(rows, depth=96, columns=96) -> Program:
    """`y[i, j] = sum_k x[i, k] w[k, j]`."""
    i, j, k = Axis("i", rows), Axis("j", columns), Axis("k", depth)
    total = Reduce((k,), "sum", at("x", (i, depth), (k, 1)), at("w", (k, columns), (j, 1)))
    y = store("y", Reduced(0, "float32"), (i, columns), (j, 1))
    return program(
        {"x": (rows, depth), "w": (depth, columns)},
        {"y": (rows, columns)},
        (Kernel("product", (i, j), (total,), (y,)),),
        symbols=tuple(str(n) for n in (rows, depth, columns) if not isinstance(n, int)),
    )


def test_an_operand_that_many_rows_share_is_copied():
    for least, depth, columns in (
        (LEAST_NEAR_USES, 96, 96),
        (LEAST_SHARED_USES, 96, 512),
        (LEAST_FAR_USES, 4096, 512),
    ):
        source = matrix_product(least, depth, columns)
        changed = relayout(source)
        copy, reader = changed.body
        assert isinstance(copy, Kernel) and copy.reads() == {"w"} and "w" not in reader.reads()
        check_unchanged(relayout, matrix_product(least - 1, depth, columns))
    check_unchanged(relayout, matrix_product(LEAST_NEAR_USES, 16))


@pytest.mark.parametrize(("sums", "is_copied"), [(4, True), (2, False)])
def test_operands_of_several_sums_leave_the_cache_together(sums, is_copied):
    depth, columns = 512, 256
    i, j, k = Axis("i", LEAST_FAR_USES), Axis("j", columns), Axis("k", depth)
    parts = [at("w", (k, columns), (j, 1), offset=n * depth * columns) for n in range(sums)]
    totals = tuple(Reduce((k,), "sum", at("x", (i, depth), (k, 1)), part) for part in parts)
    whole = reduce(
        lambda a, b: Op("add", (a, b), "float32"), (Reduced(n, "float32") for n in range(sums))
    )
    y = store("y", whole, (i, columns), (j, 1))
    source = program(
        {"x": (LEAST_FAR_USES, depth), "w": (sums * depth, columns)},
        {"y": (LEAST_FAR_USES, columns)},
        (Kernel("product", (i, j), totals, (y,)),),
    )
    if is_copied:
        assert len(relayout(source).body) == sums + 1
    else:
        check_unchanged(relayout, source)


def test_the_run_decides_how_many_rows_share_an_operand():
    decision, branch = relayout(matrix_product(symbol("N"))).body
    assert isinstance(decision, Kernel) and isinstance(branch, Branch)
    assert f"{LEAST_NEAR_USES}" in str(decision.stores[0].value)


def gradient(
    depth: int, rows: int, columns: int, backwards: bool = False, given: bool = False
) -> Program:
    """`y[i, j] = sum_k x[k, i] w[k, j]`: the gradient of weights; or with `x[k, rows - 1 - i]`.

    given: whether `w` is an input, not computed before.
    """
    i, j, k = Axis("i", rows), Axis("j", columns), Axis("k", depth)
    x = at("x", (k, rows), (i, 1))
    if backwards:
        x = at("x", (k, rows), (i, -1), offset=rows - 1)
    total = Reduce((k,), "sum", x, at("w", (k, columns), (j, 1)))
    y = store("y", Reduced(0, "float32"), (i, columns), (j, 1))
    kernel = Kernel("product", (i, j), (total,), (y,))
    inputs = {"x": (depth, rows), "w": (depth, columns)}
    source = program(inputs, {"y": (rows, columns)}, (kernel,))
    if given:
        return source
    n = Axis("n", depth * columns)
    before = Kernel("before", (n,), (), (store("w", at("v", (n, 1)), (n, 1)),))
    w = replace(source.buffers["w"], kind="arena")
    v = Buffer("v", "float32", depth * columns, "input")
    return replace(
        source,
        inputs=(source.inputs[0], Interface("v", "v", "float32", (depth, columns))),
        buffers={**source.buffers, "w": w, "v": v},
    ).with_body((before, kernel))


@pytest.mark.parametrize("backwards", [False, True])
def test_rows_whose_sum_runs_over_distant_places_are_transposed(backwards):
    source = gradient(200, 64, 96, backwards, given=True)
    k = source.body[0].reductions[0].axes[0]
    i = source.body[0].axes[0]
    changed = relayout(source)
    *copies, reader = changed.body
    assert len(copies) == 2
    assert all(load.access.stride(k) == 1 for load in reader.loads() if load.access.stride(i))
    assert_same_results(source, changed)


def test_long_sums_over_short_rows_read_them_where_they_are():
    check_unchanged(relayout, gradient(300, 128, 256))
    assert len(relayout(gradient(300, 1024, 256)).body) == 4
    assert len(relayout(gradient(300, 128, 1024)).body) == 4


@pytest.mark.parametrize(
    ("rows", "columns", "is_copied"),
    [
        (LEAST_SPLIT_USES, LEAST_SPLIT_LANES, True),
        (LEAST_SPLIT_USES - 1, LEAST_SPLIT_LANES, False),
        (LEAST_SPLIT_USES, LEAST_SPLIT_LANES - 1, False),
    ],
)
def test_rows_of_inputs_that_lanes_read_are_copied_to_where_lines_begin(rows, columns, is_copied):
    source = gradient(300, rows, columns, given=True)
    changed = relayout(source)
    *copies, reader = changed.body
    assert [copy.reads() for copy in copies] == [{"w"}] * is_copied
    assert "x" in reader.reads()
    assert_same_results(source, tile(changed, Machine(64, 32)))


@pytest.mark.parametrize(
    ("machine", "columns", "is_copied"),
    [
        (AVX2, 128, True),
        (AVX2, 144, False),  # lines of its rows do not evict each other
        (AVX512, 128, False),  # its tiles compute while they wait
    ],
)
def test_rows_whose_lines_evict_each_other_are_copied_for_short_tiles(machine, columns, is_copied):
    source = gradient(300, LEAST_SPLIT_USES, columns)
    changed = relayout_for(source, machine)
    assert len(changed.body) == len(source.body) + is_copied
    assert_same_results(source, tile(changed, machine))


def narrow(rows, depth: int = DEPTH, dtype: str = "int8") -> Program:
    """`y[i, j] = sum_k q[i, k] float32(w[k, j])` with narrow weights."""
    i, j, k = Axis("i", rows), Axis("j", COLUMNS), Axis("k", depth)
    weight = cast(at("w", (k, COLUMNS), (j, 1), dtype=dtype), "float32")
    total = Reduce((k,), "sum", at("q", (i, depth), (k, 1)), weight)
    y = store("y", Reduced(0, "float32"), (i, COLUMNS), (j, 1))
    return program(
        {"q": (rows, depth)},
        {"y": (rows, COLUMNS)},
        (Kernel("product", (i, j), (total,), (y,)),),
        {"w": (np.arange(depth * COLUMNS) % 100).astype(dtype)},
        symbols=() if isinstance(rows, int) else (str(rows),),
    )


def test_narrow_weights_are_widened_once_for_many_rows():
    source = narrow(LEAST_WIDENED_USES)
    changed = relayout(source)
    copy, reader = changed.body
    assert isinstance(copy, Kernel) and isinstance(reader, Kernel)
    assert copy.reads() == {"w"} and {load.dtype for load in reader.loads()} == {"float32"}
    assert changed.buffers[copy.stores[0].access.buffer].is_copy
    assert_same_results(source, changed)
    check_unchanged(relayout, narrow(LEAST_WIDENED_USES - 1))


@pytest.mark.parametrize(
    ("depth", "dtype", "least"),
    [
        pytest.param(DEPTH, "float16", LEAST_CONVERTED_USES, id="one instruction"),
        pytest.param(FAR_DEPTH, "int8", LEAST_FAR_WIDENED_USES, id="a copy that leaves the cache"),
    ],
)
def test_more_rows_pay_for_a_copy_of_cheaper_or_larger_weights(depth, dtype, least):
    assert len(relayout(narrow(least, depth, dtype)).body) == 2
    check_unchanged(relayout, narrow(least - 1, depth, dtype))


def test_loops_read_what_many_rows_of_a_step_would_widen():
    widened = relayout(steps(narrow(LEAST_WIDENED_USES)))
    copy, loop = widened.body
    assert isinstance(copy, Kernel) and copy.reads() == {"w"} and "w" not in loop.reads()
    for rows in (LEAST_WIDENED_USES - 1, symbol("N")):
        check_unchanged(relayout, steps(narrow(rows), LEAST_WIDENED_USES))


def test_rows_of_a_copied_operand_are_widened_too():
    """Lanes read pixels from a copy; each of the weights that rows have is widened once."""
    pixels, depth = 1024, 64
    i, j, k = Axis("i", LEAST_EVICTED_USES), Axis("j", pixels), Axis("k", depth)
    weight = cast(at("w", (i, depth), (k, 1), dtype="int8"), "float32")
    total = Reduce((k,), "sum", at("x", (k, pixels), (j, 1)), weight)
    y = store("y", Reduced(0, "float32"), (i, pixels), (j, 1))
    source = program(
        {"x": (depth, pixels)},
        {"y": (LEAST_EVICTED_USES, pixels)},
        (Kernel("product", (i, j), (total,), (y,)),),
        {"w": (np.arange(LEAST_EVICTED_USES * depth) % 100).astype(np.int8)},
    )
    changed = relayout(source)
    *copies, reader = changed.body
    assert [copy.reads() for copy in copies] == [{"x"}, {"w"}]
    assert reader.reads().isdisjoint({"x", "w"})
    assert_same_results(source, changed)


@pytest.mark.parametrize(
    ("columns", "least"),
    [
        pytest.param(1024, LEAST_EVICTED_USES, id="terms that lie pages apart"),
        pytest.param(1023, LEAST_CROSSING_USES, id="terms that begin anywhere in a line"),
        pytest.param(1040, LEAST_SHARED_USES, id="terms that begin with a line"),
    ],
)
def test_fewer_rows_pay_for_a_copy_of_terms_that_evict_each_other(columns, least):
    assert len(relayout(matrix_product(least, 64, columns)).body) == 2
    check_unchanged(relayout, matrix_product(least - 1, 64, columns))


def test_short_vectors_seldom_lie_in_two_lines():
    source = matrix_product(LEAST_CROSSING_USES, 64, 1023)
    check_unchanged(lambda source: relayout_for(source, Machine(16, 32)), source)


def test_the_run_decides_whether_narrow_weights_are_widened_once():
    source = narrow(symbol("N"))
    decision, branch = relayout(source).body
    assert isinstance(decision, Kernel) and isinstance(branch, Branch)
    assert (len(branch.then), len(branch.orelse)) == (2, 1)
    assert_same_results(source, relayout(source))


@pytest.mark.parametrize(
    ("rows", "columns", "copies"),
    [
        pytest.param(512, 128, 0, id="short rows"),
        pytest.param(1024, 64, 0, id="long rows that few lanes read"),
        pytest.param(1024, 256, 2, id="long rows that many lanes read"),
        pytest.param(512, 700, 2, id="partial results leave the cache"),
    ],
)
def test_pieces_of_long_sums_read_rows_where_they_are(rows, columns, copies):
    changed = relayout(gradient(400, rows, columns))
    assert len(changed.body) == copies + 2
