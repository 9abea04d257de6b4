from __future__ import annotations

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program import interpreter
from ostinato.program.expr import Axis, cast
from ostinato.schedule.pipeline import schedule
from tests.program.programs import at, program
from tests.schedule.test_pipeline import assert_same_results, product


def narrow(terms: int, low: int, high: int, dtype: str):
    """A product with weights from `low` up to and without `high`."""
    r, column = Axis("r", terms), Axis("column", 5)
    weights = np.random.default_rng(terms).integers(low, high, (terms, 5), dtype)
    weights[0, :2] = low, high - 1
    value = cast(at("w", (r, 5), (column, 1), dtype=dtype), "float32")
    body = (product("product", at("x", (r, 1)), value, "y", r, column),)
    return program({"x": (terms,)}, {"y": (5,)}, body, {"w": weights})


@pytest.mark.parametrize("terms", [1, 2, 4, 6, 7, 8, 12, 40])
@pytest.mark.parametrize(
    ("low", "high", "dtype", "bits"),
    [(-8, 8, "int8", 4), (0, 16, "uint8", 4), (-2, 2, "int8", 2), (0, 4, "uint8", 2)],
)
def test_words_hold_as_many_fields_as_divide_the_sum(low, high, dtype, bits, terms):
    source = narrow(terms, low, high, dtype)
    scheduled = schedule(source, Machine(32, 16)).program
    (packed,) = (c for name, c in scheduled.constants.items() if name.startswith("packed"))
    fields = next((n // bits for n in (32, 16, 8) if terms % (n // bits) == 0), 1)
    lanes = 8
    assert packed.nbytes == lanes * terms * (bits * fields // 8 if fields > 1 else 1) // fields
    assert_same_results(source, scheduled)


@pytest.mark.parametrize(("low", "high"), [(-9, 8), (-8, 9)])
def test_bytes_that_need_more_bits_stay(low, high):
    scheduled = schedule(narrow(8, low, high, "int8"), Machine(32, 16)).program
    assert {c.dtype.name for c in scheduled.constants.values()} == {"int8"}


def test_sums_of_other_lengths_keep_their_values():
    source = narrow(40, -8, 8, "int8")
    given = {"x": np.arange(40, dtype=np.float32)}
    (got,) = interpreter.run(schedule(source, Machine(64, 32)).program, given).values()
    assert np.array_equal(got, given["x"] @ source.constants["w"].reshape(40, 5).astype("f"))
