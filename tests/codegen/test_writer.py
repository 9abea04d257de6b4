from __future__ import annotations

import numpy as np
import pytest

from ostinato.codegen.writer import Value, Writer, float_literal, integer, is_constant, vector


@pytest.fixture
def declarations() -> set[str]:
    return set()


@pytest.fixture
def w(declarations: set[str]) -> Writer:
    return Writer(declarations)


X, Y = Value("%x", "i64"), Value("%y", "i64")


def parses(body: str, declarations: set[str]) -> bool:
    import llvmlite.binding as llvm

    text = f"define i64 @f(i64 %x, i64 %y, ptr %at) {{\nentry:\n{body}\n}}\n"
    llvm.parse_assembly(text + "\n".join(declarations)).verify()
    return True


def test_types():
    assert vector("float", 1) == "float"
    assert vector("float", 8) == "<8 x float>"
    assert integer(-3, "i32") == Value("-3", "i32")
    assert is_constant(integer(-3)) and not is_constant(X)


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e-310, np.inf, -np.inf])
def test_float_literals_are_exact(value):
    bits = int(float_literal(value, "double").text, 16)
    assert np.uint64(bits).view(np.float64).tobytes() == np.float64(value).tobytes()


def test_trivial_arithmetic_is_folded(w):
    assert w.add(integer(0), X) == w.add(X, integer(0)) == w.mul(X, integer(1)) == X
    assert w.mul(integer(1), X) == X
    assert w.add(integer(2), integer(3)) == integer(5)
    assert w.sub(integer(2), integer(3)) == integer(-1)
    assert w.mul(integer(2), integer(-3)) == integer(-6)
    assert w.pointer(Value("%at", "ptr"), integer(0), "float").text == "%at"
    assert w.splat(X, 1) == X
    assert w.text() == ""


def test_instructions(w, declarations):
    total = w.binary("mul", w.add(X, Y), integer(7))
    less = w.compare("icmp", "slt", total, Y, 1)
    chosen = w.select(less, total, Y)
    result = w.call("i64", "llvm.smax.i64", chosen, X)
    w.line(f"ret i64 {result.text}")
    assert w.text() == (
        "  %v1 = add i64 %x, %y\n"
        "  %v2 = mul i64 %v1, 7\n"
        "  %v3 = icmp slt i64 %v2, %y\n"
        "  %v4 = select i1 %v3, i64 %v2, i64 %y\n"
        "  %v5 = call i64 @llvm.smax.i64(i64 %v4, i64 %x)\n"
        "  ret i64 %v5"
    )
    assert declarations == {"declare i64 @llvm.smax.i64(i64, i64)"}
    assert parses(w.text(), declarations)


def test_calls_without_a_result_have_no_name(w):
    w.call("void", "f", X)
    assert w.text() == "  call void @f(i64 %x)"


def test_loops_that_run_for_certain_are_entered_without_a_test(w, declarations):
    with w.loop(integer(0), integer(4), 2, [X]) as loop:
        loop.results = [w.add(loop.carried[0], loop.index)]
    w.line(f"ret i64 {loop.carried[0].text}")
    assert w.text() == (
        "  br label %loop1\n"
        "loop1:\n"
        "  %i3 = phi i64 [ 0, %entry ], [ %v6, %loop1 ]\n"
        "  %p4 = phi i64 [ %x, %entry ], [ %v5, %loop1 ]\n"
        "  %v5 = add i64 %p4, %i3\n"
        "  %v6 = add i64 %i3, 2\n"
        "  %v7 = icmp slt i64 %v6, 4\n"
        "  br i1 %v7, label %loop1, label %done2\n"
        "done2:\n"
        "  ret i64 %v5"
    )
    assert parses(w.text(), declarations)


def test_loops_that_may_be_empty_keep_the_first_value(w, declarations):
    with w.loop(integer(0), Y, 1, [X]) as loop:
        loop.results = [w.add(loop.carried[0], loop.index)]
    w.line(f"ret i64 {loop.carried[0].text}")
    assert "icmp slt i64 0, %y" in w.text()
    assert w.text().endswith("phi i64 [ %v6, %loop1 ], [ %x, %entry ]\n  ret i64 %v9")
    assert parses(w.text(), declarations)


def test_loops_compute_only_what_changes_in_them(w, declarations):
    with w.loop(integer(0), Y, 1) as outer, w.loop(integer(0), X, 1, [integer(0)]) as inner:
        start = w.pointer(Value("%at", "ptr"), w.mul(outer.index, X), "i64")
        quotient = w.binary("sdiv", outer.index, integer(3))
        unknown = w.binary("sdiv", X, Y)
        end = w.add(inner.index, w.add(quotient, X))
        place = w.pointer(start, end, "i64")
        element = w.emit("i64", f"load i64, ptr {place.text}")
        inner.results = [w.add(unknown, element)]
    w.line("ret i64 0")
    assert [w.depth(v) for v in (start, quotient, unknown, end, element)] == [1, 1, 2, 2, 2]
    around, _, inside = w.text().partition(f"  {inner.index.text} = phi")
    assert all(f"{v.text} =" in around for v in (start, quotient))
    assert all(f"{v.text} =" in inside for v in (unknown, end, element))
    assert parses(w.text(), declarations)


def test_what_is_moved_out_of_a_branch_is_computed_before_its_loop(w, declarations):
    with w.loop(integer(0), Y, 1) as loop, w.when(w.compare("icmp", "slt", loop.index, X, 1)):
        total = w.mul(X, Y)
        w.line(f"store i64 {total.text}, ptr %at")
    w.line("ret i64 0")
    assert w.depth(total) == 0
    assert parses(w.text(), declarations)


def test_loops_nest_and_can_be_left(w, declarations):
    with w.loop(integer(0), Y, 1, [X]) as outer:
        outer.leave_unless(w.compare("icmp", "slt", outer.carried[0], integer(9), 1))
        with w.loop(integer(0), X, 1, outer.carried) as inner:
            inner.results = [w.add(inner.carried[0], inner.index)]
        with w.when(w.compare("icmp", "eq", inner.carried[0], Y, 1)):
            w.line("store i64 1, ptr %at")
        outer.results = inner.carried
    w.line(f"ret i64 {outer.carried[0].text}")
    assert parses(w.text(), declarations)


def test_what_another_writer_has_is_copied_with_names_of_its_own() -> None:
    other, type_ = Writer(set()), "<4 x float>"
    x = Value("%x0", type_)
    half = other.binary("fmul", x, Value("splat (float 0.5)", type_))
    result = other.call(type_, "llvm.fabs.v4f32", half)
    writer = Writer(set())
    first = writer.binary("fadd", Value("%b", type_), Value("%b", type_))
    copy = writer.copied(other, result, {"%x0": first})
    assert copy == Value("%v3", type_)
    assert writer.text().split("\n") == [
        "  %v1 = fadd <4 x float> %b, %b",
        "  %v2 = fmul <4 x float> %v1, splat (float 0.5)",
        "  %v3 = call <4 x float> @llvm.fabs.v4f32(<4 x float> %v2)",
    ]
    assert writer.declarations == other.declarations != set()
    assert writer.binary("fadd", copy, copy).text == "%v4"
    assert writer.copied(other, x, {"%x0": first}) == first
