"""The few kinds of kernel of all ops, and the views that they read and write."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato.guards import Guards
from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.broadcasting import Broadcasting
from ostinato.ops.core.constants import Constants, Room
from ostinato.ops.core.draft import Draft
from ostinato.ops.core.emitter import Emitter
from ostinato.ops.core.joined_parts import Copies, laid_out
from ostinato.ops.core.limits import Limits, Mark
from ostinato.ops.core.ranges import Range, Trial
from ostinato.ops.core.requirements import Requirements
from ostinato.ops.core.run_sizes import RunSizes
from ostinato.ops.core.tensor import (
    Joined,
    Tensor,
    Value,
    can_be_known,
    dense,
    expand,
    memory_order,
    reshape_view,
    slice_axis,
    static_shape,
)
from ostinato.ops.core.together import Together
from ostinato.program.expr import (
    BYTE_FLOATS,
    FLOATS,
    INTEGERS,
    Access,
    Axis,
    Expr,
    Extent,
    Index,
    Load,
    Reduced,
    cast,
    constant,
    dtype_of,
    op,
    rewrite,
)
from ostinato.program.kernel import Reduce, Store, identity
from ostinato.program.nodes import Interface
from ostinato.records import dataclass
from ostinato.sizes.dims import Dim, Size, computed, is_nonnegative, product, symbol
from ostinato.sizes.strides import Shape

if TYPE_CHECKING:
    import onnx_ir as ir

    from ostinato.ops.core.moved_rows import Moving
    from ostinato.program.nodes import Stmt

# Longer tables are computed when the model runs, not kept with it: 4 MB of floats.
LONGEST_TABLE = 2**20


@dataclass(frozen=True)
class Checkpoint:
    """A state of a builder to roll back to: statements and checks of sizes."""

    statements: int
    checks: int
    limits: Mark


@dataclass(frozen=True)
class Appending:
    """A Concat that stores what it adds beside a state of a loop, or a part of it, in place.

    state: as a step is given it. in_front: whether what is added comes first. append: stores it
    beside such a part, along an axis of that, and gives the longer part, or None where that is not
    possible. memory: of the state, with room behind its last row, if a loop inside may append to it
    as well. borders: what does the same for the borders between elements of a sequence of pieces.
    """

    state: Tensor
    in_front: bool
    append: Callable[[Value, int, Value], Tensor | None]
    memory: Tensor | None = None
    borders: Appending | None = None


class Builder:
    """Builds one program out of values and kernels.

    draft: the parts of the program. require: conditions on sizes. sizes: those that only a run
    tells. emit: statements. constants: what compiling has computed.

    guarded: for which sizes the program may be specialised.
    data_dependent: sizes that values, kernels or fallback stages tell, which may turn out to be 1
        and then broadcast; those defined here join it.
    seed: of all random numbers.
    room: the memory of constants, of this program and those that share it.
    measured: values whose elements the run tells as sizes, where it makes them.
    is_last: see `Draft`.
    together: how many positions convolutions compute together; None if each is computed alone.
    """

    def __init__(
        self,
        data_dependent: set[str] | None = None,
        guarded: Guards = Guards.NONE,
        seed: int = 0,
        room: Room | None = None,
        measured: Iterable[ir.Value] = (),
        is_last: bool = False,
        together: Together | None = None,
    ) -> None:
        self.guarded = guarded
        self.together = together
        self.seed = seed
        self.draft = Draft(is_last)
        self.require = Requirements(self.draft, set() if data_dependent is None else data_dependent)
        self.limits = Limits(self.draft, self.require)
        self.emit = Emitter(self.draft, self.limits)
        self.sizes = RunSizes(self.draft, self.require, self.limits, self.emit)
        self.constants = Constants(self.draft, self.emit, Room() if room is None else room)
        self.broadcasting = Broadcasting(self.require, self.limits, self.sizes, guarded)
        # Nodes that work in the memory of a loop's state, by the name of the value that they make.
        self.appending: dict[str, Appending] = {}
        self.moving: dict[str, Moving] = {}
        # Names of values that graphs return as conditions alone: their rank does not matter.
        self.conditions: set[str] = set()
        # Bodies of loops add those whose elements each step tells.
        self.measured = set(measured)
        # For each buffer the quotients of sizes that its floats are, where known
        # (`ops.core.quotients`).
        self.quotients: dict[str, np.ndarray] = {}
        # Between which numbers integers lie (`ops.core.ranges`).
        self.ranges: dict[Value, Range] = {}
        # While a loop is lowered to find out between which numbers its states lie.
        self.trial: Trial | None = None
        # Among which statements indices are found to be within an axis.
        self.checked: dict[Hashable, list[Stmt]] = {}
        # Findings of attempts to lower a loop, and the number of attempts.
        self.learned: dict[Hashable, object] = {}
        self.attempts = 0
        self._copies = Copies()

    # The program

    def input(self, name: str, dtype: str, shape: Shape, has_values: bool = False) -> Tensor:
        """Declare an input of the program; `has_values` if sizes depend on its elements."""
        static = static_shape(shape)
        if not has_values or static is None:
            return dense(dtype, shape, self.draft.input(name, dtype, shape))
        known = np.empty(static, object)
        names = tuple(f"{name}{list(index)}" for index in np.ndindex(static))
        known.reshape(-1)[:] = [symbol(n, signed=True) for n in names]
        buffer = self.draft.input(name, dtype, shape, names)
        return replace(dense(dtype, shape, buffer), known=known)

    def output(self, name: str, value: Value) -> None:
        """Declare an output of the program and copy `value` to it."""
        draft = self.draft
        room = self.limits.room_for(value.dtype, value.shape)
        buffer = draft.buffer(value.dtype, room, "output", f"out.{name}")
        if computed(*value.shape):
            self._output_shape(name, value.shape)
        draft.outputs.append(Interface(name, buffer, value.dtype, value.shape))
        draft.node = name
        found = self._copies.find(value, draft.body) or value
        if isinstance(found, Joined):
            found = self._copies.shortened(found, draft.body)
        self.copy(found, dense(value.dtype, value.shape, buffer))

    def _output_shape(self, name: str, shape: Shape) -> None:
        """Declare another output, behind all others, for the shape of the next one."""
        draft, rank = self.draft, len(shape)
        buffer = draft.buffer("int64", rank, "output", f"shape.{name}")
        draft.shapes[len(draft.outputs)] = Interface(f"shape of {name}", buffer, "int64", (rank,))
        stores = [Store(Access(buffer, i, ()), Extent(n)) for i, n in enumerate(shape)]
        self.emit.kernel((), stores)

    def checkpoint(self) -> Checkpoint:
        """A mark to `rollback` to when lowering a node fails half-way."""
        return Checkpoint(len(self.draft.body), self.require.mark(), self.limits.mark())

    def rollback(self, mark: Checkpoint) -> None:
        """Forget the statements and checks added since the mark.

        Definitions stay: what another attempt starts from may mention them.
        """
        del self.draft.body[mark.statements :]
        self._copies.forget()
        self.checked.clear()
        self.sizes.forget()
        self.require.forget(mark.checks)
        self.limits.forget(mark.limits)

    # Values

    def constant(self, array: np.ndarray, name: str = "") -> Tensor:
        """A value known now, called `name` in the model. It gets memory when a kernel needs it."""
        if name:
            self.constants.named(array, name)
        return self.constants.known(array.dtype.name, array)

    def empty(self, dtype: str, shape: Shape, what: str = "") -> Tensor:
        """A dense tensor in the arena, not yet written. what: as in `Limits.memory`."""
        room = self.limits.memory(dtype, shape, what)
        return dense(dtype, shape, self.draft.buffer(dtype, room))

    def empty_like(self, value: Value) -> Tensor:
        """A tensor of the value's type and shape, whose axes lie in memory as its do, if dense."""
        order = memory_order(value)
        if order is None:
            return self.empty(value.dtype, value.shape)
        made = self.empty(value.dtype, tuple(value.shape[axis] for axis in order))
        strides = tuple(made.strides[order.index(axis)] for axis in range(len(order)))
        return replace(made, shape=value.shape, strides=strides)

    def strided(self, value: Value) -> Tensor:
        """The value as one strided tensor with memory: joined parts are copied together, once."""
        if isinstance(value, Tensor):
            return self.constants.placed(value)
        made = self._copies.find(value, self.draft.body)
        if made is None:
            parts = self._copies.shortened(laid_out(value), self.draft.body)
            target = self.empty(value.dtype, parts.shape)
            self.copy(parts, target)
            made = self._copies.add(value, self.draft.body, target)
        return made

    def reshaped(self, value: Value, shape: Shape) -> Tensor:
        """The value with another shape of the same size: a view, or a copy where it must be."""
        tensor = value if isinstance(value, Tensor) else self.strided(value)
        if static_shape(shape) is None:
            # Elements known now stay known in a shape that is known now.
            tensor = self.constants.placed(tensor)
        view = reshape_view(tensor, shape)
        if view is not None:
            if view.known is not None:
                self.constants.require_room(view.known)
            return view
        copied = self.empty(tensor.dtype, tensor.shape)
        self.copy(tensor, copied)
        return dense(tensor.dtype, shape, copied.buffer)

    def expanded(self, value: Value, shape: Shape, one_way: bool = False) -> Tensor:
        """The value and `shape` broadcast together, as a view; `one_way`: to just this shape."""
        together = shape
        if one_way:
            self.broadcasting.fit(value.shape, shape)
        else:
            together = self.broadcasting.shape(value.shape, shape)
        if together != value.shape:
            self.limits.memory(value.dtype, together)
        lead = len(together) - len(value.shape)
        tensor = self._as_known(value, together) or self.strided(value)
        return expand(self.broadcasting.following(tensor, together[lead:]), together)

    @staticmethod
    def _as_known(value: Value, shape: Shape) -> Tensor | None:
        """Sizes that no memory holds and that are sizes in this shape as well; None for others."""
        static, known = static_shape(shape), value.known
        if isinstance(value, Joined) or known is None or known.dtype != object or static is None:
            return None
        return value if value.base is None and can_be_known(known.dtype, static, known) else None

    # Kernels

    def axis(self, extent: Size, name: str = "i") -> Axis:
        """A fresh axis."""
        return self.draft.axis(extent, name)

    def axes(self, shape: Shape) -> tuple[Axis | None, ...]:
        """Fresh axes for a shape; None for an extent of 1, which needs no loop."""
        return self.draft.axes(shape)

    def load(self, value: Value, axes: Sequence[Axis | None]) -> Expr:
        """The element of `value` at these axes, broadcast: axes are aligned at the right."""
        is_literal = value.dtype not in BYTE_FLOATS
        if (
            is_literal
            and isinstance(value, Tensor)
            and value.known is not None
            and value.known.size == 1
        ):
            only = value.known.reshape(-1)[0]
            if isinstance(only, Dim):
                return cast(Extent(only), value.dtype)
            return constant(only, value.dtype)
        tensor = self.strided(value)
        last = axes[len(axes) - len(tensor.shape) :]
        wanted = tuple(
            n if axis is None else axis.extent for axis, n in zip(last, tensor.shape, strict=True)
        )
        return Load(self.access(self.broadcasting.following(tensor, wanted), axes), tensor.dtype)

    def access(self, tensor: Tensor, axes: Sequence[Axis | None]) -> Access:
        """The address of an element; axes are aligned at the right, extents of 1 do not move it."""
        last = axes[len(axes) - len(tensor.shape) :]
        pairs = zip(last, tensor.shape, tensor.strides, strict=True)
        terms = tuple(
            (axis, stride)
            for axis, extent, stride in pairs
            if axis is not None and extent != 1 and stride != 0
        )
        return Access(tensor.buffer, tensor.address.offset, tensor.address.terms + terms)

    def compute(self, shape: Shape, value: Callable[[tuple[Axis | None, ...]], Expr]) -> Tensor:
        """A new tensor whose elements are `value(axes)`."""
        axes = self.axes(shape)
        return self.stored(shape, axes, value(axes))

    def stored(self, shape: Shape, axes: Sequence[Axis | None], element: Expr) -> Tensor:
        """A new tensor of `shape` whose elements are `element` at the points of `axes`."""
        target = self.empty(dtype_of(element), shape)
        self.emit.kernel(axes, [Store(self.access(target, axes), element)])
        return target

    def pointwise(self, function: Callable[..., Expr], *operands: Value) -> Tensor:
        """`function` of the operands' elements, with NumPy broadcasting."""
        shape = self.broadcasting.shape(*(operand.shape for operand in operands))
        placed = [x if isinstance(x, Tensor) else self.strided(x) for x in operands]
        return self.compute(shape, lambda axes: function(*(self.load(p, axes) for p in placed)))

    def copy(self, source: Value, target: Tensor) -> None:
        """Write `source` into the memory of `target`, which has the same shape."""
        if isinstance(source, Joined):
            start: Size = 0
            for part in source.parts:
                extent = part.shape[source.axis]
                self.copy(part, slice_axis(target, source.axis, start, 1, extent))
                start = start + extent
            return
        axes = self.axes(target.shape)
        self.emit.kernel(axes, [Store(self.access(target, axes), self.load(source, axes))])

    def reduce(
        self,
        value: Value,
        axes: Sequence[int],
        combine: str,
        function: Callable[[Expr], Expr] = lambda x: x,
    ) -> Tensor:
        """Reduce `function(element)` over some axes, which keep an extent of 1.

        The order is lexicographic. Where the last axis is reduced, all reduced axes at the end
        count as one, and numbers are combined in `ROW_CHAINS` interleaved chains along it.
        """
        rank = len(value.shape)
        kept = max((i + 1 for i in range(rank) if i not in axes), default=0)
        result = tuple(1 if i in axes else n for i, n in enumerate(value.shape))
        rows = kept < rank
        shape: Shape = value.shape
        if rows:
            shape = (*shape[:kept], product(shape[kept:]))
        tensor = self.reshaped(value, shape)
        outer = self.axes(result[: len(shape)])
        inner = [self.axis(n, "r") for i, n in enumerate(shape) if i in axes]
        left = iter(inner)
        place = [next(left) if i in axes else outer[i] for i in range(len(shape))]
        element = function(self.load(tensor, place))
        numbers = (*FLOATS, *INTEGERS, "bool")
        chains = ROW_CHAINS if rows and dtype_of(element) in numbers else 1
        extreme = combine in ("max", "min", "larger")
        if chains > 1 and extreme and is_nonnegative(shape[-1] - 8 * chains):
            # The order of extremes is free, and more of them at a time wait less for each other.
            chains *= 2
        reduce = Reduce(tuple(inner), combine, element, None, chains)
        return self._reduction(result, outer, reduce)

    def _reduction(self, shape: Shape, axes: Sequence[Axis | None], reduce: Reduce) -> Tensor:
        """A new tensor of `shape` that holds the reduction, which runs at each point of `axes`."""
        target = self.empty(reduce.dtype, shape)
        empty = any(axis.extent == 0 for axis in reduce.axes)
        value = identity(reduce) if empty else Reduced(0, reduce.dtype)
        place = [*axes, *[None] * (len(shape) - len(axes))]
        store = Store(self.access(target, place), value)
        self.emit.kernel(axes, [store], [] if empty else [reduce])
        return target

    def fold(
        self,
        shape: Shape,
        axes: Sequence[Axis | None],
        inner: Sequence[Axis],
        combine: str,
        element: Expr,
        chains: int = 1,
    ) -> Tensor:
        """`element` combined over the inner axes in lexicographic order, at points of `axes`."""
        reduce = Reduce(tuple(inner), combine, element, None, chains)
        return self._reduction(shape, axes, reduce)

    def contract(
        self,
        shape: Shape,
        axes: Sequence[Axis | None],
        inner: Sequence[Axis],
        left: Expr,
        right: Expr,
        chains: int = 1,
    ) -> Tensor:
        """Sum of `left * right` over the inner axes, stored to a new tensor of `shape`.

        Products of floats are accumulated with fused multiply-adds.
        """
        if dtype_of(left) in FLOATS:
            if chains == 1 and all(axis.extent == 1 for axis in inner):
                return self._product(shape, axes, inner, left, right)
            reduce = Reduce(tuple(inner), "sum", left, right, chains)
        else:
            reduce = Reduce(tuple(inner), "sum", left * right)
        return self._reduction(shape, axes, reduce)

    def _product(
        self,
        shape: Shape,
        axes: Sequence[Axis | None],
        inner: Sequence[Axis],
        left: Expr,
        right: Expr,
    ) -> Tensor:
        """A sum of one product, as any expression: lanes and fusion are not those of sums."""

        def alone(node: Expr) -> Expr | None:
            if isinstance(node, Index) and node.axis in inner:
                return constant(0, node.dtype)
            if not isinstance(node, Load):
                return None
            terms = tuple(term for term in node.access.terms if term[0] not in inner)
            return replace(node, access=replace(node.access, terms=terms))

        dtype = dtype_of(left)
        target = self.empty(dtype, shape)
        factors = (rewrite(factor, alone) for factor in (left, right))
        store = Store(self.access(target, axes), op("fma", *factors, constant(0.0, dtype)))
        self.emit.kernel(axes, [store])
        return target

    def dot(
        self,
        shape: Shape,
        axes: Sequence[Axis | None],
        inner: Sequence[Axis],
        left: Expr,
        right: Expr,
        chains: int = 1,
    ) -> Tensor:
        """As `contract`, of int32 words: four bytes each, unsigned in `left`, signed in `right`."""
        return self._reduction(shape, axes, Reduce(tuple(inner), "sum", left, right, chains))
