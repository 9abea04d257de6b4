"""Answers to names and arguments of onnxruntime's sessions that are different here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ostinato.errors import OptionError

_LOGGER = logging.getLogger("ostinato")
_CPU = "CPUExecutionProvider"
_WHOLE = "ostinato.onnxruntime.InferenceSession has onnxruntime's whole interface"

ATTRIBUTES = {
    "io_binding": "session.bind(inputs, outputs) gives a call over fixed arrays",
    "run_with_iobinding": "session.bind(inputs, outputs) gives a call over fixed arrays",
    "run_with_ort_values": "run takes and gives arrays, and out= writes into given ones",
    "run_async": "run in a thread of your own; long runs give up the GIL",
    "get_providers": "there is one, the CPU",
    "get_provider_options": "there is one provider, the CPU",
    "set_providers": "there is one, the CPU",
    "get_session_options": "session.report() says what became of the model",
    "get_modelmeta": "onnx.load(path) reads what a model says about itself",
    "end_profiling": "`ostinato inspect MODEL` and session.report() show kernels",
}
"""Attributes of onnxruntime's sessions, and what does their work."""

_OPTIONS = (
    "fields of ostinato.Options stand for onnxruntime's SessionOptions: threads for "
    "intra_op_num_threads, specialize for free dimensions, disable for optimisation levels"
)


def missing(name: str) -> AttributeError:
    """The error for an attribute that a session does not have."""
    text = f"an InferenceSession has no attribute {name!r}"
    if name in ATTRIBUTES:
        text += f": {ATTRIBUTES[name]}; {_WHOLE}"
    return AttributeError(text)


def without_providers(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The options without `providers` and `provider_options`, which change nothing.

    Raises `OptionError` for onnxruntime's options, saying what replaces them.
    """
    if "sess_options" in overrides:
        raise OptionError(f"sess_options: {_OPTIONS}; {_WHOLE}")
    for provider in overrides.get("providers") or ():
        name = provider[0] if isinstance(provider, tuple) and provider else provider
        if name != _CPU:
            _LOGGER.warning("provider %r is not there: models are compiled for the CPU", name)
    return {n: v for n, v in overrides.items() if n not in ("providers", "provider_options")}


def not_options(value: object) -> OptionError:
    """The error for something in the place of options."""
    name = type(value).__name__
    said = f": {_OPTIONS}; {_WHOLE}" if name == "SessionOptions" else ""
    return OptionError(f"options: expected an Options, got {name}{said}")
