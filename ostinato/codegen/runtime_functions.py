"""Functions in LLVM assembly for operations that a machine has no instruction for.

A module defines those that it declares, so that nothing is linked to it.
"""

from __future__ import annotations

# A float32 product is exact in float64. Its sum with the addend is rounded to float64, and again to
# float32: that is wrong only where the first result lies halfway between two float32. The low 28
# bits of the first result are then zero, as in few others but sums with zero, so only these are
# examined. It is a call, which takes a fifth more time: expanded it would be most of the code, six
# times as much for the denoiser.
_MULTIPLY_ADD = """
define internal <4 x float> @multiply.add.v4f32(<4 x float> %a, <4 x float> %b, <4 x float> %c)
    nounwind noinline {
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
  br i1 %is.sure, label %once, label %look, !prof !1
once:
  %low.result = fptrunc <2 x double> %low to <2 x float>
  %high.result = fptrunc <2 x double> %high to <2 x float>
  %result = shufflevector <2 x float> %low.result, <2 x float> %high.result,
    <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  ret <4 x float> %result
look:
  ; A sum that is what a float32 is, is right; or it lies halfway, or is too small for all digits of
  ; a float32.
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
  %is.right = icmp eq i32 %any, 0
  br i1 %is.right, label %once, label %odd
odd:
  %low.odd = call <2 x float> @multiply.add.odd(<2 x double> %low.product, <2 x double> %low.c)
  %high.odd = call <2 x float> @multiply.add.odd(<2 x double> %high.product, <2 x double> %high.c)
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
"""

# The product of float64 is a float64 plus its rounding error, another float64 (T. J. Dekker: A
# floating-point technique for extending the available precision, Numerische Mathematik 18, 1971),
# and so is its sum with the addend. Adding both errors rounds once more, so the result is in doubt
# only where the least change of that sum changes it. Where errors are too small to be float64, and
# where an intermediate result is infinite or NaN, `multiply.add.exact` computes in integers.
_MULTIPLY_ADD_DOUBLE = """
define internal <2 x double> @multiply.add.v2f64(<2 x double> %a, <2 x double> %b, <2 x double> %c)
    nounwind noinline {
  ; 2^27 + 1 leaves 26 bits to the upper part and to the lower one.
  %a.moved = fmul <2 x double> %a, splat (double 134217729.0)
  %a.rest = fsub <2 x double> %a.moved, %a
  %a.high = fsub <2 x double> %a.moved, %a.rest
  %a.low = fsub <2 x double> %a, %a.high
  %b.moved = fmul <2 x double> %b, splat (double 134217729.0)
  %b.rest = fsub <2 x double> %b.moved, %b
  %b.high = fsub <2 x double> %b.moved, %b.rest
  %b.low = fsub <2 x double> %b, %b.high
  %product = fmul <2 x double> %a, %b
  %high.high = fmul <2 x double> %a.high, %b.high
  %high.low = fmul <2 x double> %a.high, %b.low
  %low.high = fmul <2 x double> %a.low, %b.high
  %low.low = fmul <2 x double> %a.low, %b.low
  %lost.first = fsub <2 x double> %high.high, %product
  %lost.second = fadd <2 x double> %lost.first, %high.low
  %lost.third = fadd <2 x double> %lost.second, %low.high
  %product.lost = fadd <2 x double> %lost.third, %low.low
  %sum = fadd <2 x double> %product, %c
  %c.seen = fsub <2 x double> %sum, %product
  %product.seen = fsub <2 x double> %sum, %c.seen
  %c.lost = fsub <2 x double> %c, %c.seen
  %product.rest = fsub <2 x double> %product, %product.seen
  %sum.lost = fadd <2 x double> %c.lost, %product.rest
  %lost = fadd <2 x double> %product.lost, %sum.lost
  %least = fmul <2 x double> %lost, splat (double 0x3CB0000000000000)
  %lost.more = fadd <2 x double> %lost, %least
  %lost.less = fsub <2 x double> %lost, %least
  %more = fadd <2 x double> %sum, %lost.more
  %less = fadd <2 x double> %sum, %lost.less
  %is.same = fcmp oeq <2 x double> %more, %less
  %size = call <2 x double> @llvm.fabs.v2f64(<2 x double> %product)
  %is.large = fcmp oge <2 x double> %size, splat (double 0x07B0000000000000)
  %a.is.zero = fcmp oeq <2 x double> %a, zeroinitializer
  %b.is.zero = fcmp oeq <2 x double> %b, zeroinitializer
  %is.zero = or <2 x i1> %a.is.zero, %b.is.zero
  %is.whole = or <2 x i1> %is.large, %is.zero
  %is.good = and <2 x i1> %is.same, %is.whole
  %good = sext <2 x i1> %is.good to <2 x i64>
  %all = call i32 @llvm.wasm.alltrue.v2i64(<2 x i64> %good)
  %is.sure = icmp ne i32 %all, 0
  br i1 %is.sure, label %once, label %again, !prof !1
once:
  ; Sums with a zero may have another sign.
  %is.exact = fcmp oeq <2 x double> %lost, zeroinitializer
  %result = select <2 x i1> %is.exact, <2 x double> %sum, <2 x double> %more
  br label %end
again:
  %exact = call <2 x double> @multiply.add.both(<2 x double> %a, <2 x double> %b, <2 x double> %c)
  br label %end
end:
  %found = phi <2 x double> [ %result, %once ], [ %exact, %again ]
  ret <2 x double> %found
}

define internal <2 x double> @multiply.add.both(<2 x double> %a, <2 x double> %b, <2 x double> %c)
    nounwind noinline cold {
  %a.first = extractelement <2 x double> %a, i32 0
  %b.first = extractelement <2 x double> %b, i32 0
  %c.first = extractelement <2 x double> %c, i32 0
  %a.second = extractelement <2 x double> %a, i32 1
  %b.second = extractelement <2 x double> %b, i32 1
  %c.second = extractelement <2 x double> %c, i32 1
  %first = call double @multiply.add.exact(double %a.first, double %b.first, double %c.first)
  %second = call double @multiply.add.exact(double %a.second, double %b.second, double %c.second)
  %one = insertelement <2 x double> poison, double %first, i32 0
  %both = insertelement <2 x double> %one, double %second, i32 1
  ret <2 x double> %both
}

; The same of integers: a number is a significand below 2^53 times a power of two, a product has
; 106 bits. It lies 18 bits, and the addend 71 bits, above the end of 128 bits: the one of the lower
; power moves down to the other's, the bits that leave being one that is set if one of them is.
define internal double @multiply.add.exact(double %a, double %b, double %c)
    nounwind noinline cold {
entry:
  %product = fmul double %a, %b
  %plain = fadd double %product, %c
  %a.all = bitcast double %a to i64
  %b.all = bitcast double %b to i64
  %c.all = bitcast double %c to i64
  %a.size = and i64 %a.all, 9223372036854775807
  %b.size = and i64 %b.all, 9223372036854775807
  %c.size = and i64 %c.all, 9223372036854775807
  ; Zeros and what is no number become all bits set or more than infinity.
  %a.less = add i64 %a.size, -1
  %b.less = add i64 %b.size, -1
  %a.is.finite = icmp ult i64 %a.less, 9218868437227405311
  %b.is.finite = icmp ult i64 %b.less, 9218868437227405311
  %are.finite = and i1 %a.is.finite, %b.is.finite
  br i1 %are.finite, label %factors, label %special
special:
  ret double %plain
factors:
  %c.is.finite = icmp ult i64 %c.size, 9218868437227405312
  br i1 %c.is.finite, label %numbers, label %infinite
infinite:
  ret double %c
numbers:
  %a.parts = call { i64, i64 } @multiply.add.parts(i64 %a.size)
  %b.parts = call { i64, i64 } @multiply.add.parts(i64 %b.size)
  %c.parts = call { i64, i64 } @multiply.add.parts(i64 %c.size)
  %a.digits = extractvalue { i64, i64 } %a.parts, 0
  %b.digits = extractvalue { i64, i64 } %b.parts, 0
  %c.digits = extractvalue { i64, i64 } %c.parts, 0
  %a.power = extractvalue { i64, i64 } %a.parts, 1
  %b.power = extractvalue { i64, i64 } %b.parts, 1
  %c.power = extractvalue { i64, i64 } %c.parts, 1
  ; 27 and 26 bits: no product of parts has more than 64 bits.
  %a.top = lshr i64 %a.digits, 27
  %a.low = and i64 %a.digits, 134217727
  %b.top = lshr i64 %b.digits, 27
  %b.low = and i64 %b.digits, 134217727
  %tops = mul i64 %a.top, %b.top
  %cross.first = mul i64 %a.top, %b.low
  %cross.second = mul i64 %a.low, %b.top
  %crosses = add i64 %cross.first, %cross.second
  %lows = mul i64 %a.low, %b.low
  ; tops * 2^72 + crosses * 2^45 + lows * 2^18
  %tops.up = shl i64 %tops, 8
  %crosses.up = lshr i64 %crosses, 19
  %lows.up = lshr i64 %lows, 46
  %crosses.down = shl i64 %crosses, 45
  %lows.down = shl i64 %lows, 18
  %p.low = add i64 %crosses.down, %lows.down
  %carries = icmp ult i64 %p.low, %lows.down
  %carry = zext i1 %carries to i64
  %p.first = add i64 %tops.up, %crosses.up
  %p.second = add i64 %p.first, %lows.up
  %p.high = add i64 %p.second, %carry
  %powers = add i64 %a.power, %b.power
  %p.power = add i64 %powers, -18
  %c.high = shl i64 %c.digits, 7
  %c.lower = add i64 %c.power, -71
  %c.is.zero = icmp eq i64 %c.size, 0
  %c.is.lower = icmp slt i64 %c.lower, %p.power
  %keeps.product = or i1 %c.is.zero, %c.is.lower
  %power = select i1 %keeps.product, i64 %p.power, i64 %c.lower
  %p.by = sub i64 %power, %p.power
  %c.by = sub i64 %power, %c.lower
  %p.moved = call { i64, i64 } @multiply.add.down(i64 %p.high, i64 %p.low, i64 %p.by)
  %c.moved = call { i64, i64 } @multiply.add.down(i64 %c.high, i64 0, i64 %c.by)
  %p.sign.both = xor i64 %a.all, %b.all
  %p.sign = and i64 %p.sign.both, -9223372036854775808
  %differ.both = xor i64 %p.sign.both, %c.all
  %differ = icmp slt i64 %differ.both, 0
  %left.high = extractvalue { i64, i64 } %p.moved, 0
  %left.low = extractvalue { i64, i64 } %p.moved, 1
  %right.high = extractvalue { i64, i64 } %c.moved, 0
  %right.low = extractvalue { i64, i64 } %c.moved, 1
  ; A subtraction is the sum with the complement and one.
  %mask = sext i1 %differ to i64
  %one = zext i1 %differ to i64
  %other.low = xor i64 %right.low, %mask
  %other.high = xor i64 %right.high, %mask
  %low.first = add i64 %left.low, %other.low
  %low.sum = add i64 %low.first, %one
  %low.over = icmp ult i64 %low.first, %left.low
  %one.over = icmp ult i64 %low.sum, %low.first
  %over = or i1 %low.over, %one.over
  %over.wide = zext i1 %over to i64
  %high.first = add i64 %left.high, %other.high
  %high.sum = add i64 %high.first, %over.wide
  %below = icmp slt i64 %high.sum, 0
  %is.negative = and i1 %below, %differ
  %turned = sext i1 %is.negative to i64
  %low.turned = xor i64 %low.sum, %turned
  %high.turned = xor i64 %high.sum, %turned
  %low = sub i64 %low.turned, %turned
  %low.is.zero = icmp eq i64 %low, 0
  %borrows = and i1 %low.is.zero, %is.negative
  %borrow = zext i1 %borrows to i64
  %high = add i64 %high.turned, %borrow
  %sign.flip = and i64 %turned, -9223372036854775808
  %sign = xor i64 %p.sign, %sign.flip
  %any = or i64 %high, %low
  %is.nothing = icmp eq i64 %any, 0
  br i1 %is.nothing, label %special, label %round
round:
  ; Up to the top of 64 bits, of which the last one tells of all below; the power is that of the top
  ; bit, less that of the least float64 that is not subnormal.
  %is.short = icmp eq i64 %high, 0
  %first.word = select i1 %is.short, i64 %low, i64 %high
  %second.word = select i1 %is.short, i64 0, i64 %low
  %words = select i1 %is.short, i64 1085, i64 1149
  %zeros = call i64 @llvm.ctlz.i64(i64 %first.word, i1 true)
  %normal.first = call i64 @llvm.fshl.i64(i64 %first.word, i64 %second.word, i64 %zeros)
  %normal.second = shl i64 %second.word, %zeros
  %raised = add i64 %power, %words
  %exponent = sub i64 %raised, %zeros
  %under = sub i64 0, %exponent
  %is.subnormal = icmp sgt i64 %under, 0
  %by = select i1 %is.subnormal, i64 %under, i64 0
  %field = select i1 %is.subnormal, i64 0, i64 %exponent
  %is.huge = icmp sgt i64 %field, 2045
  %ready = call { i64, i64 } @multiply.add.down(i64 %normal.first, i64 %normal.second, i64 %by)
  %digits = extractvalue { i64, i64 } %ready, 0
  %rest = extractvalue { i64, i64 } %ready, 1
  %rest.is.some = icmp ne i64 %rest, 0
  %rest.bit = zext i1 %rest.is.some to i64
  %sticky = or i64 %digits, %rest.bit
  %kept = lshr i64 %digits, 11
  %dropped = and i64 %sticky, 2047
  %last = and i64 %kept, 1
  ; Half of the last place and more carries; half itself does to make the last place even.
  %half.less = add i64 %dropped, %last
  %carried.half = add i64 %half.less, 1023
  %up = lshr i64 %carried.half, 11
  %exponent.bits = shl i64 %field, 52
  %most = add i64 %exponent.bits, %kept
  %rounded = add i64 %most, %up
  %capped = select i1 %is.huge, i64 9218868437227405312, i64 %rounded
  %bits = or i64 %capped, %sign
  %found = bitcast i64 %bits to double
  ret double %found
}

; The significand of a finite number, 53 bits unless it is zero, and the power of its last bit.
define internal { i64, i64 } @multiply.add.parts(i64 %size) nounwind {
  %field = lshr i64 %size, 52
  %fraction = and i64 %size, 4503599627370495
  %is.normal = icmp ne i64 %field, 0
  %implied = zext i1 %is.normal to i64
  %implied.bit = shl i64 %implied, 52
  %digits = or i64 %fraction, %implied.bit
  %zeros = call i64 @llvm.ctlz.i64(i64 %digits, i1 false)
  %over = sub i64 %zeros, 11
  %by = and i64 %over, 63
  %raised = shl i64 %digits, %by
  %field.least = select i1 %is.normal, i64 %field, i64 1
  %power.first = add i64 %field.least, -1075
  %power = sub i64 %power.first, %over
  %one = insertvalue { i64, i64 } poison, i64 %raised, 0
  %both = insertvalue { i64, i64 } %one, i64 %power, 1
  ret { i64, i64 } %both
}

; 128 bits moved down; the last one is set if any that left was.
define internal { i64, i64 } @multiply.add.down(i64 %high, i64 %low, i64 %by) nounwind {
  %by.most = call i64 @llvm.umin.i64(i64 %by, i64 127)
  %is.far = icmp ugt i64 %by.most, 63
  %first = select i1 %is.far, i64 0, i64 %high
  %second = select i1 %is.far, i64 %high, i64 %low
  %third = select i1 %is.far, i64 %low, i64 0
  %count = and i64 %by.most, 63
  %top = lshr i64 %first, %count
  %middle = call i64 @llvm.fshr.i64(i64 %first, i64 %second, i64 %count)
  %under = call i64 @llvm.fshr.i64(i64 %second, i64 0, i64 %count)
  %left = or i64 %under, %third
  %is.some = icmp ne i64 %left, 0
  %bit = zext i1 %is.some to i64
  %bottom = or i64 %middle, %bit
  %one = insertvalue { i64, i64 } poison, i64 %top, 0
  %both = insertvalue { i64, i64 } %one, i64 %bottom, 1
  ret { i64, i64 } %both
}
"""

_UNLIKELY = '!1 = !{!"branch_weights", i32 1048575, i32 1}\n'

# The product of 128-bit integers modulo 2^128, by which LLVM checks 64-bit products for overflow.
# The name is that of LLVM's own runtime library, so another definition of it may take its place.
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


# By the declaration of a function that LLVM does not know: its text, and what that text calls.
_PRODUCTS = {
    "declare <4 x float> @multiply.add.v4f32(<4 x float>, <4 x float>, <4 x float>)": (
        _MULTIPLY_ADD,
        (
            "declare i32 @llvm.wasm.alltrue.v4i32(<4 x i32>)",
            "declare i32 @llvm.wasm.anytrue.v4i32(<4 x i32>)",
        ),
    ),
    "declare <2 x double> @multiply.add.v2f64(<2 x double>, <2 x double>, <2 x double>)": (
        _MULTIPLY_ADD_DOUBLE,
        (
            "declare i32 @llvm.wasm.alltrue.v2i64(<2 x i64>)",
            "declare <2 x double> @llvm.fabs.v2f64(<2 x double>)",
            "declare i64 @llvm.ctlz.i64(i64, i1)",
            "declare i64 @llvm.fshl.i64(i64, i64, i64)",
            "declare i64 @llvm.fshr.i64(i64, i64, i64)",
            "declare i64 @llvm.umin.i64(i64, i64)",
        ),
    ),
}


def complete(declarations: set[str], pointer_bits: int) -> list[str]:
    """List declarations of what LLVM knows, and the text of each function above that is needed."""
    # The declarations may include definitions, which call these functions.
    lacking = declarations & _PRODUCTS.keys()
    known = declarations - lacking
    texts = [_MULTIPLY_128] if pointer_bits == 32 else []
    for declaration in sorted(lacking):
        text, called = _PRODUCTS[declaration]
        known |= set(called)
        texts.append(text)
    return [*sorted(known), *texts, *([_UNLIKELY] if lacking else [])]
