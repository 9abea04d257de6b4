"""Every value that passes from kernel to kernel through memory is listed, with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from ostinato.codegen.target import host_target
from ostinato.model.load import load_model
from ostinato.passes.pipeline import run_passes
from ostinato.program.expr import Axis, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Program, Stmt, bodies, statements
from ostinato.schedule.fuse import Refusal, fuse
from ostinato.schedule.joining import IN_PARTS
from ostinato.schedule.pipeline import schedule
from ostinato.schedule.unfused_pairs import UnfusedPair, unfused_pairs
from ostinato.stages.partition import Segment, partition
from tests.cases import gradients
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import REGISTERS, cell, pointwise

# Some of the cases of ops, and every model of several nodes. Gradients have many, and take
# long to make.
SOME = [
    case
    for n, case in enumerate(CASES)
    if n % 12 == 0 or case in gradients.CASES or len(case.model.graph.node) > 2
]


def in_order(body: tuple[Stmt, ...]) -> Iterator[tuple[Kernel, Kernel]]:
    """Pairs of kernels of one list: a reader, and the only writer before it of what it reads."""
    written: dict[str, list[Stmt]] = {}
    for statement in body:
        for name in sorted(statement.reads()):
            if isinstance(statement, Kernel) and name in written:
                (*others, writer) = written[name]
                if not others and isinstance(writer, Kernel):
                    yield writer, statement
        for name in statement.writes():
            written.setdefault(name, []).append(statement)
        for inner in bodies(statement):
            yield from in_order(inner)


def programs(case: Case) -> Iterator[Program]:
    model = load_model(case.model)
    run_passes(model)
    parts = partition(model, fallback=True).parts
    return (part.program for part in parts if isinstance(part, Segment))


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_every_pair_has_a_reason(case: Case) -> None:
    for source in programs(case):
        # Copies and tables are meant to stay apart; blocks, and what is one in the end, have other
        # names.
        disable = ("by_blocks", "byte_tables", "relayout", "store_in_place", "widen_bytes")
        scheduled = schedule(source, host_target().machine, disable)
        reasons = {(p.producer.name, p.consumer.name): p.reason for p in scheduled.unfused_pairs}
        kernels = list(scheduled.program.kernels())
        for writer, reader in in_order(scheduled.program.body):
            passed = writer.writes() & reader.reads()
            # Rows of a state may change places behind their last reader.
            if not any(kernel.writes() & passed for kernel in kernels if kernel is not writer):
                assert reasons[writer.name, reader.name] != IN_PARTS
        names = {kernel.name for kernel in kernels}
        for pair in scheduled.unfused_pairs:
            assert {pair.producer.name, pair.consumer.name} <= names
            assert pair.reason and pair.bytes != 0
        listed = {(p.producer.name, p.consumer.name, p.buffer) for p in scheduled.unfused_pairs}
        if any(isinstance(s, Branch) for s in statements(scheduled.program.body)):
            continue  # what one way of a branch writes does not reach the other
        for writer, reader in combinations(kernels, 2):
            for buffer in writer.writes() & reader.reads():
                assert (writer.name, reader.name, buffer) in listed


def pairs(source: Program, disable: tuple[str, ...] = ()) -> dict[tuple[str, str], UnfusedPair]:
    """By the last of the nodes of writer and reader."""
    found = schedule(source, REGISTERS[0], disable).unfused_pairs
    ends = [(p.producer.sources or (p.producer.name,))[-1] for p in found]
    starts = [(p.consumer.sources or (p.consumer.name,))[-1] for p in found]
    return dict(zip(zip(ends, starts, strict=True), found, strict=True))


def test_loops() -> None:
    found = {key: pair.reason for key, pair in pairs(cell()).items()}
    assert found == {
        ("begin", "gates"): "the reader runs in every step of a loop, the writer once before them",
        ("begin", "end"): "a loop in between changes the value",
        ("input", "gates"): "the reader runs in every step of a loop, the writer once before them",
        ("gates", "out"): "the writer runs in the steps of a loop, the reader after them",
        ("gates", "end"): "the writer runs in the steps of a loop, the reader after them",
    }


def test_the_step_before() -> None:
    found = pairs(cell(), ("fuse",))
    assert found["gates", "state"].reason == "the reader uses the value of the step before"
    assert found["state", "gates"].reason == "pass fuse is disabled"


def test_bytes_are_those_of_a_run() -> None:
    i = Axis("i", 8)
    first = pointwise("first", op("exp", at("x", (i, 1))), "b", i)
    second = pointwise("second", op("neg", at("b", (i, 1))), "y", i)
    source = program({"x": (8,)}, {"y": (8,)}, (first, second), {}, {"b": 8})
    (pair,) = unfused_pairs(source, [Refusal("first", "second", "because")])
    assert (pair.buffer, pair.bytes, pair.reason) == ("b", 8 * 4, "because")
    assert unfused_pairs(fuse(source), []) == ()


def test_parts() -> None:
    h, i = Axis("h", 4), Axis("i", 8)
    halves = tuple(
        Kernel(f"p{n}", (h,), (), (store("b", op("exp", at("x", (h, 1))), (h, 1), offset=4 * n),))
        for n in (0, 1)
    )
    reader = pointwise("c", op("neg", at("b", (i, 1))), "y", i)
    source = program({"x": (8,)}, {"y": (8,)}, (*halves, reader), {}, {"b": 8})
    found: list[Refusal] = []
    assert [p.reason for p in unfused_pairs(fuse(source, found), found)] == [IN_PARTS, IN_PARTS]
