"""A loop program while it is built: its parts, collected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from ostinato.program.conditions import telling
from ostinato.program.expr import Axis
from ostinato.program.laid import Contents
from ostinato.program.nodes import Buffer, Check, Interface, Kind, Program, Stmt
from ostinato.sizes.dims import Dim, Size, product
from ostinato.sizes.strides import Shape

# Messages spell out expressions of fewer characters than this.
LONG = 60


class Draft:
    """Collects the parts of one program.

    node: the name of the model's node being lowered, which kernels remember. op: its operator.
    body: the statements of the innermost block. loops: how many loops it is in.
    definitions: sizes that are symbols of their own.
    bounds: what the sizes that kernels compute are at most. of_machine: symbols that the runtime
    sets to what the machine has.

    is_last: whether no other program can follow that would be told the sizes which this computes.
    """

    def __init__(self, is_last: bool = False) -> None:
        self.is_last = is_last
        self.node = ""
        self.op = ""
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[str, Contents] = {}
        self.inputs: list[Interface] = []
        self.outputs: list[Interface] = []
        # Outputs that have the shape of other outputs of computed sizes, by their position.
        self.shapes: dict[int, Interface] = {}
        self.checks: list[Check] = []
        self.definitions: list[tuple[str, Size]] = []
        self.bounds: dict[str, Size] = {}
        self.of_machine: set[str] = set()
        self.body: list[Stmt] = []
        self.loops = 0
        # The words of messages for sizes that have names of the program's own, by the end of these.
        self._words: dict[str, dict[str, str]] = {}
        self._numbers = count()

    @property
    def where(self) -> str:
        """The node as errors name it."""
        return f"node {self.node!r} ({self.op})" if self.op else f"node {self.node!r}"

    @property
    def goes_on(self) -> bool:
        """Whether what reads a size that is computed here belongs to this program."""
        return self.is_last or self.loops > 0

    def number(self) -> int:
        """A number that nothing else in the program has."""
        return next(self._numbers)

    def buffer(self, dtype: str, size: Size, kind: Kind = "arena", name: str = "b") -> str:
        """A new buffer; returns its name."""
        unique = name if kind in ("input", "output") else f"{name}{self.number()}"
        self.buffers[unique] = Buffer(unique, dtype, size, kind)
        return unique

    def keep_layout(self, name: str) -> None:
        """Let nobody lay out the buffer in another way."""
        self.buffers[name] = replace(self.buffers[name], is_laid=True)

    def size_buffer(self, what: str, bound: Size) -> str:
        """A new buffer that holds the value of the symbol of its name, computed by a kernel.

        what: says what the size is. Returns the name.
        """
        name = f"{self.node}.{what or 'size'}.{self.number()}"
        self.buffers[name] = Buffer(name, "int64", 1, "size", bound=bound)
        self.bounds[name] = bound
        self._call(name, f"({what or 'a size'} of {self.node!r})")
        return name

    def define(self, name: str, size: Size) -> None:
        """Let a symbol be the name of a size."""
        self.definitions.append((name, size))
        is_short = len(str(size)) < LONG
        self._call(name, self.told(f"({size})") if is_short else f"(a size of {self.node!r})")

    def _call(self, name: str, words: str) -> None:
        self._words.setdefault(name.rpartition(".")[2], {})[name] = words

    def told(self, message: str) -> str:
        """The message with what sizes are in place of names that nobody outside knows."""
        for number in dict.fromkeys(re.findall(r"\.(\d+)", message)):
            for name, words in self._words.get(number, {}).items():
                parts = re.split(rf"{re.escape(name)}(?!\d)", message)
                message = words.join(parts)
        return message

    def axis(self, extent: Size, name: str = "i") -> Axis:
        """A fresh axis."""
        return Axis(f"{name}{self.number()}", extent)

    def axes(self, shape: Shape) -> tuple[Axis | None, ...]:
        """Fresh axes for a shape; None for an extent of 1, which needs no loop."""
        return tuple(None if extent == 1 else self.axis(extent) for extent in shape)

    def finish(self) -> Program:
        """The program built so far."""
        program = Program(
            tuple(self.inputs),
            (*self.outputs, *self.shapes.values()),
            (*sorted(self._given()), *(name for name, _ in self.definitions), *self.bounds),
            dict(self.buffers),
            dict(self.constants),
            (),
            tuple(telling(self.checks)),
            tuple(self.definitions),
            {position: len(self.outputs) + i for i, position in enumerate(self.shapes)},
        )
        return program.with_body(tuple(self.body))

    def _given(self) -> Iterator[str]:
        """The symbols that are known when a run begins."""
        names = {str(n) for i in self.inputs for n in i.shape if isinstance(n, Dim)}
        return iter(names.union(self.of_machine, *(i.values for i in self.inputs)))

    def input(self, name: str, dtype: str, shape: Shape, values: tuple[str, ...] = ()) -> str:
        """Declare an input of the program; returns its buffer."""
        buffer = self.buffer(dtype, product(shape), "input", f"in.{name}")
        self.inputs.append(Interface(name, buffer, dtype, shape, values))
        return buffer
