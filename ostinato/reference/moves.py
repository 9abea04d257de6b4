"""Kernels of what moves elements, for types that native code does not move: strings, 4 bits.

What `onnx.reference` 1.23 does instead:

* Unsqueeze and Squeeze: axes of old versions are taken one after the other, so that negative ones
  and those out of order are others, and none is an error;
* Flatten and GatherND: values without elements are an error;
* GatherElements: data that is larger than the indices along another axis is an error;
* Pad: negative widths are an error. Pad, CenterCropPad and Trilu put 0 between strings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_center_crop_pad import CenterCropPad as _CenterCropPad
from onnx.reference.ops.op_trilu import Trilu as _Trilu

Array = np.ndarray[Any, Any]


class _Move(OpRun):
    op_domain = ""


class Unsqueeze(_Move):
    """New axes, which are counted in the result."""

    def _run(self, data: Array, axes: Any = None) -> tuple[Array]:
        new = [] if axes is None else np.ravel(axes).tolist()
        rank = data.ndim + len(new)
        places, sizes = {axis % rank for axis in new}, iter(data.shape)
        return (data.reshape([1 if i in places else next(sizes) for i in range(rank)]),)


class Squeeze(_Move):
    """The axes that are named, or all of size 1, go."""

    def _run(self, data: Array, axes: Any = None) -> tuple[Array]:
        if axes is None:
            return (np.squeeze(data),)
        return (np.squeeze(data, tuple(np.ravel(axes).tolist())),)


class Flatten(_Move):
    """Two axes."""

    def _run(self, data: Array, axis: int | None = None) -> tuple[Array]:
        at = 1 if axis is None else axis
        at += data.ndim if at < 0 else 0
        return (data.reshape(math.prod(data.shape[:at]), math.prod(data.shape[at:])),)


class GatherElements(_Move):
    """Elements by their places along an axis."""

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        at = (axis or 0) % data.ndim
        part = data[tuple(slice(None if i == at else n) for i, n in enumerate(indices.shape))]
        return (np.take_along_axis(part, indices.astype(np.int64), at),)


class GatherND(_Move):
    """Parts by their places along several axes, behind those of the batch."""

    def _run(self, data: Array, indices: Array, batch_dims: int | None = None) -> tuple[Array]:
        batch, depth = batch_dims or 0, indices.shape[-1]
        rows: Sequence[Array] = np.indices(indices.shape[:-1], sparse=True)[:batch]
        places = [indices[..., i].astype(np.int64) for i in range(depth)]
        return (np.asarray(data[(*rows, *places)]),)


class Pad(_Move):
    """Elements are taken away where a width is negative, and then put around what is left."""

    def _run(self, data: Array, *operands: Array | None, **attributes: Any) -> tuple[Array]:
        pads, value, axes = (*operands, None, None, None)[:3]
        if pads is None:
            pads = np.asarray(attributes.get("pads") or attributes["paddings"])
        if value is None:
            value = np.asarray(attributes.get("value") or ("" if data.dtype == object else 0))
        widths = np.zeros((data.ndim, 2), np.int64)
        chosen = range(data.ndim) if axes is None else axes.tolist()
        for axis, before, after in zip(chosen, *pads.reshape(2, -1).tolist(), strict=True):
            widths[axis] = before, after
        mode = str(attributes.get("mode") or "constant")
        if mode == "constant":
            return (_surrounded(data, widths, value.astype(data.dtype)),)
        removed = widths.clip(None, 0).sum(1)
        if (np.array(data.shape) + removed < 0).any():
            raise ValueError(f"pads {widths.tolist()} take more than the shape {data.shape} has")
        kept = tuple(
            slice(max(-before, 0), extent - max(-after, 0))
            for extent, (before, after) in zip(data.shape, widths.tolist(), strict=True)
        )
        return (np.pad(data[kept], widths.clip(0), mode),)  # type: ignore[call-overload]


def _surrounded(data: Array, widths: Array, value: Array) -> Array:
    """The data with a constant around it, and without what lies beyond a negative width."""
    extents = np.array(data.shape, np.int64)
    result = np.full(extents + widths.sum(1), value.reshape(()), data.dtype)
    # Element i of an axis lies at i + before, if that is in the result.
    first = np.maximum(0, -widths[:, 0])
    last = np.maximum(first, np.minimum(extents, result.shape - widths[:, 0]))
    source = tuple(map(slice, first, last))
    target = tuple(map(slice, first + widths[:, 0], last + widths[:, 0]))
    result[target] = data[source]
    return result


class _Blank:
    """Empty strings where NumPy has zeros between strings."""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        kernel: Any = super()
        (array,) = kernel._run(*inputs, **attributes)
        if array.dtype == object:
            array[array == 0] = ""
        return (array,)


class CenterCropPad(_Blank, _CenterCropPad):
    """A part of the middle, or more around it."""


class Trilu(_Blank, _Trilu):
    """A triangle."""


KERNELS: list[type[OpRun]] = [
    Unsqueeze,
    Squeeze,
    Flatten,
    GatherElements,
    GatherND,
    Pad,
    CenterCropPad,
    Trilu,
]
