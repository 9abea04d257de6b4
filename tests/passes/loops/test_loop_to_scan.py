from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.loops.loop_to_scan import loop_to_scan
from tests.golden import check, make_feeds, parse, run_onnxruntime

BODY = """body = b (int64 i, bool p, float[2] s) => (bool q, float[2] t, float[2] o) {
    q = Identity(p)
    t = Tanh(s)
    o = Neg(t)
}"""
TRIPS = "<int64 n = {3}, bool c = {1}>"


@pytest.mark.parametrize("condition", ["c", ""])
@pytest.mark.parametrize("opset", [9, 11, 13, 16, 19, 21])
def test_constant_trip_count(opset: int, condition: str):
    given = condition or '""'
    check(
        loop_to_scan,
        f"""
        g (float[2] h) => (float[2] hn, float[3, 2] y) {TRIPS} {{
            hn, y = Loop <{BODY}> (n, {given}, h)
        }}
        """,
        """
        g (float[2] h) => (float[2] hn, float[3, 2] y)
        <int64 n = {3}, bool c = {1}, int64[3] "hn/steps" = {0, 1, 2}> {
            hn, y = Scan <num_scan_inputs = 1, body = b (float[2] s, int64 i) => (float[2] t, o) {
                t = Tanh(s)
                o = Neg(t)
            }> (h, "hn/steps")
        }
        """.replace("(float[2] t, o)", "(float[2] t, float[2] o)"),
        opset=opset,
        count=1,
        evaluate="onnxruntime",
    )


def test_the_step_and_the_condition_are_read():
    check(
        loop_to_scan,
        """
        g (float[2] h) => (float[2] hn) <int64[1] n = {3}, bool c = {1}, float[2] z = {0, 0}> {
            hn = Loop <body = b (int64 i, bool p, float[2] s) => (bool q, float[2] t) {
                q = Identity(c)
                f = Cast <to = 1> (i)
                u = Add(s, f)
                t = Where(p, u, z)
            }> (n, c, h)
        }
        """,
        """
        g (float[2] h) => (float[2] hn)
        <int64[1] n = {3}, bool c = {1}, float[2] z = {0, 0}, int64[3] "hn/steps" = {0, 1, 2},
         bool "hn/true" = {1}> {
            hn = Scan <num_scan_inputs = 1, body = b (float[2] s, int64 i) => (float[2] t) {
                f = Cast <to = 1> (i)
                u = Add(s, f)
                t = Where("hn/true", u, z)
            }> (h, "hn/steps")
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_trip_count_from_a_shape():
    check(
        loop_to_scan,
        """
        g (float[T, 2] x, float[2] h) => (float[2] hn) <int64 zero = {0}, bool c = {1}> {
            s = Shape(x)
            n = Gather(s, zero)
            hn = Loop <body = b (int64 i, bool p, float[2] a) => (bool q, float[2] t) {
                q = Identity(p)
                e = Gather(x, i)
                t = Add(a, e)
            }> (n, c, h)
        }
        """,
        """
        g (float[T, 2] x, float[2] h) => (float[2] hn)
        <int64 zero = {0}, bool c = {1}, int64[0] "hn/constant" = {}, int64 "hn/constant_1" = {0},
         int64 "hn/constant_2" = {1}> {
            s = Shape(x)
            n = Gather(s, zero)
            "hn/trips" = Reshape(n, "hn/constant")
            "hn/steps" = Range("hn/constant_1", "hn/trips", "hn/constant_2")
            hn = Scan <num_scan_inputs = 1, body = b (float[2] a, int64 i) => (float[2] t) {
                e = Gather(x, i)
                t = Add(a, e)
            }> (h, "hn/steps")
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_states_of_run_time_size_keep_their_shape():
    """The initial value is made of sizes of the input, and the body keeps its shape."""
    text = """
        g (float[T, N, 2] x, float[2, 3] w, float[3, 3] r) => (float[N, 3] hn, float[T, N, 3] y)
        <int64 zero = {0}, int64[1] one = {1}, int64[1] width = {3}, bool c = {1}> {
            s = Shape(x)
            n = Gather(s, zero)
            rows = Gather(s, one)
            dims = Concat <axis = 0> (rows, width)
            h = ConstantOfShape(dims)
            hn, y = Loop <body = b (int64 i, bool p, float[N, 3] a) =>
                                   (bool q, float[N, 3] t, float[N, 3] o) {
                q = Identity(p)
                e = Gather(x, i)
                u = MatMul(e, w)
                v = MatMul(a, r)
                k = Add(u, v)
                t = Tanh(k)
                o = Identity(t)
            }> (n, c, h)
        }
        """
    model = load_model(parse(text))
    assert loop_to_scan(model) == 1
    feeds = make_feeds(parse(text))
    before, after = run_onnxruntime(parse(text), feeds), run_onnxruntime(ir.to_proto(model), feeds)
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_one_loop_feeds_another():
    loop = "Loop <body = b (int64 i, bool p, float[2] s) => (bool p, float[2] t) { t = Neg(s) }>"
    scan = (
        "Scan <num_scan_inputs = 1, body = b (float[2] s, int64 i) => (float[2] t) { t = Neg(s) }>"
    )
    check(
        loop_to_scan,
        f"g (float[2] h) => (float[2] y) {TRIPS} {{ m = {loop} (n, c, h)  y = {loop} (n, c, m) }}",
        f"""
        g (float[2] h) => (float[2] y)
        <int64 n = {{3}}, bool c = {{1}}, int64[3] "m/steps" = {{0, 1, 2}},
         int64[3] "y/steps" = {{0, 1, 2}}> {{
            m = {scan} (h, "m/steps")
            y = {
            scan.replace("(float[2] s, int64 i)", "(float[2] s_1, int64 i_1)").replace(
                "(float[2] t) { t = Neg(s) }", "(float[2] t_1) { t_1 = Neg(s_1) }"
            )
        } (m, "y/steps")
        }}
        """,
        count=2,
        evaluate="onnxruntime",
    )


def test_nested_loops():
    text = """
        g (float[4, 3, 2] x, float[2] h) => (float[2] hn)
        <int64 n = {4}, int64 m = {3}, bool c = {1}> {
            hn = Loop <body = b (int64 i, bool p, float[2] s) => (bool p, float[2] t) {
                e = Gather(x, i)
                t = Loop <body = d (int64 j, bool v, float[2] a) => (bool v, float[2] z) {
                    f = Gather(e, j)
                    z = Add(a, f)
                }> (m, p, s)
            }> (n, c, h)
        }
        """
    model = load_model(parse(text))
    assert loop_to_scan(model) == 1
    assert loop_to_scan(model) == 1  # its condition was the step's, which is known to be true now
    feeds = make_feeds(parse(text))
    (before,), (after,) = (
        run_onnxruntime(parse(text), feeds),
        run_onnxruntime(ir.to_proto(model), feeds),
    )
    assert (before == after).all()


@pytest.mark.parametrize("trips", [0, -2])
def test_no_trips(trips: int):
    text = f"""
        g (float[2] h) => (float[2] hn, float[0, 2] y) <int64 n = {{{trips}}}, bool c = {{1}}> {{
            hn, y = Loop <{BODY}> (n, c, h)
        }}
        """
    model = load_model(parse(text))
    assert loop_to_scan(model) == 1
    (scan,) = model.graph
    assert list(scan.inputs[1].const_value.numpy()) == []


@pytest.mark.parametrize(
    ("name", "inputs", "constants", "body", "arguments"),
    [
        (
            "trips-from-data",
            "int64 n, float[2] h",
            "bool c = {1}",
            "q = Identity(p)  t = Neg(s)",
            "n, c, h",
        ),
        (
            "condition-from-data",
            "bool c, float[2] h",
            "int64 n = {3}",
            "q = Identity(p)  t = Neg(s)",
            "n, c, h",
        ),
        ("no-trip-count", "float[2] h", "bool c = {1}", "q = Identity(p)  t = Neg(s)", '"", c, h'),
        (
            "condition-of-a-step",
            "float[2] h",
            "int64 n = {3}, bool c = {1}, int64 k = {1}",
            "q = Less(i, k)  t = Neg(s)",
            "n, c, h",
        ),
        (
            "condition-turned",
            "float[2] h",
            "int64 n = {3}, bool c = {1}",
            "q = Not(p)  t = Neg(s)",
            "n, c, h",
        ),
        (
            "growing-state",
            "float[K] h",
            "int64 n = {3}, bool c = {1}",
            "q = Identity(p)  t = Concat <axis = 0> (s, h)",
            "n, c, h",
        ),
        (
            "state-broadcast-in-the-first-step",
            "float[1] h, float[2] w",
            "int64 n = {3}, bool c = {1}",
            "q = Identity(p)  t = Add(s, w)",
            "n, c, h",
        ),
        (
            "sizes-of-two-names",
            "float[K] h, float[M] w",
            "int64 n = {3}, bool c = {1}",
            "q = Identity(p)  u = Concat <axis = 0> (w, s)  z = Sub(i, i)  v = Unsqueeze(z, ax)"
            "  e = Shape(w)  t = Slice(u, v, e)",
            "n, c, h",
        ),
    ],
)
def test_what_stays_a_loop(name: str, inputs: str, constants: str, body: str, arguments: str):
    text = f"""
        g ({inputs}) => (float[X] y) <{constants}, int64[1] ax = {{0}}> {{
            y = Loop <body = b (int64 i, bool p, float[X] s) => (bool q, float[X] t) {{ {body} }}>
                ({arguments})
        }}
        """
    model = load_model(parse(text))
    assert loop_to_scan(model) == 0
    assert [node.op_type for node in model.graph] == ["Loop"]


def test_states_that_swap_shapes():
    """Each initial shape would be kept only if the other were."""
    text = """
        g (float[2] a, float[3] b) => (float[X] y, float[Z] z) <int64 n = {3}, bool c = {1}> {
            y, z = Loop <body = b (int64 i, bool p, float[X] s, float[Z] t) =>
                                  (bool p, float[Z] v, float[X] u) {
                u = Neg(s)
                v = Neg(t)
            }> (n, c, a, b)
        }
        """
    assert loop_to_scan(load_model(parse(text))) == 0


def test_sequences_stay_in_a_loop():
    text = """
        g (float[2] a) => (int64 y) <int64 n = {3}, bool c = {1}> {
            e = SequenceEmpty <dtype = 1> ()
            z = Loop <body = b (int64 i, bool p, seq(float[2]) s) => (bool p, seq(float[2]) t) {
                t = SequenceInsert(s, a)
            }> (n, c, e)
            y = SequenceLength(z)
        }
        """
    assert loop_to_scan(load_model(parse(text))) == 0


def test_a_count_that_stands_for_no_limit_stays_a_loop():
    text = f"""
        g (float[2] h) => (float[2] hn, float[N, 2] y)
        <int64 n = {{9223372036854775807}}, bool c = {{1}}> {{ hn, y = Loop <{BODY}> (n, c, h) }}
        """
    assert loop_to_scan(load_model(parse(text))) == 0


def test_a_loop_in_a_loop_that_leaves_with_what_is_not_needed():
    model = load_model(
        parse(
            """
        g (float[2] h) => (float[2] hn, float[3, 2] y) <int64 n = {3}> {
            hn, y = Loop <body = b (int64 i, bool p, float[2] s)
                    => (bool q, float[2] t, float[2] o) {
                unused = Loop <body = c (int64 j, bool r, float[2] u) => (bool v, float[2] w) {
                    v = Identity(r)
                    w = Neg(u)
                }> (n, "", s)
                q = Identity(p)
                t = Tanh(s)
                o = Neg(t)
            }> (n, "", h)
        }
        """
        )
    )
    assert loop_to_scan(model) == 1
    (scan,) = model.graph
    assert [node.op_type for node in scan.attributes["body"].as_graph()] == ["Tanh", "Neg"]
