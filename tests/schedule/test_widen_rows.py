from __future__ import annotations

import pytest

from ostinato.program.expr import Axis, Cast, Expr, Reduced
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Buffer, Interface, Loop, Program
from ostinato.schedule.widen_rows import LEAST_LANES, widen_rows
from tests.program.programs import at, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

ROWS, TERMS, STEPS = 3, 5, 2


def product(lanes: int = LEAST_LANES, rows: str = "float16", window: int = 0) -> Program:
    """Rows of `x` times a matrix; `window`: how far they lie from each other, if they overlap."""
    i, j, k = Axis("i", ROWS), Axis("j", lanes), Axis("k", TERMS)
    x: Expr = at("x", (i, window or TERMS), (k, 1), dtype=rows)
    x = x if rows == "float32" else Cast(x, "float32")
    reduce = Reduce((k,), "sum", x, at("w", (k, lanes), (j, 1)))
    stored = store("y", Reduced(0, "float32"), (i, lanes), (j, 1))
    kernel = Kernel("k", (i, j), (reduce,), (stored,), None, ("k",))
    size = window * (ROWS - 1) + TERMS if window else ROWS * TERMS
    shapes = {
        "x": (rows, (size,)),
        "w": ("float32", (TERMS, lanes)),
        "y": ("float32", (ROWS, lanes)),
    }
    sides = [Interface(name, name, kind, shape) for name, (kind, shape) in shapes.items()]
    sizes = {"x": size, "w": TERMS * lanes, "y": ROWS * lanes}
    buffers = {
        name: Buffer(name, kind, sizes[name], "output" if name == "y" else "input")
        for name, (kind, _) in shapes.items()
    }
    return Program(tuple(sides[:2]), tuple(sides[2:]), (), buffers, {}, (kernel,), ())


@pytest.mark.parametrize("rows", ["float16", "bfloat16"])
def test_rows_are_widened_once(rows):
    source = product(rows=rows)
    changed = widen_rows(source)
    copy, reader = changed.body
    assert copy.stores[0].value == source.body[0].reductions[0].operands[0]
    assert [axis.name for axis in copy.axes] == ["i", "k"]
    assert reader.reads() == {"wide.k.0", "w"}
    assert changed.buffers["wide.k.0"].dtype == "float32"
    assert_same_results(source, changed)


def test_steps_widen_their_rows():
    source = product()
    (kernel,) = source.body
    source = source.with_body((Loop(Axis("t", STEPS), (), (kernel,)),))
    (loop,) = widen_rows(source).body
    assert len(loop.body) == 2
    assert_same_results(source, widen_rows(source))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(product(lanes=LEAST_LANES - 1), id="few lanes"),
        pytest.param(product(rows="float32"), id="wide rows"),
        pytest.param(product(window=1), id="rows that overlap: a copy would be larger"),
    ],
)
def test_others_stay(source):
    check_unchanged(widen_rows, source)
