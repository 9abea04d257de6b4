"""Kernels by which a run decides between two ways to compute the same."""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Access, sized
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Branch, Buffer, Stmt
from ostinato.sizes.dims import Size


def decision(
    name: str, sources: tuple[str, ...], size: Size, least: int, buffers: dict[str, Buffer]
) -> Kernel:
    """Return a kernel that stores whether `size >= least`, in a new buffer of its name."""
    buffers[name] = Buffer(name, "bool", 1, "arena")
    holds = sized(size) >= least
    return Kernel(name, (), (), (Store(Access(name, 0, ()), holds),), sources=sources)


def decided(
    kernel: Kernel,
    by: str,
    size: Size,
    least: int,
    many: tuple[Stmt, ...],
    buffers: dict[str, Buffer],
) -> list[Stmt]:
    """Branch: `many` where a size is at least `least`, else the kernel, under another name.

    by: a word for what the pass does, which no other pass uses: several may decide about one
    kernel, and every kernel has a name of its own.
    """
    name = f"{kernel.name}.{by}"
    other = replace(kernel, name=f"{kernel.name}.without.{by}")
    return [decision(name, kernel.sources, size, least, buffers), Branch(name, many, (other,))]
