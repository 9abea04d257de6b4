"""`entry` of a module: the function that finds all buffers and runs the kernels in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from ostinato.codegen import clocks, safepoints
from ostinato.codegen.kernel_functions import KernelFunction, is_empty
from ostinato.codegen.kernels import dealt
from ostinato.codegen.primitives import literal
from ostinato.codegen.safepoints import POLL, STOPPED, Safepoints, open_poll
from ostinato.codegen.signature import signature
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.writer import Value, Writer, integer, is_constant
from ostinato.program.conditions import messages
from ostinato.program.kernel import Kernel
from ostinato.program.laid import ConstantBlob
from ostinato.program.nodes import CALL, Branch, Loop, Program, Require
from ostinato.schedule.arena import Arena, counts_calls
from ostinato.schedule.replaced import replaced_inputs
from ostinato.schedule.share import Shares, Step, undivided
from ostinato.schedule.times import STATEMENT, kernel_factors, known_time
from ostinato.sizes.dims import Size, computed, minimum

# The time of a kernel, as from `kernel_factors`.
Factors: TypeAlias = tuple[int, Size]

_SUCCESS = integer(0)
# The number of a thread, in `share`.
_NUMBER = Value("%share", "i64")
# LLVM need not optimise a function of at least this many lines: a line costs it 50 us or more, and
# the code for it then runs 0.2 ns faster. Each kernel is called by a dozen lines (`bench_compile`,
# `bench_silero`).
_LONG = 200
# At most this many kernels without safepoints, each shorter than `safepoints.LIMIT`, run before a
# safepoint of `entry`: more would delay a signal, fewer make the function longer.
_MOST_UNASKED = 8


class Entry:
    """Writes `entry`, which finds every buffer, then calls the kernels in order, loops included.

    With `shares` this is the function `share`, which every thread runs, and `entry` calls the team
    of threads.
    """

    def __init__(
        self,
        program: Program,
        arena: Arena,
        blob: ConstantBlob,
        declarations: set[str],
        shared: Mapping[str, KernelFunction],
        shares: Shares | None,
        is_watched: bool,
        is_clocked: bool,
    ) -> None:
        self._clocked = clocks.numbers(program) if is_clocked else {}
        self._clock = clocks.FIRST
        self._program = program
        self._arena = arena
        self._shared = shared
        self._blob = blob
        self._declarations = declarations
        self._w = Writer(declarations)
        # Sizes that loops use are computed at the beginning, others where they are used: LLVM takes
        # more than linear time for a function in which hundreds of values are alive.
        self._sizes = Sizes(program.symbols, declarations)
        self._here = Sizes(program.symbols, declarations, self._w)
        self._is_in_loop = False
        self._pointers: dict[str, Value] = {}
        interfaces = (*program.inputs, *program.outputs)
        self._places = {interface.buffer: i for i, interface in enumerate(interfaces)}
        self._bases: dict[str, Value] = {}
        self._indices: dict[object, Value] = {}
        self._codes = {message: i + 1 for i, message in enumerate(messages(program))}
        self._replaced = replaced_inputs(program)
        self._shares = shares
        # The number of threads that run the code being written.
        self._count = integer(1) if shares is None else Value("%shares", "i64")
        self._safepoints = Safepoints(self._w)
        # The time to be counted at the next safepoint, as sizes with their factors, and how many
        # kernels took it. Where the code being written is short as a whole, nothing is counted.
        self._unasked: Counter[Size] = Counter()
        self._kernels = 0
        time = known_time(program.body, safepoints.LIMIT)
        self._is_short = not is_watched or time < safepoints.LIMIT
        self._is_watched = is_watched

    def text(self) -> str:
        if self._shares is None:
            if counts_calls(self._program):
                self._indices[CALL] = self._count_call(self._w)
            self._find_buffers()
            if self._clocked:
                self._w.line(clocks.begin())
            self._steps(undivided(self._program.body))
            poll = self._load_record() + open_poll("null")
            ending = self._safepoints.ending(f"i64 {STOPPED}")
            poll = poll if ending else ""
            return self._function("entry", "", self._sizes, self._w, poll=poll, ending=ending)
        self._indices[CALL] = Value("%call", "i64")
        self._find_buffers()
        if self._clocked:
            self._begin_share()
        self._steps(self._shares.steps)
        more = ", i64 %call, ptr %round, i64 %share, i64 %shares, ptr %record, ptr %stop"
        poll, ending = open_poll("%stop"), self._safepoints.ending(f"i64 {STOPPED}")
        share = self._function(
            "share", more, self._sizes, self._w, "internal ", poll=poll, ending=ending
        )
        return share + self._team_entry(self._shares.gain, self._shares.ample)

    def _begin_share(self) -> None:
        """Begin `share`: thread 0 has begun in `entry`, and waited for the others."""
        place = clocks.record(len(self._clocked), _NUMBER.text)
        self._clock = self._w.emit("ptr", place).text
        is_first = self._w.compare("icmp", "eq", _NUMBER, integer(0), 1)
        with self._when(is_first):
            self._read_clock(len(self._clocked))
        with self._when(self._w.binary("xor", is_first, Value("true", "i1"))):
            self._w.line(clocks.begin(self._clock))

    def _read_clock(self, number: int) -> None:
        self._w.line(clocks.read(number, self._clock))

    def _team_entry(self, gain: Size, ample: Size) -> str:
        """Write an `entry` that calls the team if that pays for the sizes of the call.

        gain, ample: as in `Shares`.
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
        """The value of a size at this place: computed sizes may have changed since."""
        if not computed(size):
            return (self._sizes if self._is_in_loop else self._here).value(size)
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
        body = w.text()
        # Code that is compiled ahead of time is optimised however long that takes.
        is_plain = self._is_watched and body.count("\n") >= _LONG
        return (
            f"define {linkage}i64 @{name}(ptr noalias %buffers, ptr {alias}%symbols{more}) "
            f"nounwind{' noinline optnone' if is_plain else ''} {{\n"
            f"start:\n{poll}{sizes.text()}\n  br label %entry\nentry:\n"
            f"{body}\n  ret i64 {result.text}\n{ending}}}\n"
        )

    def _load_record(self) -> str:
        """Instructions that load the record that safepoints ask, the last entry of the table."""
        place = len(self._program.inputs) + len(self._program.outputs) + 2
        return (
            f"  %record.at = getelementptr ptr, ptr %buffers, i64 {place}\n"
            "  %record = load ptr, ptr %record.at\n"
        )

    def _table(self, w: Writer, position: int) -> Value:
        place = w.pointer(Value("%buffers", "ptr"), integer(position), "ptr")
        return w.load("ptr", place)

    def _find_buffers(self) -> None:
        """Find the buffers that loops and branches use repeatedly.

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
        return self._w.pointer(self._bases[kind], self._size(offset), "i8")

    def _count_call(self, w: Writer) -> Value:
        """Count a run. The counter starts at what the memory held: only its parity is used."""
        arena = self._table(w, len(self._program.inputs) + len(self._program.outputs) + 1)
        count = w.load("i64", arena)
        w.store(w.add(count, integer(1)), arena)
        return count

    def _steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            statement = step.statement
            if step.wait:
                self._wait()
            if isinstance(statement, Kernel):
                if not is_empty(statement):
                    factors = kernel_factors(statement, safepoints.LIMIT)
                    self._kernel(statement, factors)
                    self._count_down(factors)
            elif isinstance(statement, Loop):
                self._loop(statement, step)
            elif isinstance(statement, Branch):
                self._branch(statement, *step.inner)
            else:
                self._require(statement)

    @contextmanager
    def _when(self, condition: Value) -> Iterator[None]:
        """Statements that run only if the condition holds."""
        with self._w.when(condition), self._here.scope():
            yield

    def _wait(self) -> None:
        arguments = f"ptr %round, i64 %share, i64 {self._count.text}, ptr {POLL.text}"
        stops = self._w.emit("i1", f"call i1 @team_wait({arguments})")
        self._safepoints.leave_if(stops)
        if self._clocked:
            self._read_clock(len(self._clocked))

    def _count_down(self, factors: Factors) -> None:
        """Count the time of kernels without safepoints, with a safepoint for every few of them."""
        if not self._is_short:
            number, rest = factors
            self._unasked[rest] += number
            self._kernels += 1
            if self._kernels == _MOST_UNASKED:
                self._ask()

    def _ask(self) -> None:
        # Each kernel counts for at most `safepoints.LIMIT`.
        most = (self._kernels + 1) * safepoints.LIMIT
        times = (minimum(number * rest, most) for rest, number in self._unasked.items())
        self._safepoints.write(self._size(sum(times, self._kernels * STATEMENT)))
        self._unasked, self._kernels = Counter(), 0

    def _kernel(self, kernel: Kernel, factors: Factors) -> None:
        if kernel.name not in self._replaced:
            self._shared_call(kernel, factors)
            return
        source, target = self._replaced[kernel.name]
        places = (
            self._table(self._w, source),
            self._table(self._w, len(self._program.inputs) + target),
        )
        with self._when(self._w.compare("icmp", "ne", *places, 1)):
            self._shared_call(kernel, factors)

    def _shared_call(self, kernel: Kernel, factors: Factors) -> None:
        if self._shares is None or kernel.name in self._shares.parts or is_constant(self._count):
            self._call(kernel, factors)
            return
        with self._when(self._w.compare("icmp", "eq", _NUMBER, integer(0), 1)):
            self._call(kernel, factors)

    def _call(self, kernel: Kernel, factors: Factors) -> None:
        called = signature(kernel)
        args = [f"ptr {self._pointer(name).text}" for name in called.buffers]
        function = self._shared[called.name]
        args += ["ptr %symbols", *(f"i64 {self._indices[axis].text}" for axis in called.outer)]
        args += [f"i64 {self._size(number).text}" for number in function.numbers]
        values = [literal(const.value, const.dtype) for const in function.literals]
        args += [f"{value.type} {value.text}" for value in values]
        if self._shares is not None and kernel.name in self._shares.parts:
            args += [f"i64 {_NUMBER.text}", f"i64 {self._count.text}"]
        name = f'@"{function.name}"'
        if function.is_long:
            args.append(f"ptr {self._poll_for(factors).text}")
            self._safepoints.leave_if(self._w.emit("i1", f"call i1 {name}({', '.join(args)})"))
        else:
            self._w.line(f"call void {name}({', '.join(args)})")
        if self._clocked:
            self._read_clock(self._clocked[kernel.name])

    def _poll_for(self, factors: Factors) -> Value:
        """The `%Poll` for a kernel of that time; null in runs whose sizes make it short."""
        number, rest = factors
        # From here on `number * rest` plus the call itself is at least `safepoints.LIMIT`.
        least = -((STATEMENT - safepoints.LIMIT) // number)
        if isinstance(rest, int):
            return POLL if rest >= least else Value("null", "ptr")
        reaches = self._w.compare("icmp", "sge", self._size(rest), integer(least), 1)
        return self._w.select(reaches, POLL, Value("null", "ptr"))

    def _flag(self, buffer: str) -> Value:
        """Load a single bool from memory."""
        value = self._w.load("i8", self._pointer(buffer))
        return self._w.compare("icmp", "ne", value, Value("0", "i8"), 1)

    def _branch(self, branch: Branch, then: tuple[Step, ...], orelse: tuple[Step, ...]) -> None:
        condition = self._flag(branch.condition)
        with self._when(condition):
            self._steps(then)
        with self._when(self._w.binary("xor", condition, Value("true", "i1"))):
            self._steps(orelse)

    def _require(self, require: Require) -> None:
        holds = self._flag(require.condition)
        with self._when(self._w.binary("xor", holds, Value("true", "i1"))):
            self._w.line(f"ret i64 {self._codes[require.message]}")
            self._w.block(self._w.name("never")[1:])

    def _loop(self, loop: Loop, step: Step) -> None:
        """Write a loop; the halves of each carried state swap their pointers after every step."""
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
        with self._when(self._w.compare("icmp", "ult", _NUMBER, self._count, 1)):
            self._whole_loop(loop, step)
        self._count = outside
        # Threads that did not enter the loop find the pointers from the number of steps.
        steps = self._w.call("i64", "llvm.smax.i64", self._size(loop.axis.extent), integer(0))
        odd = self._w.convert("trunc", steps, "i1")
        self._pointers = before | {
            name: self._w.select(odd, before[other], before[name])
            for name, other in zip(names, swapped, strict=True)
        }

    def _dealt_loop(self, loop: Loop, step: Step, scratch: frozenset[str]) -> None:
        """Write a loop of which a thread runs its share of the steps, on scratch of its own."""
        before, outside, is_inner = dict(self._pointers), self._count, self._is_in_loop
        for name in sorted(scratch):
            stride = self._sizes.value(self._arena.strides[name])
            own = self._w.mul(_NUMBER, stride)
            self._pointers[name] = self._w.pointer(self._pointer(name), own, "i8")
        steps = self._w.call("i64", "llvm.smax.i64", self._size(loop.axis.extent), integer(0))
        start, stop = dealt(self._w, steps, _NUMBER, outside)
        self._count, self._is_in_loop = integer(1), True
        with self._w.loop(start, stop, 1) as state:
            self._indices[loop.axis] = state.index
            self._body(loop, step)
        self._pointers, self._count, self._is_in_loop = before, outside, is_inner

    def _whole_loop(self, loop: Loop, step: Step) -> None:
        names = [name for c in loop.carries for name in (c.state, c.next)]
        before = [self._pointers[name] for name in names]
        count, outside = self._size(loop.axis.extent), self._is_in_loop
        self._is_in_loop = True
        with self._w.loop(integer(0), count, 1, before) as state:
            self._pointers.update(zip(names, state.carried, strict=True))
            self._indices[loop.axis] = state.index
            if step.again:
                self._wait()
            if loop.condition is not None:
                state.leave_unless(self._flag(loop.condition))
            self._body(loop, step)
            swapped = [name for c in loop.carries for name in (c.next, c.state)]
            state.results = [self._pointers[name] for name in swapped]
        self._is_in_loop = outside
        self._pointers.update(zip(names, state.carried, strict=True))

    def _body(self, loop: Loop, step: Step) -> None:
        """Write a step of a loop, with a safepoint unless all steps together are short."""
        before = self._unasked, self._kernels, self._is_short
        self._unasked, self._kernels = Counter({1: STATEMENT}), 0
        self._is_short = self._is_short or known_time((loop,), safepoints.LIMIT) < safepoints.LIMIT
        self._steps(*step.inner)
        if not self._is_short:
            self._ask()
        self._unasked, self._kernels, self._is_short = before
