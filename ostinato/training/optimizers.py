"""Optimizers: how a parameter, its gradient and what is kept between steps give the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from ostinato.arguments import is_number
from ostinato.errors import OptionError
from ostinato.graph.writer import Writer

DOMAIN = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Update:
    """One parameter in one step.

    rate: the learning rate, float64 scalar. step: int64 scalar, 1 in the first step.
    states: of the shape of the parameter, zeros before the first step.
    """

    writer: Writer
    rate: ir.Value
    step: ir.Value
    parameter: ir.Value
    gradient: ir.Value
    states: tuple[ir.Value, ...]

    def operator(self, op_type: str, **attributes: float | str) -> tuple[ir.Value, ...]:
        """Write an operator of the training domain: the new parameter, then the new states."""
        writer = self.writer
        outputs = [writer.declare(role, None) for role in ("new", *["state"] * len(self.states))]
        for output in outputs:
            output.shape = self.parameter.shape
        operands = [self.rate, self.step, self.parameter, self.gradient, *self.states]
        writer.node(op_type, operands, outputs, attributes, domain=DOMAIN)
        return tuple(outputs)

    def own_rate(self) -> ir.Value:
        """The learning rate in the element type of the parameter."""
        dtype = self.writer.dtype
        return self.writer.op("Cast", [self.rate], "rate", {"to": int(dtype)})


class Optimizer:
    """Base of all optimizers; coefficients are stored as float32."""

    states: ClassVar[tuple[str, ...]] = ()
    """Names of the states kept for each parameter between steps."""

    def write(self, update: Update) -> tuple[ir.Value, ...]:
        """Write the nodes of one parameter; returns its next value, then its next states."""
        raise NotImplementedError


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise OptionError(message)


def _require_decay(name: str, value: float) -> None:
    holds = is_number(value) and 0 <= value < 1
    _require(holds, f"{name}={value!r}: expected a number from 0 to less than 1")


def _require_not_negative(name: str, value: float) -> None:
    holds = is_number(value) and 0 <= value < float("inf")
    _require(holds, f"{name}={value!r}: expected 0 or a positive number")


@dataclass(frozen=True)
class SGD(Optimizer):
    """`x - rate (g + weight_decay x)`."""

    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _require_not_negative("weight_decay", self.weight_decay)

    def write(self, update: Update) -> tuple[ir.Value, ...]:
        writer, gradient = update.writer, update.gradient
        if self.weight_decay:
            scaled = writer.op("Mul", [update.parameter, writer.scalar(self.weight_decay)], "decay")
            gradient = writer.op("Add", [gradient, scaled], "regularized")
        change = writer.op("Mul", [update.own_rate(), gradient], "change")
        return (writer.op("Sub", [update.parameter, change], "new"),)


@dataclass(frozen=True)
class Momentum(Optimizer):
    """Gradient descent along `v = momentum v + g`; `nesterov` along `g + momentum v` of the new v.

    weight_decay: `g` is the gradient plus this times the parameter.
    """

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    states = ("momentum",)

    def __post_init__(self) -> None:
        _require_decay("momentum", self.momentum)
        _require_not_negative("weight_decay", self.weight_decay)

    def write(self, update: Update) -> tuple[ir.Value, ...]:
        return update.operator(
            "Momentum",
            alpha=float(self.momentum),
            beta=1.0,
            norm_coefficient=float(self.weight_decay),
            mode="nesterov" if self.nesterov else "standard",
        )


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """`x - rate / (1 + (step - 1) decay) g / (sqrt(h) + epsilon)`, h the sum of all `g^2`.

    weight_decay: `g` is the gradient plus this times the parameter.
    """

    decay: float = 0.0
    epsilon: float = 1e-10
    weight_decay: float = 0.0

    states = ("squares",)

    def __post_init__(self) -> None:
        for name in ("decay", "epsilon", "weight_decay"):
            _require_not_negative(name, getattr(self, name))

    def write(self, update: Update) -> tuple[ir.Value, ...]:
        one = np.array(1, np.int64)
        before = update.writer.op("Sub", [update.step, one], "before", dtype=ir.DataType.INT64)
        counted = Update(
            update.writer, update.rate, before, update.parameter, update.gradient, update.states
        )
        return counted.operator(
            "Adagrad",
            decay_factor=float(self.decay),
            epsilon=float(self.epsilon),
            norm_coefficient=float(self.weight_decay),
        )


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam with corrected means (Kingma and Ba, "Adam: a method for stochastic optimization").

    beta1, beta2: decay of the means of gradients and of squared gradients.
    weight_decay: the gradient gets this times the parameter added.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    states = ("mean", "square")

    def __post_init__(self) -> None:
        _require_decay("beta1", self.beta1)
        _require_decay("beta2", self.beta2)
        for name in ("epsilon", "weight_decay"):
            _require_not_negative(name, getattr(self, name))

    def write(self, update: Update) -> tuple[ir.Value, ...]:
        return self._write(update, self.weight_decay)

    def _write(self, update: Update, norm: float) -> tuple[ir.Value, ...]:
        return update.operator(
            "Adam",
            alpha=float(self.beta1),
            beta=float(self.beta2),
            epsilon=float(self.epsilon),
            norm_coefficient=float(norm),
        )


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam after the parameter was multiplied by `1 - rate weight_decay`.

    Loshchilov and Hutter, "Decoupled weight decay regularization". The others are as in `Adam`.
    """

    weight_decay: float = 0.01

    def write(self, update: Update) -> tuple[ir.Value, ...]:
        writer = update.writer
        share = writer.op("Mul", [update.own_rate(), writer.scalar(self.weight_decay)], "share")
        kept = writer.op("Sub", [writer.scalar(1), share], "kept")
        decayed = writer.op("Mul", [update.parameter, kept], "decayed")
        decayed.shape = update.parameter.shape
        rest = (update.gradient, update.states)
        return self._write(Update(writer, update.rate, update.step, decayed, *rest), 0.0)


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Adam(),
    "adamw": AdamW(),
    "sgd": SGD(),
    "momentum": Momentum(),
    "adagrad": Adagrad(),
}
