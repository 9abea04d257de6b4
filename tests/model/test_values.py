from __future__ import annotations

import numpy as np
import onnx.helper
import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.values import constant_array, static_dims
from tests.golden import parse


def test_constant_array_is_decoded_once_and_read_only():
    model = load_model(parse("g (float[N] x) => (float[N] y) <float w = {2}> { y = Mul(x, w) }"))
    weight = model.graph.initializers["w"]
    array = constant_array(weight)
    assert array is not None and array.shape == () and array == 2
    assert constant_array(weight) is array
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 3


def test_strings_are_objects_of_python_even_those_that_end_with_zeros():
    proto = parse('g () => (string[2] s) <string[2] w = {"a", "bé"}> { s = Identity(w) }')
    proto.graph.initializer[0].string_data[0] = b"a\0"
    array = constant_array(load_model(proto).graph.initializers["w"])
    assert array is not None and array.tolist() == ["a\0", "bé"] and array.dtype == object


def test_only_initializers_are_constants():
    model = load_model(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"))
    assert constant_array(model.graph.inputs[0]) is None
    assert constant_array(model.graph.outputs[0]) is None
    assert constant_array(None) is None


def test_data_that_does_not_fit_is_a_model_error():
    proto = parse("g (float[N] x) => (float[N] y) <float[1] w = {2}> { y = Mul(x, w) }")
    tensor = onnx.helper.make_tensor("w", 1, [2], bytes(8), raw=True)
    tensor.dims[0] = 1
    proto.graph.initializer[0].CopyFrom(tensor)
    with pytest.raises(ModelError, match="'w'"):
        constant_array(load_model(proto).graph.initializers["w"])


def test_static_dims():
    model = load_model(
        parse("""
        g (float[N, 2, 1] x) => (float[7] y) <float[2, 2] w = {1, 2, 3, 4}> {
            t = Transpose(x)
            u = MatMul(w, t)
            y = Flatten(u)
        }
        """)
    )
    values = {value.name: value for node in model.graph for value in node.outputs}
    assert static_dims(model.graph.inputs[0]) == (None, 2, 1)
    assert static_dims(model.graph.initializers["w"]) == (2, 2)
    assert static_dims(values["t"]) == (1, 2, None)
    assert static_dims(values["u"]) == (1, 2, None)
    # What a file says about an output is a claim.
    assert static_dims(values["y"]) is None
    assert static_dims(None) is None


def test_a_constant_nobody_wrote_a_shape_for():
    model = load_model(parse("g () => (float[2] y) <float[2] w = {1, 2}> { y = Neg(w) }"))
    model.graph.initializers["w"].shape = None
    assert static_dims(model.graph.initializers["w"]) == (2,)
    assert np.array_equal(constant_array(model.graph.initializers["w"]), [1, 2])
