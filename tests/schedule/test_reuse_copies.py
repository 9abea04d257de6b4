"""Copies that are already made."""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Access, Axis, Index, Load, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Branch, Loop, Program, Stmt
from ostinato.schedule.reuse_copies import reuse_copies
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, pointwise

ROWS, COLUMNS = 3, 4


def copy(number: int, source: str = "x", stride: int = 1) -> Kernel:
    """`copy.<number>[j, i] = source[stride * i, j]`."""
    i, j = Axis(f"i{number}", ROWS), Axis(f"j{number}", COLUMNS)
    value = at(source, (i, COLUMNS * stride), (j, 1))
    name = f"copy.{number}"
    return Kernel(name, (j, i), (), (store(name, value, (j, ROWS), (i, 1)),))


def padded(number: int) -> Kernel:
    """`copy.<number>[n] = x[n]` beside zeros in front."""
    n = Axis(f"n{number}", ROWS * COLUMNS)
    inside = op("ge", Index(n), constant(2, "int64"))
    value = replace(at("x", (n, 1)), mask=inside, other=constant(0.0, "float32"))
    return pointwise(f"copy.{number}", value, f"copy.{number}", n)


def user(number: int, target: str | None = None) -> Kernel:
    n = Axis(f"n{number}", ROWS * COLUMNS)
    value = op("add", at(f"copy.{number}", (n, 1)), constant(1.0, "float32"))
    return pointwise(f"use{number}", value, target or f"y{number}", n)


def source_of(*body: Stmt) -> Program:
    size = ROWS * COLUMNS
    outputs = {"y0": (size,), "y1": (size,)}
    arena = {"copy.0": size, "copy.1": size, "z": 2 * size, "flag": 1}
    source = program({"x": (2 * ROWS, COLUMNS)}, outputs, body, arena=arena)
    copies = {n: replace(source.buffers[n], is_copy=True) for n in ("copy.0", "copy.1")}
    source = replace(source, buffers={**source.buffers, **copies})
    # Without the buffers that nothing mentions.
    return source.with_body(body)


def zeros(buffer: str, count: int = 2 * ROWS * COLUMNS, value: Load | None = None) -> Kernel:
    n = Axis("n", count)
    return pointwise("zeros", value or constant(0.0, "float32"), buffer, n)


def test_the_second_of_two_equal_copies_is_not_made():
    source = source_of(copy(0), user(0), copy(1), user(1))
    changed = reuse_copies(source)
    assert [k.name for k in changed.kernels()] == ["copy.0", "use0", "use1"]
    assert "copy.1" not in changed.buffers
    assert_same_results(source, changed)


def test_values_that_are_padded_alike_are_padded_once():
    source = source_of(padded(0), user(0), padded(1), user(1))
    plain = {n: replace(b, is_copy=False) for n, b in source.buffers.items()}
    source = replace(source, buffers=plain)
    changed = reuse_copies(source)
    assert [k.name for k in changed.kernels()] == ["copy.0", "use0", "use1"]
    assert_same_results(source, changed)
    # What is no copy, a kernel may compute for its reader.
    other = source_of(copy(0), user(0), copy(1), user(1))
    check_unchanged(reuse_copies, replace(other, buffers=plain))


def pieces(number: int, zero: float = 0.0) -> tuple[Kernel, Kernel]:
    """The first elements of `x`, then constants, in `copy.<number>`."""
    n, m = Axis(f"n{number}", ROWS), Axis(f"m{number}", ROWS * COLUMNS - ROWS)
    name = f"copy.{number}"
    rest = Access(name, ROWS, ((m, 1),))
    return (
        Kernel(f"{name}.first", (n,), (), (store(name, at("x", (n, 1)), (n, 1)),)),
        Kernel(f"{name}.rest", (m,), (), (Store(rest, constant(zero, "float32")),)),
    )


def test_a_copy_that_several_kernels_make_is_made_once():
    source = source_of(*pieces(0), user(0), *pieces(1), user(1))
    changed = reuse_copies(source)
    assert [k.name for k in changed.kernels()] == ["copy.0.first", "copy.0.rest", "use0", "use1"]
    assert_same_results(source, changed)
    check_unchanged(reuse_copies, source_of(*pieces(0), user(0), *pieces(1, 1.0), user(1)))
    first, rest = pieces(1)
    check_unchanged(reuse_copies, source_of(*pieces(0), first, user(0), rest, user(1)))


def test_copies_of_something_else_are_made():
    check_unchanged(reuse_copies, source_of(copy(0), user(0), copy(1, stride=2), user(1)))


def test_a_copy_of_what_has_changed_since_is_made():
    fill, again = zeros("z"), zeros("z", value=at("x", (Axis("n", 2 * ROWS * COLUMNS), 1)))
    check_unchanged(
        reuse_copies, source_of(fill, copy(0, "z"), user(0), again, copy(1, "z"), user(1))
    )


def test_a_copy_that_has_been_overwritten_is_made():
    fill = zeros("copy.0", ROWS * COLUMNS)
    check_unchanged(reuse_copies, source_of(copy(0), user(0), fill, copy(1), user(1)))


def test_what_one_branch_copies_the_code_behind_it_does_not_know():
    flag = pointwise("flag", op("lt", at("x"), constant(0.0, "float32")), "flag")
    source = source_of(flag, Branch("flag", (copy(0), user(0)), ()), copy(1), user(1))
    assert "copy.1" in reuse_copies(source).buffers
    inside = source_of(flag, copy(0), user(0), Branch("flag", (copy(1), user(1)), ()))
    assert "copy.1" not in reuse_copies(inside).buffers


def test_a_loop_knows_nothing_of_what_was_copied_before_it():
    loop = Loop(Axis("t", 2), (), (copy(1), user(1)))
    check_unchanged(reuse_copies, source_of(copy(0), user(0), loop))
