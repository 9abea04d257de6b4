"""Convolutions that compute several positions together, by every form: time, estimate and error.

taskset -c 1 python -m benchmarks.bench_winograd [--shapes 64x64x56x56 64x64x28x28x5x5]

A shape is filters x channels x height x width, height x width of the filters unless they are 3 x 3,
and their strides unless they move by one element. Times are those of the fastest form, estimates
those of the cheapest one, errors root mean squares for elements of size 1 beside those of plain
sums. The form that is chosen has a star.
"""

from __future__ import annotations

import itertools
from typing import TypeAlias
from unittest import mock

import numpy as np
import onnx

import ostinato
from benchmarks import harness
from benchmarks.bench_batch import least_seconds
from ostinato.graph.windows import Window
from ostinato.ops.core.tensor import Tensor
from ostinato.ops.rules import winograd_ways
from ostinato.ops.rules.winograd_forms import FORMS, TAPS

SHAPES = (
    "16x16x64x64",
    "32x32x64x64",
    "64x64x14x14",
    "64x64x56x56",
    "128x128x28x28",
    "256x256x14x14",
    "512x512x7x7",
    "64x64x28x28x5x5",
    "64x64x28x28x7x7",
    "64x64x32x100x5x2x2x1",
    "64x64x64x64x4x4x2x2",
    "64x64x64x64x6x6x2x2",
)
PLAIN = (1, 1)
# Positions along both axes, seconds, the estimate, and the error.
Figures: TypeAlias = "tuple[winograd_ways.Counts, float, float, float]"


def convolution(
    w: np.ndarray, height: int, width: int, strides: tuple[int, int]
) -> onnx.ModelProto:
    """One Conv of an image of known size, padded by half of a filter."""
    pads = [n // 2 for n in w.shape[2:]] * 2
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[1, {w.shape[1]}, {height}, {width}] x) => (float[1, {w.shape[0]}, H, W] y) {{
            y = Conv<pads = {pads}, strides = {list(strides)}>(x, w)
        }}"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return model


def exact(x: np.ndarray, w: np.ndarray, strides: tuple[int, int]) -> np.ndarray:
    """The sums in float64."""
    rows, columns = (n // 2 for n in w.shape[2:])
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (rows, rows), (columns, columns)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    taps = taps[:, :, :: strides[0], :: strides[1]]
    result: np.ndarray = np.einsum("nchwij,kcij->nkhw", taps, w, optimize=True)
    return result


def measured(shape: str) -> tuple[winograd_ways.Counts, list[Figures]]:
    """What is chosen, and the figures of each form."""
    filters, channels, height, width, *more = map(int, shape.split("x"))
    rows, columns, down, right = (*more, *(3, 3, 1, 1)[len(more) :])
    random = np.random.default_rng(0)
    w = random.standard_normal((filters, channels, rows, columns))
    w = (w / np.sqrt(w[0].size)).astype(np.float32)
    x = random.standard_normal((1, channels, height, width)).astype(np.float32)
    windows = [
        Window(n, step, 1, n // 2, n // 2, (size + n // 2 * 2 - n) // step + 1, 0)
        for n, step, size in ((rows, down, height), (columns, right, width))
    ]
    along = ((1, *FORMS) if window.kernel >= TAPS else (1,) for window in windows)
    model, wanted = convolution(w, height, width, (down, right)), exact(x, w, (down, right))
    forms, calls, errors = list(itertools.product(*along)), [], []
    for counts in forms:
        forced = () if counts == PLAIN else counts
        with mock.patch.object(winograd_ways, "fastest", lambda *_, forced=forced: forced):
            session = ostinato.InferenceSession(model, cache_dir=None)
        calls.append(session.bind({"x": x}))
        found = session.run(None, {"x": x})[0]
        errors.append(float(np.sqrt(np.square(found - wanted).mean())))
    costs = [winograd_ways.cost(winograd_ways.way_of(w, windows, counts)) for counts in forms]
    chosen = winograd_ways.fastest(Tensor("float32", w.shape, None, known=w), windows, 1)
    return chosen or PLAIN, [*zip(forms, least_seconds(calls), costs, errors, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = harness.parser("forms of convolutions")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="SHAPE")
    arguments = parser.parse_args()
    harness.start(arguments)
    forms = list(itertools.product((1, *FORMS), repeat=2))
    titles = ["plain" if counts == PLAIN else " by ".join(map(str, counts)) for counts in forms]
    table = harness.table("Time, estimate, error", "shape", titles)
    for shape in arguments.shapes:
        chosen, found = measured(shape)
        _, seconds, costs, errors = zip(*found, strict=True)
        cells = {
            counts: f"{s / min(seconds):.2f} {c / min(costs):.2f} {e / errors[0]:.2f}"
            + " *" * (counts == chosen)
            for counts, s, c, e in found
        }
        table.add_row(shape, *(cells.get(counts, "") for counts in forms))
    harness.console.print(table)


if __name__ == "__main__":
    main()
