"""Kernels that are compiled in other processes while others are written."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import ostinato
import ostinato.compiler
from ostinato.codegen import units, workers
from ostinato.codegen.llvm import make_object
from ostinato.codegen.target import Target, host_target
from ostinato.codegen.workers import Workers
from tests.codegen.test_units import MODEL, X
from tests.golden import parse

LLVM = """
target triple = "{triple}"
define internal void @"kernel.{name}"(ptr %p) #0 {{
  store i64 {number}, ptr %p
  ret void
}}
attributes #0 = {{ noinline nounwind }}
"""


@pytest.fixture(autouse=True)
def short_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is worth a unit and a process already."""
    monkeypatch.setattr(units, "SHORTEST", 10)
    monkeypatch.setattr(workers, "WORTH", 10)


def texts(count: int) -> list[str]:
    triple = host_target().triple
    return [LLVM.format(triple=triple, name=f"k{n}", number=n) for n in range(count)]


def begun(objects: Workers, count: int) -> list[str]:
    """Units that the workers know of."""
    given = texts(count)
    for text in given:
        objects.begin(text)
    return [unit for text in given for unit in units.divide(text).kernels]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_objects_are_those_of_this_process(most: int) -> None:
    target = host_target()
    with Workers(target, None, most) as objects:
        known = begun(objects, 8)
        assert len(known) == len({*known}) == 8
        made = [objects(unit, target, make_object) for unit in known]
    assert made == [make_object(unit, target) for unit in known]


def test_a_process_makes_what_is_not_asked_for_yet() -> None:
    def refuse(text: str, target: Target) -> bytes:
        raise AssertionError("this process was asked")

    target = host_target()
    with Workers(target, None, 1) as objects:
        known = begun(objects, 3)
        # What waits is made here once the first object is needed: so they are awaited first.
        made = [objects._made[unit].result(60) for unit in known]
        assert [objects(unit, target, refuse) for unit in known] == made


def test_what_is_stored_is_not_compiled() -> None:
    def stored(text: str, target: Target, make: object) -> bytes:
        return text.encode()

    with Workers(host_target(), stored, 1) as objects:
        for unit in begun(objects, 3):
            assert objects(unit, host_target(), make_object) == unit.encode()
        assert objects._processes[0]._process is None


@pytest.mark.parametrize("program", ["exit(3)", "import sys; sys.stdin.buffer.read(9)", None])
def test_processes_that_fail_are_made_up_for(
    program: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program is None:
        monkeypatch.setattr(sys, "executable", os.path.join(os.sep, "nowhere", "python"))
    else:
        monkeypatch.setattr(workers, "_PROGRAM", program)
    with Workers(host_target(), None, 2) as objects:
        known = begun(objects, 4)
        made = [objects._made[unit].result(60) for unit in known]
    assert made == [make_object(unit, host_target()) for unit in known]


def test_a_program_that_embeds_python_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", os.path.join(os.sep, "usr", "bin", "application"))
    with Workers(host_target(), None, 1) as objects:
        known = begun(objects, 2)
        assert all(objects._made[unit].result(60) for unit in known)
        assert objects._processes[0]._process is None


def test_an_error_of_llvm_reaches_who_asks() -> None:
    wrong = LLVM.format(triple=host_target().triple, name="k", number="nonsense")
    with Workers(host_target(), None, 1) as objects:
        objects.begin(wrong)
        (unit,) = units.divide(wrong).kernels
        with pytest.raises(RuntimeError, match="nonsense"):
            objects._made[unit].result(60)
        with pytest.raises(RuntimeError, match="nonsense"):
            objects(unit, host_target(), make_object)


def test_who_leaves_early_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), Workers(host_target(), None, 1) as objects:
        known = begun(objects, 50)
        objects._made[known[0]].result(60)
        raise KeyboardInterrupt
    process = objects._processes[0]._process
    assert process is not None and process.wait(60) is not None
    assert not any(thread.is_alive() for thread in objects._threads)


def test_units_are_begun_as_they_will_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SHORTEST", 1000)
    monkeypatch.setattr(ostinato.compiler, "processors", lambda: 2)
    asked: list[tuple[str, bool]] = []
    ask = Workers.__call__

    def call(self: Workers, unit: str, target: Target, make: workers.Make) -> bytes:
        asked.append((unit, unit in self._made))
        return ask(self, unit, target, make)

    monkeypatch.setattr(Workers, "__call__", call)
    model = parse(MODEL.format(last="Sigmoid"))
    found = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": X})
    assert asked and all(known for _, known in asked)
    monkeypatch.setattr(ostinato.compiler, "processors", lambda: 1)
    for got, expected in zip(
        found, ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": X}), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
