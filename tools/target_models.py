"""The models of `tools.targets`, with the inputs of some calls each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

import ostinato
from ostinato.demo import MODEL

Calls = list[dict[str, Any]]
VOCABULARY, HIDDEN = 64, 48


def _with_weights(text: str, weights: dict[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    model = parser.parse_model(text)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model.graph.initializer.extend(tensors)
    return model


def gru_decoder() -> tuple[onnx.ModelProto, Calls]:
    """A GRU that writes tokens until it ends, all of it one Loop."""
    rng = np.random.default_rng(1)
    shapes = {
        "E": (VOCABULARY, HIDDEN),
        "W": (1, 3 * HIDDEN, HIDDEN),
        "R": (1, 3 * HIDDEN, HIDDEN),
        "O": (HIDDEN, VOCABULARY),
    }
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    step = _with_weights(
        f"""<ir_version: 9, opset_import: ["": 17]>
        step (int64[N, 1] token, float[1, N, {HIDDEN}] h)
            => (float[N, 1, {VOCABULARY}] logits, float[1, N, {HIDDEN}] h_out) {{
            x = Gather(E, token)
            steps = Transpose<perm = [1, 0, 2]>(x)
            y, h_out = GRU<hidden_size = {HIDDEN}>(steps, W, R, , , h)
            last = Transpose<perm = [1, 0, 2]>(h_out)
            logits = MatMul(last, O)
        }}""",
        weights,
    )
    model = ostinato.decoding.loop(step, states={"h": "h_out"}, method="greedy")
    return model, [{"prompt": np.array([[3, 1, 4]]), "max_tokens": np.array(20)}]


def integers() -> tuple[onnx.ModelProto, Calls]:
    """Two quantised layers: products of bytes, rounded and clipped to bytes again."""
    rng = np.random.default_rng(2)
    weights: dict[str, np.ndarray[Any, Any]] = {
        "A": rng.integers(-128, 128, (96, 80)).astype(np.int8),
        "B": rng.integers(-128, 128, (80, 40)).astype(np.int8),
        "xs": np.float32(0.02), "xz": np.uint8(120), "as": np.float32(0.01), "az": np.int8(0),
        "hs": np.float32(0.3), "hz": np.uint8(7), "bs": np.float32(0.02), "bz": np.int8(3),
        "ys": np.float32(0.5), "yz": np.uint8(128),
    }  # fmt: skip
    model = _with_weights(
        """<ir_version: 9, opset_import: ["": 17]>
        integers (float[T, 96] x) => (uint8[T, 40] y, float[T, 40] z) {
            q = QuantizeLinear(x, xs, xz)
            h = QLinearMatMul(q, xs, xz, A, as, az, hs, hz)
            y = QLinearMatMul(h, hs, hz, B, bs, bz, ys, yz)
            z = DequantizeLinear(y, ys, yz)
        }""",
        weights,
    )
    return model, [{"x": rng.standard_normal((5, 96)).astype(np.float32)}]


def denoiser() -> tuple[Path, dict[str, str], Calls]:
    """The demo's: frames of one second."""
    rng = np.random.default_rng(0)
    frames = [{"magnitude": rng.random((1, 1, 161), np.float32)} for _ in range(100)]
    return Path(MODEL), {"state": "state_out"}, frames
