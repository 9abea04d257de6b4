"""Products whose other operand is 8-bit too: over its range in every run, or a calibrated one.

`int8-dynamic` writes DynamicQuantizeLinear, MatMulInteger or ConvInteger, and the product of both
scales; where blocks of terms have scales of their own, so have those of the other operand's rows
(`definitions.bytes_in_blocks`). `int8-static` writes QuantizeLinear and DequantizeLinear around the
operand, which say the same to runtimes that fuse them. RNN, GRU and LSTM become Scan, whose steps
do so with the input and the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.definitions.bytes_in_blocks import Rows, product_in_blocks, rows_in_blocks
from ostinato.definitions.contributed.products import dynamically_quantized, integer_product
from ostinato.definitions.recurrent_cells import Parameters, Step
from ostinato.definitions.recurrent_node import Recurrent
from ostinato.definitions.recurrent_scan import parameters_of, step_of
from ostinato.graph.edit import discard
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, optional_input
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from ostinato.quantization.calibration import Seen
from ostinato.quantization.formats import Format
from ostinato.quantization.rounding import Rounded
from ostinato.quantization.sites import INPUT_WEIGHTS, RECURRENT_WEIGHTS, Site
from ostinato.quantization.weights import Stored
from ostinato.records import dataclass

# Steps of 8 bits from the least to the largest number.
LEVELS = 255
_FLOAT, _INT8 = ir.DataType.FLOAT, ir.DataType.INT8
Range = tuple[float, float]


def write_activations(
    model: ir.Model, stored: Sequence[Stored], ranges: Mapping[tuple[ir.Node, int], Seen] | None
) -> list[Stored]:
    """Let the products of a model have 8-bit operands; returns the weights still to be written.

    ranges: of the other operands, by node and position of the weights; None for those of each run.
    Products that this cannot say stay products of floats with narrow weights: weights with more
    than two axes, ConvTranspose, float16, and with `ranges` None weights on the left as well; with
    ranges those that no sample reached.
    """
    recurrent = {(i.site.node, i.site.position): i for i in stored if i.site.is_recurrent}
    whole = {node for node, _ in recurrent if _both(node, recurrent, ranges)}
    _expand(model, whole, recurrent, ranges)
    left = [item for item in stored if item.site.node not in whole]
    writing = _Products(model, ranges)
    return [item for item in left if not writing.write(item)]


def _both(
    node: ir.Node,
    stored: Mapping[tuple[ir.Node, int], Stored],
    ranges: Mapping[tuple[ir.Node, int], Seen] | None,
) -> bool:
    places = [(node, place) for place in (INPUT_WEIGHTS, RECURRENT_WEIGHTS)]
    items = [stored.get(place) for place in places]
    is_float = all(item is not None and item.site.weight.dtype == _FLOAT for item in items)
    return is_float and (ranges is None or all(ranges[place].is_known for place in places))


def _has_blocks(form: Format, part: Rounded) -> bool:
    """Whether products with such weights take rows in blocks."""
    return form.name == "int4" or part.scale.shape[1] > 1


@dataclass(frozen=True)
class _Blocks:
    """Weights of which blocks of terms have scales of their own.

    bytes: `[blocks, block, n]`. scales: `[blocks, n]`. terms: those of a sum, without padding.
    """

    bytes: ir.Value
    scales: Array
    terms: int
    block: int

    def rows(self, writer: Writer, x: ir.Value, rank: int) -> Rows:
        """Write the other operand in bytes."""
        return rows_in_blocks(writer, x, rank, self.terms, len(self.scales), self.block)


def _blocks(writer: Writer, form: Format, part: Rounded, role: str) -> _Blocks:
    """Store weights `[n, terms]`; zeros fill their last block."""
    (n, terms), blocks = part.q.shape, part.scale.shape[1]
    filled = np.zeros((n, blocks * part.block), np.int8)
    filled[:, :terms] = part.q
    matrix = np.ascontiguousarray(filled.reshape(n, blocks, -1).transpose(1, 2, 0))
    scales = np.ascontiguousarray(part.scale.T, np.float32)
    return _Blocks(_stored(writer, form, matrix, role), scales, terms, part.block)


def _stored(writer: Writer, form: Format, whole: Array, role: str) -> ir.Value:
    """Whole numbers as int8, in the type that they are stored in."""
    narrow = writer.value(whole.astype(form.dtype.numpy()), f"{role}_{form.name}")
    if form.dtype == _INT8:
        return narrow
    return writer.op("Cast", [narrow], f"{role}_bytes", {"to": int(_INT8)}, _INT8)


@dataclass(frozen=True)
class _Bytes(Parameters):
    """Parameters whose weights `w` and `r` are whole numbers.

    form: in which they are stored. parts: both, with their scales. x_range, h_range: of the
    operands; None for those of each step. columns, blocks: the scales of the columns of what
    `matrix` has laid out, or what it has laid out in blocks.
    """

    form: Format
    parts: tuple[Rounded, Rounded]
    x_range: Range | None
    h_range: Range | None
    columns: dict[ir.Value, Array]
    blocks: dict[ir.Value, _Blocks]

    def matrix(self, x: Operand, gates: str, role: str) -> ir.Value:
        """The weights of `gates` as bytes, or as floats that stand for them."""
        part = self.parts[0 if x is self.w else 1]
        scale = self._rows(part.scale, gates, f"{role}_scale")
        assert not isinstance(scale, ir.Value)
        if self.x_range is None and _has_blocks(self.form, part):
            rows = self._rows(x, gates, f"{role}_rows")
            assert not isinstance(rows, ir.Value)
            found = _blocks(self.writer, self.form, Rounded(rows, scale, part.block), role)
            self.blocks[found.bytes] = found
            return found.bytes
        laid_out, scale = super().matrix(x, gates, role), scale[:, 0]
        if self.x_range is None:
            self.columns[laid_out] = scale
            return laid_out
        role = f"{role}_dequantized"
        return self.writer.op("DequantizeLinear", [laid_out, scale], role, {"axis": 1}, _FLOAT)

    def product(self, body: Writer, x: ir.Value, weights: ir.Value, role: str) -> ir.Value:
        """Write a product of bytes."""
        given = self.x_range if role == "xw" else self.h_range
        if given is not None:
            return super().product(body, _rounded(body, x, given), weights, role)
        if (blocks := self.blocks.get(weights)) is not None:
            rows = blocks.rows(body, x, 2)
            return product_in_blocks(body, rows, weights, blocks.scales)
        data, scale, point = dynamically_quantized(body, x)
        both = body.op("Mul", [scale, self.columns[weights]], f"{role}_scale")
        return integer_product(body, data, weights, (point, None), both)


def _expand(
    model: ir.Model,
    nodes: set[ir.Node],
    stored: Mapping[tuple[ir.Node, int], Stored],
    ranges: Mapping[tuple[ir.Node, int], Seen] | None,
) -> None:
    def cell(recurrent: Recurrent, writer: Writer, d: int) -> Step:
        plain = parameters_of(recurrent, writer, d)
        items = [stored[recurrent.node, place] for place in (INPUT_WEIGHTS, RECURRENT_WEIGHTS)]
        given = [_range(ranges, item.site) for item in items]
        w, r = (item.parts[d] for item in items)
        parameters = _Bytes(
            plain.writer,
            plain.gates,
            plain.hidden_size,
            w.q,
            r.q,
            plain.wb,
            plain.rb,
            plain.p,
            plain.activations,
            plain.clip,
            items[0].form,
            (w, r),
            given[0],
            given[1],
            {},
            {},
        )
        return step_of(recurrent, parameters)

    if nodes:
        recurrent_to_scan(model, nodes, cell=cell)


def _range(ranges: Mapping[tuple[ir.Node, int], Seen] | None, site: Site) -> Range | None:
    if ranges is None:
        return None
    seen = ranges[site.node, site.position]
    return seen.best_range(LEVELS)


def _rounded(writer: Writer, x: ir.Value, given: Range) -> ir.Value:
    """`x` rounded to 8 bits between two numbers around 0, and back: QuantizeLinear and its like."""
    low, high = given
    scale = np.float32((high - low) / LEVELS)
    if scale < np.finfo(np.float32).tiny:
        scale = np.float32(1)
    point = np.array(np.clip(np.rint(-low / scale), 0, LEVELS), np.uint8)
    kind = ir.DataType.UINT8
    operands: list[Operand] = [np.asarray(scale), point]
    narrow = writer.op("QuantizeLinear", [x, *operands], f"{x.name}_quantized", dtype=kind)
    return writer.op("DequantizeLinear", [narrow, *operands], f"{x.name}_dequantized")


def _rank(x: ir.Value) -> int:
    """The number of axes of an operand; 0 where it is not known."""
    return 0 if x.shape is None else len(x.shape)


class _Products:
    """Writes products outside of RNN, GRU and LSTM. An operand of several is quantised once."""

    def __init__(self, model: ir.Model, ranges: Mapping[tuple[ir.Node, int], Seen] | None) -> None:
        self._model, self._ranges, self._names = model, ranges, Names(model)
        self._dynamic: dict[tuple[ir.Graph, ir.Value], tuple[ir.Value, ir.Value, ir.Value]] = {}
        self._rows: dict[tuple[ir.Graph, ir.Value, int], Rows] = {}

    def write(self, item: Stored) -> bool:
        """Write the node of a site anew where it can be; False where its weights are left."""
        site, node = item.site, item.site.node
        x = node.inputs[site.other]
        if x is None or site.weight.dtype != _FLOAT or site.is_recurrent or site.is_table:
            return False
        opset = opset_of(self._model)
        writer = Writer(self._model.graph, self._names, opset, _FLOAT, describe(node))
        if self._ranges is not None and not self._ranges[node, site.position].is_known:
            return False
        given = _range(self._ranges, site)
        if given is not None:
            rounded = _rounded(writer, x, given)
            self._insert(node, writer)
            node.replace_input_with(site.other, rounded)
            return False
        if site.is_left or (site.array.ndim != 2 and node.op_type != "Conv"):
            return False
        is_turned = node.op_type == "Gemm" and node.attributes.get_int("transA", 0) != 0
        if node.op_type == "ConvTranspose" or is_turned:
            return False
        if not site.is_convolution and _has_blocks(item.form, item.parts[0]) and not _rank(x):
            return False
        result = self._convolved(writer, item, x) if site.is_convolution else None
        result = result or self._multiplied(writer, item, x)
        self._insert(node, writer)
        old = node.outputs[0]
        result.shape = old.shape
        graph = node.graph
        assert graph is not None
        ir.convenience.replace_nodes_and_values(graph, node, [node], [], [old], [result])
        if site.turn is not None:
            discard(site.turn)
        return True

    def _insert(self, node: ir.Node, writer: Writer) -> None:
        node.prepend(writer.nodes)

    def _narrow(self, writer: Writer, x: ir.Value, node: ir.Node) -> tuple[ir.Value, ...]:
        assert isinstance(node.graph, ir.Graph)
        key = node.graph, x
        if key not in self._dynamic:
            self._dynamic[key] = dynamically_quantized(writer, x)
        return self._dynamic[key]

    def _in_blocks(self, writer: Writer, item: Stored, x: ir.Value, part: Rounded) -> ir.Value:
        graph = item.site.node.graph
        assert isinstance(graph, ir.Graph)
        blocks = _blocks(writer, item.form, part, str(item.site.weight.name))
        key = graph, x, blocks.block
        if key not in self._rows:
            self._rows[key] = blocks.rows(writer, x, _rank(x))
        return product_in_blocks(writer, self._rows[key], blocks.bytes, blocks.scales)

    def _multiplied(self, writer: Writer, item: Stored, x: ir.Value) -> ir.Value:
        node, part = item.site.node, item.parts[0]
        if node.op_type == "Gemm":
            alpha = np.float32(node.attributes.get_float("alpha", 1.0))
            part = replace(part, scale=(part.scale * alpha).astype(np.float32))
        if _has_blocks(item.form, part):
            result = self._in_blocks(writer, item, x, part)
        else:
            data, scale, point = self._narrow(writer, x, node)
            whole = np.ascontiguousarray(part.q.T)
            weights = writer.value(whole, f"{item.site.weight.name}_int8")
            both = writer.op("Mul", [scale, part.scale[:, 0]], "scale")
            result = integer_product(writer, data, weights, (point, None), both)
        added = optional_input(node, 2) if node.op_type == "Gemm" else None
        if added is None:
            return result
        beta = writer.scalar(node.attributes.get_float("beta", 1.0))
        constant = constant_array(added)
        if constant is not None:
            return writer.op("Add", [result, constant * beta], "biased")
        return writer.op("Add", [result, writer.op("Mul", [added, beta], "scaled")], "biased")

    def _convolved(self, writer: Writer, item: Stored, x: ir.Value) -> ir.Value:
        node, kind = item.site.node, ir.DataType.INT32
        data, scale, point = self._narrow(writer, x, node)
        weights = _stored(writer, item.form, item.whole, str(item.site.weight.name))
        ones = (1,) * (item.site.array.ndim - 2)
        channels = item.parts[0].scale[:, 0].reshape(-1, *ones)
        attributes = list(node.attributes.values())
        total = writer.declare("sum", None, kind)
        writer.node("ConvInteger", [data, weights, point], [total], attributes, role="ConvInteger")
        wide = writer.op("Cast", [total], "wide", {"to": int(_FLOAT)})
        both = writer.op("Mul", [scale, channels], "scale")
        result = writer.op("Mul", [wide, both], "scaled")
        bias = optional_input(node, 2)
        if bias is None:
            return result
        constant = constant_array(bias)
        if constant is not None:
            return writer.op("Add", [result, constant.reshape(-1, *ones)], "biased")
        shape = np.array([-1, *ones], np.int64)
        return writer.op("Add", [result, writer.op("Reshape", [bias, shape], "bias")], "biased")
