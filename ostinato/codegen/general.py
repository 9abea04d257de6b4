"""One function for kernels that differ in their sizes, which become its parameters.

Sizes that only a run tells are parameters in any case: two networks in one model, for chunks of
other lengths, have the same functions. A network may also have hundreds of layers of which no two
have the same sizes. A function for each takes hundreds of times as long to compile, and is hardly
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeGuard

from ostinato.codegen.alike import form
from ostinato.program.expr import Expr, children, walk
from ostinato.program.nodes import Buffer, Kernel
from ostinato.program.resized import Resized
from ostinato.records import dataclass
from ostinato.sizes.dims import Atom, Dim, Size, is_nonnegative, symbol, terms_of
from ostinato.sizes.substitution import renamed

# So many functions of one form take LLVM 0.3 s (`python -m benchmarks.bench_compile`). Of dense
# layers the general one is as fast, of convolutions up to 2 % slower.
MANY = 8
# Smaller numbers decide what is unrolled, and how lanes are loaded.
LEAST = 17


@dataclass(frozen=True)
class General:
    """A kernel with parameters in its sizes, which the names tell, and their values for it."""

    kernel: Kernel
    names: tuple[str, ...]
    values: tuple[Size, ...]


def generalise(
    kernels: Iterable[Kernel], buffers: Mapping[str, Buffer], symbols: Collection[str] = ()
) -> dict[str, General]:
    """The general forms of kernels by name: alike ones are those that have equal forms.

    What only a run tells is a parameter: a dimension, and each function of dimensions that is no
    polynomial. Of kernels that are `MANY` and differ in nothing but numbers, so are the numbers.

    symbols: the names that sizes of kernels have already.
    """
    prefix = "number"
    while any(name.startswith(prefix) for name in symbols):
        prefix += "'"
    general = {kernel.name: _for_any_run(kernel, f"{prefix}.run") for kernel in kernels}
    if len(general) < MANY:
        return general
    groups: dict[Hashable, dict[str, list[int]]] = {}
    any_size = symbol(prefix)
    for name, one in general.items():
        found: list[int] = []
        skeleton = form(Resized(_note(found, any_size)).of(one.kernel), buffers)
        groups.setdefault((skeleton, _shared(one.kernel)), {})[name] = found
    for members in groups.values():
        rows = list(members.values())
        if len({*map(tuple, rows)}) < MANY:
            continue
        columns = list(zip(*rows, strict=True))
        # Numbers that are the same everywhere stay what they are; equal ones are one parameter.
        varying = list(dict.fromkeys(c for c in columns if not _is_fixed(c)))
        names = {column: f"{prefix}.{i}" for i, column in enumerate(varying)}
        places = [symbol(names[c]) if c in names else c[0] for c in columns]
        first = general[next(iter(members))]
        kernel = Resized(_put(iter(places))).of(first.kernel)
        for name, *values in zip(members, *varying, strict=True):
            run = general[name]
            general[name] = General(kernel, (*run.names, *names.values()), (*run.values, *values))
    return general


def _shared(kernel: Kernel) -> tuple[tuple[int, ...], ...]:
    """Which operands its expressions have in common, which is not to be seen in a skeleton.

    `x[100:] * x[100:]` has one load and one number, `x[100:] * x[200:]` has two.
    """
    numbers: dict[Expr, int] = {}
    for node in walk(*kernel.expressions()):
        numbers[node] = len(numbers)
    below = [tuple([numbers[part] for part in children(node)]) for node in numbers]
    return (*below, tuple([numbers[root] for root in kernel.expressions()]))


def _is_fixed(column: tuple[int, ...]) -> bool:
    return len({*column}) == 1


def _is_large(size: Size) -> TypeGuard[int]:
    return isinstance(size, int) and size >= LEAST


def _note(found: list[int], instead: Size) -> Callable[[Size], Size]:
    """Collect large numbers, for which there is something else."""

    def change(size: Size) -> Size:
        if not _is_large(size):
            return size
        found.append(size)
        return instead

    return change


def _put(places: Iterator[Size]) -> Callable[[Size], Size]:
    """Others in the place of large numbers, in the order in which `_note` finds them."""
    return lambda size: next(places) if _is_large(size) else size


def _for_any_run(kernel: Kernel, prefix: str) -> General:
    """The kernel with parameters for what only a run tells, numbered as they are met.

    What is added to a dimension, or to a function, where it is met first is part of its parameter:
    lengths of `N // 4 - 1` and of `N // 2 - 3` are as good.
    """
    values: list[Size] = []
    parameters: dict[Atom, Size] = {}

    def change(size: Size) -> Size:
        for monomial, _ in terms_of(size):
            for atom in monomial:
                if atom not in parameters:
                    value = _with_number(size, atom)
                    one = symbol(f"{prefix}{len(values)}", signed=not is_nonnegative(value))
                    values.append(value)
                    parameters[atom] = one - (value - Dim((((atom,), 1),)))
        return renamed(size, parameters.__getitem__)

    changed = Resized(change).of(kernel)
    if not values:
        return General(kernel, (), ())
    return General(changed, tuple(f"{prefix}{i}" for i in range(len(values))), tuple(values))


def _with_number(size: Size, atom: Atom) -> Size:
    """The size, if it is an atom and a number, else the atom."""
    one = Dim((((atom,), 1),))
    return size if isinstance(size - one, int) else one
