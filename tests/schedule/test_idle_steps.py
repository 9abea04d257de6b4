from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Axis, Expr, Index, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Buffer, Carry, Loop, Program, Require, Stmt
from ostinato.schedule.idle_steps import idle_steps
from ostinato.sizes.dims import computed, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import (
    assert_same_results,
    check,
    check_unchanged,
    pointwise,
    product,
)

T, H = symbol("T"), 8
t, j, k, b, e = Axis("t", T), Axis("j", H), Axis("k", H), Axis("b", H), Axis("e", H)
ZERO = constant(0.0, "float32")
# A step does something where the mark of its row is positive.
GOES_ON = op("lt", ZERO, at("marks", (t, 1)))
NEW = op("tanh", op("add", Reduced(0, "float32"), at("x", (t, H), (j, 1))))
OLD = at("h", (j, 1))
BODY = product("step", at("h", (k, 1)), at("R", (k, H), (j, 1)), "g", k, j)


def step(kept: Expr = OLD, row: Expr = ZERO, condition: Expr = GOES_ON, new: Expr = NEW) -> Kernel:
    """One kernel: the next state, and a row of y."""
    stores = (
        store("g", op("select", condition, new, kept), (j, 1)),
        store("y", op("select", condition, new, row), (t, H), (j, 1)),
    )
    return replace(BODY, stores=stores)


def loop(*body: Stmt, before: tuple[Stmt, ...] = (), steps=T, **arena) -> Program:
    """A loop whose steps are given rows of x and marks."""
    axis = Axis("t", steps)
    return program(
        {"x": (steps, H), "marks": (steps,), "h0": (H,)},
        {"y": (steps, H), "last": (H,)},
        (
            *before,
            pointwise("begin", at("h0", (b, 1)), "h", b),
            Loop(axis, (Carry("h", "g"),), body),
            pointwise("end", at("h", (e, 1)), "last", e),
        ),
        {"R": np.linspace(-1, 1, H * H, dtype=np.float32)},
        {"h": H, "g": H, **arena},
        ("T",) if steps is T else (),
    )


def shortened(source: Program) -> Program:
    changed = idle_steps(source)
    assert changed is not source
    assert_same_results(source, changed)
    return changed


def the_loop(source: Program) -> Loop:
    (found,) = (s for s in source.body if isinstance(s, Loop))
    return found


def kernel_of(source: Program, name: str) -> Kernel:
    (found,) = (kernel for kernel in source.kernels() if kernel.name == name)
    return found


def test_steps_that_keep_the_state_are_not_run():
    check(
        idle_steps,
        loop(step()),
        """
        constant R: float32[64]
        arena h: float32[8]
        arena g: float32[8]
        kernel begin [b < 8] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel step [j < 8] from step
            r0 = sum k < 8: fma(h[k], R[8*k + j])
            v0 = tanh(r0 + x[8*t + j])
            v1 = 0.0 < marks[t]
            g[j] = select(v1, v0, h[j])
            y[8*t + j] = select(v1, v0, 0.0)
        kernel end [e < 8] from end
          last[e] = h[e]
        """,
        """
        constant R: float32[64]
        arena h: float32[8]
        arena g: float32[8]
        size t.first: int64[1] <= T
        size t.steps: int64[1] <= T
        size t.rest: int64[1] <= T
        kernel t.range []
          r0 = min tf < T: select(0.0 < marks[tf], tf, extent(T))
          r1 = max tf < T: select(0.0 < marks[tf], tf + 1, 0)
          v0 = min(extent(T), r0)
          t.first[0] = v0
          v1 = max(v0, max(0, r1))
          t.steps[0] = v1 - v0
          t.rest[0] = extent(T) - v1
        kernel begin [b < 8] from begin
          h[b] = h0[b]
        kernel stepb [tb < t.first, j < 8] from step
          y[8*tb + j] = 0.0
        loop ta < t.steps carry h <-> g
          kernel step [j < 8] from step
            r0 = sum k < 8: fma(h[k], R[8*k + j])
            v0 = tanh(r0 + x[8*ta + j + 8*t.first])
            v1 = 0.0 < marks[ta + t.first]
            g[j] = select(v1, v0, h[j])
            y[8*ta + j + 8*t.first] = select(v1, v0, 0.0)
        kernel stepc [tc < t.rest, j < 8] from step
          y[8*tc + j + 8*t.first + 8*t.steps] = 0.0
        kernel end [e < 8] from end
          last[e] = h[e]
        """,
    )


def test_rows_of_idle_steps_may_be_the_state_and_what_the_loop_is_given():
    kept = op("add", OLD, at("x", (t, H), (j, 1)))
    changed = shortened(loop(step(row=kept)))
    fills = [s for s in changed.body if isinstance(s, Kernel) and "y" in s.writes()]
    assert [kernel.reads() & {"h", "x"} for kernel in fills] == [{"h", "x"}] * 2


def test_a_condition_may_say_which_steps_are_idle():
    idle = op("not", GOES_ON)
    stores = (
        store("g", op("select", idle, OLD, NEW), (j, 1)),
        store("y", op("select", idle, ZERO, NEW), (t, H), (j, 1)),
    )
    shortened(loop(replace(BODY, stores=stores)))


@pytest.mark.parametrize(("limit", "steps"), [(0, 0), (2, 2), (3, 3)])
def test_constant_conditions_give_numbers(limit: int, steps: int):
    three = Axis("t", 3)
    condition = op("lt", Index(three), constant(limit, "int64"))
    new = op("tanh", op("add", Reduced(0, "float32"), at("x", (three, H), (j, 1))))
    stores = (
        store("g", op("select", condition, new, OLD), (j, 1)),
        store("y", op("select", condition, new, ZERO), (three, H), (j, 1)),
    )
    source = loop(replace(BODY, stores=stores), steps=3)
    if steps == 3:
        check_unchanged(idle_steps, source)
    else:
        changed = shortened(source)
        assert the_loop(changed).axis.extent == steps
        assert not changed.bounds


def test_kernels_in_front_compute_the_rows_that_are_read():
    made = pointwise("made", op("exp", at("x", (t, H), (b, 1))), "p", t, b)
    read, n = at("p", (t, H), (j, 1)), Axis("n", T)
    new = op("tanh", op("add", Reduced(0, "float32"), read))
    changed = shortened(loop(step(new=new), before=(made,), p=H * T))
    assert computed(kernel_of(changed, "made").axes[0].extent) == {"t.steps"}
    # Idle steps, or somebody else, may need the others.
    kept = loop(step(new=new, row=read), before=(made,), p=H * T)
    (*body, end) = loop(step(new=new), before=(made,), p=H * T).body
    assert isinstance(end, Kernel)
    total = Reduce((n,), "max", at("p", (n, H), (e, 1)))
    last = replace(end, reductions=(total,), stores=(store("last", Reduced(0, "float32"), (e, 1)),))
    for source in (kept, kept.with_body((*body, last))):
        assert kernel_of(shortened(source), "made").axes[0] is t


def test_work_that_leads_to_a_step_belongs_to_it():
    """A gate times the state, as in a GRU that resets before its product."""
    u = Axis("u", H)
    reset = pointwise("reset", op("mul", at("h", (u, 1)), at("x", (t, H), (u, 1))), "r", u)
    reduce = replace(BODY.reductions[0], expr=at("r", (k, 1)))
    shortened(loop(reset, replace(step(), reductions=(reduce,)), r=H))


def with_store(more: Store) -> Kernel:
    return replace(step(), stores=(*step().stores, more))


def with_state(value: Expr) -> Program:
    """The loop with one state more, whose next value is that."""
    begin, steps, end = loop(step()).body
    assert isinstance(steps, Loop)
    more = pointwise("more", at("h0", (e, 1)), "i", e)
    carries = (*steps.carries, Carry("i", "o"))
    steps = replace(steps, carries=carries, body=(with_store(store("o", value, (j, 1))),))
    return loop(step(), i=H, o=H).with_body((begin, more, steps, end))


def test_every_state_has_to_be_kept():
    behind = op("lt", at("marks", (t, 1)), constant(1.0, "float32"))
    source = with_state(op("select", behind, at("i", (j, 1)), NEW))
    assert len(kernel_of(shortened(source), "t.range").reductions) == 4
    counted = op("add", at("i", (j, 1)), constant(1.0, "float32"))
    check_unchanged(idle_steps, with_state(counted))


OWN = op("lt", ZERO, at("h"))
FEW = op("select", op("lt", ZERO, at("x", (t, H), (j, 1))), ZERO, OLD)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(step(condition=OWN), id="the condition depends on the state"),
        pytest.param(step(kept=ZERO), id="the state becomes another"),
        pytest.param(step(kept=at("h", (j, -1), offset=H - 1)), id="its elements move"),
        pytest.param(step(row=NEW), id="a row is a sum"),
        pytest.param(with_store(store("s", NEW, (j, 1))), id="the last step leaves something"),
        pytest.param(pointwise("step", FEW, "g", j), id="conditions are as many as points"),
    ],
)
def test_other_steps_run(kernel: Kernel):
    *body, end = loop(kernel, s=H).body
    assert isinstance(end, Kernel)
    value = at("s" if "s" in kernel.writes() else "h", (e, 1))
    end = replace(end, stores=(store("last", value, (e, 1)),))
    check_unchanged(idle_steps, loop(kernel, s=H).with_body((*body, end)))


def test_steps_that_may_fail_run():
    flag = Kernel("flag", (), (), (store("c", op("lt", at("h"), at("h0"))),))
    source = loop(flag, Require("c", "must hold"), step(), c=1)
    bools = {"c": Buffer("c", "bool", 1, "arena")}
    check_unchanged(idle_steps, replace(source, buffers={**source.buffers, **bools}))


def test_loops_that_a_condition_ends_stay():
    more = Kernel("more", (), (), (store("n", op("lt", at("h"), at("h0"))),))
    source = loop(more, step(), n=1)
    begin, steps, end = source.body
    assert isinstance(steps, Loop)
    steps = replace(steps, condition="c", carries=(*steps.carries, Carry("c", "n")))
    first = Kernel("first", (), (), (store("c", op("le", at("h0"), at("h0"))),))
    bools = {name: Buffer(name, "bool", 1, "arena") for name in ("c", "n")}
    source = replace(source, buffers={**source.buffers, **bools})
    check_unchanged(idle_steps, source.with_body((first, begin, steps, end)))


def test_loops_inside_of_loops_have_steps_of_their_own():
    """The rows of a batch one after the other, as a Scan of opset 8 has them."""
    n, v = Axis("n", 3), Axis("v", H)
    inner = Axis("t", 4)
    condition = op("lt", Index(inner), Index(n))
    stores = (
        store("g", op("select", condition, op("tanh", Reduced(0, "float32")), OLD), (j, 1)),
        store("y", op("select", condition, OLD, ZERO), (n, 4 * H), (inner, H), (j, 1)),
    )
    body = (
        pointwise("begin", at("h0", (b, 1)), "h", b),
        Loop(inner, (Carry("h", "g"),), (replace(BODY, stores=stores),)),
        Kernel("end", (v,), (), (store("last", at("h", (v, 1)), (n, H), (v, 1)),)),
    )
    source = program(
        {"h0": (H,)},
        {"y": (3, 4, H), "last": (3, H)},
        (Loop(n, (), body),),
        {"R": np.linspace(-1, 1, H * H, dtype=np.float32)},
        {"h": H, "g": H},
    )
    (outer,) = shortened(source).body
    assert isinstance(outer, Loop)
    (steps,) = (s for s in outer.body if isinstance(s, Loop))
    assert computed(steps.axis.extent) == {"t.steps"}
