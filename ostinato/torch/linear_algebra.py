"""Inverses, determinants, factors and functions of matrices, which ONNX does not have.

What is computed by elimination has no gradient of its own: each result adds a term that is zero,
and has the gradient of the whole. So a backward call takes products, not elimination.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

# Terms of the series of exp, of which a group takes one product, and norms up to which the rest is
# below the precision of a type.
_TERMS, _GROUP = 20, 4
_NORM, _WIDE_NORM = 3.0, 1.0
# A larger matrix is halved first, and the result is squared as often.
_MOST_SQUARINGS = 16


def _eliminated(a: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of [.., n, n] matrices, and the pivots [.., n], whose product is the determinant.

    Gauss and Jordan's method; the largest element of a column is its pivot.
    """
    n = a.shape[-1]
    places = torch.arange(n)
    unit = (places.unsqueeze(0) == places.unsqueeze(1)).to(a.dtype)

    def step(m: Tensor, k: Tensor) -> Any:
        column = torch.index_select(m, -1, k.reshape(1)).squeeze(-1)
        size = torch.where(places < k, -1.0, column.abs())
        at = (places == size.argmax(-1, keepdim=True)).to(m.dtype)
        is_own = (places == k).to(m.dtype)
        # Row k and the row of the pivot change places: I - d d' of the difference d of their units.
        apart = is_own - at
        m = m - apart.unsqueeze(-1) * (apart.unsqueeze(-2) @ m)
        column = torch.index_select(m, -1, k.reshape(1)).squeeze(-1)
        pivot = (column * is_own).sum(-1)
        row = (is_own.unsqueeze(-2) @ m).squeeze(-2) / pivot.unsqueeze(-1)
        rest = m - column.unsqueeze(-1) * row.unsqueeze(-2)
        m = torch.where(is_own.unsqueeze(-1) > 0, row.unsqueeze(-2), rest)
        moved = apart.abs().amax(-1) > 0
        return m, torch.where(moved, -pivot, pivot)

    whole = torch.cat([a.detach(), unit.expand(a.shape)], -1)
    m, pivots = scan(step, whole, places)
    return m[..., n:].detach(), pivots.movedim(0, -1).detach()


def inverse(a: Tensor) -> Tensor:
    """dA' = -A' dA A', and a step of Newton's method in its value."""
    found = _eliminated(a)[0]
    return found + found @ (torch.eye(a.shape[-1], dtype=a.dtype) - a @ found)


def inv_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse, and what says that there is one, whatever the elements are."""
    return torch.return_types.linalg_inv_ex(
        (inverse(a), torch.zeros(a.shape[:-2], dtype=torch.int32))
    )


def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B, or X A = B, with one step of refinement."""
    if not left:
        return solve(a.mT, b.mT).mT
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    if is_vector:
        return solve(a, b.unsqueeze(-1)).squeeze(-1)
    found = _eliminated(a)[0]
    x = (found @ b).detach()
    return x + found @ (b - a @ x)


def _change(a: Tensor, inverse_of: Tensor) -> Tensor:
    """Zero, with the gradient of log |det A|."""
    return (inverse_of.mT * (a - a.detach())).sum((-2, -1))


def slogdet(a: Tensor) -> Any:
    """Sign and logarithm of the determinant."""
    found, pivots = _eliminated(a)
    logarithm = pivots.abs().log().sum(-1) + _change(a, found)
    return torch.return_types.linalg_slogdet((pivots.sign().prod(-1), logarithm))


def logdet(a: Tensor) -> Tensor:
    """NaN where the determinant is negative."""
    sign, logarithm = slogdet(a)
    return torch.where(sign < 0, torch.nan, logarithm)


def det(a: Tensor) -> Tensor:
    """The product of all pivots."""
    found, pivots = _eliminated(a)
    value = pivots.prod(-1)
    return value + value * _change(a, found)


def cholesky(a: Tensor, *, upper: bool = False) -> Tensor:
    """The factor L of A = L L', column by column; Murray 2016 has its gradient."""
    n = a.shape[-1]
    places = torch.arange(n)

    def step(factor: Tensor, element: Any) -> Any:
        k, column = element
        row = torch.index_select(factor, -2, k.reshape(1))
        rest = column - (factor @ row.mT).squeeze(-1)
        is_own = (places == k).to(rest.dtype)
        pivot = (rest * is_own).sum(-1, keepdim=True)
        column = torch.where(places < k, 0.0, rest / pivot.sqrt())
        return factor + column.unsqueeze(-1) * is_own, column.clone()

    given = a.detach().mT if upper else a.detach()
    whole = scan(step, torch.zeros_like(given), (places, given.movedim(-1, 0)))[0].detach()
    back = _eliminated(whole)[0]
    middle = back @ (a - a.detach()) @ back.mT
    half = torch.tril(middle) * (1 - 0.5 * torch.eye(n, dtype=a.dtype))
    found = whole + whole @ half
    return found.mT if upper else found


def solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The same of a matrix of which only a triangle counts."""
    own = torch.triu(a) if upper else torch.tril(a)
    if unitriangular:
        unit = torch.eye(a.shape[-1], dtype=a.dtype)
        own = own * (1 - unit) + unit
    return solve(own, b, left=left)


def matrix_exp(a: Tensor) -> Any:
    """exp(A) by Taylor's series, scaled and squared (Higham 2008); NaN for norms beyond 2^16."""
    if not a.dtype.is_floating_point:
        return NotImplemented
    most = _WIDE_NORM if a.dtype == torch.float64 else _NORM
    norm = a.detach().abs().sum(-2).amax(-1)
    count = (norm / most).log2().ceil().clamp(min=0)[..., None, None]
    scaled = a * torch.exp2(-count)
    unit = torch.eye(a.shape[-1], dtype=a.dtype)
    powers = [unit, scaled]
    while len(powers) <= _GROUP:
        powers.append(powers[-1] @ scaled)
    found: Tensor | None = None
    for first in reversed(range(0, _TERMS, _GROUP)):
        part = sum(powers[i] / math.factorial(first + i) for i in range(_GROUP))
        found = part if found is None else found @ powers[_GROUP] + part

    def step(m: Tensor, k: Tensor) -> Any:
        m = torch.where(k < count, m @ m, m)
        return m, m.sum()

    whole = scan(step, found, torch.arange(_MOST_SQUARINGS, dtype=a.dtype))[0]
    return torch.where(count > _MOST_SQUARINGS, torch.nan, whole)


def householder_product(a: Tensor, tau: Tensor) -> Any:
    """The first columns of the product of reflections I - tau v v', with v below the diagonal."""
    if not a.dtype.is_floating_point:
        return NotImplemented
    places = torch.arange(a.shape[-2])

    def step(q: Tensor, element: Any) -> Any:
        k, column, factor = element
        v = torch.where(places > k, column, (places == k).to(column.dtype)).unsqueeze(-1)
        q = q - factor[..., None, None] * v * (v.mT @ q)
        return q, q.sum()

    unit = torch.eye(*a.shape[-2:], dtype=a.dtype).expand(a.shape)
    count = tau.shape[-1]
    columns = a[..., :count].movedim(-1, 0), tau.movedim(-1, 0)
    return scan(step, unit.clone(), (torch.arange(count), *columns), reverse=True)[0]


def cholesky_solve(x: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """Solve A y = x, given the triangular factor of A.

    Its other triangle has a gradient all the same, as PyTorch has it.
    """
    given = factor.mT if upper else factor
    lower = given - given.detach() + given.detach().tril()
    return solve(lower.mT, solve(lower, x))


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, given its triangular factor."""
    one = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return cholesky_solve(one, factor, upper)
