"""The search in damaged files finds what is planted, and nothing in a short run."""

from __future__ import annotations

import faulthandler
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tools.fuzz import damage, files, guarded
from tools.fuzz.guarded import Outcome

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_a_short_run_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert files.run(seconds=300, seed=7, count=60, folder=tmp_path) == 0
    assert "60 loads, 0 failures" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def _planted(what: str) -> Any:
    """In place of an attempt: fails in models with a Neg that was damaged by an edit of a kind."""

    def attempt(path: Path, chance: random.Random) -> Outcome:
        model = onnx.ModelProto.FromString(path.read_bytes())
        if any(opset.version != 21 for opset in model.opset_import):
            if what == "crash":
                os.abort()
            if what == "hang":
                guarded.signal.setitimer(guarded.signal.ITIMER_PROF, 0.2)
                while True:
                    pass
            return Outcome("bare", "KeyError", "somewhere")
        return Outcome("ran")

    return attempt


@pytest.mark.parametrize("what", ["crash", "hang", "bare"])
def test_what_is_planted_is_found_and_made_small(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
    )
    edits = (("number", 1), ("version", 5), ("number", 3))
    assert damage.apply(model.SerializeToString(), edits[1:2]) != model.SerializeToString()
    plan = files.Attempt(0, edits, 5)
    monkeypatch.setattr(files, "models", lambda: (("m", model.SerializeToString()),))
    monkeypatch.setattr(files, "plan", lambda seed, number: plan)
    monkeypatch.setattr(guarded, "attempt", _planted(what))
    assert files.run(seconds=300, seed=0, count=3, folder=tmp_path) == 3
    (folder,) = tmp_path.iterdir()
    about = json.loads((folder / "about.json").read_text())
    assert about["outcome"]["kind"] == what
    assert about["edits"] == [["version", 5]]
    assert (folder / "model.onnx").exists()


def test_edits_are_the_same_every_time_and_apply_to_every_model() -> None:
    for number in range(300):
        one = files.plan(3, number)
        assert one == files.plan(3, number)
        data = files.models()[one.model][1]
        assert damage.apply(data, one.edits) == damage.apply(data, one.edits)


@pytest.mark.parametrize("place", ["before", "behind", "input"])
def test_a_touch_outside_of_a_buffer_ends_the_process(place: str) -> None:
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        guards = guarded.Guards(random.Random(0))
        array = guards.arena(4096)
        if place == "input":
            array = guards.copy(np.zeros(4096, np.uint8))
        address = array.ctypes.data + {"before": -1, "behind": 4096, "input": 5}[place]
        guarded.ctypes.memset(address, 1, 1)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
