"""Random numbers: a generator without state, and the operators that draw from it.

The generator is Philox 4x32-10: four words of 32 bits from a counter of four words and a key of
two (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). Each
element of an output has its own counter, so that numbers do not depend on how the work is cut. The
key follows from the seed of the session, that of the node and the steps of the loops around it;
docs/numerics.md says how.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.random import NUMBER
from ostinato.ops.core.ordered_kernels import accumulate
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.ops.rules.gather import require_all
from ostinato.program.evaluate import evaluate
from ostinato.program.expr import (
    DTYPES,
    FLOATS,
    HALVES,
    Axis,
    Const,
    Expr,
    Index,
    cast,
    constant,
    literal,
    op,
    select,
)
from ostinato.program.kernel import Store
from ostinato.sizes.dims import Size, product
from ostinato.sizes.strides import Shape

# 32 bits each, in the low half of a uint64.
Key: TypeAlias = "tuple[Expr, Expr]"
Words: TypeAlias = "tuple[Expr, Expr, Expr, Expr]"

# Those of Philox 4x32-10, from the paper: rounds, multipliers, increments of the key.
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
# The last word of a counter: what its four words are for.
_DRAW, _FOLD = 0, 1


def _word(value: int) -> Const:
    return constant(value & 0xFFFFFFFF, "uint64")


def _low(value: Expr) -> Expr:
    return value & _word(-1)


def _high(value: Expr) -> Expr:
    return op("shr", value, constant(32, "uint64"))


def _halves(number: Expr) -> tuple[Expr, Expr]:
    """The low and the high word of a number of 64 bits."""
    wide = cast(number, "uint64")
    return _low(wide), _high(wide)


def philox(key: Key, counter: Words) -> Words:
    """Four random words."""
    words = counter
    for number in range(_ROUNDS):
        first, second = (
            _word(int(word.value) + number * step)
            if isinstance(word, Const)
            else _low(word + _word(number * step))
            for word, step in zip(key, _INCREMENTS, strict=True)
        )
        left = words[0] * _word(_MULTIPLIERS[0])
        right = words[2] * _word(_MULTIPLIERS[1])
        words = (
            _high(right) ^ words[1] ^ first,
            _low(right),
            _high(left) ^ words[3] ^ second,
            _low(left),
        )
    return words


def folded(key: Key, number: Expr) -> Key:
    """A key that depends on another key and a number of 64 bits."""
    words = philox(key, (*_halves(number), _word(0), _word(_FOLD)))
    return words[0], words[1]


def _node_key(context: Context) -> Key:
    """The key of a node in this session, before it is in any step of a loop."""
    reader = context.attributes
    is_whole = context.node.op_type == "Dropout"
    seed = reader.int("seed", None) if is_whole else reader.float("seed", None)
    if seed is None:
        # No seed that is given has the bits of such a small number.
        number = int(context.node.metadata_props.get(NUMBER, "1"))
    else:
        (number,) = struct.unpack("<Q", struct.pack("<d", float(seed)))
    session = context.builder.seed & (2**64 - 1)
    key = folded((_word(session), _word(session >> 32)), constant(number, "uint64"))
    return _known_words(key)


def _known_words(key: Key) -> Key:
    """The words of a key that depends on nothing, computed."""

    def leaf(node: Expr) -> np.ndarray:
        raise AssertionError(node)

    first, second = (_word(int(evaluate(word, leaf))) for word in key)
    return first, second


def _key(context: Context) -> Key:
    """The key of the node in the present step of the loops around it."""
    key, builder = _node_key(context), context.builder
    if not builder.emit.steps:
        return key
    for step in builder.emit.steps:
        key = folded(key, step)
    if all(isinstance(step, Const) for step in builder.emit.steps):
        return _known_words(key)
    words = builder.empty("uint64", (2,))
    parts = [slice_axis(words, 0, i, 1, 1) for i in (0, 1)]
    stores = [
        Store(builder.access(part, (None,)), word) for part, word in zip(parts, key, strict=True)
    ]
    builder.emit.kernel((), stores)
    return builder.load(parts[0], (None,)), builder.load(parts[1], (None,))


def uniform(words: Words, dtype: str, start: int = 0) -> Expr:
    """A multiple of 2 ** -24 (float32) or 2 ** -53 (float64) in [0, 1), from word `start` on."""
    if dtype == "float32":
        bits = cast(op("shr", words[start], constant(8, "uint64")), "int32")
        return cast(bits, dtype) * 2.0**-24
    return cast(_bits53(words, start), dtype) * 2.0**-53


def _bits53(words: Words, start: int) -> Expr:
    high = op("shr", words[start], constant(5, "uint64"))
    low = op("shr", words[start + 1], constant(6, "uint64"))
    return cast(high * 2**26 + low, "int64")


def normal(words: Words, dtype: str) -> Expr:
    """A number of the standard normal distribution (Box and Muller, 1958)."""
    if dtype == "float32":
        bits, scale = cast(op("shr", words[0], constant(1, "uint64")), "int32"), 2.0**-31
        turn = uniform(words, dtype, 1)
    else:
        bits, scale = _bits53(words, 0), 2.0**-53
        turn = uniform(words, dtype, 2)
    # In (0, 1]: the logarithm is finite.
    share = cast(bits, dtype)
    share = (share + 0.5) * scale
    radius = op("sqrt", -2 * op("log", share))
    return radius * op("cos", 2 * math.pi * turn)


def _draw(context: Context, count: Size) -> tuple[Axis, Words]:
    """An axis over elements in row-major order, and the four words of each."""
    key, place = _key(context), context.builder.axis(count)
    return place, philox(key, (*_halves(Index(place)), _word(0), _word(_DRAW)))


def _drawn(context: Context, shape: Shape, dtype: str, number: Callable[[Words], Expr]) -> Tensor:
    """A new value whose elements are numbers made of four words each."""
    builder, size = context.builder, product(shape)
    builder.limits.memory(dtype, shape)
    place, words = _draw(context, size)
    flat = builder.stored((size,), (place,), cast(number(words), dtype))
    return builder.reshaped(flat, shape)


def _wide(dtype: str) -> str:
    """The type in which numbers of a float type are computed."""
    return "float64" if dtype == "float64" else "float32"


def _type(context: Context, default: str) -> str:
    """The attribute `dtype` as a native type."""
    code = context.attributes.int("dtype", None)
    if code is None:
        return default
    try:
        name = str(ir.DataType(code).numpy().name)
    except (ValueError, TypeError) as error:
        raise context.invalid(f"attribute 'dtype' is {code}") from error
    if name not in DTYPES:
        raise context.refuse(f"type {name} has no native form")
    return name


def _shape_and_type(context: Context) -> tuple[Shape, str]:
    if context.node.op_type.endswith("Like"):
        value = context.input(0)
        shape, dtype = value.shape, _type(context, value.dtype)
    else:
        shape, dtype = context.attributes.ints("shape"), _type(context, "float32")
        if min(shape, default=0) < 0:
            raise context.invalid(f"attribute 'shape' is {list(shape)}")
    if dtype not in (*FLOATS, *HALVES):
        raise context.invalid(f"random numbers of type {dtype}")
    return shape, dtype


@lowers("RandomNormal", "RandomNormalLike")
def lower_random_normal(context: Context) -> Value:
    """Numbers of a normal distribution with a given mean and standard deviation."""
    shape, dtype = _shape_and_type(context)
    mean, scale = context.float("mean"), context.float("scale")

    def number(words: Words) -> Expr:
        drawn = normal(words, _wide(dtype))
        return scale * drawn + mean

    return _drawn(context, shape, dtype, number)


@lowers("RandomUniform", "RandomUniformLike")
def lower_random_uniform(context: Context) -> Value:
    """Numbers evenly distributed from `low` to `high`, which only rounding can reach."""
    shape, dtype = _shape_and_type(context)
    low, high = context.float("low"), context.float("high")

    def number(words: Words) -> Expr:
        drawn = uniform(words, _wide(dtype))
        return (high - low) * drawn + low

    return _drawn(context, shape, dtype, number)


@lowers("Bernoulli")
def lower_bernoulli(context: Context) -> Value:
    """1 with the probability that an element says, else 0."""
    builder, value = context.builder, context.input(0)
    dtype, wide = _type(context, value.dtype), _wide(value.dtype)
    flat = builder.reshaped(value, (value.size,))
    place, words = _draw(context, value.size)
    happens = uniform(words, wide) < cast(builder.load(flat, (place,)), wide)
    element = cast(cast(happens, "float32"), dtype) if dtype in HALVES else cast(happens, dtype)
    return builder.reshaped(builder.stored((value.size,), (place,), element), value.shape)


@lowers("Multinomial")
def lower_multinomial(context: Context) -> Value:
    """Classes drawn from unnormalised log-probabilities, in float64: the first whose sum exceeds u.

    u is evenly distributed between 0 and the sum of all probabilities of a row.
    """
    builder, logits = context.builder, context.input(0)
    count = context.attributes.int("sample_size", 1)
    dtype = _type(context, "int32")
    if len(logits.shape) != 2 or count < 1 or dtype not in ("int32", "int64"):
        raise context.invalid(f"{count} samples of {dtype} of an input of shape {logits.shape}")
    rows, classes = logits.shape
    builder.require.nonnegative(classes - 1, "number of classes, minus 1")
    largest = builder.reduce(logits, (1,), "max", lambda x: cast(x, "float64"))
    shares = builder.pointwise(lambda x, m: op("exp", cast(x, "float64") - m), logits, largest)
    sums = builder.empty("float64", logits.shape)
    accumulate(builder, shares, sums, 1, "add", exclusive=False, reverse=False)
    drawn = _drawn(context, (rows, count), "float64", lambda words: uniform(words, "float64"))
    total = slice_axis(sums, 1, classes - 1, 1, 1)
    limits = builder.pointwise(lambda u, t: u * t, drawn, total)
    axes, step = builder.axes((rows, count)), builder.axis(classes, "r")
    before = builder.load(sums, (axes[0], step)) <= builder.load(limits, axes)
    return builder.fold((rows, count), axes, (step,), "sum", cast(before, dtype))


@lowers("Dropout")
def lower_dropout(context: Context) -> list[Value]:
    """The value itself at inference; in training each element is 0 with probability `ratio`.

    Those that are kept are multiplied by 1 / (1 - ratio). The second output says which these are.
    """
    builder, value = context.builder, context.input(0)
    training, wide = _training(context), _wide(value.dtype)
    mask_type = "bool" if context.since >= 10 else value.dtype
    if training is False:
        # How many would be dropped in training, and which.
        context.attributes.float("ratio", 0.5)
        context.optional(1)
        context.attributes.int("seed", 0)
        every = builder.constant(np.array(True).astype(mask_type))
        return [value, builder.expanded(every, value.shape)]
    ratio = _ratio(context, wide)
    flat = builder.reshaped(value, (value.size,))
    place, words = _draw(context, value.size)
    kept = uniform(words, wide) >= ratio
    if training is not True:
        kept = kept | ~training
    mask = builder.stored((value.size,), (place,), kept)
    given = builder.load(flat, (place,))
    x = cast(given, wide)
    one = literal(1, x)
    scale = one / (one - ratio)
    keeps = builder.load(mask, (place,))
    result = cast(scale * x * cast(keeps, wide), value.dtype)
    if training is not True:
        result = select(training, result, given)
    dropped = builder.stored((value.size,), (place,), result)
    shaped = builder.reshaped(mask, value.shape)
    if mask_type != "bool":
        shaped = builder.pointwise(lambda m: cast(cast(m, wide), mask_type), shaped)
    return [builder.reshaped(dropped, value.shape), shaped]


def _ratio(context: Context, dtype: str) -> Expr:
    """The probability to be dropped, checked."""
    builder = context.builder
    if context.since < 12:
        known = context.attributes.float("ratio", 0.5)
    elif (given := scalar(context, 1, "ratio")) is None:
        known = 0.5
    elif given.known is None:
        wide = builder.pointwise(lambda r: cast(r, dtype), given)

        def fits(r: Expr) -> Expr:
            return (r >= 0) & (r < 1)

        require_all(context, builder.pointwise(fits, wide), "input 'ratio' is not in [0, 1)")
        return builder.load(wide, ())
    else:
        known = float(given.known.reshape(-1)[0])
    if not 0 <= known < 1:
        raise context.invalid(f"the ratio is {known}, expected 0 or more and less than 1")
    return constant(float(np.dtype(dtype).type(known)), dtype)


def _training(context: Context) -> Expr | bool:
    """Whether elements are dropped: known while compiling, or a bool of the run."""
    if context.since < 7:
        return not context.attributes.int("is_test", 0)
    given = scalar(context, 2, "training_mode")
    if given is None:
        return False
    if given.known is not None:
        return bool(given.known.reshape(-1)[0])
    return context.builder.load(given, ())
