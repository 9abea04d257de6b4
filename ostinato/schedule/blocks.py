"""Kernels that pass a matrix to each other compute it a block of rows at a time.

    for h, i, j: s[h, i, j] = sum_k q[h, i, k] c[h, k, j]         for h, block:
    for h, i, j: p[h, i, j] = f(s[h, i, j])                 =>        for i, j: s[i, j] = ...
    for h, i, d: y[h, i, d] = sum_j p[h, i, j] v[h, j, d]             for i, j: p[i, j] = ...
                                                                      for i, d: y[h, .., d] = ...

The scores of attention are such a matrix. For long sequences it exceeds the caches; a block of it
does not, and the operands that its rows share, `c[h]` and `v[h]`, are read again from the
second-level cache. The same holds for an image whose pool takes two lines at a time: a row then has
as many lines. What is computed for each element stays the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis
from ostinato.program.kernel import Kernel, map_accesses
from ostinato.program.nodes import Branch, Buffer, Loop, Program, Stmt, count_uses, with_bodies
from ostinato.records import dataclass
from ostinato.schedule.collapse import merged
from ostinato.schedule.decisions import decision
from ostinato.schedule.index_maps import Affine, replace_axes, substitute_kernel
from ostinato.sizes.dims import (
    Size,
    ceildiv,
    exact_quotient,
    floordiv,
    is_nonnegative,
    minimum,
    product,
)

# Fewer rows would read what they share too often: attention over 1,000 to 6,000 positions takes as
# long with 16 as with 64 rows, and longer with 8 (`attention` rows of
# `benchmarks.bench_micro`, and such of 3,000 and 6,000).
LEAST_ROWS = 24

Groups = dict[Axis, tuple[Axis, ...]]


def by_blocks(program: Program, machine: Machine) -> Program:
    """Turn runs of kernels that pass large matrices to each other into loops over blocks of rows.

    Where only a run tells how large the matrices are, it chooses between the loop and the kernels.
    """
    buffers = dict(program.buffers)
    uses = count_uses(program.body)

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        left = list(body)
        result: list[Stmt] = []
        while left:
            run = _run_from(left, buffers, uses, machine)
            if run is not None:
                result += [*run.before, *_written(run, buffers, machine)]
                del left[: len(run.before) + len(run.kernels)]
                continue
            statement = left.pop(0)
            is_free = isinstance(statement, Loop) and statement.is_independent
            result.append(with_bodies(statement, change) if is_free else statement)
        return tuple(result)

    return program.with_body(change(program.body), buffers)


@dataclass(frozen=True)
class _Run:
    """Kernels that run for each block together, and statements between them that run before.

    rows: axes of the matrices' rows; blocks are cut from the last one. before: statements between
    the kernels that do not depend on them. between: buffers that pass from kernel to kernel. local:
    those of them that nothing else touches. block: the number of rows. lines: steps of the first
    kernel's outermost axis in each row.
    """

    rows: tuple[Axis, ...]
    kernels: tuple[Kernel, ...]
    before: tuple[Stmt, ...] = ()
    between: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    block: int = 0
    lines: int = 1

    def width(self, buffer: Buffer) -> Size | None:
        """The elements of a row."""
        return exact_quotient(buffer.size, product([axis.extent for axis in self.rows]))

    def with_kernel(
        self,
        kernel: Kernel,
        shared: Set[str],
        users: Mapping[str, Sequence[Kernel]],
        buffers: Mapping[str, Buffer],
    ) -> _Run | None:
        """Extend the run by a kernel; None where a row of the kernel needs other rows of the run.

        users: the kernels of the run that touch a buffer. Only those of buffers that pass from
        kernel to kernel from now on can have other groups than before.
        """
        run = replace(self, kernels=(*self.kernels, kernel), between=self.between | shared)
        changed = [k for name in sorted(shared - self.between) for k in users.get(name, ())]
        return run if all(run.groups(k, buffers) is not None for k in (kernel, *changed)) else None

    def groups(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> Groups | None:
        """Map axes of a kernel to the axes of rows that they stand for, several where merged.

        None where some element that the kernel passes on does not lie in the row of its point.
        """
        found: Groups | None = None
        accesses = [(load.access, bool(load.index)) for load in kernel.loads()]
        accesses += [(store.access, False) for store in kernel.stores]
        for access, is_computed in accesses:
            if access.buffer in self.between:
                groups = None if is_computed else self._groups_of(access, buffers[access.buffer])
                if groups is None or found not in (None, groups):
                    return None
                found = groups
        return found if found is not None and found.keys() <= set(kernel.axes) else None

    def _groups_of(self, access: Access, buffer: Buffer) -> Groups | None:
        width = self.width(buffer)
        if width is None:
            return None
        left, terms = [*self.rows], [*access.terms]
        found: Groups = {}
        while left:
            match = next(
                (
                    (axis, stride, end)
                    for end in range(1, len(left) + 1)
                    for axis, stride in terms
                    if stride == product([a.extent for a in left[end:]]) * width
                    and axis.extent == product([a.extent for a in left[:end]])
                ),
                None,
            )
            if match is None:
                return None
            axis, stride, end = match
            found[axis] = tuple(left[:end])
            terms.remove((axis, stride))
            del left[:end]
        last = access.offset
        for axis, stride in terms:
            last = last + stride * (axis.extent - 1)
        inside = (access.offset, width - 1 - last, *(stride for _, stride in terms))
        return found if all(is_nonnegative(size) for size in inside) else None

    def row_bytes(self, buffers: Mapping[str, Buffer]) -> Size:
        """Bytes of a row of all local buffers."""
        total: Size = 0
        for buffer in (buffers[name] for name in sorted(self.local)):
            width = self.width(buffer)
            assert width is not None
            total = total + width * ITEM_BYTES[buffer.dtype]
        return total

    def points(self, buffers: Mapping[str, Buffer]) -> int:
        """A lower bound of a product's points in a row that share weights with all rows.

        Lines of an image have many: 3 x 3 filters from 3 to 64 channels of 224 x 224 pixels and a
        pool of 2 x 2 take 0.7 of the time, from 1 to 32 channels of 900 x 120 pixels 0.5 (with and
        without the pass, by turns).
        """
        found = [LEAST_ROWS]
        for kernel in self.kernels:
            places = kernel.accesses
            handed = [place for place in places if place.buffer in self.between]
            widths = [(place, self.width(buffers[place.buffer])) for place in handed]
            rows = {axis for place, width in widths for axis, n in place.terms if n == width}
            for load in kernel.summed:
                others = {axis for axis in kernel.axes if load.access.stride(axis) == 0}
                if rows <= others:
                    count = product([axis.extent for axis in others - rows])
                    found.append(count if isinstance(count, int) else 1)
        return max(1, min(found))

    def shared_bytes(self, buffers: Mapping[str, Buffer]) -> Size:
        """Bytes that every block reads again: operands that rows share, in one block or in several.

        Such as the weights of a transposed convolution where rows are the pixels of one phase.
        """
        found: dict[Access, Size] = {}
        for kernel in self.kernels:
            groups = self.groups(kernel, buffers)
            assert groups is not None
            for load in kernel.loads():
                axes = [axis for axis, _ in load.access.terms if axis in kernel.own_axes]
                met = {row for axis in axes for row in groups.get(axis, ())}
                if load.access.buffer in self.between or len(met) == len(self.rows):
                    continue
                extents = [axis.extent for axis in axes if axis not in groups]
                count = self.block if self.rows[-1] in met else 1
                found[load.access] = product(extents) * count * ITEM_BYTES[load.dtype]
        return sum(found.values(), start=0)

    def parts_lines(self, buffers: Mapping[str, Buffer]) -> bool:
        """Whether a block writes quarters of cache lines or less: neighbours are of different rows.

        Such as the pixels of an image whose rows are the channels of a pixel: with blocks of two
        pixels, the text detector of PP-OCR takes 1.6 times as long for 8 images.
        """
        for kernel in self.kernels:
            groups = self.groups(kernel, buffers)
            assert groups is not None
            for access in (store.access for store in kernel.stores):
                is_short = 4 * self.block * ITEM_BYTES[buffers[access.buffer].dtype] <= LINE_BYTES
                is_next = any(stride == 1 and axis in groups for axis, stride in access.terms)
                if is_short and is_next and access.buffer not in self.between:
                    return True
        return False


def _run_from(
    body: Sequence[Stmt], buffers: Mapping[str, Buffer], uses: Mapping[str, int], machine: Machine
) -> _Run | None:
    """Find the run that the first statement begins; None where blocks gain nothing."""
    kernel = body[0]
    if not isinstance(kernel, Kernel) or not _is_plain(kernel):
        return None
    for first, rows, lines in _possible_rows(kernel, body[1:], buffers, uses, machine):
        if len(rows) == 1 and not is_nonnegative(rows[0].extent - 1):
            # Of a single axis that only a run tells, nothing is known to exceed the cache
            # (`_may_pay`).
            continue
        run = _joined(_Run(rows, (first,), lines=lines), body, buffers)
        if all(reduce.factor is None for k in run.kernels for reduce in k.reductions):
            continue
        used = Counter(name for k in run.kernels for name in k.reads() | k.writes())
        local = {n for n in run.between if used[n] == uses[n] and buffers[n].kind == "arena"}
        run = _with_block(replace(run, local=frozenset(local)), buffers, machine)
        if run.block and _may_pay(run, buffers, machine):
            return run
    return None


def _is_plain(kernel: Kernel) -> bool:
    partial = any(store.partial for store in kernel.stores)
    return not kernel.ordered and kernel.guard is None and not partial and not kernel.sizes


def _possible_rows(
    kernel: Kernel,
    behind: Sequence[Stmt],
    buffers: Mapping[str, Buffer],
    uses: Mapping[str, int],
    machine: Machine,
) -> Iterator[tuple[Kernel, tuple[Axis, ...], int]]:
    """Yield the kernel with the axes of its rows, if what it passes on may exceed the cache.

    Then the kernel with its outermost axis cut into rows of several lines.
    """
    # Where a kernel has several stores to a buffer, the first one stands for all.
    firsts = {store.access.buffer: store for store in reversed(kernel.stores)}
    for store in firsts.values():
        buffer = buffers[store.access.buffer]
        size = buffer.size * ITEM_BYTES[buffer.dtype]
        if buffer.kind != "arena" or uses[buffer.name] < 2:
            continue
        if isinstance(size, int) and size < machine.far_bytes:
            continue
        axes = _in_order(store.access)
        for end in range(len(axes) - 1, 0, -1):
            yield kernel, axes[:end], 1
        outermost = _outermost(store.access, buffer)
        if outermost is None:
            continue
        if not axes:
            yield kernel, (outermost,), 1
        lines = _lines_of_a_row(store.access, outermost, behind)
        if lines > 1:
            rows = Axis(f"{outermost.name}r", floordiv(outermost.extent, lines))
            image = Affine(0, ((rows, lines), (Axis(outermost.name, lines), 1)))
            yield replace_axes(kernel, {outermost: image}), (rows,), lines


def _outermost(access: Access, buffer: Buffer) -> Axis | None:
    """The outermost axis of an access whose steps divide all of a buffer; None for a flat one."""
    for axis, stride in access.terms:
        if stride != 1 and stride * axis.extent == buffer.size:
            return axis
    return None


def _lines_of_a_row(access: Access, outermost: Axis, behind: Sequence[Stmt]) -> int:
    """How many steps of the outermost axis a row of a reader takes, such as a pool's; or 1."""
    kernels = (statement for statement in behind if isinstance(statement, Kernel))
    reader = next((kernel for kernel in kernels if access.buffer in kernel.reads()), None)
    for load in reader.loads() if reader is not None else ():
        for axis, stride in load.access.terms if load.access.buffer == access.buffer else ():
            lines = exact_quotient(stride, access.stride(outermost))
            if isinstance(lines, int) and axis.extent * lines == outermost.extent:
                return lines
    return 1


def _in_order(access: Access) -> tuple[Axis, ...]:
    """The axes of an access, outermost first, if it visits all elements in order; else none."""
    terms, axes = [*access.terms], list[Axis]()
    expected: Size = 1
    while terms:
        found = next((term for term in terms if term[1] == expected), None)
        if found is None:
            return ()
        terms.remove(found)
        axes.insert(0, found[0])
        expected = expected * found[0].extent
    return tuple(axes) if access.offset == 0 else ()


def _joined(run: _Run, body: Sequence[Stmt], buffers: Mapping[str, Buffer]) -> _Run:
    """Extend a run as far as possible; statements that do not depend on it can run before."""
    read, written = run.kernels[0].reads(), run.kernels[0].writes()
    users = {name: [run.kernels[0]] for name in read | written}
    passed: list[Stmt] = []
    for statement in body[1:]:
        shared = (statement.reads() & written) | (statement.writes() & (read | written))
        if not shared:
            passed.append(statement)
            continue
        if not isinstance(statement, Kernel) or not _is_plain(statement):
            break
        longer = run.with_kernel(statement, shared, users, buffers)
        if longer is None:
            break
        run = replace(longer, before=tuple(passed))
        for name in statement.reads() | statement.writes():
            users.setdefault(name, []).append(statement)
        read |= statement.reads()
        written |= statement.writes()
    return run


def _with_block(run: _Run, buffers: Mapping[str, Buffer], machine: Machine) -> _Run:
    """Choose the rows of a block so that local buffers stay in the cache."""
    row, extent = run.row_bytes(buffers), run.rows[-1].extent
    if row == 0:
        return run
    least = -(-LEAST_ROWS // run.points(buffers))
    most = max(machine.panel_bytes // row, least) if isinstance(row, int) else LEAST_ROWS
    if not isinstance(extent, int):
        return replace(run, block=most)
    if most >= extent:
        return replace(run, block=extent if len(run.rows) > 1 else 0)
    even = max(n for n in range(1, most + 1) if extent % n == 0)
    return replace(run, block=even if 2 * even > most else most)


def _may_pay(run: _Run, buffers: Mapping[str, Buffer], machine: Machine) -> bool:
    """Whether passing less through memory saves more than reading shared operands again costs.

    Without blocks, what is passed on is written to memory and read from it. Where only the run
    could tell, kernels are compiled three times, for blocks, for the rest of them and for all rows,
    which only products of several matrices are worth. Images of any size are as many matrices as a
    run has lines: without blocks they take 0.95 to 1.04 of the time (MobileNetV2, PP-OCRv4) and
    load in half of it. A single line of an image is less than the image, also where it exceeds the
    cache: 3 x 3 filters of 64 channels over 90 x 1280 pixels take 0.83 of the time
    (`benchmarks.versions --onnx`).
    """
    row = run.row_bytes(buffers)
    if run.block > 1 and isinstance(row, int) and run.block * row > machine.second_level_bytes:
        return False
    if run.parts_lines(buffers):
        return False
    excesses, outer = _excesses(run, buffers, machine), [a.extent for a in run.rows[:-1]]
    if not all(map(is_nonnegative, excesses)):
        known = any(isinstance(excess, int) and excess < 0 for excess in excesses)
        is_image = isinstance(row, int) and any(not isinstance(n, int) for n in outer)
        if known or is_image or not outer:
            return False
    _, second, memory = machine.packed_cycles
    saved = 2 * run.block * row * round(memory / second)
    return is_nonnegative(saved - run.shared_bytes(buffers))


def _excesses(run: _Run, buffers: Mapping[str, Buffer], machine: Machine) -> tuple[Size, Size]:
    """Two sizes, both of which must not be negative for blocks to pay.

    What is passed on must exceed the cache, and either shared operands do not, or what is saved
    outweighs them.
    """
    row, cache = run.row_bytes(buffers), machine.second_level_bytes
    total = row * product([axis.extent for axis in run.rows])
    return total - cache, cache + 2 * run.block * row - run.shared_bytes(buffers)


def _written(run: _Run, buffers: dict[str, Buffer], machine: Machine) -> tuple[Stmt, ...]:
    """The loops of a run, or a branch between these and the kernels, where only a run decides."""
    loops = _looped(run, buffers)
    excess = minimum(*_excesses(run, buffers, machine))
    if is_nonnegative(excess):
        return loops
    sources = run.kernels[0].sources
    decided = decision(f"{run.kernels[0].name}.blocks", sources, excess, 0, buffers)
    return decided, Branch(decided.name, loops, run.kernels)


def _looped(run: _Run, buffers: dict[str, Buffer]) -> tuple[Stmt, ...]:
    """The loops over the rows of a run; adds block-local buffers to `buffers`."""
    *around, blocked = run.rows
    loops = [Axis(f"{axis.name}block", axis.extent) for axis in around]
    images = {a: Affine(0, ((loop, 1),)) for a, loop in zip(around, loops, strict=True)}
    count = floordiv(blocked.extent, run.block)
    rest = blocked.extent - count * run.block
    over, inner = Axis(f"{blocked.name}block", count), Axis(blocked.name, run.block)
    body: list[Stmt] = [*_piece(run, images, over, inner, 0, buffers)]
    if rest != 0:
        over, inner = Axis(f"{blocked.name}rest", 1), Axis(blocked.name, rest)
        body += _piece(run, images, over, inner, count * run.block, buffers)
    for loop in reversed(loops):
        body = [Loop(loop, (), tuple(body), is_independent=True)]
    return tuple(body)


def _piece(
    run: _Run,
    around: Mapping[Axis, Affine],
    over: Axis,
    inner: Axis,
    start: Size,
    buffers: dict[str, Buffer],
) -> tuple[Stmt, ...]:
    """The loop over blocks of equal size, beginning at a row; a single block needs no loop.

    around: the images of the outer axes of rows. over, inner: the loop, and the rows of a block.
    buffers: gets the block-local buffers.
    """
    is_loop = over.extent != 1
    steps = ((over, inner.extent),) if is_loop else ()
    images = {**around, run.rows[-1]: Affine(start, (*steps, (inner, 1)))}
    piece = "block" if start == 0 else "rest"
    for name in sorted(run.local):
        local = f"{name}.{piece}"
        size = _row(run, buffers[name]) * run.block
        buffers[local] = replace(buffers[name], name=local, size=size)
    kernels: list[Kernel] = []
    for kernel in run.kernels:
        groups = run.groups(kernel, buffers)
        assert groups is not None
        places = {axis: _place(group, images) for axis, group in groups.items()}
        moved = replace(
            substitute_kernel(kernel, places),
            name=f"{kernel.name}.{piece}",
            axes=_inner_axes(kernel, groups, run.rows[-1], inner),
        )
        within = _within_block(moved, run, piece, inner, start, buffers)
        kernels.append(within if run.lines == 1 else merged(within))
    return (Loop(over, (), tuple(kernels), is_independent=True),) if is_loop else tuple(kernels)


def _place(group: Sequence[Axis], images: Mapping[Axis, Affine]) -> Affine:
    """The index of several axes that are merged into one."""
    offset: Size = 0
    terms: list[tuple[Axis, Size]] = []
    stride: Size = 1
    for axis in reversed(group):
        offset = offset + images[axis].offset * stride
        terms += [(a, factor * stride) for a, factor in images[axis].terms]
        stride = stride * axis.extent
    return Affine(offset, tuple(terms))


def _inner_axes(kernel: Kernel, groups: Groups, blocked: Axis, inner: Axis) -> tuple[Axis, ...]:
    """The axes of a kernel within a block."""
    axes: list[Axis] = []
    for axis in kernel.axes:
        if axis not in groups:
            axes.append(axis)
        elif blocked in groups[axis]:
            axes.append(inner)
    return tuple(axes)


def _row(run: _Run, buffer: Buffer) -> Size:
    """The distance of a block's rows: whole cache lines, so that no vector crosses one."""
    width, line = run.width(buffer), LINE_BYTES // ITEM_BYTES[buffer.dtype]
    assert width is not None
    if not isinstance(width, int) or width < line:
        return width
    return line * ceildiv(width, line)


def _within_block(
    kernel: Kernel,
    run: _Run,
    piece: str,
    inner: Axis,
    start: Size,
    buffers: Mapping[str, Buffer],
) -> Kernel:
    """The kernel within a block: block-local buffers begin with the block."""

    def inside(access: Access) -> Access:
        if access.buffer not in run.local:
            return access
        width = run.width(buffers[access.buffer])
        assert width is not None
        row = _row(run, buffers[access.buffer])
        terms = tuple(
            (axis, row if axis == inner else stride)
            for axis, stride in access.terms
            if axis in kernel.own_axes
        )
        return Access(f"{access.buffer}.{piece}", access.offset - width * start, terms)

    return map_accesses(kernel, inside)
