from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.digest import counted, digest, watched
from ostinato.program.expr import Axis, Expr, cast, constant, op
from ostinato.program.kernel import Kernel
from ostinato.program.laid import elements
from ostinato.program.nodes import Buffer, Program
from tests.program.programs import at, program, store


def scaled(factor: Expr, weights: np.ndarray, name: str = "i") -> Program:
    """y = (x + w) * factor"""
    i = Axis(name, 4)
    value = op("mul", op("add", at("x", (i, 1)), at("w", (i, 1))), factor)
    kernel = Kernel("k", (i,), (), (store("y", value, (i, 1)),))
    return program({"x": (4,)}, {"y": (4,)}, (kernel,), {"w": weights})


ONES, TWO = np.ones(4, np.float32), constant(2, "float32")
BYTES = Buffer("q", "int8", 4, "constant")


def test_contents_of_weights_do_not_count():
    assert digest(scaled(TWO, ONES)) == digest(scaled(TWO, ONES * 3))


@pytest.mark.parametrize(
    "other",
    [
        scaled(constant(3, "float32"), ONES),
        scaled(TWO, ONES, "j"),
        replace(scaled(TWO, ONES), symbols=("n",)),
        scaled(TWO, np.ones(4)),
        scaled(TWO, np.ones(5, np.float32)),
        scaled(TWO, np.ones(4, np.int8)),
    ],
)
def test_everything_else_counts(other):
    assert digest(scaled(TWO, ONES)) != digest(other)


def test_zeros_differ_by_their_sign_and_bytes_and_words_by_their_contents():
    zero, negative = (constant(value, "float32") for value in (0.0, -0.0))
    assert digest(scaled(zero, ONES)) != digest(scaled(negative, ONES))
    for dtype in (np.int8, np.int32):
        a, b = (np.full(4, value, dtype) for value in (1, 2))
        assert digest(scaled(TWO, a)) != digest(scaled(TWO, b))


def test_deep_expressions_are_described():
    deep = TWO
    for _ in range(5000):
        deep = op("neg", deep)
    assert digest(scaled(deep, ONES)) != digest(scaled(op("neg", deep), ONES))


def test_scales_of_bytes_count():
    number = cast(at("q", (Axis("i", 4), 1), dtype="int8"), "float32")
    q = np.arange(4, dtype=np.int8)
    a, b = (
        replace(p, constants={**p.constants, "q": q}, buffers={**p.buffers, "q": BYTES})
        for p in (scaled(number, ONES), scaled(number, ONES * 3))
    )
    assert digest(a) != digest(b)


def test_what_is_read_is_noted():
    given, read = watched(scaled(TWO, ONES))
    assert not read and digest(given) == digest(scaled(TWO, ONES)) and not read
    np.testing.assert_array_equal(elements(given.constants["w"]), ONES)
    assert read == {"w"} and not counted(given)
