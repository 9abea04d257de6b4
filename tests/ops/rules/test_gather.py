"""Computed indices that are out of range end the run with an error before memory is touched."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.errors import RunError
from tests.cases.case import Array, Case, In, node

X = In((3, 4))


def at(*shape: int) -> In:
    return In(shape, "int64")


# A case whose input of this name holds indices, indices in range, and some that are not.
CASES: list[tuple[Case, str, list[int], list[list[int]]]] = [
    (node("n", "Gather", X, at(2)), "x1", [-3, 2], [[0, 3], [-4, 0]]),
    (node("n", "GatherElements", X, at(1, 2), axis=1), "x1", [-4, 3], [[4, 0], [0, -5]]),
    (node("n", "GatherND", X, at(1, 2)), "x1", [-3, 3], [[3, 0], [0, 4], [-4, 0], [0, 2**62]]),
    (node("n", "GatherND", X, at(3, 1), batch_dims=1), "x1", [0, -4, 3], [[0, 0, 4], [-5, 0, 0]]),
    (node("n", "ScatterElements", X, at(2, 1), In((2, 1))), "x1", [-3, 2], [[0, 3], [-4, 0]]),
    (
        node("n", "ScatterElements", X, at(2, 1), In((2, 1)), reduction="add"),
        "x1",
        [1, 1],
        [[0, 3], [-4, 0], [2**40, 0]],
    ),
    (node("n", "ScatterND", X, at(2, 1), In((2, 4))), "x1", [-3, 2], [[0, 3], [-4, 0]]),
    (node("n", "TensorScatter", In((2, 8, 1)), In((2, 3, 1)), at(2), opset=24), "x2", [0, 5],
     [[6, 0], [0, -1]]),
    (node("n", "TensorScatter", In((2, 8, 1)), In((2, 3, 1)), at(2), opset=24, mode="circular"),
     "x2", [7, 0], [[8, 0], [0, -1]]),
    (node("n", "ReverseSequence", X, at(4)), "x1", [0, 1, 2, 3], [[4, 0, 0, 0], [0, -1, 0, 0]]),
    (node("n", "CumSum", X, at()), "x1", [-2], [[2], [-3]]),
]  # fmt: skip


@pytest.mark.parametrize("disable", [(), ("hoist", "fuse", "elide_copies")])
@pytest.mark.parametrize(
    ("case", "name", "good", "bad"), CASES, ids=[f"{n}-{c[0].name}" for n, c in enumerate(CASES)]
)
def test_indices_out_of_range(
    case: Case, name: str, good: list[int], bad: list[list[int]], disable: tuple[str, ...]
) -> None:
    session = ostinato.InferenceSession(case.model, cache_dir=None, fallback=False, disable=disable)
    feeds = case.feeds({})
    shape = feeds[name].shape

    def run(places: list[int]) -> list[Array]:
        return session.run(None, {**feeds, name: np.array(places, np.int64).reshape(shape)})

    (first,) = run(good)
    for places in bad:
        with pytest.raises(RunError, match=r"node .n. .*out of range"):
            run(places)
    np.testing.assert_array_equal(run(good)[0], first)


def test_an_index_of_a_step_is_checked_before_the_loop_goes_on() -> None:
    """What reads at computed positions leaves the loop, the check of them does not."""
    source = """
    <ir_version: 10, opset_import: ["": 21]>
    agraph (float[3] s, float[9] table, int64[T, 3] i) => (float[3] last) {
        last = Scan<num_scan_inputs = 1, body = step (float[3] h, int64[3] j) => (float[3] next) {
            g = Gather(table, j)  next = Add(h, g)
        }>(s, i)
    }"""
    session = ostinato.InferenceSession(
        onnx.parser.parse_model(source), cache_dir=None, fallback=False
    )
    feeds = {"s": np.zeros(3, np.float32), "table": np.arange(9, dtype=np.float32)}
    indices = np.array([[0, 1, 2], [8, -9, 4]])
    np.testing.assert_array_equal(session.run(None, {**feeds, "i": indices})[0], [8, 1, 6])
    indices[1, 1] = 10**12
    with pytest.raises(RunError, match="out of range for axis 0 of 9 elements"):
        session.run(None, {**feeds, "i": indices})
