"""Sizes that turn out to be 1 are repeated, by every operator that broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import OstinatoError, ShapeError
from tests import witness
from tests.golden import parse

Array = np.ndarray
Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Meeting:
    """A graph, the shapes of its inputs, and what NumPy says the result is.

    rows: the sizes of N and M that are tried.
    """

    body: str
    inputs: Mapping[str, Shape]
    result: Callable[..., Array]
    out: str = "float[P, Q]"
    constants: str = ""
    opset: int = 21
    rows: Sequence[tuple[int, int]] = ((3, 3), (3, 1), (1, 3), (1, 1), (0, 1), (1, 0))

    def model(self) -> onnx.ModelProto:
        types = {"c": "bool", "i": "int64", "b": "uint8"}
        given = ", ".join(
            f"{types.get(name[0], 'float')}{_brackets(shape)} {name}"
            for name, shape in self.inputs.items()
        )
        constants = f"<{self.constants}>" if self.constants else ""
        return onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": {self.opset}]> '
            f"g ({given}) => ({self.out} y) {constants} {{ {self.body} }}"
        )

    def feeds(self, **sizes: int) -> dict[str, Array]:
        random = np.random.default_rng(len(self.body))
        feeds: dict[str, Array] = {}
        for name, shape in self.inputs.items():
            array = random.standard_normal([sizes.get(str(n), n) for n in shape])  # type: ignore[misc]
            kinds: dict[str, type] = {"c": bool, "i": np.int64, "b": np.uint8}
            kind = kinds.get(name[0], np.float32)
            feeds[name] = np.asarray(array > 0 if kind is bool else (array * 9 % 7).astype(kind))
        return feeds


def _brackets(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else ""


def normalized(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


PAIR: dict[str, Shape] = {"x": ("N", "T"), "z": ("M", "T")}
INTEGERS: dict[str, Shape] = {"i0": ("N", "T"), "i1": ("M", "T")}
# onnxruntime's MatMul does not repeat operands without elements.
SOME = ((3, 3), (3, 1), (1, 3), (1, 1))
FITTING = ((3, 3), (3, 1), (1, 1), (0, 1))
ROW = "int64[1] s = {2}, int64[1] e = {3}, int64[1] a = {0}"
LAST_ROW = "int64[1] s = {-2}, int64[1] e = {-1}, int64[1] a = {0}"
NO_ROW = "int64[1] s = {-5}, int64[1] e = {0}, int64[1] a = {0}"
MEETINGS = {
    "a row": Meeting("r = Slice(x, s, e, a) y = Sub(x, r)", {"x": ("N", "M")},
                     lambda x: x - x[2:3], constants=ROW, rows=((3, 2), (4, 1), (1, 2))),
    "a row, longer": Meeting("r = Slice(x, s, e, a) w = Pad(x, p) y = Mul(w, r)", {"x": ("N", "M")},
                             lambda x: np.pad(x, ((2, 1), (0, 0))) * x[2:3],
                             constants=ROW + ", int64[4] p = {2, 0, 1, 0}",
                             rows=((3, 2), (7, 1))),
    "a row from the back": Meeting(
        "r = Slice(x, s, e, a) w = Concat <axis = 0> (x, x) y = Add(w, r)", {"x": ("N", "M")},
        lambda x: np.concatenate([x, x]) + x[-2:-1],
        constants=LAST_ROW, rows=((3, 2), (2, 1), (7, 3))),
    "no row": Meeting("r = Slice(x, s, e, a) y = Add(x, r)", {"x": ("N", "M")},
                      lambda x: x + x[:0], constants=NO_ROW, rows=((1, 2), (0, 3))),
    "Add": Meeting("y = Add(x, z)", PAIR, np.add),
    "Div": Meeting("y = Div(x, z)", PAIR, lambda x, z: x / np.float32(z)),
    "Less": Meeting("y = Less(x, z)", PAIR, np.less, "bool[P, Q]"),
    "Mod": Meeting("y = Mod(i0, k)", {"i0": ("N", "T")}, lambda i0: i0 % 5, "int64[P, Q]",
                   "int64[3, 1] k = {5, 5, 5}", rows=((3, 3), (3, 1))),
    "last axis": Meeting("y = Mul(x, z)", {"x": (2, "N"), "z": (2, "M")}, np.multiply),
    "both axes": Meeting("y = Sub(x, z)", {"x": ("N", "M"), "z": ("M", "N")}, np.subtract),
    "of other ranks": Meeting("y = Add(x, z)", {"x": ("N",), "z": (2, "M")}, np.add),
    "BitwiseXor": Meeting("y = BitwiseXor(i0, i1)", INTEGERS, np.bitwise_xor, "int64[P, Q]"),
    "Pow": Meeting("y = Pow(x, z)", PAIR, lambda x, z: x**z),
    "Pow 2": Meeting("s = Shape(z) d = ConstantOfShape<value = float[1] {2}>(s) y = Pow(x, d)",
                     PAIR, lambda x, z: x**2 + 0 * z),
    "Where": Meeting("y = Where(c, x, z)", {"c": ("M", 1), "x": ("N", "T"), "z": ("K", "T")},
                     np.where),
    "three": Meeting("y = Sum(x, z, w)", PAIR | {"w": ("K", "T")}, lambda x, z, w: x + z + w),
    "Mean": Meeting("y = Mean(x, z, w)", PAIR | {"w": ("K", 1)},
                    lambda x, z, w: (x + z + w) / np.float32(3)),
    "Max": Meeting("y = Max(w, x, z)", PAIR | {"w": ("K", "T")},
                   lambda x, z, w: np.maximum(np.maximum(x, z), w)),
    "Min": Meeting("y = Min(x, z)", PAIR, np.minimum),
    "chain": Meeting("a = Add(x, z) b = Mul(a, x) y = Sub(z, b)", PAIR,
                     lambda x, z: z - (x + z) * x),
    "MatMul": Meeting("y = MatMul(x, z)", {"x": ("N", 2, 3), "z": ("M", 3, "T")}, np.matmul,
                      "float[P, Q, R]", rows=SOME),
    "MatMulInteger": Meeting("y = MatMulInteger(b0, b1)", {"b0": ("N", 2, 5), "b1": ("M", 5, 4)},
                             lambda b0, b1: b0.astype(np.int32) @ b1.astype(np.int32),
                             "int32[P, Q, R]", rows=SOME),
    "Einsum": Meeting('y = Einsum<equation = "bij,bjk->bik">(x, z)',
                      {"x": ("N", 2, 3), "z": ("M", 3, 4)}, np.matmul, "float[P, Q, R]",
                      rows=SOME),
    "Expand": Meeting("s = Shape(z) y = Expand(x, s)", PAIR, lambda x, z: x + 0 * z),
    "mask": Meeting("q = Add(x, z) y = Softmax(q)", {"x": ("N", 2, "T", 4), "z": ("M", 1, "T", 4)},
                    lambda x, z: np.exp(x + z) / np.exp(x + z).sum(-1, keepdims=True),
                    "float[P, Q, R, S]"),
    "PRelu": Meeting("y = PRelu(x, z)", {"x": (2, "N"), "z": ("M",)},
                     lambda x, z: np.where(x < 0, z * x, x), rows=FITTING),
    "Gemm": Meeting("y = Gemm(x, w, z)", {"x": ("N", 3), "z": ("M", 2)},
                    lambda x, z: x @ np.ones((3, 2), np.float32) + z, constants=
                    "float[3, 2] w = {1, 1, 1, 1, 1, 1}", rows=FITTING),
    "LayerNormalization": Meeting(
        "y = LayerNormalization(x, z)", {"x": (2, "N"), "z": ("M",)},
        lambda x, z: normalized(x) * z, rows=((3, 3), (3, 1), (1, 1))),
    "in a Scan": Meeting(
        """last, y = Scan<num_scan_inputs = 1, body = step (float[M, 2] h, float[N, 2] v)
           => (float[M, 2] next, float[P, 2] out) { out = Add(h, v) next = Mul(h, h) }>(z, x)""",
        {"x": (4, "N", 2), "z": ("M", 2)},
        lambda x, z: np.stack([x[t] + z ** (2 ** t) for t in range(4)]), "float[T, P, Q]"),
    "a longer state of a Scan": Meeting(
        """a = Concat<axis = 0>(x, z)
           y = Scan<num_scan_inputs = 1, body = step (float[P, 2] h, float[1] v)
           => (float[P, 2] next) { next = Add(h, x) }>(a, w)""",
        {"x": ("N", 2), "z": (3, 2), "w": (4, 1)},
        lambda x, z, w: np.concatenate([x, z]) + 4 * x, rows=((1, 1),)),
    "captured by an If": Meeting(
        """y = If(c)<then_branch = yes () => (float[P, Q] a) { a = Add(x, z) },
                     else_branch = no () => (float[P, Q] b) { b = Sub(z, x) }>""",
        PAIR | {"c": ()}, lambda x, z, c: x + z if c else z - x),
    "a constant": Meeting("y = Add(x, w)", {"x": ("N", 4)},
                          lambda x: x + np.array([[1], [2], [3]], np.float32),
                          constants="float[3, 1] w = {1, 2, 3}", rows=((3, 3), (1, 3))),
    "a constant shape": Meeting("y = Expand(x, s)", {"x": ("N", 4)},
                                lambda x: np.broadcast_to(x, (3, 4)),
                                constants="int64[2] s = {3, 4}", rows=((3, 3), (1, 3))),
    "a size computed": Meeting("a = Concat<axis = 0>(x, x) y = Add(a, z)", PAIR,
                               lambda x, z: np.concatenate([x, x]) + z,
                               rows=((3, 6), (3, 1), (1, 2), (0, 1))),
}  # fmt: skip


def session(model: onnx.ModelProto, **options: Any) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(model, cache_dir=None, fallback=False, **options)


@pytest.mark.parametrize("name", MEETINGS)
def test_a_size_of_1_is_repeated(name: str) -> None:
    case = MEETINGS[name]
    compiled = session(case.model())
    data = case.model().SerializeToString()
    for n, m in case.rows:
        feeds = case.feeds(N=n, M=m, T=2, K=1)
        expected = case.result(*feeds.values())
        (got,) = compiled.run(None, feeds)
        assert got.shape == expected.shape, (n, m)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-5)
        (theirs,) = witness.run(data, feeds)
        assert got.shape == theirs.shape, (n, m)
        np.testing.assert_allclose(got, theirs, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["Add", "three", "MatMul", "mask", "Einsum", "last axis"])
def test_it_has_the_bits_of_the_model_with_these_sizes_in_it(name: str) -> None:
    case = MEETINGS[name]
    compiled = session(case.model())
    for n, m in ((3, 1), (1, 3)):
        feeds = case.feeds(N=n, M=m, T=2, K=1)
        names = {s for shape in case.inputs.values() for s in shape if isinstance(s, str)}
        sizes = {"N": n, "M": m, "T": 2, "K": 1}
        static = session(case.model(), specialize={name: sizes[name] for name in names})
        np.testing.assert_array_equal(compiled.run(None, feeds)[0], static.run(None, feeds)[0])


@pytest.mark.parametrize("name", ["Add", "last axis", "Where", "MatMul", "PRelu", "a constant"])
def test_sizes_that_do_not_fit_are_refused_by_name(name: str) -> None:
    case = MEETINGS[name]
    compiled = session(case.model())
    with pytest.raises(ShapeError, match=r"N and (M|3) differ|(M|3) and N differ"):
        compiled.run(None, case.feeds(N=4, M=2, T=2, K=1))
    # One operand of these is not repeated.
    if name == "PRelu":
        with pytest.raises(ShapeError, match="M and N differ"):
            compiled.run(None, case.feeds(N=1, M=3, T=2, K=1))


def test_a_size_that_meets_itself_is_not_looked_at() -> None:
    case = Meeting("a = Add(x, z) y = Mul(a, x)", {"x": ("N", "T"), "z": ("N", "T")}, np.add)
    report = session(case.model()).report()
    assert report["assumptions"] == [] == report["checks"] if "checks" in report else True


def test_sizes_that_are_never_equal_are_not_likely_to_be() -> None:
    case = Meeting(
        "a = Concat<axis = 0>(x, x, w) y = Add(a, x)", {"x": ("N", 2), "w": (1, 2)}, np.add
    )
    assert session(case.model()).report()["assumptions"] == []


def test_what_is_likely_is_made_without_strides_that_only_a_run_tells() -> None:
    compiled = session(MEETINGS["Add"].model())
    (assumption,) = compiled.report()["assumptions"]
    assert "one of M and N is 1" in assumption


def test_bound_calls_and_given_outputs() -> None:
    case = MEETINGS["chain"]
    compiled = session(case.model())
    for n, m in ((3, 3), (3, 1), (1, 3)):
        feeds = case.feeds(N=n, M=m, T=2)
        expected = case.result(*feeds.values())
        target = np.zeros((3, 2), np.float32)
        compiled.run(None, feeds, out={"y": target})
        np.testing.assert_allclose(target, expected, rtol=1e-6)
        call = compiled.bind(feeds)
        feeds["x"] *= 2
        call()
        np.testing.assert_allclose(call.outputs["y"], case.result(*feeds.values()), rtol=1e-6)


STEP = Meeting(
    "a = Mul(h, x) y = Add(a, k) h_next = Add(h, k)",
    {"h": ("B", 2), "x": ("F", 2), "k": ("G", 2)},
    np.add,
    "float[B, 2] h_next, float[P, Q]",
)


@pytest.mark.parametrize(("f", "g"), [(3, 3), (1, 3), (3, 1), (1, 1)])
def test_streams_and_pools(f: int, g: int) -> None:
    compiled = session(STEP.model())
    feeds = STEP.feeds(B=3, F=f, G=g)
    h = feeds.pop("h")
    stream = compiled.stream({"h": "h_next"}, initial={"h": h})
    bound = compiled.stream({"h": "h_next"}, initial={"h": h})
    call = bound.bind(feeds)
    for _ in range(3):
        expected = h * feeds["x"] + feeds["k"]
        (y,) = stream.step(feeds)
        call()
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        np.testing.assert_array_equal(call.outputs["y"], y)
        h = h + feeds["k"]
    np.testing.assert_allclose(stream.state["h"], h, rtol=1e-6)


def test_a_state_cannot_become_wider() -> None:
    stream = session(STEP.model()).stream({"h": "h_next"}, initial={"h": np.ones((1, 2), "f")})
    with pytest.raises(OstinatoError, match="h"):
        stream.step({"x": np.ones((1, 2), "f"), "k": np.ones((3, 2), "f")})


def test_an_output_has_the_shape_that_it_has_not_the_one_declared() -> None:
    case = Meeting("y = Add(x, z)", PAIR, np.add, out="float[N, T]")
    feeds = case.feeds(N=1, M=3, T=2)
    (y,) = session(case.model()).run(None, feeds)
    np.testing.assert_array_equal(y, feeds["x"] + feeds["z"])


def test_sizes_that_never_meet_are_refused_when_a_model_is_loaded() -> None:
    model = parse("""
        g (float[N, P] x, float[N, M] m) => (float[N, Q] y) {
            both = Concat <axis = 1> (x, x, five)
            y = Mul(both, m)
        }
        """)
    zeros = np.zeros((2, 5), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(zeros, "five"))
    with pytest.raises(ShapeError, match=r"'y' \(Mul\): axis 1 .*: 2\*P \+ 5 and 3 differ"):
        ostinato.InferenceSession(model, specialize={"M": 3, "N": 2}, cache_dir=None)
