"""Gradients of Scan, and of what becomes one."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check, with_loss
from tests.autodiff.models import feeds_of, loops, parse


def op_types(node: onnx.NodeProto) -> list[str]:
    body = next(a.g for a in node.attribute if a.name == "body")
    return [inner.op_type for inner in body.node]


def cell(attributes: str = "", x: str = "T,N,3", y: str = "T,N,4") -> onnx.ModelProto:
    return parse(f"""
        g (float[{x}] x, float[N,4] h0, float[3,4] w, float[4,4] r, float[4] b)
            => (float[{y}] y, float[N,4] hn) {{
          hn, y = Scan <num_scan_inputs = 1 {attributes}, body = step
            (float[N,4] h, float[N,3] e) => (float[N,4] next, float[N,4] out) {{
              xw = MatMul(e, w)
              hr = MatMul(h, r)
              s = Add(xw, hr)
              z = Add(s, b)
              next = Tanh(z)
              g = Sigmoid(next)
              out = Mul(g, h)
            }}> (h0, x)
        }}""")


@pytest.mark.parametrize(
    ("attributes", "x", "y"),
    [
        ("", "T,N,3", "T,N,4"),
        ("", "5,2,3", "5,2,4"),
        ("", "5,1,3", "5,1,4"),
        (", scan_input_directions = [0], scan_output_directions = [0]", "T,N,3", "T,N,4"),
        (", scan_input_directions = [1]", "T,N,3", "T,N,4"),
        (", scan_output_directions = [1]", "T,N,3", "T,N,4"),
        (", scan_input_directions = [1], scan_output_directions = [1]", "T,N,3", "T,N,4"),
        (", scan_input_axes = [1], scan_output_axes = [-1]", "N,T,3", "N,4,T"),
        (", scan_input_axes = [-1], scan_output_axes = [1]", "N,3,T", "N,T,4"),
    ],
)
def test_a_cell(attributes: str, x: str, y: str) -> None:
    model = cell(attributes, x, y)
    sizes = {"N": 2, "T": 5} if "T" in x else {"N": int(x.split(",")[1])}
    differentiated = check(model, feeds_of(model, 0.7, **sizes))
    _, backward = loops(differentiated)
    # The gradients of weights are one product over all steps.
    assert op_types(backward).count("MatMul") == 2


@pytest.mark.parametrize("steps", [0, 1])
def test_few_steps(steps: int) -> None:
    model = cell()
    check(model, feeds_of(model, 0.7, T=steps, N=2), onnxruntime=steps > 0)


def test_no_rows() -> None:
    model = cell()
    check(model, feeds_of(model, 0.7, T=3, N=0))


def test_only_what_is_asked_for() -> None:
    model = cell()
    feeds = feeds_of(model, 0.7, T=4, N=2)
    for name in feeds:
        check(model, feeds, [name])


def test_values_of_a_state_are_kept_once() -> None:
    """The state before a step is read from what the model collects after each step anyway."""
    model = parse("""
        g (float[T,N,3] x, float[N,3] h0, float[3,3] r) => (float[T,N,3] y) {
          hn, y = Scan <num_scan_inputs = 1, body = step
            (float[N,3] h, float[N,3] e) => (float[N,3] next, float[N,3] out) {
              hr = MatMul(h, r)
              s = Add(e, hr)
              next = Tanh(s)
              out = Identity(next)
            }> (h0, x)
        }""")
    differentiated = check(model, feeds_of(model, 0.7, T=4, N=2))
    forward, _ = loops(differentiated)
    assert len(forward.output) == 2


def test_cheap_values_are_computed_again() -> None:
    model = parse("""
        g (float[T,N] x, float[N] h0) => (float[N] hn) {
          hn = Scan <num_scan_inputs = 1, body = step (float[N] h, float[N] e) => (float[N] next) {
              s = Sigmoid(h)
              a = Sub(s, e)
              b = Mul(a, a)
              next = Mul(b, e)
            }> (h0, x)
        }""")
    differentiated = check(model, feeds_of(model, 0.7, T=4, N=3))
    forward, _ = loops(differentiated)
    assert len(forward.output) == 2


def test_values_from_outside() -> None:
    """What is broadcast, read whole, or both, and a value that no step changes."""
    model = parse("""
        g (float[T,N,3] x, float[N,3] h0, float[3] p, float[N,3] q, float[1] s, float[2,N,3] m)
            => (float[N,3] hn, float[T,2,N,3] y) {
          hn, y = Scan <num_scan_inputs = 1, body = step
            (float[N,3] h, float[N,3] e) => (float[N,3] next, float[2,N,3] out) {
              a = Mul(h, p)
              b = Mul(e, q)
              c = Add(a, b)
              d = Tanh(c)
              next = Mul(d, s)
              f = Add(next, p)
              out = Mul(m, f)
            }> (h0, x)
        }""")
    check(model, feeds_of(model, 0.7, T=3, N=2))


def test_states_that_depend_on_each_other() -> None:
    """Two states change places; a third one has no gradient."""
    model = parse("""
        g (float[T] x, float a0, float b0, float c0) => (float an, float bn) {
          an, bn, cn = Scan <num_scan_inputs = 1, body = step
            (float a, float b, float c, float e) => (float a1, float b1, float c1) {
              t = Mul(a, e)
              b1 = Tanh(t)
              a1 = Identity(b)
              c1 = Add(c, t)
            }> (a0, b0, c0, x)
        }""")
    check(model, feeds_of(model, 0.7, T=5))


def test_states_that_are_integers() -> None:
    model = parse("""
        g (float[T] x, float h0) => (float hn) {
          zero = Constant <value_int = 0> ()
          n, hn = Scan <num_scan_inputs = 1, body = step
            (int64 i, float h, float e) => (int64 i1, float h1) {
              one = Constant <value_int = 1> ()
              i1 = Add(i, one)
              f = Cast <to = 1> (i1)
              t = Mul(h, f)
              s = Add(t, e)
              h1 = Tanh(s)
            }> (zero, h0, x)
        }""")
    check(model, feeds_of(model, 0.7, T=4))


def test_loops_inside_loops() -> None:
    """The inner loop reads a state and an element of the outer one, and weights of the model."""
    model = parse("""
        g (float[T,S,N,2] x, float[N,2] h0, float[2,2] w, float[2] b)
            => (float[N,2] hn, float[T,S,N,2] y) {
          hn, y = Scan <num_scan_inputs = 1, body = outer
            (float[N,2] h, float[S,N,2] row) => (float[N,2] next, float[S,N,2] out) {
              start = Sigmoid(h)
              last, out = Scan <num_scan_inputs = 1, body = inner
                (float[N,2] k, float[N,2] e) => (float[N,2] k1, float[N,2] o) {
                  m = MatMul(k, w)
                  n = Add(m, e)
                  p = Add(n, b)
                  q = Mul(p, h)
                  k1 = Tanh(q)
                  o = Mul(k1, start)
                }> (start, row)
              product = Mul(last, h)
              next = Tanh(product)
            }> (h0, x)
        }""")
    check(model, feeds_of(model, 0.7, T=3, S=2, N=2))
    check(model, feeds_of(model, 0.7, T=2, S=3, N=1), ["w"])


def test_loops_that_count() -> None:
    """A Loop whose trip count is a size is a Scan."""
    model = parse("""
        g (float[T,N] x, float[N] h0) => (float[N] hn, float[T,N] y) {
          zero = Constant <value_int = 0> ()
          shape = Shape <start = 0, end = 1> (x)
          trips = Squeeze(shape)
          true = Constant <value = bool {1}> ()
          hn, y = Loop (trips, true, h0) <body = step
            (int64 i, bool go, float[N] h) => (bool proceed, float[N] next, float[N] out) {
              proceed = Identity(go)
              e = Gather <axis = 0> (x, i)
              s = Mul(h, e)
              next = Tanh(s)
              out = Mul(next, e)
            }>
        }""")
    check(model, feeds_of(model, 0.7, T=4, N=2))


def test_rows_of_a_table_are_added_behind_the_loop() -> None:
    """No step adds zeros to all rows of an embedding for the few that it took."""
    model = parse("""
        g (float[4,2] e, float[1,4] x, float[2,4] w, int64 n) => (float[1,4] hn) {
          true = Constant <value = bool {1}> ()
          hn = Loop (n, true, x) <body = step
            (int64 i, bool go, float[1,4] h) => (bool proceed, float[1,4] next) {
              proceed = Identity(go)
              token = ArgMax <axis = 1, keepdims = 0> (h)
              row = Gather <axis = 0> (e, token)
              p = MatMul(row, w)
              s = Add(h, p)
              next = Tanh(s)
            }>
        }""")
    made = gradient(with_loss(model), "loss", ["e"])
    (backward,) = [n for n in made.graph.node if n.op_type in ("Scan", "Loop")][1:]
    (body,) = [a.g for a in backward.attribute if a.type == onnx.AttributeProto.GRAPH]
    assert not any(node.op_type == "ScatterElements" for node in body.node)
    check(model, {**feeds_of(model, 0.7), "n": np.array(5)})


@pytest.mark.parametrize("count", [0, 3, 9])
def test_loops_that_end_by_data_have_the_gradient_of_the_steps_that_ran(count: int) -> None:
    model = parse("""
        g (float x, int64 n) => (float y) {
          true = Constant <value = bool {1}> ()
          y = Loop (n, true, x) <body = step
            (int64 i, bool go, float h) => (bool proceed, float next) {
              limit = Constant <value_float = 10.0> ()
              next = Mul(h, h)
              proceed = Less(next, limit)
            }>
        }""")
    session = ostinato.InferenceSession(gradient(model, "y", ["x"]), fallback=False)
    x = np.float32(1.25)
    found = session.run(["y", "x_grad"], {"x": x, "n": np.array(count)})
    # 1.25 squared four times is the first power of it that is not less than 10.
    power = 2 ** min(count, 4)
    np.testing.assert_allclose(found, [x**power, power * x ** (power - 1)], rtol=1e-6)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_steps_of_a_loop_in_a_loop_are_counted_again(steps: int) -> None:
    """A flag ends the inner loop, whose number of steps the backward step of the outer one reads.

    What the inner loop collects first is of no other use and reads nothing of the outer one.
    """
    model = parse("""
        g (float[N] x, int64 n, int64 few) => (float[N] y) {
          true = Constant <value = bool {1}> ()
          y = Loop (n, true, x) <body = outer
            (int64 i, bool go, float[N] h) => (bool proceed, float[N] next) {
              many = Constant <value_int = 20> ()
              last, numbers = Loop (many, true, x) <body = inner
                (int64 j, bool again, float[N] k) => (bool more, float[N] k1, int64 number) {
                  number = Identity(j)
                  s = Add(k, h)
                  k1 = Sin(s)
                  more = Less(j, few)
                }>
              sum = Add(h, last)
              next = Tanh(sum)
              proceed = Identity(go)
            }>
        }""")
    feeds = feeds_of(model, 0.7, N=3)
    feeds |= {"n": np.array(steps), "few": np.array(2)}
    # onnxruntime runs no Scan without steps.
    check(model, feeds, ["x"], onnxruntime=steps > 0)


def test_products_of_elements_in_different_orders() -> None:
    """The rows of both factors of a product are in the order of one of them."""
    model = parse("""
        g (float[T,N,3] x, float[N,T,2] u, float[2,N,T] v, float[N,4] h0, float[3,4] w,
            float[2,4] r, float[2,4] s) => (float[N,4] hn) {
          hn = Scan <num_scan_inputs = 3, scan_input_directions = [0, 1, 0],
              scan_input_axes = [0, 1, 2], body = step
            (float[N,4] h, float[N,3] e, float[N,2] f, float[2,N] g) => (float[N,4] next) {
              a = MatMul(e, w)
              b = MatMul(f, r)
              t = Transpose <perm = [1, 0]> (g)
              c = MatMul(t, s)
              k = Sum(a, b, c, h)
              next = Tanh(k)
            }> (h0, x, u, v)
        }""")
    check(model, feeds_of(model, 0.7, T=3, N=2))


def test_weights_that_two_loops_share() -> None:
    model = parse("""
        g (float[T,N,3] x, float[N,3] h0, float[3,3] w) => (float[T,N,3] z) {
          hn, y = Scan <num_scan_inputs = 1, body = first
            (float[N,3] h, float[N,3] e) => (float[N,3] next, float[N,3] out) {
              a = MatMul(h, w)
              b = Add(a, e)
              next = Tanh(b)
              out = Identity(next)
            }> (h0, x)
          kn, z = Scan <num_scan_inputs = 1, scan_input_directions = [1],
              scan_output_directions = [1], body = second
            (float[N,3] k, float[N,3] f) => (float[N,3] more, float[N,3] result) {
              c = MatMul(f, w)
              more = Mul(c, k)
              result = Add(more, f)
            }> (hn, y)
        }""")
    check(model, feeds_of(model, 0.7, T=3, N=2))


def test_factors_that_no_step_changes() -> None:
    """A product of two values from outside, in every step, of run-time sizes."""
    model = parse("""
        g (float[T,N,2] x, float[N,3] q, float[3,2] w, float[N,2] h0) => (float[N,2] hn) {
          hn = Scan <num_scan_inputs = 1, body = step
            (float[N,2] h, float[N,2] e) => (float[N,2] next) {
              a = MatMul(q, w)
              b = Mul(a, e)
              next = Add(b, h)
            }> (h0, x)
        }""")
    _, backward = loops(check(model, feeds_of(model, 0.7, T=3, N=2)))
    body = next(a.g for a in backward.attribute if a.name == "body")
    assert not any("q" in node.input for node in body.node)


def test_attention_over_what_was_read() -> None:
    """Batched products of a state with values from outside that no axis of steps sums over."""
    model = parse("""
        g (float[T,N,3] x, float[N,S,3] m, float[N,3] h0) => (float[N,3] hn) {
          column = Constant <value = int64[1] {2}> ()
          row = Constant <value = int64[1] {1}> ()
          hn = Scan <num_scan_inputs = 1, body = step
            (float[N,3] h, float[N,3] e) => (float[N,3] next) {
              q = Unsqueeze(h, column)
              scores = MatMul(m, q)
              p = Softmax <axis = 1> (scores)
              weighted = Mul(p, m)
              c = ReduceSum <keepdims = 0> (weighted, row)
              s = Add(c, e)
              next = Tanh(s)
            }> (h0, x)
        }""")
    check(model, feeds_of(model, 0.7, T=3, N=2, S=4))


def test_unknown_ranks_are_refused() -> None:
    model = parse("""
        g (float[M] x, int64[K] shape, float[N] h0) => (float[N] hn) {
          rows = Reshape(x, shape)
          hn = Scan <num_scan_inputs = 1, body = step (float[N] h, float[N] e) => (float[N] next) {
              next = Mul(h, e)
            }> (h0, rows)
        }""")
    with pytest.raises(ostinato.UnsupportedError, match=r"\(Scan\).*rank"):
        gradient(with_loss(model), "loss", ["h0"])


def test_steps_in_two_types() -> None:
    """Weights and states in float32, sums in float64."""
    model = parse("""
        g (float[T,N,3] x, float[3,2] w, float[2] b, float[N,2] h0) => (double[N,2] hn) {
          start = Cast <to = 11> (h0)
          hn = Scan <num_scan_inputs = 1, body = step
            (double[N,2] h, float[N,3] e) => (double[N,2] next) {
              a = MatMul(e, w)
              c = Add(a, b)
              d = Cast <to = 11> (c)
              next = Add(d, h)
            }> (start, x)
          loss = ReduceSum <keepdims = 0> (hn)
        }""")
    model.graph.output[0].name = "loss"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.shape.SetInParent()
    feeds = feeds_of(model, 0.7, T=3, N=2)
    session = ostinato.InferenceSession(gradient(model, "loss", ["w", "b", "h0"]), fallback=False)
    _, w, b, h0 = session.run(None, feeds)
    np.testing.assert_allclose(w, np.tile(feeds["x"].sum((0, 1))[:, None], 2), rtol=1e-6)
    np.testing.assert_array_equal(b, np.full(2, 6, np.float32))
    np.testing.assert_array_equal(h0, np.ones((2, 2), np.float32))
