from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from ostinato import Options
from ostinato.errors import InputError
from ostinato.ray import Predictor

SUM = """<ir_version: 8, opset_import: ["": 17]> g (float[T, N, 2] x, float[N, 2] s)
    => (float[T, N, 2] y, float[N, 2] t) {
    t, y = Scan <num_scan_inputs = 1, body = b (float[N, 2] a, float[N, 2] f)
        => (float[N, 2] c, float[N, 2] d) { c = Add(a, f)  d = Identity(c) }> (s, x)
}"""
TWICE = (
    """<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Add(x, x) }"""
)
UNCACHED = Options(cache_dir=None)


def predictor(text: str = SUM, **arguments: Any) -> Predictor:
    if text == SUM:
        arguments = {"states": {"s": "t"}, **arguments}
    model = onnx.parser.parse_model(text).SerializeToString()
    return Predictor(model, options=UNCACHED, **arguments)


def ragged(lengths: list[int]) -> np.ndarray:
    rows = np.empty(len(lengths), object)
    for i, length in enumerate(lengths):
        rows[i] = np.full((length, 2), i + 1, np.float32)
    return rows


def test_rows_of_several_lengths_keep_their_order() -> None:
    lengths = [3, 1, 3, 2, 0]
    names = np.array(list("abcde"))
    scored = predictor()({"x": ragged(lengths), "name": names})
    assert [*scored] == ["name", "y"]
    np.testing.assert_array_equal(scored["name"], names)
    for i, length in enumerate(lengths):
        expected = np.cumsum(np.full((length, 2), i + 1, np.float32), axis=0)
        np.testing.assert_array_equal(scored["y"][i], expected)


def test_rows_of_one_shape_are_one_array() -> None:
    scored = predictor(inputs={"x": "signal"})({"signal": np.ones((4, 5, 2), np.float32)})
    assert scored["y"].shape == (4, 5, 2)
    assert scored["y"].dtype == np.float32


def test_a_row_that_fails_is_reported_and_the_rest_goes_on() -> None:
    rows = ragged([3, 3, 3])
    rows[1] = np.zeros((3, 5), np.float32)
    texts = np.array(["", "", "could not be read"], object)
    scored = predictor(errors="error")({"x": rows, "error": texts})
    assert scored["y"][0].shape == (3, 2)
    assert scored["y"][1].shape == scored["y"][2].shape == (0, 0)
    assert scored["error"][0] == ""
    assert "'x'" in scored["error"][1]
    assert scored["error"][2] == "could not be read"
    with pytest.raises(InputError, match="'x'"):
        predictor()({"x": rows})


def test_one_value_that_only_its_row_has_does_not_spoil_the_others() -> None:
    gather = """<ir_version: 8, opset_import: ["": 17]> g (int64[N] i) => (float[N] y)
        <float[3] t = {1, 2, 3}> { y = Gather(t, i) }"""
    model = predictor(gather, errors="error")
    scored = model({"i": np.array([0, 7, 2])})
    assert [float(y) if y.ndim == 0 and not e else None for y, e in
            zip(scored["y"], scored["error"], strict=True)] == [1.0, None, 3.0]  # fmt: skip
    assert scored["error"][1]


def test_a_model_without_a_batch_takes_row_by_row() -> None:
    model = predictor(TWICE)
    assert model.batch is None
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(model({"x": rows})["y"], 2 * rows)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"states": {"s": "u"}}, "no 'u', it has y, t"),
        ({"inputs": {"z": "x"}}, "no 'z', it has x, s"),
        ({"outputs": ["z"]}, "no 'z'"),
        ({"batch": "M"}, "'M' is no dimension"),
    ],
)
def test_names_that_the_model_does_not_have(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        predictor(**arguments)


def test_a_column_that_is_missing() -> None:
    with pytest.raises(InputError, match="no column 'x', there are z"):
        predictor()({"z": np.zeros(3)})


def test_a_dimension_has_to_be_named_where_there_are_several() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, T] x) => (float[N, T] y)
        { y = Neg(x) }"""
    with pytest.raises(InputError, match=r"\['N', 'T'\]: say which"):
        predictor(text)
    assert predictor(text, batch="N").batch == "N"
