"""One function for kernels that differ in sizes and literals, which become its parameters.

Sizes that only a run tells are parameters in any case: two networks in one model, for chunks of
different lengths, have the same functions. A network may also have hundreds of layers with distinct
sizes or, if it is quantised, distinct scales. A function for each takes hundreds of times as long
to compile, and is hardly faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from ostinato.codegen.alike import form
from ostinato.program.expr import FLOATS, Const, Expr, Given, Op, children, constant, walk
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer
from ostinato.program.resized import Resized
from ostinato.records import dataclass
from ostinato.sizes.dims import Atom, Dim, Size, is_nonnegative, symbol, terms_of
from ostinato.sizes.substitution import renamed

# This many functions of one form take LLVM 0.3 s (`python -m benchmarks.bench_compile`). For dense
# layers the general function is as fast, for convolutions up to 2 % slower.
MANY = 8
# Smaller numbers decide what is unrolled, and how lanes are loaded.
LEAST = 17
# The same where only literals differ, which decide nothing.
FEW = 3
# Longer sums of dimensions are one parameter; short ones are what functions have in common. 32
# tensors of run-time lengths are joined by 9 functions, compiled in 0.12 s; where sums of 8 were
# short, by 13 in 0.15 s, and if all were, by 35 in 0.36 s.
_LONGEST_SUM = 4
# The types of scales and zero points. Shifts and masks, which decide what one instruction can load
# or look up, have other types.
_LITERALS = (*FLOATS, "uint8", "int8", "uint16", "int16")

_NO_SIZES: tuple[Size, ...] = ()

# A value that may become a parameter of a function.
_Place: TypeAlias = "int | Const"
# Kernels that are alike, by name, and the values that they have in the places noted.
_Member: TypeAlias = "tuple[Mapping[str, General], list[_Place]]"


@dataclass(frozen=True)
class General:
    """A kernel with parameters, and their values for it.

    form: that of the kernel. names: those of parameters in its sizes. literals: the values of its
    `Given`.
    """

    kernel: Kernel
    form: Hashable
    names: tuple[str, ...] = ()
    values: tuple[Size, ...] = ()
    literals: tuple[Const, ...] = ()


def generalise(
    kernels: Iterable[Kernel],
    buffers: Mapping[str, Buffer],
    symbols: Collection[str],
    special: Collection[str],
) -> dict[str, General]:
    """Give kernels general forms, by name; kernels with equal forms can share a function.

    Values that only a run tells are parameters: dimensions, and functions of dimensions that are no
    polynomials. Where `MANY` kernels differ in nothing but numbers and literals, these are
    parameters too; where `FEW` kernels differ in literals alone, the literals are.

    symbols: the names that sizes of kernels have already. special: names of kernels that keep their
    sizes.
    """
    prefix = "number"
    while any(name.startswith(prefix) for name in symbols):
        prefix += "'"
    general: dict[str, General] = {}
    for kernel in kernels:
        one, values = kernel, _NO_SIZES
        if kernel.name not in special:
            one, values = _for_any_run(kernel, f"{prefix}.run")
        names = tuple([f"{prefix}.run{i}" for i in range(len(values))])
        general[kernel.name] = General(one, form(one, buffers), names, values)
    whole = {name: one for name, one in general.items() if name not in special}
    general |= _united(whole, buffers, prefix, MANY)
    rest = {name: one for name, one in general.items() if not one.literals}
    return general | _united(rest, buffers, None, FEW)


def _united(
    kernels: Mapping[str, General], buffers: Mapping[str, Buffer], prefix: str | None, least: int
) -> dict[str, General]:
    """Unite kernels of which at least `least` differ in literals alone, or in numbers too.

    prefix: of the names of parameters in place of numbers; None if these stay.
    """
    if prefix is None:
        # All other kernels differ in nothing that is noted.
        kernels = {name: one for name, one in kernels.items() if _has_literals(one.kernel)}
    alike: defaultdict[Hashable, dict[str, General]] = defaultdict(dict)
    for name, one in kernels.items():
        alike[one.form][name] = one
    if len(alike) < least:
        return {}
    # The first of several equal kernels stands for all.
    outlines: defaultdict[Hashable, list[dict[str, General]]] = defaultdict(list)
    for same in alike.values():
        outlines[_outline(_first(same).kernel)].append(same)
    groups: defaultdict[Hashable, list[_Member]] = defaultdict(list)
    for outline, members in outlines.items():
        for same in members if len(members) >= least else ():
            found: list[_Place] = []
            skeleton = form(_noted(_first(same).kernel, found, prefix), buffers)
            groups[outline, skeleton].append((same, found))
    result: dict[str, General] = {}
    for group in groups.values():
        if len({tuple(places) for _, places in group}) >= least:
            result |= _as_one(group, buffers, prefix)
    return result


def _as_one(
    group: Sequence[_Member], buffers: Mapping[str, Buffer], prefix: str | None
) -> dict[str, General]:
    """A general kernel for all members, each with the values that it has in the places noted."""
    columns = list(zip(*[places for _, places in group], strict=True))
    # Values that are the same everywhere stay; equal columns are one parameter.
    varying = list(dict.fromkeys(column for column in columns if not _is_fixed(column)))
    names: dict[tuple[_Place, ...], str] = {}
    given: dict[tuple[_Place, ...], Given] = {}
    for column in varying:
        if isinstance(column[0], Const):
            given[column] = Given(len(given), column[0].dtype)
        else:
            names[column] = f"{prefix}.{len(names)}"
    sizes = (symbol(names[c]) if c in names else c[0] for c in columns if isinstance(c[0], int))
    literals = (given.get(c, c[0]) for c in columns if isinstance(c[0], Const))
    kernel = _put(_first(group[0][0]).kernel, sizes, literals, prefix)
    common = form(kernel, buffers)
    result: dict[str, General] = {}
    for same, places in group:
        values = dict(zip(columns, places, strict=True))
        sized = tuple([size for c in names if isinstance(size := values[c], int)])
        filled = tuple([const for c in given if isinstance(const := values[c], Const)])
        for name, one in same.items():
            named = (*one.names, *names.values())
            result[name] = General(kernel, common, named, (*one.values, *sized), filled)
    return result


def _first(same: Mapping[str, General]) -> General:
    return next(iter(same.values()))


def _outline(kernel: Kernel) -> Hashable:
    """A key of a kernel's operations, and of which operands they have in common.

    Without numbers the kernel does not show the latter: `x[100:] * x[100:]` has one load and one
    number, `x[100:] * x[200:]` has two.
    """
    numbers: dict[Expr, int] = {}
    lines: list[Hashable] = []
    for node in walk(*kernel.expressions()):
        numbers[node] = len(numbers)
        kind = node.name if isinstance(node, Op) else type(node)
        lines.append((kind, *[numbers[part] for part in children(node)]))
    return (*lines, *[numbers[root] for root in kernel.expressions()])


def _is_fixed(column: tuple[_Place, ...]) -> bool:
    return len({*column}) == 1


def _is_large(size: Size) -> TypeGuard[int]:
    return isinstance(size, int) and size >= LEAST


def _noted(kernel: Kernel, found: list[_Place], prefix: str | None) -> Kernel:
    """Replace literals and large numbers of a kernel by placeholders; collect them in `found`."""

    def number(size: Size) -> Size:
        if prefix is None or not _is_large(size):
            return size
        found.append(size)
        return symbol(prefix)

    def literal(const: Const) -> Expr:
        found.append(const)
        return constant(0, const.dtype)

    return Resized(number, _of_literals(literal)).of(kernel)


def _put(
    kernel: Kernel, sizes: Iterator[Size], literals: Iterator[Expr], prefix: str | None
) -> Kernel:
    """Put sizes and literals into the places of a kernel that `_noted` finds, in its order."""

    def number(size: Size) -> Size:
        return size if prefix is None or not _is_large(size) else next(sizes)

    return Resized(number, _of_literals(lambda _: next(literals))).of(kernel)


def _has_literals(kernel: Kernel) -> bool:
    return any(isinstance(node, Const) and node.dtype in _LITERALS for node in kernel.nodes)


def _of_literals(change: Callable[[Const], Expr]) -> Callable[[Const], Expr]:
    return lambda const: change(const) if const.dtype in _LITERALS else const


def _for_any_run(kernel: Kernel, prefix: str) -> tuple[Kernel, tuple[Size, ...]]:
    """Make parameters of what only a run tells, numbered as they are met; also give their values.

    A constant that is added to a dimension, or to a function, where it is met first belongs to its
    parameter: lengths of `N // 4 - 1` and of `N // 2 - 3` can share one. A sum of many dimensions,
    as where one part of a joined value begins behind others, is one parameter: each part would have
    one more.
    """
    values: list[Size] = []
    parameters: dict[Atom, Size] = {}
    sums: dict[Size, Size] = {}

    def parameter(value: Size) -> Size:
        values.append(value)
        return symbol(f"{prefix}{len(values) - 1}", signed=not is_nonnegative(value))

    def change(size: Size) -> Size:
        if isinstance(size, int):
            return size
        if len(terms_of(size)) > _LONGEST_SUM:
            if size not in sums:
                sums[size] = parameter(size)
            return sums[size]
        for monomial, _ in terms_of(size):
            for atom in monomial:
                if atom not in parameters:
                    value = _with_number(size, atom)
                    parameters[atom] = parameter(value) - (value - Dim((((atom,), 1),)))
        return renamed(size, parameters.__getitem__)

    changed = Resized(change).of(kernel)
    return (changed, tuple(values)) if values else (kernel, ())


def _with_number(size: Size, atom: Atom) -> Size:
    """The size if it is an atom plus a number, else the atom."""
    others = [term for term in terms_of(size)[:3] if term[0] and term != ((atom,), 1)]
    return Dim((((atom,), 1),)) if others else size
