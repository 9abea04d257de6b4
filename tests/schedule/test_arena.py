"""Memory is shared by values that are not alive together, and by no others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

from ostinato.program import interpreter
from ostinato.program.expr import Axis, constant, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Buffer, Carry, Interface, Loop, Program, Stmt
from ostinato.program.verify import verify
from ostinato.schedule.arena import ALIGNMENT, Arena, plan
from ostinato.sizes.dims import Size, symbol
from ostinato.sizes.substitution import evaluate
from tests.program.programs import at, program, store

N = symbol("N")
ITEM = 4
T = TypeVar("T")


def spans(source: Program, arena: Arena, n: int) -> dict[str, tuple[int, int]]:
    """First byte and end of every placed buffer where N is `n`."""
    return {
        name: (start, start + evaluate(source.buffers[name].size, {"N": n}) * ITEM)
        for name, offset in arena.offsets.items()
        for start in [evaluate(offset, {"N": n})]
    }


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


class Shared(interpreter._Memory):
    """The interpreter's memory, with the buffers of the arena where the plan puts them."""

    def __init__(self, source: Program, symbols: dict[str, int], inputs: Any) -> None:
        super().__init__(source, symbols, inputs)
        arena = plan(source)
        block = np.full(evaluate(arena.size, symbols), 0xFF, np.uint8)
        for name, (start, end) in spans(source, arena, symbols["N"]).items():
            assert start >= 0 and end <= block.size, f"{name} is outside of the arena"
            assert start % ALIGNMENT == 0
            self.data[name] = block[start:end].view(self.data[name].dtype)


def shared_run(source: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a run in one block of memory."""
    memory = Shared(source, {"N": inputs["n"].size}, inputs)
    interpreter._statements(source.body, memory, {})
    return {output.name: memory.output(output) for output in source.outputs}


class Drawer:
    """Draws a program: kernels, loops with states and rows, branches, nested in each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sizes: dict[str, Size] = {"x": 6, "n": N}
        self.count = 0

    def one_of(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def buffer(self, size: Size) -> str:
        name = self.name("b")
        self.sizes[name] = size
        return name

    def size(self) -> Size:
        return self.one_of([1, 5, 20, 64, N, N * 20, N + 33])

    def kernel(self, readable: list[str], target: str, *extra) -> Kernel:
        """target[i] = sums of elements of values that can be read, and something of its own."""
        i = Axis(self.name("i"), self.sizes[target])
        value = constant(float(self.count), "float32")
        for name in self.random.choices(readable, k=self.random.randint(1, 3)):
            size = self.sizes[name]
            value = op("add", value, at(name, (i, 1)) if size == i.extent else at(name))
        return Kernel(self.name("k"), (i,), (), (store(target, value, (i, 1), *extra),))

    def body(self, readable: list[str], depth: int) -> tuple[list[Stmt], list[str]]:
        """Statements, and what can be read behind them. Element 0 of all of it exists."""
        result: list[Stmt] = []
        readable = list(readable)
        for _ in range(self.random.randint(1, 4)):
            kind = self.one_of(["kernel", "kernel", "loop", "branch"])
            if kind == "loop" and depth:
                result += self.loop(readable, depth)
            elif kind == "branch" and depth:
                result += self.branch(readable, depth)
            else:
                target = self.buffer(self.size())
                result.append(self.kernel(readable, target))
                if target_has_elements(self.sizes[target]):
                    readable.append(target)
        return result, readable

    def loop(self, readable: list[str], depth: int) -> list[Stmt]:
        """A loop with states, one of whose steps may add a row; `readable` grows by its results."""
        axis = Axis(self.name("t"), self.one_of([0, 1, 2, 3, N]))
        carries, before = [], []
        for _ in range(self.random.randint(0, 2)):
            size = self.one_of([1, 5, 20])
            carry = Carry(self.buffer(size), self.buffer(size))
            before.append(self.kernel(readable, carry.state))
            carries.append(carry)
        inside, visible = self.body([*readable, *(c.state for c in carries)], depth - 1)
        rows = self.buffer(axis.extent * 5)
        width = Axis(self.name("r"), 5)
        source = self.one_of(visible)
        add = Kernel(
            self.name("k"), (width,), (), (store(rows, at(source), (axis, 5), (width, 1)),)
        )
        ends = [self.kernel(visible, carry.next) for carry in carries]
        loop = Loop(axis, tuple(carries), (*inside, add, *ends))
        readable += [carry.state for carry in carries]
        if target_has_elements(axis.extent):
            readable.append(rows)
        return [*before, loop]

    def branch(self, readable: list[str], depth: int) -> list[Stmt]:
        """Both sides write one buffer, which can be read behind them."""
        target = self.buffer(self.one_of([1, 5, 20]))
        sides = []
        for _ in range(2):
            inside, visible = self.body(readable, depth - 1)
            sides.append((*inside, self.kernel(visible, target)))
        condition = self.one_of(["yes", "no"])
        readable.append(target)
        return [Branch(condition, *sides)]

    def program(self) -> Program:
        body, readable = self.body(["x"], 3)
        self.sizes["y"] = 3
        last = [self.kernel(readable, "y")]
        while len(last) < 4:
            name = self.name("y")
            self.sizes[name] = 2
            last.append(self.kernel(readable, name))
        outputs = [kernel.stores[0].access.buffer for kernel in last]
        kinds = {"x": "input", "n": "input", **dict.fromkeys(outputs, "output")}
        buffers = {
            name: Buffer(name, "float32", size, kinds.get(name, "arena"))
            for name, size in self.sizes.items()
        }
        flags = {name: Buffer(name, "bool", 1, "input") for name in ("yes", "no")}
        inputs = [Interface("x", "x", "float32", (6,)), Interface("n", "n", "float32", (N,))]
        inputs += [Interface(name, name, "bool", ()) for name in flags]
        return Program(
            tuple(inputs),
            tuple(Interface(n, n, "float32", (self.sizes[n],)) for n in outputs),
            ("N",),
            buffers | flags,
            {},
            (*body, *last),
        )


def target_has_elements(size: Size) -> bool:
    """Whether element 0 exists for each N of the test, which may be 0."""
    return evaluate(size, {"N": 0}) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
def test_values_that_are_alive_together_never_share_memory(seed: int) -> None:
    """Random programs in one block of memory give what they give with memory for each value."""
    source = Drawer(seed).program()
    verify(source)
    arena = plan(source)
    x = np.arange(6, dtype=np.float32)
    for n in (0, 1, 3):
        feeds = {"x": x, "n": np.ones(n, np.float32), "yes": np.array(True), "no": np.array(False)}
        expected, got = interpreter.run(source, feeds), shared_run(source, feeds)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array)
        places = spans(source, arena, n)
        for kernel in source.kernels():
            touched = sorted((kernel.reads() | kernel.writes()) & places.keys())
            for position, one in enumerate(touched):
                for other in touched[position + 1 :]:
                    assert not overlap(places[one], places[other]), (kernel.name, one, other)


def test_the_property_test_sees_memory_that_is_shared_wrongly(monkeypatch):
    a, b, c = (Axis(name, 4) for name in "abc")
    body = (
        Kernel("one", (a,), (), (store("p", at("x", (a, 1)), (a, 1)),)),
        Kernel("two", (b,), (), (store("q", op("neg", at("x", (b, 1))), (b, 1)),)),
        Kernel("end", (c,), (), (store("y", op("add", at("p", (c, 1)), at("q", (c, 1))), (c, 1)),)),
    )
    source = program({"x": (4,), "n": (N,)}, {"y": (4,)}, body, None, {"p": 4, "q": 4}, ("N",))
    feeds = {"x": np.arange(1, 5, dtype=np.float32), "n": np.ones(1, np.float32)}
    np.testing.assert_array_equal(shared_run(source, feeds)["y"], np.zeros(4))
    monkeypatch.setattr(f"{__name__}.plan", lambda _: Arena({"p": 0, "q": 0}, 64))
    assert (shared_run(source, feeds)["y"] != 0).all()


def chain(*sizes: Size) -> Program:
    """Each value is made of the one before it."""
    names = [f"b{n}" for n in range(len(sizes))]
    kernels = []
    for n, (name, size) in enumerate(zip(names, sizes, strict=True)):
        i = Axis(f"i{n}", size)
        kernels.append(
            Kernel(f"k{n}", (i,), (), (store(name, at(names[n - 1] if n else "x"), (i, 1)),))
        )
    kernels.append(Kernel("end", (), (), (store("y", at(names[-1])),)))
    arena = dict(zip(names, sizes, strict=True))
    source = program({"x": (1,), "n": (N,)}, {"y": ()}, tuple(kernels), None, arena, ("N",))
    return source.with_body(source.body)


def test_two_places_serve_a_chain():
    arena = plan(chain(*[16] * 7))
    assert arena.size == 128
    assert set(arena.offsets.values()) == {0, 64}


def test_places_are_aligned_and_no_larger_than_the_largest_values():
    arena = plan(chain(1, 100, 1, 100, 1))
    assert arena.size == 448 + 64
    assert all(offset % ALIGNMENT == 0 for offset in arena.offsets.values())


def test_sizes_known_at_run_time_take_turns_among_equal_ones():
    arena = plan(chain(*[N] * 6))
    assert len(set(arena.offsets.values())) == 2
    for n, size in ((0, 0), (1, 128), (16, 128), (17, 256)):
        assert evaluate(arena.size, {"N": n}) == size


def test_sizes_that_can_be_compared_share_memory():
    assert plan(chain(*[16 * n * N for n in range(1, 50)])).size == 4 * 16 * (48 + 49) * N


def test_without_reuse_every_value_has_its_own_place():
    source = chain(16, 16, N, 16, N)
    arena = plan(source, reuse=False)
    assert len(set(arena.offsets.values())) == 5
    assert evaluate(arena.size, {"N": 16}) == 5 * 64


def test_outputs_and_constants_are_not_in_the_arena():
    source = chain(16)
    assert set(plan(source).offsets) == {"b0"}
    assert plan(replace(source, body=())).size == 0


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_what_a_later_step_reads_lives_during_the_whole_loop(count):
    """`p` is read in every step, so nothing that a step writes may lie where it does."""
    a, b, c, d, t = (*(Axis(n, 4) for n in "abcd"), Axis("t", count))
    total = op("add", at("h", (c, 1)), op("add", at("p", (c, 1)), at("q", (c, 1))))
    body = (
        Kernel("p", (a,), (), (store("p", at("x", (a, 1)), (a, 1)),)),
        Kernel("h", (b,), (), (store("h", at("x", (b, 1)), (b, 1)),)),
        Loop(
            t,
            (Carry("h", "g"),),
            (
                Kernel("q", (d,), (), (store("q", op("neg", at("h", (d, 1))), (d, 1)),)),
                Kernel("step", (c,), (), (store("g", total, (c, 1)),)),
                Kernel("s", (Axis("e", 4),), (), (store("s", at("x"), (Axis("e", 4), 1)),)),
            ),
        ),
        Kernel(
            "end", (Axis("f", 4),), (), (store("y", at("h", (Axis("f", 4), 1)), (Axis("f", 4), 1)),)
        ),
    )
    source = program(
        {"x": (4,), "n": (N,)}, {"y": (4,)}, body, None, dict.fromkeys("pqhgs", 4), ("N",)
    )
    arena = plan(source)
    for name in "qhgs":
        assert arena.offsets[name] != arena.offsets["p"]
    assert len({arena.offsets[name] for name in "phg"}) == 3
    feeds = {"x": np.arange(1, 5, dtype=np.float32), "n": np.ones(1, np.float32)}
    expected = interpreter.run(source, feeds)["y"]
    np.testing.assert_array_equal(shared_run(source, feeds)["y"], expected)


@pytest.mark.parametrize("size", [8, N])
def test_rows_that_steps_add_live_during_the_whole_loop(size: Size) -> None:
    """Nothing is written before the loop or read after it, but steps read what others wrote."""
    t = Axis("t", 8)

    def append(name: str) -> Kernel:
        return Kernel(name, (), (), (store(name, at("x", (t, 1)), (t, 1)),))

    def newest(name: str) -> Kernel:
        return Kernel(f"of {name}", (), (), (store("y", at(name), (t, 1)),))

    body = (Loop(t, (), (append("p"), newest("p"), append("q"), newest("q"))),)
    buffers = dict.fromkeys("pq", size)
    source = program({"x": (8,), "n": (N,)}, {"y": (8,)}, body, None, buffers, ("N",))
    first, second = (spans(source, plan(source), 8)[name] for name in "pq")
    assert not overlap(first, second)
