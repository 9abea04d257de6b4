from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.reference.kernels import KERNELS
from tests import witness
from tests.golden import parse

F = np.float32


def run(model: onnx.ModelProto, **feeds: object) -> list[object]:
    return ReferenceEvaluator(model, new_ops=KERNELS).run(None, feeds)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("pads", [[0, 1, 0, -1], [-1, 2, 1, -1], [-1, -2, 0, 1], [1, 0, 2, 0]])
@pytest.mark.parametrize("opset", [2, 13])
def test_pads_may_be_negative(mode: str, pads: list[int], opset: int):
    old, new = f'<mode = "{mode}", pads = {pads}> (x)', f'<mode = "{mode}"> (x, p)'
    node = f"y = Pad {old if opset < 11 else new}"
    text = f"g (float[N, M] x, int64[4] p) => (float[P, Q] y) {{ {node} }}"
    model, x = parse(text, opset=opset), np.arange(12, dtype=F).reshape(3, 4)
    feeds = {"x": x, "p": np.array(pads)}
    np.testing.assert_array_equal(
        run(model, **feeds)[0], witness.run(model.SerializeToString(), feeds)[0]
    )


def test_pads_take_no_more_than_there_is():
    text = 'g (float[N] x, int64[2] p) => (float[M] y) { y = Pad <mode = "edge"> (x, p) }'
    with pytest.raises(ValueError, match="take more than"):
        run(parse(text), x=np.zeros(4, F), p=np.array([0, -5]))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Pad (x, p)", [["", "a", "b"], ["", "c", "d"]]),
        ("CenterCropPad (x, s)", [["a", "b", ""], ["c", "d", ""]]),
        ("Trilu (x)", [["a", "b"], ["", "d"]]),
        ("Trilu <upper=0> (x)", [["a", ""], ["c", "d"]]),
    ],
)
def test_strings_are_surrounded_by_empty_ones(node: str, expected: list[list[str]]):
    constants = "<int64[4] p = {0, 1, 0, 0}, int64[2] s = {2, 3}>"
    text = f"g (string[N, M] x) => (string[P, Q] y) {constants} {{ y = {node} }}"
    strings = np.array([["a", "b"], ["c", "d"]], object)
    (result,) = run(parse(text, opset=18), x=strings)
    assert result.tolist() == expected


@pytest.mark.parametrize(
    ("node", "opset", "shape", "indices"),
    [
        ("Unsqueeze <axes = [2, 0, 1, 3]> (x)", 11, (3, 2), None),
        ("Unsqueeze <axes = [-1, 0]> (x)", 11, (3, 2), None),
        ("Squeeze <axes = [-3, -2]> (x)", 11, (1, 1, 3), None),
        ("Squeeze (x)", 11, (1, 2, 1), None),
        ("Flatten <axis = -1> (x)", 18, (2, 3, 2), None),
        ("GatherElements <axis = 1> (x, i)", 18, (3, 4), [[3, -1], [0, 2]]),
        ("GatherND <batch_dims = 1> (x, i)", 18, (2, 3, 2), [[[0], [-1]], [[2], [1]]]),
        ("GatherND (x, i)", 18, (2, 3, 2), [[0, -1], [1, 2]]),
    ],
)
def test_strings_are_moved_as_onnxruntime_moves_them(
    node: str, opset: int, shape: tuple[int, ...], indices: list[object] | None
):
    given = "" if indices is None else ", int64 i"
    model = parse(f"g (string x{given}) => (string y) {{ y = {node} }}", opset=opset)
    count = int(np.prod(shape))
    feeds = {"x": np.array([f"s{i}" for i in range(count)], object).reshape(shape)}
    if indices is not None:
        feeds["i"] = np.array(indices)
    for value in model.graph.input:
        for size in feeds[value.name].shape:
            value.type.tensor_type.shape.dim.add().dim_value = size
    (result,) = run(model, **feeds)
    (expected,) = witness.run(model.SerializeToString(), feeds)
    np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("node", ["Flatten (x)", "GatherND <batch_dims = 1> (x, i)"])
def test_there_may_be_no_elements(node: str):
    model = parse(f"g (float[0, 2] x, int64[0, 1] i) => (float[A, B] y) {{ y = {node} }}", opset=18)
    (result,) = run(model, x=np.zeros((0, 2), F), i=np.zeros((0, 1), np.int64))
    assert result.size == 0
