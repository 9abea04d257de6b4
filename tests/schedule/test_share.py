"""What is divided among threads, and where they wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ostinato.program.expr import Axis, Reduced, op
from ostinato.program.kernel import Kernel, Reduce, Tile
from ostinato.program.nodes import Branch, Buffer, Carry, Loop, Program, Require
from ostinato.schedule import share as sharing
from ostinato.schedule.arena import plan
from ostinato.schedule.share import Part, Shares, Step, part_of, share, undivided
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import pointwise

N = symbol("N")
M = 4096
e, t = Axis("e", M), Axis("t", 10)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting and waking cost next to nothing, so that programs can be small."""
    monkeypatch.setattr(sharing, "LEAST", 1)
    monkeypatch.setattr(sharing, "WAIT", 1)
    monkeypatch.setattr(sharing, "WAKE", 0)


def copy(name: str, source: str, target: str, axis: Axis = e) -> Kernel:
    """All elements, which threads divide."""
    return pointwise(name, at(source, (axis, 1)), target, axis)


def first(name: str, source: str, target: str) -> Kernel:
    """One element, which thread 0 copies."""
    return Kernel(name, (), (), (store(target, at(source)),))


def of(*body, states: tuple[str, ...] = (), **sizes: Size) -> Program:
    arena = {name: M for name in ("a", "b", "c", *states)} | sizes
    return program({"x": (M,)}, {"y": (M,), "z": (M,)}, body, arena=arena, symbols=("N",))


def shares(source: Program, reuse: bool = False) -> Shares:
    found = share(source, plan(source, reuse), 2)
    assert found is not None
    return found


def waits(steps: tuple[Step, ...]) -> Iterator[str]:
    """Names of what threads wait before, `again` behind those of loops with such a condition."""
    for step in steps:
        s = step.statement
        name = s.name if isinstance(s, Kernel) else type(s).__name__
        if step.wait:
            yield name
        if step.again:
            yield f"{name} again"
        for inner in step.inner:
            yield from waits(inner)


def waiting(*body, reuse: bool = False, **sizes: Size) -> list[str]:
    return list(waits(shares(of(*body, **sizes), reuse).steps))


def test_readers_wait_for_what_all_have_written() -> None:
    assert waiting(copy("k", "x", "a"), copy("l", "a", "y")) == ["l"]


def test_writers_wait_for_readers_and_other_writers() -> None:
    assert waiting(copy("k", "a", "y"), copy("l", "x", "a")) == ["l"]
    assert waiting(copy("k", "x", "a"), copy("l", "x", "a")) == ["l"]


def test_what_is_apart_does_not_wait() -> None:
    assert waiting(copy("k", "x", "a"), copy("l", "x", "b"), copy("m", "x", "y")) == []


def test_waiting_once_is_enough() -> None:
    body = copy("k", "x", "a"), copy("l", "x", "b"), copy("m", "a", "y"), copy("n", "b", "z")
    assert waiting(*body) == ["m"]


def test_thread_0_does_not_wait_for_itself() -> None:
    assert waiting(first("k", "x", "a"), first("l", "a", "b"), copy("m", "x", "y")) == []
    assert waiting(first("k", "x", "a"), first("l", "a", "b"), copy("m", "b", "y")) == ["m"]
    assert waiting(copy("k", "x", "a"), first("l", "a", "b"), first("m", "b", "y")) == ["l"]


def test_buffers_that_share_memory_wait() -> None:
    """`a` and `b` do not live at the same time, so that both lie in one place."""
    body = copy("k", "x", "a"), copy("l", "a", "y"), copy("m", "x", "b"), copy("n", "b", "z")
    assert waiting(*body) == ["l", "n"]
    assert waiting(*body, reuse=True) == ["l", "m", "n"]


@pytest.mark.parametrize("size", [N, 2 * N + 1])
def test_buffers_of_run_time_sizes_that_share_memory_wait(size: Size) -> None:
    axis = Axis("n", size)
    body = (
        copy("k", "x", "p", axis), copy("l", "p", "y", axis),
        copy("m", "x", "q", axis), copy("n", "q", "z", axis),
    )  # fmt: skip
    assert waiting(*body, p=size, q=size) == ["l", "n"]
    assert waiting(*body, reuse=True, p=size, q=size) == ["l", "m", "n"]


def test_a_buffer_of_a_run_time_size_may_lie_where_several_of_fixed_sizes_were() -> None:
    axis = Axis("n", N)
    body = copy("k", "x", "a"), copy("l", "a", "b"), copy("m", "b", "y"), copy("n", "x", "p", axis)
    assert waiting(*body, p=N) == ["l", "m"]
    assert waiting(*body, reuse=True, p=N) == ["l", "m", "n"]


def test_steps_of_a_loop_wait_for_each_other() -> None:
    """The first one waits as well: it cannot know that it is."""
    step = pointwise("k", op("tanh", at("a", (e, 1))), "b", e)
    assert waiting(Loop(t, (Carry("a", "b"),), (step,))) == ["k"]


def test_halves_of_a_state_are_apart() -> None:
    body = copy("k", "a", "y"), copy("l", "x", "b")
    assert waiting(Loop(t, (Carry("a", "b"),), body)) == ["k"]


def test_states_are_where_the_last_step_left_them() -> None:
    """After an odd number of steps `a` lies where `b` was; `c` takes the place of either."""
    loop = Loop(t, (Carry("a", "b"),), (pointwise("k", op("tanh", at("a", (e, 1))), "b", e),))
    assert waiting(loop, copy("l", "x", "z")) == ["k"]
    assert waiting(loop, copy("l", "x", "c"), copy("m", "c", "z"), reuse=True) == ["k", "l", "m"]


def test_conditions_wait_for_what_decides_them() -> None:
    source = of(
        first("k", "x", "a"),
        Loop(t, (Carry("go", "next"),), (copy("l", "x", "y"), first("m", "x", "next")), "go"),
        Branch("go", (copy("n", "x", "z"),), ()),
        Require("go", "message"),
    )
    flags = {name: Buffer(name, "bool", 1, "arena") for name in ("go", "next")}
    source = replace(source, buffers={**source.buffers, **flags})
    assert list(waits(shares(source).steps)) == ["Loop again", "Branch"]


def test_loops_that_gain_nothing_are_left_to_thread_0(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Axis("s", 64)
    loop = Loop(t, (Carry("a", "b"),), (copy("k", "a", "b", small),))
    body = copy("l", "x", "a"), loop, copy("m", "a", "y")
    assert waiting(*body) == ["k", "m"]
    monkeypatch.setattr(sharing, "WAIT", 10**6)
    monkeypatch.setattr(sharing, "WAKE", -(10**12))
    steps = shares(of(*body), False).steps
    assert list(waits(steps)) == ["Loop", "m"]
    assert [step.gain for step in steps] == [None, 0, None]


def test_loops_of_run_time_sizes_are_decided_by_each_call() -> None:
    axis = Axis("n", N)
    loop = Loop(t, (Carry("p", "q"),), (copy("k", "p", "q", axis),))
    (step,) = shares(of(loop, p=N, q=N)).steps
    assert str(step.gain).startswith("(") and not step.wait


def test_all_threads_see_a_failing_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "WAIT", 10**6)
    monkeypatch.setattr(sharing, "WAKE", -(10**12))
    loop = Loop(t, (), (first("k", "x", "ok"), Require("ok", "message")))
    source = of(copy("l", "x", "y"), loop)
    flag = Buffer("ok", "float32", 1, "arena")
    steps = shares(replace(source, buffers={**source.buffers, "ok": flag})).steps
    assert steps[1].gain is None and list(waits(steps)) == ["k", "Require"]


def test_programs_that_gain_nothing_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    source = of(copy("k", "x", "y"))
    assert share(source, plan(source), 1) is None
    assert share(source, plan(source), 2) is not None
    monkeypatch.setattr(sharing, "WAKE", 10**12)
    assert share(source, plan(source), 2) is None
    source = of(first("k", "x", "y"))
    assert share(source, plan(source), 2) is None


def product(rows: int, columns: int, tile: Tile, *extra: Axis) -> Kernel:
    """A product of matrices with this tile, whose axes are `r`, `o`, and its lanes."""
    k = Axis("k", 64)
    reduce = Reduce((k,), "sum", at("x", (k, 1)), at("x", (k, 1)))
    axes = (*extra, Axis("r", rows), Axis("o", columns), Axis("v", 16))
    return Kernel("m", axes, (reduce,), (store("y", Reduced(0, "float32")),), tile=tile)


def tile_of(rows: int, columns: int, height: int) -> Tile:
    block, lane, row = Axis("o", columns), Axis("v", 16), Axis("r", rows)
    return Tile(lane, 16, 1, block, None, row, height)


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "expected"),
    [
        (1, 8, 2, Part(Axis("o", 8))),
        (100, 8, 2, Part(Axis("o", 8))),
        (100, 3, 2, Part(Axis("r", 100), 4)),
        (4, 3, 2, Part(Axis("o", 3))),
        (100, 1, 2, Part(Axis("r", 100), 4)),
        (100, 3, 16, Part(Axis("r", 100), 4)),
        (4, 1, 2, None),
        (5, 1, 2, Part(Axis("r", 5), 4)),
    ],
)
def test_groups_of_lanes_are_dealt_out_and_rows_where_there_are_few(
    rows: int, columns: int, threads: int, expected: Part | None
) -> None:
    assert part_of(product(rows, columns, tile_of(rows, columns, 4)), threads) == expected


@pytest.mark.parametrize(("rows", "axis"), [(400, "r"), (40, "o")])
def test_rows_are_dealt_out_where_they_are_more_bytes_than_weights(rows: int, axis: str) -> None:
    kernel = product(rows, 8, tile_of(rows, 8, 4))
    k, r, o, v = Axis("k", 64), *kernel.axes
    x, w = at("x", (r, 64), (k, 1)), at("x", (o, 1024), (k, 16), (v, 1))
    part = part_of(replace(kernel, reductions=(Reduce((k,), "sum", x, w),)), 2)
    assert part is not None and part.axis.name == axis


def test_values_are_dealt_out_in_whole_pieces_of_memory() -> None:
    o, r, v = Axis("o", 2), Axis("r", 100), Axis("v", 16)
    stored = store("y", at("x"), (o, 16), (r, 32), (v, 1))
    kernel = Kernel("p", (o, r, v), (), (stored,), tile=Tile(v, 16, 1, o))
    assert part_of(kernel, 2) == Part(r)


def test_an_axis_of_one_point_is_not_divided() -> None:
    o, r = Axis("o", 1), Axis("r", 1)
    kernel = Kernel("p", (o, r), (), (store("y", at("x"), (o, 16), (r, 1)),))
    assert part_of(kernel, 2) is None


def test_what_runs_in_order_is_not_divided() -> None:
    both = product(100, 8, tile_of(100, 8, 4))
    in_order = replace(both, reductions=(), stores=(store("y", at("x")),))
    assert part_of(in_order, 2) is not None
    assert part_of(replace(in_order, ordered=in_order.axes[:2]), 2) is None


def test_rows_of_either_axis_are_dealt_out_in_whole_tiles() -> None:
    other = Axis("s", N)
    tile = replace(tile_of(1, 1, 4), other=other)
    assert part_of(product(1, 1, tile, other), 2) == Part(other, 4)


def test_a_single_thread_waits_for_nobody() -> None:
    body = copy("k", "x", "a"), Loop(t, (), (copy("l", "a", "y"),))
    steps = undivided(body)
    assert [step.statement for step in steps] == list(body)
    assert [step.statement for step in steps[1].inner[0]] == [body[1].body[0]]
    assert list(waits(steps)) == []
