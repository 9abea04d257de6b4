"""Calls C libraries of models from Python, as a program in C would, with ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.aot.interface import Size, Tensor
from ostinato.aot.library import Library
from ostinato.aot.objects import ALIGNMENT
from ostinato.element_types import numpy_dtype
from ostinato.native.memory import aligned

Array = np.ndarray[Any, Any]

CC, CXX = shutil.which("gcc"), shutil.which("g++")
needs_compiler = pytest.mark.skipif(CC is None or CXX is None, reason="no gcc and g++ here")


def linked(library: Library, folder: Path) -> ctypes.CDLL:
    """The static library as a shared one in this process."""
    assert CC is not None
    static, shared = folder / f"lib{library.name}.a", folder / f"lib{library.name}.so"
    static.write_bytes(library.archive())
    whole = [CC, "-shared", "-Wl,--whole-archive", str(static), "-Wl,--no-whole-archive"]
    subprocess.run([*whole, "-Wl,--fatal-warnings", "-o", str(shared)], check=True)
    return ctypes.CDLL(str(shared))


class Caller:
    """An object of a linked library, made for these sizes."""

    def __init__(self, library: Library, linked: ctypes.CDLL, sizes: Mapping[str, int]) -> None:
        self.library, self.interface, self._linked = library, library.interface, linked
        self.sizes = dict(sizes)
        self.object = ctypes.c_void_p()
        given = self._sizes(self.interface.sizes, self.sizes)
        weights = []
        if library.weights is not None:
            self.weights = aligned(library.weights)
            weights = [pointer(self.weights), ctypes.c_size_t(self.weights.nbytes)]
        self.check(self.call("create", *weights, *given, ctypes.byref(self.object)))

    def call(self, name: str, *arguments: Any) -> int:
        """The code that a function returns."""
        return int(self._linked[f"{self.library.name}_{name}"](*arguments))

    def state(self, name: str) -> ctypes.c_void_p:
        """The address of a state of the object."""
        function = self._linked[f"{self.library.name}_state_{name}"]
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(self.object))

    def text(self, code: int) -> str:
        """What a code means."""
        function = self._linked[f"{self.library.name}_error_text"]
        function.restype = ctypes.c_char_p
        return bytes(function(code)).decode()

    def check(self, code: int) -> None:
        assert code == 0, f"{code}: {self.text(code)}"

    def _sizes(self, sizes: Sequence[Size], known: Mapping[str, int]) -> list[Any]:
        types = {True: ctypes.c_int64, False: ctypes.c_size_t}
        return [types[s.kind == "value"](known.get(s.name, 1 << 24)) for s in sizes]

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """A whole call."""
        return self._call("run", self.interface.run_sizes, feeds)

    def step(self, feeds: Sequence[Array]) -> list[Array]:
        """A step on the states of the object."""
        return self._call("step", self.interface.step_sizes, feeds)

    def _call(self, name: str, sizes: Sequence[Size], feeds: Sequence[Array]) -> list[Array]:
        interface = self.interface
        inputs, outputs = interface.places[name]
        known = self.sizes | sizes_of([interface.inputs[i] for i in inputs], feeds)
        made = self._outputs(known)
        arrays = [*feeds, *(made[i] for i in outputs)]
        given = self._sizes(sizes, known)
        self.check(self.call(name, self.object, *given, *map(pointer, arrays)))
        return [made[i] for i in outputs]

    def _outputs(self, known: Mapping[str, int]) -> list[Array]:
        interface = self.interface
        if not interface.has_plain_outputs:
            rank = interface.max_rank
            table = np.zeros((len(interface.outputs), rank), np.int64)
            given = self._sizes(interface.sizes, known)
            self.check(self.call("output_sizes", *given, pointer(table)))
            shapes = [
                tuple(row[: len(t.shape)])
                for t, row in zip(interface.outputs, table.tolist(), strict=True)
            ]
        else:
            shapes = [
                tuple(n if isinstance(n, int) else known[n] for n in tensor.shape)
                for tensor in interface.outputs
            ]
        return [
            np.empty(shape, numpy_dtype(tensor.dtype))
            for shape, tensor in zip(shapes, interface.outputs, strict=True)
        ]

    def close(self) -> None:
        """Destroy the object."""
        self._linked[f"{self.library.name}_destroy"](self.object)


def pointer(array: Array) -> ctypes.c_void_p:
    """The address of an array; some address for one without elements."""
    return ctypes.c_void_p(array.ctypes.data or ALIGNMENT)


def sizes_of(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> dict[str, int]:
    """Run-time dimensions by name."""
    known: dict[str, int] = {}
    for tensor, array in zip(tensors, arrays, strict=True):
        pairs = zip(tensor.shape, array.shape, strict=True)
        known |= {name: size for name, size in pairs if isinstance(name, str)}
    return known


def values_of(library: Library, arrays: Sequence[Array]) -> dict[str, int]:
    """Elements of inputs that decide sizes, by the name of the size."""
    values = [size for size in library.interface.sizes if size.kind == "value"]
    return {s.name: int(arrays[s.source[0]].reshape(-1)[s.source[1]]) for s in values}
