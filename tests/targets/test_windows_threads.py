"""Threads of compiled code under wine: its kernel32 in place of a fake one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato
from ostinato.codegen.target import find_target
from ostinato.compiler import compile_model
from ostinato.options import Options
from ostinato.stages.stage import NativeStage
from tests.native.recurrence import feeds, gru
from tests.native.test_threads import eager, steadfast
from tools import programs

__all__ = ["eager", "steadfast"]
pytestmark = pytest.mark.targets


@pytest.mark.usefixtures("eager")
def test_two_threads_have_the_bits_of_one(tmp_path: Path) -> None:
    model, given = gru(64), feeds(64, 3)
    (expected, _) = ostinato.InferenceSession(model, cache_dir=None).run(None, given)
    made = compile_model(model, Options(target="windows", threads=2, cache_dir=None))
    (stage,) = made.stages
    assert isinstance(stage, NativeStage)
    for name, contents in {
        "model.o": stage.artifact.object_code,
        "weights": np.asarray(stage.artifact.constants).tobytes(),
        "x": given["x"].tobytes(),
        "h": given["h"].tobytes(),
    }.items():
        (tmp_path / name).write_bytes(contents)
    source = str(Path(__file__).with_name("team.c"))
    try:
        program = programs.compiled(find_target("windows"), tmp_path, [source, "model.o"])
        printed = programs.run(program, ["weights", "x", "h", "y"])
    except programs.Unavailable as error:
        pytest.skip(str(error))
    assert (tmp_path / "y").read_bytes() == expected.tobytes()
    assert int(printed) == 8
