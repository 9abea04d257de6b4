"""One training step as one ONNX model: forward, backward, update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.arguments import is_one_of
from ostinato.autodiff.differentiate import differentiate, load_at_opset, prepare
from ostinato.autodiff.gradient import ALL_PASSES, expose
from ostinato.errors import InputError, UnsupportedError
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.load import ModelLike
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, dims_of, filled, optional_input
from ostinato.model.write import to_model_proto
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.quantization.formats import Format
from ostinato.quantization.training import round_in_training
from ostinato.training.losses import LOSSES, Loss, LossFunction
from ostinato.training.operators import Operators
from ostinato.training.optimizers import DOMAIN, Optimizer, Update
from ostinato.training.parameters import chosen, list_of_names

Targets: TypeAlias = "Mapping[str, tuple[str, Sequence[int | str | None]]]"
Sizes: TypeAlias = "tuple[int | str | None, ...]"


@dataclass(frozen=True)
class Recipe:
    """Settings of a training step; `Trainer` describes the fields.

    rounded: the storage type of weights, of a model that `quantize.prepared` has made. block: see
    `quantize`.
    """

    loss: str | LossFunction
    optimizer: Optimizer
    outputs: Sequence[str] | None = None
    targets: Targets | None = None
    train: Sequence[str] | None = None
    freeze: Sequence[str] = ()
    clip_norm: float | None = None
    carried: Mapping[str, str] = field(default_factory=dict)
    is_guarded: bool = True
    rounded: Format | None = None
    block: int | None = None


@dataclass(frozen=True)
class TrainingStep:
    """The two models that a trainer runs, and what their inputs and outputs are called.

    update: `[inputs, targets, rate, parameters, states] -> [loss, next parameters and states]`.
    forward: `[inputs, targets, parameters] -> [loss, next carried states]`.
    parameters: names. kept: what parameters and the states of the optimizer contain before
    training. targets: the input of each target.
    pairs: the output of each state of `update` by its input; parameters are states as well.
    carried: the same of the states that pass data on, in both models.
    """

    update: onnx.ModelProto
    forward: onnx.ModelProto
    parameters: tuple[str, ...]
    kept: dict[str, np.ndarray]
    targets: dict[str, str]
    pairs: dict[str, str]
    carried: dict[str, str]
    forward_carried: dict[str, str]
    rate: str


def training_step(model: ModelLike, recipe: Recipe) -> TrainingStep:
    """Write the models of a training step.

    Raises `InputError` for names that the model does not have and for a loss that is not one float
    element, `UnsupportedError` naming a node without a gradient.
    """
    loaded = load_at_opset(model)
    _check_form(loaded)
    if recipe.rounded is not None:
        round_in_training(loaded, recipe.rounded, recipe.block)
    _infer(loaded)
    _check_carried(loaded, recipe.carried)
    outputs = _compared(loaded, recipe)
    names = Names(loaded)
    loss, targets = _write_loss(loaded, names, recipe, outputs)
    wanted = chosen(loaded, loss, recipe.train, recipe.freeze)
    contents = expose(loaded, wanted)
    results = [loss, *(_output(loaded, name) for name in recipe.carried.values())]
    loaded.graph.outputs.clear()
    loaded.graph.outputs.extend(results)
    prepare(loaded, passes=ALL_PASSES)
    # Passes may give another value in place of an output, with its name.
    loss, *carried = loaded.graph.outputs
    assert loss.name is not None
    forward = to_model_proto(loaded)
    inputs = {str(value.name): value for value in loaded.graph.inputs}
    parameters = [inputs[name] for name in wanted]
    gradients = _differentiated(loaded, loss, parameters)
    writer = _Updates(loaded, recipe, loss)
    pairs = writer.write(parameters, gradients)
    sources = [inputs[name] for name in recipe.carried]
    pairs_of_data = writer.carry(sources, carried)
    return TrainingStep(
        to_model_proto(loaded),
        forward,
        tuple(wanted),
        {str(v.name): _first(v, contents) for v in loaded.graph.inputs if v.name in pairs},
        targets,
        pairs | pairs_of_data,
        pairs_of_data,
        {a: str(b.name) for a, b in zip(recipe.carried, carried, strict=True)},
        writer.rate_name,
    )


def _first(state: ir.Value, contents: Mapping[str, ir.TensorProtocol]) -> np.ndarray:
    """A parameter before training; what the optimizer keeps starts as zeros."""
    tensor = contents.get(str(state.name))
    if tensor is not None:
        return np.array(tensor.numpy())
    assert state.shape is not None
    return filled(state, state.shape.numpy())


def _check_form(model: ir.Model) -> None:
    """Refuse nodes in training form: runs are pure functions, so nothing would move on in them."""
    for node in model.graph.all_nodes():
        mode = node.attributes.get("training_mode")
        trains = mode is not None and mode.as_int() == 1
        if node.op_type == "Dropout" and optional_input(node, 2) is not None:
            constant = constant_array(node.inputs[2])
            trains = constant is None or bool(constant.any())
        if trains:
            raise UnsupportedError(
                describe(node),
                node.op_type,
                "is in training form, where random numbers or statistics would be the same in "
                "every step: export the model for inference",
            )


def _infer(model: ir.Model) -> None:
    """Shapes of outputs that follow from the inputs; what the exporter says where none does."""
    claimed = {value: value.shape for value in model.graph.outputs}
    for value in model.graph.outputs:
        if value.producer() is not None:
            value.shape = None
    infer_shapes(model)
    for value, shape in claimed.items():
        value.shape = shape if value.shape is None else value.shape


def _check_carried(model: ir.Model, carried: Mapping[str, str]) -> None:
    inputs = {str(value.name): value for value in model.graph.inputs}
    for name, output in carried.items():
        if name not in inputs:
            raise InputError(f"states: the model has no input {name!r}, it has {sorted(inputs)}")
        first, later = inputs[name], _output(model, output)
        sizes, others = dims_of(first), dims_of(later)
        fits = sizes is None or others is None or len(sizes) == len(others)
        if first.dtype != later.dtype or not fits:
            raise InputError(
                f"states: {output!r}, {later.dtype}{later.shape}, cannot become {name!r}, "
                f"{first.dtype}{first.shape}"
            )


def _compared(model: ir.Model, recipe: Recipe) -> list[str]:
    """The outputs that have a target, where the loss is not an output itself."""
    if recipe.outputs is None:
        names = [str(value.name) for value in model.graph.outputs]
        return [name for name in names if name not in recipe.carried.values()]
    names = list_of_names("outputs", recipe.outputs)
    for name in names:
        _output(model, name)
        if names.count(name) > 1:
            raise InputError(f"outputs: {name!r} is there twice")
    return names


def _output(model: ir.Model, name: str) -> ir.Value:
    for value in model.graph.outputs:
        if value.name == name:
            return value
    known = [value.name for value in model.graph.outputs]
    raise InputError(f"the model has no output {name!r}, it has {known}")


def _differentiated(
    model: ir.Model, loss: ir.Value, parameters: Sequence[ir.Value]
) -> list[ir.Value]:
    try:
        return differentiate(model, loss, parameters)
    except UnsupportedError as error:
        raise UnsupportedError(
            error.node, error.op, f"{error.reason}; in a Trainer, `freeze` what lies before it"
        ) from error


def _write_loss(
    model: ir.Model, names: Names, recipe: Recipe, compared: Sequence[str]
) -> tuple[ir.Value, dict[str, str]]:
    """Append the nodes of the loss, and inputs for targets; returns it and the inputs by target."""
    outputs = {str(value.name): value for value in model.graph.outputs}
    if not callable(recipe.loss) and not is_one_of(recipe.loss, LOSSES):
        if not is_one_of(recipe.loss, outputs):
            raise InputError(
                f"loss={recipe.loss!r}: expected one of {sorted(LOSSES)}, a function, or an output "
                f"of the model: {sorted(outputs)}"
            )
        return outputs[recipe.loss], {}
    loss = LOSSES[recipe.loss] if isinstance(recipe.loss, str) else recipe.loss
    targets = _declare_targets(model, names, [outputs[name] for name in compared], loss, recipe)
    dtype = next((value.dtype for value in outputs.values() if value.dtype), ir.DataType.FLOAT)
    writer = Writer(model.graph, names, opset_of(model), dtype, "loss")
    op = Operators(writer)
    if isinstance(loss, Loss):
        if not compared:
            raise InputError(
                f"loss={recipe.loss!r}: all outputs are states; name some in `outputs`"
            )
        terms = [
            loss.write(op, outputs[name], _shaped(op, outputs[name], targets[name], loss))
            for name in compared
        ]
        result = terms[0] if len(terms) == 1 else op.Sum(*terms)
    else:
        result = loss(op, outputs, targets)
        if not isinstance(result, ir.Value):
            raise InputError(f"the loss function returned {type(result).__name__}, not a value")
    # A name of its own: an output of the model may be the loss as it stands.
    total = op.Identity(result)
    model.graph.extend(writer.nodes)
    infer_shapes(model)
    return total, {name: str(value.name) for name, value in targets.items()}


def _declare_targets(
    model: ir.Model,
    names: Names,
    compared: Sequence[ir.Value],
    loss: Loss | LossFunction,
    recipe: Recipe,
) -> dict[str, ir.Value]:
    """Inputs for the targets, by the name that the caller uses."""
    described: dict[str, tuple[ir.DataType, Sizes]] = {}
    if recipe.targets is not None:
        described = _described(recipe.targets)
        missing = [value.name for value in compared if value.name not in described]
        if isinstance(loss, Loss) and missing:
            raise InputError(f"targets: output {missing[0]!r} has a loss and no target")
    else:
        known = _known_dimensions(model)
        for value in compared:
            dims = dims_of(value)
            if dims is None or value.dtype is None:
                raise InputError(
                    f"the shape of output {value.name!r} is not known: describe its target with "
                    "`targets`"
                )
            shape = tuple(s if isinstance(s, int) or s in known else None for s in dims)
            by_class = isinstance(loss, Loss) and loss.by_class
            if by_class and not dims:
                raise InputError(f"output {value.name!r} is a scalar, expected scores of classes")
            kind = ir.DataType.INT64 if by_class else value.dtype
            described[str(value.name)] = kind, shape[:-1] if by_class else shape
    result = {}
    for name, (dtype, shape) in described.items():
        target = ir.Value(
            name=names.fresh(f"{name}_target"), type=ir.TensorType(dtype), shape=ir.Shape(shape)
        )
        model.graph.inputs.append(target)
        result[name] = target
    return result


def _described(targets: Targets) -> dict[str, tuple[ir.DataType, Sizes]]:
    """Targets as the caller describes them."""
    found: dict[str, tuple[ir.DataType, Sizes]] = {}
    try:
        for name, (type_name, shape) in targets.items():
            if not all(size is None or isinstance(size, str) or size >= 0 for size in shape):
                raise ValueError(f"sizes are numbers, names or None, got {shape}")
            found[name] = ir.DataType.from_numpy(np.dtype(type_name)), tuple(shape)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"targets={targets!r}: expected an element type and a shape by name, such as "
            f"{{'y': ('float32', ('batch', 8))}} ({error})"
        ) from error
    return found


def _known_dimensions(model: ir.Model) -> set[str | int | None]:
    """Names of dimensions that inputs have; others may mean anything."""
    return {size for value in model.graph.inputs for size in dims_of(value) or ()} - {None}


def _shaped(op: Operators, output: ir.Value, target: ir.Value, loss: Loss) -> ir.Value:
    """The target, which cannot be broadcast to the output.

    Sizes that are numbers or names of the inputs are compared when the step is called.
    """
    dims, wanted = dims_of(target), dims_of(output)
    if loss.by_class:
        wanted = wanted[:-1] if wanted else None
    if dims is not None and dims == wanted and None not in dims:
        return target
    return op.Reshape(target, op.Shape(output, **({"end": -1} if loss.by_class else {})))


class _Updates:
    """Writes what a step makes of the gradients, and makes outputs of the results."""

    def __init__(self, model: ir.Model, recipe: Recipe, loss: ir.Value) -> None:
        self._model, self._names, self._recipe = model, Names(model), recipe
        self._writer = self._writer_of(loss.dtype or ir.DataType.FLOAT, "update")
        self.rate_name = self._names.fresh("learning_rate")
        self._rate = self._declared(self.rate_name, ir.DataType.DOUBLE, ())
        self._loss = loss
        self._is_sound: ir.Value | None = None
        model.opset_imports[DOMAIN] = 1

    def _writer_of(self, dtype: ir.DataType, prefix: str) -> Writer:
        return Writer(self._model.graph, self._names, opset_of(self._model), dtype, prefix)

    def _declared(
        self, name: str, dtype: ir.DataType, shape: Sequence[int | str | None]
    ) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self._model.graph.inputs.append(value)
        return value

    def write(self, parameters: Sequence[ir.Value], gradients: list[ir.Value]) -> dict[str, str]:
        """The update of all parameters; returns the output of each state by its input."""
        graph, writer = self._model.graph, self._writer
        del graph.outputs[1:]
        step = self._declared(self._names.fresh("step"), ir.DataType.INT64, ())
        counted = writer.op("Add", [step, np.array(1, np.int64)], "step", dtype=step.dtype)
        if self._recipe.clip_norm is not None:
            gradients = self._clipped(gradients, self._recipe.clip_norm)
        if self._recipe.is_guarded:
            self._is_sound = self._finite(self._loss)
        graph.extend(writer.nodes)
        pairs = {str(step.name): self._give(step, counted)}
        for parameter, gradient in zip(parameters, gradients, strict=True):
            pairs |= self._update(parameter, gradient, counted)
        return pairs

    def carry(self, sources: Sequence[ir.Value], values: Sequence[ir.Value]) -> dict[str, str]:
        """States that pass data on to the next step."""
        return {
            str(source.name): self._give(source, value)
            for source, value in zip(sources, values, strict=True)
        }

    def _finite(self, value: ir.Value) -> ir.Value:
        writer, kind = self._writer, ir.DataType.BOOL
        size = writer.op("Abs", [value], "size")
        limit = np.array(np.finfo(writer.dtype.numpy()).max, writer.dtype.numpy())
        sound = writer.op("LessOrEqual", [size, limit], "finite", dtype=kind)
        return writer.op("Reshape", [sound, np.zeros(0, np.int64)], "finite", dtype=kind)

    def _clipped(self, gradients: list[ir.Value], most: float) -> list[ir.Value]:
        """The gradients times `most / (norm + 1e-6)`, at most 1, with the norm of all together."""
        writer, results, squares = self._writer, [], []
        for gradient in gradients:
            square: ir.Value = writer.op(
                "ReduceSumSquare", [gradient], "square", {"keepdims": 0}, gradient.dtype
            )
            if gradient.dtype != writer.dtype:
                square = writer.op("Cast", [square], "square", {"to": int(writer.dtype)})
            squares.append(square)
        norm = writer.op("Sqrt", [writer.op("Sum", squares, "squares")], "norm")
        padded = writer.op("Add", [norm, writer.scalar(1e-6)], "padded")
        share = writer.op("Div", [writer.scalar(most), padded], "share")
        factor = writer.op("Min", [share, writer.scalar(1)], "factor")
        for gradient in gradients:
            own = factor
            if gradient.dtype != writer.dtype:
                kind = gradient.dtype or writer.dtype
                own = writer.op("Cast", [factor], "factor", {"to": int(kind)}, kind)
            scaled = writer.op("Mul", [gradient, own], "clipped", dtype=gradient.dtype)
            scaled.shape = gradient.shape
            results.append(scaled)
        return results

    def _update(self, parameter: ir.Value, gradient: ir.Value, step: ir.Value) -> dict[str, str]:
        assert parameter.dtype is not None and parameter.shape is not None
        name, optimizer = str(parameter.name), self._recipe.optimizer
        writer = self._writer_of(parameter.dtype, f"update/{name}")
        states = tuple(
            self._declared(
                self._names.fresh(f"{name}.{role}"), parameter.dtype, dims_of(parameter) or ()
            )
            for role in optimizer.states
        )
        results = optimizer.write(Update(writer, self._rate, step, parameter, gradient, states))
        self._model.graph.extend(writer.nodes)
        pairs = zip((parameter, *states), results, strict=True)
        return {str(old.name): self._give(old, new) for old, new in pairs}

    def _give(self, old: ir.Value, new: ir.Value) -> str:
        """Make an output of the next value of a state; of the old one after an unsound step."""
        assert old.dtype is not None
        writer = self._writer_of(old.dtype, f"next/{old.name}")
        if self._is_sound is not None:
            result = writer.op("Where", [self._is_sound, new, old], "kept")
        else:
            result = writer.op("Identity", [new], "kept")
        self._model.graph.extend(writer.nodes)
        result.name = self._names.fresh(f"{old.name}.next")
        result.shape = old.shape
        self._model.graph.outputs.append(result)
        return str(result.name)
