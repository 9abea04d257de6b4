from __future__ import annotations

import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from tests.golden import parse

SCAN = """
    g (float[3, 2] x, float[2] h) => (float[2] hn, float[3, 2] y) {
        hn, y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) =>
            (float[2] sn, float[2] o) { sn = Add(s, e)  o = Neg(sn) }> (h, x)
    }
    """
LOOP = """
    g (int64 m, bool c, float[2] h) => (float[2] hn, float[K, 2] y) {
        hn, y = Loop (m, c, h) <body = b (int64 i, bool d, float[2] s) =>
            (bool e, float[2] sn, float[2] o) { e = Identity(d)  sn = Neg(s)  o = Exp(s) }>
    }
    """
IF = """
    g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = a () => (float[2] p) { p = Exp(x) },
            else_branch = b () => (float[2] q) { q = Relu(x) }>
    }
    """


@pytest.mark.parametrize("text", [SCAN, LOOP, IF])
def test_whole(text: str):
    load_model(parse(text))


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (SCAN, "num_scan_inputs = 1", "num_scan_inputs = 0", "num_scan_inputs is 0"),
        (SCAN, "num_scan_inputs = 1", "num_scan_inputs = 3", "num_scan_inputs is 3"),
        (SCAN, "(h, x)", "(x)", "inputs of its body, got 2"),
        (SCAN, "(h, x)", '("", x)', "input 0 is missing"),
        (SCAN, "=> (float[2] hn, float[3, 2] y)", "=> (float[2] hn)", None),
        (SCAN, "(float[2] sn, float[2] o)", "(float[2] sn)", "2 outputs of its body, got 1"),
        (SCAN, "num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_axes = [0, 1]", "axes"),
        (SCAN, "num_scan_inputs = 1", "num_scan_inputs = 1, scan_output_axes : ints = []", "axes"),
        (
            SCAN,
            "num_scan_inputs = 1",
            "num_scan_inputs = 1, scan_output_directions = [0, 1]",
            "dir",
        ),
        (LOOP, "(m, c, h)", "(m, c)", "2 inputs of its body, got 3"),
        (LOOP, "(m, c, h)", '(m, c, "")', "input 2 is missing"),
        (LOOP, "(m, c, h)", '("", c, h)', None),
        (
            LOOP,
            "(bool e, float[2] sn, float[2] o) { e = Identity(d)",
            "(float e, float[2] sn, float[2] o) { e = Cast<to = 1>(d)",
            "'e' of tensor.float. as",
        ),
        (LOOP, "(bool e, float[2] sn, float[2] o)", "(bool e, float[2] sn)", "3 outputs"),
        (IF, "a () => (float[2] p) {", "a () => (float[2] p, float[2] r) { r = Abs(x)", "then_b"),
        (IF, "b () =>", "b (float[2] z) =>", "0 inputs of else_branch, got 1"),
    ],
)
def test_parts_that_do_not_fit(text: str, old: str, new: str, message: str | None):
    assert old in text
    changed = parse(text.replace(old, new))
    if message is None:
        load_model(changed)
        return
    with pytest.raises(ModelError, match=message):
        load_model(changed)
