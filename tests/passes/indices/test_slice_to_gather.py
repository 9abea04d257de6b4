from __future__ import annotations

import pytest

from ostinato.model.load import load_model
from ostinato.passes.indices.slice_to_gather import slice_to_gather
from tests.golden import check, parse

CONSTANTS = """<int64[4] steps = {0, 1, 2, 3}, int64 trips = {4}, bool c = {1}, int64 one = {1},
    int64[1] units = {1}, int64[1] axis = {0}, int64[1] second = {-1}, int64[1] back = {-1},
    int64 three = {3}, int64[1] twos = {2}, int64 three_back = {-3}>"""


def scan(body: str) -> str:
    return f"""
        g (float[5, 4] x, float[4] v, float[M] free) => (float[4, A, B] y) {CONSTANTS} {{
            y = Scan <num_scan_inputs = 1, body = b (int64 t) => (float[A, B] e) {{
                i = Unsqueeze(t, axis)
                {body}
            }}> (steps)
        }}
        """


@pytest.mark.parametrize(
    ("body", "gather"),
    [
        ("j = Add(i, units)  e = Slice(x, i, j, axis)", "j = Add(i, units)  {g} (x, i)"),
        ("j = Add(i, units)  e = Slice(x, i, j)", "j = Add(i, units)  {g} (x, i)"),
        ("k = Add(i, units) j = Add(k, units)  e = Slice(x, k, j)",
         "k = Add(i, units) j = Add(k, units)  {g} (x, k)"),
        ("j = Add(i, units)  e = Slice(x, i, j, second, units)",
         "j = Add(i, units)  e = Gather <axis = -1> (x, i)"),
        ("k = Sub(three, i)  j = Add(units, k)  e = Slice(x, k, j)",
         "k = Sub(three, i)  j = Add(units, k)  {g} (x, k)"),
    ],
)  # fmt: skip
def test_one_element_of_each_step(body: str, gather: str):
    check(
        slice_to_gather,
        scan(body),
        scan(gather.format(g="e = Gather <axis = 0>")),
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    "body",
    [
        "k = Add(i, twos) j = Add(k, units)  e = Slice(x, k, j)",  # empty in the last step
        "k = Add(three_back, i) j = Add(k, units)  e = Slice(x, k, j)",  # counts from the end
        "j = Add(i, twos)  e = Slice(x, i, j)",  # two elements
        "j = Add(i, units)  e = Slice(x, i, j, axis, back)",
        "j = Add(i, units)  e = Slice(free, i, j, axis)",
        "k = Mul(i, i)  j = Add(k, units)  e = Slice(x, k, j)",
        "e = Slice(x, axis, units)",
        "w = Neg(x)  j = Add(i, units)  e = Slice(w, i, j)",
    ],
)
def test_what_stays(body: str):
    model = load_model(parse(scan(body)))
    before = str(model.graph)
    assert slice_to_gather(model) == 0
    assert str(model.graph) == before


@pytest.mark.parametrize("condition", ["q = Identity(p)", "q = Less(i, three)"])
def test_in_a_loop_that_may_end_early(condition: str):
    def loop(pick: str) -> str:
        return f"""
            g (float[5, 2] x, float[1, 2] h) => (float[1, 2] y) {CONSTANTS} {{
                y = Loop <body = b (int64 i, bool p, float[1, 2] s) => (bool q, float[1, 2] t) {{
                    {condition}
                    k = Unsqueeze(i, axis)
                    j = Add(k, units)
                    e = {pick}
                    t = Add(s, e)
                }}> (trips, c, h)
            }}
            """

    check(
        slice_to_gather,
        loop("Slice(x, k, j, axis)"),
        loop("Gather <axis = 0> (x, k)"),
        count=1,
        evaluate="nobody",
    )


def test_in_a_loop_of_unknown_length():
    text = f"""
        g (float[5, 2] x, float[1, 2] h, int64 n) => (float[1, 2] y) {CONSTANTS} {{
            y = Loop <body = b (int64 i, bool p, float[1, 2] s) => (bool p, float[1, 2] t) {{
                k = Unsqueeze(i, axis)
                j = Add(k, units)
                e = Slice(x, k, j, axis)
                t = Add(s, e)
            }}> (n, c, h)
        }}
        """
    assert slice_to_gather(load_model(parse(text))) == 0
