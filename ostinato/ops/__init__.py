"""What every ONNX operator means: `rules`, one file per family, on what they share in `core`."""

from ostinato.ops import rules
from ostinato.ops.core.registry import LOWERINGS

__all__ = ["LOWERINGS", "rules"]
