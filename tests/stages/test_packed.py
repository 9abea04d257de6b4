from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.stages.packed import pack, unpack
from ostinato.stages.stage import CompiledModel, FallbackStage, NativeStage


def _through_the_cache(model: CompiledModel) -> CompiledModel:
    header, blobs = pack(model)
    header = json.loads(json.dumps(header))
    return unpack(header, [np.frombuffer(blob, np.uint8) for blob in blobs])


def test_everything_survives(artifacts: Any) -> None:
    native = NativeStage(artifacts.add())
    a, b = native.inputs
    unknown = Argument("u", "seq(tensor(float))", UNKNOWN_RANK)
    node = FallbackStage(b"\x00proto", (a,), (unknown,), (("", 18), ("ml", 3)), "n", "Op", "why")
    model = CompiledModel((a, b), (unknown,), (native, node), report={"passes": {"fold": 2}})
    copy = _through_the_cache(model)
    assert copy.inputs == model.inputs and copy.outputs == model.outputs
    assert copy.stages[1] == node
    assert copy.report == model.report
    artifact = copy.stages[0].artifact  # type: ignore[union-attr]
    for name in ("object_code", "inputs", "outputs", "symbols", "report"):
        assert getattr(artifact, name) == getattr(native.artifact, name)
    assert np.array_equal(artifact.constants, native.artifact.constants)


ARRAYS = {
    "scalar": np.array(1.5, np.float32),
    "matrix": np.arange(6, dtype=np.int64).reshape(2, 3),
    "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "empty": np.zeros((0, 3), np.float64),
    "bool": np.array([True, False]),
    "half": np.ones(3, np.float16),
    "complex": np.ones(3, np.complex64),
    "strings": np.array([["a", "ü"], ["", "b"]], object),
    "no strings": np.zeros((0, 2), object),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_constants_survive(name: str) -> None:
    array = ARRAYS[name]
    copy = _through_the_cache(CompiledModel((), (), (), {"c": array})).constants["c"]
    assert copy.dtype == array.dtype and copy.shape == array.shape
    assert copy.tolist() == array.tolist()


def test_small_floats_survive() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        array = np.array([1, 2, 3], dtype)
        copy = _through_the_cache(CompiledModel((), (), (), {"c": array})).constants["c"]
        assert copy.dtype == array.dtype and copy.tolist() == array.tolist()
