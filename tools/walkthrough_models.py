"""Write the two models of docs/walkthrough.md, one cell in two notations.

    python -m tools.walkthrough_models

makes examples/models/lstm_by_hand.onnx and lstm_node.onnx: an LSTM of 64 units on 16 features,
once gate by gate in a Scan, once as an LSTM node, with a dense layer and a Sigmoid behind it. The
weights are the same random float32 numbers in both; ONNX orders gates input, output, forget,
candidate.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

MODELS = Path(__file__).resolve().parent.parent / "examples" / "models"
FEATURES, UNITS = 16, 64

BY_HAND = """<ir_version: 8, opset_import: ["": 17]>
lstm_by_hand (float[time, 1, 16] x, float[1, 64] h_0, float[1, 64] c_0)
  => (float[time, 1, 16] mask, float[1, 64] h_n, float[1, 64] c_n)
{
  [cell] h_n, c_n, y = Scan <num_scan_inputs = 1, body = step
    (float[1, 64] h, float[1, 64] c, float[1, 16] x_t)
      => (float[1, 64] h_new, float[1, 64] c_new, float[1, 64] y_t)
  {
    [input_product] xw = MatMul (x_t, W)
    [state_product] hr = MatMul (h, R)
    [sum] both = Add (xw, hr)
    [bias] gates = Add (both, b)
    [gates] i_sum, f_sum, g_sum, o_sum = Split <axis = 1> (gates)
    [i] i = Sigmoid (i_sum)
    [f] f = Sigmoid (f_sum)
    [g] g = Tanh (g_sum)
    [o] o = Sigmoid (o_sum)
    [kept] kept = Mul (f, c)
    [added] added = Mul (i, g)
    [c_new] c_new = Add (kept, added)
    [seen] seen = Tanh (c_new)
    [h_new] h_new = Mul (o, seen)
    [y_t] y_t = Identity (h_new)
  }> (h_0, c_0, x)
  [dense] dense = MatMul (y, D)
  [mask] mask = Sigmoid (dense)
}"""

NODE = """<ir_version: 8, opset_import: ["": 17]>
lstm_node (float[time, 1, 16] x, float[1, 1, 64] h_0, float[1, 1, 64] c_0)
  => (float[time, 1, 16] mask, float[1, 1, 64] h_n, float[1, 1, 64] c_n)
{
  [lstm] y_all, h_n, c_n = LSTM <hidden_size = 64> (x, W, R, B, "", h_0, c_0)
  axis = Constant <value = int64[1] {1}> ()
  [y] y = Squeeze (y_all, axis)
  [dense] dense = MatMul (y, D)
  [mask] mask = Sigmoid (dense)
}"""


def build() -> dict[str, onnx.ModelProto]:
    """Both models, by the names of their files."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> NDArray[np.float32]:
        return (rng.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)

    w, r = draw(FEATURES, 4 * UNITS), draw(UNITS, 4 * UNITS)
    b, dense = draw(4 * UNITS), draw(UNITS, FEATURES)

    def reordered(weights: NDArray[np.float32]) -> NDArray[np.float32]:
        i, f, g, o = np.split(weights, 4, axis=-1)
        return np.concatenate([i, o, f, g], axis=-1)

    bias = np.concatenate([reordered(b), np.zeros_like(b)])[None]
    node = {"W": reordered(w).T[None], "R": reordered(r).T[None], "B": bias, "D": dense}
    return {
        "lstm_by_hand.onnx": _with_weights(BY_HAND, {"W": w, "R": r, "b": b, "D": dense}),
        "lstm_node.onnx": _with_weights(NODE, node),
    }


def _with_weights(text: str, weights: dict[str, NDArray[np.float32]]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for name, array in weights.items():
        array = np.ascontiguousarray(array)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Write the files."""
    for name, model in build().items():
        (MODELS / name).write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
