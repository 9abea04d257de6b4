"""Corrects constant biases for the mean error of rounded weights.

Where the inputs have the mean m, rounding `W` to `W'` shifts the results by `(W' - W) m` (Nagel et
al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.definitions.recurrent_node import KINDS
from ostinato.graph.edit import add_constant
from ostinato.graph.writer import Array
from ostinato.model.names import Names
from ostinato.model.values import constant_array, optional_input
from ostinato.quantization.calibration import Seen
from ostinato.quantization.sites import RECURRENT_WEIGHTS, Site
from ostinato.quantization.weights import Stored


def correct_bias(model: ir.Model, names: Names, item: Stored, seen: Seen) -> None:
    """Take the mean error of the results of a site off its bias, where it has a constant one.

    A Conv, RNN, GRU or LSTM without a bias gets one. A MatMul has the bias that an Add behind it
    gives.
    """
    site = item.site
    kind = site.node.op_type
    # The operands of all groups of a convolution are counted together.
    is_grouped = "group" in site.node.attributes and site.node.attributes["group"].as_int() != 1
    shift = None if site.is_left or is_grouped else _mean_error(item, seen)
    if shift is None:
        return
    if site.is_recurrent:
        _correct_recurrent(model, names, site, shift)
    elif kind == "MatMul" and len(shift) == 1:
        _correct_added(model, names, site, shift[0])
    elif kind == "Gemm" and optional_input(site.node, 2) is not None:
        factors = [site.node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
        if factors[1]:
            _correct_operand(model, names, site.node, 2, shift[0] * factors[0] / factors[1])
    elif kind == "Conv" and (
        optional_input(site.node, 2) is not None or site.weight.dtype == ir.DataType.FLOAT
    ):
        if optional_input(site.node, 2) is None:
            site.node.resize_inputs(3)
            zeros = np.zeros(len(shift[0]), site.array.dtype)
            name = names.fresh(f"{site.weight.name}_bias")
            site.node.replace_input_with(2, add_constant(model, name, zeros))
        _correct_operand(model, names, site.node, 2, shift[0])


def _mean_error(item: Stored, seen: Seen) -> Array | None:
    """The mean error of each sum: `[groups, sums]`; None where the mean input is not known."""
    error = item.site.rows(item.values.astype(np.float64) - item.site.array)
    results = []
    for group, rows in enumerate(error):
        mean = seen.mean(group)
        if mean is None:
            return None
        results.append(rows @ mean)
    return np.stack(results)


def _correct_operand(
    model: ir.Model, names: Names, node: ir.Node, position: int, shift: Array
) -> None:
    old = node.inputs[position]
    array = constant_array(old)
    if old is None or array is None or array.shape not in (shift.shape, (1, *shift.shape)):
        return
    corrected = (array - shift).astype(array.dtype)
    name = names.fresh(f"{old.name}_corrected")
    node.replace_input_with(position, add_constant(model, name, corrected))
    if not old.uses() and not old.is_graph_output():
        model.graph.initializers.pop(str(old.name), None)


def _correct_added(model: ir.Model, names: Names, site: Site, shift: Array) -> None:
    result = site.node.outputs[0]
    uses = list(result.uses())
    if len(uses) != 1 or result.is_graph_output() or uses[0][0].op_type != "Add":
        return
    reader, position = uses[0]
    _correct_operand(model, names, reader, 1 - position, shift)


def _correct_recurrent(model: ir.Model, names: Names, site: Site, shift: Array) -> None:
    node = site.node
    place = KINDS[node.op_type].inputs.index("B")
    rows = shift.shape[1]
    if optional_input(node, place) is None:
        if len(node.inputs) <= place:
            node.resize_inputs(place + 1)
        zeros = np.zeros((len(shift), 2 * rows), site.array.dtype)
        name = names.fresh(f"{site.weight.name}_bias")
        node.replace_input_with(place, add_constant(model, name, zeros))
    both = np.zeros((len(shift), 2 * rows))
    start = rows if site.position == RECURRENT_WEIGHTS else 0
    both[:, start : start + rows] = shift
    _correct_operand(model, names, node, place, both)
