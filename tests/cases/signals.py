"""Cases of Fourier transforms, framing and windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.cases.case import BATCHES, Array, Case, In, node, text

# One codelet, several stages with and without whole vectors, odd lengths, a large prime factor.
LENGTHS = (1, 2, 15, 16, 45, 34, 98, 400, 512)
COMPLEX_LENGTHS = (1, 7, 12, 37, 50, 256)
SIGNALS = ({"N": 3, "L": 53}, {"N": 1, "L": 32}, {"N": 0, "L": 40}, {"N": 2, "L": 100})


def scalar(value: int) -> Array:
    return np.array(value, np.int64)


def dft(
    name: str, *operands: In | Array | None, op: str = "DFT", witness: bool = False, **demands: Any
) -> Case:
    """Errors are in units of the largest value.

    witness: onnxruntime is accurate for powers of two only, and has no onesided inverse.
    """
    return node(name, op, *operands, length=2, witness=witness, **demands)


def stft(name: str, *operands: In | Array | None, **demands: Any) -> Case:
    return dft(name, *operands, op="STFT", ranks=(4,), **demands)


def power(n: int) -> bool:
    return n & (n - 1) == 0


def window(op: str, name: str, size: int, **attributes: Any) -> Case:
    return node(name, op, scalar(size), ulps=2, length=1, **attributes)


WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow")
MEL = (scalar(8), scalar(64), scalar(8000), np.float32(100), np.float32(3900))

CASES = [
    *(
        dft(f"real-{n}", In(("N", n, 1)), sizes=BATCHES[:3], batch=True, witness=power(n))
        for n in LENGTHS
    ),
    *(dft(f"onesided-{n}", In((2, n, 1)), onesided=1, witness=power(n)) for n in LENGTHS),
    *(dft(f"complex-{n}", In((2, n, 2)), witness=power(n)) for n in COMPLEX_LENGTHS),
    *(dft(f"inverse-{n}", In((2, n, 2)), inverse=1, witness=power(n)) for n in COMPLEX_LENGTHS),
    *(
        dft(
            f"onesided-inverse-{n}",
            In(("N", n // 2 + 1, 2)),
            scalar(n),
            onesided=1,
            inverse=1,
            sizes=BATCHES[:2],
            batch=True,
        )
        for n in LENGTHS
    ),
    dft("onesided-inverse-default", In((2, 9, 2)), onesided=1, inverse=1),
    dft("inverse-of-real", In((2, 12, 1)), inverse=1),
    dft("batch", In(("N", 60, 1)), onesided=1, sizes=BATCHES, batch=True),
    dft("float64", In((3, 48, 1), "float64"), onesided=1),
    dft("float64-complex", In((3, 70, 2), "float64")),
    dft("float64-large-prime", In((2, 37, 1), "float64"), onesided=1),
    dft("float16", In((3, 20, 1), "float16"), onesided=1, ulps=1),
    dft("opset-17", In((2, 10, 4, 1)), opset=17),
    dft("opset-17-axis", In((2, 10, 18, 2)), opset=17, axis=-2, inverse=1),
    dft("opset-17-axis-0", In((20, 3, 1)), opset=17, axis=0, onesided=1),
    dft("axis-0", In((24, 5, 2)), None, scalar(0)),
    dft("axis-1", In((2, 24, 5, 1)), None, scalar(1), onesided=1),
    dft("axis-run-time-rest", In((20, "N", 2)), None, scalar(0), sizes=BATCHES),
    dft("padded", In((2, 21, 1)), scalar(32), onesided=1),
    dft("padded-complex", In((2, 5, 3, 2)), scalar(18), scalar(-3), inverse=1),
    dft("padded-from-1", In((2, 1, 1)), scalar(6)),
    dft("truncated", In((2, 21, 1)), scalar(18)),
    dft("truncated-complex", In((2, 21, 2)), scalar(8)),
    dft(
        "run-time-extent",
        In(("N", "L", 1)),
        scalar(40),
        onesided=1,
        sizes=SIGNALS,
        batch=True,
    ),
    dft(
        "inverse-run-time-extent",
        In(("N", "L", 2)),
        scalar(40),
        onesided=1,
        inverse=1,
        sizes=({"N": 2, "L": 15}, {"N": 1, "L": 30}),
    ),
    dft("run-time-length", In((1, 20, 1)), In((), "int64", low=18, high=19), native=False),
    stft(
        "window-and-length",
        In((2, 70, 1)),
        scalar(16),
        np.hamming(20).astype(np.float32),
        scalar(20),
    ),
    stft("length", In((2, 70, 1)), scalar(9), None, scalar(25)),
    stft("whole", In((2, 36, 1)), scalar(1)),
    stft("no-parts", In(("N", "L")), scalar(16), In((32,)), sizes=SIGNALS[:2], witness=True),
    stft("no-parts-both-sides", In((2, 70)), scalar(10), None, scalar(30), onesided=0),
    stft("both-sides", In((2, 70, 1)), scalar(16), In((40,)), onesided=0),
    stft(
        "window-run-time",
        In(("N", 64, 1)),
        scalar(16),
        In((32,)),
        sizes=BATCHES[:2],
        witness=True,
    ),
    stft("complex", In((2, 70, 2)), scalar(10), In((30,)), onesided=0),
    stft("float64", In((1, 200, 1), "float64"), scalar(40), np.hanning(100)),
    stft("large-prime", In((2, 80, 1)), scalar(8), None, scalar(38)),
    stft(
        "run-time-step",
        In((1, 64, 1)),
        In((), "int64", low=4, high=5),
        None,
        scalar(16),
        native=False,
    ),
    text(
        "window-into-stft",
        """g (float[N, L, 1] x) => (float[N, F, 33, 2] y) {
            window = HannWindow (size)
            y = STFT (x, step, window)
        }""",
        ({"N": 2, "L": 200}, {"N": 1, "L": 64}),
        constants={"size": scalar(64), "step": scalar(16)},
        batch=True,
        length=2,
    ),
    text(
        "spectrum-in-rows-turned-over",
        """g (float[N, T] x) => (float[N, 10, F] y) {
            padded = Pad (x, pads)
            samples = Unsqueeze (padded, last)
            z = STFT (samples, step, window)
            rows = Reshape (z, shape)
            y = Transpose <perm = [0, 2, 1]> (rows)
        }""",
        ({"N": 2, "T": 20}, {"N": 1, "T": 4}),
        constants={
            "pads": np.array([0, 4, 0, 0], np.int64),
            "last": np.array([2], np.int64),
            "step": scalar(3),
            "window": np.hanning(8).astype(np.float32),
            "shape": np.array([0, -1, 10], np.int64),
        },
        batch=True,
        length=4,
    ),
    text(
        "power-spectrum-into-mel-bands",
        """g (float[N, T, 64] x) => (float[N, T, 8] y) {
            w = Unsqueeze (x, last)
            z = DFT <onesided = 1> (w)
            squares = Mul (z, z)
            power = ReduceSum <keepdims = 0> (squares, last)
            mel = MelWeightMatrix (bands, size, rate, low, high)
            y = MatMul (power, mel)
        }""",
        ({"N": 2, "T": 3}, {"N": 1, "T": 1}),
        constants={
            "last": np.array([-1], np.int64),
            **dict(zip(("bands", "size", "rate", "low", "high"), MEL, strict=True)),
        },
        batch=True,
        ulps=20,
        length=4,
    ),
    *(window(op, "periodic", 20) for op in WINDOWS),
    *(window(op, "symmetric", 21, periodic=0) for op in WINDOWS),
    *(
        window(op, "float64", 33, output_datatype=TensorProto.DOUBLE, witness=False)
        for op in WINDOWS
    ),
    window("HannWindow", "integers", 8, output_datatype=TensorProto.INT32, witness=False),
    window("HannWindow", "empty", 0, ranks=(1,)),
    text(
        "window-of-run-time-size",
        """g (float[T] x) => (float[T] y) {
            size = Size (x)
            window = HammingWindow (size)
            y = Mul (window, x)
        }""",
        ({"T": 20}, {"T": 1}, {"T": 0}),
        ulps=4,
    ),
    node("bands", "MelWeightMatrix", *MEL),
    node(
        "runtime",
        "MelWeightMatrix",
        In((), "int64", values=["B"]),
        In((), "int64", values=["D"]),
        In((), "int64", values=["R"]),
        In((), values=[100]),
        In((), values=[3900]),
        sizes=(
            {"B": 8, "D": 64, "R": 8000},
            {"B": 1, "D": 17, "R": 16000},
            {"B": 20, "D": 32, "R": 8001},
        ),
        ranks=(2,),
    ),
    node(
        "runtime-edges",
        "MelWeightMatrix",
        *MEL[:3],
        In((), "float64", values=[0]),
        In((), "float64", values=[2000]),
        output_datatype=TensorProto.DOUBLE,
        witness=False,
    ),
    node("narrow-bands", "MelWeightMatrix", scalar(20), scalar(32), *MEL[2:]),
    node("float64", "MelWeightMatrix", *MEL, output_datatype=TensorProto.DOUBLE, witness=False),
    node("integers", "MelWeightMatrix", *MEL, output_datatype=TensorProto.INT64, witness=False),
]
