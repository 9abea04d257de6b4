"""Operators of PyTorch's programs that its exporter has no form for, in terms of others.

What stands here is found under all names that PyTorch has for it, since it counts after tracing;
see `formulas` for functions, whose tracing itself has to be another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ostinato.torch.complex_numbers import COMPLEX
from ostinato.torch.drawing import drawing
from ostinato.torch.pooling import pools
from ostinato.torch.rarer import rarer, refuse_statistics
from ostinato.torch.signals import istft, windows
from ostinato.torch.statistics import index_reduce, scatter, scatter_reduce, scattered

# Coefficients of Stirling's series (DLMF 5.11.1), whose terms are c / y^(2 i - 1). From y = 8 on
# the next one is below a double's precision.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_SHIFT = 8


def with_formulas(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with formulas in place of the operators that have one here."""
    parts = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    nodes = [node for part in parts for node in part.graph.nodes]
    refuse_statistics(nodes)
    called = {_pure(node.target) for node in nodes}
    table = {one: formula for one, formula in _OPERATORS.items() if one in called}
    values = [value for n in nodes if isinstance(value := n.meta.get("val"), Tensor)]
    if any(value.is_complex() for value in values):
        table |= COMPLEX
    if any(value.dtype in _NARROW_TYPES for value in values):
        table |= _NARROW_SUMS
    return program.run_decompositions(table) if table else program


def _pure(target: Any) -> Any:
    """The operator that one in place, such as `erfinv_`, becomes when a program is decomposed."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return target
    name = target._opname
    if not name.endswith("_") or name.startswith("_"):
        return target
    packet = getattr(aten, name[:-1], None)
    return getattr(packet, target._overloadname, target)


def _wide(operator: Any) -> Callable[..., Any]:
    """A sum or product of narrow numbers in float32, which the exporter would leave in that."""

    def call(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        if x.dtype not in _NARROW_TYPES:
            return NotImplemented
        return operator(x.float(), *args, **kwargs).to(x.dtype if dtype is None else dtype)

    return call


def _in_double(formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Computed in float64, for a result whose terms cancel each other."""

    def call(x: Tensor) -> Tensor:
        kept = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
        return formula(x.double()).to(kept)

    return call


def _shifted(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether an argument is below 1/2; it, reflected to above; and the argument of the series."""
    below = x < 0.5
    y = torch.where(below, 1 - x, x)
    return below, y, torch.where(y < _SHIFT, y + _SHIFT, y)


@_in_double
def _lgamma(x: Tensor) -> Tensor:
    """log |Γ(x)| by Stirling's series from 8 on, below by Γ(x + 1) = x Γ(x) and by reflection."""
    below, y, far = _shifted(x)
    product = torch.ones_like(y)
    for i in range(_SHIFT):
        product = product * torch.where(y < _SHIFT, y + i, 1.0)
    series = sum(c / far ** (2 * i + 1) for i, c in enumerate(_STIRLING))
    above = (far - 0.5) * far.log() - far + 0.5 * math.log(2 * math.pi) + series - product.log()
    turn = torch.where(below, x - x.floor(), 0.5)
    return torch.where(below, math.log(math.pi) - (math.pi * turn).sin().log() - above, above)


@_in_double
def _digamma(x: Tensor) -> Tensor:
    """The derivative of log Γ."""
    below, y, far = _shifted(x)
    steps = sum(torch.where(y < _SHIFT, 1 / (y + i), 0.0) for i in range(_SHIFT))
    series = sum((2 * i + 1) * c / far ** (2 * i + 2) for i, c in enumerate(_STIRLING))
    above = far.log() - 0.5 / far - series - steps
    turn = torch.where(below, x - x.floor(), 0.5)
    return torch.where(below, above - math.pi / (math.pi * turn).tan(), above)


@_in_double
def _erfinv(x: Tensor) -> Tensor:
    """Newton's method from an approximation of S. Winitzki (2008), good to 0.002."""
    with torch.no_grad():
        log = torch.log((1 - x) * (1 + x))
        half = 2 / (math.pi * 0.147) + log / 2
        y = x.sign() * ((half.square() - log / 0.147).sqrt() - half).sqrt()
        for _ in range(3):
            y = y - (torch.erf(y) - x) * (0.5 * math.sqrt(math.pi)) * y.square().exp()
        is_end = x.abs() >= 1
        y = torch.where(is_end, torch.where(x.abs() == 1, x.sign() * math.inf, math.nan), y)
    # One more step, which gives the gradient.
    slope = torch.where(is_end, 0.0, 0.5 * math.sqrt(math.pi) * y.square().exp()).detach()
    return y.detach() + (x - x.detach()) * slope


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """The root of the sum of squares, none of which overflows."""
    large, small = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = small / torch.where(large == 0, 1.0, large)
    return large * (1 + ratio.square()).sqrt()


def _signbit(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _copysign(x: Tensor, y: Tensor | float) -> Tensor:
    size = x.abs() if x.dtype.is_floating_point else x.abs().to(torch.get_default_dtype())
    if isinstance(y, Tensor):
        return torch.where(_signbit(y), -size, size)
    return -size if math.copysign(1, y) < 0 else size


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    found = [t.narrow(dim, k - 1, 1) for t in torch.sort(x, dim)]
    values, places = found if keepdim else [t.squeeze(dim) for t in found]
    return values, places


def _median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _kthvalue(x, (x.shape[dim] + 1) // 2 if x.dim() else 1, dim, keepdim)


def _nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median of what is a number; of two in the middle the lower one."""
    if not x.dtype.is_floating_point or not x.dim():
        return _median(x, dim, keepdim)
    none = x.isnan()
    ordered, places = torch.sort(torch.where(none, math.inf, x), dim)
    count = (~none).sum(dim, keepdim=True)
    middle = (count - 1).clamp(min=0) // 2
    values = torch.where(count > 0, ordered.gather(dim, middle), math.nan)
    found = values, places.gather(dim, middle)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The least of the most frequent elements, and where it stands last."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    rows = x.detach().movedim(dim, -1)
    counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1)
    is_most = counts == counts.amax(-1, keepdim=True)
    least = torch.where(is_most, rows, _greatest(x.dtype)).amin(-1, keepdim=True)
    numbers = torch.arange(rows.shape[-1])
    places = torch.where(is_most & (rows == least), numbers, 0).amax(-1, keepdim=True)
    places = places.movedim(-1, dim)
    values = x.gather(dim, places)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _greatest(dtype: torch.dtype) -> float | int:
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """A histogram from the least element to the greatest one."""
    if min != max:
        return NotImplemented
    flat = x.flatten()
    least, greatest = flat.amin(), flat.amax()
    is_one = least == greatest
    least = torch.where(is_one, least - 1, least)
    greatest = torch.where(is_one, greatest + 1, greatest)
    places = ((flat - least) * bins / (greatest - least)).long().clamp(max=bins - 1)
    return (places.unsqueeze(-1) == torch.arange(bins)).sum(0).to(x.dtype)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1).unbind(0)
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)


def _searchsorted(
    ordered: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Count the elements of each row that are smaller."""
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    rows = ordered.unsqueeze(-2)
    places = x.unsqueeze(-1) if ordered.dim() > 1 or x.dim() else x.reshape(1, 1)
    smaller = rows <= places if right or side == "right" else rows < places
    found = smaller.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)
    return found.reshape(x.shape)


def _vecdot(x: Tensor, y: Tensor, dim: int = -1) -> Any:
    """A sum of products of narrow numbers, rounded once."""
    if x.dtype not in _NARROW_TYPES:
        return NotImplemented
    return (x.float() * y.float()).sum(dim).to(x.dtype)


aten = torch.ops.aten
_NARROW_TYPES = (torch.float16, torch.bfloat16)
_SUMS = (
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.prod.default,
    aten.prod.dim_int,
    aten.cumsum.default,
    aten.cumprod.default,
)
_NARROW_SUMS: dict[Any, Callable[..., Any]] = {
    **{one: _wide(one) for one in _SUMS},
    aten.linalg_vecdot.default: _vecdot,
}
_OPERATORS: dict[Any, Callable[..., Any]] = {
    aten.lgamma.default: _lgamma,
    aten.digamma.default: _digamma,
    aten.special_digamma.default: _digamma,
    aten.special_gammaln.default: _lgamma,
    aten.special_psi.default: _digamma,
    aten.erfinv.default: _erfinv,
    aten.special_erfinv.default: _erfinv,
    aten.hypot.default: _hypot,
    aten.fmax.default: lambda x, y: torch.where(y.isnan() | (x >= y), x, y),
    aten.fmin.default: lambda x, y: torch.where(y.isnan() | (x <= y), x, y),
    aten.signbit.default: _signbit,
    aten.copysign.Tensor: _copysign,
    aten.copysign.Scalar: _copysign,
    aten.kthvalue.default: _kthvalue,
    aten.median.dim: _median,
    aten.median.default: lambda x: _median(x.flatten(), 0)[0],
    aten.nanmedian.dim: _nanmedian,
    aten.nanmedian.default: lambda x: _nanmedian(x.flatten(), 0)[0],
    aten.mode.default: _mode,
    aten.histc.default: _histc,
    aten._pdist_forward.default: _pdist,
    aten.pdist.default: _pdist,
    aten.searchsorted.Tensor: _searchsorted,
    aten.index_reduce.default: index_reduce,
    **{one: scattered(one) for one in (aten.scatter.src, aten.scatter_add.default)},
    aten.scatter.reduce: scatter,
    aten.scatter.value_reduce: scatter,
    aten.scatter_reduce.two: scatter_reduce,
    aten.istft.default: istft,
    **windows(),
    **drawing(),
    **pools(),
    **rarer(),
}
