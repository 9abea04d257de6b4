"""Growing states of streams: inputs that the model only appends to, kept in the caller's memory.

Where a model computes `present = Concat(past, new)`, a stream passes neither: it passes memory with
room for more rows, which the model reads as `past` and into which it stores its new rows. The
number of rows is an input, so that one program serves all lengths; nothing of the past is copied.
For `present = Concat(new, past)` the rows lie at the end of the memory.

Where `present = Concat(Gather(past, indices), new)`, as in the step of a beam search, rows of the
state first change places in its memory, which has one more row for that.

Inputs that are as long as the states after the step, such as a mask, are passed in memory with room
for more as well, and their length is an input.

For a pool, memory has a place for each of its streams, and the streams of a batch have places and
numbers of rows of their own (`ragged.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial

import onnx_ir as ir

from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError
from ostinato.ops.core.builder import Appending, Builder
from ostinato.ops.core.common_rows import common_after, starts_of
from ostinato.ops.core.growing_states import Beside, State, layout_of
from ostinato.ops.core.growth import Growth
from ostinato.ops.core.moved_rows import Moves, Moving
from ostinato.ops.core.tensor import Tensor, Value, dense, share_memory, slice_axis, transpose
from ostinato.ops.lowering import Scope
from ostinato.program.expr import Access, Axis, Expr, Extent, Load, cast, constant, op
from ostinato.program.nodes import Check, Interface, Require, statements
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, computed, is_symbol, product, symbol, symbols
from ostinato.sizes.substitution import substitute
from ostinato.stages.appended import Appended, appended
from ostinato.stages.stage import NO_ROOM, GrownInput, Keeping, KeptState
from ostinato.stages.values import dtype_of_value, shape_of

# The name of the input for a table of what rows have in common.
_COMMON = "common rows "


@dataclass(frozen=True)
class Hints:
    """Findings of one attempt to lower the model, for the next attempt.

    rows_last: names of states whose rows should be neighbours in memory. added: how many rows a
    step adds, by the states' length, where that is known before the run. grown: dimensions of
    inputs that are as long as states after the step: their length; None to look for none. longer:
    those among them that may also be longer.
    """

    rows_last: frozenset[str] = frozenset()
    added: Mapping[str, Size] = field(default_factory=dict)
    grown: Mapping[str, str] | None = field(default_factory=dict)
    longer: frozenset[str] = frozenset()

    def without_grown(self) -> Hints:
        """The same hints, with all inputs as long as they are given."""
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
            self.longer | other.longer,
        )


@dataclass(frozen=True)
class _Length:
    """The inputs that all states of one named axis share.

    rows: how many there are; given: where that is read. capacity: how many fit in. limit: how many
    there may be.
    """

    name: str
    rows: Size
    capacity: Size
    given: Access
    limit: Expr


@dataclass(frozen=True)
class _Kept:
    """One growing state: the model's input and output, its memory, and the length it shares."""

    pair: Appended
    state: State
    length: _Length

    @property
    def growth(self) -> Growth:
        """The axis of the rows and their order."""
        assert self.state.growth is not None
        return self.state.growth

    def view(self, rows: Size) -> Tensor:
        """View the first `rows` rows."""
        start = self.length.capacity - rows if self.growth.in_front else 0
        return slice_axis(self.state.whole, self.growth.axis, start, 1, rows)

    def place(self, rows: Size, added: Size) -> Tensor:
        """View the place where `added` rows are stored beside the first `rows`."""
        start = self.length.capacity - rows - added if self.growth.in_front else rows
        return slice_axis(self.state.whole, self.growth.axis, start, 1, added)


@dataclass(frozen=True)
class _Batch:
    """The inputs of a program for pools.

    size: the dimension of the streams of a batch. one: a dimension in its place, which is 1, so
    that values of one stream tell their batch axis. streams: places in memory. place: that of the
    current stream; places: of all of them.
    """

    size: Size
    one: Size
    streams: Size
    place: Size
    places: Tensor


class KeptStates:
    """The growing states of one program being built.

    keeping: the states. hints: findings of the attempt before. batch: of a pool. conditions: bools
    that must hold in each run, among the graph's outputs, and what is wrong where one does not.

    grown: the inputs as long as states are after the step; grown_arguments: how they are passed.
    """

    def __init__(
        self,
        builder: Builder,
        scope: Scope,
        graph: ir.Graph,
        keeping: Keeping,
        hints: Hints,
        conditions: Mapping[str, str],
    ) -> None:
        self._conditions = conditions
        pairs, batch = keeping.states, keeping.batch
        self._builder, self._scope, self._graph, self._hints = builder, scope, graph, hints
        self._lengths: dict[str, _Length] = {}
        self._states: list[_Kept] = []
        self.grown: list[GrownInput] = []
        self.grown_arguments: dict[ir.Value, Argument] = {}
        self._whole: dict[ir.Value, tuple[Tensor, Tensor]] = {}
        # The order in which rows change places, by the indices: states may share them.
        self._plans: dict[Value, Moves] = {}
        # What rows of a state have in common: where copies have to begin, and the tables, which are
        # states of the stream as well, before and after the step.
        self._starts: dict[tuple[Value, Size], Tensor] = {}
        self._tables: dict[str, Tensor] = {}
        self._tables_of: dict[str, str] = {}
        self._is_checked = False
        builder.draft.node = "length"
        self.batch = None if batch is None else self._declared_batch(batch)
        for pair in appended(graph):
            if pairs.get(pair.past.name or "") == pair.present.name:
                self._declare(pair)
        for value in graph.inputs:
            if value not in self:
                self._declare_grown(value)
        if batch is None:
            self.begin(scope, None)

    def __contains__(self, value: ir.Value) -> bool:
        """Whether an input or output of the model is a growing state."""
        return any(value in (kept.pair.past, kept.pair.present) for kept in self._states)

    def is_given(self, value: ir.Value) -> bool:
        """Whether an input of the model is passed in another form than the model has."""
        return value in self or value in self._whole

    def requires(self, value: ir.Value) -> bool:
        """Whether an output of the graph is a condition, which the caller does not see."""
        return value.name in self._conditions

    def stores(self, node: ir.Node) -> bool:
        """Whether a node puts a number of rows known before the run beside (a part of) a state."""
        return any(
            node in kept.pair.how.joins and kept.length.name in self._hints.added
            for kept in self._states
        )

    # The inputs of the program

    def begin(self, scope: Scope, axis: Axis | None) -> None:
        """Compute how many rows there are, and let a scope know the states.

        axis: of the streams of a batch, in whose loop this stands.
        """
        builder, batch = self._builder, self.batch
        builder.draft.node = "length"
        zero = constant(0, "int64")
        if batch is not None:
            assert batch.places.base is not None
            place = Load(_at(batch.places.base, axis), "int64")
            last = cast(Extent(batch.streams - 1), "int64")
            builder.sizes.compute(batch.place, op("max", op("min", place, last), zero))
        for length in self._lengths.values():
            found = op("max", Load(_at(length.given, axis), "int64"), zero)
            found = op("min", found, cast(Extent(length.capacity), "int64"))
            builder.sizes.compute(length.rows, found)
            if length.name in self._hints.added and not self._is_checked:
                self._require_room(length, self._hints.added[length.name])
        for kept in self._states:
            scope[kept.pair.past] = kept.view(kept.length.rows)
        for value, (whole, extent) in self._whole.items():
            self._begin_grown(scope, value, whole, extent, axis)
        self._is_checked = True

    def _declared_batch(self, name: str) -> _Batch:
        builder, size, one = self._builder, symbol(name), symbol("one stream")
        given = builder.input("number of streams", "int64", (), has_values=True)
        assert given.known is not None
        streams = builder.sizes.defined(given.known.item(), "number of streams")
        builder.draft.checks.append(Check(streams - 1, "a pool has a stream"))
        places = builder.input("places of streams", "int64", (size,))
        builder.input("one stream", "int64", (one,))
        return _Batch(size, one, streams, builder.sizes.varying(streams, "place"), places)

    def _declare(self, pair: Appended) -> None:
        builder, past, axis = self._builder, pair.past, pair.axis
        shape, dtype = shape_of(past), dtype_of_value(past)
        if shape is None or dtype is None or isinstance(shape[axis], int):
            raise pair.refused("needs a native type, and a name for the axis that grows")
        length = self._length(str(shape[axis]))
        is_last = past.name in self._hints.rows_last
        order = sorted(range(len(shape)), key=lambda i: is_last and i == axis)
        room, streams = [*shape], self._streams_axis(past)
        room[axis] = length.capacity
        moved, in_front = pair.moved, pair.how.in_front
        if moved is not None:
            room[moved] = room[moved] + 1
        if self.batch is not None:
            if moved is not None:
                raise pair.refused("changes the places of rows, which no pool does")
            if streams is None:
                raise pair.refused("needs the batch as one of its dimensions")
            room[streams] = self.batch.streams
            order = sorted(order, key=lambda i: i != streams)
        sizes = tuple(room[i] for i in order)
        name = pair.present.name or ""
        buffer = builder.draft.buffer(dtype, product(sizes), "output", f"out.{name}")
        builder.draft.outputs.append(Interface(name, buffer, dtype, sizes))
        whole = transpose(
            dense(dtype, sizes, buffer), tuple(order.index(i) for i in range(len(shape)))
        )
        assert isinstance(whole, Tensor)
        if moved is not None and pair.how.moved is not None:
            whole = slice_axis(whole, moved, 0, 1, shape[moved])
            starts = partial(self._copied_from, past.name or "")
            moving = Moving(whole, moved, self._plans, True, axis, in_front, starts)
            builder.moving[pair.how.moved.outputs[0].name or ""] = moving
        if self.batch is not None and streams is not None:
            whole = slice_axis(whole, streams, self.batch.place, 1, self.batch.one)
        growth = Growth(axis, length.capacity, "most", in_front=in_front, is_last=is_last)
        state = State(builder, f"state {past.name!r}", whole, whole, growth, 0, length.rows)
        kept = _Kept(pair, state, length)
        append = partial(self._appended, kept)
        for node in pair.how.joins:
            appending = Appending(kept.view(length.rows), in_front, append)
            builder.appending[node.outputs[0].name or ""] = appending
        self._states.append(kept)

    def _appended(self, kept: _Kept, part: Value, axis: int, piece: Value) -> Tensor | None:
        """View a part of a state with `piece` stored beside it along `axis` of the part."""
        length, rows, given = kept.length, piece.shape[axis], kept.view(kept.length.rows)
        if not isinstance(part, Tensor):
            return None
        beside = Beside(part, axis)
        if not beside.takes(piece) or not beside.is_part(given, kept.growth.axis):
            return None
        if rows != self._hints.added.get(length.name):
            self._require_room(length, rows)
        self._builder.copy(piece, beside.within(kept.place(length.rows, rows), given, rows))
        after = length.rows + rows
        return beside.within(kept.view(after), given, after)

    def _copied_from(self, state: str, indices: Value, planned: Moves, extent: Size) -> Tensor:
        """Compute where each copy has to begin; states whose rows move alike share a table."""
        key, builder = (indices, extent), self._builder
        if key not in self._starts:
            name = f"{_COMMON}{len(self._tables)}"
            (count,) = planned.rows.shape
            table = builder.input(name, "int64", (count, count))
            self._starts[key] = starts_of(builder, planned, table, extent)
            self._tables[name] = common_after(builder, planned.rows, table, extent)
        self._tables_of[state] = f"{_COMMON}{[*self._starts].index(key)}"
        return self._starts[key]

    def _streams_axis(self, past: ir.Value) -> int | None:
        """The axis of a pool's streams."""
        sizes = (
            [] if self.batch is None else [size == self.batch.size for size in shape_of(past) or ()]
        )
        return sizes.index(True) if sizes.count(True) == 1 else None

    def _length(self, name: str) -> _Length:
        """Declare the inputs for an axis of this name."""
        if name not in self._lengths:
            builder = self._builder
            known = builder.input(f"capacity of {name}", "int64", (), has_values=True)
            assert known.known is not None
            capacity = builder.sizes.defined(known.known.item(), f"capacity of {name}")
            given = self._each(f"length of {name}").base
            # The symbol is bounded by the capacity, so there is memory for values of that many
            # rows.
            rows = builder.sizes.varying(capacity, name)
            most = builder.input(f"limit of {name}", "int64", ()).base
            assert given is not None and most is not None
            limit = op("min", Load(most, "int64"), cast(Extent(capacity), "int64"))
            self._lengths[name] = _Length(name, rows, capacity, given, limit)
        return self._lengths[name]

    def _each(self, name: str) -> Tensor:
        """Declare another input: a number, or one for each stream of a batch."""
        return self._builder.input(name, "int64", () if self.batch is None else (self.batch.size,))

    def _declare_grown(self, value: ir.Value) -> None:
        """Let the program read an input that grows with states, if this is one."""
        shape, dtype, grown = shape_of(value), dtype_of_value(value), self._hints.grown or {}
        axes = [i for i, size in enumerate(shape or ()) if str(size) in grown]
        if shape is None or dtype is None or len(axes) != 1:
            return
        builder, (axis,) = self._builder, axes
        length = self._lengths[grown[str(shape[axis])]]
        name, extent = value.name or "", f"extent of {value.name}"
        room = symbol(f"room of {name}")
        sizes = (*shape[:axis], room, *shape[axis + 1 :])
        whole = builder.input(name, dtype, sizes)
        what = f"input {name!r}: there is less room than for the rows of axis {length.name!r}"
        builder.draft.checks.append(Check(room - length.capacity, what))
        self._whole[value] = whole, self._each(extent)
        self.grown.append(GrownInput(name, axis, length.name, extent))
        self.grown_arguments[value] = Argument(
            name, dtype, tuple(n if isinstance(n, int) else str(n) for n in sizes)
        )

    def _begin_grown(
        self, scope: Scope, value: ir.Value, whole: Tensor, extent: Tensor, axis: Axis | None
    ) -> None:
        """Let a scope know a growing input of one stream.

        It is as long as the states. Where it is not, the general program handles the broadcast.
        """
        builder = self._builder
        (grown,) = (each for each in self.grown if each.input == value.name)
        rows = self._lengths[grown.length].rows + self._hints.added[grown.length]
        assert extent.base is not None
        what = f"input {value.name!r}: its axis {grown.axis} is not as long as the states are after"
        given = Load(_at(extent.base, axis), "int64")
        after = cast(Extent(rows), "int64")
        matches = op("eq", given, after)
        may_be_longer = str((shape_of(value) or ())[grown.axis]) in self._hints.longer
        if may_be_longer or not builder.guarded:
            one = constant(1, "int64")
            single = op("or", op("eq", given, one), op("eq", after, one))
            if not may_be_longer:
                self._require(op("or", matches, single), f"{what} the step")
            room = whole.shape[grown.axis]
            rows = builder.sizes.varying(room, grown.extent)
            least = op("max", given, constant(0, "int64"))
            builder.sizes.compute(rows, op("min", least, cast(Extent(room), "int64")))
        elif not self._is_checked:
            self._require(matches, f"{what} the step", is_guard=True)
        if axis is not None and self.batch is not None:
            row = row_of(whole, self.batch.size, self.batch.one, axis)
            if row is None:
                raise InputError(f"input {value.name!r} needs the batch as one of its dimensions")
            whole = row
        scope[value] = slice_axis(whole, grown.axis, 0, 1, rows)

    def _require_room(self, length: _Length, rows: Size) -> None:
        """Require room for more rows, which stops the run before anything is written."""
        fits = op("le", cast(Extent(length.rows + rows), "int64"), length.limit)
        self._require(fits, f"the rows of axis {length.name!r} {NO_ROOM}")

    def _require(self, condition: Expr, message: str, is_guard: bool = False) -> None:
        holds = self._builder.compute((), lambda _: condition)
        assert holds.base is not None
        self._builder.draft.body.append(Require(holds.base.buffer, message, is_guard))

    # The results of the program

    def finish(self) -> Hints:
        """Check how the model used the states, and compute how many rows there are now."""
        builder = self._builder
        following: dict[str, Size] = {}
        for kept in self._states:
            pair, length = kept.pair, kept.length
            made = self._scope.get(pair.present)
            rows = made.shape[kept.growth.axis] if isinstance(made, Tensor) else 0
            if not isinstance(made, Tensor) or not share_memory(made, kept.view(rows)):
                raise pair.refused("must be a Concat of the state and new rows")
            if pair.moved is not None and computed(rows - length.rows):
                # Whether there is room has to be known before any row changes its place.
                raise pair.refused("gets rows whose number only the step tells")
            if following.setdefault(length.name, rows) != rows:
                raise pair.refused("grows by other rows than states of the same axis")
        for value in self._graph.outputs:
            if self.requires(value):
                self._require_all(value)
        self._require_no_guards()
        added = {name: rows - self._lengths[name].rows for name, rows in following.items()}
        for name, table in self._tables.items():
            builder.output(f"next {name}", table)
        for name, rows in following.items():
            builder.output(f"next length of {name}", self._following(name, rows, added[name]))
        added = {name: rows for name, rows in added.items() if not computed(rows)}
        grown = self._found_grown(following, added)
        longer = self._found_longer(added, grown)
        found = None if grown is None else {**longer, **grown}
        return Hints(self._layouts(), added, found, self._hints.longer | longer.keys())

    def _require_all(self, value: ir.Value) -> None:
        """Let the run end with an error unless all elements of a condition are true."""
        holds, builder = self._scope.get(value), self._builder
        assert isinstance(holds, Tensor)
        axes = tuple(range(len(holds.shape)))
        holds = builder.strided(builder.reduce(holds, axes, "min") if axes else holds)
        assert holds.base is not None
        message = self._conditions[value.name or ""]
        builder.draft.body.append(Require(holds.base.buffer, message))

    def _require_no_guards(self) -> None:
        """Refuse guards where rows change places: no other program could repeat the step."""
        body = [*statements(tuple(self._builder.draft.body))]
        for kept in (kept for kept in self._states if kept.pair.moved is not None):
            assert kept.state.whole.base is not None
            buffer = kept.state.whole.base.buffer
            first = next((i for i, each in enumerate(body) if buffer in each.writes()), 0)
            if any(isinstance(each, Require) and each.is_guard for each in body[first:]):
                reason = "has rows that change places before the model looks at sizes in the data"
                raise kept.pair.refused(reason)

    def _following(self, name: str, rows: Size, added: Size) -> Tensor:
        """Compute how many rows there are after the step."""
        if self.batch is None:
            return self._builder.stored((), (), cast(Extent(rows), "int64"))
        if computed(added):
            raise InputError(f"a pool needs to know how many rows of axis {name!r} a step adds")
        given, more = self._lengths[name].given, cast(Extent(added), "int64")
        shape = (self.batch.size,)
        return self._builder.compute(
            shape, lambda axes: op("add", Load(_at(given, axes[0]), "int64"), more)
        )

    def _layouts(self) -> frozenset[str]:
        """Name the states whose readers want rows to be neighbours in memory."""
        body = self._builder.draft.body
        growths = (
            (kept.pair.past.name or "", layout_of(kept.state, body)) for kept in self._states
        )
        return frozenset(name for name, growth in growths if growth is not None and growth.is_last)

    def _found_grown(
        self, following: Mapping[str, Size], added: Mapping[str, Size]
    ) -> dict[str, str] | None:
        """Find dimensions of inputs that must equal a length after the step.

        The model combined them with that length somewhere, or they are named as the axis of the
        next state.
        """
        if self._hints.grown is None:
            return None
        found = dict(self._hints.grown)
        lengths = {rows: name for name, rows in following.items() if name in added}
        free = self._free_dimensions()
        meaning = self._builder.sizes.meaning
        for left, right in self._builder.require.compared:
            pair = meaning(left), meaning(right)
            for one, other in (pair, pair[::-1]):
                if is_symbol(one) and str(one) in free and other in lengths:
                    found.setdefault(str(one), lengths[other])
        for kept in self._states:
            shape = shape_of(kept.pair.present)
            name = "" if shape is None else str(shape[kept.growth.axis])
            if name in free and kept.length.name in added:
                found.setdefault(name, kept.length.name)
        return found

    def _found_longer(self, added: Mapping[str, Size], grown: object) -> dict[str, str]:
        """Find dimensions of masks that are no less than a size which follows from rows.

        The model takes elements of them up to that size. In a pool they keep the size that they
        are given.
        """
        if not isinstance(grown, dict) or self.batch is not None or not added:
            return {}
        masks = [v for v in self._graph.inputs if dtype_of_value(v) in ("bool", "int32", "int64")]
        free = {str(size) for value in masks for size in shape_of(value) or ()}
        free &= self._free_dimensions() - grown.keys()
        meaning = self._builder.sizes.meaning
        demanded = [meaning(size) for size in self._builder.require.demanded if computed(size)]
        met = {name for size in demanded for name in symbols(size)}
        met -= {name for rows in added.values() for name in symbols(rows)}
        return dict.fromkeys(sorted(free & met), next(iter(added)))

    def implied(self) -> Hints:
        """Find hints of inputs as long as the states, in a model that is refused so far.

        A size that it makes of such a dimension met another size: both are equal if that many rows
        are added.
        """
        added, grown = dict[str, Size](), dict[str, str]()
        free, meaning = self._free_dimensions(), self._builder.sizes.meaning
        for pair in self._builder.require.compared if self._hints.grown is not None else ():
            for size, rows in (pair, pair[::-1]):
                made = meaning(size)
                for name, length in () if computed(rows) else self._lengths.items():
                    for dimension in free.intersection(symbols(made)):
                        extent = length.rows + rows
                        if substitute(made, {dimension: extent}) == rows:
                            added.setdefault(name, rows)
                            grown.setdefault(dimension, name)
        return Hints(frozenset(), added, grown)

    def _free_dimensions(self) -> set[str]:
        """Name the dimensions that only inputs beside the states have, once in each."""
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

    def arguments(self) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
        """List inputs that the model does not have, and all outputs: states, others, lengths."""
        draft = self._builder.draft
        own = {value.name for value in self._graph.inputs}
        added = tuple(_argument(given) for given in draft.inputs if given.name not in own)
        return added, tuple(map(_argument, draft.outputs))

    def described(self) -> tuple[KeptState, ...]:
        """Describe the kept states for the runtime."""
        return tuple(
            KeptState(
                kept.pair.past.name or "",
                kept.pair.present.name or "",
                kept.growth.axis,
                kept.length.name,
                kept.growth.is_last,
                kept.growth.in_front,
                self._streams_axis(kept.pair.past),
                kept.pair.moved,
                self._tables_of.get(kept.pair.past.name or ""),
            )
            for kept in self._states
        )


def row_of(tensor: Tensor, batch: Size, one: Size, axis: Axis) -> Tensor | None:
    """Take the part of a batch that belongs to one stream: an extent of `one` replaces it.

    None where the batch is not one of its dimensions.
    """
    places = [i for i, size in enumerate(tensor.shape) if size == batch]
    if len(places) != 1 or tensor.base is None:
        return None
    (place,), base = places, tensor.base
    moved = replace(base, terms=(*base.terms, (axis, tensor.strides[place])))
    shape = (*tensor.shape[:place], one, *tensor.shape[place + 1 :])
    return Tensor(tensor.dtype, shape, moved, tensor.strides)


def _at(base: Access, axis: Axis | None) -> Access:
    """Load the number of the current stream."""
    return base if axis is None else replace(base, terms=((axis, 1),))


def _argument(interface: Interface) -> Argument:
    sizes = tuple(n if isinstance(n, int) else str(n) for n in interface.shape)
    return Argument(interface.name, interface.dtype, sizes)
