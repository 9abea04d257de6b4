from __future__ import annotations

import numpy as np
import onnx
import pytest

from ostinato import InferenceSession
from ostinato.errors import UnsupportedError
from ostinato.model.load import load_model
from ostinato.partition import Partition, partition
from ostinato.passes.pipeline import run_passes
from ostinato.runtime.stage import FallbackStage
from tests.golden import parse

# An operator that has no native form in these tests: its length depends on the data.
UNKNOWN = "NonZero"


def parts(model: onnx.ModelProto) -> Partition:
    loaded = load_model(model)
    run_passes(loaded)
    return partition(loaded, fallback=True)


def kinds(model: onnx.ModelProto) -> list[str]:
    return [part.op if isinstance(part, FallbackStage) else "native" for part in parts(model).parts]


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return InferenceSession(model, cache_dir=None).run(None, feeds)


BEHIND = parse("""
    g (float[N, 4] x, float[M] c) => (float[a, b] y, int64[k, j] places, int64[2] sizes) {
        sizes = Shape(x)
        d = Neg(x)
        places = NonZero(c)
        two = Constant <value = int64[1] {2}> ()
        first = Slice(sizes, zero, one)
        halves = Concat <axis = 0> (first, two, two)
        e = Reshape(d, halves)
        total = ReduceSum <keepdims = 0> (e, last)
        count = Shape <start = 1> (places)
        float_count = Cast <to = 1> (count)
        y = Mul(total, float_count)
    }
    """)
BEHIND.graph.initializer.extend(
    onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [1], [value])
    for name, value in (("zero", 0), ("one", 1), ("last", 2))
)


def test_sizes_are_still_known_behind_a_fallback_node():
    result = parts(BEHIND)
    reasons = [part.reason for part in result.parts if isinstance(part, FallbackStage)]
    assert reasons == ["has no native form"]
    x, c = np.arange(12, dtype="f").reshape(3, 4), np.array([0, 2, 3], "f")
    y, places, sizes = run(BEHIND, x=x, c=c)
    assert y.tolist() == (-2 * x.reshape(3, 2, 2).sum(2)).tolist()
    assert places.tolist() == [[1, 2]]
    assert sizes.tolist() == [3, 4]


def test_numbers_known_while_compiling_are_given_to_fallback_nodes():
    model = parse("""
        g (float[N, 3] x) => (string[r] t) <int64[1] one = {1}, int64[1] two = {2}> {
            s = Shape(x)
            w = Slice(s, one, two)
            t = Cast <to = 8> (w)
        }
        """)
    result = parts(model)
    assert kinds(model) == ["Cast"]
    assert [array.tolist() for array in result.constants.values()] == [[3]]
    assert run(model, x=np.zeros((2, 3), "f"))[0].tolist() == ["3"]


def test_bodies_carry_the_constants_they_read():
    model = parse("""
        g (bool c, float[N] x) => (int64[r, k] y) <float[1] ten = {10}> {
            y = If (c) <
                then_branch = t () => (int64[r, k] p) { a = Sub(x, ten)  p = NonZero(a) },
                else_branch = e () => (int64[r, k] q) { q = NonZero(x) }
            >
        }
        """)
    (stage,) = [p for p in parts(model).parts if isinstance(p, FallbackStage)]
    assert {argument.name for argument in stage.inputs} == {"c", "x"}
    x = np.array([0, 10, 20], "f")
    assert run(model, c=np.array(True), x=x)[0].tolist() == [[0, 2]]
    assert run(model, c=np.array(False), x=x)[0].tolist() == [[1, 2]]


@pytest.mark.parametrize("count", [1, 3])
def test_a_size_that_may_be_one_is_not_taken_for_another(count: int):
    model = parse("""
        g (float[N] c, int64[3] x) => (int64[a, b] y) {
            i = NonZero(c)
            y = Add(i, x)
        }
        """)
    c = np.array([1] * count + [0], "f")
    (y,) = run(model, c=c, x=np.array([10, 20, 30]))
    assert y.tolist() == (np.arange(count)[None] + [10, 20, 30]).tolist()


def test_without_fallback_the_node_is_refused():
    with pytest.raises(UnsupportedError, match=UNKNOWN):
        InferenceSession(BEHIND, fallback=False, cache_dir=None)
