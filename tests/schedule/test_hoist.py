from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import AVX2, AVX512, Machine
from ostinato.program.expr import Axis, Index, cast, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Buffer, Carry, Loop, Program, Require
from ostinato.schedule.hoist import hoist as hoist_for
from ostinato.sizes.dims import symbol, symbols
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import (
    assert_same_results,
    check,
    check_unchanged,
    pointwise,
    product,
)

T = symbol("T")


def hoist(source: Program) -> Program:
    return hoist_for(source, AVX512)


t, i, j, k = Axis("t", T), Axis("i", 2), Axis("j", 2), Axis("k", 3)
X = at("x", (t, 3), (k, 1))

STATE = (Carry("h", "g"),)


def loop(*body, condition: str | None = None, carries=STATE, **sizes) -> Program:
    """A loop over the rows of x with a state h of two elements, which starts as h0."""
    source = program(
        {"x": (T, 3), "h0": (2,)},
        {"y": (2,)},
        (
            pointwise("begin", at("h0", (Axis("b", 2), 1)), "h", Axis("b", 2)),
            Loop(t, carries, body, condition),
            pointwise("end", at("h", (Axis("e", 2), 1)), "y", Axis("e", 2)),
        ),
        {"W": np.arange(6, dtype=np.float32)},
        {"h": 2, "g": 2, **sizes},
        ("T",),
    )
    return source.with_body(source.body)


INPUT = product("input", X, at("W", (k, 2), (i, 1)), "a", k, i)
STEP = pointwise("step", op("tanh", op("add", at("a", (j, 1)), at("h", (j, 1)))), "g", j)


def test_a_product_of_the_inputs_runs_once_for_all_steps():
    check(
        hoist,
        loop(INPUT, STEP, a=2),
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel input [i < 2] from input
            r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
            a[i] = r0
          kernel step [j < 2] from step
            g[j] = tanh(a[j] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel input [t < T, i < 2] from input
          r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
          a[i + 2*t] = r0
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            g[j] = tanh(a[j + 2*t] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_what_is_the_same_in_every_step_runs_once():
    same = pointwise("same", op("exp", at("h0", (i, 1))), "a", i)
    check(
        hoist,
        loop(same, STEP, a=2),
        """
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel same [i < 2] from same
            a[i] = exp(h0[i])
          kernel step [j < 2] from step
            g[j] = tanh(a[j] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel same [i < 2] from same
          a[i] = exp(h0[i])
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            g[j] = tanh(a[j] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_the_number_of_the_step_is_an_index_of_all_steps():
    number = pointwise("number", cast(Index(t), "float32"), "a", i)
    check(
        hoist,
        loop(number, STEP, a=2),
        """
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel number [i < 2] from number
            a[i] = float32(t)
          kernel step [j < 2] from step
            g[j] = tanh(a[j] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel number [t < T, i < 2] from number
          a[i + 2*t] = float32(t)
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            g[j] = tanh(a[j + 2*t] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_what_follows_from_moved_values_moves_too():
    follow = pointwise("follow", op("neg", at("a", (i, 1))), "c", i)
    step = pointwise("step", op("add", at("c", (j, 1)), at("h", (j, 1))), "g", j)
    check(
        hoist,
        loop(INPUT, follow, step, a=2, c=2),
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        arena c: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel input [i < 2] from input
            r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
            a[i] = r0
          kernel follow [i < 2] from follow
            c[i] = neg(a[i])
          kernel step [j < 2] from step
            g[j] = c[j] + h[j]
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2*T]
        arena c: float32[2*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel input [t < T, i < 2] from input
          r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
          a[i + 2*t] = r0
        kernel follow [t < T, i < 2] from follow
          c[i + 2*t] = neg(a[i + 2*t])
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            g[j] = c[j + 2*t] + h[j]
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_work_leaves_every_loop_around_it():
    u = Axis("u", 4)
    inner = Loop(u, (Carry("h", "g"),), (INPUT, STEP))
    source = loop(inner, a=2)
    outer = replace(source.body[1], carries=())
    check(
        hoist,
        source.with_body((source.body[0], outer, source.body[2])),
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T
          loop u < 4 carry h <-> g
            kernel input [i < 2] from input
              r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
              a[i] = r0
            kernel step [j < 2] from step
              g[j] = tanh(a[j] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel input [t < T, i < 2] from input
          r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
          a[i + 2*t] = r0
        loop t < T
          loop u < 4 carry h <-> g
            kernel step [j < 2] from step
              g[j] = tanh(a[j + 2*t] + h[j])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_rows_that_a_store_has_already_are_kept():
    rows = Kernel("rows", (k,), (), (store("s", op("exp", X), (t, 3), (k, 1)),))
    total = pointwise("step", op("add", at("s", (t, 3), (j, 1)), at("h", (j, 1))), "g", j)
    check(
        hoist,
        loop(rows, total, s=3 * T),
        """
        arena h: float32[2]
        arena g: float32[2]
        arena s: float32[3*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel rows [k < 3]
            s[3*t + k] = exp(x[3*t + k])
          kernel step [j < 2] from step
            g[j] = s[3*t + j] + h[j]
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        arena h: float32[2]
        arena g: float32[2]
        arena s: float32[3*T]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel rows [t < T, k < 3]
          s[3*t + k] = exp(x[3*t + k])
        loop t < T carry h <-> g
          kernel step [j < 2] from step
            g[j] = s[3*t + j] + h[j]
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_what_reads_the_state_stays():
    reads = pointwise("reads", op("exp", at("h", (i, 1))), "a", i)
    check_unchanged(hoist, loop(reads, STEP, a=2))


def test_what_writes_half_of_a_state_stays():
    check_unchanged(hoist, loop(pointwise("step", at("x", (t, 3), (j, 1)), "g", j)))


def test_what_reads_something_that_stays_stays():
    reads = pointwise("reads", op("exp", at("h", (i, 1))), "a", i)
    follow = pointwise("follow", op("add", at("a", (i, 1)), at("x", (t, 3), (i, 1))), "c", i)
    step = pointwise("step", op("add", at("c", (j, 1)), at("h", (j, 1))), "g", j)
    check_unchanged(hoist, loop(reads, follow, step, a=2, c=2))


def test_buffers_that_two_kernels_write_in_each_step_stay():
    one, other = (
        Kernel(f"part{p}", (), (), (store("a", at("x", (t, 3), offset=p), offset=p),))
        for p in (0, 1)
    )
    check_unchanged(hoist, loop(one, other, STEP, a=2))


def flagged(source: Program, *names: str) -> Program:
    """The same program in which some buffers hold one bool."""
    bools = {name: Buffer(name, "bool", 1, "arena") for name in names}
    return replace(source, buffers={**source.buffers, **bools})


FLAG = Kernel("flag", (), (), (store("c", op("lt", at("x", (t, 3)), at("x", offset=1))),))


@pytest.mark.parametrize("asks", ["branch", "require"])
def test_conditions_of_each_step_stay(asks: str):
    """The loop's body asks for them by name, so they cannot have a row for each step."""
    other = pointwise("other", at("h", (i, 1)), "g", i)
    body = {
        "branch": (FLAG, Branch("c", (replace(other, name="same"),), (other,))),
        "require": (FLAG, Require("c", "must hold"), other),
    }[asks]
    check_unchanged(hoist, flagged(loop(*body), "c"))


def test_conditions_that_never_change_leave():
    always = Kernel("flag", (), (), (store("c", op("lt", at("h0"), at("h0", offset=1))),))
    other = pointwise("other", at("h", (i, 1)), "g", i)
    same = pointwise("same", op("neg", at("h", (i, 1))), "g", i)
    source = flagged(loop(always, Branch("c", (other,), (same,))), "c")
    check(
        hoist,
        source,
        """
        arena h: float32[2]
        arena g: float32[2]
        arena c: bool[1]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T carry h <-> g
          kernel flag []
            c[0] = h0[0] < h0[1]
          if c
            kernel other [i < 2] from other
              g[i] = h[i]
          else
            kernel same [i < 2] from same
              g[i] = neg(h[i])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        arena h: float32[2]
        arena g: float32[2]
        arena c: bool[1]
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel flag []
          c[0] = h0[0] < h0[1]
        loop t < T carry h <-> g
          if c
            kernel other [i < 2] from other
              g[i] = h[i]
          else
            kernel same [i < 2] from same
              g[i] = neg(h[i])
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_loops_that_a_condition_ends_keep_their_steps():
    """How many steps there will be is not known before: only what never changes goes first."""
    same = pointwise("same", op("exp", at("h0", (i, 1))), "c", i)
    step = pointwise("step", op("mul", at("a", (j, 1)), at("c", (j, 1))), "g", j)
    more = Kernel("more", (), (), (store("next", op("lt", at("h"), at("h0"))),))
    source = loop(
        INPUT, same, step, more, condition="go", carries=(Carry("h", "g"), Carry("go", "next")),
        a=2, c=2, go=1, next=1,
    )  # fmt: skip
    first = Kernel("first", (), (), (store("go", op("le", at("h0"), at("h0"))),))
    source = flagged(source.with_body((first, *source.body)), "go", "next")
    check(
        hoist,
        source,
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        arena c: float32[2]
        arena go: bool[1]
        arena next: bool[1]
        kernel first []
          v0 = h0[0]
          go[0] = v0 <= v0
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        loop t < T while go carry h <-> g, go <-> next
          kernel input [i < 2] from input
            r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
            a[i] = r0
          kernel same [i < 2] from same
            c[i] = exp(h0[i])
          kernel step [j < 2] from step
            g[j] = a[j] * c[j]
          kernel more []
            next[0] = h[0] < h0[0]
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
        """
        constant W: float32[6]
        arena h: float32[2]
        arena g: float32[2]
        arena a: float32[2]
        arena c: float32[2]
        arena go: bool[1]
        arena next: bool[1]
        kernel first []
          v0 = h0[0]
          go[0] = v0 <= v0
        kernel begin [b < 2] from begin
          h[b] = h0[b]
        kernel same [i < 2] from same
          c[i] = exp(h0[i])
        loop t < T while go carry h <-> g, go <-> next
          kernel input [i < 2] from input
            r0 = sum k < 3: fma(x[3*t + k], W[2*k + i])
            a[i] = r0
          kernel step [j < 2] from step
            g[j] = a[j] * c[j]
          kernel more []
            next[0] = h[0] < h0[0]
        kernel end [e < 2] from end
          y[e] = h[e]
        """,
    )


def test_hoisting_twice_changes_nothing_more():
    check_unchanged(hoist, hoist(loop(INPUT, STEP, a=2)))


def test_what_is_read_behind_the_loop_keeps_its_one_row():
    source = loop(INPUT, STEP, a=2)
    begin, steps, _ = source.body
    e = Axis("e", 2)
    end = pointwise("end", op("add", at("h", (e, 1)), at("a", (e, 1))), "y", e)
    check_unchanged(hoist, source.with_body((begin, steps, end)))


OUTER = pointwise("outer", op("mul", at("x", (t, 3), (i, 1)), at("x", (t, 3), (k, 1))), "a", i, k)
GATHER = pointwise("gather", op("add", at("a", (j, 3), offset=1), at("h", (j, 1))), "g", j)


def test_values_that_are_only_spread_out_stay():
    check_unchanged(hoist, loop(OUTER, GATHER, a=6))


def test_values_that_are_spread_out_for_a_product_that_leaves_go_with_it():
    total = product("total", at("a", (j, 3), (k, 1)), at("W", (k, 2)), "b", k, j)
    step = pointwise("step", op("add", at("b", (j, 1)), at("h", (j, 1))), "g", j)
    moved = hoist(loop(OUTER, total, step, a=6, b=2))
    outside = [statement.name for statement in moved.body if isinstance(statement, Kernel)]
    assert outside == ["begin", "outer", "total", "end"]


def test_light_work_on_what_a_step_is_given_stays():
    """To write its values and to read them again would take longer."""
    light = pointwise("light", op("sub", at("x", (t, 3), (i, 1)), at("x", (t, 3), (i, 1))), "a", i)
    lighter = pointwise("lighter", op("mul", at("a", (i, 1)), at("a", (i, 1))), "b", i)
    step = pointwise("step", op("add", at("b", (j, 1)), at("h", (j, 1))), "g", j)
    check_unchanged(hoist, loop(light, lighter, step, a=2, b=2))
    heavy = pointwise("heavy", op("exp", at("a", (i, 1))), "b", i)
    moved = hoist(loop(light, heavy, step, a=2, b=2))
    assert [s.name for s in moved.body if isinstance(s, Kernel)] == [
        "begin", "light", "heavy", "end",
    ]  # fmt: skip
    assert_same_results(loop(light, heavy, step, a=2, b=2), moved)


def parts(*values, target: str = "a") -> tuple[Kernel, ...]:
    """One kernel for each element of the buffer."""
    axes = [Axis(f"p{n}", 1) for n in range(len(values))]
    return tuple(
        pointwise(f"part{n}", value(axis), target, axis, offset=n)
        for n, (value, axis) in enumerate(zip(values, axes, strict=True))
    )


def test_a_value_in_parts_leaves_as_a_whole():
    same = [lambda p: op("exp", at("h0", (p, 1))), lambda p: at("h0", (p, 1), offset=1)]
    source = loop(*parts(*same), STEP, a=2)
    moved = hoist(source)
    outside = [statement.name for statement in moved.body if isinstance(statement, Kernel)]
    assert outside == ["begin", "part0", "part1", "end"]
    assert_same_results(source, moved)


@pytest.mark.parametrize(
    "other",
    [lambda p: at("h", (p, 1)), lambda p: op("exp", at("x", (t, 3), (p, 1)))],
    ids=["of the state", "of the step"],
)
def test_a_value_whose_parts_differ_in_what_they_depend_on_stays(other):
    source = loop(*parts(lambda p: at("h0", (p, 1)), other), STEP, a=2)
    check_unchanged(hoist, source)


def test_a_value_that_is_read_before_all_parts_are_written_stays():
    first, second = parts(lambda p: at("h0", (p, 1)), lambda p: at("h0", (p, 1), offset=1))
    between = pointwise("between", op("exp", at("a", (Axis("q", 1), 1))), "b", Axis("q", 1))
    step = pointwise("step", op("add", at("b", (j, 0)), at("h", (j, 1))), "g", j)
    check_unchanged(hoist, loop(first, between, second, step, a=2, b=1))


def batch(rows, terms: int, order: str = "terms last") -> Program:
    """A loop with a product of `rows` rows in each step, whose 512 results are one state each."""
    b, u, k = Axis("b", rows), Axis("u", 512), Axis("k", terms)
    size = rows * 512
    strides = ((b, terms), (k, 1)) if order == "terms last" else ((b, 1), (k, rows))
    shape = (T, rows, terms) if order == "terms last" else (T, terms, rows)
    x, w = at("x", (t, rows * terms), *strides), at("W", (k, 512), (u, 1))
    biased = op("add", at("a", (b, 512), (u, 1)), at("bias", (u, 1)))
    step = op("tanh", op("add", at("c", (b, 512), (u, 1)), at("h", (b, 512), (u, 1))))
    body = (
        product("input", x, w, "a", k, b, u),
        pointwise("biased", biased, "c", b, u),
        pointwise("step", step, "g", b, u),
    )
    return program(
        {"x": shape, "h0": (rows, 512)},
        {"y": (rows, 512)},
        (
            pointwise("begin", at("h0", (b, 512), (u, 1)), "h", b, u),
            Loop(t, STATE, body),
            pointwise("end", at("h", (b, 512), (u, 1)), "y", b, u),
        ),
        {"W": np.ones(terms * 512, np.float32), "bias": np.ones(512, np.float32)},
        {"h": size, "g": size, "a": size, "c": size},
        tuple(dict.fromkeys(name for size in (T, rows) for name in symbols(size))),
    )


def leaving(source: Program, machine: Machine = AVX512) -> list[str]:
    """The kernels that come to stand in front of the loop."""
    outside = [s.name for s in hoist_for(source, machine).body if isinstance(s, Kernel)]
    return [name for name in outside if name not in ("begin", "end")]


def test_a_product_of_many_rows_stays_with_what_is_computed_of_each_result():
    check_unchanged(hoist, batch(64, 128))


def test_a_product_of_rows_that_its_weights_outnumber_leaves():
    assert leaving(batch(64, 1024)) == ["input", "biased"]
    assert leaving(batch(16, 512)) == ["input", "biased"]


def test_a_product_leaves_whose_results_for_all_steps_stay_in_the_cache():
    assert leaving(batch(8, 32)) == ["input", "biased"]


def test_a_product_of_rows_whose_terms_lie_apart_leaves():
    assert leaving(batch(64, 128, "terms first")) == ["input", "biased"]


def test_a_product_leaves_where_registers_are_few():
    assert leaving(batch(64, 128), AVX2) == ["input", "biased"]


def test_rows_of_a_batch_that_only_a_run_tells_count_once():
    assert leaving(batch(symbol("N"), 128)) == ["input", "biased"]
    assert leaving(batch(64 * symbol("N"), 128)) == []
