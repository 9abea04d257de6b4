"""Products whose other operand is 8-bit too: over its range in every run, or a calibrated one.

`int8-dynamic` writes DynamicQuantizeLinear, MatMulInteger or ConvInteger, and the product of both
scales. `int8-static` writes QuantizeLinear and DequantizeLinear around the operand, which say the
same to runtimes that fuse them. RNN, GRU and LSTM become Scan, whose steps do so with the input and
the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

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
from ostinato.quantization.sites import INPUT_WEIGHTS, RECURRENT_WEIGHTS, Site
from ostinato.quantization.weights import Stored
from ostinato.records import dataclass

# Steps of 8 bits from the least to the largest number.
LEVELS = 255
_FLOAT = ir.DataType.FLOAT
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


@dataclass(frozen=True)
class _Bytes(Parameters):
    """Parameters whose weights `w` and `r` are whole numbers.

    w_scale, r_scale: `[G*H]`. x_range, h_range: of the operands; None for those of each step.
    columns: the scales of the columns of what `matrix` has laid out.
    """

    w_scale: Array
    r_scale: Array
    x_range: Range | None
    h_range: Range | None
    columns: dict[ir.Value, Array]

    def matrix(self, x: Operand, gates: str, role: str) -> ir.Value:
        """The weights of `gates` as bytes, or as floats that stand for them."""
        laid_out = super().matrix(x, gates, role)
        scale = self._rows(self.w_scale if x is self.w else self.r_scale, gates, f"{role}_scale")
        assert not isinstance(scale, ir.Value)
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
        w, r = (item.parts[d].q for item in items)
        scales = [item.scales[d, :, 0] for item in items]
        parameters = _Bytes(
            plain.writer,
            plain.gates,
            plain.hidden_size,
            w,
            r,
            plain.wb,
            plain.rb,
            plain.p,
            plain.activations,
            plain.clip,
            scales[0],
            scales[1],
            given[0],
            given[1],
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


class _Products:
    """Writes products outside of RNN, GRU and LSTM. An operand of several is quantised once."""

    def __init__(self, model: ir.Model, ranges: Mapping[tuple[ir.Node, int], Seen] | None) -> None:
        self._model, self._ranges, self._names = model, ranges, Names(model)
        self._dynamic: dict[tuple[ir.Graph, ir.Value], tuple[ir.Value, ir.Value, ir.Value]] = {}

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

    def _multiplied(self, writer: Writer, item: Stored, x: ir.Value) -> ir.Value:
        node = item.site.node
        data, scale, point = self._narrow(writer, x, node)
        columns = item.parts[0].scale[:, 0]
        whole = np.ascontiguousarray(item.parts[0].q.T)
        if node.op_type == "Gemm":
            columns = (columns * np.float32(node.attributes.get_float("alpha", 1.0))).astype(
                np.float32
            )
        weights = writer.value(whole, f"{item.site.weight.name}_int8")
        both = writer.op("Mul", [scale, columns], "scale")
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
        weights = writer.value(item.whole, f"{item.site.weight.name}_int8")
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
