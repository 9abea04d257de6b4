"""Facts of operators: one record for each operator of the standard domain.

Passes, lowering, streaming and gradients ask here; none of them keeps a list of operators of its
own. What a single rule or pass does with an operator is no fact: that stays with the rule.

`tests/graph/test_facts.py` holds the records against what nodes compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import onnx_ir as ir

from ostinato.graph import axis_maps
from ostinato.graph.axis_maps import along_axis, image

# As an operand's position: all from there on.
REST = -1


class Work(Enum):
    """Kinds of work that an operator does with elements."""

    COMPUTE = "makes others"
    MOVE = "copies them to places of the result, chosen, repeated or left out"
    CONVERT = "makes each one of another type, or another form of the same number"
    READ_SHAPE = "reads none, but the shape"
    RUN_BODY = "leaves them to the nodes of nested graphs"


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
    total: no operands of the right types and of shapes that fit are an error, or undefined.
    cheap: costs less to run again than to write its result and read it back.
    exact_integers, exact_floats: any correct implementation gives the same bits.
    random: two nodes, or two runs of one, may give different results.
    settings: operands that are statistics or settings rather than data or weights.
    axes: which axes of the operands become which axes of the results, see `axis_maps`.
    verb: what it does along the axes that do not become one.
    """

    work: Work = Work.COMPUTE
    sources: tuple[int, ...] = ()
    fills: bool = False
    in_order: bool = False
    elementwise: bool = False
    broadcasts: bool = False
    total: bool = False
    cheap: bool = False
    exact_integers: bool = False
    exact_floats: bool = False
    random: bool = False
    settings: tuple[int, ...] = ()
    axes: axis_maps.Rule | None = None
    verb: str = "combines elements"

    @property
    def moves(self) -> bool:
        return self.work is Work.MOVE

    @property
    def computes(self) -> bool:
        return self.work is Work.COMPUTE


FACTS: dict[str, Facts] = {}
_UNKNOWN = Facts()


def facts_of(op_type: str, domain: str = "") -> Facts:
    """The record of an operator; nothing holds for those of other domains and unknown ones."""
    return FACTS.get(op_type, _UNKNOWN) if domain in ("", "ai.onnx") else _UNKNOWN


def sources(node: ir.Node) -> list[ir.Value | None]:
    """The operands whose elements a node that moves elements copies."""
    positions = facts_of(node.op_type, node.domain).sources
    if positions[-1:] == (REST,):
        positions = (*positions[:-1], *range(len(positions) - 1, len(node.inputs)))
    return [node.inputs[position] for position in positions if position < len(node.inputs)]


def _declare(names: str, base: Facts = _UNKNOWN, **more: Any) -> None:
    for name in names.split():
        if name in FACTS:
            raise ValueError(f"{name} has a record already")
        FACTS[name] = replace(base, **more)


# Of each element alone

_UNARY = Facts(elementwise=True, total=True, axes=axis_maps.same)
_declare(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish IsInf "
    "IsNaN LeakyRelu Log Mish Reciprocal Round Selu Shrink Sigmoid Sin Sinh Softplus Softsign "
    "Swish Tan Tanh ThresholdedRelu",
    _UNARY,
)
_declare("Sqrt", _UNARY, exact_floats=True)
_declare("BitwiseNot", _UNARY, exact_integers=True)
_declare("Relu", _UNARY, cheap=True)
_declare("Ceil Floor", _UNARY, cheap=True, exact_floats=True)
_declare("Not Sign", _UNARY, cheap=True, exact_integers=True)
_declare("Abs Neg", _UNARY, cheap=True, exact_integers=True, exact_floats=True)

_BROADCASTING = Facts(elementwise=True, broadcasts=True, axes=axis_maps.broadcast)
_declare("BitShift PRelu Pow", _BROADCASTING)
_declare("Mean", _BROADCASTING, total=True)
_declare("Mod", _BROADCASTING, exact_integers=True)
_declare("BitwiseAnd BitwiseOr BitwiseXor Sum", _BROADCASTING, total=True, exact_integers=True)
_declare("Clip", _BROADCASTING, cheap=True, settings=(1, 2))
_declare("Div", _BROADCASTING, cheap=True, exact_integers=True, exact_floats=True)
_CHEAP = replace(_BROADCASTING, total=True, cheap=True)
_declare("And Max Min Or Xor", _CHEAP, exact_integers=True)
_EXACT = replace(_CHEAP, exact_integers=True, exact_floats=True)
_declare("Add Equal Greater GreaterOrEqual Less LessOrEqual Mul Sub", _EXACT)
_declare("Where", _CHEAP, work=Work.MOVE, sources=(1, 2))

_CONVERSION = Facts(Work.CONVERT, elementwise=True, axes=axis_maps.same)
_declare("Cast", _CONVERSION, cheap=True)
_declare("CastLike", _CONVERSION)
_declare("Bernoulli", _CONVERSION, random=True)
_declare("BitCast", work=Work.CONVERT)
_QUANTIZATION = Facts(Work.CONVERT, axes=axis_maps.quantization, verb="computes scales")
_declare("DequantizeLinear QuantizeLinear", _QUANTIZATION, settings=(1,))

# Of places

_MOVE = Facts(Work.MOVE, (0,))
_CHEAP_MOVE = replace(_MOVE, cheap=True)
_declare("Flatten", _MOVE, in_order=True, axes=axis_maps.flatten, verb="merges elements")
_declare("Reshape", _CHEAP_MOVE, in_order=True)
_declare("Squeeze", _CHEAP_MOVE, in_order=True, axes=axis_maps.squeeze, verb="drops its axis")
_declare("Unsqueeze", _CHEAP_MOVE, in_order=True, axes=axis_maps.unsqueeze)
_SAME_PLACE = replace(_MOVE, in_order=True, elementwise=True, axes=axis_maps.same)
_declare("Identity", _SAME_PLACE, cheap=True)
# In training it computes as well; only an operand may tell.
_declare("Dropout", _SAME_PLACE, random=True, settings=(1,))
_declare("Transpose", _CHEAP_MOVE, total=True, axes=axis_maps.transpose)
_declare("Concat", _CHEAP_MOVE, sources=(0, REST), total=True, axes=axis_maps.concat, verb="joins")
_declare("Split", _CHEAP_MOVE, axes=along_axis(0), verb="splits")
_declare("Expand Slice", _CHEAP_MOVE)
_declare("Gather", _CHEAP_MOVE, axes=axis_maps.gather, verb="picks elements")
_declare("GatherElements", _MOVE, axes=axis_maps.gather_elements, verb="picks elements")
_declare("GatherND", _MOVE, axes=axis_maps.gather_nd, verb="picks elements")
_declare("Compress", _MOVE)
_declare("DepthToSpace SpaceToDepth", _MOVE, axes=axis_maps.blocks, verb="mixes elements")
_declare("ReverseSequence", _MOVE, axes=axis_maps.reverse_sequence, verb="turns back")
_declare("Tile", _MOVE, axes=axis_maps.tile, verb="repeats")
_declare("TensorScatter", _MOVE, sources=(0, 1))
_declare("OneHot", _MOVE, sources=(2,), settings=(2,), axes=axis_maps.one_hot)
_declare("CenterCropPad", _MOVE, fills=True)
_declare("Trilu", _MOVE, fills=True, axes=axis_maps.last_axes, verb="cuts a triangle")
_declare("Pad", _MOVE, sources=(0, 2), fills=True, settings=(2,))
_declare("ConstantOfShape EyeLike", work=Work.MOVE, fills=True)
_declare("RandomNormalLike RandomUniformLike", work=Work.MOVE, fills=True, random=True)
_declare("Shape Size", work=Work.READ_SHAPE, total=True, cheap=True)

# Sequences and optionals, whose elements are tensors

_declare("ConcatFromSequence OptionalGetElement SequenceAt SequenceErase SplitToSequence", _MOVE)
_declare("Optional SequenceConstruct SequenceInsert", _MOVE, sources=(0, REST))
_declare("SequenceEmpty", work=Work.MOVE)
_declare("OptionalHasElement SequenceLength", work=Work.READ_SHAPE)

# Of nested graphs

_declare("If Loop Scan", work=Work.RUN_BODY)

# Along axes

_REDUCTION = Facts(axes=axis_maps.reduction, verb="reduces")
_declare("ReduceMax ReduceMin ReduceProd ReduceSum", _REDUCTION, exact_integers=True)
_declare("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSumSquare", _REDUCTION)
_declare("ArgMax ArgMin", axes=axis_maps.arg_reduction, verb="searches")
_declare("CumProd", axes=axis_maps.cumulative, verb="multiplies")
_declare("CumSum", exact_integers=True, axes=axis_maps.cumulative, verb="sums")
_declare("TopK", axes=along_axis(-1), verb="sorts")
_declare("TfIdfVectorizer", axes=along_axis(-1), verb="counts")
_NORM = Facts(verb="normalises")
_declare("Hardmax LogSoftmax Softmax", _NORM, axes=axis_maps.softmax)
_declare("LpNormalization", _NORM, axes=along_axis(-1))
_declare("LayerNormalization RMSNormalization", _NORM, broadcasts=True, axes=axis_maps.from_axis)
_declare("GroupNormalization", _NORM, axes=image(1, rest=True))
_declare("InstanceNormalization", _NORM, axes=image(rest=True))
_declare("LRN", _NORM, axes=image(1))
_declare("MeanVarianceNormalization", _NORM, axes=axis_maps.mean_variance)
_declare("BatchNormalization", _NORM, settings=(3, 4), axes=axis_maps.batch_norm)
_PRODUCT = Facts(broadcasts=True, verb="sums")
_declare("MatMul", _PRODUCT, total=True, axes=axis_maps.product)
_declare("MatMulInteger", _PRODUCT, axes=axis_maps.product)
_declare("Gemm", _PRODUCT, total=True, axes=axis_maps.matrix_product)
_declare("Einsum", axes=axis_maps.einsum, verb="sums")
_declare("LSTM", settings=(5, 6))
_declare("GRU RNN", settings=(5,))
_declare("DFT", axes=axis_maps.transform, verb="transforms")
_declare("DynamicQuantizeLinear", axes=axis_maps.whole, verb="computes its scale")
_declare("Scatter ScatterElements", axes=axis_maps.concat, verb="writes elements")

# Of windows

_declare("GlobalAveragePool GlobalLpPool GlobalMaxPool", axes=image(rest=True), verb="pools")
_declare("AveragePool LpPool MaxPool", axes=axis_maps.windows)
_declare("Conv ConvInteger ConvTranspose QLinearConv", axes=axis_maps.convolution, verb="sums")
_declare("Resize", settings=(1, 2))
_declare("Upsample", settings=(1,))
_declare("STFT", settings=(2,))

# Others, of which little or nothing holds

_declare("Range", exact_integers=True, settings=(0, 1, 2))
_declare("Multinomial RandomNormal RandomUniform", random=True)
_declare(
    "BlackmanWindow Col2Im DeformConv Det GridSample HammingWindow HannWindow "
    "MaxRoiPool MaxUnpool MelWeightMatrix NonMaxSuppression NonZero QLinearMatMul RoiAlign "
    "ScatterND Unique"
)
