"""How the smallest elements of long rows are found."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


def largest(extent: int, count: int) -> str:
    return f"""
    g (float[3, {extent}] x) => (float[3, {count}] y, int64[3, {count}] i)
    <int64[1] k = {{{count}}}> {{ y, i = TopK (x, k) }}
    """


@pytest.mark.parametrize("extent", [1000, 1001])
def test_neighbours_of_a_group_are_loaded_at_once(extent):
    text = dict(stages(parse(largest(extent, 10)), Options(cache_dir=None)))["program"]
    (element,) = re.findall(r"= min r\d+ < 8 in 8 chains: (.*)", text)
    # No position is computed by lanes, which would gather.
    assert re.match(rf"\(?b\d+\[{extent}\*i\d+ \+ 8\*i\d+ \+ r\d+\]", element)
    assert ("if" in element) == bool(extent % 8)


@pytest.mark.parametrize("extent", [1000, 1001, 4099])
def test_of_equal_elements_the_first_comes_first(extent):
    session = ostinato.InferenceSession(parse(largest(extent, 10)), cache_dir=None)
    x = np.random.default_rng(extent).integers(0, 30, (3, extent)).astype(np.float32)
    y, i = session.run(None, {"x": x})
    order = np.argsort(-x, axis=1, kind="stable")[:, :10]
    np.testing.assert_array_equal(i, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, 1))
