"""Moves lanes that lie close together in memory as whole vectors and shuffles.

Gathering and scattering touch one element after the other. Lanes one or two apart, in either
direction, and several stores that fill memory together need neither.
"""

from __future__ import annotations

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
    return _shuffled(w, loaded[0], loaded[-1], picks[::-1] if stride < 0 else picks, memory)


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
        return _shuffled(w, low, high, list(range(width)), memory)
    places = f"v{width}p0" if is_apart else "p0"
    name = f"llvm.masked.{'gather' if is_apart else 'load'}.{suffix(memory, width)}.{places}"
    return w.call(other.type, name, address, integer(item, "i32"), mask, other)


def _half(w: Writer, value: Value, start: int, count: int, element: str) -> Value:
    return _shuffled(w, value, value, list(range(start, start + count)), element)


def store_close(
    w: Writer, value: Value, address: Value, stride: int, memory: str, width: int, item: int
) -> None:
    """The mirror image of `load_close`: what lies between the lanes is left alone."""
    step = abs(stride)
    span = (width - 1) * step
    first = address if stride > 0 else w.pointer(address, integer(-span), memory)
    lanes = [n // step if stride > 0 else width - 1 - n // step for n in range(width * step)]
    spread = _shuffled(w, value, value, lanes, memory)
    if step == 1:
        w.line(f"store {spread.type} {spread.text}, ptr {first.text}, align {item}")
        return
    bits = ", ".join("i1 true" if n % step == 0 else "i1 false" for n in range(len(lanes)))
    mask = Value(f"<{bits}>", vector("i1", len(lanes)))
    name = f"llvm.masked.store.{suffix(memory, len(lanes))}.p0"
    w.call("void", name, spread, first, integer(item, "i32"), mask)


def interleaved(w: Writer, values: list[Value], memory: str, width: int) -> list[Value]:
    """Vectors that hold lane 0 of every value, then lane 1, ..; a power of two of them."""
    if len(values) == 1:
        return values
    low = [n // 2 + width * (n % 2) for n in range(width)]
    high = [n + width // 2 for n in low]
    evens = interleaved(w, values[::2], memory, width)
    odds = interleaved(w, values[1::2], memory, width)
    return [
        _shuffled(w, even, odd, picks, memory)
        for even, odd in zip(evens, odds, strict=True)
        for picks in (low, high)
    ]


def _shuffled(w: Writer, a: Value, b: Value, picks: list[int], memory: str) -> Value:
    which = ", ".join(f"i32 {n}" for n in picks)
    return w.emit(
        vector(memory, len(picks)),
        f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{len(picks)} x i32> <{which}>",
    )
