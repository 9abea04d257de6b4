from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.pipeline import run_passes
from ostinato.stages.partition import partition
from tests.golden import parse


def test_a_truth_among_sizes_is_a_number() -> None:
    """The condition is `i < 2 or True`, of which the number of the step is a size."""
    model = parse("""
        g (float[N] x, int64 n) => (float[M] y) <bool yes = {1}, int64[1] end = {9}> {
            y = Loop (n, yes, x) <body = b (int64 i, bool c, float[A] p) => (bool k, float[B] q) {
                axis = Constant<value_ints = [0]>()  start = Unsqueeze(i, axis)
                part = Slice(p, start, end)  q = Concat<axis = 0>(p, part)
                two = Constant<value = int64 {2}>()  early = Less(i, two)
                true = Constant<value = bool {1}>()  always = Or(early, true)
                k = And(always, true)
            }>
        }""")
    compiled = ostinato.InferenceSession(model, fallback=False, cache_dir=None)
    expected = x = np.arange(3, dtype="f")
    for i in range(4):
        expected = np.concatenate([expected, expected[i:9]])
    (y,) = compiled.run(None, {"x": x, "n": np.int64(4)})
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_sizes_are_sizes(fmod: int) -> None:
    """Frames are padded to a multiple of 4: by `-T % 4`, or in front of `T % 4` zeros."""
    model = parse(f"""
        g (float[N, T] x) => (float[N, A] y, int64[1] left)
        <int64[1] four = {{4}}, int64[1] one = {{1}}, int64[2] zeros = {{0, 0}},
         int64[1] zero = {{0}}, int64[3] target = {{0, -1, 4}}> {{
            sizes = Shape(x)  t = Slice(sizes, one, four)  back = Neg(t)
            left = Mod<fmod = {fmod}>(back, four)
            over = Mod(t, four)  rest = Sub(four, over)  more = Mod(rest, four)
            pads = Concat<axis = 0>(zeros, zero, more)  padded = Pad(x, pads)
            blocks = Reshape(padded, target)  y = ReduceMax<axes = [2], keepdims = 0>(blocks)
        }}""")
    loaded = load_model(model)
    run_passes(loaded)
    assert len(partition(loaded, fallback=False).parts) == 1
    session = ostinato.InferenceSession(model, fallback=False, cache_dir=None)
    for frames in (8, 5, 3):
        x = np.random.default_rng(frames).standard_normal((2, frames), np.float32)
        y, left = session.run(None, {"x": x})
        whole = np.pad(x, ((0, 0), (0, -frames % 4)))
        np.testing.assert_array_equal(y, whole.reshape(2, -1, 4).max(2))
        assert left == (np.fmod(-frames, 4) if fmod else -frames % 4)
