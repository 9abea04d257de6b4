"""A model that learns: one compiled call computes the loss, its gradients and new parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.arguments import is_one_of
from ostinato.errors import InputError, OptionError, RunError, ShapeError, StreamError
from ostinato.model.load import ModelLike, load_model
from ostinato.model.weights import copy_contents
from ostinato.native.arguments import describe_values
from ostinato.options import Options
from ostinato.passes.normalise.portable import portable
from ostinato.quantization.quantize import check_block, prepared
from ostinato.quantization.training import trained_format, write_trained
from ostinato.runtime.session import InferenceSession
from ostinato.runtime.stream import Stream
from ostinato.runtime.uncopied import Uncopied
from ostinato.training import checkpoint
from ostinato.training.losses import LossFunction
from ostinato.training.optimizers import OPTIMIZERS, Optimizer
from ostinato.training.progress import Progress
from ostinato.training.step import Recipe, Targets, training_step

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Any]
Batch = Feeds | tuple[Feeds, Feeds]

_NON_FINITE = ("raise", "skip", "ignore")


class Trainer(Uncopied):
    """Trains initializers of an ONNX model.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
    loss: "mse", "l1", "bce_with_logits" (mean over all elements), "cross_entropy" (scores of
        classes along the last axis; targets are int64 without that axis, -100 where one does not
        count), the name of an output of the model, or a function `(op, outputs, targets) -> loss`
        that writes standard operators: `op.ReduceMean(op.Abs(op.Sub(outputs["y"], targets["y"])))`.
    optimizer: "adam", "adamw", "sgd", "momentum", "adagrad", or one with coefficients, such as
        `ostinato.training.Adam(beta2=0.98)`. lr: the learning rate.
    outputs: the outputs that have a target, by default all that are no states; their losses are
        added up. targets: the element type and shape of targets by name, where they differ from
        those of outputs: `{"clean": ("float32", ("time", "batch", 161))}`.
    train: names or patterns (`"encoder.*"`) of the initializers to train. By default all of type
        float32 or float64 that have at least one axis and that the loss depends on, but for what
        nodes read as a statistic or a setting: mean and variance of BatchNormalization, bounds of
        Clip, the value of Pad, scales of Resize, initial states of RNN, GRU and LSTM and their
        like. freeze: names or patterns to leave out of these, for instance of windows and tables.
    clip_norm: the largest norm of all gradients together; longer ones are scaled down to it.
    states: the output of each state by its input, as in `InferenceSession.stream`. They start as
        zeros and pass from step to step as data: truncated backpropagation through time.
    non_finite: what to do about a loss that is NaN or infinite: "raise" a `RunError` or "skip" it,
        both with parameters and states as they were, or "ignore" it, which then enters them.
    quantize: "int8" or "int4" to round weights in each step as `ostinato.quantize` stores them,
        with scales that stay what they are; `quantized` is the model with the weights stored so.
        block: how many terms of a sum share a scale, as that of `ostinato.quantize`.
    options, overrides: as those of `InferenceSession`.

    Operators are trained as they are for inference: BatchNormalization with its statistics fixed,
    Dropout as the identity; in training form they are refused. Training has the same bits in every
    run.

    Raises `InputError` for names and losses that do not fit the model, `OptionError` for options,
    `UnsupportedError` naming a node without a gradient, and what loading a model raises.
    """

    _instead = "write a `checkpoint`, and restore it in another trainer of the same model"

    def __init__(
        self,
        model: ModelLike,
        loss: str | LossFunction = "mse",
        optimizer: str | Optimizer = "adam",
        lr: float = 1e-3,
        *,
        outputs: Sequence[str] | None = None,
        targets: Targets | None = None,
        train: Sequence[str] | None = None,
        freeze: Sequence[str] = (),
        clip_norm: float | None = None,
        states: Mapping[str, str] | None = None,
        non_finite: str = "raise",
        quantize: str | None = None,
        block: int | None = None,
        options: Options | None = None,
        **overrides: Any,
    ) -> None:
        if not isinstance(non_finite, str) or non_finite not in _NON_FINITE:
            raise OptionError(f"non_finite={non_finite!r}: expected one of {_NON_FINITE}")
        if clip_norm is not None and not 0 < _number(clip_norm) < float("inf"):
            raise OptionError(f"clip_norm={clip_norm!r}: expected a positive number")
        if not isinstance(states, Mapping | None):
            raise InputError(f"states={states!r}: expected the output of each state by its input")
        self._rounded = None if quantize is None else trained_format(quantize)
        self._block = block
        if self._rounded is not None:
            check_block(self._rounded, block)
        elif block is not None:
            raise OptionError(f"block={block!r}: without `quantize` there are no scales")
        self._source = load_model(model) if quantize is None else prepared(model)
        copy_contents(self._source)
        self._non_finite = non_finite
        self._options, self._overrides = options, overrides
        recipe = Recipe(
            loss=loss,
            optimizer=_optimizer(optimizer),
            outputs=outputs,
            targets=targets,
            train=train,
            freeze=freeze,
            clip_norm=clip_norm,
            carried=dict(states or {}),
            is_guarded=non_finite != "ignore",
            rounded=self._rounded,
            block=block,
        )
        self._made = training_step(self._source, recipe)
        self._rate = np.zeros(())
        self.lr = lr
        self._session = InferenceSession(self._made.update, options, **overrides)
        self._forward: InferenceSession | None = None
        self._stream = self._started(self._made.kept)

    # Steps

    @property
    def lr(self) -> float:
        """The learning rate of the next step, 0 or more. Setting another raises `OptionError`."""
        return float(self._rate)

    @lr.setter
    def lr(self, value: float) -> None:
        if not 0 <= _number(value) < float("inf"):
            raise OptionError(f"lr={value!r}: expected 0 or a positive number")
        self._rate[...] = value

    @property
    def steps(self) -> int:
        """The number of steps so far; those with a loss that was not finite do not count."""
        return int(self._stream.state[self._step_name])

    def step(self, inputs: Feeds, targets: Feeds | None = None) -> float:
        """Train on one batch and return its loss, that of the parameters before the step.

        inputs: an array per input of the model that is no state, by name, as
            `InferenceSession.run` takes them. targets: an array per output that has a target, of
            its element type and shape unless the trainer's `targets` say otherwise.

        Raises `InputError` and `ShapeError` for arrays that do not fit, `RunError` for a loss that
        is not finite, unless `non_finite` says otherwise.
        """
        feeds = self._feeds(inputs, targets)
        feeds[self._made.rate] = self._rate
        with self._named():
            loss = float(self._stream.step(feeds)[0].item())
        if self._non_finite == "raise" and not np.isfinite(loss):
            raise RunError(
                f"the loss of step {self.steps + 1} is {loss}; parameters are what they were "
                "before: lower `lr`, set `clip_norm`, or pass non_finite='skip'"
            )
        return loss

    def fit(
        self,
        batches: Iterable[Batch] | Callable[[], Iterable[Batch]],
        epochs: int = 1,
        *,
        progress: bool = True,
    ) -> list[float]:
        """Train on all batches, `epochs` times; returns the mean loss of each epoch.

        batches: pairs `(inputs, targets)`, or inputs alone: a list, or a function that returns an
            iterable for each epoch. progress: show a bar, if standard error is a terminal.
        States that are carried start as zeros in each epoch. Raises what `step` raises, and
        `InputError` where there are no batches.
        """
        if not isinstance(epochs, int) or epochs < 0:
            raise InputError(f"epochs={epochs!r}: expected how often to train on all batches")
        if epochs > 1 and isinstance(batches, Iterator):
            raise InputError(
                "batches: an iterator is empty after one epoch; pass a list, or a function that "
                "returns an iterator"
            )
        means = []
        with Progress(epochs, progress) as bar:
            for _ in range(epochs):
                rows = batches() if callable(batches) else batches
                self.reset()
                losses = [bar.show(self.step(*_pair(b))) for b in bar.each(_several(rows))]
                if not losses:
                    raise InputError("batches: there are none")
                means.append(float(np.mean(losses)))
        return means

    def evaluate(self, batches: Iterable[Batch]) -> float:
        """The mean of the losses of all batches; nothing is trained.

        batches: as those of `fit`. Raises what `step` raises, but for losses that are not finite.
        States that are carried pass from batch to batch, and start as zeros.
        """
        if self._forward is None:
            self._forward = InferenceSession(self._made.forward, self._options, **self._overrides)
        parameters = dict(self.parameters)
        pairs = self._made.forward_carried
        stream = self._forward.stream(pairs) if pairs else None
        losses = []
        for batch in _several(batches):
            feeds = parameters | self._feeds(*_pair(batch))
            with self._named():
                results = self._forward.run(None, feeds) if stream is None else stream.step(feeds)
            losses.append(float(results[0].item()))
        if not losses:
            raise InputError("batches: there are none")
        return float(np.mean(losses))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let errors call targets what the caller calls them."""
        try:
            yield
        except (InputError, ShapeError) as error:
            text = str(error)
            for name, fed in self._made.targets.items():
                text = text.replace(f"input {fed!r}", f"target {name!r}")
            raise type(error)(text) from error.__cause__

    def _feeds(self, inputs: Feeds, targets: Feeds | None = None) -> dict[str, Any]:
        known = self._made.targets
        if not isinstance(inputs, Mapping) or not isinstance(targets, Mapping | None):
            names = ", ".join(f"{name!r}: .." for name in known)
            raise InputError(
                "expected two dicts, arrays by the names of inputs and of the outputs they are "
                f"compared with ({{{names}}}), got {type(inputs).__name__} and "
                f"{type(targets).__name__}"
            )
        feeds, given = dict(inputs), targets or {}
        own = [name for name in (self._made.rate, *known.values()) if name in feeds]
        if own:
            raise InputError(f"unknown input {own[0]!r}: the trainer feeds it itself")
        unknown = [name for name in given if name not in known]
        missing = [name for name in known if name not in given]
        if unknown:
            raise InputError(f"no target is called {unknown[0]!r}; there are {sorted(known)}")
        if missing:
            alone = "" if given else ": expected (inputs, targets), got inputs alone"
            raise InputError(f"target {missing[0]!r} is missing; there are {sorted(known)}{alone}")
        for name, value in given.items():
            feeds[known[name]] = value
        return feeds

    # What is trained

    @property
    def parameters(self) -> Parameters:
        """The parameters by name, to be read and set; see `Parameters`."""
        return Parameters(self)

    @property
    def model(self) -> onnx.ModelProto:
        """The given model with the parameters of now: same nodes, inputs and outputs."""
        trained = self._source.clone()
        for name, array in self.parameters.items():
            trained.graph.initializers[name].const_value = ir.tensor(array, name=name)
        return portable(trained)

    @property
    def quantized(self) -> onnx.ModelProto:
        """`model` with narrow weights: what steps compute with, bit for bit.

        Raises `OptionError` for a trainer without `quantize`.
        """
        if self._rounded is None:
            raise OptionError("quantized: the trainer was made without `quantize`")
        trained = self._source.clone()
        write_trained(trained, self._rounded, self._block, dict(self.parameters))
        return portable(trained)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `model` to a file. Raises `OSError` where that cannot be written."""
        onnx.save(self.model, path)

    # What is kept between steps

    @property
    def _step_name(self) -> str:
        return next(iter(self._made.pairs))

    def _started(self, values: Mapping[str, Array]) -> Stream:
        return Stream(self._session, self._made.pairs, values)

    def _kept(self) -> dict[str, Array]:
        """All that a step changes, but the states that have no size yet."""
        state = self._stream.state
        return {name: state[name] for name in state if name not in self._made.carried}

    def _carried(self) -> dict[str, Array]:
        state = self._stream.state
        try:
            return {name: state[name] for name in self._made.carried}
        except StreamError:  # no step has told their sizes
            return {}

    def reset(self) -> None:
        """Let the states that are carried start as zeros, with sizes as the next step has them."""
        if self._made.carried:
            self._stream = self._started(self._kept())

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write all that steps change to a file: parameters, what the optimizer keeps, states, lr.

        What follows after `restore` has the same bits as without. Raises `OSError` where the file
        cannot be written.
        """
        values = self._kept() | self._carried()
        checkpoint.write(path, self._session.report()["fingerprint"], self.lr, values)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint of a trainer with the same model, loss and optimizer.

        Raises `InputError` for another file, and leaves the trainer as it was.
        """
        # States that are carried have no size before the first step, and are not in the file then.
        expected = {
            name: replace(entry, is_optional=name in self._made.carried)
            for name, entry in self._stream._entries().items()
        }
        lr, values = checkpoint.read(path, self._session.report()["fingerprint"], expected)
        self._stream = self._started(values)
        self.lr = lr

    def __repr__(self) -> str:
        return f"<Trainer of {len(self.parameters)} parameters, step {self.steps}>"


class Parameters(Mapping[str, Array]):
    """The parameters of a trainer by name: reading gives copies, setting copies.

    Raises `InputError` for names, dtypes and shapes that are not those of the parameters.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __repr__(self) -> str:
        return f"<Parameters {describe_values(self)}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._trainer._made.parameters)

    def __len__(self) -> int:
        return len(self._trainer._made.parameters)

    def __getitem__(self, name: str) -> Array:
        if name not in self._trainer._made.parameters:
            raise InputError(f"no parameter is called {name!r}; there are {list(self)}")
        return self._trainer._stream.state[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, values: Mapping[str, Any]) -> None:
        """Set several parameters, or none if one of them is refused."""
        for name, value in values.items():
            known = self[name]
            try:
                shape = np.shape(value)
            except ValueError as error:
                raise InputError(f"parameter {name!r}: {error}") from error
            if shape != known.shape:
                raise InputError(
                    f"parameter {name!r}: expected shape {list(known.shape)}, got {list(shape)}"
                )
        trainer = self._trainer
        trainer._stream = trainer._started({**trainer._kept(), **trainer._carried(), **values})


def _number(value: Any) -> float:
    """The value, NaN for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _several(batches: Iterable[Batch]) -> Iterable[Batch]:
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping):
        raise InputError(f"batches: expected a list of them, got {type(batches).__name__}")
    return batches


def _optimizer(given: str | Optimizer) -> Optimizer:
    if isinstance(given, Optimizer):
        return given
    if not is_one_of(given, OPTIMIZERS):
        raise OptionError(f"optimizer={given!r}: expected one of {sorted(OPTIMIZERS)}")
    return OPTIMIZERS[given]


def _pair(batch: Batch) -> tuple[Feeds, Feeds]:
    if isinstance(batch, Mapping):
        return batch, {}
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(f"batches: expected pairs (inputs, targets), got {type(batch).__name__}")
    return batch[0], batch[1]
