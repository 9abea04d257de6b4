"""Reshape: where the time axis goes when axes are split, and when it is merged with others.

The elements of a value keep their order, so the product of the sizes before the time axis tells
where it is in the result. There it is an axis, or a part of one, as where the frames of a batch are
its rows (`Rows`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ostinato.sizes.dims import Size, exact_quotient, product, symbol
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import MIRRORED, ONE, TIME, Element, Length, Monomial, Rows, Stream
from ostinato.streaming.registry import streams, streams_rows


@streams("Reshape", lengths=True)
def reshape(context: Context) -> None:
    """Keeps the frames where they are, regroups a whole number of them, or merges axes."""
    if context.stream(0) is None:
        raise context.refuse("gives a value that is no stream the length of the sequence")
    stream = context.only_stream()
    frames = context.dims(context.given(0))[stream.axis]
    time = (Fraction(frames), 1) if isinstance(frames, int) else (Fraction(1), TIME)
    _Regrouping(context, stream, time).apply()


@streams_rows("Reshape")
def reshape_rows(context: Context) -> None:
    """Takes frames apart from what they are merged with, or merges them with more."""
    rows = context.fact(context.given(0))
    if not isinstance(rows, Rows) or rows.stream.steady:
        raise context.refuse("takes equal rows apart: make them with a time axis of their own")
    _Regrouping(context, rows.stream, rows.time, rows.outer, rows.inner).apply()


@streams_rows("Flatten")
@streams("Flatten")
def flatten(context: Context) -> None:
    """A Reshape to two axes, of which the one without frames has a known size."""
    dims, fact = context.dims(context.given(0)), context.fact(context.given(0))
    stream = fact.stream if isinstance(fact, Rows) else context.required_stream(0)
    at = context.attributes.int("axis", 1)
    at += len(dims) if at < 0 else 0
    others = dims[at:] if stream.axis < at else dims[:at]
    known = [size for size in others if isinstance(size, int)]
    if len(known) < len(others):
        raise context.refuse("merges frames with others beside an axis of unknown size")
    sizes = [-1, math.prod(known)] if stream.axis < at else [math.prod(known), -1]
    context.node.op_type = "Reshape"
    context.node.attributes.pop("axis", None)
    context.operand(1, context.writer.value(np.array(sizes, np.int64), "sizes"))
    (reshape_rows if isinstance(fact, Rows) else reshape)(context)


class _Regrouping:
    """A Reshape of input 0, whose axis `stream.axis` is `outer x time x inner`."""

    def __init__(
        self,
        context: Context,
        stream: Stream,
        time: Monomial,
        outer: Monomial = ONE,
        inner: Monomial = ONE,
    ) -> None:
        self._context, self._stream, self._time = context, stream, time
        target = list(context.elements(1))
        if context.attributes.int("allowzero", 0) and 0 in target:
            raise context.refuse("makes an empty value, as attribute 'allowzero' says")
        self._inner, self._is_merged = inner, (outer, inner) != (ONE, ONE)
        self._given = [self._measure(size) for size in context.dims(context.given(0))]
        self._given[stream.axis] = _times(_times(outer, time), inner)
        self._outer, self._target = outer, target
        self._result = self._solved()

    def apply(self) -> None:
        """Find the axis of the result that time is a part of, and write its sizes anew."""
        before = _product([*self._given[: self._stream.axis], self._outer])
        for place, size in enumerate(self._result):
            lead = _quotient(before, _product(self._result[:place]))
            rest = _quotient(size, lead)
            if lead is None or rest is None or lead[0] % 1:
                continue
            if lead == ONE and self._is_frames(place, rest):
                self._write_frames(place, rest[0] / self._time[0])
                return
            inner = _quotient(rest, self._time)
            if inner is not None and not inner[0] % 1 and lead[0] and inner[0]:
                self._write_rows(place, Rows(self._stream, self._time, lead, inner))
                return
        reason = (
            f"the time axis (axis {self._stream.axis} of {_text(self._given)}) is "
            f"not an axis of the result {_text(self._result)}, nor part of one"
        )
        if (group := self._group_of_rows(before)) is not None:
            reason += (
                f". It counts groups of {group} frames of all rows together, and a group may have "
                "frames of two rows: make the groups of each row first, by a Reshape that keeps "
                "the axes before time"
            )
        elif self._time[1] is TIME and all(isinstance(e, int) and e > 0 for e in self._target):
            reason += (
                ". All sizes of the result are numbers, so the model holds for one length only: "
                "give its input that length as a number too, and convert it then"
            )
        raise self._context.refuse(reason)

    def _group_of_rows(self, before: Monomial | None) -> int | None:
        """The frames in one element of an axis that counts them for all rows; else None."""
        for place, size in enumerate(self._result):
            lead = _quotient(before, _product(self._result[:place]))
            rest = _quotient(_quotient(size, lead), self._time)
            if lead not in (None, ONE) and rest is not None and rest[1] == 1 and rest[0] % 1:
                return rest[0].denominator
        return None

    def _measure(self, size: Element) -> Monomial | None:
        """A size as a monomial; None where it is not known."""
        if isinstance(size, int):
            return Fraction(size), 1
        if isinstance(size, str):
            factor, name = self._context.converter.multiples.get(size, (1, size))
            return Fraction(factor), symbol(name)
        if not isinstance(size, Length) or size.scale is None:
            return None
        if self._time[1] is TIME:
            return size.scale / self._stream.rate, TIME
        frames = self._context.converter.length
        return None if frames is None else (size.scale * frames + (size.extra or 0), 1)

    def _solved(self) -> list[Monomial | None]:
        """The sizes of the result; one that is not known is what is left of the input."""
        sizes: list[Monomial | None] = []
        for axis, size in enumerate(self._target):
            copies = size == 0 and axis < len(self._given)
            sizes.append(
                self._given[axis] if copies else None if size == -1 else self._measure(size)
            )
        open_ = [axis for axis, size in enumerate(sizes) if size is None]
        if len(open_) == 1:
            others = _product([size for size in sizes if size is not None])
            sizes[open_[0]] = _quotient(_product(self._given), others)
        return sizes

    def _is_frames(self, place: int, rest: Monomial) -> bool:
        """Whether an axis is frames alone, or a whole number of them is one, or of it is one."""
        factor = rest[0] / self._time[0]
        whole = factor > 0 and 1 in (factor.numerator, factor.denominator)
        if rest[1] != self._time[1] or not whole or (self._is_merged and factor != 1):
            return False
        is_last = place + 1 == len(self._result)
        return rest != ONE or is_last or self._time == ONE

    def _write_frames(self, place: int, factor: Fraction) -> None:
        """The frames of a step take the place of those of the sequence."""
        context, stream = self._context, self._stream
        self._check_others(place)
        if factor < 1:
            group = factor.denominator
            _, stream = timing.settled(context, 0)
            value, stream = timing.delayed(context, context.given(0), stream, -stream.delay % group)
            context.operand(0, value)
        elif factor > 1 and stream.fill is MIRRORED:
            # Parts of a frame are in order in mirrored frames, too.
            _, stream = timing.settled(context, 0)
        rate = stream.rate * factor
        timing.need_multiple(context, rate)
        frames = context.converter.frames(context.writer, rate)
        context.write_sizes(1, self._target, place, frames)
        extra = stream.extra
        if extra is not None:
            extra = None if extra * factor % 1 else int(extra * factor)
        # Parts of a frame are not all the same.
        steady = stream.steady and factor <= 1
        delay = int(stream.delay * factor)
        context.set(replace(stream, axis=place, rate=rate, delay=delay, extra=extra, steady=steady))

    def _write_rows(self, place: int, rows: Rows) -> None:
        """The axis that frames are part of is what the others leave."""
        context = self._context
        self._check_others(place)
        stream = self._stream
        if not self._is_merged:
            _, stream = timing.settled(context, 0)
        elements: list[Element] = list(self._target)
        for axis, size in enumerate(elements):
            solved = self._result[axis]
            if axis != place and size == -1:
                if solved is None or solved[1] != 1:
                    raise context.refuse("merges frames with others beside an axis of unknown size")
                elements[axis] = int(solved[0])
        context.write_sizes(1, elements, place, np.array([-1], np.int64))
        context.set(replace(rows, stream=replace(stream, axis=place)))

    def _check_others(self, place: int) -> None:
        if any(isinstance(e, Length) for i, e in enumerate(self._target) if i != place):
            raise self._context.refuse("makes a second axis that is as long as the sequence")


def _times(a: Monomial, b: Monomial) -> Monomial:
    return a[0] * b[0], a[1] * b[1]


def _product(sizes: Sequence[Monomial | None]) -> Monomial | None:
    """The product; None where a size is not known."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    number = Fraction(1)
    for factor, _ in known:
        number *= factor
    return number, product([size for _, size in known])


def _quotient(a: Monomial | None, b: Monomial | None) -> Monomial | None:
    """The `q` with `a == q * b`; None where there is none, or a size is not known."""
    if a is None or b is None or not b[0]:
        return None
    size: Size | None = exact_quotient(a[1], b[1])
    return None if size is None else (a[0] / b[0], size)


def _text(sizes: Sequence[Monomial | None]) -> str:
    def name(size: Monomial) -> str:
        number, rest = size
        text = str(rest).replace(str(TIME), "time")
        return str(number) if rest == 1 else text if number == 1 else f"{number}*{text}"

    return "[" + ", ".join("?" if size is None else name(size) for size in sizes) + "]"
