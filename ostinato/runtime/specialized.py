"""Runs a stage whose operands decide ranks, axes or lengths: it is compiled for those they have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ostinato.errors import ModelError, RunError, UnsupportedError
from ostinato.options import Options
from ostinato.runtime.fallback import FallbackNode
from ostinato.runtime.flow import Flow, load
from ostinato.runtime.notice import Notice
from ostinato.runtime.report import NotNative, not_native
from ostinato.runtime.stage import FallbackStage

# Distinct values that are compiled for; operands that keep changing run on the reference kernel.
MAX_VARIANTS = 16


class SpecializedNode:
    """A node that becomes native code once more is known of its operands.

    What has to be known are the elements of `stage.numbers`, and of `stage.forms` the rank, the
    length of a sequence, or whether there is a value. Compiling may ask for further numbers.

    The reference kernel takes over where the node has no native form for the values, and after
    `MAX_VARIANTS` different ones; `notice` is then told.
    """

    def __init__(self, stage: FallbackStage, options: Options, notice: Notice) -> None:
        self.stage = stage
        self._notice = notice
        self._taken_over: list[str] = []
        self._numbers = stage.numbers
        self._options = dataclasses.replace(options, fallback=False, specialize={})
        self._variants: dict[tuple[object, ...], Flow | None] = {}
        self._fallback: FallbackNode | None = None

    def not_native(self) -> list[NotNative]:
        """The node's entry in the report."""
        return [not_native(self.stage, self._taken_over)]

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Raises what compiling and running the node raises."""
        from ostinato.one_node import tensors

        flow = self._variant(values)
        if flow is not None:
            parts = {argument.name: values[argument.name] for argument in self.stage.inputs}
            for name in self.stage.forms:
                parts |= tensors(name, parts.pop(name))
            try:
                return flow.run({a.name: parts[a.name] for a in flow.model.inputs}, {})
            except UnsupportedError as error:
                # The program for other sizes has no native form.
                self._refuse(error.reason)
        if self._fallback is None:
            self._fallback = FallbackNode(self.stage)
            self._notice(self.not_native())
        return self._fallback.run(values)

    def _variant(self, values: Mapping[str, Any]) -> Flow | None:
        """The node compiled for what is known of these values; None if it cannot be."""
        while True:
            key = self._key(values)
            if key in self._variants:
                return self._variants[key]
            if len(self._variants) >= MAX_VARIANTS:
                names = ", ".join((*self._numbers, *self.stage.forms))
                self._refuse(f"more than {MAX_VARIANTS} values of {names}")
                return None
            try:
                self._variants[key] = self._compiled(values)
            except UnsupportedError as error:
                wanted = self._wanted(error)
                self._numbers += wanted
                if not wanted:
                    self._refuse(error.reason)
                    self._variants[key] = None

    def _key(self, values: Mapping[str, Any]) -> tuple[object, ...]:
        arrays = [np.asarray(values[name]) for name in self._numbers]
        numbers = tuple((array.shape, array.tobytes()) for array in arrays)
        return (numbers, *(_form(values[name]) for name in self.stage.forms))

    def _wanted(self, error: UnsupportedError) -> tuple[str, ...]:
        """The operands that compiling asks for, if it can have them."""
        tensors = {argument.name for argument in self.stage.inputs if argument.is_tensor}
        left = tensors - {*self._numbers, *self.stage.forms}
        return error.unknown if left.issuperset(error.unknown) else ()

    def _compiled(self, values: Mapping[str, Any]) -> Flow:
        from ostinato.one_node import one_node_model

        numbers = {name: np.asarray(values[name]) for name in self._numbers}
        forms = {name: values[name] for name in self.stage.forms}
        try:
            flow, _ = load(one_node_model(self.stage, numbers, forms), self._options, self._notice)
        except ModelError as error:
            raise RunError(str(error)) from error
        return flow

    def _refuse(self, reason: str) -> None:
        if reason not in self._taken_over:
            self._taken_over.append(reason)


def _form(value: Any) -> object:
    """What a node is compiled for: how many tensors, their types, ranks and axes of extent 1."""
    if isinstance(value, (list, tuple)):
        return "list", tuple(_form(element) for element in value)
    if value is None:
        return None
    array = np.asarray(value)
    return array.dtype.name, tuple(n == 1 for n in array.shape)
