"""A Loop whose steps share the memory of their states, some of which grow."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import describe
from ostinato.ops.core.common_rows import CommonRows
from ostinato.ops.core.emitter import LoopFrame
from ostinato.ops.core.found_growth import growth_of
from ostinato.ops.core.growing_states import Part, State, announce, keep_extents, layout_of
from ostinato.ops.core.growth import Growth, row_bytes, steps_with_room
from ostinato.ops.core.moved_rows import Moving
from ostinato.ops.core.registry import Context, UnknownOperandError
from ostinato.ops.core.singles import known_element
from ostinato.ops.core.size_sources import made_in, told_by_steps
from ostinato.ops.core.state_chains import chain_of, moved_axis
from ostinato.ops.core.tensor import (
    Absent,
    AnyValue,
    Joined,
    Pieces,
    Stack,
    Tensor,
    TensorSequence,
    Value,
    slice_axis,
)
from ostinato.ops.rules.collected import collect, is_fixed
from ostinato.ops.rules.elements import is_element
from ostinato.ops.rules.scan import check_states
from ostinato.ops.rules.sequence_forms import (
    agree,
    common_form,
    flattened,
    form,
    in_form,
    of_shape,
    rebuilt,
)
from ostinato.program.expr import ITEM_BYTES, Axis, Expr, Extent, Index, constant
from ostinato.program.nodes import Require
from ostinato.records import dataclass
from ostinato.sizes.dims import SPARE, Size, computed, is_nonnegative, symbols

if TYPE_CHECKING:
    import onnx_ir as ir

# A carried value is tried in this many forms at most: its kinds of growth, and their layouts.
_ATTEMPTS = 12
# In all, over the loops of a model: more would take minutes.
MOST_ATTEMPTS = 4096
_DIFFERENT = (
    "a carried sequence changes its length, and its elements differ in rank or along several axes"
)


class ChangingError(UnsupportedError):
    """Values of one step and of the next differ in form, so that they cannot share memory."""


@dataclass(frozen=True)
class _Expected:
    """Assumptions about a loop while its body is lowered.

    growths: of each carried tensor. ends_early: whether not all steps of its extent may run.
    keeps: whether something of every step is kept. row_bytes: how much memory that takes.
    counts: whether sizes depend on the number of the step. moved: the carried tensors that steps
    put elsewhere, so that they need memory of their own, whatever the loop around has for them.
    """

    growths: tuple[Growth | None, ...]
    ends_early: bool = False
    keeps: bool = False
    row_bytes: Size = 0
    counts: bool = False
    moved: frozenset[int] = frozenset()


class _UnexpectedError(Exception):
    """A body turned out to be of another kind than expected.

    initial: the values that the loop begins with, where these have another form.
    """

    def __init__(self, found: _Expected, initial: Sequence[AnyValue] | None = None) -> None:
        super().__init__()
        self.found, self.initial = found, initial


def _is_known(value: AnyValue, loop: LoopFrame, states: Sequence[State]) -> bool:
    return isinstance(value, Tensor | Joined) and is_fixed(value, loop, states)


def _is_open(growth: Growth | None) -> bool:
    """Whether a state has as many rows at most as there is memory for."""
    return growth is not None and growth.kind == "total" and SPARE in symbols(growth.rows)


class RolledLoop:
    """One Loop being lowered. `limit` is a trip count only known at run time."""

    def __init__(
        self,
        context: Context,
        body: ir.Graph,
        initial: Sequence[AnyValue],
        extent: Size,
        limit: Value | None,
    ) -> None:
        self._context = context
        self._builder = context.builder
        self._body = body
        self._initial = initial
        self._extent = extent
        self._is_inner = self._builder.emit.is_inside
        self._limit = None if limit is None else self._builder.strided(limit)
        # Whether nothing but a condition, or a number that a run computes, ends it.
        self._is_open = known_element(context.optional(0)) is None

    def run(self, condition: Value | None) -> list[AnyValue]:
        """All that the loop makes. What its body makes of the states tells what kind it is."""
        # A loop around this one lowers it again and again: what it was comes first.
        learned, key = self._builder.learned, self._key()
        known = learned.get(key)
        if isinstance(known, ChangingError):
            raise known
        try:
            results, expected = self._found_out(condition)
        except ChangingError as refusal:
            learned[key] = refusal
            raise
        # What it begins with may have taken another form.
        learned[self._key()] = expected
        return results

    def _found_out(self, condition: Value | None) -> tuple[list[AnyValue], _Expected]:
        """All that the loop makes, and what it is."""
        mark = self._builder.checkpoint()
        expected = self._expected()
        unknown: UnknownOperandError | None = None
        # Each state is tried in a few forms, so that some attempts suffice; more would never end.
        for _ in range(_ATTEMPTS * (1 + len(flattened(self._initial)))):
            self._count_attempt()
            try:
                return self._run(condition, flattened(self._initial), expected), expected
            except UnsupportedError as refusal:
                counts = self._told_by_steps(refusal, expected)
                if counts is None:
                    # Few steps may still be repeated, each with its number.
                    raise (unknown if self._is_inside(refusal) else None) or refusal from refusal
                assert isinstance(refusal, UnknownOperandError)
                unknown, expected = unknown or refusal, replace(expected, counts=counts)
                self._builder.rollback(mark)
            except _UnexpectedError as unexpected:
                expected = unexpected.found
                self._builder.rollback(mark)
                if unexpected.initial is not None:
                    self._begin_as(unexpected.initial)
                    mark = self._builder.checkpoint()
                    expected = self._expected()
        raise self._changing("what its steps carry takes no form that the next step keeps")

    def _told_by_steps(self, refusal: UnsupportedError, expected: _Expected) -> bool | None:
        """Let steps tell what has to be known to lower the body.

        Returns whether sizes depend on the number of the step; None where that does not help.
        """
        sources = told_by_steps(self._context, self._body, refusal)
        known, number = self._builder.measured, self._body.inputs[0]
        counts = number in sources and not self._is_open
        if counts:
            sources.discard(number)
            self._require_trip_count()
        if sources <= known and (not counts or expected.counts):
            return None
        known |= sources
        return expected.counts or counts

    def _is_inside(self, refusal: UnsupportedError) -> bool:
        """Whether what has to be known is made by the steps, not before them."""
        asked = refusal.operands if isinstance(refusal, UnknownOperandError) else ()
        return not asked or not set(made_in(self._body)).isdisjoint(asked)

    def _expected(self) -> _Expected:
        """The form of the loop in an earlier attempt to lower the one around it, if any.

        Without it, each level of nested loops would double the attempts. What only memory bounds
        may have a bound by now.
        """
        known = self._builder.learned.get(self._key())
        if isinstance(known, _Expected) and not any(map(_is_open, known.growths)):
            return known
        return _Expected((None,) * len(flattened(self._initial)))

    def _key(self) -> Hashable:
        """The loop and what it begins with, apart from sizes that differ in every attempt."""
        sizes = tuple(
            (value.dtype, *(None if computed(n) else n for n in value.shape))
            for value in flattened(self._initial)
        )
        extent = self._extent if not computed(self._extent) else None
        return self._body, extent, tuple(map(form, self._initial)), sizes

    def _count_attempt(self) -> None:
        self._builder.attempts += 1
        if self._builder.attempts > MOST_ATTEMPTS:
            raise self._context.refuse(
                f"the loops of the model take more than {MOST_ATTEMPTS} attempts to find out how "
                "the values that they carry change their sizes"
            )

    def _begin_as(self, models: Sequence[AnyValue]) -> None:
        """Begin with values of the form of these, which steps make."""
        initial: list[AnyValue] = []
        for i, (value, model) in enumerate(zip(self._initial, models, strict=True)):
            if self._takes_shape(i, value, model):
                initial.append(self._in_shape(value, model))
            elif form(value) == form(model) or not isinstance(model, (Stack, Pieces)):
                initial.append(value)
            else:
                sequence = in_form(self._context, value, model)
                if sequence is None:
                    raise self._changing(_DIFFERENT)
                initial.append(sequence)
        self._initial = initial

    def _takes_shape(self, position: int, value: AnyValue, after: AnyValue) -> bool:
        """Whether a state may begin with the shape that it has after a step, unlike the given one.

        Nobody sees what a state begins with that steps only set, as converters carry results; nor
        how many axes an element has that only meets others.
        """
        if not isinstance(value, Tensor | Joined) or not isinstance(after, Tensor | Joined):
            return False
        if value.dtype != after.dtype or value.shape == after.shape:
            return False
        rank = max(len(value.shape), len(after.shape))
        one = value.size == after.size == 1

        def is_hidden(read: ir.Value) -> bool:
            if not read.uses():
                return not read.is_graph_output()
            return one and is_element(self._builder, read, rank)

        # Without a step the result is what the state begins with.
        is_made = self._has_step or is_hidden(self._context.node.outputs[position])
        return is_made and is_hidden(self._body.inputs[2 + position])

    def _in_shape(self, value: AnyValue, model: AnyValue) -> Tensor:
        """The only element of a value in another shape, or zeros in place of what nobody reads."""
        assert isinstance(value, Tensor | Joined) and isinstance(model, Tensor | Joined)
        if value.size == model.size == 1:
            return self._builder.reshaped(value, model.shape)
        zero = constant(0, model.dtype)
        return self._builder.compute(model.shape, lambda _: zero)

    @property
    def _has_step(self) -> bool:
        """Whether it is known before that there is a step."""
        trips, condition = (self._context.optional(n) for n in (0, 1))
        count, begins = known_element(trips), known_element(condition)
        counted = trips is None or (count is not None and is_nonnegative(count - 1))
        return counted and (condition is None or begins is True)

    def _run(
        self, condition: Value | None, initial: Sequence[Value], expected: _Expected
    ) -> list[AnyValue]:
        builder = self._builder
        # An earlier attempt has left the name of a node of the body.
        node = self._context.node
        builder.draft.node, builder.draft.op = describe(node), node.op_type
        ends = expected.ends_early
        parts = _parts(self._initial)
        states, steps, shared = self._states(initial, expected, parts)
        going, still_going = builder.empty("bool", ()), builder.empty("bool", ())
        builder.copy(self._proceed(condition, constant(0, "int64")), going)
        done = self._extent
        if ends and expected.keeps:
            done = builder.sizes.declared(steps, "number of steps")
            builder.sizes.compute(done, constant(0, "int64"))
        before = builder.draft.body
        with builder.emit.loop(self._extent) as loop:
            step = self._enter(loop.axis, steps, done, expected)
            given = [state.before(step) for state in states]
            moving, common = list[Moving](), CommonRows(builder, before)
            moving = announce(states, given, parts, self._body, loop.axis, step + 1, common)
            proceed, after, elements = self._step(loop, given, step if expected.counts else None)
            updated = flattened(after)
            ends_early = self._ends_early(condition, proceed)
            found = self._found(
                states,
                given,
                after,
                elements,
                loop,
                ends_early or self._is_open,
            )
            moved = {
                i for i in shared if found.growths[i] and not states[i].holds(updated[i], step + 1)
            }
            found = replace(found, counts=expected.counts, moved=expected.moved | moved)
            if found != expected:
                raise _UnexpectedError(found)
            if not ends_early and self._is_open:
                raise self._context.invalid("neither a trip count nor a condition ends this loop")
            if ends:
                builder.copy(self._proceed(proceed, Index(loop.axis) + 1), still_going)
                loop.carry(going, still_going)
                loop.condition = loop.carries[0].state
            sequences = [
                collect(builder, element, loop, steps, states, before, done) for element in elements
            ]
            for state, value in zip(states, updated, strict=True):
                state.store(value, step + 1, loop)
            for rows in moving:
                rows.finish()
            loop.carries += common.carries
            keep_extents(states, updated)
        return [
            *rebuilt(self._initial, [state.before(done) for state in states]),
            *(slice_axis(sequence, 0, 0, 1, done) for sequence in sequences),
        ]

    def _step(
        self, loop: LoopFrame, given: Sequence[Tensor], known: Size | None
    ) -> tuple[Value, list[AnyValue], list[Value]]:
        """Lower the body: its condition, the states behind it, and the elements that it gives.

        given: the states before it. known: the number of the step as a size, where it is one.
        """
        number = self._builder.compute((), lambda _: Index(loop.axis))
        if known is not None:
            number = replace(number, known=np.array(known, object))
        # A step only runs if the condition that it is given is true.
        yes = self._builder.constant(np.array(True))
        states = rebuilt(self._initial, given)
        proceed, *results = self._context.lower_body(self._body, [number, yes, *states])
        count = len(self._initial)
        condition, *elements = flattened([proceed, *results[count:]])
        return condition, list(map(self._as_begun, self._initial, results[:count])), elements

    def _as_begun(self, before: AnyValue, after: AnyValue) -> AnyValue:
        """What a step makes, in the form of what the loop begins with if it can have that.

        A shape is the same one where the body ends the run, or the program, unless it is.
        """
        if isinstance(before, Tensor | Joined) and isinstance(after, Tensor | Joined):
            is_same = before.dtype == after.dtype and agree(
                self._builder, after.shape, before.shape
            )
            return of_shape(self._builder, after, before.shape) if is_same else after
        if form(before) == form(after) or not isinstance(before, (Stack, Pieces)):
            return after
        return in_form(self._context, after, before) or after

    def _states(
        self, initial: Sequence[Value], expected: _Expected, parts: Sequence[Part | None]
    ) -> tuple[list[State], Size, set[int]]:
        """The states, how many steps have room, and which states the loop around has memory for."""
        builder, steps = self._builder, self._extent
        kinds = list(zip(initial, expected.growths, strict=True))
        around = [
            None if i in expected.moved else self._memory_around(parts[i], value, growth)
            for i, (value, growth) in enumerate(kinds)
        ]
        if expected.ends_early and expected.keeps:
            grown = zip(initial, expected.growths, around, strict=True)
            is_part = any(g and m is None and computed(value.size) for value, g, m in grown)
            steps = steps_with_room(builder, steps, expected.row_bytes, is_part)
        states = []
        for i, (value, growth) in enumerate(kinds):
            axis = None
            part = parts[i]
            if part is not None and part.is_whole:
                axis = moved_axis(self._body, part.position, value.shape)
            name = f"carried value {i}" if part is None else self._named(part.position)
            states.append(State.of(builder, name, value, growth, steps, around[i], axis))
        return states, steps, {i for i, memory in enumerate(around) if memory is not None}

    def _memory_around(
        self, part: Part | None, value: Value, growth: Growth | None
    ) -> Tensor | None:
        """The memory of a state of the loop around, if this loop does nothing but append to it."""
        if growth is None or growth.in_front or part is None:
            return None
        name = self._context.node.outputs[part.position].name or ""
        appending = self._builder.appending.get(name)
        if appending is not None and part.is_borders:
            appending = appending.borders
        return None if appending is None or appending.state is not value else appending.memory

    def _enter(self, axis: Axis, steps: Size, done: Size, expected: _Expected) -> Size:
        """Values at the start of each step; its number as a size, if a state grows by it."""
        builder = self._builder
        if steps != self._extent:
            has_room = builder.compute((), lambda _: Index(axis) < Extent(steps))
            message = (
                f"{builder.draft.where}: each step adds "
                f"{expected.row_bytes} bytes to what the loop keeps, and there is no memory left "
                "for more steps; give a trip count, or a condition that ends it earlier"
            )
            builder.emit.append(Require(has_room.buffer, message))
        if done != self._extent:
            builder.sizes.compute(done, Index(axis) + 1)
        exact = [growth for growth in expected.growths if growth and growth.kind == "exact"]
        is_rest = bool(exact) and all(growth.shrinks for growth in exact)
        if not exact and not expected.counts:
            return 0
        return builder.sizes.step(axis, steps, is_rest)

    def _found(
        self,
        states: Sequence[State],
        given: Sequence[Tensor],
        after: Sequence[AnyValue],
        elements: Sequence[Value],
        loop: LoopFrame,
        ends_early: bool,
    ) -> _Expected:
        """Find the kind of loop by comparing the states after a step with those before.

        elements: what each step gives.
        """
        for position, (value, made) in enumerate(zip(self._initial, after, strict=True)):
            if self._takes_shape(position, value, made) and _is_known(made, loop, states):
                raise _UnexpectedError(_Expected(()), after)
        values = flattened(after)
        if [form(value) for value in after] != [form(value) for value in self._initial]:
            pairs = zip(self._initial, after, strict=True)
            raise _UnexpectedError(
                _Expected(()), [self._of_any_length(a, b, loop, states) for a, b in pairs]
            )
        growths = [
            self._growth(position, state, old, new)
            for position, (state, old, new) in enumerate(zip(states, given, values, strict=True))
        ]
        grown = [
            row_bytes(growth, state.initial)
            for growth, state in zip(growths, states, strict=True)
            if growth is not None
        ]
        kept = [
            element.size * ITEM_BYTES[element.dtype]
            for element in elements
            if is_fixed(element, loop, states)
        ]
        total = sum(grown + kept, start=0)
        keeps = bool(elements) or total != 0
        return _Expected(tuple(growths), ends_early, keeps, total)

    def _of_any_length(
        self, before: AnyValue, after: AnyValue, loop: LoopFrame, states: Sequence[State]
    ) -> AnyValue:
        """A value in a form that it can have before a step and behind it."""
        if form(before) == form(after):
            return before

        def is_open(size: Size) -> bool:
            return not is_fixed(Tensor("int64", (size,), None), loop, states)

        if any(isinstance(value, (Tensor, Joined, Absent)) for value in (before, after)):
            raise self._changing("a carried optional changes whether it is empty")
        found = common_form(self._builder, [before, after], is_open)
        if found is None:
            raise self._changing(_DIFFERENT)
        return found

    def _growth(self, position: int, state: State, old: Tensor, new: Value) -> Growth | None:
        """Find how a state changes its extent; None where it keeps it."""
        growth, builder = state.growth, self._builder
        if growth is not None:
            axis = growth.axis
            first = state.initial.shape[axis]
            before, after = old.shape[axis], new.shape[axis]
            keeps = growth.keeps(old.shape, new.shape)
            if growth.others and keeps and growth.holds_all(builder, old.shape, new.shape):
                return growth
            if keeps and not growth.others and growth.holds(builder, first, before, after):
                return layout_of(state, builder.draft.body)
        elif old.shape == new.shape:
            check_states(self._context, [old], [new])
            return None
        part = _parts(self._initial)[position]
        joins_last = part is not None and bool(
            chain_of(self._body, part.position, True, old.shape).nodes
        )
        found = growth_of(state, old, new, joins_last)
        if found is None:
            # With a number of steps there may be a form.
            self._require_trip_count()
            position = position if part is None else part.position
            raise self._changing(f"{self._named(position)} changes its shape")
        self._require_trip_count()
        return found

    def _require_trip_count(self) -> None:
        """As a size, the trip count tells how much memory there has to be."""
        if self._limit is not None and not self._is_inner:
            raise self._context.unknown("the number of steps is only known at run time", 0)

    def _named(self, position: int) -> str:
        """What errors call a carried value: its number, and its name in the body."""
        return f"carried value {position} ({self._body.inputs[2 + position].name!r})"

    def _changing(self, reason: str) -> ChangingError:
        node = self._context.node
        return ChangingError(describe(node), node.op_type, reason)

    def _proceed(self, condition: Value | None, number: Expr) -> Value:
        """Whether there is a step of this number."""
        builder = self._builder
        given = builder.constant(np.array(True)) if condition is None else condition
        flat = Tensor("bool", (), builder.strided(given).base)
        if self._limit is None:
            return flat
        limit = Tensor("int64", (), self._limit.base)
        return builder.pointwise(lambda c, m: c & (number < m), flat, limit)

    def _ends_early(self, condition: Value | None, proceed: Value) -> bool:
        """Whether anything but a known trip count can end the loop."""
        start = True if condition is None else known_element(condition)
        kept = known_element(proceed) is True
        return not (self._limit is None and start is not None and bool(start) and kept)


def _parts(values: Sequence[AnyValue]) -> list[Part | None]:
    """What each tensor of carried values is; None for elements of a sequence."""
    found: list[Part | None] = []
    for position, value in enumerate(values):
        if isinstance(value, TensorSequence):
            found += [None] * len(value.elements)
        elif isinstance(value, Pieces):
            found += [Part(position, is_whole=False), Part(position, False, is_borders=True)]
        elif not isinstance(value, Absent):
            found.append(Part(position))
    return found
