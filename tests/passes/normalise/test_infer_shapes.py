from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.normalise.infer_shapes import infer_of, infer_shapes, infer_through_loops
from ostinato.passes.normalise.lift_constants import lift_constants
from tests.golden import check, parse

TEXT = """
    g (bool c, float[B, 4] x) => (float[4, M] y) {
        t = Exp(x)
        u = If (c) <
            then_branch = a () => (float p) { i = Neg(t)  p = Abs(i) },
            else_branch = b () => (float q) { q = Relu(t) }>
        y = Transpose(u)
    }
    """


def test_missing_shapes_come_back():
    model = load_model(parse(TEXT))
    missing = {v.name: v for g in model.graphs() for n in g for v in n.outputs if v.name in "tip"}
    for value in missing.values():
        value.shape = value.type = None
    assert infer_shapes(model) == 3
    for value in missing.values():
        assert str(value.shape) == "[B,4]" and value.dtype is not None
    assert infer_shapes(model) == 0


def test_nothing_else_changes():
    check(infer_shapes, TEXT, TEXT, count=0)


def test_shapes_that_onnx_does_not_infer():
    model = load_model(
        parse(
            """
            g (float[N, 4] x, float[4] s) => (float[N, 4] y) {
                t = MeanVarianceNormalization <axes = [1]> (x)
                u = GroupNormalization <num_groups = 2> (t, s, s)
                y = Neg(u)
            }
            """,
            opset=21,
        )
    )
    for node in model.graph:
        node.outputs[0].shape = None
    while infer_shapes(model):
        pass
    assert [str(node.outputs[0].shape) for node in model.graph] == ["[N,4]"] * 3


def test_what_cannot_be_inferred_stays_unknown():
    model = load_model(
        parse("g (float[N] x, int64[K] s) => (float[M] y) { t = Reshape(x, s)  y = Flatten(t) }")
    )
    reshape = next(iter(model.graph))
    reshape.outputs[0].shape = None
    infer_shapes(model)
    assert reshape.outputs[0].shape is None


def test_transforms_of_signals_of_run_time_length_have_a_rank():
    text = "g (float[N,T,1] x, int64 s, int64 n) => (float[a,b,c,d] y) { z = STFT(x, s, , n)"
    model = load_model(parse(f"{text} y = Neg(z) }}"))
    while infer_shapes(model):
        pass
    frames = next(iter(model.graph)).outputs[0]
    assert frames.shape is not None
    assert (str(frames.shape[0]), frames.shape[3]) == ("N", 2)


def test_bins_that_onesided_leaves_out_have_no_shape():
    text = "g (float[N,16,1] x, float[8] w) => (float[a,b,c,d] y) { s = Constant<value_int = 4>()"
    model = load_model(parse(f"{text} z = STFT(x, s, w) y = Neg(z) }}"))
    lift_constants(model)
    while infer_shapes(model):
        pass
    frames = next(node for node in model.graph if node.op_type == "STFT").outputs[0]
    assert frames.shape is not None
    assert frames.shape[2] == 5


def test_the_rank_of_a_result_is_unknown_where_that_of_an_operand_is():
    text = (
        "g (float[N,4] x, int64[] i) => (float[] y, float[] z) { y = Gather(x, i)  z = Add(x, y) }"
    )
    model = load_model(parse(text))
    infer_shapes(model)
    assert [node.outputs[0].shape for node in model.graph] == [None, None]


LOOP = """
    g (float[N, 4] h, int64 trips, float[4, 4] w) => (float[A, B, C] y)
    <bool go = {1}> {
        last, rows = Loop <body = b (int64 i, bool on, float[] s)
            => (bool on, float[] t, float[] row) {
            p = MatMul(s, w)
            t = Add(p, s)
            row = Identity(t)
        }> (trips, go, h)
        y = Identity(rows)
    }
"""


def test_what_a_loop_carries_keeps_its_rank():
    """ONNX lets a Loop change the rank; tf2onnx gives no shapes to what its bodies read."""
    model = load_model(parse(LOOP))
    (rows,) = (v for node in model.graph for v in node.outputs if v.name == "rows")
    rows.shape = None
    infer_shapes(model)
    assert rows.shape is None
    assert infer_through_loops(model) > 0
    assert rows.shape is not None and [*map(str, rows.shape)][1:] == ["None", "4"]


def _without_shapes(text: str, names: str) -> tuple[ir.Model, dict[str, ir.Value]]:
    model = load_model(parse(text))
    values = {v.name or "": v for g in model.graphs() for n in g for v in n.outputs}
    for name in names:
        values[name].shape = values[name].type = None
    return model, values


def test_one_value_needs_no_inference_of_the_whole_model(monkeypatch: pytest.MonkeyPatch):
    """What definitions of a hundred operators ask for, one after the other."""
    module = "ostinato.passes.normalise.infer_shapes.infer_through_loops"
    monkeypatch.setattr(module, lambda model: pytest.fail("the whole model is inferred"))
    model, values = _without_shapes(
        """
        g (float[B, 4] x) => (float[B, 2, 2] y) <int64[3] s = {0, 2, 2}> {
            q, t, u = DynamicQuantizeLinear(x)
            i = Cast <to = 7> (q)
            y = Reshape(i, s)
            z = Cast <to = 6> (q)
        }""",
        "qiyz",
    )
    infer_of(values["y"], model)
    assert [str(values[name].shape) for name in "qiy"] == ["[B,4]", "[B,4]", "[B,2,2]"]
    assert [values[name].dtype for name in "qi"] == [ir.DataType.UINT8, ir.DataType.INT64]
    assert values["z"].shape is None


def test_one_value_behind_a_size_that_its_node_does_not_tell():
    text = """
    g (float[B, 4] x, float[B] v) => (float[B, 1] y) {
        s = Shape(v)
        l = Constant <value_ints = [1]> ()
        k = Concat <axis = 0> (s, l)
        r = Reshape(v, k)
        y = Neg(r)
    }"""
    model, values = _without_shapes(text, "ry")
    infer_of(values["y"], model)
    shape = values["y"].shape
    assert shape is not None and len(shape) == 2
