"""Products of matrices: what their sums read, and in which order it lies in memory."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from ostinato import compiler
from ostinato.options import Options


def schedule_of(body: str, weights: np.ndarray) -> str:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[256, 64] x) => (float[256, N] y) {{ {body} }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return dict(compiler.stages(model, Options()))["schedule"]


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("y = MatMul(x, w)", (64, 4)),
        ("y = Gemm(x, w)", (64, 4)),
        ("y = Gemm<transB = 1>(x, w)", (4, 64)),
    ],
)
def test_columns_of_tall_weights_lie_in_one_piece(body: str, shape: tuple[int, int]) -> None:
    weights = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    text = schedule_of(body, weights)
    (column,) = re.findall(r"in 32 chains: fma\(.*?, c\d+\[(.*?)\]\)", text)
    assert re.fullmatch(r"64\*i\d+ \+ r\d+|r\d+ \+ 64\*i\d+", column)


@pytest.mark.parametrize(("columns", "along"), [(1, True), (2, True), (3, False)])
def test_sums_of_bytes_by_few_columns_run_along_lanes(columns: int, along: bool) -> None:
    """Few columns leave lanes idle, or let them gather words of rows."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (uint8[256, 512] x) => (int32[256, N] y) { y = MatMulInteger(x, w) }"""
    )
    weights = np.ones((512, columns), np.int8)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    text = dict(compiler.stages(model, Options()))["schedule"]
    assert ("< 128 in 32 chains: dot" in text) == along


@pytest.mark.parametrize(("parts", "sums"), [(2, 2), (8, 8), (9, 1), (40, 1)])
def test_many_parts_are_copied_side_by_side_for_one_product(parts: int, sums: int) -> None:
    names = [f"x{i}" for i in range(parts)]
    inputs = ", ".join(f"float[5, 3] {name}" for name in names)
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (float[5, N] y) {{
        x = Concat<axis = 1>({", ".join(names)}) y = MatMul(x, w) }}"""
    )
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((3 * parts, 20)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    text = dict(compiler.stages(model, Options()))["schedule"]
    assert len(re.findall(r"\br\d+ = sum ", text)) == sums
    feeds = {name: rng.standard_normal((5, 3)).astype(np.float32) for name in names}
    (got,) = ostinato.InferenceSession(model, cache_dir=None).run(None, feeds)
    np.testing.assert_allclose(got, np.concatenate([*feeds.values()], 1) @ weights, 1e-4, 1e-4)


def test_one_query_meets_bytes_of_keys_as_they_lie() -> None:
    """Keys are quantised in the order of memory, and words of them transposed in registers."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (uint8[1, 64] q, float[300, 64] k) => (int32[1, 300] y) <float s = {0.1}, uint8 z = {9}> {
            turned = Transpose <perm = [1, 0]> (k)
            keys = QuantizeLinear(turned, s, z)
            y = MatMulInteger(q, keys, z, z)
        }"""
    )
    floors = dict(compiler.stages(model, Options(target="x86-64-v4")))
    read = re.search(r"= in\.k\[(.*?)\]", floors["schedule"])
    written = re.search(r"  b\d+\[(.*?)\] = uint8", floors["schedule"])
    assert read is not None and written is not None and read[1] == written[1]
    assert "gather" not in floors["llvm"]
