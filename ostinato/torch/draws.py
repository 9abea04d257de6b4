"""Random numbers of a module as inputs of its model, which PyTorch draws for every call.

So a seed gives the numbers that the module itself would draw, for most operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import supersede
from ostinato.graph.random import may_draw
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import optional_input
from ostinato.passes.pipeline import PASSES, run_passes
from ostinato.torch.drawing import METHOD, fill

# Functions in expressions of sizes.
_NAMES = {"__builtins__": {"max": max, "min": min, "Max": max, "Min": min}, "floor": math.floor}
_WITHIN = (
    "draws random numbers within a loop or a branch, or of a size that data decide: every call "
    "would draw the same; call eval() before, or pass the numbers"
)


# With these, sizes that the exporter computes are known.
_SETTLING = [
    item for item in PASSES if item.name in ("lift_constants", "infer_shapes", "constant_folding")
]


@dataclass(frozen=True)
class Kind:
    """Numbers that are drawn alike: a method of tensors, its arguments, a factor, type and shape.

    shape: numbers, and expressions of names of `Draws.sizes`.
    """

    method: str
    arguments: tuple[float, ...]
    factor: float
    dtype: torch.dtype
    shape: tuple[int | str, ...]


@dataclass
class Draws:
    """The inputs behind all others, one for each kind of numbers.

    An input has an axis in front for how often its kind is drawn, so that steps of a loop that was
    written out read rows of one tensor. order: of the draws, the place of the kind and the row.
    sizes: names of sizes, with an input and its axis.
    """

    kinds: dict[Kind, int] = field(default_factory=dict)
    order: list[tuple[int, int]] = field(default_factory=list)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, kind: Kind) -> tuple[int, int]:
        """Note that a kind is drawn once more; returns its place and the row."""
        row = self.kinds.get(kind, 0)
        self.kinds[kind] = row + 1
        self.order.append(([*self.kinds].index(kind), row))
        return self.order[-1]

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Draw for a call with these inputs."""
        if not self.order:
            return []
        names = {n: tensors[place].shape[axis] for n, (place, axis) in self.sizes.items()}
        made = [
            torch.empty((count, *_sizes(kind.shape, names)), dtype=kind.dtype)
            for kind, count in self.kinds.items()
        ]
        kinds = [*self.kinds]
        with torch.no_grad():
            for place, row in self.order:
                fill(made[place][row], kinds[place].method, kinds[place].arguments)
            for kind, numbers in zip(kinds, made, strict=True):
                if kind.factor != 1:
                    numbers.mul_(kind.factor)
        return made


def take(model: ir.Model) -> Draws:
    """Replace the nodes of `model` that draw numbers by inputs.

    Raises `UnsupportedError` for a node whose numbers cannot be drawn before the call.
    """
    draws = Draws()
    nodes = [node for node in model.graph if may_draw(node) or _is_of_attention(node)]
    if not nodes:
        return draws
    run_passes(model, passes=_SETTLING)
    nodes = [node for node in model.graph if may_draw(node) or _is_of_attention(node)]
    for place, value in enumerate(model.graph.inputs):
        for axis, size in enumerate(value.shape or ()):
            if isinstance(size, ir.SymbolicDim) and str(size.value).isidentifier():
                draws.sizes.setdefault(str(size.value), (place, axis))
    names = Names(model)
    gathers = [_replace(node, draws, names, model) for node in nodes]
    for number, (kind, count) in enumerate(draws.kinds.items()):
        value = ir.Value(
            name=names.fresh("drawn"),
            shape=ir.Shape([count, *kind.shape]),
            type=ir.TensorType(ir.tensor_adapters.from_torch_dtype(kind.dtype)),
        )
        model.graph.inputs.append(value)
        for gather, (own, _) in zip(gathers, draws.order, strict=True):
            if own == number:
                gather.replace_input_with(0, value)
    return draws


def _is_of_attention(node: ir.Node) -> bool:
    """Whether the exporter made this Dropout of attention, which always drops elements.

    It leaves out the input that says so.
    """
    return node.op_type == "Dropout" and len(node.inputs) == 2 and _number(node, 1, 0.5) > 0


def _number(node: ir.Node, place: int, default: float) -> float:
    """A constant input."""
    value = optional_input(node, place)
    if value is None:
        return default
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None:
        raise UnsupportedError(describe(node), node.op_type, "its ratio depends on data")
    return float(tensor.numpy())


def _same_number(value: ir.Value | None) -> float | None:
    """The number that a constant, or one that is expanded, has everywhere."""
    node = None if value is None else value.producer()
    if node is not None and node.op_type in ("Cast", "CastLike", "Expand"):
        return _same_number(node.inputs[0])
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    numbers = None if tensor is None else np.unique(tensor.numpy())
    return None if numbers is None or numbers.size != 1 else float(numbers[0])


def _shape(node: ir.Node, draws: Draws) -> tuple[int | str, ...]:
    """The shape of what `node` gives."""
    shape = node.outputs[0].shape
    if shape is None and node.inputs and node.inputs[0] is not None:
        shape = node.inputs[0].shape
    try:
        sizes = tuple(map(_size, shape or ()))
        _sizes(sizes, dict.fromkeys(draws.sizes, 2))
    except Exception:
        shape = None
    if shape is None:
        raise UnsupportedError(describe(node), node.op_type, _WITHIN)
    return sizes


def _size(size: int | ir.SymbolicDim) -> int | str:
    text = str(getattr(size, "value", size))
    return int(text) if text.isdecimal() else text


def _sizes(shape: Sequence[int | str], names: Mapping[str, int]) -> list[int]:
    """Sizes as numbers: each is one, or an expression of `names`."""
    return [s if isinstance(s, int) else int(eval(s, dict(_NAMES), dict(names))) for s in shape]


def _replace(node: ir.Node, draws: Draws, names: Names, model: ir.Model) -> ir.Node:
    """Compute what `node` gives from a row of numbers; returns the node that reads that row.

    What it reads is put in when all rows are known.
    """
    first, *others = node.outputs
    dtype = first.dtype or (node.inputs[0].dtype if node.inputs and node.inputs[0] else None)
    if dtype is None:
        raise UnsupportedError(describe(node), node.op_type, _WITHIN)
    kind = _kind(node, dtype, _shape(node, draws))
    _, row = draws.add(kind)
    writer = Writer(model.graph, names, opset_of(model), dtype, describe(node))
    drawn = writer.declare("drawn", None, ir.tensor_adapters.from_torch_dtype(kind.dtype))
    drawn.shape, place = ir.Shape(kind.shape), np.array(row, np.int64)
    gather = writer.node("Gather", [place, place], [drawn], {"axis": 0})
    result, operand = drawn, node.inputs[0] if node.inputs else None
    if node.op_type == "Dropout" and operand is not None:
        result = writer.op("Mul", [operand, drawn], "kept")
    elif kind.method == "uniform_" and node.op_type == "Bernoulli" and operand is not None:
        less = writer.op("Less", [drawn, operand], "less", dtype=ir.DataType.BOOL)
        result = writer.op("Cast", [less], "one", {"to": int(dtype)})
    results = [result]
    if others:
        zero = writer.scalar(0)
        results.append(writer.op("Greater", [drawn, zero], "mask", dtype=ir.DataType.BOOL))
    supersede(node, results, writer.nodes)
    return gather


def _kind(node: ir.Node, dtype: ir.DataType, shape: tuple[int | str, ...]) -> Kind:
    """The numbers that PyTorch draws for a node."""
    drawn = ir.tensor_adapters.to_torch_dtype(dtype)
    if METHOD in node.metadata_props:
        method, *arguments = node.metadata_props[METHOD].split()
        return Kind(method, tuple(map(float, arguments)), 1.0, drawn, shape)
    if node.op_type == "Dropout":
        chance = 1 - _number(node, 1, 0.5)
        return Kind("bernoulli_", (chance,), 1 / chance if chance else 0.0, drawn, shape)
    if node.op_type in ("RandomUniform", "RandomUniformLike"):
        ends = tuple(node.attributes.get_float(*end) for end in (("low", 0.0), ("high", 1.0)))
        return Kind("uniform_", ends, 1.0, drawn, shape)
    if node.op_type in ("RandomNormal", "RandomNormalLike"):
        settings = tuple(node.attributes.get_float(*one) for one in (("mean", 0.0), ("scale", 1.0)))
        return Kind("normal_", settings, 1.0, drawn, shape)
    if node.op_type == "Bernoulli":
        chance_of_all = _same_number(node.inputs[0])
        if chance_of_all is None:
            return Kind("uniform_", (0.0, 1.0), 1.0, drawn, shape)
        return Kind("bernoulli_", (chance_of_all,), 1.0, drawn, shape)
    raise UnsupportedError(describe(node), node.op_type, _WITHIN)
