"""The cases of the backend test suite but its networks, and whether it is whole."""

from __future__ import annotations

from tests.backend.exclusions import EXPECTED_FAILURES, SKIPPED
from tests.backend.suite import NETWORKS, suite

CLASSES = suite()
globals().update({name: case for name, case in CLASSES.items() if name != NETWORKS})


def test_every_exclusion_is_a_case() -> None:
    names = {name.removesuffix("_cpu") for case in CLASSES.values() for name in dir(case)}
    assert {*SKIPPED, *EXPECTED_FAILURES} <= names


def test_the_suite_is_whole() -> None:
    counts = {
        name: sum(method.startswith("test_") for method in dir(case))
        for name, case in CLASSES.items()
    }
    assert counts["OnnxBackendNodeModelTest"] > 1000
    assert all(counts.values()) and len(counts) == 5
