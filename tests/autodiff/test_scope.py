"""Which values have a gradient."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.autodiff.scope import depends
from tests.autodiff.models import parse


def test_values_of_unknown_types_may_have_a_gradient() -> None:
    """Shape inference leaves some loops without types: zeros would be a wrong gradient."""
    model = ir.from_proto(
        parse("""
        g (float[4] x, int64[4] i) => (float[4] y, int64[4] j) {
          t = Tanh(x)  y = Neg(t)  k = CastLike(i, t)  j = Add(k, i)
        }""")
    )
    graph = model.graph
    assert next(iter(graph)).outputs[0].dtype is None
    found = depends(graph, [graph.inputs[0]])
    assert {value.name for value in found} == {"x", "t", "y"}
