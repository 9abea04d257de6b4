"""Small models with every kind of weights."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

Shape = tuple[int, ...]

TEXTS: dict[str, tuple[str, dict[str, Shape]]] = {
    "MatMul": (
        """(float[N, 12] x) => (float[N, 5] y) {
            p = MatMul(x, w)
            y = Add(p, b)
        }""",
        {"w": (12, 5), "b": (5,)},
    ),
    "MatMul on the left": (
        """(float[N, 12, 3] x) => (float[N, 5, 3] y) { y = MatMul(w, x) }""",
        {"w": (5, 12)},
    ),
    "MatMul of a batch": (
        """(float[N, 2, 4, 12] x) => (float[N, 2, 4, 5] y) { y = MatMul(x, w) }""",
        {"w": (2, 12, 5)},
    ),
    "Gemm": (
        """(float[N, 12] x) => (float[N, 5] y) {
            y = Gemm <alpha = 0.5, beta = 2.0, transB = 1> (x, w, b)
        }""",
        {"w": (5, 12), "b": (5,)},
    ),
    "Gemm on the left": (
        """(float[12, N] x) => (float[5, N] y) { y = Gemm <transA = 1> (w, x) }""",
        {"w": (12, 5)},
    ),
    "Conv": (
        """(float[N, 4, 9] x) => (float[N, 6, M] y) {
            y = Conv <group = 2, pads = [1, 0], strides = [2], dilations = [2]> (x, w)
        }""",
        {"w": (6, 2, 3)},
    ),
    "ConvTranspose": (
        """(float[N, 4, 9] x) => (float[N, 6, M] y) { y = ConvTranspose <group = 2> (x, w) }""",
        {"w": (4, 3, 3)},
    ),
    "GRU": (
        """(float[T, N, 12] x) => (float[T, 2, N, 8] y) {
            y = GRU <hidden_size = 8, direction = "bidirectional", linear_before_reset = 1>
                (x, w, r, b)
        }""",
        {"w": (2, 24, 12), "r": (2, 24, 8), "b": (2, 48)},
    ),
    "GRU, reset first": (
        """(float[T, N, 12] x, float[1, N, 8] h) => (float[1, N, 8] y) {
            , y = GRU <hidden_size = 8, direction = "reverse"> (x, w, r, , , h)
        }""",
        {"w": (1, 24, 12), "r": (1, 24, 8)},
    ),
    "LSTM": (
        """(float[T, N, 12] x) => (float[T, 1, N, 8] y, float[1, N, 8] c) {
            y, , c = LSTM <hidden_size = 8> (x, w, r, b, , , , p)
        }""",
        {"w": (1, 32, 12), "r": (1, 32, 8), "b": (1, 64), "p": (1, 24)},
    ),
    "RNN": (
        """(float[T, N, 12] x) => (float[T, 1, N, 8] y) {
            y = RNN <hidden_size = 8> (x, w, r)
        }""",
        {"w": (1, 8, 12), "r": (1, 8, 8)},
    ),
    "Scan": (
        """(float[T, N, 12] x, float[N, 8] h) => (float[N, 8] last, float[T, N, 8] y) {
            last, y = Scan <num_scan_inputs = 1, body = cell
                (float[N, 8] before, float[N, 12] now) => (float[N, 8] after, float[N, 8] out) {
                    a = MatMul(now, w)
                    c = Gemm(before, r)
                    d = Add(a, c)
                    after = Tanh(d)
                    out = Identity(after)
                }> (h, x)
        }""",
        {"w": (12, 8), "r": (8, 8)},
    ),
    "Gather": (
        """(int64[N, T] x) => (float[N, T, 5] y) {
            e = Gather(t, x)
            y = MatMul(e, w)
        }""",
        {"t": (9, 48), "w": (48, 5)},
    ),
    "normalised": (
        """(float[N, 12] x) => (float[N, 5] y) {
            length = ReduceL2 <axes = [0]> (v)
            direction = Div(v, length)
            w = Mul(direction, g)
            y = MatMul(x, w)
        }""",
        {"v": (12, 5), "g": (1, 5)},
    ),
    "Loop": (
        """(int64 n, float[N, 8] h) => (float[N, 8] y) {
            yes = Constant <value = bool {1}> ()
            y = Loop <body = cell (int64[] i, bool[] go, float[N, 8] before) =>
                (bool[] on, float[N, 8] after) {
                    on = Identity(go)
                    a = MatMul(before, w)
                    after = Tanh(a)
                }> (n, yes, h)
        }""",
        {"w": (8, 8)},
    ),
    "If": (
        """(float[N, 8] x, bool which) => (float[N, 8] y) {
            y = If (which) <
                then_branch = one () => (float[N, 8] a) { a = MatMul(x, w) },
                else_branch = two () => (float[N, 8] b) { b = MatMul(x, v) }
            >
        }""",
        {"w": (8, 8), "v": (8, 8)},
    ),
}
SIZES = {"N": 2, "T": 6}


def weights_of(name: str, scale: float = 0.3) -> dict[str, np.ndarray]:
    """Normal weights with a fixed seed."""
    rng = np.random.default_rng(7)
    shapes = TEXTS[name][1]
    return {w: (scale * rng.standard_normal(s)).astype(np.float32) for w, s in shapes.items()}


def model_of(name: str, weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """The model of `TEXTS` with these weights."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> made {TEXTS[name][0]}'
    )
    for key, array in (weights or weights_of(name)).items():
        model.graph.initializer.append(numpy_helper.from_array(array, key))
    return model


def feeds_of(model: onnx.ModelProto, seed: int = 3) -> dict[str, np.ndarray]:
    """Inputs whose neighbours are alike, as spectra are; integers are 4, booleans true."""
    rng, feeds = np.random.default_rng(seed), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or SIZES[d.dim_param] for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        steps = rng.standard_normal(shape)
        values = np.cumsum(steps, -1) / 2 if dtype.kind == "f" else np.full(shape, 4)
        feeds[value.name] = values.astype(dtype)
    return feeds


def language_model() -> onnx.ModelProto:
    """Scores by the table of the embedding, as a file of PyTorch has them."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> lm (int64[N, T] t) => (float[N, T, 40] y) '
        "{ e = Gather(E, t) g = Tanh(e) Et = Transpose<perm = [1, 0]>(E) y = MatMul(g, Et) }"
    )
    table = np.random.default_rng(0).standard_normal((40, 32)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "E"))
    return model
