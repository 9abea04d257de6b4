"""Gradients of operators that move, repeat and leave out elements."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse

SIZES = {"N": 2, "M": 3, "T": 5, "Z": 0}


def check_body(
    body: str,
    shape: str = "N,3,4",
    rank: int = 3,
    opset: int = 18,
    ints: dict[str, list[int]] | None = None,
    floats: str = "",
) -> None:
    """Check a model that makes `y`, of some rank, of `x` and of other inputs."""
    ints = ints or {}
    more = "".join(f", int64[{len(values)}] {name}" for name, values in ints.items()) + floats
    sizes = ",".join(f"y{i}" for i in range(rank))
    result = f"float[{sizes}]" if rank else "float"
    model = parse(f"g (float[{shape}] x{more}) => ({result} y) {{ {body} }}", opset)
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    feeds = {n: a for n, a in feeds_of(model, **SIZES).items() if kinds[n] == 1}
    feeds |= {name: np.array(values, np.int64) for name, values in ints.items()}
    check(model, feeds)


RESHAPES = [
    ("2,3,4", 2, "s = Constant<value_ints = [6, 4]>() y = Reshape(x, s)"),
    ("N,3,4", 2, "s = Constant<value_ints = [0, -1]>() y = Reshape(x, s)"),
    ("N,M,8", 4, "s = Constant<value_ints = [0, 0, 2, 4]>() y = Reshape(x, s)"),
    ("N,M,4", 2, "s = Constant<value_ints = [-1, 4]>() y = Reshape(x, s)"),
    ("Z,3,4", 2, "s = Constant<value_ints = [-1, 4]>() y = Reshape(x, s)"),
    ("0,3", 2, "s = Constant<value_ints = [3, 0]>() y = Reshape<allowzero = 1>(x, s)"),
    ("N,3,4", 2, "y = Flatten(x)"),
    ("N,M,4", 2, "y = Flatten<axis = -1>(x)"),
    ("N,M,4", 2, "y = Flatten<axis = 0>(x)"),
    ("N,1,4,1", 2, "a = Constant<value_ints = [1, -1]>() y = Squeeze(x, a)"),
    ("2,1,4,1", 2, "y = Squeeze(x)"),
    ("N,3", 4, "a = Constant<value_ints = [-1, 1]>() y = Unsqueeze(x, a)"),
    ("N,3,4", 3, "y = Transpose(x)"),
    ("N,3,4", 3, "y = Transpose<perm = [1, 2, 0]>(x)"),
]


@pytest.mark.parametrize(("shape", "rank", "body"), RESHAPES)
def test_other_axes(shape: str, rank: int, body: str) -> None:
    check_body(body, shape, rank)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    body = f'y = DepthToSpace<blocksize = 2, mode = "{mode}">(x)'
    check_body(body, "N,8,2,M", 4)


def test_space_to_depth() -> None:
    check_body("y = SpaceToDepth<blocksize = 2>(x)", "N,3,4,2", 4)


@pytest.mark.parametrize("axes", ["", "<batch_axis = 0, time_axis = 1>"])
def test_reverse_sequence(axes: str) -> None:
    check_body(f"y = ReverseSequence{axes}(x, l)", "3,3,M", 3, ints={"l": [2, 1, 3]})


@pytest.mark.parametrize("attributes", ["", "<upper = 0>"])
def test_trilu(attributes: str) -> None:
    check_body(f"y = Trilu{attributes}(x)", "N,3,4")
    check_body(f"k = Constant<value_int = -1>() y = Trilu{attributes}(x, k)", "M,T", 2)


def test_eye_like_has_no_gradient() -> None:
    check_body("e = EyeLike<k = 1>(x) y = Mul(e, x)", "3,4", 2)


CONCATS = [
    ("N,3,4", 3, "h = Mul(x, x) y = Concat<axis = 1>(x, h, x)"),
    ("N,3,4", 3, "h = Mul(x, x) y = Concat<axis = -3>(x, h)"),
    ("N,0,4", 3, "h = Mul(x, x) y = Concat<axis = 1>(x, h)"),
    ("N,3", 2, "y = Concat<axis = 1>(x)"),
]


@pytest.mark.parametrize(("shape", "rank", "body"), CONCATS)
def test_concat(shape: str, rank: int, body: str) -> None:
    check_body(body, shape, rank)


SPLITS = [
    ("N,6", "a, b = Split<axis = 1, num_outputs = 2>(x) y = Mul(a, b)"),
    ("N,5", "a, b = Split<axis = -1, num_outputs = 2>(x) y = Concat<axis = 1>(b, a)"),
    ("N,6", "s = Constant<value_ints = [1, 3, 2]>() a, b, c = Split<axis = 1>(x, s) y = Mul(a, b)"),
    ("N,6", "s = Constant<value_ints = [1, 3, 2]>() a, b, c = Split<axis = 1>(x, s) y = Mul(c, c)"),
    ("N,6", "s = Constant<value_ints = [6, 0]>() a, b = Split<axis = 1>(x, s) y = Mul(a, a)"),
    ("N,M", "a, b = Split<axis = 0, num_outputs = 2>(x) y = Mul(b, b)"),
]


@pytest.mark.parametrize(("shape", "body"), SPLITS)
def test_split(shape: str, body: str) -> None:
    check_body(body, shape, 2)


SLICES = [
    # shape, starts, ends, axes, steps
    ("5,6", [1], [4], [0], [1]),
    ("5,6", [1, 2], [9, -1], [0, 1], [1, 1]),
    ("N,6", [-4], [-1], [1], [1]),
    ("N,6", [0], [6], [1], [2]),
    ("N,5", [0], [5], [1], [2]),
    ("N,6", [1], [6], [-1], [2]),
    ("N,7", [-1], [-99], [1], [-1]),
    ("N,7", [5], [0], [1], [-2]),
    ("N,7", [99, -1], [-99, 0], [1, 0], [-3, -1]),
    ("N,4", [2], [2], [1], [1]),
    ("N,4", [3], [1], [1], [2]),
    ("T,3", [1], [9], [0], [1]),
    ("T,3", [0], [-1], [0], [1]),
    ("T,3", [-2], [9], [0], [1]),
    ("T,3", [-99], [99], [0], [2]),
    ("T,T", [1, 0], [9, 9], [0, 1], [2, 3]),
    ("T,3", [-1], [-99], [0], [-1]),
    ("T,3", [99], [-99], [0], [-2]),
    ("T,3", [9], [10], [0], [1]),
    ("Z,3", [0], [9], [0], [1]),
    ("Z,3", [-1], [-9], [0], [-2]),
]


@pytest.mark.parametrize(("shape", "starts", "ends", "axes", "steps"), SLICES)
def test_slice(
    shape: str, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> None:
    names = {"a": starts, "b": ends, "c": axes, "d": steps}
    constants = " ".join(f"{n} = Constant<value_ints = {v}>()" for n, v in names.items())
    check_body(f"{constants} y = Slice(x, a, b, c, d)", shape, 2)


def test_slice_of_leading_axes() -> None:
    constants = "a = Constant<value_ints = [1, 0]>() b = Constant<value_ints = [2, 2]>()"
    check_body(f"{constants} y = Slice(x, a, b)", "N,3,4", 3)


@pytest.mark.parametrize(("start", "end"), [(1, 3), (-3, -1), (-99, 2), (2, 99), (4, 2)])
def test_slice_between_places_of_a_run(start: int, end: int) -> None:
    body = "c = Constant<value_ints = [1]>() y = Slice(x, a, b, c)"
    check_body(body, "N,4", 2, ints={"a": [start], "b": [end]})


def test_slice_along_axes_of_a_run_is_refused() -> None:
    model = parse(
        "g (float[3,4] x, int64[1] c) => (float l) { a = Constant<value_ints = [1]>()"
        " y = Slice(x, a, a, c) l = ReduceSum<keepdims = 0>(y) }"
    )
    with pytest.raises(ostinato.UnsupportedError, match="axes or steps"):
        gradient(model, "l", ["x"])


PADS = [
    ("N,4", [0, 1, 0, 2], ""),
    ("N,4", [1, 0, 0, 0], ""),
    ("N,4", [1, -1, 0, 2], ""),
    ("N,4", [0, -1, 0, -2], ""),
    ("N,T", [0, 3, 0, 2], '<mode = "reflect">'),
    ("4,5", [2, 0, 1, 3], '<mode = "reflect">'),
    ("N,T", [0, 3, 0, 2], '<mode = "wrap">'),
    ("4,5", [3, 0, 2, 3], '<mode = "wrap">'),
    ("N,T", [0, 3, 0, 2], '<mode = "edge">'),
    ("4,5", [3, 0, 2, 7], '<mode = "edge">'),
    ("4,1", [0, 2, 0, 3], '<mode = "edge">'),
]


@pytest.mark.parametrize(("shape", "pads", "mode"), PADS)
def test_pad(shape: str, pads: list[int], mode: str) -> None:
    opset = 19 if "wrap" in mode else 18
    check_body(f"p = Constant<value_ints = {pads}>() y = Pad{mode}(x, p)", shape, 2, opset)


def test_pad_with_axes_and_a_value() -> None:
    body = (
        "p = Constant<value_ints = [1, 2]>() a = Constant<value_ints = [-1]>() y = Pad(x, p, v, a)"
    )
    check_body(body, "N,4", 2, floats=", float v")


def test_pad_by_amounts_of_a_run() -> None:
    check_body("y = Pad(x, p)", "N,4", 2, ints={"p": [1, -1, 0, 2]})


@pytest.mark.parametrize("shape", ["4,5", "T,6", "3,9"])
def test_center_crop_pad(shape: str) -> None:
    check_body("s = Constant<value_ints = [3, 8]>() y = CenterCropPad(x, s)", shape, 2)
    body = "s = Constant<value_ints = [4]>() y = CenterCropPad<axes = [-1]>(x, s)"
    check_body(body, shape, 2)


EXPANDS = [
    ("N,1,4", 3, "s = Constant<value_ints = [1, 3, 1]>() y = Expand(x, s)"),
    ("3,1", 3, "s = Constant<value_ints = [2, 1, 4]>() y = Expand(x, s)"),
    ("N,4", 3, "s = Constant<value_ints = [2, 1, 4]>() y = Expand(x, s)"),
    ("1", 1, "s = Constant<value_ints = [0]>() y = Expand(x, s)"),
    ("N,3", 2, "s = Constant<value_ints = [2, 3]>() y = Tile(x, s)"),
    ("N,M,2", 3, "s = Constant<value_ints = [1, 2, 1]>() y = Tile(x, s)"),
    ("2,3", 2, "s = Constant<value_ints = [0, 1]>() y = Tile(x, s)"),
]


@pytest.mark.parametrize(("shape", "rank", "body"), EXPANDS)
def test_repeats(shape: str, rank: int, body: str) -> None:
    check_body(body, shape, rank)


def test_repeats_of_a_run() -> None:
    check_body("y = Tile(x, r)", "N,3", 2, ints={"r": [3, 2]})
    check_body("y = Expand(x, r)", "N,1", 2, ints={"r": [2, 3]})


@pytest.mark.parametrize("mode", ["wrap", "reflect"])
def test_pads_that_repeat_elements_more_than_once_are_refused(mode: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 19]> g (float[N] x) => (float l)
        <int64[2] p = {{2, 0}}>
        {{ y = Pad<mode = "{mode}">(x, p) l = ReduceSum<keepdims = 0>(y) }}"""
    with pytest.raises(ostinato.UnsupportedError, match="more than once"):
        gradient(onnx.parser.parse_model(text.replace("N", "1")), "l", ["x"])
    model = gradient(onnx.parser.parse_model(text), "l", ["x"])
    session = ostinato.InferenceSession(model, cache_dir=None)
    assert session.run(["x_grad"], {"x": np.zeros(3, np.float32)})[0].sum() == 5
    with pytest.raises(ostinato.OstinatoError, match="repeat_elements_once"):
        session.run(["x_grad"], {"x": np.zeros(1, np.float32)})
