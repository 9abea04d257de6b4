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

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from ostinato.program.expr import Expr, constant, dtype_of, op
from ostinato.records import dataclass

TAPS = 3

Transform: TypeAlias = Callable[..., "list[np.ndarray]"]


@dataclass(frozen=True)
class Form:
    """How this many outputs of three taps follow from `products` products, along one axis.

    elements: from as many elements as there are products. results: from the products. Both take
    and give arrays of expressions. weights: from the three taps, arrays of `precision`.
    """

    positions: int
    elements: Transform
    weights: Transform
    results: Transform
    precision: type[np.floating]

    @property
    def products(self) -> int:
        """The number of products, and of elements that the outputs depend on."""
        return self.positions + TAPS - 1


def transformed(
    values: np.ndarray, axes: Sequence[int], transforms: Sequence[Transform]
) -> np.ndarray:
    """The values transformed along these axes, one after the other, each as its transform says."""

    def once(values: np.ndarray, along: tuple[int, Transform]) -> np.ndarray:
        axis, transform = along
        return np.stack(transform(*np.moveaxis(values, axis, 0)), axis)

    return reduce(once, zip(axes, transforms, strict=True), values)


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


def _two_weights(g0: np.ndarray, g1: np.ndarray, g2: np.ndarray) -> list[np.ndarray]:
    ends = g0 + g2
    return [g0, (ends + g1) * 0.5, (ends - g1) * 0.5, g2]


def _two_results(
    m0: np.ndarray, m1: np.ndarray, m2: np.ndarray, m3: np.ndarray
) -> list[np.ndarray]:
    return [m0 + m1 + m2, m1 - m2 - m3]


# The points of F(4, 3) but 0 and infinity: these, and the same below 0.
_NEAR, _FAR = 0.75, 1.5
_NEAR_2, _FAR_2 = _NEAR**2, _FAR**2


def _four_elements(*d: np.ndarray) -> list[np.ndarray]:
    """The coefficients of the polynomials that are zero at all points but one, or at all."""
    product, total = _NEAR_2 * _FAR_2, _NEAR_2 + _FAR_2
    even_near, odd_near = (_fma(-_FAR_2, d[i], d[i + 2]) for i in (2, 1))
    even_far, odd_far = (_fma(-_NEAR_2, d[i], d[i + 2]) for i in (2, 1))
    return [
        _fma(-total, d[2], _fma(product, d[0], d[4])),
        _fma(_NEAR, odd_near, even_near),
        _fma(-_NEAR, odd_near, even_near),
        _fma(_FAR, odd_far, even_far),
        _fma(-_FAR, odd_far, even_far),
        _fma(-total, d[3], _fma(product, d[1], d[5])),
    ]


def _four_weights(g0: np.ndarray, g1: np.ndarray, g2: np.ndarray) -> list[np.ndarray]:
    """The polynomial of the taps at each point, over the distances of the point to the others."""
    at_points = []
    for point, other in ((_NEAR, _FAR_2), (_FAR, _NEAR_2)):
        square = point * point
        even, odd, apart = g0 + g2 * square, g1 * point, 2 * square * (square - other)
        at_points += [(even + odd) / apart, (even - odd) / apart]
    return [g0 / (_NEAR_2 * _FAR_2), *at_points, g2]


def _four_results(*m: np.ndarray) -> list[np.ndarray]:
    """The sums of the products times a point to the power of 0, 1, 2 and 3; `_FAR / _NEAR` is 2."""
    near, near_odd = m[1] + m[2], m[1] - m[2]
    far, far_odd = m[3] + m[4], m[3] - m[4]
    return [
        m[0] + near + far,
        _NEAR * _fma(2.0, far_odd, near_odd),
        _NEAR_2 * _fma(4.0, far, near),
        _fma(_FAR**3, far_odd, _fma(_NEAR**3, near_odd, m[5])),
    ]


_TWO = Form(2, _two_elements, _two_weights, _two_results, np.float32)
_FOUR = Form(4, _four_elements, _four_weights, _four_results, np.float64)
FORMS = {form.positions: form for form in (_TWO, _FOUR)}
