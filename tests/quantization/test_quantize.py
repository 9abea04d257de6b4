from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from ostinato import InputError, ModelError, OptionError
from ostinato.quantization import quantize, quantize_layers
from ostinato.quantization.quantize import METADATA
from ostinato.quantization.samples import signal_to_noise
from ostinato.quantization.sensitivity import UnreachedWeights
from tests import witness
from tests.quantization.models import TEXTS, feeds_of, language_model, model_of, weights_of

WIDE = (0.3 * np.random.default_rng(8).standard_normal((6, 4, 3))).astype(np.float32)
# Of one rounding: 6 dB for each bit, less what the largest weight of a row takes.
LEAST = {"int4": 12.0, "int8": 35.0, "bf16": 45.0, "f16": 60.0}
KINDS = {
    "int8": onnx.TensorProto.INT8,
    "bf16": onnx.TensorProto.BFLOAT16,
    "f16": onnx.TensorProto.FLOAT16,
}


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ostinato.InferenceSession(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def worst_of(
    model: onnx.ModelProto, other: onnx.ModelProto, samples: list[dict[str, np.ndarray]]
) -> float:
    expected, found = ([outputs(m, feeds) for feeds in samples] for m in (model, other))
    return min(signal_to_noise(expected, found).values())


def test_all_tensors_of_a_list_count() -> None:
    first, second = np.ones(2, np.float32), np.ones(3, np.float32)
    lists: list[dict[str, Any]] = [
        {"y": [first, second], "n": np.arange(2)},
        {"y": [first, 1.5 * second], "n": np.arange(2)},
        {"y": [first], "n": np.arange(2)},
    ]
    assert signal_to_noise(lists[:1], lists[1:2]) == {"y": pytest.approx(10 * np.log10(5 / 0.75))}
    assert signal_to_noise(lists[:1], lists[2:]) == {"y": -np.inf}


def worst(model: onnx.ModelProto, other: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    return min(signal_to_noise([outputs(model, feeds)], [outputs(other, feeds)]).values())


@pytest.mark.parametrize(
    ("name", "weights"), [*((name, "int8") for name in TEXTS), ("GRU", "bf16"), ("Gemm", "f16")]
)
def test_weights_of_every_kind(name: str, weights: str) -> None:
    model = model_of(name)
    feeds, narrow = feeds_of(model), quantize(model, weights)
    assert worst(model, narrow, feeds) > LEAST[weights]
    kept = {tensor.data_type for tensor in narrow.graph.initializer if len(tensor.dims) > 1}
    assert KINDS[weights] in kept
    expected = witness.run(narrow.SerializeToString(), feeds)
    for ours, theirs in zip(outputs(narrow, feeds).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*not all native")
@pytest.mark.parametrize("name", ["GRU", "LSTM", "RNN", "Scan", "Gemm", "If"])
def test_calibration_makes_it_better(name: str) -> None:
    model = model_of(name)
    samples = [feeds_of(model, seed) for seed in range(16)]
    better = quantize(model, "int4", calibration=samples[:12])
    plain = quantize(model, "int4")
    before, after = (worst_of(model, other, samples[12:]) for other in (plain, better))
    assert after > before + 1


@pytest.mark.filterwarnings("ignore:.*not all native")
@pytest.mark.parametrize("name", ["MatMul", "GRU", "Conv", "Scan"])
def test_int4_and_blocks(name: str) -> None:
    model = model_of(name)
    feeds, narrow = feeds_of(model), quantize(model, "int4", block=4 if name != "Conv" else None)
    assert worst(model, narrow, feeds) > LEAST["int4"]
    expected = witness.run(narrow.SerializeToString(), feeds)
    for ours, theirs in zip(outputs(narrow, feeds).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_of_inputs_with_a_mean(group: int) -> None:
    model = model_of("Conv", {"w": weights_of("Conv")["w"]} if group == 2 else {"w": WIDE})
    model.graph.node[0].attribute[0].i = group
    samples = [feeds_of(model, seed) for seed in range(4)]
    for sample in samples:
        sample["x"][:, :2] += 5
    plain, better = (
        quantize(model, block=b, calibration=c) for b, c in ((-1, None), (-1, samples))
    )
    gain = worst_of(model, better, samples) - worst_of(model, plain, samples)
    assert gain > (3 if group == 1 else -1)
    assert len(better.graph.node[1].input) == (3 if group == 1 else 2)


def test_rows_of_any_length_have_one_scale() -> None:
    model = model_of("MatMul", {"w": np.ones((48, 5), "f"), "b": np.zeros(5, "f")})
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 48
    shapes = {}
    for block in (None, 16, -1):
        narrow = quantize(model, "int4", block=block)
        shapes[block] = {t.name: list(t.dims) for t in narrow.graph.initializer}["w_scale"]
    assert shapes == {None: [2, 5], 16: [3, 5], -1: [5]}


def test_what_was_done_is_in_the_model() -> None:
    result = quantize_layers(model_of("GRU"), "int8", exclude=["*/R"])
    (layer,) = result.layers
    assert (layer.weights, layer.type, layer.before) == ("w", "int8", 4 * 2 * 24 * 12)
    assert layer.after == 2 * 24 * 12 + 4 * 2 * 24
    (entry,) = [item for item in result.model.metadata_props if item.key == METADATA]
    assert json.loads(entry.value)["weights"] == {layer.name: "int8"}
    names = {tensor.name for tensor in result.model.graph.initializer}
    assert {"w_int8", "w_scale", "r", "b"} <= names and "w" not in names


def test_nodes_without_a_name_are_called_as_their_first_output() -> None:
    model = model_of("GRU")
    (node,) = model.graph.node
    node.name = ""
    with pytest.raises(OptionError, match="nothing is left"):
        quantize(model, "int8", exclude=[node.output[0] or node.output[1]])
    with pytest.raises(OptionError, match="'None'"):
        quantize(model, "int8", exclude=["None"])


def test_weights_that_two_nodes_read_are_stored_once() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> tied (float[N, 6] x) => (float[N, 6] y) '
        "{ a = MatMul(x, w) y = MatMul(a, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.eye(6, dtype=np.float32), "w"))
    assert [t.name for t in quantize(model).graph.initializer] == ["w_int8", "w_scale"]


@pytest.mark.filterwarnings("ignore:.*not all native")
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_channels_of_zeros_and_of_tiny_or_huge_weights(weights: str) -> None:
    w = weights_of("MatMul")["w"]
    w[:, 0], w[:, 1], w[:, 2] = 0, 1e-42, w[:, 2] * 1e37
    model = model_of("MatMul", {"w": w, "b": np.zeros(5, np.float32)})
    for calibration in (None, [feeds_of(model)]):
        y = outputs(quantize(model, weights, calibration=calibration), feeds_of(model))["y"]
        expected = outputs(model, feeds_of(model))["y"]
        assert np.isfinite(y).all() and not y[:, 0].any()
        np.testing.assert_allclose(y[:, 2], expected[:, 2], rtol=0.3, atol=1e36)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"weights": "int5"}, OptionError, "weights='int5'.*int8"),
        ({"activations": "int8"}, OptionError, "activations='int8'.*int8-dynamic"),
        ({"weights": "bf16", "activations": "int8-dynamic"}, OptionError, "weights='bf16'.*'int4'"),
        ({"weights": "int4", "activations": "int8-static"}, OptionError, "weights='int4'"),
        ({"block": 4, "activations": "int8-static"}, OptionError, "block=4"),
        ({"block": 5}, OptionError, "block=5.*12 products"),
        ({"block": -2}, OptionError, "block=-2"),
        ({"block": 0}, OptionError, "block=0"),
        ({"block": 4, "weights": "f16"}, OptionError, "f16 has no scales"),
        ({"exclude": ["decoder"]}, OptionError, "'decoder'"),
        ({"exclude": "p"}, OptionError, "list of names"),
        ({"exclude": ["*"]}, OptionError, "nothing is left"),
        ({"target_snr": "high"}, OptionError, "number of dB"),
        ({"calibration": {"z": np.zeros(3)}}, InputError, "no input 'z'"),
        ({"calibration": {}}, InputError, "'x' is missing"),
        ({"calibration": []}, InputError, "no samples"),
        ({"calibration": {"x": np.zeros((2, 7), "f")}}, InputError, r"\['N', 12\].*\[2, 7\]"),
        ({"calibration": {"x": np.full((2, 12), np.nan, "f")}}, InputError, "not finite"),
        ({"calibration": {"x": np.zeros((2, 12))}}, InputError, "float64"),
        ({"calibration": 5}, InputError, "int"),
        ({"calibration": "none.npz"}, InputError, "no such file"),
        ({"calibration": __file__}, InputError, r"no \.npz file"),
        ({"states": 5}, OptionError, "states=5"),
        ({"states": {"x": "z"}}, InputError, r"'z'.*\['y'\]"),
    ],
)
def test_bad_options(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        quantize(model_of("MatMul"), **options)


def test_calibration_in_a_file_of_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 12), np.float32))
    with pytest.raises(InputError, match=r"one array, expected an \.npz file"):
        quantize(model_of("MatMul"), calibration=tmp_path / "x.npy")


def test_weights_that_are_not_finite() -> None:
    w = weights_of("MatMul")
    w["w"][1, 1] = np.nan
    with pytest.raises(ModelError, match=r"'w'.*1 elements"):
        quantize(model_of("MatMul", w))
    w["w"][1, 1] = 1e9
    with pytest.raises(OptionError, match="1e\\+09, beyond"):
        quantize(model_of("MatMul", w), "f16")


def test_samples_of_which_nothing_finite_comes() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> log (float[N, 12] x) => (float[N, 5] y) '
        "{ a = Log(x) y = MatMul(a, w) }"
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights_of("MatMul")["w"], "w"))
    with pytest.raises(InputError, match=r"output 'y'.*not finite"):
        quantize(model, target_snr=30, calibration={"x": -np.ones((2, 12), np.float32)})


def test_nothing_to_quantise() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> none (float[N] x) => (float[N] y) {y = Abs(x)}'
    with pytest.raises(ModelError, match="nothing to quantise"):
        quantize(onnx.parser.parse_model(text))


def test_the_narrowest_types_that_meet_a_target() -> None:
    model = model_of("LSTM")
    samples = [feeds_of(model, seed) for seed in range(4)]
    for target, allowed in ((12.0, {"int4", "int8"}), (45.0, {"int8", "bf16", "f16"})):
        result = quantize_layers(model, "int4", target_snr=target, calibration=samples)
        assert worst_of(model, result.model, samples) >= target
        assert {layer.type for layer in result.layers} <= allowed
        assert all(layer.snr is not None and layer.snr >= target for layer in result.layers)
    assert "float32" not in str(result.layers)
    with pytest.raises(OptionError, match="no weights can be narrower"):
        quantize(model, "f16", target_snr=200, calibration=samples)
    with pytest.raises(OptionError, match="needs `calibration`"):
        quantize(model, target_snr=20)


def test_weights_that_no_sample_reaches_stay() -> None:
    model = model_of("GRU")
    sample = feeds_of(model)
    first = {"x": sample["x"][:1]}
    with pytest.warns(UnreachedWeights, match="several steps"):
        result = quantize_layers(model, "int4", target_snr=20, calibration=first)
    assert [layer.weights for layer in result.layers] == ["w"]
    result = quantize_layers(model, "int4", measure_on=first)
    known = {layer.weights: layer.snr is not None for layer in result.layers}
    assert known == {"w": True, "r": False}
    result = quantize_layers(model, "int4", target_snr=20, calibration=sample)
    assert {layer.weights for layer in result.layers} == {"w", "r"}


def test_a_target_needs_outputs_of_floats() -> None:
    model = model_of("MatMul")
    model.graph.node.append(onnx.helper.make_node("ArgMax", ["y"], ["best"], axis=1))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("best", 7, ["N", 1]))
    with pytest.raises(InputError, match="no output of floats"):
        quantize(model, target_snr=20, calibration={"x": np.ones((2, 12), np.float32)})


def test_tables_have_a_scale_for_each_row_that_blocks_do_not_divide() -> None:
    model = model_of("Gather")
    other = numpy_helper.from_array(np.ones((9, 50), np.float32), "other")
    model.graph.initializer.append(other)
    model.graph.node.append(onnx.helper.make_node("Gather", ["other", "x"], ["rows"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("rows", 1, ["N", "T", 50]))
    shapes = {t.name: list(t.dims) for t in quantize(model, block=16).graph.initializer}
    assert (shapes["t_scale"], shapes["other_scale"]) == ([9, 3], [9])


@pytest.mark.parametrize("weights", ["int8", "int4", "f16"])
def test_an_embedding_that_also_gives_the_scores_is_stored_once(weights: str) -> None:
    model, t = language_model(), {"t": np.arange(12).reshape(3, 4)}
    narrow = quantize(model, weights)
    assert sum(tensor.dims == [40, 32] for tensor in narrow.graph.initializer) == 1
    assert not any(tensor.dims == [32, 40] for tensor in narrow.graph.initializer)
    results = outputs(narrow, t)["y"]
    np.testing.assert_allclose(results, witness.run(narrow.SerializeToString(), t)[0], atol=1e-5)
    assert signal_to_noise([outputs(model, t)], [{"y": results}])["y"] > 15


def test_integer_products_with_a_tied_embedding_leave_none_of_its_floats() -> None:
    model, t = language_model(), {"t": np.arange(12).reshape(3, 4)}
    narrow = quantize(model, "int8", "int8-dynamic")
    assert "Transpose" not in {node.op_type for node in narrow.graph.node}
    wide = [tensor for tensor in narrow.graph.initializer if tensor.data_type == 1]
    assert all(len(tensor.dims) < 2 for tensor in wide)
    assert signal_to_noise([outputs(model, t)], [outputs(narrow, t)])["y"] > 30


def test_an_operand_that_nothing_else_reads_is_turned_once() -> None:
    model = language_model()
    model.graph.node[0].input[0] = "other"
    other = numpy_helper.from_array(np.ones((40, 32), np.float32), "other")
    model.graph.initializer.append(other)
    narrow = quantize(model)
    assert "Transpose" not in {node.op_type for node in narrow.graph.node}


def test_a_transpose_that_turns_nothing_leaves_products_as_they_are() -> None:
    model, t = language_model(), {"t": np.arange(12).reshape(3, 4)}
    table = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(table, "E"))
    model.graph.node[2].attribute[0].ints[:] = [0, 1]
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 32
    narrow = quantize(model, "int8", "int8-dynamic")
    assert signal_to_noise([outputs(model, t)], [outputs(narrow, t)])["y"] > 30
