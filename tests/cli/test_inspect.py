import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from ostinato.cli.inspect import Assertions
from ostinato.compiler import optional_passes
from ostinato.demo import MODEL
from ostinato.ops import LOWERINGS
from ostinato.stages.report import Report, not_native
from ostinato.stages.stage import FallbackStage
from tests.cli.conftest import Invoke, save
from tests.golden import parse

NODE = FallbackStage(b"", (), (), (), "n", "Foo", "no kernel")
REPORT = Report(
    ops={"before": {"Loop": 1}, "after": {"Scan": 2}},
    kernels=[{"name": "a"}, {"name": "b"}],
    fallback=[not_native(NODE), {**not_native(NODE), "unless": ["sizes"]}],
)


@pytest.mark.parametrize(
    ("assertions", "violations"),
    [
        (Assertions({}, False, None), 0),
        (Assertions({"Scan": 2, "Loop": 0}, False, 2), 0),
        (Assertions({"Scan": 0}, False, None), 1),
        (Assertions({"Loop": 1}, False, None), 1),
        (Assertions({}, False, 0), 1),
        (Assertions({}, True, None), 1),
        (Assertions({"Scan": 0, "Loop": 1}, True, 3), 4),
    ],
)
def test_violations(assertions: Assertions, violations: int) -> None:
    assert len(assertions.violations(REPORT)) == violations


def test_the_node_that_is_not_native_is_named() -> None:
    (text,) = Assertions({}, True, None).violations(REPORT)
    assert "'n' (Foo)" in text
    assert "no kernel" in text


def test_passes_are_listed(invoke: Invoke) -> None:
    listed = json.loads(invoke("inspect", "--passes", "--json").stdout)["passes"]
    assert [entry["name"] for entry in listed] == list(optional_passes())
    assert all(entry["sentence"] for entry in listed)
    table = invoke("inspect", "--passes").stdout
    assert all(name in table for name in optional_passes())


@pytest.mark.parametrize("target", ["cortex-a53", "wasm", "windows"])
def test_what_became_of_a_model_for_another_machine(invoke: Invoke, gru: Path, target: str) -> None:
    here = json.loads(invoke("inspect", gru, "--json").stdout)
    there = invoke("inspect", gru, "--target", target, "--assert-native", "--json")
    assert there.exit_code == 0, there.stderr
    report = json.loads(there.stdout)
    assert report["ops"] == here["ops"] and report.keys() == here.keys()
    assert len(report["kernels"]) == len(here["kernels"]) and report["constant_bytes"] > 0
    assert "kernels: " in invoke("inspect", gru, "--target", target, "--why").stdout


def test_code_of_another_machine_is_shown(invoke: Invoke, gru: Path) -> None:
    assembly = invoke("inspect", gru, "--stage", "asm", "--target", "cortex-a53").stdout
    assert "fmla" in assembly
    result = invoke("inspect", gru, "--stage", "asm", "--target", "cortex-a35")
    assert result.exit_code == 2 and "did you mean cortex-a53?" in result.stderr


@pytest.mark.parametrize("stage", ["onnx", "passes", "program", "schedule", "llvm", "asm"])
def test_every_stage_prints(invoke: Invoke, gru: Path, stage: str) -> None:
    result = invoke("inspect", gru, "--stage", stage)
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) > 3
    record = json.loads(invoke("inspect", gru, "--stage", stage, "--json").stdout)
    assert record["stage"] == stage
    assert record["text"].strip()


def test_report(invoke: Invoke, gru: Path) -> None:
    result = invoke("inspect", gru)
    assert result.exit_code == 0, result.stderr
    assert "Kernels" in result.stdout
    record = json.loads(invoke("inspect", gru, "--json").stdout)
    assert record["fallback"] == []
    assert record["ops"]["before"] == {"GRU": 1}


def test_what_looks_like_a_state_is_the_option_of_other_commands(invoke: Invoke) -> None:
    result = invoke("inspect", MODEL)
    assert result.exit_code == 0, result.stderr
    assert "--state state=state_out" in result.stdout


def test_a_pass_that_does_not_exist_is_answered_by_the_nearest(invoke: Invoke, gru: Path) -> None:
    result = invoke("inspect", gru, "--disable", "fus")
    assert result.exit_code == 2 and "did you mean fuse" in result.stderr


def test_assertions_set_the_exit_code(invoke: Invoke, gru: Path) -> None:
    assert invoke("inspect", gru, "--assert-op-count", "GRU=0", "--assert-native").exit_code == 0
    result = invoke("inspect", gru, "--assert-op-count", "GRU=1", "--stage", "onnx")
    assert result.exit_code == 1
    assert "failed: expected 1 GRU after the passes, got 0" in result.stderr
    assert invoke("inspect", gru, "--assert-kernels", "1000").exit_code == 1


def test_nodes_that_are_not_native_fail_an_assertion_and_are_refused(
    invoke: Invoke, tmp_path: Path
) -> None:
    """A sum over axes that only a run tells."""
    model = parse("g (float[3,4] x, int64[1] axes) => (float[M,N] y) { y = ReduceSum (x, axes) }")
    path = tmp_path / "axes.onnx"
    onnx.save(model, path)
    shown = invoke("inspect", path)
    assert shown.exit_code == 0, shown.stderr
    assert "Not native" in shown.stdout and "input 'axes' is only known" in shown.stdout
    failed = invoke("inspect", path, "--assert-native")
    assert failed.exit_code == 1
    assert "node 'y' (ReduceSum), compiled when called" in failed.stderr
    refused = invoke("run", path, "--no-fallback")
    assert refused.exit_code == 2
    assert "node 'y' (ReduceSum)" in refused.stderr


def test_a_model_is_needed(invoke: Invoke) -> None:
    result = invoke("inspect")
    assert result.exit_code == 2
    assert "MODEL" in result.stderr


def gates(folder: Path, width: int) -> Path:
    """x [1, width] -> a dense layer, whose thirds go through three functions and are multiplied."""
    rng = np.random.default_rng(0)
    make = helper.make_node
    return save(
        folder / "gates.onnx",
        [
            make("MatMul", ["x", "kernel"], ["product"], name="dense"),
            make("Add", ["product", "bias"], ["biased"], name="plus_bias"),
            make("Split", ["biased", "thirds"], ["a", "b", "c"], name="split", axis=1),
            make("Sigmoid", ["a"], ["p"], name="sigmoid"),
            make("Tanh", ["b"], ["q"], name="tanh"),
            make("Exp", ["c"], ["r"], name="exp"),
            make("Mul", ["p", "q"], ["pq"], name="mul"),
            make("Mul", ["pq", "r"], ["y"], name="last"),
        ],
        {"x": [1, width]},
        {"y": [1, width]},
        {
            "kernel": rng.standard_normal((width, 3 * width), np.float32),
            "bias": rng.standard_normal(3 * width, np.float32),
            "thirds": np.array([width] * 3, np.int64),
        },
    )


@pytest.mark.parametrize("width", [10, 256])
def test_a_dense_layer_and_its_gates_are_one_kernel(
    invoke: Invoke, tmp_path: Path, width: int
) -> None:
    path = gates(tmp_path, width)
    result = invoke("inspect", path, "--why", "--assert-kernels", "1", "--assert-native")
    assert result.exit_code == 0, result.stderr
    assert "Not fused" not in result.stdout
    assert "kernel    3 operands interleaved" in re.sub(" {4,}", " " * 4, result.stdout)
    assert "kernels: 1, values that pass between them through memory: 0" in result.stdout
    record = json.loads(invoke("inspect", path, "--why", "--json").stdout)
    (kernel,) = record["kernels"]
    assert set(kernel["fused"]) > {"dense", "plus_bias", "sigmoid", "tanh", "exp", "mul", "last"}
    (packed,) = kernel["packed"]
    assert (packed["weights"], packed["streams"]) == (["kernel"], 3)
    assert record["refusals"] == record["fallback"] == []


def test_why_names_what_passes_through_memory(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(LOWERINGS, "NonZero")
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="first"),
        helper.make_node("CumSum", ["a", "axis"], ["b"], name="middle"),
        helper.make_node("Softmax", ["b"], ["y"], name="last"),
        helper.make_node("NonZero", ["y"], ["z"], name="places"),
        helper.make_node("Cast", ["z"], ["w"], name="cast", to=1),
    ]
    constants = {"axis": np.array(1, np.int64)}
    path = save(tmp_path / "m.onnx", nodes, {"x": ["N", 6]}, {"w": [2, "K"]}, constants)
    result = invoke("inspect", path, "--why")
    assert result.exit_code == 0, result.stderr
    assert "Not fused: values that pass through memory" in result.stdout
    assert "24*N" in result.stdout
    assert "places" in result.stdout and "Not native" in result.stdout
    pairs = json.loads(invoke("inspect", path, "--json").stdout)["refusals"]
    assert pairs and all(pair["reason"] and pair["producer_nodes"] for pair in pairs)


def test_why_says_what_left_a_loop(invoke: Invoke, gru: Path) -> None:
    text = invoke("inspect", gru, "--why").stdout
    assert "Taken out of a loop" in text
    assert "3 operands interleaved" in text
    text = invoke("inspect", gru, "--why", "--disable", "hoist", "--disable", "pack").stdout
    assert "Taken out of a loop" not in text
    assert "interleaved" not in text
    assert "pass fuse is disabled" in invoke("inspect", gru, "--why", "--disable", "fuse").stdout
