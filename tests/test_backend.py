from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato.backend as backend
from ostinato.errors import InputError, OptionError, UnsupportedError
from ostinato.ops import LOWERINGS
from tests.golden import parse

TWO = parse("g (float[N] x, float[N] y) => (float[N] sum, float[N] difference) "
            "{ sum = Add(x, y)  difference = Sub(x, y) }")  # fmt: skip
X, Y = np.array([1, 2], "f"), np.array([10, 20], "f")


def test_inputs_and_outputs_are_in_the_order_of_the_model():
    prepared = backend.prepare(TWO, cache_dir=None)
    results = prepared.run([X, Y])
    assert isinstance(results, tuple)
    assert [r.tolist() for r in results] == [[11, 22], [-9, -18]]
    assert results["difference"].tolist() == [-9, -18]
    assert [r.tolist() for r in prepared.run((Y, X))] == [[11, 22], [9, 18]]


def test_values_may_be_messages_scalars_and_lists():
    (y,) = backend.run_model(
        parse("g (float a, seq(float[N]) s, optional(float) o) => (float[M] y) "
              "{ j = ConcatFromSequence <axis = 0> (s)  b = OptionalHasElement(o) "
              "f = Cast <to = 1> (b)  p = Add(j, a)  y = Add(p, f) }"),
        [
            np.float32(1),
            numpy_helper.from_list([X, Y], "s"),
            None,
        ],
        cache_dir=None,
    )  # fmt: skip
    assert y.tolist() == [2, 3, 11, 21]
    assert backend.run_model(TWO, [numpy_helper.from_array(X), [10.0, 20.0]], cache_dir=None)[
        0
    ].tolist() == [11, 22]


def test_a_wrong_number_of_inputs_is_named():
    prepared = backend.prepare(TWO, cache_dir=None)
    with pytest.raises(InputError, match=r"expected 2 \(x, y\), got 1"):
        prepared.run([X])
    with pytest.raises(InputError, match="expected a list of values"):
        prepared.run({"x": X, "y": Y})
    with pytest.raises(InputError, match="unknown argument 'speed'"):
        prepared.run([X, Y], speed=1)


def test_only_the_cpu_is_a_device():
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA") and not backend.supports_device("")
    with pytest.raises(OptionError, match="device='CUDA'"):
        backend.prepare(TWO, "CUDA")


def test_options_reach_the_compiler(monkeypatch):
    monkeypatch.delitem(LOWERINGS, "NonZero")
    with pytest.raises(OptionError, match="unknown option 'speed'"):
        backend.prepare(TWO, speed=1)
    nonzero = parse("g (float[N] x) => (int64[r, k] y) { y = NonZero(x) }")
    assert backend.is_compatible(nonzero, cache_dir=None)
    assert not backend.is_compatible(nonzero, cache_dir=None, fallback=False)


def test_a_node_runs_alone():
    add = helper.make_node("Add", ["a", "b"], ["c"])
    assert backend.run_node(add, [X, Y], cache_dir=None)["c"].tolist() == [11, 22]
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    for given in ([X, np.float32(1)], [X, None, np.float32(1)]):
        assert backend.run_node(clip, given, cache_dir=None)[0].tolist() == [1, 1]
    info = [(np.dtype("f"), (2,))]
    old = helper.make_node("Scatter", ["x", "i", "u"], ["y"])
    (y,) = backend.run_node(
        old, [X, np.array([1]), np.array([7], "f")], outputs_info=info, opset_version=9,
        cache_dir=None,
    )  # fmt: skip
    assert y.tolist() == [1, 7]
    length = helper.make_node("SequenceLength", ["s"], ["n"])
    assert backend.run_node(length, [[X, Y]], cache_dir=None)[0] == 2
    normal = helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm="MAX")
    info = [(np.dtype("f"), (1, 2))]
    (y,) = backend.run_node(normal, [Y[None]], outputs_info=info, cache_dir=None)
    assert y.tolist() == [[0.5, 1]]
    with pytest.raises(InputError, match=r"\(Normalizer\): the type of output 'y'"):
        backend.run_node(normal, [Y[None]])


def test_a_node_that_cannot_run_is_named():
    add = helper.make_node("Add", ["a", "b"], ["c"], name="plus")
    with pytest.raises(InputError, match=r"node 'plus' \(Add\): expected 2 inputs \(a, b\), got 1"):
        backend.run_node(add, [X])
    with pytest.raises(InputError, match="input 'b': expected an array, got str"):
        backend.run_node(add, [X, "text"])
    with pytest.raises(UnsupportedError, match=r"Gelu.*version 9 has no such operator"):
        backend.run_node(helper.make_node("Gelu", ["a"], ["c"]), [X], opset_version=9)
    product = helper.make_node("MatMul", ["a", "b"], ["c"], name="product")
    with pytest.raises(InputError, match=r"node 'product' \(MatMul\)"):
        backend.run_node(product, [X, np.zeros((3, 3), "f")])
    foreign = helper.make_node("Add", ["a", "b"], ["c"], name="plus", domain="elsewhere")
    with pytest.raises(UnsupportedError, match=r"node 'plus' \(Add\)"):
        backend.run_node(foreign, [X, Y])


def test_strings_are_values_of_nodes():
    concat = helper.make_node("StringConcat", ["a", "b"], ["c"])
    (c,) = backend.run_node(concat, [np.array(["x"]), np.array(["y"], object)], cache_dir=None)
    assert c.tolist() == ["xy"] and c.dtype == object


def test_it_is_a_backend_of_onnx():
    assert issubclass(backend.OstinatoBackend, onnx.backend.base.Backend)
    message = helper.make_tensor("x", TensorProto.FLOAT, [2], [1, 2])
    assert backend.run_model(TWO, [message, Y], cache_dir=None)[0].tolist() == [11, 22]
