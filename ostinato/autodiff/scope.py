"""One graph whose nodes are visited in reverse, and what is known of its gradients so far."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Arithmetic, Term
from ostinato.autodiff.contributions import Contribution, Dims, total, zeros
from ostinato.autodiff.stops import flowing
from ostinato.autodiff.unbroadcast import unbroadcast
from ostinato.graph.writer import Operand, Writer
from ostinato.model.graphs import is_standard
from ostinato.model.names import Names
from ostinato.model.values import dims_of


def is_float(value: ir.Value) -> bool:
    """Whether the value can have a gradient."""
    return value.dtype is not None and value.dtype.is_floating_point()


def depends(graph: ir.Graph, sources: Iterable[ir.Value]) -> set[ir.Value]:
    """The sources, and the values that nodes of `graph` make from them which have a gradient.

    These are floats, whole numbers that floats were rounded to, and what has no known type.
    """
    found = set(sources)
    for node in graph:
        if any(value in found for value in flowing(node)):
            is_rounded = is_standard(node, "QuantizeLinear")
            found.update(v for v in node.outputs if is_rounded or v.dtype is None or is_float(v))
    return found


class Scope:
    """The reverse sweep over one graph.

    graph: the graph that is differentiated. root: where constants are put.
    wanted: values of it, and of graphs around it, whose gradient is of use.
    nodes: what the sweep wrote, in order.
    """

    def __init__(
        self, graph: ir.Graph, root: ir.Graph, names: Names, opset: int, wanted: set[ir.Value]
    ) -> None:
        self.graph, self.root, self.names, self.opset = graph, root, names, opset
        self.wanted = wanted
        self.nodes: list[ir.Node] = []
        self._contributions: dict[ir.Value, list[Contribution]] = {}
        self._totals: dict[ir.Value, ir.Value] = {}

    def writer(self, dtype: ir.DataType | None, prefix: str) -> Writer:
        """A writer whose nodes come next in the reverse sweep."""
        writer = Writer(self.root, self.names, self.opset, dtype or ir.DataType.FLOAT, prefix)
        writer.nodes = self.nodes
        return writer

    def forward(self, value: ir.Value) -> ir.Value:
        """Give what the sweep reads in place of `value`, of the graph or one around it."""
        return value

    def size(self, value: ir.Value, axis: int, writer: Writer) -> Operand:
        """The size of `value` along `axis`: 1-D int64, one element, an array when it is known."""
        dims = dims_of(value)
        known = None if dims is None else dims[axis]
        if isinstance(known, int):
            return np.array([known], np.int64)
        return writer.size(self.forward(value), axis)

    def sizes(self, value: ir.Value, writer: Writer) -> Operand:
        """All sizes of `value`: 1-D int64, an array when they are known."""
        dims = dims_of(value)
        if dims is not None and all(isinstance(size, int) for size in dims):
            return np.array(dims, np.int64)
        return writer.op("Shape", [self.forward(value)], "shape", dtype=ir.DataType.INT64)

    def has_gradient(self, value: ir.Value) -> bool:
        """Whether anything was added to the gradient of `value`."""
        return value in self._contributions

    def add(self, value: ir.Value, contribution: Contribution) -> None:
        """Add to the gradient of `value`. All its readers are visited before its maker."""
        self._contributions.setdefault(value, []).append(contribution)

    def add_product(self, value: ir.Value, a: ir.Value, b: ir.Value, writer: Writer) -> None:
        """Add `aᵀ b`, summed over all rows, to the gradient of a matrix.

        a: `[.., K]`, b: `[.., N]`, with the same leading axes, the rows; value: `[K, N]`.
        """
        self.add(value, product(writer, a, b))

    def add_broadcast(
        self, value: ir.Value, gradient: ir.Value, large: Dims, writer: Writer
    ) -> None:
        """Add to the gradient of `value`, which was broadcast to the sizes `large`.

        gradient: of these sizes. writer: writes the sum over what was repeated.
        """
        self.add(value, self.unbroadcast(gradient, large, value, writer))

    def add_rows(
        self, value: ir.Value, places: Operand, rows: ir.Value, axis: int, writer: Writer
    ) -> None:
        """Add rows to the gradient of `value` at places along `axis`, one after the other.

        places: integers of any shape. rows: a row for each of them along `axis`.

        Operators that scatter whole rows are not used for it: onnxruntime's threads get in each
        other's way where rows are added to one place.
        """
        shape = np.ones(len(dims_of(value) or ()), np.int64)
        shape[axis] = -1
        places = writer.value(places, "places")
        dtype = places.dtype
        column = writer.op("Reshape", [places, shape], "places", dtype=dtype)
        sizes = writer.op("Shape", [rows], "sizes", dtype=ir.DataType.INT64)
        every = writer.op("Expand", [column, sizes], "places", dtype=dtype)
        operands = [zeros(writer, self.sizes(value, writer)), every, rows]
        attributes = {"axis": axis, "reduction": "add"}
        self.add(value, writer.op("ScatterElements", operands, "rows", attributes))

    def unbroadcast(
        self, gradient: ir.Value, large: Dims, narrow: ir.Value, writer: Writer
    ) -> ir.Value:
        """The sum over the axes along which `narrow` is repeated in a value of sizes `large`."""
        small = dims_of(narrow)
        assert small is not None
        sizes = partial(self.sizes, narrow, writer)
        return unbroadcast(Term(Arithmetic(writer), gradient), large, small, sizes).value

    def gradient(self, value: ir.Value) -> ir.Value | None:
        """The gradient of `value`, None without contributions. None may be added after that."""
        contributions = self._contributions.get(value)
        if contributions is None:
            return None
        if value not in self._totals:
            writer = self.writer(value.dtype, f"grad/{value.name}")
            size = partial(self.size, value, writer=writer)
            result = total(writer, value, size, contributions)
            result.shape = value.shape if result.shape is None else result.shape
            self._totals[value] = result
        return self._totals[value]


def product(writer: Writer, a: ir.Value, b: ir.Value) -> ir.Value:
    """`aᵀ b` with all leading axes of both as the rows: `[.., K]` and `[.., N]` give `[K, N]`."""
    left, right = as_rows(writer, a), as_rows(writer, b)
    return writer.op("MatMul", [writer.transpose(left, "transposed"), right], "product")


def as_rows(writer: Writer, value: ir.Value) -> ir.Value:
    """`[.., N]` as a matrix `[rows, N]`."""
    shape = value.shape
    if shape is not None and len(shape) == 2:
        return value
    width: Operand
    if shape is not None and isinstance(shape[-1], int):
        width = np.array([shape[-1]], np.int64)
    else:
        width = writer.op("Shape", [value], "width", {"start": -1}, ir.DataType.INT64)
    sizes: Operand = np.array([-1], np.int64)
    if isinstance(width, ir.Value):
        sizes = writer.op("Concat", [sizes, width], "sizes", {"axis": 0}, ir.DataType.INT64)
    else:
        sizes = np.concatenate([sizes, width])
    return writer.op("Reshape", [value, sizes], "rows")
