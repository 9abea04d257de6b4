from __future__ import annotations

import re

from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


def test_the_logarithm_of_a_sum_is_computed_once_for_a_row():
    model = parse("g (float[64, 512] x) => (float[64, 512] y) { y = LogSoftmax (x) }")
    program = dict(stages(model, Options(cache_dir=None)))["schedule"]
    (point,) = (kernel for kernel in program.split("kernel ") if "log(" in kernel)
    assert re.search(r"sum r\d+ < 512 .*\n.*\] = log\(r0\)", point)
