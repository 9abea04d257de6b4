from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from ostinato.model.load import load_model
from ostinato.model.origins import Made, Observed, Origins
from ostinato.model.values import constant_array, unread_array
from ostinato.protobuf.structure import Weight

W = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def origins() -> Origins:
    return Origins([weight(array) for array in (W, W + 1)])


def weight(array: np.ndarray, name: str = "") -> Weight:
    return Weight(name, memoryview(array.tobytes()), array.dtype)


def loaded(*arrays: np.ndarray) -> tuple[list[ir.Value], ir.Model]:
    """The initializers of a model with these, and the model."""
    names = [f"w{i}" for i in range(len(arrays))]
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[8, 8] x) => (float[8, 8] y) {{ y = Sum({", ".join(["x", *names])}) }}"""
    )
    for name, array in zip(names, arrays, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    made = load_model(model)
    return [made.graph.initializers[name] for name in names], made


def test_whoever_looks_at_a_weight_is_noted(origins: Origins):
    (first, second), model = loaded(W, W + 1)
    origins.attach(model)
    np.testing.assert_array_equal(unread_array(first), W)
    assert not origins.looked_at
    np.testing.assert_array_equal(constant_array(second), W + 1)
    assert origins.looked_at == {1} and origins.fixed() == [1]


@pytest.mark.parametrize(
    "look", [np.asarray, ir.to_proto, lambda t: t.tobytes(), lambda t: t.raw, lambda t: t.numpy()]
)
def test_every_way_to_the_elements_is_noted(look, origins: Origins):
    (value,), model = loaded(W)
    origins.attach(model)
    assert isinstance(value.const_value, Observed)
    look(value.const_value)
    assert origins.looked_at == {0}


def test_looking_at_what_is_made_of_weights_is_looking_at_them(origins: Origins):
    (first, second), model = loaded(W, W + 1)
    origins.attach(model)
    operands = unread_array(first), unread_array(second)
    total = origins.made(Made("Add", {}, False, operands), np.add(*operands))
    turned = origins.made(Made("Transpose", {}, True, (total.unread,)), total.unread.T)
    assert not origins.looked_at
    turned.numpy()
    assert origins.looked_at == {0, 1}


def test_views_are_located_by_their_memory(origins: Origins):
    (value,), model = loaded(W)
    origins.attach(model)
    array = unread_array(value)
    assert origins.locate(array[2:, 3:].T) == (0, 19)
    assert origins.locate(array.copy()) is None


def test_weights_that_nobody_can_tell_apart_are_fixed():
    origins = Origins([weight(W), weight(W), weight(np.zeros(64, np.float32))])
    _, model = loaded(W, W, np.zeros_like(W))
    origins.attach(model)
    assert not origins.sources and origins.fixed() == [0, 1, 2]


def test_names_tell_equal_weights_apart():
    zeros = np.zeros_like(W)
    origins = Origins([weight(W, "w0"), weight(W, "w1"), weight(zeros, "w2"), weight(W, "twice")])
    (*_, last), model = loaded(W, W, zeros, W)
    origins.attach(model)
    assert origins.sources == [0, 1, 2] and origins.fixed() == [3]
    assert not isinstance(last.const_value, Observed)
