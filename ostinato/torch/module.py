"""A module whose calls run compiled code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ostinato.errors import InputError
from ostinato.options import Options
from ostinato.runtime.session import InferenceSession
from ostinato.torch.export import Exported, export
from ostinato.torch.native import Native


def compile(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    dynamic: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> CompiledModule:
    """Compile a module; what comes back is called as it is, and trained by the same parameters.

    example_inputs: arguments of a call, a tuple or one tensor; example_kwargs: those by name. Sizes
        and types count, not the elements.
    dynamic: None for calls of these sizes only, True for sizes that may all change (axes of the
        examples should then be longer than 1), or what `torch.export.export` takes as
        `dynamic_shapes`, such as `{"x": {0: torch.export.Dim("time")}}`.
    options: how to compile and run; by default nothing is left to the reference kernels.

    Parameters and buffers of float type are read where they are in every call, those of other types
    as they are now. Gradients flow to parameters and arguments.

    Raises `UnsupportedError` naming the line or node that has no native form.
    """
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else example_inputs
    return CompiledModule(module, tuple(inputs), dict(example_kwargs or {}), dynamic, options)


class CompiledModule(torch.nn.Module):
    """What `compile` makes: `module` with a compiled forward call.

    The mode counts: after `train()` or `eval()` the module is compiled for the other one, once.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic: Any,
        options: Options | None,
    ) -> None:
        super().__init__()
        self.module = module
        self.train(module.training)
        self._example = args, kwargs, dynamic
        self._options = options or Options(fallback=False)
        self._calls: dict[bool, Call] = {}
        self._call()

    @property
    def session(self) -> InferenceSession:
        """The session that calls without gradients go to, for its report."""
        return self._call().native.session

    def _call(self) -> Call:
        found = self._calls.get(self.training)
        if found is None:
            args, kwargs, dynamic = self._example
            exported = export(self.module, args, kwargs, dynamic)
            found = self._calls[self.training] = Call(self.module, exported, self._options)
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled code."""
        call = self._calls.get(self.training) or self._call()
        return call(args, kwargs)


class Call:
    """A compiled module: arguments as Python has them to tensors, and back."""

    def __init__(self, module: torch.nn.Module, exported: Exported, options: Options) -> None:
        self.native = Native(exported.model, options)
        self._exported = exported
        self._owners = [_owner(module, name) for name in exported.names]
        constant = any(not is_tensor for is_tensor, _ in exported.arguments)
        count = len(exported.arguments)
        plain = pytree.tree_structure(((torch.empty(0),) * count, {}))
        # Nothing to take apart: a call with that many tensors.
        self._plain = count if not constant and exported.in_spec == plain else -1
        # The same of results: one tensor, or a tuple of all in order.
        self._form: Callable[[Sequence[torch.Tensor]], Any] | None = None
        if [place for place, _ in exported.results] == list(
            range(len(exported.model.graph.outputs))
        ):
            if exported.out_spec == pytree.tree_structure(torch.empty(0)):
                self._form = operator.itemgetter(0)
            elif exported.out_spec == pytree.tree_structure(
                (torch.empty(0),) * len(exported.results)
            ):
                self._form = tuple

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != self._plain:
            args = self._tensors(args, kwargs)
        try:
            results = self.native((*args, *[table[name] for table, name in self._owners]))
        except AttributeError:
            # Something that is no tensor, most likely: then this says which.
            self._tensors(args, kwargs)
            raise
        if self._form is not None:
            return self._form(results)
        leaves = [
            constant if place is None else results[place]
            for place, constant in self._exported.results
        ]
        return pytree.tree_unflatten(leaves, self._exported.out_spec)

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        exported = self._exported
        if spec != exported.in_spec:
            raise InputError(
                f"arguments are nested as {spec}, but were {exported.in_spec} when the module was "
                "compiled; compile it again for this call"
            )
        tensors = []
        for place, (leaf, (is_tensor, constant)) in enumerate(
            zip(leaves, exported.arguments, strict=True)
        ):
            if is_tensor:
                if not isinstance(leaf, torch.Tensor):
                    raise InputError(f"argument {place} is {leaf!r}, expected a tensor")
                tensors.append(leaf)
            elif leaf != constant:
                raise InputError(
                    f"argument {place} is {leaf!r}, but was {constant!r} when the module was "
                    "compiled; compile it again for this value"
                )
        return tuple(tensors)


def _owner(module: torch.nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """The table of a parameter or buffer, in which programs may put another tensor, and its key."""
    path, _, key = name.rpartition(".")
    part = module.get_submodule(path)
    return (part._parameters if key in part._parameters else part._buffers), key
