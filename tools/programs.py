"""C programs for any machine, compiled by Zig and run by an emulator, and programs of libraries.

`Built.results` calls a library that `ostinato.build` would write, as a C program on the machine it
is made for, and gives the outputs.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.aot.build import make_library, static_files
from ostinato.aot.interface import Interface, Size, Tensor
from ostinato.aot.library import Library
from ostinato.codegen.target import find_target, host_target
from ostinato.element_types import numpy_dtype
from ostinato.machine.targets import Target

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]

ROOM = Path.home() / ".cache" / "ostinato-targets"
"""The folder of what is made once for all runs: emulated systems, what Zig compiled."""

# Rows of growing states that a program has room for.
_CAPACITY = 64
_PATIENCE = 600
# How Zig names the systems; programs for Linux are static.
_TRIPLES = {
    ("x86_64", "linux"): "x86_64-linux-musl",
    ("aarch64", "linux"): "aarch64-linux-musl",
    ("x86_64", "windows"): "x86_64-windows-gnu",
    ("wasm32", "none"): "wasm32-wasi",
}


class Unavailable(Exception):
    """A program cannot be made or run here; the message says why."""


@dataclass(frozen=True)
class Machine:
    """Where programs for a target run.

    title: for people. cpu: as qemu names it, for AArch64.
    """

    title: str
    target: str
    cpu: str = ""


MACHINES = (
    Machine("AVX-512", "x86-64-v4"),
    Machine("AVX2", "x86-64-v3"),
    Machine("Cortex-A53", "cortex-a53", "cortex-a53"),
    Machine("Cortex-A76", "raspberry-pi-5", "cortex-a76"),
    # No CPU of qemu 7.2 is one; this one has all of its instructions.
    Machine("Neoverse V1", "graviton3", "max"),
    Machine("Win64", "windows"),
    Machine("wasm", "wasm"),
)


def compiled(
    target: Target, folder: Path, files: Sequence[str], options: Sequence[str] = ()
) -> Path:
    """A program of these files, C, objects and libraries, in a folder. Raises `Unavailable`."""
    if importlib.util.find_spec("ziglang") is None:
        raise Unavailable("ziglang is not installed")
    suffix = {"windows": ".exe", "none": ".wasm"}.get(target.system, "")
    program = folder / f"program{suffix}"
    triple = _TRIPLES[target.architecture, target.system]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", triple, "-O1", *options]
    execute([*command, *files, "-o", str(program)], folder)
    return program


def run(program: Path, arguments: Sequence[str], cpu: str = "") -> str:
    """What a program prints, which runs in its own folder. Raises `Unavailable`."""
    if program.suffix == ".wasm":
        command = [sys.executable, "-m", "tools.wasi", program.name]
        return execute([*command, *arguments], program.parent)
    emulator = "wine" if program.suffix == ".exe" else "qemu-aarch64-static" if cpu else None
    if emulator is not None and shutil.which(emulator) is None:
        raise Unavailable(f"there is no {emulator} on this machine")
    before = [] if emulator is None else [emulator, *(["-cpu", cpu] if cpu else [])]
    return execute([*before, str(program), *arguments], program.parent)


def execute(command: Sequence[str], folder: Path) -> str:
    """What a command prints. Raises `AssertionError` with all of it where the command fails."""
    # What both make at their first use they find again.
    (ROOM / "wine").mkdir(parents=True, exist_ok=True)
    kept = {"WINEPREFIX": str(ROOM / "wine"), "ZIG_GLOBAL_CACHE_DIR": str(ROOM / "zig")}
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **kept, "WINEDEBUG": "-all", "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    """A library, and calls of it that a C program makes.

    calls: the inputs of each, by name; those of one size. Where the library has states, they are
    steps of one object, and the states are left out.
    """

    library: Library
    calls: Sequence[Feeds]

    @classmethod
    def of(
        cls,
        model: Any,
        target: str,
        states: Any,
        calls: Sequence[Feeds],
        initial: Feeds | None = None,
    ) -> Built:
        """Compile the library; the arguments are those of `ostinato.build`."""
        return cls(make_library(model, target, states, "model", initial, "inside", {}), calls)

    def results(
        self, shapes: Mapping[str, Sequence[tuple[int, ...]]], machine: Machine, compiler: str = ""
    ) -> list[dict[str, Array]]:
        """The outputs of each call. Raises `Unavailable`.

        shapes: of each output, call by call. compiler: a command in place of Zig.
        """
        target = find_target(machine.target)
        if not compiler and target.architecture == "x86_64" and target.system == "linux":
            require_features(target)
        outputs = self._outputs(shapes)
        with tempfile.TemporaryDirectory(prefix="ostinato-program-") as name:
            folder = Path(name)
            for file, contents in static_files(self.library).items():
                (folder / file).write_bytes(contents)
            given = [feeds[t.name] for feeds in self.calls for t in self._inputs]
            (folder / "inputs").write_bytes(b"".join(a.tobytes() for a in given))
            (folder / "main.c").write_text(self.source(shapes))
            files = ["main.c", f"lib{self.library.name}.a"]
            if compiler:
                execute([*compiler.split(), *files, "-o", "program"], folder)
                program = folder / "program"
            else:
                program = compiled(target, folder, files)
            run(program, ["inputs", "outputs"], machine.cpu)
            data = (folder / "outputs").read_bytes()
        made, place = [], 0
        for call in range(len(self.calls)):
            made.append({})
            for tensor in outputs:
                shape, dtype = shapes[tensor.name][call], numpy_dtype(tensor.dtype)
                count = math.prod(shape)
                array = np.frombuffer(data, dtype, count, place).reshape(shape)
                made[-1][tensor.name], place = array, place + array.nbytes
        assert place == len(data)
        return made

    @property
    def _interface(self) -> Interface:
        return self.library.interface

    @property
    def _inputs(self) -> list[Tensor]:
        places = self._interface.places
        return [self._interface.inputs[i] for i in (places.get("step") or places["run"])[0]]

    def _outputs(self, shapes: Mapping[str, Any]) -> list[Tensor]:
        places = self._interface.places
        found = [self._interface.outputs[i] for i in (places.get("step") or places["run"])[1]]
        return [tensor for tensor in found if tensor.name in shapes]

    def _size(self, size: Size) -> int:
        """A size that the calls have."""
        feeds = self.calls[0]
        if size.kind == "spare":
            return 1 << 22
        if size.kind == "capacity":
            return _CAPACITY
        if size.kind == "value":
            position, element = size.source
            name = self._interface.inputs[position].name
            return max(int(f[name].reshape(-1)[element]) for f in self.calls)
        for tensor in self._interface.inputs:
            if size.name in tensor.shape:
                axis = tensor.shape.index(size.name)
                # A state's own dimension is that of one stream.
                return int(feeds[tensor.name].shape[axis]) if tensor.name in feeds else 1
        raise AssertionError(f"no input has the size {size.name}")

    def source(self, shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> str:
        """The program, which reads all inputs from one file and writes all outputs to another."""
        interface, name = self._interface, self._interface.name
        call = "step" if interface.states else "run"
        given = interface.step_sizes if interface.states else interface.run_sizes
        places = interface.places[call][1]
        outputs = [interface.outputs[i] for i in places]
        sizes = [self._size(size) for size in interface.sizes]
        of = {size.identifier: self._size(size) for size in interface.sizes}
        blocks = str(len(self._inputs) + len(outputs))
        lines = [_HEAD.replace("NAME", name).replace("BLOCKS", blocks)]
        lines += [f"    int64_t sizes[{len(interface.outputs)}][{interface.prefix}_MAX_RANK];"]
        if interface.has_plain_outputs:
            lines += ["    (void)sizes;"]
        else:
            lines += [f"    CHECK({name}_output_sizes({_listed(sizes, '&sizes[0][0]')}));"]
        for i, tensor in enumerate(self._inputs):
            bytes_ = self.calls[0][tensor.name].nbytes
            lines += [f"    {tensor.c_type} *in{i} = block({bytes_});"]
        for i, (place, tensor) in enumerate(zip(places, outputs, strict=True)):
            factors = [
                str(d if isinstance(d, int) else of[d])
                if d is not None
                else f"(size_t)sizes[{place}][{axis}]"
                for axis, d in enumerate(tensor.dims)
            ]
            product = " * ".join([str(tensor.item_bytes), *factors])
            lines += [f"    size_t bytes{i} = {product};"]
            lines += [f"    {tensor.c_type} *out{i} = block(bytes{i});"]
        lines += [f"    {name} *object = NULL;"]
        lines += [f"    CHECK({name}_create({_listed(sizes, '&object')}));"]
        written = {
            i: [math.prod(s) * t.item_bytes for s in shapes[t.name]]
            for i, t in enumerate(outputs)
            if t.name in shapes
        }
        for i, counts in written.items():
            listed = ", ".join(map(str, counts))
            lines += [f"    static const size_t write{i}[] = {{{listed}}};"]
        lines += [f"    for (int call = 0; call < {len(self.calls)}; call++) {{"]
        for i, tensor in enumerate(self._inputs):
            lines += [f"        read_all(in{i}, {self.calls[0][tensor.name].nbytes}, in);"]
        arguments = [
            "object",
            *(str(of[size.identifier]) for size in given),
            *(f"in{i}" for i in range(len(self._inputs))),
            *(f"out{i}" for i in range(len(outputs))),
        ]
        lines += [f"        CHECK({name}_{call}({', '.join(arguments)}));"]
        lines += [f"        intact(out{i}, bytes{i});" for i in range(len(outputs))]
        lines += [f"        write_all(out{i}, write{i}[call], out);" for i in written]
        lines += ["    }", f"    {name}_destroy(object);"]
        lines += ["    while (made) free(blocks[--made]);", "    return fclose(in) | fclose(out);"]
        return "\n".join([*lines, "}", ""])


def require_features(target: Target) -> None:
    """Raise `Unavailable` where this machine lacks what code for the target is made of."""
    missing = sorted(target.enabled - host_target().enabled)
    if host_target().architecture != target.architecture:
        raise Unavailable(f"this machine is none of {target.architecture}")
    if missing:
        raise Unavailable(f"this CPU lacks {', '.join(missing)}")


def _listed(sizes: Sequence[int], last: str) -> str:
    return ", ".join([*map(str, sizes), last])


_HEAD = """#include "NAME.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) check(call, #call)

static void check(int code, const char *call) {
    if (!code) return;
    fprintf(stderr, "%s: %d: %s\\n", call, code, NAME_error_text(code));
    exit(1);
}

static void *blocks[BLOCKS];
static int made;

/* Memory at a multiple of 64 bytes with 64 marked ones behind it. */
static void *block(size_t bytes) {
    char *memory = blocks[made++] = malloc(bytes + 192);
    if (!memory) exit(2);
    memory += 64 - (uintptr_t)memory % 64;
    memset(memory, 0xa5, bytes + 64);
    return memory;
}

static void intact(const void *memory, size_t bytes) {
    const unsigned char *behind = (const unsigned char *)memory + bytes;
    for (int i = 0; i < 64; i++)
        if (behind[i] != 0xa5) {
            fprintf(stderr, "written behind the end of an output\\n");
            exit(3);
        }
}

static void read_all(void *memory, size_t bytes, FILE *file) {
    if (fread(memory, 1, bytes, file) != bytes) exit(4);
}

static void write_all(const void *memory, size_t bytes, FILE *file) {
    if (fwrite(memory, 1, bytes, file) != bytes) exit(5);
}

int main(int count, char **arguments) {
    if (count != 3) return 6;
    FILE *in = fopen(arguments[1], "rb"), *out = fopen(arguments[2], "wb");
    if (!in || !out) return 7;
"""
