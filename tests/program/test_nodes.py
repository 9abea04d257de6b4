from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Buffer, Carry, Loop, expand_kernels, map_kernels, reduced
from tests.program.programs import at, program, store

X = Axis("x", 4)


def copy(source: str, target: str) -> Kernel:
    return Kernel(f"{source} to {target}", (X,), (), (store(target, at(source, (X, 1)), (X, 1)),))


LOOP = Loop(Axis("t", 3), (Carry("h", "g"),), (copy("h", "g"),))
BRANCH = Branch("yes", (copy("x", "a"),), (copy("h", "a"),))
BODY = (copy("x", "h"), LOOP, BRANCH, copy("a", "y"))
ARENA = {"h": 4, "g": 4, "a": 4}


def test_what_does_not_change_stays_the_same_object() -> None:
    source = program({"x": (4,), "yes": ()}, {"y": (4,)}, BODY, arena={**ARENA, "unused": 4})
    trimmed = source.with_body(BODY)
    assert "unused" not in trimmed.buffers
    assert trimmed.with_body(map_kernels(BODY, lambda kernel: kernel)) is trimmed
    buffers = {**trimmed.buffers, "other": Buffer("other", "float32", 4, "arena")}
    assert replace(trimmed, buffers=buffers).with_body(BODY).buffers == trimmed.buffers
    assert trimmed.with_body(BODY, buffers).buffers == trimmed.buffers
    assert trimmed.with_body(BODY, dict(trimmed.buffers), dict(trimmed.constants)) is trimmed
    larger = {**trimmed.buffers, "a": replace(trimmed.buffers["a"], size=8)}
    assert trimmed.with_body(BODY, larger).buffers == larger


def test_what_changes_inside_is_another_statement() -> None:
    def renamed(kernel: Kernel) -> Kernel:
        return replace(kernel, name="new") if kernel.name in ("h to g", "h to a") else kernel

    first, loop, branch, last = map_kernels(BODY, renamed)
    assert first is BODY[0] and last is BODY[-1]
    assert isinstance(loop, Loop) and loop.body[0].name == "new"
    assert isinstance(branch, Branch) and branch.then == BRANCH.then
    assert branch.orelse[0].name == "new"


def test_what_has_nothing_left_in_it_goes() -> None:
    def without(kernel: Kernel) -> list[Kernel]:
        return [] if kernel.name == "h to g" else [kernel]

    first, branch, last = reduced(BODY, without, lambda carry: None)
    assert (first, branch, last) == (BODY[0], BRANCH, BODY[3])
    (kept,) = reduced((LOOP,), lambda kernel: [kernel, kernel], lambda carry: carry)
    assert kept == replace(LOOP, body=(*LOOP.body, *LOOP.body))
    assert expand_kernels((LOOP,), without) == (replace(LOOP, body=()),)
    assert LOOP.carried == {"h", "g"}
