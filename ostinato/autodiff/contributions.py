"""Contributions of readers to the gradient of a value, until all have been visited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.writer import Operand, Writer
from ostinato.model.values import dims_of


@dataclass(frozen=True)
class Part:
    """The gradient of the elements `start .. start + size - 1` along `axis`; others get zero.

    The size of the value along `axis` is known.
    """

    gradient: ir.Value
    axis: int
    start: int
    size: int


Contribution: TypeAlias = "ir.Value | Part"
Dims: TypeAlias = "Sequence[int | str | None]"
Size: TypeAlias = "Callable[[int], Operand]"
"""From an axis to the size there: 1-D int64, one element."""


def total(
    writer: Writer, value: ir.Value, size: Size, contributions: Sequence[Contribution]
) -> ir.Value:
    """The sum of all contributions to the gradient of `value`, in the order they came.

    size: the size of `value` along an axis, which nodes of `writer` can read.
    Parts along one axis that do not overlap become one Concat, with zeros in the gaps: one buffer
    that each part is written to once.
    """
    whole = [item for item in contributions if isinstance(item, ir.Value)]
    parts = [item for item in contributions if isinstance(item, Part)]
    dims = dims_of(value)
    for row in _without_overlap(parts):
        assert dims is not None
        whole.append(_joined(writer, size, dims, row))
    result = whole[0]
    for term in whole[1:]:
        result = writer.op("Add", [result, term], "sum")
    return result


def _without_overlap(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts in rows, each of one axis and in order, with no element twice."""
    rows: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: (part.axis, part.start)):
        for row in rows:
            last = row[-1]
            if last.axis == part.axis and last.start + last.size <= part.start:
                row.append(part)
                break
        else:
            rows.append([part])
    return rows


def _joined(writer: Writer, size: Size, dims: Dims, row: Sequence[Part]) -> ir.Value:
    axis = row[0].axis
    length = dims[axis]
    assert isinstance(length, int)
    if len(row) == 1:
        return _padded(writer, row[0], len(dims), length)
    pieces: list[Operand] = []
    position = 0
    for part in row:
        if part.start > position:
            pieces.append(_gap(writer, size, dims, axis, part.start - position))
        pieces.append(part.gradient)
        position = part.start + part.size
    if position < length:
        pieces.append(_gap(writer, size, dims, axis, length - position))
    return writer.op("Concat", pieces, "joined", {"axis": axis})


def _padded(writer: Writer, part: Part, rank: int, length: int) -> ir.Value:
    pads = np.zeros(2 * rank, np.int64)
    pads[part.axis], pads[rank + part.axis] = part.start, length - part.start - part.size
    return part.gradient if not pads.any() else writer.op("Pad", [part.gradient, pads], "padded")


def _gap(writer: Writer, size: Size, dims: Dims, axis: int, length: int) -> ir.Value:
    """Zeros with the sizes `dims`, but `length` elements along `axis`."""
    sizes = [length if i == axis else dim for i, dim in enumerate(dims)]
    pieces = [
        np.array([dim], np.int64) if isinstance(dim, int) else size(i)
        for i, dim in enumerate(sizes)
    ]
    return zeros(writer, writer.concat(pieces, 0, "sizes"))


def zeros(writer: Writer, sizes: Operand) -> ir.Value:
    """Zeros of the writer's type; `sizes` is 1-D int64."""
    fill = ir.tensor(np.zeros(1, writer.dtype.numpy()))
    return writer.op("ConstantOfShape", [sizes], "zeros", {"value": fill})
