"""A model becomes one that also computes the gradient of its loss: ONNX in, ONNX out."""

from __future__ import annotations

from ostinato.autodiff.gradient import gradient

__all__ = ["gradient"]
