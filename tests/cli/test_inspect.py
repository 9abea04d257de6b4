import json
from pathlib import Path

import pytest

from ostinato.cli.inspect import Assertions
from ostinato.compiler import optional_passes
from tests.cli.conftest import Invoke

REPORT = {
    "ops": {"before": {"Loop": 1}, "after": {"Scan": 2}},
    "kernels": [{"name": "a"}, {"name": "b"}],
    "fallback": [{"node": "n", "op": "Foo", "reason": "no kernel"}],
}


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


def test_assertions_set_the_exit_code(invoke: Invoke, gru: Path) -> None:
    assert invoke("inspect", gru, "--assert-op-count", "GRU=0", "--assert-native").exit_code == 0
    result = invoke("inspect", gru, "--assert-op-count", "GRU=1", "--stage", "onnx")
    assert result.exit_code == 1
    assert "failed: expected 1 GRU after the passes, got 0" in result.stderr
    assert invoke("inspect", gru, "--assert-kernels", "1000").exit_code == 1


def test_a_model_is_needed(invoke: Invoke) -> None:
    result = invoke("inspect")
    assert result.exit_code == 2
    assert "MODEL" in result.stderr
