from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.reference.kernels import KERNELS
from tests import witness
from tests.golden import parse

F = np.float32
SHAPES = {"x": (1, 4, 5), "w": (4, 3, 2), "b": (6,)}


def run(model: onnx.ModelProto, **feeds: object) -> list[object]:
    return ReferenceEvaluator(model, new_ops=KERNELS).run(None, feeds)


@pytest.mark.parametrize("sizes", [[6, 10], [5, 9], [9, 10]])
@pytest.mark.parametrize("auto", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_have_the_shape_that_is_given(auto: str, sizes: list[int]):
    text = f"""g (float[1, 2, 3, 5] x, float[2, 3, 3, 1] w) => (float[A, B, C, D] y) {{
        y = ConvTranspose <auto_pad = "{auto}", output_shape = {sizes}, strides = [2, 2],
            dilations = [2, 3], kernel_shape = [3, 1]> (x, w)
    }}"""
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 2, 3, 5)).astype(F),
        "w": rng.standard_normal((2, 3, 3, 1)).astype(F),
    }
    model = parse(text, opset=18)
    (result,) = run(model, **feeds)
    (expected,) = witness.run(model.SerializeToString(), feeds)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_axes_to_resize_may_be_counted_from_the_end():
    def resized(axes: str) -> object:
        node = f'y = Resize <mode = "linear", antialias = 1, axes = [{axes}]> (x, , , s)'
        text = f"g (float[N, M] x, int64[1] s) => (float[P, Q] y) {{ {node} }}"
        x = np.arange(12, dtype=F).reshape(3, 4)
        return run(parse(text, opset=19), x=x, s=np.array([2]))[0]

    np.testing.assert_array_equal(resized("-2"), resized("0"))
    assert resized("-1").shape == (3, 2)


def test_a_signal_needs_no_axis_of_parts():
    text = "g (float[N, T] x, int64 s, int64 n) => (float[N, F, B, 2] y) { y = STFT (x, s, , n) }"
    model, x = parse(text, opset=17), np.arange(32, dtype=F).reshape(2, 16)
    feeds = {"x": x, "s": np.array(4), "n": np.array(8)}
    (result,) = run(model, **feeds)
    expected = witness.run(model.SerializeToString(), feeds)[0]
    np.testing.assert_allclose(result, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("axis", [0, -1])
def test_logarithms_of_what_softmax_takes_for_0(axis: int):
    text = f"g (float[N, M] x) => (float[N, M] y) {{ y = LogSoftmax <axis = {axis}> (x) }}"
    model, x = parse(text), np.array([[0, -1e9, 2], [-300, 1, 2]], F)
    (result,) = run(model, x=x)
    expected = witness.run(model.SerializeToString(), {"x": x})[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


LOOP = """
    g (int64 n, bool go, float[2] x) => (float[2] last, float[t, 2] all, int64[t] steps) {
        last, all, steps = Loop (n, go, x) <body = b
            (int64 i, bool c, float[2] s) => (bool d, float[2] s2, float[2] row, int64 j) {
            d = Identity(c)
            s2 = Add(s, x)
            row = Identity(s)
            j = Identity(i)
        }>
    }
"""


def test_a_loop_stacks_vectors_and_scalars():
    x = np.array([1, 2], F)
    last, rows, steps = run(parse(LOOP), n=np.array(3), go=np.array(True), x=x)
    assert last.tolist() == [4, 8]
    assert rows.tolist() == [[1, 2], [2, 4], [3, 6]]
    assert steps.tolist() == [0, 1, 2] and steps.shape == (3,)


@pytest.mark.parametrize(("count", "go"), [(0, True), (3, False)])
def test_a_loop_of_no_steps_has_empty_outputs(count: int, go: bool):
    x = np.array([1, 2], F)
    last, rows, steps = run(parse(LOOP), n=np.array(count), go=np.array(go), x=x)
    assert last.tolist() == [1, 2]
    assert rows.shape == (0, 2) and rows.dtype == F
    assert steps.shape == (0,) and steps.dtype == np.int64


def test_a_loop_without_trip_count_or_condition():
    until = parse("""
        g (float x) => (float y) {
            y = Loop ("", "", x) <body = b (int64 i, bool c, float s) => (bool d, float s2) {
                s2 = Add(s, x)
                limit = Constant <value_float = 3.5> ()
                d = Less(s2, limit)
            }>
        }
        """)
    assert run(until, x=np.array(1, F))[0] == 4
    counted = parse("""
        g (float x) => (float y) {
            n = Constant <value_int = 3> ()
            y = Loop (n, "", x) <body = b (int64 i, bool c, float s) => (bool d, float s2) {
                d = Identity(c)
                s2 = Add(s, x)
            }>
        }
        """)
    assert run(counted, x=np.array(1, F))[0] == 4


def scan(attributes: str, length: int) -> list[object]:
    model = parse(f"""
        g (float s, float[a, b] x) => (float last, float[c, d] y) {{
            last, y = Scan <num_scan_inputs = 1, {attributes} body = b
                (float h, float[e] r) => (float h2, float[e] o) {{
                t = ReduceSum <keepdims = 0> (r)
                h2 = Add(h, t)
                o = Add(r, h)
            }}> (s, x)
        }}
        """)
    x = np.arange(2 * length, dtype=F).reshape(2, length)
    return run(model, s=np.array(0, F), x=x if "scan_input_axes" in attributes else x.T)


def test_a_scan_of_any_axis_and_direction():
    last, y = scan("scan_input_axes = [1], scan_output_axes = [-1],", 3)
    assert last == 15
    assert y.tolist() == [[0, 4, 10], [3, 7, 13]]
    last, y = scan("scan_input_directions = [1], scan_output_directions = [1],", 3)
    assert last == 15
    assert y.tolist() == [[12, 15], [8, 11], [2, 5]]


def test_a_scan_of_no_steps_has_empty_outputs():
    last, y = scan("", 0)
    assert last == 0
    assert y.shape == (0, 2) and y.dtype == F


def test_a_batch_of_scans_of_several_lengths_in_version_8():
    model = parse(
        """
        g (int64[2] n, float[2] s, float[2, 3] x) => (float[2] last, float[2, 3] y) {
            last, y = Scan <num_scan_inputs = 1, directions = [1], body = b
                (float h, float r) => (float h2, float o) {
                h2 = Add(h, r)
                o = Identity(h2)
            }> (n, s, x)
        }
        """,
        opset=8,
    )
    x = np.array([[1, 2, 4], [8, 16, 32]], F)
    last, y = run(model, n=np.array([2, 3]), s=np.zeros(2, F), x=x)
    assert last.tolist() == [3, 56]
    assert y.tolist() == [[2, 3, 0], [32, 48, 56]]


def test_an_empty_optional_is_empty():
    model = parse("""
        g (bool c, float[n] x) => (bool h) {
            o = If (c) <
                then_branch = t () => (optional(float[n]) p) { p = Optional(x) },
                else_branch = e () => (optional(float[n]) q) {
                    q = Optional <type: type_proto = float[n]> ()
                }
            >
            same = Identity(o)
            h = OptionalHasElement(same)
        }
        """)
    for condition in (True, False):
        assert run(model, c=np.array(condition), x=np.zeros(2, F)) == [condition]


@pytest.mark.parametrize("opset", [9, 13, 15])
def test_given_statistics_are_not_mixed_with_those_of_the_input(opset: int):
    model = parse(
        """
        g (float[n, 1] x, float[1] s, float[1] b, float[1] m, float[1] v) => (float[n, 1] y) {
            y = BatchNormalization <epsilon = 0.0> (x, s, b, m, v)
        }
        """,
        opset=opset,
    )
    one = np.ones(1, F)
    (y,) = run(model, x=np.array([[5], [9]], F), s=2 * one, b=one, m=one, v=4 * one)
    assert y.tolist() == [[5], [9]]


def test_the_old_name_of_scattering():
    model = parse(
        """
        g (float[2, 3] x, int64[1, 2] i, float[1, 2] u) => (float[2, 3] y) {
            y = Scatter <axis = 1> (x, i, u)
        }
        """,
        opset=9,
    )
    x, u = np.zeros((2, 3), F), np.array([[5, 6]], F)
    assert run(model, x=x, i=np.array([[2, 0]]), u=u)[0].tolist() == [[6, 0, 5], [0, 0, 0]]


def test_transposed_convolutions_have_groups():
    model = parse(
        """
        g (float[1, 4, 5] x, float[4, 3, 2] w, float[6] b) => (float[1, 6, 10] y) {
            y = ConvTranspose <group = 2, strides = [2]> (x, w, b)
        }
        """
    )
    numbers = np.random.default_rng(0)
    feeds = {name: numbers.standard_normal(shape).astype(F) for name, shape in SHAPES.items()}
    expected = witness.run(model.SerializeToString(), feeds)[0]
    np.testing.assert_allclose(run(model, **feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_filters_over_one_axis_have_zero_points():
    model = parse(
        """
        g (uint8[1, 2, 7] x, uint8[3, 2, 2] w, uint8 a, uint8[3] b) => (int32[1, 3, 6] y) {
            y = ConvInteger (x, w, a, b)
        }
        """
    )
    numbers = np.random.default_rng(0)
    feeds = {
        name: numbers.integers(0, 256, shape).astype(np.uint8)
        for name, shape in {"x": (1, 2, 7), "w": (3, 2, 2), "a": (), "b": (3,)}.items()
    }
    x = feeds["x"].astype(np.int32) - feeds["a"]
    w = feeds["w"].astype(np.int32) - feeds["b"].reshape(3, 1, 1)
    expected = [[(x[0, :, i : i + 2] * row).sum() for i in range(6)] for row in w]
    np.testing.assert_array_equal(run(model, **feeds)[0], [expected])


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent_operators_are_refused(op: str):
    model = parse(f"""
        g (float[t, b, i] x, float[d, g, i] w, float[d, g, h] r) => (float[t, d, b, h] y) {{
            y = {op} <hidden_size = 2> (x, w, r)
        }}
        """)
    with pytest.raises(NotImplementedError, match="ignores attributes"):
        run(model)


@pytest.mark.parametrize(
    "node",
    [
        "y, i = MaxPool <kernel_shape = [2, 2]> (x)",
        "y = GridSample (x, g)",
        "y = MaxUnpool <kernel_shape = [2, 2]> (x, i)",
        "y = RandomNormalLike (x)",
        "y = Dropout (x, r, t)",
    ],
)
def test_what_native_code_does_better_has_no_kernel(node: str):
    inputs = "float[1, 1, 2, 2] x, float[1, 1, 1, 2] g, int64[1, 1, 2, 2] i, float r, bool t"
    inputs = inputs.replace("int64[1, 1, 2, 2] i, ", "") if "MaxPool" in node else inputs
    model = parse(f"m ({inputs}) => (float[a, b, c, d] y) {{ {node} }}")
    feeds = {v.name: np.ones([d.dim_value for d in v.type.tensor_type.shape.dim],
                             onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))
             for v in model.graph.input}  # fmt: skip
    with pytest.raises((NotImplementedError, ValueError), match=r"kernel|compiled code"):
        run(model, **feeds)


def test_a_tensor_goes_before_any_position_and_behind_the_last():
    text = """g (float[N] x, int64 at) => (float[M] y) <float[1] a = {-1}, float[1] b = {-2}> {
        s = SequenceConstruct(a, b)  t = SequenceInsert(s, x, at)
        y = ConcatFromSequence <axis = 0> (t) }"""
    model, x = parse(text), np.ones(1, F)
    for at, expected in {
        -2: [1, -1, -2],
        -1: [-1, 1, -2],
        0: [1, -1, -2],
        1: [-1, 1, -2],
        2: [-1, -2, 1],
    }.items():
        feeds = {"x": x, "at": np.array(at)}
        np.testing.assert_array_equal(run(model, **feeds)[0], expected)
        np.testing.assert_array_equal(witness.run(model.SerializeToString(), feeds)[0], expected)
    with pytest.raises(IndexError, match="-2 to 2"):
        run(model, x=x, at=np.array(3))


def test_a_tensor_is_the_first_of_an_empty_sequence():
    text = """g (float[N] x, int64 at) => (float[M] y) {
        s = SequenceEmpty()  t = SequenceInsert(s, x, at)
        y = ConcatFromSequence <axis = 0> (t) }"""
    (y,) = run(parse(text), x=np.ones(1, F), at=np.array(0))
    np.testing.assert_array_equal(y, [1])


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_texts_have_a_place_among_categories(shape: tuple[int, ...]):
    text = f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (string{list(shape) or ""} x) => (float[] y) {{
        y = ai.onnx.ml.OneHotEncoder <cats_strings = ["a", "b", "c"]> (x)
    }}"""
    x = np.array([["b", "z", "a"]] * 2, object).reshape(-1)[: int(np.prod(shape))].reshape(shape)
    (result,) = run(onnx.parser.parse_model(text), x=x)
    expected = (x[..., None] == np.array(["a", "b", "c"], object)).astype(F)
    np.testing.assert_array_equal(result, expected)
    assert isinstance(result, np.ndarray) and result.dtype == F


def test_a_text_that_is_no_category_is_named():
    text = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (string[N] x) => (float[N, C] y) {
        y = ai.onnx.ml.OneHotEncoder <cats_strings = ["a", "b"], zeros = 0> (x)
    }"""
    with pytest.raises(ValueError, match="'z' is none of the 2 categories, expected since"):
        run(onnx.parser.parse_model(text), x=np.array(["a", "z"], object))
