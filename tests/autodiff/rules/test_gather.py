"""Gradients of operators that take elements from computed places, or put them there."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check, with_loss
from tests.autodiff.models import feeds_of, parse

SIZES = {"N": 3, "M": 2, "T": 5, "Z": 0}
Nested = list  # of integers or of lists


def check_places(
    body: str,
    shapes: dict[str, str],
    places: Nested,
    rank: int,
    dims: str = "",
    dtype: str = "int64",
) -> None:
    """Check a model that makes `y` of float inputs and of the indices `i`."""
    array = np.array(places, dtype)
    dims = dims or ",".join(map(str, array.shape))
    kind = f"{dtype}[{dims}]" if array.ndim else dtype
    floats = ", ".join(f"float[{shape}] {name}" for name, shape in shapes.items())
    result = ",".join(f"y{i}" for i in range(rank))
    model = parse(f"g ({floats}, {kind} i) => (float[{result}] y) {{ y = {body} }}")
    sizes = SIZES | {name: size for name, size in zip(dims.split(","), array.shape, strict=False)}
    feeds = feeds_of(model, **sizes)
    check(model, feeds | {"i": array})


GATHERS = [
    ("T,4", [0, 2, 2, 4], 0, 2, ""),
    ("T,4", [0, 2, -1, -5], 0, 2, "K"),
    ("T,4", 3, 0, 1, ""),
    ("T,4", -1, -1, 1, ""),
    ("N,T,4", [[0, 1], [1, 0], [4, 4]], 1, 4, ""),
    ("N,T,4", [[0, 1], [1, 0], [4, 4]], 1, 4, "A,B"),
    ("N,4,2", [3, 1], 1, 3, "K"),
    ("N,4,2", [], 1, 3, "0"),
    ("Z,4", [3, 1], 1, 2, ""),
    ("6,3", [1, 1, 1, 1, 1, 1], 0, 2, "K"),
]


@pytest.mark.parametrize(("shape", "places", "axis", "rank", "dims"), GATHERS)
def test_gather(shape: str, places: Nested, axis: int, rank: int, dims: str) -> None:
    check_places(f"Gather<axis = {axis}>(x, i)", {"x": shape}, places, rank, dims)


def test_gather_with_int32_indices() -> None:
    check_places("Gather(x, i)", {"x": "5,2"}, [4, 0], 2, dtype="int32")
    check_places("GatherElements(x, i)", {"x": "5,2"}, [[4, 0]], 2, dtype="int32")


KNOWN = [
    ("5,4", "value_int = 3", 0, 1),
    ("5,4", "value_int = -1", 1, 1),
    ("N,4", "value_ints = [1, 2, 3]", 1, 2),
    ("N,4", "value_ints = [-2, -1]", 1, 2),
    ("N,4", "value_ints = [3, 0, 3]", 1, 2),
    ("T,4", "value_ints = [0, 1]", 0, 2),
    ("4,T", "value = int64[2,2] {0, 1, 2, 3}", 0, 3),
]


@pytest.mark.parametrize(("shape", "places", "axis", "rank"), KNOWN)
def test_gather_from_known_places(shape: str, places: str, axis: int, rank: int) -> None:
    result = ",".join(f"y{i}" for i in range(rank))
    model = parse(
        f"g (float[{shape}] x) => (float[{result}] y) {{ i = Constant<{places}>()"
        f" y = Gather<axis = {axis}>(x, i) }}"
    )
    check(model, feeds_of(model, **SIZES))


def test_parts_that_are_taken_one_by_one_are_joined() -> None:
    model = parse(
        "g (float[N,3] x) => (float[N] y) { a = Constant<value_int = 0>()"
        " b = Constant<value_int = 1>() c = Constant<value_int = 2>()"
        " p = Gather<axis = 1>(x, a) q = Gather<axis = 1>(x, b) r = Gather<axis = 1>(x, c)"
        " s = Mul(p, q) y = Mul(s, r) }"
    )
    made = check(model, feeds_of(model, N=4))
    kinds = [node.op_type for node in made.graph.node]
    assert "ScatterElements" not in kinds
    assert kinds.count("Concat") == 1


ELEMENTS = [
    ("T,4", [[0, 1, 2, 3], [-1, 1, 0, 3]], 0, ""),
    ("2,4", [[0, 0, -1], [3, 1, 1]], 1, ""),
    ("2,4", [[0, 0, -1], [3, 1, 1]], -1, "A,B"),
    ("N,2", [[1, 1], [0, 1]], 0, ""),
]


@pytest.mark.parametrize(("shape", "places", "axis", "dims"), ELEMENTS)
def test_gather_elements(shape: str, places: Nested, axis: int, dims: str) -> None:
    check_places(f"GatherElements<axis = {axis}>(x, i)", {"x": shape}, places, 2, dims)


TUPLES = [
    ("T,4", [[0, 1], [2, -1], [0, 1]], 0, 1, ""),
    ("T,4", [[0], [-1], [0]], 0, 2, "A,1"),
    ("3,T,4", [[1], [-1], [0]], 1, 2, ""),
    ("N,T,4", [[[1, 1], [0, 2]], [[-1, 0], [4, 0]], [[1, 1], [1, 1]]], 1, 2, "N,A,2"),
    ("2,3,T,2", [[[0], [1], [2]], [[1], [1], [1]]], 2, 3, ""),
]


@pytest.mark.parametrize(("shape", "places", "batch", "rank", "dims"), TUPLES)
def test_gather_nd(shape: str, places: Nested, batch: int, rank: int, dims: str) -> None:
    check_places(f"GatherND<batch_dims = {batch}>(x, i)", {"x": shape}, places, rank, dims)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_elements(reduction: str) -> None:
    node = f'ScatterElements<reduction = "{reduction}", axis = 1>(x, i, u)'
    check_places(node, {"x": "N,4", "u": "2,2"}, [[3, 0], [1, -2]], 2)
    check_places(node, {"x": "N,4", "u": "A,2"}, [[3, 0], [1, -2]], 2, "A,2")


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter_nd(reduction: str) -> None:
    node = f'ScatterND<reduction = "{reduction}">(x, i, u)'
    check_places(node, {"x": "T,4", "u": "2"}, [[3, 0], [1, -2]], 2)
    check_places(node, {"x": "T,N", "u": "2,N"}, [[3], [-1]], 2)


def test_updates_that_are_added_to_one_place() -> None:
    check_places('ScatterElements<reduction = "add">(x, i, u)', {"x": "4", "u": "3"}, [1, 1, 0], 1)


def test_scattering_with_another_reduction_is_refused() -> None:
    model = parse(
        "g (float[4] x, int64[1] i, float[1] u) => (float l) {"
        ' y = ScatterElements<reduction = "mul">(x, i, u) l = ReduceSum<keepdims = 0>(y) }'
    )
    with pytest.raises(ostinato.UnsupportedError, match="reduction 'mul'"):
        gradient(model, "l", ["x"])


@pytest.mark.parametrize("attributes", ["", "<axis = 0>", "<axis = 1, largest = 0, sorted = 1>"])
def test_top_k(attributes: str) -> None:
    model = parse(
        "g (float[3,T,2] x) => (float[a,b,c] y) { k = Constant<value_ints = [2]>()"
        f" y, places = TopK{attributes}(x, k) }}"
    )
    check(model, feeds_of(model, T=4))


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [5, 4, 3], [-2, -1], [1, 3, 5], [3, 1]])
def test_without_the_rewrite_to_slices_gradients_have_the_same_bits(places: list[int]) -> None:
    model = parse(
        """g (float[N,6] x) => (float[N,K] y, float[K,N] z) {
          e = Exp(x)
          y = Gather<axis = 1>(e, places)
          t = Transpose(x)
          z = Gather<axis = 0>(t, places)
        }""",
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(places), "places"))
    results = []
    for disable in ((), ("gather_to_slice",)):
        given = gradient(with_loss(model), "loss", ["x"], disable=disable)
        count = sum(node.op_type == "Gather" for node in given.graph.node)
        assert count == (2 if disable else 0)
        session = ostinato.InferenceSession(given, disable=disable)
        random = np.random.default_rng(0)
        feeds = {"x": random.standard_normal((3, 6)).astype(np.float32)}
        for name, shape in (("y", (3, len(places))), ("z", (len(places), 3))):
            feeds[f"{name}_factors"] = random.standard_normal(shape).astype(np.float32)
        results.append(session.run(None, feeds))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_passes_that_do_not_exist() -> None:
    model = parse("g (float[N] x) => (float l) { l = ReduceSum<keepdims = 0>(x) }")
    with pytest.raises(ostinato.OptionError, match="no optional pass is called 'gather'"):
        gradient(model, "l", ["x"], disable=["gather"])
