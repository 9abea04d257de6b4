"""Winograd's minimal filtering: two or four outputs of three taps from four or six products.

A filter g of three taps that moves over elements d has the outputs y = R(E(d) * W(g)), in which E,
W and R are sums with fixed factors and `*` multiplies element by element: F(m, 3) takes m + 2
products for m outputs. `_TWO` is F(2, 3) with the points 0, 1, -1 and infinity, `_FOUR` is F(4, 3)
with 0, 3/4, -3/4, 3/2, -3/2 and infinity, as A. Lavin and S. Gray have them in Fast Algorithms for
Convolutional Neural Networks, 2015, and B. Barabasz et al. the choice of points in Error Analysis
and Improving the Accuracy of Winograd Convolution for Deep Neural Networks, 2018: with 1 and 2 in
place of 3/4 and 3/2 the error is twice as large. All factors but those of the weights are exact in
float32, so the weights of `_FOUR` are transformed in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from ostinato.program.expr import Expr, constant, dtype_of, op
from ostinato.program.transformed import FAR, FAR_2, NEAR, NEAR_2, TAPS, Transform
from ostinato.records import dataclass


@dataclass(frozen=True)
class Form:
    """How this many outputs of three taps follow from `products` products, along one axis.

    elements: from as many elements as there are products. results: from the products. Both take
    and give arrays of expressions. Weights are transformed by `program.transformed`.
    """

    positions: int
    elements: Transform
    results: Transform

    @property
    def products(self) -> int:
        """The number of products, and of elements that the outputs depend on."""
        return self.positions + TAPS - 1


def _fma(factor: float, values: np.ndarray, more: np.ndarray) -> np.ndarray:
    """`factor * values + more`, rounded once."""

    def one(value: Expr, term: Expr) -> Expr:
        return op("fma", constant(factor, dtype_of(value)), value, term)

    result: np.ndarray = np.frompyfunc(one, 2, 1)(values, more)
    return result


def _two_elements(
    d0: np.ndarray, d1: np.ndarray, d2: np.ndarray, d3: np.ndarray
) -> list[np.ndarray]:
    return [d0 - d2, d1 + d2, d2 - d1, d1 - d3]


def _two_results(
    m0: np.ndarray, m1: np.ndarray, m2: np.ndarray, m3: np.ndarray
) -> list[np.ndarray]:
    return [m0 + m1 + m2, m1 - m2 - m3]


def _four_elements(*d: np.ndarray) -> list[np.ndarray]:
    """The coefficients of the polynomials that are zero at all points but one, or at all."""
    product, total = NEAR_2 * FAR_2, NEAR_2 + FAR_2
    even_near, odd_near = (_fma(-FAR_2, d[i], d[i + 2]) for i in (2, 1))
    even_far, odd_far = (_fma(-NEAR_2, d[i], d[i + 2]) for i in (2, 1))
    return [
        _fma(-total, d[2], _fma(product, d[0], d[4])),
        _fma(NEAR, odd_near, even_near),
        _fma(-NEAR, odd_near, even_near),
        _fma(FAR, odd_far, even_far),
        _fma(-FAR, odd_far, even_far),
        _fma(-total, d[3], _fma(product, d[1], d[5])),
    ]


def _four_results(*m: np.ndarray) -> list[np.ndarray]:
    """The sums of the products times a point to the power of 0, 1, 2 and 3; `FAR / NEAR` is 2."""
    near, near_odd = m[1] + m[2], m[1] - m[2]
    far, far_odd = m[3] + m[4], m[3] - m[4]
    return [
        m[0] + near + far,
        NEAR * _fma(2.0, far_odd, near_odd),
        NEAR_2 * _fma(4.0, far, near),
        _fma(FAR**3, far_odd, _fma(NEAR**3, near_odd, m[5])),
    ]


_TWO = Form(2, _two_elements, _two_results)
_FOUR = Form(4, _four_elements, _four_results)
FORMS = {form.positions: form for form in (_TWO, _FOUR)}
