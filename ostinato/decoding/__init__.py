"""Decoding: one step of a model becomes the whole search for tokens, as one ONNX Loop."""

from ostinato.decoding.search import loop

__all__ = ["loop"]
