from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Axis, Reduced, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Buffer, Carry, Loop, Program, Require
from ostinato.schedule.sink import sink
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import (
    assert_same_results,
    check,
    check_unchanged,
    pointwise,
    product,
)

T = symbol("T")
t, i, j, k, e = Axis("t", T), Axis("i", 2), Axis("j", 2), Axis("k", 2), Axis("e", 2)

STATE = (Carry("h", "g"),)


def loop(*body, condition: str | None = None, carries=STATE, **sizes) -> Program:
    """A loop over the rows of x with a state h of two elements; every step writes a row of y."""
    source = program(
        {"x": (T, 2), "h0": (2,)},
        {"y": (T, 2), "last": (2,)},
        (
            pointwise("begin", at("h0", (Axis("b", 2), 1)), "h", Axis("b", 2)),
            Loop(t, carries, body, condition),
            pointwise("end", at("h", (e, 1)), "last", e),
        ),
        {"W": np.arange(4, dtype=np.float32)},
        {"h": 2, "g": 2, **sizes},
        ("T",),
    )
    return source.with_body(source.body)


NEW = op("tanh", op("add", at("x", (t, 2), (j, 1)), at("h", (j, 1))))
STEP = replace(
    pointwise("step", NEW, "s", j), stores=(store("g", NEW, (j, 1)), store("s", NEW, (j, 1)))
)
OUT = product("out", at("s", (k, 1)), at("W", (k, 2), (i, 1)), "z", k, i)
KEEP = Kernel("keep", (i,), (), (store("y", at("z", (i, 1)), (t, 2), (i, 1)),))


def test_rows_lie_backwards_where_results_do():
    """As those of a gradient, whose products then have the rows of matrices."""
    end = 2 * T - 2
    keep = Kernel("keep", (i,), (), (store("y", at("z", (i, 1)), (t, -2), (i, 1), offset=end),))
    source = loop(STEP, OUT, keep, s=2, z=2)
    sunk = sink(source)
    assert_same_results(source, sunk)
    _, steps, out, kept, _ = sunk.body
    assert [s.access.stride(t) for s in steps.body[0].stores] == [0, -2]
    assert isinstance(out, Kernel) and isinstance(kept, Kernel)
    for kernel in (out, kept):
        assert all(load.access.stride(t) in (0, 2) for load in kernel.loads())
        assert [s.access.stride(t) for s in kernel.stores] == [2]


def test_a_product_of_what_steps_computed_runs_behind_the_loop():
    check(
        sink,
        loop(STEP, OUT, KEEP, s=2, z=2),
        """
        constant W: float32[4]
        arena h: float32[2]
        arena g: float32[2]
        arena s: float32[2]
        arena z: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            s[j] = v0
          kernel out [i < 2] from out
            r0 = sum k < 2: fma(s[k], W[2*k + i])
            z[i] = r0
          kernel keep [i < 2]
            y[2*t + i] = z[i]
        kernel end [e < 2] from end
          last[e] = h[e]
        """,
        """
        constant W: float32[4]
        arena h: float32[2]
        arena g: float32[2]
        arena s: float32[2*T]
        arena z: float32[2*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            s[j + 2*t] = v0
        kernel out [t < T, i < 2] from out
          r0 = sum k < 2: fma(s[k + 2*t], W[2*k + i])
          z[i + 2*t] = r0
        kernel keep [t < T, i < 2]
          y[2*t + i] = z[i + 2*t]
        kernel end [e < 2] from end
          last[e] = h[e]
        """,
    )


def test_values_with_a_row_for_each_step_are_read_where_they_are():
    step = replace(STEP, stores=(store("g", NEW, (j, 1)), store("s", NEW, (t, 2), (j, 1))))
    out = product("out", at("s", (t, 2), (k, 1)), at("W", (k, 2), (i, 1)), "z", k, i)
    check(
        sink,
        loop(step, out, KEEP, s=2 * T, z=2),
        """
        constant W: float32[4]
        arena h: float32[2]
        arena g: float32[2]
        arena s: float32[2*T]
        arena z: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            s[2*t + j] = v0
          kernel out [i < 2] from out
            r0 = sum k < 2: fma(s[2*t + k], W[2*k + i])
            z[i] = r0
          kernel keep [i < 2]
            y[2*t + i] = z[i]
        kernel end [e < 2] from end
          last[e] = h[e]
        """,
        """
        constant W: float32[4]
        arena h: float32[2]
        arena g: float32[2]
        arena s: float32[2*T]
        arena z: float32[2*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            s[2*t + j] = v0
        kernel out [t < T, i < 2] from out
          r0 = sum k < 2: fma(s[2*t + k], W[2*k + i])
          z[i + 2*t] = r0
        kernel keep [t < T, i < 2]
          y[2*t + i] = z[i + 2*t]
        kernel end [e < 2] from end
          last[e] = h[e]
        """,
    )


def test_pointwise_work_alone_stays():
    keep = Kernel("keep", (i,), (), (store("y", op("exp", at("s", (i, 1))), (t, 2), (i, 1)),))
    check_unchanged(sink, loop(STEP, keep, s=2))


def test_products_that_read_the_state_itself_stay():
    out = product("out", at("h", (k, 1)), at("W", (k, 2), (i, 1)), "z", k, i)
    check_unchanged(sink, loop(STEP, out, KEEP, s=2, z=2))


def test_products_that_the_next_step_needs_stay():
    out = product("out", at("s", (k, 1)), at("W", (k, 2), (i, 1)), "g", k, i)
    step = pointwise("step", NEW, "s", j)
    keep = Kernel("keep", (i,), (), (store("y", at("s", (i, 1)), (t, 2), (i, 1)),))
    check_unchanged(sink, loop(step, out, keep, s=2))


def test_products_that_a_later_kernel_of_the_step_needs_stay():
    out = product("out", at("s", (k, 1)), at("W", (k, 2), (i, 1)), "z", k, i)
    step = pointwise("step", NEW, "s", j)
    after = pointwise("after", at("z", (Axis("a", 2), 1)), "g", Axis("a", 2))
    keep = Kernel("keep", (i,), (), (store("y", at("s", (i, 1)), (t, 2), (i, 1)),))
    check_unchanged(sink, loop(step, out, after, keep, s=2, z=2))


def flagged(source: Program, *names: str) -> Program:
    bools = {name: Buffer(name, "bool", 1, "arena") for name in names}
    return replace(source, buffers={**source.buffers, **bools})


@pytest.mark.parametrize("asks", ["branch", "require"])
def test_products_that_a_condition_needs_stay(asks: str):
    flag = Kernel("flag", (), (), (store("c", op("lt", at("z"), at("z", offset=1))),))
    keep = Kernel("keep", (i,), (), (store("y", at("s", (i, 1)), (t, 2), (i, 1)),))
    other = replace(keep, name="other")
    body = {
        "branch": (STEP, OUT, flag, Branch("c", (keep,), (other,))),
        "require": (STEP, OUT, flag, Require("c", "must hold"), keep),
    }[asks]
    check_unchanged(sink, flagged(loop(*body, s=2, z=2), "c"))


def test_loops_that_a_condition_ends_keep_everything():
    """Nobody behind the loop knows how many steps there were."""
    more = Kernel("more", (), (), (store("next", op("lt", at("h"), at("h0"))),))
    source = loop(
        STEP, OUT, KEEP, more, condition="go", carries=(Carry("h", "g"), Carry("go", "next")),
        s=2, z=2, go=1, next=1,
    )  # fmt: skip
    first = Kernel("first", (), (), (store("go", op("le", at("h0"), at("h0"))),))
    check_unchanged(sink, flagged(source.with_body((first, *source.body)), "go", "next"))


def test_sinking_twice_changes_nothing_more():
    check_unchanged(sink, sink(loop(STEP, OUT, KEEP, s=2, z=2)))


def test_what_is_read_behind_the_loop_keeps_its_one_row():
    source = loop(STEP, OUT, KEEP, s=2, z=2)
    begin, steps, _ = source.body
    last = pointwise("end", op("add", at("h", (e, 1)), at("s", (e, 1))), "last", e)
    check_unchanged(sink, source.with_body((begin, steps, last)))


def test_what_later_steps_read_is_written_in_its_step():
    """A row of a state that grows: the next step reads it before it writes its own."""
    earlier = Axis("n", 2)
    read = product("read", at("y", (earlier, 1)), at("W", (earlier, 2), (i, 1)), "z", earlier, i)
    write = replace(OUT, stores=(store("y", Reduced(0, "float32"), (t, 2), (i, 1)),))
    check_unchanged(sink, loop(STEP, read, write, s=2, z=2))
