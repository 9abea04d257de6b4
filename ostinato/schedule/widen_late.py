"""Constants of narrow types are widened where they are read.

    w[k, j] = float32(q[k, j]) * scale[j]
    y[j] = sum_k x[k] * w[k, j]             =>   y[j] = sum_k x[k] * (float32(q[k, j]) * scale[j])

A kernel that only widens constants, 8-bit weights with their scales or 16-bit floats, disappears:
its readers, in loops and branches too, load the constants in the type in which they are stored, and
widen them in registers. Each value is computed by the same operations as before, so results keep
their bits. A product of one row is bound by reading its weights, so it is faster by as much as they
are narrower.

Scales of blocks are constant within a block: where a sum runs over several blocks, its axis is
split into an axis of blocks and one inside of a block. The order of its terms stays. Where a reader
cannot be split so, as where lanes run over several blocks, the values are widened once, while
compiling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ostinato.program.expr import (
    COMPARISONS,
    ITEM_BYTES,
    Access,
    Axis,
    Extent,
    Index,
    Load,
    Op,
    walk,
)
from ostinato.program.interpreter import Array, run
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import (
    Buffer,
    Interface,
    Loop,
    Program,
    Stmt,
    bodies,
    map_kernels,
    statements,
    with_bodies,
)
from ostinato.schedule.index_maps import solve, split_sum
from ostinato.schedule.joining import inlined, points_read
from ostinato.sizes.dims import is_nonnegative, product

# Up to this many elements are widened while compiling: the interpreter takes 0.8 s for them.
_MOST_WIDENED = 1 << 20
# Operations of one instruction: readers of several rows compute them again for every few rows.
_CHEAP = COMPARISONS | set("add sub mul and or xor shl shr select bitcast".split())


def widen_late(program: Program) -> Program:
    """Let the readers of widened constants widen them."""
    writers: dict[str, list[Stmt]] = {}
    readers: dict[str, list[Stmt]] = {}
    for statement in statements(program.body):
        if bodies(statement):
            continue
        for name in statement.writes():
            writers.setdefault(name, []).append(statement)
        for name in statement.reads():
            readers.setdefault(name, []).append(statement)
    kept = {i.buffer for i in program.outputs} | _named(program.body)
    current = {kernel: kernel for kernel in program.kernels()}
    gone: set[Kernel] = set()
    widened: dict[str, Array] = {}
    for kernel in program.kernels():
        writer = current[kernel]
        if not _only_widens(writer, program) or writer.writes() & kept:
            continue
        (name,) = writer.writes()
        using = readers.get(name, [])
        if len(writers[name]) != 1 or not using or not all(isinstance(r, Kernel) for r in using):
            continue
        cut = [_cut_for(writer, current[r]) for r in using if isinstance(r, Kernel)]
        if _saves_half(writer, program) and not any(
            isinstance(points_read(writer, r), str) for r in cut
        ):
            own = (r for r in using if isinstance(r, Kernel))
            current.update((o, inlined(writer, r)) for o, r in zip(own, cut, strict=True))
            gone.add(kernel)
        elif _is_known(writer, program):
            widened[name] = _widened(writer, program)
            gone.add(kernel)
    if not gone:
        return program
    body = map_kernels(_without(program.body, gone), lambda kernel: current[kernel])
    buffers = {n: replace(program.buffers[n], kind="constant") for n in widened}
    program = replace(
        program,
        buffers={**program.buffers, **buffers},
        constants={**program.constants, **widened},
    )
    return program.with_body(body)


def _is_known(kernel: Kernel, program: Program) -> bool:
    """Whether a kernel stores all of a small buffer, with values that are the same in any run."""
    (store,) = kernel.stores
    size, own = program.buffers[store.access.buffer].size, set(kernel.axes)
    accesses = [store.access, *(load.access for load in kernel.loads())]
    axes = {axis for access in accesses for axis, _ in access.terms}
    nodes = list(walk(store.value))
    axes |= {node.axis for node in nodes if isinstance(node, Index)}
    is_whole = product([axis.extent for axis in kernel.axes]) == size
    is_fixed = kernel.guard is None and not any(isinstance(node, Extent) for node in nodes)
    return axes <= own and is_whole and is_fixed and is_nonnegative(_MOST_WIDENED - size)


def _widened(kernel: Kernel, program: Program) -> Array:
    """Compute what the kernel stores, in the order of memory."""
    (store,) = kernel.stores
    name = store.access.buffer
    buffers = {n: program.buffers[n] for n in kernel.reads()}
    buffers[name] = replace(program.buffers[name], kind="output")
    size, dtype = buffers[name].size, buffers[name].dtype
    constants = {n: program.constants[n] for n in kernel.reads()}
    output = Interface(name, name, dtype, (size,))
    return run(Program((), (output,), (), buffers, constants, (kernel,)), {})[name]


def _named(body: tuple[Stmt, ...]) -> set[str]:
    """Buffers that loops, branches and requirements name."""
    found: set[str] = set()
    for statement in statements(body):
        if isinstance(statement, Kernel):
            continue
        inner = [name for part in bodies(statement) for s in part for name in s.reads()]
        found |= statement.reads() - set(inner)
        found |= statement.carried if isinstance(statement, Loop) else frozenset()
    return found


def _without(body: tuple[Stmt, ...], gone: set[Kernel]) -> tuple[Stmt, ...]:
    kept = (s for s in body if not (isinstance(s, Kernel) and s in gone))
    return tuple(with_bodies(s, lambda inner: _without(inner, gone)) for s in kept)


def _only_widens(kernel: Kernel, program: Program) -> bool:
    """Whether a kernel only computes wider elements of constants."""
    if kernel.reductions or kernel.ordered or len(kernel.stores) != 1:
        return False
    (store,) = kernel.stores
    written, loads = program.buffers[store.access.buffer], list(kernel.loads())
    constants = [program.buffers[load.access.buffer] for load in loads]
    if written.kind != "arena" or store.partial or not constants:
        return False
    if any(b.kind != "constant" for b in constants) or any(x.mask or x.index for x in loads):
        return False
    operations = {node.name for node in walk(store.value) if isinstance(node, Op)}
    is_narrow = any(ITEM_BYTES[b.dtype] < ITEM_BYTES[written.dtype] for b in constants)
    return is_narrow and operations <= _CHEAP and isinstance(written.size, int)


def _saves_half(kernel: Kernel, program: Program) -> bool:
    """Whether what the kernel reads has at most half of the bytes of its results."""
    (store,) = kernel.stores
    wide = program.buffers[store.access.buffer].size * ITEM_BYTES["float32"]
    narrow = _bytes(program.buffers[load.access.buffer] for load in kernel.loads())
    return is_nonnegative(wide - 2 * narrow)


def _bytes(buffers: Iterable[Buffer]) -> int:
    sizes = [(b.size, ITEM_BYTES[b.dtype]) for b in {b.name: b for b in buffers}.values()]
    return sum(size * item for size, item in sizes if isinstance(size, int))


def _cut_for(producer: Kernel, reader: Kernel) -> Kernel:
    """Split the axes of the reader's sums where those of the producer are split."""
    (store,) = producer.stores
    own = store.access.terms
    for reduce in reader.reductions:
        for load in walk(*reduce.operands):
            if not isinstance(load, Load) or load.access.buffer != store.access.buffer:
                continue
            if solve(store.access, producer.axes, load.access) is not None:
                continue
            for axis in reduce.axes:
                reader = _cut(reader, axis, load.access, [stride for _, stride in own])
    return reader


def _cut(kernel: Kernel, axis: Axis, access: Access, strides: Sequence[object]) -> Kernel:
    """Split an axis of the kernel's sums at the least of the strides above its own."""
    step, extent = access.stride(axis), axis.extent
    if not isinstance(step, int) or not isinstance(extent, int) or step < 1:
        return kernel
    lengths = [s // step for s in strides if isinstance(s, int) and s > step and s % step == 0]
    length = min((n for n in lengths if n < extent and extent % n == 0), default=None)
    if length is None or any(
        length % r.chains or axis != r.axes[-1] for r in kernel.reductions if axis in r.axes
    ):
        return kernel
    return split_sum(kernel, axis, length)
