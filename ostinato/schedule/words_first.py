"""Sums of bytes take the words of a pixel in the outer loop, all taps of the window in the inner.

    for tap, word: sum += dot(x[pixel + tap, word], w[..])    =>    for word, tap: ..

Integers wrap, so the order of their sums is free. Windows of neighbouring rows of a tile overlap:
with the taps innermost, what they share is loaded once.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program, map_kernels
from ostinato.program.words import BYTES, first_of_word


def words_first(program: Program, machine: Machine) -> Program:
    """Make taps the innermost axis of sums of bytes over windows.

    Not on machines that multiply matrices of bytes: the words of several taps fill them.
    """
    if machine.byte_tiles or machine.byte_pairs:
        return program
    return program.with_body(map_kernels(program.body, _changed))


def _changed(kernel: Kernel) -> Kernel:
    return replace(kernel, reductions=tuple(map(_in_order, kernel.reductions)))


def _in_order(reduce: Reduce) -> Reduce:
    if reduce.factor is None or reduce.step != "dot":
        return reduce
    for first in filter(None, map(first_of_word, reduce.operands)):
        axes = sorted(reduce.axes, key=lambda axis: first.access.stride(axis) != BYTES)
        return replace(reduce, axes=tuple(axes))
    return reduce
