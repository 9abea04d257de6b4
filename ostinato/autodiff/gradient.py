"""A model becomes one that also computes the gradient of its loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import onnx
import onnx.checker
import onnx.version_converter
import onnx_ir as ir

from ostinato.autodiff import rules  # noqa: F401 (its import registers the rules)
from ostinato.autodiff.checkpoints import in_segments
from ostinato.autodiff.contributions import dims_of, zeros
from ostinato.autodiff.empty_loops import allow_no_steps
from ostinato.autodiff.scope import Scope, depends, is_float
from ostinato.autodiff.sweep import sweep
from ostinato.errors import InputError, OptionError, UnsupportedError
from ostinato.graph.edit import can_return
from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.model.graphs import graphs
from ostinato.model.load import ModelLike, load_model
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.write import innermost, to_model_proto
from ostinato.passes.normalise.inline_functions import inline_functions
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.normalise.recurrent_to_scan import expand_recurrent
from ostinato.passes.pipeline import PASSES, run_passes

# The rules write ReduceMean with axes as an input, ScatterElements that adds, and their like.
_OPSET = 18
# Of a segment; what a loop of more steps collects has no place in any memory.
_MOST_STEPS = 2**31 - 1


def gradient(
    model: ModelLike,
    loss: str,
    wrt: Sequence[str],
    checkpoint: int | None = None,
    disable: Collection[str] = (),
) -> onnx.ModelProto:
    """The model with the gradients of `loss` as additional outputs.

    loss: an output of one float element. wrt: inputs and initializers of float type ("with respect
    to"). The gradient of `x` is an output `x_grad` with the type and shape of `x`, in the order of
    `wrt`; it is zero where the loss does not depend on `x`.

    The model that comes out uses standard operators only, of opset 18 or later. RNN, GRU and LSTM
    come out as Scan. docs/gradients.md lists the operators with a gradient.

    checkpoint: of loops, keep the state before every `checkpoint`-th step only, and run the steps
    in between once more: least memory where it is about the square root of the number of steps.
    Gradients of what all steps read (weights) are then summed segment by segment, which rounds
    differently; all others have the same bits. Where the number of steps is known at run time
    only, segments come out as Loops: there may be none, and not all runtimes run a Scan then.

    disable: passes to leave out, as in `Options`.

    Raises `InputError` for a name that is not there, `OptionError` for such a pass,
    `UnsupportedError` naming the first node on the way from the loss to `wrt` that has no gradient,
    and what `load_model` raises.
    """
    wrt = _names(wrt)
    loaded = load_at_opset(model)
    constants = expose(loaded, wrt)
    prepare(loaded, checkpoint, disable)
    outputs = {str(value.name): value for value in loaded.graph.outputs}
    if loss not in outputs:
        raise InputError(f"the model has no output {loss!r}, it has {sorted(outputs)}")
    inputs = {str(value.name): value for value in loaded.graph.inputs}
    gradients = differentiate(loaded, outputs[loss], [inputs[name] for name in wrt])
    _return(loaded, wrt, gradients)
    for name, contents in constants.items():
        _make_constant(loaded.graph, inputs[name], contents)
    run_passes(loaded, disable)
    if checkpoint is not None:
        allow_no_steps(loaded)
    proto = to_model_proto(loaded)
    onnx.checker.check_model(proto)
    return proto


def _names(wrt: Sequence[str]) -> tuple[str, ...]:
    is_list = isinstance(wrt, Iterable) and not isinstance(wrt, str)
    names = tuple(wrt) if is_list else ()
    if not is_list or not all(isinstance(name, str) for name in names):
        raise InputError(f"wrt={wrt!r}: expected a list of names of inputs and initializers")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"wrt: {name!r} is there twice; ask for each gradient once")
    return names


def load_at_opset(model: ModelLike) -> ir.Model:
    """The model, converted to opset 18 where its own is older."""
    return at_opset(load_model(model))


def at_opset(model: ir.Model) -> ir.Model:
    """The same, of a model that was loaded."""
    if opset_of(model) >= _OPSET:
        return model
    try:
        converted = onnx.version_converter.convert_version(to_model_proto(model), _OPSET)
    except Exception as error:  # whatever the converter makes of an operator it does not know
        raise UnsupportedError(
            str(model.graph.name),
            "model",
            f"has opset {opset_of(model)}, and cannot be converted to {_OPSET}: "
            f"{innermost(error)}; export it again with a later opset",
        ) from error
    return load_model(converted)


def prepare(model: ir.Model, checkpoint: int | None = None, disable: Collection[str] = ()) -> None:
    """Run the passes on `model`; afterwards all sizes follow from the inputs, in loops as well.

    checkpoint, disable: see `gradient`.
    """
    optional = [item.name for item in PASSES if not item.needed]
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
    inline_functions(model)
    lift_constants(model)
    expand_recurrent(model, clean_padding=True)
    run_passes(model, disable)
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


def expose(model: ir.Model, names: Sequence[str]) -> dict[str, ir.TensorProtocol]:
    """Make inputs of the initializers among `names`; returns what they contained.

    Passes that simplify constants then leave them alone.
    """
    graph = model.graph
    taken: dict[str, ir.TensorProtocol] = {}
    inputs = {str(value.name): value for value in graph.inputs}
    known = {**graph.initializers, **inputs}
    for name in names:
        value = known.get(name)
        if value is None:
            raise InputError(f"the model has no input or initializer {name!r}")
        if not is_float(value):
            raise InputError(f"{name!r} has type {value.dtype}, expected a float type")
        if name in graph.initializers:
            contents = graph.initializers.pop(name).const_value
            assert contents is not None
            taken[name], value.const_value = contents, None
            value.shape = ir.Shape(contents.shape.numpy())
            if name not in inputs:
                graph.inputs.append(value)
    return taken


def _make_constant(graph: ir.Graph, value: ir.Value, contents: ir.TensorProtocol) -> None:
    graph.inputs.remove(value)
    value.const_value = contents
    graph.register_initializer(value)


def differentiate(model: ir.Model, loss: ir.Value, wrt: Sequence[ir.Value]) -> list[ir.Value]:
    """Append nodes that compute the gradients of `loss`, a value of the main graph.

    `prepare` has run on `model`.
    Raises `InputError` for a loss that is not one float element, `UnsupportedError` for a node
    without a gradient.
    """
    graph = model.graph
    dims = dims_of(loss)
    if not is_float(loss) or dims is None or any(size != 1 for size in dims):
        raise InputError(
            f"the loss {loss.name!r} has type {loss.dtype} and shape {loss.shape}, expected one "
            "float element: reduce it with ReduceMean or ReduceSum"
        )
    scope = Scope(graph, graph, Names(model), opset_of(model), depends(graph, wrt))
    writer = scope.writer(loss.dtype, "grad/loss")
    one = writer.value(np.ones((1,) * len(dims), writer.dtype.numpy()), "one")
    if loss in scope.wanted:
        scope.add(loss, one)
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


def _return(model: ir.Model, wrt: Sequence[str], gradients: Sequence[ir.Value]) -> None:
    """Make outputs of the gradients."""
    names, graph = Names(model), model.graph
    for name, value in zip(wrt, gradients, strict=True):
        source = next(v for v in graph.inputs if v.name == name)
        result = value
        if not can_return(graph, value):
            result = ir.Value(type=source.type)
            graph.append(ir.Node("", "Identity", [value], outputs=[result], name=""))
        result.name, result.type, result.shape = (
            names.fresh(f"{name}_grad"),
            source.type,
            source.shape,
        )
        graph.outputs.append(result)
