from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from ostinato.program import interpreter
from ostinato.program.expr import Axis, Extent, Index, Reduced, cast, op
from ostinato.program.nodes import Carry, Check, Kernel, Loop, Program, Reduce
from ostinato.program.verify import verify
from ostinato.schedule.equal_sizes import equal_sizes, least_sizes
from ostinato.sizes.dims import Size, floordiv, symbol, terms_of
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import check_unchanged, shown

N, M = symbol("N"), symbol("M")
HALF = floordiv(N - 1, 2)
QUARTER = floordiv(HALF, 2)
LAST = floordiv(QUARTER, 2)


def equal(left: Size, right: Size) -> tuple[Check, ...]:
    return tuple(Check(size, "sizes differ") for size in (left - right, right - left))


def joined(checks: tuple[Check, ...]) -> Program:
    """An image that was made larger again, read by the rows of another one, in a loop as well."""
    y, z, c = Axis("y", 2 * QUARTER + 2), Axis("z", HALF + 1), Axis("c", 2)
    t, k = Axis("t", HALF), Axis("k", HALF + 1)
    up = Kernel("up", (c, y), (), (store("a", at("x", (y, 1)), (c, 2 * QUARTER + 2), (y, 1)),))
    value = op("add", at("a", (c, 2 * QUARTER + 2), (z, 1)), cast(Index(z), "float32"))
    join = Kernel("join", (c, z), (), (store("out", value, (c, HALF + 1), (z, 1)),))
    begin = Kernel("begin", (), (), (store("s", at("x")),))
    total = op("add", Reduced(0, "float32"), cast(Extent(HALF), "float32"))
    reduce = Reduce((k,), "sum", op("mul", at("s"), at("x", (k, 1))))
    step = Kernel("step", (), (reduce,), (store("n", op("mul", total, at("x", (t, 1)))),))
    end = Kernel("end", (), (), (store("last", at("s")),))
    loop = Loop(t, (Carry("s", "n"),), (step,))
    arena = {"a": 4 * QUARTER + 4, "s": 1, "n": 1}
    outputs = {"out": (2, HALF + 1), "last": ()}
    body = (up, join, begin, loop, end)
    return program({"x": (N,)}, outputs, body, None, arena, ("N",), checks=checks)


def test_what_was_made_larger_again_has_the_rows_that_it_is_joined_to():
    source = joined(equal(HALF, 2 * QUARTER + 1))
    changed = equal_sizes(source)
    rows = "(2*((((N - 1) // 2)) // 2) + 2)"
    text = f"""
        kernel up [c < 2, y < {rows[1:-1]}]
          a[{rows}*c + y] = x[y]
        kernel join [c < 2, z < {rows[1:-1]}]
          out[{rows}*c + z] = a[{rows}*c + z] + float32(z)
    """
    assert dedent(text).lstrip("\n") in shown(changed)
    assert changed.checks == source.checks
    loop = changed.body[3]
    assert isinstance(loop, Loop) and loop.axis.extent == 2 * QUARTER + 1
    verify(changed)
    for size in (4, 8, 20):
        x = {"x": np.arange(size, dtype=np.float32) / 16}
        expected, got = interpreter.run(source, x), interpreter.run(changed, x)
        assert expected.keys() == got.keys() == {"out", "last"}
        for name, array in expected.items():
            assert got[name].shape == array.shape and got[name].tobytes() == array.tobytes()


def test_sizes_follow_from_each_other():
    """What is known of the rows of one image holds in what was known of another before."""
    checks = (*equal(3 * HALF, 6 * QUARTER + 3), *equal(QUARTER, 2 * LAST + 1))
    assert equal_sizes(joined(checks)).buffers["out"].size == 2 * (4 * LAST + 4)


@pytest.mark.parametrize(
    "checks",
    [
        (),
        # Not above, and not below, is less than equal.
        equal(HALF, 2 * QUARTER + 1)[:1],
        # No size of the one is a whole number of times the other, or that has no other place.
        equal(2 * HALF, 3 * QUARTER),
        equal(HALF * QUARTER, HALF + 1),
        # Dimensions keep the names that inputs have.
        equal(N, M),
    ],
    ids=["none", "one side", "parts", "product", "dimensions"],
)
def test_sizes_stay_where_nothing_is_known_of_them(checks: tuple[Check, ...]):
    if M in [size for check in checks for size in (check.size, N - check.size)]:
        y = Axis("y", N)
        kernel = Kernel("k", (y,), (), (store("out", at("x", (y, 1)), (y, 1)),))
        inputs = {"x": (N,), "z": (M,)}
        source = program(inputs, {"out": (N,)}, (kernel,), symbols=("N", "M"), checks=checks)
    else:
        source = joined(checks)
    check_unchanged(equal_sizes, source)


def test_sizes_that_were_rounded_down_are_at_least_what_is_known_of_that():
    checks = (*equal(LAST, 5), *equal(HALF, 2 * QUARTER + 1))
    (half,), (dimension,) = terms_of(HALF)[0][0], terms_of(N)[0][0]
    (quarter,) = terms_of(QUARTER)[0][0]
    assert least_sizes(checks) == {quarter: 2 * 5, dimension: 2 * (2 * QUARTER + 1) + 1}
    assert half not in least_sizes(checks)
