"""Run a node whose operands decide ranks, axes or lengths: specialise it for those of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ostinato.errors import ModelError, RunError, UnsupportedError
from ostinato.stages.fallback import FallbackNode
from ostinato.stages.notice import Notice
from ostinato.stages.report import NotNative, not_native
from ostinato.stages.stage import Array, CompiledModel, FallbackStage, tensors

if TYPE_CHECKING:
    import onnx

# So many distinct keys are compiled for; operands that change more run on the reference kernel.
MAX_VARIANTS = 16


class _Compiled(Protocol):
    """A compiled node (`stages.flow.Flow`)."""

    model: CompiledModel

    def run(self, inputs: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, Any]:
        """The outputs by name."""


class SpecializedNode:
    """A node that becomes native code for each specialisation key that comes.

    The key has the elements of the operands in `stage.value_keys`, and of those in
    `stage.structure_keys` the rank, the axes of extent 1, the length of a sequence, or whether
    there is a value. Compiling may ask for the elements of further operands.

    The reference kernel takes over where the node has no native form for a key, and after
    `MAX_VARIANTS` different keys; `notice` is then told.

    specialize: compiles the node as a model, in which the key is constants; raises
    `UnsupportedError` where it has no native form.
    """

    def __init__(
        self,
        stage: FallbackStage,
        specialize: Callable[[onnx.ModelProto], _Compiled],
        notice: Notice,
    ) -> None:
        self.stage = stage
        self._notice = notice
        self._taken_over: list[str] = []
        self._value_keys = stage.value_keys
        self._specialize = specialize
        self._variants: dict[tuple[object, ...], _Compiled | None] = {}
        self._fallback: FallbackNode | None = None

    def not_native(self) -> list[NotNative]:
        """The node's entry in the report."""
        return [not_native(self.stage, self._taken_over)]

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Raises what compiling and running the node raises."""
        flow = self._variant(values)
        if flow is not None:
            parts = {argument.name: values[argument.name] for argument in self.stage.inputs}
            for name in self.stage.structure_keys:
                parts |= tensors(name, parts.pop(name))
            try:
                return flow.run({a.name: parts[a.name] for a in flow.model.inputs}, {})
            except UnsupportedError as error:
                # The general program has no native form.
                self._take_over(error.reason)
        if self._fallback is None:
            self._fallback = FallbackNode(self.stage)
            self._notice(self.not_native())
        return self._fallback.run(values)

    def _variant(self, values: Mapping[str, Any]) -> _Compiled | None:
        """Return the node specialised for the key of these values; None if it cannot be."""
        while True:
            key = self._key(values)
            if key in self._variants:
                return self._variants[key]
            if len(self._variants) >= MAX_VARIANTS:
                names = ", ".join((*self._value_keys, *self.stage.structure_keys))
                self._take_over(f"more than {MAX_VARIANTS} values of {names}")
                return None
            try:
                self._variants[key] = self._compiled(values)
            except UnsupportedError as error:
                further = self._further_keys(error)
                self._value_keys += further
                if not further:
                    self._take_over(error.reason)
                    self._variants[key] = None

    def _key(self, values: Mapping[str, Any]) -> tuple[object, ...]:
        arrays = [np.asarray(values[name]) for name in self._value_keys]
        elements = tuple((array.shape, array.tobytes()) for array in arrays)
        return (elements, *(_structure(values[name]) for name in self.stage.structure_keys))

    def _further_keys(self, error: UnsupportedError) -> tuple[str, ...]:
        """Name the operands whose elements compiling asks for, if it can have them."""
        tensors = {argument.name for argument in self.stage.inputs if argument.is_tensor}
        left = tensors - {*self._value_keys, *self.stage.structure_keys}
        return error.unknown if left.issuperset(error.unknown) else ()

    def _compiled(self, values: Mapping[str, Any]) -> _Compiled:
        # A start from the cache does not load onnx.
        from ostinato.stages.one_node import one_node_model

        constants = {name: np.asarray(values[name]) for name in self._value_keys}
        structures = {name: values[name] for name in self.stage.structure_keys}
        try:
            return self._specialize(one_node_model(self.stage, constants, structures))
        except ModelError as error:
            raise RunError(str(error)) from error

    def _take_over(self, reason: str) -> None:
        """Note why the reference kernel takes over."""
        if reason not in self._taken_over:
            self._taken_over.append(reason)


def _structure(value: Any) -> object:
    """Describe the structure of a value: its tensors, their types, ranks and axes of extent 1."""
    if isinstance(value, (list, tuple)):
        return "list", tuple(_structure(element) for element in value)
    if value is None:
        return None
    array = np.asarray(value)
    return array.dtype.name, tuple(n == 1 for n in array.shape)
