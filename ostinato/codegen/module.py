"""A program as one LLVM module: kernels, `entry` that runs them, `layout` that sizes memory."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ostinato.codegen.alike import form
from ostinato.codegen.expressions import NOWHERE
from ostinato.codegen.kernels import KernelEmitter, Signature, signature
from ostinato.codegen.sizes import CheckedSizes, Sizes
from ostinato.codegen.target import Target
from ostinato.codegen.writer import Value, Writer, integer
from ostinato.program.dims import Size
from ostinato.program.nodes import (
    CALL,
    Branch,
    Check,
    Kernel,
    Loop,
    Program,
    Require,
    Stmt,
    statements,
)
from ostinato.schedule.arena import ALIGNMENT, Arena, counts_calls


@dataclass(frozen=True)
class ConstantBlob:
    """All constants of a program in one piece of memory, and where each begins (bytes)."""

    data: np.ndarray
    offsets: Mapping[str, int]


def lay_out_constants(program: Program) -> ConstantBlob:
    """Constants one after the other, aligned."""
    offsets: dict[str, int] = {}
    end = 0
    for name, array in program.constants.items():
        offsets[name] = end
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    blob = np.zeros(end, np.uint8)
    for name, array in program.constants.items():
        start = offsets[name]
        blob[start : start + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    return ConstantBlob(blob, offsets)


def module_text(program: Program, arena: Arena, blob: ConstantBlob, target: Target) -> str:
    """The module as LLVM assembly."""
    declarations: set[str] = set()
    functions, shared = _functions(program, declarations, target)
    entry = _Entry(program, arena, blob, declarations, shared).text()
    layout = _layout(program, arena, declarations)
    attributes = f'attributes #0 = {{ noinline nounwind "target-cpu"="{target.cpu}" }}'
    nowhere = f"{NOWHERE} = internal constant [64 x i8] zeroinitializer"
    parts = [
        f'target triple = "{target.triple}"',
        nowhere,
        *functions,
        entry,
        layout,
        *sorted(declarations),
        attributes,
    ]
    return "\n".join(parts) + "\n"


def _functions(
    program: Program, declarations: set[str], target: Target
) -> tuple[list[str], dict[str, str]]:
    """The functions of all kernels, and the one that stands for each kernel, by name."""
    names: dict[Hashable, str] = {}
    texts: list[str] = []
    shared: dict[str, str] = {}
    for kernel in program.kernels():
        if is_empty(kernel):
            continue
        name = signature(kernel).name
        shared[name] = names.setdefault(form(kernel, program.buffers), name)
        if shared[name] == name:
            emitter = KernelEmitter(
                kernel, program.buffers, program.symbols, declarations, target.byte_dots
            )
            texts.append(emitter.text())
    return texts, shared


def is_empty(kernel: Kernel) -> bool:
    """Whether the kernel has no points, whatever the run-time dimensions are."""
    return any(axis.extent == 0 for axis in kernel.axes)


def messages(program: Program) -> list[str]:
    """What `layout` and `entry` may report: code `i + 1` stands for message `i`."""
    required = [s.message for s in statements(program.body) if isinstance(s, Require)]
    return [check.message for check in program.checks] + list(dict.fromkeys(required))


def assumptions(program: Program) -> list[str]:
    """Those of the messages that say for which sizes the program is not made."""
    required = [s for s in statements(program.body) if isinstance(s, Require)]
    conditions: list[Check | Require] = [*program.checks, *required]
    return list(dict.fromkeys(c.message for c in conditions if c.assumed))


class _Entry:
    """`entry`: finds every buffer, then calls the kernels in order, loops included."""

    def __init__(
        self,
        program: Program,
        arena: Arena,
        blob: ConstantBlob,
        declarations: set[str],
        shared: Mapping[str, str],
    ) -> None:
        self._program = program
        self._arena = arena
        self._shared = shared
        self._blob = blob
        self._w = Writer(declarations)
        self._sizes = Sizes(program.symbols, declarations)
        self._pointers: dict[str, Value] = {}
        self._indices: dict[object, Value] = {}
        self._codes = {message: i + 1 for i, message in enumerate(messages(program))}

    def text(self) -> str:
        self._find_buffers()
        self._statements(self._program.body)
        return (
            "define i64 @entry(ptr noalias %buffers, ptr noalias %symbols) nounwind {\n"
            f"start:\n{self._sizes.text()}\n  br label %entry\nentry:\n"
            f"{self._w.text()}\n  ret i64 0\n}}\n"
        )

    def _table(self, position: int) -> Value:
        place = self._w.pointer(Value("%buffers", "ptr"), integer(position), "ptr")
        return self._w.emit("ptr", f"load ptr, ptr {place.text}")

    def _find_buffers(self) -> None:
        interfaces = (*self._program.inputs, *self._program.outputs)
        for position, interface in enumerate(interfaces):
            self._pointers[interface.buffer] = self._table(position)
        constants = self._table(len(interfaces))
        arena = self._table(len(interfaces) + 1)
        if counts_calls(self._program):
            self._count_call(arena)
        for name, buffer in self._program.buffers.items():
            offset: Size
            if buffer.kind == "constant":
                base, offset = constants, self._blob.offsets[name]
            elif buffer.kind == "arena":
                base, offset = arena, self._arena.offsets.get(name, 0)
            else:
                continue
            self._pointers[name] = self._w.pointer(base, self._sizes.value(offset), "i8")

    def _count_call(self, arena: Value) -> None:
        """The count starts at whatever the memory held: only whether it is odd is used."""
        count = self._w.emit("i64", f"load i64, ptr {arena.text}")
        self._w.line(f"store i64 {self._w.add(count, integer(1)).text}, ptr {arena.text}")
        self._indices[CALL] = count

    def _statements(self, body: tuple[Stmt, ...]) -> None:
        for statement in body:
            if isinstance(statement, Kernel) and is_empty(statement):
                continue
            if isinstance(statement, Kernel):
                self._call(signature(statement))
            elif isinstance(statement, Loop):
                self._loop(statement)
            elif isinstance(statement, Branch):
                self._branch(statement)
            else:
                self._require(statement)

    def _call(self, kernel: Signature) -> None:
        args = [f"ptr {self._pointers[name].text}" for name in kernel.buffers]
        args += ["ptr %symbols", *(f"i64 {self._indices[axis].text}" for axis in kernel.outer)]
        self._w.line(f'call void @"{self._shared[kernel.name]}"({", ".join(args)})')

    def _flag(self, buffer: str) -> Value:
        """A single bool in memory."""
        value = self._w.emit("i8", f"load i8, ptr {self._pointers[buffer].text}")
        return self._w.compare("icmp", "ne", value, Value("0", "i8"), 1)

    def _branch(self, branch: Branch) -> None:
        condition = self._flag(branch.condition)
        with self._w.when(condition):
            self._statements(branch.then)
        with self._w.when(self._w.binary("xor", condition, Value("true", "i1"))):
            self._statements(branch.orelse)

    def _require(self, require: Require) -> None:
        holds = self._flag(require.condition)
        with self._w.when(self._w.binary("xor", holds, Value("true", "i1"))):
            self._w.line(f"ret i64 {self._codes[require.message]}")
            self._w.block(self._w.name("never")[1:])

    def _loop(self, loop: Loop) -> None:
        """The halves of each carried state swap their pointers after every step."""
        names = [name for c in loop.carries for name in (c.state, c.next)]
        before = [self._pointers[name] for name in names]
        stop = self._sizes.value(loop.axis.extent)
        with self._w.loop(integer(0), stop, 1, before) as state:
            self._pointers.update(zip(names, state.carried, strict=True))
            self._indices[loop.axis] = state.index
            if loop.condition is not None:
                state.leave_unless(self._flag(loop.condition))
            self._statements(loop.body)
            swapped = [name for c in loop.carries for name in (c.next, c.state)]
            state.results = [self._pointers[name] for name in swapped]
        self._pointers.update(zip(names, state.carried, strict=True))


def _layout(program: Program, arena: Arena, declarations: set[str]) -> str:
    """`layout`: defines symbols, checks sizes, writes the arena's bytes and the outputs' dims.

    Sizes of buffers and outputs bound all offsets, so none of these overflows if those do not.
    """
    sizes = CheckedSizes(program.symbols, declarations)
    w = Writer(declarations)

    def leave_if(condition: Value | None, code: int) -> None:
        if condition is not None:
            with w.when(condition):
                w.line(f"ret i64 {code}")
                w.block(w.name("never")[1:])

    for name, size in program.definitions:
        position = program.symbols.index(name)
        place = w.pointer(Value("%symbols", "ptr"), integer(position), "i64")
        w.line(f"store i64 {sizes.define(name, size).text}, ptr {place.text}")
        leave_if(sizes.overflow, -1 - position)
    for number, check in enumerate(program.checks):
        bad = w.compare("icmp", "slt", sizes.value(check.size), integer(0), 1)
        overflow = sizes.overflow
        leave_if(bad if overflow is None else w.binary("or", bad, overflow), number + 1)
    values: Sequence[Size] = (arena.size, *(n for o in program.outputs for n in o.shape))
    for position, size in enumerate(values):
        place = w.pointer(Value("%out", "ptr"), integer(position), "i64")
        w.line(f"store i64 {sizes.value(size).text}, ptr {place.text}")
    leave_if(sizes.overflow, -1 - len(program.symbols))
    return (
        "define i64 @layout(ptr noalias %symbols, ptr noalias %out) nounwind {\n"
        f"start:\n{sizes.text()}\n  br label %entry\nentry:\n{w.text()}\n  ret i64 0\n}}\n"
    )
