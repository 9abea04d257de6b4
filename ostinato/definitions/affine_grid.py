"""AffineGrid as sums of products, for any batch and any number of elements along an axis."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ostinato.definitions.function_text import FLOAT, function, size_of
from ostinato.model.attributes import Attributes
from ostinato.model.values import optional_input

_NAMES = ("theta", "size")


def affine_grid(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Each vector of the grid is `theta` times (x, y, 1) or (x, y, z, 1).

        grid[n, h, w, i] = theta[n, i, 0] x[w] + theta[n, i, 1] y[h] + theta[n, i, 2]

    (https://onnx.ai/onnx/operators/onnx__AffineGrid.html). Coordinates go from -1 to 1, between the
    outer edges of the elements or, with `align_corners`, their centres, where that of a single
    element is -1. The body of the schema fails for a batch of one image. Computed in float32, or
    wider where `theta` is. None where neither operand tells the rank, or the type is not known.
    """
    theta, size = optional_input(node, 0), optional_input(node, 1)
    if theta is None or theta.dtype is None:
        return None
    wide = int(ir.DataType.DOUBLE) if theta.dtype == ir.DataType.DOUBLE else FLOAT
    rank = size_of(theta, 1) or (size_of(size, 0) or 2) - 2
    if rank not in (2, 3):
        return None
    reader = Attributes(node)
    has_corners = bool(reader.int("align_corners", 0))
    reader.finish()
    columns = ", ".join(f"t{i}" for i in range(rank + 1))
    lines = [
        "zero = Constant <value_int = 0> ()",
        "one = Constant <value_int = 1> ()",
        "two = Constant <value_int = 2> ()",
        f"between = Constant <value_ints = {list(range(2, rank + 1))}> ()",
        f"typed = Cast <to = {wide}> (theta)",
        "turned = Transpose <perm = [0, 2, 1]> (typed)",
        "spread = Unsqueeze (turned, between)",
        f"{columns} = Split <axis = 1, num_outputs = {rank + 1}> (spread)",
        f"sum{rank} = Identity (t{rank})",
    ]
    for i in reversed(range(rank)):
        lines += _coordinates(i, rank, wide, has_corners)
        lines += [f"part{i} = Mul (t{i}, c{i})", f"sum{i} = Add (sum{i + 1}, part{i})"]
    lines.append(f"o0 = Cast <to = {int(theta.dtype)}> (sum0)")
    return function(node, opset, _NAMES, lines)


def _coordinates(number: int, rank: int, wide: int, has_corners: bool) -> list[str]:
    """Lines that make the coordinates of a number: x is 0, and belongs to the last spatial axis."""
    axis = rank - number
    others = [i for i in range(rank + 2) if i != axis]
    i = number
    lines = [
        f"axis{i} = Constant <value_int = {axis + 1}> ()",
        f"others{i} = Constant <value_ints = {others}> ()",
        f"count{i} = Gather (size, axis{i})",
        f"place{i} = Range (zero, count{i}, one)",
        f"twice{i} = Mul (place{i}, two)",
        f"before{i} = Sub (count{i}, one)",
    ]
    # Twice the distance from the centre, in elements; a single element is its own first one.
    lines += [
        f"room{i} = Max (before{i}, one)" if has_corners else f"room{i} = Identity (count{i})"
    ]
    middle = "room" if has_corners else "before"
    return [
        *lines,
        f"from{i} = Sub (twice{i}, {middle}{i})",
        f"number{i} = Cast <to = {wide}> (from{i})",
        f"whole{i} = Cast <to = {wide}> (room{i})",
        f"row{i} = Div (number{i}, whole{i})",
        f"c{i} = Unsqueeze (row{i}, others{i})",
    ]
