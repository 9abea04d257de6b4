from __future__ import annotations

import logging

import onnxruntime
import pytest
from onnx import parser

import ostinato
from ostinato.runtime.counterparts import ATTRIBUTES

MODEL = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }'
)


def test_providers_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    ostinato.InferenceSession(MODEL, providers=["CPUExecutionProvider"], provider_options=[{}])
    assert not caplog.records
    ostinato.InferenceSession(MODEL, providers=[("CUDAExecutionProvider", {"device_id": 0})])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "CUDAExecutionProvider" in record.getMessage()


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_names_of_onnxruntime_say_what_replaces_them(name: str) -> None:
    assert hasattr(onnxruntime.InferenceSession, name)
    session = ostinato.InferenceSession(MODEL)
    with pytest.raises(AttributeError, match=r"ostinato\.onnxruntime"):
        getattr(session, name)
    assert not hasattr(session, "something_else")


def test_options_of_onnxruntime_say_what_replaces_them() -> None:
    for call in (
        lambda: ostinato.InferenceSession(MODEL, onnxruntime.SessionOptions()),
        lambda: ostinato.InferenceSession(MODEL, sess_options=onnxruntime.SessionOptions()),
    ):
        with pytest.raises(ostinato.OptionError, match="threads for intra_op_num_threads"):
            call()
