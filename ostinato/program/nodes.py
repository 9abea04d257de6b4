"""Statements of the loop program. See the package docstring for the grammar."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Literal, TypeAlias

from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.program.laid import Contents
from ostinato.records import cached_property, dataclass
from ostinato.sizes import dims
from ostinato.sizes.dims import Size, product
from ostinato.sizes.substitution import upper

_NOTHING: frozenset[str] = frozenset()

Kind: TypeAlias = Literal["input", "output", "constant", "arena", "size"]


@dataclass(frozen=True)
class Buffer:
    """A flat piece of memory of `size` elements.

    kind: "input" and "output" belong to the caller, "constant" holds model data, "arena" is
        scratch memory that one run owns. A "size" is the int64 value of the computed symbol of the
        same name: statements that mention the symbol read it.
    padded: lanes beyond the end of the data may be read, and are zero.
    is_copy: made for a single kernel, its only reader, so it may have any layout.
    is_laid: its layout was chosen for its readers and stays.
    sources: the model's names of the constants whose data it holds.
    bound: an upper bound of a size, known before the run; a size is at least 0.
    """

    name: str
    dtype: str
    size: Size
    kind: Kind
    padded: bool = False
    is_copy: bool = False
    is_laid: bool = False
    sources: tuple[str, ...] = ()
    bound: Size = 0


# Counts the runs of a program. It chooses the order of independent work, never a value.
CALL = Axis("call", 1)


@dataclass(frozen=True)
class Carry:
    """State of a loop: the body reads buffer `state` and writes buffer `next`; they then swap.

    `state` holds the initial value when the loop starts and the final one when it is over.
    """

    state: str
    next: str


@dataclass(frozen=True)
class Loop:
    """Run `body` for `axis` = 0, 1, .. in order.

    condition: a carried state of one bool; the loop ends before the first step that finds it false.
    is_independent: no step reads or writes elements that another one writes, but for buffers that
        every step writes at the same place, which are its scratch.
    scratch: of steps that are dealt out to threads: the buffers of which each thread has its own.
        None: every thread runs all steps.
    """

    axis: Axis
    carries: tuple[Carry, ...]
    body: tuple[Stmt, ...]
    condition: str | None = None
    is_independent: bool = False
    scratch: frozenset[str] | None = None

    def reads(self) -> frozenset[str]:
        """Names of the buffers read anywhere inside, the initial states included."""
        return self._reads

    @cached_property
    def _reads(self) -> frozenset[str]:
        inner = dims.computed(self.axis.extent).union(*(s.reads() for s in self.body))
        return inner | {c.state for c in self.carries}

    def writes(self) -> frozenset[str]:
        """Names of the buffers written anywhere inside, both halves of the states included."""
        return self._writes

    @cached_property
    def _writes(self) -> frozenset[str]:
        inner = _NOTHING.union(*(s.writes() for s in self.body))
        return inner | self.carried

    @cached_property
    def carried(self) -> frozenset[str]:
        """Names of the buffers that hold states, both halves of each."""
        return frozenset([name for c in self.carries for name in (c.state, c.next)])


@dataclass(frozen=True)
class Branch:
    """Run `then` if the single bool that `condition` names is true, else `orelse`."""

    condition: str
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]

    def reads(self) -> frozenset[str]:
        """Names of the buffers read on either way."""
        return self._reads

    @cached_property
    def _reads(self) -> frozenset[str]:
        return frozenset([self.condition]).union(*(s.reads() for s in (*self.then, *self.orelse)))

    def writes(self) -> frozenset[str]:
        """Names of the buffers written on either way."""
        return self._writes

    @cached_property
    def _writes(self) -> frozenset[str]:
        return _NOTHING.union(*(s.writes() for s in (*self.then, *self.orelse)))


@dataclass(frozen=True)
class Require:
    """Stop the run with `message` unless the single bool that `condition` names is true.

    is_guard: a failure is no error of the input: the program is specialised for other sizes.
    size: the condition is that it is not negative; None for conditions on data.
    """

    condition: str
    message: str
    is_guard: bool = False
    size: Size | None = None

    def reads(self) -> frozenset[str]:
        """The name of the condition's buffer."""
        return frozenset([self.condition])

    def writes(self) -> frozenset[str]:
        """Nothing."""
        return _NOTHING


Stmt: TypeAlias = Kernel | Loop | Branch | Require


@dataclass(frozen=True)
class Interface:
    """An input or output of the program: its buffer and shape.

    values: of an integer input, names for the values of its elements in order, where sizes depend
        on them; empty for all others.
    """

    name: str
    buffer: str
    dtype: str
    shape: tuple[Size, ...]
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """A condition on sizes that must hold at run time: `size >= 0`, else `message` is reported.

    is_guard: as in `Require`.
    """

    size: Size
    message: str
    is_guard: bool = False


@dataclass(frozen=True)
class Program:
    """A whole computation.

    symbols: the run-time dimensions: each is a dim of some input, the value of an input's element,
        defined, or computed: then it names a buffer of kind "size".
    definitions: symbols with the sizes that they stand for, in an order in which each depends on
        earlier ones; they keep long expressions short.
    shapes: which output, by position, has the shape of another one, whose dimensions are computed.
    """

    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    symbols: tuple[str, ...]
    buffers: Mapping[str, Buffer]
    constants: Mapping[str, Contents]
    body: tuple[Stmt, ...]
    checks: tuple[Check, ...] = field(default=())
    definitions: tuple[tuple[str, Size], ...] = field(default=())
    shapes: Mapping[int, int] = field(default_factory=dict)

    def kernels(self) -> Iterator[Kernel]:
        """Every kernel, in program order, loops and branches entered."""
        return (s for s in statements(self.body) if isinstance(s, Kernel))

    @cached_property
    def bounds(self) -> dict[str, Size]:
        """Upper bounds of the computed sizes."""
        return {name: b.bound for name, b in self.buffers.items() if b.kind == "size"}

    def room(self, output: Interface) -> tuple[Size, ...]:
        """The shape of the array that a run is given for an output, which may turn out smaller."""
        size, shape = self.buffers[output.buffer].size, output.shape
        if size == product(shape):
            return tuple(map(self.upper, shape))
        return (self.upper(size), *(1 for _ in shape[1:]))

    def upper(self, size: Size) -> Size:
        """An upper bound of a size that is known before the run."""
        bound = upper(size, self.bounds)
        assert bound is not None
        return bound

    def with_body(
        self,
        body: tuple[Stmt, ...],
        buffers: Mapping[str, Buffer] | None = None,
        constants: Mapping[str, Contents] | None = None,
    ) -> Program:
        """The same program with other statements; drop the buffers that nothing mentions any more.

        buffers, constants: all that the statements may mention, where that has changed.
        """
        buffers = self.buffers if buffers is None else buffers
        constants = self.constants if constants is None else constants
        if (
            self._is_trimmed
            and _are_same(body, self.body)
            and _have_same(buffers, self.buffers)
            and _have_same(constants, self.constants)
        ):
            return self
        used = {i.buffer for i in (*self.inputs, *self.outputs)}
        used.update(*(s.reads() for s in body), *(s.writes() for s in body))
        used |= dims.computed(*(b.size for n, b in buffers.items() if n in used))
        unused = {name for name, b in buffers.items() if b.kind == "size"} - used
        changed = replace(
            self,
            body=body,
            symbols=tuple(name for name in self.symbols if name not in unused),
            buffers={n: b for n, b in buffers.items() if n in used},
            constants={n: c for n, c in constants.items() if n in used},
        )
        changed.__dict__.update(_is_trimmed=True)
        return changed

    @cached_property
    def _is_trimmed(self) -> bool:
        """Whether the statements are known to mention every buffer.

        It is no field, so that `replace`, which may change the statements, does not keep it.
        """
        return False


def bodies(statement: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statement lists inside a statement."""
    if isinstance(statement, Loop):
        return (statement.body,)
    return (statement.then, statement.orelse) if isinstance(statement, Branch) else ()


def with_bodies(statement: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """Change the lists inside a statement; the statement itself where they stay the same."""
    if isinstance(statement, Loop):
        body = change(statement.body)
        return statement if _are_same(body, statement.body) else replace(statement, body=body)
    if isinstance(statement, Branch):
        then, orelse = change(statement.then), change(statement.orelse)
        if _are_same(then, statement.then) and _are_same(orelse, statement.orelse):
            return statement
        return replace(statement, then=then, orelse=orelse)
    return statement


def _are_same(one: tuple[Stmt, ...], other: tuple[Stmt, ...]) -> bool:
    """Whether two lists have the same objects."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _have_same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two tables have the same objects."""
    if one is other:
        return True
    return len(one) == len(other) and all(other.get(name) is value for name, value in one.items())


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, in program order, each before those inside it."""
    for statement in body:
        yield statement
        for inner in bodies(statement):
            yield from statements(inner)


def count_uses(body: tuple[Stmt, ...]) -> Counter[str]:
    """Count for each buffer the statements that mention it; in place of a loop, those inside it."""
    single = (s for s in statements(body) if not isinstance(s, Loop))
    return Counter(name for s in single for name in s.reads() | s.writes())


def count_own_uses(body: tuple[Stmt, ...]) -> Counter[str]:
    """Count for each buffer the statements that touch it: a kernel, a carry, a condition."""
    found: Counter[str] = Counter()
    for statement in statements(body):
        if isinstance(statement, Loop):
            found.update([name for c in statement.carries for name in (c.state, c.next)])
        elif isinstance(statement, Branch):
            found[statement.condition] += 1
        else:
            found.update(statement.reads() | statement.writes())
    return found


def expand_kernels(
    body: tuple[Stmt, ...], change: Callable[[Kernel], Iterable[Stmt]]
) -> tuple[Stmt, ...]:
    """The statements with others in place of every kernel, however deep."""
    found: list[Stmt] = []
    for s in body:
        if isinstance(s, Kernel):
            found += change(s)
        else:
            found.append(with_bodies(s, lambda inner: expand_kernels(inner, change)))
    return tuple(found)


def reduced(
    body: tuple[Stmt, ...],
    change: Callable[[Kernel], Iterable[Stmt]],
    carry: Callable[[Carry], Carry | None],
) -> tuple[Stmt, ...]:
    """As `expand_kernels`, and with other carries; statements with nothing left in them go."""
    found: list[Stmt] = []
    for s in body:
        if isinstance(s, Kernel):
            found += change(s)
            continue
        inner = with_bodies(s, lambda inside: reduced(inside, change, carry))
        if isinstance(inner, Loop):
            carries = (carry(each) for each in inner.carries)
            inner = replace(inner, carries=tuple(c for c in carries if c is not None))
        if not bodies(inner) or any(bodies(inner)):
            found.append(inner)
    return tuple(found)


def map_kernels(body: tuple[Stmt, ...], change: Callable[[Kernel], Kernel]) -> tuple[Stmt, ...]:
    """The statements with every kernel changed, however deep."""
    return tuple(
        change(s)
        if isinstance(s, Kernel)
        else with_bodies(s, lambda inner: map_kernels(inner, change))
        for s in body
    )
