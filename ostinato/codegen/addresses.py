"""Addresses of the elements that a point of a kernel loads and stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from ostinato.codegen.primitives import MEMORY
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.writer import Value, Writer, integer, is_constant, vector
from ostinato.program.expr import Access, Expr, dtype_of
from ostinato.program.nodes import Buffer
from ostinato.sizes.dims import Dim, Size

if TYPE_CHECKING:
    from ostinato.codegen.expressions import Expressions

# Computed positions of a load or store, each with its stride.
Positions: TypeAlias = "tuple[tuple[Expr, Size], ...]"


class Memo:
    """Values by key, remembered for as long as the block that computed them is in scope."""

    def __init__(self) -> None:
        # All values, and the keys that each block in scope has added.
        self._values: dict[object, Value] = {}
        self._scopes: list[list[object]] = [[]]
        self.get = self._values.get

    @contextmanager
    def scope(self) -> Iterator[None]:
        """At the end, forget values computed inside: their block does not dominate what follows."""
        self._scopes.append([])
        yield
        for key in self._scopes.pop():
            del self._values[key]

    def set(self, key: object, value: Value) -> Value:
        """Remember a value for a new key."""
        self._values[key] = value
        self._scopes[-1].append(key)
        return value


class Addresses:
    """Computes addresses, and remembers them by the values that they are made of.

    So equal addresses of other points are found as well. They are remembered for as long as the
    block that computed them is in scope.

    points: evaluates the indices of points.
    """

    def __init__(
        self,
        points: Expressions,
        writer: Writer,
        sizes: Sizes,
        pointers: Mapping[str, Value],
        buffers: Mapping[str, Buffer],
    ) -> None:
        self._x = points
        self._w = writer
        self._sizes = sizes
        self._pointers = pointers
        self._buffers = buffers
        self._memo = Memo()
        self.scope = self._memo.scope

    def of(self, access: Access, row: int, number: int) -> Value:
        """The address of the first lane."""
        fixed, terms = self._offset(access.offset)
        steps: list[tuple[Value, Value]] = []
        for axis, stride in access.terms:
            value, plus = self._x.position_of(axis, row, number)
            if isinstance(stride, int):
                if is_constant(value):
                    fixed += int(value.text) * stride
                else:
                    terms.append((value, integer(stride)))
                fixed += plus * stride
            else:
                step = self._sizes.value(stride)
                terms.append((value, step))
                if plus:
                    steps.append((integer(plus), step))
        element = MEMORY[self._buffers[access.buffer].dtype]
        # Terms that change in the innermost loop come last, so that prefixes are shared. Of the
        # rest, rows come last.
        parts = sorted((*terms, *steps), key=lambda term: self._w.depth(term[0]))
        base = self._base(access.buffer, tuple(parts), element)
        key, known = ("at", base.text, fixed), self._memo
        return known.get(key) or known.set(key, self._w.pointer(base, integer(fixed), element))

    def _offset(self, offset: Size) -> tuple[int, list[tuple[Value, Value]]]:
        if isinstance(offset, int):
            return offset, []
        assert isinstance(offset, Dim)
        fixed = next((c for m, c in offset.terms if not m), 0)
        return fixed, [(self._sizes.value(offset - fixed), integer(1))]

    def _base(self, buffer: str, terms: tuple[tuple[Value, Value], ...], element: str) -> Value:
        """The address without its constant part; prefixes of the sum are shared."""
        if not terms:
            return self._pointers[buffer]
        key = ("base", buffer, terms)
        found = self._memo.get(key)
        if found is None:
            before = self._base(buffer, terms[:-1], element)
            found = self._w.pointer(before, self._product(*terms[-1]), element)
            self._memo.set(key, found)
        return found

    def _product(self, value: Value, stride: Value) -> Value:
        key, known = ("product", value, stride), self._memo
        return known.get(key) or known.set(key, self._w.mul(value, stride))

    def stride(self, access: Access) -> Size:
        """The distance of neighbouring lanes in memory."""
        return 0 if self._x.lane is None else access.stride(self._x.lane)

    def moved(
        self, access: Access, index: Positions, memory: str, row: int, number: int
    ) -> tuple[Value, Positions]:
        """The address of the first lane, and the computed positions that differ by lane."""
        address = self.of(access, row, number)
        varying: list[tuple[Expr, Size]] = []
        for expr, stride in index:
            if self._x.width > 1 and self._x.by_lanes(expr):
                varying.append((expr, stride))
                continue
            position = self._x.primitives.cast(
                self._x.value(expr, row, number), dtype_of(expr), "int64", 1
            )
            moved = self._w.mul(position, self._sizes.value(stride))
            address = self._w.pointer(address, moved, memory)
        return address, tuple(varying)

    def by_lane(
        self, first: Value, stride: Size, varying: Positions, memory: str, row: int, number: int
    ) -> Value:
        """The addresses of lanes, `stride` apart and moved by computed positions."""
        type_ = vector("i64", self._x.width)
        if isinstance(stride, int):
            text = "<" + ", ".join(f"i64 {i * stride}" for i in range(self._x.width)) + ">"
            steps = Value(text, type_)
        else:
            counts = "<" + ", ".join(f"i64 {i}" for i in range(self._x.width)) + ">"
            wide = self._w.splat(self._sizes.value(stride), self._x.width)
            steps = self._w.binary("mul", wide, Value(counts, type_))
        for place, (expr, step) in enumerate(varying):
            lanes = self._x.lanes(expr, row, number)
            moved = self._x.primitives.cast(lanes, dtype_of(expr), "int64", self._x.width)
            if step != 1:
                factor = self._w.splat(self._sizes.value(step), self._x.width)
                moved = self._w.binary("mul", moved, factor)
            is_all = place == 0 and stride == 0
            steps = moved if is_all else self._w.binary("add", steps, moved)
        return self._w.emit(
            vector("ptr", self._x.width),
            f"getelementptr {memory}, ptr {first.text}, {type_} {steps.text}",
        )
