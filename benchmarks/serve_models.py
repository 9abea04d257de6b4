"""Models that `bench_serve` serves: the demo's denoiser, and DTLN as one model of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.compose
import onnx.helper as oh
import onnx.version_converter

from benchmarks import dtln
from benchmarks.bench_stream import batched

F32 = onnx.TensorProto.FLOAT
STATE = (2, 128, 2)
_OPSET = 20


@dataclass(frozen=True)
class Streamed:
    """A model with sequences.

    input, width: what a frame is, `[frames, 1, width]`. seconds: of signal in a frame. message:
    frames in a message.
    """

    path: Path
    states: Mapping[str, str]
    input: str
    output: str
    width: int
    seconds: float
    message: int

    @property
    def period(self) -> float:
        """Seconds of signal in a message."""
        return self.message * self.seconds

    def frames(self, seed: int, count: int) -> np.ndarray:
        """Frames to send, `[count, 1, width]`."""
        return np.random.default_rng(seed).random((count, 1, self.width), np.float32)


def denoiser() -> Streamed:
    """The demo's denoiser: magnitudes in, a mask out, a frame every 10 ms, messages of 160 ms."""
    path = Path(__file__).parent.parent / "ostinato" / "demo" / "denoiser.onnx"
    return Streamed(path, {"state": "state_out"}, "magnitude", "mask", 161, 0.01, 16)


def dtln_blocks(folder: Path, given: Path, batch: bool) -> Streamed:
    """DTLN over blocks of 512 samples, one every 8 ms: both models and the transforms in a Scan.

    batch: with a run-time batch, which the models as their authors give them do not have.
    """
    parts = []
    for path, prefix in zip(dtln.paths(given), ("a_", "b_"), strict=True):
        # The DFT of a real block came with 17, its inverse with 20.
        proto = onnx.version_converter.convert_version(onnx.load(str(path)), _OPSET)
        if batch:
            proto = batched(proto, {})
        parts.append(onnx.compose.add_prefix(proto, prefix))
    path = folder / f"dtln_blocks{'_batch' * batch}.onnx"
    onnx.save(_scanned(parts, "N" if batch else 1), str(path))
    states = {"a_state": "a_next", "b_state": "b_next"}
    return Streamed(path, states, "blocks", "cleaned", dtln.BLOCK, dtln.HOP / dtln.RATE, 10)


def _scanned(parts: list[onnx.ModelProto], batch: str | int) -> onnx.ModelProto:
    first, second = (part.graph for part in parts)
    constants, nodes = _transforms()
    nodes["before"][-1].output[0] = first.input[0].name
    nodes["after"][0].input[0] = first.output[0].name
    nodes["after"][-1].output[0] = second.input[0].name
    states = [first.input[1].name, second.input[1].name]
    body = oh.make_graph(
        [*nodes["before"], *first.node, *nodes["after"], *second.node],
        "block",
        [
            *(_tensor(name, batch, *STATE) for name in states),
            _tensor("block", batch, dtln.BLOCK),
        ],
        [
            _tensor(first.output[1].name, batch, *STATE),
            _tensor(second.output[1].name, batch, *STATE),
            _tensor(second.output[0].name, batch, 1, dtln.BLOCK),
        ],
        [*first.initializer, *second.initializer],
    )
    scan = oh.make_node(
        "Scan",
        ["a_state", "b_state", "blocks"],
        ["a_next", "b_next", "cleaned"],
        body=body,
        num_scan_inputs=1,
    )
    graph = oh.make_graph(
        [scan],
        "dtln_blocks",
        [
            _tensor("blocks", "T", batch, dtln.BLOCK),
            _tensor("a_state", batch, *STATE),
            _tensor("b_state", batch, *STATE),
        ],
        [
            _tensor("cleaned", "T", batch, 1, dtln.BLOCK),
            _tensor("a_next", batch, *STATE),
            _tensor("b_next", batch, *STATE),
        ],
        constants,
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", _OPSET)], ir_version=9)


def _tensor(name: str, *shape: str | int) -> onnx.ValueInfoProto:
    return oh.make_tensor_value_info(name, F32, shape)


def _transforms() -> tuple[list[onnx.TensorProto], dict[str, list[onnx.NodeProto]]]:
    """The Fourier transform of a block, and its inverse behind the mask."""
    node = oh.make_node
    before = [
        node("Unsqueeze", ["block", "around"], ["real"]),
        node("DFT", ["real", "size", "bins_axis"], ["spectrum"], onesided=1),
        node("ReduceL2", ["spectrum", "last"], ["magnitude"], keepdims=0),
    ]
    after = [
        node("Unsqueeze", ["mask", "last"], ["factor"]),
        node("Mul", ["spectrum", "factor"], ["masked"]),
        node("DFT", ["masked", "size", "bins_axis"], ["signal"], onesided=1, inverse=1),
        node("Squeeze", ["signal", "last"], ["estimate"]),
    ]
    constants = {"around": [1, 3], "last": [3], "size": dtln.BLOCK, "bins_axis": 2}
    tensors = [
        onnx.numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in constants.items()
    ]
    return tensors, {"before": before, "after": after}
