from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from tests.ops.rules.sessions import opened, run

RNG = np.random.default_rng(5)
FASTEST = "ostinato.ops.rules.winograd_transposed._fastest"


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def spread(
    w: np.ndarray,
    size: Sequence[int | str],
    strides: Sequence[int],
    pads: Sequence[int],
    extra: Sequence[int] = (0, 0),
    more: str = "",
) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, {w.shape[0]}, {size[0]}, {size[1]}] x) => (float[N, F, H, W] y) {{
            y = ConvTranspose<strides = {list(strides)}, pads = {list(pads)},
                output_padding = {list(extra)}{more}>(x, w, b)
        }}"""
    )
    bias = values(w.shape[1])
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    model.graph.initializer.append(numpy_helper.from_array(bias, "b"))
    return model


def exact(
    model: onnx.ModelProto,
    x: np.ndarray,
    strides: Sequence[int],
    pads: Sequence[int],
    extra: Sequence[int] = (0, 0),
) -> np.ndarray:
    """Every element adds a scaled kernel, in float64."""
    w, b = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    taps, sizes = w.shape[2:], x.shape[2:]
    full = [s * (n - 1) + k + e for s, n, k, e in zip(strides, sizes, taps, extra, strict=True)]
    y = np.zeros((x.shape[0], w.shape[1], *full))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            rows, columns = i * strides[0], j * strides[1]
            part = np.einsum("nc,cfkl->nfkl", x[:, :, i, j].astype(np.float64), w)
            y[:, :, rows : rows + taps[0], columns : columns + taps[1]] += part
    y = y[:, :, pads[0] : full[0] - pads[2], pads[1] : full[1] - pads[3]]
    return y + b[:, None, None]


@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "extra", "counts", "sizes"),
    [
        ((5, 2), (2, 1), (2, 0, 2, 0), (1, 0), (4, 1), [(9, 8), (1, 3)]),
        ((4, 4), (2, 2), (1, 1, 1, 1), (0, 0), (4, 4), [(5, 13), (4, 1)]),
        ((5, 6), (2, 2), (2, 1, 0, 2), (1, 0), (2, 4), [(9, 8)]),
        ((3, 3), (1, 1), (0, 1, 2, 1), (0, 0), (1, 4), [(5, 13), (1, 3)]),
        ((7, 5), (3, 1), (1, 2, 3, 2), (2, 0), (2, 2), [(5, 13)]),
        ((11, 1), (2, 1), (4, 0, 5, 0), (0, 0), (4, 1), [(9, 8), (4, 1)]),
        ((5, 7), (2, 3), (0, 0, 0, 0), (0, 0), (2, 4), [(4, 1)]),
    ],
)
def test_phases_are_filters_of_their_own(kernel, strides, pads, extra, counts, sizes, monkeypatch):
    monkeypatch.setattr(FASTEST, lambda *_: counts)
    w = values(24, 20, *kernel)
    for size in sizes:
        x = values(2, 24, *size)
        model = spread(w, size, strides, pads, extra)
        function = opened(model)
        together, plain = function(x), run(model, x, winograd=False)
        expected = exact(model, x, strides, pads, extra)
        assert together.shape == plain.shape == expected.shape
        assert expected.size == 0 or not np.array_equal(together, plain)
        errors = [np.sqrt(np.square(got - expected).sum()) for got in (together, plain)]
        assert errors[0] <= 3 * errors[1]
        np.testing.assert_array_equal(function(x[1:]), together[1:])
        if size == sizes[0]:
            np.testing.assert_array_equal(run(model, x, threads=2), together)


def test_phases_are_computed_together_where_that_takes_less_time():
    x, shape = values(1, 64, 16, 20), (64, 64)

    def differs(kernel: tuple[int, int], strides: tuple[int, int], more: str = "") -> bool:
        model = spread(values(*shape, *kernel), x.shape[2:], strides, (1, 1, 1, 1), more=more)
        return not np.array_equal(run(model, x), run(model, x, winograd=False))

    assert differs((5, 2), (2, 1))
    assert differs((4, 4), (2, 2))
    assert differs((3, 3), (1, 1))
    assert differs((3, 3), (2, 1))
    # Windows as long as their strides have one tap each; three taps are two and one.
    assert not differs((2, 2), (2, 2))
    assert not differs((3, 3), (2, 2))
    assert not differs((5, 5), (1, 1), ", dilations = [2, 2]")
    assert not differs((2, 2), (1, 1))


def test_a_single_frame_has_the_bits_of_one_of_any_number():
    w, x = values(64, 32, 5, 2), values(1, 64, 32, 1)
    model = spread(w, (32, "T"), (2, 1), (2, 0, 2, 0), (1, 0))
    whole = run(model, x)
    np.testing.assert_array_equal(run(model, x, specialize={"T": 1}), whole)
    assert not np.array_equal(whole, run(model, x, winograd=False))


def test_times_beside_a_strided_axis_have_the_same_bits_wherever_they_are_cut():
    """A step of two taps meets the frame before, which a part lacks in front."""
    w, x = values(64, 32, 5, 2), values(1, 64, 16, 13)
    model = spread(w, (16, "T"), (2, 1), (2, 0, 2, 0), (1, 0))
    function = opened(model)
    whole = function(x)
    assert not np.array_equal(whole, run(model, x, winograd=False))
    np.testing.assert_array_equal(run(model, x, specialize={"T": 13}), whole)
    for first in range(0, 12, 4):
        part = function(x[..., first : first + 5])
        np.testing.assert_array_equal(
            part[..., 1:-1], whole[..., first + 1 : first + part.shape[3] - 1]
        )


def test_other_forms_stay_plain_sums():
    """Groups, weights of a run, and padding beyond what any tap reaches."""
    x = values(1, 64, 16, 16)
    grouped = spread(values(64, 32, 4, 4), (16, 16), (2, 2), (1, 1, 1, 1), more=", group = 2")
    grouped.graph.initializer[1].CopyFrom(numpy_helper.from_array(values(64), "b"))
    cropped = spread(values(64, 64, 4, 4), (16, 16), (2, 2), (8, 8, 8, 8))
    for model in (grouped, cropped):
        np.testing.assert_array_equal(run(model, x), run(model, x, winograd=False))
    given = spread(values(64, 64, 4, 4), (16, 16), (2, 2), (1, 1, 1, 1))
    w = numpy_helper.to_array(given.graph.initializer[0])
    whole = run(given, x, winograd=False)
    del given.graph.initializer[0]
    given.graph.input.append(
        onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, w.shape)
    )
    session = ostinato.InferenceSession(given, cache_dir=None)
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": w})[0], whole)
