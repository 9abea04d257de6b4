"""Minimax polynomials for `ostinato.program.functions`, from their definitions.

    python tools/minimax.py > ostinato/program/functions/coefficients.py

Each `Fit` asks for the polynomial `P` that minimises `max |weight(x) * (target(x) - P(x))|` on an
interval; the weight turns the error of `P` into the relative error of the function that is built
from it. Lawson's algorithm (C. L. Lawson, "Contributions to the theory of linear least maximum
approximation", 1961) approaches it: repeated least squares, each giving the points of large error
more emphasis. Coefficients are then rounded to the dtype one after the other, lowest degree first,
and the remaining ones are fitted again, so that they absorb the rounding of the earlier ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 100

Real = Any  # mpmath has no types
Function = Callable[[Real], Real]

ROUND: dict[str, Callable[[Real], float]] = {
    "float32": lambda value: float(np.float32(float(value))),
    "float64": float,
}


@dataclass(frozen=True)
class Fit:
    """One polynomial: `terms` coefficients for float32 and for float64."""

    name: str
    meaning: str
    target: Function
    weight: Function
    interval: tuple[Any, Any] | dict[str, tuple[Any, Any]]
    terms: dict[str, int]

    def bounds(self, dtype: str) -> tuple[Real, Real]:
        """The interval for one dtype."""
        low, high = self.interval[dtype] if isinstance(self.interval, dict) else self.interval
        return mpf(low), mpf(high)


def lawson(
    target: list[Real],
    weight: list[Real],
    grids: list[list[Real]],
    powers: range,
    emphasis: list[Real],
) -> tuple[list[Real], list[Real]]:
    """One round: the weighted least squares fit, and the emphasis that the next round shall use.

    grids: the points, raised to each power up to twice the last of `powers`.
    """
    measure = [u * w * w for u, w in zip(emphasis, weight, strict=True)]
    first, last = powers[0], powers[-1]
    moments = [mp.fdot(measure, grids[p]) for p in range(2 * first, 2 * last + 1)]
    matrix = mp.matrix([moments[i : i + len(powers)] for i in range(len(powers))])
    product = [m * t for m, t in zip(measure, target, strict=True)]
    sides = [mp.fdot(product, grids[p]) for p in powers]
    solution = list(mp.lu_solve(matrix, mp.matrix(sides)))
    error = [
        abs(w * (t - mp.polyval(solution[::-1], x) * x_first))
        for t, w, x, x_first in zip(target, weight, grids[1], grids[first], strict=True)
    ]
    largest = max(error)
    return solution, [u * e / largest for u, e in zip(emphasis, error, strict=True)]


def coefficients(fit: Fit, dtype: str) -> tuple[list[float], float]:
    """Coefficients in the dtype, lowest degree first, and log2 of the largest weighted error."""
    low, high = fit.bounds(dtype)
    terms = fit.terms[dtype]
    points = 8 * (terms + 1)
    grid = [
        low + (high - low) * (1 - mp.cos(mp.pi * (i + mpf(1) / 2) / points)) / 2
        for i in range(points)
    ]
    target, weight = list(map(fit.target, grid)), list(map(fit.weight, grid))
    # Every round takes the same powers, which are most of its time.
    grids = [[x**power for x in grid] for power in range(max(2, 2 * terms - 1))]
    emphasis = [mpf(1)] * points
    for _ in range(12):
        _, emphasis = lawson(target, weight, grids, range(terms), emphasis)
    fixed: list[float] = []
    for power in range(terms):
        solution, _ = lawson(target, weight, grids, range(power, terms), emphasis)
        fixed.append(ROUND[dtype](solution[0]))
        target = [t - mpf(fixed[-1]) * x for t, x in zip(target, grids[power], strict=True)]
    worst = max(abs(t * w) for t, w in zip(target, weight, strict=True))
    return fixed, float(mp.log(worst, 2))


LN2_HALF = mp.log(2) / 2 * mpf("1.0002")
QUARTER = (mp.pi / 4 * mpf("1.002")) ** 2
ERF_SPLIT = mpf("0.9375")


def _even(function: Function, limit: Any, slope: Any) -> Function:
    """`(function(x) / x - limit) / x**2` as a function of `z = x**2`; `slope` is its value at 0."""

    def target(z: Real) -> Real:
        with mp.workdps(120):
            x = mp.sqrt(z)
            return (function(x) / x - limit) / z if z else mpf(slope)

    return target


FITS = (
    Fit(
        "EXP",
        "exp(r) = 1 + r + r^2 P(r)",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.exp(r),
        (-LN2_HALF, LN2_HALF),
        {"float32": 5, "float64": 11},
    ),
    Fit(
        "EXPM1",
        "exp(r) - 1 = r + r^2 P(r)",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: abs(r**2 / mp.expm1(r)),
        (-LN2_HALF, LN2_HALF),
        {"float32": 6, "float64": 11},
    ),
    Fit(
        "LOG",
        "log(1 + f) = f + f^2 P(f)",
        lambda f: (mp.log1p(f) - f) / f**2,
        lambda f: abs(f**2 / mp.log1p(f)),
        (-mpf(1) / 3 * mpf("1.0001"), mpf(1) / 3 * mpf("1.0001")),
        {"float32": 8, "float64": 20},
    ),
    Fit(
        "ATANH",
        "2 atanh(q) = 2q + q^3 (2/3 + z P(z)) with z = q^2",
        lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2 - 2 * z / 3) / z**2,
        lambda z: z**2 / 2,
        (0, mpf("0.0401")),
        {"float32": 3, "float64": 8},
    ),
    Fit(
        "ERF_NEAR",
        "erf(x) = x + x P(x^2)",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
        (0, ERF_SPLIT**2),
        {"float32": 6, "float64": 12},
    ),
    Fit(
        "ERF_FAR",
        "erf(a) = 1 - exp(P(a - 1)), error relative to erf",
        lambda t: mp.log(mp.erfc(t + 1)),
        lambda t: mp.erfc(t + 1),
        {"float32": (ERF_SPLIT - 1, 3), "float64": (ERF_SPLIT - 1, mpf("4.95"))},
        {"float32": 8, "float64": 20},
    ),
    Fit(
        "SIN",
        "sin(r) = r + r^3 P(r^2)",
        _even(mp.sin, 1, -mpf(1) / 6),
        lambda z: z,
        (0, QUARTER),
        {"float32": 3, "float64": 6},
    ),
    Fit(
        "COS",
        "cos(r) = 1 - r^2 / 2 + r^4 P(r^2)",
        lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2,
        (0, QUARTER),
        {"float32": 3, "float64": 6},
    ),
    Fit(
        "ASIN",
        "asin(x) = x + x^3 P(x^2) for |x| <= 1/2",
        _even(mp.asin, 1, mpf(1) / 6),
        lambda z: z,
        (0, mpf("0.2501")),
        {"float32": 5, "float64": 12},
    ),
    Fit(
        "ATAN",
        "atan(x) = x + x^3 P(x^2) for |x| <= 1",
        _even(mp.atan, 1, -mpf(1) / 3),
        lambda z: z * mp.sqrt(z) / mp.atan(mp.sqrt(z)),
        (0, 1),
        {"float32": 8, "float64": 20},
    ),
    Fit(
        "SINH",
        "sinh(x) = x + x^3 P(x^2) for |x| <= 1",
        _even(mp.sinh, 1, mpf(1) / 6),
        lambda z: z * mp.sqrt(z) / mp.sinh(mp.sqrt(z)),
        (0, 1),
        {"float32": 3, "float64": 7},
    ),
)


def main() -> None:
    """Writes the module of coefficients to standard output."""
    print('"""Polynomial coefficients, lowest degree first. Written by tools/minimax.py."""\n')
    print("from __future__ import annotations")
    for fit in FITS:
        print(f"\n# {fit.meaning}")
        print(f"{fit.name} = {{")
        for dtype in fit.terms:
            values, error = coefficients(fit, dtype)
            print(f'    "{dtype}": (  # error 2^{error:.1f}')
            print("".join(f"        {value!r},\n" for value in values), end="")
            print("    ),")
            print(fit.name, dtype, f"2^{error:.1f}", file=sys.stderr)
        print("}")


if __name__ == "__main__":
    main()
