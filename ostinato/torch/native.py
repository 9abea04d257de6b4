"""Calls of a compiled model with tensors, and their gradients for PyTorch's autograd."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, from_numpy, strided
from torch.nn import Parameter

from ostinato.autodiff.partition import Partition, partition
from ostinato.autodiff.stops import drop_stops, flowing
from ostinato.options import Options
from ostinato.runtime.session import InferenceSession

_ONCE = b"a gradient of a gradient is not compiled; call the module itself, compiled.module, for it"

Array = np.ndarray[Any, Any]
Original: TypeAlias = Callable[[Sequence[Tensor]], Sequence[Tensor]]


class Native:
    """An ONNX model as a function of tensors.

    model: its inputs are the tensors in order. Tensors are read where they are. Where gradients are
    wanted, the model is compiled once more for each set of inputs that want one: forward with what
    the backward call needs, and backward. constant: outputs through which no gradients flow.
    original: the function as PyTorch computes it, for gradients of gradients, if there is one.

    Raises `UnsupportedError` naming the node that has no native form.
    """

    def __init__(
        self,
        model: ir.Model,
        options: Options,
        constant: Collection[int] = (),
        original: Original | None = None,
    ) -> None:
        self._model, self._options, self._constant = model, options, constant
        self._original = original
        forward = model.clone()
        drop_stops(forward)
        self._session = _Session(InferenceSession(forward, options))
        self._dead = _dead(model, constant)
        self._pairs: dict[tuple[bool, ...], _Pair] = {}
        self._lock = threading.Lock()

    @property
    def session(self) -> InferenceSession:
        """The session of the model without gradients."""
        return self._session.session

    def __call__(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs of the model."""
        if torch.is_grad_enabled():
            wanted = tuple([tensor.requires_grad for tensor in tensors])
            if self._dead and any(wanted[place] for place in self._dead):
                # A call is no reason to go back to where those come from.
                tensors = [t.detach() if i in self._dead else t for i, t in enumerate(tensors)]
                wanted = tuple([tensor.requires_grad for tensor in tensors])
            if True in wanted:
                results: Sequence[Tensor] = _apply(self.pair(wanted), self._original, *tensors)
                return results
        return self._session(tensors)

    def pair(self, wanted: tuple[bool, ...]) -> _Pair:
        """The forward and backward models for the inputs that want a gradient."""
        found = self._pairs.get(wanted)
        if found is None:
            with self._lock:
                found = self._pairs.get(wanted)
                if found is None:
                    found = self._pairs[wanted] = _Pair(
                        self._model, wanted, self._options, self._constant
                    )
        return found


class _Session:
    """A session called with arrays in the order of its inputs."""

    def __init__(self, session: InferenceSession) -> None:
        self.session, self._run = session, session.run
        self.names = [argument.name for argument in session.get_inputs()]
        self._is_narrow = [
            any(argument.type == "tensor(bfloat16)" for argument in arguments)
            for arguments in (session.get_inputs(), session.get_outputs())
        ]
        # Each parameter, what it was when its array was made, and the array: a parameter may get
        # other memory, or be another one in the next call.
        nothing: tuple[Any, Any, Any] = None, None, None
        self._kept = dict.fromkeys(self.names, nothing)

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if self._is_narrow[0]:
            feed = {n: _array(t) for n, t in zip(self.names, tensors, strict=True)}
        else:
            feed = {
                name: kept[2]
                if kept[0] is tensor and tensor.is_set_to(kept[1])
                else self._array(name, tensor)
                for (name, kept), tensor in zip(self._kept.items(), tensors, strict=True)
            }
        return [*map(_tensor if self._is_narrow[1] else from_numpy, self._run(None, feed))]

    def _array(self, name: str, tensor: Tensor) -> Array:
        if tensor.layout == strided and not tensor.is_contiguous():
            # PyTorch copies faster than a session, and gradients of sums are such.
            return _array(tensor.contiguous())
        array: Array = tensor.numpy(force=True)
        if tensor.__class__ is Parameter:
            self._kept[name] = tensor, tensor.detach(), array
        return array


def _array(tensor: Tensor) -> Array:
    """A tensor as NumPy has it, also one of bfloat16."""
    if tensor.dtype == torch.bfloat16:
        words: Array = tensor.detach().contiguous().view(torch.int16).numpy(force=True)
        return words.view(ml_dtypes.bfloat16)
    array: Array = tensor.numpy(force=True)
    return array


def _tensor(array: Array) -> Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return from_numpy(array)


class _Pair:
    """A model compiled for a forward and a backward call.

    wanted: which inputs want a gradient. saved: which the backward call reads. kept: which results
        of the forward call it reads. floats: which outputs have a gradient; whole: the others.
    """

    def __init__(
        self,
        model: ir.Model,
        wanted: Sequence[bool],
        options: Options,
        constant: Collection[int],
    ) -> None:
        inputs = [str(value.name) for value in model.graph.inputs]
        outputs = [str(value.name) for value in model.graph.outputs]
        given = [v for v, want in zip(model.graph.inputs, wanted, strict=True) if want]
        reached = downstream(model, given)
        self.floats = [
            _may_flow(value) and place not in constant and value in reached
            for place, value in enumerate(model.graph.outputs)
        ]
        self.whole = [place for place, has in enumerate(self.floats) if not has]
        parts = partition(
            model,
            [name for name, want in zip(inputs, wanted, strict=True) if want],
            [name for name, has in zip(outputs, self.floats, strict=True) if has],
        )
        self.count, self.wanted = len(outputs), tuple(wanted)
        self.forward = _Session(InferenceSession(parts.forward, options))
        self.backward = _Session(InferenceSession(parts.backward, options))
        self.saved = [place for place, name in enumerate(inputs) if name in parts.reads]
        made = [value.name for value in parts.forward.graph.output]
        self.kept = [place for place, name in enumerate(made) if name in parts.reads]
        self._order = self._places(parts, inputs, made)

    def _places(self, parts: Partition, inputs: list[str], made: list[str]) -> list[int]:
        """The place of each array of the backward model among saved, kept and cotangents."""
        given = [inputs[place] for place in self.saved] + [made[place] for place in self.kept]
        given += parts.cotangents.values()
        return [given.index(name) for name in self.backward.names]

    def gradients(self, given: Sequence[Tensor]) -> list[Tensor]:
        """given: saved inputs, kept results, gradients of the outputs of float type."""
        return self.backward([given[place] for place in self._order])


def downstream(model: ir.Model, sources: Collection[ir.Value]) -> set[ir.Value]:
    """Values of the main graph from which gradients flow to the sources."""
    found = set(sources)
    for node in model.graph:
        if not found.isdisjoint(flowing(node)):
            found.update(filter(_may_flow, node.outputs))
    return found


def _dead(model: ir.Model, constant: Collection[int]) -> list[int]:
    """The places of inputs to which no gradient flows from an output."""
    outputs = enumerate(model.graph.outputs)
    found = {value for place, value in outputs if place not in constant and _may_flow(value)}
    for node in reversed(model.graph):
        if not found.isdisjoint(node.outputs):
            found.update(filter(_may_flow, flowing(node)))
    return [place for place, value in enumerate(model.graph.inputs) if value not in found]


def _may_flow(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()


class _Differentiable(torch.autograd.Function):
    """The forward call of a pair, whose backward call is the other one."""

    @staticmethod
    def forward(
        ctx: Any, pair: _Pair, original: Original | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        results = pair.forward(tensors)
        ctx.call = pair, original, tensors
        # Outputs among them, so that one who writes into these is told before the backward call.
        ctx.save_for_backward(
            *[tensors[place] for place in pair.saved], *[results[place] for place in pair.kept]
        )
        if pair.whole:
            ctx.mark_non_differentiable(*[results[place] for place in pair.whole])
        return tuple(results[: pair.count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pair, original, tensors = ctx.call
        if torch.is_grad_enabled() and original is not None:
            results: Any = _gradients(original, pair, tensors, gradients)
        else:
            own = [g for g, has in zip(gradients, pair.floats, strict=True) if has]
            results = pair.gradients([*ctx.saved_tensors, *own])
            if torch.is_grad_enabled():
                # Asking for a graph of the gradient is no error; differentiating it is.
                refuse = torch._C._functions.DelayedError(_ONCE, len(results))
                refused = refuse(*(result.requires_grad_() for result in results))
                # One tensor comes back as itself.
                results = [refused] if isinstance(refused, Tensor) else [*refused]
        found = iter(results)
        # Pair and original are inputs of the function, too.
        return None, None, *(next(found) if wanted else None for wanted in pair.wanted)


# `Function.apply` without its wrapper in Python, which is for transforms of `torch.func`: these are
# refused before.
_apply = super(torch.autograd.Function, _Differentiable).apply


def _gradients(
    original: Original, pair: _Pair, tensors: Sequence[Tensor], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """Gradients that have one themselves, by what PyTorch computes."""
    sources = [t for t, wanted in zip(tensors, pair.wanted, strict=True) if wanted]
    made = zip(original(tensors), gradients, pair.floats, strict=True)
    ways = [(y, g) for y, g, has in made if has and y.requires_grad]
    outputs, seeds = zip(*ways, strict=True)
    return [*torch.autograd.grad(outputs, sources, seeds, create_graph=True, allow_unused=True)]
