from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ostinato.errors import InputError
from ostinato.quantization.calibration import Seen
from ostinato.quantization.samples import read_samples


def test_the_range_leaves_out_what_costs_the_others_more() -> None:
    seen = Seen()
    rng = np.random.default_rng(0)
    for _ in range(40):
        seen.widen(rng.standard_normal((50, 100)).astype(np.float32))
    low, high = seen.best_range(15)
    assert seen.low < low < -2 and 2 < high < seen.high
    assert 1 << 15 < seen.kept.size <= 1 << 16


def test_the_range_of_what_fills_it_evenly_stays() -> None:
    seen = Seen()
    seen.widen(np.linspace(-1, 3, 4000, dtype=np.float32))
    assert seen.best_range(255) == (-1, 3)


@pytest.mark.parametrize("given", [np.array("x"), 3, [], ["x"]])
def test_what_holds_no_samples_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="calibration"):
        read_samples(given, [], {})
