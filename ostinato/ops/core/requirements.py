"""Conditions on sizes: errors while compiling, or checks when a model runs."""

from __future__ import annotations

from typing import TypeAlias

from ostinato import limits
from ostinato.errors import ShapeError, UnsupportedError
from ostinato.ops.core.draft import Draft
from ostinato.ops.core.literals import sized
from ostinato.ops.core.tensor import static_shape
from ostinato.program.expr import ITEM_BYTES, Access, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Check, Loop, Require, Stmt
from ostinato.program.work import fixed_steps, steps
from ostinato.sizes.dims import (
    MEMORY,
    SPARE,
    Size,
    computed,
    floordiv,
    is_equal,
    is_nonnegative,
    maximum,
    minimum,
    primitive,
    product,
    symbol,
    symbols,
)
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import powers, upper

# Messages spell out expressions of fewer characters than this.
_LONG = 60
# Up to so many steps that are due to numbers in the file, the sizes of inputs decide how long it
# takes, and nothing is checked.
_PLAIN = 2**30
# What is at most so many times as large as an input need not be checked against that.
_GROWTH = 2**12
# Memory for the most elements that a value can have, where no input of run-time size is as large.
_MOST_SPARE_BYTES = 2**24
# The bytes to spare are enough for so many values whose sizes nothing bounds.
SPARE_VALUES = 8


Mark: TypeAlias = "tuple[int, frozenset[Size], frozenset[Size]]"


class UnboundedError(UnsupportedError):
    """A value needs memory for more elements than it is likely to have: its size must be known."""


class Requirements:
    """Conditions on the sizes of one program, and bounds that are known.

    data_dependent: sizes that values, kernels or fallback stages tell; they may be 1 and broadcast.
    reached: symbols of sizes of which a value really has as many elements as they are at most, in
    some step of a loop.
    """

    def __init__(self, draft: Draft, data_dependent: set[str]) -> None:
        self.data_dependent = data_dependent
        self.reached: set[str] = set()
        # Sizes that had to agree, or to broadcast, and are other expressions.
        self.compared: list[tuple[Size, Size]] = []
        self._draft = draft
        # The numbers of elements that are checked to fit into memory.
        self._limited: set[Size] = set()
        # Sizes that are known to be at most what any machine holds.
        self._bounded: set[Size] = set()
        # Computed sizes that guards have checked, by the statements where the last one stands.
        self._guarded: dict[Size, list[Stmt]] = {}

    def upper(self, size: Size) -> Size:
        """An upper bound of a size that is known before the run."""
        bound = upper(size, self._draft.bounds)
        if bound is None:
            reason = f"the size {size}, which the run computes, has no bound that is known before"
            raise UnboundedError(self._draft.node, self._draft.op, reason)
        return bound

    def most(self, size: Size) -> Size:
        """An upper bound of a size that is known before the run; checked where there is none.

        In a loop, and in the last program of a model, nothing can be run before the size has to be
        known. So there is room for a value
        with as many elements of a byte as may be to spare, and the run ends where that is too few.
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
        self.that(room - size, "a size is larger than what there is memory for")
        # Behind a loop that a condition ends, its trip count may tell more. In a loop the bounds of
        # its states are compared with each other: they stay simple.
        return room if bound is None or self._draft.loops else minimum(bound, room)

    def _room(self, item_bytes: int) -> Size:
        """So many elements fit into what is kept for a value that nothing else bounds."""
        return floordiv(self.of_machine(SPARE), SPARE_VALUES * item_bytes)

    def is_data_dependent(self, *sizes: Size) -> bool:
        """Whether one of the sizes may turn out to be 1 where the others are not."""
        return any(not self.data_dependent.isdisjoint(symbols(size)) for size in sizes)

    def is_reached(self, *sizes: Size) -> bool:
        """Whether the sizes are as large as they can be in some step of a loop."""
        return self.reached.issuperset(computed(*sizes))

    # Conditions

    def that(self, size: Size, what: str) -> None:
        """The size must not be negative: else `what` is the error, now or when the model runs."""
        message = f"node {self._draft.node!r}: {what}"
        if not isinstance(size, int):
            if not is_nonnegative(size):
                self._check(size, message)
        elif size < 0:
            raise ShapeError(message)

    def equal(self, left: Size, right: Size, what: str) -> None:
        """Both sizes must agree: an error now, or a check when the model runs."""
        self.compared.append((left, right))
        for difference in (left - right, right - left):
            self.that(difference, f"{what}: {left} and {right} differ")

    def is_required(self, size: Size, value: Size) -> bool:
        """Whether a run ends, or another program takes over, unless the size has that value."""
        if isinstance(size - value, int):
            return size == value
        checks, equal = self._draft.checks, is_equal(size, value) - 1
        if any(check.is_guard and check.size == equal for check in checks):
            return True
        checked = {primitive(check.size) for check in checks if not check.is_guard}
        both = (size - value, value - size)
        return all(primitive(n) in checked or is_nonnegative(n) for n in both)

    def nonnegative(self, size: Size, what: str) -> None:
        """The size must not be negative: an error now, or a check when the model runs."""
        text = str(size) if len(str(size)) < _LONG else "the size"
        self.that(size, f"{what}: {text} is negative")

    def nonzero(self, size: Size, what: str) -> None:
        """The size must not be 0: an error now, or a check when the model runs."""
        is_zero = is_equal(size, 0)
        if is_zero == 1:
            raise ShapeError(f"node {self._draft.node!r}: {what}")
        if is_zero != 0:
            self._check(-is_zero, f"node {self._draft.node!r}: {what}: {size} is 0")

    def guard(self, condition: Size, what: str) -> None:
        """Specialise for the sizes where the condition is 1; others need the general program."""
        self.guard_that(condition - 1, what)

    def guard_that(self, size: Size, what: str) -> None:
        """Specialise for sizes where this one is at least 0; others need the general program."""
        draft = self._draft
        if computed(size):
            raise UnboundedError(draft.node, draft.op, "a size is only known at run time")
        if not any(check.is_guard and check.size == size for check in draft.checks):
            draft.checks.append(Check(size, f"node {draft.node!r}: {what}", is_guard=True))

    def guard_now(self, size: Size, what: str) -> None:
        """As `guard_that`; a size that the run computes is checked here, once among statements."""
        draft = self._draft
        if not computed(size):
            self.guard_that(size, what)
        elif self._guarded.get(size) is not draft.body:
            self._guarded[size] = draft.body
            self.now(Check(size, f"node {draft.node!r}: {what}", is_guard=True))

    def _check(self, size: Size, message: str) -> None:
        if computed(size):
            self.now(Check(size, message))
        else:
            self._draft.checks.append(Check(size, message))

    def now(self, check: Check) -> None:
        """Check a size at this place of the program, not before the run."""
        draft = self._draft
        flag = draft.buffer("bool", 1)
        holds = op("ge", sized(check.size), constant(0, "int64"))
        store = Store(Access(flag, 0, ()), holds)
        draft.body.append(Kernel(f"k{draft.number()}", (), (), (store,), sources=(draft.node,)))
        draft.body.append(Require(flag, check.message, check.is_guard))

    # Limits

    def memory(self, dtype: str, shape: Shape, what: str = "") -> Size:
        """A value of this shape must be possible: an error now, or a check when the model runs.

        Returns the number of elements that its memory has to have room for.

        what: what the error says of the value, by default its shape.

        Sizes that depend on values may be anything: a result must fit into this machine. One
        without elements must do so with an extent of 1 in place of 0, for loops over its other axes
        still have to end.
        """
        size = product(shape)
        text = what or f"a value of shape [{', '.join(map(str, shape))}]"
        message = f"node {self._draft.node!r}: not enough memory for {text}"
        unknown, is_reached, elements, own = computed(size), False, size, shape
        if unknown:
            is_reached = self.is_reached(size)
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
        elif is_reached or self.is_data_dependent(
            product([maximum(extent, 1) for extent in shape])
        ):
            size = product([maximum(extent, 1) for extent in shape])
            if size not in self._limited:
                self._limited.add(size)
                self._check(self.of_machine(MEMORY) - size * ITEM_BYTES[dtype], message)
        elif not isinstance(size, int) and size not in self._bounded:
            self._bounded.add(size)
            if not self._is_modest(size):
                self._check(limits.MOST_BYTES - size * ITEM_BYTES[dtype], message)
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
            # What a loop keeps of its steps may take all that there is to spare.
            room = floordiv(self.of_machine(SPARE), ITEM_BYTES[dtype])
        self.fits(shape, room, f"not enough memory for a value of shape [{text}]")
        return minimum(self.upper(product(shape)), room) if unbounded == 1 else room

    def fits(self, shape: Shape, room: Size, what: str) -> None:
        """A value of this shape must have no more elements than there is room for."""
        # One extent after the other: their product may leave 64 bits.
        part = product([extent for extent in shape if isinstance(extent, int)])
        for extent in (n for n in shape if not isinstance(n, int)):
            self.that(room - part, what)
            part = maximum(part, 1) * maximum(extent, 1)
        self.that(room - part, what)

    def of_machine(self, name: str) -> Size:
        """`MEMORY` or `SPARE`: a number of bytes that the runtime tells."""
        self._draft.of_machine.add(name)
        return symbol(name)

    def time(self, statement: Kernel | Loop) -> None:
        """The statement can end: an error now, or a check when the model runs.

        Sizes of inputs are as large as somebody wants them. What numbers in the file make of them
        is bounded: every kernel and every loop passes through here.
        """
        if fixed_steps(statement) <= min(_PLAIN, limits.MOST_STEPS):
            return
        node = self._draft.node
        most = f"a run may take {limits.MOST_STEPS:.2g}"
        count = self.upper(steps(statement))
        if SPARE in symbols(count):
            return
        if not isinstance(count, int):
            message = f"node {node!r}: it takes more steps than a run may: {most}"
            self._check(limits.MOST_STEPS - count, message)
        elif count > limits.MOST_STEPS:
            raise ShapeError(f"node {node!r}: it takes {count:.2g} steps, {most}")

    def table(self, count: int, what: str) -> None:
        """So many numbers can be computed while compiling; `ShapeError` saying `what` else."""
        if 16 * count > limits.MOST_CONSTANT_BYTES:
            raise ShapeError(
                f"node {self._draft.node!r}: {what} takes a table of {count} numbers, more than "
                "are computed while a model is compiled"
            )

    def _is_modest(self, size: Size) -> bool:
        """Whether it follows from the size of an input, which fits in memory."""
        return any(is_nonnegative(known * _GROWTH - size) for known in self._inputs())

    def _grows_as_inputs(self, size: Size) -> bool:
        """Whether it is the product of no more run-time dimensions than some input has."""
        given = [p for known in self._inputs() for p in powers(known)]
        return all(any(own <= other for other in given) for own in powers(size))

    def _inputs(self) -> list[Size]:
        return [self._draft.buffers[i.buffer].size for i in self._draft.inputs]

    def mark(self) -> Mark:
        """A mark of the checks so far, for `forget`."""
        return len(self._draft.checks), frozenset(self._limited), frozenset(self._bounded)

    def forget(self, mark: Mark) -> None:
        """Drop the checks added since the mark."""
        checks, limited, bounded = mark
        self._limited, self._bounded = set(limited), set(bounded)
        self._guarded.clear()
        del self._draft.checks[checks:]
