"""Raising an old model to the opset of Scan: allowed where every other node keeps its meaning."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ostinato.errors import UnsupportedError
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from tests.oracle import evaluator
from tests.oracle import recurrent as oracle


def model_with(opset: int, nodes: str) -> ir.Model:
    text = f"""
        <ir_version: 3, opset_import: ["": {opset}]>
        g (double[4,2,3] x, double[1,3,3] w, double[1,3,3] r, double[3] v) => (double[1,2,3] out)
        {{
            y, h = RNN <hidden_size: int = 3> (x, w, r)
            {nodes}
        }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


KEPT = [
    (7, "out = Add (h, v)"),
    (8, "out = MatMul (h, w)"),
    (6, "out = Add (h, h)"),
    (6, "out = Relu (h)"),
    (5, "out = Identity (h)"),
    (4, "out = Concat <axis: int = 2> (h)"),
    (7, "out = BatchNormalization (h, v, v, v, v)"),
    (7, "out = PRelu (h, v)"),
    (6, "out = Max (h, h)"),
]

CHANGED = [
    (6, "out = Add <broadcast: int = 1> (h, v)", "Add", "'broadcast'"),
    (6, "out = PRelu (h, v)", "PRelu", "meaning"),
    (6, "out = BatchNormalization (h, v, v, v, v)", "BatchNormalization", "'is_test'"),
    (7, "out = BatchNormalization <spatial: int = 0> (h, v, v, v, v)", "Batch", "'spatial'"),
    (6, "out = Dropout (h)", "Dropout", "'is_test'"),
    (3, "out = Concat (h)", "Concat", "'axis'"),
    (5, 'out = Cast <to: string = "DOUBLE"> (h)', "Cast", "'to'"),
    (7, "out = Upsample <scales: floats = [1.0, 1.0, 1.0]> (h)", "Upsample", "meaning|'scales'"),
    (4, "out = Reshape <shape: ints = [1, 2, 3]> (h)", "Reshape", "'shape'"),
    (1, "out = Tile (h, v, v)", "Tile", "inputs"),
    (8, "out = Scan <num_scan_inputs: int = 1> (h, v)", "Scan", "inputs|'num_scan_inputs'"),
]


@pytest.mark.parametrize(("opset", "nodes"), KEPT)
def test_nodes_that_mean_the_same_are_taken_along(opset: int, nodes: str) -> None:
    model = model_with(opset, nodes)
    before = next(n for n in model.graph if n.op_type != "RNN").attributes.copy()
    assert recurrent_to_scan(model) == 1
    assert model.opset_imports == {"": 9} and model.ir_version == 4
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert list(model.graph)[-1].attributes == before


@pytest.mark.parametrize(("opset", "nodes", "op", "reason"), CHANGED)
def test_nodes_that_changed_are_refused_by_name(
    opset: int, nodes: str, op: str, reason: str
) -> None:
    model = model_with(opset, nodes)
    with pytest.raises(UnsupportedError, match=reason) as caught:
        recurrent_to_scan(model)
    assert f"'out' ({op}" in str(caught.value) and f"opset {opset}" in str(caught.value)
    assert model.opset_imports == {"": opset} and model.ir_version == 3
    assert any(node.op_type == "RNN" for node in model.graph)


def test_the_raised_model_computes_the_same() -> None:
    model = model_with(7, "out = Add (h, v)")
    recurrent_to_scan(model)
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 2, 3), "w": (1, 3, 3), "r": (1, 3, 3), "v": (3,)}
    feeds = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    (out,) = evaluator.run(ir.to_proto(model), feeds)
    want = oracle.rnn(feeds["x"], feeds["w"], feeds["r"])[1] + feeds["v"]
    np.testing.assert_allclose(out, want, rtol=1e-12)


def test_newer_models_keep_their_opset() -> None:
    model = model_with(12, "out = Add (h, v)")
    recurrent_to_scan(model)
    assert model.opset_imports == {"": 12}
