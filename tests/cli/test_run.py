import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import ostinato
from ostinato.cli.run import summary
from tests.cli.conftest import Invoke, save
from tests.golden import parse


def test_table_has_every_output(invoke: Invoke, gru: Path) -> None:
    result = invoke("run", gru, "--dim", "T=3")
    assert result.exit_code == 0, result.stderr
    for text in ("y", "h", "float32", "[3, 1, 1, 4]", "mean"):
        assert text in result.stdout


@pytest.mark.parametrize(
    ("option", "text", "form"),
    [
        ("--input", "x.npy", "NAME=FILE.npy"),
        ("--dim", "T", "NAME=SIZE"),
        ("--set", "a", "NAME=VAL"),
    ],
)
def test_options_of_pairs_tell_their_form(
    invoke: Invoke, gru: Path, option: str, text: str, form: str
) -> None:
    result = invoke("run", gru, option, text)
    assert f"{option} '{text}': expected {form}" in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize(
    "command", [["run"], ["bench", "--seconds", "0.01"], ["inspect"], ["profile"]]
)
def test_commands_take_fields_of_options(invoke: Invoke, gru: Path, command: list[str]) -> None:
    assert invoke(*command, gru, "--set", "seed=3").exit_code == 0
    result = invoke(*command, gru, "--set", "seeds=3")
    assert result.exit_code == 2
    assert "--set seeds=3: expected one of threads" in result.stderr


def test_a_file_is_no_folder_for_outputs(
    invoke: Invoke, gru: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.cli.run.open_fed", lambda *_: pytest.fail("it would run first"))
    result = invoke("run", gru, "--output-dir", gru)
    assert result.exit_code == 2 and "expected a folder for the outputs" in result.stderr


@pytest.mark.parametrize("command", ["run", "bench", "compare", "profile"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "S=1"], "no such dimension, they have ['T']"),
        (["--input", "z=z.npy"], "no such input, it has ['x']"),
        (["--input", "x=z.npy"], "cannot read z.npy"),
    ],
)
def test_what_cannot_be_fed_is_refused_before_compiling(
    invoke: Invoke,
    gru: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.delattr(ostinato, "InferenceSession")
    result = invoke(command, gru, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_saved_outputs_are_those_of_a_session(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((5, 1, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    result = invoke(
        "run", gru, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out", "--json"
    )
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["outputs"]
    expected = ostinato.InferenceSession(gru, cache_dir=None).run(None, {"x": x})
    assert [row["name"] for row in rows] == ["y", "h"]
    for row, value in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(np.load(row["file"]), value)
        assert row["shape"] == list(value.shape)
        assert row["min"] == float(value.min())


def test_outputs_that_are_no_arrays(invoke: Invoke, tmp_path: Path) -> None:
    nodes = [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[1])]
    model = onnx.load(save(tmp_path / "m.onnx", nodes, {"x": [2, 1]}, {"y": [2]}))
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    model.graph.output[0].ClearField("type")
    onnx.save(model, tmp_path / "m.onnx")
    result = invoke("run", tmp_path / "m.onnx", "--json")
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["outputs"]
    assert (row["type"], row["shape"]) == ("seq(map(int64,tensor(float)))", [2])
    result = invoke("run", tmp_path / "m.onnx", "--output-dir", tmp_path)
    assert result.exit_code == 2
    assert "output 'y' is seq(map(int64,tensor(float)))" in result.stderr


def test_initializers_are_overridden_by_a_file(invoke: Invoke, tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    constants = {"w": np.array([2, 3], np.float32)}
    model = onnx.load(save(tmp_path / "m.onnx", nodes, {"x": [2]}, {"y": [2]}, constants))
    model.graph.input.append(helper.make_tensor_value_info("w", 1, [2]))
    onnx.save(model, tmp_path / "m.onnx")
    files = {"x": np.ones(2, np.float32), "w": np.array([5, 7], np.float32)}
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    for given, largest in ((["x"], 3), (["x", "w"], 7)):
        options = [text for name in given for text in ("--input", f"{name}={tmp_path}/{name}.npy")]
        result = invoke("run", tmp_path / "m.onnx", *options, "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["outputs"][0]["max"] == largest


def test_names_that_are_no_file_names_are_saved(invoke: Invoke, tmp_path: Path) -> None:
    names = ["a/b", "a:b", "../c"]
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in names]
    model = save(tmp_path / "m.onnx", nodes, {"x": [2]}, {name: [2] for name in names})
    folder = tmp_path / "out"
    result = invoke("run", model, "--output-dir", folder, "--json")
    assert result.exit_code == 0, result.stderr
    files = {row["file"] for row in json.loads(result.stdout)["outputs"]}
    assert len(files) == 3
    assert {Path(file) for file in files} == set(folder.iterdir())


def test_an_error_is_one_line_and_code_2(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    for arguments in (
        [bad],
        [tmp_path / "missing.onnx"],
        [gru, "--dim", "S=2"],
        [gru, "--input", "x=missing.npy"],
        [gru, "--disable", "no-such-pass"],
    ):
        result = invoke("run", *arguments)
        assert result.exit_code == 2, arguments
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("run", tmp_path / "missing.onnx", "--debug")
    assert isinstance(result.exception, ostinato.OstinatoError)


def test_no_cache_writes_nothing(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    assert invoke("run", gru, "--no-cache").exit_code == 0
    before = list((tmp_path / "cache").rglob("*"))
    assert invoke("run", gru).exit_code == 0
    assert len(list((tmp_path / "cache").rglob("*"))) > len(before)


@pytest.mark.parametrize(
    ("value", "figures"),
    [
        (np.array([1, 2, 6], np.int64), (1, 3, 6)),
        (np.array([True, False]), (0, 0.5, 1)),
        (np.zeros((0, 3), np.float32), (None, None, None)),
        (np.array(["a"], object), (None, None, None)),
    ],
)
def test_summary(value: np.ndarray, figures: tuple[float | None, ...]) -> None:
    row = summary("y", value)
    assert (row["min"], row["mean"], row["max"]) == figures
    assert row["shape"] == list(value.shape)
    assert row["type"] == ("string" if value.dtype == object else str(value.dtype))


def test_inputs_that_were_made_up_are_told_where_the_model_fails(
    invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    model = parse("g (float[T] x) => (float[2, S] y) <int64[2] s = {2, -1}> { y = Reshape(x, s) }")
    path.write_bytes(model.SerializeToString())
    result = invoke("run", path)
    assert result.exit_code == 2 and "inputs were made up: x[1]; where" in result.stderr
    assert invoke("run", path, "--dim", "T=4").exit_code == 0
