"""Facts of a value while a model is converted: its dependence on time.

    Fact = Fixed | Sizes | Stream | Rows | Table | SoFar | OfLength | Refused

Each fact is of one `Kind`, and `mixed` says which kinds no node can combine. What summarises the
sequence up to a step (`SoFar`) is right in the step's own terms only: the whole model would apply
the value of the last step to all frames, so such a value never meets a time axis again.

For a stream `v` of the whole model, `v[i]` is its frame i. The converted model computes, chunk by
chunk, frames `s[0], s[1], ..`, where

    s[i + delay] = v[i]    for all i >= 0

The first `delay` frames of `s` mean nothing: what a node makes of them must not reach a frame that
does. A negative delay says that the first `-delay` frames of `v` are never sent, because they are
known: all their elements are `fill`, or they are the last frames of the fixed value `fill`. That is
how padding before the first frame comes for free. `MIRRORED` ones are the frames behind the first
one in reverse order, which come later: what reads them waits until they have come.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.sizes.dims import Size, symbol

# The length of a stream, beside the names of sizes: of no dimension, for those are known before.
TIME = symbol("time", computed=True)
Monomial: TypeAlias = "tuple[Fraction, Size]"
"""A product of sizes: its number, which rates make a fraction, and the product of its symbols."""
ONE: Monomial = (Fraction(1), 1)


@dataclass(frozen=True)
class Length:
    """A size that grows with time: `scale` frames for each frame of the input, and `extra` more.

    No polynomial of `ostinato.sizes`, whose coefficients are integers: rates are fractions.

    scale: None where the size is no multiple, as the number of rows of a batch of sequences.
    extra: None where it is not known, or not always the same.
    """

    scale: Fraction | None
    extra: int | None = 0


class Mirror(Enum):
    """Marks frames before the first one that mirror those behind it."""

    MIRRORED = "mirrored"


MIRRORED = Mirror.MIRRORED

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

    @property
    def contents(self) -> np.ndarray | None:
        """The elements, where all are numbers."""
        if not all(isinstance(element, int) for element in self.elements):
            return None
        return np.array(self.elements[0] if self.scalar else self.elements, np.int64)


@dataclass(frozen=True)
class Stream:
    """Has a time axis; see the module's text for `delay` and `fill`.

    rate: frames for each frame of the input.
    steady: every frame is the same, so the value has any delay; it is said to have none.
    extra: how many frames more than `rate` says the whole value has, where that is known: padding
        at both ends adds some, windows without padding take some away.
    """

    axis: int
    rate: Fraction
    delay: int = 0
    fill: float | str | ir.Value | Mirror | None = None
    steady: bool = False
    extra: int | None = 0

    def __post_init__(self) -> None:
        if self.steady:
            object.__setattr__(self, "delay", 0)

    @property
    def ends_with_step(self) -> bool:
        """Whether its last frame is the last one of a step, when the sequence ends there."""
        return self.extra is not None and self.extra + self.delay == 0


@dataclass(frozen=True)
class Rows:
    """Frames among the rows of an axis, as where a Reshape merges time with the batch.

    What treats each row alone treats each frame alone; no frame is found by its number any more.

    stream: as before the axes were merged; its axis is the merged one.
    time: how many frames there are, `outer x time x inner` rows.
    """

    stream: Stream
    time: Monomial
    outer: Monomial
    inner: Monomial

    @property
    def are_equal(self) -> bool:
        """Whether all rows are the same, so that it does not matter how they were made."""
        return self.stream.steady and (self.outer, self.inner) == (ONE, ONE)

    def meets(self, other: Rows) -> bool:
        """Whether equal rows of both are of equal frames."""
        if self.are_equal or other.are_equal:
            return True
        alike = (self.time, self.outer, self.inner) == (other.time, other.outer, other.inner)
        steady = self.stream.steady or other.stream.steady
        return alike and (steady or replace(self.stream, axis=other.stream.axis) == other.stream)


@dataclass(frozen=True)
class SoFar:
    """Has no time axis, and says of the frames so far what the whole model says of all frames.

    is_last: whether it is made of the last frames alone; else it summarises all frames so far.
    first: from how many frames of the input on it means something.
    """

    is_last: bool
    first: int = 1

    def joined(self, other: SoFar) -> SoFar:
        """The fact of what is computed from both."""
        return SoFar(self.is_last and other.is_last, max(self.first, other.first))


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
    true at no place. rate, delay, extra: as of a stream of its rows.
    """

    rate: Fraction
    delay: int
    extra: int | None
    form: str = "scores"


@dataclass(frozen=True)
class Refused:
    """Made by a node that was refused, directly or not."""


Fact: TypeAlias = "Fixed | Sizes | Stream | Rows | Table | SoFar | OfLength | Refused"


class Kind(Enum):
    """Describe how a value depends on time."""

    CONSTANT = "is the same in all steps"
    ALONG_TIME = "has a frame for each frame of the sequence"
    LAST = "belongs to the last frame of the sequence"
    SO_FAR = "summarises the sequence up to its end"
    LENGTH = "depends on how long the sequence is"
    EVERYTHING = "needs the whole sequence"


def kind_of(fact: Fact) -> Kind:
    """The kind of a value with this fact."""
    if isinstance(fact, (Stream, Rows, Table)):
        return Kind.ALONG_TIME
    if isinstance(fact, SoFar):
        return Kind.LAST if fact.is_last else Kind.SO_FAR
    if isinstance(fact, OfLength) or (isinstance(fact, Sizes) and fact.grows):
        return Kind.LENGTH
    return Kind.EVERYTHING if isinstance(fact, Refused) else Kind.CONSTANT


def mixed(kinds: Collection[Kind]) -> bool:
    """Whether such values meet a time axis, or the length that such an axis gets."""
    so_far = Kind.LAST in kinds or Kind.SO_FAR in kinds
    return so_far and (Kind.ALONG_TIME in kinds or Kind.LENGTH in kinds)


@dataclass(frozen=True)
class Ring:
    """The places of a ring of `size` frames, at one rate.

    numbers: of the frame at each place, negative where there is none yet: int64, `[size]`.
    is_new: which come with this step. source: their places among the frames of the step.
    """

    size: int
    numbers: ir.Value
    is_new: ir.Value
    source: ir.Value


@dataclass(frozen=True)
class Everything:
    """The frames so far at one rate, in order. numbers: of each of them, from 0 on: int64."""

    numbers: ir.Value
