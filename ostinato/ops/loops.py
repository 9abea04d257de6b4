"""Loop and If: steps and ways that are chosen while running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import describe
from ostinato.ops.builder import Builder, LoopFrame
from ostinato.ops.control import check_states
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Tensor, Value, at
from ostinato.program.dims import Dim, Size, maximum
from ostinato.program.expr import Axis, Expr, Extent, Index, cast, constant, op
from ostinato.program.nodes import Branch, Carry, Require, Stmt

if TYPE_CHECKING:
    import onnx_ir as ir

# The trip count of a loop that only its condition ends.
UNBOUNDED = 2**62


def scalar(builder: Builder, value: Value, dtype: str) -> Tensor:
    """The single element of a value, in a buffer of its own."""
    target = builder.empty(dtype, ())
    source = builder.strided(value)
    builder.copy(Tensor(source.dtype, (), source.base), target)
    return target


def _only(context: Context, value: Value | None, name: str, dtype: str) -> Value | None:
    if value is not None and (value.size != 1 or value.dtype != dtype):
        raise context.refuse(f"input {name!r} must be a single {dtype}")
    return value


def _known(value: Value | None) -> Size | bool | None:
    """The element of a single value, if it is known while compiling."""
    if value is None or value.known is None:
        return None
    element = value.known.reshape(-1)[0]
    if value.dtype == "bool":
        return None if isinstance(element, Dim) else bool(element)
    return element if isinstance(element, Dim) else int(element)


class _DifferentShapes(UnsupportedError):
    """The ways of an If give values that cannot share memory."""


@lowers("If")
def lower_if(context: Context) -> list[Value]:
    """The outputs of one of two graphs.

    Where their shapes differ and sizes decide between them, the program is made for the sizes that
    choose the first: exporters write a Squeeze of an axis that is 1 in this way.
    """
    condition = _only(context, context.input(0), "cond", "bool")
    ways = [context.attributes.graph(name) for name in ("then_branch", "else_branch")]
    assert condition is not None
    chosen = _known(condition)
    if chosen is not None:
        return context.lower_graph(ways[0] if chosen else ways[1], [])
    builder = context.builder
    mark = builder.checkpoint()
    try:
        return _branch(context, condition, ways)
    except _DifferentShapes:
        decides = None if condition.known is None else condition.known.reshape(-1)[0]
        if not builder.assumes or not isinstance(decides, Dim):
            raise
    builder.rollback(mark)
    builder.assume(decides, "sizes for which its condition is false")
    return context.lower_graph(ways[0], [])


def _branch(context: Context, condition: Value, ways: Sequence[ir.Graph]) -> list[Value]:
    """Both ways behind a run-time condition; their outputs share memory."""
    builder = context.builder
    flag = scalar(builder, condition, "bool")
    blocks: list[list[Stmt]] = []
    results: list[list[Value]] = []
    for way in ways:
        checks = len(builder.checks)
        with builder.block([]) as statements:
            results.append(context.lower_graph(way, []))
        blocks.append([*_required(builder, checks), *statements])
    targets = [_target(context, pair) for pair in zip(*results, strict=True)]
    for statements, values in zip(blocks, results, strict=True):
        with builder.block(statements):
            for value, target in zip(values, targets, strict=True):
                builder.copy(value, target)
    assert flag.base is not None
    builder.append(Branch(flag.base.buffer, tuple(blocks[0]), tuple(blocks[1])))
    return list(targets)


def _required(builder: Builder, start: int) -> list[Stmt]:
    """The conditions on sizes made since `start`: they must hold only if this way is taken."""
    checks = builder.checks[start:]
    del builder.checks[start:]
    with builder.block([]) as statements:
        for check in checks:
            size = check.size
            value = constant(size, "int64") if isinstance(size, int) else Extent(size)
            holds = op("ge", value, constant(0, "int64"))
            flag = builder.compute((), lambda _, holds=holds: holds)  # type: ignore[misc]
            assert flag.base is not None
            builder.append(Require(flag.base.buffer, check.message, check.assumed))
    return statements


def _target(context: Context, pair: Sequence[Value]) -> Tensor:
    yes, no = pair
    if yes.dtype != no.dtype or yes.shape != no.shape:
        raise _DifferentShapes(
            describe(context.node),
            context.node.op_type,
            f"branches give {yes.dtype}{list(yes.shape)} and {no.dtype}{list(no.shape)}, "
            "which has no native form"
        )
    return context.builder.empty(yes.dtype, yes.shape)


@lowers("Loop")
def lower_loop(context: Context) -> list[Value]:
    """Steps counted by a trip count, ended by a condition, or both."""
    body = context.attributes.graph("body")
    trips = _only(context, context.optional(0), "M", "int64")
    initial_condition = _only(context, context.optional(1), "cond", "bool")
    initial = [context.input(i) for i in range(2, len(context.inputs))]
    collects = len(body.outputs) > 1 + len(initial)
    for position, value in ((0, trips), (1, initial_condition)):
        if collects and value is not None and value.known is None:
            raise context.unknown("the number of steps is only known at run time", position)
    count = _known(trips)
    extent: Size = UNBOUNDED if count is None else maximum(count, 0)
    if collects and count is not None:
        if initial_condition is not None and initial_condition.known is not None:
            extent = extent * initial_condition.known.reshape(-1)[0]
            initial_condition = None
        extent = context.builder.defined(extent, "number of steps")
    return _Loop(context, body, initial, extent, trips if count is None else None).run(
        initial_condition
    )


class _Loop:
    """One Loop being lowered. `limit` is a trip count only known at run time."""

    def __init__(
        self,
        context: Context,
        body: ir.Graph,
        initial: Sequence[Value],
        extent: Size,
        limit: Value | None,
    ) -> None:
        self._context = context
        self._builder = context.builder
        self._body = body
        self._initial = initial
        self._extent = extent
        self._limit = None if limit is None else self._builder.strided(limit)

    def run(self, condition: Value | None) -> list[Value]:
        builder = self._builder
        states = [builder.empty(v.dtype, v.shape) for v in self._initial]
        successors = [builder.empty(v.dtype, v.shape) for v in self._initial]
        going, still_going = builder.empty("bool", ()), builder.empty("bool", ())
        for value, state in zip(self._initial, states, strict=True):
            builder.copy(value, state)
        builder.copy(self._begin(condition), going)
        sequences: list[Value] = []
        with builder.loop(self._extent) as loop:
            number = builder.compute((), lambda _: Index(loop.axis))
            results = self._context.lower_graph(self._body, [number, going, *states])
            proceed, updated = results[0], results[1 : len(states) + 1]
            elements = results[len(states) + 1 :]
            for position, (state, value) in enumerate(zip(states, updated, strict=True)):
                if state.shape != value.shape:
                    raise self._context.refuse(f"carried value {position} changes its shape")
            check_states(self._context, states, updated)
            if self._ends_early(condition, proceed, going):
                builder.copy(self._proceed(proceed, loop.axis), still_going)
                loop.carries.append(_carry(going, still_going))
                loop.condition = loop.carries[0].state
            for element in elements:
                sequences.append(self._collect(element, loop))
            for state, successor, value in zip(states, successors, updated, strict=True):
                builder.copy(value, successor)
                loop.carries.append(_carry(state, successor))
        return [*states, *sequences]

    def _begin(self, condition: Value | None) -> Value:
        """Whether there is a first step."""
        builder = self._builder
        given = builder.constant(np.array(True)) if condition is None else condition
        flat = Tensor("bool", (), builder.strided(given).base)
        if self._limit is None:
            return flat
        limit = Tensor("int64", (), self._limit.base)
        return builder.pointwise(
            lambda c, m: op("and", c, op("gt", m, constant(0, "int64"))), flat, limit
        )

    def _proceed(self, condition: Value, step: Axis) -> Value:
        """Whether there is another step."""
        builder = self._builder
        flat = Tensor("bool", (), builder.strided(condition).base)
        if self._limit is None:
            return flat
        limit = Tensor("int64", (), self._limit.base)

        def more(c: Expr, m: Expr) -> Expr:
            following = op("add", cast(Index(step), "int64"), constant(1, "int64"))
            return op("and", c, op("lt", following, m))

        return builder.pointwise(more, flat, limit)

    def _ends_early(self, condition: Value | None, proceed: Value, going: Tensor) -> bool:
        """Whether anything but a known trip count can end the loop."""
        start = True if condition is None else _known(condition)
        kept = proceed is going or (_known(proceed) is not None and bool(_known(proceed)))
        if self._limit is None and start is not None and bool(start) and kept:
            if self._extent == UNBOUNDED:
                raise self._context.refuse("neither a trip count nor a condition ends this loop")
            return False
        return True

    def _collect(self, element: Value, loop: LoopFrame) -> Tensor:
        """A scan output: one element for each step."""
        if loop.condition is not None or self._extent == UNBOUNDED:
            raise self._context.refuse(
                "scan outputs of a loop whose number of steps is only known afterwards "
                "have no native form"
            )
        builder = self._builder
        sequence = builder.empty(element.dtype, (self._extent, *element.shape))
        builder.copy(element, at(sequence, 0, loop.axis, 0, 1))
        return sequence


def _carry(state: Tensor, successor: Tensor) -> Carry:
    assert state.base is not None and successor.base is not None
    return Carry(state.base.buffer, successor.base.buffer)
