from __future__ import annotations

import pytest

from ostinato.passes.loops.single_step_scan import single_step_scan
from tests.golden import check

BODY = """body = b (float[2] s, float[2] e) => (float[2] sn, float[2] o) {
    sn = Add(s, e)
    o = Neg(sn)
}"""


def test_state_and_output():
    check(
        single_step_scan,
        f"""
        g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) {{
            hn, y = Scan <num_scan_inputs = 1, {BODY}> (h, x)
        }}
        """,
        """
        g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) <int64[1] scan_axes = {0}> {
            x_step = Squeeze(x, scan_axes)
            hn = Add(h, x_step)
            o = Neg(hn)
            y = Unsqueeze(o, scan_axes)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_axes_as_attributes_before_opset_13():
    check(
        single_step_scan,
        f"""
        g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) {{
            hn, y = Scan <num_scan_inputs = 1, {BODY}> (h, x)
        }}
        """,
        """
        g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) {
            x_step = Squeeze <axes = [0]> (x)
            hn = Add(h, x_step)
            o = Neg(hn)
            y = Unsqueeze <axes = [0]> (o)
        }
        """,
        opset=11,
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("input_axis", [1, -2])
@pytest.mark.parametrize("output_axis", [2, -1])
def test_any_axis_and_direction(direction: int, input_axis: int, output_axis: int):
    check(
        single_step_scan,
        f"""
        g (float[3, 1, 2] x) => (float[3, 2, 1] y) {{
            y = Scan <num_scan_inputs = 1, scan_input_axes = [{input_axis}],
                scan_output_axes = [{output_axis}], scan_input_directions = [{direction}],
                scan_output_directions = [{direction}],
                body = b (float[3, 2] e) => (float[3, 2] o) {{ o = Neg(e) }}> (x)
        }}
        """,
        f"""
        g (float[3, 1, 2] x) => (float[3, 2, 1] y)
        <int64[1] scan_axes = {{{input_axis}}}, int64[1] scan_axes_1 = {{{output_axis}}}> {{
            x_step = Squeeze(x, scan_axes)
            o = Neg(x_step)
            y = Unsqueeze(o, scan_axes_1)
        }}
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_body_that_hands_its_inputs_through():
    check(
        single_step_scan,
        """
        g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) {
            k = Exp(h)
            hn, y = Scan <num_scan_inputs = 1,
                body = b (float[2] s, float[2] e) => (float[2] s, float[2] e) { }> (k, x)
        }
        """,
        """
        g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) <int64[1] scan_axes = {0}> {
            hn = Exp(h)
            x_step = Squeeze(x, scan_axes)
            y = Unsqueeze(x_step, scan_axes)
        }
        """,
        count=1,
        evaluate="reference",
    )


def test_length_known_from_the_second_input_and_outer_values():
    check(
        single_step_scan,
        """
        g (float[T, 2] x, float[1, 2] z, float[2] h, float[2] w) => (float[2] hn) {
            hn = Scan <num_scan_inputs = 2,
                body = b (float[2] s, float[2] e, float[2] f) => (float[2] sn) <float[1] c = {2}> {
                    t = Mul(e, w)
                    u = Mul(t, c)
                    v = Add(u, f)
                    sn = Add(v, s)
                }> (h, x, z)
        }
        """,
        """
        g (float[T, 2] x, float[1, 2] z, float[2] h, float[2] w) => (float[2] hn)
        <int64[1] scan_axes = {0}, float[1] c = {2}> {
            x_step = Squeeze(x, scan_axes)
            z_step = Squeeze(z, scan_axes)
            t = Mul(x_step, w)
            u = Mul(t, c)
            v = Add(u, z_step)
            hn = Add(v, h)
        }
        """,
        count=1,
        evaluate="nobody",
    )


@pytest.mark.parametrize("length", ["T", "2"])
def test_other_lengths_are_left(length: str):
    text = f"""
        g (float[{length}, 2] x, float[2] h) => (float[2] hn, float[{length}, 2] y) {{
            hn, y = Scan <num_scan_inputs = 1, {BODY}> (h, x)
        }}
        """
    check(single_step_scan, text, text, count=0, evaluate="nobody")


def test_nested_scans():
    check(
        single_step_scan,
        """
        g (float[1, 1, 2] x, float[2] h) => (float[2] hn) {
            hn = Scan <num_scan_inputs = 1, body = b (float[2] s, float[1, 2] e) => (float[2] sn) {
                sn = Scan <num_scan_inputs = 1, body = c (float[2] p, float[2] q) => (float[2] r) {
                    r = Add(p, q)
                }> (s, e)
            }> (h, x)
        }
        """,
        """
        g (float[1, 1, 2] x, float[2] h) => (float[2] hn)
        <int64[1] scan_axes = {0}, int64[1] scan_axes_1 = {0}> {
            x_step = Squeeze(x, scan_axes_1)
            e_step = Squeeze(x_step, scan_axes)
            hn = Add(h, e_step)
        }
        """,
        count=2,
        evaluate="onnxruntime",
    )
