"""The functions of a program's kernels; kernels that are alike share one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import field, replace
from functools import lru_cache

from ostinato.codegen import safepoints
from ostinato.codegen.general import generalise
from ostinato.codegen.kernels import KernelEmitter
from ostinato.codegen.signature import is_long, signature
from ostinato.codegen.target import Target
from ostinato.machine.record import Machine
from ostinato.program.expr import Const
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer, Program
from ostinato.records import dataclass
from ostinato.schedule.matrices import takes_pairs, takes_tiles
from ostinato.schedule.share import Part
from ostinato.schedule.times import kernel_time
from ostinato.sizes.dims import Size


@dataclass(frozen=True)
class Wanted:
    """What the function of a kernel depends on, and one of the kernels that are alike.

    numbers: symbols that are parameters. divided: the position of the axis along which threads
    divide it, and the unit.
    """

    form: Hashable
    symbols: tuple[str, ...]
    numbers: tuple[str, ...]
    machine: Machine
    is_watched: bool
    divided: tuple[int, int] | None
    kernel: Kernel = field(compare=False)
    buffers: Mapping[str, Buffer] = field(compare=False)
    part: Part | None = field(compare=False)


@dataclass(frozen=True)
class KernelFunction:
    """The function that a kernel calls, and its parameters beside buffers and indices.

    is_long: as from `signature.is_long`.
    """

    name: str
    numbers: tuple[Size, ...]
    literals: tuple[Const, ...]
    is_long: bool


def functions_of(
    program: Program,
    declarations: set[str],
    target: Target,
    parts: Mapping[str, Part],
    is_watched: bool,
    written: Callable[[str, Collection[str]], None],
) -> tuple[list[str], dict[str, KernelFunction]]:
    """The functions of all kernels, and which of them each kernel calls, by name.

    written: is told of each function at once, and of what it needs declared.
    """
    names: dict[Wanted, str] = {}
    texts: list[str] = []
    shared: dict[str, KernelFunction] = {}
    kernels = [kernel for kernel in program.kernels() if not is_empty(kernel)]
    # The share of a thread follows from the sizes of its kernel, and so do products of matrices.
    sized = {k.name for k in kernels if k.name in parts or takes_tiles(k) or takes_pairs(k)}
    general = generalise(kernels, program.buffers, program.symbols, sized)
    for special in kernels:
        found = general[special.name]
        kernel, name = found.kernel, signature(special).name
        place, part = None, parts.get(special.name)
        if part is not None:
            # The kernel that stands for it has axes of its own, in the same order.
            place = special.axes.index(part.axis)
            part = replace(part, axis=kernel.axes[place])
        wanted = Wanted(
            found.form,
            program.symbols,
            found.names,
            target.machine,
            is_watched,
            None if place is None or part is None else (place, part.unit),
            kernel,
            program.buffers,
            part,
        )
        first = names.setdefault(wanted, name)
        time = kernel_time(kernel, safepoints.LIMIT)
        is_slow = is_watched and is_long(time)
        shared[name] = KernelFunction(first, found.values, found.literals, is_slow)
        if first == name:
            linkage, function, declared = function_text(wanted)
            texts.append(f'{linkage}@"{name}"{function}')
            declarations |= declared
            written(texts[-1], declared)
    return texts, shared


# A model that is compiled again for other sizes or options has most kernels in common.
@lru_cache(maxsize=128)
def function_text(wanted: Wanted) -> tuple[str, str, frozenset[str]]:
    """The function's text before and after its name, and what it declares."""
    declarations: set[str] = set()
    emitter = KernelEmitter(
        wanted.kernel,
        wanted.buffers,
        wanted.symbols,
        declarations,
        wanted.machine,
        wanted.part,
        wanted.is_watched,
        wanted.numbers,
    )
    linkage, _, function = emitter.text().partition(f'@"{signature(wanted.kernel).name}"')
    return linkage, function, frozenset(declarations)


def is_empty(kernel: Kernel) -> bool:
    """Whether the kernel has no points, whatever the run-time dimensions are."""
    return any(axis.extent == 0 for axis in kernel.axes)
