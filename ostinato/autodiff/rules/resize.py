"""The gradient of Resize, which is linear along each axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Factor, Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.contributions import zeros
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.unbroadcast import sum_repeats
from ostinato.graph.writer import Array, Operand

_CENTRED = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")


@differentiates("Resize")
def _resize(context: Context) -> None:
    """Sums over repeated elements, else a product with a matrix for each axis; not of regions.

    The matrix is what Resize makes of the unit vectors.
    """
    how = _attributes(context)
    rank = context.rank(context.given(0))
    named = context.attributes.ints("axes", None)
    axes = [axis % rank for axis in (range(rank) if named is None else named)]
    scales = context.constant(2)
    if scales is not None and not scales.size:
        scales = None
    if scales is None and not context.has(3):
        raise context.refuse("has no gradient for scales that are known at run time only")
    times = np.ones(rank, np.int64)
    if scales is not None and _repeats(how, scales):
        times[axes] = scales.astype(np.int64)
        sizes = context.sizes(context.given(0))
        context.give(0, sum_repeats(context.gradient(), rank, times, sizes, each=True))
        return
    given = context.gradient()
    for place, axis in enumerate(axes):
        if not _is_same(context, axis, None if scales is None else scales[place]):
            target: Operand
            if scales is None:
                target = context.size(context.node.outputs[0], axis)
            else:
                target = np.array([1, 1, 1, scales[place]], np.float32)
            given = _along(context, given, axis, target, how)
    context.give(0, given)


def _attributes(context: Context) -> dict[str, Any]:
    """Interpolation between elements."""
    read = context.attributes
    policy = read.string("keep_aspect_ratio_policy", "stretch")
    how = {
        "mode": read.string("mode", "nearest"),
        "coordinate_transformation_mode": read.string(
            "coordinate_transformation_mode", "half_pixel"
        ),
        "nearest_mode": read.string("nearest_mode", "round_prefer_floor"),
        "cubic_coeff_a": context.float("cubic_coeff_a"),
        "antialias": read.int("antialias", 0),
        "exclude_outside": read.int("exclude_outside", 0),
    }
    read.float("extrapolation_value", 0.0)
    if policy != "stretch" or how["coordinate_transformation_mode"] == "tf_crop_and_resize":
        raise context.refuse("has no gradient for a policy of aspect ratios, or a region")
    return how


def _repeats(how: dict[str, Any], scales: Array) -> bool:
    """Whether each element is repeated a whole number of times."""
    transform, rounding = how["coordinate_transformation_mode"], how["nearest_mode"]
    even = (transform == "asymmetric" and rounding == "floor") or (
        transform in _CENTRED and rounding.startswith("round")
    )
    return how["mode"] == "nearest" and even and bool((scales % 1 == 0).all())


def _is_same(context: Context, axis: int, scale: float | None) -> bool:
    """Whether nothing happens along an axis."""
    before, after = (
        context.dims(value)[axis] for value in (context.given(0), context.node.outputs[0])
    )
    return scale == 1 if scale is not None else before == after and before is not None


def _along(context: Context, given: Term, axis: int, target: Operand, how: dict[str, Any]) -> Term:
    """The gradient before one axis was resized; target: scales of an image, or the new size."""
    rank = context.rank(context.given(0))
    extent = context.size(context.given(0), axis)
    image = context.writer.concat([np.ones(2, np.int64), extent, extent], 0, "sizes")
    units = context.ops.op("Reshape", [_units(context, extent), image])
    nothing = np.zeros(0, np.float32)
    operands: list[Factor] = [units, nothing, target]
    if isinstance(target, ir.Value) or target.dtype == np.int64:
        sizes = context.writer.concat([np.ones(2, np.int64), extent, target], 0, "sizes")
        operands = [units, nothing, nothing, sizes]
    resized = context.ops.op("Resize", operands, attributes=how)
    matrix = resized.transpose([0, 1, 3, 2]).squeeze([0, 1])
    last = [*range(rank)]
    last[axis], last[-1] = last[-1], last[axis]
    product = given.transpose(last).op("MatMul", matrix)
    return product.transpose(last)


def _units(context: Context, extent: Operand) -> Operand:
    """The identity matrix."""
    if not isinstance(extent, ir.Value):
        return np.eye(extent.item(), dtype=context.writer.dtype.numpy())
    square = context.writer.concat([extent, extent], 0, "sizes")
    return context.ops.op("EyeLike", [zeros(context.writer, square)]).value
