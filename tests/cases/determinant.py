"""Cases of determinants."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, Sizes, node

SIZES: tuple[Sizes, ...] = ({"N": 3, "M": 4}, {"N": 1, "M": 1}, {"N": 2, "M": 0}, {"N": 0, "M": 3})
# Rows change places; one matrix has a column of zeros behind the first, another one NaN.
SPECIAL = [
    *(0.0, 2.0, 1.0, 1.0, 1.0, 3.0, 2.0, 2.0, 6.0),
    *(4.0, np.nan, 1.0, 1.0, 2.0, 0.0, 3.0, 1.0, 1.0),
]


def _case(name: str, x: In, **about: object) -> Case:
    return node(name, "Det", x, opset=22, **about)  # type: ignore[arg-type]


CASES = [
    _case("one", In((3, 3)), length=3),
    _case("batch", In((2, 2, 5, 5), "float64"), length=5, witness=False),
    _case("special", In((2, 3, 3), values=SPECIAL), length=3),
    _case("half", In((4, 2, 2), "float16"), length=2, witness=False),
    _case("runtime", In(("N", "M", "M")), sizes=SIZES, batch=True, length=30, witness=False),
    _case("large", In((24, 24), "float64"), length=24, witness=False),
]
