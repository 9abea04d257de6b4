"""Gradients of Fourier transforms."""

from __future__ import annotations

import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse

SIZES = {"N": 2, "T": 23}
# Attributes, shape, axis, length, and whether onnxruntime has this form.
TRANSFORMS = [
    ("", "N,6,1", 1, None, True),
    ("", "N,6,2", 1, None, True),
    ("", "N,5,2", -2, 8, True),
    ("", "N,5,1", 1, 4, True),
    ("", "6,3,2", 0, None, True),
    ("onesided = 1", "N,6,1", 1, None, True),
    ("onesided = 1", "N,7,1", 1, None, True),
    ("onesided = 1", "5,N,1", 0, 8, True),
    ("inverse = 1", "N,6,2", 1, None, True),
    ("inverse = 1", "N,6,2", 1, 4, True),
    ("inverse = 1, onesided = 1", "N,5,2", 1, None, False),
    ("inverse = 1, onesided = 1", "N,5,2", 1, 9, False),
    ("inverse = 1, onesided = 1", "3,N,2", 0, 6, False),
]


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize(("attributes", "shape", "axis", "length", "witnessed"), TRANSFORMS)
def test_dft(
    attributes: str, shape: str, axis: int, length: int | None, witnessed: bool, opset: int
) -> None:
    constants = "" if length is None else f"n = Constant<value_int = {length}>() "
    operands = "x" if length is None else "x, n"
    if opset >= 20:
        constants += f"a = Constant<value_int = {axis}>()"
        operands += ", a" if length is not None else ", , a"
    else:
        attributes += f"{', ' if attributes else ''}axis = {axis % 3}"
    node = f"DFT<{attributes}>" if attributes else "DFT"
    model = parse(
        f"g (float[{shape}] x) => (float[a,b,c] y) {{ {constants} y = {node}({operands}) }}", opset
    )
    check(model, feeds_of(model, **SIZES), onnxruntime=witnessed)


FRAMES = [
    # attributes, signal, length, step, window
    ("", "N,16,1", 8, 4, True),
    ("", "N,T,1", 8, 3, True),
    ("", "N,T", 8, 3, True),
    ("", "N,T,1", 5, 7, True),
    ("", "2,17,1", 8, 8, False),
    ("onesided = 0", "N,16,1", 6, 4, True),
    ("onesided = 0", "N,16,2", 6, 4, True),
]


@pytest.mark.parametrize(("attributes", "shape", "n", "step", "windowed"), FRAMES)
def test_stft(attributes: str, shape: str, n: int, step: int, windowed: bool) -> None:
    operands = "x, s, w, n" if windowed else "x, s, , n"
    node = f"STFT<{attributes}>" if attributes else "STFT"
    model = parse(
        f"g (float[{shape}] x, float[{n}] w) => (float[a,b,c,d] y) {{"
        f" n = Constant<value_int = {n}>() s = Constant<value_int = {step}>()"
        f" y = {node}({operands}) }}"
    )
    check(model, feeds_of(model, **SIZES), ["x"])


def test_what_only_a_run_knows_is_refused() -> None:
    model = parse(
        "g (float[2,9,1] x, int64 s) => (float l) { n = Constant<value_int = 4>()"
        " y = STFT(x, s, , n) l = ReduceSum<keepdims = 0>(y) }"
    )
    with pytest.raises(ostinato.UnsupportedError, match="a step that is known"):
        gradient(model, "l", ["x"])
