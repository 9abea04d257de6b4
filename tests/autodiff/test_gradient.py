"""What `gradient` returns and refuses, whatever the operators."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse

DENSE = """g (float[N,4] x, float[4,3] w, float[3] b) => (float[N,3] y) {
  h = MatMul(x, w)
  z = Add(h, b)
  t = Tanh(z)
  y = Mul(t, z)
}"""


def test_gradients_are_central_differences() -> None:
    model = parse(DENSE)
    check(model, feeds_of(model, N=5))


def test_unknown_names_are_refused() -> None:
    model = parse(DENSE)
    with pytest.raises(ostinato.InputError, match="no input or initializer 'q'; it has '"):
        gradient(model, "y", ["q"])
    with pytest.raises(ostinato.InputError, match="no output 'q'"):
        gradient(model, "q", ["x"])
    with pytest.raises(ostinato.InputError, match="reduce it with"):
        gradient(model, "y", ["x"])


@pytest.mark.parametrize("wrt", ["x", None, 3, ["x", 3], [["x"]], ["x", "w", "x"]])
def test_wrt_is_a_list_of_different_names(wrt: object) -> None:
    model = parse("g (float x, float w) => (float l) { l = Mul(x, w) }")
    with pytest.raises(ostinato.InputError, match=r"wrt.*(expected a list|'x' is there twice)"):
        gradient(model, "l", wrt)  # type: ignore[arg-type]


def test_wrt_may_be_read_once() -> None:
    model = parse("g (float x, float w) => (float l) { l = Mul(x, w) }")
    outputs = gradient(model, "l", iter(["w", "x"])).graph.output  # type: ignore[arg-type]
    assert [output.name for output in outputs] == ["l", "w_grad", "x_grad"]


def test_weights_that_several_nodes_read() -> None:
    model = parse("""g (float[N,4] x, float[6,4] table, int64[3] i) => (float[3,6] y) {
      rows = Gather(table, i)
      h = Add(x, rows)
      turned = Transpose(table)
      y = MatMul(h, turned)
    }""")
    feeds = feeds_of(model, N=3) | {"i": np.array([1, 4, 1])}
    check(model, feeds, ["x", "table"])


def test_operators_without_gradient_are_refused_by_name() -> None:
    model = parse("g (float[4,4] x) => (float l) { [the_node] l = Det(x) }")
    with pytest.raises(ostinato.UnsupportedError, match=r"'the_node' \(Det\): has no gradient"):
        gradient(model, "l", ["x"])


def test_a_loss_that_does_not_depend_on_an_input_has_zeros() -> None:
    model = parse("g (float[N] x, float[M] y) => (float l) { l = ReduceSum<keepdims=0>(x) }")
    session = ostinato.InferenceSession(gradient(model, "l", ["x", "y"]))
    _, x, y = session.run(None, {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})
    np.testing.assert_array_equal(x, np.ones(2, np.float32))
    np.testing.assert_array_equal(y, np.zeros(3, np.float32))


def test_a_step_that_is_not_there_has_no_gradient() -> None:
    """A number beside those of written out steps looks like one more of them, which divides by 0.

    Zero times the derivative of that quotient would not be zero.
    """
    steps = 12
    numbers = [f"n{t} = Cast<to=1>(k{t})" for t in range(steps + 1)]
    divided = [
        f"{numbers[t]}  d{t} = Div(r{t}, n{t})  a{t} = Add(u, d{t})  r{t + 1} = MatMul(q, a{t})"
        for t in range(steps)
    ]
    model = parse(
        f"""g (float[3, 4, 4] q) => (float loss) <float[4, 4] u = {{{", ".join(["0.5"] * 16)}}}> {{
            {"  ".join(f"k{t} = Constant<value_int={steps - t}>()" for t in range(steps + 1))}
            r0 = Identity(q)
            {"  ".join(divided)}  {numbers[steps]}  m = MatMul(r{steps}, r{steps})
            y = Add(m, n{steps})  loss = ReduceSum<keepdims=0>(y) }}"""
    )
    feeds = feeds_of(model, 0.3)
    (own,), (written,) = (
        ostinato.InferenceSession(
            gradient(model, "loss", ["q"], disable=passes), cache_dir=None
        ).run(["q_grad"], feeds)
        for passes in ((), ("reroll",))
    )
    assert np.isfinite(own).all()
    np.testing.assert_allclose(own, written, rtol=1e-5, atol=1e-6)
