"""What holds for every node of an operator: one record for each operator of the standard domain.

Passes, lowering, streaming and gradients ask here; none of them keeps a list of operators of its
own. What a single rule or pass does with an operator is no fact: that stays with the rule.

`tests/graph/test_facts.py` holds the records against what nodes compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import onnx_ir as ir

from ostinato.graph import axis_maps
from ostinato.graph.axis_maps import along_axis, image

# As an operand's position: all from there on.
REST = -1


class Work(Enum):
    """What an operator does with elements."""

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


def _declare(names: str, facts: Facts) -> None:
    for name in names.split():
        if name in FACTS:
            raise ValueError(f"{name} has a record already")
        FACTS[name] = facts


# Of each element alone

_UNARY = Facts(elementwise=True, total=True, axes=axis_maps.same)
_declare(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish IsInf "
    "IsNaN LeakyRelu Log Mish Reciprocal Round Selu Shrink Sigmoid Sin Sinh Softplus Softsign "
    "Swish Tan Tanh ThresholdedRelu",
    _UNARY,
)
_declare("Sqrt", replace(_UNARY, exact_floats=True))
_declare("BitwiseNot", replace(_UNARY, exact_integers=True))
_declare("Relu", replace(_UNARY, cheap=True))
_declare("Ceil Floor", replace(_UNARY, cheap=True, exact_floats=True))
_declare("Not Sign", replace(_UNARY, cheap=True, exact_integers=True))
_declare("Abs Neg", replace(_UNARY, cheap=True, exact_integers=True, exact_floats=True))

_BROADCASTING = Facts(elementwise=True, broadcasts=True, axes=axis_maps.broadcast)
_declare("BitShift PRelu Pow", _BROADCASTING)
_declare("Mean", replace(_BROADCASTING, total=True))
_declare("Mod", replace(_BROADCASTING, exact_integers=True))
_declare(
    "BitwiseAnd BitwiseOr BitwiseXor Sum", replace(_BROADCASTING, total=True, exact_integers=True)
)
_declare("Clip", replace(_BROADCASTING, cheap=True, settings=(1, 2)))
_declare("Div", replace(_BROADCASTING, cheap=True, exact_integers=True, exact_floats=True))
_CHEAP = replace(_BROADCASTING, total=True, cheap=True, exact_integers=True)
_declare("And Max Min Or Xor", _CHEAP)
_declare(
    "Add Equal Greater GreaterOrEqual Less LessOrEqual Mul Sub", replace(_CHEAP, exact_floats=True)
)
_declare("Where", replace(_CHEAP, work=Work.MOVE, sources=(1, 2), exact_integers=False))

_CONVERSION = Facts(Work.CONVERT, elementwise=True, axes=axis_maps.same)
_declare("Cast", replace(_CONVERSION, cheap=True))
_declare("CastLike", _CONVERSION)
_declare("Bernoulli", replace(_CONVERSION, random=True))
_declare("BitCast", Facts(Work.CONVERT))
_declare(
    "DequantizeLinear QuantizeLinear",
    Facts(Work.CONVERT, settings=(1,), axes=axis_maps.quantization, verb="computes scales"),
)

# Of places

_MOVE = Facts(Work.MOVE, (0,))
_VIEW = replace(_MOVE, in_order=True)
_declare("Flatten", replace(_VIEW, axes=axis_maps.flatten, verb="merges elements"))
_declare("Reshape", replace(_VIEW, cheap=True))
_declare("Squeeze", replace(_VIEW, cheap=True, axes=axis_maps.squeeze, verb="drops its axis"))
_declare("Unsqueeze", replace(_VIEW, cheap=True, axes=axis_maps.unsqueeze))
_SAME_PLACE = replace(_VIEW, elementwise=True, axes=axis_maps.same)
_declare("Identity", replace(_SAME_PLACE, cheap=True))
# In training it computes as well; only an operand may tell.
_declare("Dropout", replace(_SAME_PLACE, random=True, settings=(1,)))
_declare("Transpose", replace(_MOVE, total=True, cheap=True, axes=axis_maps.transpose))
_declare("Expand", replace(_MOVE, cheap=True, axes=axis_maps.expand))
_declare("Slice", replace(_MOVE, cheap=True))
_PICK = replace(_MOVE, verb="picks elements")
_declare("Gather", replace(_PICK, cheap=True, axes=axis_maps.gather))
_declare("GatherElements", replace(_PICK, axes=axis_maps.gather_elements))
_declare("GatherND", replace(_PICK, axes=axis_maps.gather_nd))
_declare("Compress", _PICK)
_declare("DepthToSpace SpaceToDepth", replace(_MOVE, axes=axis_maps.blocks, verb="mixes elements"))
_declare("ReverseSequence", replace(_MOVE, axes=axis_maps.reverse_sequence, verb="turns back"))
_declare("Split", replace(_MOVE, cheap=True, axes=along_axis(0), verb="splits"))
_declare("Tile", replace(_MOVE, axes=axis_maps.tile, verb="repeats"))
_declare(
    "Concat",
    Facts(
        Work.MOVE, (0, REST), total=True, cheap=True, axes=axis_maps.along_axis_of_all, verb="joins"
    ),
)
_declare("TensorScatter", Facts(Work.MOVE, (0, 1)))
_declare("OneHot", Facts(Work.MOVE, (2,), settings=(2,), axes=axis_maps.one_hot))
_declare("CenterCropPad", replace(_MOVE, fills=True))
_declare("Trilu", replace(_MOVE, fills=True, axes=axis_maps.last_axes, verb="cuts a triangle"))
_declare("Pad", Facts(Work.MOVE, (0, 2), fills=True, settings=(2,)))
_declare("ConstantOfShape EyeLike", Facts(Work.MOVE, fills=True))
_declare("RandomNormalLike RandomUniformLike", Facts(Work.MOVE, fills=True, random=True))
_declare("Shape Size", Facts(Work.READ_SHAPE, total=True, cheap=True))

# Sequences and optionals, whose elements are tensors

_declare("ConcatFromSequence OptionalGetElement SequenceAt SequenceErase SplitToSequence", _MOVE)
_declare("Optional SequenceConstruct SequenceInsert", Facts(Work.MOVE, (0, REST)))
_declare("SequenceEmpty", Facts(Work.MOVE))
_declare("OptionalHasElement SequenceLength", Facts(Work.READ_SHAPE))

# Of nested graphs

_declare("If Loop Scan", Facts(Work.RUN_BODY))

# Along axes

_REDUCTION = Facts(axes=axis_maps.reduction, verb="reduces")
_declare("ReduceMax ReduceMin ReduceProd ReduceSum", replace(_REDUCTION, exact_integers=True))
_declare(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSumSquare",
    _REDUCTION,
)
_declare("ArgMax ArgMin", Facts(axes=axis_maps.arg_reduction, verb="searches"))
_declare("CumProd", Facts(axes=axis_maps.cumulative, verb="multiplies"))
_declare("CumSum", Facts(exact_integers=True, axes=axis_maps.cumulative, verb="sums"))
_declare("TopK", Facts(axes=along_axis(-1), verb="sorts"))
_NORM = Facts(verb="normalises")
_declare("Hardmax LogSoftmax Softmax", replace(_NORM, axes=axis_maps.softmax))
_declare("LpNormalization", replace(_NORM, axes=along_axis(-1)))
_declare(
    "LayerNormalization RMSNormalization",
    replace(_NORM, broadcasts=True, axes=axis_maps.from_axis),
)
_declare("GroupNormalization", replace(_NORM, axes=image(1, rest=True)))
_declare("InstanceNormalization", replace(_NORM, axes=image(rest=True)))
_declare("LRN", replace(_NORM, axes=image(1)))
_declare("MeanVarianceNormalization", replace(_NORM, axes=axis_maps.mean_variance))
_declare("BatchNormalization", replace(_NORM, settings=(3, 4), axes=axis_maps.batch_norm))
_PRODUCT = Facts(broadcasts=True, verb="sums")
_declare("MatMul", replace(_PRODUCT, total=True, axes=axis_maps.product))
_declare("MatMulInteger", replace(_PRODUCT, axes=axis_maps.product))
_declare("Gemm", replace(_PRODUCT, total=True, axes=axis_maps.matrix_product))
_declare("Einsum", Facts(axes=axis_maps.einsum, verb="sums"))
_declare("QLinearMatMul", Facts())
_declare("LSTM", Facts(settings=(5, 6)))
_declare("GRU RNN", Facts(settings=(5,)))
_declare("DFT", Facts(axes=axis_maps.transform, verb="transforms"))
_declare("Range", Facts(exact_integers=True, settings=(0, 1, 2)))

# Of windows and regions

_declare("GlobalAveragePool GlobalLpPool GlobalMaxPool", Facts(axes=image(rest=True), verb="pools"))
_declare("AveragePool LpPool MaxPool", Facts(axes=axis_maps.windows))
_declare("Conv ConvInteger QLinearConv", Facts(axes=axis_maps.convolution, verb="sums"))
_declare(
    "Col2Im ConvTranspose DeformConv GridSample MaxRoiPool MaxUnpool RoiAlign",
    Facts(),
)
_declare("Resize", Facts(settings=(1, 2)))
_declare("Upsample", Facts(settings=(1,)))
_declare("STFT", Facts(settings=(2,)))

# Of everything at once

_declare("Multinomial RandomNormal RandomUniform", Facts(random=True))
_declare(
    "BlackmanWindow Det HammingWindow HannWindow MelWeightMatrix "
    "NonMaxSuppression NonZero ScatterND Unique",
    Facts(),
)
_declare("Scatter ScatterElements", Facts(axes=axis_maps.along_axis_of_all, verb="writes elements"))
_declare("DynamicQuantizeLinear", Facts(axes=axis_maps.whole, verb="computes its scale"))
