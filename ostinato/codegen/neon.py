"""Sums of products of bytes by the instructions of AArch64, in vectors of four 32-bit lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ostinato.codegen.writer import Value, Writer
from ostinato.machine.record import ByteDots

_BYTES, _WORDS = "<16 x i8>", "<4 x i32>"
LANES = 4


# Writes a value once for all that need it in a block; the key says what it is.
Once = Callable[[tuple[object, ...], Callable[[], Value]], Value]


def _usdot(w: Writer, left: Value, right: Value, total: Value, once: Once) -> Value:
    return _dot("usdot", w, total, _bytes(w, left), _bytes(w, right))


def signed_dot(w: Writer, left: Value, right: Value, total: Value) -> Value:
    """Products of signed bytes of both."""
    return _dot("sdot", w, total, _bytes(w, left), _bytes(w, right))


def _sdot(w: Writer, left: Value, right: Value, total: Value, once: Once) -> Value:
    """`u s = (u - 128) s + 128 s`, whose second part is shared by all sums with the same `right`.

    `u - 128` is written once for all sums with the same `left`: LLVM then computes it for all words
    of a register, and a product takes one of these.
    """
    signed = _bytes(w, right)

    def flipped() -> Value:
        return w.binary("xor", left, Value(f"splat (i32 {0x80808080})", _WORDS))

    def added() -> Value:
        sixty_four = Value("splat (i8 64)", _BYTES)
        half = _dot("sdot", w, Value("zeroinitializer", _WORDS), signed, sixty_four)
        return _dot("sdot", w, half, signed, sixty_four)

    # The second operand of the instruction may be one word of a register.
    own = _bytes(w, once(("flipped", left), flipped))
    return w.binary("add", _dot("sdot", w, total, signed, own), once(("added", right), added))


def _widening(w: Writer, left: Value, right: Value, total: Value, once: Once) -> Value:
    """Products fit into 16 bits; they are added in pairs, and the sums in pairs again."""
    wide, half = "<16 x i16>", "<8 x i16>"
    a = w.convert("zext", _bytes(w, left), wide)
    b = w.convert("sext", _bytes(w, right), wide)
    products = w.binary("mul", a, b)
    pairs = []
    for start in (0, 8):
        picks = ", ".join(f"i32 {n}" for n in range(start, start + 8))
        part = w.emit(
            half, f"shufflevector {wide} {products.text}, {wide} poison, <8 x i32> <{picks}>"
        )
        pairs.append(w.call(_WORDS, "llvm.aarch64.neon.saddlp.v4i32.v8i16", part))
    return w.binary("add", total, w.call(_WORDS, "llvm.aarch64.neon.addp.v4i32", *pairs))


def _bytes(w: Writer, value: Value) -> Value:
    return w.convert("bitcast", value, _BYTES)


def _dot(name: str, w: Writer, total: Value, left: Value, right: Value) -> Value:
    return w.call(_WORDS, f"llvm.aarch64.neon.{name}.v4i32.v16i8", total, left, right)


DOTS: Mapping[ByteDots, Callable[[Writer, Value, Value, Value, Once], Value]] = {
    "usdot": _usdot,
    "sdot": _sdot,
    "widening": _widening,
}
"""How to add four products of unsigned bytes of the first operand and signed ones of the second
to each lane of the third, all `<4 x i32>`."""
