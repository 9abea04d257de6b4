"""Builds the loop program of a model: buffers, axes, and the few kinds of kernel of all ops."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from ostinato import limits
from ostinato.errors import ShapeError, UnsupportedError
from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.broadcasting import Broadcasting
from ostinato.ops.core.joined_parts import Copies, laid_out
from ostinato.ops.core.tensor import (
    Joined,
    Shape,
    Tensor,
    Value,
    dense,
    expand,
    owner,
    progression_of,
    reshape_view,
    slice_axis,
    static_shape,
)
from ostinato.program.expr import (
    BYTE_FLOATS,
    FLOATS,
    INTEGERS,
    ITEM_BYTES,
    Access,
    Axis,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    Reduced,
    cast,
    constant,
    dtype_of,
    op,
)
from ostinato.program.nodes import (
    Buffer,
    Carry,
    Check,
    Interface,
    Kernel,
    Kind,
    Loop,
    Program,
    Reduce,
    Require,
    Stmt,
    Store,
    identity,
)
from ostinato.program.work import fixed_steps, steps
from ostinato.sizes.dims import (
    MEMORY,
    Dim,
    Size,
    computed,
    is_equal,
    is_nonnegative,
    is_polynomial,
    is_signed,
    is_symbol,
    maximum,
    product,
    symbol,
    symbols,
)
from ostinato.sizes.substitution import powers, upper

# Messages spell out expressions of fewer characters than this.
_LONG = 60

# Longer tables are computed when the model runs, not kept with it.
LONGEST_TABLE = 2**20
# Up to so many steps that are due to numbers in the file, the sizes of inputs decide how long it
# takes, and nothing is checked.
_PLAIN = 2**30
# What is at most so many times as large as an input need not be checked against that.
GROWTH = 2**12


# Memory for the most elements that a value can have, where no input of run-time size is as large.
MOST_SPARE_BYTES = 2**24


class UnboundedError(UnsupportedError):
    """A value needs memory for more elements than it is likely to have: its size must be known."""


@dataclass(frozen=True)
class Checkpoint:
    """How much a builder had collected: statements, checks, sizes that are checked."""

    statements: int
    checks: int
    limited: frozenset[Size]
    bounded: frozenset[Size]


@dataclass(frozen=True)
class Appending:
    """A Concat that stores what it adds beside a state of a loop, in place.

    state: as a step is given it. in_front: whether what is added comes first. append: stores it and
    gives the whole, or None where that is not possible.
    """

    state: Tensor
    in_front: bool
    append: Callable[[Value], Tensor | None]


@dataclass
class LoopFrame:
    """A loop being built: its axis; its carries and condition are to be filled in.

    outside: the sizes that kernels before the loop compute.
    """

    axis: Axis
    outside: frozenset[str] = frozenset()
    carries: list[Carry] = field(default_factory=list)
    condition: str | None = None

    def is_fixed(self, shape: Shape) -> bool:
        """Whether no step of the loop computes a size of the shape."""
        return computed(*shape) <= self.outside


@dataclass
class Room:
    """The memory of the elements that compiling has computed.

    held: the arrays that are counted, or in the file, by their `id`. taken: bytes of those counted.
    """

    held: dict[int, np.ndarray] = field(default_factory=dict)
    taken: int = 0


class Builder:
    """Collects the statements of one program.

    `node` is the name of the model's node being lowered, which kernels remember, and `op` its
    operator.
    assumes: whether the program may be one that is not for all sizes.
    unsure: symbols that may turn out to be 1 and then broadcast; those defined here join it.
    seed: of all random numbers.
    room: the memory of constants, of this program and those that share it.
    """

    def __init__(
        self,
        unsure: set[str] | None = None,
        assumes: bool = False,
        seed: int = 0,
        room: Room | None = None,
    ) -> None:
        self._room = Room() if room is None else room
        self.assumes = assumes
        self.seed = seed
        # The numbers of the present steps of the loops being built, the outermost first.
        self.steps: list[Expr] = []
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Interface] = []
        self.outputs: list[Interface] = []
        self.checks: list[Check] = []
        self.definitions: list[tuple[str, Size]] = []
        self.unsure = set[str]() if unsure is None else unsure
        self.broadcasting = Broadcasting(self)
        self.node = ""
        self.op = ""
        self._body: list[Stmt] = []
        self._depth = 0
        self._numbers = count()
        # The numbers of elements that are checked to fit into memory.
        self._limited: set[Size] = set()
        # What the sizes that kernels compute are at most.
        self.bounds: dict[str, Size] = {}
        # Sizes of these that are computed as well, and the statements among which they are.
        self._remade: dict[Size, tuple[list[Stmt], Size]] = {}
        # Outputs that have the shape of other outputs of computed sizes, by their position.
        self._shapes: dict[int, Interface] = {}
        self._defined: dict[Size, str] = {}
        # Sizes that are known to be at most what any machine holds.
        self._bounded: set[Size] = set()
        # Arrays with memory, by identity: they are kept so that no other takes their identity.
        self._placed: dict[tuple[int, str], tuple[np.ndarray, str]] = {}
        # The model's constants and their names, by the array that owns the data: a view of them
        # is traced back to the name.
        self._named: dict[int, list[tuple[np.ndarray, str]]] = {}
        self._copies = Copies()
        # Sizes of which a value really has as many elements as they are at most, in some step.
        self._reached: set[str] = set()
        # The two sizes that some are one of.
        self._either: dict[str, tuple[Size, Size]] = {}
        # What sizes ask of the machine.
        self._of_machine: set[str] = set()
        # By the name of the value that they make.
        self.appending: dict[str, Appending] = {}
        # What attempts to lower a loop have found out of it, and how many there were in all.
        self.learned: dict[Hashable, object] = {}
        self.attempts = 0

    # Buffers and values

    def buffer(self, dtype: str, size: Size, kind: Kind = "arena", name: str = "b") -> str:
        """A new buffer; returns its name."""
        unique = name if kind in ("input", "output") else f"{name}{next(self._numbers)}"
        self.buffers[unique] = Buffer(unique, dtype, size, kind)
        return unique

    def empty(self, dtype: str, shape: Shape, what: str = "") -> Tensor:
        """A dense tensor in the arena, not yet written. what: as in `require_memory`."""
        self.require_memory(dtype, shape, what)
        return dense(dtype, shape, self.buffer(dtype, product(shape)))

    def computed(self, value: Expr, bound: Size, what: str) -> Size:
        """An int64 that a kernel computes, as a size: a symbol of its own from here on.

        value: from 0 to `bound`, which is known before the run: memory is laid out by it.
        what: says what the size is.
        """
        size = self.declared(bound, what)
        self.compute_size(size, value)
        return size

    def step_size(self, axis: Axis, steps: Size) -> Size:
        """The number of the step of a loop, as a size: values that grow by it get their memory.

        steps: so many run at most.
        """
        name = f"{self.node}.step.{next(self._numbers)}"
        self.bounds[name] = maximum(steps - 1, 0)
        self.buffers[name] = Buffer(name, "int64", 1, "size", bound=self.bounds[name])
        self._reached.add(name)
        size = symbol(name, computed=True)
        self.compute_size(size, Index(axis))
        return size

    def varying(self, bound: Size, what: str) -> Size:
        """As `declared`, of a size that each step of a loop may compute anew for the next one."""
        size = self.declared(bound, what)
        self._reached.add(str(size))
        return size

    def either(self, left: Size, right: Size, bound: Size, what: str) -> Size:
        """As `declared`, of a size that is one of two."""
        size = self.declared(bound, what)
        self._either[str(size)] = left, right
        if self._reached.issuperset(computed(left, right)):
            self._reached.add(str(size))
        return size

    def most_added(self, new: Size, old: Size) -> Size:
        """By how much one size exceeds another at most."""
        if str(new) in self._either:
            left, right = (self.most_added(one, old) for one in self._either[str(new)])
            return maximum(left, right)
        return self.upper(new - old)

    def of_machine(self, name: str) -> Size:
        """`MEMORY` or `SPARE`: a number of bytes that the runtime tells."""
        self._of_machine.add(name)
        return symbol(name)

    def declared(self, bound: Size, what: str) -> Size:
        """As `computed`; `compute_size` has to come before any use, once on each way there."""
        bound = self.upper(bound)
        name = f"{self.node}.{what or 'size'}.{next(self._numbers)}"
        self.buffers[name] = Buffer(name, "int64", 1, "size", bound=bound)
        self.bounds[name] = bound
        self.unsure.add(name)
        return symbol(name, computed=True)

    def compute_size(self, size: Size, value: Expr, reductions: Sequence[Reduce] = ()) -> None:
        """Give a declared size its value."""
        self.kernel((), [Store(Access(str(size), 0, ()), value)], reductions)

    def _computed_anew(self, size: Size, bound: Size | None) -> Size:
        """A size made of computed ones as one of its own; once in a list of statements."""
        body, known = self._remade.get(size, (None, size))
        if body is not self._body:
            known = self.computed(Extent(size), self.upper(size) if bound is None else bound, "")
            if self._reached.issuperset(computed(size)):
                self._reached.add(str(known))
            self._remade[size] = self._body, known
        return known

    def upper(self, size: Size) -> Size:
        """What a size is at most, known before the run."""
        bound = upper(size, self.bounds)
        if bound is None:
            reason = f"the size {size}, which the run computes, has no bound that is known before"
            raise UnboundedError(self.node, self.op, reason)
        return bound

    def input(self, name: str, dtype: str, shape: Shape, has_values: bool = False) -> Tensor:
        """Declare an input of the program; `has_values` if sizes depend on its elements."""
        buffer = self.buffer(dtype, product(shape), "input", f"in.{name}")
        static = static_shape(shape)
        if not has_values or static is None:
            self.inputs.append(Interface(name, buffer, dtype, shape))
            return dense(dtype, shape, buffer)
        known = np.empty(static, object)
        names = tuple(f"{name}{list(index)}" for index in np.ndindex(static))
        known.reshape(-1)[:] = [symbol(n, signed=True) for n in names]
        self.inputs.append(Interface(name, buffer, dtype, shape, names))
        return replace(dense(dtype, shape, buffer), known=known)

    def output(self, name: str, value: Value) -> None:
        """Declare an output of the program and copy `value` to it."""
        buffer = self.buffer(value.dtype, value.size, "output", f"out.{name}")
        if computed(*value.shape):
            self._output_shape(name, value.shape)
        self.outputs.append(Interface(name, buffer, value.dtype, value.shape))
        self.node = name
        made = self._copies.find(value, self._body)
        self.copy(made or value, dense(value.dtype, value.shape, buffer))

    def _output_shape(self, name: str, shape: Shape) -> None:
        """Declare another output, behind all others, for the shape of the next one."""
        rank = len(shape)
        buffer = self.buffer("int64", rank, "output", f"shape.{name}")
        self._shapes[len(self.outputs)] = Interface(f"shape of {name}", buffer, "int64", (rank,))
        stores = [Store(Access(buffer, i, ()), Extent(n)) for i, n in enumerate(shape)]
        self.kernel((), stores)

    def constant(self, array: np.ndarray, name: str = "") -> Tensor:
        """A value known now, called `name` in the model. It gets memory when a kernel needs it."""
        if name:
            self._named.setdefault(id(owner(array)), []).append((array, name))
            self._room.held[id(owner(array))] = owner(array)
        return self.known(array.dtype.name, array)

    def known(self, dtype: str, elements: np.ndarray) -> Tensor:
        """A value of numbers or sizes that compiling has computed."""
        self._require_room(elements)
        return Tensor(dtype, elements.shape, None, (), elements)

    def sizes(self, values: np.ndarray, dtype: str = "int64") -> Tensor:
        """An integer value computed from shapes: an object array of sizes."""
        return self.known(dtype, values)

    def placed(self, value: Tensor) -> Tensor:
        """The value with memory behind it."""
        if value.base is not None:
            return value
        known = value.known
        assert known is not None
        if known.dtype == object and any(isinstance(v, Dim) for v in known.flat):
            stored = self._store_sizes(value, known)
            return replace(stored, progression=progression_of(value))
        key = id(known), value.dtype
        if key not in self._placed:
            array = np.ascontiguousarray(known, dtype=value.dtype).reshape(-1)
            self._require_room(array)
            name = self.buffer(value.dtype, array.size, "constant", "c")
            self.constants[name] = array
            named = self._named.get(id(owner(known)), ())
            sources = tuple(n for a, n in named if np.may_share_memory(a, known))
            self.buffers[name] = replace(self.buffers[name], sources=sources)
            self._placed[key] = known, name
        name = self._placed[key][1]
        return replace(dense(value.dtype, value.shape, name), known=known)

    def _store_sizes(self, value: Tensor, known: np.ndarray) -> Tensor:
        target = self.empty(value.dtype, value.shape)
        assert target.base is not None
        stores = tuple(
            Store(Access(target.base.buffer, i, ()), cast(Extent(size), value.dtype))
            for i, size in enumerate(n if isinstance(n, Dim) else int(n) for n in known.flat)
        )
        self.kernel((), stores)
        return target

    def strided(self, value: Value) -> Tensor:
        """The value as one strided tensor with memory: joined parts are copied together, once."""
        if isinstance(value, Tensor):
            return self.placed(value)
        made = self._copies.find(value, self._body)
        if made is None:
            parts = laid_out(value)
            target = self.empty(value.dtype, parts.shape)
            self.copy(parts, target)
            made = self._copies.add(value, self._body, target)
        return made

    # Kernels

    def axis(self, extent: Size, name: str = "i") -> Axis:
        """A fresh axis."""
        return Axis(f"{name}{next(self._numbers)}", extent)

    def axes(self, shape: Shape) -> tuple[Axis | None, ...]:
        """Fresh axes for a shape; None for an extent of 1, which needs no loop."""
        return tuple(None if extent == 1 else self.axis(extent) for extent in shape)

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
        assert tensor.base is not None
        last = axes[len(axes) - len(tensor.shape) :]
        pairs = zip(last, tensor.shape, tensor.strides, strict=True)
        terms = tuple(
            (axis, stride)
            for axis, extent, stride in pairs
            if axis is not None and extent != 1 and stride != 0
        )
        return Access(tensor.base.buffer, tensor.base.offset, tensor.base.terms + terms)

    def kernel(
        self,
        axes: Sequence[Axis | None],
        stores: Sequence[Store],
        reductions: Sequence[Reduce] = (),
        ordered: Sequence[Axis | None] = (),
    ) -> None:
        """Append a kernel, unless it has no points; those of `ordered` axes run in order."""
        kept = tuple(axis for axis in axes if axis is not None)
        if any(axis.extent == 0 for axis in kept):
            return
        kernel = Kernel(
            f"k{next(self._numbers)}",
            kept,
            tuple(reductions),
            tuple(stores),
            sources=(self.node,),
            ordered=tuple(axis for axis in ordered if axis is not None),
        )
        self._require_time(kernel)
        self._body.append(kernel)

    def compute(self, shape: Shape, value: Callable[[tuple[Axis | None, ...]], Expr]) -> Tensor:
        """A new tensor whose elements are `value(axes)`."""
        axes = self.axes(shape)
        return self.stored(shape, axes, value(axes))

    def stored(self, shape: Shape, axes: Sequence[Axis | None], element: Expr) -> Tensor:
        """A new tensor of `shape` whose elements are `element` at the points of `axes`."""
        target = self.empty(dtype_of(element), shape)
        self.kernel(axes, [Store(self.access(target, axes), element)])
        return target

    def pointwise(self, function: Callable[..., Expr], *operands: Value) -> Tensor:
        """`function` of the operands' elements, with NumPy broadcasting."""
        shape = self.broadcast(*(operand.shape for operand in operands))
        placed = [self._loadable(operand) for operand in operands]
        return self.compute(shape, lambda axes: function(*(self.load(p, axes) for p in placed)))

    def _loadable(self, value: Value) -> Value:
        return value if isinstance(value, Tensor) else self.strided(value)

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
        self.kernel(axes, [Store(self.access(target, axes), self.load(source, axes))])

    def reduce(
        self, value: Value, axes: Sequence[int], combine: str, function: Callable[[Expr], Expr]
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
        numbers = (*FLOATS, *INTEGERS)
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
        self.kernel(axes, [store], [] if empty else [reduce])
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

    def reshaped(self, value: Value, shape: Shape) -> Tensor:
        """The value with another shape of the same size: a view, or a copy where it must be."""
        tensor = value if isinstance(value, Tensor) else self.strided(value)
        if static_shape(shape) is None:
            # Elements known now stay known in a shape that is known now.
            tensor = self.placed(tensor)
        view = reshape_view(tensor, shape)
        if view is not None:
            if view.known is not None:
                self._require_room(view.known)
            return view
        copied = self.empty(tensor.dtype, tensor.shape)
        self.copy(tensor, copied)
        assert copied.base is not None
        return dense(tensor.dtype, shape, copied.base.buffer)

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
            reduce = Reduce(tuple(inner), "sum", left, right, chains)
        else:
            reduce = Reduce(tuple(inner), "sum", op("mul", left, right))
        return self._reduction(shape, axes, reduce)

    def dot(
        self,
        shape: Shape,
        axes: Sequence[Axis | None],
        inner: Sequence[Axis],
        left: Expr,
        right: Expr,
    ) -> Tensor:
        """As `contract`, of int32 words: each holds four bytes, unsigned in `left`, else signed."""
        return self._reduction(shape, axes, Reduce(tuple(inner), "sum", left, right))

    @property
    def is_inside(self) -> bool:
        """Whether what is built is part of a loop or of a branch."""
        return self._depth > 0

    @property
    def statements(self) -> Sequence[Stmt]:
        """What is built so far, of the innermost block."""
        return self._body

    def append(self, statement: Stmt) -> None:
        """Append a statement that is no kernel."""
        self._body.append(statement)

    @contextmanager
    def block(self, statements: list[Stmt]) -> Iterator[list[Stmt]]:
        """Statements built inside are appended to this list instead."""
        outer, self._body = self._body, statements
        self._depth += 1
        try:
            yield statements
        finally:
            self._body = outer
            self._depth -= 1

    @contextmanager
    def step(self, number: Expr) -> Iterator[None]:
        """What is built inside belongs to this step of a loop."""
        self.steps.append(number)
        try:
            yield
        finally:
            self.steps.pop()

    @contextmanager
    def loop(self, extent: Size) -> Iterator[LoopFrame]:
        """Statements built inside run for every value of the axis; see `LoopFrame`."""
        frame = LoopFrame(self.axis(extent, "t"), frozenset(self.bounds))
        checks = len(self.checks)
        with self.block([]) as body, self.step(Index(frame.axis)):
            yield frame
        if extent == 0:
            # What never runs cannot contradict itself either.
            del self.checks[checks:]
            return
        # States without elements are never written, so there is nothing to carry.
        carries = tuple(c for c in frame.carries if self.buffers[c.state].size != 0)
        loop = Loop(frame.axis, carries, tuple(body), frame.condition)
        self._require_time(loop)
        self.append(loop)

    # Shapes

    def require_equal(self, left: Size, right: Size, what: str) -> None:
        """Both sizes must agree: an error now, or a check when the model runs."""
        for difference in (left - right, right - left):
            self.require(difference, f"{what}: {left} and {right} differ")

    def _check(self, size: Size, message: str) -> None:
        if computed(size):
            self.require_now(Check(size, message))
        else:
            self.checks.append(Check(size, message))

    def require_now(self, check: Check) -> None:
        """Check a size at this place of the program, not before the run."""
        holds = op("ge", sized(check.size), constant(0, "int64"))
        flag = self.compute((), lambda _: holds)
        assert flag.base is not None
        self.append(Require(flag.base.buffer, check.message, check.assumed))

    def require(self, size: Size, what: str) -> None:
        """The size must not be negative: else `what` is the error, now or when the model runs."""
        message = f"node {self.node!r}: {what}"
        if not isinstance(size, int):
            self._check(size, message)
        elif size < 0:
            raise ShapeError(message)

    def require_nonnegative(self, size: Size, what: str) -> None:
        """The size must not be negative: an error now, or a check when the model runs."""
        text = str(size) if len(str(size)) < _LONG else "the size"
        self.require(size, f"{what}: {text} is negative")

    def require_nonzero(self, size: Size, what: str) -> None:
        """The size must not be 0: an error now, or a check when the model runs."""
        is_zero = is_equal(size, 0)
        if is_zero == 1:
            raise ShapeError(f"node {self.node!r}: {what}")
        if is_zero != 0:
            self._check(-is_zero, f"node {self.node!r}: {what}: {size} is 0")

    def assume(self, condition: Size, what: str) -> None:
        """Make a program for the sizes where the condition is 1: others need another program."""
        if computed(condition):
            raise UnboundedError(self.node, self.op, "a size is only known at run time")
        self.checks.append(Check(condition - 1, f"node {self.node!r}: {what}", assumed=True))

    def broadcast(self, *shapes: Shape) -> Shape:
        """The shape that NumPy broadcasting gives."""
        return self.broadcasting.shape(*shapes)

    def is_unsure(self, *sizes: Size) -> bool:
        """Whether one of the sizes may turn out to be 1 where the others are not."""
        return any(not self.unsure.isdisjoint(symbols(size)) for size in sizes)

    def is_given(self, size: Size) -> bool:
        """Whether a size follows from the inputs of the model, not from what other stages tell."""
        values = {name for interface in self.inputs for name in interface.values}
        definitions = dict(self.definitions)
        names = list(symbols(size))
        while names:
            name = names.pop()
            if name in definitions:
                names += symbols(definitions[name])
            elif name in self.unsure and name not in values:
                return False
        return True

    def defined(
        self, size: Size, what: str, signed: bool = False, bound: Size | None = None
    ) -> Size:
        """A size as a symbol of its own if it depends on values of inputs, or is computed.

        It keeps expressions short. Unless `signed`, the size must not be negative, and from there
        on it is known not to be.

        bound: what it is at most, if that is known better than from its parts.
        """
        is_long = bool(computed(size)) and not is_polynomial(size)
        if not isinstance(size, Dim) or not (is_long or is_signed(size) or self.is_unsure(size)):
            if not signed:
                self.require_nonnegative(size, what)
            return size
        if str(size) in self.unsure and (signed or not is_signed(size)):
            return size
        if not signed and not is_nonnegative(size):
            self.require_nonnegative(size, what)
            size = maximum(size, 0)
        return self.named(size, signed, bound)

    def named(self, size: Size, signed: bool = False, bound: Size | None = None) -> Size:
        """A size as a symbol of its own, which keeps expressions short, or as it is if it is.

        bound: as in `defined`.
        """
        if not isinstance(size, Dim) or is_symbol(size):
            return size
        if computed(size):
            return size if signed else self._computed_anew(size, bound)
        if size not in self._defined:
            self._defined[size] = name = f"{self.node}.{len(self.unsure)}"
            self.unsure.add(name)
            self.definitions.append((name, size))
        return symbol(self._defined[size], signed)

    def require_memory(self, dtype: str, shape: Shape, what: str = "") -> None:
        """A value of this shape must be possible: an error now, or a check when the model runs.

        what: what the error says of the value, by default its shape.

        Sizes that depend on values may be anything: a result must fit into this machine. One
        without elements must do so with an extent of 1 in place of 0, for loops over its other axes
        still have to end.
        """
        size = product(shape)
        text = what or f"a value of shape [{', '.join(map(str, shape))}]"
        message = f"node {self.node!r}: not enough memory for {text}"
        unknown, is_reached = computed(size), False
        if unknown:
            shape = tuple(maximum(self.upper(extent), 0) for extent in shape)
            size = self.upper(size)
            is_reached = self._reached.issuperset(unknown)
            most = MOST_SPARE_BYTES // ITEM_BYTES[dtype]
            is_small = size <= most if isinstance(size, int) else self._grows_as_inputs(size)
            if not is_reached and not is_small:
                reason = (
                    f"the run computes a size, and memory for up to {size} elements is too much"
                )
                raise UnboundedError(self.node, self.op, reason)
        if isinstance(size, int) and static_shape(shape) is not None:
            if size * ITEM_BYTES[dtype] > limits.MOST_BYTES:
                raise ShapeError(message)
        elif is_reached or self.is_unsure(product([maximum(extent, 1) for extent in shape])):
            size = product([maximum(extent, 1) for extent in shape])
            if size not in self._limited:
                self._limited.add(size)
                self._check(self.of_machine(MEMORY) - size * ITEM_BYTES[dtype], message)
        elif not isinstance(size, int) and size not in self._bounded:
            self._bounded.add(size)
            if not self._is_modest(size):
                self._check(limits.MOST_BYTES - size * ITEM_BYTES[dtype], message)

    def _require_room(self, known: np.ndarray) -> None:
        """Elements computed while compiling take no more memory in all than there may be."""
        whole, room = owner(known), self._room
        if id(whole) in room.held:
            return
        room.held[id(whole)] = whole
        room.taken += whole.nbytes
        if room.taken > limits.MOST_CONSTANT_BYTES:
            raise ShapeError(
                f"node {self.node!r}: a constant of shape {list(known.shape)}, together with those "
                f"before it, takes {room.taken / 2**30:.3g} GiB; at most "
                f"{limits.MOST_CONSTANT_BYTES / 2**30:.3g} GiB are computed while a model is "
                "compiled"
            )

    def require_table(self, count: int, what: str) -> None:
        """So many numbers can be computed while compiling; `ShapeError` saying `what` else."""
        if 16 * count > limits.MOST_CONSTANT_BYTES:
            raise ShapeError(
                f"node {self.node!r}: {what} takes a table of {count} numbers, more than are "
                "computed while a model is compiled"
            )

    def _require_time(self, statement: Kernel | Loop) -> None:
        """The statement can end: an error now, or a check when the model runs.

        Sizes of inputs are as large as somebody wants them. What numbers in the file make of them
        is bounded: every kernel and every loop passes through here.
        """
        if fixed_steps(statement) <= min(_PLAIN, limits.MOST_STEPS):
            return
        most = f"a run may take {limits.MOST_STEPS:.2g}"
        count = self.upper(steps(statement))
        if not isinstance(count, int):
            message = f"node {self.node!r}: it takes more steps than a run may: {most}"
            self._check(limits.MOST_STEPS - count, message)
        elif count > limits.MOST_STEPS:
            raise ShapeError(f"node {self.node!r}: it takes {count:.2g} steps, {most}")

    def _is_modest(self, size: Size) -> bool:
        """Whether it follows from the size of an input, which fits in memory."""
        given = (self.buffers[interface.buffer].size for interface in self.inputs)
        return any(is_nonnegative(known * GROWTH - size) for known in given)

    def _grows_as_inputs(self, size: Size) -> bool:
        """Whether it is the product of no more run-time dimensions than some input has."""
        given = [p for i in self.inputs for p in powers(self.buffers[i.buffer].size)]
        return all(any(own <= other for other in given) for own in powers(size))

    def expanded(self, value: Value, shape: Shape, one_way: bool = False) -> Tensor:
        """The value and `shape` broadcast together, as a view; `one_way`: to just this shape."""
        together = shape
        if one_way:
            self._fit(value.shape, shape)
        else:
            together = self.broadcast(value.shape, shape)
        if together != value.shape:
            self.require_memory(value.dtype, together)
        lead = len(together) - len(value.shape)
        return expand(self.broadcasting.following(self.strided(value), together[lead:]), together)

    def _fit(self, narrow: Shape, wide: Shape) -> None:
        lead = len(wide) - len(narrow)
        if lead < 0:
            raise ShapeError(f"node {self.node!r}: {narrow} does not fit into {wide}")
        for axis, (n, wanted) in enumerate(zip(narrow, wide[lead:], strict=True), lead):
            self.broadcasting.fit(n, wanted, f"axis {axis} of an operand to broadcast")

    def checkpoint(self) -> Checkpoint:
        """A mark to `rollback` to when lowering a node fails half-way."""
        sizes = frozenset(self._limited), frozenset(self._bounded)
        return Checkpoint(len(self._body), len(self.checks), *sizes)

    def rollback(self, mark: Checkpoint) -> None:
        """Forget the statements and checks added since the mark.

        Definitions stay: what another attempt starts from may mention them.
        """
        del self._body[mark.statements :]
        self._copies.forget()
        self._remade.clear()
        del self.checks[mark.checks :]
        self._limited, self._bounded = set(mark.limited), set(mark.bounded)

    def finish(self) -> Program:
        """The program built so far."""
        names = {s for i in self.inputs for n in i.shape if isinstance(n, Dim) for s in [str(n)]}
        names.update(name for i in self.inputs for name in i.values)
        names |= self._of_machine
        shapes = tuple(self._shapes.values())
        program = Program(
            tuple(self.inputs),
            (*self.outputs, *shapes),
            (*sorted(names), *(name for name, _ in self.definitions), *self.bounds),
            dict(self.buffers),
            dict(self.constants),
            (),
            tuple(self.checks),
            tuple(self.definitions),
            {position: len(self.outputs) + i for i, position in enumerate(self._shapes)},
        )
        return program.with_body(tuple(self._body))


def literal(value: float | int | bool, like: Expr) -> Const:
    """A literal with the dtype of another expression, rounded to it."""
    dtype = dtype_of(like)
    return constant(np.asarray(value).astype(dtype).item(), dtype)


def sized(size: Size) -> Expr:
    """A size as an int64 value."""
    return constant(size, "int64") if isinstance(size, int) else Extent(size)
