from __future__ import annotations

import numpy as np
import pytest

from ostinato.codegen.target import find_target
from ostinato.machine.record import AVX512
from ostinato.program.expr import Axis, Reduced
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import Size, symbol
from tests.codegen.test_module import Native, check
from tests.program.programs import at, program, store


def keys(rows: Size, lanes: Size, terms: int, symbols: tuple[str, ...] = ()) -> Program:
    """`y[i, j] = sum_k q[i, k] b[j, k]`: neighbours in memory are terms of one sum."""
    i, j, k = Axis("i", rows), Axis("j", lanes), Axis("k", terms)
    reduce = Reduce((k,), "sum", at("q", (i, terms), (k, 1)), at("b", (j, terms), (k, 1)))
    kernel = Kernel(
        "k", (i, j), (reduce,), (store("y", Reduced(0, "float32"), (i, lanes), (j, 1)),)
    )
    inputs = {"q": (rows, terms), "b": (lanes, terms)}
    return program(inputs, {"y": (rows, lanes)}, (kernel,), symbols=symbols)


def feeds(rows: int, lanes: int, terms: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(lanes)
    shapes = {"q": (rows, terms), "b": (lanes, terms)}
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("target", ("host", "x86-64-v3"))
@pytest.mark.parametrize("terms", (4, 7, 64))
@pytest.mark.parametrize("lanes", (4, 8, 13, 16, 20, 33, 64))
@pytest.mark.parametrize("rows", (1, 3, 6))
def test_every_lane_has_its_own_sum(rows, lanes, terms, target):
    check(keys(rows, lanes, terms), feeds(rows, lanes, terms), target=find_target(target))


def test_lanes_that_only_a_run_counts():
    source = keys(symbol("M"), symbol("P"), 12, ("M", "P"))
    (kernel,) = tile(source, AVX512).kernels()
    assert kernel.tile is not None and kernel.tile.turned and kernel.tile.width == 16
    for rows, lanes in ((1, 1), (1, 31), (2, 32), (5, 50), (0, 3), (3, 0)):
        check(source, feeds(rows, lanes, 12))


def test_a_single_row_has_two_vectors_unless_their_lines_evict_each_other():
    def vectors(terms: int, rows: int = 1) -> int:
        (kernel,) = tile(keys(rows, symbol("P"), terms, ("P",)), AVX512).kernels()
        assert kernel.tile is not None and kernel.tile.turned
        return kernel.tile.vectors

    assert [vectors(n) for n in (12, 500, 512, 1024)] == [2, 2, 1, 1]
    assert vectors(12, rows=3) == 1


def test_a_run_of_a_single_row_has_two_groups_of_lanes_where_it_would_have_two_vectors():
    def groups(terms: int, rows: Size) -> int:
        names = () if isinstance(rows, int) else ("M",)
        (kernel,) = tile(keys(rows, symbol("P"), terms, (*names, "P")), AVX512).kernels()
        assert kernel.tile is not None and kernel.tile.turned and kernel.tile.vectors == 1
        return kernel.tile.groups

    assert [groups(n, symbol("M")) for n in (12, 500, 512, 1024)] == [2, 2, 1, 1]
    assert groups(12, 3) == 1


@pytest.mark.parametrize("target", ("host", "x86-64-v3"))
@pytest.mark.parametrize("lanes", (0, 1, 15, 16, 17, 31, 32, 33, 50))
def test_two_groups_of_lanes_that_only_a_run_counts(lanes, target):
    source = keys(symbol("M"), symbol("P"), 12, ("M", "P"))
    check(source, feeds(1, lanes, 12), target=find_target(target))


@pytest.mark.parametrize("lanes", (0, 1, 15, 16, 17, 31, 32, 33, 50))
def test_two_vectors_of_lanes_that_only_a_run_counts(lanes):
    check(keys(1, symbol("P"), 12, ("P",)), feeds(1, lanes, 12))


def test_four_terms_of_a_lane_are_loaded_at_once():
    text = Native(keys(1, 32, 64), None, True).text
    assert "load <4 x float>" in text and "gather" not in text


@pytest.mark.parametrize("terms", (1, 3))
def test_short_sums_are_gathered(terms):
    (kernel,) = tile(keys(1, 32, terms), AVX512).kernels()
    assert kernel.tile is not None and not kernel.tile.turned
    check(keys(1, 32, terms), feeds(1, 32, terms))
