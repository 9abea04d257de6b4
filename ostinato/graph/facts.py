"""Facts of operators: one record for each operator of the standard domain.

Passes, lowering, streaming and gradients ask here; none of them keeps a list of operators of its
own. What a single rule or pass does with an operator is no fact: that stays with the rule.

`tests/graph/test_facts.py` holds the records against what nodes compute.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

import onnx_ir as ir

from ostinato.graph import axis_maps, size_rules
from ostinato.graph.axis_maps import along_axis, image
from ostinato.graph.size_rules import kept, like, placed, reduced
from ostinato.records import dataclass
from ostinato.sizes.conditions import choose, is_equal, is_less, modulo, truncdiv
from ostinato.sizes.dims import maximum, minimum

# As an operand's position: this one and all that follow.
REST = -1


class Work(Enum):
    """Kinds of work that an operator does with elements."""

    COMPUTE = "makes others"
    MOVE = "copies them to places of the result, chosen, repeated or left out"
    CONVERT = "makes each one of another type, or another form of the same number"
    READ_SHAPE = "reads none, but the shape"
    RUN_BODY = "leaves them to the nodes of nested graphs"


T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """The record of an operator.

    sources: of one that moves, the operands whose elements these are; a last `REST` means all
        operands behind.
    fills: beside them the result has elements that no operand has, as zeros around an image.
    in_order: the result has all elements of the first operand in their row-major order, and thus
        is the same memory in another shape.
    elementwise: an element of the result follows from the elements at its place of the operands,
        of which there is one unless it broadcasts.
    broadcasts: an axis of size 1 of an operand stands for any size of the result.
    stores: the result is the first operand with other elements at some places.
    total: no operands of the right types and of shapes that fit are an error, or undefined.
    cheap: costs less to run again than to write its result and read it back.
    exact_integers, exact_floats: any correct implementation gives the same bits.
    random: two nodes, or two runs of one, may give different results.
    settings: operands that are statistics or settings rather than data or weights.
    like: operands of which the type and the sizes count, and no element.
    unread: floats, such as weights, of which lowering looks at no element unless it says so
        (`Constants.read`): programs are the same for any others.
    tests: results are booleans, whatever the operands are.
    selects: each element of the result is one of the operands'.
    axes: which axes of the operands become which axes of the results, see `axis_maps`.
    sizes: the sizes of the results, see `size_rules`; None where only a run tells the rank.
    arithmetic: the function of elements that may be sizes, numbers or polynomials; of a reduction,
        of two of them. A condition is 0 or 1.
    verb: what it does along the axes that do not become one.
    """

    work: Work = Work.COMPUTE
    sources: tuple[int, ...] = ()
    fills: bool = False
    in_order: bool = False
    elementwise: bool = False
    broadcasts: bool = False
    stores: bool = False
    total: bool = False
    cheap: bool = False
    exact_integers: bool = False
    exact_floats: bool = False
    random: bool = False
    settings: tuple[int, ...] = ()
    like: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    tests: bool = False
    selects: bool = False
    axes: axis_maps.Rule | None = None
    sizes: size_rules.Rule | None = None
    arithmetic: Callable[..., Any] | None = None
    verb: str = "combines elements"

    @property
    def moves(self) -> bool:
        return self.work is Work.MOVE

    @property
    def casts(self) -> bool:
        """Whether results are the same numbers in another type."""
        return self.work is Work.CONVERT and self.arithmetic is not None

    @property
    def reads_shape(self) -> bool:
        """Whether results are the sizes of a tensor."""
        return self.work is Work.READ_SHAPE and self.total

    @property
    def computes(self) -> bool:
        return self.work is Work.COMPUTE

    def copied(self, operands: Sequence[T]) -> list[T]:
        """Those of the operands of a node whose elements it copies."""
        positions = self.sources
        if positions[-1:] == (REST,):
            positions = (*positions[:-1], *range(len(positions) - 1, len(operands)))
        return [operands[position] for position in positions if position < len(operands)]


FACTS: dict[str, Facts] = {}
_UNKNOWN = Facts()


def facts_of(op_type: str, domain: str = "") -> Facts:
    """The record of an operator; nothing holds for those of other domains and unknown ones."""
    return FACTS.get(op_type, _UNKNOWN) if domain in ("", "ai.onnx") else _UNKNOWN


def sources(node: ir.Node) -> list[ir.Value | None]:
    """The operands whose elements a node that moves elements copies."""
    return facts_of(node.op_type, node.domain).copied(node.inputs)


def _declare(names: str, base: Facts = _UNKNOWN, **more: Any) -> None:
    for name in names.split():
        if name in FACTS:
            raise ValueError(f"{name} has a record already")
        FACTS[name] = replace(base, **more)


# Of each element alone

_UNARY = Facts(elementwise=True, total=True, axes=axis_maps.same, sizes=kept)
_declare(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish "
    "LeakyRelu Log Mish Reciprocal Round Selu Shrink Sigmoid Sin Sinh Softplus Softsign "
    "Swish Tan Tanh ThresholdedRelu",
    _UNARY,
)
_declare("IsInf IsNaN", _UNARY, tests=True)
_declare("Sqrt", _UNARY, exact_floats=True)
_declare("BitwiseNot", _UNARY, exact_integers=True)
_declare("Relu", _UNARY, cheap=True)
_declare("Ceil Floor", _UNARY, cheap=True, exact_floats=True)
_declare("Sign", _UNARY, cheap=True, exact_integers=True)
_declare("Not", _UNARY, cheap=True, exact_integers=True, tests=True, arithmetic=lambda a: 1 - a)
_EXACT_UNARY = replace(_UNARY, cheap=True, exact_integers=True, exact_floats=True)
_declare("Abs", _EXACT_UNARY, arithmetic=lambda a: maximum(a, -a))
_declare("Neg", _EXACT_UNARY, arithmetic=operator.neg)

_BROADCASTING = Facts(
    elementwise=True,
    broadcasts=True,
    axes=axis_maps.broadcast,
    sizes=placed(axis_maps.broadcast),
)
_declare("BitShift PRelu Pow", _BROADCASTING)
_declare("Mean", _BROADCASTING, total=True)
# The arithmetic is that without attribute fmod.
_declare("Mod", _BROADCASTING, exact_integers=True, arithmetic=modulo)
_declare("BitwiseAnd BitwiseOr BitwiseXor Sum", _BROADCASTING, total=True, exact_integers=True)
_declare("Clip", _BROADCASTING, cheap=True, settings=(1, 2))
_CHEAP = replace(_BROADCASTING, total=True, cheap=True)
_LOGIC = replace(_CHEAP, exact_integers=True, tests=True)
_declare("And", _LOGIC, arithmetic=operator.mul)
_declare("Or", _LOGIC, arithmetic=maximum)
_declare("Xor", _LOGIC)
_declare("Max", _CHEAP, exact_integers=True, selects=True, arithmetic=maximum)
_declare("Min", _CHEAP, exact_integers=True, selects=True, arithmetic=minimum)
_EXACT = replace(_CHEAP, exact_integers=True, exact_floats=True)
_declare("Add", _EXACT, unread=(0, 1), arithmetic=operator.add)
_declare("Div", _EXACT, total=False, unread=(0, 1), arithmetic=truncdiv)
_declare("Mul", _EXACT, unread=(0, 1), arithmetic=operator.mul)
_declare("Sub", _EXACT, unread=(0, 1), arithmetic=operator.sub)
_TEST = replace(_EXACT, tests=True)
_declare("Equal", _TEST, arithmetic=is_equal)
_declare("Greater", _TEST, arithmetic=lambda a, b: is_less(b, a))
_declare("GreaterOrEqual", _TEST, arithmetic=lambda a, b: 1 - is_less(a, b))
_declare("Less", _TEST, arithmetic=is_less)
_declare("LessOrEqual", _TEST, arithmetic=lambda a, b: 1 - is_less(b, a))
_declare("Where", _CHEAP, work=Work.MOVE, sources=(1, 2), selects=True, arithmetic=choose)

_CONVERSION = Facts(Work.CONVERT, elementwise=True, axes=axis_maps.same, sizes=kept)
_declare("Cast", _CONVERSION, cheap=True, unread=(0,), arithmetic=lambda a: a)
_declare("CastLike", _CONVERSION, like=(1,), arithmetic=lambda a: a)
_declare("Bernoulli", _CONVERSION, random=True)
_declare("BitCast", work=Work.CONVERT, axes=axis_maps.same)
_QUANTIZATION = Facts(Work.CONVERT, axes=axis_maps.quantization, sizes=kept, verb="computes scales")
_declare("DequantizeLinear QuantizeLinear", _QUANTIZATION, settings=(1,))

# Of places

_MOVE = Facts(Work.MOVE, (0,))
_CHEAP_MOVE = replace(_MOVE, cheap=True)
_VIEW = replace(_CHEAP_MOVE, in_order=True)
_declare(
    "Flatten",
    _VIEW,
    cheap=False,
    axes=axis_maps.flatten,
    sizes=size_rules.flattened,
    verb="merges elements",
)
_declare("Reshape", _VIEW, sizes=size_rules.reshaped)
_declare("Squeeze", _VIEW, axes=axis_maps.squeeze, sizes=size_rules.squeezed, verb="drops its axis")
_declare("Unsqueeze", _VIEW, axes=axis_maps.unsqueeze, sizes=size_rules.unsqueezed)
_SAME_PLACE = replace(_MOVE, in_order=True, elementwise=True, axes=axis_maps.same, sizes=kept)
_declare("Identity", _SAME_PLACE, cheap=True)
# In training it computes as well; only an operand may tell.
_declare("Dropout", _SAME_PLACE, random=True, settings=(1,))
_TRANSPOSE, _GATHER, _GATHER_ND = axis_maps.transpose, axis_maps.gather, axis_maps.gather_nd
_declare("Transpose", _CHEAP_MOVE, total=True, axes=_TRANSPOSE, sizes=placed(_TRANSPOSE))
_JOIN = replace(_CHEAP_MOVE, sources=(0, REST), total=True, verb="joins")
_declare("Concat", _JOIN, axes=axis_maps.concat, sizes=size_rules.concatenated)
_declare("Split", _CHEAP_MOVE, axes=along_axis(0), sizes=size_rules.split, verb="splits")
_declare("Expand", _CHEAP_MOVE, sizes=size_rules.expanded)
_declare("Slice", _CHEAP_MOVE, axes=axis_maps.sliced, sizes=size_rules.sliced, verb="cuts")
_PICK = replace(_MOVE, verb="picks elements")
_declare("Gather", _PICK, cheap=True, unread=(0,), axes=_GATHER, sizes=placed(_GATHER))
_declare("GatherElements", _PICK, axes=axis_maps.gather_elements, sizes=like(1))
_declare("GatherND", _PICK, axes=_GATHER_ND, sizes=placed(_GATHER_ND))
_declare("Compress", _MOVE, axes=axis_maps.compressed, sizes=size_rules.compressed)
_BLOCKS = replace(_MOVE, axes=axis_maps.blocks, sizes=size_rules.blocks, verb="mixes elements")
_declare("DepthToSpace SpaceToDepth", _BLOCKS)
_declare("ReverseSequence", _MOVE, axes=axis_maps.reverse_sequence, sizes=kept, verb="turns back")
_declare("Tile", _MOVE, axes=axis_maps.tile, sizes=size_rules.tiled, verb="repeats")
_ROWS = replace(_MOVE, stores=True, axes=axis_maps.updated, sizes=kept, verb="writes rows")
_declare("TensorScatter", _ROWS, sources=(0, 1))
_CHOICE = replace(_MOVE, sources=(2,), settings=(2,))
_declare("OneHot", _CHOICE, axes=axis_maps.one_hot, sizes=size_rules.one_hot)
_CROP = replace(_MOVE, axes=axis_maps.cropped, sizes=size_rules.cropped, verb="crops or pads")
_declare("CenterCropPad", _CROP, fills=True)
_TRIANGLE = replace(_MOVE, axes=axis_maps.last_axes, sizes=kept, verb="cuts a triangle")
_declare("Trilu", _TRIANGLE, fills=True)
_FRAME = replace(_MOVE, sources=(0, 2), fills=True, settings=(2,), verb="pads")
_declare("Pad", _FRAME, axes=axis_maps.padded, sizes=size_rules.padded)
_FILL = Facts(Work.MOVE, fills=True)
_declare("ConstantOfShape", _FILL, sizes=size_rules.filled)
_declare("EyeLike", _FILL, like=(0,), sizes=kept)
_declare("RandomNormalLike RandomUniformLike", _FILL, like=(0,), random=True, sizes=kept)
_SHAPE = Facts(Work.READ_SHAPE, like=(0,), total=True, cheap=True)
_declare("Shape", _SHAPE, sizes=size_rules.shape)
_declare("Size", _SHAPE, sizes=size_rules.scalar)

# Sequences and optionals, whose elements are tensors

_declare("ConcatFromSequence OptionalGetElement SequenceAt SequenceErase SplitToSequence", _MOVE)
_declare("Optional SequenceConstruct SequenceInsert", _MOVE, sources=(0, REST))
_declare("SequenceEmpty", work=Work.MOVE)
_declare("OptionalHasElement SequenceLength", work=Work.READ_SHAPE)

# Of nested graphs

_declare("If Loop Scan", work=Work.RUN_BODY)

# Along axes

_REDUCTION = Facts(axes=axis_maps.reduction, sizes=reduced(axis_maps.reduction), verb="reduces")
_declare("ReduceMax", _REDUCTION, exact_integers=True, arithmetic=maximum)
_declare("ReduceMin", _REDUCTION, exact_integers=True, arithmetic=minimum)
_declare("ReduceProd", _REDUCTION, exact_integers=True, arithmetic=operator.mul)
_declare("ReduceSum", _REDUCTION, exact_integers=True, arithmetic=operator.add)
_declare("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSumSquare", _REDUCTION)
_SEARCH = axis_maps.arg_reduction
_declare("ArgMax ArgMin", axes=_SEARCH, sizes=reduced(_SEARCH), verb="searches")
_CUMULATIVE = Facts(axes=axis_maps.cumulative, sizes=kept)
_declare("CumProd", _CUMULATIVE, verb="multiplies")
_declare("CumSum", _CUMULATIVE, exact_integers=True, verb="sums")
_declare("TopK", axes=along_axis(-1), verb="sorts")
_declare("TfIdfVectorizer", axes=along_axis(-1), verb="counts")
_NORM = Facts(sizes=kept, verb="normalises")
_declare("Hardmax LogSoftmax Softmax", _NORM, axes=axis_maps.softmax)
_declare("LpNormalization", _NORM, axes=along_axis(-1))
_SCALED = replace(_NORM, unread=(1, 2))
_declare("LayerNormalization RMSNormalization", _SCALED, broadcasts=True, axes=axis_maps.from_axis)
_declare("GroupNormalization", _SCALED, axes=image(1, rest=True))
_declare("InstanceNormalization", _SCALED, axes=image(rest=True))
_declare("LRN", _NORM, axes=image(1))
_declare("MeanVarianceNormalization", _NORM, axes=axis_maps.mean_variance)
_GIVEN = replace(_SCALED, unread=(1, 2, 3, 4), settings=(3, 4))
_declare("BatchNormalization", _GIVEN, axes=axis_maps.batch_norm)
_PRODUCT = Facts(broadcasts=True, verb="sums")
_MATMUL = replace(_PRODUCT, axes=axis_maps.product, sizes=placed(axis_maps.product))
_declare("MatMul", _MATMUL, total=True, unread=(0, 1))
_declare("MatMulInteger", _MATMUL)
_declare("QLinearMatMul", _PRODUCT, axes=axis_maps.quantized_product)
_GEMM, _EINSUM = axis_maps.matrix_product, axis_maps.einsum
_declare("Gemm", _PRODUCT, total=True, unread=(0, 1, 2), axes=_GEMM, sizes=placed(_GEMM))
_declare("Einsum", axes=_EINSUM, sizes=placed(_EINSUM), verb="sums")
_RECURRENT = Facts(settings=(5,), axes=axis_maps.recurrent, verb="carries states")
_declare("LSTM", _RECURRENT, settings=(5, 6), sizes=size_rules.recurrent(4))
_declare("GRU", _RECURRENT, sizes=size_rules.recurrent(3))
_declare("RNN", _RECURRENT, sizes=size_rules.recurrent(1))
_declare("DFT", axes=axis_maps.transform, sizes=size_rules.transformed, verb="transforms")
_declare("DynamicQuantizeLinear", axes=axis_maps.whole, verb="computes its scale")
_STORE = Facts(stores=True, sizes=kept, verb="writes elements")
_declare("Scatter ScatterElements", _STORE, axes=axis_maps.concat)
_declare("ScatterND", _STORE, axes=axis_maps.scattered)

# Of windows

_IMAGE = image(rest=True)
_POOL = Facts(axes=_IMAGE, sizes=reduced(_IMAGE), verb="pools")
_declare("GlobalAveragePool GlobalLpPool GlobalMaxPool", _POOL)
_declare("AveragePool LpPool MaxPool", axes=axis_maps.windows, sizes=size_rules.pooled)
_WINDOWS = Facts(axes=axis_maps.convolution, verb="sums")
_declare("Conv", _WINDOWS, unread=(1, 2), sizes=size_rules.convolved(1))
_declare("ConvInteger", _WINDOWS, sizes=size_rules.convolved(1))
_declare("QLinearConv", _WINDOWS, sizes=size_rules.convolved(3))
_declare("ConvTranspose", _WINDOWS, unread=(1, 2), sizes=size_rules.transposed)
_declare("Resize", settings=(1, 2), axes=axis_maps.resized, verb="interpolates")
_declare("Upsample", settings=(1,), axes=axis_maps.resized, verb="interpolates")
_declare("STFT", settings=(2,), axes=axis_maps.signals, sizes=size_rules.frames)
_declare("GridSample", axes=axis_maps.sampled, verb="samples")
_declare("Det", axes=axis_maps.determinant, sizes=placed(axis_maps.determinant), verb="multiplies")

# Others, of which little or nothing holds

_declare("Range", exact_integers=True, settings=(0, 1, 2), sizes=size_rules.counted)
_declare("Multinomial RandomNormal RandomUniform", random=True)
_declare(
    "BlackmanWindow Col2Im DeformConv HammingWindow HannWindow "
    "MaxRoiPool MaxUnpool MelWeightMatrix NonMaxSuppression NonZero RoiAlign "
    "Unique"
)
