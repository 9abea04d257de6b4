"""What is known of a value while a model is converted: how it depends on time.

    Fact = Fixed | Sizes | Stream | Latest | OfLength | Table | Refused

For a stream `v` of the whole model, `v[i]` is its frame i. The converted model computes, chunk by
chunk, frames `s[0], s[1], ..`, where

    s[i + delay] = v[i]    for all i >= 0

The first `delay` frames of `s` mean nothing: what a node makes of them must not reach a frame that
does. A negative delay says that the first `-delay` frames of `v` are never sent, because they are
known: all their elements are `fill`, or they are the last frames of the fixed value `fill`. That is
how padding before the first frame comes for free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import onnx_ir as ir


@dataclass(frozen=True)
class Length:
    """A size that grows with time: about `scale` frames for each frame of the input.

    scale: None where the size is no multiple, as the number of rows of a batch of sequences.
    """

    scale: Fraction | None


Element: TypeAlias = "int | str | Length | None"
"""A size: a number, the name of a size that does not grow, one that does, or one not known."""


@dataclass(frozen=True)
class Fixed:
    """The same in every step.

    contents: the elements, where they are known. An axis of size 1 may stand for any size, along
    which all elements are equal.
    """

    contents: np.ndarray | None = None


@dataclass(frozen=True)
class Sizes:
    """An integer scalar, or a vector of them, made from shapes."""

    elements: tuple[Element, ...]
    scalar: bool = False

    @property
    def grows(self) -> bool:
        """Whether an element depends on the length of the sequence."""
        return any(isinstance(element, Length) for element in self.elements)


@dataclass(frozen=True)
class Stream:
    """Has a time axis; see the module's text for `delay` and `fill`.

    rate: frames for each frame of the input.
    steady: every frame is the same, so the value has any delay.
    extra: how many frames more than `rate` says the whole value has, where that is known: padding
        at both ends adds some, windows without padding take some away.
    """

    axis: int
    rate: Fraction
    delay: int = 0
    fill: float | ir.Value | None = None
    steady: bool = False
    extra: int | None = 0

    def padded_behind(self) -> Stream:
        """The fact of what is to be padded at its end.

        Frames that the whole model has cut off there are sent all the same, in place of the
        padding: then nothing is known of the last frames any more.
        """
        cut = self.extra is not None and self.extra + self.delay < 0
        return replace(self, extra=None) if cut else self

    @property
    def ends_with_step(self) -> bool:
        """Whether its last frame is the last one of a step, when the sequence ends there."""
        return self.extra is not None and self.extra + self.delay == 0


@dataclass(frozen=True)
class Latest:
    """Has no time axis, and says of the frames so far what the whole model says of all frames."""


@dataclass(frozen=True)
class OfLength:
    """Follows from the length of the sequence alone, in a way that a stream cannot follow.

    reason: why it cannot. Masks of attention are of this kind.
    """

    reason: str


@dataclass(frozen=True)
class Table:
    """Of attention: its last axes are the frames of a step, and the places of a ring of frames.

    form: "scores" to be masked, "masked" ones, "weights" that add up to 1, or "nowhere", which is
    true at no place. rate, delay: as of a stream of its rows.
    """

    rate: Fraction
    delay: int
    form: str = "scores"


@dataclass(frozen=True)
class Refused:
    """Made by a node that was refused, directly or not."""


Fact: TypeAlias = "Fixed | Sizes | Stream | Latest | OfLength | Table | Refused"
