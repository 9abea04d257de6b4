"""Read parts of joined inputs or constants where they were.

    b[0:n] = W[n:2n]
    b[n:2n] = W[0:n]
    y[j] = f(b[j + n])           =>      y[j] = f(W[j])

Weights of other frameworks have their gates in another order; joining them in the right order
copies all of them in every call. Where each access lies within one part, no copy is needed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from ostinato.program.expr import Access, Expr, Load, reached
from ostinato.program.kernel import Kernel, map_loads
from ostinato.program.nodes import Program, map_kernels, statements
from ostinato.records import dataclass
from ostinato.schedule.elide import whole_buffers
from ostinato.sizes.dims import Size, is_nonnegative, product


@dataclass(frozen=True)
class _Part:
    """A range of a buffer that is a copy of another one: `target[n]` is `source[n + shift]`.

    number: that of the copy among the statements. first, last: the range of `n`.
    """

    number: int
    target: str
    source: str
    first: Size
    last: Size
    shift: Size


def read_originals(program: Program) -> Program:
    """Remove joined buffers whose every reader can read the originals."""
    writers = Counter(name for kernel in program.kernels() for name in kernel.writes())
    found = _parts(program, writers)
    if not found:
        return program
    loads: dict[str, list[Load]] = {name: [] for name in found}
    for number, statement in enumerate(program.body):
        for kernel in statements((statement,)):
            if not isinstance(kernel, Kernel):
                continue
            for name in kernel.reads() & found.keys():
                if number < found[name][-1].number:
                    del found[name]
            for load in kernel.loads():
                if load.access.buffer in found:
                    loads[load.access.buffer].append(load)
    moved: dict[Access, Access] = {}
    copies: set[int] = set()
    for name, parts in found.items():
        images = _images(loads[name], parts)
        if images is not None:
            moved.update(images)
            copies.update(part.number for part in parts)
    if not copies:
        return program

    def load_there(node: Load) -> Expr | None:
        there = moved.get(node.access)
        return None if there is None else replace(node, access=there)

    body = tuple(s for number, s in enumerate(program.body) if number not in copies)
    return program.with_body(map_kernels(body, lambda kernel: map_loads(kernel, load_there)))


def _parts(program: Program, writers: Mapping[str, int]) -> dict[str, list[_Part]]:
    """The parts of each buffer that kernels outside of loops copy and that do not overlap."""
    named = set(whole_buffers(program))
    found: dict[str, list[_Part]] = {}
    for number, statement in enumerate(program.body):
        part = _part(number, statement, writers) if isinstance(statement, Kernel) else None
        if part is not None:
            found.setdefault(part.target, []).append(part)
    return {
        name: parts
        for name, parts in found.items()
        if program.buffers[name].kind == "arena"
        and name not in named
        and len(parts) == writers[name]
        and _are_apart(parts)
    }


def _are_apart(parts: Sequence[_Part]) -> bool:
    """Whether parts have no element in common: each lies behind the one before in some order."""
    return all(
        is_nonnegative(a.first - b.last - 1) or is_nonnegative(b.first - a.last - 1)
        for a, b in itertools.combinations(parts, 2)
    )


def _part(number: int, kernel: Kernel, written: Container[str]) -> _Part | None:
    """The part that a kernel copies, in order, from a buffer that nothing writes, or None."""
    if kernel.reductions or kernel.ordered or kernel.guard is not None or len(kernel.stores) != 1:
        return None
    (store,) = kernel.stores
    load, there = store.value, store.access
    plain = not store.partial and not store.index and isinstance(load, Load)
    if not plain or not isinstance(load, Load) or load.mask is not None or load.index:
        return None
    if load.access.buffer in written or set(load.access.terms) != set(there.terms):
        return None
    bounds = reached(there.offset, there.terms)
    if bounds is None or bounds[1] + 1 - bounds[0] != product([a.extent for a in kernel.axes]):
        return None
    return _Part(
        number, there.buffer, load.access.buffer, *bounds, load.access.offset - there.offset
    )


def _images(loads: Iterable[Load], parts: Sequence[_Part]) -> dict[Access, Access] | None:
    """Map each access to a joined buffer to one of an original; None if one lies in no part."""
    images: dict[Access, Access] = {}
    for load in loads:
        bounds = None if load.index else reached(load.access.offset, load.access.terms)
        part = None if bounds is None else _holding(parts, *bounds)
        if part is None:
            return None
        offset = load.access.offset + part.shift
        images[load.access] = Access(part.source, offset, load.access.terms)
    return images


def _holding(parts: Sequence[_Part], first: Size, last: Size) -> _Part | None:
    """The part that has all elements of a range."""
    for part in parts:
        if is_nonnegative(first - part.first) and is_nonnegative(part.last - last):
            return part
    return None
