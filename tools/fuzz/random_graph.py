"""What random models are made with: typed values of known shapes, and a graph that grows.

Values carry their concrete shapes, so every node is valid by construction. What can jump when its
input moves by a rounding error (comparisons, indices, conversions to integers) reads exact values
only: inputs are multiples of 1/4, and sums, bounds and moves of them stay exact. Runtimes that
follow the specification then differ by rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools.fuzz.choosing import Chooser

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

OPSET = 18
DOMAIN = "local"
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int8", "uint8", "int16", "uint64", "uint16", "uint32")
DTYPES = (*FLOATS, *INTEGERS, "bool")
LIKELY = (
    ("float32",) * 10 + ("int64",) * 3 + ("float64", "int32", "bool", "uint8", "int8", "float16")
)
MOST_ELEMENTS = 400


@dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    is_exact: every runtime computes the same bits.
    """

    name: str
    dtype: str
    shape: Shape
    is_exact: bool

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass
class Counter:
    """Names are unique in the whole model."""

    number: int = 0

    def next(self) -> str:
        self.number += 1
        return f"v{self.number}"


@dataclass
class Builder(Chooser):
    """One graph that grows; `outer` is the one around it, whose values it captures."""

    names: Counter
    functions: dict[str, onnx.FunctionProto]
    depth: int = 0
    outer: Builder | None = None
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    # Choosing

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value, newer ones more often. Raises `LookupError`."""
        own = [value for value in self.values if fits(value)]
        if self.outer is not None and (not own or self.chance(0.3)):
            try:
                return self.outer.pick(fits)
            except LookupError:
                if not own:
                    raise
        if not own:
            raise LookupError
        return own[int(len(own) * self.random.random() ** 0.6)]

    def axis(self, value: Value) -> int:
        """An axis, counted from either end."""
        axis = int(self.random.integers(len(value.shape)))
        return axis - len(value.shape) if self.chance(0.3) else axis

    # Writing

    def add(
        self, op: str, inputs: Sequence[str], like: tuple[str, Shape, bool], **attributes: Any
    ) -> Value:
        return self.add_several(op, inputs, [like], **attributes)[0]

    def add_several(
        self,
        op: str,
        inputs: Sequence[str],
        likes: Sequence[tuple[str, Shape, bool]],
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        made = [Value(self.names.next(), *like) for like in likes]
        if any(value.size > MOST_ELEMENTS for value in made):
            raise LookupError
        name = f"{op.lower()}_{self.names.next()}"
        outputs = [value.name for value in made]
        self.nodes.append(
            helper.make_node(op, list(inputs), outputs, name=name, domain=domain, **attributes)
        )
        self.values += made
        return made

    def constant(self, array: Any, is_value: bool = False) -> str:
        array = np.asarray(array)
        name = self.names.next()
        if self.chance(0.3):
            tensor = numpy_helper.from_array(array, "")
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.constants.append(numpy_helper.from_array(array, name))
        if is_value:
            self.values.append(Value(name, array.dtype.name, array.shape, True))
        return name

    def data(self, dtype: str, shape: Shape) -> Array:
        return random_data(self.random, dtype, shape)


def random_data(random: np.random.Generator, dtype: str, shape: Shape) -> Array:
    """Small numbers; floats are multiples of 1/4."""
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    low = 0 if dtype.startswith("u") else -8
    numbers = random.integers(low, 9, shape)
    return np.asarray(numbers / 4 if dtype in FLOATS else numbers, dtype)


def two(
    b: Builder, fits: Callable[[Value], bool] = lambda value: True
) -> tuple[Value, Value, Shape]:
    """Two values of one type that broadcast."""
    x = b.pick(fits)

    def beside(v: Value) -> bool:
        if v.dtype != x.dtype or not fits(v):
            return False
        try:
            return math.prod(np.broadcast_shapes(v.shape, x.shape)) <= MOST_ELEMENTS
        except ValueError:
            return False

    y = b.pick(beside)
    return (x, y, np.broadcast_shapes(x.shape, y.shape))


OPERATORS: list[Callable[[Builder], None]] = []
"""What adds nodes, as often as it is to be chosen; see `operator`."""


def operator(weight: int) -> Callable[[Callable[[Builder], None]], Callable[[Builder], None]]:
    """Register a function that adds nodes, or raises `LookupError` where nothing fits."""

    def register(function: Callable[[Builder], None]) -> Callable[[Builder], None]:
        OPERATORS.extend([function] * weight)
        return function

    return register


def grow(
    b: Builder, count: int = 1, operators: Sequence[Callable[[Builder], None]] = OPERATORS
) -> None:
    """Add what so many operators need; less where nothing fits."""
    for _ in range(count):
        for _ in range(5):
            values, nodes, constants = len(b.values), len(b.nodes), len(b.constants)
            try:
                b.choose(operators)(b)
                break
            except LookupError:
                del b.values[values:], b.nodes[nodes:], b.constants[constants:]
