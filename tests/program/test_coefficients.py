"""The coefficients in the package are those that the tool computes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from ostinato.program.functions import coefficients

TOOL = Path(__file__).parents[2] / "tools" / "minimax.py"

pytest.importorskip("mpmath", reason="the tool computes with mpmath")


@pytest.fixture(scope="module")
def minimax():
    if not TOOL.exists():
        pytest.skip("the tool is not part of an installed package")
    spec = importlib.util.spec_from_file_location("minimax", TOOL)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while it is being executed.
    sys.modules["minimax"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["minimax"]


@pytest.mark.slow
def test_coefficients_are_reproducible(minimax):
    for fit in minimax.FITS:
        for dtype in ("float32", "float64"):
            if fit.terms[dtype] > 12:
                continue
            values, _ = minimax.coefficients(fit, dtype)
            assert tuple(values) == getattr(coefficients, fit.name)[dtype], fit.name


def test_every_coefficient_is_made_by_the_tool(minimax):
    names = {name for name in vars(coefficients) if name.isupper()}
    assert names == {fit.name for fit in minimax.FITS}


def test_a_known_minimax_polynomial(minimax):
    # The best straight line for x**2 on [0, 1] is x - 1/8, with an error of 1/8.
    fit = minimax.Fit("", "", lambda x: x * x, lambda x: 1, (0, 1), {"float64": 2})
    (constant, slope), error = minimax.coefficients(fit, "float64")
    assert abs(constant + 0.125) < 0.01 and abs(slope - 1) < 0.02
    assert error == pytest.approx(-3, abs=0.1)
