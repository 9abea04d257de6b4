"""An If that cannot be native as a whole runs one of two models, whose native parts stay native."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ostinato import InferenceSession
from ostinato.errors import RunError, UnsupportedError
from ostinato.ops import LOWERINGS
from tests import witness
from tests.golden import parse

X = np.array([[1, -2, 3, -4], [5, 6, -7, 8]], np.float32)


@pytest.fixture(autouse=True)
def without_abs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Abs has no native form in these tests."""
    monkeypatch.delitem(LOWERINGS, "Abs")


def session(text: str, **options: Any) -> InferenceSession:
    return InferenceSession(parse(text, opset=18), **{"cache_dir": None, **options})


# The branches read a value of an earlier stage, constants, a size of the input and one another's
# names; one hands a captured value on, the other pads by negative amounts.
BRANCH = """
    g (float[N, 4] x, bool c) => (float[K, L] y, float[N, 4] z, float[N, 4] w)
        <int64[4] p = {0, 1, 0, -1}, float ten = {10}> {
        n = Neg(x)
        s = Shape(x)
        y, z = If (c) <
            then_branch = t () => (float[N, 4] a, float[N, 4] a2) {
                h = Abs(n)  e = Exp(h)  a = Mul(e, ten)  a2 = Identity(x)
            },
            else_branch = e () => (float[N, 4] b, float[N, 4] b2) {
                b = Pad(x, p)  r = Reshape(n, s)  b2 = Sub(r, ten)
            }
        >
        w = Add(z, n)
    }"""


def expected(c: bool) -> list[np.ndarray]:
    if c:
        z = X
        y = np.exp(np.abs(X)) * 10
    else:
        z = -X - 10
        y = np.pad(X[:, :-1], ((0, 0), (1, 0)))
    return [y, z, z - X]


@pytest.mark.parametrize("cached", [False, True])
def test_only_the_node_without_native_form_is_interpreted(cached: bool, tmp_path: Path) -> None:
    for round_ in range(2 if cached else 1):
        compiled = session(BRANCH, cache_dir=tmp_path if cached else None)
        report = compiled.report()
        assert report.from_cache is (round_ == 1)
        assert [(e["node"], e["op"], e["status"]) for e in report.fallback] == [
            ("h", "Abs", "reference kernel")
        ]
        assert not report.native
        fused = {name for kernel in report.kernels for name in kernel["fused"]}
        assert {"e", "a", "b", "b2", "w"} <= fused
        for c in (True, False, True):
            for got, value in zip(
                compiled.run(None, {"x": X, "c": np.array(c)}), expected(c), strict=True
            ):
                np.testing.assert_allclose(got, value, rtol=1e-6)


def test_calls_of_every_kind() -> None:
    compiled = session(BRANCH)
    (z,) = compiled.run(["z"], {"x": X, "c": np.array(False)})
    np.testing.assert_array_equal(z, -X - 10)
    target = np.empty_like(X)
    compiled.run(None, {"x": X, "c": np.array(True)}, out={"y": target})
    np.testing.assert_allclose(target, expected(True)[0], rtol=1e-6)
    c = np.array(True)
    call = compiled.bind({"x": X, "c": c})
    for flag in (True, False):
        c[...] = flag
        call()
        np.testing.assert_allclose(call.outputs["w"], expected(flag)[2], rtol=1e-6)


def test_without_fallback_the_inner_node_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"node 'y' \(If\): node 'h' \(Abs\) in it"):
        session(BRANCH, fallback=False)


RANKS = """
    g (float[N, 4] x, bool c) => (float[K] y, int64 rank) <int64[1] flat = {-1}, int64 i = {0}> {
        v = If (c) <
            then_branch = t () => (float[M] a) { a = Reshape(x, flat) },
            else_branch = e () => (float[N, 4] b) { b = Neg(x) }
        >
        y = Reshape(v, flat)
        r = Shape(v)
        s = Shape(r)
        rank = Gather(s, i)
    }"""


def test_branches_of_different_ranks_are_native_each() -> None:
    compiled = session(RANKS)
    assert "If" not in [entry["op"] for entry in compiled.report().fallback]
    for c, value, rank in ((True, X, 1), (False, -X, 2)):
        y, found = compiled.run(None, {"x": X, "c": np.array(c)})
        np.testing.assert_array_equal(y, value.reshape(-1))
        assert found == rank
    assert compiled.report().interpreted == []


def test_such_a_choice_alone_is_native() -> None:
    compiled = session(
        RANKS.partition("y = Reshape")[0].replace("float[K] y, int64 rank", "float[K, L] v") + "}",
        fallback=False,
    )
    assert compiled.report().native
    for c, value in ((True, X.reshape(-1)), (False, -X)):
        (v,) = compiled.run(None, {"x": X, "c": np.array(c)})
        np.testing.assert_array_equal(v, value)


NESTED = """
    g (float[N, 4] x, bool c, bool d) => (float[N, 4] y) {
        y = If (c) <
            then_branch = t () => (float[N, 4] a) {
                a = If (d) <
                    then_branch = tt () => (float[N, 4] p) { p = Neg(x) },
                    else_branch = te () => (float[N, 4] q) { o = Exp(x)  q = Abs(o) }
                >
            },
            else_branch = e () => (float[N, 4] b) { b = Abs(x) }
        >
    }"""


def test_choices_within_choices() -> None:
    compiled = session(NESTED)
    assert [entry["node"] for entry in compiled.report().fallback] == ["q", "b"]
    model = parse(NESTED, opset=18).SerializeToString()
    for c in (True, False):
        for d in (True, False):
            feeds = {"x": X, "c": np.array(c), "d": np.array(d)}
            np.testing.assert_allclose(
                compiled.run(None, feeds)[0], witness.run(model, feeds)[0], rtol=1e-6
            )


def test_sizes_that_the_program_is_not_made_for() -> None:
    """A size of 1 that is repeated is for another program, in a branch as elsewhere."""
    text = """
        g (float[N, T] x, float[M, T] z, bool c) => (float[K, T] y) {
            y = If (c) <
                then_branch = t () => (float[K, T] a) { h = Abs(x)  a = Add(h, z) },
                else_branch = e () => (float[K, T] b) { b = Add(x, z) }
            >
        }"""
    compiled = session(text)
    model = parse(text, opset=18).SerializeToString()
    for rows in (2, 1, 2):
        for c in (True, False):
            feeds = {"x": X, "z": 10 * X[:rows], "c": np.array(c)}
            np.testing.assert_array_equal(
                compiled.run(None, feeds)[0], witness.run(model, feeds)[0]
            )


def test_a_condition_is_one_element() -> None:
    text = NESTED.replace("bool c,", "bool[K] c,")
    compiled = session(text)
    feeds = {"x": X, "c": np.array([True]), "d": np.array(True)}
    np.testing.assert_array_equal(compiled.run(None, feeds)[0], -X)
    with pytest.raises(RunError, match=r"node 'y': the condition has shape \[2\]"):
        compiled.run(None, feeds | {"c": np.array([True, False])})


def test_a_deep_nest_is_cut_in_little_time() -> None:
    """Each level is lowered once more as a model of its own, so depth costs squared, no more."""
    body = "p0 = Abs(x)"
    for level in range(1, 21):
        body = (
            f"p{level} = If (c{level}) <"
            f" then_branch = t{level} () => (float[N] p{level - 1}) {{ {body} }},"
            f" else_branch = e{level} () => (float[N] q{level}) {{ q{level} = Neg(x) }} >"
        )
    names = [f"c{level}" for level in range(1, 21)]
    inputs = ", ".join(f"bool {name}" for name in names)
    compiled = session(f"g (float[N] x, {inputs}) => (float[N] p20) {{ {body} }}")
    for other in (None, "c1", "c20"):
        conditions = {name: np.array(name != other) for name in names}
        got = compiled.run(None, {"x": X[0], **conditions})
        np.testing.assert_array_equal(got[0], np.abs(X[0]) if other is None else -X[0])


def test_an_output_that_both_branches_repeat() -> None:
    text = """
        g (float[N] x, bool c) => (float[N] y, float[N] z) {
            y, z = If (c) <
                then_branch = t () => (float[N] a, float[N] a2) { a = Abs(x)  a2 = Identity(a) },
                else_branch = e () => (float[N] b, float[N] b2) { b = Identity(x)  b2 = Neg(x) }
            >
        }"""
    compiled = session(text)
    x = X[0]
    for c, values in ((True, (np.abs(x), np.abs(x))), (False, (x, -x))):
        results = compiled.run(None, {"x": x, "c": np.array(c)})
        for got, value in zip(results, values, strict=True):
            np.testing.assert_array_equal(got, value)
            assert got is not x


def test_the_model_is_not_changed_by_cutting_it() -> None:
    model = parse(BRANCH, opset=18)
    before = model.SerializeToString()
    InferenceSession(model, cache_dir=None)
    assert model.SerializeToString() == before
    onnx.checker.check_model(model)
