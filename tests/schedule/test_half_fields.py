from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program import interpreter
from ostinato.program.expr import Axis, cast
from ostinato.schedule.pipeline import schedule
from tests.program.programs import at, program
from tests.schedule.test_pipeline import assert_same_results, product


def halves(terms: int):
    """A product with weights of bfloat16, infinities and zeros of both signs among them."""
    r, column = Axis("r", terms), Axis("column", 5)
    random = np.random.default_rng(terms)
    weights = (random.integers(-16, 16, (terms, 5)) / 8).astype(ml_dtypes.bfloat16)
    weights[0] = -0.0, 0.0, np.inf, -np.inf, np.finfo(np.float32).tiny
    value = cast(at("w", (r, 5), (column, 1), dtype="bfloat16"), "float32")
    body = (product("product", at("x", (r, 1)), value, "y", r, column),)
    return program({"x": (terms,)}, {"y": (5,)}, body, {"w": weights})


@pytest.mark.parametrize("terms", [1, 2, 3, 4, 14])
def test_two_are_a_word_where_sums_have_pairs(terms):
    source = halves(terms)
    scheduled = schedule(source, Machine(32, 16)).program
    (packed,) = (c for name, c in scheduled.constants.items() if name.startswith("packed"))
    lanes = 8
    assert (packed.dtype, packed.nbytes) == (
        "bfloat16" if terms % 2 else "int32",
        lanes * terms * 2,
    )
    assert_same_results(source, scheduled)


def test_sums_keep_their_values():
    source = halves(14)
    given = {"x": np.arange(1, 15, dtype=np.float32)}
    (got,) = interpreter.run(schedule(source, Machine(64, 32)).program, given).values()
    weights = source.constants["w"].reshape(14, 5).astype(np.float32)
    assert np.array_equal(got, given["x"] @ weights)
