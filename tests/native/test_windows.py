"""Windows as a host: code in its calling convention, its threads, frames that it wants touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.codegen import threads as team
from ostinato.codegen.target import host_target
from ostinato.native import function as native
from ostinato.native import threads as workers
from ostinato.native import trampoline
from ostinato.schedule import share
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.native.recurrence import bits, feeds, gru
from tests.native.test_threads import NEVER
from tests.win64 import windows

__all__ = ["windows"]

FAMILIES = "GRU LSTM MatMul Softmax Exp TopK QLinearMatMul Loop Conv".split()
SELECTED = [next(c for c in CASES if c.name.split("-")[0] == family) for family in FAMILIES]

HALF = """<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) {
    half = Constant<value_float=0.5>()
    y = Mul(x, half)
}"""


def results(case: Case, **options: Any) -> list[list[bytes]]:
    session = ostinato.InferenceSession(case.model, cache_dir=None, **options)
    return [bits(session.run(None, case.feeds(sizes))) for sizes in case.sizes]


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processors, among which every kernel is divided that can be."""
    monkeypatch.setattr(workers, "processors", lambda: 3)
    monkeypatch.setattr(share, "LEAST", 0)
    monkeypatch.setattr(share, "WAIT", 0)
    monkeypatch.setattr(share, "WAKE", -NEVER)
    monkeypatch.setattr(team, "MOST_ALONE", 0)
    monkeypatch.setattr(team, "LOSSES", 0)
    for spins in ("SIGN_SPINS", "WAKE_SPINS"):
        monkeypatch.setattr(team, spins, 1 << 40)


@pytest.mark.parametrize("case", SELECTED, ids=[case.name for case in SELECTED])
def test_sessions_give_the_same_bits(case: Case, request: pytest.FixtureRequest) -> None:
    expected = results(case)
    request.getfixturevalue("windows")
    assert host_target().system == "windows"
    assert results(case) == expected


@pytest.mark.usefixtures("several")
def test_threads_sleep_and_wake_by_the_functions_of_windows(
    request: pytest.FixtureRequest,
) -> None:
    given = feeds(64, 20)
    expected = bits(ostinato.InferenceSession(gru(64), cache_dir=None).run(None, given))
    request.getfixturevalue("windows")
    session = ostinato.InferenceSession(gru(64), cache_dir=None, threads=3)
    for _ in range(20):
        assert bits(session.run(None, given)) == expected
    (stage,) = [s for s in session._flow.stages if isinstance(s, native.NativeFunction)]
    assert stage.team is not None and stage.team.threads == 3 and stage.team.jobs == 20


@pytest.mark.usefixtures("windows")
def test_streams_and_bound_calls() -> None:
    given, steps = feeds(32, 7), gru(32, 1)
    whole = ostinato.InferenceSession(gru(32), cache_dir=None).bind(given)
    whole()
    stream = ostinato.InferenceSession(steps, cache_dir=None).stream({"h": "last"})
    stream.state["h"] = given["h"]
    made = [stream.step({"x": given["x"][t : t + 1]})[0] for t in range(7)]
    assert bits([np.concatenate(made)]) == bits([whole.outputs["y"]])


@pytest.mark.usefixtures("windows")
def test_subnormal_numbers_are_flushed_during_the_call_alone() -> None:
    tiny = np.array([1e-40], "f")
    model = onnx.parser.parse_model(HALF)
    for flush in (False, True):
        session = ostinato.InferenceSession(model, cache_dir=None, flush_denormals=flush)
        assert (session.run(None, {"x": tiny})[0][0] == 0) == flush
        assert (tiny * np.float32(0.5))[0] > 0


@pytest.mark.usefixtures("windows")
def test_tables_of_many_pages_are_touched_page_by_page() -> None:
    """Windows hands out the pages of a stack one after the other."""
    assert b"__chkstk\0" in trampoline._object_code(None)
    names = [f"x{i}" for i in range(1000)]
    node = onnx.helper.make_node("Sum", names, ["y"])
    value = onnx.helper.make_tensor_value_info
    inputs = [value(name, onnx.TensorProto.FLOAT, [2]) for name in names]
    outputs = [value("y", onnx.TensorProto.FLOAT, [2])]
    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    session = ostinato.InferenceSession(onnx.helper.make_model(graph), cache_dir=None)
    (total,) = session.run(None, {name: np.ones(2, "f") for name in names})
    assert total.tolist() == [1000, 1000]
