from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ostinato
from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.errors import InputError, RunError, UnsupportedError
from ostinato.stages.fallback import FallbackNode
from ostinato.stages.stage import CompiledModel, FallbackStage, NativeStage

Make = Callable[..., ostinato.InferenceSession]
X = Argument("x", "float32", ("N",))


def stage(
    op: str,
    inputs: list[str],
    outputs: list[Argument],
    reads: list[Argument],
    opset: int = 18,
    domain: str = "",
    **attributes: Any,
) -> FallbackStage:
    names = [argument.name for argument in outputs]
    node = helper.make_node(op, inputs, names, name=f"my_{op}", domain=domain, **attributes)
    opsets = (("", opset),) if not domain else (("", opset), (domain, 3))
    reason = "no lowering"
    return FallbackStage(
        node.SerializeToString(), tuple(reads), tuple(outputs), opsets, node.name, op, reason
    )


def test_a_node_runs_on_the_reference_kernels() -> None:
    y = Argument("y", "float32", ("N",))
    node = FallbackNode(stage("Sin", ["x"], [y], [X]))
    x = np.linspace(0, 1, 5, dtype="f")
    assert np.array_equal(node.run({"x": x, "unrelated": None})["y"], np.sin(x))


def test_attributes_and_several_outputs() -> None:
    outputs = [Argument("v", "float32", (2,)), Argument("i", "int64", (2,))]
    k = Argument("k", "int64", (1,))
    node = FallbackNode(stage("TopK", ["x", "k"], outputs, [X, k], largest=0))
    results = node.run({"x": np.array([3, 1, 2], "f"), "k": np.array([2])})
    assert results["v"].tolist() == [1, 2] and results["i"].tolist() == [1, 2]


def test_absent_optional_inputs() -> None:
    high = Argument("high", "float32", ())
    node = FallbackNode(
        stage("Clip", ["x", "", "high"], [Argument("y", "float32", ("N",))], [X, high])
    )
    assert node.run({"x": np.array([1, 9], "f"), "high": np.float32(5)})["y"].tolist() == [1, 5]


def test_operators_that_are_functions_run_by_their_body() -> None:
    y = Argument("y", "float32", ("N",))
    node = FallbackNode(stage("Gelu", ["x"], [y], [X], opset=20))
    result = node.run({"x": np.array([-1, 0, 1], "f")})["y"]
    assert np.allclose(result, [-0.158655, 0, 0.841345], atol=1e-5)


def _branch(op: str) -> Any:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x", "captured"], ["r"])], op, [], [out])


def test_subgraphs_read_captured_values() -> None:
    reads = [Argument("c", "bool", ()), X, Argument("captured", "float32", UNKNOWN_RANK)]
    y = Argument("y", "float32", UNKNOWN_RANK)
    node = FallbackNode(
        stage("If", ["c"], [y], reads, then_branch=_branch("Add"), else_branch=_branch("Mul"))
    )
    values = {"x": np.array([2, 3], "f"), "captured": np.array([10, 20], "f")}
    assert node.run({**values, "c": np.array(True)})["y"].tolist() == [12, 23]
    assert node.run({**values, "c": np.array(False)})["y"].tolist() == [20, 60]


def test_a_failing_kernel_names_node_and_op() -> None:
    y = Argument("y", "float32", UNKNOWN_RANK)
    shape = Argument("shape", "int64", (1,))
    node = FallbackNode(stage("Reshape", ["x", "shape"], [y], [X, shape]))
    with pytest.raises(RunError, match=r"node 'my_Reshape' \(Reshape\)"):
        node.run({"x": np.zeros(3, "f"), "shape": np.array([2])})


def test_an_unknown_operator_is_refused_at_load() -> None:
    y = Argument("y", "float32", UNKNOWN_RANK)
    with pytest.raises(UnsupportedError, match=r"node 'my_Nonsense' \(Nonsense\)"):
        FallbackNode(stage("Nonsense", ["x"], [y], [X]))


def test_overflow_is_a_result_not_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    y = Argument("y", "float32", ("N",))
    node = FallbackNode(stage("Reciprocal", ["x"], [y], [X]))
    assert node.run({"x": np.array([0], "f")})["y"][0] == np.inf
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


# ---- in a session


def test_fallback_before_and_after_native_code(session: Make, artifacts: Any) -> None:
    add = artifacts.add()
    a, b, total = (Argument(n, "float32", ("T",)) for n in ("a", "b", "sum"))
    x, y = Argument("x", "float32", ("T",)), Argument("y", "float32", ("T",))
    stages = (stage("Abs", ["x"], [a], [x]), NativeStage(add), stage("Neg", ["sum"], [y], [total]))
    mixed = session(CompiledModel((x, b), (y, total), stages))
    for size in (3, 4, 3, 0):
        feeds = {"x": -np.arange(size, dtype="f"), "b": np.ones(size, "f")}
        negative, result = mixed.run(None, feeds)
        assert result.tolist() == (np.arange(size) + 1).tolist()
        assert negative.tolist() == (-1 - np.arange(size)).tolist()
    report = mixed.report()
    assert [f["op"] for f in report["fallback"]] == ["Abs", "Neg"]
    assert report["fallback"][0] == {
        "node": "my_Abs",
        "op": "Abs",
        "status": "reference kernel",
        "reason": "no lowering",
        "inputs": [],
        "unless": [],
        "taken_over": [],
    }


def _identity(session: Make) -> ostinato.InferenceSession:
    y = Argument("y", "float32", ("N",))
    return session(CompiledModel((X,), (y,), (stage("Identity", ["x"], [y], [X]),)))


def test_outputs_are_fresh_even_if_the_kernel_returns_its_input(session: Make) -> None:
    x = np.arange(4, dtype="f")
    (y,) = _identity(session).run(None, {"x": x[::2]})
    assert y.tolist() == [0, 2]
    assert y.flags.c_contiguous and y.flags.writeable and not np.shares_memory(x, y)


def test_out_and_bind_work_without_native_code(session: Make) -> None:
    same = _identity(session)
    x, y = np.arange(3, dtype="f"), np.zeros(3, "f")
    assert same.run(None, {"x": x}, out={"y": y})[0] is y
    assert y.tolist() == [0, 1, 2]
    call = same.bind({"x": x}, {"y": y})
    x[:] = 5
    call()
    assert y.tolist() == [5, 5, 5]
    with pytest.raises(InputError, match=r"output 'y': expected float32\[3\], got float32\[4\]"):
        same.run(None, {"x": x}, out={"y": np.zeros(4, "f")})


def test_a_kernel_that_makes_another_dtype_is_an_error(session: Make) -> None:
    y = Argument("y", "float64", ("N",))
    wrong = session(CompiledModel((X,), (y,), (stage("Abs", ["x"], [y], [X]),)))
    with pytest.raises(RunError, match=r"output 'y': expected float64\[N\], got float32\[1\]"):
        wrong.run(None, {"x": [1.0]})


def test_a_value_of_another_shape_than_native_code_takes_is_an_error(
    session: Make, artifacts: Any
) -> None:
    a, b = (Argument(n, "float32", ("T",)) for n in "ab")
    stages = (stage("Transpose", ["m"], [a], [Argument("m", "float32", (1, 2))]),)
    model = CompiledModel(
        (Argument("m", "float32", (1, 2)), b),
        artifacts.add().outputs,
        (*stages, NativeStage(artifacts.add())),
    )
    with pytest.raises(ostinato.OstinatoError, match="'a'"):
        session(model).run(None, {"m": np.zeros((1, 2), "f"), "b": [1.0, 2.0]})


def test_strings_and_sequences_pass(session: Make) -> None:
    s, t = Argument("s", "string", (2,)), Argument("t", "string", (2,))
    texts = session(CompiledModel((s,), (t,), (stage("Identity", ["s"], [t], [s]),)))
    for value in (["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], object)):
        (result,) = texts.run(None, {"s": value})
        assert result.tolist() == ["a", "b"] and result.dtype == object
    q = Argument("q", "seq(tensor(float))", ())
    n = Argument("n", "int64", ())
    lengths = session(CompiledModel((q,), (n,), (stage("SequenceLength", ["q"], [n], [q]),)))
    assert lengths.run(None, {"q": [np.zeros(2, "f"), np.zeros(3, "f")]})[0] == 2
    assert lengths.get_inputs()[0] == ostinato.NodeArg("q", "seq(tensor(float))", None)


def test_constants_reach_fallback_nodes(session: Make) -> None:
    c, y = Argument("c", "float32", (1,)), Argument("y", "float32", ("N",))
    model = CompiledModel(
        (X,), (y,), (stage("Add", ["x", "c"], [y], [X, c]),), {"c": np.array([10], "f")}
    )
    plus = session(model)
    for _ in range(2):
        assert plus.run(None, {"x": [1.0, 2.0]})[0].tolist() == [11, 12]
