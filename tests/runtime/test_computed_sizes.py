"""Outputs whose shapes only a run tells, and memory for the most that they can be."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ostinato import InferenceSession
from ostinato.errors import InputError, RunError, ShapeError
from tests.golden import parse

PLACES = parse("g (float[N] x) => (int64[1, K] p, float[N] y) { p = NonZero(x)  y = Neg(x) }")
COUNTS = parse("""
    g (float[N] x, float[2] h) => (float[2] next, float[2] y) {
        p = NonZero(x)  n = Shape<start = 1>(p)  f = Cast<to = 1>(n)
        next = Add(h, f)  y = Neg(next)
    }
    """)


def places(*elements: float) -> np.ndarray:
    return np.array(elements, np.float32)


def session(model, **options):
    return InferenceSession(model, cache_dir=None, fallback=False, **options)


def test_outputs_are_of_the_exact_size_and_belong_to_the_caller():
    run = session(PLACES).run
    for x in (places(1, 0, 2), places(0, 0, 0), places(1, 2, 3)):
        p, y = run(None, {"x": x})
        assert p.tolist() == [np.flatnonzero(x).tolist()] and y.tolist() == (-x).tolist()
        assert p.base is None and p.flags.c_contiguous and p.flags.owndata


def test_later_calls_need_no_checks_in_python(monkeypatch: pytest.MonkeyPatch):
    one = session(PLACES)
    one.run(None, {"x": places(1, 0, 2)})
    with monkeypatch.context() as patched:
        patched.setattr(one, "_run_checked", None)
        p, y = one.run(None, {"x": places(0, 4, 0)})
        assert p.tolist() == [[1]] and y.tolist() == [0, -4, 0] and p.flags.owndata
        assert [y.tolist() for y in one.run(["y"], {"x": places(0, 1, 0)})] == [[0, -1, 0]]
    out = {"p": np.zeros((1, 2), np.int64), "y": np.zeros(3, np.float32)}
    assert one.run(None, {"x": places(3, 0, 1)}, out=out)[0] is out["p"]
    assert out["p"].tolist() == [[0, 2]] and out["y"].tolist() == [-3, 0, -1]


def test_given_arrays_must_have_the_size_that_comes_out():
    one, x = session(PLACES), places(1, 0, 2)
    out = np.zeros((1, 2), np.int64)
    assert one.run(["p"], {"x": x}, out={"p": out})[0] is out and out.tolist() == [[0, 2]]
    with pytest.raises(InputError, match=r"output 'p': expected int64\[1, 2\], got int64\[1, 3\]"):
        one.run(None, {"x": x}, out={"p": np.zeros((1, 3), np.int64)})
    assert one.run(None, {"x": x})[0].tolist() == [[0, 2]]


def test_a_bound_call_refuses_another_size():
    x = places(1, 0, 2)
    call = session(PLACES).bind({"x": x})
    x[0] = 0
    with pytest.raises(InputError, match="output 'p'"):
        call()
    x[:] = 0, 5, 6
    call()
    assert call.outputs["p"].tolist() == [[1, 2]]


def test_a_bound_call_computes_in_memory_of_its_own(monkeypatch: pytest.MonkeyPatch):
    one, x = session(PLACES), places(1, 0, 2)
    given = np.zeros((1, 2), np.int64)
    calls = [one.bind({"x": x}, {"p": given}), one.bind({"x": x})]
    monkeypatch.setattr(one._flow, "run", None)
    for elements, expected in (((0, 5, 6), [1, 2]), ((7, 8, 0), [0, 1])):
        x[:] = elements
        for call in calls:
            call()
            assert call.outputs["p"].tolist() == [expected]
            assert call.outputs["y"].tolist() == (-x).tolist()
    assert calls[0].outputs["p"] is given


def test_sizes_inside_of_a_model_leave_it_direct():
    one = session(COUNTS)
    stream = one.stream({"h": "next"})
    steps = [stream.step({"x": x})[0].tolist() for x in (places(1, 0), places(0, 0), places(1, 1))]
    assert steps == [[-1, -1], [-1, -1], [-3, -3]]
    x = places(1, 0, 3)
    call = one.bind({"x": x, "h": np.zeros(2, np.float32)})
    for count, element in ((2, 0), (3, 1)):
        x[1] = element
        call()
        assert call.outputs["y"].tolist() == [-count, -count]


def test_calls_in_several_threads_have_sizes_of_their_own():
    one = session(PLACES)
    inputs = [places(*np.arange(400) % n) for n in (2, 3)]
    calls = [one.bind({"x": x}) for x in inputs]
    wrong: list[int] = []

    def repeat(number: int) -> None:
        expected = np.flatnonzero(inputs[number])
        for _ in range(200):
            (found, _) = one.run(None, {"x": inputs[number]})
            calls[number]()
            if not all(np.array_equal(p[0], expected) for p in (found, calls[number].outputs["p"])):
                wrong.append(number)

    threads = [threading.Thread(target=repeat, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_of_one_call_agree_on_sizes():
    model = parse("""
        g (float[N, 256] x, bool[N] c, float[256, 512] w) => (float[K, 512] y) {
            rows = Compress<axis = 0>(x, c)  h = MatMul(rows, w)  y = Tanh(h)
        }
        """)
    random = np.random.default_rng(0)
    feeds = {
        "x": random.standard_normal((300, 256)).astype(np.float32),
        "w": random.standard_normal((256, 512)).astype(np.float32),
    }
    one, two = session(model), session(model, threads=2)
    assert two.report()["threads"] == 2
    for share in (0.1, 0.9, 0.5):
        feeds["c"] = random.random(300) < share
        (a,), (b,) = (s.run(None, feeds) for s in (one, two))
        assert a.shape == (feeds["c"].sum(), 512) and a.tobytes() == b.tobytes()


def test_a_condition_on_computed_sizes_is_checked_while_running():
    model = parse("""
        g (float[N] x, bool[N] c, float[3] y) => (float[K] z) {
            a = Compress(x, c)  z = Add(a, y)
        }
        """)
    one, y = session(model), np.ones(3, np.float32)
    feeds = {"x": places(1, 2, 3, 4), "y": y}
    for chosen, expected in ((3, [2, 3, 4]), (1, [2, 2, 2])):
        (z,) = one.run(None, {**feeds, "c": np.arange(4) < chosen})
        assert z.tolist() == expected
    for chosen in (0, 2, 4):
        with pytest.raises(RunError, match="axis 0 of operands to broadcast"):
            one.run(None, {**feeds, "c": np.arange(4) < chosen})


def test_memory_for_the_most_is_not_taken_where_it_is_out_of_proportion():
    """Such a model is cut instead, and the rest has the size that came out."""
    model = parse("""
        g (float[N] x) => (float[K, K] y) {
            p = NonZero(x)  f = Cast<to = 1>(p)  t = Transpose(f)  y = MatMul(t, f)
        }
        """)
    one = session(model)
    x = np.zeros(1_000_000, np.float32)
    x[[5, 7]] = 1
    assert one.run(None, {"x": x})[0].tolist() == [[25, 35], [35, 49]]


def test_of_a_constant_without_rows_none_are_chosen():
    model = parse("""
        g (bool[N] c) => (float[K, 3] y) <float[0, 3] rows = {}> { y = Compress<axis = 0>(rows, c) }
        """)
    one = session(model)
    assert one.run(None, {"c": np.zeros(0, bool)})[0].shape == (0, 3)
    with pytest.raises(ShapeError, match="beyond the condition"):
        one.run(None, {"c": np.ones(1, bool)})
