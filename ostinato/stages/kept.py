"""States of streams that grow: inputs that the model only appends to, kept in the caller's memory.

Where a model computes `present = Concat(past, new)`, a stream gives neither: `present` is memory
with room for more rows, which the model reads as `past` and stores its new rows into. How many rows
there are is an input, so that a program serves all lengths; nothing of the past is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError
from ostinato.model.attributes import describe
from ostinato.ops.core.builder import Appending, Builder
from ostinato.ops.core.growing_states import Growth, State, layout_of
from ostinato.ops.core.tensor import Tensor, Value, dense, transpose
from ostinato.ops.lowering import Scope
from ostinato.program.expr import Extent, Load, cast, constant, op
from ostinato.program.nodes import Interface, Require
from ostinato.sizes.dims import Size, product
from ostinato.stages.stage import NO_ROOM, KeptState
from ostinato.stages.values import dtype_of_value, shape_of


@dataclass(frozen=True)
class _Length:
    """Inputs that the states of one named axis share: how many rows there are, and fit in."""

    name: str
    rows: Size
    capacity: Size


@dataclass(frozen=True)
class _Kept:
    """One growing state: the model's input and output, its memory, and the length it shares."""

    past: ir.Value
    present: ir.Value
    state: State
    growth: Growth
    length: str


class KeptStates:
    """The growing states of one program being built.

    pairs: the output by the input. rows_last: names of inputs whose rows are neighbours in memory.
    """

    def __init__(
        self,
        builder: Builder,
        scope: Scope,
        graph: ir.Graph,
        pairs: Mapping[str, str],
        rows_last: frozenset[str],
    ) -> None:
        self._builder, self._scope, self._rows_last = builder, scope, rows_last
        self._lengths: dict[str, _Length] = {}
        self._states: list[_Kept] = []
        builder.draft.node = "length"
        for past, present in appended(graph):
            if pairs.get(past.name or "") == present.name:
                self._declare(past, present)

    def __contains__(self, value: ir.Value) -> bool:
        """Whether an input or output of the model is one of them."""
        return any(value is kept.past or value is kept.present for kept in self._states)

    def _declare(self, past: ir.Value, present: ir.Value) -> None:
        builder, axis = self._builder, _growing_axis(past, present)
        shape, dtype = shape_of(past), dtype_of_value(past)
        if shape is None or dtype is None or isinstance(shape[axis], int):
            raise _refused(past, present, "needs a native type, and a name for the axis that grows")
        length = self._length(str(shape[axis]))
        others = tuple(i for i in range(len(shape)) if i != axis)
        is_last = past.name in self._rows_last
        order = (*others, axis) if is_last else tuple(range(len(shape)))
        room = (*shape[:axis], length.capacity, *shape[axis + 1 :])
        sizes = tuple(room[i] for i in order)
        name = present.name or ""
        buffer = builder.draft.buffer(dtype, product(sizes), "output", f"out.{name}")
        builder.draft.outputs.append(Interface(name, buffer, dtype, sizes))
        whole = transpose(
            dense(dtype, sizes, buffer), tuple(order.index(i) for i in range(len(shape)))
        )
        assert isinstance(whole, Tensor)
        growth = Growth(axis, length.capacity, "most", is_last=is_last)
        state = State(builder, f"state {past.name!r}", whole, whole, growth, 0, length.rows)
        view = self._scope[past] = state.before(0)

        def append(piece: Value) -> Tensor | None:
            self._require_room(length, piece.shape[axis], past)
            return state.appended(view, piece, builder.axis(1), 0)

        builder.appending[name] = Appending(view, False, append)
        self._states.append(_Kept(past, present, state, growth, length.name))

    def _length(self, name: str) -> _Length:
        """The inputs for an axis of this name."""
        if name not in self._lengths:
            builder = self._builder
            given = builder.input(f"capacity of {name}", "int64", (), has_values=True)
            assert given.known is not None
            capacity = builder.sizes.defined(given.known.item(), f"capacity of {name}")
            rows = builder.input(f"length of {name}", "int64", ())
            assert rows.base is not None
            found = op("max", Load(rows.base, "int64"), constant(0, "int64"))
            found = op("min", found, cast(Extent(capacity), "int64"))
            # There is memory for as many rows, so that there is for what is made of them.
            size = builder.sizes.varying(capacity, name)
            builder.sizes.compute(size, found)
            self._lengths[name] = _Length(name, size, capacity)
        return self._lengths[name]

    def _require_room(self, length: _Length, rows: Size, past: ir.Value) -> None:
        """End a run before it writes where there is no room."""
        builder = self._builder
        fits = builder.compute(
            (),
            lambda _: op(
                "le",
                cast(Extent(length.rows + rows), "int64"),
                cast(Extent(length.capacity), "int64"),
            ),
        )
        assert fits.base is not None
        message = f"state {past.name!r}: the rows of axis {length.name!r} {NO_ROOM}"
        builder.draft.body.append(Require(fits.base.buffer, message))

    def finish(self) -> None:
        """Check what the model made of the states, and say how many rows there are now."""
        builder = self._builder
        following: dict[str, Size] = {}
        for kept in self._states:
            past, present, growth = kept.past, kept.present, kept.growth
            made, start = self._scope.get(present), kept.state.before(0)
            assert start.base is not None
            is_there = isinstance(made, Tensor) and (made.base, made.strides) == (
                start.base,
                start.strides,
            )
            if not is_there or not isinstance(made, Tensor):
                raise _refused(past, present, "must be a Concat of the state and new rows")
            rows = made.shape[growth.axis]
            if following.setdefault(kept.length, rows) != rows:
                raise _refused(past, present, "grows by other rows than states of the same axis")
        for name, rows in following.items():
            value = builder.stored((), (), cast(Extent(rows), "int64"))
            builder.output(f"next length of {name}", value)

    def layouts(self) -> frozenset[str]:
        """Names of the inputs whose rows are better neighbours in memory, by who reads them."""
        found = set()
        for kept in self._states:
            growth = layout_of(kept.state, self._builder.draft.body)
            if growth is not None and growth.is_last:
                found.add(kept.past.name or "")
        return frozenset(found)

    def arguments(self) -> Iterator[tuple[Argument, ...]]:
        """The inputs, the outputs of the states, and the outputs of lengths."""
        yield tuple(
            Argument(f"{what} of {name}", "int64", ())
            for name in self._lengths
            for what in ("capacity", "length")
        )
        draft = self._builder.draft
        names = [kept.present.name for kept in self._states]
        yield tuple(
            Argument(i.name, i.dtype, tuple(n if isinstance(n, int) else str(n) for n in i.shape))
            for i in draft.outputs
            if i.name in names
        )
        yield tuple(Argument(f"next length of {name}", "int64", ()) for name in self._lengths)

    def described(self) -> tuple[KeptState, ...]:
        """Records of the kept states for the runtime."""
        return tuple(
            KeptState(
                kept.past.name or "",
                kept.present.name or "",
                kept.growth.axis,
                kept.length,
                kept.growth.is_last,
            )
            for kept in self._states
        )


def appended(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The inputs that an output is, with rows behind them, along an axis of no fixed size."""
    inputs = set(graph.inputs)
    for present in graph.outputs:
        node = present.producer()
        if node is None or node.op_type != "Concat" or node.domain:
            continue
        past = node.inputs[0]
        if past is not None and past in inputs and past.shape is not None:
            axis = _growing_axis(past, present)
            if axis < len(past.shape) and not isinstance(past.shape[axis], int):
                yield past, present


def _growing_axis(past: ir.Value, present: ir.Value) -> int:
    """The axis along which an output is longer than an input."""
    node = present.producer()
    assert node is not None and past.shape is not None
    return int(node.attributes["axis"].as_int()) % len(past.shape)


def _refused(past: ir.Value, present: ir.Value, reason: str) -> InputError:
    node = present.producer()
    where = "" if node is None else f" (node {describe(node)!r}, {node.op_type})"
    return InputError(
        f"state {past.name!r} of a stream changes its shape: its next value {present.name!r}"
        f"{where} {reason}"
    )
