"""Kernels by which a run decides between two ways to compute the same."""

from __future__ import annotations

from ostinato.program.expr import Access, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Buffer
from ostinato.schedule.index_maps import size_expr
from ostinato.sizes.dims import Size


def decision(
    name: str, sources: tuple[str, ...], size: Size, least: int, buffers: dict[str, Buffer]
) -> Kernel:
    """Stores whether a size is at least so large, in a new buffer of the kernel's name."""
    buffers[name] = Buffer(name, "bool", 1, "arena")
    holds = op("ge", size_expr(size), constant(least, "int64"))
    return Kernel(name, (), (), (Store(Access(name, 0, ()), holds),), sources=sources)
