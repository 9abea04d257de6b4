from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import ostinato.onnxruntime as ours
from ostinato.onnxruntime.logs import LOGGER
from tests.onnxruntime.models import RELU


@pytest.fixture(autouse=True)
def logger() -> Iterator[None]:
    """The logger as it was before, without a callback."""
    before = LOGGER.level
    yield
    ours.set_default_logger_callback(None)
    LOGGER.setLevel(before)


def test_severity_is_the_level_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    ours.set_default_logger_severity(1)
    assert LOGGER.level == logging.INFO
    with pytest.raises(RuntimeError, match="severity"):
        ours.set_default_logger_severity(9)
    options = ours.SessionOptions()
    options.log_severity_level, options.use_deterministic_compute = 3, True
    ours.InferenceSession(RELU, options)
    assert not caplog.records


def _session_that_logs() -> None:
    options = ours.SessionOptions()
    options.log_severity_level, options.enable_mem_pattern = 1, False
    ours.InferenceSession(RELU, options)


def test_a_callback_gets_the_messages_alone(caplog: pytest.LogCaptureFixture) -> None:
    got: list[tuple[Any, ...]] = []
    ours.set_default_logger_callback(lambda *message: got.append(message), 1)
    _session_that_logs()
    severity, category, logid, place, text = got[0]
    assert (severity, category, logid) == (1, "ostinato", "")
    assert place.startswith("session.py:") and "enable_mem_pattern" in text
    assert not caplog.records
    ours.set_default_logger_callback(None)
    count = len(got)
    _session_that_logs()
    assert len(got) == count and "enable_mem_pattern" in caplog.text


def test_a_callback_that_fails_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("of its own")

    ours.set_default_logger_callback(fail, 1)
    _session_that_logs()
    assert "of its own" in capsys.readouterr().err


def test_what_is_no_callback_and_no_severity_is_refused() -> None:
    not_callable: Any = 3
    with pytest.raises(RuntimeError, match="callback must be a callable"):
        ours.set_default_logger_callback(not_callable)
    for callback in (print, None):
        with pytest.raises(RuntimeError, match="severity"):
            ours.set_default_logger_callback(callback, 7)
