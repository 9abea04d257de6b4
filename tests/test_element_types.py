"""Names of element types are those of the onnx package, and lead back."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from ostinato.element_types import dtype_name, onnx_name

KINDS = [ir.DataType(number) for number in onnx.TensorProto.DataType.values()]
# STRING has a dtype of objects.
KINDS = [kind for kind in KINDS if kind not in (ir.DataType.UNDEFINED, ir.DataType.STRING)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_names(kind: ir.DataType) -> None:
    name = onnx.TensorProto.DataType.Name(kind.value).lower()
    assert onnx_name(kind.numpy().name) == name
    assert dtype_name(name) == kind.numpy().name
