from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from ostinato import OptionError
from ostinato.quantization import quantize
from ostinato.streaming import convert
from tests import witness
from tests.quantization.models import TEXTS, feeds_of, model_of
from tests.quantization.test_quantize import outputs, worst_of

LEAST = 28.0
"""dB: two roundings to 8 bits, of operands of a dozen elements."""


def operators(model: onnx.ModelProto) -> Counter[str]:
    found: Counter[str] = Counter()
    graphs = [model.graph]
    for graph in graphs:
        for node in graph.node:
            found[node.op_type] += 1
            graphs += [item.g for item in node.attribute if item.type == item.GRAPH]
    return found


def two_products(
    x: str, y: str, random: np.random.Generator, *shapes: tuple[int, int]
) -> onnx.ModelProto:
    """Two products with a Tanh between them, of operands and results of these types."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({x} x) => ({y} y) '
        "{ h = MatMul (x, v) t = Tanh (h) y = MatMul (t, w) }"
    )
    for name, shape in zip("vw", shapes, strict=True):
        weights = (random.standard_normal(shape) / 50).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


CASES = [(name, "int8-dynamic") for name in TEXTS] + [
    (name, "int8-static") for name in ("MatMul on the left", "Conv", "GRU", "Loop")
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_products_of_bytes(name: str, kind: str) -> None:
    model = model_of(name)
    samples = [feeds_of(model, seed) for seed in range(6)]
    narrow = quantize(model, activations=kind, calibration=samples)
    assert worst_of(model, narrow, samples) > LEAST
    found = operators(narrow)
    if kind == "int8-dynamic" and name not in ("ConvTranspose", "MatMul of a batch"):
        left = name.endswith("on the left")
        assert left or found["MatMulInteger"] + found["ConvInteger"] >= 1
        assert (left or name == "Gather") == (found["DequantizeLinear"] > 0)
    if kind == "int8-static":
        assert found["QuantizeLinear"] >= 1 and found["DequantizeLinear"] >= 2
    assert not {"GRU", "LSTM", "RNN"} & set(found)
    expected = witness.run(narrow.SerializeToString(), samples[0])
    for ours, theirs in zip(outputs(narrow, samples[0]).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("weights", "block"), [("int4", None), ("int4", -1), ("int8", 4)])
@pytest.mark.parametrize("name", TEXTS)
def test_products_of_blocks_of_bytes(name: str, weights: str, block: int | None) -> None:
    model = model_of(name)
    feeds = feeds_of(model)
    narrow = quantize(model, weights, "int8-dynamic", block=block)
    plain = quantize(model, weights, block=block)
    assert worst_of(plain, narrow, [feeds]) > LEAST
    found = operators(narrow)
    if weights == "int4" and found["MatMulInteger"]:
        kinds = {x.data_type for x in narrow.graph.initializer}
        assert onnx.TensorProto.INT4 in kinds and not found["DynamicQuantizeLinear"]
    expected = witness.run(narrow.SerializeToString(), feeds)
    for ours, theirs in zip(outputs(narrow, feeds).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_rows_in_blocks_do_not_depend_on_each_other() -> None:
    model = model_of("MatMul")
    feeds = feeds_of(model)
    narrow = quantize(model, "int4", "int8-dynamic")
    whole = outputs(narrow, feeds)["y"]
    for number, row in enumerate(feeds["x"]):
        assert outputs(narrow, {"x": row[None]})["y"].tobytes() == whole[number][None].tobytes()


def test_rows_in_blocks_are_frames_of_a_stream() -> None:
    random = np.random.default_rng(0)
    model = two_products("float[1,T,40]", "float[1,T,8]", random, (40, 48), (48, 8))
    narrow = quantize(model, "int4", "int8-dynamic")
    x = random.standard_normal((1, 7, 40)).astype(np.float32)
    whole = outputs(narrow, {"x": x})["y"]
    step = convert(narrow, {"x": 1}).model
    for t in range(7):
        frame = outputs(step, {"x": x[:, t : t + 1]})["y"]
        assert frame.tobytes() == whole[:, t : t + 1].tobytes()


def test_operands_that_bytes_hold_badly_stay_floats() -> None:
    """A few elements of `x` are a hundred times as large as the others."""
    random = np.random.default_rng(0)
    model = two_products("float[4,32]", "float[4,8]", random, (32, 48), (48, 8))
    samples = [{"x": (random.standard_normal((4, 32)) ** 7).astype(np.float32)} for _ in range(12)]
    count, ratio = {}, {}
    for target in (None, 5.0, 35.0, 200.0):
        narrow = quantize(model, activations="int8-static", calibration=samples, target_snr=target)
        count[target] = operators(narrow)["QuantizeLinear"]
        ratio[target] = worst_of(model, narrow, samples)
    assert (count[None], count[5.0], count[200.0]) == (2, 2, 0)
    assert ratio[None] < 35 and (count[35.0], ratio[35.0] > 35) == (1, True)


def test_ranges_need_data() -> None:
    with pytest.raises(OptionError, match=r"int8-static.*calibration"):
        quantize(model_of("GRU"), activations="int8-static")
