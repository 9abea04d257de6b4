"""A random network over sequences while it is made: its values, and ONNX text for its nodes.

Values are `[N, channels, length]`, where the length follows from that of the input, T, or
`[N, channels]` without a time axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tools.fuzz.text import Text

Length = Callable[[int], int]

# Lengths are compared at these numbers of frames of the input.
_PROBES = (36, 72, 144)
FAR = 2**40


@dataclass(frozen=True)
class Value:
    """A value `[N, channels, length(T)]`, or `[N, channels]` where `length` is None."""

    name: str
    channels: int
    length: Length | None

    def probes(self) -> tuple[int, ...]:
        assert self.length is not None
        return tuple(map(self.length, _PROBES))


@dataclass
class Sketch(Text):
    """A model that grows.

    others: the rank of each value that no block reads, and the model returns.
    """

    frames: list[Value] = field(default_factory=list)
    ends: list[Value] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)

    def weights(self, *shape: int) -> str:
        scale = 0.6 / max(1.0, np.prod(shape[1:]) ** 0.5)
        return self.constant((scale * self.random.standard_normal(shape)).astype(np.float32))

    def size(self, value: str, axis: int, *, scalar: bool = False) -> str:
        """The size of an axis, `[1]` or a scalar."""
        size = self.emit(f"Shape <start={axis}, end={axis + 1}> ({value})")
        return str(self.emit(f"Squeeze ({size})")) if scalar else str(size)

    def turned(self, value: str, *order: int) -> str:
        return str(self.emit(f"Transpose <perm={list(order)}> ({value})"))

    def made(self, name: str, channels: int, length: Length | None) -> Value:
        value = Value(name, channels, length)
        (self.ends if length is None else self.frames).append(value)
        return value

    def any_frames(self) -> Value:
        """One of the values with a time axis, a late one most of the time."""
        if self.chance(0.7):
            return self.frames[-1]
        return self.choose(self.frames)  # type: ignore[no-any-return]


Block = Callable[[Sketch], None]
