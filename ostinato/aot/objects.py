"""The memory of an object of the C interface, as a type of LLVM and in bytes.

    %Object     whom it belongs to, what it is planned for, the tables that compiled code reads
    states      two buffers each: a step reads one and writes the other
    growing     of states that grow one buffer each, with room for all rows
    arena       intermediate values

Every part begins at a multiple of 64 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.aot.interface import Interface, State
from ostinato.codegen.writer import Value, Writer, integer

ALIGNMENT = 64


@dataclass(frozen=True)
class Field:
    """A field of `%Object`, `count` items long."""

    name: str
    item: str
    count: int


class ObjectType:
    """The fields of `%Object` for an interface; `pointer_bytes` of the target."""

    def __init__(self, interface: Interface, pointer_bytes: int) -> None:
        self.interface = interface
        tensors = (*interface.inputs, *interface.outputs)
        dims = sum(len(tensor.shape) for tensor in interface.outputs)
        self.fields = (
            Field("magic", "i64", 1),
            Field("arena_bytes", "i64", 1),
            Field("is_planned", "i64", 1),
            Field("state_bytes", "i64", 1),
            # The sizes that the last call was planned for, and those that the object was made for.
            Field("sizes", "i64", len(interface.sizes)),
            Field("own_sizes", "i64", len(interface.sizes)),
            # The tables of `entry` and `layout`; bytes of each tensor.
            Field("symbols", "i64", interface.symbols),
            Field("layout", "i64", 1 + dims),
            Field("lengths", "i64", len(tensors)),
            Field("buffers", "ptr", len(tensors) + 3),
            # For each state the buffer that the next step reads, and the one that it writes.
            Field("states", "ptr", 2 * len(interface.states)),
            # Memory of each growing state.
            Field("growing", "ptr", len(interface.growing)),
            # The block that `destroy` frees.
            Field("block", "ptr", 1),
        )
        sizes = {"i64": 8, "ptr": pointer_bytes}
        plain = sum(sizes[field.item] * field.count for field in self.fields)
        self.head_bytes = rounded(plain)

    def text(self) -> str:
        """The definition of the type."""
        fields = ", ".join(f"[{field.count} x {field.item}]" for field in self.fields)
        return f"%Object = type {{ {fields} }}"

    def at(self, w: Writer, base: str, name: str, index: int = 0) -> Value:
        """The address of an item of a field."""
        number = [field.name for field in self.fields].index(name)
        place = f"i64 0, i32 {number}, i64 {index}"
        return w.emit("ptr", f"getelementptr %Object, ptr {base}, {place}")

    def load(self, w: Writer, base: str, name: str, index: int = 0) -> Value:
        """An item of a field."""
        item = next(field.item for field in self.fields if field.name == name)
        return w.load(item, self.at(w, base, name, index))

    def store(self, w: Writer, base: str, name: str, value: Value, index: int = 0) -> None:
        """Set an item of a field."""
        w.store(value, self.at(w, base, name, index))

    def fixed_state_bytes(self, state: State) -> int | None:
        """Bytes of a state, None where sizes decide."""
        tensor = self.interface.inputs[state.read]
        return None if tensor.elements is None else tensor.elements * tensor.item_bytes


def rounded(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def rounded_value(w: Writer, size: Value) -> Value:
    """The next multiple of the alignment, in compiled code."""
    more = w.add(size, integer(ALIGNMENT - 1))
    return w.binary("and", more, integer(-ALIGNMENT))
