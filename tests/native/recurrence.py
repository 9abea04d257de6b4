"""A recurrence that threads share, for programs that need nothing else of the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import ostinato
from ostinato.native import function as native

Array = np.ndarray[Any, Any]


def session(model: Any, **options: Any) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(model, cache_dir=None, **options)


def teams(of: ostinato.InferenceSession) -> list[Any]:
    stages = [s for s in of._flow.stages if isinstance(s, native.NativeFunction)]
    return [stage.team for stage in stages if stage.team is not None]


def bits(arrays: list[Any]) -> list[bytes]:
    """Of every array, NaN alike."""
    return [
        np.where(np.isnan(a), np.float64("nan").astype(a.dtype), a).tobytes()
        if a.dtype.kind == "f"
        else a.tobytes()
        for a in map(np.asarray, arrays)
    ]


def gru(hidden: int, steps: int | str = "T", seed: int = 0) -> onnx.ModelProto:
    """A recurrence of one stream with an initial state, and its last state."""
    random = np.random.default_rng(seed)
    scale = hidden**-0.5
    constants = {
        name: onnx.numpy_helper.from_array(
            (scale * random.standard_normal(shape)).astype("f"), name
        )
        for name, shape in {
            "W": (1, 3 * hidden, hidden),
            "R": (1, 3 * hidden, hidden),
            "B": (1, 6 * hidden),
        }.items()
    }
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[{steps}, 1, {hidden}] x, float[1, 1, {hidden}] h)
          => (float[{steps}, 1, 1, {hidden}] y, float[1, 1, {hidden}] last) {{
            y, last = GRU<hidden_size={hidden}, linear_before_reset=1>(x, W, R, B, , h)
        }}"""
    )
    model.graph.initializer.extend(constants.values())
    return model


def feeds(hidden: int, steps: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "x": random.standard_normal((steps, 1, hidden)).astype("f"),
        "h": random.standard_normal((1, 1, hidden)).astype("f"),
    }
