"""What every ONNX op means, one file per family. Importing this package registers all rules."""

from ostinato.ops import (
    casts,
    contractions,
    control,
    loops,
    normalization,
    parts,
    pointwise,
    quantization,
    reductions,
    resize,
    scatter,
    signals,
    sizes,
    sorting,
    transposed,
    views,
    windows,
)
from ostinato.ops.registry import LOWERINGS

__all__ = [
    "LOWERINGS",
    "casts",
    "contractions",
    "control",
    "loops",
    "normalization",
    "parts",
    "pointwise",
    "quantization",
    "reductions",
    "resize",
    "scatter",
    "signals",
    "sizes",
    "sorting",
    "transposed",
    "views",
    "windows",
]
