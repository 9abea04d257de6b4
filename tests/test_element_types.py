"""Names of element types are those of the onnx package, and lead back; so are numbers."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from ostinato.element_types import NUMBERED, dtype_name, numpy_dtype, onnx_name

KINDS = [ir.DataType(number) for number in onnx.TensorProto.DataType.values()]
# STRING has a dtype of objects.
KINDS = [kind for kind in KINDS if kind not in (ir.DataType.UNDEFINED, ir.DataType.STRING)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_names(kind: ir.DataType) -> None:
    name = onnx.TensorProto.DataType.Name(kind.value).lower()
    assert onnx_name(kind.numpy().name) == name
    assert dtype_name(name) == kind.numpy().name


@pytest.mark.parametrize("number", NUMBERED)
def test_numbers(number: int) -> None:
    assert ir.DataType(number).numpy() == numpy_dtype(NUMBERED[number])


@pytest.mark.parametrize(
    ("name", "kind"), [("float32", "f"), ("bool", "b"), ("int64", "i"), ("string", "O")]
)
def test_dtypes_of_names(name: str, kind: str) -> None:
    assert numpy_dtype(name).kind == kind


def test_small_floats_come_from_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    assert numpy_dtype("bfloat16") == ml_dtypes.bfloat16
