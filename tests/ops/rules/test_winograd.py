from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from tests.ops.rules.sessions import opened, run

RNG = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))


def convolution(
    w: np.ndarray, size: Sequence[int | str], pads: int = 1, strides: tuple[int, int] = (1, 1)
) -> onnx.ModelProto:
    rows, columns = size
    step = f"{strides[0]}, {strides[1]}"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, {w.shape[1]}, {rows}, {columns}] x) => (float[N, {w.shape[0]}, H, W] y) {{
            y = Conv<pads = [{pads}, {pads}, {pads}, {pads}], strides = [{step}]>(x, w)
        }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return model


@pytest.mark.parametrize(
    ("counts", "most"),
    [((1, 2), 0.9), ((2, 2), 0.8), ((1, 4), 1.6), ((4, 2), 1.4), ((2, 4), 1.4), ((4, 4), 2.3)],
    ids=str,
)
def test_errors_are_about_as_large_as_those_of_plain_sums(counts, most, monkeypatch):
    """`most` is how many times as large the root mean square may be."""
    monkeypatch.setattr("ostinato.ops.rules.winograd_ways.fastest", lambda *_: counts)
    w, x = weights(40, 64, 3, 3), RNG.standard_normal((1, 64, 15, 18)).astype(np.float32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    exact = np.einsum("nchwij,kcij->nkhw", taps, w.astype(np.float64))
    model = convolution(w, (15, 18))
    together, plain = run(model, x), run(model, x, winograd=False)
    assert not np.array_equal(together, plain)
    errors = [np.sqrt(np.square(got - exact).mean()) for got in (together, plain)]
    assert errors[0] < most * errors[1]


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((64, 96, 5, 5), (1, 1)),
        ((48, 48, 3, 6), (1, 1)),
        ((64, 40, 7, 8), (2, 1)),
        ((32, 24, 13, 11), (2, 1)),
        ((96, 96, 9, 3), (1, 2)),
    ],
)
def test_groups_of_three_taps_are_added_up(shape, strides):
    w, x = weights(*shape), weights(2, shape[1], 31, 29)
    model = convolution(w, (31, 29), 2, strides)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, shape[2:], (2, 3))
    taps = taps[:, :, :: strides[0], :: strides[1]]
    exact = np.einsum("nchwij,kcij->nkhw", taps, w.astype(np.float64))
    function = opened(model)
    together, plain = function(x), run(model, x, winograd=False)
    assert not np.array_equal(together, plain)
    errors = [np.sqrt(np.square(got - exact).mean()) for got in (together, plain)]
    assert errors[0] < 2 * errors[1]
    np.testing.assert_array_equal(together[1:], function(x[1:]))


@pytest.mark.parametrize(
    ("shape", "strides", "counts", "sizes"),
    [
        ((40, 48, 5, 2), (2, 1), (4, 1), [(31, 29), (33, 23)]),
        ((40, 48, 4, 4), (2, 2), (4, 2), [(32, 30)]),
        ((24, 40, 5, 3), (3, 1), (2, 4), [(33, 23)]),
        ((24, 40, 3, 7), (1, 2), (1, 4), [(32, 30), (31, 29)]),
        ((24, 17, 8, 3), (4, 1), (4, 1), [(33, 23), (32, 30)]),
    ],
    ids=str,
)
def test_phases_of_strided_axes_are_summed_up_together(shape, strides, counts, sizes, monkeypatch):
    monkeypatch.setattr("ostinato.ops.rules.winograd_ways.fastest", lambda *_: counts)
    w = weights(*shape)
    for size in sizes:
        x = weights(2, shape[1], *size)
        model = convolution(w, size, 2, strides)
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, shape[2:], (2, 3))
        exact = np.einsum(
            "nchwij,kcij->nkhw", taps[:, :, :: strides[0], :: strides[1]], w.astype(np.float64)
        )
        function = opened(model)
        together, plain = function(x), run(model, x, winograd=False)
        assert not np.array_equal(together, plain)
        errors = [np.sqrt(np.square(got - exact).mean()) for got in (together, plain)]
        assert errors[0] < 2.3 * errors[1]
        np.testing.assert_array_equal(function(x[1:]), together[1:])
        if size == sizes[0]:
            np.testing.assert_array_equal(run(model, x, threads=2), together)


def test_times_beside_a_strided_axis_have_the_same_bits_wherever_they_are_cut():
    w, x = weights(64, 64, 5, 2), weights(1, 64, 64, 13)
    model = convolution(w, (64, "T"), 0, (2, 1))
    function = opened(model)
    whole = function(x)
    assert not np.array_equal(whole, run(model, x, winograd=False))
    np.testing.assert_array_equal(run(model, x, specialize={"T": 13}), whole)
    for first in range(0, 12, 5):
        part = function(x[..., first : first + 6])
        np.testing.assert_array_equal(part, whole[..., first : first + 5][..., : part.shape[3]])


def test_images_of_any_size_have_the_same_bits_also_when_it_is_baked_in():
    w = weights(64, 64, 3, 3)
    model = convolution(w, ("R", "C"))
    ways = opened(model), opened(model, winograd=False), opened(model, threads=2)
    for size in ((12, 12), (11, 7), (1, 2), (0, 3)):
        x = weights(2, 64, *size)
        together, plain, shared = (way(x) for way in ways)
        np.testing.assert_allclose(together, plain, rtol=0, atol=1e-6)
        assert x.size == 0 or not np.array_equal(together, plain)
        np.testing.assert_array_equal(shared, together)
        baked = {"R": size[0], "C": size[1]}
        np.testing.assert_array_equal(run(model, x, specialize=baked), together)
        np.testing.assert_array_equal(run(model, x, specialize={"C": size[1]}), together)


def test_what_is_baked_in_changes_no_bit_of_a_function():
    w, x = weights(48, 48, 3, 3), weights(1, 48, 9, 8)
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "our": 1]>
        g (float[N, 48, R, C] x, float[48, 48, 3, 3] w) => (float[N, 48, H, W] y) {
            y = our.Padded(x, w)
        }
        <domain: "our", opset_import: ["": 21]>
        Padded (a, b) => (c) { d = Conv<pads = [1, 1, 1, 1]>(a, b)  c = Relu(d) }"""
    )
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    together = run(model, x)
    assert not np.array_equal(together, run(model, x, winograd=False))
    np.testing.assert_array_equal(run(model, x, specialize={"R": 9, "C": 8}), together)


@pytest.mark.parametrize("time", [0, 1])
def test_times_have_the_same_bits_wherever_they_are_cut(time: int):
    """Positions of the other axis are together, those of a run never, also when baked in."""
    axis = 2 + time
    shape = (1, 64, 13, 20) if time == 0 else (1, 64, 20, 13)
    w, x = weights(64, 64, 3, 3), weights(*shape)
    sizes: list[int | str] = [*shape[2:]]
    sizes[time] = "T"
    model = convolution(w, sizes)
    pads = model.graph.node[0].attribute[0]
    assert pads.name == "pads"
    pads.ints[time] = pads.ints[2 + time] = 0
    function = opened(model)
    whole = function(x)
    assert not np.array_equal(whole, run(model, x, winograd=False))
    np.testing.assert_array_equal(run(model, x, specialize={"T": 13}), whole)
    for first in range(0, 11, 4):
        part = x.take(range(first, min(first + 6, 13)), axis)
        got = whole.take(range(first, min(first + 4, 11)), axis)
        np.testing.assert_array_equal(function(part), got)


def test_a_batch_has_the_bits_of_its_images():
    w, x = weights(48, 96, 3, 3), weights(3, 96, 11, 9)
    model = convolution(w, (11, 9))
    function = opened(model)
    one = [function(image[None]) for image in x]
    np.testing.assert_array_equal(function(x), np.concatenate(one))
    np.testing.assert_array_equal(run(model, x, threads=2), np.concatenate(one))


def test_small_integers_are_exact_where_two_positions_are_computed_together(monkeypatch):
    monkeypatch.setattr("ostinato.ops.rules.winograd_ways.fastest", lambda *_: (2, 2))
    w = RNG.integers(-4, 5, (64, 64, 3, 3)).astype(np.float32)
    x = RNG.integers(-8, 9, (1, 64, 10, 10)).astype(np.float32)
    model = convolution(w, (10, 10))
    np.testing.assert_array_equal(run(model, x), run(model, x, winograd=False))


def test_other_channels_are_refused_by_name():
    model = convolution(weights(64, 64, 3, 3), (12, 12))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 63
    with pytest.raises(ostinato.OstinatoError, match="channels"):
        ostinato.InferenceSession(model, cache_dir=None)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("options", [{"disable": ("by_blocks",)}, {"threads": 2}], ids=str)
def test_lines_of_large_images_pass_through_all_steps_with_the_same_bits(images, options):
    """The last line and the last column have fewer positions than others."""
    w, size = weights(72, 64, 3, 3), (63, 65)
    x = RNG.standard_normal((images, 64, *size)).astype(np.float32)
    session = ostinato.InferenceSession(
        convolution(w, size), cache_dir=None, specialize={"N": images}
    )
    found = session.run(None, {"x": x})[0]
    assert any(".block" in kernel["name"] for kernel in session.report()["kernels"])
    assert np.array_equal(found, run(convolution(w, ("H", "W")), x))
    assert np.array_equal(found, run(convolution(w, size), x, **options))
