"""Conditions on sizes: errors while compiling, or checks when a model runs."""

from __future__ import annotations

from ostinato.errors import ShapeError, UnsupportedError
from ostinato.ops.core.draft import LONG, Draft
from ostinato.program.expr import Access, sized
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Check, Require, Stmt
from ostinato.sizes.conditions import is_equal
from ostinato.sizes.dims import Size, computed, is_nonnegative, primitive, symbols


class UnboundedError(UnsupportedError):
    """Raised for a value of more elements than are likely: its size must be known."""


class Requirements:
    """Conditions on the sizes of one program.

    data_dependent: sizes that values, kernels or fallback stages tell; they may be 1 and broadcast.
    reached: symbols of sizes that some value really reaches in some step of a loop.
    """

    def __init__(self, draft: Draft, data_dependent: set[str]) -> None:
        self.data_dependent = data_dependent
        self.reached: set[str] = set()
        # Pairs of sizes in different expressions that had to agree, or to broadcast.
        self.compared: list[tuple[Size, Size]] = []
        # Sizes that must not be negative, which no compiling has decided.
        self.demanded: list[Size] = []
        self._draft = draft
        # Computed sizes that guards have checked, by the statements where the last one stands.
        self._guarded: dict[Size, list[Stmt]] = {}

    def is_data_dependent(self, *sizes: Size) -> bool:
        """Whether one of the sizes may turn out to be 1 where the others are not."""
        return any(not self.data_dependent.isdisjoint(symbols(size)) for size in sizes)

    def is_reached(self, *sizes: Size) -> bool:
        """Whether the sizes are as large as they can be in some step of a loop."""
        return self.reached.issuperset(computed(*sizes))

    # Conditions

    def that(self, size: Size, what: str) -> None:
        """Require that the size is not negative: else `what` is the error, now or in a run."""
        message = f"{self._draft.where}: {what}"
        if is_nonnegative(size):
            return
        # A size that is negative in every run is an error now.
        if is_nonnegative(-1 - size):
            raise ShapeError(self._draft.told(message))
        self.demanded.append(size)
        self.check(size, message)

    def equal(self, left: Size, right: Size, what: str) -> None:
        """Require that both sizes agree: an error now, or a check when the model runs."""
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
        """Require that the size is not negative: an error now, or a check when the model runs."""
        text = str(size) if len(str(size)) < LONG else "the size"
        self.that(size, f"{what}: {text} is negative")

    def nonzero(self, size: Size, what: str) -> None:
        """Require that the size is not 0: an error now, or a check when the model runs."""
        is_zero = is_equal(size, 0)
        if is_zero == 1:
            raise ShapeError(f"{self._draft.where}: {what}")
        if is_zero != 0:
            self.check(-is_zero, f"{self._draft.where}: {what}: {size} is 0")

    def guard(self, condition: Size, what: str) -> None:
        """Specialise for the sizes where the condition is 1; others need the general program."""
        self.guard_that(condition - 1, what)

    def guard_that(self, size: Size, what: str) -> None:
        """Specialise for sizes where this one is at least 0; others need the general program."""
        draft = self._draft
        if computed(size):
            raise UnboundedError(draft.node, draft.op, "a size is only known at run time")
        if not any(check.is_guard and check.size == size for check in draft.checks):
            message = draft.told(f"{draft.where}: {what}")
            draft.checks.append(Check(size, message, is_guard=True))

    def guard_now(self, size: Size, what: str) -> None:
        """As `guard_that`; a computed size is checked at this place, once among statements."""
        draft = self._draft
        if not computed(size):
            self.guard_that(size, what)
        elif self._guarded.get(size) is not draft.body:
            self._guarded[size] = draft.body
            self.now(Check(size, f"{draft.where}: {what}", is_guard=True))

    def check(self, size: Size, message: str) -> None:
        """Check that a size is not negative, before the run if it is known then."""
        if computed(size):
            self.now(Check(size, message))
        else:
            self._draft.checks.append(Check(size, self._draft.told(message)))

    def now(self, *checks: Check) -> None:
        """Check sizes at this place of the program, not before the run."""
        draft = self._draft
        flags = [draft.buffer("bool", 1) for _ in checks]
        stores = tuple(
            Store(Access(flag, 0, ()), sized(check.size) >= 0)
            for flag, check in zip(flags, checks, strict=True)
        )
        draft.body.append(Kernel(f"k{draft.number()}", (), (), stores, sources=(draft.node,)))
        for flag, check in zip(flags, checks, strict=True):
            told = draft.told(check.message)
            draft.body.append(Require(flag, told, check.is_guard, check.size))

    def mark(self) -> int:
        """A mark of the checks so far, for `forget`."""
        return len(self._draft.checks)

    def forget(self, mark: int) -> None:
        """Drop the checks added since the mark."""
        self._guarded.clear()
        del self._draft.checks[mark:]
