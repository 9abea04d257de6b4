from __future__ import annotations

import re

import pytest

from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


@pytest.mark.parametrize(
    ("kernel", "passes"),
    [
        ((5, 7), ["5", "7"]),
        ((3, 1), ["3"]),
        ((2, 2), ["2, r < 2"]),
        ((2, 2, 2), ["2, r < 2, r < 2"]),
    ],
)
def test_maxima_of_many_taps_are_taken_along_one_axis_after_the_other(kernel, passes):
    image = ", ".join(["20"] * len(kernel))
    model = parse(
        f"g (float[1, 3, {image}] x) => (float[1, 3, {', '.join('abc'[: len(kernel)])}] y)"
        f" {{ y = MaxPool <kernel_shape = {list(kernel)}> (x) }}"
    )
    program = dict(stages(model, Options(cache_dir=None)))["program"]
    found = re.findall(r"max r\d+ < (.*?):", program)
    assert [re.sub(r"r\d+", "r", taps) for taps in found] == passes
