"""How near inner loops are to what a core can issue, by LLVM's static analysis (llvm-mca).

    python -m tools.mca [--target NAME ...] [--cpu CPU] [--mca PROGRAM]

For each kernel of a GRU, a MatMul and a Conv it takes the innermost loop with the most
multiply-adds, which is that of full tiles, and asks for the cycles of an iteration in the long run.
The issue limit is what the busiest unit of the core needs alone: arithmetic, loads or the front
end. Memory is a first-level cache that always has the data. Debian's packages llvm-NN have the
program.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks import models
from ostinato.codegen.target import find_target
from ostinato.compiler import stages
from ostinato.options import Options


def integer_product(rows: int, terms: int, columns: int) -> onnx.ModelProto:
    """A MatMulInteger of unsigned bytes by constant signed ones."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        int8 (uint8[{rows}, {terms}] x) => (int32[{rows}, {columns}] y)
        {{ y = MatMulInteger(x, w) }}"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).integers(-128, 128, (terms, columns)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


TARGETS = ("graviton3", "raspberry-pi-5", "apple-m1", "cortex-a53")
MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "GRU 256": lambda: models.recurrent_op("gru", "GRU", 256, 100).proto,
    "MatMul 64x256x256": lambda: models.matmul("matmul", 64, 256, 256).proto,
    "int8 64x256x256": lambda: integer_product(64, 256, 256),
    "Conv 64 to 64, k = 3": lambda: models.conv("conv", (64, 64), (400,), (3,)).proto,
}
ITERATIONS = 500
_FUNCTION = re.compile(r'^"?_?(kernel\.[^":]+)"?:')
_LABEL = re.compile(r"^(\.?LBB\w+):")
_BRANCH = re.compile(r"^(?:b\.\w+|b\w+|cbn?z|tbn?z|j\w+)\s.*?(\.?LBB\w+)$")
_PRODUCT = re.compile(r"^(fmla|vfmadd\w+|[us]*dot|usmmla|vpdpbusd)[.\s]")
_LOAD = re.compile(r"^ld\w*[.\s]")


@dataclass(frozen=True)
class Loop:
    """An innermost loop: the kernel around it, its label, and its instructions."""

    kernel: str
    label: str
    body: tuple[str, ...]

    def count(self, kind: re.Pattern[str]) -> int:
        """Instructions of a kind."""
        return sum(bool(kind.match(line)) for line in self.body)

    @property
    def products(self) -> int:
        """Multiply-adds of vectors."""
        return self.count(_PRODUCT)


@dataclass(frozen=True)
class Cycles:
    """Of one iteration: what it takes, and the issue limit."""

    taken: float
    limit: float


def loops(assembly: str) -> Iterator[Loop]:
    """The loops of one block each, in order."""
    kernel, label, body = "", "", []
    for line in assembly.splitlines():
        text = line.strip()
        if found := _FUNCTION.match(line):
            kernel, label, body = found[1], "", []
        elif found := _LABEL.match(line):
            label, body = found[1], []
        elif line.startswith("\t") and not text.startswith((".", "//", "#", ";")):
            body.append(text)
            branch = _BRANCH.match(text)
            if branch is not None and branch[1] == label:
                yield Loop(kernel, label, tuple(body))


def full_tiles(assembly: str) -> list[Loop]:
    """The loop with the most multiply-adds of each kernel that has any."""
    best: dict[str, Loop] = {}
    for loop in loops(assembly):
        if loop.products > (best[loop.kernel].products if loop.kernel in best else 0):
            best[loop.kernel] = loop
    return [*best.values()]


def analysed(loop: Loop, triple: str, cpu: str, program: str) -> Cycles:
    """What llvm-mca says of a loop."""
    command = [program, f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={ITERATIONS}"]
    text = "\n".join((f"{loop.label}:", *loop.body))
    told = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def number(name: str) -> float:
        found = re.search(rf"^{name}:\s+([\d.]+)$", told, re.MULTILINE)
        assert found is not None, told
        return float(found[1])

    return Cycles(number("Total Cycles") / ITERATIONS, number("Block RThroughput"))


def newest_program() -> str | None:
    """The newest llvm-mca that is installed."""
    names = [*(f"llvm-mca-{n}" for n in range(30, 13, -1)), "llvm-mca"]
    return next((name for name in names if shutil.which(name)), None)


def rows(targets: Sequence[str], cpu: str | None, program: str) -> Iterator[str]:
    """Lines of the table."""
    yield "| model | kernel | core | multiply-adds | loads | cycles | issue limit | share |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, make in MODELS.items():
        proto = make()
        for alias in targets:
            target = find_target(alias)
            core = cpu or target.cpu
            floors = dict(stages(proto, Options(target=alias, cache_dir=None)))
            for loop in full_tiles(floors["asm"]):
                cycles = analysed(loop, target.triple, core, program)
                kernel = loop.kernel.removeprefix("kernel.")
                figures = f"{loop.products} | {loop.count(_LOAD)} | {cycles.taken:.1f}"
                limit = f"{cycles.limit:.1f} | {cycles.limit / cycles.taken:.0%}"
                yield f"| {name} | {kernel} | {core} | {figures} | {limit} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 2 where there is no llvm-mca."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="append", help="of docs/targets.md")
    parser.add_argument("--cpu", help="analyse for this core what was compiled for the target's")
    parser.add_argument("--mca", default=newest_program(), help="the program")
    options = parser.parse_args(arguments)
    if options.mca is None:
        print("there is no llvm-mca; on Debian: apt-get install llvm-22", file=sys.stderr)
        return 2
    for row in rows(options.target or TARGETS, options.cpu, options.mca):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
