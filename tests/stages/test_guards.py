"""Models whose ranks depend on sizes: compiled for the likely ones, right for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import ShapeError

# What exporters make of `x.squeeze(1)` when they do not know the size of axis 1.
SQUEEZE = """
<ir_version: 8, opset_import: ["" : 17]>
squeeze (float[N, M, 3] x) => (float[K] y)
<int64 one = {1}, int64[1] axis = {1}, int64 position = {1}, int64[1] flat = {-1}>
{
    shape = Shape(x)
    size = Gather(shape, position)
    condition = Equal(size, one)
    narrow = If (condition) <
        then_branch = then () => (float[] a) { a = Squeeze(x, axis) },
        else_branch = otherwise () => (float[] b) { b = Identity(x) }
    >
    rectified = Relu(narrow)
    sums = CumSum(rectified, position)
    y = Reshape(sums, flat)
}
"""

# The same in a branch that data decides.
NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
nested (float[N, M, 3] x, bool flag) => (float[N] y)
<int64 one = {1}, int64[1] axis = {1}, int64 position = {1}, float[3] w = {1, 2, 3}>
{
    y = If (flag) <
        then_branch = then () => (float[N] t) {
            shape = Shape(x)
            size = Gather(shape, position)
            condition = Equal(size, one)
            narrow = If (condition) <
                then_branch = squeezed () => (float[] a) { a = Squeeze(x, axis) },
                else_branch = largest () => (float[] b) {
                    largest = ReduceMax <axes = [1]> (x)
                    b = Squeeze(largest, axis)
                }
            >
            t = MatMul(narrow, w)
        },
        else_branch = otherwise () => (float[N] e) {
            total = ReduceSum <keepdims = 0> (x, axis)
            e = MatMul(total, w)
        }
    >
}
"""


def session(text: str, **options: object) -> ostinato.InferenceSession:
    model = onnx.parser.parse_model(text)
    return ostinato.InferenceSession(model, cache_dir=None, **options)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def sums(x: np.ndarray) -> np.ndarray:
    narrow = x[:, 0] if x.shape[1] == 1 else x
    return np.cumsum(np.maximum(narrow, 0), 1).reshape(-1)


def test_both_outcomes_are_right_and_the_likely_one_is_native() -> None:
    compiled = session(SQUEEZE)
    assert compiled.report().interpreted == []
    assert compiled.report().native
    assert len(compiled.report()["assumptions"]) == 1
    for shape in ((2, 1, 3), (2, 4, 3), (5, 1, 3), (2, 1, 3)):
        x = array(*shape)
        (y,) = compiled.run(None, {"x": x})
        np.testing.assert_allclose(y, sums(x), rtol=1e-6)


def test_bound_calls_of_both_outcomes() -> None:
    compiled = session(SQUEEZE)
    for shape in ((2, 1, 3), (2, 4, 3)):
        x = array(*shape)
        call = compiled.bind({"x": x})
        x *= -1
        call()
        np.testing.assert_allclose(call.outputs["y"], sums(x), rtol=1e-6)


def test_other_sizes_are_native_too() -> None:
    compiled = session(SQUEEZE, fallback=False)
    for shape in ((2, 1, 3), (2, 4, 3)):
        compiled.run(None, {"x": array(*shape)})
    assert not compiled.report().interpreted


def test_an_axis_that_another_node_needs_to_be_1_is_squeezed() -> None:
    compiled = session(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, T, 3] x) => (float[T, 3] y) <float[6] h = {1, 2, 3, 4, 5, 6},
            int64[1] first = {0}, int64[1] second = {1}, int64[1] six = {6}> {
            s = Shape(x)  n = Slice(s, first, second)  size = Mul(n, six)
            bias = Reshape(h, size)  all = ReduceSum <keepdims = 0> (bias)
            sum = Add(x, all)  y = Squeeze(sum)
        }""",
        fallback=False,
    )
    assert compiled.report()["assumptions"] == ["node 'y' (Squeeze): axis 1 has not the extent 1"]
    x = array(1, 4, 3)
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], x[0] + 21, rtol=1e-6)
    with pytest.raises(ShapeError, match="number of elements"):
        compiled.run(None, {"x": array(2, 4, 3)})


def expected(x: np.ndarray, flag: bool) -> np.ndarray:
    return (x.max(1) if flag else x.sum(1)) @ np.array([1, 2, 3], np.float32)


@pytest.mark.parametrize("middle", [1, 4])
@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_that_is_not_taken_assumes_nothing(middle: int, flag: bool) -> None:
    compiled = session(NESTED)
    assert compiled.report().interpreted == []
    x = array(2, middle, 3)
    feeds = {"x": x, "flag": np.array(flag)}
    for _ in range(2):
        (y,) = compiled.run(None, feeds)
        np.testing.assert_allclose(y, expected(x, flag), rtol=1e-6)
    target = np.zeros(2, np.float32)
    compiled.run(None, feeds, out={"y": target})
    np.testing.assert_array_equal(target, y)


def test_a_bound_call_follows_the_data() -> None:
    compiled = session(NESTED)
    x, flag = array(2, 4, 3), np.array(False)
    call = compiled.bind({"x": x, "flag": flag})
    for value in (False, True, False):
        flag[...] = value
        call()
        np.testing.assert_allclose(call.outputs["y"], expected(x, value), rtol=1e-6)


def test_the_cache_tells_programs_with_assumptions_from_general_ones(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(SQUEEZE)
    for _ in range(2):
        compiled = ostinato.InferenceSession(model, cache_dir=tmp_path)
        for shape in ((2, 1, 3), (2, 4, 3)):
            x = array(*shape)
            (y,) = compiled.run(None, {"x": x})
            np.testing.assert_allclose(y, sums(x), rtol=1e-6)
    assert compiled.report()["from_cache"]


def test_squeeze_without_axes_is_native_for_sizes_other_than_1() -> None:
    compiled = session("""
<ir_version: 8, opset_import: ["" : 17]>
squeeze (float[N, 1, M] x) => (float[] y) { z = Squeeze(x)  y = Relu(z) }
""")
    assert compiled.report().native
    assert len(compiled.report()["assumptions"]) == 2
    for shape in ((2, 1, 3), (1, 1, 3), (2, 1, 1), (1, 1, 1), (2, 1, 3)):
        x = array(*shape)
        (y,) = compiled.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.maximum(np.squeeze(x), 0), strict=True)


@pytest.mark.parametrize("attributes", ["inverse = 1", "inverse = 0", "onesided = 1"])
def test_real_and_complex_signals_of_one_transform_are_native(attributes: str) -> None:
    compiled = session(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 6, P] x) => (float[N, M, 2] y) {{ y = DFT <axis = 1, {attributes}> (x) }}""",
        fallback=False,
    )
    for shape in ((2, 6, 1), (2, 6, 2), (3, 6, 1))[:: 2 if "onesided" in attributes else 1]:
        x = array(*shape)
        numbers = x[..., 0] if shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
        transform = np.fft.ifft if "inverse = 1" in attributes else np.fft.fft
        wanted = transform(numbers, axis=1)[:, : 4 if "onesided" in attributes else 6]
        (y,) = compiled.run(None, {"x": x})
        np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, atol=1e-5)
    with pytest.raises(ostinato.OstinatoError, match=r"last axis|DFT"):
        compiled.run(None, {"x": array(2, 6, 3)})


def test_frames_of_real_and_complex_signals_are_native() -> None:
    compiled = session(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 12, P] x) => (float[N, F, 8, 2] y)
            <int64 step = {4}, float[8] window = {1, 1, 1, 1, 1, 1, 1, 1}> {
            y = STFT <onesided = 0> (x, step, window)
        }""",
        fallback=False,
    )
    for parts in (1, 2):
        x = array(2, 12, parts)
        numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
        frames = np.stack([numbers[:, :8], numbers[:, 4:]], 1)
        (y,) = compiled.run(None, {"x": x})
        np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], np.fft.fft(frames), atol=1e-5)
