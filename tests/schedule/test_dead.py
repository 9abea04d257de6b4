from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.program.expr import Axis, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Buffer, Carry, Loop, Require
from ostinato.schedule.dead import drop_dead
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, check_unchanged, pointwise

A, B, C, D = (Axis(name, 4) for name in "ijmn")
t = Axis("t", 3)


def add(left: str, right: str, axis: Axis):
    return op("add", at(left, (axis, 1)), at(right, (axis, 1)))


def test_results_that_nobody_reads_are_not_computed():
    body = (
        pointwise("used", at("x", (A, 1)), "b", A),
        pointwise("unused", at("b", (B, 1)), "c", B),
        pointwise("end", at("b", (C, 1)), "y", C),
    )
    check(
        drop_dead,
        program({"x": (4,)}, {"y": (4,)}, body, None, {"b": 4, "c": 4}),
        """
        arena b: float32[4]
        arena c: float32[4]
        kernel used [i < 4] from used
          b[i] = x[i]
        kernel unused [j < 4] from unused
          c[j] = b[j]
        kernel end [m < 4] from end
          y[m] = b[m]
        """,
        """
        arena b: float32[4]
        kernel used [i < 4] from used
          b[i] = x[i]
        kernel end [m < 4] from end
          y[m] = b[m]
        """,
    )


def test_chains_of_results_that_nobody_reads_go_as_a_whole():
    body = (
        pointwise("one", at("x", (A, 1)), "b", A),
        pointwise("two", at("b", (B, 1)), "c", B),
        pointwise("end", at("x", (C, 1)), "y", C),
    )
    source = program({"x": (4,)}, {"y": (4,)}, body, None, {"b": 4, "c": 4})
    assert [kernel.name for kernel in drop_dead(source).kernels()] == ["end"]


def test_single_stores_of_a_kernel_are_dropped():
    kernel = pointwise("both", at("x", (A, 1)), "y", A)
    kernel = replace(kernel, stores=(*kernel.stores, store("c", at("x", (A, 1)), (A, 1))))
    check(
        drop_dead,
        program({"x": (4,)}, {"y": (4,)}, (kernel,), None, {"c": 4}),
        """
        arena c: float32[4]
        kernel both [i < 4] from both
          v0 = x[i]
          y[i] = v0
          c[i] = v0
        """,
        """
        kernel both [i < 4] from both
          y[i] = x[i]
        """,
    )


STATES = {"h": 4, "g": 4, "p": 4, "q": 4}


def recurrence(*body, carries=(), end="h"):
    return program(
        {"x": (4,)},
        {"y": (4,)},
        (
            pointwise("first", at("x", (A, 1)), "h", A),
            pointwise("second", at("x", (B, 1)), "p", B),
            Loop(t, carries, body),
            pointwise("end", at(end, (Axis("e", 4), 1)), "y", Axis("e", 4)),
        ),
        None,
        STATES,
    )


PAIRS = (Carry("h", "g"), Carry("p", "q"))


def test_states_that_only_keep_themselves_alive_are_dropped():
    body = (
        pointwise("used", add("h", "x", C), "g", C),
        pointwise("unused", add("p", "h", D), "q", D),
    )
    check(
        drop_dead,
        recurrence(*body, carries=PAIRS),
        """
        arena h: float32[4]
        arena g: float32[4]
        arena p: float32[4]
        arena q: float32[4]
        kernel first [i < 4] from first
          h[i] = x[i]
        kernel second [j < 4] from second
          p[j] = x[j]
        loop t < 3 carry h <-> g, p <-> q
          kernel used [m < 4] from used
            g[m] = h[m] + x[m]
          kernel unused [n < 4] from unused
            q[n] = p[n] + h[n]
        kernel end [e < 4] from end
          y[e] = h[e]
        """,
        """
        arena h: float32[4]
        arena g: float32[4]
        kernel first [i < 4] from first
          h[i] = x[i]
        loop t < 3 carry h <-> g
          kernel used [m < 4] from used
            g[m] = h[m] + x[m]
        kernel end [e < 4] from end
          y[e] = h[e]
        """,
    )


def test_states_that_other_states_read_are_kept():
    body = (
        pointwise("used", add("h", "p", C), "g", C),
        pointwise("other", add("p", "x", D), "q", D),
    )
    check_unchanged(drop_dead, recurrence(*body, carries=PAIRS))


def test_loops_that_nobody_needs_are_dropped():
    body = (
        pointwise("used", add("h", "x", C), "g", C),
        pointwise("other", add("p", "h", D), "q", D),
    )
    source = recurrence(*body, carries=PAIRS, end="x")
    dropped = drop_dead(source)
    assert [type(s) for s in dropped.body] == [Kernel]
    assert set(dropped.buffers) == {"x", "y"}
    assert_same_results(source, dropped)


def flagged(source, *names: str):
    bools = {name: Buffer(name, "bool", 1, "arena") for name in names}
    return replace(source, buffers={**source.buffers, **bools})


def test_conditions_keep_what_they_depend_on():
    flag = Kernel("flag", (), (), (store("c", op("lt", at("x"), at("x", offset=1))),))
    one, other = (
        pointwise(n, at("x", (A, 1), offset=o), "y", A) for n, o in (("one", 0), ("two", 1))
    )
    body = (flag, Branch("c", (one,), (other,)))
    source = program({"x": (5,)}, {"y": (4,)}, body, None, {"c": 1})
    check_unchanged(drop_dead, flagged(source, "c"))


def test_requirements_stay_although_nothing_is_computed_from_them():
    flag = Kernel("flag", (), (), (store("c", op("eq", at("x"), at("x"))),))
    body = (flag, Require("c", "must hold"), pointwise("end", at("x", (A, 1)), "y", A))
    source = program({"x": (4,)}, {"y": (4,)}, body, None, {"c": 1})
    check_unchanged(drop_dead, flagged(source, "c"))


def test_the_condition_of_a_loop_keeps_its_state():
    more = Kernel("more", (), (), (store("next", op("lt", at("h"), at("x"))),))
    first = Kernel("begin", (), (), (store("go", op("le", at("x"), at("x"))),))
    source = recurrence(
        pointwise("used", add("h", "x", C), "g", C), more,
        carries=(Carry("h", "g"), Carry("go", "next")),
    )  # fmt: skip
    head, _, loop, end = source.body
    body = (first, head, replace(loop, condition="go"), end)
    source = flagged(replace(source, buffers={**source.buffers}), "go", "next").with_body(body)
    check_unchanged(drop_dead, source)


@pytest.mark.parametrize("side", ["then", "orelse"])
def test_empty_sides_of_a_branch_are_kept_as_sides(side):
    flag = Kernel("flag", (), (), (store("c", op("le", at("x"), at("x"))),))
    unused = pointwise("unused", at("x", (A, 1)), "b", A)
    used = pointwise("used", at("x", (B, 1)), "y", B)
    then, orelse = ((used,), (unused,)) if side == "then" else ((unused,), (used,))
    first = pointwise("first", at("x", (C, 1)), "y", C)
    body = (flag, first, Branch("c", then, orelse))
    source = flagged(program({"x": (4,)}, {"y": (4,)}, body, None, {"b": 4, "c": 1}), "c")
    branch = drop_dead(source).body[-1]
    assert isinstance(branch, Branch)
    assert (branch.then, branch.orelse) == (((used,), ()) if side == "then" else ((), (used,)))
    assert_same_results(source, drop_dead(source))
