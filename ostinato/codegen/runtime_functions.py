"""Functions in LLVM assembly that compiled code calls where a machine has no instruction for them.

A module defines those that it declares, so that nothing is linked to it.
"""

from __future__ import annotations

import re

# A float32 product is exact in float64. The sum of it and the addend is rounded there, and again
# as float32: that is wrong only where the first result lies halfway between two float32. The low
# 28 bits of the first result are then zero, as in few others, where `multiply.add.again` looks
# closer.
_MULTIPLY_ADD = """
define internal <4 x float> @multiply.add.v4f32(<4 x float> %a, <4 x float> %b, <4 x float> %c)
    nounwind alwaysinline {
  %a.low = shufflevector <4 x float> %a, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %b.low = shufflevector <4 x float> %b, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %c.low = shufflevector <4 x float> %c, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %a.high = shufflevector <4 x float> %a, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %b.high = shufflevector <4 x float> %b, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %c.high = shufflevector <4 x float> %c, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %low.a = fpext <2 x float> %a.low to <2 x double>
  %low.b = fpext <2 x float> %b.low to <2 x double>
  %low.c = fpext <2 x float> %c.low to <2 x double>
  %high.a = fpext <2 x float> %a.high to <2 x double>
  %high.b = fpext <2 x float> %b.high to <2 x double>
  %high.c = fpext <2 x float> %c.high to <2 x double>
  %low.product = fmul <2 x double> %low.a, %low.b
  %high.product = fmul <2 x double> %high.a, %high.b
  %low = fadd <2 x double> %low.product, %low.c
  %high = fadd <2 x double> %high.product, %high.c
  %low.words = bitcast <2 x double> %low to <4 x i32>
  %high.words = bitcast <2 x double> %high to <4 x i32>
  %words = shufflevector <4 x i32> %low.words, <4 x i32> %high.words,
    <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %bits = and <4 x i32> %words, splat (i32 268435455)
  %all = call i32 @llvm.wasm.alltrue.v4i32(<4 x i32> %bits)
  %is.sure = icmp ne i32 %all, 0
  br i1 %is.sure, label %once, label %again, !prof !1
once:
  %low.result = fptrunc <2 x double> %low to <2 x float>
  %high.result = fptrunc <2 x double> %high to <2 x float>
  %result = shufflevector <2 x float> %low.result, <2 x float> %high.result,
    <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  br label %end
again:
  %exact = call <4 x float> @multiply.add.again(<2 x double> %low.product, <2 x double> %low.c,
    <2 x double> %high.product, <2 x double> %high.c)
  br label %end
end:
  %sum = phi <4 x float> [ %result, %once ], [ %exact, %again ]
  ret <4 x float> %sum
}

; The same for sums of which one is what a float32 is: then it is right; or it lies halfway, or is
; too small for all digits of a float32.
define internal <4 x float> @multiply.add.again(<2 x double> %low.a, <2 x double> %low.b,
    <2 x double> %high.a, <2 x double> %high.b) nounwind noinline cold {
  %low = fadd <2 x double> %low.a, %low.b
  %high = fadd <2 x double> %high.a, %high.b
  %low.words = bitcast <2 x double> %low to <4 x i32>
  %high.words = bitcast <2 x double> %high to <4 x i32>
  %words = shufflevector <4 x i32> %low.words, <4 x i32> %high.words,
    <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %tops = shufflevector <4 x i32> %low.words, <4 x i32> %high.words,
    <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %dropped = and <4 x i32> %words, splat (i32 536870911)
  %is.halfway = icmp eq <4 x i32> %dropped, splat (i32 268435456)
  %size = and <4 x i32> %tops, splat (i32 2147483647)
  %less = add <4 x i32> %size, splat (i32 -1)
  %is.small = icmp ult <4 x i32> %less, splat (i32 940572671)
  %is.doubtful = or <4 x i1> %is.halfway, %is.small
  %doubts = sext <4 x i1> %is.doubtful to <4 x i32>
  %any = call i32 @llvm.wasm.anytrue.v4i32(<4 x i32> %doubts)
  %is.sure = icmp eq i32 %any, 0
  br i1 %is.sure, label %once, label %odd
once:
  %low.once = fptrunc <2 x double> %low to <2 x float>
  %high.once = fptrunc <2 x double> %high to <2 x float>
  %result = shufflevector <2 x float> %low.once, <2 x float> %high.once,
    <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  ret <4 x float> %result
odd:
  %low.odd = call <2 x float> @multiply.add.odd(<2 x double> %low.a, <2 x double> %low.b)
  %high.odd = call <2 x float> @multiply.add.odd(<2 x double> %high.a, <2 x double> %high.b)
  %rounded = shufflevector <2 x float> %low.odd, <2 x float> %high.odd,
    <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  ret <4 x float> %rounded
}

; The sum of two float64 as float32, rounded once: the float64 between is rounded to odd, that is,
; of its two neighbours it is the one whose last bit is set. S. Boldo, G. Melquiond: Emulation of a
; FMA and correctly rounded sums, IEEE Transactions on Computers 57(4), 2008.
define internal <2 x float> @multiply.add.odd(<2 x double> %a, <2 x double> %b)
    nounwind noinline cold {
  %sum = fadd <2 x double> %a, %b
  %b.seen = fsub <2 x double> %sum, %a
  %a.seen = fsub <2 x double> %sum, %b.seen
  %a.lost = fsub <2 x double> %a, %a.seen
  %b.lost = fsub <2 x double> %b, %b.seen
  %lost = fadd <2 x double> %a.lost, %b.lost
  %is.inexact = fcmp one <2 x double> %lost, zeroinitializer
  %sum.bits = bitcast <2 x double> %sum to <2 x i64>
  %lost.bits = bitcast <2 x double> %lost to <2 x i64>
  %last = and <2 x i64> %sum.bits, splat (i64 1)
  %is.even = icmp eq <2 x i64> %last, zeroinitializer
  %moves = and <2 x i1> %is.inexact, %is.even
  %signs = xor <2 x i64> %sum.bits, %lost.bits
  %down = ashr <2 x i64> %signs, splat (i64 63)
  %step = or <2 x i64> %down, splat (i64 1)
  %moved = add <2 x i64> %sum.bits, %step
  %bits = select <2 x i1> %moves, <2 x i64> %moved, <2 x i64> %sum.bits
  %odd = bitcast <2 x i64> %bits to <2 x double>
  %result = fptrunc <2 x double> %odd to <2 x float>
  ret <2 x float> %result
}

!1 = !{!"branch_weights", i32 1048575, i32 1}
"""

# The product of 128-bit integers modulo 2^128, by which LLVM watches 64-bit ones for overflow. The
# name is that of LLVM's own runtime library, so other definitions of it may take its place.
_MULTIPLY_128 = """
define weak hidden void @__multi3(ptr sret({ i64, i64 }) %result, i64 %a, i64 %a.top, i64 %b,
    i64 %b.top) nounwind {
  %a.low = and i64 %a, 4294967295
  %a.high = lshr i64 %a, 32
  %b.low = and i64 %b, 4294967295
  %b.high = lshr i64 %b, 32
  %low = mul i64 %a.low, %b.low
  %left = mul i64 %a.high, %b.low
  %right = mul i64 %a.low, %b.high
  %high = mul i64 %a.high, %b.high
  %low.top = lshr i64 %low, 32
  %middle.left = add i64 %left, %low.top
  %middle.low = and i64 %middle.left, 4294967295
  %middle = add i64 %right, %middle.low
  %middle.left.top = lshr i64 %middle.left, 32
  %middle.top = lshr i64 %middle, 32
  %carried = add i64 %middle.left.top, %middle.top
  %sum = add i64 %high, %carried
  %cross.left = mul i64 %a.top, %b
  %cross.right = mul i64 %a, %b.top
  %crosses = add i64 %cross.left, %cross.right
  %top = add i64 %sum, %crosses
  %product = mul i64 %a, %b
  store i64 %product, ptr %result
  %result.top = getelementptr i8, ptr %result, i64 8
  store i64 %top, ptr %result.top
  ret void
}
"""


def complete(declarations: set[str], pointer_bits: int) -> list[str]:
    """Declarations of what LLVM knows, and the text of each function above that is needed."""
    # Definitions of functions may stand among them, which call these.
    lacking = {text for text in declarations if re.match(r"declare [^@]*@multiply\.add\.", text)}
    known = declarations - lacking
    texts = [_MULTIPLY_128] if pointer_bits == 32 else []
    if lacking:
        known |= {f"declare i32 @llvm.wasm.{all_}true.v4i32(<4 x i32>)" for all_ in ("all", "any")}
        texts.append(_MULTIPLY_ADD)
    return [*sorted(known), *texts]
