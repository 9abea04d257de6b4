from __future__ import annotations

import subprocess
import sys

import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.schema import opset_of, schema_of, since_version
from tests.golden import parse


@pytest.mark.parametrize(
    ("op", "opset", "version"),
    [("GRU", 6, 3), ("GRU", 7, 7), ("GRU", 13, 7), ("GRU", 14, 14), ("Scan", 10, 9)],
)
def test_since_version(op: str, opset: int, version: int):
    assert since_version(op, "", opset) == since_version(op, "ai.onnx", opset) == version


def test_operators_that_do_not_exist():
    assert schema_of("Foo", "", 17) is None
    with pytest.raises(ModelError, match=r"'Scan' does not exist in ai\.onnx 7"):
        since_version("Scan", "", 7)


def test_opset_of():
    model = load_model(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }", opset=13))
    assert opset_of(model) == opset_of(model, "ai.onnx") == 13
    with pytest.raises(ModelError, match=r"ai\.onnx\.ml"):
        opset_of(model, "ai.onnx.ml")


def test_the_reference_kernels_load_behind_the_schemas_of_others() -> None:
    code = "from ostinato.model.contributed import register_contributed as r; r()"
    subprocess.run([sys.executable, "-c", f"{code}; import onnx.reference"], check=True)
