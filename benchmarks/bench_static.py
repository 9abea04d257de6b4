"""Models as onnxruntime's quantiser writes them, beside onnxruntime on the same files.

    taskset -c 1 python -m benchmarks.bench_static [FILE ...] [--words WORD ...]

FILE is a network in float32 of fixed sizes, such as those of `tools.torch_networks`; without any,
products and convolutions of `benchmarks.models`. Each is written with QuantizeLinear and
DequantizeLinear around its operators (qdq), with operators of integers (qop), and qdq once more as
onnxruntime's optimiser leaves it (extended). Times are CPU seconds of calls that take turns, one
thread; a ratio is how many times faster than ours in float32.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx

import ostinato
from benchmarks import harness, models
from benchmarks.bench_narrow import measure

SAMPLES = 4


def cases() -> dict[str, Callable[[], models.Model]]:
    """Products and convolutions by name."""
    return {
        "matmul_1x512x512": lambda: models.matmul("matmul", 1, 512, 512),
        "matmul_512x512x512": lambda: models.matmul("matmul", 512, 512, 512),
        "conv2d_64to64_k3x3_32x32": lambda: models.conv("conv", (64, 64), [32, 32], [3, 3]),
        "conv1d_64to64_k3_400": lambda: models.conv("conv", (64, 64), [400], [3]),
    }


def given(proto: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Inputs of a model, one draw for each seed."""
    return models.feeds(proto, seed)


def written(proto: onnx.ModelProto, per_channel: bool) -> dict[str, onnx.ModelProto]:
    """The model as onnxruntime's quantiser and its optimiser write it."""
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter([given(proto, seed) for seed in range(SAMPLES)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    logging.getLogger().setLevel(logging.ERROR)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(Path(folder, name)) for name in ("f32.onnx", "int8.onnx"))
        # Without nodes that pass on constants, which the quantiser does not know.
        onnx.save(optimised(proto, Path(target), "BASIC"), source)
        for name, form in (("qdq", q.QuantFormat.QDQ), ("qop", q.QuantFormat.QOperator)):
            q.quantize_static(
                source,
                target,
                Reader(),
                quant_format=form,
                per_channel=per_channel,
                activation_type=q.QuantType.QUInt8,
                weight_type=q.QuantType.QInt8,
            )
            found[name] = onnx.load(target)
        found["extended"] = optimised(found["qdq"], Path(target), "EXTENDED")
    return found


def optimised(proto: onnx.ModelProto, path: Path, level: str) -> onnx.ModelProto:
    """The model as a level of onnxruntime's optimiser leaves it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return onnx.load(path)


def ours(proto: onnx.ModelProto, **options: object) -> Callable[[], object]:
    """A call of ours."""
    session = ostinato.InferenceSession(proto, cache_dir=None, **options)
    return session.bind(given(proto, 0))


def theirs(proto: onnx.ModelProto) -> Callable[[], object]:
    """A call of onnxruntime's."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    feeds = given(proto, 0)
    return lambda: session.run(None, feeds)


def calls(proto: onnx.ModelProto, per_channel: bool) -> Mapping[str, Callable[[], object]]:
    """What is measured of a model, by the title of its column."""
    forms = written(proto, per_channel)
    found = {"f32": ours(proto)} | {name: ours(form) for name, form in forms.items()}
    found["qdq, integers"] = ours(forms["qdq"], integer_products=True)
    found |= {f"ort {name}": theirs(forms[name]) for name in ("qdq", "qop")}
    return found | {"ort f32": theirs(proto)}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("models as onnxruntime's quantiser writes them")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--words", nargs="*", default=(), help="models whose name has one of them")
    parser.add_argument("--per-tensor", action="store_true", help="one scale for all weights")
    arguments = parser.parse_args()
    harness.start(arguments)
    made = {file.stem: onnx.load(file) for file in arguments.files}
    made = made or {name: make().proto for name, make in cases().items()}
    titles: list[str] = []
    rows = []
    for name, proto in made.items():
        if arguments.words and not any(word in name for word in arguments.words):
            continue
        found = measure(calls(proto, not arguments.per_tensor))
        titles = list(found)
        cells = [f"{spent * 1e6:.0f} {found['f32'] / spent:.2f}x" for spent in found.values()]
        rows.append((name, cells))
    table = harness.table("us of a call, and times faster than f32", "model", titles)
    for name, cells in rows:
        table.add_row(name, *cells)
    harness.console.print(table)


if __name__ == "__main__":
    main()
