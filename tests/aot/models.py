"""Small models that C libraries are made of."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx

from ostinato import decoding
from ostinato.aot.library import Library, compile_library
from ostinato.options import Options

HIDDEN, WIDTH = 8, 5
DENOISER = Path(__file__).parents[2] / "ostinato" / "demo" / "denoiser.onnx"
DECODER = Path(__file__).parents[1] / "models" / "cached_decoder.script.onnx"
DECODER_STATES = {"keys": "next_keys", "values": "next_values"}
GRU_STATES = {"h_in": "h_out"}

GRU = f"""<ir_version: 8, opset_import: ["": 17]>
gru (float[T, N, {WIDTH}] x, float[1, N, {HIDDEN}] h_in)
    => (float[T, 1, N, {HIDDEN}] y, float[1, N, {HIDDEN}] h_out)
{{ y, h_out = GRU <hidden_size = {HIDDEN}, linear_before_reset = 1> (x, W, R, , , h_in) }}"""


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


@cache
def gru() -> onnx.ModelProto:
    model = onnx.parser.parse_model(GRU)
    rng = np.random.default_rng(0)
    for name, width in (("W", WIDTH), ("R", HIDDEN)):
        weights = rng.uniform(-0.5, 0.5, (1, 3 * HIDDEN, width)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


@cache
def gru_library(weights_in_file: bool = False, name: str = "gru", target: str = "host") -> Library:
    options = Options(target=target)
    return compile_library(
        gru(), options, name, "gru.onnx", GRU_STATES, weights_in_file=weights_in_file
    )


@cache
def denoiser_library(target: str = "host") -> Library:
    states = {"state": "state_out"}
    return compile_library(DENOISER, Options(target=target), "denoiser", "denoiser.onnx", states)


# The next state has the number 3 in it: it passes a check of the model only while x is below it.
PICKER = """picker (int64[2] x, int64 s) => (int64[2] y, int64 t) {
    table = Constant <value = int64[4] {5, 6, 7, 8}> ()
    y = Gather (table, x)
    one = Constant <value = int64 {1}> ()
    t = Add (s, one) }"""

QUANTIZED = """quantized (uint8[N, 6] x) => (int32[N, 3] y) {
    z = Constant <value = uint8 {7}> ()
    y = MatMulInteger (x, w, z) }"""


@cache
def quantized() -> onnx.ModelProto:
    model = parsed(QUANTIZED)
    weights = np.random.default_rng(3).integers(-128, 128, (6, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def greedy() -> onnx.ModelProto:
    """A decoder's step in a loop, which generates up to `max_tokens` tokens."""
    return decoding.loop(DECODER, states=DECODER_STATES)


@cache
def decoder_library(target: str = "host") -> Library:
    """A decoder's step, whose keys and values grow."""
    return compile_library(DECODER, Options(target=target), "decoder", "decoder", DECODER_STATES)


# Names that C and C++ have other uses for, that begin a comment, and two that become one.
AWKWARD = """awkward (float[int, "I"] "a:b", float[int, "I"] "a.b", bool["T-1"] "class",
    float[size_t] int64_t, float[awkward] "/*")
    => (float[int, "I"] "1", bool["T-1"] "object", float[size_t] size_t, float[awkward] typeof) {
    "1" = Add ("a:b", "a.b")
    "object" = Not ("class")
    size_t = Neg (int64_t)
    typeof = Neg ("/*") }"""
