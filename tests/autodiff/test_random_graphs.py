"""Gradients of random graphs: shared values, broadcasting, and rules that meet by chance."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import differences, in_doubles
from tests.autodiff.random_graphs import random_model

SEEDS = range(18)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed: int) -> None:
    model, feeds, wrt = random_model(seed)
    wide = in_doubles(model)
    doubles = {name: array.astype(np.float64) for name, array in feeds.items()}
    session = ostinato.InferenceSession(gradient(wide, "loss", wrt))
    assert session.report()["fallback"] == []
    names = [output.name for output in session.get_outputs()]
    assert names == ["loss", *(f"{name}_grad" for name in wrt)]
    got = dict(zip(names, session.run(None, doubles), strict=True))
    for name, (places, slopes) in differences(wide, doubles, wrt).items():
        scale = max(1.0, float(np.abs(slopes).max(initial=0)))
        found = got[f"{name}_grad"].reshape(-1)[places]
        np.testing.assert_allclose(found, slopes, rtol=0, atol=2e-6 * scale, err_msg=name)
