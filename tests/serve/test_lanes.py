from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ostinato.errors import InputError
from ostinato.serve import lanes
from ostinato.serve.lanes import Failure, Job, Lane, Served, Step
from ostinato.serve.protocol import Status

# Each frame adds to the state, which is the output; a sum of time steps that chunks do not change.
SUM = """<ir_version: 8, opset_import: ["": 17]> g (float[T, {batch}, 2] x, float[{batch}, 2] s)
    => (float[T, {batch}, 2] y, float[{batch}, 2] t) {{
    t, y = Scan <num_scan_inputs = 1, body = b (float[{batch}, 2] a, float[{batch}, 2] f)
        => (float[{batch}, 2] c, float[{batch}, 2] d) {{ c = Add(a, f)  d = Identity(c) }}> (s, x)
}}"""
PLAIN = (
    """<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Add(x, x) }"""
)


def served(folder: Path, text: str, **options: Any) -> Served:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), str(path))
    return Served("m", str(path), **options)


@pytest.fixture(params=["N", "1"])
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Lane:
    """Of a model whose sequences are stepped together, and of one with a fixed batch."""
    return Lane(served(tmp_path, SUM.format(batch=request.param), states={"s": "t"}, streams=8))


def job(number: int, sequence: int, value: float, frames: int = 1, **flags: bool) -> Job:
    x = np.full((frames, 1, 2), value, np.float32)
    return Job(number, "m", {"x": x}, sequence, **flags)


def run(lane: Lane) -> Step:
    """All steps until nothing waits, as one."""
    total = Step()
    while lane.is_busy:
        step = lane.step()
        total.outcomes |= step.outcomes
        total.calls += step.calls
    return total


def sums(step: Step, number: int) -> list[float]:
    outcome = step.outcomes[number]
    assert isinstance(outcome, dict), outcome
    return [float(v) for v in outcome["y"][:, 0, 0]]


def test_sequences_have_states_of_their_own(lane: Lane) -> None:
    for number, (sequence, value) in enumerate([(1, 1), (2, 10), (1, 2), (2, 20), (1, 3)]):
        lane.accept(job(number, sequence, value, start=number < 2))
    step = run(lane)
    assert [sums(step, n) for n in range(5)] == [[1], [10], [3], [30], [6]]
    assert [call.batch for call in step.calls] == [2, 2, 1]


def test_messages_of_several_sizes(lane: Lane) -> None:
    for number, frames in enumerate([1, 3, 1, 2]):
        lane.accept(job(number, 1, 1, frames, start=not number))
    step = run(lane)
    assert [sums(step, n) for n in range(4)] == [[1], [2, 3, 4], [5], [6, 7]]


def test_a_message_that_does_not_fit_leaves_its_sequence_alone(lane: Lane) -> None:
    lane.accept(job(0, 1, 1, start=True))
    lane.accept(Job(1, "m", {"x": np.ones((1, 1, 3), np.float32)}, 1))
    lane.accept(Job(2, "m", {"z": np.ones((1, 1, 2), np.float32)}, 1))
    lane.accept(Job(3, "m", {"x": np.ones((1, 2, 2), np.float32)}, 1))
    lane.accept(job(4, 1, 1))
    step = run(lane)
    for number in (1, 2, 3):
        failure = step.outcomes[number]
        assert isinstance(failure, Failure)
        assert failure.status is Status.INVALID
    assert sums(step, 4) == [2]


def test_a_sequence_whose_first_message_fails_is_not_there(lane: Lane) -> None:
    lane.accept(Job(0, "m", {"x": np.ones((1, 1, 3), np.float32)}, 1, start=True))
    lane.accept(job(1, 1, 1))
    step = run(lane)
    second = step.outcomes[1]
    assert isinstance(second, Failure)
    assert second.status is Status.NOT_FOUND
    for number in range(2, 10):
        lane.accept(job(number, number, 1, start=True))
    assert all(isinstance(outcome, dict) for outcome in run(lane).outcomes.values())


def test_ends_make_room(lane: Lane) -> None:
    for sequence in range(1, 40):
        lane.accept(job(sequence, sequence, 1, start=True, end=sequence % 2 == 0))
        outcomes = run(lane).outcomes
        assert isinstance(outcomes[sequence], dict)
        lane.close(sequence)


def test_more_sequences_than_there_is_room_for(lane: Lane) -> None:
    for sequence in range(1, 10):
        lane.accept(job(sequence, sequence, 1, start=True))
    last = run(lane).outcomes[9]
    assert isinstance(last, Failure)
    assert last.status is Status.FULL


def test_sizes_that_nobody_uses_any_more_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MOST_SIZES", 2)
    lane = Lane(served(tmp_path, SUM.format(batch="N"), states={"s": "t"}))
    for sequence, frames in enumerate((1, 2, 3), 1):
        lane.accept(job(sequence, sequence, 1, frames, start=True))
    third = run(lane).outcomes[3]
    assert isinstance(third, Failure)
    assert third.status is Status.FULL
    lane.close(1)
    lane.accept(job(4, 4, 1, 3, start=True))
    assert sums(run(lane), 4) == [1, 2, 3]


def test_calls_without_a_sequence(tmp_path: Path) -> None:
    lane = Lane(served(tmp_path, PLAIN))
    lane.accept(Job(1, "m", {"x": np.ones(3, np.float32)}))
    lane.accept(Job(2, "m", {"x": np.ones((3, 1), np.float32)}))
    outcomes = run(lane).outcomes
    assert isinstance(outcomes[1], dict)
    assert outcomes[1]["y"].tolist() == [2, 2, 2]
    assert isinstance(outcomes[2], Failure)


@pytest.mark.parametrize("batch", ["N", "1"])
def test_inputs_that_are_the_same_in_all_messages(tmp_path: Path, batch: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{batch}] x, float[{batch}] s, float r)
        => (float[{batch}] y, float[{batch}] t) {{ y = Mul(s, r)  t = Add(s, x) }}"""
    lane = Lane(served(tmp_path, text, states={"s": "t"}, shared={"r": 10}))
    for number in range(3):
        lane.accept(Job(number, "m", {"x": np.ones(1, np.float32)}, 1, start=not number))
    outcomes = run(lane).outcomes
    values = [o["y"].tolist() for o in outcomes.values() if isinstance(o, dict)]
    assert values == [[0], [10], [20]]


def test_states_that_the_model_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nothing'"):
        Lane(served(tmp_path, PLAIN, states={"nothing": "y"}))


def test_a_sequence_that_is_closed_before_its_first_message_leaves_nothing(lane: Lane) -> None:
    for number in range(1, 20):
        lane.accept(job(2 * number, number, 1, start=True))
        lane.accept(job(2 * number + 1, number, 2))
        lane.close(number)
        step = run(lane)
        assert [sums(step, n) for n in sorted(step.outcomes)] == [[1], [3]]
    # All eight places are free.
    for number in range(50, 58):
        lane.accept(job(number, number, 1, start=True))
    step = run(lane)
    assert [sums(step, n) for n in range(50, 58)] == [[1]] * 8


def test_sequences_wait_for_places_that_get_free(lane: Lane) -> None:
    for number in range(1, 9):
        lane.accept(job(number, number, 1, start=True))
    run(lane)
    # The first two have no place before others end, which came behind them.
    for number in range(20, 30):
        lane.accept(job(number, number, 5, start=True, end=True))
    lane.accept(job(40, 3, 1, end=True))
    step = run(lane)
    assert [sums(step, n) for n in range(20, 30)] == [[5]] * 10
    assert sums(step, 40) == [2]
    lane.accept(job(41, 41, 1, start=True))
    lane.accept(job(42, 42, 1, start=True))
    step = run(lane)
    assert sums(step, 41) == [1]
    assert isinstance(step.outcomes[42], Failure)


SCALED = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 2] x, float[N, 2] s)
    => (float[N, 2] y, float[N, 2] t) {
    t = Add (x, s)  q, a, z = DynamicQuantizeLinear (t)  y = DequantizeLinear (q, a, z)
}"""


def test_streams_that_would_change_each_other_are_stepped_alone(tmp_path: Path) -> None:
    lane = Lane(served(tmp_path, SCALED, states={"s": "t"}, streams=8))
    for number, value in ((1, 0.1), (2, 100.0)):
        x = np.array([[value, 0.3 * value]], np.float32)
        lane.accept(Job(number, "m", {"x": x}, number))
    step = run(lane)
    assert len(step.calls) == 1
    first = step.outcomes[1]
    assert not isinstance(first, Failure)
    np.testing.assert_allclose(first["y"], [[0.1, 0.03]], rtol=0.02)
