"""The verifier of loop programs. Run after every pass in tests, and before code is generated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ostinato.element_types import numpy_dtype
from ostinato.program import functions
from ostinato.program.expr import (
    BYTE_FLOATS,
    COMPARISONS,
    DTYPES,
    FLOATS,
    HALVES,
    INTEGERS,
    ITEM_BYTES,
    Access,
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    Op,
    Reduced,
    children,
    dtype_of,
    reached,
    walk,
)
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.laid import Contents
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Interface,
    Loop,
    Program,
    Require,
    Stmt,
    count_own_uses,
)
from ostinato.sizes import dims
from ostinato.sizes.dims import Size
from ostinato.sizes.substitution import upper

_KINDS = ("input", "output", "constant", "arena", "size")
_COMBINES = ("sum", "prod", "min", "max", "larger")

ARITY: dict[str, int] = {
    **dict.fromkeys(("neg", "abs", "sqrt", "floor", "ceil", "rint", "trunc", "not", "bitcast"), 1),
    **dict.fromkeys(("add", "sub", "mul", "div", "mod", "min", "max", "larger"), 2),
    **dict.fromkeys(COMPARISONS, 2),
    **dict.fromkeys(("and", "or", "xor", "shl", "shr"), 2),
    **dict.fromkeys(("fma", "dot", "dot_pairs", "select"), 3),
    **functions.ARITY,
}
_ONLY_FLOATS = functions.NAMES | {"fma", "sqrt", "floor", "ceil", "rint", "trunc"}
_ONLY_INTEGERS = frozenset(("shl", "shr", "mod"))
_LOGIC = frozenset(("and", "or", "xor", "not"))
_POSITIONS = ("int64", "uint8")
_ANY_DTYPE = _LOGIC | COMPARISONS | {"select", "min", "max"}


class ProgramError(Exception):
    """Raised for a loop program that is not legal: a defect of this package. Lists every reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the loop program is not legal:\n" + "\n".join(f"- {p}" for p in problems))
        self.problems = tuple(problems)


def verify(program: Program) -> None:
    """Raise ProgramError unless the program keeps every rule of its grammar."""
    verifier = _Verifier(program)
    problems = [
        *verifier.buffers(),
        *verifier.interfaces(),
        *verifier.body(program.body, ()),
    ]
    if problems:
        raise ProgramError(problems)


class _Verifier:
    """Checks a program; each method yields the problems of one part of it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._uses = count_own_uses(program.body)

    def buffers(self) -> Iterator[str]:
        for name, buffer in self.program.buffers.items():
            where = f"buffer {name!r}"
            if name != buffer.name:
                yield f"{where} is called {buffer.name!r}"
            if buffer.kind not in _KINDS:
                yield f"{where}: unknown kind {buffer.kind!r}"
            if buffer.dtype not in DTYPES:
                yield f"{where}: unknown dtype {buffer.dtype!r}"
            if buffer.kind == "size":
                yield from self._size(where, buffer)
            elif upper(buffer.size, self.program.bounds) is None:
                yield f"{where}: size {buffer.size} has no bound"
            if isinstance(buffer.size, int) and buffer.size < 0:
                yield f"{where}: negative size {buffer.size}"
            yield from self._symbols(where, buffer.size)
            if (buffer.kind == "constant") != (name in self.program.constants):
                yield f"{where}: kind {buffer.kind!r}, but data is present only for constants"
        for name, data in self.program.constants.items():
            yield from self._constant(name, data)

    def _size(self, where: str, buffer: Buffer) -> Iterator[str]:
        if buffer.dtype != "int64" or buffer.size != 1:
            yield f"{where}: a size is one int64"
        if dims.computed(buffer.bound):
            yield f"{where}: its bound {buffer.bound} is not known before the run"
        if buffer.name not in self.program.symbols:
            yield f"{where}: a size is a symbol of the program"

    def _constant(self, name: str, data: Contents) -> Iterator[str]:
        buffer = self.program.buffers.get(name)
        if buffer is None:
            yield f"constant {name!r} has no buffer"
        elif data.dtype.name != buffer.dtype or data.size != buffer.size:
            yield (
                f"constant {name!r}: {data.size} elements of {data.dtype.name} "
                f"for a buffer of {buffer.size} elements of {buffer.dtype}"
            )

    def interfaces(self) -> Iterator[str]:
        program = self.program
        given = {str(size) for i in program.inputs for size in i.shape}
        given.update(
            (dims.MEMORY, dims.SPARE, *(name for i in program.inputs for name in i.values))
        )
        for name, size in program.definitions:
            for part in sorted(set(dims.symbols(size)) - given):
                yield f"definition of {name!r} uses {part!r}, which is not known before it"
            given.add(name)
        given.update(self.program.bounds)
        for symbol in program.symbols:
            if symbol not in given:
                yield f"symbol {symbol!r} is no plain dimension of an input and not defined"
        for interface in program.inputs:
            yield from self._interface("input", interface, ("input",))
        for interface in program.outputs:
            yield from self._interface("output", interface, _KINDS)
        for check in program.checks:
            yield from self._symbols(f"check {check.message!r}", check.size)

    def _interface(self, role: str, interface: Interface, kinds: Sequence[str]) -> Iterator[str]:
        where = f"{role} {interface.name!r}"
        buffer = self.program.buffers.get(interface.buffer)
        if buffer is None:
            yield f"{where}: there is no buffer {interface.buffer!r}"
            return
        if buffer.kind not in kinds:
            yield f"{where}: buffer {buffer.name!r} is of kind {buffer.kind!r}"
        if buffer.dtype != interface.dtype:
            yield f"{where}: {interface.dtype}, but its buffer holds {buffer.dtype}"
        if interface.values and len(interface.values) != dims.product(interface.shape):
            yield f"{where}: {len(interface.values)} values in {buffer.size} elements"
        # An output of computed size that gets all the memory there is to spare has a bound by
        # itself.
        is_bounded = dims.SPARE in dims.symbols(buffer.size) and dims.computed(*interface.shape)
        if dims.product(interface.shape) != buffer.size and not is_bounded:
            yield f"{where}: shape {list(map(str, interface.shape))} in {buffer.size} elements"

    def _symbols(self, where: str, *sizes: Size) -> Iterator[str]:
        for size in sizes:
            for name in sorted(set(dims.symbols(size)) - set(self.program.symbols)):
                yield f"{where}: size {size} uses {name!r}, which is no symbol of the program"

    def body(self, body: tuple[Stmt, ...], outer: tuple[Axis, ...]) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, Loop):
                yield from self._loop(statement, outer)
            elif isinstance(statement, Branch):
                yield from self._condition("branch", statement.condition)
                yield from self.body(statement.then, outer)
                yield from self.body(statement.orelse, outer)
            elif isinstance(statement, Require):
                yield from self._condition("requirement", statement.condition)
            else:
                yield from _KernelVerifier(self, statement, outer).problems()

    def _condition(self, where: str, name: str) -> Iterator[str]:
        buffer = self.program.buffers.get(name)
        if buffer is None or buffer.dtype != "bool" or buffer.size != 1:
            yield f"{where}: condition {name!r} is no buffer of one bool"

    def _loop(self, loop: Loop, outer: tuple[Axis, ...]) -> Iterator[str]:
        where = f"loop {loop.axis}"
        yield from self.scope(where, (*outer, loop.axis))
        written: set[str] = set().union(*(s.writes() for s in loop.body))
        names = [name for c in loop.carries for name in (c.state, c.next)]
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{where}: buffer {name!r} is carried more than once"
        if loop.condition is not None:
            yield from self._condition(where, loop.condition)
            if loop.condition not in {carry.state for carry in loop.carries}:
                yield f"{where}: condition {loop.condition!r} is not carried"
        if loop.is_independent and loop.carries:
            yield f"{where}: steps that hand on states depend on each other"
        yield from self._scratch(where, loop)
        for carry in loop.carries:
            pair = [self.program.buffers.get(name) for name in (carry.state, carry.next)]
            if pair[0] is None or pair[1] is None:
                yield f"{where}: carry {carry.state!r}, {carry.next!r}: there is no such buffer"
                continue
            yield from self._carry(f"{where}: carry {carry.state!r}, {carry.next!r}", *pair)
            if carry.next not in written:
                yield f"{where}: the body never writes {carry.next!r}"
        yield from self.body(loop.body, (*outer, loop.axis))

    def _scratch(self, where: str, loop: Loop) -> Iterator[str]:
        if loop.scratch is None:
            return
        if not loop.is_independent:
            yield f"{where}: steps that depend on each other are dealt out"
        inside = count_own_uses(loop.body)
        for name in sorted(loop.scratch):
            buffer = self.program.buffers.get(name)
            if buffer is None or buffer.kind != "arena" or self._uses[name] != inside[name]:
                yield f"{where}: scratch {name!r} is no buffer of its own"

    def _carry(self, where: str, state: Buffer | None, successor: Buffer | None) -> Iterator[str]:
        assert state is not None and successor is not None
        if state.dtype != successor.dtype or state.size != successor.size:
            yield (
                f"{where}: {state.size} elements of {state.dtype} "
                f"and {successor.size} of {successor.dtype}"
            )
        for buffer in (state, successor):
            if buffer.kind in ("input", "constant"):
                yield f"{where}: {buffer.name!r} is of kind {buffer.kind!r} and cannot change"

    def scope(self, where: str, axes: Sequence[Axis]) -> Iterator[str]:
        """Yield axis names that occur twice within nested scopes."""
        for name, count in Counter(axis.name for axis in axes).items():
            if count > 1:
                yield f"{where}: axis {name!r} appears more than once"
        for axis in axes:
            yield from self._symbols(f"{where}: axis {axis}", axis.extent)

    def access(self, where: str, access: Access, dtype: str, axes: Sequence[Axis]) -> Iterator[str]:
        """Yield problems with the buffer, dtype and axes of an access."""
        where = f"{where}: {access.buffer!r}"
        buffer = self.program.buffers.get(access.buffer)
        if buffer is None:
            yield f"{where} is not a buffer"
            return
        if buffer.dtype != dtype:
            yield f"{where} holds {buffer.dtype}, not {dtype}"
        for axis, _ in access.terms:
            if axis not in axes:
                yield f"{where}: axis {axis} < {axis.extent} is not in scope"
        if len({axis for axis, _ in access.terms}) < len(access.terms):
            yield f"{where}: an axis has two strides"
        yield from self._symbols(where, access.offset, *(stride for _, stride in access.terms))

    def bounds(self, where: str, access: Access) -> Iterator[str]:
        """Yield accesses that are certainly outside of the buffer, unless an axis has no points."""
        buffer = self.program.buffers.get(access.buffer)
        if buffer is None or any(axis.extent == 0 for axis, _ in access.terms):
            return
        ends = reached(access.offset, access.terms)
        if ends is None:
            return
        low, high = ends
        for size in (low, buffer.size - 1 - high):
            if dims.is_nonnegative(-1 - size):
                yield f"{where}: elements {low} to {high} of {access.buffer!r}[{buffer.size}]"


class _KernelVerifier:
    def __init__(self, parent: _Verifier, kernel: Kernel, outer: tuple[Axis, ...]) -> None:
        self.parent = parent
        self.kernel = kernel
        self.where = f"kernel {kernel.name!r}"
        self.axes = (*outer, *kernel.axes)

    def problems(self) -> Iterator[str]:
        kernel = self.kernel
        yield from self.parent.scope(self.where, self.axes)
        if not kernel.stores:
            yield f"{self.where} stores nothing"
        if kernel.guard is not None:
            yield from self._expressions([kernel.guard], self.axes, 0, bounded=False)
            if dtype_of(kernel.guard) != "bool":
                yield f"{self.where}: the guard is {dtype_of(kernel.guard)}, not bool"
        for axis in kernel.ordered:
            if axis not in kernel.axes:
                yield f"{self.where}: the ordered axis {axis} is none of its axes"
        if kernel.ordered and kernel.reductions:
            yield f"{self.where} has an order and reductions"
        for position, reduce in enumerate(kernel.reductions):
            yield from self._reduce(position, reduce)
        yield from self._stores()

    def _reduce(self, position: int, reduce: Reduce) -> Iterator[str]:
        where = f"{self.where}: reduction {position}"
        axes = (*self.axes, *reduce.axes)
        yield from self.parent.scope(where, axes)
        if not reduce.axes:
            yield f"{where} has no axes"
        if reduce.combine not in _COMBINES:
            yield f"{where}: unknown way to combine {reduce.combine!r}"
        if reduce.chains < 1 or reduce.chains & (reduce.chains - 1):
            yield f"{where}: {reduce.chains} chains are not a power of two"
        if reduce.factor is not None:
            if reduce.combine != "sum":
                yield f"{where}: a factor goes with a sum, not with {reduce.combine!r}"
            fused = reduce.dtype in (*FLOATS, "int32")
            if not fused or dtype_of(reduce.factor) != reduce.dtype:
                yield f"{where}: {reduce.dtype} times {dtype_of(reduce.factor)} is not fused"
        if reduce.dtype == "bool" and reduce.combine in ("sum", "prod"):
            yield f"{where}: {reduce.combine} of bool"
        yield from self._expressions(reduce.operands, axes, 0, self.kernel.guard is None)

    def _stores(self) -> Iterator[str]:
        seen: set[tuple[str, Size, frozenset[tuple[Axis, Size]]]] = set()
        kernel = self.kernel
        roots = [expr for store in kernel.stores for expr in store.expressions()]
        sums = len(kernel.reductions)
        yield from self._expressions(roots, self.axes, sums, kernel.guard is None)
        for store in kernel.stores:
            access = store.access
            where = f"{self.where}: store to {access.buffer!r}"
            yield from self.parent.access(self.where, access, dtype_of(store.value), self.axes)
            if store.mask is not None and dtype_of(store.mask) != "bool":
                yield f"{where}: the mask is {dtype_of(store.mask)}, not bool"
            yield from self._positions(store.index)
            if self.kernel.guard is None and not store.partial:
                yield from self.parent.bounds(where, access)
            buffer = self.parent.program.buffers.get(access.buffer)
            if buffer is not None and buffer.kind in ("input", "constant"):
                yield f"{where}, which is of kind {buffer.kind!r}"
            if store.partial:
                continue
            key = (access.buffer, access.offset, frozenset(access.terms))
            if key in seen:
                yield f"{where}: two stores write the same elements"
            seen.add(key)
            empty = any(axis.extent == 0 for axis in self.kernel.axes)
            for axis in set(self.kernel.axes) - set(self.kernel.ordered):
                if access.stride(axis) == 0 and axis.extent != 1 and not empty:
                    yield f"{where}: all points along {axis} write the same element"

    def _expressions(
        self, roots: Iterable[Expr], axes: Sequence[Axis], reductions: int, bounded: bool
    ) -> Iterator[str]:
        for node in walk(*roots):
            dtype = dtype_of(node)
            if dtype not in DTYPES:
                yield f"{self.where}: unknown dtype {dtype!r} of {type(node).__name__}"
            elif isinstance(node, Load):
                yield from self._load(node, axes, bounded)
            elif isinstance(node, Index) and node.axis not in axes:
                yield f"{self.where}: axis {node.axis} < {node.axis.extent} is not in scope"
            elif isinstance(node, Extent):
                yield from self.parent._symbols(self.where, node.size)
            elif isinstance(node, Reduced):
                yield from self._reduced(node, reductions)
            elif isinstance(node, Const):
                yield from self._const(node)
            elif isinstance(node, Op):
                yield from self._op(node)
            elif isinstance(node, Cast):
                if not {dtype, dtype_of(node.value)}.isdisjoint(BYTE_FLOATS):
                    yield f"{self.where}: {dtype_of(node.value)} is not converted to {dtype}"
            elif not isinstance(node, Index):
                yield f"{self.where}: {type(node).__name__} is not an expression"

    def _load(self, load: Load, axes: Sequence[Axis], bounded: bool) -> Iterator[str]:
        yield from self.parent.access(self.where, load.access, load.dtype, axes)
        yield from self._positions(load.index)
        if load.mask is None:
            if bounded and not load.index:
                yield from self.parent.bounds(f"{self.where}: load", load.access)
            return
        if dtype_of(load.mask) != "bool":
            yield f"{self.where}: the mask of a load is {dtype_of(load.mask)}, not bool"
        if load.other is None or load.other.dtype != load.dtype:
            yield f"{self.where}: a masked load of {load.dtype} needs another value of that dtype"

    def _positions(self, index: Sequence[tuple[Expr, Size]]) -> Iterator[str]:
        for value, stride in index:
            yield from self.parent._symbols(self.where, stride)
            if dtype_of(value) not in _POSITIONS:
                yield f"{self.where}: a computed index is {dtype_of(value)}, not int64 or uint8"

    def _reduced(self, node: Reduced, reductions: int) -> Iterator[str]:
        if not 0 <= node.position < reductions:
            yield f"{self.where}: reduction {node.position} is not available, only {reductions} are"
        elif self.kernel.reductions[node.position].dtype != node.dtype:
            actual = self.kernel.reductions[node.position].dtype
            yield f"{self.where}: reduction {node.position} is {actual}, not {node.dtype}"

    def _const(self, node: Const) -> Iterator[str]:
        with np.errstate(all="ignore"):
            try:
                stored = np.asarray(node.value).astype(numpy_dtype(node.dtype)).item()
            except OverflowError:
                stored = None
        same = stored == node.value or (stored != stored and node.value != node.value)
        if not same or isinstance(node.value, float) != (node.dtype in (*FLOATS, *HALVES)):
            yield f"{self.where}: constant {node.value!r} is not a value of {node.dtype}"

    def _op(self, node: Op) -> Iterator[str]:
        where = f"{self.where}: {node.name}"
        if node.name not in ARITY:
            yield f"{where} is not an operation"
            return
        if len(node.args) != ARITY[node.name]:
            yield f"{where} has {len(node.args)} arguments, not {ARITY[node.name]}"
            return
        given = [dtype_of(child) for child in children(node)]
        if not _dtypes_fit(node.name, given, node.dtype):
            yield f"{where} of {', '.join(given)} giving {node.dtype}"


def _dtypes_fit(name: str, given: list[str], result: str) -> bool:
    if name == "bitcast":
        sizes = {ITEM_BYTES[given[0]], ITEM_BYTES[result]}
        return len(sizes) == 1 and "bool" not in (given[0], result)
    if name == "select":
        return given == ["bool", result, result]
    if set(given) & {*HALVES, *BYTE_FLOATS}:
        return False
    if len(set(given)) > 1 or result != ("bool" if name in COMPARISONS else given[0]):
        return False
    if name in ("dot", "dot_pairs"):
        return given[0] == "int32"
    if name in _ONLY_FLOATS:
        return given[0] in FLOATS
    if name in _ONLY_INTEGERS:
        return given[0] in INTEGERS
    if name in _LOGIC:
        return given[0] not in FLOATS
    return given[0] != "bool" or name in _ANY_DTYPE
