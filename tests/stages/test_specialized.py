from __future__ import annotations

import numpy as np
import pytest

from ostinato import InferenceSession
from ostinato.errors import RunError, UnsupportedError
from ostinato.stages.specialized import MAX_VARIANTS
from tests.golden import parse

SLICE = parse("""
    g (float[N, 4] x, int64[1] start, int64[1] end, int64[1] axis, int64[1] step)
        => (float[a, b] y) { y = Slice(x, start, end, axis, step) }
    """)
X = np.arange(20, dtype="f").reshape(5, 4)


def run(session: InferenceSession, start: int, end: int, axis: int, step: int) -> np.ndarray:
    given = {"start": start, "end": end, "axis": axis, "step": step}
    feeds = {name: np.array([value]) for name, value in given.items()}
    (y,) = session.run(None, {"x": X, **feeds})
    return y


def test_a_node_is_compiled_for_the_axes_it_is_given() -> None:
    session = InferenceSession(SLICE, cache_dir=None)
    report = session.report()
    assert not report.native
    (entry,) = report["fallback"]
    assert (entry["node"], entry["op"], entry["status"]) == ("y", "Slice", "compiled when called")
    assert entry["inputs"] == ["axis", "step"]
    assert "axes or steps" in entry["reason"]
    assert run(session, 1, 3, 0, 1).tolist() == X[1:3].tolist()
    assert run(session, 1, 3, 1, 1).tolist() == X[:, 1:3].tolist()
    assert run(session, -1, -9, 0, -2).tolist() == X[::-2].tolist()
    assert session.report().interpreted == []


def test_what_follows_from_a_transform_of_any_length_is_native() -> None:
    model = parse("""
        g (float[N, T, 1] x) => (float[N, F] y) {
            zero = Constant <value_int = 0> ()
            t = Shape <start = 1, end = 2> (x)
            n = Squeeze (t)
            d = DFT <axis = 1, onesided = 1> (x, n)
            y = Gather <axis = 2> (d, zero)
        }
        """)
    session = InferenceSession(model, cache_dir=None)
    for length in (6, 9):
        x = np.random.default_rng(length).standard_normal((2, length, 1)).astype("f")
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.fft.rfft(x[..., 0]).real, rtol=1e-4, atol=1e-5)
    assert [entry["op"] for entry in session.report()["fallback"]] == ["DFT"]


def test_a_wrong_operand_is_an_error_of_the_run() -> None:
    session = InferenceSession(SLICE, cache_dir=None)
    with pytest.raises(RunError, match=r"'y' \(Slice\): axis 7 is out of range"):
        run(session, 0, 1, 7, 1)


def test_operands_that_keep_changing_run_on_the_reference_kernel() -> None:
    session = InferenceSession(SLICE, cache_dir=None)
    for step in range(1, MAX_VARIANTS + 3):
        assert run(session, 0, 5, 0, step).tolist() == X[::step].tolist()
    (entry,) = session.report()["fallback"]
    assert entry["taken_over"] == [f"more than {MAX_VARIANTS} values of axis, step"]
    assert session.report().interpreted == [entry]


def test_values_without_a_native_form_run_on_the_reference_kernel() -> None:
    model = parse("g (float[N] x, int64[K] axes) => (float[a] y) { y = Squeeze(x, axes) }")
    with pytest.raises(UnsupportedError):
        InferenceSession(model, cache_dir=None, fallback=False)


def test_the_cache_keeps_what_decides(tmp_path) -> None:
    for from_cache in (False, True):
        session = InferenceSession(SLICE, cache_dir=tmp_path)
        assert session.report()["from_cache"] is from_cache
        assert run(session, 0, 2, 1, 1).tolist() == X[:, :2].tolist()


def test_scales_of_a_run_are_compiled_for() -> None:
    model = parse("""
        g (float[1, 2, 4, 4] x, float[4] scales) => (float[a, b, c, d] y) {
            y = Resize<mode = "linear", coordinate_transformation_mode = "asymmetric">(x, , scales)
        }""")
    session = InferenceSession(model, cache_dir=None)
    x = np.arange(32, dtype="f").reshape(1, 2, 4, 4)
    (y,) = session.run(None, {"x": x, "scales": np.array([1, 1, 2, 0.5], "f")})
    expected = x[:, :, :, ::2].repeat(2, 2)
    expected[:, :, 1:-1:2] = (expected[:, :, :-2:2] + expected[:, :, 2::2]) / 2
    assert np.array_equal(y, expected)
    assert session.report().interpreted == []


@pytest.mark.parametrize(
    "nodes",
    [
        "y = HannWindow(n)",
        "z = Constant<value_float = 0.0>() d = Constant<value_float = 1.0>()"
        "f = Cast<to = 1>(n) y = Range(z, f, d)",
        "a = Constant<value_floats = [1.0, 2.0, 3.0]>() b = Constant<value_floats = [1.0]>()"
        "s = SequenceConstruct(a, b) t = SequenceErase(s, m) y = SequenceAt(t, m)",
    ],
)
def test_numbers_in_a_vector_of_any_length_are_known_when_they_come(nodes: str) -> None:
    """Reference kernels take scalars alone for sizes of windows and positions in sequences."""
    text = f"g (int64[K] n, int64[K] m) => (float[L] y) {{ {nodes} }}"
    session = InferenceSession(parse(text, opset=21), cache_dir=None)
    for n in (5, 7):
        (y,) = session.run(None, {"n": np.array([n]), "m": np.array([0])})
        assert len(y) == (1 if "Erase" in nodes else n)
    assert session.report().interpreted == []


def test_a_loop_is_compiled_for_a_vector_of_any_length() -> None:
    model = parse(
        """g (int64[K] n, float[3] x) => (float[3, M] y) {
            y = Scan <num_scan_inputs = 1, body = b (float t) => (float[M] o) {
                w = HannWindow(n)  o = Mul(w, t)
            }> (x)
        }""",
        opset=21,
    )
    session = InferenceSession(model, cache_dir=None)
    x = np.arange(3, dtype="f")
    (y,) = session.run(None, {"n": np.array([6]), "x": x})
    window = np.sin(np.pi * np.arange(6) / 6) ** 2
    np.testing.assert_allclose(y, x[:, None] * window, rtol=1e-6)
    assert session.report().interpreted == []


def test_axes_without_a_name_are_compiled_for_those_of_extent_1() -> None:
    model = parse("g (float[N, M, K] x) => (float[] y) { h = Squeeze(x)  y = Relu(h) }")
    session = InferenceSession(model, cache_dir=None)
    for shape in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (1, 1, 4), (2, 3, 1), (1, 1, 1), (2, 1, 5)):
        x = np.arange(np.prod(shape), dtype="f").reshape(shape) - 3
        (y,) = session.run(None, {"x": x})
        assert y.shape == x.squeeze().shape
        assert y.tolist() == np.maximum(x, 0).squeeze().tolist()
    assert session.report().interpreted == []


def test_axes_of_a_size_that_a_run_computes() -> None:
    model = parse("""
        g (float[N] x) => (float[] y) {
            i = NonZero(x)  f = Cast <to = 1> (i)  h = Squeeze(f)  y = Relu(h)
        }
        """)
    session = InferenceSession(model, cache_dir=None)
    for x in ([0, 2, 3], [1, 0, 0], [0, 0, 0]):
        (y,) = session.run(None, {"x": np.array(x, "f")})
        assert y.tolist() == np.nonzero(x)[0].squeeze().tolist()
    assert session.report().interpreted == []
