"""Straight-through gradients of rounding to a few levels, as if it were the identity between them.

Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons for Conditional
Computation" (2013). The gradient of whole numbers is that of the real numbers they were rounded
from, `x / scale`. Scales and zero points are settings and have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates


def _layout(context: Context) -> dict[str, Any]:
    """The attributes that say to which elements a scale belongs."""
    reader = context.attributes
    layout = {"axis": reader.int("axis", 1)}
    block = reader.int("block_size", 0)
    return layout | ({"block_size": block} if block else {})


def _steps(context: Context, layout: dict[str, Any]) -> Term:
    """The scale of each element of input 0: ones, dequantised."""
    if context.wants(1):
        raise context.refuse("the gradient of the scale is not known: `freeze` it")
    sizes = context.sizes(context.given(0))
    ones = context.writer.op("Expand", [np.ones(1, np.int8), sizes], "ones", dtype=ir.DataType.INT8)
    return context.ops.op("DequantizeLinear", [ones, context.input(1)], "steps", layout)


@differentiates("DequantizeLinear")
def _dequantize(context: Context) -> None:
    """Times the scale."""
    layout = _layout(context)
    context.attributes.int("output_dtype", 0)
    context.give(0, context.gradient() * _steps(context, layout))


@differentiates("QuantizeLinear")
def _quantize(context: Context) -> None:
    """Over the scale; 0 where a number is so far out of range that it is a whole step off."""
    layout, kind = _layout(context), context.node.outputs[0].dtype
    # How numbers are rounded, and to what, shows in the output.
    context.attributes.mark_read(("output_dtype", "precision", "saturate"))
    if kind is None or not kind.is_integer():
        raise context.refuse("rounding to floats of 8 bits has no straight-through gradient")
    steps, x = _steps(context, layout), context.x
    operands = [context.y, *(context.input(i) for i in (1, 2) if context.has(i))]
    error = x - context.ops.op("DequantizeLinear", operands, "rounded", layout)
    is_near = error.op("Abs") < steps
    slope = context.gradient() / steps
    context.give(0, is_near.where(slope, 0.0))
