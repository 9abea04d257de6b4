from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from ostinato.machine.record import AVX512
from ostinato.program.expr import Access, Axis, Index, Load, cast, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Carry, Loop, Program, Stmt
from ostinato.schedule.elide import _moved, elide_copies
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, check_unchanged, pointwise

elide = partial(elide_copies, machine=AVX512)

T = symbol("T")
t, i, j, e = Axis("t", T), Axis("i", 2), Axis("j", 2), Axis("e", 2)
s = Axis("s", T)
NEW = op("tanh", op("add", at("x", (t, 2), (j, 1)), at("h", (j, 1))))
STEP = Kernel("step", (j,), (), (store("g", NEW, (j, 1)), store("rows", NEW, (t, 2), (j, 1))))
COPY = Kernel("copy", (s, i), (), (store("y", at("rows", (s, 2), (i, 1)), (i, T), (s, 1)),))


def loop(*behind, step: Kernel = STEP, outputs=None, **sizes) -> Program:
    """Every step of a loop stores a row; what comes behind the loop reads the rows."""
    source = program(
        {"x": (T, 2), "h0": (2,)},
        outputs or {"y": (2, T)},
        (
            pointwise("begin", at("h0", (e, 1)), "h", e),
            Loop(t, (Carry("h", "g"),), (step,)),
            *behind,
        ),
        None,
        {"h": 2, "g": 2, "rows": 2 * T, **sizes},
        ("T",),
    )
    return source.with_body(source.body)


def test_rows_that_are_only_copied_are_written_where_they_belong():
    check(
        elide,
        loop(COPY),
        """
        arena h: float32[2]
        arena g: float32[2]
        arena rows: float32[2*T]
        kernel begin [e < 2] from begin
          h[e] = h0[e]
        loop t < T carry h <-> g
          kernel step [j < 2]
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            rows[2*t + j] = v0
        kernel copy [s < T, i < 2]
          y[T*i + s] = rows[2*s + i]
        """,
        """
        arena h: float32[2]
        arena g: float32[2]
        kernel begin [e < 2] from begin
          h[e] = h0[e]
        loop t < T carry h <-> g
          kernel step [j < 2]
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            y[T*j + t] = v0
        """,
    )


def test_readers_follow_to_the_new_place():
    more = Kernel("more", (s,), (), (store("z", op("neg", at("rows", (s, 2), offset=1)), (s, 1)),))
    check(
        elide,
        loop(more, COPY, outputs={"y": (2, T), "z": (T,)}),
        """
        arena h: float32[2]
        arena g: float32[2]
        arena rows: float32[2*T]
        kernel begin [e < 2] from begin
          h[e] = h0[e]
        loop t < T carry h <-> g
          kernel step [j < 2]
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            rows[2*t + j] = v0
        kernel more [s < T]
          z[s] = neg(rows[2*s + 1])
        kernel copy [s < T, i < 2]
          y[T*i + s] = rows[2*s + i]
        """,
        """
        arena h: float32[2]
        arena g: float32[2]
        kernel begin [e < 2] from begin
          h[e] = h0[e]
        loop t < T carry h <-> g
          kernel step [j < 2]
            v0 = tanh(x[2*t + j] + h[j])
            g[j] = v0
            y[T*j + t] = v0
        kernel more [s < T]
          z[s] = neg(y[s + T])
        """,
    )


def test_the_second_copy_of_a_value_stays():
    other = Kernel("other", (s, i), (), (store("z", at("rows", (s, 2), (i, 1)), (s, 2), (i, 1)),))
    source = loop(COPY, other, outputs={"y": (2, T), "z": (T, 2)})
    elided = elide(source)
    assert_same_results(source, elided)
    assert [kernel.name for kernel in elided.kernels()] == ["begin", "step", "other"]
    assert [k.reads() for k in elided.kernels() if k.name == "other"] == [{"y"}]


def test_states_are_copied():
    """Their halves swap: which of the two holds the value depends on the number of steps."""
    copy = pointwise("copy", at("h", (e, 1)), "y", e)
    check_unchanged(elide, loop(copy, outputs={"y": (2,), "rows": (T, 2)}))


def test_copies_into_a_state_stay():
    first = pointwise("first", op("exp", at("h0", (i, 1))), "b", i)
    begin = pointwise("begin", at("b", (e, 1)), "h", e)
    source = loop(outputs={"rows": (T, 2)})
    arena = {**source.buffers, "b": replace(source.buffers["h"], name="b")}
    _, steps = source.body
    check_unchanged(elide, replace(source, buffers=arena, body=(first, begin, steps)))


def test_copies_of_a_part_stay():
    part = Kernel("copy", (s,), (), (store("y", at("rows", (s, 2), offset=1), (s, 1)),))
    check_unchanged(elide, loop(part, outputs={"y": (T,)}))


def test_copies_with_computed_or_masked_addresses_stay():
    computed = Load(Access("rows", 0, ((i, 1),)), "float32", None, None, ((Index(s), 2),))
    inside = op("lt", Index(s), constant(2, "int64"))
    masked = Load(Access("rows", 0, ((s, 2), (i, 1))), "float32", inside, constant(0.0, "float32"))
    for value in (computed, masked):
        copy = replace(COPY, stores=(store("y", value, (i, T), (s, 1)),))
        check_unchanged(elide, loop(copy))


def test_values_that_others_read_at_computed_positions_stay():
    computed = Load(Access("rows", 0, ()), "float32", None, None, ((Index(s), 2),))
    other = Kernel("other", (s,), (), (store("z", computed, (s, 1)),))
    check_unchanged(elide, loop(COPY, other, outputs={"y": (2, T), "z": (T,)}))


READS = Kernel("reads", (s,), (), (store("z", op("neg", at("y", (s, 1))), (s, 1)),))
ZEROS = Kernel("zeros", (s,), (), (store("y", constant(0.0, "float32"), (s, 1)),))
READ = {"y": (2, T), "z": (T,)}


def test_targets_that_others_read_behind_the_copy_are_written_in_the_first_place():
    source = loop(COPY, READS, outputs=READ)
    source = source.with_body((ZEROS, *source.body))
    changed = elide(source)
    assert [k.name for k in changed.kernels()] == ["zeros", "begin", "step", "reads"]
    assert_same_results(source, changed)


def test_targets_that_others_read_before_the_copy_stay():
    check_unchanged(elide, loop(READS, COPY, outputs=READ))


def test_targets_that_others_overwrite_stay():
    """Between the first value and the copy, or behind it and before a reader."""
    check_unchanged(elide, loop(ZEROS, COPY, READS, outputs=READ))
    again = Kernel("again", (s,), (), (store("rows", constant(0.0, "float32"), (s, 1)),))
    check_unchanged(elide, loop(COPY, again, READS, outputs=READ))


def test_inputs_and_constants_are_copied():
    copy = Kernel("copy", (s, i), (), (store("y", at("x", (s, 2), (i, 1)), (i, T), (s, 1)),))
    check_unchanged(elide, loop(copy, outputs={"y": (2, T), "rows": (T, 2)}))


def test_other_values_than_copies_stay():
    double = op("add", at("rows", (s, 2), (i, 1)), at("rows", (s, 2), (i, 1)))
    check_unchanged(elide, loop(replace(COPY, stores=(store("y", double, (i, T), (s, 1)),))))


def test_accesses_that_span_rows_of_the_copy_stay():
    """A reader that goes through the rows in another order has no map to the new place."""
    n = Axis("n", 2 * T)
    flat = Kernel("flat", (n,), (), (store("z", op("neg", at("rows", (n, 1))), (n, 1)),))
    check_unchanged(elide, loop(COPY, flat, outputs={"y": (2, T), "z": (2 * T,)}))


def scattered(transposed: bool) -> Program:
    """Rows are changed at computed positions, then copied to an output."""
    base = Kernel("base", (t, i), (), (store("rows", at("x", (t, 2), (i, 1)), (t, 2), (i, 1)),))
    place = ((cast(at("x", (s, 2)), "int64"), 2),)
    change = Store(Access("rows", 0, ((j, 1),)), at("x", (s, 2), (j, 1)), None, place)
    kernel = Kernel("change", (s, j), (), (change,), ordered=(s,))
    u, e = Axis("u", T), Axis("e", 2)
    strides = ((e, T), (u, 1)) if transposed else ((u, 2), (e, 1))
    copy = Kernel("copy", (u, e), (), (store("y", at("rows", (u, 2), (e, 1)), *strides),))
    return program(
        {"x": (T, 2)}, {"y": (T, 2)}, (base, kernel, copy), None, {"rows": 2 * T}, ("T",)
    )


def test_what_is_changed_at_computed_positions_moves_with_its_strides():
    source = elide(scattered(transposed=False))
    assert [kernel.name for kernel in source.kernels()] == ["base", "change"]
    assert all(kernel.writes() == {"y"} for kernel in source.kernels())
    # The computed positions are multiples of strides that the transposed copy does not have.
    source = elide(scattered(transposed=True))
    assert [kernel.name for kernel in source.kernels()] == ["base", "change", "copy"]


def test_targets_that_others_change_behind_the_copy_are_written_in_the_first_place():
    change = Kernel("change", (s,), (), (store("y", constant(1.0, "float32"), (s, 1)),))
    source = loop(COPY, change, READS, outputs=READ)
    changed = elide(source)
    assert [k.name for k in changed.kernels()] == ["begin", "step", "change", "reads"]
    assert_same_results(source, changed)
    # Not where the first value is still read behind the change.
    late = Kernel("late", (s,), (), (store("w", at("rows", (s, 2)), (s, 1)),))
    check_unchanged(elide, loop(COPY, change, late, READS, outputs={**READ, "w": (T,)}))


u, v, w = Axis("u", 3), Axis("v", 3), Axis("w", 6)
# In each step: zeros, a value of three elements behind them, and a row of the output from both.
ZERO = Kernel("zero", (w,), (), (store("wide", constant(0.0, "float32"), (w, 1)),))
VALUE = Kernel("value", (u,), (), (store("a", op("tanh", at("x", (t, 3), (u, 1))), (u, 1)),))
BEHIND = Kernel("behind", (v,), (), (store("wide", at("a", (v, 1)), (v, 1), offset=3),))
PLACE = (t, 6 * T), (w, T), (s, 1)
ROW = Kernel("row", (w, s), (), (store("y", op("neg", at("wide", (w, 1))), *PLACE),))


def stepwise(*body: Stmt, before: tuple[Stmt, ...] = (), carries: tuple[Carry, ...] = (), **sizes):
    """A loop whose steps are these statements, for rows of 3 to matrices of 6 x T."""
    arena = {"a": 3, "wide": 6, **sizes}
    loop = Loop(t, carries, body)
    source = program({"x": (T, 3)}, {"y": (T, 6, T)}, (*before, loop), None, arena, ("T",))
    return source.with_body(source.body)


def test_steps_write_what_they_alone_copy_where_it_belongs():
    check(
        elide,
        stepwise(ZERO, VALUE, BEHIND, ROW),
        """
        arena a: float32[3]
        arena wide: float32[6]
        loop t < T
          kernel zero [w < 6]
            wide[w] = 0.0
          kernel value [u < 3]
            a[u] = tanh(x[3*t + u])
          kernel behind [v < 3]
            wide[v + 3] = a[v]
          kernel row [w < 6, s < T]
            y[6*T*t + T*w + s] = neg(wide[w])
        """,
        """
        arena wide: float32[6]
        loop t < T
          kernel zero [w < 6]
            wide[w] = 0.0
          kernel value [u < 3]
            wide[u + 3] = tanh(x[3*t + u])
          kernel row [w < 6, s < T]
            y[6*T*t + T*w + s] = neg(wide[w])
        """,
    )


@pytest.mark.parametrize(("masked", "nested"), [(True, False), (False, False), (False, True)])
def test_copies_stay_of_what_an_earlier_step_left(masked: bool, nested: bool):
    """A target that every step clears would lose what the value keeps from step to step.

    masked: the first step writes all of it. Otherwise, each step writes two elements, and the last
    one, the middle one or the first one. nested: in a loop of one step.
    """
    step, two = Axis("t", 3), Axis("two", 2)
    first = op("eq", Index(step), constant(0, "int64"))
    begin = replace(store("a", constant(1.0, "float32"), (u, 1)), mask=first)
    pair = store("a", constant(1.0, "float32"), (two, 1))
    one = store("a", op("tanh", at("x", (step, 1))), (step, -1), offset=2)
    whole = (Kernel("begin", (u,), (), (begin,)),)
    parts = Kernel("pair", (two,), (), (pair,)), Kernel("one", (), (), (one,))
    row = store("y", op("neg", at("wide", (w, 1))), (step, 6), (w, 1))
    body: tuple[Stmt, ...] = (ZERO, *(whole if masked else parts), BEHIND)
    body += (Kernel("row", (w,), (), (row,)),)
    if nested:
        body = (Loop(Axis("n", 1), (), body),)
    inputs, arena = {"x": (3,)}, {"a": 3, "wide": 6}
    source = program(inputs, {"y": (3, 6)}, (Loop(step, (), body),), None, arena)
    check_unchanged(elide, source)
    assert_same_results(source, elide(source))


def test_copies_of_states_and_of_what_others_touch_stay_in_steps():
    begin = pointwise("begin", constant(0.0, "float32"), "a", u)
    carried = stepwise(
        ZERO,
        BEHIND,
        ROW,
        replace(VALUE, stores=(store("g", VALUE.stores[0].value, (u, 1)),)),
        before=(begin,),
        carries=(Carry("a", "g"),),
        g=3,
    )
    check_unchanged(elide, carried)
    e = Axis("e", 6)
    outside = Kernel("outside", (e,), (), (store("wide", constant(0.0, "float32"), (e, 1)),))
    check_unchanged(elide, stepwise(VALUE, BEHIND, ROW, before=(outside,)))


def test_only_users_of_the_copied_value_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    count, moved = 20, []
    body: list[Stmt] = []
    for n in range(count):
        body.append(pointwise(f"make{n}", op("tanh", at(f"x{n}", (t, 1))), f"a{n}", t))
        body.append(pointwise(f"copy{n}", at(f"a{n}", (t, 1)), f"y{n}", t))
    source = program(
        {f"x{n}": (T,) for n in range(count)},
        {f"y{n}": (T,) for n in range(count)},
        tuple(body),
        None,
        {f"a{n}": T for n in range(count)},
        ("T",),
    )
    change = _moved
    monkeypatch.setattr(
        "ostinato.schedule.elide._moved", lambda *one: moved.append(one) or change(*one)
    )
    assert len(elide(source).body) == count
    assert len(moved) == count
