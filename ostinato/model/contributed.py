"""Schemas of the operators that onnxruntime's optimiser, quantiser and tools write into files.

The onnx package knows none of them. Signatures and defaults are those of
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md; what they mean is in
`ostinato.definitions.contributed`.

    Name <attribute: type = default, optional?: type> (input: T, optional?: T, many*: T) -> out: T

An output has the element type of the first input of the same letter that is given (`T else float`:
float without one), and the shape of an input where it is written `output: T like input`. Types that
are not letters are those of ONNX.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import onnx
import onnx.defs
import onnx.helper
from onnx.defs import OpSchema

from ostinato.records import dataclass

MICROSOFT, BLOCKED = "com.microsoft", "com.microsoft.nchwc"

_CONV = (
    'auto_pad: string = "NOTSET", dilations?: ints, group: int = 1, kernel_shape?: ints, '
    "pads?: ints, strides?: ints"
)
_POOL = (
    'auto_pad: string = "NOTSET", ceil_mode: int = 0, dilations?: ints, kernel_shape: ints, '
    "pads?: ints, strides?: ints"
)
_ACTIVATION = "activation?: string, activation_params?: floats"
_QUANTIZED = "X: T, X_scale: float, X_zero_point?: T, Y_scale: float, Y_zero_point?: T"
_PAIR = (
    "A: T, A_scale: float, A_zero_point?: T, B: T, B_scale: float, B_zero_point?: T, "
    "C_scale: float, C_zero_point?: T"
)

SCHEMAS = {
    MICROSOFT: f"""
Attention <num_heads: int, unidirectional: int = 0, qkv_hidden_sizes?: ints, scale?: float,
    mask_filter_value: float = -10000.0, past_present_share_buffer: int = 0, do_rotary: int = 0,
    rotary_embedding_dim: int = 0>
    (input: T, weights: T, bias?: T, mask_index?: M, past?: T, attention_bias?: T,
    past_sequence_length?: M) -> output: T, present?: T
BiasAdd (X: T, bias: T, skip: T) -> Y: T like X
BiasDropout <seed?: int> (data: T, bias: T, residual?: T, ratio?: U, training_mode?: bool)
    -> output: T like data, mask?: bool
BiasGelu (A: T, B: T) -> C: T like A
BiasSoftmax <axis: int = 1, is_inner_broadcast: int> (data: T, bias: T) -> output: T like data
BiasSplitGelu (X: T, bias: T) -> Y: T
CDist <metric: string = "sqeuclidean"> (A: T, B: T) -> C: T
DecoderMaskedMultiHeadAttention <num_heads: int, mask_filter_value: float = -10000.0,
    output_qk: int = 0, past_present_share_buffer: int = 0, scale?: float>
    (query: T, key?: T, value?: T, mask_index?: int32, attention_bias?: T, past_key?: T,
    past_value?: T, past_sequence_length?: M, beam_width?: M, cache_indirection?: M, bias?: T)
    -> output: T, present_key?: T, present_value?: T, qk?: T
DequantizeLinear <axis: int = 1> (x: T, x_scale: U, x_zero_point?: T) -> y: U like x
DynamicQuantizeLSTM <activation_alpha?: floats, activation_beta?: floats, activations?: strings,
    clip?: float, direction: string = "forward", hidden_size?: int, input_forget: int = 0>
    (X: T, W: U, R: U, B?: T, sequence_lens?: int32, initial_h?: T, initial_c?: T, P?: T,
    W_scale: float, W_zero_point: U, R_scale: float, R_zero_point: U) -> Y?: T, Y_h?: T, Y_c?: T
DynamicQuantizeMatMul (A: T, B: U, b_scale: float, b_zero_point?: U, bias?: T) -> Y: T
EmbedLayerNormalization <epsilon: float = 1e-12, mask_index_type: int = 0>
    (input_ids: M, segment_ids?: M, word_embedding: T, position_embedding: T,
    segment_embedding?: T, gamma: T, beta: T, mask?: M, position_ids?: M)
    -> output: T, mask_index?: int32, embedding_sum?: T
ExpandDims (X: T, axis: int32) -> Y: T
FastGelu (X: T, bias?: T) -> Y: T like X
FusedConv <{_ACTIVATION}, {_CONV}> (X: T, W: T, B?: T, Z?: T) -> Y: T
FusedGemm <activation?: string, activation_alpha?: float, activation_beta?: float,
    activation_gamma?: float, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0> (A: T, B: T, C?: T) -> Y: T
FusedMatMul <alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0> (A: T, B: T) -> Y: T
Gelu (X: T) -> Y: T like X
GatedAdd (X: T, Y: T, gate: T) -> output: T like X
GatherBlockQuantized <gather_axis: int = 0, quantize_axis: int = 1, block_size: int = 128,
    bits: int = 4> (data: U, indices: M, scales: T, zero_points?: U) -> output: T
GemmFastGelu (X: T, W: T, bias?: T) -> Y: T
GroupNorm <activation: int, channels_last: int = 1, epsilon: float = 1e-05, groups: int>
    (X: T, gamma: M, beta: M) -> Y: T like X
GroupQueryAttention <num_heads: int, kv_num_heads: int, scale?: float, softcap: float = 0.0,
    local_window_size: int = -1, do_rotary: int = 0, rotary_interleaved: int = 0,
    smooth_softmax: int = -1, qk_output: int = 0, causal: int = 1, sliding_window_cache: int = 0,
    k_quant_type: string = "NONE", v_quant_type: string = "NONE", kv_cache_bit_width: int = 0,
    qk_norm_epsilon: float = 1e-06>
    (query: T, key?: T, value?: T, past_key?: T, past_value?: T, seqlens_k: int32,
    total_sequence_length: int32, cos_cache?: T, sin_cache?: T, position_ids?: int64,
    attention_bias?: T, head_sink?: T, k_scale?: float, v_scale?: float, q_norm_weight?: T,
    k_norm_weight?: T) -> output: T, present_key?: T, present_value?: T, output_qk?: T
MatMulBnb4 <K: int, N: int, block_size: int, quant_type: int, training_mode: int = 0,
    transB: int = 1> (A: T, B: U, absmax: T) -> Y: T
MatMulIntegerToFloat (A: T, B: U, a_scale: V, b_scale: V, a_zero_point?: T, b_zero_point?: U,
    bias?: V) -> Y: V
MatMulNBits <K: int, N: int, bits: int = 4, block_size: int, accuracy_level: int = 0,
    weight_prepacked: int = 0>
    (A: T, B: U, scales: T, zero_points?: V, g_idx?: int32, bias?: T) -> Y: T
MultiHeadAttention <num_heads: int, mask_filter_value: float = -10000.0, scale?: float,
    unidirectional: int = 0>
    (query: T, key?: T, value?: T, bias?: T, key_padding_mask?: int32, attention_bias?: T,
    past_key?: T, past_value?: T, past_sequence_length?: int32, cache_indirection?: int32)
    -> output: T, present_key?: T, present_value?: T, qk?: T
NhwcConv <{_CONV}> (X: T, W: T, B?: T) -> Y: T
NhwcFusedConv <{_ACTIVATION}, {_CONV}> (X: T, W: T, B?: T, Z?: T) -> Y: T
NhwcMaxPool <{_POOL}> (x: T) -> y: T
QAttention <num_heads: int, unidirectional: int = 0, scale?: float, do_rotary: int = 0,
    mask_filter_value: float = -10000.0, past_present_share_buffer: int = 0>
    (input: T, weight: U, bias: F, input_scale: F, weight_scale: F, mask_index?: int32,
    input_zero_point?: T, weight_zero_point?: U, past?: F) -> output: F, present?: F
QEmbedLayerNormalization <epsilon: float = 1e-12>
    (input_ids: M, segment_ids?: M, word_embedding_quant: T, position_embedding_quant: T,
    segment_embedding?: T, gamma_quant: T, beta_quant: T, mask?: M, word_embedding_scale: F,
    position_embedding_scale: F, segment_embedding_scale?: F, gamma_scale: F, beta_scale: F,
    word_embedding_zero_point: T, position_embedding_zero_point: T,
    segment_embedding_zero_point?: T, gamma_zero_point: T, beta_zero_point: T)
    -> layernorm_out: F, mask_index_out: M
QGemm <alpha: float = 1.0, transA: int = 0, transB: int = 0>
    (A: T, a_scale: float, a_zero_point: T, B: U, b_scale: float, b_zero_point: U, C?: int32,
    y_scale?: float, y_zero_point?: V) -> Y: V else float
QLinearAdd ({_PAIR}) -> C: T
QLinearAveragePool <auto_pad: string = "NOTSET", ceil_mode: int = 0, channels_last: int = 0,
    count_include_pad: int = 0, kernel_shape: ints, pads?: ints, strides?: ints>
    ({_QUANTIZED}) -> Y: T
QLinearConcat <axis: int> (Y_scale: float, Y_zero_point: T, inputs*: V) -> Y: T
QLinearConv <channels_last: int = 0, {_CONV}>
    (x: T, x_scale: float, x_zero_point: T, w: U, w_scale: float, w_zero_point: U, y_scale: float,
    y_zero_point: V, B?: int32) -> y: V
QLinearGlobalAveragePool <channels_last: int = 0> ({_QUANTIZED}) -> Y: T
QLinearLeakyRelu <alpha: float = 0.01> ({_QUANTIZED}) -> Y: T like X
QLinearMul ({_PAIR}) -> C: T
QLinearReduceMean <axes: ints, keepdims: int> ({_QUANTIZED}) -> Y: T
QLinearSigmoid ({_QUANTIZED}) -> Y: T like X
QLinearSoftmax <axis: int = -1, opset: int> ({_QUANTIZED}) -> Y: T like X
QLinearWhere (condition: bool, X: T, x_scale: float, x_zero_point: T, Y: T, y_scale: float,
    y_zero_point: T, z_scale: float, z_zero_point: T) -> Z: T
QuantizeLinear <axis: int = 1> (x: T, y_scale: T, y_zero_point?: U) -> y: U else uint8 like x
QuickGelu <alpha: float = 1.702> (X: T) -> Y: T like X
RotaryEmbedding <interleaved: int = 0, is_packed_batching: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0, scale: float = 1.0>
    (input: T, position_ids: int64, cos_cache: T, sin_cache: T) -> output: T like input
ScaledSiLU <alpha: float = 1.0> (X: T, scale?: M) -> Y: T like X
SkipGroupNorm <activation: int, channels_last: int = 1, epsilon: float = 1e-05, groups: int>
    (X: T, gamma: M, beta: M, skip: T, bias?: T) -> Y: T like X, S?: T like X
SkipLayerNormalization <epsilon: float = 1e-12>
    (input: T, skip: T, gamma: T, beta?: T, bias?: T)
    -> output: T like input, mean?: float, inv_std_var?: float, input_skip_bias_sum?: T like input
SkipSimplifiedLayerNormalization <epsilon: float = 1e-12>
    (input: T, skip: T, gamma: T, bias?: T)
    -> output: T like input, mean?: float, inv_std_var?: float, input_skip_bias_sum?: T like input
TransposeMatMul <alpha: float = 1.0, transA: int = 0, transB: int = 0> (A: T, B: T) -> Y: T
""",
    BLOCKED: f"""
AveragePool <count_include_pad: int = 0, {_POOL}> (X: T) -> Y: T
Conv <{_ACTIVATION}, {_CONV}> (X: T, W: T, B?: T, Sum?: T) -> Y: T
GlobalAveragePool (X: T) -> Y: T
GlobalMaxPool (X: T) -> Y: T
MaxPool <storage_order: int = 0, {_POOL}> (X: T) -> Y: T
ReorderInput <channels_last: int = 0> (X: T) -> Y: T
ReorderOutput <channels: int = 0, channels_last: int = 0> (X: T) -> Y: T
Upsample <coordinate_transformation_mode: string = "asymmetric", mode: string = "nearest",
    scales?: ints> (X: T) -> Y: T
""",
    # onnxruntime gives these versions that the standard does not have.
    "": """
LayerNormalization <axis: int = -1, epsilon: float = 1e-05, stash_type: int = 1>
    (X: T, Scale: V, B?: V) -> Y: V like X, Mean?: U, InvStdDev?: U
SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 1e-05, stash_type: int = 1>
    (X: T, scale: V) -> Y: V like X, inv_std_var?: U
""",
}

_LINE = re.compile(r"(\w+)(?: <(.*?)>)? \((.*)\) -> (.*)")
_ATTRIBUTE = re.compile(r"(\w+)(\?)?: (\w+)(?: = (.*))?")
_VALUE = re.compile(r"(\w+)([?*])?: (\w+)(?: else (\w+))?(?: like (\w+))?")
_OPTIONS = {
    None: OpSchema.FormalParameterOption.Single,
    "?": OpSchema.FormalParameterOption.Optional,
    "*": OpSchema.FormalParameterOption.Variadic,
}
_TYPES = [
    f"tensor({name})"
    for name in (
        "float float16 bfloat16 double int8 uint8 int16 uint16 int32 uint32 int64 uint64 int4 "
        "uint4 bool"
    ).split()
]
_KINDS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "string": lambda text: text.strip('"'),
}


@cache
def _in_standard_domain() -> frozenset[str]:
    return frozenset(re.findall(r"^(\w+)", SCHEMAS[""], re.MULTILINE))


def is_contributed(node: onnx.NodeProto) -> bool:
    """Whether the node may be one of these operators, which then have to be registered."""
    if node.domain:
        return node.domain in SCHEMAS
    return node.op_type in _in_standard_domain()


@cache
def register_contributed() -> None:
    """Let the onnx package check nodes of these operators and infer their element types."""
    # Makes a table of all schemas when it is loaded, and refuses names of two domains.
    import onnx.reference

    for domain, text in SCHEMAS.items():
        for line in re.split(r"\n(?=\w)", text.strip()):
            schema = _schema(domain, " ".join(line.split()))
            try:
                onnx.defs.register_schema(schema)
            except onnx.defs.SchemaError:  # another package of the program registered it before
                continue


def _schema(domain: str, line: str) -> OpSchema:
    match = _LINE.fullmatch(line)
    assert match is not None, line
    name, attributes, inputs, outputs = match.groups()
    given, made = [*_values(inputs)], [*_values(outputs)]
    letters = dict.fromkeys(v.kind for v in (*given, *made) if len(v.kind) == 1)
    schema = OpSchema(
        name,
        domain,
        1,
        inputs=[_parameter(value) for value in given],
        outputs=[_parameter(value) for value in made],
        type_constraints=[(letter, _TYPES, "") for letter in letters],
        attributes=[*_attributes(attributes or "")],
    )
    schema.set_type_and_shape_inference_function(_inference(given, made))
    return schema


@dataclass(frozen=True)
class _Value:
    """An operand or a result; `default` is the type where nothing tells that of the letter."""

    name: str
    option: str | None
    kind: str
    default: str | None
    like: str | None


def _values(text: str) -> Iterator[_Value]:
    for part in text.split(", "):
        match = _VALUE.fullmatch(part)
        assert match is not None, part
        yield _Value(*match.groups())


def _parameter(value: _Value) -> OpSchema.FormalParameter:
    type_text = value.kind if len(value.kind) == 1 else f"tensor({value.kind})"
    return OpSchema.FormalParameter(
        value.name,
        type_text,
        param_option=_OPTIONS[value.option],
        is_homogeneous=value.option != "*",
    )


def _attributes(text: str) -> Iterator[OpSchema.Attribute]:
    for part in filter(None, text.split(", ")):
        match = _ATTRIBUTE.fullmatch(part)
        assert match is not None, part
        name, optional, kind, default = match.groups()
        if default is None:
            yield OpSchema.Attribute(
                name, getattr(OpSchema.AttrType, kind.upper()), "", required=optional is None
            )
        else:
            attribute = onnx.helper.make_attribute(name, _KINDS[kind](default))
            yield OpSchema.Attribute(name, attribute)


def _inference(given: list[_Value], made: list[_Value]) -> Callable[[Any], None]:
    """Element types of the outputs, and shapes of those that are like an input."""
    names = [value.name for value in given]

    def element(context: Any, value: _Value) -> int | None:
        name = value.kind if len(value.kind) > 1 else value.default
        same = [i for i, other in enumerate(given) if other.kind == value.kind]
        for i in same if len(value.kind) == 1 else ():
            source = context.get_input_type(i) if context.has_input(i) else None
            if source is not None:
                return int(source.tensor_type.elem_type)
        return None if name is None else int(onnx.TensorProto.DataType.Value(name.upper()))

    def infer(context: Any) -> None:
        for position, value in enumerate(made[: context.get_num_outputs()]):
            kind = element(context, value)
            if kind is None:
                continue
            type_ = onnx.TypeProto()
            type_.tensor_type.elem_type = kind
            if value.like is not None:
                shaped = context.get_input_type(names.index(value.like))
                if shaped is not None and shaped.tensor_type.HasField("shape"):
                    type_.tensor_type.shape.CopyFrom(shaped.tensor_type.shape)
            context.set_output_type(position, type_)

    return infer
