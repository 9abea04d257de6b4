"""Gradients through states that grow for any number of steps, beside central differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.autodiff import gradient
from ostinato.errors import UnsupportedError
from tests.autodiff.check import STEP, TOLERANCE, Arrays
from tests.golden import parse

HEAD = '<ir_version: 9, opset_import: ["": 18]>\n'
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape) / 2


@dataclass(frozen=True)
class Case:
    """A model whose output `loss` depends on `wrt`."""

    text: str
    feeds: Arrays
    wrt: tuple[str, ...]

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(HEAD + self.text)


CASES = {
    "in front, by two rows, beside a hidden state and a memory outside": Case(
        """g (double[5, 3] x, double[3, 3] w, double[4, 3] m, int64 n) => (double loss)
        <bool yes = {1}, int64[1] zero = {0}, double[1, 3] h0 = {0.1, 0.2, 0.3},
         double[2, 3] c0 = {1, 2, 3, 4, 5, 6}> {
          last, h, rows = Loop(n, yes, c0, h0) <body = b
              (int64 i, bool c, double[P, 3] past, double[1, 3] before)
              => (bool going, double[Q, 3] now, double[1, 3] after, double[1, 3] y) {
            at = Unsqueeze(i, zero)  row = Gather(x, at)  k = MatMul(before, w)
            k2 = Concat<axis = 0>(k, row)  now = Concat<axis = 0>(k2, past)
            t = Transpose<perm = [1, 0]>(now)  s = MatMul(row, t)
            p = Softmax<axis = -1>(s)  a = MatMul(p, now)
            tm = Transpose<perm = [1, 0]>(m)  sm = MatMul(a, tm)
            pm = Softmax<axis = -1>(sm)  cm = MatMul(pm, m)  z = Add(a, cm)
            hz = MatMul(z, w)  after = Tanh(hz)  y = Add(after, z)  going = Identity(c)
          }>
          square = Mul(rows, rows)  l1 = ReduceSum<keepdims = 0>(square)
          l2 = ReduceSum<keepdims = 0>(last)  l3 = ReduceSum<keepdims = 0>(h)
          l12 = Add(l1, l2)  loss = Add(l12, l3)
        }""",
        {"x": drawn(5, 3), "w": drawn(3, 3), "m": drawn(4, 3), "n": np.array(5)},
        ("x", "w", "m"),
    ),
    "along the last axis, read before it grows": Case(
        """g (double[5, 3] x, double[3, 3] w, double[3, 1] s0, int64 n) => (double loss)
        <bool yes = {1}, int64[1] zero = {0}> {
          last, rows = Loop(n, yes, s0) <body = b (int64 i, bool c, double[3, P] past)
              => (bool going, double[3, Q] now, double[1, 3] y) {
            at = Unsqueeze(i, zero)  row = Gather(x, at)  s = MatMul(row, past)
            p = Softmax<axis = -1>(s)  pt = Transpose<perm = [1, 0]>(past)  a = MatMul(p, pt)
            k = MatMul(a, w)  kt = Transpose<perm = [1, 0]>(k)  now = Concat<axis = 1>(past, kt)
            y = Add(a, row)  going = Identity(c)
          }>
          square = Mul(rows, rows)  l1 = ReduceSum<keepdims = 0>(square)
          all = Mul(last, last)  l2 = ReduceSum<keepdims = 0>(all)  loss = Add(l1, l2)
        }""",
        {"x": drawn(5, 3), "w": drawn(3, 3), "s0": drawn(3, 1), "n": np.array(5)},
        ("x", "w", "s0"),
    ),
    "keys and values of heads, until a condition ends it": Case(
        """g (double[2, T, 4] x, double[4, 12] w, int64 n) => (double loss)
        <bool yes = {1}, int64[1] zero = {0}, double most = {1e9}, int64[4] heads = {2, 1, 2, 2},
         int64[3] joined = {2, 1, 4}, double[2, 2, 0, 2] none = {}> {
          kl, vl, rows = Loop(n, yes, none, none) <body = b
              (int64 i, bool c, double[2, 2, P, 2] kp, double[2, 2, P, 2] vp)
              => (bool going, double[2, 2, Q, 2] kn, double[2, 2, Q, 2] vn, double[2, 1, 4] y) {
            at = Unsqueeze(i, zero)  row = Gather<axis = 1>(x, at)  qkv = MatMul(row, w)
            q0, k0, v0 = Split<axis = 2, num_outputs = 3>(qkv)
            q1 = Reshape(q0, heads)  k1 = Reshape(k0, heads)  v1 = Reshape(v0, heads)
            q = Transpose<perm = [0, 2, 1, 3]>(q1)  k = Transpose<perm = [0, 2, 1, 3]>(k1)
            v = Transpose<perm = [0, 2, 1, 3]>(v1)
            kn = Concat<axis = 2>(kp, k)  vn = Concat<axis = 2>(vp, v)
            kt = Transpose<perm = [0, 1, 3, 2]>(kn)  s = MatMul(q, kt)
            p = Softmax<axis = -1>(s)  a = MatMul(p, vn)
            a1 = Transpose<perm = [0, 2, 1, 3]>(a)  a2 = Reshape(a1, joined)
            y = Add(a2, row)  z = ReduceSum<keepdims = 0>(y)  going = Less(z, most)
          }>
          square = Mul(rows, rows)  loss = ReduceSum<keepdims = 0>(square)
        }""",
        {"x": drawn(2, 4, 4), "w": drawn(4, 12), "n": np.array(4)},
        ("x", "w"),
    ),
    "integers, and an embedding of them": Case(
        """g (double[7, 3] e, double[3, 7] w, int64 n) => (double loss)
        <bool yes = {1}, int64[1] zero = {0}, int64[1] first = {3}> {
          ids, rows = Loop(n, yes, first) <body = b (int64 i, bool c, int64[P] past)
              => (bool going, int64[Q] now, double[1, 7] y) {
            all = Gather(e, past)  m = ReduceMean<keepdims = 1>(all, zero)  logits = MatMul(m, w)
            t = ArgMax<axis = 1, keepdims = 0>(logits)  now = Concat<axis = 0>(past, t)
            y = LogSoftmax<axis = -1>(logits)  going = Identity(c)
          }>
          square = Mul(rows, rows)  loss = ReduceSum<keepdims = 0>(square)
        }""",
        {"e": drawn(7, 3), "w": drawn(3, 7), "n": np.array(4)},
        ("e", "w"),
    ),
    "pieces of a run-time size": Case(
        """g (double[B, 3] x, double[3, 3] w, int64 n) => (double loss)
        <bool yes = {1}, double[0, 3] none = {}, double scale = {0.3}> {
          last, rows = Loop(n, yes, none) <body = b (int64 i, bool c, double[P, 3] past)
              => (bool going, double[Q, 3] now, double[B, 3] y) {
            number = Cast<to = 11>(i)  shift = Mul(number, scale)  xi = Add(x, shift)
            k = MatMul(xi, w)  now = Concat<axis = 0>(past, k)
            t = Transpose<perm = [1, 0]>(now)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)
            y = MatMul(p, now)  going = Identity(c)
          }>
          square = Mul(rows, rows)  loss = ReduceSum<keepdims = 0>(square)
        }""",
        {"x": drawn(2, 3), "w": drawn(3, 3), "n": np.array(4)},
        ("x", "w"),
    ),
    "nothing grows, a condition ends it": Case(
        """g (double[3] x, double[3, 3] w, int64 n) => (double loss)
        <bool yes = {1}, double most = {3.0}> {
          h, rows = Loop(n, yes, x) <body = b (int64 i, bool c, double[3] before)
              => (bool going, double[3] after, double[3] y) {
            z = MatMul(before, w)  after = Add(before, z)  y = Tanh(after)
            s = Mul(after, after)  q = ReduceSum<keepdims = 0>(s)  going = Less(q, most)
          }>
          square = Mul(rows, rows)  l1 = ReduceSum<keepdims = 0>(square)
          l2 = ReduceSum<keepdims = 0>(h)  loss = Add(l1, l2)
        }""",
        {"x": drawn(3), "w": np.eye(3) / 3 + drawn(3, 3) / 9, "n": np.array(40)},
        ("x", "w"),
    ),
    "repeated squaring, until a condition ends it": Case(
        """g (double[3] x, int64 n) => (double loss) <bool yes = {1}, double most = {99.0}> {
          h = Loop(n, yes, x) <body = b (int64 i, bool c, double[3] before)
              => (bool going, double[3] after) {
            after = Mul(before, before)
            s = ReduceSum<keepdims = 0>(after)  going = Less(s, most)
          }>
          square = Mul(h, h)  loss = ReduceSum<keepdims = 0>(square)
        }""",
        {"x": np.array([1.1, 0.5, -1.2]), "n": np.array(40)},
        ("x",),
    ),
    "two pieces one after the other, and a branch": Case(
        """g (double[5, 3] x, double[3, 3] w, int64 n) => (double loss)
        <bool yes = {1}, int64[1] zero = {0}, int64 two = {2}, double[0, 3] none = {}> {
          last, rows = Loop(n, yes, none) <body = b (int64 i, bool c, double[P, 3] past)
              => (bool going, double[Q, 3] now, double[1, 3] y) {
            at = Unsqueeze(i, zero)  row = Gather(x, at)  k = MatMul(row, w)
            some = Concat<axis = 0>(past, k)  sum = ReduceSum<keepdims = 1>(some, zero)
            more = Tanh(sum)  now = Concat<axis = 0>(some, more)  early = Less(i, two)
            y = If(early) <
              then_branch = early_steps () => (double[1, 3] a) { a = MatMul(sum, w) },
              else_branch = late_steps () => (double[1, 3] d) {
                t = Transpose<perm = [1, 0]>(now)  s = MatMul(row, t)
                p = Softmax<axis = -1>(s)  d = MatMul(p, now) }>
            going = Identity(c)
          }>
          square = Mul(rows, rows)  loss = ReduceSum<keepdims = 0>(square)
        }""",
        {"x": drawn(5, 3), "w": drawn(3, 3), "n": np.array(5)},
        ("x", "w"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients_are_central_differences(case: Case) -> None:
    made = gradient(case.model, "loss", case.wrt)
    session = ostinato.InferenceSession(made, fallback=False)
    names = [node.name for node in session.get_outputs()]
    found = dict(zip(names, session.run(None, case.feeds), strict=True))
    plain = ostinato.InferenceSession(case.model, fallback=False)
    assert found["loss"] == plain.run(["loss"], case.feeds)[0]
    for name in case.wrt:
        for place in np.ndindex(case.feeds[name].shape):
            losses = []
            for step in (STEP, -STEP):
                moved = case.feeds[name].copy()
                moved[place] += step
                losses.append(plain.run(["loss"], {**case.feeds, name: moved})[0])
            difference = (losses[0] - losses[1]) / (2 * STEP)
            np.testing.assert_allclose(
                found[f"{name}_grad"][place], difference, rtol=TOLERANCE, atol=TOLERANCE
            )


def test_nothing_of_what_grew_is_copied_for_a_step() -> None:
    """The memory of many steps grows as they do, not as their square."""
    case = CASES["pieces of a run-time size"]
    text = case.text.replace("double", "float").replace("to = 11", "to = 1").replace("[B,", "[1,")
    model = onnx.parser.parse_model(HEAD + text)
    session = ostinato.InferenceSession(gradient(model, "loss", case.wrt), fallback=False)
    feeds = {name: value.astype(np.float32) for name, value in case.feeds.items() if name != "n"}
    feeds["x"] = feeds["x"][:1]
    sizes = []
    for steps in (500, 1000):
        session.run(None, {**feeds, "n": np.array(steps)})
        sizes.append(session.report()["arena_bytes"])
    assert sizes[1] < 2.2 * sizes[0]


def test_lists_that_steps_read_are_refused_as_what_they_are() -> None:
    read = parse("""
        g (float[2, 2] x, int64 n) => (float total) {
            e = SequenceConstruct(x)
            y = Loop <body = b (int64 i, bool g, seq(float[2, 2]) s)
                => (bool g2, seq(float[2, 2]) o) {
                g2 = Identity(g)
                zero = Constant <value = int64 {0}> ()
                q = SequenceAt(s, zero)
                r = Sin(q)
                o = SequenceInsert(s, r)
            }> (n, , e)
            k = ConcatFromSequence <axis = 0> (y)
            total = ReduceSum <keepdims = 0> (k)
        }""")
    with pytest.raises(UnsupportedError, match=r"its state 's' is no tensor"):
        gradient(read, "total", ["x"])
