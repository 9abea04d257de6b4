"""Gradients of matrix products and sums of products."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check, with_loss
from tests.autodiff.models import feeds_of, parse

Shape = tuple[int | str, ...]
SIZES = {"N": 3, "M": 2, "K": 4, "Z": 0}


def shown(shape: Shape) -> str:
    return "float" if not shape else f"float[{','.join(map(str, shape))}]"


def one_node(node: str, shapes: dict[str, Shape], rank: int) -> onnx.ModelProto:
    """A model with one node, whose output is `y`, of this rank."""
    inputs = ", ".join(f"{shown(shape)} {name}" for name, shape in shapes.items())
    result = shown(tuple(f"y{i}" for i in range(rank)))
    return parse(f"g ({inputs}) => ({result} y) {{ y = {node} }}")


def check_node(node: str, shapes: dict[str, Shape], rank: int, native: bool = True) -> None:
    model = one_node(node, shapes, rank)
    check(model, feeds_of(model, **SIZES), native=native)


MATMULS: list[tuple[Shape, Shape, int]] = [
    ((3, 4), (4, 2), 2),
    (("N", 4), (4, 2), 2),
    (("N", "K"), ("K", "M"), 2),
    ((2, "N", 4), (4, 3), 3),
    ((2, 3, 4), (2, 4, 5), 3),
    ((3, 4), ("M", 4, 5), 3),
    ((1, 3, 4), ("M", 4, 5), 3),
    (("M", 1, 3, 4), (2, 4, 5), 4),
    ((4,), (4,), 0),
    ((4,), (4, 3), 1),
    ((4,), ("M", 4, 3), 2),
    ((3, 4), (4,), 1),
    (("M", "N", 4), (4,), 2),
    (("N", 0), (0, 2), 2),
    (("Z", 3), (3, 2), 2),
]


@pytest.mark.parametrize(("a", "b", "rank"), MATMULS)
def test_matmul(a: Shape, b: Shape, rank: int) -> None:
    check_node("MatMul(a, b)", {"a": a, "b": b}, rank)


@pytest.mark.parametrize("turned_a", [0, 1])
@pytest.mark.parametrize("turned_b", [0, 1])
@pytest.mark.parametrize("factors", ["", ", alpha = 0.5, beta = 1.5"])
def test_gemm(turned_a: int, turned_b: int, factors: str) -> None:
    a: Shape = (4, "N") if turned_a else ("N", 4)
    b: Shape = (2, 4) if turned_b else (4, 2)
    node = f"Gemm<transA = {turned_a}, transB = {turned_b}{factors}>(a, b, c)"
    check_node(node, {"a": a, "b": b, "c": (2,)}, 2)


@pytest.mark.parametrize("c", [(), (1,), (1, 2), ("N", 1), ("N", 2)])
def test_what_gemm_adds_is_broadcast(c: Shape) -> None:
    check_node("Gemm<beta = -2.0>(a, b, c)", {"a": ("N", 4), "b": (4, 2), "c": c}, 2)


def test_gemm_without_a_term_to_add() -> None:
    check_node("Gemm(a, b)", {"a": ("N", 4), "b": (4, "M")}, 2)


EINSUMS: list[tuple[str, list[Shape], int]] = [
    ("ij,jk->ik", [("N", 4), (4, 3)], 2),
    ("bhqd,bhkd->bhqk", [(1, 2, "N", 4), (1, 2, "K", 4)], 4),
    ("ij,jk", [(2, 3), (3, 4)], 2),
    ("ij->ji", [("N", 3)], 2),
    ("ij->i", [("N", "M")], 1),
    ("ij->", [(2, 3)], 0),
    ("i,j->ij", [("N",), (3,)], 2),
    ("ij,j,jk->ik", [(2, 3), (3,), (3, 4)], 2),
    ("ij,k->k", [("N", 3), (2,)], 1),
    ("...ij,...jk->...ik", [(2, "N", 4), (2, 4, 3)], 3),
    ("...ij,jk->...ik", [(2, 2, 3, 4), (4, 3)], 4),
    ("b...i,i...->b...", [(2, 3, 4), (4, 1)], 2),
    ("ii->i", [(3, 3)], 1),
    ("bii,bi->b", [("N", 3, 3), ("N", 3)], 1),
    ("ij,jk->ik", [("Z", 3), (3, 2)], 2),
]


@pytest.mark.parametrize(("equation", "shapes", "rank"), EINSUMS)
def test_einsum(equation: str, shapes: list[Shape], rank: int) -> None:
    named = dict(zip("abc", shapes, strict=False))
    check_node(f'Einsum<equation = "{equation}">({", ".join(named)})', named, rank)


def test_a_diagonal_of_run_time_size_is_refused() -> None:
    model = one_node('Einsum<equation = "ii->">(a)', {"a": ("N", "N")}, 0)
    with pytest.raises(ostinato.UnsupportedError, match="axes 'i' of a run-time size"):
        gradient(model, "y", ["a"])


def test_an_axis_that_einsum_repeats_is_refused() -> None:
    model = one_node('Einsum<equation = "ij,jk->">(a, b)', {"a": (2, 1), "b": (3, 4)}, 0)
    with pytest.raises(ostinato.UnsupportedError, match="an axis 'j' of 1 is repeated"):
        gradient(model, "y", ["a"])


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "...ij,...jk->...ik"])
def test_an_axis_that_only_a_run_of_einsum_repeats_is_refused_then(equation: str) -> None:
    shapes: dict[str, Shape] = {"a": ("N", 2, 3), "b": ("M", 3, 4)}
    model = one_node(f'Einsum<equation = "{equation}">(a, b)', shapes, 3)
    check(model, feeds_of(model, N=2, M=2))
    session = ostinato.InferenceSession(gradient(with_loss(model), "loss", ["a"]), cache_dir=None)
    random = np.random.default_rng(0)
    feeds = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in (("a", (1, 2, 3)), ("b", (3, 3, 4)), ("y_factors", (3, 2, 4)))
    }
    with pytest.raises(ostinato.OstinatoError, match="a"):
        session.run(None, feeds)


def test_gradients_that_nobody_wants_are_not_computed() -> None:
    model = one_node("MatMul(a, b)", {"a": (2, 3), "b": (3, 4)}, 2)
    made = check(model, feeds_of(model), ["b"])
    assert sum(node.op_type == "MatMul" for node in made.graph.node) == 2
    assert np.all([output.name != "a_grad" for output in made.graph.output])
