from __future__ import annotations

import pytest

from ostinato.passes.simplify.eliminate_identity import eliminate_identity
from tests.golden import check

PLAIN = "g (float[N, 4] x) => (float[N, 4] y) { t = Exp(x)  y = Neg(t) }"


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (17, "Identity(t)"),
        (17, "Dropout(t)"),
        (11, "Dropout <ratio = 0.5> (t)"),
        (17, "Cast <to = 1> (t)"),
        (17, "CastLike(t, x)"),
        (17, "Transpose <perm = [0, 1]> (t)"),
        (17, "Concat <axis = 1> (t)"),
    ],
)
def test_node_that_returns_its_input(opset: int, node: str):
    check(
        eliminate_identity,
        f"g (float[N, 4] x) => (float[N, 4] y) {{ t = Exp(x)  u = {node}  y = Neg(u) }}",
        PLAIN,
        opset=opset,
        count=1,
    )


@pytest.mark.parametrize(
    ("node", "result"),
    [
        ("Cast <to = 10> (x)", "float16[1, 4]"),
        ("Transpose <perm = [1, 0]> (x)", "float[4, 1]"),
        ("Transpose(x)", "float[4, 1]"),
        ("Concat <axis = 0> (x, x)", "float[2, 4]"),
        ("Squeeze(x)", "float[4]"),
    ],
)
def test_node_that_does_something(node: str, result: str):
    text = f"g (float[1, 4] x) => ({result} y) {{ u = {node}  y = Neg(u) }}"
    check(eliminate_identity, text, text, count=0)


def test_squeeze_and_unsqueeze_of_nothing():
    check(
        eliminate_identity,
        """
        g (float[3, 4] x) => (float[3, 4] y) <int64[0] none = {}> {
            t = Exp(x)
            u = Squeeze(t)
            v = Unsqueeze(u, none)
            y = Neg(v)
        }
        """,
        """
        g (float[3, 4] x) => (float[3, 4] y) <int64[0] none = {}> {
            t = Exp(x)
            y = Neg(t)
        }
        """,
        count=2,
    )


@pytest.mark.parametrize(
    ("constants", "node", "opset"),
    [
        ("int64[2] a = {0, 0}, int64[2] b = {END, END}", "Slice(t, a, b)", 17),
        ("int64[1] a = {0}, int64[1] b = {END}, int64[1] c = {1}", "Slice(t, a, b, c, c)", 17),
        ("int32[1] a = {0}, int32[1] b = {2147483647}", "Slice(t, a, b)", 17),
        ("", "Slice <starts = [0], ends = [END], axes = [1]> (t)", 9),
    ],
)
def test_slice_of_everything(constants: str, node: str, opset: int):
    end = str(2**63 - 1)
    head = f"g (float[N, 4] x) => (float[N, 4] y) <{constants.replace('END', end)}>"
    check(
        eliminate_identity,
        f"{head} {{ t = Exp(x)  u = {node.replace('END', end)}  y = Neg(u) }}",
        f"{head} {{ t = Exp(x)  y = Neg(t) }}",
        opset=opset,
        count=1,
    )


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ((1, 2**63 - 1, 1), "float[5]"),
        ((0, 2147483647, 1), "float[6]"),
        ((0, 2**63 - 1, 2), "float[3]"),
        ((0, -1, 1), "float[5]"),
    ],
)
def test_slice_of_a_part_or_perhaps_a_part_is_left(values: tuple[int, int, int], result: str):
    start, end, step = values
    text = f"""
        g (float[6] x) => ({result} y)
            <int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] s = {{{step}}},
             int64[1] c = {{0}}> {{
            u = Slice(x, a, b, c, s)
            y = Neg(u)
        }}
        """
    check(eliminate_identity, text, text, count=0)


def test_squeeze_of_an_empty_list_of_axes_is_left():
    text = """
        g (float[3, 4] x) => (float[3, 4] y) <int64[0] none = {}> {
            t = Exp(x)
            u = Squeeze(t, none)
            y = Neg(u)
        }
        """
    check(eliminate_identity, text, text, count=0)


def test_dropout_that_trains_or_whose_mask_is_read_is_left():
    text = """
        g (float[N] x) => (float[N] y, bool[N] m) <float r = {0.5}, bool training = {1}> {
            y = Dropout(x, r, training)
            u, m = Dropout(x, r)
        }
        """
    check(eliminate_identity, text, text, count=0, evaluate="nobody")


def test_dropout_with_training_off():
    check(
        eliminate_identity,
        """
        g (float[N] x) => (float[N] y) <float r = {0.5}, bool training = {0}> {
            u = Dropout(x, r, training)
            y = Neg(u)
        }
        """,
        "g (float[N] x) => (float[N] y) <float r = {0.5}, bool training = {0}> { y = Neg(x) }",
        count=1,
    )


def test_output_takes_over_the_name():
    check(
        eliminate_identity,
        "g (float[N] x) => (float[N] y) { t = Exp(x)  y = Identity(t) }",
        "g (float[N] x) => (float[N] y) { y = Exp(x) }",
        count=1,
    )


def test_output_that_is_an_input_or_another_output_is_left():
    text = """
        g (float[N] x) => (float[N] y, float[N] z, float[N] w) {
            y = Identity(x)
            z = Exp(x)
            w = Identity(z)
        }
        """
    check(eliminate_identity, text, text, count=0)


def test_readers_of_a_kept_identity_read_its_source():
    check(
        eliminate_identity,
        "g (float[N] x) => (float[N] y, float[N] z) { y = Identity(x)  z = Exp(y) }",
        "g (float[N] x) => (float[N] y, float[N] z) { y = Identity(x)  z = Exp(x) }",
        count=1,
    )


def test_body_keeps_what_it_returns_apart():
    check(
        eliminate_identity,
        """
        g (float[3, 2] x, float[2] h) => (float[2] hn, float[3, 2] y) {
            hn, y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    f = Identity(e)
                    t = Add(s, f)
                    sn = Identity(t)
                    o = Identity(t)
                }> (h, x)
        }
        """,
        """
        g (float[3, 2] x, float[2] h) => (float[2] hn, float[3, 2] y) {
            hn, y = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    sn = Add(s, e)
                    o = Identity(sn)
                }> (h, x)
        }
        """,
        count=2,
    )


def test_branch_that_returns_an_outer_value_is_left():
    text = """
        g (bool c, float[N] x) => (float[N] y) {
            t = Exp(x)
            y = If (c) <
                then_branch = a () => (float[N] p) { p = Identity(t) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """
    check(eliminate_identity, text, text, count=0)
