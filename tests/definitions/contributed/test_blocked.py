"""Images in blocks of channels, against the standard's operators."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from ostinato import InferenceSession, Options, ShapeError
from ostinato.passes.normalise.expand_contributed import expand_contributed
from tests.definitions.contributed.nodes import graph, normal


@pytest.mark.parametrize("shape", ((12, 3, 3, 3), (16, 12, 1, 1)))
def test_channels_that_blocks_do_not_divide(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{expand_contributed.__module__}._block", lambda nodes: 8)
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain="com.microsoft.nchwc")
    weights = numpy_helper.from_array(np.ones(shape, np.float32), "w")
    model = graph([node], {"x": [1, shape[1], 8, 8]}, ["y"], [weights])
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(ShapeError, match=r"'W'.*channels in blocks of 8"):
        InferenceSession(model)


@pytest.mark.parametrize("block", (8, 16))
def test_images_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{expand_contributed.__module__}._block", lambda nodes: block)
    random = np.random.default_rng(block)
    first = random.standard_normal((2 * block, 3, 3, 3)).astype(np.float32)
    second = random.standard_normal((block, 2 * block, 1, 1)).astype(np.float32)
    in_blocks = [
        first.reshape(2, block, 3, 3, 3).transpose(0, 2, 3, 4, 1),
        second.reshape(1, block, 2, block, 1, 1).transpose(0, 2, 4, 5, 3, 1),
    ]
    constants = [
        numpy_helper.from_array(array.reshape(plain.shape), name)
        for name, array, plain in zip("vw", in_blocks, (first, second), strict=True)
    ]
    blocked = {"domain": "com.microsoft.nchwc"}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], **blocked, activation="Relu"),
        helper.make_node("MaxPool", ["a"], ["b"], **blocked, kernel_shape=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["c"], **blocked, activation="HardSwish"),
        helper.make_node("ReorderOutput", ["c"], ["y"], **blocked, channels=5),
    ]
    model = graph(nodes, {"x": [1, 3, 8, 8]}, ["y"], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    plain = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["p"]),
        helper.make_node("HardSigmoid", ["p"], ["s"], alpha=1 / 6, beta=0.5),
        helper.make_node("Mul", ["p", "s"], ["c"]),
        helper.make_node("Slice", ["c", "from", "to", "axis"], ["y"]),
    ]
    bounds = [
        numpy_helper.from_array(np.array([n]), name)
        for name, n in (("from", 0), ("to", 5), ("axis", 1))
    ]
    weights = [numpy_helper.from_array(a, n) for n, a in (("v", first), ("w", second))]
    same = graph(plain, {"x": [1, 3, 8, 8]}, ["y"], [*weights, *bounds])
    feeds = {"x": normal(1, 3, 8, 8)}
    got, want = (
        InferenceSession(m, options=Options(cache_dir=None)).run(None, feeds)[0]
        for m in (model, same)
    )
    np.testing.assert_array_equal(got, want)


def test_groups_that_fill_up_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution of each channel on images that have been out of their blocks."""
    monkeypatch.setattr(f"{expand_contributed.__module__}._block", lambda nodes: 8)
    w = np.zeros((8, 1, 3, 3), np.float32)
    w[:5] = normal(5, 1, 3, 3)
    in_blocks = w.reshape(1, 8, 1, 3, 3).transpose(0, 2, 3, 4, 1).reshape(w.shape)
    blocked = {"domain": "com.microsoft.nchwc"}
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], **blocked),
        helper.make_node("Conv", ["a", "w"], ["b"], **blocked, group=8),
        helper.make_node("ReorderOutput", ["b"], ["y"], **blocked, channels=5),
    ]
    stored = [numpy_helper.from_array(in_blocks, "w")]
    model = graph(nodes, {"x": [1, 5, 7, 7]}, ["y"], stored)
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    x = normal(1, 5, 7, 7)
    (got,) = InferenceSession(model, options=Options(cache_dir=None)).run(None, {"x": x})
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(got, np.einsum("nchwij,cij->nchw", windows, w[:5, 0]), atol=1e-5)
