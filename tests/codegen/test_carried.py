"""What points of ordered kernels read of the ones before."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


def of_axis(attributes: str, axis: int) -> str:
    return f"""
    g (float[A, B] x) => (float[A, B] y)
    <int64 axis = {{{axis}}}>
    {{ y = CumSum <{attributes}> (x, axis) }}
    """


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_running_sums(axis, exclusive, reverse):
    model = parse(of_axis(f"exclusive = {exclusive}, reverse = {reverse}", axis))
    session = ostinato.InferenceSession(model, cache_dir=None)
    for shape in ((0, 3), (3, 0), (1, 1), (3, 20), (20, 3)):
        x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
        order = np.flip(x, axis) if reverse else x
        expected = np.cumsum(order, axis) - (order if exclusive else 0)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.flip(expected, axis) if reverse else expected)


def test_a_sum_does_not_wait_for_the_store_before():
    model = parse(of_axis("exclusive = 0", 1))
    text = dict(stages(model, Options(cache_dir=None, disable=("collapse",))))["llvm"]
    (body,) = re.findall(r"\n(loop\d+:\n(?:  .*\n)*?  %.* = fadd float .*\n(?:  .*\n)*)", text)[-1:]
    assert "phi float" in body and body.count("load float") == 1


def test_counters_of_places_stay_in_registers():
    model = parse("g (float[N] x) => (int64[1, K] y) { y = NonZero (x) }")
    session = ostinato.InferenceSession(model, cache_dir=None)
    for size in (0, 1, 50):
        x = np.random.default_rng(size).integers(0, 3, size).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.stack(np.nonzero(x)))


def kernel_of_chosen(model):
    """LLVM's text of the kernel that writes chosen elements one behind the other."""
    text = dict(stages(model, Options(cache_dir=None, disable=("collapse",))))["llvm"]
    (body,) = [part for part in text.split("define ") if "phi i64" in part and "add i64 %p" in part]
    return body


def test_whether_an_element_is_chosen_is_no_branch():
    body = kernel_of_chosen(parse("g (float[100] x) => (int64[1, K] y) { y = NonZero (x) }"))
    assert re.search(r"select i1 %\w+, ptr %\w+, ptr %scratch", body)
    assert "then" not in body


def test_a_counter_is_stored_behind_the_last_point():
    body = kernel_of_chosen(parse("g (float[100] x) => (int64[1, K] y) { y = NonZero (x) }"))
    inside, behind = body.rsplit("br i1", 1)
    assert "store i64" in behind and inside.count("store i64") == 1
