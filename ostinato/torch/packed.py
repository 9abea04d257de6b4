"""Packed sequences of PyTorch as padded ones with the lengths of their rows.

What a packed sequence holds, the elements of all rows step by step, has a size that data decide. It
is computed where a program reads it; recurrent layers and `pad_packed_sequence` take the padded
tensor that it stands for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.modules import rnn
from torch.utils.weak import WeakTensorKeyDictionary

from ostinato.torch.recurrent import stack


@dataclass(frozen=True)
class _Layout:
    """The places of a packed sequence's elements in a padded one.

    lengths: int64[B], of the rows. time: steps of the padded one. sizes: int64[steps], how many
    rows each step has, up to the last that any has.
    """

    lengths: Tensor
    time: int
    sizes: Tensor

    @property
    def rows(self) -> int:
        """The number of rows."""
        rows: int = self.lengths.shape[0]
        return rows

    @property
    def is_valid(self) -> Tensor:
        """bool[T, B]: the elements that count."""
        return torch.arange(self.time).unsqueeze(1) < self.lengths

    @functools.cached_property
    def places(self) -> Tensor:
        """The places of elements, as rows of a tensor [T * B, ...]."""
        return self.is_valid.flatten().nonzero().squeeze(1)

    def packed(self, padded: Tensor) -> Tensor:
        """The elements that count, step by step."""
        data = padded.flatten(0, 1).index_select(0, self.places)
        _PADDED[data] = padded
        return data

    def padded(self, data: Tensor) -> Tensor:
        """[T, B, ...] with any elements that do not count."""
        found = _PADDED.get(data)
        if found is None:
            torch._check(data.shape[0] == self.places.shape[0])
            empty = data.new_zeros((self.time * self.rows, *data.shape[1:]))
            found = empty.index_copy(0, self.places, data).unflatten(0, (self.time, self.rows))
        return found


# The padded tensors behind data of packed sequences, layouts by sizes, and numbers of rows by the
# first size.
_PADDED = WeakTensorKeyDictionary()
_LAYOUTS = WeakTensorKeyDictionary()
_ROWS = WeakTensorKeyDictionary()


def pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """`torch._pack_padded_sequence`: elements, and how many rows each step has."""
    x = x.transpose(0, 1) if batch_first else x
    steps: Any = lengths.max().item()
    torch._check(steps >= 1)
    torch._check(steps <= x.shape[0])
    counts = (torch.arange(x.shape[0]).unsqueeze(1) < lengths).sum(1)
    layout = _Layout(lengths, x.shape[0], counts.narrow(0, 0, steps))
    _LAYOUTS[layout.sizes] = layout
    return layout.packed(x), layout.sizes


def pad(
    data: Tensor, sizes: Tensor, batch_first: bool, value: float, total: int
) -> tuple[Tensor, Tensor]:
    """`torch._pad_packed_sequence`: rows of `total` steps, and their lengths."""
    layout = _layout(sizes)
    x = layout.padded(data)
    is_valid = layout.is_valid.view(layout.time, layout.rows, *[1] * (x.dim() - 2))
    y = torch.where(is_valid, x, torch.full((), value, dtype=x.dtype))
    if statically_known_true(total <= layout.time):
        y = y.narrow(0, 0, total)
    else:
        y = torch.cat([y, y.new_full((total - layout.time, *y.shape[1:]), value)])
    return y.transpose(0, 1) if batch_first else y, layout.lengths


def _layout(sizes: Tensor, rows: int | None = None) -> _Layout:
    found: _Layout | None = _LAYOUTS.get(sizes)
    if found is None:
        # A packed sequence that was made elsewhere.
        count: Any = sizes[0].item() if rows is None else rows
        lengths = (torch.arange(count) < sizes.unsqueeze(1)).sum(0)
        found = _LAYOUTS[sizes] = _Layout(lengths, sizes.shape[0], sizes)
    return found


def recurrent(name: str) -> Callable[..., Any]:
    """The recurrent function `name` of PyTorch, of tensors or of packed sequences."""

    def call(x: Tensor, *args: Any) -> Any:
        if isinstance(args[2], (list, tuple)):
            sizes, states, *rest = args
            states = [states] if isinstance(states, Tensor) else states
            layout = _layout(sizes, states[0].shape[1])
            y, *finals = stack(name, layout.padded(x), layout.lengths, states, *rest)
            return layout.packed(y), *finals
        states, *rest, batch_first = args
        states = [states] if isinstance(states, Tensor) else states
        x = x.transpose(0, 1) if batch_first else x
        y, *finals = stack(name, x, None, states, *rest)
        return y.transpose(0, 1) if batch_first else y, *finals

    return call


def first_size(x: Tensor, index: Any) -> Any:
    """`Tensor.__getitem__`, which notes the number of rows of a packed sequence."""
    layout = _LAYOUTS.get(x) if isinstance(index, int) and index == 0 else None
    if layout is None:
        return NotImplemented
    found = x.select(0, 0)
    _ROWS[found] = layout.rows
    return found


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def zeros(*shape: Any, **settings: Any) -> Any:
    """`torch.zeros`, also of as many rows as a packed sequence has."""
    sizes: Sequence[Any] = shape[0] if shape and isinstance(shape[0], (list, tuple)) else shape
    known = [_ROWS.get(size) if _is_tensor(size) else None for size in sizes]
    if not any(rows is not None for rows in known):
        return NotImplemented
    found = [size if rows is None else rows for size, rows in zip(sizes, known, strict=True)]
    return torch.zeros(found, **settings)


@contextmanager
def unseen_sizes() -> Iterator[None]:
    """Keep recurrent layers from comparing states with the number of rows of a packed sequence.

    `stack` compares them.
    """
    classes = rnn.RNNBase, rnn.LSTM
    originals = [cls.check_forward_args for cls in classes]

    def unless_packed(original: Callable[..., None]) -> Callable[..., None]:
        def check(self: Any, x: Tensor, states: Any, sizes: Tensor | None) -> None:
            if sizes is None:
                original(self, x, states, sizes)

        return check

    for cls, original in zip(classes, originals, strict=True):
        cls.check_forward_args = unless_packed(original)
    try:
        yield
    finally:
        for cls, original in zip(classes, originals, strict=True):
            cls.check_forward_args = original
