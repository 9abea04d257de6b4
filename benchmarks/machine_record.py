"""Measures a `Machine` record on one core of this machine.

    taskset -c 1 python -m benchmarks.roofline --machine

Each figure is a loop of its own, written with the compiler's own writer of LLVM. A cycle is what a
chain of dependent additions takes for each of them, so that the clock's speed need not be known.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from benchmarks import harness
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.objects import load
from ostinato.codegen.strided import interleaved
from ostinato.codegen.target import host_target
from ostinato.codegen.writer import Value, Writer, float_literal, integer, vector
from ostinato.machine.record import Machine

LINE = 64
# Lines of a column of an operand whose rows lie apart: odd, so that they fill all sets of a cache.
PITCH = 17 * LINE
# Independent results: more than a latency times what starts in a cycle.
CHAINS = 12
POINTER = Value("%p", "ptr")
COUNT = Value("%n", "i64")
SIZE = Value("%size", "i64")
FRESH = 64 << 20


class Loops:
    """Functions `float NAME(ptr p, i64 n, i64 size)` that are compiled together."""

    def __init__(self, machine: Machine) -> None:
        self.lanes = machine.vector_bytes // 4
        self.type = vector("float", self.lanes)
        self._texts: list[str] = []
        self._names: list[str] = []
        self._declarations: set[str] = set()

    def add(self, name: str, write: Callable[[Writer], Value]) -> None:
        """A function whose body `write` writes; its result keeps the work alive."""
        w = Writer(self._declarations)
        result = write(w)
        if result.type != "float":
            result = w.emit("float", f"extractelement {result.type} {result.text}, i64 0")
        self._names.append(name)
        self._texts.append(
            f"define float @{name}(ptr %p, i64 %n, i64 %size) {{\nentry:\n{w.text()}\n"
            f"  ret float {result.text}\n}}\n"
        )

    def compile(self) -> dict[str, Callable[[int, int, int], float]]:
        """The functions; they live as long as the process."""
        text = "\n".join([*self._texts, *sorted(self._declarations)])
        self._loaded = load(emit_object(text, host_target()), self._names)
        type_ = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        return {name: type_(self._loaded.address(name)) for name in self._names}

    def fma(self, w: Writer, *operands: Value) -> Value:
        return w.call(self.type, f"llvm.fma.v{self.lanes}f32", *operands)

    def constant(self, value: float) -> Value:
        return Value(
            f"splat (float {float_literal(float(np.float32(value)), 'float').text})", self.type
        )

    def clock(self, w: Writer) -> Value:
        """`n` times 64 additions that wait for each other."""
        with w.loop(integer(0), COUNT, 1, [SIZE]) as loop:
            value = loop.carried[0]
            for _ in range(32):
                value = w.binary("add", w.binary("xor", value, COUNT), SIZE)
            loop.results = [value]
        return w.emit("float", f"sitofp i64 {loop.carried[0].text} to float")

    def multiply_adds(self, w: Writer, chains: int) -> Value:
        """`n` multiply-adds in each of some chains."""
        scale, offset = self.constant(0.999), self.constant(1e-3)
        with w.loop(integer(0), COUNT, 1, [offset] * chains) as loop:
            loop.results = [self.fma(w, value, scale, offset) for value in loop.carried]
        return self.total(w, loop.carried)

    def total(self, w: Writer, values: list[Value]) -> Value:
        total = values[0]
        for value in values[1:]:
            total = w.binary("fadd", total, value)
        return total

    def stream(self, w: Writer) -> Value:
        """`n` times all vectors of `size` bytes, each added to what it meets."""
        step = CHAINS * self.lanes * 4
        zero, scale = [self.constant(0.0)] * CHAINS, self.constant(0.999)
        with w.loop(integer(0), COUNT, 1, zero) as outer:
            with w.loop(integer(0), SIZE, step, outer.carried) as loop:
                base = w.pointer(POINTER, loop.index, "i8")
                loop.results = []
                for number, value in enumerate(loop.carried):
                    place = w.pointer(base, integer(number), self.type)
                    loaded = w.emit(self.type, f"load {self.type}, ptr {place.text}, align 4")
                    loop.results.append(self.fma(w, loaded, scale, value))
            outer.results = loop.carried
        return self.total(w, outer.carried)

    def columns(self, w: Writer, pitch: int = PITCH) -> Value:
        """`n` times the same vectors, column by column of lines that lie `pitch` bytes apart."""
        zero, scale = [self.constant(0.0)] * CHAINS, self.constant(0.999)
        with w.loop(integer(0), COUNT, 1, zero) as outer:
            with w.loop(integer(0), integer(pitch), LINE, outer.carried) as column:
                base = w.pointer(POINTER, column.index, "i8")
                with w.loop(integer(0), SIZE, CHAINS * pitch, column.carried) as loop:
                    first = w.pointer(base, loop.index, "i8")
                    loop.results = []
                    for number, value in enumerate(loop.carried):
                        place = w.pointer(first, integer(number * pitch), "i8")
                        loaded = w.emit(self.type, f"load {self.type}, ptr {place.text}, align 4")
                        loop.results.append(self.fma(w, loaded, scale, value))
                column.results = loop.carried
            outer.results = column.carried
        return self.total(w, outer.carried)

    def _spread(self, w: Writer, first: Value) -> Value:
        """Addresses a line apart for the lanes."""
        steps = ", ".join(f"i64 {n * LINE}" for n in range(self.lanes))
        type_ = vector("ptr", self.lanes)
        return w.emit(
            type_, f"getelementptr i8, ptr {first.text}, {vector('i64', self.lanes)} <{steps}>"
        )

    def gather(self, w: Writer) -> Value:
        """`n` loads whose lanes lie a line apart, in the first-level cache."""
        every = Value("splat (i1 true)", vector("i1", self.lanes))
        with w.loop(integer(0), COUNT, 1, [self.constant(0.0)]) as loop:
            at = w.mul(w.binary("and", loop.index, integer(7)), integer(4))
            places = self._spread(w, w.pointer(POINTER, at, "i8"))
            name = f"llvm.masked.gather.v{self.lanes}f32.v{self.lanes}p0"
            loaded = w.call(self.type, name, places, integer(4, "i32"), every, self.constant(0.0))
            loop.results = [w.binary("fadd", loop.carried[0], loaded)]
        return loop.carried[0]

    def transpose(self, w: Writer, rows: int) -> Value:
        """`n` stores of some vectors whose lanes lie a line apart and whose rows are neighbours."""
        every = Value("splat (i1 true)", vector("i1", self.lanes))
        start = [self.constant(float(row)) for row in range(rows)]
        with w.loop(integer(0), COUNT, 1, start) as loop:
            one = self.constant(1.0)
            values = [w.binary("fadd", value, one) for value in loop.carried]
            at = w.mul(w.binary("and", loop.index, integer(7)), integer(4))
            first = w.pointer(POINTER, at, "i8")
            if rows == 1:
                name = f"llvm.masked.scatter.v{self.lanes}f32.v{self.lanes}p0"
                places = self._spread(w, first)
                w.call("void", name, values[0], places, integer(4, "i32"), every)
            else:
                self._store_pieces(w, interleaved(w, values, "float", self.lanes), rows, first)
            loop.results = values
        return loop.carried[0]

    def _store_pieces(self, w: Writer, vectors: list[Value], rows: int, first: Value) -> None:
        piece = vector("float", rows)
        for lane in range(self.lanes):
            source, start = divmod(lane * rows, self.lanes)
            picks = ", ".join(f"i32 {start + n}" for n in range(rows))
            value = w.emit(
                piece,
                f"shufflevector {self.type} {vectors[source].text}, {self.type} poison, "
                f"<{rows} x i32> <{picks}>",
            )
            place = w.pointer(first, integer(lane * LINE), "i8")
            w.line(f"store {piece} {value.text}, ptr {place.text}, align 4")


def caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the caches of data of each level, as the system lists them."""
    found: dict[int, int] = {}
    for index in folder.glob("index*"):
        facts = {n: (index / n).read_text().strip() for n in ("level", "type", "size")}
        if facts["type"] != "Instruction":
            found[int(facts["level"])] = int(facts["size"].removesuffix("K")) * 1024
    return found


def seconds(call: Callable[[], object], attempts: int) -> float:
    """The least CPU time of some attempts: whatever else runs can only add to it."""
    least = float("inf")
    for _ in range(attempts):
        begin = time.process_time()
        call()
        least = min(least, time.process_time() - begin)
    return least


def measure(attempts: int = 7) -> Machine:
    """The record of this machine with what can be measured in its place; about ten seconds."""
    machine = host_target().machine
    loops = Loops(machine)
    loops.add("clock", loops.clock)
    loops.add("latency", lambda w: loops.multiply_adds(w, 1))
    loops.add("throughput", lambda w: loops.multiply_adds(w, CHAINS))
    loops.add("stream", loops.stream)
    loops.add("columns", loops.columns)
    pitches = {"columns": PITCH, "pages": machine.page_bytes + LINE}
    loops.add("pages", lambda w: loops.columns(w, pitches["pages"]))
    loops.add("gather", loops.gather)
    heights = [rows for rows, _ in machine.transposed_cycles if rows <= loops.lanes]
    for rows in heights:
        loops.add(f"transpose{rows}", lambda w, rows=rows: loops.transpose(w, rows))
    functions = loops.compile()
    memory = np.ones(FRESH + LINE, np.uint8)
    address = memory.ctypes.data + -memory.ctypes.data % LINE

    def each(name: str, count: int, size: int = 1, work: int = 1) -> float:
        functions[name](address, 1, size)
        return seconds(lambda: functions[name](address, count, size), attempts) / (count * work)

    # The clock is in every other figure.
    cycle = min(each("clock", 300_000, 1, 64) for _ in range(3))
    listed = caches()
    first = listed.get(1, machine.first_level_bytes)
    second = listed.get(2, machine.second_level_bytes)

    def reads(name: str, size: int) -> float:
        line = LINE if name in pitches else machine.vector_bytes
        step = CHAINS * pitches.get(name, machine.vector_bytes)
        size -= size % step
        vectors = size // line
        return each(name, max(1, 4_000_000 // vectors), size, vectors) / cycle

    levels = (first // 2, second // 2, FRESH)
    load_cycles = reads("stream", first // 2)
    strided_cycles = tuple(reads("columns", size) for size in levels)
    rounds = 300_000
    return replace(
        machine,
        first_level_bytes=first,
        second_level_bytes=second,
        fma_cycles=each("throughput", rounds, 1, CHAINS) / cycle,
        fma_latency=each("latency", rounds) / cycle,
        load_cycles=load_cycles,
        packed_cycles=tuple(reads("stream", size) for size in levels),  # type: ignore[arg-type]
        strided_cycles=strided_cycles,  # type: ignore[arg-type]
        apart_cycles=reads("pages", FRESH) - strided_cycles[-1],
        gather_loads=max(1, round(each("gather", rounds) / cycle / load_cycles)),
        transposed_cycles=tuple(
            (rows, each(f"transpose{rows}", rounds, 1, rows) / cycle) for rows in heights
        ),
    )


def show(measured: Machine) -> None:
    """Print the record beside the one that is in use."""
    used = host_target().machine
    table = harness.table("Machine", "field", ["in use", "measured here"])
    for field in fields(Machine):
        table.add_row(field.name, *(_text(getattr(m, field.name)) for m in (used, measured)))
    harness.console.print(table)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(item) for item in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
