"""Draws signals as spectrograms below each other, on one time axis and one colour scale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.demo.signal import SAMPLE_RATE, FloatArray, analyze

_SECONDS_SHOWN = 8
_RANGE_DB = 70


def write_spectrograms(figure: Any, path: Path, panels: Mapping[str, FloatArray]) -> None:
    """Draws on an empty matplotlib figure, and writes it as PNG, one panel per title.

    Signals [samples] are cut to their first eight seconds. Colours are levels in dB relative to
    the loudest point of the first signal.
    """
    shown = [signal[: _SECONDS_SHOWN * SAMPLE_RATE] for signal in panels.values()]
    magnitudes = [np.abs(analyze(signal)) for signal in shown]
    loudest = magnitudes[0].max()
    extent = (0, len(shown[0]) / SAMPLE_RATE, 0, SAMPLE_RATE / 2000)
    figure.set_size_inches(10, 2.6 * len(panels))
    figure.set_layout_engine("constrained")
    all_axes = figure.subplots(len(panels), 1, sharex=True)
    for axes, title, magnitude in zip(all_axes, panels, magnitudes, strict=True):
        image = axes.imshow(
            20 * np.log10(np.maximum(magnitude / loudest, 1e-6)).T,
            origin="lower",
            aspect="auto",
            extent=extent,
            vmin=-_RANGE_DB,
            vmax=0,
            cmap="magma",
        )
        axes.set_title(title, loc="left")
        axes.set_ylabel("Frequency (kHz)")
    all_axes[-1].set_xlabel("Time (s)")
    figure.colorbar(image, ax=all_axes, label="Level (dB re loudest point before)")
    # With more of zlib's effort the file takes a third longer to write, and is as large.
    figure.savefig(path, dpi=120, format="png", pil_kwargs={"compress_level": 3})
