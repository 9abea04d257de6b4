"""Fourier transforms of real frames, beside other runtimes and numpy.fft.

    taskset -c 1 python -m benchmarks.bench_fourier [--peers A,B] [--json FILE]

Every model is one DFT or STFT node, onesided. numpy.fft is called as it is, its allocation of the
result included; `STFT` is framing, a window and the transform there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import harness, peers
from ostinato.cli.timing import interleave

LENGTHS = (256, 400, 512, 960, 1024)
FRAMES = (1, 100)


def transform(n: int, frames: int) -> onnx.ModelProto:
    """The transforms of some frames of n samples."""
    node = helper.make_node("DFT", ["x"], ["y"], onesided=1)
    return _model(node, [frames, n, 1], [frames, n // 2 + 1, 2], {}, 20)


def framed(n: int, frames: int) -> onnx.ModelProto:
    """The transforms of frames of n samples that overlap by half, times a window."""
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"])
    window = np.hanning(n + 1)[:-1].astype(np.float32)
    constants = {"step": np.array(n // 2, np.int64), "window": window}
    length = n + (frames - 1) * (n // 2)
    return _model(node, [1, length, 1], [1, frames, n // 2 + 1, 2], constants, 17)


def _model(
    node: onnx.NodeProto,
    shape: list[int],
    result: list[int],
    constants: dict[str, np.ndarray],
    opset: int,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "fourier",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def numpy_call(name: str, n: int, x: np.ndarray) -> Callable[[], np.ndarray]:
    """The same by numpy.fft."""
    if name.startswith("DFT"):
        signal = np.ascontiguousarray(x[..., 0])
        return lambda: np.fft.rfft(signal)
    window = np.hanning(n + 1)[:-1].astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(x[0, :, 0], n)[:: n // 2]
    return lambda: np.fft.rfft(frames * window)


def measure(
    name: str, model: Path, n: int, x: np.ndarray, wanted: Sequence[str], seconds: float
) -> harness.Figures:
    """Time every peer and numpy.fft side by side; results are compared with numpy.fft's."""
    figures, loaded, calls = harness.Figures(name), {}, {"numpy.fft": numpy_call(name, n, x)}
    expected = calls["numpy.fft"]()
    pairs = np.stack([expected.real, expected.imag], -1)
    for peer in wanted:
        entry = figures.peers[peer] = harness.Measured()
        try:
            loaded[peer] = peers.load(peer, model, {"x": x})
            (output,) = loaded[peer].run({"x": x})
        # A model that a peer cannot run is a result of the benchmark.
        except Exception as error:
            entry.error = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        entry.difference = harness.difference([output.reshape(pairs.shape)], [pairs])
        calls[peer] = loaded[peer].step
    figures.peers["numpy.fft"] = harness.Measured()
    for peer, timing in interleave(calls, seconds).items():
        figures.peers[peer].timing = timing
    return figures


def main() -> None:
    """Measure and print."""
    parser = harness.parser("Fourier transforms, side by side")
    arguments = parser.parse_args()
    wanted = [peer for peer in harness.start(arguments) if peer != "litert"]
    random = np.random.default_rng(0)
    cases = {
        f"{op} {n} x {frames}": (make, n, frames)
        for op, make in (("DFT", transform), ("STFT", framed))
        for n in LENGTHS
        for frames in FRAMES
    }
    with tempfile.TemporaryDirectory() as folder:

        def one(name: str) -> harness.Figures:
            make, n, frames = cases[name]
            model = make(n, frames)
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
            x = random.standard_normal(shape).astype(np.float32)
            return measure(name, path, n, x, wanted, arguments.seconds)

        rows = harness.each("Fourier transforms", list(cases), one)
    harness.console.print(harness.peer_table("Onesided, f32", rows, [*wanted, "numpy.fft"]))
    harness.notes(rows)
    harness.save(arguments.json, {"rows": harness.rows_as_json(rows)})


if __name__ == "__main__":
    main()
