"""Adam, Adagrad and Momentum written as arithmetic, as their documents state it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.definitions.function_text import function
from ostinato.errors import ModelError
from ostinato.model.attributes import Attributes, describe
from ostinato.model.values import optional_input

_TYPES = {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}

# What all parameters share is computed in float64: `1 - 0.999` has four digits less in float32.
# R and T are the rate and the step of the node.
_SHARED = """
    rate = Cast <to = TYPE> (R)  step = Cast <to = TYPE> (T)  started = Greater (step, zero)
"""
# The gradient of the loss with `norm / 2 * ||X||^2` added.
_REGULARIZED = "weighted = Mul (norm, x)  gradient = Add (weighted, g)"


def adam(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """One step of Adam; None where types are not known.

    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html
    """
    reader = Attributes(node)
    alpha, beta = reader.float("alpha", 0.9), reader.float("beta", 0.999)
    epsilon, norm = reader.float("epsilon", 1e-6), reader.float("norm_coefficient", 0.0)
    post = reader.float("norm_coefficient_post", 0.0)
    reader.finish()
    shared = """
        alphas = Pow (alpha, step)  first = Sub (one, alphas)
        betas = Pow (beta, step)  second = Sub (one, betas)
        root = Sqrt (second)  faster = Mul (rate, root)  adjusted = Div (faster, first)
        speed = Where (started, adjusted, rate)
    """
    update = """
        old_v = Mul (alpha, v)  fresh_v = Mul (rest_alpha, gradient)  new_v = Add (old_v, fresh_v)
        scaled = Mul (rest_beta, gradient)  squared = Mul (scaled, gradient)
        old_h = Mul (beta, h)  new_h = Add (old_h, squared)
        spread = Sqrt (new_h)  divisor = Add (spread, epsilon)
        own_speed = Cast <to = TYPE> (speed)  moved = Mul (own_speed, new_v)
        change = Div (moved, divisor)  after = Sub (x, change)
    """
    update += "new_x = Mul (rest_post, after)" if post else "new_x = Identity (after)"
    numbers = {"alpha": alpha, "rest_alpha": 1 - alpha, "beta": beta, "rest_beta": 1 - beta}
    numbers |= {"epsilon": epsilon, "norm": norm, "rest_post": 1 - post}
    return _written(node, opset, "xgvh", numbers, shared, update)


def adagrad(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """One step of Adagrad; None where types are not known.

    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adagrad.html
    """
    reader = Attributes(node)
    epsilon, norm = reader.float("epsilon", 1e-6), reader.float("norm_coefficient", 0.0)
    decay = reader.float("decay_factor", 0.0)
    reader.finish()
    shared = "slowed = Mul (step, decay)  slower = Add (one, slowed)  speed = Div (rate, slower)"
    update = """
        squared = Mul (gradient, gradient)  new_h = Add (h, squared)
        spread = Sqrt (new_h)  divisor = Add (spread, epsilon)
        own_speed = Cast <to = TYPE> (speed)  moved = Mul (own_speed, gradient)
        change = Div (moved, divisor)  new_x = Sub (x, change)
    """
    numbers = {"epsilon": epsilon, "norm": norm, "decay": decay}
    return _written(node, opset, "xgh", numbers, shared, update)


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
    update = """
        share = Where (started, beta, one)  fresh = Mul (share, gradient)
        old_v = Mul (alpha, v)  new_v = Add (old_v, fresh)
        ahead = Mul (alpha, new_v)  nesterov = Add (gradient, ahead)  standard = Identity (new_v)
        own_rate = Cast <to = TYPE> (rate)  change = Mul (own_rate, MODE)  new_x = Sub (x, change)
    """
    numbers = {"alpha": alpha, "beta": beta, "norm": norm}
    return _written(node, opset, "xgv", numbers, "", update.replace("MODE", mode))


def _written(
    node: ir.Node, opset: int, groups: str, numbers: Mapping[str, float], shared: str, update: str
) -> onnx.FunctionProto | None:
    """A function of lines that all parameters share and an update of each.

    groups: letters for a parameter's value, its gradient and its states; what an update gives has
    `new_` in front. numbers: constants, rounded to the type of what they meet.
    """
    operands = len(node.inputs) - 2
    count, rest = divmod(operands, len(groups))
    if rest or count < 1:
        raise ModelError(
            f"node {describe(node)!r} ({node.op_type}): has {operands} tensors, expected "
            f"{len(groups)} for each parameter: its value, its gradient and its states"
        )
    inputs = [f"i{position}" for position in range(len(node.inputs))]
    given = [optional_input(node, 2 + index) for index in range(count)]
    dtypes = [None if value is None else value.dtype for value in given]
    numbers = {"zero": 0.0, "one": 1.0, **numbers}
    lines = [_scalar(node, position, name) for position, name in enumerate("RT")]
    for dtype in dict.fromkeys([ir.DataType.DOUBLE, *dtypes]):
        if dtype is None or dtype not in _TYPES:
            return None
        for name, number in numbers.items():
            text = repr(float(np.array(number, dtype.numpy())))
            constant = f"Constant <value = {_TYPES[dtype]} {{{text}}}>"
            lines.append(f"{name}_{_TYPES[dtype]} = {constant} ()")
    lines.append(_in_type(_SHARED + shared, ir.DataType.DOUBLE, numbers))
    regularized = _REGULARIZED if numbers["norm"] else "gradient = Identity (g)"
    text = f"{regularized} {update}"
    results = [letter for letter in groups if letter != "g"]
    for index, dtype in enumerate(dtypes):
        assert dtype is not None
        names = {name: f"{name}{index}" for name in re.findall(r"(\w+) =", text) if name != "to"}
        names |= {f"new_{x}": f"o{place * count + index}" for place, x in enumerate(results)}
        names |= dict(zip(groups, inputs[2 + index :: count], strict=True))
        lines.append(_renamed(_in_type(text, dtype, numbers), names))
    return function(node, opset, inputs, lines)


def _scalar(node: ir.Node, position: int, name: str) -> str:
    """The line that names an operand of one element as a scalar."""
    value = optional_input(node, position)
    is_scalar = value is not None and value.shape is not None and not len(value.shape)
    return f"{name} = {'Identity' if is_scalar else 'Squeeze'} (i{position})"


def _in_type(text: str, dtype: ir.DataType, numbers: Mapping[str, float]) -> str:
    """The lines with the numbers, and `TYPE`, of this type."""
    return _renamed(text, {"TYPE": str(int(dtype))} | {n: f"{n}_{_TYPES[dtype]}" for n in numbers})


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda match: names.get(match[0], match[0]), text)
