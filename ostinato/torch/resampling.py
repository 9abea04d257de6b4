"""Images and signals of other sizes, as PyTorch resamples them.

PyTorch's exporter leaves out scales where it writes sizes, and has scales where only sizes count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18

from ostinato.errors import UnsupportedError

aten = torch.ops.aten
# For each operator its interpolation, whether it averages over what it leaves out, and the factor
# of its cubic.
_OPERATORS = {
    aten.upsample_linear1d: ("linear", False, -0.75),
    aten.upsample_bilinear2d: ("linear", False, -0.75),
    aten.upsample_trilinear3d: ("linear", False, -0.75),
    aten.upsample_bicubic2d: ("cubic", False, -0.75),
    aten._upsample_bilinear2d_aa: ("linear", True, -0.75),
    aten._upsample_bicubic2d_aa: ("cubic", True, -0.5),
}


def translations() -> dict[Any, Any]:
    """Map the operators that interpolate to what the exporter writes."""
    return {
        **{packet.default: _of_sizes(*settings) for packet, settings in _OPERATORS.items()},
        **{packet.vec: _of_either(*settings) for packet, settings in _OPERATORS.items()},
    }


def _of_sizes(mode: str, antialias: bool, factor: float) -> Callable[..., Any]:
    def translate(x: Any, sizes: Any, align_corners: bool, *scales: float | None) -> Any:
        given = [scale for scale in scales if scale is not None]
        known = given if len(given) == len(x.shape) - 2 else None
        return _resized(x, sizes, align_corners, known, mode, antialias, factor)

    return translate


def _of_either(mode: str, antialias: bool, factor: float) -> Callable[..., Any]:
    def translate(
        x: Any, sizes: Any, align_corners: bool, scales: Sequence[float] | None = None
    ) -> Any:
        return _resized(x, sizes, align_corners, scales, mode, antialias, factor)

    return translate


def _resized(
    x: Any,
    sizes: Any,
    align_corners: bool,
    scales: Sequence[float] | None,
    mode: str,
    antialias: bool,
    factor: float,
) -> Any:
    """Resize by what PyTorch goes by: sizes between corners, else scales where it has some."""
    if antialias and align_corners:
        raise UnsupportedError(
            "interpolate", "module", "antialias between corners has no form in ONNX"
        )
    settings = {
        "mode": mode,
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": factor,
        "antialias": int(antialias),
        "exclude_outside": int(antialias),
    }
    if scales is not None and not align_corners:
        factors = opset18.Constant(value_floats=[1.0, 1.0, *scales])
        return opset18.Resize(x, None, factors, None, **settings)
    if sizes is None:
        sizes = [_scaled(x, axis, scale) for axis, scale in enumerate(scales or (), 2)]
        sizes = opset18.Concat(*sizes, axis=0)
    front = opset18.Shape(x, start=0, end=2)
    whole = opset18.Concat(front, opset18.Cast(sizes, to=7), axis=0)
    return opset18.Resize(x, None, None, whole, **settings)


def _scaled(x: Any, axis: int, scale: float) -> Any:
    """The size of an axis times a scale, without what is behind the point."""
    size = opset18.Shape(x, start=axis, end=axis + 1)
    if scale == int(scale):
        return opset18.Mul(size, opset18.Constant(value_ints=[int(scale)]))
    product = opset18.Mul(opset18.Cast(size, to=1), opset18.Constant(value_floats=[scale]))
    return opset18.Cast(opset18.Floor(product), to=7)
