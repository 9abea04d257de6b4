"""A program as one LLVM module: kernels, `entry` that runs them, `layout` that sizes memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from ostinato.codegen import clocks, runtime_functions, safepoints, threads
from ostinato.codegen.alike import form
from ostinato.codegen.general import General, generalise
from ostinato.codegen.kernels import KernelEmitter, dealt
from ostinato.codegen.loads import NOWHERE
from ostinato.codegen.safepoints import POLL, STOPPED, Safepoints, open_poll
from ostinato.codegen.signature import is_long, signature
from ostinato.codegen.sizes import CheckedSizes, Sizes
from ostinato.codegen.target import Target, data_layout
from ostinato.codegen.writer import Value, Writer, integer, is_constant
from ostinato.machine.record import Machine
from ostinato.program.laid import ConstantBlob
from ostinato.program.nodes import (
    CALL,
    Branch,
    Buffer,
    Check,
    Kernel,
    Loop,
    Program,
    Require,
    statements,
)
from ostinato.records import dataclass
from ostinato.schedule.arena import Arena, counts_calls
from ostinato.schedule.matrices import takes_pairs, takes_tiles
from ostinato.schedule.share import Part, Shares, Step, undivided
from ostinato.schedule.times import STATEMENT, kernel_time, known_time
from ostinato.sizes.dims import Size, computed

_SUCCESS = integer(0)
# Of a thread, in `share`.
_NUMBER = Value("%share", "i64")
# Kernels without safepoints, each shorter than `safepoints.LIMIT`, behind which there is one: more
# of them delay a signal, fewer make the function longer.
_MOST_UNASKED = 8


def module_text(
    program: Program,
    arena: Arena,
    blob: ConstantBlob,
    target: Target,
    shares: Shares | None = None,
    is_watched: bool = True,
    is_clocked: bool = False,
    names: dict[str, str] | None = None,
    begin: Callable[[str], None] | None = None,
) -> str:
    """The module as LLVM assembly; with `shares` it also exports `threads.EXPORTS`.

    is_watched: whether code that may take long has safepoints. is_clocked: whether the clock is
    read behind every kernel (`ostinato.codegen.clocks`). names: a table that gets
    the function of each kernel; kernels that are alike share one. begin: is told of each function
    at once, as the module that it would be alone.
    """
    declarations: set[str] = set()
    parts = {} if shares is None else shares.parts
    head = [
        f'target datalayout = "{data_layout(target)}"',
        f'target triple = "{target.triple}"',
        f"{NOWHERE} = internal constant [64 x i8] zeroinitializer",
        *([safepoints.assembly()] if is_watched else []),
    ]
    scheduled_as = target.machine.scheduled_as
    tuning = f' "tune-cpu"="{scheduled_as}"' if scheduled_as else ""
    attributes = f'attributes #0 = {{ noinline nounwind "target-cpu"="{target.cpu}"{tuning} }}'

    def joined(functions: Sequence[str], needed: set[str]) -> str:
        known = runtime_functions.complete(needed, target.machine.pointer_bits)
        return "\n".join((*head, *functions, *known, attributes)) + "\n"

    def alone(function: str, needed: Collection[str]) -> None:
        if begin is not None:
            begin(joined([function], {*needed}))

    functions, shared = _functions(program, declarations, target, parts, is_watched, alone)
    if names is not None:
        names.update((kernel, function.name) for kernel, function in shared.items())
    entry = _Entry(
        program, arena, blob, declarations, shared, shares, is_watched, is_clocked
    ).text()
    layout = _layout(program, arena, declarations)
    count = 1 if shares is None else threads.MOST
    texts = [
        *([] if shares is None else [threads.assembly(target)]),
        *([clocks.assembly(program, target, count)] if is_clocked else []),
        *functions,
        entry,
        layout,
    ]
    return joined(texts, declarations)


@dataclass(frozen=True)
class _Wanted:
    """What the function of a kernel depends on, and the kernel, one of all that are alike.

    numbers: symbols that are parameters. divided: the position of the axis along which threads
    divide it, and the unit.
    """

    form: Hashable
    symbols: tuple[str, ...]
    numbers: tuple[str, ...]
    machine: Machine
    is_watched: bool
    divided: tuple[int, int] | None
    kernel: Kernel = field(compare=False)
    buffers: Mapping[str, Buffer] = field(compare=False)
    part: Part | None = field(compare=False)


@dataclass(frozen=True)
class _Function:
    """What a kernel calls: a function, and its parameters beside buffers and indices.

    is_long: as of `signature.is_long`.
    """

    name: str
    numbers: tuple[Size, ...]
    is_long: bool


def _functions(
    program: Program,
    declarations: set[str],
    target: Target,
    parts: Mapping[str, Part],
    is_watched: bool,
    written: Callable[[str, Collection[str]], None],
) -> tuple[list[str], dict[str, _Function]]:
    """The functions of all kernels, and the one that stands for each kernel, by name.

    written: is told of each function at once, and of what it needs declared.
    """
    names: dict[_Wanted, str] = {}
    texts: list[str] = []
    shared: dict[str, _Function] = {}
    kernels = [kernel for kernel in program.kernels() if not is_empty(kernel)]
    # A share of a thread is told by the sizes of its kernel, and so are products of matrices.
    matrices = [k.name for k in kernels if takes_tiles(k) or takes_pairs(k)]
    whole = [k for k in kernels if k.name not in parts and k.name not in matrices]
    general = generalise(whole, program.buffers, program.symbols)
    for special in kernels:
        found = general.get(special.name, General(special, (), ()))
        kernel, name, part = found.kernel, signature(special).name, parts.get(special.name)
        wanted = _Wanted(
            form(kernel, program.buffers),
            program.symbols,
            found.names,
            target.machine,
            is_watched,
            None if part is None else (kernel.axes.index(part.axis), part.unit),
            kernel,
            program.buffers,
            part,
        )
        first = names.setdefault(wanted, name)
        time = kernel_time(kernel, safepoints.LIMIT)
        shared[name] = _Function(first, found.values, is_watched and is_long(time))
        if first == name:
            linkage, function, declared = _written(wanted)
            texts.append(f'{linkage}@"{name}"{function}')
            declarations |= declared
            written(texts[-1], declared)
    return texts, shared


# A model that is compiled again for other sizes or options has most kernels in common.
@lru_cache(maxsize=128)
def _written(wanted: _Wanted) -> tuple[str, str, frozenset[str]]:
    """The function's text before and behind its name, and what it declares."""
    declarations: set[str] = set()
    emitter = KernelEmitter(
        wanted.kernel,
        wanted.buffers,
        wanted.symbols,
        declarations,
        wanted.machine,
        wanted.part,
        wanted.is_watched,
        wanted.numbers,
    )
    linkage, _, function = emitter.text().partition(f'@"{signature(wanted.kernel).name}"')
    return linkage, function, frozenset(declarations)


def is_empty(kernel: Kernel) -> bool:
    """Whether the kernel has no points, whatever the run-time dimensions are."""
    return any(axis.extent == 0 for axis in kernel.axes)


def messages(program: Program) -> list[str]:
    """Messages of the codes of `layout` and `entry`: `i + 1` stands for message `i`."""
    required = [s.message for s in statements(program.body) if isinstance(s, Require)]
    return [check.message for check in program.checks] + list(dict.fromkeys(required))


def guards(program: Program) -> list[str]:
    """The messages that belong to guards."""
    required = [s for s in statements(program.body) if isinstance(s, Require)]
    conditions: list[Check | Require] = [*program.checks, *required]
    return list(dict.fromkeys(c.message for c in conditions if c.is_guard))


class _Entry:
    """`entry`: finds every buffer, then calls the kernels in order, loops included.

    With `shares` all this is `share`, which every thread runs, and `entry` calls their team.
    """

    def __init__(
        self,
        program: Program,
        arena: Arena,
        blob: ConstantBlob,
        declarations: set[str],
        shared: Mapping[str, _Function],
        shares: Shares | None,
        is_watched: bool,
        is_clocked: bool,
    ) -> None:
        self._is_watched = is_watched
        self._clocked = clocks.numbers(program) if is_clocked else {}
        self._clock = clocks.FIRST
        self._program = program
        self._arena = arena
        self._shared = shared
        self._blob = blob
        self._declarations = declarations
        self._w = Writer(declarations)
        self._sizes = Sizes(program.symbols, declarations)
        self._pointers: dict[str, Value] = {}
        interfaces = (*program.inputs, *program.outputs)
        self._places = {interface.buffer: i for i, interface in enumerate(interfaces)}
        self._bases: dict[str, Value] = {}
        self._indices: dict[object, Value] = {}
        self._codes = {message: i + 1 for i, message in enumerate(messages(program))}
        self._shares = shares
        # How many threads run what is being written.
        self._count = integer(1) if shares is None else Value("%shares", "i64")
        self._safepoints = Safepoints(self._w)
        # What has to be counted at the next safepoint, and how many kernels took it. Where all that
        # is being written is short together, nothing is counted.
        self._unasked: Size = 0
        self._kernels = 0
        time = known_time(program.body, safepoints.LIMIT)
        self._is_short = not is_watched or time < safepoints.LIMIT

    def text(self) -> str:
        if self._shares is None:
            if counts_calls(self._program):
                self._indices[CALL] = self._count_call(self._w)
            self._find_buffers()
            if self._clocked:
                self._w.line(clocks.begin())
            self._steps(undivided(self._program.body))
            poll = self._load_record() + open_poll("%record", "null")
            ending = self._safepoints.ending(f"i64 {STOPPED}")
            poll = poll if ending else ""
            return self._function("entry", "", self._sizes, self._w, poll=poll, ending=ending)
        self._indices[CALL] = Value("%call", "i64")
        self._find_buffers()
        if self._clocked:
            self._begin_share()
        self._steps(self._shares.steps)
        more = ", i64 %call, ptr %round, i64 %share, i64 %shares, ptr %record, ptr %stop"
        poll, ending = open_poll("%record", "%stop"), self._safepoints.ending(f"i64 {STOPPED}")
        share = self._function(
            "share", more, self._sizes, self._w, "internal ", poll=poll, ending=ending
        )
        return share + self._team_entry(self._shares.gain, self._shares.ample)

    def _begin_share(self) -> None:
        """Thread 0 has begun in `entry`, and waited for the others."""
        place = clocks.record(len(self._clocked), _NUMBER.text)
        self._clock = self._w.emit("ptr", place).text
        is_first = self._w.compare("icmp", "eq", _NUMBER, integer(0), 1)
        with self._w.when(is_first):
            self._read_clock(len(self._clocked))
        with self._w.when(self._w.binary("xor", is_first, Value("true", "i1"))):
            self._w.line(clocks.begin(self._clock))

    def _read_clock(self, number: int) -> None:
        self._w.line(clocks.read(number, self._clock))

    def _team_entry(self, gain: Size, ample: Size) -> str:
        """Calls the team if that is worth it for the sizes of this call.

        gain, ample: as `Shares` has them.
        """
        sizes, w = Sizes(self._program.symbols, self._declarations), Writer(self._declarations)
        if self._clocked:
            w.line(clocks.begin())
        call = self._count_call(w) if counts_calls(self._program) else integer(0)
        arguments = f"ptr %buffers, ptr %symbols, i64 {call.text}"
        if not isinstance(gain, int):
            less = w.compare("icmp", "sle", sizes.value(gain), integer(0), 1)
            with w.when(less):
                alone = (
                    f"call i64 @share({arguments}, ptr null, i64 0, i64 1, ptr %record, ptr null)"
                )
                w.line(f"ret i64 {w.emit('i64', alone).text}")
                w.block(w.name("never")[1:])
        if isinstance(ample, int):
            patient = "true" if ample > 0 else "false"
        else:
            patient = w.compare("icmp", "sgt", sizes.value(ample), integer(0), 1).text
        code = w.emit("i64", f"call i64 @team_call({arguments}, ptr %record, i1 {patient})")
        if self._clocked:
            w.line(clocks.read(len(self._clocked)))
        return self._function("entry", "", sizes, w, result=code, poll=self._load_record())

    def _size(self, size: Size) -> Value:
        """A size at this place: computed ones may have another value than before."""
        if not computed(size):
            return self._sizes.value(size)
        return Sizes(self._program.symbols, self._declarations, self._w).value(size)

    def _function(
        self,
        name: str,
        more: str,
        sizes: Sizes,
        w: Writer,
        linkage: str = "",
        result: Value = _SUCCESS,
        poll: str = "",
        ending: str = "",
    ) -> str:
        # Kernels, of other threads as well, write the sizes that they compute to the table.
        alias = "" if self._program.bounds else "noalias "
        return (
            f"define {linkage}i64 @{name}(ptr noalias %buffers, ptr {alias}%symbols{more}) "
            f"nounwind {{\nstart:\n{poll}{sizes.text()}\n  br label %entry\nentry:\n"
            f"{w.text()}\n  ret i64 {result.text}\n{ending}}}\n"
        )

    def _load_record(self) -> str:
        """Instructions that load whom safepoints ask, the last entry of the table."""
        place = len(self._program.inputs) + len(self._program.outputs) + 2
        return (
            f"  %record.at = getelementptr ptr, ptr %buffers, i64 {place}\n"
            "  %record = load ptr, ptr %record.at\n"
        )

    def _table(self, w: Writer, position: int) -> Value:
        place = w.pointer(Value("%buffers", "ptr"), integer(position), "ptr")
        return w.emit("ptr", f"load ptr, ptr {place.text}")

    def _find_buffers(self) -> None:
        """Find those that are used in loops and branches, which need them again and again.

        All others are found where they are used: LLVM takes more than linear time for a function in
        which thousands of pointers are alive.
        """
        count = len(self._program.inputs) + len(self._program.outputs)
        self._bases = {
            "constant": self._table(self._w, count),
            "arena": self._table(self._w, count + 1),
            "size": Value("%symbols", "ptr"),
        }
        inner = [s for s in self._program.body if not isinstance(s, Kernel)]
        names = set().union(*(s.reads() | s.writes() for s in inner))
        for name in self._program.buffers:
            if name in names:
                self._pointers[name] = self._pointer(name)

    def _pointer(self, name: str) -> Value:
        """The address at which a buffer begins."""
        if name in self._pointers:
            return self._pointers[name]
        if name in self._places:
            return self._table(self._w, self._places[name])
        kind, offset = self._program.buffers[name].kind, self._arena.offsets.get(name, 0)
        if kind == "constant":
            offset = self._blob.offsets[name]
        elif kind == "size":
            offset = 8 * self._program.symbols.index(name)
        return self._w.pointer(self._bases[kind], self._sizes.value(offset), "i8")

    def _count_call(self, w: Writer) -> Value:
        """The count starts at whatever the memory held: only whether it is odd is used."""
        arena = self._table(w, len(self._program.inputs) + len(self._program.outputs) + 1)
        count = w.emit("i64", f"load i64, ptr {arena.text}")
        w.line(f"store i64 {w.add(count, integer(1)).text}, ptr {arena.text}")
        return count

    def _steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            statement = step.statement
            if step.wait:
                self._wait()
            if isinstance(statement, Kernel):
                if not is_empty(statement):
                    time = kernel_time(statement, safepoints.LIMIT)
                    self._kernel(statement, time)
                    self._count_down(time)
            elif isinstance(statement, Loop):
                self._loop(statement, step)
            elif isinstance(statement, Branch):
                self._branch(statement, *step.inner)
            else:
                self._require(statement)

    def _wait(self) -> None:
        arguments = f"ptr %round, i64 %share, i64 {self._count.text}, ptr {POLL.text}"
        stops = self._w.emit("i1", f"call i1 @team_wait({arguments})")
        self._safepoints.leave_if(stops)
        if self._clocked:
            self._read_clock(len(self._clocked))

    def _count_down(self, time: Size) -> None:
        """Now and then a safepoint behind kernels that have none, or did not use theirs."""
        if not self._is_short:
            self._unasked = self._unasked + time
            self._kernels += 1
            if self._kernels == _MOST_UNASKED:
                self._ask()

    def _ask(self) -> None:
        self._safepoints.write(self._size(self._unasked))
        self._unasked, self._kernels = 0, 0

    def _kernel(self, kernel: Kernel, time: Size) -> None:
        if self._shares is None or kernel.name in self._shares.parts or is_constant(self._count):
            self._call(kernel, time)
            return
        with self._w.when(self._w.compare("icmp", "eq", _NUMBER, integer(0), 1)):
            self._call(kernel, time)

    def _call(self, kernel: Kernel, time: Size) -> None:
        called = signature(kernel)
        args = [f"ptr {self._pointer(name).text}" for name in called.buffers]
        function = self._shared[called.name]
        args += ["ptr %symbols", *(f"i64 {self._indices[axis].text}" for axis in called.outer)]
        args += [f"i64 {self._size(number).text}" for number in function.numbers]
        if self._shares is not None and kernel.name in self._shares.parts:
            args += [f"i64 {_NUMBER.text}", f"i64 {self._count.text}"]
        name = f'@"{function.name}"'
        if function.is_long:
            args.append(f"ptr {self._poll_for(time).text}")
            self._safepoints.leave_if(self._w.emit("i1", f"call i1 {name}({', '.join(args)})"))
        else:
            self._w.line(f"call void {name}({', '.join(args)})")
        if self._clocked:
            self._read_clock(self._clocked[kernel.name])

    def _poll_for(self, time: Size) -> Value:
        """Null where the sizes of this run make a kernel of that time a short one."""
        if isinstance(time, int):
            return POLL if time >= safepoints.LIMIT else Value("null", "ptr")
        reaches = self._w.compare("icmp", "sge", self._size(time), integer(safepoints.LIMIT), 1)
        return self._w.select(reaches, POLL, Value("null", "ptr"))

    def _flag(self, buffer: str) -> Value:
        """A single bool in memory."""
        value = self._w.emit("i8", f"load i8, ptr {self._pointer(buffer).text}")
        return self._w.compare("icmp", "ne", value, Value("0", "i8"), 1)

    def _branch(self, branch: Branch, then: tuple[Step, ...], orelse: tuple[Step, ...]) -> None:
        condition = self._flag(branch.condition)
        with self._w.when(condition):
            self._steps(then)
        with self._w.when(self._w.binary("xor", condition, Value("true", "i1"))):
            self._steps(orelse)

    def _require(self, require: Require) -> None:
        holds = self._flag(require.condition)
        with self._w.when(self._w.binary("xor", holds, Value("true", "i1"))):
            self._w.line(f"ret i64 {self._codes[require.message]}")
            self._w.block(self._w.name("never")[1:])

    def _loop(self, loop: Loop, step: Step) -> None:
        """The halves of each carried state swap their pointers after every step."""
        if loop.scratch is not None and not is_constant(self._count):
            self._dealt_loop(loop, step, loop.scratch)
            return
        if step.gain is None:
            self._whole_loop(loop, step)
            return
        names = [name for c in loop.carries for name in (c.state, c.next)]
        swapped = [name for c in loop.carries for name in (c.next, c.state)]
        before = dict(self._pointers)
        outside = self._count
        if isinstance(step.gain, int):
            self._count = integer(1)
        else:
            gains = self._w.compare("icmp", "sgt", self._size(step.gain), integer(0), 1)
            self._count = self._w.select(gains, outside, integer(1))
        with self._w.when(self._w.compare("icmp", "ult", _NUMBER, self._count, 1)):
            self._whole_loop(loop, step)
        self._count = outside
        # Threads that did not enter know the pointers by the number of steps.
        steps = self._w.call("i64", "llvm.smax.i64", self._size(loop.axis.extent), integer(0))
        odd = self._w.emit("i1", f"trunc i64 {steps.text} to i1")
        self._pointers = before | {
            name: self._w.select(odd, before[other], before[name])
            for name, other in zip(names, swapped, strict=True)
        }

    def _dealt_loop(self, loop: Loop, step: Step, scratch: frozenset[str]) -> None:
        """A thread runs its share of the steps alone, on scratch of its own."""
        before, outside = dict(self._pointers), self._count
        for name in sorted(scratch):
            stride = self._sizes.value(self._arena.strides[name])
            own = self._w.mul(_NUMBER, stride)
            self._pointers[name] = self._w.pointer(self._pointer(name), own, "i8")
        steps = self._w.call("i64", "llvm.smax.i64", self._size(loop.axis.extent), integer(0))
        start, stop = dealt(self._w, steps, _NUMBER, outside)
        self._count = integer(1)
        with self._w.loop(start, stop, 1) as state:
            self._indices[loop.axis] = state.index
            self._body(loop, step)
        self._pointers, self._count = before, outside

    def _whole_loop(self, loop: Loop, step: Step) -> None:
        names = [name for c in loop.carries for name in (c.state, c.next)]
        before = [self._pointers[name] for name in names]
        with self._w.loop(integer(0), self._size(loop.axis.extent), 1, before) as state:
            self._pointers.update(zip(names, state.carried, strict=True))
            self._indices[loop.axis] = state.index
            if step.again:
                self._wait()
            if loop.condition is not None:
                state.leave_unless(self._flag(loop.condition))
            self._body(loop, step)
            swapped = [name for c in loop.carries for name in (c.next, c.state)]
            state.results = [self._pointers[name] for name in swapped]
        self._pointers.update(zip(names, state.carried, strict=True))

    def _body(self, loop: Loop, step: Step) -> None:
        """A step of a loop, which ends with a safepoint unless all steps together are short."""
        before = self._unasked, self._kernels, self._is_short
        self._unasked, self._kernels = STATEMENT, 0
        self._is_short = self._is_short or known_time((loop,), safepoints.LIMIT) < safepoints.LIMIT
        self._steps(*step.inner)
        if not self._is_short:
            self._ask()
        self._unasked, self._kernels, self._is_short = before


def _layout(program: Program, arena: Arena, declarations: set[str]) -> str:
    """`layout`: defines symbols, checks sizes, writes the arena's bytes and the outputs' dims.

    Computed sizes count as what they are at most.

    Sizes of buffers and outputs bound all offsets, so none of these overflows if those do not.

    It runs when a call is planned, once for many runs, and is translated as it is written: to
    simplify a long chain of overflows takes LLVM a while, 0.06 s for silero-vad.
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
    outputs = [n for output in program.outputs for n in program.room(output)]
    values: Sequence[Size] = (arena.size, *outputs)
    for position, size in enumerate(values):
        place = w.pointer(Value("%out", "ptr"), integer(position), "i64")
        w.line(f"store i64 {sizes.value(size).text}, ptr {place.text}")
    leave_if(sizes.overflow, -1 - len(program.symbols))
    return (
        "define i64 @layout(ptr noalias %symbols, ptr noalias %out) nounwind noinline optnone {\n"
        f"start:\n{sizes.text()}\n  br label %entry\nentry:\n{w.text()}\n  ret i64 0\n}}\n"
    )
