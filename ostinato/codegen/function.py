"""The function of a kernel while it is written: state that all parts of its emitter share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ostinato.codegen import safepoints
from ostinato.codegen.expressions import Expressions, parameter
from ostinato.codegen.primitives import Primitives
from ostinato.codegen.safepoints import WatchedLoops
from ostinato.codegen.signature import is_long, signature
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.stores import Stores
from ostinato.codegen.writer import Value, Writer
from ostinato.machine.record import Machine
from ostinato.program.expr import Given
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.nodes import Buffer
from ostinato.schedule.times import kernel_time


class KernelFunction:
    """A kernel, and the writers of its instructions, sizes, expressions and loops.

    w, sizes, x, stores, primitives, loops: one writer for each. machine: for which it is written.
    is_watched: whether it may have safepoints. numbers: symbols that are parameters.
    """

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        symbols: Sequence[str],
        declarations: set[str],
        machine: Machine,
        is_watched: bool = True,
        numbers: Sequence[str] = (),
    ) -> None:
        self._scratch: list[str] = []
        self._numbers = [f"i64 %n{i}" for i in range(len(numbers))]
        literals = sorted({n for n in kernel.nodes if isinstance(n, Given)}, key=_position)
        self._literals = [f"{value.type} {value.text}" for value in map(parameter, literals)]
        self.kernel, self.buffers, self.signature = kernel, buffers, signature(kernel)
        time = kernel_time(kernel, safepoints.LIMIT)
        self.is_long = is_watched and is_long(time)
        self.w = Writer(declarations)
        self.loops = WatchedLoops(self.w, self.is_long, is_optional=not isinstance(time, int))
        given = {name: Value(f"%n{i}", "i64") for i, name in enumerate(numbers)}
        self.sizes = Sizes(symbols, declarations, given=given)
        self.machine, self.primitives = machine, Primitives(self.w, machine)
        pointers = {n: Value(f"%b{i}", "ptr") for i, n in enumerate(self.signature.buffers)}
        self.x = Expressions(self.w, self.sizes, pointers, buffers, self.primitives)
        self.stores = Stores(self.w, self.x, kernel, self.scratch)
        tile = kernel.tile or Tile(None, 1)
        self.x.lane, self.x.width, self.x.row = tile.lane, tile.width, tile.row
        for i, axis in enumerate(self.signature.outer):
            self.x.place[axis] = (Value(f"%a{i}", "i64"), 0)

    def scratch(self, size: int) -> Value:
        """Reserve this many bytes of the stack, on a cache line of their own."""
        value = Value(f"%scratch{len(self._scratch)}", "ptr")
        self._scratch.append(f"  {value.text} = alloca [{size} x i8], align 64\n")
        return value

    def text(self, parameters: Sequence[str]) -> str:
        """The whole function; `parameters` follow those that every kernel's function has."""
        every = [f"ptr noalias %b{i}" for i in range(len(self.signature.buffers))]
        every += ["ptr noalias readonly %symbols"]
        every += [f"i64 %a{i}" for i in range(len(self.signature.outer))]
        every += [*self._numbers, *self._literals, *parameters]
        every += ["ptr noalias %poll"] if self.is_long else []
        type_, result = ("i1", "i1 false") if self.is_long else ("void", "void")
        start = "".join(self._scratch) + self.sizes.text()
        return (
            f'define internal {type_} @"{self.signature.name}"({", ".join(every)}) #0 {{\n'
            f"start:\n{start}\n  br label %entry\nentry:\n{self.w.text()}\n"
            f"  ret {result}\n{self.loops.safepoints.ending('i1 true')}}}\n"
        )


def _position(literal: Given) -> int:
    return literal.position
