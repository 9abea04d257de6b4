"""A small recurrent model on disk, and the command line called in this process."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import Result
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from ostinato.cli.app import app

Invoke = Callable[..., Result]
HIDDEN = 4


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`invoke("run", path)`: result with exit_code, stdout and stderr; a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def gru(tmp_path: Path) -> Path:
    """x [T, 1, 4] -> y [T, 1, 1, 4] and h [1, 1, 4] through one GRU."""
    rng = np.random.default_rng(3)
    weights = {
        "W": rng.standard_normal((1, 3 * HIDDEN, HIDDEN)),
        "R": rng.standard_normal((1, 3 * HIDDEN, HIDDEN)),
        "B": rng.standard_normal((1, 6 * HIDDEN)),
    }
    node = helper.make_node(
        "GRU", ["x", *weights], ["y", "h"], hidden_size=HIDDEN, linear_before_reset=1
    )
    return save(
        tmp_path / "gru.onnx",
        [node],
        {"x": ["T", 1, HIDDEN]},
        {"y": ["T", 1, 1, HIDDEN], "h": [1, 1, HIDDEN]},
        {name: array.astype(np.float32) for name, array in weights.items()},
    )


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    constants: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write a model of f32 inputs and outputs to `path`."""

    def values(shapes: dict[str, list[int | str]]) -> list[onnx.ValueInfoProto]:
        make = helper.make_tensor_value_info
        return [make(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    tensors = [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs), tensors)
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(path))
    return path
