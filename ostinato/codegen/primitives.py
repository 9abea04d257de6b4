"""One LLVM instruction sequence for each primitive of the loop program's expressions.

No fast-math flags anywhere: what is written is what is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from ostinato.codegen import neon, webassembly
from ostinato.codegen.writer import Value, Writer, float_literal, integer, vector
from ostinato.machine.record import Machine
from ostinato.program.expr import FLOATS, HALVES, ITEM_BYTES

# 16-bit floats are handled as their bits: not every target has the types.
ELEMENT = {
    "float32": "float",
    "float64": "double",
    "float16": "i16",
    "bfloat16": "i16",
    "bool": "i1",
}
for _name, _bytes in ITEM_BYTES.items():
    ELEMENT.setdefault(_name, f"i{8 * _bytes}")
MEMORY = {**ELEMENT, "bool": "i8"}

_SUFFIX = {"float": "f32", "double": "f64"}
_INTRINSIC_FLOAT = {
    "sqrt": "sqrt",
    "abs": "fabs",
    "min": "minimum",
    "max": "maximum",
    "floor": "floor",
    "ceil": "ceil",
    "rint": "rint",
    "trunc": "trunc",
    "fma": "fma",
}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
# The literal shift count of a vector, the same in every lane.
_COUNT = re.compile(r"(?:splat \(i\d+ )?(\d+)\)?")
# By lanes, the instructions of x86 that add two products of bytes, and of 16-bit integers.
_PAIRS_OF_BYTES = {4: "ssse3.pmadd.ub.sw.128", 8: "avx2.pmadd.ub.sw", 16: "avx512.pmaddubs.w.512"}
_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def suffix(element: str, lanes: int) -> str:
    """The name of a type in an overloaded intrinsic."""
    base = _SUFFIX.get(element, element)
    return base if lanes == 1 else f"v{lanes}{base}"


def literal(value: float | int | bool, dtype: str) -> Value:
    """A constant of a dtype."""
    if dtype in FLOATS:
        return float_literal(float(value), ELEMENT[dtype])
    if dtype == "float16":
        return integer(int(np.float16(value).view(np.uint16)), "i16")
    if dtype == "bfloat16":
        bits = int(np.float32(value).view(np.uint32))
        return integer((bits + 0x7FFF + (bits >> 16 & 1)) >> 16, "i16")
    if dtype == "bool":
        return Value("true" if value else "false", "i1")
    return integer(int(value), ELEMENT[dtype])


class Primitives:
    """Emits primitives on scalars or on vectors of `lanes`.

    machine: whose instructions there are.
    """

    def __init__(self, writer: Writer, machine: Machine) -> None:
        self._w, self.machine = writer, machine
        # For each comparison of floats, the lesser value and the greater one.
        self._compared: dict[Value, tuple[Value, Value]] = {}
        # Values that several instructions of a block share, by what they are and the block.
        self._shared: dict[tuple[object, ...], Value] = {}

    def emit(self, name: str, args: Sequence[Value], operand: str, dtype: str, lanes: int) -> Value:
        """`name` applied to values of dtype `operand`, giving `dtype`."""
        if name == "select":
            return self._select(args[0], args[1], args[2], dtype, lanes)
        if name == "bitcast":
            return self._bitcast(args[0], dtype, lanes)
        if name == "larger":
            return self._larger(args[0], args[1], operand, lanes)
        if name == "dot":
            return self._dot(args[0], args[1], args[2], lanes)
        if name == "dot_pairs":
            return self._dot_pairs(args[0], args[1], args[2], lanes)
        if name in _FLOAT_COMPARE:
            return self._compare(name, args[0], args[1], operand, lanes)
        if operand in FLOATS:
            return self._float(name, args, operand, lanes)
        return self._integer(name, args, operand, lanes)

    def _bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        target = vector(ELEMENT[dtype], lanes)
        return self._w.convert("bitcast", value, target)

    def _select(self, condition: Value, yes: Value, no: Value, dtype: str, lanes: int) -> Value:
        if lanes > 1 and dtype in FLOATS and self.machine.fused_multiply_add == "relaxed":
            compared = self._compared.get(condition)
            return webassembly.select(self._w, condition, yes, no, compared, ELEMENT[dtype], lanes)
        return self._w.select(condition, yes, no)

    def _larger(self, left: Value, right: Value, operand: str, lanes: int) -> Value:
        """One instruction of x86, unlike a maximum that keeps NaN and tells zeros apart."""
        is_larger = self._compare("gt", right, left, operand, lanes)
        return self._select(is_larger, right, left, operand, lanes)

    def looks_up(self, lanes: int) -> bool:
        """Whether there is an instruction that picks elements of a register for this many lanes."""
        return lanes == 16 and self.machine.vector_bytes == 64

    def look_up(self, places: Value, values: Sequence[float]) -> Value:
        """The floats that the lowest four bits of each lane select: one instruction of AVX-512."""
        type_ = vector("float", len(values))
        table = ", ".join(f"float {float_literal(v, 'float').text}" for v in values)
        name = "llvm.x86.avx512.permvar.sf.512"
        return self._w.call(type_, name, Value(f"<{table}>", type_), places)

    def _dot(self, left: Value, right: Value, total: Value, lanes: int) -> Value:
        """The total and four products of bytes, unsigned ones of `left` and signed of `right`."""
        w, kind = self._w, self.machine.byte_dots
        if kind == "pairs":
            return webassembly.dot(w, left, right, total, lanes)
        if kind == "vnni" and lanes in (4, 8, 16):
            bytes_ = vector("i8", 4 * lanes)
            a, b = (w.convert("bitcast", v, bytes_) for v in (left, right))
            return w.call(total.type, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", total, a, b)
        if kind in neon.DOTS and lanes == neon.LANES:
            return neon.DOTS[kind](w, left, right, total, self._once)
        if self._has_pairs(lanes):
            for number in range(2):
                a = self._byte(left, number, 16, False, lanes)
                b = self._byte(right, number, 16, True, lanes)
                total = self._added_pairs(a, b, total, lanes)
            return total
        for number in range(4):
            a = self._byte(left, number, 32, False, lanes)
            b = self._byte(right, number, 32, True, lanes)
            total = w.binary("add", total, w.binary("mul", a, b))
        return total

    def dot_of_few_bits(self, left: Value, right: Value, total: Value, lanes: int) -> Value:
        """`dot` of bytes of four bits on the left.

        They are the same signed and unsigned, and the sum of two products fits 16 bits.
        """
        w, machine = self._w, self.machine
        if machine.byte_dots == "sdot" and lanes == neon.LANES:
            return neon.signed_dot(w, left, right, total)
        if machine.byte_dots == "pairs" and machine.fused_multiply_add == "relaxed":
            return webassembly.relaxed_dot(w, right, left, total, lanes)
        if not self._has_pairs(lanes):
            return self._dot(left, right, total, lanes)
        bytes_, halves = vector("i8", 4 * lanes), vector("i16", 2 * lanes)
        a, b = (w.convert("bitcast", v, bytes_) for v in (left, right))
        sums = w.call(halves, f"llvm.x86.{_PAIRS_OF_BYTES[lanes]}", a, b)
        return self._added_pairs(sums, self.splat_literal(1, "int16", 2 * lanes), total, lanes)

    def _has_pairs(self, lanes: int) -> bool:
        """Whether an instruction of x86 multiplies two pairs of 16-bit integers in each lane."""
        is_x86 = self.machine.byte_dots == "none"
        return is_x86 and lanes in _PAIRS and (lanes < 16 or self.machine.vector_bytes == 64)

    def _added_pairs(self, left: Value, right: Value, total: Value, lanes: int) -> Value:
        products = self._w.call(total.type, f"llvm.x86.{_PAIRS[lanes]}", left, right)
        return self._w.binary("add", total, products)

    def _dot_pairs(self, left: Value, right: Value, total: Value, lanes: int) -> Value:
        """The total and two products of 16-bit integers, the halves of `left` and `right`."""
        w = self._w
        if self._has_pairs(lanes):
            halves = vector("i16", 2 * lanes)
            a, b = (w.convert("bitcast", v, halves) for v in (left, right))
            return self._added_pairs(a, b, total, lanes)
        bits = self.splat_literal(16, "int32", lanes)
        for below in (True, False):
            a, b = (w.binary("shl", v, bits) if below else v for v in (left, right))
            a, b = (w.binary("ashr", v, bits) for v in (a, b))
            total = w.binary("add", total, w.binary("mul", a, b))
        return total

    def _once(self, key: tuple[object, ...], make: Callable[[], Value]) -> Value:
        """Write a value once in a block, for all that need it."""
        place = (*key, self._w.current_block)
        if place not in self._shared:
            self._shared[place] = make()
        return self._shared[place]

    def _byte(self, words: Value, number: int, bits: int, signed: bool, lanes: int) -> Value:
        """Extract a byte of words, or of both their halves, as an integer of `bits` bits."""
        w = self._w

        def make() -> Value:
            # Bits below the byte, and above it.
            below, above = 8 * number, bits - 8 * number - 8
            count = 32 // bits * lanes
            type_, found = vector(f"i{bits}", count), words

            def each(value: int) -> Value:
                return w.splat(integer(value, f"i{bits}"), count)

            if bits < 32:
                found = w.convert("bitcast", words, type_)

            if signed:
                top = w.binary("shl", found, each(above)) if above else found
                return w.binary("ashr", top, each(bits - 8))
            low = w.binary("lshr", found, each(below)) if below else found
            return w.binary("and", low, each(255)) if above else low

        return self._once(("byte", words, number, bits, signed), make)

    def _compare(self, name: str, left: Value, right: Value, operand: str, lanes: int) -> Value:
        if operand in FLOATS:
            found = self._w.compare("fcmp", _FLOAT_COMPARE[name], left, right, lanes)
            if name in ("lt", "gt"):
                self._compared[found] = (left, right) if name == "lt" else (right, left)
            return found
        unsigned = operand.startswith("u") or operand == "bool"
        sign = "" if name in ("eq", "ne") else "u" if unsigned else "s"
        return self._w.compare("icmp", sign + name, left, right, lanes)

    def _float(self, name: str, args: Sequence[Value], operand: str, lanes: int) -> Value:
        type_ = args[0].type
        if name == "fma" and self.machine.fused_multiply_add != "instruction":
            how = self.machine.fused_multiply_add
            return webassembly.multiply_add(self._w, args, ELEMENT[operand], lanes, how)
        is_extreme = name in ("min", "max") and lanes > 1 and not self.machine.minimums
        # LLVM knows that constants are no NaN, which leaves one instruction.
        if is_extreme and all(value.text.startswith("%") for value in args):
            return self._extreme(name, args[0], args[1], operand, lanes)
        if name in _INTRINSIC_FLOAT:
            function = f"llvm.{_INTRINSIC_FLOAT[name]}.{suffix(ELEMENT[operand], lanes)}"
            return self._w.call(type_, function, *args)
        if name == "neg":
            return self._w.emit(type_, f"fneg {type_} {args[0].text}")
        return self._w.binary(f"f{name}", args[0], args[1])

    def _extreme(self, name: str, left: Value, right: Value, operand: str, lanes: int) -> Value:
        """The lesser or greater of two vectors, by instructions that return the second of equals.

        Both orders of operands give the lesser one, or two zeros, or a NaN and the other operand:
        so the bits set in either are those of the lesser one, the negative zero, or a NaN. Of the
        greater one the sign bit is set where it is set in both; or it is the lesser one of the
        negated operands, negated, where that takes fewer instructions.
        """
        w, width = self._w, 8 * ITEM_BYTES[operand]
        bits, sign = f"int{width}", -(1 << (width - 1))

        def negated(value: Value) -> Value:
            # In integers: LLVM would compare the negated values instead, and then choose by masks.
            by = self.splat_literal(sign, bits, lanes)
            return self._bitcast(
                w.binary("xor", self._bitcast(value, bits, lanes), by), operand, lanes
            )

        def both(order: str, one: Value, other: Value) -> tuple[Value, Value]:
            first, second = (
                w.select(self._compare(order, a, b, operand, lanes), a, b)
                for a, b in ((one, other), (other, one))
            )
            return self._bitcast(first, bits, lanes), self._bitcast(second, bits, lanes)

        if name == "min":
            return self._bitcast(w.binary("or", *both("lt", left, right)), operand, lanes)
        if not self.machine.merges_bits:
            lesser = w.binary("or", *both("lt", negated(left), negated(right)))
            return negated(self._bitcast(lesser, operand, lanes))
        first, second = both("gt", left, right)
        others = self.splat_literal(~sign, bits, lanes)
        kept = w.binary("and", first, w.binary("or", second, others))
        return self._bitcast(w.binary("or", kept, w.binary("and", second, others)), operand, lanes)

    def _integer(self, name: str, args: Sequence[Value], operand: str, lanes: int) -> Value:
        w, type_ = self._w, args[0].type
        unsigned = operand.startswith("u") or operand == "bool"
        zero = self.splat_literal(0, operand, lanes)
        if name in ("add", "sub", "mul", "and", "or", "xor"):
            return w.binary(name, args[0], args[1])
        if name == "not":
            ones = self.splat_literal(True if operand == "bool" else -1, operand, lanes)
            return w.binary("xor", args[0], ones)
        if name == "neg":
            return w.binary("sub", zero, args[0])
        if name in ("min", "max"):
            function = f"llvm.{'u' if unsigned else 's'}{name}.{suffix(ELEMENT[operand], lanes)}"
            return w.call(type_, function, args[0], args[1])
        if name == "abs":
            if unsigned:
                return args[0]
            negative = w.compare("icmp", "slt", args[0], zero, lanes)
            return w.select(negative, w.binary("sub", zero, args[0]), args[0])
        if name in ("shl", "shr"):
            return self._shift(name, args[0], args[1], operand, lanes)
        return self._divide(name, args[0], args[1], operand, lanes)

    def _shift(self, name: str, value: Value, by: Value, operand: str, lanes: int) -> Value:
        w, operation, width = self._w, "shl" if name == "shl" else "lshr", 8 * ITEM_BYTES[operand]
        known = _COUNT.fullmatch(by.text)
        if known is not None and int(known[1]) < width:
            return w.binary(operation, value, by)
        bits = self.splat_literal(width, operand, lanes)
        fits = w.compare("icmp", "ult", by, bits, lanes)
        zero = self.splat_literal(0, operand, lanes)
        count = w.select(fits, by, zero)
        shifted = w.binary(operation, value, count)
        return w.select(fits, shifted, zero)

    def _divide(self, name: str, left: Value, right: Value, operand: str, lanes: int) -> Value:
        """Division that cannot trap: a zero divisor gives 0, the least integer over -1 wraps."""
        w = self._w
        zero = self.splat_literal(0, operand, lanes)
        one = self.splat_literal(1, operand, lanes)
        by_zero = w.compare("icmp", "eq", right, zero, lanes)
        if operand.startswith("u"):
            divisor = w.select(by_zero, one, right)
            result = w.binary("udiv" if name == "div" else "urem", left, divisor)
            return w.select(by_zero, zero, result)
        minus_one = self.splat_literal(-1, operand, lanes)
        by_minus_one = w.compare("icmp", "eq", right, minus_one, lanes)
        unsafe = w.binary("or", by_zero, by_minus_one)
        divisor = w.select(unsafe, one, right)
        if name == "div":
            quotient = w.binary("sdiv", left, divisor)
            quotient = w.select(by_minus_one, w.binary("sub", zero, left), quotient)
            return w.select(by_zero, zero, quotient)
        rest = w.binary("srem", left, divisor)
        crossed = w.compare("icmp", "slt", w.binary("xor", rest, divisor), zero, lanes)
        inexact = w.compare("icmp", "ne", rest, zero, lanes)
        adjusted = w.binary("add", rest, divisor)
        result = w.select(w.binary("and", crossed, inexact), adjusted, rest)
        return w.select(unsafe, zero, result)

    def splat_literal(self, value: float | int | bool, dtype: str, lanes: int) -> Value:
        """A literal in every lane."""
        one = literal(value, dtype)
        if lanes == 1:
            return one
        return Value(f"splat ({one.type} {one.text})", vector(one.type, lanes))

    def _widen(self, value: Value, source: str, lanes: int) -> Value:
        """A 16-bit float as float32: exact."""
        w, single = self._w, vector("float", lanes)
        if source == "float16":
            if not self.machine.converts_halves:
                return webassembly.widen_half(w, value, lanes)
            half = vector("half", lanes)
            wide = w.convert("bitcast", value, half)
            return w.convert("fpext", wide, single)
        bits = vector("i32", lanes)
        wide = w.convert("zext", value, bits)
        moved = w.binary("shl", wide, self.splat_literal(16, "int32", lanes))
        return w.convert("bitcast", moved, single)

    def _narrow(self, value: Value, target: str, lanes: int) -> Value:
        """float32 as a 16-bit float: to the nearest, ties to even; NaN stays NaN."""
        w, half = self._w, vector(ELEMENT[target], lanes)
        if target == "float16":
            if not self.machine.converts_halves:
                return webassembly.narrow_half(w, value, lanes)
            type_ = vector("half", lanes)
            rounded = w.convert("fptrunc", value, type_)
            return w.convert("bitcast", rounded, half)
        type_ = vector("i32", lanes)
        bits = w.convert("bitcast", value, type_)
        sixteen = self.splat_literal(16, "int32", lanes)
        one = self.splat_literal(1, "int32", lanes)
        odd = w.binary("and", w.binary("lshr", bits, sixteen), one)
        bias = w.binary("add", odd, self.splat_literal(0x7FFF, "int32", lanes))
        rounded = w.binary("add", bits, bias)
        quiet = w.binary("or", bits, self.splat_literal(0x400000, "int32", lanes))
        is_nan = w.compare("fcmp", "uno", value, value, lanes)
        high = w.binary("lshr", w.select(is_nan, quiet, rounded), sixteen)
        return w.convert("trunc", high, half)

    def _to_integer(self, value: Value, source: str, target: str, lanes: int) -> Value:
        """A float as an integer: saturated, and 0 for NaN.

        LLVM's plain conversions are undefined out of range, and its saturating ones on vectors are
        split into scalars.
        """
        w = self._w
        limits = np.iinfo(target)
        # Both are powers of two or 0, so they are floats.
        low = self.splat_literal(float(limits.min), source, lanes)
        high = self.splat_literal(float(limits.max + 1), source, lanes)
        inside = w.binary(
            "and",
            w.compare("fcmp", "oge", value, low, lanes),
            w.compare("fcmp", "olt", value, high, lanes),
        )
        safe = w.select(inside, value, self.splat_literal(0.0, source, lanes))
        narrow = ITEM_BYTES[target] < 4
        through = vector("i32" if narrow else ELEMENT[target], lanes)
        kind = "fptoui" if target.startswith("u") and not narrow else "fptosi"
        whole = w.emit(through, f"{kind} {safe.type} {safe.text} to {through}")
        if narrow:
            type_ = vector(ELEMENT[target], lanes)
            whole = w.convert("trunc", whole, type_)
        above = w.compare("fcmp", "oge", value, high, lanes)
        whole = w.select(above, self.splat_literal(limits.max, target, lanes), whole)
        if limits.min == 0:
            return whole
        below = w.compare("fcmp", "olt", value, low, lanes)
        return w.select(below, self.splat_literal(limits.min, target, lanes), whole)

    def cast(self, value: Value, source: str, target: str, lanes: int) -> Value:
        """Conversion between dtypes: floats to integers saturate, NaN becomes 0."""
        w = self._w
        if source == target:
            return value
        if source in HALVES:
            wide = self._widen(value, source, lanes)
            return wide if target == "float32" else self.cast(wide, "float32", target, lanes)
        if target in HALVES:
            single = value if source == "float32" else self.cast(value, source, "float32", lanes)
            return self._narrow(single, target, lanes)
        if target == "bool":
            zero = self.splat_literal(0, source, lanes)
            if source in FLOATS:
                return w.compare("fcmp", "une", value, zero, lanes)
            return w.compare("icmp", "ne", value, zero, lanes)
        type_ = vector(ELEMENT[target], lanes)
        if source in FLOATS and target in FLOATS:
            operation = "fpext" if ITEM_BYTES[source] < ITEM_BYTES[target] else "fptrunc"
        elif source in FLOATS:
            return self._to_integer(value, source, target, lanes)
        elif target in FLOATS:
            operation = "uitofp" if source.startswith("u") or source == "bool" else "sitofp"
        elif ITEM_BYTES[source] > ITEM_BYTES[target]:
            operation = "trunc"
        elif source == "bool" or ITEM_BYTES[source] < ITEM_BYTES[target]:
            operation = "zext" if source.startswith("u") or source == "bool" else "sext"
        else:
            return value
        return w.emit(type_, f"{operation} {value.type} {value.text} to {type_}")
