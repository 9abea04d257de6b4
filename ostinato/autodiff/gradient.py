"""A model becomes one that also computes the gradient of its loss."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx
import onnx.checker
import onnx.version_converter
import onnx_ir as ir

from ostinato.arguments import is_one_of, names_of
from ostinato.autodiff.differentiate import differentiate, load_at_opset, prepare
from ostinato.autodiff.empty_loops import allow_no_steps
from ostinato.autodiff.nodes import expand_gradients
from ostinato.autodiff.scope import is_float
from ostinato.errors import InputError
from ostinato.graph.edit import append_copy, can_return
from ostinato.model.load import ModelLike
from ostinato.model.names import Names
from ostinato.passes.normalise.portable import portable
from ostinato.passes.pipeline import run_passes, with_gradient_nodes
from ostinato.spelling import mistyped

# Names of a model that an error lists at most.
_LISTED = 8

ALL_PASSES = with_gradient_nodes(expand_gradients)


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
    prepare(loaded, checkpoint, disable, ALL_PASSES)
    outputs = {str(value.name): value for value in loaded.graph.outputs}
    if not is_one_of(loss, outputs):
        raise InputError(f"the model has no output {loss!r}, it has {sorted(outputs)}")
    inputs = {str(value.name): value for value in loaded.graph.inputs}
    gradients = differentiate(loaded, outputs[loss], [inputs[name] for name in wrt])
    _return(loaded, wrt, gradients)
    for name, contents in constants.items():
        _make_constant(loaded.graph, inputs[name], contents)
    run_passes(loaded, disable, passes=ALL_PASSES)
    if checkpoint is not None:
        allow_no_steps(loaded)
    proto = portable(loaded)
    onnx.checker.check_model(proto)
    return proto


def _names(wrt: Sequence[str]) -> tuple[str, ...]:
    names = names_of(wrt)
    if names is None:
        raise InputError(f"wrt={wrt!r}: expected a list of names of inputs and initializers")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"wrt: {name!r} is there twice; ask for each gradient once")
    return names


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
            meant = (
                mistyped(name, known) or f"it has {', '.join(map(repr, sorted(known)[:_LISTED]))}"
            )
            raise InputError(f"the model has no input or initializer {name!r}; {meant}")
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


def _return(model: ir.Model, wrt: Sequence[str], gradients: Sequence[ir.Value]) -> None:
    """Make outputs of the gradients."""
    names, graph = Names(model), model.graph
    for name, value in zip(wrt, gradients, strict=True):
        source = next(v for v in graph.inputs if v.name == name)
        new = names.fresh(f"{name}_grad")
        result = value if can_return(graph, value) else append_copy(graph, value, new)
        result.name, result.type, result.shape = new, source.type, source.shape
        graph.outputs.append(result)
