"""Move lanes that are not neighbours in memory.

Gathers and scatters access one element after the other. Lanes one or two apart, in either
direction, and several stores that fill memory together need neither: whole vectors and shuffles
move them. Lanes further apart are moved one by one where no instruction gathers: LLVM would compute
the vector of their addresses only to take it apart again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ostinato.codegen.primitives import suffix
from ostinato.codegen.writer import Value, Writer, integer, vector

# Lanes so far apart lie in two vectors.
CLOSE = (-1, 2, -2)
# Lanes so far apart lie in three or four vectors. Beyond, gathering takes no longer.
SPREAD = (3, 4)


def load_close(
    w: Writer, address: Value, stride: int, memory: str, width: int, item: int, alive: int
) -> Value:
    """Load the first `alive` lanes from `address` on, `stride` elements of `item` bytes apart.

    Behind them are zeros. Nothing outside of the elements from the first lane to the last one is
    accessed: two vectors, which overlap unless they fill the span, have all of them. stride: 1 or
    one of `CLOSE`.
    """
    type_, step = vector(memory, width), abs(stride)
    span = (alive - 1) * step + 1
    first = address if stride > 0 else w.pointer(address, integer(1 - span), memory)
    if span == 1:
        one = w.load(memory, first, item)
        return w.inserted(Value("zeroinitializer", type_), one, 0)
    held = min(width, 1 << (span.bit_length() - 1))
    part, behind = vector(memory, held), span - held
    parts = [first, w.pointer(first, integer(behind), memory)] if behind else [first]
    loaded = [w.load(part, p, item) for p in parts]
    picks = [n if n < held else n - behind + held for n in range(0, span, step)]
    picks = picks[::-1] if stride < 0 else picks
    dead = [picks[-1]] * (width - alive)
    result = w.shuffled(loaded[0], loaded[-1], picks + dead, memory)
    if not dead:
        return result
    zeros = Value("zeroinitializer", type_)
    lanes = [n if n < alive else width for n in range(width)]
    return w.shuffled(result, zeros, lanes, memory)


def load_spread(
    w: Writer, address: Value, stride: int, memory: str, width: int, item: int
) -> Value:
    """Load all lanes, one of `SPREAD` apart; the vectors access nothing behind the last lane."""
    places = [lane * stride for lane in range(width)]
    last = places[-1] + 1 - width
    result, found, within = _load(w, address, 0, memory, width, item), places, width
    for start in (*range(width, last, width), last):
        part = _load(w, address, start, memory, width, item)
        # Lanes behind this part are filled from a later one.
        picks = [
            found[lane] if n < within else width + min(n - start, width - 1)
            for lane, n in enumerate(places)
        ]
        result = w.shuffled(result, part, picks, memory)
        found, within = [*range(width)], start + width
    return result


def load_windows(
    w: Writer,
    address: Value,
    memory: str,
    width: int,
    item: int,
    alive: int | Value,
    taps: int,
) -> list[Value]:
    """Load the lanes of several taps, one element apart, whose lanes are two elements apart.

        lane k of tap r: x[2 k + r]

    All elements of the first `alive` lanes are loaded once, by two or three vectors that access
    nothing outside of them. Further lanes hold anything.
    """
    lanes = alive if isinstance(alive, int) else width
    span = 2 * (lanes - 1) + taps
    if isinstance(alive, int):
        held = min(width, 1 << (span.bit_length() - 1))
        starts = list(dict.fromkeys([0, min(held, span - held), span - held]))
        loaded = [_load(w, address, start, memory, held, item) for start in starts]
    else:
        held, starts = width, list(range(0, span, width))
        there = w.add(w.mul(alive, integer(2)), integer(taps - 2))
        loaded = [_load(w, address, start, memory, held, item, there) for start in starts]
    assert span <= 3 * held, "a window is longer than what is loaded of it"
    low, high, behind = loaded[0], loaded[min(1, len(loaded) - 1)], starts[min(1, len(starts) - 1)]
    within = behind + held

    def of_both(places: list[int]) -> Value:
        """Pick elements of the first two vectors; the last one in place of those behind it."""
        places = [min(n, within - 1) for n in places]
        picks = [n if n < held else n - behind + held for n in places]
        return w.shuffled(low, high, picks, memory)

    found: list[Value] = []
    for tap in range(taps):
        places = [2 * lane + tap for lane in range(width)]
        if places[lanes - 1] < within:
            found.append(of_both(places))
            continue
        # The last lanes are in the third vector; the others are those of an earlier tap, shifted.
        picks = [
            lane + tap // 2 if n < within else width + min(n, span - 1) - starts[-1]
            for lane, n in enumerate(places)
        ]
        found.append(w.shuffled(found[tap % 2], loaded[-1], picks, memory))
    return found


def _load(
    w: Writer,
    address: Value,
    start: int,
    memory: str,
    count: int,
    item: int,
    there: Value | None = None,
) -> Value:
    """Load `count` neighbours from `start` on; the first `there` from `address` on exist."""
    place = w.pointer(address, integer(start), memory) if start else address
    type_ = vector(memory, count)
    if there is None:
        return w.load(type_, place, item)
    # As many lanes of 32 bits are compared at once as there are floats.
    most = w.call("i64", "llvm.smin.i64", there, integer(start + count))
    last = w.convert("trunc", most, "i32")
    places = ", ".join(f"i32 {start + n}" for n in range(count))
    numbers = Value(f"<{places}>", vector("i32", count))
    mask = w.compare("icmp", "slt", numbers, w.splat(last, count), count)
    return load_masked(w, place, mask, Value("zeroinitializer", type_), memory, count, item)


def store_first(
    w: Writer, value: Value, address: Value, memory: str, item: int, alive: int
) -> None:
    """Store the first `alive` lanes, which are neighbours in memory, in parts of 2^n lanes.

    LLVM 22 turns a masked access with one lane known to be alive into a scalar access, of the wrong
    width if the elements are narrower than the integers they are computed as.
    """
    start = 0
    for count in _parts(alive):
        place = w.pointer(address, integer(start), memory)
        if count == 1:
            one = w.extracted(value, memory, start)
            w.store(one, place, item)
            return
        part = w.shuffled(value, value, list(range(start, start + count)), memory)
        w.store(part, place, item)
        start += count


def _parts(count: int) -> list[int]:
    """The powers of two whose sum is `count`, the largest first."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]


def load_masked(
    w: Writer, address: Value, mask: Value, other: Value, memory: str, width: int, item: int
) -> Value:
    """Load neighbours from an address on, or lanes at addresses of their own; `other` elsewhere.

    At most 16 at a time: LLVM 22 miscompiles the tests of 32 lanes for WebAssembly.
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
        return w.shuffled(low, high, list(range(width)), memory)
    places = f"v{width}p0" if is_apart else "p0"
    name = f"llvm.masked.{'gather' if is_apart else 'load'}.{suffix(memory, width)}.{places}"
    return w.call(other.type, name, address, integer(item, "i32"), mask, other)


def _half(w: Writer, value: Value, start: int, count: int, element: str) -> Value:
    return w.shuffled(value, value, list(range(start, start + count)), element)


def store_close(
    w: Writer, value: Value, address: Value, stride: int, memory: str, width: int, item: int
) -> None:
    """The mirror image of `load_close`: elements between the lanes are left alone."""
    step = abs(stride)
    span = (width - 1) * step
    first = address if stride > 0 else w.pointer(address, integer(-span), memory)
    lanes = [n // step if stride > 0 else width - 1 - n // step for n in range(width * step)]
    spread = w.shuffled(value, value, lanes, memory)
    if step == 1:
        w.store(spread, first, item)
        return
    bits = ", ".join("i1 true" if n % step == 0 else "i1 false" for n in range(len(lanes)))
    mask = Value(f"<{bits}>", vector("i1", len(lanes)))
    name = f"llvm.masked.store.{suffix(memory, len(lanes))}.p0"
    w.call("void", name, spread, first, integer(item, "i32"), mask)


def load_apart(
    w: Writer, address: Value, step: Value, memory: str, width: int, item: int, count: int
) -> Value:
    """Load the first `count` lanes, `step` elements apart from `address` on; 0 behind them."""
    result = Value("zeroinitializer", vector(memory, width))
    for lane, place in enumerate(_places(w, address, step, memory, count)):
        result = w.inserted(result, w.load(memory, place, item), lane)
    return result


def store_apart(
    w: Writer, value: Value, address: Value, step: Value, memory: str, item: int, count: int
) -> None:
    """Store the first `count` lanes, `step` elements apart from `address` on."""
    for lane, place in enumerate(_places(w, address, step, memory, count)):
        one = w.extracted(value, memory, lane)
        w.store(one, place, item)


def _places(w: Writer, address: Value, step: Value, memory: str, count: int) -> Iterator[Value]:
    """The addresses of lanes: each from the one before, so that no product is computed."""
    for lane in range(count):
        if lane:
            address = w.pointer(address, step, memory)
        yield address


def interleaved(w: Writer, values: list[Value], memory: str, width: int) -> list[Value]:
    """Interleave: vectors that hold lane 0 of every value, then lane 1, ..; 2^n values, or 3."""
    if len(values) == 1:
        return values
    if len(values) == 3:
        return [_of_three(w, values, part, memory, width) for part in range(3)]
    low = [n // 2 + width * (n % 2) for n in range(width)]
    high = [n + width // 2 for n in low]
    evens = interleaved(w, values[::2], memory, width)
    odds = interleaved(w, values[1::2], memory, width)
    return [
        w.shuffled(even, odd, picks, memory)
        for even, odd in zip(evens, odds, strict=True)
        for picks in (low, high)
    ]


def _of_three(w: Writer, values: list[Value], part: int, memory: str, width: int) -> Value:
    """One of the three vectors that hold lane 0 of three values, then lane 1, .."""
    places = [divmod(part * width + n, 3) for n in range(width)]
    # Of the third value, anything at first.
    picks = [lane + width * (value == 1) for lane, value in places]
    two = w.shuffled(values[0], values[1], picks, memory)
    last = [width + lane if value == 2 else n for n, (lane, value) in enumerate(places)]
    return w.shuffled(two, values[2], last, memory)
