"""Caches of onnxruntime's GroupQueryAttention, which streams let grow."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.aot.library import compile_library
from ostinato.errors import PoolError, RunError
from ostinato.model.grown_caches import grown_caches
from ostinato.model.load import load_model
from ostinato.optimization import run_all_passes
from ostinato.options import Options
from ostinato.runtime.growing import GrowingStream
from ostinato.runtime.stream import Stream
from tests import witness

STATES = {"pk": "keys", "pv": "values"}
RANDOM = np.random.default_rng(0)


def source(past: str = "P", present: str = "T") -> onnx.ModelProto:
    """A layer as the builder of onnxruntime's models writes it."""
    angles = np.outer(np.arange(128), 0.3 ** np.arange(8))
    weights = {
        "W": np.random.default_rng(1).standard_normal((32, 64)) / 6,
        "c": np.cos(angles),
        "s": np.sin(angles),
    }
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[N, S, 32] x, int64[N, T] mask, float[N, 1, {past}, 16] pk,
        float[N, 1, {past}, 16] pv)
            => (float[N, S, 32] y, float[N, 1, {present}, 16] keys,
            float[N, 1, {present}, 16] values)
            <int64[1] one = {{1}}, int64 second = {{1}}> {{
            rows = ReduceSum(mask, one)  last = Sub(rows, one)  seqlens = Cast<to = 6>(last)
            shape = Shape(mask)  size = Gather(shape, second)  total = Cast<to = 6>(size)
            qkv = MatMul(x, W)
            y, keys, values = com.microsoft.GroupQueryAttention
                <num_heads = 2, kv_num_heads = 1, do_rotary = 1>
                (qkv, , , pk, pv, seqlens, total, c, s)
        }}"""
    )
    for name, array in weights.items():
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    return model


@cache
def model() -> onnx.ModelProto:
    return source()


@cache
def session() -> ostinato.InferenceSession:
    return ostinato.InferenceSession(model())


def frames(sizes: list[int], batch: int = 1) -> list[dict[str, np.ndarray]]:
    ends = np.cumsum(sizes)
    return [
        {
            "x": RANDOM.standard_normal((batch, size, 32)).astype(np.float32),
            "mask": np.ones((batch, end), np.int64),
        }
        for size, end in zip(sizes, ends, strict=True)
    ]


def carried(steps: list[dict[str, np.ndarray]]) -> tuple[list[np.ndarray], np.ndarray]:
    """Results of steps whose caches the caller carries, and the keys in the end."""
    batch, results = len(steps[0]["x"]), []
    caches = {name: np.zeros((batch, 1, 0, 16), np.float32) for name in STATES}
    for feeds in steps:
        y, keys, values = session().run(None, {**feeds, **caches})
        (expected, *_) = witness.run(model().SerializeToString(), {**feeds, **caches})
        np.testing.assert_allclose(y, expected, atol=1e-5)
        caches = {"pk": keys, "pv": values}
        results.append(y)
    return results, keys


@pytest.mark.parametrize("capacity", [None, 100])
@pytest.mark.parametrize(("sizes", "batch"), [([5, 1, 3, *[1] * 80], 1), ([4, 1, 1, 1], 2)])
def test_streams_have_the_bits_of_caches_that_are_carried(
    sizes: list[int], batch: int, capacity: int | None
) -> None:
    steps = frames(sizes, batch)
    results, keys = carried(steps)
    stream = session().stream(STATES, capacity=capacity)
    assert isinstance(stream, GrowingStream)
    for feeds, y in zip(steps, results, strict=True):
        np.testing.assert_array_equal(stream.step(feeds)[0], y)
    np.testing.assert_array_equal(stream.state["pk"], keys)
    stream.rewind(1)
    twin = stream.fork()
    np.testing.assert_array_equal(twin.step(steps[-1])[0], results[-1])
    np.testing.assert_array_equal(stream.step(steps[-1])[0], results[-1])


def test_streams_of_a_pool_have_rows_of_their_own() -> None:
    steps = frames([1] * 6)
    results, _ = carried(steps)
    with session().pool(STATES, capacity=3, rows=64) as pool:
        early, late = pool.open(), pool.open()
        for step in range(8):
            for handle, place in ((early, step), (late, step - 2)):
                if 0 <= place < len(steps):
                    pool.push(handle, steps[place])
            for handle, (y,) in pool.step().items():
                place = step if handle == early else step - 2
                np.testing.assert_array_equal(y, results[place])
        hidden = {**steps[0], "mask": np.array([[1] * 5 + [0, 1]])}
        pool.push(late, hidden)
        with pytest.raises(PoolError, match="GroupQueryAttention"):
            pool.step()


def test_a_library_keeps_them_too() -> None:
    library = compile_library(model(), Options(specialize={"N": 1, "S": 1}), "m", "m", STATES)
    assert "memory of the growing state pk" in library.header()


def test_a_length_makes_them_caches_of_that_length() -> None:
    steps = frames([3, 1, 1])
    results, _ = carried(steps)
    stream = session().stream(STATES, sizes={"P": 16})
    assert isinstance(stream, Stream)
    for feeds, y in zip(steps, results, strict=True):
        np.testing.assert_array_equal(stream.step(feeds)[0], y)


def test_rows_of_other_lengths_need_a_cache_of_fixed_length() -> None:
    """As prompts of different lengths have, padded behind."""
    first, then = frames([3, 1], batch=2)
    stream = session().stream(STATES)
    stream.step(first)
    padded = {**then, "mask": np.array([[1, 1, 1, 1], [1, 1, 0, 1]])}
    message = r"'seqlens_k' and 'total_sequence_length' .* `sizes=\{'P': \.\.\.\}`"
    with pytest.raises(RunError, match=message):
        stream.step(padded)
    assert stream.state["pk"].shape == (2, 1, 3, 16)
    stream.step(then)


def test_caches_that_callers_may_let_grow(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    loaded = load_model(path)
    run_all_passes(loaded)
    caches = grown_caches(loaded)
    assert caches.found == STATES
    assert caches.lengths == {"pk": "P", "pv": "P"}
    assert not caches.conditions
    assert [output.name for output in loaded.graph.outputs] == ["y", "keys", "values"]


@pytest.mark.parametrize(("rows", "total"), [(4, 5), (0, 3), (8, 5)])
def test_calls_have_onnxruntimes_caches_whatever_their_axes_are_called(
    rows: int, total: int
) -> None:
    """Longer than the past where all rows are more, and zeros behind these."""
    alike = source("P", "P")
    new = total - min(rows, 4)
    feeds = {
        "x": RANDOM.standard_normal((1, new, 32)).astype(np.float32),
        "mask": np.ones((1, total), np.int64),
        **{
            name: RANDOM.standard_normal((1, 1, rows, 16)).astype(np.float32)
            for name in ("pk", "pv")
        },
    }
    found = ostinato.InferenceSession(alike, cache_dir=None).run(None, feeds)
    wanted = witness.run(alike.SerializeToString(), feeds)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
