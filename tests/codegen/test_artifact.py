from __future__ import annotations

import subprocess
import sys

import pytest

from ostinato.codegen.artifact import Argument


@pytest.mark.parametrize(
    ("dtype", "type"),
    [
        ("float32", "tensor(float)"),
        ("float64", "tensor(double)"),
        ("float16", "tensor(float16)"),
        ("bfloat16", "tensor(bfloat16)"),
        ("int64", "tensor(int64)"),
        ("bool", "tensor(bool)"),
        ("string", "tensor(string)"),
        ("float8_e4m3fn", "tensor(float8e4m3fn)"),
        ("seq(tensor(float))", "seq(tensor(float))"),
    ],
)
def test_types_are_spelled_as_in_onnx(dtype: str, type: str) -> None:
    assert Argument("x", dtype, ()).type == type


def test_importing_artifacts_needs_no_compiler() -> None:
    code = (
        "import sys, ostinato.codegen.artifact;"
        "print([m for m in ('onnx', 'onnx_ir', 'llvmlite') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
