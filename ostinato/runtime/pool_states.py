"""The states of all streams of a pool, and the batch of those that are stepped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import InputError, StreamError
from ostinato.native.arguments import as_input, as_mapping, bind_shapes, check_names
from ostinato.runtime.batch import Batch, GrownBatch, batch_axis
from ostinato.runtime.padding import Padding, require_fixed_room
from ostinato.runtime.residents import Residents
from ostinato.runtime.rows import Rows
from ostinato.runtime.slots import Slots
from ostinato.runtime.states import (
    Pair,
    checked_count,
    checked_initial,
    checked_rows,
    declared_pairs,
    filled,
    mismatch,
    resolve,
    table,
    unresolved,
)
from ostinato.runtime.stepper import Stepper

if TYPE_CHECKING:
    from ostinato.runtime.session import InferenceSession

Array = np.ndarray[Any, Any]


class PoolStates:
    """A row of each state for every stream, and for those that grow a place with room for more.

    pairs: of the model of `session`. capacity: the number of streams, which are the dimension
    called `batch`. sizes: of run-time dimensions. shared: inputs that all streams have in common.
    rows: the limit of growing states.

    first: the states of a stream before its first step. batch: of the streams that are stepped.
    padding: of frames.
    """

    def __init__(
        self,
        session: InferenceSession,
        pairs: Sequence[Pair],
        capacity: int,
        batch: str,
        initial: Mapping[str, Any] | None,
        sizes: Mapping[str, int],
        shared: Mapping[str, Array],
        rows: int | None,
    ) -> None:
        growing = session._growing([(pair.name, pair.output.name) for pair in pairs], sizes, batch)
        stepped = session if growing is None else growing
        flow, model = stepped._flow, stepped._flow.model
        limit = checked_rows(rows)
        if limit is not None and growing is None:
            raise InputError("rows: no state of this pool grows")
        require_fixed_room(model.grown, limit)
        self._pairs = pairs
        values = checked_initial(initial, pairs)
        shapes = _shapes(pairs, values, sizes, [state.length for state in model.kept])
        dtypes = {pair.name: pair.dtype for pair in pairs}
        self.first = {pair.name: filled(pair, shapes[pair.name], values) for pair in pairs}
        names = {state.input for state in model.kept}
        fixed = [pair for pair in pairs if pair.name not in names]
        declared = [(pair.name, pair.output.name) for pair in fixed]
        own = declared_pairs(declared, model.inputs, model.outputs) if fixed else ()
        rows_of = {
            i: Rows(p.name, batch_axis(p.input, batch), shapes[p.name], p.dtype, capacity)
            for i, p in enumerate(fixed)
        }
        elements = [(capacity + 1) * rows.size for rows in rows_of.values()]
        stepper = Stepper(flow, stepped._native, own, elements, capacity, in_place=True)
        # States that a step changes in place stay where they are; others move into batches.
        resident = {
            i: rows for i, rows in rows_of.items() if own[i] in stepper.replaced and rows.is_leading
        }
        self._moving = {i: rows for i, rows in rows_of.items() if i not in resident}
        self._residents = Residents(stepper, resident, capacity)
        of_all = stepper, self._moving, self._residents
        made = {pair.output.name for pair in pairs} | {
            f"next length of {n.length}" for n in model.kept
        }
        axes = {a.name: batch_axis(a, batch) for a in model.outputs if a.name not in made}
        self._grown: Slots | None = None
        self.batch = Batch(*of_all, axes, shared)
        if growing is not None:
            self._grown = Slots(model.kept, capacity, shapes, dtypes, limit)
            self.batch = GrownBatch(*of_all, axes, shared, self._grown, model)
        self.padding = Padding(model.grown, self._grown)

    @property
    def has_places(self) -> bool:
        """Whether streams have places in memory that steps change."""
        return self._grown is not None or self._residents.are_there

    def checked(self, state: Mapping[str, Any] | None) -> dict[str, Array]:
        """Values of all states of one stream, those of `state` where given. Raises `InputError`."""
        given = as_mapping("state", {} if state is None else state)
        check_names("state", given, [pair.name for pair in self._pairs], complete=False)
        values = dict(self.first)
        for pair in self._pairs:
            if pair.name not in given:
                continue
            value = values[pair.name] = as_input(pair.input, given[pair.name])
            fixed = self.first[pair.name].shape
            grows = self._grown is not None and self._grown.is_of(pair.name, value.shape)
            if value.shape != fixed and not grows:
                raise mismatch(pair.input, value, fixed)
        if self._grown is not None:
            shapes = [value.shape for value in values.values()]
            bind_shapes([pair.input for pair in self._pairs], shapes)
        return values

    def put(self, slot: int, values: Mapping[str, Array]) -> None:
        """Give a stream these states."""
        if self._grown is not None:
            self._grown.put(slot, values)
        for name, value in self._fixed(slot):
            value[...] = values[name]

    def _fixed(self, slot: int) -> Iterator[tuple[str, Array]]:
        """The states of a stream that do not grow."""
        for rows in self._moving.values():
            yield rows.name, rows.place(slot)
        yield from self._residents.values(slot)

    def get(self, slot: int) -> dict[str, Array]:
        """Copies of the states of a stream."""
        found = {name: value.copy() for name, value in self._fixed(slot)}
        if self._grown is not None:
            found |= self._grown.valid(slot)
        return {pair.name: found[pair.name] for pair in self._pairs}

    def copy(self, slot: int, other: int) -> None:
        """Give another stream the states of one; rows of those that grow are shared at first."""
        for (_, value), (_, target) in zip(self._fixed(slot), self._fixed(other), strict=True):
            target[...] = value
        if self._grown is not None:
            self._grown.share(slot, other)

    def rewind(self, slot: int, rows: object) -> None:
        """Drop the last rows of a stream; raises as `GrowingStream.rewind`."""
        count = checked_count(rows)
        fixed = [name for name, _ in self._fixed(slot)]
        if self._grown is None or fixed:
            name = fixed[0]
            raise StreamError(f"state {name!r} does not grow, so that it cannot be rewound")
        self._grown.rewind(slot, count)

    def describe(self) -> str:
        """A table: input, output, shape of one stream, dtype."""
        grown = () if self._grown is None else self._grown.names
        shapes = [
            pair.input.shape if pair.name in grown else self.first[pair.name].shape
            for pair in self._pairs
        ]
        return table(self._pairs, shapes)


def _shapes(
    pairs: Sequence[Pair],
    initial: Mapping[str, Array],
    sizes: Mapping[str, int],
    lengths: Sequence[str],
) -> dict[str, tuple[int, ...]]:
    """The shapes of the states of one stream; those that grow have no rows at first."""
    known = {size for pair in pairs if pair.name in initial for size in pair.input.shape}
    sizes = {name: 0 for name in lengths if name not in known} | dict(sizes)
    shapes = resolve(pairs, sizes, initial)
    if shapes is None:
        raise unresolved(pairs, sizes, initial)
    return shapes
