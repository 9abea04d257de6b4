"""States of streams that grow: inputs that the model only appends to, kept in the caller's memory.

Where a model computes `present = Concat(past, new)`, a stream gives neither: `present` is memory
with room for more rows, which the model reads as `past` and stores its new rows into. How many rows
there are is an input, so that a program serves all lengths; nothing of the past is copied. For
`present = Concat(new, past)` the rows lie at the end of the memory.

Inputs that are as long as the states after the step, such as a mask, are given in memory with room
for more as well, and how long they are is an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError
from ostinato.model.attributes import describe
from ostinato.ops.core.builder import Appending, Builder
from ostinato.ops.core.growing_states import Growth, State, layout_of
from ostinato.ops.core.tensor import Tensor, Value, dense, slice_axis, transpose
from ostinato.ops.lowering import Scope
from ostinato.program.expr import Expr, Extent, Load, cast, constant, op
from ostinato.program.nodes import Check, Interface, Require
from ostinato.sizes.dims import Size, computed, is_symbol, product, symbol, symbols
from ostinato.stages.stage import NO_ROOM, GrownInput, KeptState
from ostinato.stages.values import dtype_of_value, shape_of


@dataclass(frozen=True)
class Hints:
    """What an attempt to lower the model tells the next one.

    rows_last: names of states whose rows are better neighbours in memory. added: how many rows a
    step adds, by the states' length, where that is known before the run. grown: dimensions of
    inputs that are as long as states after the step: their length; None to look for none.
    """

    rows_last: frozenset[str] = frozenset()
    added: Mapping[str, Size] = field(default_factory=dict)
    grown: Mapping[str, str] | None = field(default_factory=dict)

    def without_grown(self) -> Hints:
        """The same, with all inputs as long as they are given."""
        return replace(self, grown=None)

    def __le__(self, other: Hints) -> bool:
        return (
            self.rows_last <= other.rows_last
            and self.added.keys() <= other.added.keys()
            and (self.grown is None or self.grown.keys() <= (other.grown or {}).keys())
        )

    def __or__(self, other: Hints) -> Hints:
        return Hints(
            self.rows_last | other.rows_last,
            {**other.added, **self.added},
            None if self.grown is None else {**(other.grown or {}), **self.grown},
        )


@dataclass(frozen=True)
class _Length:
    """Inputs that the states of one named axis share.

    rows: how many there are. capacity: how many fit in. limit: how many there may be.
    """

    name: str
    rows: Size
    capacity: Size
    limit: Expr


@dataclass(frozen=True)
class _Kept:
    """One growing state: the model's input and output, its memory, and the length it shares."""

    past: ir.Value
    present: ir.Value
    state: State
    length: _Length

    @property
    def growth(self) -> Growth:
        """The axis of the rows and their order."""
        assert self.state.growth is not None
        return self.state.growth

    def view(self, rows: Size) -> Tensor:
        """So many rows that are there."""
        start = self.length.capacity - rows if self.growth.in_front else 0
        return slice_axis(self.state.whole, self.growth.axis, start, 1, rows)

    def place(self, rows: Size, added: Size) -> Tensor:
        """Where rows are stored beside those that are there."""
        start = self.length.capacity - rows - added if self.growth.in_front else rows
        return slice_axis(self.state.whole, self.growth.axis, start, 1, added)


class KeptStates:
    """The growing states of one program being built.

    pairs: the output by the input. hints: what an attempt before this one found out.

    grown: the inputs as long as states are after the step; grown_arguments: what they are given as.
    """

    def __init__(
        self,
        builder: Builder,
        scope: Scope,
        graph: ir.Graph,
        pairs: Mapping[str, str],
        hints: Hints,
    ) -> None:
        self._builder, self._scope, self._graph, self._hints = builder, scope, graph, hints
        self._lengths: dict[str, _Length] = {}
        self._states: list[_Kept] = []
        self.grown: list[GrownInput] = []
        self.grown_arguments: dict[ir.Value, Argument] = {}
        builder.draft.node = "length"
        for past, present in appended(graph):
            if pairs.get(past.name or "") == present.name:
                self._declare(past, present)
        for value in graph.inputs:
            if value not in self:
                self._declare_grown(value)

    def __contains__(self, value: ir.Value) -> bool:
        """Whether an input or output of the model is one of them."""
        return any(value is kept.past or value is kept.present for kept in self._states)

    # What the program is given

    def _declare(self, past: ir.Value, present: ir.Value) -> None:
        builder, axis = self._builder, _growing_axis(past, present)
        shape, dtype = shape_of(past), dtype_of_value(past)
        if shape is None or dtype is None or isinstance(shape[axis], int):
            raise _refused(past, present, "needs a native type, and a name for the axis that grows")
        length = self._length(str(shape[axis]))
        others = tuple(i for i in range(len(shape)) if i != axis)
        is_last = past.name in self._hints.rows_last
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
        in_front = not _is_first(past, present)
        growth = Growth(axis, length.capacity, "most", in_front=in_front, is_last=is_last)
        state = State(builder, f"state {past.name!r}", whole, whole, growth, 0, length.rows)
        kept = _Kept(past, present, state, length)
        view = self._scope[past] = kept.view(length.rows)

        def append(piece: Value) -> Tensor | None:
            rows = piece.shape[axis]
            if piece.shape != growth.with_rows(view.shape, rows) or piece.dtype != dtype:
                return None
            if rows != self._hints.added.get(length.name):
                self._require_room(length, rows)
            builder.copy(piece, kept.place(length.rows, rows))
            return kept.view(length.rows + rows)

        builder.appending[name] = Appending(view, in_front, append)
        self._states.append(kept)

    def _length(self, name: str) -> _Length:
        """The inputs for an axis of this name."""
        if name not in self._lengths:
            builder = self._builder
            given = builder.input(f"capacity of {name}", "int64", (), has_values=True)
            assert given.known is not None
            capacity = builder.sizes.defined(given.known.item(), f"capacity of {name}")
            found = op("max", self._given(f"length of {name}"), constant(0, "int64"))
            found = op("min", found, cast(Extent(capacity), "int64"))
            # There is memory for as many rows, so that there is for what is made of them.
            size = builder.sizes.varying(capacity, name)
            builder.sizes.compute(size, found)
            limit = op("min", self._given(f"limit of {name}"), cast(Extent(capacity), "int64"))
            length = self._lengths[name] = _Length(name, size, capacity, limit)
            if name in self._hints.added:
                self._require_room(length, self._hints.added[name])
        return self._lengths[name]

    def _given(self, name: str) -> Expr:
        """The element of another input."""
        given = self._builder.input(name, "int64", ())
        assert given.base is not None
        return Load(given.base, "int64")

    def _declare_grown(self, value: ir.Value) -> None:
        """Let the program read an input that grows as states do, where it is one."""
        shape, dtype, grown = shape_of(value), dtype_of_value(value), self._hints.grown or {}
        axes = [i for i, size in enumerate(shape or ()) if str(size) in grown]
        if shape is None or dtype is None or len(axes) != 1:
            return
        builder, (axis,) = self._builder, axes
        length = self._lengths[grown[str(shape[axis])]]
        rows = length.rows + self._hints.added[length.name]
        name, extent = value.name or "", f"extent of {value.name}"
        room = symbol(f"room of {name}")
        sizes = (*shape[:axis], room, *shape[axis + 1 :])
        whole = builder.input(name, dtype, sizes)
        what = f"input {name!r}: there is less room than for the rows of axis {length.name!r}"
        builder.draft.checks.append(Check(room - length.capacity, what))
        what = f"input {name!r}: its axis {axis} is not as long as the states are after the step"
        self._require(op("eq", self._given(extent), cast(Extent(rows), "int64")), what)
        self._scope[value] = slice_axis(whole, axis, 0, 1, rows)
        self.grown.append(GrownInput(name, axis, length.name, extent))
        self.grown_arguments[value] = Argument(
            name, dtype, tuple(n if isinstance(n, int) else str(n) for n in sizes)
        )

    def _require_room(self, length: _Length, rows: Size) -> None:
        """End a run before it writes where there is no room."""
        fits = op("le", cast(Extent(length.rows + rows), "int64"), length.limit)
        self._require(fits, f"the rows of axis {length.name!r} {NO_ROOM}")

    def _require(self, condition: Expr, message: str) -> None:
        holds = self._builder.compute((), lambda _: condition)
        assert holds.base is not None
        self._builder.draft.body.append(Require(holds.base.buffer, message))

    # What the model makes of it

    def finish(self) -> Hints:
        """Check what the model made of the states, and say how many rows there are now."""
        builder = self._builder
        following: dict[str, Size] = {}
        for kept in self._states:
            past, present, length = kept.past, kept.present, kept.length
            made, start = self._scope.get(present), kept.view(length.rows)
            rows = made.shape[kept.growth.axis] if isinstance(made, Tensor) else 0
            whole = kept.view(rows)
            assert start.base is not None
            if not isinstance(made, Tensor) or (made.base, made.strides) != (
                whole.base,
                whole.strides,
            ):
                raise _refused(past, present, "must be a Concat of the state and new rows")
            if following.setdefault(length.name, rows) != rows:
                raise _refused(past, present, "grows by other rows than states of the same axis")
        for name, rows in following.items():
            value = builder.stored((), (), cast(Extent(rows), "int64"))
            builder.output(f"next length of {name}", value)
        added = {name: rows - self._lengths[name].rows for name, rows in following.items()}
        added = {name: rows for name, rows in added.items() if not computed(rows)}
        return Hints(self._layouts(), added, self._found_grown(following, added))

    def _layouts(self) -> frozenset[str]:
        """Names of the states whose rows are better neighbours in memory, by who reads them."""
        body = self._builder.draft.body
        growths = ((kept.past.name or "", layout_of(kept.state, body)) for kept in self._states)
        return frozenset(name for name, growth in growths if growth is not None and growth.is_last)

    def _found_grown(
        self, following: Mapping[str, Size], added: Mapping[str, Size]
    ) -> dict[str, str] | None:
        """Dimensions of inputs that must be what a length is after the step.

        They met that length somewhere in the model, or are called as the axis of the next state.
        """
        if self._hints.grown is None:
            return None
        found = dict(self._hints.grown)
        lengths = {rows: name for name, rows in following.items() if name in added}
        free = self._free_dimensions()
        for pair in self._builder.require.compared:
            for one, other in (pair, pair[::-1]):
                if is_symbol(one) and str(one) in free and other in lengths:
                    found.setdefault(str(one), lengths[other])
        for kept in self._states:
            shape = shape_of(kept.present)
            name = "" if shape is None else str(shape[kept.growth.axis])
            if name in free and kept.length.name in added:
                found.setdefault(name, kept.length.name)
        return found

    def _free_dimensions(self) -> set[str]:
        """The names of dimensions that only inputs beside the states have, once in each."""
        graph, taken = self._graph, set(self._lengths)
        names: set[str] = set()
        for value in graph.inputs:
            sizes = [str(size) for size in shape_of(value) or () if not isinstance(size, int)]
            if value in self:
                taken |= set(sizes)
            names |= {name for name in sizes if sizes.count(name) == 1}
            taken |= {name for name in sizes if sizes.count(name) > 1}
        for rows in self._hints.added.values():
            taken |= set(symbols(rows))
        return names - taken

    def arguments(self) -> Iterator[tuple[Argument, ...]]:
        """The inputs, the outputs of the states, and the outputs of lengths."""
        yield (
            *(
                Argument(f"{what} of {name}", "int64", ())
                for name in self._lengths
                for what in ("capacity", "length", "limit")
            ),
            *(Argument(each.extent, "int64", ()) for each in self.grown),
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
                kept.length.name,
                kept.growth.is_last,
                kept.growth.in_front,
            )
            for kept in self._states
        )


def appended(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The inputs that an output is, with rows beside them, along an axis of no fixed size."""
    inputs = set(graph.inputs)
    for present in graph.outputs:
        node = present.producer()
        if node is None or node.op_type != "Concat" or node.domain or len(node.inputs) < 2:
            continue
        for past in (node.inputs[0], node.inputs[-1]):
            if past is not None and past in inputs and past.shape is not None:
                axis = _growing_axis(past, present)
                if axis < len(past.shape) and not isinstance(past.shape[axis], int):
                    yield past, present
                    break


def _is_first(past: ir.Value, present: ir.Value) -> bool:
    """Whether new rows come behind those of the state."""
    node = present.producer()
    return node is not None and node.inputs[0] is past


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
