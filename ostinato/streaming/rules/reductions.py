"""Products, reductions and normalisations: fine over features, refused over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ostinato.streaming.context import Context
from ostinato.streaming.facts import Stream
from ostinato.streaming.registry import streams
from ostinato.streaming.rules.attention import scores
from ostinato.streaming.rules.pointwise import broadcast

_WHOLE = "needs all frames of the sequence"


def _apart(context: Context, stream: Stream, axes: Sequence[int], doing: str) -> None:
    rank = context.rank(context.input(0))
    if stream.axis in {axis % rank for axis in axes}:
        raise context.refuse(f"{doing} along time (axis {stream.axis}), so it {_WHOLE}")


@streams(
    *(f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split())
)
def reduce(context: Context) -> None:
    """Each frame for itself."""
    context.only_stream()
    _, stream = context.settled(0)
    axes, rank = context.axes(1), context.rank(context.input(0))
    if not axes:
        if context.number("noop_with_empty_axes", 0):
            context.set(stream)
            return
        axes = tuple(range(rank))
    _apart(context, stream, axes, "reduces")
    dropped = 0
    if context.number("keepdims", 1) == 0:
        dropped = sum(axis % rank < stream.axis for axis in axes)
    context.set(replace(stream, axis=stream.axis - dropped))


@streams("ArgMax", "ArgMin")
def arg_reduce(context: Context) -> None:
    """Each frame for itself."""
    context.only_stream()
    _, stream = context.settled(0)
    axis = context.axis(0)
    _apart(context, stream, [axis], "searches")
    drops = context.number("keepdims", 1) == 0 and axis < stream.axis
    context.set(replace(stream, axis=stream.axis - drops))


@streams("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def softmax(context: Context) -> None:
    """Each frame for itself."""
    context.only_stream()
    _, stream = context.settled(0)
    rank = context.rank(context.input(0))
    if context.op_type != "LpNormalization" and context.opset < 13:
        axes = list(range(context.axis(1), rank))
    else:
        axes = [context.axis(-1)]
    _apart(context, stream, axes, "normalises")
    context.set(stream)


@streams("LayerNormalization", "RMSNormalization")
def layer_normalization(context: Context) -> None:
    """Over the axes behind time."""
    context.only_stream()
    _, stream = context.settled(0)
    rank = context.rank(context.input(0))
    _apart(context, stream, range(context.axis(-1), rank), "normalises")
    context.set_all(stream)


@streams("BatchNormalization", "LRN")
def channel_normalization(context: Context) -> None:
    """With fixed statistics, or over channels."""
    context.only_stream()
    _, stream = context.settled(0)
    if context.number("training_mode", 0):
        raise context.refuse(f"in training mode it {_WHOLE}")
    if stream.axis == 1:
        raise context.refuse("has parameters for each frame: time is its axis of channels")
    context.set_all(stream)


@streams("InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization")
def instance_normalization(context: Context) -> None:
    """Where time counts the instances."""
    context.only_stream()
    _, stream = context.settled(0)
    rank = context.rank(context.input(0))
    axes: Sequence[int] = range(1, rank)
    if context.op_type == "MeanVarianceNormalization":
        axes = context.numbers("axes", (0, 2, 3))
    _apart(context, stream, axes, "normalises")
    context.set(stream)


@streams("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(context: Context) -> None:
    """Where time counts the images."""
    context.only_stream()
    _, stream = context.settled(0)
    _apart(context, stream, range(2, context.rank(context.input(0))), "pools")
    context.set(stream)


@streams("DynamicQuantizeLinear")
def dynamic_quantization(context: Context) -> None:
    """The scale comes from all elements, and these are of all frames."""
    raise context.refuse(f"its scale {_WHOLE}")


@streams("DFT")
def fourier_transform(context: Context) -> None:
    """Along other axes than time."""
    context.only_stream()
    _, stream = context.settled(0)
    rank = context.rank(context.input(0))
    if context.opset >= 20:
        given = context.constant(2) if context.has(2) else None
        if context.has(2) and given is None:
            raise context.refuse("its axis is not constant")
        axis = -2 if given is None else int(given.reshape(-1)[0])
    else:
        axis = context.number("axis", 1)
    # The last axis holds real and imaginary parts.
    _apart(context, stream, [axis % rank, rank - 1], "transforms")
    context.set(stream)


@streams("MatMul", "MatMulInteger")
def matmul(context: Context) -> None:
    """Time is an axis of rows, of columns, or of matrices; never the one that is summed over."""
    for index, summed in ((0, -1), (1, -2)):
        stream = context.stream(index)
        rank = context.rank(context.input(index))
        if stream is None:
            continue
        if stream.axis - rank == max(summed, -rank):
            raise context.refuse(f"sums over time, so it {_WHOLE}")
    left, right = context.stream(0), context.stream(1)
    if left is not None and right is not None:
        _matrices_in_step(context, left, right)
        return
    index = 0 if left is not None else 1
    _, stream = context.settled(index)
    rank = context.rank(context.input(index))
    total = context.rank(context.node.outputs[0])
    from_right = stream.axis - rank
    if from_right < -2:
        _no_table(context, 1 - index, from_right)
    # A vector as the other operand leaves no axis of its own.
    if context.rank(context.input(1 - index)) == 1 and from_right < -1:
        from_right += 1
    context.set(replace(stream, axis=total + from_right))


def _no_table(context: Context, index: int, from_right: int) -> None:
    dims = context.dims(context.input(index))
    if len(dims) >= -from_right and dims[from_right] != 1:
        raise context.refuse(f"input {index} has values of its own for each frame")


def _matrices_in_step(context: Context, left: Stream, right: Stream) -> None:
    a, b = (s.axis - context.rank(context.input(i)) for i, s in enumerate((left, right)))
    if (a, b) == (-2, -1) and context.op_type == "MatMul":
        scores(context)
        return
    if a != b or a >= -2:
        raise context.refuse(f"relates every frame to every other one, so it {_WHOLE}")
    context.set(broadcast(context, range(2)))


@streams("Gemm")
def gemm(context: Context) -> None:
    """Time is the axis of rows of the first operand."""
    stream = context.stream(0)
    if stream is None or context.stream(1) is not None or context.number("transA", 0):
        raise context.refuse("its second operand, or its rows, change with time")
    if stream.axis != 0:
        raise context.refuse(f"sums over time, so it {_WHOLE}")
    if not context.has(2):
        context.set(context.settled(0)[1])
        return
    dims, added = context.dims(context.input(2)), context.stream(2)
    if added is not None and (len(dims) != 2 or added.axis != 0):
        raise context.refuse("the rows of input 2 are not the frames")
    if added is None and len(dims) == 2 and dims[0] != 1:
        raise context.refuse("input 2 has values of its own for each frame")
    context.settled(0)
    context.set(context.align([0, 2]))


@streams("Einsum")
def einsum(context: Context) -> None:
    """Time is a letter of the result, and of every operand that changes with time."""
    equation = context.text("equation", "").replace(" ", "")
    if "..." in equation or "->" not in equation:
        raise context.refuse(f"equation {equation!r} is not written out")
    terms, result = equation.split("->")
    letters = set[str]()
    for i, term in enumerate(terms.split(",")):
        stream = context.stream(i)
        if stream is not None:
            letters.add(term[stream.axis])
    if len(letters) != 1:
        raise context.refuse(f"relates every frame to every other one, so it {_WHOLE}")
    (letter,) = letters
    if letter not in result:
        raise context.refuse(f"sums over time, so it {_WHOLE}")
    for i, term in enumerate(terms.split(",")):
        if context.stream(i) is None and letter in term:
            raise context.refuse(f"input {i} has values of its own for each frame")
    stream = context.align(range(len(context.node.inputs)))
    context.set(replace(stream, axis=result.index(letter), fill=None))
