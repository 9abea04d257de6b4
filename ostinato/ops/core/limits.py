"""Limits of memory and time of a run: errors while compiling, or checks when a model runs."""

from __future__ import annotations

from typing import TypeAlias

from ostinato import limits
from ostinato.errors import ShapeError
from ostinato.ops.core.draft import Draft
from ostinato.ops.core.requirements import Requirements, UnboundedError
from ostinato.ops.core.tensor import static_shape
from ostinato.program.expr import ITEM_BYTES
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Loop
from ostinato.program.work import fixed_steps, steps
from ostinato.sizes.dims import (
    MEMORY,
    SPARE,
    Size,
    computed,
    floordiv,
    is_at_most,
    maximum,
    minimum,
    product,
    symbol,
    symbols,
)
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import powers, upper

# Up to this many steps that follow from numbers in the file, the sizes of inputs decide how long a
# run takes, and nothing is checked.
_PLAIN = 2**30
# A value at most this many times as large as an input is not checked against the machine.
_GROWTH = 2**12
# Memory for the largest value that is allowed where no input of run-time size is as large.
_MOST_SPARE_BYTES = 2**24
# The bytes to spare are enough for this many values whose sizes nothing bounds.
SPARE_VALUES = 8


Mark: TypeAlias = "tuple[frozenset[Size], frozenset[Size]]"


class Limits:
    """Upper bounds of a program's sizes, and checks that there is memory and time for them."""

    def __init__(self, draft: Draft, require: Requirements) -> None:
        self._draft, self._require = draft, require
        # Numbers of elements that are already checked to fit into memory.
        self._limited: set[Size] = set()
        # Sizes that are known to be at most what any machine holds.
        self._bounded: set[Size] = set()

    def upper(self, size: Size) -> Size:
        """An upper bound of a size that is known before the run."""
        bound = upper(size, self._draft.bounds)
        if bound is None:
            reason = f"the size {size}, which the run computes, has no bound that is known before"
            raise UnboundedError(self._draft.node, self._draft.op, reason)
        return bound

    def most(self, size: Size) -> Size:
        """An upper bound of a size that is known before the run; checked where there is none.

        In a loop, and in the last program of a model, nothing can run before the size has to be
        known. So there is room for a value with as many elements of a byte as may be to spare, and
        the run ends where that is too few.
        """
        if not computed(size):
            return size
        bound: Size | None = None
        try:
            bound = self.upper(size)
        except UnboundedError:
            if not self._draft.goes_on:
                raise
        if bound is not None and SPARE not in symbols(bound):
            return bound
        room = self._room(1)
        if bound == room:
            return room
        self._require.that(room - size, "a size is larger than what there is memory for")
        # Behind a loop that a condition ends, its trip count may bound the size better. In a loop
        # the bounds of its states are compared with each other: they stay simple.
        return room if bound is None or self._draft.loops else minimum(bound, room)

    def _room(self, item_bytes: int) -> Size:
        """The elements that fit into what is reserved for a value that nothing else bounds."""
        return floordiv(self.of_machine(SPARE), SPARE_VALUES * item_bytes)

    def memory(self, dtype: str, shape: Shape, what: str = "") -> Size:
        """Require that a value of this shape fits: an error now, or a check when the model runs.

        Returns the number of elements that its memory has to have room for.

        what: the value in the error, by default its shape.

        Sizes that depend on values may be anything: a result must fit into this machine. One
        without elements must do so with an extent of 1 in place of 0, for loops over its other axes
        still have to end.
        """
        size = product(shape)
        text = what or f"a value of shape [{', '.join(map(str, shape))}]"
        message = f"{self._draft.where}: not enough memory for {text}"
        unknown, is_reached, elements, own = computed(size), False, size, shape
        if unknown:
            is_reached = self._require.is_reached(size)
            shape = tuple(maximum(self.upper(extent), 0) for extent in shape)
            size = self.upper(size)
            most = _MOST_SPARE_BYTES // ITEM_BYTES[dtype]
            is_small = size <= most if isinstance(size, int) else self._grows_as_inputs(size)
            if not is_reached and not is_small and self._draft.goes_on:
                room = self._room(ITEM_BYTES[dtype])
                self.fits(own, room, f"not enough memory for {text}")
                return room if SPARE in symbols(size) else minimum(size, room)
            if not is_reached and not is_small:
                reason = (
                    f"the run computes a size, and memory for up to {size} elements is too much"
                )
                raise UnboundedError(self._draft.node, self._draft.op, reason)
        if isinstance(size, int) and static_shape(shape) is not None:
            if size * ITEM_BYTES[dtype] > limits.MOST_BYTES:
                raise ShapeError(message)
        elif is_reached or self._require.is_data_dependent(
            product([maximum(extent, 1) for extent in shape])
        ):
            size = product([maximum(extent, 1) for extent in shape])
            if size not in self._limited:
                self._limited.add(size)
                self._require.check(self.of_machine(MEMORY) - size * ITEM_BYTES[dtype], message)
        elif not isinstance(size, int) and size not in self._bounded:
            self._bounded.add(size)
            if not self._is_modest(size):
                self._require.check(limits.MOST_BYTES - size * ITEM_BYTES[dtype], message)
        return elements

    def room_for(self, dtype: str, shape: Shape) -> Size:
        """The number of elements that memory for an output has to have room for.

        Where nothing bounds an extent, the product is checked when the run has computed it.
        """
        bounds = [self.upper(extent) for extent in shape if computed(extent)]
        unbounded = sum(SPARE in symbols(bound) for bound in bounds)
        if not unbounded:
            return product(shape)
        room, text = self._room(ITEM_BYTES[dtype]), ", ".join(map(str, shape))
        if unbounded == 1:
            # Results that a loop keeps of its steps may take all the room there is to spare.
            room = floordiv(self.of_machine(SPARE), ITEM_BYTES[dtype])
        self.fits(shape, room, f"not enough memory for a value of shape [{text}]")
        return minimum(self.upper(product(shape)), room) if unbounded == 1 else room

    def fits(self, shape: Shape, room: Size, what: str) -> None:
        """Require that a value of this shape has no more elements than there is room for."""
        # One extent after the other: their product may leave 64 bits.
        part = product([extent for extent in shape if isinstance(extent, int)])
        for extent in (n for n in shape if not isinstance(n, int)):
            self._require.that(room - part, what)
            part = maximum(part, 1) * maximum(extent, 1)
        self._require.that(room - part, what)

    def of_machine(self, name: str) -> Size:
        """`MEMORY` or `SPARE`: a number of bytes that the runtime tells."""
        self._draft.of_machine.add(name)
        return symbol(name)

    def time(self, statement: Kernel | Loop) -> None:
        """Require that the statement can end: an error now, or a check when the model runs.

        Sizes of inputs are as large as a caller wants them. What numbers in the file make of them
        is bounded: every kernel and every loop passes through here.
        """
        if fixed_steps(statement) <= min(_PLAIN, limits.MOST_STEPS):
            return
        where = self._draft.where
        most = f"a run may take {limits.MOST_STEPS:.2g}"
        count = self.upper(steps(statement))
        if SPARE in symbols(count):
            return
        if not isinstance(count, int):
            message = f"{where}: it takes more steps than a run may: {most}"
            self._require.check(limits.MOST_STEPS - count, message)
        elif count > limits.MOST_STEPS:
            raise ShapeError(f"{where}: it takes {count:.2g} steps, {most}")

    def table(self, count: int, what: str) -> None:
        """Require that `count` numbers can be computed while compiling; else `ShapeError`.

        what: the numbers, in the error.
        """
        if 16 * count > limits.MOST_CONSTANT_BYTES:
            raise ShapeError(
                f"{self._draft.where}: {what} takes a table of {count} numbers, more than "
                "are computed while a model is compiled"
            )

    def _is_modest(self, size: Size) -> bool:
        """Whether a size follows from that of an input, which fits in memory."""
        return any(is_at_most(size, known * _GROWTH) for known in self._inputs())

    def _grows_as_inputs(self, size: Size) -> bool:
        """Whether a size is the product of no more run-time dimensions than some input has."""
        given = [p for known in self._inputs() for p in powers(known)]
        return all(any(own <= other for other in given) for own in powers(size))

    def _inputs(self) -> list[Size]:
        return [self._draft.buffers[i.buffer].size for i in self._draft.inputs]

    def mark(self) -> Mark:
        """A mark of what is checked so far, for `forget`."""
        return frozenset(self._limited), frozenset(self._bounded)

    def forget(self, mark: Mark) -> None:
        """Forget what was checked since the mark."""
        self._limited, self._bounded = map(set, mark)
