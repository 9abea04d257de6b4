"""Every case against an oracle in float64, and against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato
from tests import witness
from tests.cases.case import Array, Case
from tests.cases.table import CASES, NAMES
from tests.oracle import ops

# onnxruntime rounds its functions less carefully than the oracle allows us to.
WITNESS_ULPS, WITNESS_LENGTH = 64, 8


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


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_values_are_those_of_the_documents_and_of_onnxruntime(case: Case) -> None:
    # As in all modes (tests/test_modes.py), whose default comes from the cache then.
    session = ostinato.InferenceSession(case.model, fallback=not case.at_once)
    runs = [(case.feeds(sizes), f"{dict(sizes)}") for sizes in case.sizes]
    found = [[np.asarray(array) for array in session.run(None, feeds)] for feeds, _ in runs]
    for (feeds, sizes), got in zip(runs, found, strict=True):
        expected = case.expected(feeds) if case.expected else ops.run(case.model, feeds)
        for position, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_close(a, np.asarray(b), case.ulps, case.length, f"output {position} {sizes}")
    if case.witness:
        check_onnxruntime(case, runs, found)


def check_onnxruntime(
    case: Case, runs: list[tuple[dict[str, Array], str]], found: list[list[Array]]
) -> None:
    demands = case.ulps + WITNESS_ULPS, case.length + WITNESS_LENGTH
    for (feeds, sizes), got in zip(runs, found, strict=True):
        try:
            expected = witness.run(case.model.SerializeToString(), feeds)
        except witness.WitnessError as error:
            if "NOT_IMPLEMENTED" in str(error):
                pytest.skip("onnxruntime has no kernel for it")
            if any(0 in array.shape for array in (*feeds.values(), *got)):
                continue  # it refuses or crashes on many empty values
            raise
        for position, (a, b) in enumerate(zip(got, expected, strict=True)):
            where = f"output {position} {sizes}, onnxruntime"
            assert_close(a, np.asarray(b), *demands, where)
