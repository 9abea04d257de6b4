from __future__ import annotations

import logging
import warnings

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.errors import OptionError
from ostinato.optimization import optimize
from tests.golden import make_feeds, parse, run_onnxruntime
from tests.node_cases import node_cases


def test_unknown_pass_name():
    with pytest.raises(OptionError, match=r"no pass is named 'dead_cod'; there are .*dead_code"):
        optimize(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"), disable=["dead_cod"])


def test_caller_keeps_its_model():
    model = parse("g (float[N] x) => (float[N] y) { t = Identity(x)  y = Neg(t) }")
    text = model.SerializeToString()
    assert len(optimize(model).graph.node) == 1
    assert len(optimize(model, disable=["eliminate_identity"]).graph.node) == 2
    assert model.SerializeToString() == text


def test_onnxruntime_agrees_on_a_recurrent_model():
    model = parse("""
        g (float[1, 1, 2] x, float[1, 1, 3] h) => (float[1, 1, 1, 3] y, float[1, 1, 3] hn) {
            y, hn = GRU <hidden_size = 3, linear_before_reset = 1> (x, wx, wh, "", "", h)
        }
        """)
    random = np.random.default_rng(0)
    for name, shape in (("wx", (1, 9, 2)), ("wh", (1, 9, 3))):
        weights = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    optimized = optimize(model)
    assert not {"GRU", "Scan"} & {node.op_type for node in optimized.graph.node}
    feeds = make_feeds(model)
    before, after = run_onnxruntime(model, feeds), run_onnxruntime(optimized, feeds)
    for expected, got in zip(before, after, strict=True):
        # The tanh of onnxruntime's GRU is another approximation than that of its Tanh.
        np.testing.assert_allclose(got, expected, atol=1e-5)


def equal(left: object, right: object) -> bool:
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    if left is None or right is None:
        return left is right
    a, b = np.asarray(left), np.asarray(right)
    same_kind = a.dtype == b.dtype and a.shape == b.shape
    return same_kind and (a.tobytes() == b.tobytes() or np.array_equal(a, b))


def test_every_node_test_of_onnx_keeps_its_results():
    """Each model of the official suite, valid after all passes and the same to the bit."""
    wrong, changed = [], 0
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for case in node_cases():
                if case.model is None:
                    continue
                # onnx.reference runs only part of Scan, so the recurrent operators stay. What
                # becomes of the definitions in other operators is equal but for rounding.
                kept = ["batched_scan", "recurrent_to_scan", "expand_functions"]
                result = optimize(case.model, disable=kept)
                onnx.checker.check_model(result)
                ops = [[node.op_type for node in m.graph.node] for m in (case.model, result)]
                if ops[0] == ops[1]:
                    continue
                changed += 1
                inputs = case.data_sets[0][0]
                feeds = {v.name: x for v, x in zip(case.model.graph.input, inputs, strict=False)}
                before = ReferenceEvaluator(case.model).run(None, feeds)
                if not equal(before, ReferenceEvaluator(result).run(None, feeds)):
                    wrong.append(case.name)
    finally:
        logging.disable(logging.NOTSET)
    assert not wrong
    assert changed > 300
