"""Load one element, neighbours, or lanes that lie apart, with masks or without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from ostinato.codegen.lookup import byte_looked_up
from ostinato.codegen.primitives import MEMORY, Primitives, suffix
from ostinato.codegen.strided import (
    CLOSE,
    SPREAD,
    load_apart,
    load_close,
    load_masked,
    load_spread,
    load_windows,
)
from ostinato.codegen.transposed_load import transposed
from ostinato.codegen.writer import Value, Writer, integer, vector
from ostinato.program.expr import FLOATS, ITEM_BYTES, Access, Axis, Load, dtype_of
from ostinato.program.nodes import Buffer
from ostinato.program.words import BYTES
from ostinato.schedule.byte_tables import BYTE_VALUES
from ostinato.schedule.operands import TERMS_ACROSS, is_turnable, typical
from ostinato.sizes.dims import Size

if TYPE_CHECKING:
    from ostinato.codegen.expressions import Expressions

# A masked load points here when its mask is false.
NOWHERE = "@nowhere"
# From this many points of a padded copy per element of its source on, masked loads check whether
# they load anything, which takes a fifth of the time of a copy. 480,000 places for 160,000 samples,
# most of them in pages that are not there, took as long as a Fourier transform of all of them.
_MOSTLY_INSIDE = 1.25


class Loads:
    """Writes loads at the points that `expressions` evaluates."""

    def __init__(
        self,
        expressions: Expressions,
        writer: Writer,
        primitives: Primitives,
        buffers: Mapping[str, Buffer],
    ) -> None:
        self._x, self._w = expressions, writer
        self._primitives, self._buffers = primitives, buffers
        # An axis along which so many points are computed one after the other, and the registers
        # that hold the elements loaded for them.
        self._together: tuple[Axis, int, dict[tuple[Access, int, str], Value]] | None = None
        # Likewise an axis of taps, and the lanes of each tap where these are two elements apart.
        self._window: tuple[Axis, int, dict[tuple[Access, int, int], list[Value]]] | None = None
        # Vectors of these points, by access, row and vector, for lanes that are transposed.
        self._transposed: dict[tuple[Access, int, int], list[Value]] | None = None

    @contextmanager
    def together(self, axis: Axis, count: int, is_turned: bool) -> Iterator[None]:
        """Evaluate this many points along an axis, all of which exist, in one block.

        Neighbours in memory that fill a register are then loaded at once. is_turned: so are those
        of lanes that lie apart (`Tile.turned`).
        """
        saved, self._together = self._together, (axis, count, {})
        self._transposed = {} if is_turned else None
        yield
        self._together, self._transposed = saved, None

    @contextmanager
    def window(self, axis: Axis, count: int) -> Iterator[None]:
        """Evaluate this many taps along an axis, all of which exist, in one block.

        Neighbours in memory among lanes that lie two elements apart are then loaded once.
        """
        saved, self._window = self._window, (axis, count, {})
        yield
        self._window = saved

    @contextmanager
    def _first_along(self, axis: Axis) -> Iterator[None]:
        """Evaluate at the first of the points of the block."""
        place = self._x.place[axis]
        self._x.place[axis] = (place[0], 0)
        yield
        self._x.place[axis] = place

    def _mask(self, load: Load, row: int, number: int) -> Value | None:
        """The lanes of a load that may touch memory; None for all."""
        mask = None if load.mask is None else self._x.lanes(load.mask, row, number)
        if self._x.masks is None or self._buffers[load.access.buffer].padded:
            return mask
        guard = self._x.masks[number]
        return guard if mask is None else self._w.binary("and", mask, guard)

    def _is_guard(self, mask: Value | None, number: int) -> bool:
        """Whether a mask leaves out only lanes that do not exist."""
        return self._x.masks is not None and mask is self._x.masks[number]

    def load(self, load: Load, row: int, number: int) -> Value:
        """The elements in row `row` and vector `number`: a scalar if all lanes agree."""
        memory = MEMORY[load.dtype]
        if not self._x.by_lanes(load):
            value = self._scalar(load, memory, row)
        elif self._x.width == 1:
            value = self._scalar(load, memory, row, number)
        else:
            value = self._vector(load, memory, row, number)
        if load.dtype != "bool":
            return value
        lanes = self._x.width if self._x.by_lanes(load) else 1
        zero = Value("zeroinitializer" if lanes > 1 else "0", value.type)
        return self._w.compare("icmp", "ne", value, zero, lanes)

    def word(self, first: Load, row: int, number: int) -> Value:
        """Load the words that begin with the elements of a load without a mask."""
        memory, item = MEMORY[first.dtype], ITEM_BYTES[first.dtype]
        shared = self._of_neighbours(first, "i32", row, BYTES)
        if shared is not None:
            return shared
        if self._x.width > 1 and self._x.by_lanes(first):
            turned = self._of_terms(first, "i32", row, number)
            if turned is not None:
                return turned
        address, varying = self._x.addresses.moved(first.access, first.index, memory, row, number)
        if self._x.width == 1 or not self._x.by_lanes(first):
            return self._w.load("i32", address, 1)
        width, mask = self._x.width, self._mask(first, row, number)
        type_, stride = vector("i32", width), self._x.addresses.stride(first.access)
        if stride == BYTES // item and not varying and mask is None:
            return self._w.load(type_, address, 1)
        mask = mask or Value("splat (i1 true)", vector("i1", width))
        places = self._x.addresses.by_lane(address, stride, varying, memory, row, number)
        zero = Value("zeroinitializer", type_)
        return load_masked(self._w, places, mask, zero, "i32", width, 1)

    def _scalar(self, load: Load, memory: str, row: int, number: int = 0) -> Value:
        if load.dtype in FLOATS:
            shared = self._of_neighbours(load, memory, row, ITEM_BYTES[load.dtype])
            if shared is not None:
                return shared
        address, _ = self._x.addresses.moved(load.access, load.index, memory, row, number)
        mask = None if load.mask is None else self._x.value(load.mask, row, number)
        if self._x.width == 1 and self._x.masks is not None and self._x.by_lanes(load):
            mask = self._mask(load, row, number)
        if mask is None:
            return self._w.load(memory, address)
        address = self._w.select(mask, address, Value(NOWHERE, "ptr"))
        value = self._w.load(memory, address)
        return value if load.other is None else self._w.select(mask, value, self._other(load, 1))

    def _of_neighbours(self, load: Load, memory: str, row: int, size: int) -> Value | None:
        """Take a load from a register of elements that neighbouring points load, if there is one.

        memory, size: of one of them, an element or a word of several; the type, and bytes.
        """
        if self._together is None or load.mask is not None or load.index or self._x.by_lanes(load):
            return None
        axis, count, registers = self._together
        item = ITEM_BYTES[load.dtype]
        fills = count * size == self._x.machine.vector_bytes
        if not fills or load.access.stride(axis) != size // item:
            return None
        type_, key = vector(memory, count), (load.access, row, memory)
        if key not in registers:
            with self._first_along(axis):
                address = self._x.addresses.of(load.access, row, 0)
            registers[key] = self._w.load(type_, address, item)
        register = registers[key]
        number = self._x.place[axis][1]
        return self._w.extracted(register, memory, number)

    def _of_terms(self, load: Load, memory: str, row: int, number: int) -> Value | None:
        """The lanes of a term that are loaded and transposed together with those of the next terms.

        Where the tile has fewer lanes, the missing ones load what the last one does.

        memory: of a term, an element or a word of several.
        """
        if self._together is None or self._transposed is None or memory not in ("float", "i32"):
            return None
        (axis, count, _), stride = self._together, self._x.addresses.stride(load.access)
        if count != TERMS_ACROSS or not is_turnable(load, axis) or stride in (0, 1):
            return None
        key = load.access, row, number
        if key not in self._transposed:
            with self._first_along(axis):
                places = self._places_of_lanes(load, stride, MEMORY[load.dtype], row, number)
            type_, align = vector(memory, TERMS_ACROSS), ITEM_BYTES[load.dtype]
            lanes = [self._w.load(type_, place, align) for place in places]
            self._transposed[key] = transposed(self._w, lanes, memory)
        return self._transposed[key][self._x.place[axis][1]]

    def _of_window(self, load: Load, memory: str, row: int, number: int) -> Value | None:
        """The lanes of a tap, loaded together with those of the other taps."""
        if self._window is None or load.mask is not None or load.index:
            return None
        axis, count, found = self._window
        access, width = load.access, self._x.width
        if self._x.addresses.stride(access) != 2 or access.stride(axis) != 1:
            return None
        if not 1 < count <= width:
            return None
        is_whole = self._mask(load, row, number) is None
        alive = width if is_whole else self._existing(number)
        if isinstance(alive, int) and alive < 2:
            return None
        key = (access, row, number)
        if key not in found:
            item = ITEM_BYTES[load.dtype]
            with self._first_along(axis):
                address = self._x.addresses.of(access, row, number)
            found[key] = load_windows(self._w, address, memory, width, item, alive, count)
        return found[key][self._x.place[axis][1]]

    def _existing(self, number: int) -> int | Value:
        """How many lanes of a vector exist: a number, or a value where only a run tells."""
        alive = self._x.alive[number]
        return self._x.left[number] if alive is None else alive

    def _places_of_lanes(
        self, load: Load, stride: Size, memory: str, row: int, number: int
    ) -> list[Value]:
        """The address of each lane; lanes that do not exist have the address of the last that does.

        That may lie in a vector before.
        """
        first, step = self._x.addresses.of(load.access, row, number), self._x.size(stride)
        places = [integer(n) for n in range(self._x.width)]
        if self._x.masks is not None:
            last = self._w.sub(self._x.left[number], integer(1))
            places = [self._w.call("i64", "llvm.smin.i64", last, n) for n in places]
        return [self._w.pointer(first, self._w.mul(n, step), memory) for n in places]

    def _other(self, load: Load, lanes: int) -> Value:
        fill = 0 if load.other is None else load.other.value
        dtype = "uint8" if load.dtype == "bool" else load.dtype
        return self._primitives.splat_literal(fill, dtype, lanes)

    def load_where(self, mask: Value, access: Access, other: Value, row: int, number: int) -> Value:
        """Load neighbours in lanes that exist and where a mask is true, and `other` elsewhere."""
        guard = (
            mask if self._x.masks is None else self._w.binary("and", mask, self._x.masks[number])
        )
        dtype = self._buffers[access.buffer].dtype
        name = f"llvm.masked.load.{suffix(MEMORY[dtype], self._x.width)}.p0"
        address = self._x.addresses.of(access, row, number)
        align = integer(ITEM_BYTES[dtype], "i32")
        return self._w.call(other.type, name, address, align, guard, other)

    def _is_mostly_outside(self, load: Load) -> bool:
        """Whether a masked load has many more points than its buffer has elements."""
        points = prod(typical(axis.extent) for axis, _ in load.access.terms)
        return points > _MOSTLY_INSIDE * typical(self._buffers[load.access.buffer].size)

    def _where_inside(
        self, load: Load, mask: Value, address: Value, row: int, number: int
    ) -> Value:
        """The address of a masked load; an accessible one where it may be far outside the buffer.

        A masked load skips what is masked out, but where the page is missing, x86-64 takes some
        hundred cycles to find that out: a cache of 256 rows, of which each step replaces one, took
        up to 16 times as long, as the pages around the new row were missing.
        """
        if load.mask is None:
            return address
        if not self._x.by_lanes(load.mask):
            inside = self._x.value(load.mask, row, number)
            return self._w.select(inside, address, Value(NOWHERE, "ptr"))
        if load.index or self._is_mostly_outside(load):
            return self._where_any(mask, address)
        return address

    def _where_any(self, mask: Value, address: Value) -> Value:
        """Select an address if any lane of the mask is true, else an accessible one."""
        bits = f"i{self._x.width}"
        lanes = self._w.convert("bitcast", mask, bits)
        some = self._w.compare("icmp", "ne", lanes, Value("0", bits), 1)
        return self._w.select(some, address, Value(NOWHERE, "ptr"))

    def _in_registers(self, load: Load) -> bool:
        """Whether lanes pick bytes of a table in registers, wherever they point."""
        is_whole = self._buffers[load.access.buffer].size == BYTE_VALUES and load.access.offset == 0
        if not self._x.machine.byte_lookups or not is_whole or len(load.index) != 1:
            return False
        (place, step), item = load.index[0], ITEM_BYTES[load.dtype]
        of_bytes = dtype_of(place) == "uint8" and item == 1 and load.dtype != "bool"
        return of_bytes and load.mask is None and not load.access.terms and step == 1

    def _vector(self, load: Load, memory: str, row: int, number: int) -> Value:
        together = self._of_terms(load, memory, row, number)
        together = together or self._of_window(load, memory, row, number)
        if together is not None:
            return together
        type_ = vector(memory, self._x.width)
        item = ITEM_BYTES[load.dtype]
        mask = self._mask(load, row, number)
        address, varying = self._x.addresses.moved(load.access, load.index, memory, row, number)
        stride = self._x.addresses.stride(load.access)
        if self._in_registers(load):
            # A lane that does not exist also has to point into the table.
            places = self._x.lanes(load.index[0][0], row, number)
            return byte_looked_up(self._w, address, places, self._x.width)
        other = self._other(load, self._x.width)
        if stride == 0 and not varying:
            one = self._w.load(memory, address) if mask is None else None
            if one is not None:
                return self._w.splat(one, self._x.width)
        if stride == 1 and not varying:
            if mask is None:
                padded = self._buffers[load.access.buffer].padded
                align = item * self._x.width if padded else item
                return self._w.load(type_, address, align)
            if (
                self._is_guard(mask, number)
                and load.dtype not in FLOATS
                and self._x.alive[number] is not None
            ):
                alive = self._x.alive[number] or 0
                return load_close(self._w, address, 1, memory, self._x.width, item, alive)
            address = self._where_inside(load, mask, address, row, number)
            return load_masked(self._w, address, mask, other, memory, self._x.width, item)
        known = self._x.alive[number] if self._is_guard(mask, number) else None
        count = self._x.width if mask is None else known
        if count and not varying and isinstance(stride, int) and stride in CLOSE:
            return load_close(self._w, address, stride, memory, self._x.width, item, count)
        if count == self._x.width and not varying and stride in SPREAD:
            assert isinstance(stride, int)
            return load_spread(self._w, address, stride, memory, count, item)
        if stride == 2 and not varying and self._is_guard(mask, number) and known is None:
            left = self._x.left[number]
            return load_windows(self._w, address, memory, self._x.width, item, left, 1)[0]
        if count is not None and not varying and not self._x.machine.gathers:
            step = self._x.size(stride)
            return load_apart(self._w, address, step, memory, self._x.width, item, count)
        every = mask or Value("splat (i1 true)", vector("i1", self._x.width))
        places = self._x.addresses.by_lane(address, stride, varying, memory, row, number)
        return load_masked(self._w, places, every, other, memory, self._x.width, item)
