"""C libraries: a program's step beside the bound call in Python, its start, the size of its files.

    taskset -c 1 python -m benchmarks.bench_build [--models DIR] [--only WORD] [--json FILE]

Figures are microseconds of a call, of the same model on the same data, by turns:
medians, the median of the ratios of turns, and the ratio of the least times, which neighbours on
the processor disturb least. `start` is the
least time of a process that makes an object and its first call and ends; `empty` that of one that
does nothing. `rest` is what the static library takes beside the weights. For comparison: the
library of onnxruntime-mobile 1.13.1 for arm64, a minimal build, took 3.2 MB (its documentation
until https://github.com/microsoft/onnxruntime/pull/21605).

--models also measures the DTLN models of `benchmarks.dtln` and silero-vad where they are in DIR.
It takes a C compiler.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import ostinato
from benchmarks import harness, models
from ostinato.aot.build import make_library, static_files, write_files
from ostinato.aot.library import Library
from ostinato.demo import MODEL

_ROUNDS = 100
_SLICE = 5e-3
_STARTS = 60

# Times as many calls as it is told; without a word it makes one call and ends.
_PROGRAM = """
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

{buffers}
static {name} *object;

static int call(void) {{ return {call}; }}

static double now(void)
{{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}}

int main(int count, char **words)
{{
    int code = {create}, calls;
    if (!code) code = call();
    if (code) return puts({name}_error_text(code)), 1;
    if (count < 2) return 0;
    (void)words;
    while (scanf("%d", &calls) == 1) {{
        double start = now();
        for (int i = 0; i < calls; i++) code |= call();
        printf("%.9f %d\\n", now() - start, code);
        fflush(stdout);
    }}
    return 0;
}}
"""
# Runs a program so many times and prints the least time that it took.
_LAUNCHER = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words)
{
    double least = 1e9;
    int runs = atoi(words[2]);
    (void)count;
    for (int i = 0; i < runs; i++) {
        struct timespec a, b;
        int status;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (vfork() == 0) {
            execl(words[1], words[1], (char *)NULL);
            _exit(9);
        }
        wait(&status);
        clock_gettime(CLOCK_MONOTONIC, &b);
        if (status) return 1;
        double time = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        least = time < least ? time : least;
    }
    printf("%.9f", least);
    return 0;
}
"""


@dataclass(frozen=True)
class Case:
    """A model, the sizes of its run-time dimensions, and its states if it is stepped."""

    model: Any
    sizes: Mapping[str, int]
    states: Mapping[str, str] | None = None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="C libraries beside the calls in Python")
    parser.add_argument("--models", type=Path, help="folder of the DTLN models and silero-vad")
    parser.add_argument("--only", default="", help="names of cases that contain this")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("no C compiler: install gcc or clang")
    table = harness.table(
        "C libraries",
        "model",
        ["C us", "bound us", "C / bound", "of least", "start ms", "empty ms", "rest kB"],
    )
    rows = {}
    for name, case in cases(arguments.models).items():
        if arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, harness.Console(stderr=True).status(name):
            row = rows[name] = measured(case, Path(folder), compiler)
        table.add_row(name, *(f"{figure:.4g}" for figure in row.values()))
    harness.console.print(table)
    harness.save(arguments.json, {"cases": rows})


def cases(folder: Path | None) -> dict[str, Case]:
    """What is measured, by name."""
    state = {"state": "state_out"}
    found = {
        "denoiser, step": Case(MODEL, {"time": 1, "batch": 1}, state),
        "denoiser, T = 100": Case(MODEL, {"time": 100, "batch": 1}),
    }
    for name in ("gru_h64_t1", "gru_h256_t1", "lstm_h128_t100"):
        found[name] = Case(models.RECURRENT[name]().proto, {})
    if folder is not None:
        pairs = ({"input_3": "tf_op_layer_stack_2"}, {"input_5": "tf_op_layer_stack_5"})
        for number, states in enumerate(pairs, 1):
            path = folder / f"dtln_model_{number}.onnx"
            if path.exists():
                found[f"DTLN {number}, step"] = Case(path, {}, states)
        path = folder / "silero_vad_16k_op15.onnx"
        if path.exists():
            sizes = {"batch": 1, "sequence": 576}
            found["silero-vad, step"] = Case(path, sizes, {"state": "stateN"})
    return found


def measured(case: Case, folder: Path, compiler: str) -> dict[str, float]:
    """The row of a case."""
    library = make_library(case.model, "host", case.states, "net", None, "inside", {})
    write_files(folder, static_files(library))
    program, empty, launcher = (folder / name for name in ("program", "empty", "launcher"))
    texts = {
        program: source(library, case.sizes),
        empty: "int main(void) { return 0; }",
        launcher: _LAUNCHER,
    }
    for path, text in texts.items():
        path.with_suffix(".c").write_text(text)
        files = [path.with_suffix(".c"), *([folder / "libnet.a"] if path == program else [])]
        command = [compiler, "-O2", "-I", folder, *files, "-o", path]
        subprocess.run([*map(str, command)], check=True)
    native, bound, ratio, least = by_turns(program, bound_call(case, library))
    starts = [started(launcher, path) for path in (program, empty)]
    rest = len(library.archive()) - library.interface.constant_bytes
    return {
        "c": native * 1e6,
        "bound": bound * 1e6,
        "ratio": ratio,
        "least_ratio": least,
        "start_ms": starts[0] * 1e3,
        "empty_ms": starts[1] * 1e3,
        "rest_kb": rest / 1e3,
    }


def source(library: Library, sizes: Mapping[str, int]) -> str:
    """The program, which gives every tensor static memory: inputs 0.1, integers 0."""
    interface = library.interface
    call = "step" if interface.states else "run"
    given = interface.step_sizes if interface.states else interface.run_sizes
    inputs, outputs = interface.places[call]
    buffers, names = [], []
    for tensor in (
        *(interface.inputs[i] for i in inputs),
        *(interface.outputs[i] for i in outputs),
    ):
        # An output whose sizes are expressions has no more elements than this.
        known = [n if isinstance(n, int) else sizes.get(n, 4096) for n in tensor.shape]
        count = int(np.prod(known))
        names.append(f"t{len(names)}")
        fill = ", ".join(["0.1f"] * count) if tensor.c_type == "float" else "0"
        is_input = len(names) <= len(inputs)
        value = f" = {{ {fill} }}" if is_input else ""
        buffers.append(f"static {tensor.c_type} {names[-1]}[{count}]{value};")
    listed = [str(sizes[size.name]) for size in given]
    made = [str(sizes.get(size.name, 1)) for size in interface.sizes]
    return _PROGRAM.format(
        name=library.name,
        buffers="\n".join(buffers),
        call=f"{library.name}_{call}({', '.join(['object', *listed, *names])})",
        create=f"{library.name}_create({', '.join([*made, '&object'])})",
    )


def bound_call(case: Case, library: Library) -> Callable[[], object]:
    """The call in Python that does the same."""
    session = ostinato.InferenceSession(case.model, cache_dir=None)
    interface = library.interface
    inputs, _ = interface.places["step" if interface.states else "run"]
    feeds = {}
    for tensor in (interface.inputs[i] for i in inputs):
        shape = [n if isinstance(n, int) else case.sizes[n] for n in tensor.shape]
        feeds[tensor.name] = np.full(shape, 0.1 if tensor.dtype == "float32" else 0, tensor.dtype)
    if case.states is None:
        return session.bind(feeds)
    return session.stream(case.states, sizes=case.sizes).bind(feeds)


def by_turns(program: Path, bound: Callable[[], object]) -> tuple[float, float, float, float]:
    """Median seconds of a call in C and in Python.

    Then the median of their ratio in a turn, and the ratio of the least times.
    """
    process = subprocess.Popen(
        [program, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None

    def native(calls: int) -> float:
        process.stdin.write(f"{calls}\n")
        process.stdin.flush()
        seconds, code = process.stdout.readline().split()
        assert code == "0", code
        return float(seconds)

    def python(calls: int) -> float:
        count = range(calls)
        start = perf_counter()
        for _ in count:
            bound()
        return perf_counter() - start

    calls = max(1, int(_SLICE * 100 / native(100)))
    samples: dict[Callable[[int], float], list[float]] = {native: [], python: []}
    for _ in range(_ROUNDS):
        for run, found in samples.items():
            # What the other one left in the caches is not its fault.
            run(max(1, calls // 10))
            found.append(run(calls) / calls)
    process.stdin.close()
    process.wait()
    turns = zip(samples[native], samples[python], strict=True)
    ratio = median(mine / other for mine, other in turns)
    ours, theirs = samples.values()
    return median(ours), median(theirs), ratio, min(ours) / min(theirs)


def started(launcher: Path, program: Path) -> float:
    """Least seconds of a process."""
    command = [str(launcher), str(program), str(_STARTS)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
