from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from ostinato.codegen.artifact import UNDEFINED, Argument
from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.stages.branch import branch_model

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (bool c, float[N] x, float[2] w) => (float[N] y, float[N] z) {
    h = Neg(x)
    y, z = If (c) <
        then_branch = t () => (a, a) {
            b = Constant<value = float[1] {1.0}>()
            d = If (c) <
                then_branch = tt () => (e) { e = Mul(h, w) },
                else_branch = te () => (h) { }
            >
            a = Add(d, b)
        },
        else_branch = f () => (h, x) { }
    >
}"""


def _parts():
    model = load_model(onnx.parser.parse_model(TEXT))
    node = model.graph[-1]
    values = {v.name: v for v in model.graph.inputs} | {"h": model.graph[0].outputs[0]}
    return model, node.attributes["then_branch"].as_graph(), values


def test_a_branch_reads_what_it_is_given_and_stays_as_it_is():
    model, branch, values = _parts()
    before, uses = ir.to_proto(model).SerializeToString(), set(values["h"].uses())
    inputs = {
        values["c"]: Argument("c", "bool", ()),
        values["h"]: Argument("h", "float32", ("N",)),
    }
    made = branch_model(branch, inputs, {values["w"]: ir.tensor(np.float32([2, 3]))}, {"": 21})
    assert ir.to_proto(model).SerializeToString() == before
    assert set(values["h"].uses()) == uses
    onnx.checker.check_model(proto := ir.to_proto(made))
    run = onnx.reference.ReferenceEvaluator(proto).run
    for c, expected in ((True, [3, 7]), (False, [2, 3])):
        feeds = {"c": np.array(c), "h": np.float32([1, 2])}
        for output in run(None, feeds):
            np.testing.assert_array_equal(output, expected)


def test_what_it_reads_has_a_type():
    _, branch, values = _parts()
    with pytest.raises(ModelError, match="the type of 'h' is not known"):
        branch_model(branch, {values["h"]: Argument("h", UNDEFINED, ())}, {}, {"": 21})
