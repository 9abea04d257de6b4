"""A case: a small model, feeds for it at several sizes, and what may be demanded of its results.

The same cases run against the oracle, against onnxruntime and in every mode of the compiler.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class In:
    """A run-time input. Integers are drawn from `low .. high - 1`, floats are normal times `scale`.

    values: elements to use instead; they are repeated to fill the shape. A name stands for what
        `sizes` of the run says.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    scale: float = 1.0
    low: int = 0
    high: int = 2
    values: Sequence[Any] | None = None

    def array(self, sizes: Sizes, random: np.random.Generator) -> Array:
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in self.shape)
        if self.values is not None:
            elements = [sizes[v] if isinstance(v, str) else v for v in self.values]
            return np.resize(np.array(elements, self.dtype), shape)
        if np.dtype(self.dtype).kind == "f":
            return np.asarray(self.scale * random.standard_normal(shape), self.dtype)
        return np.asarray(random.integers(self.low, self.high, shape), self.dtype)


@dataclass(frozen=True)
class Case:
    """A model, its inputs, and the demands on it.

    sizes: the run-time dimensions of each run of one and the same session.
    ulps: allowed error of an element, in units of its last place.
    length: number of terms that an element sums up; allows that many units of the largest element.
    native: whether all of it must compile; False lets nodes run on reference kernels.
    at_once: whether nothing may be left to be compiled when called.
    witness: whether onnxruntime has kernels for it that agree with the operator documents.
    batch: a run over N rows must have the bits of N runs over one, along the dimension "N".
    states: inputs that take the place of outputs when the dimension "T" is cut into chunks.
    expected: computes the outputs from the feeds where `tests.oracle.ops` does not.
    operator: the one that all of its model is, if it is one.
    every_mode: whether it runs in every mode of the compiler; False where its loops are those of
        other cases, with other constants or in another combination.
    """

    name: str
    build: Callable[[], onnx.ModelProto] = field(repr=False)
    inputs: Mapping[str, In] = field(repr=False)
    sizes: tuple[Sizes, ...] = ({},)
    ulps: float = 4
    length: float = 0
    native: bool = True
    at_once: bool = False
    witness: bool = True
    batch: bool = False
    states: Mapping[str, str] | None = None
    expected: Callable[[Mapping[str, Array]], list[Array]] | None = None
    operator: str | None = None
    every_mode: bool = True

    @cached_property
    def model(self) -> onnx.ModelProto:
        return self.build()

    def feeds(self, sizes: Sizes) -> dict[str, Array]:
        """The same arrays every time for these sizes."""
        key = f"{self.name} {sorted(sizes.items())}"
        random = np.random.default_rng(zlib.crc32(key.encode()))
        return {name: one.array(sizes, random) for name, one in self.inputs.items()}


def element_type(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, In],
    outputs: Sequence[str],
    constants: Mapping[str, Array],
    opset: int,
    ranks: Sequence[int] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "case",
        [
            helper.make_tensor_value_info(name, element_type(one.dtype), one.shape)
            for name, one in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, 4 + opset)
    )
    return _with_output_types(model, ranks)


def _with_output_types(model: onnx.ModelProto, ranks: Sequence[int]) -> onnx.ModelProto:
    """Output types come from inference, or for old operators without it are floats of a rank."""
    inferred = onnx.ModelProto()
    inferred.CopyFrom(model)
    names = [output.name for output in inferred.graph.output]
    del inferred.graph.output[:]
    inferred = onnx.shape_inference.infer_shapes(inferred, data_prop=True)
    known = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.input)}
    for initializer in inferred.graph.initializer:
        known[initializer.name] = helper.make_tensor_value_info(
            initializer.name, initializer.data_type, initializer.dims
        )
    del model.graph.output[:]
    for position, name in enumerate(names):
        info = known.get(name)
        if info is None or not info.type.tensor_type.HasField("shape"):
            unknown = [None] * ranks[position]
            info = helper.make_tensor_value_info(name, TensorProto.FLOAT, unknown)
        model.graph.output.append(info)
    return model


def node(
    name: str,
    op: str,
    *operands: In | Array | None,
    opset: int = 21,
    outputs: int = 1,
    sizes: tuple[Sizes, ...] = ({},),
    ulps: float = 4,
    length: float = 0,
    native: bool = True,
    witness: bool = True,
    batch: bool = False,
    ranks: Sequence[int] = (),
    **attributes: Any,
) -> Case:
    """A case of one node: operands are run-time inputs, constants, or None for absent ones.

    ranks: of the outputs, where onnx cannot infer them.
    """
    names = [f"x{i}" if operand is not None else "" for i, operand in enumerate(operands)]
    inputs = {n: o for n, o in zip(names, operands, strict=True) if isinstance(o, In)}
    constants = {
        n: np.asarray(o)
        for n, o in zip(names, operands, strict=True)
        if o is not None and not isinstance(o, In)
    }
    results = [f"y{i}" for i in range(outputs)]

    def build() -> onnx.ModelProto:
        made = helper.make_node(op, names, results, name="n", **attributes)
        return model_of([made], inputs, results, constants, opset, ranks)

    demands = {"ulps": ulps, "length": length, "native": native, "witness": witness, "batch": batch}
    return Case(f"{op}-{name}", build, inputs, sizes, operator=op, **demands)


def text(
    name: str,
    source: str,
    sizes: tuple[Sizes, ...] = ({},),
    *,
    constants: Mapping[str, Array] | None = None,
    inputs: Mapping[str, In] | None = None,
    opset: int = 21,
    **demands: Any,
) -> Case:
    """A case written as an ONNX graph; `inputs` says how to fill those that are no plain floats."""
    header = f'<ir_version: 10, opset_import: ["": {opset}]>\n'

    def build() -> onnx.ModelProto:
        model = onnx.parser.parse_model(header + source)
        for key, array in (constants or {}).items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), key))
        return model

    declared = {}
    for value in onnx.parser.parse_model(header + source).graph.input:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        shape = tuple(
            d.dim_param if d.HasField("dim_param") else d.dim_value for d in tensor.shape.dim
        )
        declared[value.name] = (inputs or {}).get(value.name, In(shape, dtype))
    return Case(name, build, declared, sizes, **demands)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def weights(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# A batch that is empty, of one row, not a multiple of any vector, and larger than a tile.
BATCHES: tuple[Sizes, ...] = ({"N": 3}, {"N": 1}, {"N": 0}, {"N": 37})
