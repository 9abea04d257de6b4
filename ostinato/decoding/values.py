"""Values with the shape of an input of a step, as ONNX nodes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ostinato.decoding.fragments import PREFIX, nodes
from ostinato.decoding.step import Port, Step


class Values:
    """Values for `rows` rows, the name of an int64[1], of the inputs of a step.

    Where a method takes `growing`, it is the extent of axes that grow: a number, or the name of an
    int64[1].
    """

    def __init__(self, step: Step, rows: str) -> None:
        self._step, self._rows = step, rows

    def zeros(self, port: Port, target: str) -> list[onnx.NodeProto]:
        """The first value of a state: nothing along the axes that grow."""
        made, shape = self._shape(port, 0, target)
        zero = helper.make_tensor("value", port.dtype, [1], [0])
        return [*made, helper.make_node("ConstantOfShape", [shape], [target], target, value=zero)]

    def filled(
        self, port: Port, value: str, growing: int | str, target: str
    ) -> list[onnx.NodeProto]:
        """The number of a fragment, int64[] or of a shape that broadcasts, everywhere."""
        made, shape = self._shape(port, growing, target)
        text = f"whole = Expand({value}, shape)  target = Cast<to = {port.dtype}>(whole)"
        names = {"shape": shape, "whole": f"{target} as int64", "target": target}
        return [*made, *nodes(text, names)]

    def _shape(
        self, port: Port, growing: int | str, target: str
    ) -> tuple[list[onnx.NodeProto], str]:
        rows, axes = self._step.batch_axis(port), self._step.growing_axes(port)
        extents = [growing if axis in axes else dim for axis, dim in enumerate(port.dims)]
        if rows is not None:
            extents[rows] = self._rows
        name, made, parts = f"{PREFIX}shape of {target}", [], []
        for axis, extent in enumerate(extents):
            part = f"{name} {axis}" if isinstance(extent, int) else extent
            if isinstance(extent, int):
                made += [_constant(part, [extent])]
            parts.append(part)
        if parts:
            return [*made, helper.make_node("Concat", parts, [name], name, axis=0)], name
        return [_constant(name, [])], name


def declared(name: str, port: Port) -> onnx.ValueInfoProto:
    """A value of a body, whose named axes may differ from those outside."""
    dims = [None if isinstance(dim, str) else dim for dim in port.dims]
    return helper.make_tensor_value_info(name, port.dtype, dims)


def _constant(name: str, elements: list[int]) -> onnx.NodeProto:
    array = numpy_helper.from_array(np.array(elements, np.int64))
    return helper.make_node("Constant", [], [name], name, value=array)
