"""Products of rows that are rounded to 8 bits, block by block."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import ostinato


def test_large_rows_have_the_products_of_small_ones() -> None:
    """Sums of bytes, times the scale of a row alone, would leave float32."""
    random = np.random.default_rng(0)
    weights = numpy_helper.from_array(random.integers(0, 256, (8, 2, 16), np.uint8), "w")
    scales = numpy_helper.from_array(random.uniform(1e-3, 1e-2, (8, 2)).astype(np.float32), "s")
    about = {"K": 64, "N": 8, "bits": 4, "block_size": 32, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **about)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 8])],
        [weights, scales],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = ostinato.InferenceSession(model, cache_dir=None)
    x = random.standard_normal((1, 64)).astype(np.float32)
    (small,), (large,) = (session.run(None, {"x": x * size}) for size in (1, np.float32(2**123)))
    np.testing.assert_array_equal(large, small * np.float32(2**123))
