"""The axes that Squeeze and Unsqueeze name."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ostinato.model.values import constant_array, optional_input


def named_axes(node: ir.Node) -> list[int] | None:
    """The axes that are an attribute or an operand of a node; None if no constant tells them."""
    if "axes" in node.attributes:
        return list(node.attributes.get_ints("axes", ()))
    array = constant_array(optional_input(node, 1))
    return None if array is None else [int(axis) for axis in array.reshape(-1)]


def positions_of(axes: Sequence[int], rank: int) -> list[int] | None:
    """The places of axes, which count from the end if they are negative; None if one is no axis."""
    if not all(-rank <= axis < rank for axis in axes):
        return None
    found = [axis % rank for axis in axes]
    return found if len({*found}) == len(found) else None
