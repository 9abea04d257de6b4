from __future__ import annotations

import numpy as np
import pytest

from ostinato.program.evaluate import evaluate
from ostinato.program.expr import Access, Expr, Load, cast, constant, op
from ostinato.program.rounding import counted, uncounted

X, ZERO = Load(Access("x", 0, ()), "float32"), Load(Access("z", 0, ()), "uint8")
NUMBERS = np.array([-3.5, -2.5, -0.5, -0.3, -0.0, 0.0, 0.49, 0.5, 1.5, 2.5, 77.3], np.float32)


def difference(zero: Expr | None, other: Expr | None, dtype: str = "uint8") -> Expr:
    wide = cast(counted(X, zero, dtype), "int32")
    return wide if other is None else op("sub", wide, cast(other, "int32"))


@pytest.mark.parametrize(
    ("zero", "dtype"),
    [
        (None, "int8"),
        (constant(0, "int8"), "int8"),
        (constant(9, "uint8"), "uint8"),
        (ZERO, "uint8"),
    ],
)
def test_a_rounded_number_is_the_same_without_a_way_through_integers(zero, dtype):
    whole = difference(zero, zero, dtype)

    def leaf(node: Expr) -> np.ndarray:
        return NUMBERS if node is X else np.full(NUMBERS.shape, 9, np.uint8)

    found = uncounted(whole)
    assert found is not None
    got, expected = evaluate(found, leaf), evaluate(cast(whole, "float32"), leaf)
    np.testing.assert_array_equal(got.view(np.int32), expected.view(np.int32))


def test_no_zero_point_is_one_of_zero():
    assert uncounted(difference(constant(0, "uint8"), None)) is not None
    assert uncounted(difference(None, constant(0, "uint8"))) is not None


@pytest.mark.parametrize(
    "other",
    [
        difference(constant(9, "uint8"), constant(8, "uint8")),
        difference(constant(9, "uint8"), None),
        difference(None, ZERO),
        cast(cast(op("sub", constant(7, "int32"), constant(5, "int32")), "uint8"), "int32"),
        cast(cast(X, "uint8"), "int32"),
        cast(X, "int32"),
        X,
    ],
)
def test_other_integers_are_left(other):
    assert uncounted(other) is None
