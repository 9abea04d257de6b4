"""Results of a case against an oracle in float64, and against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest

from tests import witness
from tests.cases.case import Array, Case, Sizes
from tests.oracle import ops

# onnxruntime rounds its functions less carefully than the oracle allows us to.
WITNESS_ULPS, WITNESS_LENGTH = 64, 8

# The feeds of each run, and its sizes.
Runs: TypeAlias = Sequence[tuple[dict[str, Array], Sizes]]


def assert_close(got: Array, expected: Array, ulps: float, length: float, where: str) -> None:
    """`got` within `ulps` units in the last place, and `length` ones of the largest element."""
    assert got.shape == expected.shape, where
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, where)
        return
    with np.errstate(all="ignore"):
        rounded = expected.astype(got.dtype)
        finite = np.isfinite(rounded) & np.isfinite(got)
        size = np.abs(np.where(finite, rounded, 0))
        largest = size.max(initial=0) * np.finfo(got.dtype).eps * length
        allowed = ulps * np.spacing(size) + largest
        error = np.abs(got.astype(np.float64) - np.where(finite, expected, 0))
    exact = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    # Just below the largest number an error of some units reaches infinity.
    edge = np.isinf(got) != np.isinf(rounded)
    near = np.minimum(np.abs(got), np.abs(rounded)) > np.finfo(got.dtype).max * (1 - 1e-6)
    good = exact | (finite & (error <= allowed)) | (edge & near)
    if not good.all():
        first = tuple(int(i) for i in np.argwhere(~good)[0])
        units = error[first] / np.spacing(size[first])
        raise AssertionError(
            f"{where}: {np.count_nonzero(~good)} of {good.size} elements, first at {first}: "
            f"{got[first]!r}, expected {expected[first]!r}, {units:.1f} units in the last place"
        )


def check_oracle(case: Case, runs: Runs, found: list[list[Array]]) -> None:
    for (feeds, sizes), got in zip(runs, found, strict=True):
        expected = case.expected(feeds) if case.expected else ops.run(case.model, feeds)
        for position, (a, b) in enumerate(zip(got, expected, strict=True)):
            where = f"output {position} {dict(sizes)}"
            assert_close(np.asarray(a), np.asarray(b), case.ulps, case.length, where)


def check_onnxruntime(case: Case, runs: Runs, found: list[list[Array]]) -> None:
    """Skips the calling test where onnxruntime has no kernel for the case."""
    demands = case.ulps + WITNESS_ULPS, case.length + WITNESS_LENGTH
    for (feeds, sizes), got in zip(runs, found, strict=True):
        try:
            expected = witness.run(case.model.SerializeToString(), feeds)
        except witness.WitnessError as error:
            if "NOT_IMPLEMENTED" in str(error):
                pytest.skip("onnxruntime has no kernel for it")
            if any(0 in np.shape(array) for array in (*feeds.values(), *got)):
                continue  # it refuses or crashes on many empty values
            raise
        for position, (a, b) in enumerate(zip(got, expected, strict=True)):
            where = f"output {position} {dict(sizes)}, onnxruntime"
            assert_close(np.asarray(a), np.asarray(b), *demands, where)
