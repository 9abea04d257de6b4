"""DTLN on a stream of speech: the whole suppressor, and its two models alone.

    taskset -c 1 python -m benchmarks.bench_dtln --models DIR [--peers A,B] [--json FILE]

Figures are milliseconds for one second of audio, 125 frames. The whole suppressor includes NumPy's
FFT and every peer's Python interface; the models alone are bound calls. The bound is the time to
read the weights of both models once a frame from the cache that holds them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import dtln, harness, peers
from ostinato.cli.timing import Timing, interleave


def main() -> None:
    """Measure and print."""
    parser = harness.parser("DTLN, frame by frame", seconds=1.0)
    dtln.add_argument(parser)
    harness.add_limits(parser)
    arguments = parser.parse_args()
    *models, speech = dtln.paths(arguments.models, dtln.SPEECH)
    wanted = harness.start(arguments)
    limits = harness.limits(arguments.limits)
    weights = sum(_weight_bytes(model) for model in models)
    bound = dtln.FRAMES_PER_SECOND * weights / limits.bandwidth(weights)

    long = dtln.noisy_speech(speech, 8.0)
    second = long[2 * dtln.RATE : 3 * dtln.RATE].copy()
    whole: dict[str, Callable[[], object]] = {}
    alone: dict[str, Callable[[], object]] = {}
    cleaned: dict[str, np.ndarray] = {}
    errors: dict[str, str] = {}
    for peer in sorted(wanted, key=lambda peer: peer != "onnxruntime"):
        try:
            loaded = [
                peers.load(peer, model, feeds)
                for model, feeds in zip(models, dtln.feeds(), strict=True)
            ]
            stages = [
                _stage(each, list(feeds)) for each, feeds in zip(loaded, dtln.feeds(), strict=True)
            ]
            cleaned[peer] = dtln.pipeline(*stages, long)
        # A runtime that cannot take the models is a result of the benchmark.
        except Exception as error:
            errors[peer] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        whole[peer] = lambda stages=stages: dtln.pipeline(*stages, second)
        alone[peer] = lambda steps=[each.step for each in loaded]: _frames(*steps)
    whole["FFT alone"] = lambda: dtln.pipeline(lambda x, s: (x, s), lambda x, s: (x, s), second)
    with harness.Console(stderr=True).status("Measuring"):
        timings = {
            "whole": interleave(whole, arguments.seconds, slice_seconds=0.1),
            "alone": interleave(alone, arguments.seconds, slice_seconds=0.1),
        }
    _print(timings, cleaned, errors, bound, weights)
    harness.save(
        arguments.json,
        {
            "bound_seconds": bound,
            "weight_bytes": weights,
            **{k: {p: asdict(t) for p, t in v.items()} for k, v in timings.items()},
            "agreement": {peer: _agreement(cleaned, peer) for peer in cleaned},
            "errors": errors,
        },
    )


def _frames(mask_step: Callable[[], object], signal_step: Callable[[], object]) -> None:
    for _ in range(dtln.FRAMES_PER_SECOND):
        mask_step()
        signal_step()


def _stage(loaded: peers.Loaded, names: list[str]) -> dtln.Stage:
    signal, state = names

    def stage(x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, next_state = loaded.run({signal: x, state: s})
        return y, next_state

    return stage


def _weight_bytes(model: Path) -> int:
    """Bytes of the matrices that every frame reads."""
    import onnx

    graph = onnx.load(str(model)).graph
    sizes = (4 * int(np.prod(t.dims)) for t in graph.initializer if t.data_type == 1)
    attributes = (a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute)
    return sum(sizes) + sum(4 * int(np.prod(t.dims)) for t in attributes if t.data_type == 1)


def _agreement(cleaned: dict[str, np.ndarray], peer: str) -> tuple[float, float] | None:
    """(largest difference, signal-to-difference ratio in dB) to onnxruntime's 8 s of output."""
    if peer == "onnxruntime" or "onnxruntime" not in cleaned:
        return None
    reference, difference = cleaned["onnxruntime"], cleaned[peer] - cleaned["onnxruntime"]
    power = max(float(np.sum(difference.astype(np.float64) ** 2)), 1e-30)
    ratio = 10 * np.log10(float(np.sum(reference.astype(np.float64) ** 2)) / power)
    return float(np.abs(difference).max()), float(ratio)


def _print(
    timings: dict[str, dict[str, Timing]],
    cleaned: dict[str, np.ndarray],
    errors: dict[str, str],
    bound: float,
    weights: int,
) -> None:
    whole, alone = timings["whole"], timings["alone"]
    table = harness.table(
        "DTLN, ms for 1 s of audio",
        "runtime",
        ["whole", "/ ours", "models", "/ ours", "bound / models", "max diff to onnxruntime", "SNR"],
    )
    for peer in whole:
        agreement: Any = _agreement(cleaned, peer) if peer in cleaned else None
        table.add_row(
            peer,
            f"{whole[peer].median * 1e3:.2f}",
            _ratio(whole, peer),
            *(
                (
                    f"{alone[peer].median * 1e3:.2f}",
                    _ratio(alone, peer),
                    f"{bound / alone[peer].median:.0%}",
                )
                if peer in alone
                else ("", "", "")
            ),
            *((f"{agreement[0]:.1e}", f"{agreement[1]:.0f} dB") if agreement else ("", "")),
        )
    harness.console.print(table)
    harness.console.print(
        f"bound {bound * 1e3:.2f} ms: {weights / 1e6:.2f} MB of weights a frame, "
        f"{dtln.FRAMES_PER_SECOND} frames"
    )
    for peer, reason in errors.items():
        harness.console.print(f"{peer}: {reason}", style="dim")


def _ratio(timings: dict[str, Timing], peer: str) -> str:
    if "ostinato" not in timings:
        return "-"
    return f"{timings[peer].median / timings['ostinato'].median:.2f}x"


if __name__ == "__main__":
    main()
