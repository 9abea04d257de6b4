"""Adam, Adagrad and Momentum written as arithmetic, as their documents state it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.definitions.function_text import function
from ostinato.errors import ModelError
from ostinato.model.attributes import Attributes, describe
from ostinato.model.values import optional_input

_TYPES = {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}

_DOUBLE = ir.DataType.DOUBLE


class _Text:
    """The lines of a function body; expressions get names as they are written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[tuple[float, ir.DataType], str] = {}

    def op(self, op_type: str, *operands: str, result: str | None = None) -> str:
        """Write a node and return the name of its result."""
        name = result or f"v{len(self.lines)}"
        self.lines.append(f"{name} = {op_type} ({', '.join(operands)})")
        return name

    def number(self, value: float, dtype: ir.DataType) -> str:
        """A scalar, rounded to `dtype`."""
        key = value, dtype
        if key not in self._numbers:
            text = repr(float(np.array(value, dtype.numpy())))
            self._numbers[key] = self.op(f"Constant <value = {_TYPES[dtype]} {{{text}}}>")
        return self._numbers[key]

    def sum(self, *operands: str, result: str | None = None) -> str:
        return self.op("Add", *operands, result=result)

    def product(self, x: str, y: str) -> str:
        return self.op("Mul", x, y)

    def cast(self, x: str, dtype: ir.DataType) -> str:
        return self.op(f"Cast <to = {int(dtype)}>", x)


class _Update:
    """One optimizer node: two scalars, and tensors in groups (values, gradients, each state).

    The scalars are computed in float64: `1 - 0.999` has four digits less in float32.
    """

    def __init__(self, node: ir.Node, states: int) -> None:
        self.node, self.text = node, _Text()
        operands = len(node.inputs) - 2
        self.count, rest = divmod(operands, states + 2)
        if rest or self.count < 1:
            raise ModelError(
                f"node {describe(node)!r} ({node.op_type}): has {operands} tensors, expected "
                f"{states + 2} for each parameter: its value, its gradient and its states"
            )
        self.names = [f"i{position}" for position in range(len(node.inputs))]
        self.rate, self.step = (self._scalar(position) for position in (0, 1))

    def _scalar(self, position: int) -> str:
        value, name = optional_input(self.node, position), self.names[position]
        if value is None or value.shape is None or len(value.shape):
            name = self.text.op("Squeeze", name)
        return self.text.cast(name, _DOUBLE)

    def dtype(self, index: int) -> ir.DataType | None:
        """The element type of a parameter, None if it is not known or has no form here."""
        value = optional_input(self.node, 2 + index)
        return value.dtype if value is not None and value.dtype in _TYPES else None

    def tensors(self, index: int) -> tuple[str, ...]:
        """The value, the gradient and the states of a parameter."""
        return tuple(self.names[2 + index :: self.count])

    def give(self, index: int, group: int, *operation: str) -> str:
        """Write the last operation of a result: 0 is the new value, 1 the first state."""
        return self.text.op(*operation, result=f"o{group * self.count + index}")

    def regularized(self, index: int, coefficient: float, dtype: ir.DataType) -> str:
        """The gradient of the loss with `coefficient / 2 * ||X||^2` added."""
        x, gradient = self.tensors(index)[:2]
        if not coefficient:
            return gradient
        return self.text.sum(self.text.product(self.text.number(coefficient, dtype), x), gradient)

    def function(self, opset: int) -> onnx.FunctionProto:
        return function(self.node, opset, self.names, self.text.lines)


def adam(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """One step of Adam; None where types are not known.

    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html
    """
    reader = Attributes(node)
    alpha, beta = reader.float("alpha", 0.9), reader.float("beta", 0.999)
    epsilon, norm = reader.float("epsilon", 1e-6), reader.float("norm_coefficient", 0.0)
    post = reader.float("norm_coefficient_post", 0.0)
    reader.finish()
    update = _Update(node, states=2)
    text = update.text
    one = text.number(1, _DOUBLE)
    first, second = (
        text.op("Sub", one, text.op("Pow", text.number(decay, _DOUBLE), update.step))
        for decay in (alpha, beta)
    )
    adjusted = text.op("Div", text.product(update.rate, text.op("Sqrt", second)), first)
    started = text.op("Greater", update.step, text.number(0, _DOUBLE))
    wide_rate = text.op("Where", started, adjusted, update.rate)
    for index in range(update.count):
        dtype = update.dtype(index)
        if dtype is None:
            return None
        x, _, v, h = update.tensors(index)
        gradient = update.regularized(index, norm, dtype)
        v = _average(update, index, (alpha, v, gradient), dtype)
        scaled = text.product(text.number(1 - beta, dtype), gradient)
        kept = text.product(text.number(beta, dtype), h)
        h = update.give(index, 2, "Add", kept, text.product(scaled, gradient))
        root = text.sum(text.op("Sqrt", h), text.number(epsilon, dtype))
        change = text.op("Div", text.product(text.cast(wide_rate, dtype), v), root)
        if post:
            new = text.op("Sub", x, change)
            update.give(index, 0, "Mul", text.number(1 - post, dtype), new)
        else:
            update.give(index, 0, "Sub", x, change)
    return update.function(opset)


def _average(update: _Update, index: int, terms: tuple[float, str, str], dtype: ir.DataType) -> str:
    """The new running average, of the decay, the old one and the gradient: the first state."""
    decay, old, new = terms
    text = update.text
    kept = text.product(text.number(decay, dtype), old)
    return update.give(index, 1, "Add", kept, text.product(text.number(1 - decay, dtype), new))


def adagrad(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """One step of Adagrad; None where types are not known.

    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adagrad.html
    """
    reader = Attributes(node)
    epsilon, norm = reader.float("epsilon", 1e-6), reader.float("norm_coefficient", 0.0)
    decay = reader.float("decay_factor", 0.0)
    reader.finish()
    update = _Update(node, states=1)
    text = update.text
    slowed = text.product(update.step, text.number(decay, _DOUBLE))
    wide_rate = text.op("Div", update.rate, text.sum(text.number(1, _DOUBLE), slowed))
    for index in range(update.count):
        dtype = update.dtype(index)
        if dtype is None:
            return None
        x, _, h = update.tensors(index)
        gradient = update.regularized(index, norm, dtype)
        h = update.give(index, 1, "Add", h, text.product(gradient, gradient))
        root = text.sum(text.op("Sqrt", h), text.number(epsilon, dtype))
        change = text.op("Div", text.product(text.cast(wide_rate, dtype), gradient), root)
        update.give(index, 0, "Sub", x, change)
    return update.function(opset)


def momentum(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """One step of gradient descent with momentum, also Nesterov's; None without known types.

    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Momentum.html
    """
    reader = Attributes(node)
    alpha, beta = reader.float("alpha"), reader.float("beta")
    norm, mode = reader.float("norm_coefficient"), reader.string("mode")
    reader.finish()
    if mode not in ("standard", "nesterov"):
        raise ModelError(
            f"node {describe(node)!r} ({node.op_type}): mode={mode!r}, expected 'standard' or "
            "'nesterov'"
        )
    update = _Update(node, states=1)
    text = update.text
    started = text.op("Greater", update.step, text.number(0, _DOUBLE))
    for index in range(update.count):
        dtype = update.dtype(index)
        if dtype is None:
            return None
        x, _, v = update.tensors(index)
        gradient = update.regularized(index, norm, dtype)
        share = text.op("Where", started, text.number(beta, dtype), text.number(1, dtype))
        kept, fresh = text.product(text.number(alpha, dtype), v), text.product(share, gradient)
        v = update.give(index, 1, "Add", kept, fresh)
        if mode == "nesterov":
            v = text.sum(gradient, text.product(text.number(alpha, dtype), v))
        change = text.product(text.cast(update.rate, dtype), v)
        update.give(index, 0, "Sub", x, change)
    return update.function(opset)
