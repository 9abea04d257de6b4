"""Programs that nobody here wrote, with `ostinato.onnxruntime` in onnxruntime's place."""

from __future__ import annotations

import pytest

from benchmarks import bench_packages
from tests.extras import environments

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("name", bench_packages.NAMES)
def test_a_package_runs_unchanged_with_the_same_results(name: str) -> None:
    environments.python("packages")
    row = bench_packages.measure(name, rounds=1)
    assert row.same_words
    # Scores have about six digits; corners of boxes are whole pixels.
    assert row.apart < 1e-4
    assert "runs in onnxruntime" not in row.said
