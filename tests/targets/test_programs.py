"""Libraries that `ostinato.build` writes, as C programs on each machine: the bits of a session."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import ostinato
from tests.aot import models
from tests.cases.table import CASES
from tools.programs import Built, Machine, Unavailable
from tools.target_models import denoiser
from tools.targets import tables

pytestmark = pytest.mark.targets

# Warnings are errors, and so is what the sanitizers find in the program's use of the library.
SANITIZED = "cc -std=c99 -O1 -g -Wall -Wextra -pedantic -Werror -fsanitize=address,undefined"
# Kinds of kernels, states and sizes; programs of a case take its first sizes.
NAMES = "GRU-plain LSTM-lengths Softmax-runtime TopK-ties Conv-batch MatMulInteger-rows counted-3"
NAMES += " int8-blocks-of-16-by-4-bits-of-runs"
SELECTED = [case for case in CASES if case.name in NAMES.split()]
NATIVE = Machine("this machine", "x86-64-v3")


def check(model: Any, states: Any, calls: list[dict[str, Any]]) -> None:
    """A program of the library, with sanitizers, gives what a session gives."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
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
        found = Built.of(model, NATIVE.target, states, calls).results(shapes, NATIVE, SANITIZED)
    except Unavailable as error:
        pytest.skip(str(error))
    for made, wanted in zip(found, expected, strict=True):
        for name in names:
            same = np.array_equal(
                made[name], wanted[name], equal_nan=wanted[name].dtype.kind == "f"
            )
            assert same, name


def test_models_have_the_same_bits_on_every_target() -> None:
    text, same, failures = tables(None)
    assert same, text
    if failures:
        pytest.skip("; ".join(failures))


@pytest.mark.parametrize("case", SELECTED, ids=[case.name for case in SELECTED])
def test_programs_are_clean(case: Any) -> None:
    check(case.model, None, [dict(case.feeds(case.sizes[0]))])


def test_states_that_grow_are_clean() -> None:
    tokens = np.random.default_rng(0).integers(0, 20, (9, 2, 1))
    check(models.DECODER, models.DECODER_STATES, [{"token": token} for token in tokens])


def test_a_stream_is_clean() -> None:
    model, states, calls = denoiser()
    check(model, states, calls[:5])
