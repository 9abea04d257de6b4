"""A recurrent cell that no runtime has an op for, written as Scan: what was fused into what.

The gate `f` keeps the state or takes the candidate `c`: h' = f h + (1 - f) c. Its input projection
leaves the loop; recurrent product, gates and state update become one kernel inside of it.
"""

from usage import arguments

arguments(__doc__)

import numpy as np
import onnx

import ostinato

H = 64
model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]>
cell (float[T, 1, 64] x, float[1, 64] h0) => (float[1, 64] last, float[T, 1, 64] y) {
  last, y = Scan <num_scan_inputs = 1, body = step (float[1, 64] h, float[1, 64] xt)
    => (float[1, 64] next, float[1, 64] out) {
    xw = MatMul (xt, W)  hr = MatMul (h, R)
    gates = Add (xw, hr)  f_gate, c_gate = Split <axis = 1> (gates)
    f = Sigmoid (f_gate)  c = Tanh (c_gate)
    kept = Mul (f, h)  one_minus_f = Sub (one, f)  taken = Mul (one_minus_f, c)
    next = Add (kept, taken)  out = Identity (next)
  }> (h0, x)
}""")
rng = np.random.default_rng(0)
weights = {name: rng.standard_normal((H, 2 * H)).astype(np.float32) / 8 for name in "WR"}
for name, value in {**weights, "one": np.float32(1)}.items():
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))

session = ostinato.InferenceSession(model, fallback=False)
for kernel in session.report()["kernels"]:
    place = f"in a loop of {kernel['in_loop']} steps" if kernel["in_loop"] else "no loop"
    print(f"{kernel['name']} {place}: {', '.join(kernel['fused'])}")
inner = [kernel for kernel in session.report()["kernels"] if kernel["in_loop"]]
assert len(inner) == 1
