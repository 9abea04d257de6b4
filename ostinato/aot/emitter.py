"""Parts that all functions of the C interface share while they are written in LLVM assembly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce

from ostinato.aot.interface import Interface, Size, Tensor, error
from ostinato.aot.objects import ObjectType
from ostinato.codegen.writer import Value, Writer, integer

NULL = Value("null", "ptr")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, with its type of LLVM."""

    name: str
    type: str


class Emitter:
    """Parts of the functions of one interface, whose objects are named `%object`."""

    def __init__(self, interface: Interface, pointer_bytes: int) -> None:
        self.interface = interface
        self.type = ObjectType(interface, pointer_bytes)
        self.declarations: set[str] = set()
        self.size = f"i{8 * pointer_bytes}"
        self.tensors = (*interface.inputs, *interface.outputs)
        self.magic = integer(interface.fingerprint ^ 0x0B1EC7)

    def function(
        self,
        name: str,
        parameters: Sequence[Parameter],
        w: Writer,
        result: Value | None = None,
        linkage: str = "",
    ) -> str:
        listed = ", ".join(f"{p.type} %{p.name}" for p in parameters)
        kind = "void" if result is None else result.type
        ending = "ret void" if result is None else f"ret {result.type} {result.text}"
        return (
            f"define {linkage}{kind} @{name}({listed}) nounwind {{\nentry:\n"
            f"{w.text()}\n  {ending}\n}}\n"
        )

    def exported(
        self, name: str, parameters: Sequence[Parameter], w: Writer, result: Value | None = None
    ) -> str:
        return self.function(f"{self.interface.name}_{name}", parameters, w, result)

    def parameters(self, sizes: Sequence[Size], type_: str | None = None) -> list[Parameter]:
        """Parameters for sizes: unsigned as wide as an address, 64 bits for values."""
        return [
            Parameter(f"s.{i}", type_ or (self.size if s.kind != "value" else "i64"))
            for i, s in enumerate(sizes)
        ]

    def wide(self, w: Writer, parameters: Sequence[Parameter]) -> list[Value]:
        """Sizes as i64."""
        values = []
        for p in parameters:
            value = Value(f"%{p.name}", p.type)
            if p.type != "i64":
                value = w.convert("zext", value, "i64")
            values.append(value)
        return values

    @property
    def weights_parameters(self) -> list[Parameter]:
        if not self.interface.weights_in_file:
            return []
        return [Parameter("weights", "ptr"), Parameter("weights_bytes", self.size)]

    def narrow(self, w: Writer, value: Value) -> Value:
        if self.size == "i64":
            return value
        return w.convert("trunc", value, self.size)

    @contextmanager
    def leaving(self, w: Writer, condition: Value, result: str) -> Iterator[None]:
        """Leave the function on this condition, after what is written here."""
        with w.when(condition):
            yield
            w.line(f"ret {result}")
            w.block(w.name("never")[1:])

    def leave(self, w: Writer, condition: Value, kind: str) -> None:
        w.return_if(condition, f"i32 {error(kind)}")

    def leave_with(self, w: Writer, code: Value) -> None:
        bad = w.compare("icmp", "ne", code, integer(0, code.type), 1)
        w.return_if(bad, f"{code.type} {code.text}")

    def leave_if_any(self, w: Writer, conditions: Sequence[Value], kind: str) -> None:
        """Leave on any of these conditions, if there are some."""
        if conditions:
            self.leave(w, reduce(partial(w.binary, "or"), conditions), kind)

    def is_null(self, w: Writer, pointer: str) -> Value:
        return w.compare("icmp", "eq", Value(pointer, "ptr"), NULL, 1)

    def is_misaligned(self, w: Writer, pointer: str, alignment: int) -> Value:
        address = w.convert("ptrtoint", Value(pointer, "ptr"), self.size)
        low = w.binary("and", address, integer(alignment - 1, self.size))
        return w.compare("icmp", "ne", low, integer(0, self.size), 1)

    def check_object(self, w: Writer, result: str | None = None) -> None:
        """Leave unless `%object` is one of this interface."""
        w.return_if(self.is_null(w, "%object"), result or f"i32 {error('NULL')}")
        magic = self.type.load(w, "%object", "magic")
        foreign = w.compare("icmp", "ne", magic, self.magic, 1)
        w.return_if(foreign, result or f"i32 {error('OBJECT')}")

    def bytes_of(self, w: Writer, tensor: Tensor, sizes: Sequence[Value]) -> Value:
        """Bytes of a tensor whose dimensions are sizes; wrapped around where they are too many."""
        named = dict(zip((s.identifier for s in self.interface.sizes), sizes, strict=True))
        total = integer(tensor.item_bytes)
        for dim in tensor.dims:
            assert dim is not None
            total = w.mul(total, named[dim] if isinstance(dim, str) else integer(dim))
        return total

    def own_sizes(self, w: Writer) -> list[Value]:
        return [
            self.type.load(w, "%object", "own_sizes", i) for i in range(len(self.interface.sizes))
        ]
