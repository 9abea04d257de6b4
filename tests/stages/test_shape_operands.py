"""Calls whose shapes depend on the values of inputs: plans, bound calls, errors."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato.compiler
from ostinato import InferenceSession
from ostinato.errors import InputError, OstinatoError, ShapeError
from ostinato.native import changing, function
from tests.golden import parse

EXPAND = parse("g (float[N, 1] x, int64[2] shape) => (float[a, b] y) { y = Expand(x, shape) }")
COLUMN = np.arange(3, dtype="f").reshape(3, 1)


def session(model: object) -> InferenceSession:
    return InferenceSession(model, cache_dir=None, fallback=False)


def run(session: InferenceSession, **feeds: object) -> list[np.ndarray]:
    return session.run(None, {name: np.asarray(value) for name, value in feeds.items()})


def test_new_values_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    emit = ostinato.compiler.emit_object

    def counting(*args: object) -> bytes:
        nonlocal count
        count += 1
        return emit(*args)

    monkeypatch.setattr(ostinato.compiler, "emit_object", counting)
    chain = session(
        parse("""
        g (float[N, T, C] x, int64 first) => (float[a, b, c] y) <
            int64 zero = {0}, int64 one = {1}, int64[1] rest = {-1}, int64[1] front = {0}
        > {
            s = Shape(x)  n = Gather(s, zero)  t = Gather(s, one)  left = Sub(t, first)
            a = Unsqueeze(n, front)  b = Unsqueeze(left, front)  f = Unsqueeze(first, front)
            end = Unsqueeze(t, front)  axis = Unsqueeze(one, front)
            tail = Slice(x, f, end, axis)  shape = Concat <axis = 0> (b, a, rest)
            y = Reshape(tail, shape)
        }
        """)
    )
    for n, t, c, first in ((2, 5, 3, 1), (1, 1, 1, 0), (4, 9, 2, 7), (3, 30, 5, 29)):
        x = np.random.default_rng(n).standard_normal((n, t, c), "f")
        (y,) = run(chain, x=x, first=np.int64(first))
        assert y.tolist() == x[:, first:].reshape(t - first, n, c).tolist()
    assert count == 1


def test_a_run_never_uses_the_sizes_of_the_last_one() -> None:
    expand = session(EXPAND)
    shape = np.array([3, 2])
    assert run(expand, x=COLUMN, shape=shape)[0].shape == (3, 2)
    shape[1] = 5
    assert run(expand, x=COLUMN, shape=shape)[0].shape == (3, 5)
    out = {"y": np.zeros((3, 5), "f")}
    shape[1] = 4
    with pytest.raises(InputError, match="output 'y'"):
        expand.run(None, {"x": COLUMN, "shape": shape}, out=out)


def test_a_bound_call_refuses_changed_values() -> None:
    shape = np.array([3, 2])
    call = session(EXPAND).bind({"x": COLUMN, "shape": shape})
    call()
    assert call.outputs["y"].tolist() == np.repeat(COLUMN, 2, 1).tolist()
    shape[1] = 7
    with pytest.raises(InputError, match="elements of shape, which have changed"):
        call()
    shape[1] = 2
    call()


def test_other_integers_are_plain_data() -> None:
    """A call with other elements needs no other plan."""
    gather = session(parse("g (float[N] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }"))
    for places in ([0, 1], [2, 2]):
        assert run(gather, x=COLUMN[:, 0], i=places)[0].tolist() == places
    function = gather._native
    assert function is not None and not function.has_values and len(function._plans) == 1


HUGE = [
    ([-1, 4], "axis 0 of the shape: shape\\[0\\] is negative"),
    ([2**40, 2**40], "memory"),
    ([3, 2**50], "memory"),
    ([2**62, 2**62], "memory|64 bits"),
    ([-(2**63), 2**63 - 1], "negative"),
]


@pytest.mark.parametrize(("shape", "message"), HUGE)
def test_absurd_sizes_are_errors_that_name_node_and_input(shape: list[int], message: str) -> None:
    made = session(
        parse("g (int64[2] shape) => (float[a, b] y) { z = ConstantOfShape(shape)  y = Exp(z) }")
    )
    with pytest.raises(ShapeError, match=message) as error:
        run(made, shape=shape)
    assert "shape = " in str(error.value) and "'z'" in str(error.value)
    assert run(made, shape=[1, 2])[0].tolist() == [[1, 1]]


@pytest.mark.filterwarnings("error")
def test_sizes_are_divided_without_an_overflow_and_the_error_of_too_large_ones_names_outputs() -> (
    None
):
    text = """g (float[N] x) => (float[a] y, int64[1] n) <int64[1] d = {-9223372036854775808}> {
        s = Shape(x)  q = Div(s, d)  y = Slice(x, q, s)  r = Sub(s, q)  n = Mul(r, d)
    }"""
    with pytest.raises(ShapeError, match="output 'y', output 'n' and intermediate values"):
        run(session(parse(text)), x=COLUMN[:, 0])


@pytest.mark.parametrize("op", ["Reshape", "Expand", "Slice", "Tile", "Pad", "Range", "Split"])
def test_no_values_end_the_process(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the values: a result, or an error of this package."""
    for module in (function, changing):
        monkeypatch.setattr(module, "total_memory", lambda: 2**24)
    texts = {
        "Slice": "g (float[N, 3] x, int64[2] v, int64[2] w) => (float[a, b] y)"
        " { y = Slice(x, v, w) }",
        "Pad": "g (float[N, 3] x, int64[4] v) => (float[a, b] y) { y = Pad(x, v) }",
        "Range": "g (int64 u, int64 v, int64 w) => (int64[a] y) { y = Range(u, v, w) }",
        "Split": "g (float[N, 3] x, int64[2] v) => (float[a, b] y, float[c, d] z)"
        " { y, z = Split <axis = 0> (x, v) }",
    }
    text = f"g (float[N, 3] x, int64[2] v) => (float[a, b] y) {{ y = {op}(x, v) }}"
    runnable = session(parse(texts.get(op, text)))
    random = np.random.default_rng(0)
    edges = np.array(
        [0, 1, -1, 2, -2, 3, 7, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63), 1 - 2**63]
    )
    given = {one.name: one.shape or [] for one in runnable.get_inputs()}
    for _ in range(150):
        feeds = {
            name: np.ones((4, 3), "f") if name == "x" else random.choice(edges, shape)
            for name, shape in given.items()
        }
        try:
            results = run(runnable, **feeds)
        except OstinatoError as error:
            assert "n" in str(error)
        else:
            assert sum(array.nbytes for array in results) < 2**24


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (np.array([3.0, 2.0]), "expected int64\\[2\\], got float64\\[2\\]"),
        (np.array([3, 2], np.int32), "expected int64\\[2\\], got int32\\[2\\]"),
        (np.array([[3, 2]]), "expected int64\\[2\\], got int64\\[1, 2\\]"),
        (np.array([3, 2, 1]), "expected int64\\[2\\], got int64\\[3\\]"),
        ("3 2", "'shape'"),
    ],
)
def test_equal_numbers_of_another_type_are_refused_as_in_a_first_call(
    shape: object, message: str
) -> None:
    expand = session(EXPAND)
    assert run(expand, x=COLUMN, shape=[3, 2])[0].shape == (3, 2)
    with pytest.raises(InputError, match=message):
        expand.run(None, {"x": COLUMN, "shape": shape})
    (y,) = expand.run(None, {"x": COLUMN, "shape": [3, 4]})
    assert y.shape == (3, 4)
    assert run(expand, x=COLUMN[:1], shape=[3, 4])[0].shape == (3, 4)
