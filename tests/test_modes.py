"""Every case: its values, and that they have the same bits in every mode of the compiler."""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import pytest

import ostinato
import ostinato.compiler
from ostinato.codegen.target import host_target
from ostinato.compiler import optional_passes
from ostinato.machine.record import Machine
from ostinato.native import function as native
from ostinato.native import memory
from ostinato.program import interpreter
from ostinato.schedule.pipeline import SCHEDULE_PASSES
from tests import unoptimized
from tests.cases.case import Array, Case
from tests.cases.table import CASES, NAMES
from tests.digests import RECORDED, digest
from tests.one_model import OneModel
from tests.values import Runs, check_onnxruntime, check_oracle

CHUNKS = (1, 3, 7)
# The interpreter evaluates points in NumPy; more than these would only take long.
MOST_ELEMENTS = 20_000
# So many cases of one operator share out the modes, two or three for each; so many, one for each.
SEVERAL, MANY = 3, 6
# Bytes and number of vector registers.
AVX2, SHORT = (32, 16), (16, 32)


def session(case: Case, **options: Any) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(case.model, cache_dir=None, **options)


class Guards:
    """Memory with a margin of known bytes before and after it."""

    MARGIN, BYTE, FILLED = 256, 0xA5, 1 << 20
    # As bytes, which are compared in a twentieth of the time.
    INTACT = bytes([BYTE]) * MARGIN

    def __init__(self) -> None:
        self._blocks: list[Array] = []

    def allocate(self, size: int) -> Array:
        block = memory.aligned_empty(size + 2 * self.MARGIN)
        # All of what is not large, so that nothing that was left there may be read. Growing states
        # have gigabytes set aside for them that nobody touches.
        block[: self.FILLED] = block[-self.MARGIN :] = self.BYTE
        self._blocks.append(block)
        return block[self.MARGIN : self.MARGIN + size]

    def like(self, array: Array) -> Array:
        return self.allocate(array.nbytes).view(array.dtype).reshape(array.shape)

    def check(self, mode: str) -> None:
        for block in self._blocks:
            for margin in (block[: self.MARGIN], block[-self.MARGIN :]):
                if margin.tobytes() != self.INTACT:
                    margin[:] = self.BYTE
                    raise AssertionError(f"{mode}: compiled code wrote outside its memory")


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> Guards:
    """Guards around the arenas of all sessions."""
    found = Guards()
    monkeypatch.setattr(native, "aligned_empty", found.allocate)
    # All of it is written, what is only reserved as well.
    monkeypatch.setattr(memory, "RESERVED", 1 << 20)
    return found


def guarded_run(
    session: ostinato.InferenceSession, feeds: dict[str, Array], like: list[Array], guards: Guards
) -> list[Array]:
    """The outputs, written between margins where they have the shape of `like`."""
    out = {
        output.name: guards.like(array)
        for output, array in zip(session.get_outputs(), like, strict=True)
    }
    return session.run(None, feeds, out=out)


def assert_same_bits(got: list[Array], expected: list[Array], mode: str) -> None:
    assert len(got) == len(expected)
    for position, (a, b) in enumerate(zip(got, expected, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        where = f"{mode}, output {position}"
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        if a.dtype.kind == "f":
            bits = f"u{a.dtype.itemsize}"
            same = (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))
        else:
            same = a == b
        if not same.all():
            first = tuple(int(i) for i in np.argwhere(~same)[0])
            raise AssertionError(
                f"{where}: {np.count_nonzero(~same)} of {same.size} elements differ, first at "
                f"{first}: {a[first]!r}, not {b[first]!r}"
            )


EVERY_MODE = [case for case in CASES if case.every_mode]
OTHERS = [case for case in CASES if not case.every_mode]

# What runs of a session must give: its mode, and the sizes that are baked in, if any.
Check: TypeAlias = Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Turn:
    """The modes that a case is run in, beside those that every case is.

    without: which optional passes are left out, one after the other: `ALL`, or one of the halves.
    narrow, short: whether with registers of half the width, and with those of the shortest.
    baked: whether with sizes baked in, for this machine.
    """

    without: tuple[int, ...] = ()
    narrow: bool = False
    short: bool = False
    baked: bool = False


ALL, HALVES = -1, (0, 1)
EACH = (
    *(Turn((one,)) for one in (ALL, *HALVES)),
    Turn(narrow=True),
    Turn(short=True),
    Turn(baked=True),
)


def taken_turns(cases: Sequence[Case]) -> dict[str, Turn]:
    """The modes of each case: one after the other where an operator has many.

    Cases of several operators take two or three modes each, cases of an operator that has few take
    all.
    """
    count = Counter(case.operator for case in cases)
    number: Counter[str | None] = Counter()
    turns = {}
    # In no order that a table of cases may have.
    for case in sorted(cases, key=lambda case: zlib.crc32(case.name.encode())):
        place = number[case.operator]
        number[case.operator] += 1
        if count[case.operator] < SEVERAL:
            turn = Turn((ALL, *HALVES), True, True, True)
        elif case.operator is None or count[case.operator] < MANY:
            # Of each, one may be with either registers.
            without, first = ((ALL, *HALVES)[place % 3],), place % 2 == 0
            turn = Turn(without, first, not first, not first)
        else:
            turn = EACH[place % len(EACH)]
        turns[case.name] = turn
    return turns


TURNS = taken_turns(EVERY_MODE)


def of_names(cases: Sequence[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def run_by_default(
    case: Case, one: OneModel, guards: Guards
) -> tuple[ostinato.InferenceSession, Runs, list[list[Array]]]:
    """A session, the feeds and sizes of its runs, and the results: right, and those recorded."""
    with one.watched():
        default = ostinato.InferenceSession(case.model, fallback=not case.at_once)
    loaded = ostinato.InferenceSession(case.model, fallback=not case.at_once)
    native = not default.report().interpreted
    assert native or not case.native, default.report().interpreted
    runs = [(case.feeds(sizes), sizes) for sizes in case.sizes]
    expected = [default.run(None, feeds) for feeds, _ in runs]
    guards.check("by default")
    for (feeds, _), results in zip(runs, expected, strict=True):
        assert_same_bits(loaded.run(None, feeds), results, "loaded from the cache")
    check_oracle(case, runs, expected)
    if native:
        assert digest(expected) == RECORDED.get(case.name), "see python -m tools.digests"
    return default, runs, expected


@of_names(OTHERS)
def test_other_cases_have_the_same_bits_however_they_are_cut(case: Case, guards: Guards) -> None:
    default, runs, expected = run_by_default(case, OneModel(case.model), guards)
    check_parts(case, default, runs, expected)
    if case.witness:
        check_onnxruntime(case, runs, expected)


@of_names(EVERY_MODE)
def test_every_mode_has_the_same_bits(
    case: Case, monkeypatch: pytest.MonkeyPatch, guards: Guards
) -> None:
    one = OneModel(case.model)
    default, runs, expected = run_by_default(case, one, guards)

    def check(
        other: ostinato.InferenceSession, mode: str, baked: Mapping[str, int] | None = None
    ) -> None:
        for (feeds, sizes), results in zip(runs, expected, strict=True):
            if baked is None or named_inputs(default, sizes) == baked:
                where = f"{mode} {dict(sizes)}"
                got = guarded_run(other, feeds, results, guards)
                guards.check(where)
                assert_same_bits(got, results, where)

    check(default, "a second run")
    turn = TURNS[case.name]
    with monkeypatch.context() as patch:
        # LLVM's optimizations change no bit either.
        patch.setattr(ostinato.compiler, "emit_object", unoptimized.emit_object)
        check_passes(case, default, one, check, turn)
        check_targets(case, one, check, turn, [named_inputs(default, sizes) for _, sizes in runs])
    if one.programs:
        check_interpreter(case, one, runs, expected)
    check_parts(case, default, runs, expected)
    if case.witness:
        check_onnxruntime(case, runs, expected)


def check_parts(
    case: Case, default: ostinato.InferenceSession, runs: Runs, expected: list[list[Array]]
) -> None:
    if case.batch:
        check_batch(case, default, runs, expected)
    if case.states is not None:
        check_chunks(case, default, runs, expected)


def code_of(one: OneModel, machine: Machine, disable: Sequence[str] = ()) -> list[Any]:
    """What the code depends on that this way of scheduling makes."""
    scheduled = [one.schedule(program, machine, disable) for program in one.compiled]
    return [(state.program.body, state.arena) for state in scheduled]


def check_passes(
    case: Case, default: ostinato.InferenceSession, one: OneModel, check: Check, turn: Turn
) -> None:
    """Without any pass, without one half of them, or without the other half."""
    if not turn.without:
        return
    machine = host_target().machine
    # A pass that changed nothing makes no difference when it is left out.
    found = {name for name, changes in default.report()["passes"].items() if changes}
    scheduling = {item.name for item in SCHEDULE_PASSES}
    names = [name for name in optional_passes() if name in found | scheduling]
    random.Random(case.name).shuffle(names)
    known = [code_of(one, machine)]
    for half in turn.without:
        left_out = optional_passes() if half == ALL else tuple(names[half::2])
        start: AbstractContextManager[None] = nullcontext()
        if one.programs and found.isdisjoint(left_out):
            # Several passes may lead to the very same code, and so may leaving some out.
            code = code_of(one, machine, left_out)
            if code in known:
                continue
            known.append(code)
            start = one.compiled_from_here()
        with start:
            check(session(case, disable=left_out), f"without {', '.join(left_out)}")


def check_targets(
    case: Case, one: OneModel, check: Check, turn: Turn, sizes: Sequence[dict[str, int]]
) -> None:
    """With the registers of other machines, and with sizes that are baked in."""
    baked = [names for i, names in enumerate(sizes) if names and names not in sizes[:i]]
    random.Random(case.name).shuffle(baked)
    first, second = (unoptimized.with_registers(*size) for size in (AVX2, SHORT))
    here = host_target()
    modes = [(first, None)] if turn.narrow else []
    # Without sizes to bake in, a case takes its turn with short registers.
    if turn.short or (turn.baked and not baked):
        modes += [(second, baked[1] if len(baked) > 1 else None)]
    if turn.baked:
        modes += [(here, names) for names in baked[:1]]
    for target, names in modes:
        mode = f"registers of {target.machine.vector_bytes} bytes"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ostinato.compiler, "find_target", lambda _, target=target: target)
            if names is not None:
                check(session(case, specialize=names), f"{mode}, specialised", names)
            elif not one.programs or code_of(one, target.machine) != code_of(one, here.machine):
                with one.compiled_from_here():
                    check(session(case), mode)


def named_inputs(session: ostinato.InferenceSession, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that are dimensions of the model's inputs."""
    names = {n for one in session.get_inputs() for n in one.shape if isinstance(n, str)}
    return {name: size for name, size in sizes.items() if name in names}


def check_interpreter(
    case: Case,
    one: OneModel,
    runs: Runs,
    expected: list[list[Array]],
) -> None:
    machine = host_target().machine
    scheduled = [one.schedule(program, machine).program for program in one.programs]
    few = [
        (feeds, sizes, results)
        for (feeds, sizes), results in zip(runs, expected, strict=True)
        if sum(np.size(a) for a in (*feeds.values(), *results)) <= MOST_ELEMENTS
    ]
    floors = (one.programs, "lowered"), (scheduled, "scheduled")
    for number, (feeds, sizes, results) in enumerate(few):
        # One floor after the other, and a single run on both.
        for programs, mode in floors if len(few) == 1 else [floors[(number + 1) % 2]]:
            values = dict(feeds)
            for program in programs:
                values |= interpreter.run(program, {i.name: values[i.name] for i in program.inputs})
            got = [values[output.name] for output in case.model.graph.output]
            assert_same_bits(got, results, f"{mode} program in the interpreter {dict(sizes)}")


def cut(
    case: Case, feeds: dict[str, Array], dimension: str, start: int, stop: int
) -> dict[str, Array]:
    """The feeds restricted to a range of a named dimension."""
    return {
        name: array.take(range(start, stop), case.inputs[name].shape.index(dimension))
        if dimension in case.inputs[name].shape
        else array
        for name, array in feeds.items()
    }


def check_batch(
    case: Case,
    default: ostinato.InferenceSession,
    runs: Runs,
    expected: list[list[Array]],
) -> None:
    shapes = [output.shape for output in default.get_outputs()]
    for (feeds, sizes), results in zip(runs, expected, strict=True):
        rows = [default.run(None, cut(case, feeds, "N", n, n + 1)) for n in range(sizes["N"])]
        for position, whole in enumerate(results):
            if rows:
                parts = [row[position] for row in rows]
                joined = np.concatenate(parts, batch_axis(shapes[position]))
                assert_same_bits([joined], [whole], f"row by row {dict(sizes)}")


def batch_axis(shape: list[int | str]) -> int:
    assert "N" in shape, f"a case with batch=True has an output of shape {shape}"
    return shape.index("N")


def check_chunks(
    case: Case,
    default: ostinato.InferenceSession,
    runs: Runs,
    expected: list[list[Array]],
) -> None:
    names = [output.name for output in default.get_outputs()]
    assert case.states is not None
    for (feeds, sizes), results in zip(runs, expected, strict=True):
        for chunk in CHUNKS:
            state = {name: feeds[name] for name in case.states}
            pieces: list[dict[str, Array]] = []
            for start in range(0, sizes["S"], chunk):
                part = cut(case, feeds, "S", start, min(start + chunk, sizes["S"]))
                pieces.append(dict(zip(names, default.run(None, {**part, **state}), strict=True)))
                state = {name: pieces[-1][output] for name, output in case.states.items()}
            for name, whole in zip(names, results, strict=True):
                if not pieces:
                    continue
                if name in case.states.values():
                    got = pieces[-1][name]
                else:
                    axis = default.get_outputs()[names.index(name)].shape.index("S")
                    got = np.concatenate([piece[name] for piece in pieces], axis)
                assert_same_bits([got], [whole], f"chunks of {chunk}, {dict(sizes)}")


def test_the_table_names_every_case_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
