"""NonZero, Compress, Unique and NonMaxSuppression with all their attributes, on random inputs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato
from tests.cases.case import Array, Case, In, node
from tests.oracle import ops

DTYPES = ("float32", "int8", "int64", "bool", "float64", "uint16")
ELEMENTS = [0, 1, 2, 0, 5]
FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@cache
def made(op: str, operands: tuple[In, ...], outputs: int, **attributes: Any) -> Any:
    """The case and its session, for any sizes of its dimensions."""
    ranks = [1] * outputs
    if op == "Unique" and "axis" in attributes:
        ranks[0] = len(operands[0].shape)
    if op == "NonZero" or op == "NonMaxSuppression":
        ranks[0] = 2
    case = node("random", op, *operands, outputs=outputs, ranks=ranks, **attributes)
    return case, ostinato.InferenceSession(case.model, fallback=False)


def check(case: Case, session: ostinato.InferenceSession, feeds: dict[str, Array]) -> None:
    got, expected = session.run(None, feeds), ops.run(case.model, feeds)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == b.shape


@st.composite
def arrays(draw: st.DrawFn, rank: int, dtype: str) -> Array:
    shape = tuple(draw(st.integers(0, 6)) for _ in range(rank))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    few = np.array(ELEMENTS if not dtype.startswith("f") else [*ELEMENTS, np.nan, -0.0])
    return random.choice(few, shape).astype(dtype)


def dimensions(rank: int) -> tuple[str, ...]:
    return tuple("NMK"[:rank])


@FEW
@given(st.data())
def test_unique(data: st.DataObject) -> None:
    rank, dtype = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(DTYPES))
    attributes: dict[str, Any] = {}
    if data.draw(st.booleans()):
        attributes["sorted"] = data.draw(st.integers(0, 1))
    if data.draw(st.booleans()):
        attributes["axis"] = data.draw(st.integers(-rank, rank - 1))
    case, session = made("Unique", (In(dimensions(rank), dtype),), 4, **attributes)
    check(case, session, {"x0": data.draw(arrays(rank, dtype))})


@FEW
@given(st.data())
def test_non_zero_and_compress(data: st.DataObject) -> None:
    rank, dtype = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(DTYPES))
    x = data.draw(arrays(rank, dtype))
    check(*made("NonZero", (In(dimensions(rank), dtype),), 1), {"x0": x})
    attributes, extent = {}, x.size
    if data.draw(st.booleans()):
        attributes["axis"] = axis = data.draw(st.integers(-rank, rank - 1))
        extent = x.shape[axis]
    condition = data.draw(st.lists(st.booleans(), max_size=extent))
    operands = In(dimensions(rank), dtype), In(("C",), "bool")
    case, session = made("Compress", operands, 1, **attributes)
    check(case, session, {"x0": x, "x1": np.array(condition, bool)})


@FEW
@given(st.data())
def test_non_max_suppression(data: st.DataObject) -> None:
    batches, classes, count = (data.draw(st.integers(0, n)) for n in (2, 3, 12))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    given_inputs = data.draw(st.integers(2, 5))
    form = data.draw(st.integers(0, 1))
    limits = In((1,), "int64"), In((1,)), In((1,))
    operands = In(("B", "N", 4)), In(("B", "C", "N")), *limits[: given_inputs - 2]
    case, session = made("NonMaxSuppression", operands, 1, center_point_box=form)
    # Coordinates and scores that often are equal.
    feeds = {
        "x0": np.float32(random.integers(0, 9, (batches, count, 4)) / 4),
        "x1": np.float32(random.integers(-3, 9, (batches, classes, count)) / 8),
        "x2": np.array([data.draw(st.integers(-1, 13))]),
        "x3": np.array([data.draw(st.sampled_from([0, 0.25, 0.5, 1]))], np.float32),
        "x4": np.array([data.draw(st.sampled_from([-1, 0, 0.5, np.nan]))], np.float32),
    }
    check(case, session, {name: feeds[name] for name in case.inputs})


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("spread", [0.2, 3.0, 100.0])
def test_boxes_in_heaps_go_together(most: int, spread: float) -> None:
    operands = In((1, "N", 4)), In((1, 2, "N")), In((1,), "int64"), In((1,)), In((1,))
    case, session = made("NonMaxSuppression", operands, 1, center_point_box=1)
    random = np.random.default_rng(3)
    centers = random.integers(0, 60, (12, 2))[random.integers(0, 12, 300)]
    centers = centers + spread * random.standard_normal((300, 2))
    boxes = np.concatenate([centers, 4 + random.random((300, 2))], 1)
    feeds = {
        "x0": np.float32(boxes)[None],
        "x1": np.float32(random.random((1, 2, 300))),
        "x2": np.array([most]),
        "x3": np.array([0.4], np.float32),
        "x4": np.array([0.1], np.float32),
    }
    check(case, session, feeds)
