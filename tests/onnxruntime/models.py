"""Small models in ONNX's text form, as bytes."""

from __future__ import annotations

from onnx import ModelProto, parser


def model(text: str) -> bytes:
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17, "my": 1]>\n{text}'
    ).SerializeToString()


def of_any_rank(data: bytes) -> bytes:
    """The model, whose first input and output have no shape, which the text form cannot say."""
    proto = ModelProto.FromString(data)
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.ClearField("shape")
    return proto.SerializeToString()


SUM = model(
    "g (float[N, 4] x, float[2, 4] w) => (float[N, 4] y, float s)"
    " { y = Add(x, w) s = ReduceSum<keepdims=0>(y) }"
)
RELU = model("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
TEXTS = model("g (string[N] x) => (string[N] y) { y = Identity(x) }")
GATHER = model("g (int64[N] i, float[4] x) => (float[N] y) { y = Gather(x, i) }")
