from __future__ import annotations

import numpy as np
import pytest

from ostinato.program.dims import symbol
from ostinato.program.expr import Axis, Reduced
from ostinato.program.nodes import Branch, Kernel, Loop, Program, Reduce
from ostinato.schedule.straighten import LEAST_USES, straighten
from ostinato.schedule.tile import Registers, tile
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

DEPTH, COLUMNS = 5, 20


def scores(queries, columns=COLUMNS, crosswise: bool = True, constant: bool = False) -> Program:
    """`y[i, j] = sum_k q[i, k] b[j, k]`, or `b[k, j]`."""
    i, j, k = Axis("i", queries), Axis("j", columns), Axis("k", DEPTH)
    strides = ((j, DEPTH), (k, 1)) if crosswise else ((k, columns), (j, 1))
    name = "c0" if constant else "b"
    total = Reduce((k,), "sum", at("q", (i, DEPTH), (k, 1)), at(name, *strides))
    y = store("y", Reduced(0, "float32"), (i, columns), (j, 1))
    inputs = {"q": (queries, DEPTH), "b": (columns, DEPTH)}
    return program(
        inputs,
        {"y": (queries, columns)},
        (Kernel("scores", (i, j), (total,), (y,)),),
        {"c0": np.ones((columns, DEPTH), np.float32)} if constant else None,
        symbols=tuple(str(n) for n in (queries, columns) if not isinstance(n, int)),
    )


def test_an_operand_across_the_lanes_is_transposed():
    source = scores(LEAST_USES)
    changed = straighten(source)
    copy, reader = changed.body
    assert isinstance(copy, Kernel) and isinstance(reader, Kernel)
    assert changed.buffers[copy.stores[0].access.buffer].size == DEPTH * COLUMNS
    lane = next(axis for axis in reader.axes if axis.name == "j")
    assert {load.access.stride(lane) for load in reader.loads()} == {0, 1}
    assert_same_results(source, changed)
    tiled = tile(changed, Registers(64, 32)).body[1]
    assert isinstance(tiled, Kernel) and tiled.tile is not None and tiled.tile.width == 16


def test_the_run_decides_where_it_alone_knows_how_often_elements_are_read():
    source = scores(symbol("N"))
    changed = straighten(source)
    decision, branch = changed.body
    assert isinstance(decision, Kernel) and isinstance(branch, Branch)
    assert len(branch.then) == 2
    (plain,) = branch.orelse
    assert isinstance(plain, Kernel) and plain.reductions == source.body[0].reductions
    assert_same_results(source, changed)


def test_run_time_lanes():
    source = scores(7, symbol("N"))
    assert len(straighten(source).body) == 2
    assert_same_results(source, straighten(source))


@pytest.mark.parametrize(
    "source",
    [
        scores(LEAST_USES - 1),  # few uses
        scores(9, crosswise=False),  # lanes find neighbours
        scores(9, columns=5),  # no full vectors
        scores(9, constant=True),  # packed
    ],
    ids=["few", "neighbours", "short", "constant"],
)
def test_nothing_is_copied_in_vain(source):
    check_unchanged(straighten, source)


def test_windows_are_not_taken_apart():
    """What overlaps would need a copy larger than the operand."""
    i, j, k = Axis("i", 9), Axis("j", 10), Axis("k", DEPTH)
    window = at("x", (j, 2), (k, 1))
    total = Reduce((k,), "sum", at("q", (i, DEPTH), (k, 1)), window)
    kernel = Kernel("conv", (i, j), (total,), (store("y", Reduced(0, "float32"), (i, 10), (j, 1)),))
    source = program({"q": (9, DEPTH), "x": (23,)}, {"y": (9, 10)}, (kernel,))
    check_unchanged(straighten, source)


def test_bodies_of_loops_stay():
    """A step may be one of many in which the operand is the same."""
    source = scores(9)
    inner = source.with_body((Loop(Axis("t", 2), (), source.body),))
    check_unchanged(straighten, inner)
