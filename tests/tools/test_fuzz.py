"""The search in damaged files finds what is planted, and nothing in a short run."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ostinato.runtime.growing import GrowingStream
from ostinato.runtime.stream import Stream
from tests import witness
from tests.aot import caller
from tools.fuzz import (
    arguments,
    commands,
    contributed,
    damage,
    decoders,
    edited,
    everywhere,
    files,
    frames,
    gradients,
    graphs,
    guarded,
    images,
    libraries,
    loops,
    modes,
    moves,
    nodes,
    quantised,
    rewriting,
    states,
    stored,
)
from tools.fuzz.guarded import Outcome
from tools.fuzz.random_models import random_model
from tools.fuzz.random_modules import random_module
from tools.fuzz.random_narrow import random_network
from tools.fuzz.random_node import random_node
from tools.fuzz.random_states import random_states
from tools.fuzz.smaller import smaller


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Searches are processes of their own, which log nothing."""
    yield
    logging.disable(logging.NOTSET)


pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_a_short_run_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert files.run(seconds=300, seed=7, count=12, folder=tmp_path) == 0
    assert "12 loads, 0 failures" in capsys.readouterr().out
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
    for number in range(100):
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


def test_a_short_run_of_graphs_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert graphs.run(seconds=300, seed=40, count=2, folder=tmp_path) == 0
    assert "2 graphs, seeds 40 to 41" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_of_nodes_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nodes.run(seconds=300, seed=1, count=3, folder=tmp_path) == 0
    assert "agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_random_nodes_are_valid_and_always_the_same() -> None:
    for seed in range(20):
        model, feeds = random_node(seed)
        again, others = random_node(seed)
        assert model == again and feeds.keys() == others.keys()
        onnx.checker.check_model(model, full_check=True)


def test_a_short_run_along_any_axis_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert frames.run(seconds=300, seed=300, count=2, folder=tmp_path) == 0
    assert "converted" in capsys.readouterr().out


def test_steps_that_compute_something_else_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = frames.step_by_step

    def wrong(*arguments: Any) -> Iterator[dict[str, Any]]:
        for outputs in right(*arguments):
            yield {name: np.logical_not(array) for name, array in outputs.items()}

    monkeypatch.setattr(frames, "step_by_step", wrong)
    assert frames.tried(301).kind == "wrong"


def test_a_short_run_of_moves_finds_nothing(tmp_path: Path) -> None:
    assert moves.run(seconds=300, seed=3113, count=2, folder=tmp_path) == 0


def test_a_short_run_of_narrow_constants_finds_nothing_and_what_is_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored.run(seconds=300, seed=40, count=2, folder=tmp_path / "none") == 0
    formula = stored.formula
    monkeypatch.setattr(stored, "formula", lambda *given: formula(*given) * 1.1)
    assert stored.run(seconds=300, seed=40, count=1, folder=tmp_path) == 1
    assert "w0" in (tmp_path / "40.txt").read_text()


def test_a_short_run_of_images_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert images.run(seconds=300, seed=1081, count=2, folder=tmp_path) == 0
    assert "agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_of_gradients_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gradients.run(seconds=300, seed=2, count=1, folder=tmp_path) == 0
    assert "agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_of_contributed_operators_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contributed.run(seconds=300, seed=1, count=4, folder=tmp_path) == 0
    assert "3 agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_of_calls_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert arguments.run(seconds=300, seed=1, count=5, folder=tmp_path) == 0
    assert "refused" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_nobody_foresaw_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: Any, **__: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(arguments, "described", lambda _: ("f", planted, {}, "f(x)"))
    assert arguments.tried(1).is_failure


def test_a_short_run_of_edited_models_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edited.run(seconds=300, seed=1, count=1, folder=tmp_path) == 0
    assert "1 agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_rewritten_models_are_valid_and_always_the_same() -> None:
    for seed in range(10):
        made, model, feeds = edited.rewritten(seed)
        onnx.checker.check_model(made.model)
        assert made.model == edited.rewritten(seed)[0].model
        assert made.model != model or not made.done
        assert made.feeds.keys() >= feeds.keys()


# A Scan, a Loop of a constant number of steps, and a recurrent layer.
LOOPS = """
    <ir_version: 8, opset_import: ["": 18]>
    g (float[T, N, 3] x, float[N, 3] h) => (float[T, N, 3] y, float[N, 3] z, float[T, 1, N, 3] u)
    <float[3, 3] A = {1, 2, 3, 2, 1, 0, -1, 1, 1}, int64 three = {3}, bool yes = {1},
     float[1, 9, 3] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 2, 3, 1, 2, 3,
         3, 2, 1}>
    {
        l, ys = Scan <num_scan_inputs = 1, body = b (float[N, 3] s, float[N, 3] r)
            => (float[N, 3] n, float[N, 3] o) <float[3] one = {1, 1, 1}>
            { a = MatMul(s, A)  c = Add(a, r)  d = Mul(c, one)  n = Tanh(d)  o = Neg(n) }> (h, x)
        y = Relu(ys)
        k, ks = Loop <body = c (int64 i, bool g, float[3, 3] q)
            => (bool g2, float[3, 3] n2, float[3, 3] o2)
            { g2 = Identity(g)  n2 = Sigmoid(q)  o2 = Neg(n2) }> (three, yes, A)
        z = MatMul(l, k)
        u = GRU <hidden_size = 3> (y, W, W)
    }"""


def every_rewriting() -> list[Any]:
    return [change for table in rewriting.REWRITINGS.values() for change in table]


@pytest.mark.parametrize("change", every_rewriting(), ids=lambda change: change.__name__)
def test_a_rewriting_makes_an_equivalent_model(change: Any) -> None:
    model = onnx.parser.parse_model(LOOPS)
    random = np.random.default_rng(0)
    shapes = {"x": (4, 2, 3), "h": (2, 3)}
    feeds = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    wanted = witness.run(model.SerializeToString(), feeds)
    for seed in range(40):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        made = rewriting.Rewriter(np.random.default_rng(seed), copy, dict(feeds))
        with contextlib.suppress(LookupError):
            made.enter(0.5)
            change(made)
        if made.model != model:
            break
    assert made.model != model
    onnx.checker.check_model(made.model, full_check=True)
    got = witness.run(made.model.SerializeToString(), made.feeds)
    assert not graphs.difference(got, wanted, 1e-6)


def test_a_short_run_in_every_way_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert everywhere.run(seconds=300, seed=7, count=1, folder=tmp_path) == 0
    assert "agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_of_commands_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(seconds=300, seed=1, count=4, folder=tmp_path) == 0
    assert "refused" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("stderr", "stdout", "kind"),
    [
        ("compiling\nerror: 'x': there is no such input", "", "refused"),
        ("error: x", "", "exception"),
        ("KeyError: 'x'", "", "exception"),
        ("error: 'x': there is no such input\nerror: and another", "", "exception"),
        ("error: 'x': there is no such input", "y float32[3]", "exception"),
    ],
)
def test_an_error_of_a_command_is_one_sentence(stderr: str, stdout: str, kind: str) -> None:
    assert commands.refused("run m.onnx", stderr, stdout).kind == kind


@pytest.mark.parametrize("name", sorted({*modes.NAMES}))
def test_every_mode_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "NAMES", (name,))
    model, feeds = random_model(5)
    mode = modes.mode_of(5, model, feeds)
    assert mode.name == name
    assert graphs.judged(model, feeds, mode).kind.startswith("agree")


def test_random_models_are_valid_and_always_the_same() -> None:
    for seed in range(20):
        model, feeds = random_model(seed)
        onnx.checker.check_model(model, full_check=True)
        again, given = random_model(seed)
        assert model == again
        assert all((feeds[name] == given[name]).all() for name in feeds)


def test_a_graph_that_differs_or_dies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model, feeds = random_model(3)
    wrong = [np.zeros(7)] * len(model.graph.output)
    planted = {
        "differ": lambda: (graphs.Outcome("agree"), wrong),
        "crash": os.abort,
        "exception": lambda: 1 / 0,
    }
    for kind, attempt in planted.items():
        monkeypatch.setattr(graphs, "ours", lambda *_, attempt=attempt: attempt())
        assert graphs.judged(model, feeds, graphs.Mode("bound")).kind == kind


def test_a_graph_is_made_as_small_as_what_fails() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[3] x, float[3] z) => (float[3] y, float[3] w) {
            a = Neg(x)
            b = Exp(a)
            w = Add(b, z)
            y = Abs(w)
        }"""
    )
    feeds = {name: np.ones(3, np.float32) for name in "xz"}
    small, given = smaller(model, feeds, lambda m, _: any(n.op_type == "Exp" for n in m.graph.node))
    assert [node.op_type for node in small.graph.node] == ["Exp"]
    assert [value.name for value in small.graph.input] == ["a"] == list(given)
    assert (given["a"] == -1).all()


def test_a_short_run_over_loops_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert loops.run(seconds=300, seed=1, count=2, folder=tmp_path) == 0
    assert "2 agree" in capsys.readouterr().out


def test_a_loop_that_computes_something_else_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = graphs.ours

    def wrong(model: bytes, feeds: modes.Feeds, mode: modes.Mode) -> Any:
        outcome, results = right(model, feeds, mode)
        return outcome, [r + 1 if isinstance(r, np.ndarray) else r for r in results]

    monkeypatch.setattr(graphs, "ours", wrong)
    assert loops.run(seconds=300, seed=1, count=1, folder=tmp_path) == 1
    assert (tmp_path / "1.onnx").exists()


@pytest.mark.parametrize(
    ("module", "count"), [(states, 1), (libraries, 1), (decoders, 1), (quantised, 1)]
)
def test_a_short_run_over_what_keeps_states_or_is_narrow_finds_nothing(
    module: Any, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if module is libraries and (caller.CC is None or caller.CXX is None):
        pytest.skip("no gcc and g++ here")
    assert module.run(seconds=300, seed=41, count=count, folder=tmp_path) == 0
    assert "agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_random_models_with_states_are_valid_and_always_the_same() -> None:
    for seed in range(40):
        made = random_states(seed)
        onnx.checker.check_model(made.model, full_check=True)
        assert made.model == random_states(seed).model
        onnx.checker.check_model(random_network(seed)[0], full_check=True)


def test_a_stream_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = GrowingStream.step, Stream.step

    def wrong(number: int) -> Any:
        return lambda *arguments: [y + 1 for y in right[number](*arguments)]

    monkeypatch.setattr(GrowingStream, "step", wrong(0))
    monkeypatch.setattr(Stream, "step", wrong(1))
    outcome = states.check(41)
    assert outcome.kind == "differ" and "step" in outcome.message


def test_random_modules_are_python_and_always_the_same() -> None:
    for seed in range(20):
        compile(random_module(seed), "module", "exec")
        assert random_module(seed) == random_module(seed)
