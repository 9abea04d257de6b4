"""Statements of the loop program. See the package docstring for the grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ostinato.program.dims import Size
from ostinato.program.expr import (
    FLOATS,
    Access,
    Axis,
    Const,
    Expr,
    Load,
    Op,
    constant,
    dtype_of,
    op,
    walk,
)


@dataclass(frozen=True)
class Buffer:
    """A flat piece of memory of `size` elements.

    kind: "input" and "output" belong to the caller, "constant" holds model data, "arena" is
    scratch memory that one run owns.
    padded: lanes beyond the end of the data may be read, and are zero.
    """

    name: str
    dtype: str
    size: Size
    kind: str
    padded: bool = False


@dataclass(frozen=True)
class Reduce:
    """A reduction over `axes` (outermost first) of `expr`, or of `expr * factor` fused into one rounding.

    combine: "sum", "max", "min" or "prod". With a `factor` it is "sum" and each step is
    `fma(expr, factor, accumulator)`.
    chains: number of interleaved accumulators. Element `k` of the last axis goes to accumulator
        `k % chains`; afterwards accumulators `i` and `i + n/2` are combined for n = chains, chains/2, ..
        With 1, elements are accumulated one after the other. The order is part of the meaning.
    """

    axes: tuple[Axis, ...]
    combine: str
    expr: Expr
    factor: Expr | None = None
    chains: int = 1

    @property
    def dtype(self) -> str:
        return dtype_of(self.expr)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.factor is None else (self.expr, self.factor)


@dataclass(frozen=True)
class Store:
    """Writes `value` to memory at `access`."""

    access: Access
    value: Expr


@dataclass(frozen=True)
class Tile:
    """How a kernel is cut into registers. It has no meaning: every tiling gives the same bits.

    lane: the axis whose points are computed together in vectors; its extent is `width * vectors`.
        None for kernels of scalars and for reductions in chains, whose lanes are the chains.
    block: the parallel axis that counts groups of lanes, where an axis was split.
    limit: the extent of the axis before it was padded to whole groups; None if it was not padded.
    row, rows: a parallel axis, and how many of its points share what is loaded along the lanes.
    """

    lane: Axis | None
    width: int
    vectors: int = 1
    block: Axis | None = None
    limit: Size | None = None
    row: Axis | None = None
    rows: int = 1


@dataclass(frozen=True)
class Kernel:
    """For every point of `axes`: evaluate the reductions, then the stores.

    Points are independent: no point reads what another one writes. `guard`, where given, excludes
    points (used to pad an axis to whole vectors). `sources` names the model's nodes it came from.
    """

    name: str
    axes: tuple[Axis, ...]
    reductions: tuple[Reduce, ...]
    stores: tuple[Store, ...]
    guard: Expr | None = None
    sources: tuple[str, ...] = ()
    tile: Tile | None = None

    def expressions(self) -> tuple[Expr, ...]:
        """All root expressions: operands of the reductions, values of the stores, the guard."""
        roots = [e for r in self.reductions for e in r.operands]
        roots += [s.value for s in self.stores]
        return tuple(roots if self.guard is None else [*roots, self.guard])

    def loads(self) -> Iterator[Load]:
        """Every distinct load of the kernel."""
        return (node for node in walk(*self.expressions()) if isinstance(node, Load))

    def reads(self) -> set[str]:
        """Names of the buffers read."""
        return {load.access.buffer for load in self.loads()}

    def writes(self) -> set[str]:
        """Names of the buffers written."""
        return {store.access.buffer for store in self.stores}


@dataclass(frozen=True)
class Carry:
    """State of a loop: the body reads buffer `state` and writes buffer `next`; they then swap.

    `state` holds the initial value when the loop starts and the final one when it is over.
    """

    state: str
    next: str


@dataclass(frozen=True)
class Loop:
    """Runs `body` for `axis` = 0, 1, .. in order."""

    axis: Axis
    carries: tuple[Carry, ...]
    body: tuple[Stmt, ...]

    def reads(self) -> set[str]:
        """Names of the buffers read anywhere inside, the initial states included."""
        inner: set[str] = set().union(*(s.reads() for s in self.body))
        return inner | {c.state for c in self.carries}

    def writes(self) -> set[str]:
        """Names of the buffers written anywhere inside, both halves of the states included."""
        inner: set[str] = set().union(*(s.writes() for s in self.body))
        return inner | {name for c in self.carries for name in (c.state, c.next)}


Stmt: TypeAlias = Kernel | Loop


@dataclass(frozen=True)
class Interface:
    """An input or output of the program: its buffer and shape."""

    name: str
    buffer: str
    dtype: str
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Check:
    """A condition on sizes that must hold at run time: `size >= 0`, else `message` is reported."""

    size: Size
    message: str


@dataclass(frozen=True)
class Program:
    """A whole computation. `symbols` are the run-time dimensions, each a plain dim of some input."""

    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    symbols: tuple[str, ...]
    buffers: Mapping[str, Buffer]
    constants: Mapping[str, np.ndarray]
    body: tuple[Stmt, ...]
    checks: tuple[Check, ...] = field(default=())

    def kernels(self) -> Iterator[Kernel]:
        """Every kernel, in program order, loops entered."""
        return _kernels(self.body)

    def with_body(self, body: tuple[Stmt, ...]) -> Program:
        """The same program with other statements; buffers nobody mentions any more are dropped."""
        used = {name for s in body for name in s.reads() | s.writes()}
        used |= {i.buffer for i in (*self.inputs, *self.outputs)}
        return replace(
            self,
            body=body,
            buffers={n: b for n, b in self.buffers.items() if n in used},
            constants={n: c for n, c in self.constants.items() if n in used},
        )


def _kernels(body: tuple[Stmt, ...]) -> Iterator[Kernel]:
    for statement in body:
        if isinstance(statement, Kernel):
            yield statement
        else:
            yield from _kernels(statement.body)


def combine(reduce: Reduce, accumulator: Expr, expr: Expr, factor: Expr | None) -> Expr:
    """The accumulator after one more element."""
    if factor is not None:
        return Op("fma", (expr, factor, accumulator), reduce.dtype)
    return op({"sum": "add", "prod": "mul"}.get(reduce.combine, reduce.combine), accumulator, expr)


def identity(reduce: Reduce) -> Const:
    """What every accumulator starts with: 0, 1, or the value that any other replaces."""
    if reduce.combine in ("sum", "prod"):
        return constant(0 if reduce.combine == "sum" else 1, reduce.dtype)
    largest = reduce.combine == "min"
    if reduce.dtype in FLOATS:
        return constant(float("inf") if largest else float("-inf"), reduce.dtype)
    if reduce.dtype == "bool":
        return constant(largest, reduce.dtype)
    limits = np.iinfo(reduce.dtype)
    return constant(limits.max if largest else limits.min, reduce.dtype)
