from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

import ostinato
from ostinato.autodiff import gradient
from ostinato.autodiff.rules.pointwise import SLOPES
from tests.autodiff.check import check, with_loss
from tests.autodiff.models import parse
from tests.autodiff.test_cases import DOMAINS

Array = np.ndarray
# Operators of one operand that are newer than opset 18, or have no float64 before that one.
SINCE = {"Gelu": 20, "Swish": 24, "Celu": 28}
# onnxruntime knows no operator sets after this one.
LAST_OF_ONNXRUNTIME = 23


def floats(random: np.random.Generator, *shape: int) -> Array:
    return np.asarray(random.standard_normal(shape), np.float32)


def slopes(model: onnx.ModelProto, wrt: list[str], **feeds: Array) -> list[Array]:
    """The gradients of the sum of all that `model` returns."""
    made = with_loss(model)
    ones = {
        value.name: np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in made.graph.input
        if value.name.endswith("_factors")
    }
    session = ostinato.InferenceSession(gradient(made, "loss", wrt))
    return session.run([f"{name}_grad" for name in wrt], {**feeds, **ones})


@pytest.mark.parametrize("op_type", sorted(SLOPES))
def test_functions_of_one_operand(op_type: str) -> None:
    opset = SINCE.get(op_type, 18)
    model = parse(f"g (float[N,3] x) => (float[N,3] y) {{ y = {op_type}(x) }}", opset)
    x = np.random.default_rng(1).standard_normal((5, 3)) * 2
    x = DOMAINS.get(op_type, lambda x: x)(x)
    witness = opset <= LAST_OF_ONNXRUNTIME
    made = check(model, {"x": x.astype(np.float32)}, onnxruntime=witness)
    empty = {"x": np.zeros((0, 3)), "y_factors": np.zeros((0, 3))}
    assert ostinato.InferenceSession(made).run(["x_grad"], empty)[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        ("LeakyRelu<alpha=0.3>(x)", 18),
        ("Elu<alpha=-0.7>(x)", 18),
        ("Selu<alpha=1.2, gamma=0.9>(x)", 18),
        ("Celu<alpha=0.4>(x)", 28),
        ("ThresholdedRelu<alpha=0.5>(x)", 18),
        ("HardSigmoid<alpha=0.4, beta=0.3>(x)", 18),
        ("HardSigmoid<alpha=-0.4>(x)", 18),
        ("Shrink<lambd=0.4, bias=0.3>(x)", 18),
        ("Shrink<lambd=-0.4, bias=0.3>(x)", 18),
        ('Gelu<approximate="tanh">(x)', 20),
        ("Swish<alpha=-1.7>(x)", 24),
        ("Identity(x)", 18),
        ("Floor(x)", 18),
        ("Ceil(x)", 18),
        ("Round(x)", 18),
        ("Sign(x)", 18),
        ("Sum(x)", 18),
        ("Mean(x)", 18),
        ("Max(x)", 18),
        ("Min(x)", 18),
        ("Dropout(x)", 18),
        ("Clip(x)", 18),
    ],
)
def test_attributes(node: str, opset: int) -> None:
    model = parse(f"g (float[4,5] x) => (float[4,5] y) {{ y = {node} }}", opset)
    x = floats(np.random.default_rng(2), 4, 5)
    check(model, {"x": x}, onnxruntime=opset <= LAST_OF_ONNXRUNTIME)


BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "Pow")


def declared(name: str, shape: tuple[int, ...], named: bool, kind: str = "float") -> str:
    """An input of this shape, or with names, the same in all inputs, for sizes other than 1."""
    axes = range(len(shape), 0, -1)
    sizes = [
        f"N{i}" if named and size != 1 else str(size) for i, size in zip(axes, shape, strict=True)
    ]
    return f"{kind}[{','.join(sizes)}] {name}" if sizes else f"{kind} {name}"


def result(shape: tuple[int, ...]) -> str:
    return declared("y", shape, named=False)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_broadcasting(data: st.DataObject) -> None:
    op_type = data.draw(st.sampled_from(BINARY), "operator")
    made = data.draw(
        shapes.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3),
        "shapes",
    )
    named = data.draw(st.tuples(st.booleans(), st.booleans()), "named")
    a, b = (declared(n, s, k) for n, s, k in zip("ab", made.input_shapes, named, strict=True))
    model = parse(f"g ({a}, {b}) => ({result(made.result_shape)}) {{ y = {op_type}(a, b) }}")
    random = np.random.default_rng(3)
    feeds = {n: floats(random, *s) for n, s in zip("ab", made.input_shapes, strict=True)}
    if op_type == "Pow":
        feeds["a"] = np.abs(feeds["a"]) + np.float32(0.5)
    if op_type == "Div":
        feeds["b"] = feeds["b"] + np.float32(0.5) * np.sign(feeds["b"])
    check(model, feeds)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    shapes.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3),
    st.booleans(),
)
def test_broadcasting_of_where(made: shapes.BroadcastableShapes, named: bool) -> None:
    c, a, b = made.input_shapes
    operands = ", ".join(declared(n, shape, named) for n, shape in (("a", a), ("b", b)))
    model = parse(
        f"g ({declared('c', c, False, 'bool')}, {operands})"
        f" => ({result(made.result_shape)}) {{ y = Where(c, a, b) }}"
    )
    random = np.random.default_rng(4)
    feeds = {"c": np.asarray(random.random(c) < 0.5), "a": floats(random, *a)}
    check(model, feeds | {"b": floats(random, *b)})


@pytest.mark.parametrize("slope", ["4", "1", "3,1", "2,3,4", "S"])
def test_prelu(slope: str) -> None:
    model = parse(f"g (float[2,3,4] x, float[{slope}] s) => (float[2,3,4] y) {{ y = PRelu(x, s) }}")
    random = np.random.default_rng(5)
    sizes = [4 if size == "S" else int(size) for size in slope.split(",")]
    check(model, {"x": floats(random, 2, 3, 4), "s": floats(random, *sizes)})


@pytest.mark.parametrize("node", ["Clip(x, l, h)", "Clip(x, l)", 'Clip(x, "", h)'])
def test_clip_passes_gradients_to_its_bounds(node: str) -> None:
    node = node.replace('""', "")
    given_ = ", ".join(f"float {name}" for name in "lh" if name in node.split("(")[1])
    model = parse(f"g (float[4,5] x, {given_}) => (float[4,5] y) {{ y = {node} }}")
    feeds = {"x": floats(np.random.default_rng(6), 4, 5)}
    bounds = {"l": np.float32(-0.4), "h": np.float32(0.6)}
    check(model, feeds | {n: np.array(v) for n, v in bounds.items() if f"float {n}" in given_})


def test_clip_with_crossed_bounds() -> None:
    model = parse("g (float[6] x, float l, float h) => (float[6] y) { y = Clip(x, l, h) }")
    x = np.linspace(-2, 2, 6, dtype=np.float32)
    check(model, {"x": x, "l": np.array(1, np.float32), "h": np.array(-1, np.float32)})


@pytest.mark.parametrize("exponent", [-1.5, 0.0, 0.5, 1.0, 2.0, 3.0])
def test_constant_exponents(exponent: float) -> None:
    model = parse(f"g (float[N] x) => (float[N] y) <float e = {{{exponent}}}> {{ y = Pow(x, e) }}")
    check(model, {"x": np.abs(floats(np.random.default_rng(7), 5)) + np.float32(0.5)})


def test_exponents_of_integer_type() -> None:
    model = parse("g (float[4] x, int64[4] e) => (float[4] y) { y = Pow(x, e) }")
    x = np.array([-1.5, 2, 0.5, -0.5], np.float32)
    check(model, {"x": x, "e": np.array([2, -1, 0, 3])})


def test_exponents_of_another_float_type() -> None:
    model = parse("g (float[3] x, double[3] e) => (float[3] y) { y = Pow(x, e) }")
    x, e = np.array([1.5, 2, 0.5], np.float32), np.array([2.0, -1.0, 0.5])
    dx, de = slopes(model, ["x", "e"], x=x, e=e)
    assert (dx.dtype, de.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(dx, e * x ** (e - 1), rtol=1e-6)
    np.testing.assert_allclose(de, x**e * np.log(x), rtol=1e-6)


def test_powers_of_zero() -> None:
    model = parse("g (float[4] x, float[4] e) => (float[4] y) { y = Pow(x, e) }")
    e = np.array([0, 1, 2, 0.5], np.float32)
    dx, de = slopes(model, ["x", "e"], x=np.zeros(4, np.float32), e=e)
    np.testing.assert_array_equal(dx, [0, 1, 0, np.inf])
    np.testing.assert_array_equal(de, [0, 0, 0, 0])


# The values that PyTorch 2.13 has there.
KINKS = [
    ("Relu(x)", [0.0, -0.0], [0, 0]),
    ("LeakyRelu<alpha=0.3>(x)", [0.0, -0.0], [0.3, 0.3]),
    ("Elu<alpha=0.5>(x)", [0.0], [0.5]),
    ("Abs(x)", [0.0, -0.0], [0, 0]),
    ("HardSigmoid(x)", [-2.5, 2.5], [0, 0]),
    ("HardSwish(x)", [-3.0, 3.0], [0, 1]),
    ("ThresholdedRelu<alpha=1.0>(x)", [1.0], [0]),
    ("Shrink<lambd=1.0>(x)", [1.0, -1.0], [0, 0]),
    ("Max(x, zero)", [0.0], [0.5]),
    ("Min(x, zero, x)", [0.0, -1.0], [2 / 3, 1]),
    ("Clip(x, zero, one)", [0.0, 1.0], [1, 1]),
    ("PRelu(x, half)", [0.0], [0.5]),
    ("Softplus(x)", [100.0, -100.0, 800.0], [1, 3.8e-44, 1]),
    ("Sigmoid(x)", [200.0, -200.0], [0, 0]),
    ("Mish(x)", [100.0, -200.0], [1, 0]),
    ("Swish(x)", [200.0, -200.0], [1, 0]),
    ("Elu(x)", [200.0, -200.0], [1, 0]),
]


@pytest.mark.parametrize(("node", "x", "expected"), KINKS, ids=[kink[0] for kink in KINKS])
def test_where_there_is_no_derivative(node: str, x: list[float], expected: list[float]) -> None:
    size = len(x)
    model = parse(
        f"g (float[{size}] x) => (float[{size}] y) "
        f"<float zero = {{0}}, float half = {{0.5}}, float one = {{1}}> {{ y = {node} }}",
        opset=24,
    )
    (found,) = slopes(model, ["x"], x=np.array(x, np.float32))
    np.testing.assert_allclose(found, np.array(expected, np.float32), rtol=1e-6, atol=1e-43)


@pytest.mark.parametrize(
    "node", ["Cast<to=11>(x)", "CastLike(x, like)", "Cast<to=10>(x)", "Cast<to=16>(x)"]
)
def test_casts_convert_the_gradient_back(node: str) -> None:
    model = parse(
        f"g (float[3] x, double[1] like) => (float[3] y) {{ z = {node} y = Cast<to=1>(z) }}"
    )
    x = np.array([0.1, -2, 3], np.float32)
    dx, like = slopes(model, ["x", "like"], x=x, like=np.zeros(1))
    np.testing.assert_array_equal(dx, np.ones(3, np.float32))
    np.testing.assert_array_equal(like, np.zeros(1))


def test_integers_have_no_gradient() -> None:
    model = parse(
        "g (float[3] x) => (float[3] y) "
        "{ i = Cast<to=7>(x) j = Mul(i, i) z = Cast<to=1>(j) y = Add(z, x) }"
    )
    (dx,) = slopes(model, ["x"], x=np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(dx, np.ones(3, np.float32))


def test_mod() -> None:
    model = parse("g (float[4,3] x, float[3] d) => (float[4,3] y) { y = Mod<fmod=1>(x, d) }")
    random = np.random.default_rng(8)
    feeds = {"x": floats(random, 4, 3), "d": np.array([0.7, 1.1, 0.4], np.float32)}
    check(model, feeds, ["x"], native=False)
    with pytest.raises(ostinato.UnsupportedError, match="for the divisor"):
        gradient(with_loss(model), "loss", ["d"])


def test_dropout_in_training_uses_its_mask() -> None:
    model = parse(
        "g (float[64] x) => (float loss, bool[64] mask) <float r = {0.25}, bool t = {1}> "
        "{ y, mask = Dropout(x, r, t) loss = ReduceSum<keepdims=0>(y) }"
    )
    session = ostinato.InferenceSession(gradient(model, "loss", ["x"]))
    _, mask, dx = session.run(None, {"x": np.ones(64, np.float32)})
    assert mask.any() and not mask.all()
    np.testing.assert_allclose(dx, mask / np.float32(0.75), rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "node", "reason"),
    [
        ("", "y = Dropout(x, r, yes)", "only where its mask is an output"),
        (", bool t", "y = Dropout(x, r, t)", "only known at run time"),
    ],
)
def test_dropout_that_is_refused(inputs: str, node: str, reason: str) -> None:
    model = parse(
        f"g (float[4] x{inputs}) => (float loss) <float r = {{0.25}}, bool yes = {{1}}> "
        f"{{ {node} loss = ReduceSum<keepdims=0>(y) }}"
    )
    with pytest.raises(ostinato.UnsupportedError, match=reason):
        gradient(model, "loss", ["x"])
