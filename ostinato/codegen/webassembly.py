"""Operations that WebAssembly has its own way for: multiply-add, dots, 16-bit floats, addresses.

Its vectors have 16 bytes. Wider ones are split for the instructions that LLVM's generic IR does not
have, and joined again, which costs no instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ostinato.codegen.writer import Value, Writer, float_literal, integer, vector
from ostinato.machine.record import FusedMultiplyAdd

# No address is below: the stack comes first.
LOWEST_ADDRESS = 1 << 16
_ADDRESS = re.compile(r"getelementptr (?:inbounds )?i8, ptr (%[\w.]+), i32 (\d+)$", re.MULTILINE)

_ITEM = {"float": 4, "double": 8}
_SUFFIX = {"float": "f32", "double": "f64"}


def multiply_add(
    w: Writer, args: Sequence[Value], element: str, lanes: int, how: FusedMultiplyAdd
) -> Value:
    """`args[0] * args[1] + args[2]`, rounded once, on `lanes` lanes of "float" or "double".

    how: "relaxed" is the instruction that rounds once or twice, as the engine likes: whoever loads
    the module finds out which. "function" calls that of `runtime_functions`.
    """
    per = 16 // _ITEM[element]
    type_ = vector(element, per)
    name = "llvm.wasm.relaxed.madd" if how == "relaxed" else "multiply.add"
    function = f"{name}.v{per}{_SUFFIX[element]}"
    # Cranelift overwrites the first operand: the second is the one that rows and vectors share more
    # often.
    swapped = [args[1], args[0], args[2]]
    return _by_registers(w, swapped, element, lanes, per, lambda a: w.call(type_, function, *a))


def dot(w: Writer, left: Value, right: Value, total: Value, lanes: int) -> Value:
    """The total plus four products of bytes in each lane, unsigned ones of `left` with signed ones.

    Exact in every engine, unlike the relaxed dot, whose bytes of one side may have 7 bits only:
    even and odd bytes as 16-bit integers are added in pairs.
    """
    halves = vector("i16", 8)

    def bytes_of(value: Value, shift: str, odd: bool) -> Value:
        wide = w.convert("bitcast", value, halves)
        eight = Value("splat (i16 8)", halves)
        if not odd and shift == "lshr":
            return w.binary("and", wide, Value("splat (i16 255)", halves))
        if not odd:
            wide = w.binary("shl", wide, eight)
        return w.binary(shift, wide, eight)

    def register(args: Sequence[Value]) -> Value:
        a, b, result = args
        for odd in (False, True):
            pair = bytes_of(a, "lshr", odd), bytes_of(b, "ashr", odd)
            result = w.binary("add", result, w.call(result.type, "llvm.wasm.dot", *pair))
        return result

    return _by_registers(w, [left, right, total], "i32", lanes, 4, register)


def relaxed_dot(w: Writer, left: Value, right: Value, total: Value, lanes: int) -> Value:
    """The total plus products of signed bytes: in every engine, as bytes of `right` have 7 bits."""

    def register(args: Sequence[Value]) -> Value:
        bytes_ = [w.convert("bitcast", value, vector("i8", 16)) for value in args[:2]]
        name = "llvm.wasm.relaxed.dot.i8x16.i7x16.add.signed"
        return w.call(args[2].type, name, *bytes_, args[2])

    return _by_registers(w, [left, right, total], "i32", lanes, 4, register)


def select(
    w: Writer,
    condition: Value,
    yes: Value,
    no: Value,
    compared: tuple[Value, Value] | None,
    element: str,
    lanes: int,
) -> Value:
    """Choose between vectors of floats by lane, with instructions that keep NaN and zeros.

    LLVM 22 turns the plain choice of the smaller or larger value into a relaxed minimum or maximum,
    which may be anything for NaN.

    compared: the two values if the condition is that the first is less than the second.
    """
    item = _ITEM[element]
    per = 16 // item
    if compared in ((yes, no), (no, yes)):
        # pmin and pmax give the second operand where that is less, or greater, than the first.
        name = "pmin" if compared == (yes, no) else "pmax"
        part = f"llvm.wasm.{name}.v{per}{_SUFFIX[element]}"
        return _by_registers(
            w, [no, yes], element, lanes, per, lambda a: w.call(vector(element, per), part, *a)
        )
    word = f"i{8 * item}"
    type_ = vector(word, lanes)
    mask = w.convert("sext", condition, type_)
    bits = [w.convert("bitcast", v, type_) for v in (yes, no)]
    function = f"llvm.wasm.relaxed.laneselect.v{per}{word}"
    made = _by_registers(
        w, [*bits, mask], word, lanes, per, lambda a: w.call(vector(word, per), function, *a)
    )
    return w.convert("bitcast", made, yes.type)


def _by_registers(
    w: Writer,
    args: Sequence[Value],
    element: str,
    lanes: int,
    per: int,
    make: Callable[[Sequence[Value]], Value],
) -> Value:
    """Apply `make` to the operands, `per` lanes at a time; missing lanes are undefined."""
    type_ = vector(element, per)
    if lanes == 1:
        nothing = Value("poison", type_)
        return w.extracted(make([w.inserted(nothing, a, 0) for a in args]), element, 0)
    if lanes == per:
        return make(args)
    parts = [
        make([_shuffle(w, [a], range(start, start + per), lanes, element) for a in args])
        for start in range(0, lanes, per)
    ]
    size = per
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], Value("poison", parts[0].type)], strict=False)
        parts = [_shuffle(w, pair, range(2 * size), size, element) for pair in pairs]
        size *= 2
    return parts[0] if size == lanes else _shuffle(w, parts, range(lanes), size, element)


def _shuffle(w: Writer, values: Sequence[Value], picks: range, size: int, element: str) -> Value:
    """Lanes of one or two vectors of `size` lanes; those beyond both are undefined."""
    a = values[0]
    b = values[1] if len(values) > 1 else Value("poison", a.type)
    end = size * len(values)
    return w.shuffled(a, b, [n if n < end else None for n in picks], element)


def widen_half(w: Writer, value: Value, lanes: int) -> Value:
    """The float32 of the bits of a float16, exactly."""
    bits, single = vector("i32", lanes), vector("float", lanes)
    wide = w.convert("zext", value, bits)
    sign = w.binary("shl", w.binary("and", wide, _splat(0x8000, lanes)), _splat(16, lanes))
    magnitude = w.binary("shl", w.binary("and", wide, _splat(0x7FFF, lanes)), _splat(13, lanes))
    # Exponents differ by 112; a product shifts them, subnormal numbers included.
    small = w.convert("bitcast", magnitude, single)
    moved = w.binary("fmul", small, _splat_float(2.0**112, lanes))
    found = w.convert("bitcast", moved, bits)
    special = w.compare("icmp", "uge", magnitude, _splat(0x7C00 << 13, lanes), lanes)
    found = w.select(special, w.binary("or", magnitude, _splat(0x7F800000, lanes)), found)
    found = w.binary("or", found, sign)
    return w.convert("bitcast", found, single)


def narrow_half(w: Writer, value: Value, lanes: int) -> Value:
    """The bits of the float16 nearest to a float32, ties to even; NaN stays NaN."""
    bits, single = vector("i32", lanes), vector("float", lanes)
    all_ = w.convert("bitcast", value, bits)
    magnitude = w.binary("and", all_, _splat(0x7FFFFFFF, lanes))
    sign = w.binary("lshr", w.binary("xor", all_, magnitude), _splat(16, lanes))
    odd = w.binary("and", w.binary("lshr", magnitude, _splat(13, lanes)), _splat(1, lanes))
    # Half of the last place, a little less for even numbers, carries where rounding is upward.
    rebias = w.binary("add", odd, _splat(0xFFF - (112 << 23), lanes))
    normal = w.binary("lshr", w.binary("add", magnitude, rebias), _splat(13, lanes))
    # The last place of 0.5 is that of subnormal numbers of float16.
    positive = w.convert("bitcast", magnitude, single)
    sum_ = w.binary("fadd", positive, _splat_float(0.5, lanes))
    sum_bits = w.convert("bitcast", sum_, bits)
    subnormal = w.binary("sub", sum_bits, _splat(0x3F000000, lanes))
    is_small = w.compare("icmp", "ult", magnitude, _splat(113 << 23, lanes), lanes)
    found = w.select(is_small, subnormal, normal)
    is_large = w.compare("icmp", "uge", magnitude, _splat(0x477FF000, lanes), lanes)
    found = w.select(is_large, _splat(0x7C00, lanes), found)
    is_nan = w.compare("icmp", "ugt", magnitude, _splat(0x7F800000, lanes), lanes)
    found = w.binary("or", w.select(is_nan, _splat(0x7E00, lanes), found), sign)
    half = vector("i16", lanes)
    return w.convert("trunc", found, half)


def _splat(number: int, lanes: int) -> Value:
    one = integer(number, "i32")
    return one if lanes == 1 else Value(f"splat (i32 {number})", vector("i32", lanes))


def _splat_float(number: float, lanes: int) -> Value:
    one = float_literal(number, "float")
    return one if lanes == 1 else Value(f"splat (float {one.text})", vector("float", lanes))


def with_offsets(text: str) -> str:
    """Rewrite constant distances as offsets that loads and stores may have.

    LLVM makes an offset of an address that it knows not to wrap around, which it does not know of
    addresses that loop strength reduction wrote. An address is at least `LOWEST_ADDRESS`, so less
    than that below it nothing wraps. Code generation reduces loops once more and forgets that: so
    the increments of pointers in loops are hidden from it by a `freeze`.
    """
    return "\n}\n".join(map(_with_offsets, text.split("\n}\n")))


def _with_offsets(function: str) -> str:
    lines: list[str] = []
    pointers: set[str] = set()
    hidden: list[str] = []
    for line in function.split("\n"):
        if " = phi ptr " in line:
            hidden.append(line.split()[0])
        elif " = phi " not in line:
            lines += [f"  {name}.here = freeze ptr {name}" for name in hidden]
            pointers.update(hidden)
            hidden.clear()
        lines.append(line)

    def mark(found: re.Match[str]) -> str:
        base, distance = found.groups()
        if int(distance) > LOWEST_ADDRESS:
            return found[0]
        here = f"{base}.here" if base in pointers else base
        return f"getelementptr inbounds nuw i8, ptr {here}, i32 {distance}"

    return _ADDRESS.sub(mark, "\n".join(lines))
