from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from ostinato.errors import RunError
from ostinato.program import interpreter
from ostinato.program.expr import Access, Axis, Extent, Index, Reduced, cast, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Branch, Buffer, Carry, Check, Loop, Program, Require, Stmt
from ostinato.program.verify import verify
from ostinato.schedule.checked_sizes import checked_sizes, least_sizes
from ostinato.sizes.dims import Dim, Size, Symbol, floordiv, is_nonnegative, symbol, terms_of
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import check_unchanged, shown

N, M = symbol("N"), symbol("M")
HALF = floordiv(N - 1, 2)
QUARTER = floordiv(HALF, 2)
LAST = floordiv(QUARTER, 2)


def at_least(low: int) -> Size:
    """The dimension N of a program that checks it."""
    return Dim((((Symbol("N", low=low),), 1),))


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
    changed = checked_sizes(source)
    text = """
        kernel up [c < 2, y < 2*((N + 3) // 4)]
          a[(2*((N + 3) // 4))*c + y] = x[y]
        kernel join [c < 2, z < 2*((N + 3) // 4)]
          out[(2*((N + 3) // 4))*c + z] = a[(2*((N + 3) // 4))*c + z] + float32(z)
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


def test_a_dimension_may_be_a_multiple_of_what_is_left_of_it():
    """Nothing cuts off pixels then, and what a call gives still tells how many there are."""
    source = joined(equal(N, 4 * floordiv(N, 4)))
    changed = checked_sizes(source)
    assert changed.buffers["out"].size == 4 * floordiv(N, 4)
    assert changed.buffers["x"].size == N and changed.inputs == source.inputs
    verify(changed)
    for size in (4, 20):
        x = {"x": np.arange(size, dtype=np.float32) / 16}
        expected, got = interpreter.run(source, x), interpreter.run(changed, x)
        assert [a.tobytes() for a in expected.values()] == [a.tobytes() for a in got.values()]


def test_sizes_follow_from_each_other():
    """What is known of the rows of one image holds in what was known of another before."""
    checks = (*equal(3 * HALF, 6 * QUARTER + 3), *equal(QUARTER, 2 * LAST + 1))
    assert checked_sizes(joined(checks)).buffers["out"].size == 2 * (4 * LAST + 4)


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
    check_unchanged(checked_sizes, source)


def test_sizes_that_were_rounded_down_are_at_least_what_is_known_of_that():
    (dimension,) = terms_of(N)[0][0]
    half, last = equal(HALF, 2 * QUARTER + 1), equal(LAST, 5)
    assert least_sizes(half) == {dimension: 4 * QUARTER + 3}
    # The largest of several, where that is known.
    rows = equal(floordiv(N, 2), 4 * M), equal(floordiv(N, 4), 2 * M)
    for some in (rows, rows[::-1]):
        assert least_sizes(some[0] + some[1]) == {dimension: 8 * M}
    more = at_least(41)
    (dimension,) = terms_of(more)[0][0]
    assert least_sizes(last + half) == {dimension: 4 * floordiv(more + 3, 4) - 1}


@pytest.mark.parametrize(
    ("sizes", "low"),
    [
        ([N - 1], 1),
        # Of several the largest; what it takes for 3 when it is divided by 4.
        ([N - 1, floordiv(N + 2, 4) - 3, 2 * N - 4], 10),
        ([3 * N - 4], 2),
        # Nothing is known, or not of one dimension.
        ([N + 1], 0),
        ([5 - N], 0),
        ([N + M - 3], 0),
        ([N * M - 1], 0),
        ([symbol("v", signed=True) - 1, symbol("c", computed=True) - 1], 0),
    ],
    ids=str,
)
def test_dimensions_are_at_least_what_checks_say(sizes: list[Size], low: int):
    names = [("v", symbol("v", signed=True)), ("c", N), ("M", N)]
    source = replace(joined(()), checks=tuple(Check(size, "too few") for size in sizes))
    changed = checked_sizes(replace(source, definitions=tuple(names)))
    ((monomial, _),) = terms_of(changed.inputs[0].shape[0])
    assert monomial[0].least == low
    assert changed.buffers["x"].size == changed.inputs[0].shape[0] == at_least(low)
    assert changed.buffers["out"].size == 2 * (floordiv(at_least(low) - 1, 2) + 1)
    # Nobody leaves out a check for what it says.
    assert changed.checks == source.checks


def test_what_is_left_of_a_dimension_is_known_not_to_be_negative():
    source = joined((Check(HALF, "no windows"),))
    changed = checked_sizes(source)
    assert not is_nonnegative(HALF)
    assert all(is_nonnegative(k.axes[-1].extent - 1) for k in changed.kernels() if k.axes)
    x = {"x": np.arange(9, dtype=np.float32)}
    expected, got = interpreter.run(source, x), interpreter.run(changed, x)
    assert [a.tobytes() for a in expected.values()] == [a.tobytes() for a in got.values()]


def required(size: Size, name: str) -> tuple[Stmt, ...]:
    """Statements that end a run in which a size is negative."""
    holds = Store(Access(name, 0, ()), Extent(size) >= 0)
    return Kernel(name, (), (), (holds,)), Require(name, "it is negative", size=size)


def either_way(around: Callable[[tuple[Stmt, ...]], Stmt]) -> Program:
    """A way that requires `HALF` to be 3, by a definition and as it is, and one that does not.

    around: makes a statement of the first way.
    """
    y, z, j, k = Axis("y", HALF), Axis("z", HALF), Axis("j", HALF), Axis("k", HALF)
    more = Kernel("more", (y,), (), (store("a", at("x", (y, 1)), (y, 1)),))
    total = Reduce((z,), "sum", at("a", (z, 1)))
    first = Kernel("first", (), (total,), (store("out", Reduced(0, "float32")),))
    way = (*required(symbol("d", signed=True), "low"), *required(3 - HALF, "high"), more, first)
    other = Kernel("other", (j,), (), (store("b", at("x", (j, 1)), (j, 1)),))
    total = Reduce((k,), "max", at("b", (k, 1)))
    last = Kernel("last", (), (total,), (store("out", Reduced(0, "float32")),))
    is_first = Kernel("which", (), (), (store("flag", at("x") >= constant(0.0, "float32")),))
    body = (is_first, Branch("flag", (around(way),), (other, last)))
    names, sizes = ("N", "c", "d"), {"a": HALF, "b": HALF}
    found = program({"x": (N,)}, {"out": ()}, body, None, sizes, names)
    flags = {name: Buffer(name, "bool", 1, "arena") for name in ("flag", "low", "high")}
    definitions = (("c", HALF - 1), ("d", symbol("c", signed=True) - 2))
    return replace(found, buffers=dict(found.buffers) | flags, definitions=definitions)


def extents(program: Program) -> dict[str, list[Size]]:
    """Of the axes of each kernel, those of its sums last."""
    found = {}
    for kernel in program.kernels():
        axes = (*kernel.axes, *(axis for reduce in kernel.reductions for axis in reduce.axes))
        found[kernel.name] = [axis.extent for axis in axes]
    return found


def test_what_a_way_requires_holds_in_what_follows_there():
    yes = Kernel("yes", (), (), (Store(Access("low", 0, ()), constant(True, "bool")),))
    nested = either_way(lambda way: Branch("flag", way, (yes,)))
    changed = checked_sizes(nested)
    assert (extents(changed)["more"], extents(changed)["first"]) == ([3], [3])
    # Nothing is known of the other way, nor of what comes before.
    assert (extents(changed)["other"], extents(changed)["last"]) == ([HALF], [HALF])
    assert (changed.buffers["a"].size, changed.buffers["b"].size) == (3, HALF)
    assert changed.buffers["x"].size == N
    verify(changed)
    for size, sign in ((7, 1), (8, 1), (12, -1)):
        x = {"x": sign * np.arange(1, size + 1, dtype=np.float32)}
        assert interpreter.run(changed, x) == interpreter.run(nested, x)
    with pytest.raises(RunError, match="it is negative"):
        interpreter.run(changed, {"x": np.ones(9, np.float32)})


def test_steps_of_a_loop_may_leave_it_so_nothing_is_known_in_them():
    check_unchanged(checked_sizes, either_way(lambda way: Loop(Axis("t", 2), (), way)))


def test_what_is_used_in_other_places_keeps_its_size():
    source = either_way(lambda way: Branch("flag", way, ()))
    y = Axis("y", HALF)
    before = Kernel("before", (y,), (), (store("a", at("x", (y, 1)), (y, 1)),))
    changed = checked_sizes(source.with_body((before, *source.body)))
    assert changed.buffers["a"].size == HALF and extents(changed)["more"] == [3]


def test_what_a_run_computes_is_no_size_of_memory():
    """A requirement that it is another size is none for what memory is laid out by."""
    found = symbol("k", computed=True)
    extra = (*required(HALF - found, "no more"), *required(found - HALF, "no less"))
    source = either_way(lambda way: Branch("flag", (*extra, *way[4:]), ()))
    flags = {name: Buffer(name, "bool", 1, "arena") for name in ("no more", "no less")}
    count = Buffer("k", "int64", 1, "size", bound=N)
    buffers = dict(source.buffers) | flags | {"k": count}
    check_unchanged(checked_sizes, replace(source, buffers=buffers, symbols=("N", "k", "c", "d")))
