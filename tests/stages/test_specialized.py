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
