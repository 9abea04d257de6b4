from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from ostinato.graph.mixed_rows import mixed_rows
from ostinato.passes import run_passes

SCALE = "(DynamicQuantizeLinear) computes its scale"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = MatMul (x, w)", {}),
        ("y = ReduceSum <keepdims=0> (x, one)", {}),
        ("y = ReduceSum <keepdims=0> (x, zero)", {"N": "node 'y' (ReduceSum) reduces"}),
        ("y = Softmax <axis=0> (x)", {"N": "node 'y' (Softmax) normalises"}),
        ("y = Gather (x, zero)", {}),
        ("y, s, z = DynamicQuantizeLinear (x)", {"N": f"node 'y' {SCALE}"}),
        # Of a step of a loop.
        (
            "t = Unsqueeze (x, zero)  a, y = Scan <num_scan_inputs=1, body=b (float[N, 3] h,"
            " float[N, 3] f) => (float[N, 3] g, float[N, 3] o)"
            " { q, s, z = DynamicQuantizeLinear (h)  d = DequantizeLinear (q, s, z)"
            "  g = Add (d, f)  o = Identity (g) }> (x, t)",
            {"N": f"node 'q' {SCALE}"},
        ),
    ],
)
def test_nodes_are_named_that_compute_along_a_dimension(
    nodes: str, expected: dict[str, str]
) -> None:
    constants = "<int64[1] zero = {0}, int64[1] one = {1}, float[3, 1] w = {1, 2, 3}>"
    text = f"g (float[N, 3] x) => (float[A] y) {constants} {{ {nodes} }}"
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]> ' + text)
    model = ir.from_proto(proto)
    run_passes(model, ["single_step_scan"])
    assert mixed_rows(model) == expected
