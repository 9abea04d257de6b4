"""Products of bytes, two rows by two columns at once: the sums of any other way to compute them."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato import InferenceSession, Options
from ostinato.compiler import stages
from tests.codegen.test_matrices import product
from tests.targets.aarch64 import emulated


@pytest.mark.parametrize("rows", [3, 4, 5, 15])
@pytest.mark.parametrize(("terms", "columns"), [(16, 8), (23, 33), (63, 4), (70, 12), (128, 20)])
def test_sums(rows, terms, columns):
    rng = np.random.default_rng(rows)
    x = rng.integers(0, 256, (rows, terms)).astype(np.uint8)
    words = rng.integers(-128, 128, (terms, columns)).astype(np.int8)
    model = product(rows, words, 77)
    with emulated():
        session = InferenceSession(model, target="graviton3", cache_dir=None)
        (found,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(found, (x.astype(np.int64) - 77) @ words.astype(np.int64))


@pytest.mark.parametrize("columns", [4, 20, 32, 77])
def test_rows_that_only_a_run_tells(columns):
    rng = np.random.default_rng(columns)
    words = rng.integers(-128, 128, (50, columns)).astype(np.int8)
    with emulated():
        session = InferenceSession(product("N", words, 77), target="graviton3", cache_dir=None)
        for rows in (1, 2, 3, 4, 7, 8, 21, 0):
            x = rng.integers(0, 256, (rows, 50)).astype(np.uint8)
            (found,) = session.run(None, {"x": x})
            expected = (x.astype(np.int64) - 77) @ words.astype(np.int64)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("rows", "target", "expected"),
    [
        (3, "graviton3", False),
        (4, "graviton3", True),
        ("N", "graviton3", True),
        (40, "arm64-apple-macosx13.0:apple-m2:", True),
        (40, "apple-m1", False),
    ],
)
def test_where_rows_are_many_and_the_cpu_has_the_instruction(rows, target, expected):
    model = product(rows, np.ones((64, 64), np.int8), 1)
    assembly = dict(stages(model, Options(target=target, cache_dir=None)))["asm"]
    assert ("usmmla" in assembly) is expected
