"""Store into the original in place of a copy where nothing needs the original any more.

    loop t carry s <-> n                       loop t
      for all i: a[i] = s[i]                     s[p] = f(..)
      a[p] = f(..)                         =>    s[q] = g(..)
      for all i: n[i] = a[i]
      n[q] = g(..)

A buffer and its copy become one where neither is written while the other has values that are still
to be read. Copies between them disappear, and so do states of loops whose halves are one. Names
that no such copy joins to one that is stored into stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace

from ostinato.program.expr import Access, Load
from ostinato.program.kernel import Kernel, Store, map_accesses
from ostinato.program.nodes import (
    Buffer,
    Carry,
    Loop,
    Program,
    Stmt,
    bodies,
    count_own_uses,
    reduced,
    statements,
)
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, product


def store_in_place(program: Program) -> Program:
    """Let copies that are stored into share the memory of their originals."""
    copies = _stored_into(program)
    if not copies:
        return program
    lives = _Lives(program.buffers, {name for pair in copies for name in pair})
    outputs = frozenset(i.buffer for i in program.outputs) & lives.names
    for name in outputs:
        lives.separate(name, outputs)
    lives.body(program.body, outputs)
    _keep_apart(program, lives)
    groups = _joined(program, copies, lives.apart)
    names = {name: _first(group, program) for group in groups for name in group}
    return program.with_body(_renamed(program.body, names))


def stored_copies(program: Program) -> dict[str, set[str]]:
    """Map each original to those of its copies that are stored into."""
    stores = [(k, s) for k in program.kernels() for s in k.stores]
    partial = {s.access.buffer for _, s in stores if s.partial}
    found: dict[str, set[str]] = {}
    for kernel, store in stores:
        source = copied_from(kernel, store) if store.access.buffer in partial else None
        if source is not None:
            found.setdefault(source, set()).add(store.access.buffer)
    return found


def whole_stores(kernel: Kernel, buffers: Mapping[str, Buffer]) -> set[str]:
    """The buffers of which a kernel writes every element."""
    points = _points(kernel)
    names = {s.access.buffer for s in kernel.stores if not s.partial}
    return {name for name in names if buffers[name].size == points}


def copied_from(kernel: Kernel, store: Store) -> str | None:
    """The buffer from which a store copies elements to the same places of another one."""
    load = store.value
    if kernel.reductions or kernel.ordered or store.partial or not isinstance(load, Load):
        return None
    if load.mask is not None or load.index:
        return None
    source = load.access.buffer
    return source if replace(store.access, buffer=source) == load.access else None


def _stored_into(program: Program) -> list[tuple[str, str]]:
    """Pairs of a copy and its original, one of which is stored into, directly or by further copies.

    Those in the innermost loops come first.
    """
    found: dict[tuple[str, str], int] = {}
    partial: set[str] = set()
    for depth, kernel in _kernels(program.body):
        for store in kernel.stores:
            target, source = store.access.buffer, copied_from(kernel, store)
            if store.partial:
                partial.add(target)
            if source is not None and _may_be_one(program.buffers[target], program.buffers[source]):
                found[target, source] = max(depth, found.get((target, source), 0))
    groups = _Groups()
    for target, source in found:
        groups.join(target, source)
    stored = {name for part in partial for name in groups.of(part)}
    pairs = [pair for pair in found if pair[0] in stored]
    return sorted(pairs, key=lambda pair: -found[pair])


def _kernels(body: Iterable[Stmt], depth: int = 0) -> Iterator[tuple[int, Kernel]]:
    """Every kernel, with the number of loops around it."""
    for statement in body:
        if isinstance(statement, Kernel):
            yield depth, statement
        for inner in bodies(statement):
            yield from _kernels(inner, depth + isinstance(statement, Loop))


def _may_be_one(target: Buffer, source: Buffer) -> bool:
    # Conditions and sizes have readers that are no kernels, and a single element is cheap to copy.
    if target.size == 1:
        return False
    kinds = {target.kind, source.kind}
    is_plain = not any(b.padded or b.is_copy for b in (target, source))
    alike = (target.dtype, target.size) == (source.dtype, source.size)
    return alike and is_plain and kinds <= {"arena", "output"} and "arena" in kinds


class _Groups:
    """Groups of names that become one buffer, and the names each group must stay apart from."""

    def __init__(self, apart: Mapping[str, Set[str]] | None = None) -> None:
        self._groups: dict[str, set[str]] = {}
        self._apart = apart or {}

    def of(self, name: str) -> Set[str]:
        """The names in the group of a name, itself included."""
        return self._groups.get(name, {name})

    def join(self, left: str, right: str) -> None:
        """Join the groups of two names."""
        group = {*self.of(left), *self.of(right)}
        self._groups.update((name, group) for name in group)

    def conflict(self, left: str, right: str) -> bool:
        """Whether names that would become one must stay apart."""
        one, other = self.of(left), self.of(right)
        return any(not other.isdisjoint(self._apart.get(name, ())) for name in one)

    def all(self) -> list[set[str]]:
        """The groups of more than one name."""
        return list({id(group): group for group in self._groups.values()}.values())


@dataclass
class _Lives:
    """Finds buffers, among some names, that must stay apart.

    apart: for each name, those that hold values to be read where it is written.
    """

    buffers: Mapping[str, Buffer]
    names: Set[str]
    apart: dict[str, set[str]] = field(default_factory=dict)

    def body(self, body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
        """Return the names that are live before the statements, given those live behind them."""
        for statement in reversed(body):
            if isinstance(statement, Kernel):
                live = self._kernel(statement, live)
            elif isinstance(statement, Loop):
                live = self._loop(statement, live)
            elif inner := bodies(statement):
                live = frozenset[str]().union(*(self.body(b, live) for b in inner))
        return live

    def _kernel(self, kernel: Kernel, live: frozenset[str]) -> frozenset[str]:
        reads, writes = kernel.reads() & self.names, kernel.writes() & self.names
        for name in writes:
            stores = [s for s in kernel.stores if s.access.buffer == name]
            sources = {copied_from(kernel, store) for store in stores}
            original = sources if len(sources) == 1 else set[str | None]()
            self.separate(name, (live | reads | writes) - original)
        return (live - self._filled(kernel)) | reads

    def _filled(self, kernel: Kernel) -> set[str]:
        """The buffers of which a kernel writes every element."""
        return whole_stores(kernel, self.buffers) & self.names

    def _loop(self, loop: Loop, live: frozenset[str]) -> frozenset[str]:
        """A step finds nothing in the second half of a state: what it leaves there comes next."""
        following = {c.state: c.next for c in loop.carries}
        carried = frozenset(following) | frozenset(following.values())
        head = frozenset[str]()
        while True:
            behind = (live | head).difference(following.values())
            end = {following.get(name, name) for name in behind}
            start = self.body(loop.body, frozenset(end) & self.names)
            start = start.difference(following.values())
            if start <= head:
                break
            head |= start
        for pair in following.items():
            for name in self.names & set(pair):
                self.separate(name, ((behind | carried) & self.names).difference(pair))
        return live | head

    def separate(self, name: str, others: Iterable[str]) -> None:
        """Keep a name apart from others."""
        for other in others:
            if other != name:
                self.apart.setdefault(name, set()).add(other)
                self.apart.setdefault(other, set()).add(name)


def _points(kernel: Kernel) -> Size | None:
    """The number of points, each of which writes places of its own; None where values decide."""
    tile = kernel.tile
    limit = None if tile is None else tile.limit
    if tile is None or limit is None:
        return None if kernel.guard is not None else product([a.extent for a in kernel.axes])
    others = [axis.extent for axis in kernel.axes if axis not in (tile.lane, tile.block)]
    return product(others) * limit


def _keep_apart(program: Program, lives: _Lives) -> None:
    """Keep the halves of a state apart where nothing writes it before its loop.

    The arena has no place that lasts for all steps for a buffer whose life begins in one.
    """
    written: set[str] = set()
    for statement in statements(program.body):
        if isinstance(statement, Kernel):
            written |= statement.writes()
        elif isinstance(statement, Loop):
            for carry in statement.carries:
                if carry.state not in written:
                    lives.separate(carry.state, (carry.next,))


def _joined(
    program: Program, copies: Sequence[tuple[str, str]], apart: Mapping[str, Set[str]]
) -> list[set[str]]:
    """Groups of names that become one buffer.

    Halves of a state that remain two swap in each step. A buffer outside of their loop cannot be
    one with them: it would have to know where they are.
    """
    uses = count_own_uses(program.body)
    loops = [s for s in statements(program.body) if isinstance(s, Loop) and s.carries]
    changing: dict[str, Set[str]] = {}
    while True:
        groups = _Groups(apart)
        for target, source in copies:
            together = groups.of(target) | groups.of(source)
            fixed = [together - {name} <= changing[name] for name in together & changing.keys()]
            if all(fixed) and not groups.conflict(target, source):
                groups.join(target, source)
        before = len(changing)
        for loop in loops:
            two = [c for c in loop.carries if c.next not in groups.of(c.state)]
            names = {name for carry in two for name in (carry.state, carry.next)}
            own = _local(loop, uses) if not names <= changing.keys() else set[str]()
            changing.update((name, own) for name in names - changing.keys())
        if len(changing) == before:
            return groups.all()


def _local(loop: Loop, uses: Counter[str]) -> set[str]:
    """The buffers that only steps of a loop use."""
    inside = count_own_uses(loop.body)
    return {name for name, count in inside.items() if count == uses[name]}


def _first(group: Set[str], program: Program) -> str:
    """The name that a group gets: that of an output, else the first one."""
    kept = {i.buffer for i in program.outputs}
    return next((n for n in sorted(group) if n in kept), None) or next(
        name for name in program.buffers if name in group
    )


def _renamed(body: tuple[Stmt, ...], names: Mapping[str, str]) -> tuple[Stmt, ...]:
    """Rename buffers, and drop copies from a buffer to itself."""

    def carry(given: Carry) -> Carry | None:
        state, following = (names.get(name, name) for name in (given.state, given.next))
        return None if state == following else Carry(state, following)

    return reduced(body, lambda kernel: _renamed_kernel(kernel, names), carry)


def _renamed_kernel(kernel: Kernel, names: Mapping[str, str]) -> list[Kernel]:
    """Rename the buffers of a kernel; drop one that only copies a buffer to itself."""
    if (kernel.reads() | kernel.writes()).isdisjoint(names):
        return [kernel]

    def there(access: Access) -> Access:
        return replace(access, buffer=names.get(access.buffer, access.buffer))

    kept = [s for s in kernel.stores if there(s.access).buffer != _new_source(kernel, s, names)]
    if not kept:
        return []
    return [map_accesses(replace(kernel, stores=tuple(kept)), there)]


def _new_source(kernel: Kernel, store: Store, names: Mapping[str, str]) -> str | None:
    source = copied_from(kernel, store)
    return None if source is None else names.get(source, source)
