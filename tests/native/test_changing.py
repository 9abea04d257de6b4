"""Calls of sessions on inputs whose shapes come for the first time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import InputError
from ostinato.native import changing

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
ATTENTION = """g (float[T, 4] x, float[P, 4] past) => (float[T, 4] y, float[Q, 4] present) {
    present = Concat<axis = 0>(past, x)  t = Transpose(present)  s = MatMul(x, t)
    p = Softmax(s)  y = MatMul(p, present)
}"""
POSITIONS = """g (int64[1] n, float[1] x) => (float[N] y) {
    y = Expand(x, n)
}"""
RANDOM = np.random.default_rng(0)


def _session(text: str) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(onnx.parser.parse_model(HEADER + text))


def _feeds(length: int, past: int) -> dict[str, Any]:
    sizes = {"x": length, "past": past}
    return {n: RANDOM.standard_normal((k, 4)).astype(np.float32) for n, k in sizes.items()}


def _lengths(count: int) -> list[dict[str, Any]]:
    return [_feeds(1 + k % 3, k) for k in range(count)]


def _expected(text: str, feeds: dict[str, Any]) -> list[np.ndarray]:
    return _session(text).run(None, feeds)


def _plans(session: ostinato.InferenceSession) -> int:
    native = session._flow.direct()
    assert native is not None
    return len(native._plans)


def test_shapes_that_come_once_have_no_plan_and_the_same_bits() -> None:
    session, all_feeds = _session(ATTENTION), _lengths(9)
    for feeds in all_feeds:
        for got, want in zip(session.run(None, feeds), _expected(ATTENTION, feeds), strict=True):
            np.testing.assert_array_equal(got, want)
    assert _plans(session) == 1
    for feeds in all_feeds[:4]:
        session.run(None, feeds)
    assert _plans(session) == 4


def test_results_are_fresh_and_selected_by_name() -> None:
    session = _session(ATTENTION)
    session.run(None, _feeds(1, 1))
    first, second = _feeds(2, 2), _feeds(2, 3)
    (present,) = session.run(["present"], first)
    session.run(None, second)
    np.testing.assert_array_equal(present, np.concatenate([first["past"], first["x"]]))


def test_values_that_are_sizes_are_told_too() -> None:
    session, x = _session(POSITIONS), np.float32([2])
    for length in (3, 5, 0, 7, 5):
        (y,) = session.run(None, {"n": np.int64([length]), "x": x})
        np.testing.assert_array_equal(y, np.full(length, 2, np.float32))
    with pytest.raises(ostinato.OstinatoError):
        session.run(None, {"n": np.int64([-4]), "x": x})


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(np.float64),
        lambda x: x[None],
        lambda x: x[:, :3].copy(),
        lambda x: np.ma.masked_array(x, x > 0),
    ],
)
def test_mistakes_in_inputs_of_new_shapes_are_named(change: Any) -> None:
    session = _session(ATTENTION)
    session.run(None, _feeds(1, 1))
    session.run(None, _feeds(1, 2))
    with pytest.raises(InputError, match="'x'"):
        session.run(None, {**_feeds(2, 3), "x": change(_feeds(2, 3)["x"])})


def test_strided_and_misaligned_inputs_of_new_shapes_are_read() -> None:
    session = _session(ATTENTION)
    session.run(None, _feeds(1, 1))
    feeds = _feeds(3, 4)
    wide = np.zeros((3, 8), np.float32)
    wide[:, ::2] = feeds["x"]
    shifted = np.frombuffer(b"." + feeds["past"].tobytes(), np.float32, 16, 1).reshape(4, 4)
    got = session.run(None, {"x": wide[:, ::2], "past": shifted})
    for a, b in zip(got, _expected(ATTENTION, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_much_memory_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    session, feeds = _session(ATTENTION), _feeds(64, 64)
    monkeypatch.setattr(changing, "_SMALL", 1 << 12)
    for each in (_feeds(1, 1), _feeds(1, 2), feeds):
        got = session.run(None, each)
    np.testing.assert_array_equal(got[0], _expected(ATTENTION, feeds)[0])
    assert _plans(session) == 1  # a larger arena drops the plans before it


def test_threads_share_a_session_of_new_shapes() -> None:
    session, all_feeds = _session(ATTENTION), _lengths(60)
    wanted = [_expected(ATTENTION, each)[0] for each in all_feeds[:6]]
    wrong: list[int] = []

    def work(first: int) -> None:
        for place in range(first, len(all_feeds)):
            y = session.run(["y"], all_feeds[place])[0]
            if place < len(wanted) and not np.array_equal(y, wanted[place]):
                wrong.append(place)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
