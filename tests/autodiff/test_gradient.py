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
    with pytest.raises(ostinato.InputError, match="no input or initializer 'q'"):
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
