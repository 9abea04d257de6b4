from __future__ import annotations

import onnx
import pytest

from benchmarks.bench_networks import of_any_size, work

GRAPHS = {
    # 5 filters of 3 x 3 x 3 at 4 x 4 places.
    "y = Conv <pads=[1, 1, 1, 1]> (x, w)": ([1, 3, 4, 4], [5, 3, 3, 3], [1, 5, 4, 4], 80 * 27),
    # Each of 48 elements is added to 5 channels of 2 x 2.
    "y = ConvTranspose <strides=[2, 2]> (x, w)": (
        [1, 3, 4, 4],
        [3, 5, 2, 2],
        [1, 5, 8, 8],
        48 * 20,
    ),
    "y = MatMul (x, w)": ([2, 3, 4], [4, 5], [2, 3, 5], 30 * 4),
    "y = Gemm <transA=1, transB=1> (x, w)": ([4, 3], [5, 4], [3, 5], 15 * 4),
    "y = Add (x, w)": ([3, 4], [3, 4], [3, 4], 0),
}


@pytest.mark.parametrize("node", GRAPHS)
def test_multiply_adds_and_weights_of_a_node(node: str) -> None:
    x, w, y, products = GRAPHS[node]
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{dims(x)}] x) => (float[{dims(y)}] y)
        <float[{dims(w)}] w = {{{", ".join("0" * count(w))}}}> {{ {node} }}"""
    found = work(onnx.parser.parse_model(text))
    assert found.flops == 2 * products
    assert found.projection == 4 * count(w)


def test_images_of_any_size_have_names_for_height_and_width() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 3, 8, 6] x, float[1, 4] h) => (float[1, 3, 8, 6] y, float[1, 4] n)
        { y = Relu (x)  n = Relu (h) }"""
    given = onnx.parser.parse_model(text)
    model = of_any_size(given)
    onnx.checker.check_model(model, full_check=True)
    image, state = (value.type.tensor_type.shape.dim for value in model.graph.input)
    assert [d.dim_param or d.dim_value for d in image] == [1, 3, "x.height", "x.width"]
    assert [d.dim_value for d in state] == [1, 4]
    assert given == onnx.parser.parse_model(text)


def test_recurrent_nodes_count_both_products() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[7, 2, 3] x, float[1, 20, 3] w, float[1, 20, 5] r) => (float[7, 1, 2, 5] y)
        { y = LSTM <hidden_size=5> (x, w, r) }"""
    assert work(onnx.parser.parse_model(text)).flops == 2 * 7 * 2 * 20 * (3 + 5)


def dims(shape: list[int]) -> str:
    return ", ".join(map(str, shape))


def count(shape: list[int]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total
