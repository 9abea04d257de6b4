"""Lowering of ONNX operators: `rules`, one file per family, on the shared parts in `core`."""

from ostinato.ops import rules
from ostinato.ops.core.registry import LOWERINGS

__all__ = ["LOWERINGS", "rules"]
