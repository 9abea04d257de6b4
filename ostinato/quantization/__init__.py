"""Models with fewer bytes: narrow weights, integer products, as standard ONNX."""

from __future__ import annotations

from ostinato.quantization.quantize import Layer, Quantized, quantize, quantize_layers
from ostinato.quantization.sensitivity import UnreachedWeights

__all__ = ["Layer", "Quantized", "UnreachedWeights", "quantize", "quantize_layers"]
