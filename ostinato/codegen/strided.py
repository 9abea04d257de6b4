"""Moves lanes that are not neighbours in memory.

Gathering and scattering touch one element after the other. Lanes one or two apart, in either
direction, and several stores that fill memory together need neither: whole vectors and shuffles
move them. Lanes further apart are moved one by one where no instruction gathers: LLVM would compute
the vector of their addresses to take it apart again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.codegen.primitives import suffix
from ostinato.codegen.writer import Value, Writer, integer, vector

# Further apart, more than two vectors hold the lanes of one, and gathering takes no longer.
CLOSE = (-1, 2, -2)


def load_close(w: Writer, address: Value, stride: int, memory: str, width: int, item: int) -> Value:
    """The lanes from `address` on, `stride` in `CLOSE` elements of `item` bytes apart.

    Nothing outside of the elements from the first lane to the last one is touched.
    """
    type_, step = vector(memory, width), abs(stride)
    span = (width - 1) * step
    first = address if stride > 0 else w.pointer(address, integer(-span), memory)
    # The last vector ends with the last lane, so with steps of 2 both share one element.
    behind = span - (width - 1)
    parts = [first, w.pointer(first, integer(behind), memory)] if behind else [first]
    loaded = [w.emit(type_, f"load {type_}, ptr {p.text}, align {item}") for p in parts]
    picks = [n if n < width else n - behind + width for n in range(0, span + 1, step)]
    return shuffled(w, loaded[0], loaded[-1], picks[::-1] if stride < 0 else picks, memory)


def load_first(
    w: Writer, address: Value, stride: int, memory: str, width: int, item: int, alive: int
) -> Value:
    """The first `alive` lanes, as `load_close` does, and 0 behind them.

    They are moved in parts of 2^n lanes, as `store_first` does. LLVM 22 turns a masked access with
    one lane known to be alive into a scalar access, of the wrong width if the elements are narrower
    than the integers they are computed as.
    """
    type_, start = vector(memory, width), 0
    result = Value("zeroinitializer", type_)
    for count in _parts(alive):
        place = w.pointer(address, integer(start * stride), memory)
        if count == 1:
            one = w.emit(memory, f"load {memory}, ptr {place.text}, align {item}")
            return w.emit(
                type_, f"insertelement {type_} {result.text}, {memory} {one.text}, i64 {start}"
            )
        part = load_close(w, place, stride, memory, count, item)
        wide = shuffled(w, part, part, [min(n, count - 1) for n in range(width)], memory)
        own = range(start, start + count)
        picks = [width + n - start if n in own else n for n in range(width)]
        result = shuffled(w, result, wide, picks, memory)
        start += count
    return result


def store_first(
    w: Writer, value: Value, address: Value, memory: str, item: int, alive: int
) -> None:
    """Store the first `alive` lanes, which are neighbours in memory."""
    start = 0
    for count in _parts(alive):
        place = w.pointer(address, integer(start), memory)
        if count == 1:
            one = w.emit(memory, f"extractelement {value.type} {value.text}, i64 {start}")
            w.line(f"store {memory} {one.text}, ptr {place.text}, align {item}")
            return
        part = shuffled(w, value, value, list(range(start, start + count)), memory)
        w.line(f"store {part.type} {part.text}, ptr {place.text}, align {item}")
        start += count


def _parts(count: int) -> list[int]:
    """The powers of two whose sum is a count, the largest first."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]


def load_masked(
    w: Writer, address: Value, mask: Value, other: Value, memory: str, width: int, item: int
) -> Value:
    """Neighbours from an address on, or lanes at addresses of their own, and `other` elsewhere.

    At most 16 at a time: LLVM 22 mistakes the tests of 32 lanes for WebAssembly.
    """
    is_apart = address.type != "ptr"
    if width > 16:
        half = width // 2
        low, high = (
            load_masked(
                w,
                _half(w, address, start, half, "ptr")
                if is_apart
                else w.pointer(address, integer(start), memory),
                _half(w, mask, start, half, "i1"),
                _half(w, other, start, half, memory),
                memory,
                half,
                item,
            )
            for start in (0, half)
        )
        return shuffled(w, low, high, list(range(width)), memory)
    places = f"v{width}p0" if is_apart else "p0"
    name = f"llvm.masked.{'gather' if is_apart else 'load'}.{suffix(memory, width)}.{places}"
    return w.call(other.type, name, address, integer(item, "i32"), mask, other)


def _half(w: Writer, value: Value, start: int, count: int, element: str) -> Value:
    return shuffled(w, value, value, list(range(start, start + count)), element)


def store_close(
    w: Writer, value: Value, address: Value, stride: int, memory: str, width: int, item: int
) -> None:
    """The mirror image of `load_close`: what lies between the lanes is left alone."""
    step = abs(stride)
    span = (width - 1) * step
    first = address if stride > 0 else w.pointer(address, integer(-span), memory)
    lanes = [n // step if stride > 0 else width - 1 - n // step for n in range(width * step)]
    spread = shuffled(w, value, value, lanes, memory)
    if step == 1:
        w.line(f"store {spread.type} {spread.text}, ptr {first.text}, align {item}")
        return
    bits = ", ".join("i1 true" if n % step == 0 else "i1 false" for n in range(len(lanes)))
    mask = Value(f"<{bits}>", vector("i1", len(lanes)))
    name = f"llvm.masked.store.{suffix(memory, len(lanes))}.p0"
    w.call("void", name, spread, first, integer(item, "i32"), mask)


def load_apart(
    w: Writer, address: Value, step: Value, memory: str, width: int, item: int, count: int
) -> Value:
    """The first `count` lanes, `step` elements apart from `address` on; 0 behind them."""
    result = Value("zeroinitializer", vector(memory, width))
    for lane, place in enumerate(_places(w, address, step, memory, count)):
        one = w.emit(memory, f"load {memory}, ptr {place.text}, align {item}")
        text = f"insertelement {result.type} {result.text}, {memory} {one.text}, i64 {lane}"
        result = w.emit(result.type, text)
    return result


def store_apart(
    w: Writer, value: Value, address: Value, step: Value, memory: str, item: int, count: int
) -> None:
    """Store the first `count` lanes, `step` elements apart from `address` on."""
    for lane, place in enumerate(_places(w, address, step, memory, count)):
        one = w.emit(memory, f"extractelement {value.type} {value.text}, i64 {lane}")
        w.line(f"store {memory} {one.text}, ptr {place.text}, align {item}")


def _places(w: Writer, address: Value, step: Value, memory: str, count: int) -> Iterator[Value]:
    """The addresses of lanes: each from the one before, so that no product is computed."""
    for lane in range(count):
        if lane:
            address = w.pointer(address, step, memory)
        yield address


def interleaved(w: Writer, values: list[Value], memory: str, width: int) -> list[Value]:
    """Vectors that hold lane 0 of every value, then lane 1, ..; a power of two of them."""
    if len(values) == 1:
        return values
    low = [n // 2 + width * (n % 2) for n in range(width)]
    high = [n + width // 2 for n in low]
    evens = interleaved(w, values[::2], memory, width)
    odds = interleaved(w, values[1::2], memory, width)
    return [
        shuffled(w, even, odd, picks, memory)
        for even, odd in zip(evens, odds, strict=True)
        for picks in (low, high)
    ]


def shuffled(w: Writer, a: Value, b: Value, picks: list[int], memory: str) -> Value:
    """The lanes of two vectors with these numbers, those of the second behind the first."""
    which = ", ".join(f"i32 {n}" for n in picks)
    return w.emit(
        vector(memory, len(picks)),
        f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{len(picks)} x i32> <{which}>",
    )
