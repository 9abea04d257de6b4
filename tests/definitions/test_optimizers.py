from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ostinato

DOMAIN = "ai.onnx.preview.training"
STATES = {"Adam": 2, "Adagrad": 1, "Momentum": 1}
SHAPES = ((2, 3), (), (0, 4), (5,))


def model_of(op: str, dtypes: list[str], opset: int = 20, **attributes: object) -> onnx.ModelProto:
    groups = ["x", "g", *("v", "h")[: STATES[op]]]
    inputs = [
        (f"{group}{i}", dtype, shape)
        for group in groups
        for i, (dtype, shape) in enumerate(zip(dtypes, SHAPES, strict=False))
    ]
    outputs = [(f"new_{name}", dtype, shape) for name, dtype, shape in inputs if name[0] != "g"]
    named = [("r", dtypes[0], ()), ("t", "int64", ()), *inputs]
    results = [name for name, *_ in outputs]
    node = helper.make_node(op, [name for name, *_ in named], results, domain=DOMAIN, **attributes)

    def info(name: str, dtype: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
        )

    graph = helper.make_graph([node], "g", [info(*i) for i in named], [info(*o) for o in outputs])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def feeds_of(model: onnx.ModelProto, step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(step)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn = random.standard_normal([d.dim_value for d in tensor.shape.dim])
        feeds[value.name] = np.asarray(abs(drawn) if value.name[0] in "vh" else drawn, dtype)
    return feeds | {"t": np.array(step), "r": np.array(0.1, feeds["r"].dtype)}


def expected(op: str, feeds: dict[str, np.ndarray], a: dict[str, float | str], count: int):
    """The pseudo code of the operators' documents, in float64."""
    r, t, norm = float(feeds["r"]), int(feeds["t"]), a.get("norm_coefficient", 0.0)
    results: list[list[np.ndarray]] = []
    for i in range(count):
        x, g = (feeds[f"{k}{i}"].astype(np.float64) for k in "xg")
        v = feeds[f"v{i}"].astype(np.float64)
        g = norm * x + g
        if op == "Adam":
            alpha, beta = a.get("alpha", 0.9), a.get("beta", 0.999)
            v = alpha * v + (1 - alpha) * g
            h = beta * feeds[f"h{i}"].astype(np.float64) + (1 - beta) * g * g
            rate = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else r
            x = x - rate * v / (np.sqrt(h) + a.get("epsilon", 1e-6))
            results.append([(1 - a.get("norm_coefficient_post", 0.0)) * x, v, h])
        elif op == "Adagrad":
            v = v + g * g
            rate = r / (1 + t * a.get("decay_factor", 0.0))
            results.append([x - rate * g / (np.sqrt(v) + a.get("epsilon", 1e-6)), v])
        else:
            v = a["alpha"] * v + (a["beta"] if t > 0 else 1) * g
            results.append([x - r * (g + a["alpha"] * v if a["mode"] == "nesterov" else v), v])
    return [row[k] for k in range(len(results[0])) for row in results]


MOMENTUM = {"alpha": 0.75, "beta": 0.5, "norm_coefficient": 0.25}
CASES = [
    ("Adam", {}),
    ("Adam", {"alpha": 0.5, "beta": 0.75, "epsilon": 0.125, "norm_coefficient": 0.25}),
    ("Adam", {"norm_coefficient_post": 0.125, "beta": 0.5}),
    ("Adagrad", {}),
    ("Adagrad", {"epsilon": 0.125, "norm_coefficient": 0.25, "decay_factor": 0.5}),
    ("Momentum", MOMENTUM | {"mode": "standard"}),
    ("Momentum", MOMENTUM | {"mode": "nesterov"}),
    ("Momentum", MOMENTUM | {"mode": "nesterov", "norm_coefficient": 0.0}),
]


@pytest.mark.parametrize("opset", [9, 20])
@pytest.mark.parametrize("dtypes", [["float32"] * 4, ["float64"], ["float32", "float64"]])
@pytest.mark.parametrize(("op", "attributes"), CASES)
def test_one_step(op: str, attributes: dict, dtypes: list[str], opset: int) -> None:
    model = model_of(op, dtypes, opset, **attributes)
    session = ostinato.InferenceSession(model, fallback=False)
    for step in (0, 1, 7):
        feeds = feeds_of(model, step)
        exact = expected(op, feeds, attributes, len(dtypes))
        got_all = session.run(None, feeds)
        for got, want, output in zip(got_all, exact, model.graph.output, strict=True):
            assert got.shape == want.shape
            # Attributes are float32: 1 - 0.999 has a relative error of 1e-5 in them.
            np.testing.assert_allclose(got, want, 3e-5, 1e-6, err_msg=output.name)


@pytest.mark.parametrize("op", STATES)
def test_standard_operators_come_out_and_run_elsewhere(op: str) -> None:
    attributes = MOMENTUM | {"mode": "nesterov"} if op == "Momentum" else {"norm_coefficient": 0.5}
    model = model_of(op, ["float32"] * 2, **attributes)
    simple = ostinato.optimize(model)
    assert {node.domain for node in simple.graph.node} == {""}
    feeds = feeds_of(model, 3)
    answers = onnx.reference.ReferenceEvaluator(simple).run(None, feeds)
    for got, want in zip(ostinato.InferenceSession(model).run(None, feeds), answers, strict=True):
        np.testing.assert_allclose(got, want, 1e-6)


def test_each_parameter_is_updated_by_one_kernel() -> None:
    model = model_of("Adam", ["float32"] * 2)
    kernels = ostinato.InferenceSession(model, cache_dir=None).report()["kernels"]
    assert len(kernels) <= 3, kernels


def test_a_missing_state_is_named() -> None:
    model = model_of("Adam", ["float32"])
    del model.graph.node[0].input[-1]
    with pytest.raises(ostinato.ModelError, match=r"Adam.*3 tensors, expected 4"):
        ostinato.optimize(model)


def test_an_unknown_mode_is_named() -> None:
    model = model_of("Momentum", ["float32"], **(MOMENTUM | {"mode": "heavy"}))
    with pytest.raises(ostinato.ModelError, match=r"'heavy'.*'nesterov'"):
        ostinato.optimize(model)
