"""Writes the values of expressions to memory, in the lanes that exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ostinato.codegen.expressions import Expressions
from ostinato.codegen.primitives import MEMORY, suffix
from ostinato.codegen.strided import CLOSE, interleaved, store_apart, store_close, store_first
from ostinato.codegen.writer import Value, Writer, integer, vector
from ostinato.program.expr import FLOATS, ITEM_BYTES, Load, dtype_of, walk
from ostinato.program.kernel import Kernel, Store
from ostinato.schedule.operands import fill_memory


class Stores:
    """Writes stores; rows, lanes and what is known of these are those of `Expressions`.

    scratch: reserves bytes of the stack.
    """

    def __init__(
        self, w: Writer, x: Expressions, kernel: Kernel, scratch: Callable[[int], Value]
    ) -> None:
        self._w, self._x = w, x
        self._written, self._scratch = kernel.writes(), scratch

    def store_together(self, stores: Sequence[Store], row: int, number: int) -> None:
        """Write stores of neighbouring elements: as whole vectors where these fill memory."""
        first, count = stores[0], len(stores)
        dtype = dtype_of(first.value)
        memory = MEMORY[dtype]
        lane = self._x.lane
        if lane is None or self._x.width == 1 or not fill_memory(stores, lane):
            for store in stores:
                self.store(store, row, number)
            return
        address = self._x.addresses.of(first.access, row, number)
        values = [
            self._in_memory(self._x.lanes(store.value, row, number), dtype) for store in stores
        ]
        for part, value in enumerate(interleaved(self._w, values, memory, self._x.width)):
            place = self._w.pointer(address, integer(part * self._x.width), memory)
            self._store_part(value, place, memory, ITEM_BYTES[dtype], number, part, count)

    def _store_part(
        self, value: Value, place: Value, memory: str, item: int, number: int, part: int, count: int
    ) -> None:
        """Store one of `count` vectors of interleaved lanes, as far as these exist."""
        start = part * self._x.width
        if self._x.masks is None:
            self._w.store(value, place, item)
            return
        alive = self._x.alive[number]
        if alive is not None:
            here = min(max(alive * count - start, 0), self._x.width)
            store_first(self._w, value, place, memory, item, here)
            return
        width = self._x.width
        left = self._w.mul(self._x.left[number], integer(count))
        if not self._x.machine.gathers:
            # Without mask registers a masked store takes as long as many whole ones.
            behind = self._w.sub(left, integer(start))
            with self._w.when(self._w.compare("icmp", "sge", behind, integer(width), 1)):
                self._w.store(value, place, item)
            some = self._w.compare("icmp", "sgt", behind, integer(0), 1)
            few = self._w.compare("icmp", "slt", behind, integer(width), 1)
            with self._w.when(self._w.binary("and", some, few)):
                self._store_masked(value, place, memory, item, left, start)
            return
        self._store_masked(value, place, memory, item, left, start)

    def _store_masked(
        self, value: Value, place: Value, memory: str, item: int, left: Value, start: int
    ) -> None:
        """Store the lanes before the `left`-th one, counted from `start`."""
        width = self._x.width
        places = "<" + ", ".join(f"i64 {start + lane}" for lane in range(width)) + ">"
        lanes = Value(places, vector("i64", width))
        mask = self._w.compare("icmp", "slt", lanes, self._w.splat(left, width), width)
        name = f"llvm.masked.store.{suffix(memory, width)}.p0"
        self._w.call("void", name, value, place, integer(item, "i32"), mask)

    def store(self, store: Store, row: int, number: int) -> None:
        """Write a value to memory, in the lanes that exist and where the mask is true."""
        expr, dtype = store.value, dtype_of(store.value)
        memory, item = MEMORY[dtype], ITEM_BYTES[dtype]
        stride = self._x.addresses.stride(store.access)
        address, varying = self._x.addresses.moved(store.access, store.index, memory, row, number)
        value = (
            self._x.lanes(expr, row, number)
            if self._x.width > 1
            else self._x.value(expr, row, number)
        )
        value = self._in_memory(value, dtype)
        guard = None if self._x.masks is None else self._x.masks[number]
        if store.mask is not None:
            mask = self._x.lanes(store.mask, row, number)
            guard = mask if guard is None else self._w.binary("and", mask, guard)
        if self._x.width == 1:
            if guard is None:
                self._w.store(value, address)
                return
            if self._is_behind_others(store):
                # Whether a point stores is unpredictable: a branch would be mispredicted.
                aside = self._scratch(item)
                address = self._w.select(guard, address, aside)
                self._w.store(value, address)
                return
            with self._w.when(guard):
                self._w.store(value, address)
            return
        neighbours = stride == 1 and not varying
        if neighbours and guard is None:
            self._w.store(value, address, item)
            return
        alive = None if store.mask is not None or self._x.masks is None else self._x.alive[number]
        if neighbours and dtype not in FLOATS and alive is not None:
            store_first(self._w, value, address, memory, item, alive)
            return
        every = guard or Value("splat (i1 true)", vector("i1", self._x.width))
        align = integer(item, "i32")
        if neighbours:
            name = f"llvm.masked.store.{suffix(memory, self._x.width)}.p0"
            self._w.call("void", name, value, address, align, every)
            return
        # Without mask registers, a store with lanes left out takes longer than storing them one by
        # one.
        close = CLOSE if self._x.machine.gathers else (-1,)
        if guard is None and not varying and isinstance(stride, int) and stride in close:
            store_close(self._w, value, address, stride, memory, self._x.width, item)
            return
        count = self._x.width if guard is None else alive
        if count is not None and not varying and not self._x.machine.gathers:
            store_apart(self._w, value, address, self._x.size(stride), memory, item, count)
            return
        name = f"llvm.masked.scatter.{suffix(memory, self._x.width)}.v{self._x.width}p0"
        places = self._x.addresses.by_lane(address, stride, varying, memory, row, number)
        self._w.call("void", name, value, places, align, every)

    def put(self, store: Store, value: Value) -> None:
        """Write a scalar of every point where a store would write its own."""
        dtype = dtype_of(store.value)
        address = self._x.addresses.of(store.access, 0, 0)
        value = self._in_memory(value, dtype)
        self._w.store(value, address)

    def _is_behind_others(self, store: Store) -> bool:
        """Whether a store's place follows from what earlier points have stored: chosen elements."""
        return any(
            isinstance(node, Load) and node.access.buffer in self._written
            for position, _ in store.index
            for node in walk(position)
        )

    def _in_memory(self, value: Value, dtype: str) -> Value:
        """A value as memory has it: truth values are bytes."""
        if dtype != "bool":
            return value
        type_ = vector("i8", self._x.width)
        return self._w.convert("zext", value, type_)
