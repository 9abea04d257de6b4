from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse
from tests.autodiff.rules.test_pointwise import LAST_OF_ONNXRUNTIME, slopes

NODES = [
    ("LayerNormalization(x, s, b)", "float[N,3,4] x, float[4] s, float[4] b", 18),
    ("LayerNormalization<epsilon=0.1>(x, s)", "float[N,3,4] x, float[4] s", 18),
    ("LayerNormalization<axis=1>(x, s, b)", "float[N,3,T] x, float[3,T] s, float[3,T] b", 18),
    ("LayerNormalization<axis=-2>(x, s, b)", "float[N,3,4] x, float[4] s, float[3,1] b", 18),
    ("RMSNormalization(x, s)", "float[N,3,4] x, float[4] s", 23),
    ("RMSNormalization<axis=1, epsilon=0.1>(x, s)", "float[N,3,4] x, float[3,4] s", 23),
    ("RMSNormalization<axis=1>(x, s)", "float[N,3,T] x, float[1] s", 23),
    ("InstanceNormalization(x, s, b)", "float[N,3,T] x, float[3] s, float[3] b", 18),
    ("InstanceNormalization<epsilon=0.1>(x, s, b)",
     "float[2,3,4,2] x, float[3] s, float[3] b", 18),
    ("GroupNormalization<num_groups=2>(x, s, b)", "float[N,4,T] x, float[4] s, float[4] b", 21),
    ("GroupNormalization<num_groups=2, epsilon=0.1>(x, s, b)",
     "float[N,4,3,2] x, float[4] s, float[4] b", 21),
    ("BatchNormalization(x, s, b, m, v)",
     "float[N,3] x, float[3] s, float[3] b, float[3] m, float[3] v", 18),
    ("BatchNormalization<epsilon=0.1, momentum=0.5>(x, s, b, m, v)",
     "float[N,3,T,2] x, float[3] s, float[3] b, float[3] m, float[3] v", 18),
    ("LpNormalization(x)", "float[N,3,T] x", 18),
    ("LpNormalization<p=1, axis=1>(x)", "float[N,3,T] x", 18),
    ("MeanVarianceNormalization(x)", "float[N,3,T,2] x", 18),
    ("MeanVarianceNormalization<axes=[-1]>(x)", "float[N,3,T] x", 18),
    ("LRN<size=3>(x)", "float[N,6,T,2] x", 18),
    ("LRN<size=4, alpha=0.5, beta=0.6, bias=1.5>(x)", "float[2,6,T,2] x", 18),
    ("LRN<size=1, alpha=0.5>(x)", "float[2,3,2,2] x", 18),
]  # fmt: skip


@pytest.mark.parametrize(("node", "inputs", "opset"), NODES)
def test_normalizations(node: str, inputs: str, opset: int) -> None:
    shape = inputs.split(" x")[0]
    model = parse(f"g ({inputs}) => ({shape} y) {{ y = {node} }}", opset)
    feeds = feeds_of(model, N=3, T=5)
    if "v" in feeds:
        feeds["v"] = np.abs(feeds["v"]) + np.float32(0.5)
    # onnxruntime refuses windows of even size.
    witness = opset <= LAST_OF_ONNXRUNTIME and "size=4" not in node
    made = check(model, feeds, onnxruntime=witness)
    if "N" in inputs:
        empty = {name: array.astype(np.float64) for name, array in feeds.items()}
        empty["x"] = empty["y_factors"] = empty["x"][:0]
        found = ostinato.InferenceSession(made).run([f"{name}_grad" for name in feeds], empty)
        for name, array in zip(feeds, found, strict=True):
            assert array.shape == empty[name].shape
            assert not array.any()


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("axes", ["T", "3,T"])
def test_norms_over_images(p: int, axes: str) -> None:
    ones = "1" if axes == "T" else "1,1"
    model = parse(
        f"g (float[N,2,{axes}] x) => (float[N,2,{ones}] y) {{ y = GlobalLpPool<p={p}>(x) }}"
    )
    check(model, feeds_of(model, N=3, T=5))
    (found,) = slopes(
        parse(f"g (float[1,1,2] x) => (float[1,1,1] y) {{ y = GlobalLpPool<p={p}>(x) }}"),
        ["x"],
        x=np.zeros((1, 1, 2), np.float32),
    )
    np.testing.assert_array_equal(found, np.zeros((1, 1, 2)))


@pytest.mark.parametrize("wrt", ["x", "s", "b", "m", "v"])
def test_each_operand_of_batch_normalization_alone(wrt: str) -> None:
    model = parse(
        "g (float[4,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[4,3] y) "
        "{ y = BatchNormalization(x, s, b, m, v) }"
    )
    feeds = feeds_of(model)
    feeds["v"] = np.abs(feeds["v"]) + np.float32(0.5)
    check(model, feeds, [wrt])


@pytest.mark.parametrize("shape", ["N,3", "N,3,T"])
def test_batch_normalization_in_training(shape: str) -> None:
    """onnxruntime and compiled code have no kernels for it."""
    model = parse(
        f"g (float[{shape}] x, float[3] s, float[3] b, float[3] m, float[3] v) => "
        f"(float[{shape}] y) {{ y, rm, rv = BatchNormalization<training_mode=1>(x, s, b, m, v) }}"
    )
    feeds = feeds_of(model, N=5, T=4)
    check(model, feeds, ["x", "s", "b"], native=False, onnxruntime=False)


def test_values_without_variance() -> None:
    """What PyTorch 2.13 has for a norm of 0 there is the inverse of its least norm."""
    model = parse("g (float[1,2] x) => (float[1,2] y) { y = LpNormalization(x) }")
    (found,) = slopes(model, ["x"], x=np.zeros((1, 2), np.float32))
    np.testing.assert_array_equal(found, np.zeros((1, 2)))
    model = parse(
        "g (float[1,2] x) => (float[1,2] y) { y = MeanVarianceNormalization<axes=[1]>(x) }"
    )
    (found,) = slopes(model, ["x"], x=np.ones((1, 2), np.float32))
    np.testing.assert_array_equal(found, np.zeros((1, 2)))


def test_gradients_of_statistics_are_refused() -> None:
    model = parse(
        "g (float[3,4] x, float[4] s) => (float l) "
        "{ y, m = LayerNormalization(x, s) l = ReduceSum<keepdims=0>(m) }"
    )
    with pytest.raises(ostinato.UnsupportedError, match="output 1 has no gradient"):
        gradient(model, "l", ["x"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_of_two_bytes(dtype: str) -> None:
    """Nothing on the way is of another type; float32 says what comes out."""
    inputs = "[3,4] x, {}[4] s, {}[3,4] f"
    text = (
        "{} { n = LayerNormalization(x, s) p = Softmax(n) m = Max(p, s) y = Mul(m, f) "
        "l = ReduceSum<keepdims=0>(y) }"
    )
    random = np.random.default_rng(1)
    numpy_type = np.dtype(dtype) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)
    shapes = {"x": (3, 4), "s": (4,), "f": (3, 4)}
    feeds = {n: (random.random(s) + 0.1).astype(numpy_type) for n, s in shapes.items()}
    found = []
    for name in (dtype, "float"):
        head = f"g ({name}{inputs.replace('{}', name)}) => ({name} l)"
        session = ostinato.InferenceSession(
            gradient(parse(text.replace("{}", head, 1)), "l", ["x", "s"])
        )
        kind = np.float32 if name == "float" else numpy_type
        given = {n: array.astype(kind) for n, array in feeds.items()}
        found.append(session.run(["x_grad", "s_grad"], given))
    for narrow, wide in zip(*found, strict=True):
        assert narrow.dtype == numpy_type
        unit = 2.0 ** (-10 if dtype == "float16" else -7)
        np.testing.assert_allclose(narrow.astype(np.float32), wide, rtol=0, atol=4 * unit)
