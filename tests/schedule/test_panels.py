from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options


def product(rows: int, terms: int, columns: int) -> object:
    """A product with weights of int8."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(random.integers(-128, 128, (terms, columns)).astype(np.int8), "q"),
        numpy_helper.from_array(random.uniform(0.01, 0.1, columns).astype(np.float32), "s"),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, terms])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def schedule_of(model: object) -> str:
    return dict(stages(model, Options(cache_dir=None, target="x86-64-v4")))["schedule"]


def test_large_weights_are_widened_panel_by_panel():
    text = schedule_of(product(130, 640, 512))
    loop = text[text.index("in any order") :]
    assert loop.index("kernel copy.packed") < loop.index("sum")
    # A panel may take half of the second-level cache.
    assert "in any order" in schedule_of(product(130, 2048, 512))
    # Small ones stay in the cache as a whole, and few rows widen them as they go.
    assert "in any order" not in schedule_of(product(130, 64, 512))
    assert "in any order" not in schedule_of(product(20, 640, 512))


@pytest.mark.parametrize("columns", [512, 520])
@pytest.mark.parametrize("threads", [1, 2])
def test_panels_keep_every_bit(columns, threads):
    model = product(130, 640, columns)
    x = np.random.default_rng(1).standard_normal((130, 640)).astype(np.float32)
    results = [
        ostinato.InferenceSession(model, cache_dir=None, disable=off, threads=threads).run(
            None, {"x": x}
        )
        for off in ((), ("by_panels",), ("relayout",))
    ]
    assert len({result[0].tobytes() for result in results}) == 1


@pytest.mark.parametrize("size", [512, 1024])
def test_a_copy_that_several_products_read_stays_whole(size):
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{size}, {size}] x) => (float[{size}, {size}] y) {{
            a = MatMul(x, x)  y = MatMul(a, x)
        }}"""
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(1).standard_normal((size, size)).astype(np.float32) / size
    results = [
        ostinato.InferenceSession(model, cache_dir=None, disable=off).run(None, {"x": x})
        for off in ((), ("relayout",))
    ]
    np.testing.assert_array_equal(*[result[0] for result in results])
