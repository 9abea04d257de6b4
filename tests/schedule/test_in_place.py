"""Copies that are stored into share the memory of their originals, where that gives the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.program.expr import Access, Axis, Extent, Index, Load, cast, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Branch, Carry, Loop, Program, statements
from ostinato.schedule.fuse import STORED_INTO, fuse
from ostinato.schedule.in_place import store_in_place
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, check_unchanged, pointwise

M = 6
i, e, w, t, u = Axis("i", M), Axis("e", M), Axis("w", 3), Axis("t", 4), Axis("u", 2)


def copy(source: str, target: str, name: str = "") -> Kernel:
    return pointwise(name or f"{target}={source}", at(source, (i, 1)), target, i)


def place(offset: int):
    """Other elements in every step, after six of which the first one comes again."""
    return op("mod", op("add", cast(Index(t), "int64"), constant(offset, "int64")), six)


six = constant(M, "int64")


def put(target: str, value, offset: int = 0, index=None) -> Kernel:
    """One element of a value is stored into."""
    where = place(offset) if index is None else index
    stored = Store(Access(target, 0, ()), value, None, ((where, 1),))
    return Kernel(f"put {target}", (), (), (stored,))


def taken(source: str, target: str, offset: int = 0, index=None) -> Kernel:
    """One element of a value is read."""
    where = place(offset) if index is None else index
    load = Load(Access(source, 0, ()), "float32", index=((where, 1),))
    return Kernel(f"{target} of {source}", (), (), (store(target, load),))


def loop(*body, states=(("s", "n"),), behind=(), steps=t, **more) -> Program:
    """States that begin with `x`, are `y` in the end, and of which a step makes the next ones."""
    before = [copy("x", state) for state, _ in states]
    after = [copy(state, f"y{n or ''}") for n, (state, _) in enumerate(states)]
    carries = tuple(Carry(*pair) for pair in states)
    outputs = {f"y{n or ''}": (M,) for n, _ in enumerate(states)}
    names = {name: M for pair in states for name in pair}
    return program(
        {"x": (M,)},
        outputs | more.pop("outputs", {}),
        (*before, Loop(steps, carries, body), *after, *behind),
        arena=names | {"a": M, "b": M, "r": 1, "q": 1} | more,
    ).with_body((*before, Loop(steps, carries, body), *after, *behind))


def copies(source: Program) -> list[str]:
    """The names of the kernels that are left and copy a whole value."""
    return [kernel.name for kernel in source.kernels() if "=" in kernel.name]


def assert_left(source: Program, *names: str) -> Program:
    """Assert which copies are left."""
    changed = store_in_place(source)
    assert_same_results(source, changed)
    assert copies(changed) == list(names)
    return changed


def test_a_chain_of_stores_needs_no_copy():
    source = loop(
        taken("s", "r", 1),
        copy("s", "a"),
        put("a", at("r")),
        taken("a", "q", 3),
        copy("a", "n"),
        put("n", op("neg", at("q")), 2),
    )
    check(
        store_in_place,
        source,
        """
        arena s: float32[6]
        arena n: float32[6]
        arena a: float32[6]
        arena r: float32[1]
        arena q: float32[1]
        kernel s=x [i < 6] from s=x
          s[i] = x[i]
        loop t < 4 carry s <-> n
          kernel r of s []
            r[0] = s[((t + 1) % 6)]
          kernel a=s [i < 6] from a=s
            a[i] = s[i]
          kernel put a []
            a[((t + 0) % 6)] = r[0]
          kernel q of a []
            q[0] = a[((t + 3) % 6)]
          kernel n=a [i < 6] from n=a
            n[i] = a[i]
          kernel put n []
            n[((t + 2) % 6)] = neg(q[0])
        kernel y=s [i < 6] from y=s
          y[i] = s[i]
        """,
        """
        arena r: float32[1]
        arena q: float32[1]
        kernel s=x [i < 6] from s=x
          y[i] = x[i]
        loop t < 4
          kernel r of s []
            r[0] = y[((t + 1) % 6)]
          kernel put a []
            y[((t + 0) % 6)] = r[0]
          kernel q of a []
            q[0] = y[((t + 3) % 6)]
          kernel put n []
            y[((t + 2) % 6)] = neg(q[0])
        """,
    )


def test_a_reader_of_the_original_behind_the_store_keeps_the_copy():
    source = loop(
        copy("s", "a"), put("a", at("x"), 1), taken("s", "r", 1), copy("a", "n"), put("n", at("r"))
    )
    assert_left(source, "s=x", "a=s", "y=s")


def test_a_store_that_reads_other_elements_of_the_original_keeps_the_copy():
    where, behind = (op("mod", op("add", cast(Index(w), "int64"), place(n)), six) for n in (0, 1))
    other = Load(Access("s", 0, ()), "float32", index=((behind, 1),))
    stored = Store(Access("n", 0, ()), other, None, ((where, 1),))
    source = loop(copy("s", "n"), Kernel("shift", (w,), (), (stored,)))
    assert_left(source, "s=x", "n=s", "y=s")


def test_a_reader_of_an_earlier_version_keeps_only_the_copies_behind_it():
    source = loop(
        copy("s", "a"),
        put("a", at("x"), 1),
        copy("a", "b"),
        put("b", at("x", offset=1), 1),
        taken("a", "r", 1),
        copy("b", "n"),
        put("n", at("r"), 2),
    )
    assert_left(source, "s=x", "b=a", "y=s")


@pytest.mark.parametrize("kept", [True, False], ids=["and-behind", "alone"])
def test_a_reader_in_the_next_step_keeps_the_copy(kept):
    """Memory that steps share has what the step before left there."""
    body = taken("k", "r", 1), copy("s", "n"), put("n", at("r")), copy("k", "a"), put("a", at("x"))
    behind = (copy("k", "z"),) if kept else ()
    outputs = {"z": (M,)} if kept else {}
    more = taken("a", "q"), put("n", at("q"), 2)
    source = loop(*body, *more, behind=behind, k=M, outputs=outputs)
    left = ("k=x", "s=x", "a=k")
    assert_left(source.with_body((copy("x", "k"), *source.body)), *left)


def straight(*body) -> Program:
    """A program without states, of `x` to `y` and `z`."""
    outputs = {"y": (M,), "z": (M,)}
    return program({"x": (M,)}, outputs, body, arena={"a": M, "b": M, "c": M})


FIRST = constant(0, "int64")


def test_a_reader_behind_a_loop_that_may_have_no_steps_keeps_the_copy():
    steps = symbol("T")
    anew = Loop(Axis("n", steps), (), (pointwise("anew", op("neg", at("x", (e, 1))), "a", e),))
    seen = pointwise("seen", op("neg", at("b", (i, 1))), "y", i)
    body = copy("x", "a"), copy("a", "b"), put("b", at("w"), 0, FIRST), seen, anew
    source = straight(*body, copy("a", "z"))
    given = program({"w": (1,), "v": (steps,)}, {}, (), symbols=("T",))
    buffers, symbols = {**source.buffers, **given.buffers}, ("T",)
    source = replace(source, inputs=source.inputs + given.inputs, buffers=buffers, symbols=symbols)
    assert_left(source, "a=x", "b=a")


def test_what_is_written_anew_in_part_is_still_needed():
    half = Kernel("half", (w,), (), (store("b", at("x", (w, 1)), (w, 1), offset=3),))
    stored = copy("a", "b"), put("a", at("x", offset=1), 0, FIRST), taken("a", "c", 0, FIRST)
    first = pointwise("first", at("c"), "z", i)
    assert_left(straight(copy("x", "a"), *stored, half, copy("b", "y"), first), "a=x", "b=a")


def test_a_kernel_that_copies_one_part_writes_the_other():
    stores = store("b", at("a", (w, 1)), (w, 1)), store("b", at("x", (w, 1)), (w, 1), offset=3)
    stored = put("a", at("x", offset=1), 0, FIRST), Kernel("b=a", (w,), (), stores)
    source = straight(copy("x", "a"), *stored, copy("b", "y"), copy("a", "z"))
    assert_left(source, "a=x", "b=a")


def test_copies_that_may_have_any_layout_stay():
    source = loop(copy("s", "n"), put("n", at("x")))
    buffers = {**source.buffers, "n": replace(source.buffers["n"], is_copy=True)}
    check_unchanged(store_in_place, replace(source, buffers=buffers))


def test_a_padded_copy_is_not_its_original():
    mask = op("lt", Index(i), constant(3, "int64"))
    load = replace(at("a", (i, 1)), mask=mask, other=constant(0.0, "float32"))
    padded = Kernel("b=a", (i,), (), (store("b", load, (i, 1)),))
    source = straight(
        copy("x", "a"), padded, put("b", at("x"), 0, FIRST), copy("b", "y"), copy("x", "z")
    )
    assert_left(source, "a=x", "b=a", "z=x")


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_each_version_that_steps_keep_is_the_right_one(first):
    rows = Kernel("rows", (i,), (), (store("z", at("s", (i, 1)), (t, M), (i, 1)),))
    body = [copy("s", "a"), put("a", at("x")), copy("a", "n"), put("n", at("x", offset=2), 3)]
    body.insert(0 if first else 2, rows)
    source = loop(*body, outputs={"z": (4, M)})
    assert_left(source, *(["s=x"] if first else ["s=x", "a=s", "y=s"]))


def test_overlapping_stores_stay_in_their_order():
    source = loop(
        copy("s", "a"),
        put("a", at("x")),
        copy("a", "n"),
        put("n", at("x", offset=1)),
        put("n", six_of),
    )
    assert_left(source, "s=x")


six_of = cast(Index(t), "float32")


def test_states_that_change_places_stay_two():
    source = loop(
        copy("s", "a"),
        put("a", at("x")),
        copy("a", "m"),
        copy("k", "n"),
        states=(("s", "n"), ("k", "m")),
    )
    changed = assert_left(source, "s=x", "k=x", "m=a", "n=k", "y=s", "y1=k")
    (step,) = (s for s in changed.body if isinstance(s, Loop))
    assert len(step.carries) == 2


def test_a_state_that_two_states_become_is_stored_into_once():
    source = loop(
        copy("s", "a"),
        put("a", at("x")),
        copy("a", "n"),
        copy("a", "m"),
        put("m", at("x"), 2),
        states=(("s", "n"), ("k", "m")),
    )
    assert_left(source, "s=x", "k=x", "m=a", "y1=k")


def nested(*inner, before=(), behind=()) -> Program:
    """A loop of a loop: the inner one begins with what the outer one is given."""
    step = Loop(u, (Carry("a", "b"),), inner)
    return loop(copy("s", "a"), *before, step, *behind, copy("a", "n"))


def test_loops_inside_store_into_the_state_of_the_loop_around():
    source = nested(taken("a", "r", 2), copy("a", "b"), put("b", op("neg", at("r"))))
    changed = assert_left(source, "s=x")
    assert not any(s.carries for s in statements(changed.body) if isinstance(s, Loop))


def test_a_reader_behind_the_inner_loop_keeps_the_copy_before_it():
    inner = taken("a", "r", 2), copy("a", "b"), put("b", op("neg", at("r")))
    source = nested(*inner, behind=(taken("s", "q", 2), put("a", at("q"), 1)))
    assert_left(source, "s=x", "a=s", "y=s")


def test_what_changes_places_inside_of_a_loop_is_no_memory_of_the_loop_around():
    """After an odd number of steps the halves of a state have changed places."""
    inner = copy("a", "b"), put("b", at("x")), taken("a", "r"), put("b", at("r"), 2)
    changed = assert_left(nested(*inner), "s=x", "a=s", "b=a", "n=a", "y=s")
    assert [len(s.carries) for s in statements(changed.body) if isinstance(s, Loop)] == [1, 1]


def test_what_the_next_step_reads_does_not_change_places():
    """A step reads what the one before it was given, which it has changed."""
    flag = Kernel("flag", (), (), (store("c", op("gt", Index(t), constant(0, "int64"))),))
    read = Branch("c", (taken("b", "r", 1),), (pointwise("r", at("x"), "r"),))
    body = flag, read, copy("s", "n"), put("n", at("r")), copy("s", "b"), put("b", at("r"), 3)
    source = loop(*body, c=1)
    buffers = {**source.buffers, "c": replace(source.buffers["c"], dtype="bool")}
    assert_left(replace(source, buffers=buffers), "s=x", "n=s", "b=s", "y=s")


def test_what_nothing_writes_before_its_loop_stays_two():
    source = loop(copy("s", "n"))
    _, step, *rest = source.body
    whole = pointwise("whole", at("x", (i, 1)), "s", i)
    inside = (whole, copy("s", "n"), put("n", at("x")))
    changed = store_in_place(source.with_body((replace(step, body=inside), *rest)))
    (left,) = (s for s in changed.body if isinstance(s, Loop))
    assert left.carries


def test_outputs_are_memory_of_their_own():
    behind = (copy("s", "z"),)
    source = loop(copy("s", "n"), put("n", at("x")), behind=behind, outputs={"z": (M,)})
    assert_left(source, "s=x", "z=s")


def test_outputs_that_are_alike_stay_two():
    flag = Kernel("flag", (), (), (store("c", op("gt", at("x"), at("x", offset=1))),))
    ways = (copy("y", "b", "b=y"),), (copy("z", "b", "b=z"),)
    stored = copy("x", "y"), put("y", at("x", offset=1), 0, FIRST), copy("y", "z")
    source = straight(flag, *stored, Branch("c", *ways), taken("b", "a", 0, FIRST))
    body = (*source.body[:-1], copy("b", "last"))
    source = program(
        {"x": (M,)}, {"y": (M,), "z": (M,), "last": (M,)}, body, arena={"b": M, "c": 1}
    )
    buffers = {**source.buffers, "c": replace(source.buffers["c"], dtype="bool")}
    assert_left(replace(source, buffers=buffers), "y=x", "z=y", "b=y", "b=z")


def test_an_output_of_an_earlier_version_keeps_it():
    source = loop(copy("s", "n"), put("n", at("x")), outputs={"z": (M,)})
    more = (copy("s", "z"), copy("s", "a"), put("a", at("x"), 1, constant(5, "int64")))
    last = replace(copy("a", "y"), name="y=a")
    source = source.with_body((*source.body[:2], *more, last))
    source = replace(source, buffers={**source.buffers, "a": loop(copy("a", "n")).buffers["a"]})
    assert_left(source, "s=x", "a=s")


def test_inputs_are_never_stored_into():
    body = copy("x", "a"), put("a", at("x", offset=1), 0, constant(2, "int64")), copy("a", "y")
    source = program({"x": (M,)}, {"y": (M,)}, body, arena={"a": M})
    assert_left(source, "a=x")


@pytest.mark.parametrize("late", [None, 0, 1])
def test_a_branch_stores_in_place_if_neither_way_needs_the_original(late):
    flag = Kernel("flag", (), (), (store("c", op("gt", at("x"), at("x", offset=1))),))
    read = (taken("s", "r", 1), put("a", at("r"), 4))
    ways = [(put("a", at("x"), 2 * n), *(read if late == n else ())) for n in range(2)]
    source = loop(flag, copy("s", "a"), Branch("c", *ways), copy("a", "n"), c=1)
    buffers = {**source.buffers, "c": replace(source.buffers["c"], dtype="bool")}
    left = ("s=x",) if late is None else ("s=x", "a=s", "y=s")
    assert_left(replace(source, buffers=buffers), *left)


def test_sizes_may_be_those_of_a_run():
    n = symbol("N")
    axis = Axis("w", n)

    def whole(source: str, target: str) -> Kernel:
        return pointwise(f"{target}={source}", at(source, (axis, 1)), target, axis)

    first = constant(0, "int64")
    stored = Store(Access("b", 0, ()), constant(2.0, "float32"), None, ((first, 1),))
    some = Kernel("some", (axis,), (), (replace(stored, mask=constant(False, "bool")),))
    body = whole("x", "a"), whole("a", "b"), some, whole("b", "y")
    source = program({"x": (n,)}, {"y": (n,)}, body, arena={"a": n, "b": n}, symbols=("N",))
    assert_left(source, "a=x")


def test_copies_that_nobody_stores_into_stay():
    check_unchanged(store_in_place, loop(copy("s", "a"), copy("a", "n")))
    part = replace(copy("s", "a"), axes=(Axis("i", 3),))
    part = Kernel("a=s", (e,), (), (store("a", at("s", (e, -1), offset=5), (e, 1)),))
    assert_left(loop(part, put("a", at("x")), copy("a", "n")), "s=x", "a=s", "y=s")


def test_what_is_read_of_an_original_stays_before_the_store():
    double = Kernel("double", (), (), (store("q", op("add", at("r"), at("r"))),))
    source = loop(
        taken("s", "r", 1), copy("s", "n"), put("n", at("x")), double, put("n", at("q"), 2)
    )
    refusals = []
    fused = fuse(source, refusals)
    assert any(STORED_INTO in refusal.reason for refusal in refusals)
    assert_same_results(source, fused)
    assert_left(fused, "s=x")


def test_what_is_added_to_an_element_of_a_run_time_size_is_read_before_the_store():
    n = symbol("N")
    v, some = Axis("v", n), op("lt", constant(0, "int64"), cast(Extent(n), "int64"))

    def whole(source: str, target: str) -> Kernel:
        return pointwise(f"{target}={source}", at(source, (v, 1)), target, v)

    first = replace(at("s"), mask=some, other=constant(0, "float32"))
    taken = Kernel("r of s", (), (), (store("r", first),))
    double = Kernel("double", (), (), (store("q", op("add", at("r"), at("r"))),))
    put = Kernel("put n", (), (), (replace(store("n", at("q")), mask=some),))
    step = taken, double, whole("s", "n"), put
    body = whole("x", "s"), Loop(t, (Carry("s", "n"),), step), whole("s", "y")
    sizes = {"s": n, "n": n, "r": 1, "q": 1}
    source = program({"x": (n,)}, {"y": (n,)}, body, arena=sizes, symbols=("N",))
    assert_left(fuse(source), "s=x")
