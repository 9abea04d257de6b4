"""What no op may do: ignore something, accept what its documents forbid, or crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import helper

import ostinato
from ostinato.errors import InputError, ModelError, RunError, ShapeError, UnsupportedError
from ostinato.model.signature import type_error
from ostinato.ops import LOWERINGS
from ostinato.ops.core.registry import NEWEST_OPSET, Context
from ostinato.ops.core.tensor import Value
from tests.cases.case import Array, In, ints, node, weights
from tests.cases.table import CASES

X = In((2, 3, 4))


def compile_node(op: str, *operands: In | Array | None, **about: Any) -> ostinato.InferenceSession:
    case = node("n", op, *operands, **{"ranks": [1] * about.get("outputs", 1), **about})
    return ostinato.InferenceSession(case.model, cache_dir=None, fallback=False)


@pytest.fixture
def careless() -> Iterator[None]:
    """A rule for Clip that reads nothing but its first input."""
    original = LOWERINGS["Clip"]

    def rule(context: Context) -> Value:
        return context.input(0)

    LOWERINGS["Clip"] = rule
    yield
    LOWERINGS["Clip"] = original


@pytest.mark.usefixtures("careless")
def test_an_unread_input_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"node 'n' \(Clip\): input 'max' is not honoured"):
        compile_node("Clip", X, None, np.float32(1))


@pytest.mark.usefixtures("careless")
def test_an_unread_attribute_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="attribute 'max' is not honoured"):
        compile_node("Clip", X, opset=6, max=1.0)


@pytest.mark.usefixtures("careless")
def test_nothing_is_refused_that_is_not_there() -> None:
    compile_node("Clip", X)


def test_a_version_that_nobody_has_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.ops.lowering.NEWEST_OPSET", 12)
    with pytest.raises(UnsupportedError, match="version 13 is not known"):
        compile_node("Neg", X, opset=13)


def test_the_rules_cover_the_versions_of_the_installed_onnx() -> None:
    versions = [
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.name in LOWERINGS
    ]
    assert max(versions) <= NEWEST_OPSET


def test_every_op_has_a_case() -> None:
    used: set[str] = set()

    def visit(graph: onnx.GraphProto) -> None:
        for one in graph.node:
            used.add(one.op_type)
            for attribute in one.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    visit(attribute.g)

    for case in CASES:
        visit(case.model.graph)
    assert not LOWERINGS.keys() - used


@pytest.mark.parametrize(
    ("op", "dtypes", "problem"),
    [
        ("Add", ["float32", "float32"], None),
        ("Add", ["float32", "float64"], "input 'B' is float64, another one of its type is float32"),
        ("Add", ["bool", "bool"], "input 'A' is bool, which opset 14 forbids"),
        ("And", ["float32", "float32"], "input 'A' is float32"),
        ("Where", ["bool", "int64", "int64"], None),
        ("Where", ["int64", "int64", "int64"], "input 'condition' is int64"),
        ("Clip", ["float32", None, "float64"], "input 'max' is float64"),
        ("Concat", ["int8", "int8", "uint8"], "input 'inputs' is uint8"),
        ("Scan", ["int8", "float32"], None),
        ("Pow", ["float32", "int64"], None),
        ("Reshape", ["float4_e2m1fn", "int64"], None),
    ],
)
def test_types(op: str, dtypes: list[str | None], problem: str | None) -> None:
    found = type_error(onnx.defs.get_schema(op, 23), dtypes)
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_a_type_error_names_the_node() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"], name="sum")],
        "g",
        [
            helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("b", onnx.TensorProto.DOUBLE, [2]),
        ],
        [helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ModelError, match=r"'sum'|type"):
        ostinato.InferenceSession(model, cache_dir=None)


# name -> op, operands, attributes: nodes that contradict the documents of their operator.
WRONG: dict[str, tuple[str, tuple[In | Array | None, ...], dict[str, Any]]] = {
    "transpose-twice": ("Transpose", (X,), {"perm": [0, 0, 1]}),
    "axis-beyond": ("Softmax", (X,), {"axis": 3}),
    "axis-before": ("Concat", (X, X), {"axis": -4}),
    "axes-twice": ("ReduceSum", (X, ints(1, -2)), {}),
    "gather-beyond": ("Gather", (X, ints(0, 3)), {"axis": 1}),
    "gather-before": ("Gather", (X, ints(-5)), {"axis": 2}),
    "gather-elements-beyond": ("GatherElements", (X, np.full((2, 3, 4), 3)), {"axis": 1}),
    "gather-elements-rank": ("GatherElements", (X, ints(0, 1)), {}),
    "gather-elements-longer": ("GatherElements", (X, np.zeros((2, 4, 4), int)), {}),
    "gather-nd-beyond": ("GatherND", (X, np.array([[0, 3]])), {}),
    "gather-nd-too-many": ("GatherND", (X, np.zeros((2, 4), int)), {}),
    "gather-nd-batch": ("GatherND", (X, np.zeros((3, 1), int)), {"batch_dims": 1}),
    "scatter-beyond": ("ScatterElements", (X, np.full((2, 3, 4), -3), X), {}),
    "scatter-updates": ("ScatterElements", (X, np.zeros((2, 1, 4), int), X), {}),
    "scatter-reduction": (
        "ScatterElements",
        (X, np.zeros((2, 3, 4), int), X),
        {"reduction": "mean"},
    ),
    "scatter-nd-beyond": ("ScatterND", (X, np.array([[2]]), In((1, 3, 4))), {}),
    "scatter-nd-updates": ("ScatterND", (X, np.array([[1]]), In((1, 3))), {}),
    "running-axis": ("CumSum", (X, np.array(3)), {}),
    "running-axes": ("CumSum", (X, ints(0, 1)), {}),
    "top-too-many": ("TopK", (X, ints(5)), {"outputs": 2}),
    "top-negative": ("TopK", (X, ints(-1)), {"outputs": 2}),
    "extreme-of-none": ("ArgMax", (In((2, 0)),), {"axis": 1}),
    "one-hot-depth": ("OneHot", (ints(1), np.array(np.nan, "f"), In((2,))), {}),
    "one-hot-values": ("OneHot", (ints(1), ints(3), In((3,))), {}),
    "triangle-of-vector": ("Trilu", (In((3,)),), {}),
    "reversed-lengths": ("ReverseSequence", (X, ints(1, 1)), {}),
    "equation-operands": ("Einsum", (X,), {"equation": "ijk,k->ij"}),
    "equation-rank": ("Einsum", (X,), {"equation": "ij->i"}),
    "equation-result": ("Einsum", (X,), {"equation": "ijk->il"}),
    "equation-extents": ("Einsum", (X, X), {"equation": "ijk,kjl->il"}),
    "crop-shape": ("CenterCropPad", (X, ints(1, 2)), {}),
    "norm-order": ("LpNormalization", (X,), {"p": 3}),
    "two-rests": ("Reshape", (X, ints(-1, -1)), {}),
    "keeps-too-many": ("Reshape", (X, ints(2, 3, 4, 0)), {}),
    "less-than-none": ("Reshape", (X, ints(-2, 12)), {}),
    "elements": ("Reshape", (X, ints(5, 5)), {}),
    "squeeze-more": ("Squeeze", (X, ints(0)), {}),
    "broadcast": ("Add", (X, In((2, 3))), {}),
    "inner": ("MatMul", (In((2, 3)), In((4, 2))), {}),
    "gemm-inner": ("Gemm", (In((2, 3)), In((4, 2))), {}),
    "gemm-bias": ("Gemm", (In((1, 3)), In((3, 2)), In((4, 2))), {}),
    "gemm-rank": ("Gemm", (X, In((3, 2))), {}),
    "matmul-scalar": ("MatMul", (In(()), In((3, 2))), {}),
    "channels": ("Conv", (In((1, 3, 9)), weights(2, 2, 3)), {}),
    "groups": ("Conv", (In((1, 4, 9)), weights(3, 2, 3)), {"group": 2}),
    "stride": ("Conv", (In((1, 2, 9)), weights(3, 2, 3)), {"strides": [0]}),
    "kernel": ("Conv", (In((1, 2, 9)), weights(3, 2, 3)), {"kernel_shape": [2]}),
    "bias": ("Conv", (In((1, 2, 9)), weights(3, 2, 3), weights(4)), {}),
    "both-pads": (
        "Conv",
        (In((1, 2, 9)), weights(3, 2, 3)),
        {"auto_pad": "SAME_UPPER", "pads": [1, 1]},
    ),
    "slice-step": ("Slice", (X, ints(0), ints(1), ints(0), ints(0)), {}),
    "slice-lengths": ("Slice", (X, ints(0), ints(1, 2)), {}),
    "slice-axis-twice": ("Slice", (X, ints(0, 0), ints(1, 1), ints(1, -2)), {}),
    "split-sum": ("Split", (X, ints(1, 2)), {"axis": 2, "outputs": 2}),
    "split-negative": ("Split", (X, ints(-1, 5)), {"axis": 2, "outputs": 2}),
    "split-uneven": ("Split", (X,), {"axis": 1, "outputs": 2, "opset": 13}),
    "split-count": ("Split", (X,), {"axis": 2, "outputs": 2, "num_outputs": 3}),
    "pads": ("Pad", (X, ints(1, 1)), {}),
    "pad-away": ("Pad", (In((2,)), ints(-2, -1)), {}),
    "clip-bound": ("Clip", (X, weights(4)), {}),
    "slope": ("PRelu", (In((1, 3)), weights(2, 3)), {}),
    "gelu": ("Gelu", (X,), {"approximate": "sigmoid", "opset": 20}),
    "fmod": ("Mod", (X, X), {"opset": 13}),
    "blocks": ("DepthToSpace", (In((1, 6, 2, 2)),), {"blocksize": 2}),
    "delta": ("Range", (np.array(0), np.array(3), np.array(0)), {}),
    "repeats": ("Tile", (X, ints(1, 2)), {}),
    "pool": ("MaxPool", (X,), {"kernel_shape": [2, 2]}),
    "unpool": ("MaxUnpool", (X, np.zeros((1, 3, 4), np.int64)), {"kernel_shape": [2, 2]}),
    "unpool-shape": (
        "MaxUnpool",
        (In((1, 3, 4)), np.zeros((1, 3, 4), np.int64), ints(1, 9)),
        {"kernel_shape": [2]},
    ),
    "det": ("Det", (In((2, 3)),), {}),
    "grid": ("GridSample", (In((1, 1, 4, 4)), In((1, 2, 2, 3))), {}),
    "grid-rank": ("GridSample", (In((1, 1, 4)), In((1, 2, 1))), {"opset": 16}),
    "grid-mode": ("GridSample", (In((1, 1, 4)), In((1, 2, 1))), {"mode": "bilinear"}),
    "grid-padding": ("GridSample", (In((1, 1, 4)), In((1, 2, 1))), {"padding_mode": "wrap"}),
    "regions": ("RoiAlign", (In((1, 1, 4, 4)), In((2, 3)), np.zeros(2, np.int64)), {"opset": 16}),
    "region-mode": (
        "RoiAlign",
        (In((1, 1, 4, 4)), In((2, 4)), np.zeros(2, np.int64)),
        {"mode": "median", "opset": 16},
    ),
    "ratio": ("Dropout", (X, np.float32(1), np.array(True)), {"opset": 13}),
    "integers": ("RandomUniform", (), {"shape": [2], "dtype": 7}),
    "negative": ("RandomNormal", (), {"shape": [-2]}),
    "samples": ("Multinomial", (X,), {"opset": 7, "sample_size": 0}),
    "group-norm": (
        "GroupNormalization",
        (In((1, 4, 3)), weights(4), weights(4)),
        {"num_groups": 3},
    ),
    "scale": ("LayerNormalization", (X, weights(3)), {}),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("fallback", [True, False])
def test_a_wrong_node_raises(name: str, fallback: bool) -> None:
    op, operands, about = WRONG[name]
    outputs = about.get("outputs", 1)
    case = node("n", op, *operands, **{"ranks": [1] * outputs, **about})
    with pytest.raises((ModelError, ShapeError)):
        ostinato.InferenceSession(case.model, cache_dir=None, fallback=fallback)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("matmul-scalar", r"shapes \(\) and \(3, 2\), expected"),
        ("slice-lengths", "have 1, 2, 1, 1 elements, expected"),
        (
            "stride",
            r"strides \(0,\), dilations \(1,\), kernel_shape \(3,\), .*: expected 1 or more",
        ),
    ],
)
def test_an_error_says_what_was_given(name: str, message: str) -> None:
    op, operands, about = WRONG[name]
    model = node("n", op, *operands, ranks=[1], **about).model
    with pytest.raises(ModelError, match=message):
        ostinato.InferenceSession(model, cache_dir=None)


# name -> op, operands, attributes: valid nodes that only the reference kernels run.
REFUSED: dict[str, tuple[str, tuple[In | Array | None, ...], dict[str, Any]]] = {
    "batch-norm": ("BatchNormalization", (X, *[weights(3)] * 4), {"is_test": 0, "opset": 6}),
    "spatial": ("BatchNormalization", (X, *[weights(3)] * 4), {"spatial": 0, "opset": 7}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_native_form_is_refused_by_name(name: str) -> None:
    op, operands, about = REFUSED[name]
    with pytest.raises(UnsupportedError, match=rf"node 'n' \({op}\)"):
        compile_node(op, *operands, **about)


@pytest.mark.parametrize(
    ("op", "operands", "about", "shapes"),
    [
        ("Add", (In(("T",)), In(("S",))), {}, [(3,), (4,)]),
        ("MatMul", (In((2, "T")), In(("S", 2))), {}, [(2, 3), (4, 2)]),
        ("Squeeze", (In(("T", 2)), ints(0)), {}, [(3, 2)]),
        ("Reshape", (In(("T",)), ints(2, -1)), {}, [(3,)]),
        ("Split", (In(("T",)),), {"outputs": 2, "opset": 13}, [(3,)]),
        ("Gather", (In(("T",)), ints(3)), {}, [(3,)]),
        ("Conv", (In((1, 1, "T")), weights(1, 1, 5)), {}, [(1, 1, 2)]),
        ("Pad", (In(("T",)), ints(-3, -1)), {}, [(3,)]),
    ],
)
def test_sizes_that_contradict_each_other_raise_at_run_time(
    op: str, operands: tuple[Any, ...], about: dict[str, Any], shapes: list[tuple[int, ...]]
) -> None:
    session = compile_node(op, *operands, **about)
    names = [one.name for one in session.get_inputs()]
    feeds = {n: np.zeros(s, np.float32) for n, s in zip(names, shapes, strict=True)}
    with pytest.raises((ShapeError, InputError), match="'n'"):
        session.run(None, feeds)


@pytest.mark.parametrize("index", [3, -4, 2**40, -(2**63)])
def test_a_computed_index_out_of_range_raises(index: int) -> None:
    session = compile_node("Gather", In((3, 2)), In((1,), "int64"))
    x = np.zeros((3, 2), np.float32)
    with pytest.raises(RunError, match="out of range"):
        session.run(None, {"x0": x, "x1": np.array([index])})


@pytest.mark.parametrize("index", [8, -1, 2**62, -(2**63)])
def test_an_index_to_unpool_out_of_range_raises(index: int) -> None:
    session = compile_node("MaxUnpool", In((1, 1, 4)), In((1, 1, 4), "int64"),
                           kernel_shape=[2], strides=[2], opset=11)  # fmt: skip
    x = np.zeros((1, 1, 4), np.float32)
    with pytest.raises(RunError, match="out of range"):
        session.run(None, {"x0": x, "x1": np.array([[[0, 1, index, 2]]])})


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("image", [2, -1, 2**62])
def test_the_image_of_a_region_out_of_range_raises(image: int, ratio: int) -> None:
    operands = In((2, 1, 3, 3)), In((2, 4)), In((2,), "int64")
    session = compile_node("RoiAlign", *operands, sampling_ratio=ratio, opset=16)
    feeds = {"x0": np.zeros((2, 1, 3, 3), np.float32), "x1": np.ones((2, 4), np.float32)}
    with pytest.raises(RunError, match="image"):
        session.run(None, {**feeds, "x2": np.array([0, image])})


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_any_size_end(mode: str) -> None:
    operands = In((1, 1, 3, 3)), In((3, 4)), np.zeros(3, np.int64)
    session = compile_node("RoiAlign", *operands, mode=mode, opset=16)
    regions = np.array([[-1e30, 0, 1e30, 3e38], [np.nan] * 4, [-np.inf, -np.inf, np.inf, 1]], "f")
    (y,) = session.run(None, {"x0": np.ones((1, 1, 3, 3), np.float32), "x1": regions})
    assert y.shape == (3, 1, 1, 1)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_grid_of_any_numbers_stays_inside(mode: str, padding: str) -> None:
    operands = In((1, 1, 2, 3)), In((1, 1, 5, 2))
    session = compile_node("GridSample", *operands, mode=mode, padding_mode=padding)
    places = [np.nan, 0, np.inf, -np.inf, 3e38, -3e38, 1e10, 1e19, -1e19, 2.0]
    grid = np.array(places, "f").reshape(1, 1, 5, 2)
    (y,) = session.run(None, {"x0": np.ones((1, 1, 2, 3), "f"), "x1": grid})
    finite = y[np.isfinite(y)]
    assert finite.size and (abs(finite - (0 if padding == "zeros" else 1)) < 1e-6).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_division_never_traps(dtype: str) -> None:
    least = np.iinfo(dtype).min
    session = compile_node("Div", In((3,), dtype), In((3,), dtype))
    a, b = np.array([least, 5, -5], dtype), np.array([-1, 0, 2], dtype)
    (got,) = session.run(None, {"x0": a, "x1": b})
    np.testing.assert_array_equal(got, np.array([least, 0, -2], dtype), strict=True)
