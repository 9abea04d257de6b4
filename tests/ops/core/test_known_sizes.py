from __future__ import annotations

import numpy as np

import ostinato
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
