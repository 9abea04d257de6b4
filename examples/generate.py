"""A decoder step becomes one model that generates: greedy, sampled, and with beams.

`ostinato.decoding.loop` writes a standard ONNX Loop around the step. Caches grow in place, a search
is one native call, and any other runtime can run the model too (docs/decoding.md).
"""

from usage import arguments

arguments(__doc__)

import numpy as np
import onnx.parser

import ostinato

VOCABULARY, WIDTH = 40, 16
STEP = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 17]>
step (int64[N, 1] token, float[N, P, {WIDTH}] past)
    => (float[N, 1, {VOCABULARY}] logits, float[N, Q, {WIDTH}] present) {{
    x = Gather(E, token)
    present = Concat<axis = 1>(past, x)
    keys = Transpose<perm = [0, 2, 1]>(present)
    scores = MatMul(x, keys)
    weights = Softmax<axis = -1>(scores)
    seen = MatMul(weights, present)  h = Add(x, seen)
    logits = MatMul(h, O)
}}""")
rng = np.random.default_rng(0)
for name, shape in {"E": (VOCABULARY, WIDTH), "O": (WIDTH, VOCABULARY)}.items():
    weights = rng.standard_normal(shape).astype(np.float32)
    STEP.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))

feeds = {"prompt": np.array([[3, 1, 4], [1, 5, 9]]), "max_tokens": np.array(12)}
for options in ({"method": "greedy"}, {"method": "sample", "top_p": 0.9}, {"method": "beam"}):
    model = ostinato.decoding.loop(STEP, states={"past": "present"}, **options)
    session = ostinato.InferenceSession(model, fallback=False)
    drawn = {"uniform": rng.random((2, 12), np.float32)} if options["method"] == "sample" else {}
    tokens, *scores = session.run(None, {**feeds, **drawn})
    print(options["method"], tokens.shape, "first row:", tokens[0].reshape(-1, 12)[0].tolist())
