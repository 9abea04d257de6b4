"""Run the stages of a compiled model one after the other, passing values by name.

A flow whose guard fails deoptimises: the flow of a program for other sizes runs in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.codegen.artifact import Argument
from ostinato.element_types import numpy_dtype
from ostinato.errors import RunError
from ostinato.native.arguments import check_output_shape, describe, describe_array
from ostinato.native.function import GuardError, NativeFunction
from ostinato.options import Options
from ostinato.stages.around import around
from ostinato.stages.fallback import FallbackNode
from ostinato.stages.lists import ListMaker
from ostinato.stages.lookup import Lookup
from ostinato.stages.notice import Notice
from ostinato.stages.report import NotNative, always_interpreted, of_other_sizes
from ostinato.stages.specialized import SpecializedNode
from ostinato.stages.stage import (
    BranchStage,
    CompiledModel,
    ListStage,
    LookupStage,
    NativeStage,
    Stage,
)

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]


class Flow:
    """The runnable stages of `model`, which also frees each value behind its last reader.

    notice: is told which nodes are interpreted.
    others: compile the programs for other sizes where `model` has guards, the last one without any.
    specialize: compiles a node that is specialised when called, and may fail with
        `UnsupportedError`.
    """

    def __init__(
        self,
        model: CompiledModel,
        options: Options,
        notice: Notice,
        specialize: Callable[[onnx.ModelProto], Flow],
        others: Sequence[Callable[[], CompiledModel]] = (),
    ) -> None:
        self.model = model
        self._options, self._notice, self._specialize = options, notice, specialize
        self._compile_others = others
        self._other: Flow | None = None
        self.stages = [_runnable(stage, options, notice, specialize) for stage in model.stages]
        self._last_reads = _last_reads(model)
        self._whole = _whole(model, self.stages)
        self.around = around(model, self.stages)
        # The flow of `others` that ran last; None if this one did: a reference to itself keeps it
        # alive.
        self._last: Flow | None = None

    def natives(self) -> Iterator[NativeFunction]:
        """The native functions in the order they run."""
        for stage in self.stages:
            if isinstance(stage, NativeFunction):
                yield stage
            elif isinstance(stage, BranchNode):
                for branch in stage.branches:
                    yield from branch.natives()

    def not_native(self) -> list[NotNative]:
        """The entries of `Report.fallback`; those of programs for other sizes come last."""
        if self._other is None:
            others: list[NotNative] = list(self.model.report.get("other_sizes", ()))
        else:
            unless = [text for native in self.natives() for text in native.guards]
            others = [of_other_sizes(entry, unless) for entry in self._other.not_native()]
        return [*self._own_not_native(), *others]

    def _own_not_native(self) -> list[NotNative]:
        stages = [s for s in self.stages if not isinstance(s, NativeFunction | ListMaker | Lookup)]
        return [entry for stage in stages for entry in stage.not_native()]

    def direct(self) -> NativeFunction | None:
        """The only stage, if it is native and takes and makes exactly the model's values."""
        whole = self._whole
        return whole if whole is not None and not whole.artifact.shapes else None

    def whole(self) -> NativeFunction | None:
        """As `direct`, or a stage of whose results `NativeFunction.exact` makes the outputs."""
        return self._whole

    def versions(self) -> Iterator[Flow]:
        """Yield this flow, then those for other sizes, which are compiled when asked for."""
        yield self
        if self._other is None and self._compile_others:
            first, *others = self._compile_others
            self._other = Flow(first(), self._options, self._notice, self._specialize, others)
            self._notice(always_interpreted(self._other.not_native()))
        if self._other is not None:
            yield from self._other.versions()

    def run(self, inputs: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, Any]:
        """Return every model output by name: in an array of `given` that names it, or a fresh one.

        inputs: by name, checked, sharing no memory with `given`.
        """
        for version in self.versions():
            try:
                results = version._run(inputs, given)
            except GuardError as error:
                failed = error
                continue
            self._last = None if version is self else version
            return results
        raise failed

    @property
    def last(self) -> Flow:
        """The flow among `versions` that ran last."""
        return self._last or self

    def _run(self, inputs: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, Any]:
        values: dict[str, Any] = {**self.model.constants, **inputs}
        fresh: set[str] = set()
        for stage, last_read in zip(self.stages, self._last_reads, strict=True):
            if isinstance(stage, NativeFunction):
                made = stage.run(values, given)
                fresh.update(made)
                values.update(made)
            else:
                values.update(stage.run(values))
            for name in last_read:
                del values[name]
        results = {}
        for argument in self.model.outputs:
            value = _checked_output(argument, values[argument.name])
            target = given.get(argument.name)
            if target is None:
                is_fresh = argument.name in fresh or not argument.is_tensor
                results[argument.name] = value if is_fresh else np.array(value, order="C")
            else:
                results[argument.name] = _store(argument, value, target)
        return results


def _whole(model: CompiledModel, stages: Sequence[object]) -> NativeFunction | None:
    if len(stages) != 1 or not isinstance(stages[0], NativeFunction):
        return None
    artifact = stages[0].artifact
    is_same = _names(artifact.inputs) == _names(model.inputs) and _names(
        artifact.results
    ) == _names(model.outputs)
    return stages[0] if is_same else None


class BranchNode:
    """Run a `BranchStage`."""

    def __init__(
        self,
        stage: BranchStage,
        options: Options,
        notice: Notice,
        specialize: Callable[[onnx.ModelProto], Flow],
    ) -> None:
        self._stage = stage
        self.branches = [Flow(model, options, notice, specialize) for model in stage.branches]

    def not_native(self) -> list[NotNative]:
        """The entries of both branches in the report."""
        return [entry for branch in self.branches for entry in branch.not_native()]

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Raises `RunError` for a condition that is not one element."""
        stage = self._stage
        condition = np.asarray(values[stage.condition])
        if condition.size != 1:
            shape = list(condition.shape)
            raise RunError(f"node {stage.name!r}: the condition has shape {shape}, not one element")
        branch = self.branches[0 if condition.item() else 1]
        results = branch.run({a.name: values[a.name] for a in branch.model.inputs}, {})
        names = zip(stage.outputs, branch.model.outputs, strict=True)
        return {made.name: results[inner.name] for made, inner in names if made.name}


def _runnable(
    stage: Stage,
    options: Options,
    notice: Notice,
    specialize: Callable[[onnx.ModelProto], Flow],
) -> NativeFunction | FallbackNode | SpecializedNode | ListMaker | Lookup | BranchNode:
    if isinstance(stage, NativeStage):
        return NativeFunction(stage.artifact, options.cache_dir, options.flush_denormals)
    if isinstance(stage, ListStage):
        return ListMaker(stage)
    if isinstance(stage, LookupStage):
        return Lookup(stage)
    if isinstance(stage, BranchStage):
        return BranchNode(stage, options, notice, specialize)
    if not stage.value_keys and not stage.structure_keys:
        return FallbackNode(stage)
    return SpecializedNode(stage, specialize, notice)


def _names(arguments: Iterable[Argument]) -> list[str]:
    return [argument.name for argument in arguments]


def _last_reads(model: CompiledModel) -> list[list[str]]:
    """List for each stage the values that no later stage reads and that are no outputs."""
    needed = set(_names(model.outputs))
    result = []
    for stage in reversed(model.stages):
        touched = dict.fromkeys(_names((*stage.inputs, *stage.outputs)))
        result.append([name for name in touched if name not in needed])
        needed.update(touched)
    return result[::-1]


def _checked_output(argument: Argument, value: Any) -> Any:
    if argument.is_tensor:
        try:
            value = np.asarray(value)
        except ValueError as error:
            got = type(value).__name__
            message = f"output {argument.name!r}: expected {describe(argument)}, got a {got}"
            raise RunError(message) from error
        if value.dtype != numpy_dtype(argument.dtype):
            got = describe_array(value)
            raise RunError(f"output {argument.name!r}: expected {describe(argument)}, got {got}")
    return value


def _store(argument: Argument, value: Array, target: Array) -> Array:
    check_output_shape(argument, target, value.shape)
    if target is not value:
        np.copyto(target, value)
    return target
