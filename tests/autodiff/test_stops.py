"""No gradient flows through a StopGradient, also where steps of a loop are found again."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.autodiff.partition import partition

HEAD = '<ir_version: 9, opset_import: ["": 20, "ostinato": 1]>\ng (float[3] x) => (float[3] y) {'
TEXTS = {
    "beside another way": """
      s = ostinato.StopGradient(x)
      y = Mul(x, s)
    }""",
    "as a result": """
      y = ostinato.StopGradient(x)
    }""",
    "in steps": "".join(
        f"""
      m{i} = Mul(h{i}, x)
      s{i} = ostinato.StopGradient(m{i})
      h{i + 1} = Add(s{i}, x)"""
        for i in range(12)
    ).replace("h0", "x")
    + "\n      y = Identity(h12)\n    }",
}
EXPECTED = {"beside another way": [2.0, 3.0, 4.0], "as a result": [0, 0, 0], "in steps": [1, 1, 1]}


@pytest.mark.parametrize("name", list(TEXTS))
def test_gradient(name: str) -> None:
    x = np.array([2, 3, 4], np.float32) if name != "in steps" else np.full(3, 0.5, np.float32)
    parts = partition(onnx.parser.parse_model(HEAD + TEXTS[name]), ["x"], ["y"])
    forward = ostinato.InferenceSession(parts.forward, cache_dir=None)
    outputs = [argument.name for argument in forward.get_outputs()]
    known = {"x": x, **dict(zip(outputs, forward.run(None, {"x": x}), strict=True))}
    feed = {argument: known[argument] for argument in parts.reads}
    backward = ostinato.InferenceSession(parts.backward, cache_dir=None)
    wanted = {argument.name for argument in backward.get_inputs()}
    feed[parts.cotangents["y"]] = np.ones(3, np.float32)
    (got,) = backward.run(None, {k: v for k, v in feed.items() if k in wanted})
    np.testing.assert_array_equal(got, np.array(EXPECTED[name], np.float32))
    domains = {
        node.domain for model in (parts.forward, parts.backward) for node in model.graph.node
    }
    assert domains == {""}
