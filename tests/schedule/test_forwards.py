"""Kernels whose sums read backwards."""

from __future__ import annotations

import pytest

from ostinato.program.expr import Axis, Reduced
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.forwards import forwards
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, check_unchanged

WIDTH, UNITS = 4, 3


def product(steps: Size, rows: Size, across: int = 1) -> Program:
    """A product of rows, of which those of the last step come first. across: the stride of rows."""
    t, i, u, k = Axis("t", steps), Axis("i", rows), Axis("u", UNITS), Axis("k", WIDTH)
    last = WIDTH * rows * (steps - 1) + (0 if across > 0 else WIDTH * (rows - 1))
    x = at("x", (t, -WIDTH * rows), (i, across * WIDTH), (k, 1), offset=last)
    w = at("w", (k, UNITS), (u, 1))
    stored = store("y", Reduced(0, "float32"), (t, UNITS * rows), (i, UNITS), (u, 1))
    kernel = Kernel("k", (t, i, u), (Reduce((k,), "sum", x, w),), (stored,))
    inputs = {"x": (steps, rows, WIDTH), "w": (WIDTH, UNITS)}
    open_sizes = tuple(str(size) for size in (steps, rows) if not isinstance(size, int))
    return program(inputs, {"y": (steps, rows, UNITS)}, (kernel,), symbols=open_sizes)


def test_steps_are_read_from_the_first_on() -> None:
    check(
        forwards,
        product(5, 2),
        """
        kernel k [t < 5, i < 2, u < 3]
          r0 = sum k < 4: fma(x[-8*t + 4*i + k + 32], w[3*k + u])
          y[6*t + 3*i + u] = r0
        """,
        """
        kernel k [t < 5, i < 2, u < 3]
          r0 = sum k < 4: fma(x[8*t + 4*i + k], w[3*k + u])
          y[-6*t + 3*i + u + 24] = r0
        """,
    )


@pytest.mark.parametrize("across", [1, -1])
def test_sizes_that_a_run_tells(across: int) -> None:
    steps, rows = symbol("T"), symbol("B")
    source = product(steps, rows, across)
    changed = forwards(source)
    assert_same_results(source, changed)
    (load, _) = next(changed.kernels()).summed
    assert all(stride != -WIDTH and stride != -WIDTH * rows for _, stride in load.access.terms)
    check_unchanged(forwards, changed)


def test_a_sum_that_reads_one_operand_forwards_stays() -> None:
    t, k = Axis("t", 5), Axis("k", WIDTH)
    x, w = at("x", (t, -WIDTH), (k, 1), offset=16), at("w", (t, WIDTH), (k, 1))
    kernel = Kernel(
        "k",
        (t,),
        (Reduce((k,), "sum", x, w),),
        (store("y", Reduced(0, "float32"), (t, 1)),),
    )
    check_unchanged(forwards, program({"x": (5, WIDTH), "w": (5, WIDTH)}, {"y": (5,)}, (kernel,)))
