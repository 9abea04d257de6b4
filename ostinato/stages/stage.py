"""A compiled model and its stages. Values flow from one to the next by name.

They are data, which can be stored and reloaded (`stages.packed`). `stages.flow` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from ostinato.codegen.artifact import Argument, Artifact
from ostinato.records import dataclass

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class NativeStage:
    """A compiled function; its arguments are named as the values it reads and makes."""

    artifact: Artifact

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The values the stage reads."""
        return self.artifact.inputs

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The values the stage makes."""
        return self.artifact.results


@dataclass(frozen=True)
class FallbackStage:
    """One node that runs on the kernels of `onnx.reference`, or is specialised when called.

    node: serialised NodeProto, whose input and output names are the names of the values.
    inputs: every value it reads once, those captured by its subgraphs included.
    outputs: the values it makes; absent optional outputs are left out.
    opsets: (domain, version) pairs of the model.
    name, op: what errors call it. reason: why it has no native kernel.
    value_keys: the inputs whose elements the node is specialised for, if it has a native form then.
    structure_keys: likewise those whose rank, extents of 1, length or presence it is specialised
        for.
    """

    node: bytes
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    opsets: tuple[tuple[str, int], ...]
    name: str
    op: str
    reason: str = ""
    value_keys: tuple[str, ...] = ()
    structure_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListStage:
    """Makes a list: the value of a sequence.

    output: the sequence, or an optional without element, whose value is None.
    elements: its tensors, values that earlier stages make; None for the optional.
    is_rows: the elements are the rows of the only tensor.
    axis: the elements are joined in the first tensor, with their axis of that number first; the
        second tensor has the borders between them.
    keys: the elements are dicts of the numbers in the rows of the only tensor, by these keys.
    """

    output: Argument
    elements: tuple[Argument, ...] | None
    is_rows: bool = False
    axis: int | None = None
    keys: tuple[int, ...] | tuple[str, ...] | None = None

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The values the stage reads."""
        return self.elements or ()

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The value the stage makes."""
        return (self.output,)


@dataclass(frozen=True)
class LookupStage:
    """Maps texts to values by keys, or places to texts: native code has no texts.

    operand, output: tensors of one shape.
    keys: distinct texts, each standing for the entry of `values` at the same place; other texts
        stand for `default`. None where the operand has places among `values`, which are texts then.
    """

    operand: Argument
    output: Argument
    keys: tuple[str, ...] | None
    values: tuple[int | float | str, ...]
    default: int | float | str | None = None

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The value the stage reads."""
        return (self.operand,)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The value the stage makes."""
        return (self.output,)


@dataclass(frozen=True)
class BranchStage:
    """Runs one of two models.

    name: what errors call it. condition: the value that chooses the first model.
    inputs: every value that the condition or a model reads, once.
    outputs: the values it makes: the outputs of either model, in their order. An output without
        name is not handed on.
    """

    name: str
    condition: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    branches: tuple[CompiledModel, CompiledModel]


Stage = NativeStage | FallbackStage | ListStage | LookupStage | BranchStage


def tensors(name: str, value: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Collect the tensors in a value: itself, none, or `name[0]`, `name[1]`, .. of a list."""
    if value is None:
        return {}
    if not isinstance(value, (list, tuple)):
        return {name: np.asarray(value)}
    return {f"{name}[{i}]": np.asarray(element) for i, element in enumerate(value)}


NO_ROOM = "exceed the capacity of a stream's state"
"""The message of a run that has no memory for the rows it would append."""


@dataclass(frozen=True)
class Keeping:
    """States of streams that grow, which the caller of a compiled model keeps.

    states: the output by the input. batch: the name of the dimension of a pool's streams.
    """

    states: Mapping[str, str]
    batch: str | None = None


@dataclass(frozen=True)
class KeptState:
    """A growing state of a stream, in memory that the caller keeps for the model.

    input, output: the model's names.
    axis: along which it grows, whose name in the model is `length`. is_last: whether that axis is
        the last one in memory. in_front: whether new rows come before the present ones, which then
        lie at the end of the memory.
    streams: the axis of a pool's streams, the first one in memory.
    moved: the axis along which rows change places before a step, with one more of them in memory.
    common: the input that says what rows have in common; "next" before its name is that of the
        output.
    """

    input: str
    output: str
    axis: int
    length: str
    is_last: bool
    in_front: bool
    streams: int | None = None
    moved: int | None = None
    common: str | None = None


@dataclass(frozen=True)
class GrownInput:
    """An input as long as a growing state is after the step, passed in memory with room for more.

    input: the model's name. axis: along which it grows with axis `length` of the states. extent:
        the input of its length.
    """

    input: str
    axis: int
    length: str
    extent: str


@dataclass(frozen=True)
class CompiledModel:
    """A compiled model: its stages and their report.

    inputs, outputs: as the model declares them, in its order.
    stages: run in this order. One native stage over exactly `inputs` and `outputs`, in the same
        order, is what makes the shortest calls.
    constants: values by name that fallback stages read or that are model outputs.
    overridable: the initializers that a caller may replace, as the model declares them.
    report: JSON-able facts about the compilation ("passes", "ops"), part of
        `InferenceSession.report`; under "other_ways" whether a program for those that its guards
        exclude may be native where one for all sizes is not.
    appended: inputs, and the outputs that are such an input with rows behind it. lengths: names
        of the axes of those that are caches of a fixed length where the caller tells it.
    kept, grown: the growing states of the stream that it was compiled for, and the inputs that are
        as long as they are.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    stages: tuple[Stage, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)
    overridable: tuple[Argument, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    appended: tuple[tuple[str, str], ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[KeptState, ...] = ()
    grown: tuple[GrownInput, ...] = ()

    @property
    def has_guards(self) -> bool:
        """Whether a native stage is specialised behind guards."""
        natives = [stage for stage in self.whole() if isinstance(stage, NativeStage)]
        return any(stage.artifact.report.get("assumptions") for stage in natives)

    def whole(self) -> Iterator[NativeStage | FallbackStage | ListStage | LookupStage]:
        """Yield all stages, in place of a `BranchStage` those of its branches."""
        for stage in self.stages:
            if isinstance(stage, BranchStage):
                for branch in stage.branches:
                    yield from branch.whole()
            else:
                yield stage
