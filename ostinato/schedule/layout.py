"""Choose the layout of buffers that only kernels see by how the tiles of these kernels read them.

    b[c, p] at P * c + p        =>        at C * p + c

Lanes of a sum run along the axis whose weights they share loading, such as output channels, while
neighbours in memory are positions. What is stored, added to it or pooled behind it is then
scattered and gathered. An address is split at a radix `P`, and both parts change places, if no
access carries from one part into the other; multiples of `Q` beyond, such as a batch, stay outside.
Sizes may be those of a run, where it is proven that nothing is carried.

The two halves of a carried state swap, so they change together: the state is converted once, where
the loop begins and where it is over.

The layouts of all buffers minimise one sum of cycles: chains and residual joins change together,
since descent starts from both ends, everything as it is and everything changed. Where the two
results differ, parts that no kernel has in common are decided one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Load
from ostinato.program.kernel import Kernel, Store, map_accesses
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, bodies, map_kernels, statements
from ostinato.program.words import first_of_word
from ostinato.records import dataclass
from ostinato.schedule.checked_sizes import least_sizes
from ostinato.schedule.operands import (
    TURNED,
    TYPICAL_EXTENT,
    is_packable,
    moves_windows,
    row_axes_of_windows,
    typical,
)
from ostinato.schedule.tile import estimated_cycles, lane_of
from ostinato.sizes.bounds import NOTHING, is_never_negative
from ostinato.sizes.dims import Atom, Size, exact_quotient, floordiv, is_nonnegative, terms_of

# Strides of lines that fall into an eighth of the sets of a first-level cache, or less, evict each
# other within the window of a convolution: one line of padding spreads them.
_CROWDED_BYTES = 512
# Sweeps over all buffers until nothing is gained any more; the second one hardly changes anything.
_MOST_SWEEPS = 3


@dataclass(frozen=True)
class Layout:
    """`inner` places of `count` elements become `count` elements for each place.

    Each element of the first place is followed by the same one of the next, `step` apart.
    """

    inner: Size
    count: int
    step: int

    @property
    def block(self) -> Size:
        """The elements of a block, within which places and elements are exchanged."""
        return self.inner * self.count

    def size(self, size: Size) -> Size:
        """The size in this layout of a buffer of `size` elements."""
        return floordiv(size, self.block) * self.inner * self.step

    def access(self, access: Access) -> Access:
        """The same element in this layout."""
        terms = tuple((axis, self._place(stride)) for axis, stride in access.terms)
        return Access(access.buffer, self._place(access.offset), terms)

    def _place(self, address: Size) -> Size:
        outer, rest = _split(address, self.block)
        element, place = _split(rest, self.inner)
        return (outer * self.inner + place) * self.step + element


# For each buffer the layout that is not the program's own.
Layouts = Mapping[str, Layout]
# For each buffer those that have the same layout, itself included.
Together = Mapping[str, tuple[str, ...]]


def layout(program: Program, machine: Machine) -> Program:
    """Choose layouts of the arena's buffers so that all kernels together take the fewest cycles."""
    together = _together(program)
    found = _candidates(program, machine, together)
    if not found:
        return program
    costs = _Costs(program, machine, together)
    chosen = costs.best({name: choices for name, choices in found.items() if choices})
    if not chosen:
        return program
    buffers = dict(program.buffers)
    for name, change in chosen.items():
        buffers[name] = replace(buffers[name], size=change.size(buffers[name].size))
    body = map_kernels(program.body, lambda kernel: _changed(kernel, chosen))
    return program.with_body(body, buffers)


def _together(program: Program) -> Together:
    """Group buffers of the arena: each alone, but halves of states with what they swap with."""
    found: dict[str, tuple[str, ...]] = {name: (name,) for name in program.buffers}
    for statement in statements(program.body):
        for carry in statement.carries if isinstance(statement, Loop) else ():
            group = tuple(dict.fromkeys(found[carry.state] + found[carry.next]))
            found |= {name: group for name in group}
    return {
        name: group
        for name, group in found.items()
        if all(program.buffers[one].kind == "arena" for one in group)
    }


def _candidates(
    program: Program, machine: Machine, together: Together
) -> dict[str, tuple[Layout, ...]]:
    """The layouts that all accesses allow and that make lanes neighbours.

    Keyed by the first of the buffers that go together.
    """
    accesses: dict[str, list[Access]] = {}
    refused: set[str] = set()
    kernels = list(program.kernels())
    for kernel in kernels:
        for place in _places(kernel):
            accesses.setdefault(place.access.buffer, []).append(place.access)
            plain = not place.index and place.mask is None
            if not plain or kernel.ordered or kernel.guard is not None:
                refused.add(place.access.buffer)
        # Bytes that are read as words stay neighbours.
        operands = kernel.operands
        refused.update(word.access.buffer for word in filter(None, map(first_of_word, operands)))
    all_groups = dict.fromkeys(together[name] for name in accesses if name in together)
    groups = [group for group in all_groups if refused.isdisjoint(group)]
    if not groups:
        return {}
    radices = _radices(kernels, program.buffers, machine, together)
    lanes, lows = machine.vector_bytes // 4, least_sizes(program.checks)
    return {
        group[0]: _layouts(
            [program.buffers[name] for name in group],
            [access for name in group for access in accesses.get(name, ())],
            radices[group[0]],
            lanes,
            lows,
        )
        for group in groups
        if radices[group[0]]
    }


def _radices(
    kernels: list[Kernel], buffers: Mapping[str, Buffer], machine: Machine, together: Together
) -> dict[str, set[Size]]:
    """By buffer of the arena, the distances at which it is stored by lanes that sums share loading.

    So do channels of windows, along which lanes might run just as well, and the accesses that meet
    neighbours of another buffer. Other kernels that access a buffer along the same axis follow.
    Buffers that go together have one set.
    """
    found: dict[str, set[Size]] = {}
    for group in dict.fromkeys(together.values()):
        shared_by_group = set[Size]()
        found |= {name: shared_by_group for name in group}
    for kernel in kernels:
        _add_transposed(found, kernel, buffers)
        lane = lane_of(kernel, machine, buffers) if kernel.reductions else None
        if lane is None:
            continue
        others = _other_lanes(kernel, lane, buffers)
        ends = _places(kernel) if others else kernel.stores
        for access in [end.access for end in ends]:
            strides = {access.stride(axis) for axis in (lane, *others)} - {0, 1}
            found.get(access.buffer, set()).update(strides)
    grows = any(found.values())
    while grows:
        grows = False
        for kernel in kernels:
            places = _patterns(kernel)
            shared = [
                axis
                for axis in kernel.axes
                if any(a.stride(axis) in found.get(a.buffer, ()) for a in places)
            ]
            for access in places:
                known = found.get(access.buffer)
                if known is None:
                    continue
                strides = {access.stride(axis) for axis in shared} - {0, 1}
                grows = grows or not strides <= known
                known |= strides
    return found


def _add_transposed(
    found: Mapping[str, set[Size]], kernel: Kernel, buffers: Mapping[str, Buffer]
) -> None:
    """Add distances in one buffer of elements that are neighbours in another.

    Also of those that have neighbours there which the other buffer holds apart, and of channels of
    constants. Not where each row of a matrix has one element, such as its sum: rows had better stay
    whole.
    """
    accesses = _patterns(kernel)
    near = [{axis for axis, stride in access.terms if stride == 1} for access in accesses]
    for one, other in itertools.permutations(range(len(accesses)), 2):
        access, strides = accesses[one], {accesses[one].stride(axis) for axis in near[other]}
        is_constant = buffers[accesses[other].buffer].kind == "constant"
        is_across = any(accesses[other].stride(axis) not in (0, 1) for axis in near[one])
        if is_constant or is_across:
            found.get(access.buffer, set()).update(strides - {0, 1})


def _other_lanes(kernel: Kernel, lane: Axis, buffers: Mapping[str, Buffer]) -> list[Axis]:
    """The channels of a kernel whose lanes run along its windows, or along what weights share."""
    others = [axis for axis in kernel.axes if axis != lane]
    if row_axes_of_windows(kernel, lane):
        return [axis for axis in others if not moves_windows(kernel, axis)]
    weights = [load.access for load in kernel.summed if is_packable(kernel, load, buffers)]
    return [a for a in others if any(weight.stride(a) != 0 for weight in weights)]


def _places(kernel: Kernel) -> Iterator[Load | Store]:
    yield from kernel.loads()
    yield from kernel.stores


def _patterns(kernel: Kernel) -> list[Access]:
    """One access for each way that a kernel passes through a buffer, wherever it begins."""
    accesses = (place.access for place in _places(kernel))
    return list({(access.buffer, access.terms): access for access in accesses}.values())


def _layouts(
    buffers: list[Buffer],
    accesses: list[Access],
    inner: set[Size],
    lanes: int,
    lows: Mapping[Atom, Size],
) -> tuple[Layout, ...]:
    buffer = buffers[0]
    terms = [term for access in accesses for term in access.terms]
    if buffer.dtype not in TURNED or any(b.is_copy or b.is_laid or b.padded for b in buffers):
        return ()
    if any(isinstance(a.offset, int) and a.offset < 0 for a in accesses):
        return ()
    # A buffer read backwards, such as a sequence from its last step, has the same distances.
    apart = (abs(stride) if isinstance(stride, int) else stride for _, stride in terms)
    strides = dict.fromkeys(stride for stride in apart if stride not in (0, 1))
    radices = [
        n
        for n in strides
        if exact_quotient(buffer.size, n) is not None and _is_radix(n, accesses, lows)
    ]
    found: list[Layout] = []
    for radix in sorted(radices, key=typical):
        if radix not in inner:
            continue
        counts = [exact_quotient(n, radix) for n in (*radices, buffer.size)]
        count = min((n for n in counts if isinstance(n, int) and n >= lanes), default=None)
        if count is None:
            continue
        item = ITEM_BYTES[buffer.dtype]
        crowded = count * item % _CROWDED_BYTES == 0
        found.append(Layout(radix, count, count + crowded * LINE_BYTES // item))
    return tuple(found)


def _split(address: Size, radix: Size) -> tuple[Size, Size]:
    """Split an address at a radix: its multiple, as far as that is known, and the rest.

    Both are negative for a step backwards, so that they add up as addresses do.
    """
    if isinstance(address, int) and isinstance(radix, int):
        sign = 1 if address >= 0 else -1
        return sign * (abs(address) // radix), sign * (abs(address) % radix)
    times = exact_quotient(address, radix)
    if times is not None:
        return times, 0
    # Take the radix as often as its first monomial is in the address, such as an offset of `3*T +
    # 1`.
    (first, count), *_ = terms_of(radix)
    times = max(dict(terms_of(address)).get(first, 0) // count if first else 0, 0)
    # The last row of a plane of `3*T + 9` begins at `3*T + 6`.
    if times and not is_never_negative(address - radix * times):
        times -= 1
    return times, address - radix * times


def _is_radix(radix: Size, accesses: list[Access], lows: Mapping[Atom, Size] = NOTHING) -> bool:
    """Whether no access carries from below a multiple of `radix` beyond it.

    lows: lower bounds of sizes in each run of the program.
    """
    for access in accesses:
        _, last = _split(access.offset, radix)
        first: Size = last
        for axis, stride in access.terms:
            _, below = _split(stride, radix)
            if isinstance(below, int) and below < 0:
                first = first + (axis.extent - 1) * below
                continue
            # A size that only the run tells may be less than its terms seem to say.
            parts = exact_quotient(radix, below) if below != 0 else 0
            if not is_nonnegative(below) and not (isinstance(parts, int) and parts > 0):
                return False
            # Where an axis has no points, nothing is accessed.
            last = last + (axis.extent - 1) * below
        if not is_never_negative(first) or not is_never_negative(radix - 1 - last, lows):
            return False
    return True


def _changed(kernel: Kernel, layouts: Layouts) -> Kernel:
    """The kernel on buffers in other layouts."""

    def moved(access: Access) -> Access:
        change = layouts.get(access.buffer)
        return access if change is None else change.access(access)

    if layouts.keys().isdisjoint(kernel.reads() | kernel.writes()):
        return kernel
    return map_accesses(kernel, moved)


def _runs(body: tuple[Stmt, ...], times: int = 1) -> Iterator[tuple[Kernel, int]]:
    """Yield every kernel, and how often it runs; loops with a condition have a typical length."""
    for statement in body:
        if isinstance(statement, Kernel):
            yield statement, times
        steps = 1
        if isinstance(statement, Loop):
            extent = statement.axis.extent
            is_open = statement.condition is not None
            steps = min(typical(extent), TYPICAL_EXTENT) if is_open else typical(extent)
        for inner in bodies(statement):
            yield from _runs(inner, times * steps)


class _Costs:
    """Cycles of kernels by the layouts of the buffers that they access."""

    def __init__(self, program: Program, machine: Machine, together: Together) -> None:
        self._machine, self._buffers = machine, program.buffers
        self._together = together
        runs = list(_runs(program.body))
        self._kernels = [kernel for kernel, _ in runs]
        self._times = [times for _, times in runs]
        self._names = [tuple(sorted({*k.reads(), *k.writes()})) for k in self._kernels]
        self._users: dict[str, list[int]] = {}
        for number, names in enumerate(self._names):
            for name in names:
                self._users.setdefault(name, []).append(number)
        self._known: dict[tuple[int, tuple[Layout | None, ...]], float] = {}

    def best(self, candidates: Mapping[str, tuple[Layout, ...]]) -> dict[str, Layout]:
        """The cheaper of descents from no layout changed and from all, chosen part by part.

        candidates: keyed by the first of the buffers that go together.
        """
        everything = {
            member: choices[-1]
            for name, choices in candidates.items()
            for member in self._together[name]
        }
        chosen, other = (self._descent(start, candidates) for start in ({}, everything))
        for names in self._apart(chosen, other):
            changed = {name: layout for name, layout in chosen.items() if name not in names}
            changed |= {name: other[name] for name in names if name in other}
            users = sorted({user for name in names for user in self._users.get(name, ())})
            chosen = min(chosen, changed, key=lambda way: self._sum(users, way))
        return chosen

    def _apart(self, one: Layouts, other: Layouts) -> Iterator[set[str]]:
        """Groups of differing buffers such that no kernel accesses two groups."""
        left = {name for name in {*one, *other} if one.get(name) != other.get(name)}
        while left:
            group, front = set[str](), {min(left)}
            while front:
                group |= front
                left -= front
                users = {user for name in front for user in self._users.get(name, ())}
                met = {name for user in users for name in self._names[user]}
                along = {one for name in front for one in self._together[name]}
                front = left & (met | along)
            yield group

    def _descent(
        self, start: Layouts, candidates: Mapping[str, tuple[Layout, ...]]
    ) -> dict[str, Layout]:
        """Change one buffer after the other as long as that saves cycles."""
        chosen = dict(start)
        for _ in range(_MOST_SWEEPS):
            before = dict(chosen)
            for name, choices in candidates.items():
                group = self._together[name]
                others = {k: v for k, v in chosen.items() if k not in group}
                ways = [others, *(others | dict.fromkeys(group, choice) for choice in choices)]
                users = sorted({user for member in group for user in self._users.get(member, ())})
                chosen = min(ways, key=lambda way: self._sum(users, way))
            if chosen == before:
                break
        return chosen

    def _sum(self, numbers: list[int] | range, layouts: Layouts) -> float:
        return sum(self._cycles(number, layouts) for number in numbers)

    def _cycles(self, number: int, layouts: Layouts) -> float:
        key = number, tuple(layouts.get(name) for name in self._names[number])
        if key not in self._known:
            kernel = _changed(self._kernels[number], layouts)
            cycles = estimated_cycles(kernel, self._machine, self._buffers)
            self._known[key] = self._times[number] * cycles
        return self._known[key]
