"""The passes together, and golden tests of single ones: texts before and after, equal bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program import interpreter
from ostinato.program.expr import Access, Axis, Index, Reduced, cast, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Carry, Loop, Program
from ostinato.program.printer import text
from ostinato.program.verify import verify
from ostinato.schedule.pipeline import SCHEDULE_PASSES, schedule
from ostinato.sizes.dims import symbol
from ostinato.sizes.substitution import evaluate
from tests.program.programs import at, program, store

REGISTERS = [Machine(64, 32), Machine(32, 16), Machine(16, 32)]
# What every run-time dimension is in feeds made here.
EXTENTS = (0, 1, 3, 4)


def feeds(source: Program, extent: int = 3) -> dict[str, np.ndarray]:
    """Random inputs; every run-time dimension has the same extent."""
    random = np.random.default_rng(7)
    sizes = dict.fromkeys(source.symbols, extent)
    return {
        i.name: random.uniform(-2, 2, [evaluate(n, sizes) for n in i.shape]).astype(i.dtype)
        for i in source.inputs
    }


def assert_same_results(source: Program, changed: Program) -> None:
    """Both programs are legal and give the same bits in the interpreter."""
    verify(source)
    verify(changed)
    for extent in EXTENTS if source.symbols else (3,):
        given = feeds(source, extent)
        expected, got = interpreter.run(source, given), interpreter.run(changed, given)
        for name, array in expected.items():
            assert got[name].shape == array.shape
            assert got[name].tobytes() == array.tobytes(), f"{name}, extent {extent}"


def shown(source: Program) -> str:
    """The text of a program without its symbols, inputs and outputs, which no pass changes."""
    hidden = ("symbol ", "input ", "output ")
    return "".join(f"{line}\n" for line in text(source).splitlines() if not line.startswith(hidden))


def check(
    rewrite: Callable[[Program], Program], source: Program, before: str, after: str
) -> Program:
    """Assert that `rewrite` turns one text into the other and keeps the results."""
    changed = rewrite(source)
    assert shown(source) == dedent(before).lstrip("\n")
    assert shown(changed) == dedent(after).lstrip("\n")
    assert_same_results(source, changed)
    return changed


def check_unchanged(rewrite: Callable[[Program], Program], source: Program) -> None:
    """Assert that `rewrite` has nothing to do, in a program that is legal."""
    verify(source)
    assert text(rewrite(source)) == text(source)


def pointwise(name: str, value, target: str, *axes: Axis, offset=0) -> Kernel:
    """`target[axes] = value`, with the last axis dense."""
    terms, stride = [], 1
    for axis in reversed(axes):
        terms.append((axis, stride))
        stride = stride * axis.extent
    return Kernel(
        name, axes, (), (store(target, value, *terms[::-1], offset=offset),), None, (name,)
    )


def product(name: str, operand, factor, target: str, k: Axis, *axes: Axis) -> Kernel:
    """`target[axes] = sum_k operand * factor`."""
    kernel = pointwise(name, Reduced(0, "float32"), target, *axes)
    return Kernel(name, axes, (Reduce((k,), "sum", operand, factor),), kernel.stores, None, (name,))


def cell(steps=None) -> Program:
    """A recurrence with work before it, behind it and between its gates."""
    steps = symbol("T") if steps is None else steps
    t, n = Axis("t", steps), 5
    k, m, o = Axis("k", n), Axis("m", n), Axis("o", n)
    random = np.random.default_rng(0)
    constants = {
        name: random.standard_normal(shape).astype("f")
        for name, shape in (("W", (n, 2 * n)), ("R", (n, 2 * n)), ("V", (n, 3)))
    }
    i, j = Axis("i", 2 * n), Axis("j", 2 * n)
    u, v, w = Axis("u", n), Axis("v", n), Axis("w", 3)
    a, r = at("a", (u, 1)), at("r", (u, 1))
    gate = op("sigmoid", op("add", at("a", (u, 1), offset=n), at("r", (u, 1), offset=n)))
    new = op("mul", op("tanh", op("add", a, r)), gate)
    gates = pointwise("gates", new, "g", u)
    body = (
        product("input", at("x", (t, n), (k, 1)), at("W", (k, 2 * n), (i, 1)), "a", k, i),
        product("state", at("h", (m, 1)), at("R", (m, 2 * n), (j, 1)), "r", m, j),
        replace(gates, stores=(*gates.stores, store("s", new, (u, 1)))),
        product("out", at("s", (o, 1)), at("V", (o, 3), (w, 1)), "z", o, w),
        Kernel("keep", (w,), (), (store("y", op("exp", at("z", (w, 1))), (t, 3), (w, 1)),)),
    )
    return program(
        {"x": (steps, n), "h0": (n,)},
        {"y": (steps, 3), "last": (n,)},
        (
            pointwise("begin", at("h0", (v, 1)), "h", v),
            Loop(t, (Carry("h", "g"),), body),
            pointwise("end", at("h", (Axis("e", n), 1)), "last", Axis("e", n)),
        ),
        constants,
        {"a": 2 * n, "r": 2 * n, "h": n, "g": n, "s": n, "z": 3},
        ("T",) if not isinstance(steps, int) else (),
    )


def chores() -> Program:
    """The recurrence with something for every pass: copies, dead work and axes to merge."""
    source = cell()
    a, b, d, e, f = (Axis(name, n) for name, n in zip("abdef", (5, 5, 2, 3, 15), strict=True))
    r, s, p, q = Axis("r", 3), Axis("s", 5), Axis("p", 5), Axis("q", 5)
    v, c, g, w, h = Axis("v", 15), Axis("c", 5), Axis("g", 2), Axis("w", 3), Axis("h", 3)
    weight = cast(at("narrow", (v, 1), dtype="int8"), "float32")
    double = op("add", at("h", (s, 1)), at("h", (s, 1)))
    rows = Kernel(
        "rows", (s,), (), (store("g", double, (s, 1)), store("rows", double, (r, 5), (s, 1)))
    )
    y, z, u, o = Axis("y", 6), Axis("z", 6), Axis("u", 6), Axis("o", 4)
    step = cast(Index(o), "int64")
    put = Store(Access("after", 0, ()), cast(step, "float32"), index=((step, 1),))
    t, part, whole = Axis("steps", 4), Axis("part", 32), Axis("whole", 32)
    old = at("c", (part, 1))
    goes_on = op("lt", Index(t), constant(2, "int64"))
    idle = op("select", goes_on, op("add", old, at("m")), old)
    extra = (
        pointwise("nothing", constant(0.0, "float32"), "c", whole),
        Loop(t, (Carry("c", "d"),), (pointwise("idle", idle, "d", part),)),
        pointwise("sum", at("c"), "double"),
        pointwise("state", at("m", (y, 1)), "before", y),
        Loop(
            o,
            (Carry("before", "after"),),
            (pointwise("next", at("before", (z, 1)), "after", z), Kernel("put", (), (), (put,))),
        ),
        pointwise("stored", at("before", (u, 1)), "stored", u),
        pointwise("dead", op("exp", at("h0", (a, 1))), "dead", a),
        pointwise("again", at("h0", (b, 1)), "h", b),
        Loop(r, (Carry("h", "g"),), (rows,)),
        pointwise("copy", at("rows", (f, 1)), "kept", f),
        product("squares", at("h0", (p, 1)), at("h0", (q, 1)), "p", p, q),
        product("sums", at("p", (p, 1)), at("h0", (q, 1)), "q", p, q),
        pointwise("matrix", op("neg", at("m", (d, 3), (e, 1))), "n", d, e),
        pointwise("widen", op("mul", weight, weight), "wide", v),
        product("narrow", at("h0", (c, 1)), at("wide", (c, 3), (w, 1)), "few", c, g, w),
        *(
            Kernel(f"half{n}", (k,), (), (store("halves", there, (k, 1), offset=3 - 3 * n),))
            for n, k in enumerate((Axis("k0", 3), Axis("k1", 3)))
            for there in [at("m", (k, 1), offset=3 * n)]
        ),
        Kernel("half", (h,), (), (store("t", op("neg", at("halves", (h, 1))), (h, 1)),)),
    )
    more = program(
        {"x": source.inputs[0].shape, "h0": (5,), "m": (2, 3)},
        {
            "y": source.outputs[0].shape,
            "last": (5,),
            "kept": (3, 5),
            "n": (2, 3),
            "q": (5,),
            "few": (2, 3),
            "t": (3,),
            "stored": (6,),
            "double": (),
        },
        (*source.body, *extra),
        {**source.constants, "narrow": np.arange(-7, 8, dtype=np.int8)},
        {"dead": 5, "rows": 15, "p": 5, "wide": 15, "halves": 6, "before": 6, "after": 6}
        | {"c": 32, "d": 32},
        source.symbols,
    )
    return replace(more, buffers={**source.buffers, **more.buffers})


NAMES = [item.name for item in SCHEDULE_PASSES if not item.needed]


def test_every_pass_says_in_a_sentence_what_it_does():
    names = [item.name for item in SCHEDULE_PASSES]
    assert len(set(names)) == len(names)
    assert all(item.sentence.endswith(".") for item in SCHEDULE_PASSES)


def test_all_passes_leave_one_kernel_in_a_loop():
    scheduled = schedule(cell(), REGISTERS[0])
    assert_same_results(cell(), scheduled.program)
    _, before, loop, after, _ = scheduled.program.body
    assert isinstance(loop, Loop) and isinstance(before, Kernel) and isinstance(after, Kernel)
    assert before.sources == ("input",) and after.sources == ("out",)
    (step,) = loop.body
    assert isinstance(step, Kernel)
    assert len(step.reductions) == 2


@pytest.mark.parametrize("registers", REGISTERS, ids=lambda r: f"{r.vector_bytes}-bytes")
@pytest.mark.parametrize("left_out", [(), *((name,) for name in NAMES), tuple(NAMES)])
def test_every_choice_of_passes_has_the_same_bits(left_out, registers):
    scheduled = schedule(cell(), registers, left_out)
    assert_same_results(cell(), scheduled.program)


# Weights, rows and operands of these programs are too small for these, one thread deals nothing
# out, no sum is one of bytes or of 16-bit floats, nothing is quantised, and there are no checks.
@pytest.mark.parametrize(
    "name",
    sorted(
        {*NAMES}
        - {
            "by_blocks",
            "by_images",
            "by_panels",
            "by_rows",
            "byte_tables",
            "chains_to_axes",
            "chunk",
            "deal",
        }
        - {"checked_sizes", "checks_first", "forwards", "interleave", "layout"}
        - {"read_through", "relayout", "reuse_copies", "reuse_padded", "serpentine"}
        - {"stay_floats", "widen_bytes", "widen_rows", "words_first"}
    ),
)
def test_leaving_a_pass_out_changes_the_program(name):
    source = chores()
    default, other = (schedule(source, REGISTERS[0], names) for names in ((), (name,)))
    assert default.program.body != other.program.body or default.arena != other.arena
    assert_same_results(source, other.program)
