"""Windows that move over spatial axes: where they lie, and how many places they have.

The arithmetic of Conv, ConvTranspose and pooling (the operators' documents), on numbers or on sizes
that only a run tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from ostinato.model.attributes import Attributes
from ostinato.records import dataclass
from ostinato.sizes.bounds import unless_negative
from ostinato.sizes.dims import Size, ceildiv, floordiv, minimum

S = TypeVar("S", bound="Size", covariant=True)


@dataclass(frozen=True)
class Moves:
    """Attributes of a node that moves a window, one number per spatial axis (two for `pads`)."""

    strides: Sequence[int]
    dilations: Sequence[int]
    automatic: str
    pads: Sequence[int]

    def padding(self, axis: int) -> tuple[int, int]:
        """The pads before and behind spatial axis `axis`."""
        return self.pads[axis], self.pads[axis + len(self.pads) // 2]

    def halves(self, total: Size) -> tuple[Size, Size]:
        """Automatic padding of this many elements, before and behind an axis."""
        half = floordiv(total, 2)
        return (half, total - half) if self.automatic == "SAME_UPPER" else (total - half, half)


def read_moves(attributes: Attributes, rank: int, dilated: bool = True) -> Moves:
    """strides, dilations, auto_pad and pads of a node with `rank` spatial axes, not checked."""
    return Moves(
        attributes.ints("strides", (1,) * rank),
        attributes.ints("dilations", (1,) * rank) if dilated else (1,) * rank,
        attributes.string("auto_pad", "NOTSET"),
        attributes.ints("pads", (0,) * (2 * rank)),
    )


@dataclass(frozen=True)
class Window(Generic[S]):
    """Size, stride, dilation and padding of a window along one spatial axis, in elements.

    outputs: the number of its places. beyond: how far the last one may reach past the padding
    (with ceil_mode).
    """

    kernel: int
    stride: int
    dilation: int
    before: S
    after: S
    outputs: S
    beyond: S

    @property
    def span(self) -> int:
        """The elements from the first to the last one below it."""
        return (self.kernel - 1) * self.dilation + 1


def placed(moves: Moves, axis: int, kernel: int, extent: Size, ceil: bool = False) -> Window[Size]:
    """The window of this many taps over spatial axis `axis`, which has `extent` elements."""
    stride, dilation = moves.strides[axis], moves.dilations[axis]
    span = (kernel - 1) * dilation + 1
    before: Size
    after: Size
    if moves.automatic.startswith("SAME"):
        outputs = ceildiv(extent, stride)
        before, after = moves.halves(unless_negative((outputs - 1) * stride + span - extent))
        return Window(kernel, stride, dilation, before, after, outputs, 0)
    before, after = moves.padding(axis)
    room = extent + before + after - span
    outputs = floordiv(room, stride) + 1
    if not ceil:
        return Window(kernel, stride, dilation, before, after, outputs, 0)
    outputs = ceildiv(room, stride) + 1
    # A position that starts in the padding behind the data does not count.
    outputs = minimum(outputs, ceildiv(extent + before, stride))
    beyond = unless_negative((outputs - 1) * stride + span - (extent + before + after))
    return Window(kernel, stride, dilation, before, after, outputs, beyond)


def spread(
    moves: Moves, axis: int, kernel: int, extent: Size, more: int, asked: Size | None
) -> Window[Size]:
    """The window that a transposed convolution moves over its result, `outputs` of which it fills.

    extent: of the input, a place of the window for each element. more: of `output_padding`.
    asked: of `output_shape`, which then decides the padding.
    """
    stride, dilation = moves.strides[axis], moves.dilations[axis]
    full = stride * (extent - 1) + more + (kernel - 1) * dilation + 1
    if asked is not None or moves.automatic.startswith("SAME"):
        outputs = extent * stride if asked is None else asked
        before, after = moves.halves(unless_negative(full - outputs))
    else:
        before, after = moves.padding(axis)
        outputs = full - before - after
    return Window(kernel, stride, dilation, before, after, outputs, 0)
