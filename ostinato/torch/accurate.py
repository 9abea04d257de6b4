"""Functions whose results near 0 have no digit in the form that PyTorch's exporter writes.

The exporter writes exp(x) - 1, log(1 + x) and 1 - erf(x).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op

# Beyond the first number erfc is a continued fraction of this many terms: then its error is below
# 1e-14.
_FAR, _TERMS = 3.0, 16


def _in(wide: ir.DataType, *others: ir.DataType) -> Callable[[Any], Any]:
    """Compute in a type; in others as they are. A result has the type of the operand."""

    def wrap(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            if x.dtype in (wide, *others):
                return formula(x)
            kept = x.dtype if x.dtype.is_floating_point() else ir.DataType.FLOAT
            return op.Cast(formula(op.Cast(x, to=int(wide))), to=int(kept))

        return call

    return wrap


def _number(value: float, like: Any) -> Any:
    return op.CastLike(op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE)), like)


@_in(ir.DataType.FLOAT, ir.DataType.DOUBLE)
def _expm1(x: Any) -> Any:
    """Elu below 0 is that; above, e^x (1 - e^-x)."""
    above = op.Neg(op.Mul(op.Elu(op.Neg(x)), op.Exp(x)))
    return op.Where(op.Greater(x, _number(0.0, x)), above, op.Elu(x))


@_in(ir.DataType.FLOAT, ir.DataType.DOUBLE)
def _log1p(x: Any) -> Any:
    """2 artanh(x / (2 + x)) near 0."""
    low, high, one = _number(-0.5, x), _number(1.0, x), _number(1.0, x)
    near = op.Max(op.Min(x, high), low)
    inside = op.Atanh(op.Div(near, op.Add(near, _number(2.0, x))))
    is_near = op.And(op.Greater(x, low), op.Less(x, high))
    return op.Where(is_near, op.Add(inside, inside), op.Log(op.Add(x, one)))


@_in(ir.DataType.DOUBLE)
def _erfc(x: Any) -> Any:
    """Far from 0 the continued fraction of DLMF 7.9.1, in float64."""
    far = _number(_FAR, x)
    away = op.Max(x, far)
    below = away
    for term in range(_TERMS, 0, -1):
        below = op.Add(away, op.Div(_number(term / 2, x), below))
    scale = op.Mul(op.Exp(op.Neg(op.Mul(away, away))), _number(1 / math.sqrt(math.pi), x))
    return op.Where(op.Less(x, far), op.Sub(_number(1.0, x), op.Erf(x)), op.Div(scale, below))


def translations() -> dict[Any, Any]:
    """Map the operators to what the exporter writes for them."""
    aten, found = torch.ops.aten, {}
    for name, formula in (("expm1", _expm1), ("log1p", _log1p), ("erfc", _erfc)):
        for one in (name, f"special_{name}"):
            found[getattr(aten, one).default] = formula
    return found
