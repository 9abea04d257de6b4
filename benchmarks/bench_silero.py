"""silero-vad on one chunk of 32 ms, as shipped and with its conditions folded.

    taskset -c 1 python -m benchmarks.bench_silero --models DIR [--peers A,B] [--json FILE]

Every file of the folder whose name begins with `silero_vad` is a row: bound calls on a chunk of
speech with the 64 samples before it, in microseconds. The bound is the time to read the weights
that a chunk uses once, from the cache that holds them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from benchmarks import harness

# Weights of the network for one sampling rate: basis of the transform, four convolutions, the cell,
# the head.
LAYERS = (
    (258, 256),
    (128, 129 * 3),
    (64, 128 * 3),
    (64, 64 * 3),
    (128, 64 * 3),
    (512, 256),
    (1, 128),
)
CHUNK, CONTEXT, RATE = 512, 64, 16000


def main() -> None:
    """Measure and print."""
    parser = harness.parser("silero-vad, chunk by chunk", seconds=1.0)
    parser.add_argument("--models", type=Path, required=True, help="folder with silero_vad*.onnx")
    harness.add_limits(parser)
    arguments = parser.parse_args()
    wanted = harness.start(arguments)
    limits = harness.limits(arguments.limits)
    weights = 4 * sum(rows * columns for rows, columns in LAYERS)
    bound = weights / limits.bandwidth(weights)
    files = {path.stem: path for path in sorted(arguments.models.glob("silero_vad*.onnx"))}
    if not files:
        raise SystemExit(f"{arguments.models}: no silero_vad*.onnx")

    def row(name: str) -> harness.Figures:
        return harness.measure(
            name, files[name], feeds(files[name]), wanted, arguments.seconds, bound
        )

    rows = harness.each("Measuring", list(files), row)
    title = f"silero-vad, one chunk, us; bound {bound * 1e6:.1f} us for {weights / 1e6:.2f} MB"
    harness.console.print(harness.peer_table(title, rows, wanted))
    harness.notes(rows)
    harness.save(arguments.json, {"bound_seconds": bound, "rows": harness.rows_as_json(rows)})


def feeds(model: Path) -> dict[str, np.ndarray]:
    """A chunk of noise, its state, and the sampling rate where the model asks for it."""
    random = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for given in onnx.load(str(model)).graph.input:
        shape = [d.dim_value or 1 for d in given.type.tensor_type.shape.dim]
        if given.name == "input":
            signal = random.standard_normal((1, CONTEXT + CHUNK))
            found["input"] = (0.1 * signal).astype(np.float32)
        elif given.name == "sr":
            found["sr"] = np.array(RATE, np.int64)
        else:
            found[given.name] = (0.1 * random.standard_normal(shape)).astype(np.float32)
    return found


if __name__ == "__main__":
    main()
