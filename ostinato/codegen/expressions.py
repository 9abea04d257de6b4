"""Evaluate the expressions of a kernel: as scalars where lanes agree, as vectors where not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from ostinato.codegen.addresses import Addresses, Memo
from ostinato.codegen.loads import Loads
from ostinato.codegen.lookup import looked_up
from ostinato.codegen.primitives import ELEMENT, Primitives, literal
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.writer import Value, Writer, integer, vector
from ostinato.machine.record import Machine
from ostinato.program.expr import (
    INTEGERS,
    PRIMITIVES,
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Given,
    Index,
    Load,
    Op,
    Reduced,
    children,
    dtype_of,
    walk,
)
from ostinato.program.functions import ARITY, define
from ostinato.program.nodes import Buffer
from ostinato.program.words import first_of_word, has_few_bits
from ostinato.sizes.dims import Size

# Registers that a scalar function takes for each vector: a step of it has a few operands, and
# constants. The gates of a recurrence take 0.87 of the time with 4 vectors side by side, or with 8.
_REGISTERS_BESIDE = 8


def parameter(literal: Given) -> Value:
    """The parameter of a function that stands for a literal of its kernels."""
    return Value(f"%g{literal.position}", ELEMENT[literal.dtype])


class Expressions:
    """Evaluates expressions at the points that `place` gives; a row and a vector select a copy.

    Values are remembered for as long as the block that computed them is in scope.
    """

    def __init__(
        self,
        writer: Writer,
        sizes: Sizes,
        pointers: Mapping[str, Value],
        buffers: Mapping[str, Buffer],
        primitives: Primitives,
    ) -> None:
        self._w = writer
        self._sizes = sizes
        self.primitives = primitives
        self.machine = primitives.machine
        self._memo = Memo()
        # The scope of one point, where a block has several.
        self.point = self._memo.scope
        self.addresses = Addresses(self, writer, sizes, pointers, buffers)
        self.loads = Loads(self, writer, primitives, buffers)
        # For each expression, whether its value differs by row, and by lane.
        self._varying: dict[Expr, tuple[bool, bool]] = {}
        self._definitions: dict[Expr, Expr] = {}
        self.place: dict[Axis, tuple[Value, int]] = {}
        self.lane: Axis | None = None
        self.width = 1
        self.row: Axis | None = None
        self._across: Axis | None = None
        # The existing lanes, by vector number; None where all exist.
        self.masks: list[Value] | None = None
        # How many of them exist, where that is known while compiling.
        self.alive: list[int | None] = []
        # How many exist from the first lane of each vector on; none if not positive.
        self.left: list[Value] = []
        self.reduced: dict[tuple[int, int, int], Value] = {}
        # Values that are loaded where they are needed.
        self.later: dict[tuple[int, int, int], Callable[[], Value]] = {}
        # Whether vectors call scalar functions; otherwise these are expanded.
        self.calls = False
        # Rows and vectors of the tile whose functions are computed side by side.
        self.beside = 1, 1

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Begin a block; its values are forgotten at its end: they do not dominate what follows."""
        with self._memo.scope(), self.addresses.scope():
            yield

    @contextmanager
    def lanes_along(self, axis: Axis, width: int) -> Iterator[None]:
        """Evaluate with lanes along another axis, all of which exist."""
        saved = (self.lane, self.width, self.masks, self._varying, self.beside)
        self.lane, self.width, self.masks, self._varying = axis, width, None, {}
        self.beside = 1, 1
        yield
        self.lane, self.width, self.masks, self._varying, self.beside = saved

    def rows_along(self, axis: Axis | None, across: Axis | None = None) -> None:
        """Let rows be points of this axis, or all points across for each of them, from now on."""
        self.row, self._across, self._varying = axis, across, {}

    # What an expression varies with

    def _varies(self, expr: Expr) -> tuple[bool, bool]:
        """Whether values differ by row, and by lane."""
        found = self._varying.get(expr)
        if found is None:
            for node in walk(expr, skip=self._varying):
                own = self._varies_itself(node)
                for part in children(node):
                    below = self._varying[part]
                    own = (own[0] or below[0], own[1] or below[1])
                self._varying[node] = own
            found = self._varying[expr]
        return found

    def _varies_itself(self, node: Expr) -> tuple[bool, bool]:
        if isinstance(node, Reduced):
            return self.row is not None, self.lane is not None
        if isinstance(node, Load):
            axes = [axis for axis, _ in node.access.terms]
        else:
            axes = [node.axis] if isinstance(node, Index) else []
        by_rows = self.row in axes or (self._across is not None and self._across in axes)
        return by_rows, self.lane in axes

    def by_lanes(self, expr: Expr) -> bool:
        """Whether values differ by lane."""
        return (self._varying.get(expr) or self._varies(expr))[1]

    # Evaluation

    def value(self, expr: Expr, row: int = 0, number: int = 0) -> Value:
        """The value in row `row` and vector `number`: a scalar if all lanes agree."""
        key = self._key(expr, row, number)
        found = self._memo.get(key)
        if found is None:
            self._evaluate(expr, row, number)
            found = self._memo.get(key)
            assert found is not None
        return found

    def know(self, load: Load, kept: Value) -> None:
        """Use a value in a register for a load of scalars, where the load's mask is true."""
        value = kept
        if load.mask is not None and load.other is not None:
            other = literal(load.other.value, load.dtype)
            value = self._w.select(self.value(load.mask), kept, other)
        self._memo.set(self._key(load, 0, 0), value)

    def _evaluate(self, expr: Expr, row: int, number: int) -> None:
        """Compute an expression and its operands."""
        known = self._memo.get
        # Operands from left to right, each before the node and, if it takes vectors, broadcast.
        stack = [(expr, False, False)]
        while stack:
            node, spread, ready = stack.pop()
            by_rows, by_lanes = self._varying.get(node) or self._varies(node)
            key = (node, row if by_rows else 0, number if by_lanes else 0)
            if known(key) is None:
                parts = () if ready else self._parts(node)
                if parts:
                    stack.append((node, spread, True))
                    vectors = by_lanes and type(node) is not Load
                    stack += [(part, vectors, False) for part in reversed(parts)]
                    continue
                self._memo.set(key, self._compute(*key))
            if spread and not by_lanes:
                self.lanes(node, row, number)

    def _key(self, expr: Expr, row: int, number: int) -> tuple[Expr, int, int]:
        """The key of a value: with row and vector where the value differs by these."""
        by_rows, by_lanes = self._varying.get(expr) or self._varies(expr)
        return expr, row if by_rows else 0, number if by_lanes else 0

    def _parts(self, node: Expr) -> tuple[Expr, ...]:
        """The operands to compute before a node, or the definition of a function."""
        if type(node) is not Op:
            return children(node)
        if self._word(node) is not None:
            return ()
        if node.name in PRIMITIVES or self._is_called(node) or self._is_wide(node):
            return node.args
        if node not in self._definitions:
            self._definitions[node] = define(node.name, node.args, node.dtype)
        return (self._definitions[node],)

    def _word(self, node: Expr) -> Load | None:
        """The first element of a word that one load can read; None for other nodes."""
        if not isinstance(node, Op) or node.name != "or":
            return None
        first = first_of_word(node)
        is_masked = first is not None and first.mask is not None
        return None if is_masked or (self.width == 1 and self.masks is not None) else first

    def lanes(self, expr: Expr, row: int, number: int) -> Value:
        """The value with one element in each lane."""
        by_rows, by_lanes = self._varying.get(expr) or self._varies(expr)
        key: object = (expr, row if by_rows else 0, number if by_lanes else 0)
        value = self._memo.get(key) or self.value(expr, row, number)
        if by_lanes or self.width == 1:
            return value
        key = ("lanes", value)
        return self._memo.get(key) or self._memo.set(key, self._splat(expr, value))

    def _splat(self, expr: Expr, value: Value) -> Value:
        if isinstance(expr, Const):
            return self.primitives.splat_literal(expr.value, expr.dtype, self.width)
        return self._w.splat(value, self.width)

    def _compute(self, expr: Expr, row: int, number: int) -> Value:
        if isinstance(expr, Op):
            return self._operation(expr, row, number)
        if isinstance(expr, Load):
            return self.loads.load(expr, row, number)
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if isinstance(expr, Cast):
            return self._cast(expr, row, number)
        if isinstance(expr, Reduced):
            place = expr.position, row, number
            return self.later[place]() if place in self.later else self.reduced[place]
        if isinstance(expr, Given):
            return parameter(expr)
        if isinstance(expr, Index):
            return self._index(expr.axis, row, number)
        assert isinstance(expr, Extent)
        return self._sizes.value(expr.size)

    def _operation(self, expr: Op, row: int, number: int) -> Value:
        first = self._word(expr)
        if first is not None:
            return self.loads.word(first, row, number)
        is_primitive = expr.name in PRIMITIVES
        if not is_primitive and self._is_wide(expr):
            return self._side_by_side(expr, row, number)
        if not is_primitive and not self._is_called(expr):
            return self.value(self._definitions[expr], row, number)
        wide = self.by_lanes(expr)
        count, operand = (self.width, self.lanes) if wide else (1, self.value)
        args = [operand(arg, row, number) for arg in expr.args]
        if not is_primitive:
            return self._function_of(expr, args, count)
        if expr.name == "dot" and has_few_bits(expr.args[0]):
            left, right, total = args
            return self.primitives.dot_of_few_bits(left, right, total, count)
        return self.primitives.emit(expr.name, args, dtype_of(expr.args[0]), expr.dtype, count)

    def _cast(self, expr: Cast, row: int, number: int) -> Value:
        wide = self.by_lanes(expr)
        if wide and isinstance(expr.value, Index) and expr.dtype in INTEGERS:
            return self._lane_index(expr.dtype, number)
        count, operand = (self.width, self.lanes) if wide else (1, self.value)
        found = looked_up(expr) if wide else None
        if found is not None and self.primitives.looks_up(count):
            return self.primitives.look_up(self.lanes(found.place, row, number), found.values)
        inner = operand(expr.value, row, number)
        return self.primitives.cast(inner, dtype_of(expr.value), expr.dtype, count)

    def _is_called(self, node: Op) -> bool:
        """Whether a scalar function is called in place of being expanded."""
        return self.calls and self.width > 1 and self.by_lanes(node)

    def _is_wide(self, node: Op) -> bool:
        """Whether a scalar function is computed for several vectors of the tile at once."""
        return self.width > 1 and self.by_lanes(node) and len(self._beside(node, 0, 0)) > 1

    def _beside(self, node: Op, row: int, number: int) -> list[tuple[int, int]]:
        """The rows and vectors for which a scalar function is computed together with this one."""
        (rows, vectors), (by_rows, _) = self.beside, self._varies(node)
        places = [(r, n) for r in range(rows if by_rows else 1) for n in range(vectors)]
        position, size = places.index((row if by_rows else 0, number)), 1
        most = self.machine.vector_registers // _REGISTERS_BESIDE
        first = position
        while size < most and position // (2 * size) * 2 * size + 2 * size <= len(places):
            size *= 2
            first = position // size * size
        return places[first : first + size]

    def _side_by_side(self, node: Op, row: int, number: int) -> Value:
        """Compute a scalar function of this vector and of others of the tile, step by step.

        Each step waits for the one before; steps of other vectors fill the time. Where functions
        are called, all vectors of the tile follow: calls for other vectors do not wait either.
        """
        own_key = self._key(node, row, number)
        found: dict[tuple[Expr, int, int], Value] = {}
        (rows, vectors), (by_rows, _) = self.beside, self._varies(node)
        starts = [(row, number)]
        if self.calls:
            starts += itertools.product(range(rows if by_rows else 1), range(vectors))
        for start in starts:
            key = self._key(node, *start)
            if key not in found and self._memo.get(key) is None:
                places = self._beside(node, *start)
                keys = [self._key(node, *place) for place in places]
                found.update(zip(keys, self._of_places(node, places), strict=True))
        for key, part in found.items():
            if key != own_key and self._memo.get(key) is None:
                self._memo.set(key, part)
        return found[own_key]

    def _of_places(self, node: Op, places: Sequence[tuple[int, int]]) -> list[Value]:
        """Compute a scalar function for some rows and vectors of the tile as one long vector."""
        args = []
        for arg in node.args:
            own = [self.lanes(arg, *place) for place in places]
            args.append(self._w.joined(own, ELEMENT[dtype_of(arg)], self.width))
        result = self._function_of(node, args, self.width * len(places))
        return self._w.parts(result, len(places), ELEMENT[node.dtype], self.width)

    def _function_of(self, node: Op, args: list[Value], width: int) -> Value:
        """A scalar function of vectors of `width` lanes: a call of it, or its definition."""
        machine = self.machine
        if self.calls:
            name, text, needed = _function(node.name, node.dtype, width, machine)
            result = vector(ELEMENT[node.dtype], width)
            return self._w.call_defined(result, name, args, text, needed)
        written, found = _definition(node.name, node.dtype, width, machine)
        return self._w.copied(written, found, {f"%x{n}": arg for n, arg in enumerate(args)})

    def _index(self, axis: Axis, row: int, number: int) -> Value:
        if axis != self.lane:
            value, plus = self._position(axis, row)
            return self._w.add(value, integer(plus))
        return self._lane_index("int64", number)

    def _lane_index(self, dtype: str, number: int) -> Value:
        """The indices of the lanes of a vector, as integers of at most 64 bits."""
        assert self.lane is not None
        base, plus = self.position_of(self.lane, 0, number)
        first = self._w.add(base, integer(plus))
        first = self.primitives.cast(first, "int64", dtype, 1) if dtype != "int64" else first
        if self.width == 1:
            return first
        steps = ", ".join(f"{first.type} {i}" for i in range(self.width))
        lanes = Value(f"<{steps}>", vector(first.type, self.width))
        return self._w.binary("add", self._w.splat(first, self.width), lanes)

    def _position(self, axis: Axis, row: int) -> tuple[Value, int]:
        if self._across is not None:
            assert isinstance(self._across.extent, int)
            row, column = divmod(row, self._across.extent)
            if axis == self._across:
                return integer(0), column
        value, plus = self.place[axis]
        return (value, plus + row) if axis == self.row else (value, plus)

    def position_of(self, axis: Axis, row: int, number: int) -> tuple[Value, int]:
        """The index along an axis: that of the first lane, and a constant to add to it."""
        if axis != self.lane:
            return self._position(axis, row)
        value, plus = self.place.get(axis, (integer(0), 0))
        return value, plus + number * self.width

    def size(self, size: Size) -> Value:
        """A size as an i64."""
        return self._sizes.value(size)


# Few models use more than these at once.
@lru_cache(maxsize=64)
def _function(
    name: str, dtype: str, width: int, machine: Machine
) -> tuple[str, str, frozenset[str]]:
    """A scalar function on vectors as an LLVM function: its name, its text, what that declares."""
    written, result = _definition(name, dtype, width, machine)
    called = f"function.{name}.{dtype}.x{width}"
    parameters = ", ".join(f"{result.type} %x{n}" for n in range(ARITY[name]))
    text = (
        f"define internal {result.type} @{called}({parameters}) #0 {{\n"
        f"entry:\n{written.text()}\n  ret {result.type} {result.text}\n}}"
    )
    return called, text, frozenset(written.declarations)


@lru_cache(maxsize=64)
def _definition(name: str, dtype: str, width: int, machine: Machine) -> tuple[Writer, Value]:
    """The instructions of a scalar function on vectors `%x0`, `%x1`, and its value."""
    declarations: set[str] = set()
    writer = Writer(declarations)
    axis, type_ = Axis("lane", width), vector(ELEMENT[dtype], width)
    x = Expressions(writer, Sizes((), declarations), {}, {}, Primitives(writer, machine))
    x.lane, x.width = axis, width
    args = tuple(Reduced(position, dtype) for position in range(ARITY[name]))
    x.reduced = {(arg.position, 0, 0): Value(f"%x{arg.position}", type_) for arg in args}
    return writer, x.lanes(define(name, args, dtype), 0, 0)
