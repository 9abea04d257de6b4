"""Whole numbers and scales for rows of weights: by nearest, or by second-order correction.

Rows are `[sums, terms]`. Scales are symmetric: a weight is `q * scale`. A scale is the one among
some fractions of the largest magnitude over the number of levels for which the sum of squared
errors, weighted with how large each input is, is least.

The correction is that of Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
Pre-trained Transformers" (2022): terms are rounded one after the other, and those still to come
make up for the error as the second moments of the inputs say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ostinato.graph.writer import Array
from ostinato.quantization.formats import Format

# Fractions of the largest magnitude that a scale may reach to. Clipping pays with few levels.
_FRACTIONS = np.linspace(1.0, 0.5, 41, dtype=np.float32)
# Share of the mean second moment that is added to each, as in the paper.
_DAMPING = 0.01
# Binary digits of a scale.
_SCALE_DIGITS = 14
# Terms whose corrections are applied to the rest together.
_LAZY = 128


@dataclass(frozen=True)
class Rounded:
    """q: `[sums, terms]`, whole numbers as int8. scale: `[sums, blocks]`, float32."""

    q: Array
    scale: Array
    block: int

    @property
    def values(self) -> Array:
        """The weights that this stands for: float32."""
        wide = np.repeat(self.scale, self.block, axis=1)[:, : self.q.shape[1]]
        values: Array = self.q.astype(np.float32) * wide
        return values


def round_rows(
    rows: Array, form: Format, block: int | None, moments: Array | None, scale_type: np.dtype
) -> Rounded:
    """Round `rows` of finite numbers to `form`.

    block: how many terms share a scale; None for all of a row. moments: second moments of the
    inputs, `[terms, terms]`, where they are known. scale_type: the scales are numbers of it.
    """
    terms = rows.shape[1]
    size = block or terms
    if moments is None:
        parts = [rows[:, i : i + size] for i in range(0, terms, size)]
        scales = [_best_scale(part, form, None, scale_type) for part in parts]
        scale = np.stack(scales, axis=1)
        return Rounded(_nearest(rows, scale, size, form), scale, size)
    return _corrected(rows, form, size, moments, scale_type)


def _best_scale(rows: Array, form: Format, importance: Array | None, scale_type: np.dtype) -> Array:
    """The scale of each row with the least squared error: `[sums]`, 1 for a row of zeros.

    importance: the weight of the error of each term.
    """
    largest = np.abs(rows).max(axis=1).astype(np.float32)
    least, tiny = np.full(len(rows), np.inf, np.float32), np.finfo(scale_type).tiny
    best = np.ones(len(rows), np.float32)
    for fraction in _FRACTIONS:
        scale = _short(largest * fraction / form.levels).astype(scale_type).astype(np.float32)
        scale = np.where(scale < tiny, np.float32(1), scale)
        unit = rows / scale[:, None]
        error = unit - np.clip(np.rint(unit), -form.levels - 1, form.levels)
        error *= error
        if importance is not None:
            error *= importance
        # In units of the largest magnitude, so that no square leaves the type.
        total = error.sum(axis=1) * np.square(fraction)
        better = total < least
        least, best = np.where(better, total, least), np.where(better, scale, best)
    return best


def _short(scale: Array) -> Array:
    """The nearest numbers of 14 binary digits: an error of 3e-5, far below that of a weight.

    Weights of such scales are widened without conversions (`schedule.float_fields`).
    """
    digits, exponent = np.frexp(scale)
    short: Array = np.ldexp(np.rint(digits * (1 << _SCALE_DIGITS)), exponent - _SCALE_DIGITS)
    return short


def _nearest(rows: Array, scale: Array, size: int, form: Format) -> Array:
    wide = np.repeat(scale, size, axis=1)[:, : rows.shape[1]]
    q: Array = np.clip(np.rint(rows / wide), -form.levels - 1, form.levels).astype(np.int8)
    return q


def _corrected(
    rows: Array, form: Format, size: int, moments: Array, scale_type: np.dtype
) -> Rounded:
    left = rows.astype(np.float64)
    factor = _inverse_factor(moments)
    importance = np.diag(moments) / max(np.diag(moments).mean(), np.finfo(np.float32).tiny)
    terms = rows.shape[1]
    q = np.zeros(rows.shape, np.int8)
    scale = np.ones((len(rows), -(-terms // size)), np.float32)
    now = scale[:, 0]
    # A block is never cut, so that its scale is chosen when all corrections have reached it.
    stretch = _LAZY if size >= terms else size * max(1, _LAZY // size)
    for start in range(0, terms, stretch):
        stop = min(start + stretch, terms)
        errors = np.zeros((len(rows), stop - start))
        for k in range(start, stop):
            if k % size == 0:
                part = left[:, k : k + size].astype(np.float32)
                now = _best_scale(
                    part, form, importance[k : k + size].astype(np.float32), scale_type
                )
                scale[:, k // size] = now
            whole = np.clip(np.rint(left[:, k] / now), -form.levels - 1, form.levels)
            q[:, k] = whole
            error = (left[:, k] - whole * now) / factor[k, k]
            left[:, k + 1 : stop] -= np.outer(error, factor[k, k + 1 : stop])
            errors[:, k - start] = error
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return Rounded(q, scale, size)


def _inverse_factor(moments: Array) -> Array:
    """The upper Cholesky factor of the inverse of the damped moments."""
    damped = np.array(moments, np.float64)
    diagonal = np.diag(damped).copy()
    # A term whose input is always 0 may have any weight.
    diagonal[diagonal == 0] = 1.0
    np.fill_diagonal(damped, diagonal + _DAMPING * diagonal.mean())
    inverse = np.linalg.inv(damped)
    return np.linalg.cholesky((inverse + inverse.T) / 2).T
