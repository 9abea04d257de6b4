"""Scalar expressions of a kernel.

Nodes are interned: building the same expression twice gives the same object. So equality is
identity, shared subexpressions are shared nodes, and every stage can memoise on the node itself.

Arithmetic means exactly what it says: no re-association, and a multiply-add is fused only where the
program says `fma`. Every stage that evaluates expressions therefore gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ostinato.records import dataclass
from ostinato.sizes.dims import Dim, Size, is_nonnegative
from ostinato.sizes.interned import Interned

FLOATS = ("float32", "float64")
# Types of storage only: arithmetic happens in float32, between conversions.
HALVES = ("float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Types of storage only, one byte each: a conversion is a bitcast and arithmetic on integers.
BYTE_FLOATS = tuple(
    f"float8_{form}" for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
)
DTYPES = (*FLOATS, *HALVES, *BYTE_FLOATS, *INTEGERS, "bool")

ITEM_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(BYTE_FLOATS, 1),
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "bool": 1,
}

# Evaluated directly by the interpreter and by the code generator. min and max propagate NaN.
# larger(a, b) is b where b > a, else a, so a NaN in b is passed over. Integer div rounds toward
# zero and mod takes the sign of the divisor; a zero divisor gives 0. shr is logical. dot(a, b, c)
# is c plus the products of the four unsigned bytes of a and the four signed bytes of b;
# dot_pairs(a, b, c) that of the two signed halves of both.
PRIMITIVES = frozenset(
    "add sub mul div mod fma dot dot_pairs neg abs sqrt min max larger floor ceil rint trunc "
    "eq ne lt le gt ge and or xor not shl shr select bitcast".split()
)
COMPARISONS = frozenset("eq ne lt le gt ge".split())


@dataclass(frozen=True, eq=False)
class Axis(metaclass=Interned):
    """A loop index running from 0 to `extent - 1`. Names are unique within a program."""

    name: str
    extent: Size

    def __str__(self) -> str:
        return self.name


Number: TypeAlias = "Expr | Size | float"
"""An operand: a size is an int64."""


@dataclass(frozen=True, eq=False)
class Expr(metaclass=Interned):
    """Base of all expression nodes; every node has a `dtype`.

    Python's operators make nodes, for which numbers become literals: `2.0 * x`, `-x`, `x < 0`,
    `p & q`, `~p`. What `==` compares are the nodes themselves.
    """

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str: ...

    def __add__(self, other: Number) -> Expr:
        return op("add", self, literal(other, self))

    def __radd__(self, other: float) -> Expr:
        return literal(other, self) + self

    def __sub__(self, other: Number) -> Expr:
        return op("sub", self, literal(other, self))

    def __rsub__(self, other: float) -> Expr:
        return literal(other, self) - self

    def __mul__(self, other: Number) -> Expr:
        return op("mul", self, literal(other, self))

    def __rmul__(self, other: float) -> Expr:
        return literal(other, self) * self

    def __truediv__(self, other: Number) -> Expr:
        return op("div", self, literal(other, self))

    def __rtruediv__(self, other: float) -> Expr:
        return literal(other, self) / self

    def __neg__(self) -> Expr:
        return op("neg", self)

    def __abs__(self) -> Expr:
        return op("abs", self)

    def __lt__(self, other: Number) -> Expr:
        return op("lt", self, literal(other, self))

    def __le__(self, other: Number) -> Expr:
        return op("le", self, literal(other, self))

    def __gt__(self, other: Number) -> Expr:
        return op("gt", self, literal(other, self))

    def __ge__(self, other: Number) -> Expr:
        return op("ge", self, literal(other, self))

    def equals(self, other: Number) -> Expr:
        """Compare as numbers: true where both are equal; false where either is NaN."""
        return op("eq", self, literal(other, self))

    def differs(self, other: Number) -> Expr:
        """Compare as numbers: true where they differ, or where either is NaN."""
        return op("ne", self, literal(other, self))

    def __and__(self, other: Number) -> Expr:
        return op("and", self, literal(other, self))

    def __or__(self, other: Number) -> Expr:
        return op("or", self, literal(other, self))

    def __xor__(self, other: Number) -> Expr:
        return op("xor", self, literal(other, self))

    def __invert__(self) -> Expr:
        return op("not", self)

    def __lshift__(self, count: Number) -> Expr:
        return op("shl", self, literal(count, self))

    def __rlshift__(self, other: int) -> Expr:
        return literal(other, self) << self


@dataclass(frozen=True, eq=False)
class Access(metaclass=Interned):
    """The element `offset + sum(axis * stride)` of a flat buffer. Counted in elements."""

    buffer: str
    offset: Size
    terms: tuple[tuple[Axis, Size], ...]

    def stride(self, axis: Axis) -> Size:
        """The stride of `axis`, in elements."""
        for other, stride in self.terms:
            if other is axis:
                return stride
        return 0


def reached(offset: Size, terms: Iterable[tuple[Axis, Size]]) -> tuple[Size, Size] | None:
    """Bound `offset + sum(axis * factor)`: its least and largest value.

    None where an axis has no points, or where only a run tells them.
    """
    least = largest = offset
    for axis, factor in terms:
        span = factor * (axis.extent - 1)
        if is_nonnegative(factor):
            largest = largest + span
        elif is_nonnegative(-factor):
            least = least + span
        else:
            return None
    return least, largest


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A literal. Floats hold the value of the dtype exactly."""

    value: int | float | bool
    dtype: str


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """Reads memory. Where `mask` is false, memory is not touched and the value is `other`.

    index: computed positions: each value of int64 or uint8, times its stride, is added to the
        address.
    """

    access: Access
    dtype: str
    mask: Expr | None = None
    other: Const | None = None
    index: tuple[tuple[Expr, Size], ...] = ()


@dataclass(frozen=True, eq=False)
class Index(Expr):
    """The current value of an axis."""

    axis: Axis
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Extent(Expr):
    """A size as a value."""

    size: Size
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Reduced(Expr):
    """The result of the kernel's reduction number `position`."""

    position: int
    dtype: str


@dataclass(frozen=True, eq=False)
class Given(Expr):
    """A literal that a function shared by several kernels takes as parameter number `position`.

    It stands in no program: code generation puts it in the place of literals in which kernels
    differ.
    """

    position: int
    dtype: str


@dataclass(frozen=True, eq=False)
class Op(Expr):
    """A primitive, or a function that `program.functions` defines in terms of primitives."""

    name: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    """Conversion between number types: to integers toward zero, to bool as `!= 0`.

    From and to 16-bit floats it goes through float32.
    """

    value: Expr
    dtype: str


def dtype_of(expr: Expr) -> str:
    """The dtype of any node."""
    return expr.dtype


def op(name: str, *args: Expr, dtype: str | None = None) -> Expr:
    """An `Op` whose dtype follows: bool for comparisons, else that of the last argument."""
    if dtype is None:
        dtype = "bool" if name in COMPARISONS else dtype_of(args[-1])
    return Op(name, args, dtype)


def constant(value: Any, dtype: str) -> Const:
    """A literal converted to a Python number of the right kind; float32 values must be exact.

    Of 8-bit floats there is 0 only.
    """
    assert dtype not in BYTE_FLOATS or value == 0
    if dtype == "bool":
        return Const(bool(value), dtype)
    return Const(float(value) if dtype in (*FLOATS, *HALVES) else int(value), dtype)


def sized(size: Size) -> Expr:
    """A size as an int64 value."""
    return constant(size, "int64") if isinstance(size, int) else Extent(size)


def literal(value: Number, like: Expr) -> Expr:
    """A number as a literal with the dtype of another expression, rounded to it."""
    if isinstance(value, Expr):
        return value
    dtype = dtype_of(like)
    if isinstance(value, Dim):
        assert dtype == "int64"
        return Extent(value)
    return constant(np.asarray(value).astype(dtype).item(), dtype)


def select(condition: Expr, yes: Number, no: Number) -> Expr:
    """`yes` where the condition holds, else `no`; at least one of them is an expression."""
    like = yes if isinstance(yes, Expr) else no
    assert isinstance(like, Expr)
    return op("select", condition, literal(yes, like), literal(no, like))


def cast(value: Expr, dtype: str) -> Expr:
    """`value` as `dtype`, without a node when it already is."""
    return value if dtype_of(value) == dtype else Cast(value, dtype)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of a node."""
    kind = type(expr)  # `isinstance` takes twice as long, and everything asks for operands
    if kind is Op:
        return expr.args  # type: ignore[attr-defined, no-any-return]
    if kind is Cast:
        return (expr.value,)  # type: ignore[attr-defined]
    if kind is Load:
        return _computed(expr)  # type: ignore[arg-type]
    return ()


def _computed(load: Load) -> tuple[Expr, ...]:
    """List the expressions that a load reads before memory: its computed positions and its mask."""
    if load.mask is None and not load.index:
        return ()
    computed = tuple(value for value, _ in load.index)
    return computed if load.mask is None else (load.mask, *computed)


def walk(*roots: Expr, skip: Container[Expr] | None = None) -> Iterator[Expr]:
    """Every distinct node below the roots, operands first.

    Nothing here recurses over the depth of an expression, which is that of a model: whatever needs
    the values of operands walks, and finds them in a table. `skip` holds nodes that are not
    visited, nor what is only below them; it may grow on the way.
    """
    if skip is not None:
        return _walk(roots, skip)
    if len(roots) == 1 and not children(roots[0]):
        return iter(roots)
    return iter(_in_order(roots))


# Passes ask one after the other for the loads of the same expressions.
@lru_cache(maxsize=1024)
def _in_order(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(_walk(roots, ()))


def _walk(roots: tuple[Expr, ...], skip: Container[Expr]) -> Iterator[Expr]:
    seen: set[Expr] = set()
    opened: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in seen or node in skip:
            continue
        if node not in opened:
            operands = children(node)
            if operands:
                opened.add(node)
                stack.append(node)
                stack += operands
                continue
        seen.add(node)
        yield node


def rewrite(root: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """`root` rebuilt bottom-up: `leaf` sees each rebuilt node and may return another."""
    return rewriter(leaf)(root)


def rewriter(leaf: Callable[[Expr], Expr | None]) -> Callable[[Expr], Expr]:
    """Return a `rewrite` for any number of roots, which visits what they share once."""
    memo: dict[Expr, Expr] = {}

    def rewritten(root: Expr) -> Expr:
        if root not in memo:
            # Where several roots have nodes in common, only the others are visited.
            for node in walk(root, skip=memo) if memo else walk(root):
                rebuilt = _rebuild(node, memo) if children(node) else node
                memo[node] = leaf(rebuilt) or rebuilt
        return memo[root]

    return rewritten


def _rebuild(node: Expr, memo: dict[Expr, Expr]) -> Expr:
    """Give a node the operands in `memo`; the node itself where none of them changed."""
    if isinstance(node, Op):
        args = tuple(map(memo.__getitem__, node.args))
        return node if args == node.args else Op(node.name, args, node.dtype)
    if isinstance(node, Cast):
        value = memo[node.value]
        return node if value is node.value else cast(value, node.dtype)
    if isinstance(node, Load):
        mask = None if node.mask is None else memo[node.mask]
        index = tuple((memo[value], stride) for value, stride in node.index)
        return Load(node.access, node.dtype, mask, node.other, index)
    return node
