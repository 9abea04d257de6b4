"""Kernels that pass rows to each other run row by row, so that a row stays in the cache.

    for i, j: b[i, j] = f(x[i, j])           for i:
    for i:    s[i] = sum_j b[i, j]      =>       for j: b[j] = f(x[i, j])
    for i, j: y[i, j] = b[i, j] / s[i]           s = sum_j b[j]
                                                 for j: y[i, j] = b[j] / s

Buffers between the kernels then have one row. Short rows run a block at a time: calling a kernel
has a cost too. What is computed for each element stays the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis
from ostinato.program.kernel import Kernel, Reduce, map_accesses
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, bodies, count_uses, with_bodies
from ostinato.schedule.index_maps import Affine, Map, substitute_kernel
from ostinato.schedule.transposes import transposition
from ostinato.sizes.dims import Size, exact_quotient, is_nonnegative

# Each step of the loop passes on at least this many bytes: writing and reading these takes longer
# than the calls of its kernels, a few nanoseconds each (softmax and norms of `bench_micro`). Where
# kernels are many, each counts with its part: 82 kernels of 20 columns that are cut into intervals
# (KBinsDiscretizer, 1,000 rows) take 660 us row by row, and 200 us one after the other.
_LEAST_ROW_BYTES = 1024
_LEAST_BYTES_OF_A_KERNEL = 128
# A run passes over at most this many kernels, which are looked at again for each run: without a
# limit, time grows with the square of the number of kernels that share nothing, and the depth of
# recursion with it.
_MOST_ASIDE = 64


def by_rows(program: Program, machine: Machine) -> Program:
    """Turn runs of kernels over the same rows into loops over rows."""
    buffers = dict(program.buffers)
    uses = count_uses(program.body)

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        run = _Run()
        for statement in (*body, None):
            if isinstance(statement, Kernel) and run.join(statement, machine):
                continue
            if isinstance(statement, Kernel) and run.leaves_aside(statement):
                continue
            result += run.before
            result += _looped(run, buffers, uses, machine)
            result += change(tuple(run.behind)) if run.behind else ()
            run = _Run()
            is_repeated = isinstance(statement, Loop) and bool(statement.carries)
            if statement is not None and bodies(statement) and not is_repeated:
                result.append(with_bodies(statement, change))
            elif statement is not None and not (
                isinstance(statement, Kernel) and run.join(statement, machine)
            ):
                result.append(statement)
        return tuple(result)

    return program.with_body(change(program.body), buffers)


class _Run:
    """Consecutive kernels that can run together for each row.

    rows: the distance of rows in each buffer, if every access of row `i` lies in the buffer's row
    `i`; else None.
    """

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        # The kernels before their rows were expressed by those of the first one.
        self.given: list[Kernel] = []
        self.rows: dict[str, Size | None] = {}
        self._read: set[str] = set()
        self._written: set[str] = set()
        # Buffers between kernels of the run, and those among them that do not lie in rows.
        self.between: set[str] = set()
        self._across: set[str] = set()
        # Kernels since the first one that do not join it: those that run before the run, as a later
        # kernel joined, and those behind it.
        self.before: list[Kernel] = []
        self.behind: list[Kernel] = []

    def leaves_aside(self, kernel: Kernel) -> bool:
        """Whether the kernel may run before the run as well as behind it; if so, pass over it."""
        if not self.kernels or len(self.behind) == _MOST_ASIDE:
            return False
        if not is_apart(kernel, self._read, self._written):
            return False
        self.behind.append(kernel)
        return True

    def join(self, kernel: Kernel, machine: Machine) -> bool:
        """Add the kernel if it can run for each row right after those before it."""
        given = kernel
        if self.kernels and kernel.axes:
            kernel = divided(kernel, self.kernels[0].axes[0].extent)
        if not _has_rows(kernel) or kernel.axes[0] in (transposition(kernel, machine) or ()):
            return False
        if self.kernels and self.kernels[0].axes[0].extent != kernel.axes[0].extent:
            return False
        rows = _rows(kernel)
        for name, stride in rows.items():
            if self.rows.get(name, stride) != stride:
                rows[name] = None
        read, written = kernel.reads(), kernel.writes()
        between = {
            name
            for name in rows
            if (name in read or name in self._read) and (name in written or name in self._written)
        }
        across = {name for name in between if rows[name] is None}
        follows = not (read.isdisjoint(written) and read.isdisjoint(self._written))
        if self.kernels and follows and (across or self._across):
            return False
        self.before, self.behind = [*self.before, *self.behind], []
        self.kernels.append(kernel)
        self.given.append(given)
        self.rows |= rows
        self._read |= read
        self._written |= written
        self.between |= between
        self._across |= across
        return True


def is_apart(statement: Stmt, read: Set[str], written: Set[str]) -> bool:
    """Whether a statement may run before or behind others that read and write these buffers."""
    met = statement.writes()
    return (
        met.isdisjoint(read) and met.isdisjoint(written) and statement.reads().isdisjoint(written)
    )


def divided(kernel: Kernel, count: Size) -> Kernel:
    """The kernel with `count` rows, each of several of its own, if these divide evenly."""
    found = None if count in (0, 1) else rows_first(kernel, kernel.axes[0], count)
    return kernel if found is None else found


def rows_first(kernel: Kernel, axis: Axis, count: Size) -> Kernel | None:
    """The kernel with an axis cut into `count` rows, which come first; None if that is not even."""
    within = exact_quotient(axis.extent, count)
    if within is None:
        return None
    if within == 1:
        return replace(kernel, axes=(axis, *(a for a in kernel.axes if a != axis)))
    outer, inner = Axis(f"{axis.name}r", count), Axis(axis.name, within)
    image: Map = {axis: Affine(0, ((outer, within), (inner, 1)))}
    axes = (outer, *(inner if a == axis else a for a in kernel.axes))
    return replace(substitute_kernel(kernel, image), axes=axes)


def _has_rows(kernel: Kernel) -> bool:
    if not kernel.axes or kernel.ordered or kernel.guard is not None:
        return False
    if any(reduce.chains == 1 and _gains_from_rows(reduce, kernel) for reduce in kernel.reductions):
        return False
    if any(_has_lanes_along_rows(load.access, kernel) for load in kernel.loads()):
        return False
    return not any(store.partial for store in kernel.stores)


def _gains_from_rows(reduce: Reduce, kernel: Kernel) -> bool:
    """Whether rows share what the reduction loads, or lie in neighbouring lanes."""
    row = kernel.axes[0]
    beside = any(store.access.stride(row) == 1 for store in kernel.stores)
    return beside or any(load.access.stride(row) == 0 for load in reduce.loads)


def _has_lanes_along_rows(access: Access, kernel: Kernel) -> bool:
    """Whether rows are neighbours there, and points of a row are apart, which lanes would gather.

    So read windows behind a layout with channels next to each other.
    """
    row, *inner = kernel.axes
    strides = {access.stride(axis) for axis in inner}
    return access.stride(row) == 1 and 1 not in strides and not strides <= {0}


def _rows(kernel: Kernel) -> dict[str, Size | None]:
    """For each buffer the distance of its rows, None where an access leaves its row."""
    found: dict[str, Size | None] = {}
    row = kernel.axes[0]
    inner = kernel.summed_axes.union(kernel.axes[1:])
    accesses = [(load.access, bool(load.index)) for load in kernel.loads()]
    accesses += [(store.access, False) for store in kernel.stores]
    for access, is_computed in accesses:
        stride = access.stride(row)
        within = not is_computed and _stays_in_row(access, row, stride, inner)
        known = stride if within else None
        found[access.buffer] = known if found.get(access.buffer, known) == known else None
    return found


def _stays_in_row(access: Access, row: Axis, stride: Size, inner: Set[Axis]) -> bool:
    reach = access.offset
    for axis, step in access.terms:
        if axis == row:
            continue
        if axis not in inner or not is_nonnegative(step):
            return False
        reach = reach + step * (axis.extent - 1)
    return is_nonnegative(access.offset) and is_nonnegative(stride - 1 - reach)


def _looped(
    run: _Run, buffers: dict[str, Buffer], uses: Mapping[str, int], machine: Machine
) -> list[Stmt]:
    """Turn the kernels of a run into a loop over rows, or leave them where that gains nothing.

    uses: how many statements of the program use each buffer, loops aside.
    """
    kernels = run.kernels
    if not run.between or not any(k.reductions for k in kernels):
        return list(run.given)
    count = kernels[0].axes[0].extent
    sizes: dict[str, int] = {}
    for name in run.between:
        stride = run.rows[name]
        if not isinstance(stride, int):
            return list(run.given)
        sizes[name] = stride * ITEM_BYTES[buffers[name].dtype]
    least = max(_LEAST_ROW_BYTES, _LEAST_BYTES_OF_A_KERNEL * len(kernels))
    block = _block(count, sum(sizes.values()), least, machine)
    if block is None:
        return list(run.given)
    inside = Counter(n for k in kernels for n in k.reads() | k.writes())
    local = {n for n in sizes if buffers[n].kind == "arena" and inside[n] == uses[n]}
    assert not isinstance(count, int) or count % block == 0
    loop = Axis(f"{kernels[0].axes[0].name}b", count // block if isinstance(count, int) else count)
    body = tuple(one_block(kernel, loop, block, local) for kernel in kernels)
    for name in local:
        items = block * sizes[name] // ITEM_BYTES[buffers[name].dtype]
        buffers[name] = replace(buffers[name], size=items)
    return [Loop(loop, (), body, is_independent=True)]


def _block(count: Size, row: int, least: int, machine: Machine) -> int | None:
    """Choose the rows of a block; None if a loop over blocks gains nothing.

    row: the bytes of a row. least: the bytes that a block has to pass on.
    """
    if not isinstance(count, int):
        return 1 if row >= least else None
    if count * row <= machine.near_bytes:
        return None
    block = max(n for n in range(1, max(1, machine.block_bytes // row) + 1) if count % n == 0)
    return block if block < count and block * row >= least else None


def one_block(kernel: Kernel, loop: Axis, block: int, local: set[str]) -> Kernel:
    """The kernel for one step of the loop; local buffers have the rows of one step only."""
    row = kernel.axes[0]
    inner = Axis(row.name, block)
    terms = ((loop, block), (inner, 1)) if block > 1 else ((loop, 1),)
    image: Map = {row: Affine(0, terms)}
    axes = (inner, *kernel.axes[1:]) if block > 1 else kernel.axes[1:]
    moved = replace(substitute_kernel(kernel, image), axes=axes)

    def inside(access: Access) -> Access:
        kept = tuple((axis, step) for axis, step in access.terms if axis != loop)
        return replace(access, terms=kept) if access.buffer in local else access

    return map_accesses(moved, inside)
