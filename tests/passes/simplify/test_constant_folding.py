from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import onnx
import pytest

from ostinato.model.load import load_model
from ostinato.passes.simplify.constant_folding import constant_folding
from tests.golden import check, parse

CONSTANTS = """
    float[2, 3] m = {0, 1, 2, 3, 4, 5}, float[2] tiny = {1e-20, 1}, float huge = {1e30},
    int64[2] shape = {3, 2}, int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-7},
    int64[1] zero = {0}, float small = {0.5}
    """


@pytest.mark.parametrize(
    ("node", "type_", "contents"),
    [
        ("Transpose(m)", "float[3, 2]", "0, 3, 1, 4, 2, 5"),
        ("Reshape(m, shape)", "float[3, 2]", "0, 1, 2, 3, 4, 5"),
        ("Slice(m, one, two, one)", "float[2, 1]", "1, 4"),
        ("Gather <axis = 1> (m, two)", "float[2, 1]", "2, 5"),
        ("Concat <axis = 1> (m, m)", "float[2, 6]", "0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5"),
        ("Unsqueeze(one, one)", "int64[1, 1]", "1"),
        ("Squeeze(one)", "int64", "1"),
        ("Add(m, m)", "float[2, 3]", "0, 2, 4, 6, 8, 10"),
        ("Max(m, small)", "float[2, 3]", "0.5, 1, 2, 3, 4, 5"),
        ("Neg(m)", "float[2, 3]", "-0, -1, -2, -3, -4, -5"),
        ("Sub(one, two)", "int64[1]", "-1"),
        ("Div(minus, two)", "int64[1]", "-3"),
        ("Mod(minus, two)", "int64[1]", "1"),
        ("Equal(one, two)", "bool[1]", "0"),
        ("ConstantOfShape <value = int64[1] {7}> (two)", "int64[2]", "7, 7"),
        ("Expand(one, shape)", "int64[3, 2]", "1, 1, 1, 1, 1, 1"),
        ("Tile(one, two)", "int64[2]", "1, 1"),
        ("Cast <to = 6> (two)", "int32[1]", "2"),
        ("Cast <to = 7> (m)", "int64[2, 3]", "0, 1, 2, 3, 4, 5"),
        ("Cast <to = 1> (two)", "float[1]", "2"),
        ("Cast <to = 9> (m)", "bool[2, 3]", "0, 1, 1, 1, 1, 1"),
        ("ReduceProd <keepdims = 0> (shape)", "int64", "6"),
        ("Shape(m)", "int64[2]", "2, 3"),
        ("Shape(x)", "int64[2]", "5, 4"),
        ("Shape <start = -1> (x)", "int64[1]", "4"),
        ("Size(x)", "int64", "20"),
    ],
)
def test_folded(node: str, type_: str, contents: str):
    check(
        constant_folding,
        f"g (float[5, 4] x) => ({type_} r) <{CONSTANTS}> {{ r = {node} }}",
        f"""
        g (float[5, 4] x) => ({type_} r) <{CONSTANTS}, {type_} r_constant = {{{contents}}}> {{
            r = Identity(r_constant)
        }}
        """,
        count=1,
    )


@pytest.mark.parametrize(
    ("node", "type_"),
    [
        ("Exp(m)", "float[2, 3]"),
        ("Tanh(m)", "float[2, 3]"),
        ("MatMul(m, x)", "float[2, 4]"),
        ("ReduceSum(m)", "float[1, 1]"),
        ("Pow(m, m)", "float[2, 3]"),
        ("RandomNormalLike(m)", "float[2, 3]"),
        ("RandomUniform <shape = [2]> ()", "float[2]"),
        ("Bernoulli(m)", "float[2, 3]"),
        ("Multinomial(m)", "int32[2, 1]"),
        ("Dropout(m)", "float[2, 3]"),
        ("Mul(tiny, tiny)", "float[2]"),
        ("Div(one, zero)", "int64[1]"),
        ("Mod(one, zero)", "int64[1]"),
        ("Cast <to = 6> (huge)", "int32"),
        ("Cast <to = 10> (m)", "float16[2, 3]"),
        ("QuantizeLinear(huge, small)", "uint8"),
        ("Gather(m, minus)", "float[1, 3]"),
        ("Shape(x)", "int64[2]"),
    ],
)
def test_left_for_run_time(node: str, type_: str):
    text = f"g (float[3, N] x) => ({type_} r) <{CONSTANTS}> {{ r = {node} }}"
    check(constant_folding, text, text, count=0, evaluate="nobody")


def _folded(node: str, array: np.ndarray) -> int:
    """How many nodes are folded in a model of one, which reads the constants m and zero."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        f"g (float[N] x) => (float r) <int64[1] zero = {{0}}> {{ r = {node} }}"
    )
    proto.graph.output[0].type.Clear()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "m"))
    return constant_folding(load_model(proto))


def test_large_constants_that_only_get_another_axis():
    assert _folded("Unsqueeze(m, zero)", np.zeros((100, 200), np.float32)) == 1


@pytest.mark.parametrize(("count", "folded"), [(1, 1), (2, 0)])
def test_single_numbers_are_dequantised_and_weights_stay(count: int, folded: int):
    """Quantisers do so to all constants of floats, such as the 0 that a loop begins with."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[M] r)'
        "<float scale = {0.5}, int8 zero = {1}> { r = DequantizeLinear(m, scale, zero) }"
    )
    array = np.full(count, 4, np.int8)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "m"))
    model = load_model(proto)
    assert constant_folding(model) == folded
    if folded:
        (constant,) = (v for k, v in model.graph.initializers.items() if k.startswith("r_"))
        assert constant.const_value is not None and constant.const_value.numpy().tolist() == [1.5]


@pytest.mark.parametrize("dtype", (np.float16, ml_dtypes.bfloat16))
def test_halves_are_sizes_or_weights(dtype: type):
    """Converters to 16 bits write scales so; matrices are widened where they are read."""
    assert _folded("Cast <to = 1> (m)", np.array([1.5, 2], dtype)) == 1
    assert _folded("Cast <to = 1> (m)", np.array([[1.5, 2]], dtype)) == 0
    target = int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    assert _folded(f"Cast <to = {target}> (m)", np.array([60])) == 1
    assert _folded(f"Cast <to = {target}> (m)", np.array([257])) == 0


def test_chain_is_folded_in_one_run():
    check(
        constant_folding,
        """
        g (float[N, 4] x) => (float[2, M] y) <int64[1] i = {1}, int64[1] two = {2}> {
            s = Shape(x)
            n = Gather <axis = 0> (s, i)
            h = Div(n, two)
            all = Neg(i)
            shape = Concat <axis = 0> (h, all)
            y = Reshape(x, shape)
        }
        """,
        """
        g (float[N, 4] x) => (float[2, M] y)
        <int64[1] i = {1}, int64[1] two = {2}, int64[1] n = {4}, int64[1] h = {2},
         int64[1] all = {-1}, int64[2] shape = {2, -1}> {
            s = Shape(x)
            y = Reshape(x, shape)
        }
        """,
        count=4,
    )


def test_inside_a_body_and_of_its_output():
    check(
        constant_folding,
        """
        g (bool c, float[2] x) => (float[2] y) <float[2] v = {1, 2}> {
            y = If (c) <
                then_branch = a () => (float[2] p) { i = Add(v, v)  p = Mul(x, i) },
                else_branch = b () => (float[2] q) { q = Neg(v) }>
        }
        """,
        """
        g (bool c, float[2] x) => (float[2] y)
        <float[2] v = {1, 2}, float[2] i = {2, 4}, float[2] q_constant = {-1, -2}> {
            y = If (c) <
                then_branch = a () => (float[2] p) { p = Mul(x, i) },
                else_branch = b () => (float[2] q) { q = Identity(q_constant) }>
        }
        """,
        count=2,
    )


def test_all_outputs_of_a_split():
    check(
        constant_folding,
        """
        g (float[N] x) => (float[N] y) <float[2] v = {1, 2}> {
            a, b = Split <axis = 0> (v)
            t = Mul(x, a)
            y = Mul(t, b)
        }
        """,
        """
        g (float[N] x) => (float[N] y) <float[2] v = {1, 2}, float[1] a = {1}, float[1] b = {2}> {
            t = Mul(x, a)
            y = Mul(t, b)
        }
        """,
        count=1,
    )


@pytest.mark.parametrize(
    ("node", "size"),
    [
        ("ConstantOfShape(shape)", "{100000, 100000, 100000}"),
        ("Expand(one, shape)", "{100000, 100000, 100000}"),
        ("Tile(cube, shape)", "{100000, 100000, 100000}"),
        ("Range(none, most, unit)", "{1, 1, 1}"),
        ("Add(column, row)", "{1, 1, 1}"),
        ("Gather(row, many)", "{1, 1, 1}"),
    ],
)
def test_large_results_are_not_even_computed(node: str, size: str):
    rows = 60000
    zeros = ",".join("0" * rows)
    model = load_model(
        parse(
            f"""
        g () => (r) <int64[3] shape = {size}, int64[1] one = {{1}}, int64[1, 1, 1] cube = {{1}},
            int64 none = {{0}}, int64 most = {{1000000000000}}, int64 unit = {{1}},
            int64[{rows}, 1] column = {{{zeros}}}, int64[1, {rows}] row = {{{zeros}}},
            int64[{rows // 10}, 100] many = {{{",".join("0" * (rows * 10))}}}> {{
            r = {node}
        }}
        """.replace("(r)", "(int64 r)")
        )
    )
    tracemalloc.start()
    try:
        assert constant_folding(model) == 0
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**24
    assert sum(value.const_value.nbytes for value in model.graph.initializers.values()) < 2**24


def test_opset_decides_the_meaning():
    check(
        constant_folding,
        """
        g () => (float[2, 3, 1] r) <float[2, 3] m = {0, 1, 2, 3, 4, 5}> {
            r = Unsqueeze <axes = [2]> (m)
        }
        """,
        """
        g () => (float[2, 3, 1] r)
        <float[2, 3] m = {0, 1, 2, 3, 4, 5}, float[2, 3, 1] r_constant = {0, 1, 2, 3, 4, 5}> {
            r = Identity(r_constant)
        }
        """,
        opset=11,
        count=1,
    )


@pytest.mark.parametrize(("index", "folded"), [(1, 4), (-1, 4), (0, None), (-2, None), (2, None)])
def test_one_size_of_a_shape(index: int, folded: int | None):
    before = f"""
        g (float[N, 4] x) => (int64 r) <int64 i = {{{index}}}> {{
            s = Shape(x)
            r = Gather(s, i)
        }}
        """
    after = f"""
        g (float[N, 4] x) => (int64 r) <int64 i = {{{index}}}, int64 r_constant = {{{folded}}}> {{
            s = Shape(x)
            r = Identity(r_constant)
        }}
        """
    check(
        constant_folding,
        before,
        before if folded is None else after,
        count=int(folded is not None),
        evaluate="nobody" if index == 2 else "reference",
    )


@pytest.mark.parametrize(("opset", "folded"), [(9, 0), (13, 1)])
def test_a_type_that_no_identity_has_is_returned_by_its_own_node(opset: int, folded: int):
    model = load_model(
        parse(f"""
            <ir_version: 8, opset_import: ["": {opset}]>
            g () => (bfloat16[2] y) <int32[2] x = {{1, 2}}> {{ y = Cast<to = 16>(x) }}
            """)
    )
    assert constant_folding(model) == folded
