"""One node of any operator, in any version, with the values that are rarely given.

A recipe draws the operands and attributes of an operator as its version in the opset has them:
limits of integers, NaN and infinities, axes without elements, indices from either end, settings
that models seldom have. Operands are inputs or constants, sizes are dimensions or numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from ostinato.element_types import onnx_name
from tools.fuzz.choosing import Chooser

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FIRST_OPSET, LAST_OPSET = 7, onnx.defs.onnx_opset_version()
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64", "float16", "bfloat16")
NUMBERS = (*FLOATS, *SIGNED, *UNSIGNED)
EVERY = (*NUMBERS, "bool")
INDICES = ("int64", "int32")
NARROW = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int4", "uint4")
STRANGE = (np.nan, np.inf, -np.inf, -0.0, 0.0, 0.0, 1e-40, 3e38, -3e38, 0.5, 1.5, 2.5, -2.5, 1e10)


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of a name, those of `ml_dtypes` included."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


@dataclass
class Drawn:
    """A node: `operands` are arrays, or None for one that is left out."""

    op: str
    operands: Sequence[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


@dataclass
class Drawer(Chooser):
    """Draws operands for a node of an opset."""

    opset: int

    def number(self, least: int, most: int) -> int:
        """From `least` to `most`, both included."""
        return int(self.random.integers(least, most + 1))

    def type(self, op: str, names: Sequence[str], place: int = 0) -> str:
        """A type out of `names` that the operand of this version of an operator may have."""
        schema = onnx.defs.get_schema(op, self.opset)
        allowed = schema.inputs[min(place, len(schema.inputs) - 1)].types
        fitting = [name for name in names if f"tensor({onnx_name(name)})" in allowed]
        if not fitting:
            raise LookupError
        return str(self.choose(fitting))

    def shape(self, least: int = 0, most: int = 4, empty: float = 0.1) -> Shape:
        """Sizes of so many axes; one has no elements as often as `empty`."""
        sizes = [self.choose((1, 2, 3, 4, 5, 7, 17)) for _ in range(self.number(least, most))]
        if sizes and self.chance(empty):
            sizes[self.number(0, len(sizes) - 1)] = 0
        while math.prod(sizes) > 2000:
            sizes[int(np.argmax(sizes))] = 2
        return tuple(sizes)

    def data(self, dtype: str, shape: Shape, strange: float = 0.0) -> Array:
        """Small numbers, floats in quarters; as often as `strange` the rarest ones instead."""
        real = dtype_of(dtype)
        if dtype == "bool":
            return np.asarray(self.random.random(shape) < 0.5)
        is_float = dtype in FLOATS or dtype.startswith("float")
        low = 0 if dtype.startswith("u") else -8
        small = self.random.integers(low, 8 if dtype.endswith("int4") else 9, shape)
        with np.errstate(all="ignore"):
            array = np.asarray(small / 4 if is_float else small).astype(real)
            if self.chance(0.5):
                rare = np.asarray(self.random.random(shape) < strange)
                array = np.where(rare, self._strange(dtype, real, is_float, shape), array)
        return np.asarray(array, real)

    def _strange(self, name: str, real: np.dtype[Any], is_float: bool, shape: Shape) -> Array:
        if is_float:
            values: Any = np.array(STRANGE)
        else:
            limits = ml_dtypes.iinfo(real) if name.endswith("int4") else np.iinfo(real)
            lowest, highest = int(limits.min), int(limits.max)
            values = np.array([lowest, lowest + 1, 0, 1, highest - 1, highest], object)
        # Few of them: a huge element hides differences of others.
        values = values[self.random.integers(0, len(values), 3)]
        chosen = values[self.random.integers(0, len(values), shape)]
        return np.asarray(chosen).astype(real)

    def broadcast(self, shape: Shape) -> Shape:
        """A shape that broadcasts with `shape`, of fewer axes or with some of one element."""
        kept = shape[self.number(0, len(shape)) :] if self.chance(0.4) else shape
        return tuple(1 if self.chance(0.3) else n for n in kept)

    def axis(self, shape: Shape, more: int = 0) -> int:
        """An axis counted from either end."""
        rank = len(shape) + more
        if rank == 0:
            raise LookupError
        return self.number(-rank, rank - 1)

    def axes(self, shape: Shape) -> list[int]:
        """Some axes, each once, counted from either end, in any order."""
        rank = len(shape)
        chosen = self.random.permutation(rank)[: self.number(0, rank)]
        return [int(a) - (rank if self.chance(0.4) else 0) for a in chosen]

    def places(self, size: int, shape: Shape, dtype: str = "int64") -> Array:
        """Indices into an axis of `size`, some counted from its end."""
        if size == 0 and 0 not in shape:
            raise LookupError
        return np.asarray(self.random.integers(-size, max(size, 1), shape), dtype)

    def flag(self) -> int:
        """0 or 1."""
        return self.number(0, 1)


R = TypeVar("R")
Recipe = Callable[[Drawer], Drawn]
RECIPES: list[tuple[int, Recipe]] = []


def registering(recipes: list[tuple[int, R]]) -> Callable[..., Callable[[R], R]]:
    """A decorator, with a weight, of what draws a node; `LookupError` says that there is none."""

    def weighted(weight: int = 1) -> Callable[[R], R]:
        def register(function: R) -> R:
            recipes.append((weight, function))
            return function

        return register

    return weighted


recipe = registering(RECIPES)


def random_node(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and its inputs."""
    random = np.random.default_rng(seed)
    while True:
        opset = int(random.integers(FIRST_OPSET, LAST_OPSET + 1))
        drawer = Drawer(random, opset)
        drawn = drawer.weighed(RECIPES)
        try:
            with np.errstate(all="ignore"):
                return model_of(drawer, drawn(drawer), f"node{seed}")
        except (LookupError, onnx.defs.SchemaError):
            continue


def model_of(drawer: Drawer, drawn: Drawn, name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model of a node. Raises `LookupError` if the node is not valid."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(drawn.operands)]
    results = [f"y{i}" for i in range(drawn.outputs)]
    node = helper.make_node(drawn.op, names, results, name="node")
    for key, value in drawn.attributes.items():
        kind = onnx.AttributeProto.INTS if isinstance(value, list) and not value else None
        node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
    feeds, infos, constants = {}, [], []
    constant = drawer.choose((0.0, 0.3, 0.7))
    for number, (at, array) in enumerate(zip(names, drawn.operands, strict=True)):
        if array is None:
            continue
        if drawer.chance(constant) and (number or drawer.chance(0.2)):
            constants.append(numpy_helper.from_array(np.asarray(array), at))
            continue
        feeds[at] = array
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        is_open = drawer.chance(0.4)
        sizes = [f"{at}_{i}" if is_open else n for i, n in enumerate(array.shape)]
        infos.append(helper.make_tensor_value_info(at, kind, sizes))
    outputs = [helper.make_empty_tensor_value_info(result) for result in results]
    graph = helper.make_graph([node], name, infos, outputs, constants)
    opsets = [helper.make_opsetid("", drawer.opset)]
    version = max(10, helper.find_min_ir_version_for(opsets))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
    try:
        model = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        kinds = [output.type.tensor_type for output in model.graph.output]
        for output, kind in zip(model.graph.output, kinds, strict=True):
            if not kind.elem_type:
                raise LookupError
            rank = None if not kind.HasField("shape") else [None] * len(kind.shape.dim)
            made = helper.make_tensor_value_info(output.name, kind.elem_type, rank)
            output.CopyFrom(made)
        onnx.checker.check_model(model)
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise LookupError from error
    return model, feeds
