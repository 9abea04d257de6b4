"""Runs a loop program in NumPy: slow, and the oracle for every later stage.

Every access is checked: it must lie within its buffer, what it reads must have been written, and no
point of a kernel may touch what another point of that kernel writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import product as cartesian
from typing import Any

import numpy as np
import numpy.typing as npt

from ostinato.element_types import numpy_dtype
from ostinato.errors import InputError, OstinatoError, RunError, ShapeError
from ostinato.program.evaluate import evaluate_unwarned, function_of
from ostinato.program.expr import Access, Axis, Expr, Extent, Index, Load, Reduced
from ostinato.program.kernel import Kernel, Reduce, Store, combine, identity
from ostinato.program.laid import elements
from ostinato.program.nodes import Branch, Interface, Loop, Program, Require, Stmt
from ostinato.sizes import dims, substitution
from ostinato.sizes.dims import Size

Array = npt.NDArray[Any]

# Elements of a reduction that are evaluated together, over all points of the kernel.
BLOCK = 1 << 20


def run(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a program, by name, those with the shape of others included.

    Inputs must have the declared dtypes and shapes.

    Raises InputError for missing, unknown or ill-typed inputs, ShapeError where sizes contradict
    each other or a check of the program fails, RunError for an access that is not allowed.
    """
    symbols = _bind(program, inputs)
    for check in program.checks:
        if substitution.evaluate(check.size, symbols) < 0:
            raise ShapeError(check.message)
    memory = _Memory(program, symbols, inputs)
    with np.errstate(all="ignore"):
        _statements(program.body, memory, {})
    return {output.name: memory.output(output) for output in program.outputs}


def _bind(program: Program, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The values of the run-time dimensions, taken from the inputs."""
    declared = [interface.name for interface in program.inputs]
    if set(declared) != set(inputs):
        raise InputError(f"inputs are {declared}, not {list(inputs)}")
    symbols: dict[str, int] = {}
    for interface in program.inputs:
        value = inputs[interface.name]
        if value.dtype.name != interface.dtype or value.ndim != len(interface.shape):
            raise InputError(
                f"input {interface.name!r} is {interface.dtype} of rank {len(interface.shape)}, "
                f"not {value.dtype.name} of rank {value.ndim}"
            )
        for size, extent in zip(interface.shape, value.shape, strict=True):
            if (name := _plain_symbol(size)) is not None:
                symbols.setdefault(name, extent)
    for interface in program.inputs:
        shape = tuple(substitution.evaluate(size, symbols) for size in interface.shape)
        if shape != inputs[interface.name].shape:
            raise ShapeError(
                f"input {interface.name!r} must have shape {list(shape)}, "
                f"not {list(inputs[interface.name].shape)}"
            )
    for interface in program.inputs:
        elements = inputs[interface.name].reshape(-1).tolist()[: len(interface.values)]
        symbols.update(zip(interface.values, map(int, elements), strict=True))
    symbols[dims.MEMORY] = 1 << 62
    symbols[dims.SPARE] = 1 << 16
    for name, size in program.definitions:
        symbols[name] = substitution.evaluate(size, symbols)
    return symbols


def _plain_symbol(size: Size) -> str | None:
    """The name of the dimension that a size consists of, or None for any other size."""
    return str(size) if dims.is_symbol(size) else None


class _Memory:
    """The buffers of one run, and which of their elements have been written.

    given: the names of inputs and constants, all of whose elements are.
    """

    def __init__(
        self, program: Program, symbols: Mapping[str, int], inputs: Mapping[str, Array]
    ) -> None:
        self.symbols = dict(symbols)
        self._numbers: dict[Size, int] = {}
        self.data: dict[str, Array] = {}
        self.written: dict[str, Array] = {}
        given = {i.buffer: inputs[i.name] for i in program.inputs} | {
            name: elements(constant) for name, constant in program.constants.items()
        }
        self.given = given.keys()
        self.sizes = program.bounds
        for name, buffer in program.buffers.items():
            size = self.size(program.upper(buffer.size))
            if size < 0:
                raise ShapeError(f"buffer {name!r} has a negative size: {buffer.size} = {size}")
            if name in given:
                self.data[name] = np.ascontiguousarray(given[name]).reshape(-1)
                self.written[name] = np.ones(size, bool)
            else:
                self.data[name] = np.zeros(size, numpy_dtype(buffer.dtype))
                self.written[name] = np.zeros(size, bool)

    def size(self, size: Size) -> int:
        """A size as a number."""
        if isinstance(size, int):
            return size
        if size not in self._numbers:
            self._numbers[size] = substitution.evaluate(size, self.symbols)
        return self._numbers[size]

    def read_sizes(self, written: Set[str]) -> None:
        """Take over sizes that a kernel has computed: expressions see them from now on."""
        for name in written & self.sizes.keys():
            value, most = int(self.data[name][0]), self.size(self.sizes[name])
            if not 0 <= value <= most:
                raise RunError(f"size {name!r} is {value}, which is not from 0 to {most}")
            self.symbols[name] = value
            self._numbers.clear()

    def flag(self, buffer: str) -> bool:
        """The single bool of a buffer."""
        if not self.written[buffer].all():
            raise RunError(f"condition {buffer!r} is read before it is written")
        return bool(self.data[buffer][0])

    def swap(self, state: str, successor: str) -> None:
        """Swap the two buffers of a state; what the successor held counts as unwritten."""
        for table in (self.data, self.written):
            table[state], table[successor] = table[successor], table[state]
        self.written[successor][:] = False

    def output(self, interface: Interface) -> Array:
        shape = tuple(map(self.size, interface.shape))
        count = int(np.prod(shape, dtype=np.int64))
        if not self.written[interface.buffer][:count].all():
            raise RunError(f"output {interface.name!r} was not completely written")
        return self.data[interface.buffer][:count].reshape(shape).copy()


def _statements(body: tuple[Stmt, ...], memory: _Memory, loops: Mapping[str, Array]) -> None:
    for statement in body:
        if isinstance(statement, Loop):
            _loop(statement, memory, loops)
        elif isinstance(statement, Branch):
            taken = statement.then if memory.flag(statement.condition) else statement.orelse
            _statements(taken, memory, loops)
        elif isinstance(statement, Require):
            if not memory.flag(statement.condition):
                raise RunError(statement.message)
        else:
            _kernel(statement, memory, loops)


def _kernel(kernel: Kernel, memory: _Memory, loops: Mapping[str, Array]) -> None:
    """Run the points of a kernel, those of ordered axes one after the other."""
    axes = tuple([axis for axis in kernel.axes if axis not in kernel.ordered])
    rest = replace(kernel, axes=axes, ordered=()) if kernel.ordered else kernel
    owners: dict[str, Array] = {}
    grid = _grid(*[memory.size(axis.extent) for axis in axes])
    for step in np.ndindex(*(memory.size(axis.extent) for axis in kernel.ordered)):
        here = {axis.name: np.array(i) for axis, i in zip(kernel.ordered, step, strict=True)}
        _Points(rest, memory, grid, {**loops, **here}, owners).run()
    memory.read_sizes(kernel.writes())


@lru_cache(maxsize=16)
def _grid(*extents: int) -> Array:
    """The indices of all points, of shape (axes, points, 1)."""
    return np.indices(extents, dtype=np.int64).reshape(len(extents), math.prod(extents), 1)


def _loop(loop: Loop, memory: _Memory, loops: Mapping[str, Array]) -> None:
    for step in range(memory.size(loop.axis.extent)):
        if loop.condition is not None and not memory.flag(loop.condition):
            return
        for carry in loop.carries:
            memory.written[carry.next][:] = False
        _statements(loop.body, memory, {**loops, loop.axis.name: np.array(step)})
        for carry in loop.carries:
            memory.swap(carry.state, carry.next)


class _Points:
    """One evaluation of independent points.

    grid: the index of each axis at each point, of shape (axes, points, 1).

    Values have shape (points, 1), or (points, elements) in a reduction; those that are the same for
    all points or elements may have 1 in place of either. `owners` says for buffers
    that the kernel writes which point has written an element, or -1.
    """

    def __init__(
        self,
        kernel: Kernel,
        memory: _Memory,
        grid: Array,
        loops: Mapping[str, Array],
        owners: dict[str, Array],
    ) -> None:
        self.kernel = kernel
        self.memory = memory
        self.count = grid.shape[1]
        self.indices: dict[str, Array] = dict(loops)
        self.indices |= {axis.name: index for axis, index in zip(kernel.axes, grid, strict=True)}
        self.reduced: list[Array] = []
        self.points = np.arange(self.count).reshape(-1, 1)
        self.owners = owners
        self.writes = kernel.writes()
        # Reads of buffers that the kernel also writes: access, elements, and the points that read.
        self.shared: list[tuple[Access, Array, Array]] = []

    def run(self) -> None:
        self._exclude()
        for reduce in self.kernel.reductions:
            self.reduced.append(self._reduce(reduce))
        writes = [(store, *self._written(store)) for store in self.kernel.stores]
        for store, target, _, points in writes:
            self._claim(store.access, target, points)
        for access, offsets, points in self.shared:
            owner = self.owners[access.buffer][offsets]
            if np.count_nonzero((owner >= 0) & (owner != points)):
                raise self._error(access, "a point reads what another point writes")
        for store, target, value, _ in writes:
            self.memory.data[store.access.buffer][target] = value
            self.memory.written[store.access.buffer][target] = True

    def _exclude(self) -> None:
        """Drop the points that the guard excludes."""
        if self.kernel.guard is None:
            return
        kept = self._value(self.kernel.guard, (self.count, 1))[:, 0]
        self.count = int(kept.sum())
        self.points = np.arange(self.count).reshape(-1, 1)
        for axis in self.kernel.axes:
            self.indices[axis.name] = self.indices[axis.name][kept]

    def _written(self, store: Store) -> tuple[Array, Array, Array]:
        """The elements that a store writes, their values, and the points that write them."""
        index = [(evaluate_unwarned(value, self._leaf), stride) for value, stride in store.index]
        offsets = _spread(self._offsets(store.access, index), (self.count, 1))
        value = self._value(store.value, (self.count, 1))
        if store.mask is None:
            offsets, value, points = offsets[:, 0], value[:, 0], self.points[:, 0]
        else:
            mask = self._value(store.mask, (self.count, 1))
            offsets, value, points = offsets[mask], value[mask], self.points[mask]
        self._within(store.access, offsets)
        return offsets, value, points

    def _claim(self, access: Access, target: Array, points: Array) -> None:
        if access.buffer not in self.owners:
            self.owners[access.buffer] = np.full(len(self.memory.data[access.buffer]), -1)
        owner = self.owners[access.buffer]
        before = owner[target]
        owner[target] = points
        # Of points that write one element, the last one is found there.
        taken = ((before >= 0) & (before != points)) | (owner[target] != points)
        if np.count_nonzero(taken):
            raise self._error(access, "two points write the same element")

    def _value(self, expr: Expr, shape: tuple[int, int]) -> Array:
        return _spread(evaluate_unwarned(expr, self._leaf), shape)

    def _leaf(self, expr: Expr, *operands: Array) -> Array:
        if isinstance(expr, Index):
            return self.indices[expr.axis.name]
        if isinstance(expr, Extent):
            return np.array(self.memory.size(expr.size))
        if isinstance(expr, Reduced):
            return self.reduced[expr.position]
        if isinstance(expr, Load):
            return self._load(expr, *operands)
        raise OstinatoError(f"kernel {self.kernel.name!r}: {type(expr).__name__} has no value")

    def _load(self, load: Load, *operands: Array) -> Array:
        data = self.memory.data[load.access.buffer]
        positions = operands[len(operands) - len(load.index) :]
        index = [(v, stride) for v, (_, stride) in zip(positions, load.index, strict=True)]
        offsets = self._offsets(load.access, index)
        if load.mask is None or load.other is None:
            return data[self._checked(load.access, offsets, self.points)]
        shape = np.broadcast_shapes(operands[0].shape, offsets.shape, self.points.shape)
        mask, offsets = _spread(operands[0], shape), _spread(offsets, shape)
        points = _spread(self.points, shape)
        result = np.full(mask.shape, load.other.value, numpy_dtype(load.dtype))
        result[mask] = data[self._checked(load.access, offsets[mask], points[mask])]
        return result

    def _offsets(self, access: Access, index: Sequence[tuple[Array, Size]] = ()) -> Array:
        """Offsets, as values have them."""
        size = self.memory.size
        # Without points, nothing is read.
        total = np.array([[size(access.offset)]])[: self.count]
        for axis, stride in access.terms:
            step, place = size(stride), self.indices[axis.name]
            total = total + (place if step == 1 else place * step)
        for value, stride in index:
            total = total + value.astype(np.int64) * size(stride)
        return total

    def _within(self, access: Access, offsets: Array) -> None:
        size = len(self.memory.data[access.buffer])
        # As numbers without a sign, negative ones are the largest.
        outside = offsets.view(np.uint64) >= size
        if np.count_nonzero(outside):
            first = offsets[outside].flat[0]
            raise self._error(access, f"element {first} of {size} is out of bounds")

    def _checked(self, access: Access, offsets: Array, points: Array) -> Array:
        """Return the offsets if these points may read all of them; raise `RunError` otherwise."""
        self._within(access, offsets)
        if access.buffer not in self.memory.given:
            written = self.memory.written[access.buffer][offsets]
            if np.count_nonzero(written) < written.size:
                first = offsets[~written].flat[0]
                raise self._error(access, f"element {first} is read before it is written")
        if access.buffer in self.writes:
            self.shared.append((access, offsets, points))
        return offsets

    def _error(self, access: Access, problem: str) -> RunError:
        return RunError(f"kernel {self.kernel.name!r}, buffer {access.buffer!r}: {problem}")

    def _reduce(self, reduce: Reduce) -> Array:
        """Reduce in the order that `Reduce` documents."""
        chains = np.full((self.count, reduce.chains), identity(reduce).value, reduce.dtype)
        following = _accumulated(reduce, 1 + len(reduce.operands))
        for last in self._elements(reduce.axes):
            width = last.size
            shape = (self.count, width)
            operands = [np.asarray(self._value(e, shape), reduce.dtype) for e in reduce.operands]
            begin, end = 0, -int(last[0, 0]) % reduce.chains or reduce.chains
            # Elements of different accumulators do not meet: each round takes one for each.
            while begin < width:
                values = [operand[:, begin:end] for operand in operands]
                first = int(last[0, begin]) % reduce.chains
                into = chains[:, first : first + values[0].shape[1]]
                into[...] = following(into, *values)
                begin, end = end, end + reduce.chains
        joined, count = _accumulated(reduce, 2), reduce.chains
        while count > 1:
            count //= 2
            chains = joined(chains[:, :count], chains[:, count:])
        return chains

    def _elements(self, axes: tuple[Axis, ...]) -> Iterator[Array]:
        """Set the indices of the reduced axes block by block; yield those of the last one."""
        *outer, last = axes
        width = max(1, BLOCK // max(self.count, 1))
        extent = self.memory.size(last.extent)
        for index in cartesian(*(range(self.memory.size(axis.extent)) for axis in outer)):
            self.indices |= {a.name: np.array(i) for a, i in zip(outer, index, strict=True)}
            for begin in range(0, extent, width):
                block = np.arange(begin, min(begin + width, extent)).reshape(1, -1)
                self.indices[last.name] = block
                yield block


def _spread(array: Array, shape: tuple[int, ...]) -> Array:
    if array.shape == shape:
        return array
    # Without more elements it has axes of one element more, in a tenth of the time.
    is_whole = array.size == math.prod(shape)
    return array.reshape(shape) if is_whole else np.broadcast_to(array, shape)


@lru_cache(maxsize=256)
def _accumulated(reduce: Reduce, count: int) -> Callable[..., Array]:
    """Return the step of a reduction, of the accumulator, the expression and any factor."""
    leaves = [Reduced(i, reduce.dtype) for i in range(count)]
    total = combine(reduce, leaves[0], leaves[1], leaves[2] if count > 2 else None)
    return function_of(total, leaves)
