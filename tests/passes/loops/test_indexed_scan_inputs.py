from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.loops.indexed_scan_inputs import indexed_scan_inputs
from tests.golden import check, make_feeds, parse, run_onnxruntime
from tests.oracle import evaluator

HEAD = """g (float[5, 2] x, float[2] h) => (float[2] hn)
    <int64[5] steps = {0, 1, 2, 3, 4}, int64[2] few = {0, 1}, int64[5] late = {1, 2, 3, 4, 5},
     int64 one = {1}, int64 zero = {0}, int64 four = {4}, int64 last = {-1}, int64[1] axis = {0},
     int64[1] units = {1}, int64 three = {3}>"""


def scan(body: str, scanned: str = "steps", attributes: str = "") -> str:
    return f"""hn = Scan <num_scan_inputs = 1 {attributes}, body = b (float[2] s, int64 t) =>
        (float[2] n) {{ {body} n = Add(s, e) }}> (h, {scanned})"""


def served(source: str = "x", attributes: str = "", scanned: str = "steps") -> str:
    return f"""hn = Scan <num_scan_inputs = 2 {attributes}, body = b (float[2] s, int64 t,
        float[2] x_step) => (float[2] n) {{ n = Add(s, x_step) }}> (h, {scanned}, {source})"""


BACKWARD = ", scan_input_directions = [0, 1]"


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        ("e = Gather(x, t)", ""),
        ("e = Gather <axis = -2> (x, t)", ""),
        ("i = Cast <to = 6> (t)  e = Gather(x, i)", ""),
        ("i = Unsqueeze(t, axis)  k = Gather(x, i)  e = Squeeze(k, axis)", ""),
        ("i = Add(t, one)  j = Sub(i, one)  e = Gather(x, j)", ""),
        ("i = Sub(four, t)  e = Gather(x, i)", BACKWARD),
        ("i = Sub(last, t)  e = Gather(x, i)", BACKWARD),
        ("i = Neg(t)  j = Add(i, four)  e = Gather(x, j)", BACKWARD),
        ("i = Mul(t, last)  j = Add(i, four)  e = Gather(x, j)", BACKWARD),
    ],
)
def test_ways_to_pick_by_the_number_of_a_step(body: str, attributes: str):
    check(
        indexed_scan_inputs,
        f"{HEAD} {{ {scan(body)} }}",
        f"{HEAD} {{ {served(attributes=attributes)} }}",
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    ("body", "scanned", "attributes", "bounds"),
    [
        ("e = Gather(x, t)", "few", "", "0, -3"),
        ("e = Gather(x, t)", "few", BACKWARD, "0, -3"),
        ("i = Add(t, three)  e = Gather(x, i)", "few", "", "3, 9223372036854775807"),
        ("i = Add(t, one)  e = Gather(x, i)", "few", "", "1, -2"),
        ("i = Sub(three, t)  e = Gather(x, i)", "few", BACKWARD, "2, -1"),
        ("i = Sub(t, three)  e = Gather(x, i)", "few", "", "2, -1"),
        ("i = Sub(last, t)  e = Gather(x, i)", "few", BACKWARD, "3, 9223372036854775807"),
    ],
)
def test_part_of_a_sequence(body: str, scanned: str, attributes: str, bounds: str):
    start, end = bounds.split(", ")
    before = scan(body, scanned)
    if attributes and "Sub" not in body:
        before = scan(body, scanned, ", scan_input_directions = [1]")
        attributes = ", scan_input_directions = [1, 1]"
    constants = f'>, int64[1] "hn/constant" = {{{start}}}, int64[1] "hn/constant_1" = {{{end}}}'
    shared = ', int64[1] "hn/constant_2" = {0}>'
    first, third = '"hn/constant"', '"hn/constant_2"'
    if start == "0":  # the start and the axis are one constant
        shared, third = ">", first
    head = HEAD[:-1] + constants[1:] + shared
    check(
        indexed_scan_inputs,
        f"{HEAD} {{ {before} }}",
        f"""{head} {{
            "hn/x_part" = Slice(x, {first}, "hn/constant_1", {third})
            {served('"hn/x_part"', attributes, scanned)}
        }}""",
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    ("body", "scanned"),
    [
        ("i = Add(t, one)  e = Gather(x, i)", "steps"),  # one too far
        ("i = Sub(t, one)  e = Gather(x, i)", "steps"),  # the last, then the first
        ("i = Add(t, t)  e = Gather(x, i)", "few"),  # every other one
        ("e = Gather(x, t)", "late"),
        ("i = Mul(t, t)  e = Gather(x, i)", "few"),
        ("e = Gather(x, zero)", "steps"),
        ("v = Exp(x)  e = Gather(v, t)", "steps"),
    ],
)
def test_what_stays(body: str, scanned: str):
    model = load_model(parse(f"{HEAD} {{ {scan(body, scanned)} }}"))
    before = str(model.graph)
    assert indexed_scan_inputs(model) == 0
    assert str(model.graph) == before


def test_axis_of_size_one_is_kept_where_it_was_kept():
    check(
        indexed_scan_inputs,
        """
        g (float[4, 3] x) => (float[3, 4, 1] y) <int64[3] steps = {0, 1, 2}, int64[1] axis = {0}> {
            y = Scan <num_scan_inputs = 1, body = b (int64 t) => (float[4, 1] e) {
                i = Unsqueeze(t, axis)
                e = Gather <axis = 1> (x, i)
            }> (steps)
        }
        """,
        """
        g (float[4, 3] x) => (float[3, 4, 1] y)
        <int64[3] steps = {0, 1, 2}, int64[1] axis = {0}, int64[1] "y/body/constant" = {1}> {
            y = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1],
                body = b (int64 t, float[4] x_step) => (float[4, 1] "y/body/picked") {
                    "y/body/picked" = Unsqueeze(x_step, "y/body/constant")
                }> (steps, x)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_element_that_is_returned():
    check(
        indexed_scan_inputs,
        """
        g (float[3, 2] x) => (float[2] h, float[3, 2] y, float[3, 2] z)
        <int64[3] steps = {0, 1, 2}, float[2] zero = {0, 0}> {
            h, y, z = Scan <num_scan_inputs = 1, body = b (float[2] s, int64 t) =>
                (float[2] e, float[2] f, float[2] k) {
                    e = Gather(x, t)
                    f = Identity(e)
                    k = Neg(e)
                }> (zero, steps)
        }
        """,
        """
        g (float[3, 2] x) => (float[2] h, float[3, 2] y, float[3, 2] z)
        <int64[3] steps = {0, 1, 2}, float[2] zero = {0, 0}> {
            h, y, z = Scan <num_scan_inputs = 2, body = b (float[2] s, int64 t, float[2] x_step) =>
                (float[2] x_step_output, float[2] f, float[2] k) {
                    f = Identity(x_step)
                    k = Neg(x_step)
                    x_step_output = Identity(x_step)
                }> (zero, steps, x)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


RUN_TIME = """
    g (float[T, N, 2] x, float[N, 2] h) => (float[N, 2] hn, float[X, N, 2] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}> {{
        s = Shape(x)
        n = Gather(s, zero)
        {outside}
        steps = Range(zero, limit, one)
        hn, y = Scan <num_scan_inputs = 1, body = b (float[N, 2] a, int64 t) =>
            (float[N, 2] m, float[N, 2] o) {{
                {inside}
                e = Gather(x, i)
                m = Add(a, e)
                o = Neg(m)
            }}> (h, steps)
    }}
    """


@pytest.mark.parametrize(
    ("outside", "inside", "pieces"),
    [
        ("limit = Identity(n)", "i = Identity(t)", 0),
        ("limit = Identity(n)  m1 = Sub(n, one)", "i = Sub(m1, t)", 0),
        (
            "limit = Identity(n)",
            "k = Shape(x)  l = Gather(k, zero)  j = Sub(l, one)  i = Sub(j, t)",
            0,
        ),
        ("limit = Sub(n, one)", "i = Identity(t)", 1),
        ("limit = Sub(n, one)", "i = Add(t, one)", 1),
        ("limit = Sub(n, two)", "i = Add(t, one)", 1),
        ("limit = Sub(n, two)", "i = Sub(limit, t)", 1),
    ],
)
@pytest.mark.parametrize("length", [4, 3, 2, 1])
def test_lengths_known_at_run_time(outside: str, inside: str, pieces: int, length: int):
    text = RUN_TIME.format(outside=outside, inside=inside)
    model = load_model(parse(text))
    assert indexed_scan_inputs(model) == 1
    ops = [node.op_type for node in model.graph]
    assert ops.count("Slice") == pieces
    body = (
        next(node for node in model.graph if node.op_type == "Scan").attributes["body"].as_graph()
    )
    assert {node.op_type for node in body} == {"Add", "Neg"}
    random = np.random.default_rng(length)
    feeds = make_feeds(parse(text))
    feeds["x"] = random.standard_normal((length, 3, 2)).astype(np.float32)
    if length <= {"limit = Sub(n, one)": 1, "limit = Sub(n, two)": 2}.get(outside, 0):
        state, stacked = evaluator.run(ir.to_proto(model), feeds)
        assert np.array_equal(state, feeds["h"]) and stacked.shape == (0, 3, 2)
        return
    before, after = (run_onnxruntime(m, feeds) for m in (parse(text), ir.to_proto(model)))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        ("limit = Add(n, one)", "i = Identity(t)"),
        ("limit = Identity(n)", "i = Add(t, one)"),
        ("k = Gather(s, one)  limit = Identity(k)", "i = Identity(t)"),
        ("limit = Mul(n, n)", "i = Identity(t)"),
    ],
)
def test_lengths_that_may_not_fit(outside: str, inside: str):
    assert (
        indexed_scan_inputs(load_model(parse(RUN_TIME.format(outside=outside, inside=inside)))) == 0
    )


def test_a_state_that_counts():
    check(
        indexed_scan_inputs,
        """
        g (float[6, 2] x, float[3, 2] z) => (float[3, 2] y, int64 n)
        <int64 two = {2}, int64 one = {1}> {
            n, y = Scan <num_scan_inputs = 1, body = b (int64 k, float[2] e) =>
                (int64 m, float[2] o) {
                    f = Gather(x, k)
                    o = Add(e, f)
                    m = Add(k, one)
                }> (two, z)
        }
        """,
        """
        g (float[6, 2] x, float[3, 2] z) => (float[3, 2] y, int64 n)
        <int64 two = {2}, int64 one = {1}, int64[1] "n/constant" = {2}, int64[1] "n/constant_1" =
         {-1}, int64[1] "n/constant_2" = {0}> {
            "n/x_part" = Slice(x, "n/constant", "n/constant_1", "n/constant_2")
            n, y = Scan <num_scan_inputs = 2, body = b (int64 k, float[2] e, float[2] x_step) =>
                (int64 m, float[2] o) {
                    o = Add(e, x_step)
                    m = Add(k, one)
                }> (two, z, "n/x_part")
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )
