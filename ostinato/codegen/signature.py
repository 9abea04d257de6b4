"""Signatures of the functions of kernels."""

from __future__ import annotations

from ostinato.codegen import safepoints
from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.records import dataclass
from ostinato.sizes.dims import Size


@dataclass(frozen=True)
class Signature:
    """Parameters of a kernel's function: pointers of these buffers, the symbols, outer indices."""

    name: str
    buffers: tuple[str, ...]
    outer: tuple[Axis, ...]


def signature(kernel: Kernel) -> Signature:
    """Parameters of the kernel's function."""
    used: dict[Axis, None] = {}
    accesses = kernel.accesses
    buffers = tuple(dict.fromkeys(access.buffer for access in accesses))
    for access in accesses:
        used.update((axis, None) for axis, _ in access.terms)
    for node in kernel.nodes:
        axis = getattr(node, "axis", None)
        if axis is not None:
            used[axis] = None
    if kernel.tile is not None and kernel.tile.serpentine is not None:
        used[kernel.tile.serpentine] = None
    outer = sorted((axis for axis in used if axis not in kernel.own_axes), key=str)
    return Signature(f"kernel.{kernel.name}", buffers, tuple(outer))


def is_long(time: Size) -> bool:
    """Whether a kernel of this `kernel_time` may take long, so that its function has safepoints.

    Its function then also takes a `%Poll`, which is null in a run whose sizes make it short, and
    returns whether it stopped.
    """
    return not isinstance(time, int) or time >= safepoints.LIMIT
