"""Write one LLVM function as text: values, blocks and counted loops.

Text instead of an object model, since most of the time between a model and its first result would
otherwise go into building instruction objects only to print and parse them again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from ostinato.records import dataclass

# Arithmetic of indices and addresses: if its operands do not change in a loop, it is written before
# the loop.
_MOVABLE = re.compile(
    r"(add|sub|mul|and|or|xor|select|icmp|trunc|getelementptr) |[us](div|rem) .*, [1-9][0-9]*$"
)
_SCALARS = ("i64", "ptr", "i1")
_LOCAL = re.compile(r"%[\w.]+")


@dataclass(frozen=True)
class Value:
    """An LLVM value: its text and its type."""

    __slots__ = "text", "type"
    text: str
    type: str


def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements; the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def integer(number: int, type_: str = "i64") -> Value:
    """An integer constant."""
    return Value(str(number), type_)


def float_literal(value: float, type_: str) -> Value:
    """A floating constant, exact: LLVM reads the bits of a double."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    return Value(f"0x{bits:016X}", type_)


def is_constant(value: Value) -> bool:
    """Whether the value is a literal integer."""
    return value.text.lstrip("-").isdigit()


@dataclass
class LoopState:
    """A loop being written: its index and the values carried from one iteration to the next."""

    index: Value
    carried: list[Value]
    writer: Writer
    after: str
    results: list[Value] = field(default_factory=list)
    leaving: list[tuple[str, list[Value]]] = field(default_factory=list)

    def leave_unless(self, condition: Value, values: list[Value] | None = None) -> None:
        """End the loop here when the condition is false.

        values: what is then carried out of it; None for what came into this iteration.
        """
        inside = self.writer.name("stay")[1:]
        self.leaving.append((self.writer.current_block, values or self.carried))
        self.writer.line(f"br i1 {condition.text}, label %{inside}, label %{self.after}")
        self.writer.block(inside)


class Lines:
    """The lines of a function. Names are numbered; text is final once written.

    declarations: gets what the module has to declare or define for the function.
    """

    def __init__(self, declarations: set[str]) -> None:
        self.declarations = declarations
        # The lines of the function, and of each loop that is being written.
        self._bodies: list[list[str]] = [[]]
        # For each value computed in a loop, how many loops surround it; 0 for others.
        self._depths: dict[str, int] = {}
        self._count = 0
        self.current_block = "entry"

    @property
    def _lines(self) -> list[str]:
        return self._bodies[-1]

    def text(self) -> str:
        """The instructions written so far."""
        return "\n".join(self._bodies[0])

    def name(self, hint: str = "v") -> str:
        """A fresh local name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def line(self, text: str) -> None:
        """Write an instruction without a result."""
        self._lines.append(f"  {text}")

    def emit(self, type_: str, text: str) -> Value:
        """Write an instruction; returns its result."""
        self._count += 1
        name = f"%v{self._count}"
        depth = len(self._bodies) - 1
        if depth and type_ in _SCALARS and _MOVABLE.match(text):
            depth = max([self._depths.get(used, 0) for used in _LOCAL.findall(text)], default=0)
        self._depths[name] = depth
        self._bodies[depth].append(f"  {name} = {text}")
        return Value(name, type_)

    def depth(self, value: Value) -> int:
        """How many loops surround the computation of a value."""
        return self._depths.get(value.text, 0)

    def call(self, result: str, function: str, *args: Value) -> Value:
        """Call a function, declaring it on first use."""
        types = ", ".join(a.type for a in args)
        self.declarations.add(f"declare {result} @{function}({types})")
        return self._call(result, function, args)

    def call_defined(
        self, result: str, function: str, args: Sequence[Value], text: str, needed: Iterable[str]
    ) -> Value:
        """Call a function that the module defines: its text, and the declarations it needs."""
        self.declarations |= {text, *needed}
        return self._call(result, function, args)

    def _call(self, result: str, function: str, args: Sequence[Value]) -> Value:
        operands = ", ".join(f"{a.type} {a.text}" for a in args)
        if result == "void":
            self.line(f"call void @{function}({operands})")
            return Value("void", "void")
        return self.emit(result, f"call {result} @{function}({operands})")

    def copied(self, other: Lines, result: Value, given: Mapping[str, Value]) -> Value:
        """Copy what another writer has, instructions on vectors in one block; return its result.

        given: replacements of its parameters.
        """
        before, depth = self._count, len(self._bodies) - 1

        def renamed(name: re.Match[str]) -> str:
            found = given.get(name[0])
            return f"%v{before + int(name[0][2:])}" if found is None else found.text

        self._lines.extend(_LOCAL.sub(renamed, other.text()).split("\n"))
        self._count += other._count
        self._depths |= {f"%v{n}": depth for n in range(before + 1, self._count + 1)}
        self.declarations |= other.declarations
        return Value(_LOCAL.sub(renamed, result.text), result.type)

    def block(self, label: str) -> None:
        """Start a block; the previous one must have ended."""
        self._lines.append(f"{label}:")
        self.current_block = label


class Writer(Lines):
    """Writes the instructions, blocks and counted loops of a function."""

    def joined(self, values: Sequence[Value], element: str, lanes: int) -> Value:
        """Concatenate vectors of `lanes` lanes each: one of them, two, four, ..."""
        found = list(values)
        while len(found) > 1:
            lanes *= 2
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [self.shuffled(left, right, range(lanes), element) for left, right in pairs]
        return found[0]

    def parts(self, value: Value, count: int, element: str, lanes: int) -> list[Value]:
        """Split a vector into `count` vectors of `lanes` lanes."""
        if count == 1:
            return [value]
        nothing, starts = Value("poison", value.type), range(0, count * lanes, lanes)
        return [self.shuffled(value, nothing, range(n, n + lanes), element) for n in starts]

    def shuffled(
        self, left: Value, right: Value, picks: Sequence[int | None], element: str
    ) -> Value:
        """Lanes of two vectors by their numbers, those of the second behind the first's.

        None picks a lane that nobody reads.
        """
        places = ", ".join(f"i32 {'poison' if pick is None else pick}" for pick in picks)
        return self.emit(
            vector(element, len(picks)),
            f"shufflevector {left.type} {left.text}, {right.type} {right.text}, "
            f"<{len(picks)} x i32> <{places}>",
        )

    def convert(self, operation: str, value: Value, type_: str) -> Value:
        """The value as another type: bitcast, zext, trunc and the like."""
        return self.emit(type_, f"{operation} {value.type} {value.text} to {type_}")

    def load(self, type_: str, place: Value, align: int | None = None) -> Value:
        """What is in memory; align: in bytes, where that is not what the type has by itself."""
        aligned = "" if align is None else f", align {align}"
        return self.emit(type_, f"load {type_}, ptr {place.text}{aligned}")

    def store(self, value: Value, place: Value, align: int | None = None) -> None:
        """Write a value to memory; align: as in `load`."""
        aligned = "" if align is None else f", align {align}"
        self.line(f"store {value.type} {value.text}, ptr {place.text}{aligned}")

    def binary(self, operation: str, left: Value, right: Value) -> Value:
        """An instruction of two operands of one type."""
        return self.emit(left.type, f"{operation} {left.type} {left.text}, {right.text}")

    def compare(self, kind: str, predicate: str, left: Value, right: Value, lanes: int) -> Value:
        """icmp or fcmp."""
        return self.emit(
            vector("i1", lanes), f"{kind} {predicate} {left.type} {left.text}, {right.text}"
        )

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Lane-wise choice."""
        return self.emit(
            yes.type,
            f"select {condition.type} {condition.text}, {yes.type} {yes.text}, {no.type} {no.text}",
        )

    def add(self, left: Value, right: Value) -> Value:
        """Integer sum, folded where it is trivial."""
        if left.text == "0":
            return right
        if right.text == "0":
            return left
        if is_constant(left) and is_constant(right):
            return integer(int(left.text) + int(right.text))
        return self.binary("add", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        """Integer difference, folded where it is trivial."""
        if is_constant(left) and is_constant(right):
            return integer(int(left.text) - int(right.text))
        return self.binary("sub", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        """Integer product, folded where it is trivial."""
        if left.text == "1":
            return right
        if right.text == "1":
            return left
        if is_constant(left) and is_constant(right):
            return integer(int(left.text) * int(right.text))
        return self.binary("mul", left, right)

    def pointer(self, base: Value, index: Value, element: str) -> Value:
        """The address of element `index`."""
        if index.text == "0":
            return base
        return self.emit("ptr", f"getelementptr {element}, ptr {base.text}, i64 {index.text}")

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector of one value."""
        if lanes == 1:
            return value
        type_ = vector(value.type, lanes)
        if is_constant(value):
            return Value(f"splat ({value.type} {value.text})", type_)
        one = self.inserted(Value("poison", type_), value, 0)
        return self.emit(
            type_,
            f"shufflevector {type_} {one.text}, {type_} poison, <{lanes} x i32> zeroinitializer",
        )

    def extracted(self, value: Value, element: str, lane: int) -> Value:
        """A lane of a vector."""
        return self.emit(element, f"extractelement {value.type} {value.text}, i64 {lane}")

    def inserted(self, value: Value, element: Value, lane: int) -> Value:
        """The vector with another element in a lane."""
        text = f"insertelement {value.type} {value.text}, {element.type} {element.text}, i64 {lane}"
        return self.emit(value.type, text)

    def return_if(self, condition: Value, result: str) -> None:
        """Leave the function with a result, as text with its type, on this condition."""
        with self.when(condition):
            self.line(f"ret {result}")
            self.block(self.name("never")[1:])

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Instructions that run only if the condition holds."""
        yes, after = self.name("then")[1:], self.name("after")[1:]
        self.line(f"br i1 {condition.text}, label %{yes}, label %{after}")
        self.block(yes)
        yield
        self.line(f"br label %{after}")
        self.block(after)

    @contextmanager
    def loop(
        self, start: Value, stop: Value, step: int, carried: Sequence[Value] = ()
    ) -> Iterator[LoopState]:
        """A loop over `start, start + step, .. < stop`. The body sets `state.results`.

        Afterwards `state.carried` holds the final values. The loop is skipped when it is empty.
        """
        before = self.current_block
        head, after = self.name("loop")[1:], self.name("done")[1:]
        index = self.name("i")
        phis = [self.name("p") for _ in carried]
        sure = is_constant(start) and is_constant(stop) and int(start.text) < int(stop.text)
        enter = None if sure else self.compare("icmp", "slt", start, stop, 1)
        self._bodies.append([])
        self._depths |= dict.fromkeys((index, *phis), len(self._bodies) - 1)
        self.current_block = head
        entered = [Value(p, c.type) for p, c in zip(phis, carried, strict=True)]
        state = LoopState(Value(index, "i64"), entered, self, after)
        yield state
        results = state.results
        last = self.current_block
        following = self.binary("add", state.index, integer(step))
        header = [f"  {index} = phi i64 [ {start.text}, %{before} ], [ {following.text}, %{last} ]"]
        header += [
            f"  {p} = phi {c.type} [ {c.text}, %{before} ], [ {r.text}, %{last} ]"
            for p, c, r in zip(phis, carried, results, strict=True)
        ]
        again = self.compare("icmp", "slt", following, stop, 1)
        self.line(f"br i1 {again.text}, label %{head}, label %{after}")
        body = self._bodies.pop()
        # By now the lines before the loop have everything that the loop leaves unchanged.
        way = f"i1 {enter.text}, label %{head}, label %{after}" if enter else f"label %{head}"
        self.line(f"br {way}")
        self.block(head)
        self._lines.extend([*header, *body])
        self.block(after)
        if sure and not state.leaving:
            state.carried = list(results)
            return
        ways = [(last, results), *state.leaving, *([] if sure else [(before, carried)])]
        state.carried = [
            self.emit(
                c.type,
                f"phi {c.type} "
                + ", ".join(f"[ {values[place].text}, %{block} ]" for block, values in ways),
            )
            for place, c in enumerate(carried)
        ]
