"""Every rule, broken once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import (
    PRIMITIVES,
    Access,
    Axis,
    Cast,
    Const,
    Extent,
    Given,
    Index,
    Load,
    Op,
    Reduced,
    constant,
    op,
)
from ostinato.program.functions import NAMES
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Branch, Buffer, Carry, Check, Interface, Loop, Program, Require
from ostinato.program.verify import ARITY, ProgramError, verify
from ostinato.sizes.dims import symbol
from tests.program.programs import at, gru, pointwise, program, reduction, store

T = symbol("T")
ROW, K = Axis("i", 4), Axis("k", 4)
F32, I64 = "float32", "int64"


def problems(p: Program) -> tuple[str, ...]:
    with pytest.raises(ProgramError) as error:
        verify(p)
    assert all(problem in str(error.value) for problem in error.value.problems)
    return error.value.problems


def only(p: Program) -> str:
    (problem,) = problems(p)
    return problem


def kernel(value, axes=(ROW,), access=((ROW, 1),), reductions=(), guard=None, buffer="y", offset=0):
    target = store(buffer, value, *access, offset=offset)
    return Kernel("k", axes, reductions, (target,), guard)


def single(k, **arguments) -> Program:
    given = {"inputs": {"x": (4,)}, "outputs": {"y": (4,)}, **arguments}
    return program(body=(k,), **given)


X = at("x", (ROW, 1))


def test_legal_programs():
    verify(gru(4, np.zeros((3, 4, 4), np.float32)))
    verify(pointwise(lambda x: op("exp", x)))
    verify(pointwise(lambda x: op("mod", x, x), dtype=I64))
    verify(reduction("max", 4))
    verify(reduction("min", 0, dtype="bool"))


def test_the_arity_table_is_complete():
    assert set(ARITY) == PRIMITIVES | NAMES


# Expressions

B = op("lt", X, X)
EXPRESSIONS = {
    "frobnicate is not an operation": op("frobnicate", X),
    "add has 1 arguments, not 2": Op("add", (X,), F32),
    "sigmoid has 2 arguments, not 1": op("sigmoid", X, X),
    "add of float32, float64 giving float32": Op("add", (X, constant(1.0, "float64")), F32),
    "add of float32, float32 giving float64": Op("add", (X, X), "float64"),
    "lt of float32, float32 giving float32": Op("lt", (X, X), F32),
    "sqrt of int64 giving int64": op("sqrt", Index(ROW)),
    "fma of int64, int64, int64 giving int64": op("fma", *[Index(ROW)] * 3),
    "tanh of int64 giving int64": op("tanh", Index(ROW)),
    "shl of float32, float32 giving float32": op("shl", X, X),
    "xor of float32, float32 giving float32": op("xor", X, X),
    "add of bool, bool giving bool": op("add", B, B),
    "select of float32, float32, float32 giving float32": op("select", X, X, X),
    "bitcast of float32 giving int64": Op("bitcast", (X,), I64),
    "bitcast of bool giving uint8": Op("bitcast", (B,), "uint8"),
    "'x' holds float32, not float64": at("x", (ROW, 1), dtype="float64"),
    "'q' is not a buffer": at("q", (ROW, 1)),
    "axis k < 4 is not in scope": at("x", (K, 1)),
    "axis i < 5 is not in scope": at("x", (Axis("i", 5), 1)),
    "an axis has two strides": at("x", (ROW, 1), (ROW, 0)),
    "axis j < 2 is not in scope": Index(Axis("j", 2)),
    "uses 'U', which is no symbol of the program": Extent(symbol("U")),
    "reduction 0 is not available, only 0 are": Reduced(0, F32),
    "constant 0.1 is not a value of float32": Const(0.1, F32),
    "constant 1 is not a value of float32": Const(1, F32),
    "constant 300 is not a value of uint8": Const(300, "uint8"),
    "constant 0.5 is not a value of int32": Const(0.5, "int32"),
    f"constant {2**70} is not a value of int64": Const(2**70, "int64"),
    "unknown dtype 'complex64' of Cast": Cast(X, "complex64"),
    "float32 is not converted to float8_e4m3fn": Cast(X, "float8_e4m3fn"),
    "add of float16, float16 giving float16": op("add", *[Cast(X, "float16")] * 2),
    "dot of float32, float32, float32 giving float32": op("dot", X, X, X),
    "Given is not an expression": Given(0, F32),
    "elements 0 to 4 of 'x'[4]": at("x", (ROW, 1), (Axis("t", 2), 1)),
    "elements 1 to 4 of 'x'[4]": at("x", (ROW, 1), offset=1),
    "elements -3 to 0 of 'x'[4]": at("x", (ROW, -1)),
    "the mask of a load is float32, not bool": Load(
        Access("x", 0, ((ROW, 1),)), F32, X, constant(0.0, F32)
    ),
    "a masked load of float32 needs another value": Load(Access("x", 0, ((ROW, 1),)), F32, B),
}


@pytest.mark.parametrize("expected", EXPRESSIONS)
def test_expressions(expected):
    node = EXPRESSIONS[expected]
    # Whatever the dtype, the value ends in a float32 store.
    value = op("add", X, node if node.dtype == F32 else Cast(node, F32))
    step = Axis("t", 2)
    k = kernel(value, (ROW, step), ((ROW, 1), (step, 4)))
    found = problems(single(k, outputs={"y": (8,)}))
    assert any(expected in problem and "kernel 'k'" in problem for problem in found), found


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0, 0.5, float(np.float32(0.1))])
def test_floats_that_are_values_of_float32(value):
    verify(single(kernel(op("add", X, Const(value, F32)))))


def test_masked_loads_may_be_out_of_bounds():
    mask = op("lt", Index(ROW), constant(3, I64))
    verify(single(kernel(Load(Access("x", 1, ((ROW, 1),)), F32, mask, constant(0.0, F32)))))


def test_guarded_accesses_may_be_out_of_bounds():
    i = Axis("i", 8)
    guard = op("lt", Index(i), constant(4, I64))
    k = kernel(at("x", (i, 1)), (i,), ((i, 1),), guard=guard)
    verify(single(k))
    assert "elements 0 to 7 of 'x'[4]" in problems(single(replace(k, guard=None)))[0]


def test_bounds_of_run_time_sizes():
    t, i = Axis("t", T), Axis("i", 4)
    fine = kernel(at("x", (t, 4), (i, 1)), (t, i), ((t, 4), (i, 1)))
    shapes = {"inputs": {"x": (T, 4)}, "outputs": {"y": (T, 4)}, "symbols": ("T",)}
    verify(single(fine, **shapes))
    over = kernel(at("x", (t, 4), (i, 1), offset=1), (t, i), ((t, 4), (i, 1)))
    assert "elements 1 to 4*T of 'x'[4*T]" in only(single(over, **shapes))


# Kernels


def test_dtype_of_stores():
    assert only(single(kernel(Index(ROW)))) == "kernel 'k': 'y' holds float32, not int64"


def test_stores_out_of_bounds():
    assert "store to 'y': elements 2 to 5 of 'y'[4]" in only(single(kernel(X, offset=2)))


@pytest.mark.parametrize(("name", "kind"), [("x", "input"), ("c", "constant")])
def test_stores_to_what_cannot_change(name, kind):
    k = kernel(X, buffer=name)
    p = single(k, constants={"c": np.zeros(4, np.float32)})
    assert only(p) == f"kernel 'k': store to {name!r}, which is of kind {kind!r}"


def test_two_stores_of_the_same_elements():
    first = store("y", X, (ROW, 1))
    k = Kernel("k", (ROW,), (), (first, store("y", op("neg", X), (ROW, 1))))
    assert "two stores write the same elements" in only(single(k))


def test_all_points_write_the_same_element():
    assert "all points along i write the same element" in only(single(kernel(X, access=())))
    one = Axis("i", 1)
    verify(single(kernel(at("x", (one, 1)), (one,), ())))


def test_a_kernel_stores_something():
    assert only(single(Kernel("k", (ROW,), (), ()))) == "kernel 'k' stores nothing"


def test_guard_is_bool():
    assert "the guard is int64, not bool" in only(single(kernel(X, guard=Index(ROW))))


def test_duplicate_axes():
    k = kernel(X, (ROW, Axis("i", 1)))
    assert "axis 'i' appears more than once" in problems(single(k))[0]
    inner = kernel(X)
    p = program({"x": (4,)}, {"y": (4,)}, (Loop(Axis("i", 2), (), (inner,)),))
    assert any("axis 'i' appears more than once" in problem for problem in problems(p))


REDUCTIONS = {
    "3 chains are not a power of two": Reduce((K,), "sum", at("x", (K, 1)), None, 3),
    "0 chains are not a power of two": Reduce((K,), "sum", at("x", (K, 1)), None, 0),
    "a factor goes with a sum, not with 'max'": Reduce(
        (K,), "max", at("x", (K, 1)), at("x", (K, 1))
    ),
    "float32 times int64 is not fused": Reduce((K,), "sum", at("x", (K, 1)), Index(K)),
    "int64 times int64 is not fused": Reduce((K,), "sum", Index(K), Index(K)),
    "unknown way to combine 'mean'": Reduce((K,), "mean", at("x", (K, 1))),
    "has no axes": Reduce((), "sum", X),
    "sum of bool": Reduce((K,), "sum", op("lt", at("x", (K, 1)), X)),
    "axis 'i' appears more than once": Reduce((ROW,), "sum", X),
    "reduction 0 is not available, only 0 are": Reduce((K,), "sum", Reduced(0, F32)),
    "elements 0 to 6 of 'x'[4]": Reduce((K,), "sum", at("x", (K, 1), (ROW, 1))),
}


@pytest.mark.parametrize("expected", REDUCTIONS)
def test_reductions(expected):
    reduce = REDUCTIONS[expected]
    value = Reduced(0, reduce.dtype)
    k = kernel(value if reduce.dtype == F32 else Cast(value, F32), reductions=(reduce,))
    assert any(expected in problem for problem in problems(single(k)))


def test_dtype_of_reduced():
    reduce = Reduce((K,), "sum", at("x", (K, 1)))
    k = kernel(Cast(Reduced(0, I64), F32), reductions=(reduce,))
    assert only(single(k)) == "kernel 'k': reduction 0 is float32, not int64"


def test_reduced_axes_end_with_their_reduction():
    k = kernel(at("x", (K, 1)), reductions=(Reduce((K,), "sum", at("x", (K, 1))),))
    assert "axis k < 4 is not in scope" in only(single(k))


# Loops


def loop(carry: Carry, arena=None, extra=()) -> Program:
    body = kernel(at("h", (ROW, 1)), buffer="g")
    return program(
        {"x": (4,)},
        {"y": (4,)},
        (kernel(X, buffer="h"), Loop(Axis("t", 3), (carry, *extra), (body,))),
        arena=arena or {"h": 4, "g": 4},
    )


def test_carries():
    verify(loop(Carry("h", "g")))
    assert "the body never writes 'h'" in problems(loop(Carry("g", "h")))[0]
    assert "there is no such buffer" in only(loop(Carry("h", "q")))
    assert "cannot change" in problems(loop(Carry("x", "g")))[0]
    assert "4 elements of float32 and 8 of float32" in only(loop(Carry("h", "g"), {"h": 4, "g": 8}))
    assert (
        "buffer 'g' is carried more than once"
        in problems(loop(Carry("h", "g"), extra=(Carry("y", "g"),)))[0]
    )


def test_conditions():
    assert "branch: condition 'q' is no buffer of one bool" in problems(
        change(body=(Branch("q", (), ()),))
    )
    assert "requirement: condition 'x' is no buffer of one bool" in problems(
        change(body=(Require("x", "no"),))
    )
    p = loop(Carry("h", "g"))
    begin, steps = p.body
    p = replace(p, buffers={**p.buffers, "go": Buffer("go", "bool", 1, "arena")})
    assert "loop t: condition 'go' is not carried" in only(
        replace(p, body=(begin, replace(steps, condition="go")))
    )


def test_steps_in_any_order_carry_nothing():
    p = loop(Carry("h", "g"))
    begin, steps = p.body
    assert (
        "steps that hand on states depend on each other"
        in problems(replace(p, body=(begin, replace(steps, is_independent=True))))[0]
    )


def test_statements_of_a_branch_are_verified():
    c = {"c": Buffer("c", "bool", 1, "arena")}
    p = single(Branch("c", (kernel(at("q", (ROW, 1))),), (kernel(Index(ROW)),)))
    assert len(problems(replace(p, buffers={**p.buffers, **c}))) == 2


def test_computed_positions():
    access = Access("x", 0, ())
    assert "a computed index is float32, not int64 or uint8" in only(
        single(kernel(Load(access, F32, index=((X, 1),))))
    )
    assert "uses 'U', which is no symbol" in only(
        single(kernel(Load(access, F32, index=((Index(ROW), symbol("U")),))))
    )
    assert "axis k < 4 is not in scope" in only(
        single(kernel(Load(access, F32, index=((Index(K), 1),))))
    )


# The program


def change(**fields) -> Program:
    return replace(pointwise(lambda x: x), **fields)


def test_buffers():
    p = pointwise(lambda x: x)
    b = dict(p.buffers)
    assert "unknown kind 'heap'" in only(change(buffers={**b, "z": Buffer("z", F32, 4, "heap")}))
    assert "unknown dtype 'f4'" in only(change(buffers={**b, "z": Buffer("z", "f4", 4, "arena")}))
    assert "negative size -1" in only(change(buffers={**b, "z": Buffer("z", F32, -1, "arena")}))
    assert "is called 'a'" in only(change(buffers={**b, "z": Buffer("a", F32, 4, "arena")}))
    assert "uses 'T', which is no symbol" in only(
        change(buffers={**b, "z": Buffer("z", F32, T, "arena")})
    )
    computed = symbol("n", computed=True)
    assert "buffer 'z': size n has no bound" in problems(
        change(buffers={**b, "z": Buffer("z", F32, computed, "arena")})
    )
    missing = Buffer("z", F32, 4, "constant")
    assert "data is present only for constants" in only(change(buffers={**b, "z": missing}))
    wrong = {"z": np.zeros(3, np.float64)}
    assert only(change(buffers={**b, "z": missing}, constants=wrong)) == (
        "constant 'z': 3 elements of float64 for a buffer of 4 elements of float32"
    )
    assert "constant 'q' has no buffer" in only(change(constants={"q": np.zeros(1)}))


def test_interfaces():
    assert "there is no buffer 'q'" in only(change(inputs=(Interface("x", "q", F32, (4,)),)))
    assert "float64, but its buffer holds float32" in only(
        change(inputs=(Interface("x", "x", "float64", (4,)),))
    )
    assert "shape ['2', '3'] in 4 elements" in only(
        change(outputs=(Interface("y", "y", F32, (2, 3)),))
    )
    assert "buffer 'y' is of kind 'output'" in only(
        change(inputs=(Interface("x", "y", F32, (4,)),))
    )


def test_values_of_inputs_are_as_many_as_its_elements():
    p = program({"x": (4,)}, {"y": (4,)}, (kernel(X),), symbols=("a", "b"))
    given = Interface("x", "x", F32, (4,), ("a", "b"))
    assert only(replace(p, inputs=(given,))) == "input 'x': 2 values in 4 elements"


def test_sizes_that_kernels_compute():
    p = pointwise(lambda x: x)
    n = Buffer("n", "int64", 1, "size", bound=symbol("m", computed=True))
    assert "buffer 'n': its bound m is not known before the run" in problems(
        replace(p, symbols=("n",), buffers={**p.buffers, "n": n})
    )


def test_definitions_depend_on_earlier_ones():
    found = problems(change(symbols=("A", "B"), definitions=(("A", symbol("B") + 1), ("B", 2))))
    assert "definition of 'A' uses 'B', which is not known before it" in found


def test_symbols():
    message = "symbol 'T' is no plain dimension of an input and not defined"
    assert only(change(symbols=("T",))) == message
    assert "uses 'T', which is no symbol" in only(change(checks=(Check(T, "no"),)))


def test_every_problem_is_listed():
    k = kernel(op("add", at("q", (ROW, 1)), Reduced(3, F32)), offset=7)
    assert len(problems(single(k))) == 3


def test_axes_with_an_order():
    i = Axis("i", 4)
    running = Kernel("k", (i,), (), (store("y", at("x", (i, 1)), (i, 1)),), ordered=(i,))
    verify(program({"x": (4,)}, {"y": (4,)}, (running,)))
    stray = replace(running, ordered=(Axis("j", 4),))
    p = program({"x": (4,)}, {"y": (4,)}, (stray,))
    assert only(p) == "kernel 'k': the ordered axis j is none of its axes"
    reduce = Reduce((K,), "sum", at("x", (K, 1)))
    both = replace(running, reductions=(reduce,))
    p = program({"x": (4,)}, {"y": (4,)}, (both,))
    assert only(p) == "kernel 'k' has an order and reductions"
    # Where points have an order, they may write the same element.
    same = replace(running, stores=(store("y", at("x", (i, 1))),))
    verify(program({"x": (4,)}, {"y": ()}, (same,)))


def test_stores_at_computed_positions():
    value = at("x", (ROW, 1))
    target = store("y", value)

    def of(**changes) -> Program:
        k = Kernel("k", (ROW,), (), (replace(target, **changes),))
        return program({"x": (4,)}, {"y": (4,)}, (k,))

    verify(of(index=((Index(ROW), 1),)))
    problem = "kernel 'k': a computed index is float32, not int64 or uint8"
    assert only(of(index=((value, 1),))) == problem
    mask = only(of(index=((Index(ROW), 1),), mask=value))
    assert mask == "kernel 'k': store to 'y': the mask is float32, not bool"
    symbol_ = only(of(index=((Index(ROW), T),)))
    assert symbol_ == "kernel 'k': size T uses 'T', which is no symbol of the program"
