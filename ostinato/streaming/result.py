"""The result of a conversion, and the record of it while it is being made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import onnx

from ostinato.errors import UnsupportedError


@dataclass(frozen=True)
class State:
    """A value that a stream keeps from step to step.

    input, output: names in the converted model. shape: numbers, and names of run-time sizes.
    initial: value before the first step; an axis of size 1 may stand for one of run-time size. An
        axis of size 0 grows.
    node, purpose: which node of the given model it belongs to, and what it is, in words.
    """

    input: str
    output: str
    shape: tuple[int | str | None, ...]
    dtype: np.dtype
    initial: np.ndarray
    node: str
    purpose: str


@dataclass(frozen=True)
class Note:
    """A record of the change to a node that was not kept as it was."""

    node: str
    op: str
    text: str


@dataclass(frozen=True)
class OutputTiming:
    """Rate and delay of an output of the converted model.

    axis: its time axis, None for an output without one. rate: its frames for each input frame.
    delay: its first frames, to be ignored; frame `i + delay` is frame `i` of the given model.
    first: of an output without a time axis, after how many frames of the input it is what the
        given model says of these frames; in earlier steps it is to be ignored.
    """

    axis: int | None
    rate: Fraction
    delay: int
    first: int = 0


@dataclass(frozen=True)
class Conversion:
    """A model that takes a sequence chunk by chunk.

    model: standard ONNX with state inputs and outputs beside the ones of the given model.
    state_list: what it carries, in the order of its inputs. outputs: rate and delay of each output.
    time: the time axis of each input that has one.
    chunk: frames in a step; None where each step may have another number.
    multiple: the number of frames in a step is a multiple of this.
    notes: the nodes that were not kept as they were.
    """

    model: onnx.ModelProto
    state_list: tuple[State, ...]
    outputs: Mapping[str, OutputTiming]
    time: Mapping[str, int]
    chunk: int | None
    multiple: int
    notes: tuple[Note, ...]

    def __repr__(self) -> str:
        time = ", ".join(f"axis {axis} of {name}" for name, axis in self.time.items())
        states = ", ".join(f"{name} <- {output}" for name, output in self.states.items())
        chunk = "any chunk" if self.chunk is None else f"chunk {self.chunk}"
        return (
            f"<Conversion along {time}, {chunk}, latency {self.latency}: {states or 'no states'}>"
        )

    @property
    def states(self) -> dict[str, str]:
        """Output of every state by its input, as `InferenceSession.stream` takes them."""
        return {state.input: state.output for state in self.state_list}

    @property
    def initial(self) -> dict[str, np.ndarray]:
        """Initial value of every state by its input, of its dtype; run-time sizes are 1."""
        return {state.input: state.initial for state in self.state_list}

    def initial_values(self, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Initial values with run-time sizes, such as the batch, as `sizes` gives them by name.

        Sizes that are not given are 1.
        """
        found = {}
        for state in self.state_list:
            shape = [
                size if isinstance(size, int) else (sizes or {}).get(size or "", min(first, 1))
                for size, first in zip(state.shape, state.initial.shape, strict=True)
            ]
            found[state.input] = np.broadcast_to(state.initial, shape).copy()
        return found

    @property
    def delay(self) -> dict[str, int]:
        """Delay of every output by name, in its own frames, 0 or more."""
        return {name: timing.delay for name, timing in self.outputs.items()}

    @property
    def latency(self) -> int:
        """Algorithmic latency: how many input frames later the last output comes, at most.

        That is because of what the model looks ahead; waiting until a chunk is full is extra.
        """
        return max((math.ceil(t.delay / t.rate) for t in self.outputs.values()), default=0)


class ConversionError(UnsupportedError):
    """Nodes of a model that cannot work chunk by chunk, all of them.

    refusals: one `UnsupportedError` for each node. `node`, `op` and `reason` are of the first; the
    text of the error lists all.
    """

    def __init__(self, refusals: tuple[UnsupportedError, ...]) -> None:
        first = refusals[0]
        super().__init__(first.node, first.op, first.reason)
        self.refusals = refusals
        if len(refusals) > 1:
            lines = [f"{len(refusals)} nodes cannot be converted:", *map(str, refusals)]
            self.args = ("\n  ".join(lines),)
