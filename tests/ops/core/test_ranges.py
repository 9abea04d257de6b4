"""Integers that are proven to lie between two numbers, and indices that need no check for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import ostinato
from ostinato.errors import OstinatoError
from ostinato.graph.facts import facts_of
from ostinato.ops.core import ranges
from ostinato.ops.rules import scan
from tests import witness

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def session_of(body: str, inputs: str, outputs: str, constants: str) -> ostinato.InferenceSession:
    text = f"{HEAD} g ({inputs}) => ({outputs}) <{constants}> {{ {body} }}"
    return ostinato.InferenceSession(parser.parse_model(text), cache_dir=None)


def checks(session: ostinato.InferenceSession) -> int:
    """How many kernels find the least of some conditions."""
    return sum(kernel["reductions"] for kernel in session.report()["kernels"])


TABLES = "int64[4] next = {2, 0, 3, 1}, float[5] values = {5., 6., 7., 8., 9.}, int64 one = {1}"


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        ("a = Gather(next, i) y = Gather(values, a)", 1),
        ("a = Gather(next, i) b = Add(a, one) y = Gather(values, b)", 1),
        ("a = Gather(next, i) b = Add(a, one) d = Add(b, one) y = Gather(values, d)", 2),
        ("a = Gather(next, i) b = Neg(a) y = Gather(values, b)", 2),
        ("a = Greater(i, one) b = Cast<to = 7>(a) y = Gather(values, b)", 0),
        ("a = Gather(next, i) b = Min(a, one) y = Gather(values, b)", 1),
        ("a = Gather(next, i) b = Mul(a, one) y = Gather(values, b)", 1),
        ("a = Gather(next, i) b = Sub(a, one) y = Gather(values, b)", 2),
        ("a = Gather(next, i) b = Div(a, three) y = Gather(values, b)", 1),
        ("a = Gather(next, i) d = Mod(a, three) y = Gather(values, d)", 1),
        ("a = Gather(next, i) b = Div(a, minus) y = Gather(values, b)", 2),
        ("a = Gather(next, i) b = Mod(a, minus) y = Gather(values, b)", 2),
        ("b = Mod(i, three) y = Gather(values, b)", 0),
        ("b = Mod<fmod = 1>(i, three) y = Gather(values, b)", 1),
        ("a = Gather(next, i) b = Gather(other, i) d = Add(a, b) y = Gather(values, d)", 2),
        ("a = Gather(next, i) b = Gather(values, i) d = Gather(values, a) y = Add(b, d)", 2),
        ("a = Gather(next, i) b = Where(c, one, a) y = Gather(values, b)", 1),
        ("a = Gather(next, i) b = Cast<to = 6>(a) y = Gather(values, b)", 1),
        ("a = Gather(next, i) b = Unsqueeze(a, z) d = Squeeze(b, z) y = Gather(values, d)", 1),
    ],
)
def test_only_indices_that_may_not_exist_are_checked(body: str, needed: int) -> None:
    inputs = "int64[N] i, bool[N] c"
    constants = f"{TABLES}, int64[1] z = {{0}}, int64 three = {{3}}, int64 minus = {{-1}}, "
    constants += "int64[4] other = {1, 1, 3, 0}"
    session = session_of(body, inputs, "float[N] y", constants)
    assert checks(session) == needed
    feeds = {"i": np.array([0, 3, 1, -1, 2]), "c": np.array([True, False, False, True, False])}
    text = f"{HEAD} g ({inputs}) => (float[N] y) <{constants}> {{ {body} }}"
    made = parser.parse_model(text)
    try:
        expected = witness.run(made.SerializeToString(), feeds)
    except Exception:  # what does not exist is an error of onnxruntime's own
        with pytest.raises(OstinatoError, match="out of range"):
            session.run(None, feeds)
        return
    assert (session.run(None, feeds)[0] == expected[0]).all()


STEP = """s = Scan<num_scan_inputs = 1, body = b (int64[N] at, int64[N] step) => (int64[N] new) {
          moved = Gather(next, at) new = BODY }>(first, steps)
          y = Gather(values, s)"""


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        ("Mod(moved, three)", 0),
        ("Max(moved, step)", 2),
        ("Add(moved, one)", 1),
        ("Identity(moved)", 0),
    ],
)
def test_states_that_stay_in_a_range_are_not_checked(body: str, needed: int) -> None:
    """What steps begin with and what each of them makes is what they find, and what is left."""
    inputs, outputs = "int64[2, N] steps, bool[N] c", "float[N] y"
    text = "zero = Cast<to = 7>(c) first = Add(zero, one) " + STEP.replace("BODY", body)
    constants = f"{TABLES}, int64 three = {{3}}"
    session = session_of(text, inputs, outputs, constants)
    assert checks(session) == needed
    feeds = {"steps": np.array([[0, 0, 0], [1, 0, 2]]), "c": np.array([True, False, True])}
    made = parser.parse_model(f"{HEAD} g ({inputs}) => ({outputs}) <{constants}> {{ {text} }}")
    if body.startswith("Add"):
        with pytest.raises(OstinatoError, match="out of range"):
            session.run(None, feeds)
        return
    expected = witness.run(made.SerializeToString(), feeds)
    assert (session.run(None, feeds)[0] == expected[0]).all()


def test_states_that_begin_outside_of_a_range_are_checked() -> None:
    text = "zero = Cast<to = 7>(c) first = Add(zero, three) " + STEP.replace("BODY", "Neg(moved)")
    constants = f"{TABLES}, int64 three = {{3}}"
    session = session_of(text, "int64[2, N] steps, bool[N] c", "float[N] y", constants)
    feeds = {"steps": np.zeros((2, 1), int), "c": np.array([True])}
    with pytest.raises(OstinatoError, match="out of range"):
        session.run(None, feeds)


def test_positions_of_a_search_are_places_along_its_axis() -> None:
    body = "a = ArgMax<axis = -1, keepdims = 0>(x) y = Gather(values, a)"
    session = session_of(body, "float[N, 5] x", "float[N] y", TABLES)
    alone = session_of("a = ArgMax<axis = -1>(x)", "float[N, 5] x", "int64[N, 1] a", TABLES)
    assert checks(session) == checks(alone)
    x = np.random.default_rng(0).standard_normal((7, 5)).astype("f")
    assert (session.run(None, {"x": x})[0] == x.argmax(1) + 5).all()


def test_elements_by_proven_indices_behind_padding() -> None:
    """Readers that pass over places outside read no index there."""
    body = """a = Gather(next, i) b = Gather(rows, a) c = Transpose<perm = [0, 2, 1]>(b)
              y = Conv<pads = [2, 2]>(c, w)"""
    constants = (
        "int64[4] next = {2, 0, 3, 1}, "
        "float[4, 2] rows = {5., 6., 7., 8., 9., 1., 2., 3.}, "
        "float[1, 2, 3] w = {1., 2., 3., 4., 5., 6.}"
    )
    session = session_of(body, "int64[1, N] i", "float[1, 1, M] y", constants)
    text = f"{HEAD} g (int64[1, N] i) => (float[1, 1, M] y) <{constants}> {{ {body} }}"
    for length in (1, 3, 20):
        feeds = {"i": np.random.default_rng(length).integers(0, 4, (1, length))}
        expected = witness.run(parser.parse_model(text).SerializeToString(), feeds)
        np.testing.assert_allclose(session.run(None, feeds)[0], expected[0], 1e-6)


def test_integers_that_wrap_have_no_range() -> None:
    assert ranges.fits((0, 255), "uint8")
    assert not ranges.fits((0, 256), "uint8")
    assert not ranges.fits((-1, 3), "uint16")
    assert not ranges.fits((0, 1), "float32")
    assert not ranges.fits(None, "int64")


def test_elements_that_no_operand_has_are_not_in_a_range() -> None:
    assert facts_of("Pad").fills
    session = session_of(
        "a = Gather(next, i) b = Pad(a, p, k) y = Gather(values, b)",
        "int64[N] i",
        "float[M] y",
        f"{TABLES}, int64[2] p = {{0, 1}}, int64 k = {{9}}",
    )
    with pytest.raises(OstinatoError, match="out of range"):
        session.run(None, {"i": np.array([0])})


def _nested(depth: int) -> str:
    inside = "moved = Identity(at)" if not depth else _nested(depth - 1)
    return f"""first{depth} = Constant<value_int = 2>()
        last{depth} = Scan<num_scan_inputs = 1,
            body = b{depth} (int64 at, int64 step) => (int64 n) {{
            {inside}
            sum = Add(moved, step) n = Mod(sum, three) }}>(first{depth}, few)
        moved = Identity(last{depth})"""


def test_nested_loops_are_lowered_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level would double the work if those inside were tried while one around is."""
    count = 0
    original = scan._loop

    def counted(*given: Any) -> Any:
        nonlocal count
        count += 1
        return original(*given)

    monkeypatch.setattr(scan, "_loop", counted)
    depth = 7
    text = _nested(depth) + "y = Gather(values, moved)"
    constants = f"{TABLES}, int64 three = {{3}}, int64[2] few = {{1, 0}}"
    session = session_of(text, "bool[N] c", "float y", constants)
    assert depth < count <= 2 * (depth + 1) ** 2
    assert checks(session) == 0
