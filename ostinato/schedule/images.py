"""Kernels over a batch of large images run for one image after the other.

    for n, i: b[n, i] = f(x[n, i])           for n:
    for n, i: y[n, i] = g(b[n, i])     =>        for i: b[i] = f(x[n, i])
                                                 for i: y[n, i] = g(b[i])

Buffers between the kernels then have the size of one image, and stay in a cache that a batch of
them exceeds. What is computed for each element stays the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Load
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, count_uses, map_kernels, statements
from ostinato.schedule.borders import Box, narrow
from ostinato.schedule.operands import estimate
from ostinato.schedule.rows import is_apart, one_block, rows_first
from ostinato.sizes.bounds import is_never_negative
from ostinato.sizes.dims import Size, exact_quotient, is_nonnegative

# The least rank of a batch of images: channels and a length, or height and width.
_LEAST_RANK = 3
# This many images exceed the cache together, where only a run tells how many there are:
# EfficientNet-B0 and MobileViT take 0.91 of the time for 4 images, 1.0 to 1.04 for a single one
# (with the pass and without it, by turns). Where only a run tells how large they are, a single one
# of a typical size has to: BC-ResNet, FRCRN and HiFi-GAN then take 0.85 to 0.93 of the time for 8
# images and 0.97 to 1.01 for one; a few small kernels (CRDNN), which would share less memory, 1.06.
_FEW_IMAGES = 4


def by_images(program: Program, machine: Machine) -> Program:
    """Turn runs of kernels over the images of a batch into loops over images."""
    counts = Counter(i.shape[0] for i in program.inputs if len(i.shape) >= _LEAST_RANK)
    if not counts:
        return program
    ((count, _),) = counts.most_common(1)
    if count in (0, 1):
        return program
    buffers, uses = dict(program.buffers), count_uses(program.body)
    body: list[Stmt] = []
    # Each statement as it is, and with the images as the first axis of its kernels.
    run: list[tuple[Stmt, Stmt]] = []
    before: list[Stmt] = []
    # All statements so far, as they stand in the program.
    met: list[Stmt] = []
    read: set[str] = set()
    written: set[str] = set()
    for statement in (*program.body, None):
        whole = None if statement is None else _of_images(statement, count, buffers, machine)
        if statement is not None and whole is not None:
            run.append((statement, whole))
            read |= statement.reads()
            written |= statement.writes()
        elif statement is not None and run and is_apart(statement, read, written):
            before.append(statement)
        else:
            loop = _looped(run, count, buffers, uses, machine)
            body += met if loop is None else [*before, loop]
            run, before, met, read, written = [], [], [], set(), set()
        if statement is not None:
            (met if run else body).append(statement)
    return program.with_body(tuple(body), buffers)


def _of_images(
    statement: Stmt,
    count: Size,
    buffers: Mapping[str, Buffer],
    machine: Machine,
    around: tuple[Axis, ...] = (),
) -> Stmt | None:
    """Make images the first axis of a statement's kernels; None where that is not possible.

    around: the axes of the loops around it, along which images add up.
    """
    if isinstance(statement, Loop) and not statement.carries and statement.condition is None:
        around = (*around, statement.axis)
        body = [_of_images(s, count, buffers, machine, around) for s in statement.body]
        found = tuple(s for s in body if s is not None)
        return replace(statement, body=found) if len(found) == len(body) else None
    if isinstance(statement, Kernel):
        return _kernel_of_images(statement, count, buffers, machine, around)
    return None


def _kernel_of_images(
    kernel: Kernel,
    count: Size,
    buffers: Mapping[str, Buffer],
    machine: Machine,
    around: tuple[Axis, ...],
) -> Kernel | None:
    """Make images the first axis of the kernel; None where one image reads elements of another.

    Nor where it reads weights alone, or where these, which each image reads again, exceed the cache
    and are more than what the kernel reads of the image.
    """
    partial = any(store.partial for store in kernel.stores)
    if not kernel.axes or kernel.ordered or kernel.guard is not None or kernel.sizes or partial:
        return None
    access = kernel.stores[0].access
    size = buffers[access.buffer].size
    axis = next((a for a in kernel.axes if access.stride(a) * a.extent == size), None)
    whole = None if axis is None else rows_first(kernel, axis, count)
    if whole is None:
        return None
    image = whole.axes[0]
    weights = own = 0
    loads: list[tuple[Access, Load | None]] = [(load.access, load) for load in whole.loads()]
    stores: list[tuple[Access, Load | None]] = [(store.access, None) for store in whole.stores]
    for access, load in (*loads, *stores):
        buffer, step = buffers[access.buffer], access.stride(image)
        if buffer.kind == "constant":
            weights += _bytes(buffer, buffer.size)
            continue
        if step * count != buffer.size:
            return None
        if buffer.kind != "input" and not _stays(access, load, image, step, whole, around):
            return None
        own += _bytes(buffer, step)
    reads_weights_alone = all(buffers[x.access.buffer].kind == "constant" for x in whole.loads())
    if weights and reads_weights_alone:
        return None
    return whole if weights <= max(own, machine.panel_bytes) else None


def _bytes(buffer: Buffer, size: Size) -> int:
    """Bytes of `size` elements; of a typical number where only a run tells."""
    return estimate(size) * ITEM_BYTES[buffer.dtype]


def _stays(
    access: Access,
    load: Load | None,
    image: Axis,
    step: Size,
    kernel: Kernel,
    around: tuple[Axis, ...],
) -> bool:
    """Whether each image accesses only its own elements."""
    if load is not None and load.index:
        return False
    axes = [*around, *kernel.axes, *(axis for r in kernel.reductions for axis in r.axes)]
    box: Box = {axis: (0, axis.extent) for axis in axes}
    if load is not None and load.mask is not None:
        narrow(box, load.mask)
    low = high = access.offset
    for axis, stride in access.terms:
        if axis == image:
            continue
        if not is_nonnegative(stride):
            return False
        first, end = box[axis]
        low, high = low + stride * first, high + stride * (end - 1)
    return is_never_negative(low) and is_never_negative(step - 1 - high)


def _looped(
    run: Sequence[tuple[Stmt, Stmt]],
    count: Size,
    buffers: dict[str, Buffer],
    uses: Mapping[str, int],
    machine: Machine,
) -> Loop | None:
    """Turn the statements of a run into a loop over images; None where that gains nothing."""
    given = [statement for statement, _ in run]
    inside = count_uses(tuple(given))
    written = {name for statement in given for name in statement.writes()}
    local = {n for n in written if buffers[n].kind == "arena" and inside[n] == uses[n]}
    sizes = {n: exact_quotient(buffers[n].size, count) for n in local}
    each = [_bytes(buffers[n], size) for n, size in sizes.items() if size is not None]
    is_large = max(each, default=0) > machine.near_bytes
    images = count if isinstance(count, int) else _FEW_IMAGES
    if not all(isinstance(size, int) for size in sizes.values()):
        images = 1
    if len(each) < len(sizes) or not is_large or images * sum(each) <= machine.second_level_bytes:
        return None
    first = next(s for s in statements((run[0][1],)) if isinstance(s, Kernel))
    loop = Axis(f"{first.axes[0].name}n", count)
    body = map_kernels(
        tuple(whole for _, whole in run), lambda kernel: one_block(kernel, loop, 1, local)
    )
    for name, size in sizes.items():
        assert size is not None
        buffers[name] = replace(buffers[name], size=size)
    return Loop(loop, (), body, is_independent=True)
