"""Which loops are dealt out among threads, and what of it each of them has its own of."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Loop, Program, statements
from ostinato.program.printer import text
from ostinato.program.verify import ProgramError, verify
from ostinato.schedule import share as sharing
from ostinato.schedule.arena import plan
from ostinato.schedule.blocks import by_blocks as by_blocks_for
from ostinato.schedule.deal import deal
from ostinato.schedule.share import share
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_blocks import attention
from tests.schedule.test_pipeline import assert_same_results

by_blocks = partial(by_blocks_for, machine=Machine(64, 32, second_level_bytes=4096))
SCRATCH = {"s.block", "e.block", "t.block"}


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waking and the least gain count nothing, so that programs can be small."""
    monkeypatch.setattr(sharing, "LEAST", 1)
    monkeypatch.setattr(sharing, "WAKE", 0)


def dealt(source: Program) -> list[Loop]:
    return [s for s in statements(source.body) if isinstance(s, Loop) and s.scratch is not None]


@pytest.mark.parametrize(
    ("heads", "rows", "extents"), [(4, 48, [4]), (1, 48, [2]), (3, 48, [2]), (3, 24, [3])]
)
def test_the_loop_is_dealt_out_that_keeps_threads_busy(heads, rows, extents):
    source = attention(rows, 16, heads)
    changed = deal(by_blocks(source), 2)
    assert [loop.axis.extent for loop in dealt(changed)] == extents
    assert all(loop.scratch == SCRATCH for loop in dealt(changed))
    verify(changed)
    assert_same_results(source, changed)
    assert "dealt out with e.block, s.block, t.block" in text(changed)


def test_run_time_sizes_are_dealt_out():
    changed = deal(by_blocks(attention(symbol("N"), 16, 4)), 2)
    assert [loop.axis.extent for loop in dealt(changed)] == [4]


def test_one_thread_deals_with_nobody():
    source = by_blocks(attention(48, 16, 4))
    assert deal(source, 1) is source


def rows(last: tuple[Kernel, ...] = (), independent: bool = True) -> Program:
    """A loop over rows whose steps pass `s` on, and a row of `a` behind which others may follow."""
    i, j = Axis("i", 4), Axis("j", 4096)
    there = Kernel("there", (j,), (), (store("s", at("x", (i, 4096), (j, 1)), (j, 1)),))
    back = Kernel("back", (j,), (), (store("a", at("s", (j, 1)), (i, 4096), (j, 1)),))
    loop = Loop(i, (), (there, back), is_independent=independent)
    body = (loop, Kernel("out", (j,), (), (store("y", at("a", (j, 1)), (j, 1)),)), *last)
    return program(
        {"x": (4, 4096)}, {"y": (4096,), "z": (4096,)}, body, arena={"s": 4096, "a": 4 * 4096}
    )


def test_only_what_a_step_writes_for_itself_is_scratch():
    (loop,) = dealt(deal(rows(), 2))
    assert loop.scratch == {"s"}


def test_steps_that_may_depend_on_each_other_are_not_dealt_out():
    assert not dealt(deal(rows(independent=False), 2))


def test_what_others_read_is_no_scratch():
    j = Axis("j", 4096)
    reader = Kernel("reader", (j,), (), (store("z", at("s", (j, 1)), (j, 1)),))
    source = rows((reader,))
    assert not dealt(deal(source, 2))
    loop, *others = source.body
    with pytest.raises(ProgramError, match="scratch 's' is no buffer of its own"):
        verify(source.with_body((replace(loop, scratch=frozenset("s")), *others)))


def test_dependent_steps_have_no_scratch():
    loop, *others = rows(independent=False).body
    source = rows().with_body((replace(loop, scratch=frozenset("s")), *others))
    with pytest.raises(ProgramError, match="steps that depend on each other are dealt out"):
        verify(source)


def test_threads_wait_for_nobody_inside(monkeypatch):
    source = deal(rows(), 2)
    monkeypatch.setattr(sharing, "WAIT", 1)
    shares = share(source, plan(source, threads=2), 2)
    loop, out = shares.steps
    assert not any(step.wait for step in loop.inner[0]) and out.wait
    assert not {"there", "back"} & shares.parts.keys()


def test_copies_of_scratch_lie_apart_from_all_that_steps_touch():
    """Threads are at different places of the loop: nothing inside takes the place of another."""
    source = deal(by_blocks(attention(48, 16, 4)), 3)
    arena = plan(source, threads=3)
    spans = sorted(
        (start, start + (3 * arena.strides[name] if name in arena.strides else 0))
        for name, start in arena.offsets.items()
    )
    assert arena.strides.keys() == SCRATCH
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert spans[-1][1] <= arena.size
