"""Libraries that `ostinato.build` writes, as C programs on each machine: the bits of a session."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.demo import MODEL
from tests.cases.table import CASES
from tools.programs import MACHINES, Built, Machine, Unavailable
from tools.target_models import gru_decoder, integers

pytestmark = pytest.mark.targets

# Warnings are errors, and so is what the sanitizers find in the program's use of the library.
SANITIZED = "cc -std=c99 -O1 -g -Wall -Wextra -pedantic -Werror -fsanitize=address,undefined"
# Kinds of kernels, states and sizes; programs of a case take its first sizes.
NAMES = "GRU-plain LSTM-lengths Softmax-runtime TopK-ties Conv-batch MatMulInteger-rows counted-3"
SELECTED = [case for case in CASES if case.name in NAMES.split()]
NATIVE = Machine("this machine", "x86-64-v3")


def check(
    model: Any, states: Any, calls: list[dict[str, Any]], machine: Machine, compiler: str = ""
) -> None:
    """A program of the library gives what a session gives."""
    session = ostinato.InferenceSession(model)
    if states:
        stream = session.stream(states)
        names = [o.name for o in session.get_outputs() if o.name not in states.values()]
        expected = [dict(zip(names, stream.step(feeds), strict=True)) for feeds in calls]
    else:
        names = [output.name for output in session.get_outputs()]
        expected = [dict(zip(names, session.run(None, feeds), strict=True)) for feeds in calls]
    shapes = {name: [made[name].shape for made in expected] for name in names}
    try:
        found = Built.of(model, machine.target, states, calls).results(shapes, machine, compiler)
    except Unavailable as error:
        pytest.skip(str(error))
    for made, wanted in zip(found, expected, strict=True):
        for name in names:
            same = np.array_equal(
                made[name], wanted[name], equal_nan=wanted[name].dtype.kind == "f"
            )
            assert same, name


def denoiser_calls(steps: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"magnitude": rng.random((1, 1, 161), np.float32)} for _ in range(steps)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.target)
def test_a_stream_has_the_same_bits_everywhere(machine: Machine) -> None:
    check(MODEL, {"state": "state_out"}, denoiser_calls(10), machine)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.target)
@pytest.mark.parametrize("make", [gru_decoder, integers])
def test_loops_and_integers_have_the_same_bits_everywhere(make: Any, machine: Machine) -> None:
    model, calls = make()
    check(model, None, calls, machine)


@pytest.mark.parametrize("case", SELECTED, ids=[case.name for case in SELECTED])
def test_programs_are_clean(case: Any) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    check(case.model, None, [dict(case.feeds(case.sizes[0]))], NATIVE, SANITIZED)


def test_a_stream_is_clean() -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    check(onnx.load(MODEL), {"state": "state_out"}, denoiser_calls(5), NATIVE, SANITIZED)
