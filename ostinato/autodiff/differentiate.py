"""Append the nodes that compute a gradient to a model in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.autodiff import rules  # noqa: F401 (its import registers the rules)
from ostinato.autodiff.checkpoints import in_segments
from ostinato.autodiff.contributions import zeros
from ostinato.autodiff.growing import obstacle
from ostinato.autodiff.scope import Scope, depends, is_float
from ostinato.autodiff.sweep import sweep
from ostinato.autodiff.unrolled import unroll
from ostinato.errors import InputError, OptionError, UnsupportedError
from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.graph.loop_form import read_loop
from ostinato.graph.raise_opset import converted
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import graphs, maker_of, upstream
from ostinato.model.load import ModelLike, load_model
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import dims_of
from ostinato.passes.normalise.inline_functions import inline_functions
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from ostinato.passes.pipeline import PASSES, Pass, before_gradients, run_passes

# The rules write ReduceMean with axes as an input, ScatterElements that adds, and their like.
_OPSET = 18
# Steps of a segment; the results of more steps fit in no memory.
_MOST_STEPS = 2**31 - 1


def load_at_opset(model: ModelLike) -> ir.Model:
    """The model, converted to opset 18 where its own is older."""
    return at_opset(load_model(model))


def at_opset(model: ir.Model) -> ir.Model:
    """The same, of a model that was loaded."""
    return converted(model, _OPSET)


def prepare(
    model: ir.Model,
    checkpoint: int | None = None,
    disable: Collection[str] = (),
    passes: Sequence[Pass] = PASSES,
) -> None:
    """Run `passes` on `model`; afterwards all sizes follow from the inputs, in loops as well.

    checkpoint, disable: see `gradient.gradient`.
    """
    optional = [item.name for item in passes if not item.needed]
    unknown = [name for name in disable if name not in optional]
    if unknown:
        raise OptionError(
            f"disable: no optional pass is called {unknown[0]!r}; there are: {', '.join(optional)}"
        )
    is_number = isinstance(checkpoint, int | np.integer) and not isinstance(checkpoint, bool)
    if checkpoint is not None and not (is_number and 1 <= checkpoint <= _MOST_STEPS):
        raise InputError(
            f"checkpoint={checkpoint!r}: expected a number of steps, 1 to {_MOST_STEPS}"
        )
    for value in model.graph.outputs:
        if value.producer() is not None:
            value.shape = None
    passes = before_gradients(passes)
    inline_functions(model)
    lift_constants(model)
    recurrent_to_scan(model, clean_padding=True)
    run_passes(model, disable, passes=passes)
    _infer(model)
    if unroll(model):
        run_passes(model, disable, passes=passes)
        _infer(model)
    if checkpoint is not None and in_segments(model, checkpoint):
        _infer(model)


def _infer(model: ir.Model) -> None:
    sizes = infer_sizes(model)
    for graph in graphs(model):
        inner = graph.inputs if graph is not model.graph else ()
        for value in (*inner, *(value for node in graph for value in node.outputs)):
            if value.name in sizes:
                value.shape = ir.Shape(sizes[value.name])


def _refuse_loops(loss: ir.Value, scope: Scope) -> None:
    """Refuse the first Loop on the way, before whoever reads a value of it that has no shape."""
    for value in upstream([loss]):
        node = maker_of(value, "Loop")
        form = None if node is None else read_loop(node, scope.opset)
        reason = None if form is None or value not in scope.wanted else obstacle(form)
        if node is not None and reason is not None:
            raise UnsupportedError(describe(node), node.op_type, reason)


def differentiate(model: ir.Model, loss: ir.Value, wrt: Sequence[ir.Value]) -> list[ir.Value]:
    """Append nodes that compute the gradients of `loss`, a value of the main graph.

    `prepare` has run on `model`.
    Raises `InputError` for a loss that is not one float element, `UnsupportedError` for a node
    without a gradient.
    """
    dims = dims_of(loss)
    if not is_float(loss) or dims is None or any(size != 1 for size in dims):
        raise InputError(
            f"the loss {loss.name!r} has type {loss.dtype} and shape {loss.shape}, expected one "
            "float element: reduce it with ReduceMean or ReduceSum"
        )
    dtype = loss.dtype or ir.DataType.FLOAT
    writer = Writer(model.graph, Names(model), opset_of(model), dtype, "grad/loss")
    ones = writer.value(np.ones((1,) * len(dims), dtype.numpy()), "one")
    return pull_back(model, {loss: ones}, wrt)


def pull_back(
    model: ir.Model, cotangents: Mapping[ir.Value, ir.Value], wrt: Sequence[ir.Value]
) -> list[ir.Value]:
    """Append nodes that compute the sum over `cotangents` of cotangent times Jacobian.

    cotangents: by value of the main graph, of its type and shape. wrt: values of the main graph;
    what comes back has their types and shapes, zeros where nothing depends on one.
    `prepare` has run on `model`. Raises `UnsupportedError` for a node without a gradient.
    """
    graph = model.graph
    scope = Scope(graph, graph, Names(model), opset_of(model), depends(graph, wrt))
    for value, cotangent in cotangents.items():
        if value in scope.wanted:
            _refuse_loops(value, scope)
            scope.add(value, cotangent)
    sweep(scope)
    gradients = [scope.gradient(value) for value in wrt]
    results = []
    for value, found in zip(wrt, gradients, strict=True):
        own = scope.writer(value.dtype, f"grad/{value.name}")
        if found is None:
            sizes = own.op("Shape", [value], "shape", dtype=ir.DataType.INT64)
            found = zeros(own, sizes)
        results.append(found)
    graph.extend(scope.nodes)
    return results
