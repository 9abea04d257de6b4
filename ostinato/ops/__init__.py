"""What every ONNX op means, one file per family. Importing this package registers all rules."""

from ostinato.ops import (
    contractions,
    control,
    loops,
    normalization,
    parts,
    pointwise,
    reductions,
    sizes,
    views,
    windows,
)
from ostinato.ops.registry import LOWERINGS

__all__ = [
    "LOWERINGS",
    "contractions",
    "control",
    "loops",
    "normalization",
    "parts",
    "pointwise",
    "reductions",
    "sizes",
    "views",
    "windows",
]
