from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import parse
from tests.autodiff.rules.test_pointwise import declared, floats, result, slopes

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip


def reduction(op_type: str, x: str, y: str, axes: list[int] | None, **attributes: int) -> str:
    """A model of one node."""
    given_ = ", ".join(f"{name}={value}" for name, value in attributes.items())
    constant = "" if axes is None else f"<int64[{len(axes)}] axes = {{{','.join(map(str, axes))}}}>"
    inputs = "x" if axes is None else "x, axes"
    return f"g ({x}) => ({y}) {constant} {{ y = {op_type}<{given_}>({inputs}) }}"


def smooth(op_type: str, *shape: int) -> np.ndarray:
    x = floats(np.random.default_rng(1), *shape)
    return np.abs(x) + np.float32(0.5) if op_type == "ReduceLogSum" else x


@pytest.mark.parametrize("op_type", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_run_time_sizes(op_type: str, keepdims: int) -> None:
    y = "float[N,1,T,1] y" if keepdims else "float[N,T] y"
    model = reduction(op_type, "float[N,3,T,C] x", y, [1, -1], keepdims=keepdims)
    made = check(parse(model), {"x": smooth(op_type, 2, 3, 4, 5)})
    shapes = {"x": (0, 3, 4, 5), "y_factors": (0, 1, 4, 1) if keepdims else (0, 4)}
    feeds = {name: np.zeros(shape) for name, shape in shapes.items()}
    assert ostinato.InferenceSession(made).run(["x_grad"], feeds)[0].shape == (0, 3, 4, 5)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_axes(data: st.DataObject) -> None:
    op_type = data.draw(st.sampled_from(REDUCTIONS), "operator")
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=3))
    rank = len(shape)
    positions = st.lists(st.integers(-rank, max(rank - 1, 0)), unique_by=lambda i: i % max(rank, 1))
    axes = data.draw(st.none() | positions if rank else st.none(), "axes")
    keepdims, noop = data.draw(st.tuples(st.booleans(), st.booleans()), "keepdims, noop")
    named = data.draw(st.booleans(), "named")
    reduced = [axis % rank for axis in axes] if axes else [] if noop else list(range(rank))
    # Without axes, onnxruntime returns the operand itself, not its norm.
    witness = bool(reduced) or op_type in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
    kept = [1 if i in reduced else n for i, n in enumerate(shape) if keepdims or i not in reduced]
    x, y = declared("x", shape, named), result(tuple(kept))
    attributes = {"keepdims": int(keepdims), "noop_with_empty_axes": int(noop)}
    model = parse(reduction(op_type, x, y, axes, **attributes))
    check(model, {"x": smooth(op_type, *shape)}, onnxruntime=witness)


# The values that PyTorch 2.13 has there.
CORNERS = [
    ("ReduceMax(x)", [1.0, 1.0, 0.0], [0.5, 0.5, 0]),
    ("ReduceMin(x)", [1.0, 1.0, 0.0], [0, 0, 1]),
    ("ReduceProd(x)", [0.0, 2.0, 3.0], [6, 0, 0]),
    ("ReduceProd(x)", [0.0, 0.0, 3.0], [0, 0, 0]),
    ("ReduceL1(x)", [0.0, -2.0, 3.0], [0, -1, 1]),
    ("ReduceL2(x)", [0.0, 0.0, 0.0], [0, 0, 0]),
    ("ReduceLogSumExp(x)", [10.0, 10.0, -990.0], [0.5, 0.5, 0]),
    ("Softmax<axis=0>(x)", [1000.0, 0.0, -1000.0], [0, 0, 0]),
    ("LogSoftmax<axis=0>(x)", [1000.0, 0.0, -1000.0], [-2, 1, 1]),
    ("Hardmax<axis=0>(x)", [1.0, 2.0, 3.0], [0, 0, 0]),
]


@pytest.mark.parametrize(("node", "x", "expected"), CORNERS)
def test_corners(node: str, x: list[float], expected: list[float]) -> None:
    size = 1 if node.startswith("Reduce") else 3
    model = parse(f"g (float[3] x) => (float[{size}] y) {{ y = {node} }}")
    (found,) = slopes(model, ["x"], x=np.array(x, np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_axes_that_are_an_input_are_refused() -> None:
    model = parse(
        "g (float[3] x, int64[1] a) => (float[1] l) <int64[1] one = {1}> "
        "{ y = ReduceMean(x, a) l = Reshape(y, one) }"
    )
    with pytest.raises(ostinato.UnsupportedError, match="axes are only known at run time"):
        gradient(model, "l", ["x"])


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(op_type: str, axis: int) -> None:
    model = parse(f"g (float[N,3,T] x) => (float[N,3,T] y) {{ y = {op_type}<axis={axis}>(x) }}")
    made = check(model, {"x": smooth(op_type, 2, 3, 4)})
    shape = (2, 3, 0) if axis == 0 else (0, 3, 4)
    empty = {name: np.zeros(shape) for name in ("x", "y_factors")}
    assert ostinato.InferenceSession(made).run(["x_grad"], empty)[0].shape == shape


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_running_sums(exclusive: int, reverse: int, axis: int) -> None:
    model = parse(
        f"g (float[N,4] x) => (float[N,4] y) <int64 axis = {{{axis}}}> "
        f"{{ y = CumSum<exclusive={exclusive}, reverse={reverse}>(x, axis) }}"
    )
    check(model, {"x": smooth("CumSum", 3, 4)})
