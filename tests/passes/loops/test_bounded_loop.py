"""Trip counts that follow from a counter in the condition."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.loops.bounded_loop import bounded_loop
from tests.golden import check, parse
from tests.oracle import evaluator


def counted(trips: str, condition: str, steps: str = "", start: int = 0) -> str:
    """A loop that goes on while `k < 3` and `more`, whose state `k` counts from `start`."""
    return f"""
        g (float h, bool more) => (int64 kn, float hn)
        <int64 start = {{{start}}}, int64 one = {{1}}, int64 three = {{3}}, int64 n = {{9}},
         bool yes = {{1}}{steps}> {{
            kn, hn = Loop <body = b (int64 i, bool p, int64 k, float s)
                => (bool q, int64 m, float t) {{
                m = Add(k, one)
                t = Tanh(s)
                {condition}
            }}> ({trips}, yes, start, h)
        }}
    """


WHILE = "less = Less(m, three)  q = And(less, more)"


@pytest.mark.parametrize("trips", ["n", '""'])
def test_a_counter_bounds_the_steps(trips: str) -> None:
    after = counted('"kn/trips"', WHILE, ', int64 "kn/trips" = {3}')
    check(bounded_loop, counted(trips, WHILE), after, count=1, evaluate="reference")


@pytest.mark.parametrize("trips", ["n", '""'])
@pytest.mark.parametrize("condition", ["Less(m, three)", "Greater(three, m)"])
def test_the_only_condition_is_not_asked_any_more(trips: str, condition: str) -> None:
    stays = f'q = {condition}  "kn/stays" = Identity(p)'
    after = counted('"kn/trips"', stays, ', int64 "kn/trips" = {3}')
    after = after.replace("(bool q", '(bool "kn/stays"')
    check(bounded_loop, counted(trips, f"q = {condition}"), after, count=1, evaluate="reference")


def test_the_first_step_is_not_asked() -> None:
    before = counted("n", WHILE, start=5)
    after = counted('"kn/trips"', WHILE, ', int64 "kn/trips" = {1}', start=5)
    check(bounded_loop, before, after, count=1, evaluate="reference")


@pytest.mark.parametrize(
    ("trips", "condition"),
    [
        ("three", WHILE),
        ("n", "q = Identity(more)"),
        ("n", "less = Less(m, three)  q = Or(less, more)"),
        ("n", "q = Less(k, three)"),
        ("n", "q = Less(three, m)"),
    ],
)
def test_what_bounds_nothing(trips: str, condition: str) -> None:
    text = counted(trips, condition)
    check(bounded_loop, text, text, count=0, evaluate="nobody")


FIRST = "first = Less(start, n)"
CASTS = "c = Cast <to = 1> (m)  l = Cast <to = 1> (n)"
CAST = "c = Cast <to = {0}> (m)  l = Cast <to = {0}> (n)  q = Less(c, l)"
LIMITS = (-1, 2, 3, 9)


def waiting(
    condition: str, loop: str = '"", first', before: str = FIRST, passed: bool = False
) -> str:
    """A `while k < n`: the input n is the limit, and the state k counts from 2.

    passed: the limit is a state as well, which no step changes.
    """
    limit, final, initial = (", int64 limit", ", end", ", n") if passed else ("", "", "")
    return f"""
        g (float h, int64 n) => (int64 kn, float hn)
        <int64 start = {{2}}, int64 one = {{1}}, float two = {{2.0}}, bool yes = {{1}},
         int64 five = {{5}}, int64 endless = {{9223372036854775807}}> {{
            {before}
            kn, hn{final} = Loop <body = b (int64 i, bool p, int64 k, float s{limit})
                => (bool q, int64 m, float t{limit}) {{
                m = Add(k, one)
                t = Tanh(s)
                {condition}
            }}> ({loop}, start, h{initial})
        }}
    """


def run(model: onnx.ModelProto) -> list[list[np.ndarray]]:
    """The results for each of `LIMITS`."""
    h = np.array(0.5, np.float32)
    return [evaluator.run(model, {"h": h, "n": np.array(n)}) for n in LIMITS]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (waiting("q = Less(m, n)"), ""),
        (waiting("q = Greater(n, m)"), ""),
        (waiting("q = LessOrEqual(m, n)", before="first = LessOrEqual(start, n)"), ""),
        (waiting("q = Less(m, n)", "endless, first"), ""),
        (waiting("q = Less(m, n)", "five, first"), ""),
        (waiting("q = Less(m, limit)", passed=True), ""),
        (waiting(CAST.format(11)), ""),
        (waiting(CAST.format(1), before="r = Cast <to = 1> (n)  first = Less(two, r)"), ""),
        (waiting("q = Less(m, n)", '"", yes'), "yes"),
        (waiting("q = Less(m, n)", '"", ""'), ""),
        (waiting("q = Less(m, n)", before="first = LessOrEqual(start, n)"), "first"),
        (waiting("x = Greater(t, h)  w = Less(m, n)  q = And(w, x)"), "first"),
        (waiting("x = Less(i, n)  w = Less(m, n)  q = And(w, x)"), ""),
        (waiting("x = Less(i, n)  w = Less(m, n)  q = And(x, w)", "n, first"), ""),
        (waiting(f"{CASTS}  w = Less(c, l)  q = And(w, w)"), ""),
        # Another limit for the number of the step is another condition.
        (waiting("x = Less(i, five)  w = Less(m, n)  q = And(w, x)"), "first"),
        (waiting("x = LessOrEqual(m, n)  w = Less(m, n)  q = And(w, x)"), "first"),
    ],
)
def test_the_run_tells_the_limit(text: str, condition: str) -> None:
    source = parse(text)
    model = load_model(source)
    assert bounded_loop(model) == 1
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    (loop,) = [node for node in result.graph.node if node.op_type == "Loop"]
    assert "/trips" in loop.input[0]
    assert loop.input[1] == condition
    for expected, got in zip(run(source), run(result), strict=True):
        np.testing.assert_array_equal(got, expected, strict=True)


# As tf2onnx writes the loops of Keras: both conditions twice, one for the number of the step.
KERAS = waiting(
    f"{CASTS}  e = Cast <to = 1> (i)  w = Less(e, l)  v = Less(c, l)  q = And(w, v)",
    "n, first",
    "r = Cast <to = 1> (n)  z = Cast <to = 1> (start)  a = Less(z, r)  first = And(a, a)",
).replace("start = {2}", "start = {0}")


@pytest.mark.parametrize("opset", [11, 17])
def test_a_trip_count_that_says_the_same_is_left(opset: int) -> None:
    source = parse(KERAS, opset)
    model = load_model(source)
    assert bounded_loop(model) == 1
    (loop,) = [node for node in model.graph if node.op_type == "Loop"]
    names = [None if value is None else value.name for value in loop.inputs[:2]]
    assert names == ["n", None]
    for expected, got in zip(run(source), run(ir.to_proto(model)), strict=True):
        np.testing.assert_array_equal(got, expected, strict=True)
    assert bounded_loop(model) == 0


def test_a_bound_that_the_run_tells_is_found_once() -> None:
    model = load_model(parse(waiting("x = Greater(t, h)  w = Less(m, n)  q = And(w, x)")))
    assert bounded_loop(model) == 1
    assert bounded_loop(model) == 0


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        # Halves count to 2048, and a limit of 2^32 wraps to 0.
        (waiting(CAST.format(10)), 17),
        (waiting(CAST.format(6)), 17),
        # The limit moves, or is no whole number.
        (waiting("l = Sub(n, i)  q = Less(m, l)"), 17),
        (waiting("c = Cast <to = 1> (m)  q = Less(c, h)"), 17),
        # Max takes no integers.
        (waiting("q = Less(m, n)", '"", yes'), 11),
    ],
)
def test_what_tells_no_limit(text: str, opset: int) -> None:
    check(bounded_loop, text, text, count=0, opset=opset, evaluate="nobody")
