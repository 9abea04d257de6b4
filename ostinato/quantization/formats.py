"""The element types that weights are stored in."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True)
class Format:
    """A storage type.

    bits: of one element. levels: the largest whole number q, where a weight is `q * scale` with
    `-levels - 1 <= q <= levels`; 0 for a float type, to which weights are rounded.
    """

    name: str
    bits: int
    levels: int
    dtype: ir.DataType

    @property
    def is_integer(self) -> bool:
        """Whether weights have scales."""
        return self.levels > 0


FORMATS = {
    item.name: item
    for item in (
        Format("int4", 4, 7, ir.DataType.INT4),
        Format("int8", 8, 127, ir.DataType.INT8),
        Format("bf16", 16, 0, ir.DataType.BFLOAT16),
        Format("f16", 16, 0, ir.DataType.FLOAT16),
    )
}
"""By name, from coarse to fine."""
