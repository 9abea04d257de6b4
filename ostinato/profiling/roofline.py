"""The limits of one core of this machine, measured: f32 FMA peak and read rate per working set.

Both loops are LLVM IR handed to llvmlite, so no C compiler is needed:

* peak: independent chains of vector FMAs, enough of them to hide the latency of each;
* read: a buffer is streamed through FMAs into independent accumulators, as a matrix-vector product
  reads its weights; with and without a software prefetch, the better one counts.

`Roofline` turns the figures into lower bounds of models (`recurrence`, `weights`).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

KIB = 1024
_WORKING_SETS = tuple(
    KIB * k for k in (32, 48, 64, 128, 256, 512, 768, 1024, 1536, *(2048 << n for n in range(6)))
)
# Enough to hide five cycles of latency on two ports, and few enough for 16 registers with the two
# operands: one that is spilled halves the peak.
_ACCUMULATORS = 12
_PREFETCH_BYTES = 2048
# Loops of a fraction of a millisecond: on a busy machine some of them run undisturbed, of longer
# ones none.
_BYTES_PER_MEASUREMENT = 20e6
_ROUNDS = 100_000


@dataclass(frozen=True)
class Roofline:
    """`peak` in flop/s; `read`, `plain`, `prefetched`: bytes/s for each of `working_sets` (bytes).

    `read` is the better of the other two, made monotone: a smaller set is never slower.
    """

    cpu: str
    peak: float
    working_sets: tuple[int, ...]
    plain: tuple[float, ...]
    prefetched: tuple[float, ...]
    read: tuple[float, ...]

    def bandwidth(self, size: float) -> float:
        """Read rate in bytes/s at the smallest measured working set that holds `size` bytes."""
        for working_set, rate in zip(self.working_sets, self.read, strict=True):
            if size <= working_set:
                return rate
        return self.read[-1]

    def weights(self, flops: float, size: float, working_set: float | None = None) -> float:
        """Seconds to do `flops` while reading `size` bytes of weights once."""
        return max(flops / self.peak, size / self.bandwidth(working_set or size))

    def recurrence(
        self, steps: int, flops: float, recurrent: float, projection: float, layers: int = 1
    ) -> float:
        """Seconds of the two phases of a recurrence, one after the other; activations are free.

        Half of `flops` is the input projection, one matrix product at peak rate; the other half is
        the sequential part, which reads `recurrent` bytes of weights (of all `layers`, which run
        one after the other) at every step. A single step reads both weights once.
        """
        if steps == 1:
            return self.weights(flops, recurrent + projection)
        sequential = recurrent * steps / self.bandwidth(recurrent / layers)
        return flops / 2 / self.peak + max(flops / 2 / self.peak, sequential)


def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="small",
    )


def widest_lanes() -> int:
    """f32 lanes of the widest vector registers of this core."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx") else 4


def _sum(values: list[str], lanes: int, result: str) -> list[str]:
    """IR that adds the vectors `values` up to the scalar `result`, so that none is dead code."""
    lines, total = [], values[0]
    for i, value in enumerate(values[1:]):
        lines.append(f"  {result}.{i} = fadd <{lanes} x float> {total}, {value}")
        total = f"{result}.{i}"
    reduce = f"@llvm.vector.reduce.fadd.v{lanes}f32"
    return [*lines, f"  {result} = call float {reduce}(float 0.0, <{lanes} x float> {total})"]


def _splat(name: str, scalar: str, lanes: int) -> list[str]:
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i32> zeroinitializer"
    return [
        f"  {name}.0 = insertelement {vector} undef, float {scalar}, i32 0",
        f"  {name} = shufflevector {vector} {name}.0, {vector} undef, {mask}",
    ]


def _fma(result: str, a: str, b: str, c: str, lanes: int) -> str:
    vector = f"<{lanes} x float>"
    arguments = ", ".join(f"{vector} {operand}" for operand in (a, b, c))
    return f"  {result} = call {vector} @llvm.fma.v{lanes}f32({arguments})"


def _peak_ir(lanes: int) -> list[str]:
    """`float @peak(i64 n, float b, float c)`: n rounds of a[i] = a[i] * b + c."""
    vector = f"<{lanes} x float>"
    chain = range(_ACCUMULATORS)
    return [
        "define float @peak(i64 %n, float %bs, float %cs) {",
        "entry:",
        *_splat("%b", "%bs", lanes),
        *_splat("%c", "%cs", lanes),
        "  br label %round",
        "round:",
        "  %k = phi i64 [ 0, %entry ], [ %k1, %round ]",
        *(f"  %a{i} = phi {vector} [ %c, %entry ], [ %f{i}, %round ]" for i in chain),
        *(_fma(f"%f{i}", f"%a{i}", "%b", "%c", lanes) for i in chain),
        "  %k1 = add i64 %k, 1",
        "  %more = icmp ult i64 %k1, %n",
        "  br i1 %more, label %round, label %done",
        "done:",
        *_sum([f"%f{i}" for i in chain], lanes, "%s"),
        "  ret float %s",
        "}",
    ]


def _read_ir(name: str, lanes: int, prefetch: int) -> list[str]:
    """`float @name(ptr p, i64 bytes, i64 rounds, float x)`: streams p `rounds` times."""
    vector, width = f"<{lanes} x float>", 4 * lanes
    chain = range(_ACCUMULATORS)
    body = []
    for i in chain:
        body.append(f"  %q{i} = getelementptr i8, ptr %base, i64 {i * width}")
        if prefetch and i * width % 64 == 0:
            body.append(f"  %ahead{i} = getelementptr i8, ptr %base, i64 {i * width + prefetch}")
            body.append(f"  call void @llvm.prefetch.p0(ptr %ahead{i}, i32 0, i32 3, i32 1)")
        body.append(f"  %v{i} = load {vector}, ptr %q{i}, align {width}")
        body.append(_fma(f"%f{i}", f"%v{i}", "%x", f"%a{i}", lanes))
    return [
        f"define float @{name}(ptr %p, i64 %bytes, i64 %rounds, float %xs) {{",
        "entry:",
        *_splat("%x", "%xs", lanes),
        "  br label %round",
        "round:",
        "  %r = phi i64 [ 0, %entry ], [ %r1, %next ]",
        *(f"  %c{i} = phi {vector} [ zeroinitializer, %entry ], [ %f{i}, %next ]" for i in chain),
        "  br label %stream",
        "stream:",
        "  %o = phi i64 [ 0, %round ], [ %o1, %stream ]",
        *(f"  %a{i} = phi {vector} [ %c{i}, %round ], [ %f{i}, %stream ]" for i in chain),
        "  %base = getelementptr i8, ptr %p, i64 %o",
        *body,
        f"  %o1 = add i64 %o, {_ACCUMULATORS * width}",
        "  %inside = icmp ult i64 %o1, %bytes",
        "  br i1 %inside, label %stream, label %next",
        "next:",
        "  %r1 = add i64 %r, 1",
        "  %more = icmp ult i64 %r1, %rounds",
        "  br i1 %more, label %round, label %done",
        "done:",
        *_sum([f"%f{i}" for i in chain], lanes, "%s"),
        "  ret float %s",
        "}",
    ]


def _text(lanes: int) -> str:
    """The module with `peak`, `plain` and `prefetched`."""
    vector = f"<{lanes} x float>"
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {vector})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            *_peak_ir(lanes),
            *_read_ir("plain", lanes, 0),
            *_read_ir("prefetched", lanes, _PREFETCH_BYTES),
        ]
    )


def _compile(lanes: int) -> Any:
    """The library of the module, linked into this process."""
    machine = _target_machine()
    module = llvm.parse_assembly(_text(lanes))
    module.verify()
    jit = llvm.create_lljit_compiler(machine)
    builder = llvm.JITLibraryBuilder().add_object_img(machine.emit_object(module))
    for name in ("peak", "plain", "prefetched"):
        builder.export_symbol(name)
    return builder.link(jit, "roofline")


def _huge_pages(size: int) -> mmap.mmap:
    """Zeroed memory on huge pages where the system has them, so that few TLB misses are timed."""
    memory = mmap.mmap(-1, size + (4 << 20))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    memory.write(bytes(len(memory)))
    return memory


def _best_seconds(call: Callable[[], object], attempts: int) -> float:
    """The fastest of `attempts`: whatever else the machine does can only slow a loop down."""
    best = float("inf")
    for _ in range(attempts):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def measure(
    attempts: int = 70,
    progress: Callable[[str], None] = lambda what: None,
    working_sets: tuple[int, ...] = _WORKING_SETS,
) -> Roofline:
    """Measure this core; about four seconds."""
    lanes = widest_lanes()
    library = _compile(lanes)
    peak = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float, ctypes.c_float)(
        library["peak"]
    )
    read_type = ctypes.CFUNCTYPE(
        ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_float
    )
    progress("FMA peak")

    def peak_seconds() -> float:
        return _best_seconds(lambda: peak(_ROUNDS, 0.999999, 1e-6), attempts)

    fastest = peak_seconds()

    memory = _huge_pages(working_sets[-1] + _PREFETCH_BYTES)
    anchor = ctypes.c_char.from_buffer(memory)
    address = -(-ctypes.addressof(anchor) // (2 << 20)) * (2 << 20)
    rates: dict[str, list[float]] = {"plain": [], "prefetched": []}
    for size in working_sets:
        # Now and then, so that what shares the core for some time does not halve the peak.
        fastest = min(fastest, peak_seconds())
        progress(f"read rate of {size // KIB} KiB")
        for name, column in rates.items():
            loop = read_type(library[name])
            whole = size - size % (_ACCUMULATORS * 4 * lanes)
            passes = int(_BYTES_PER_MEASUREMENT / whole) + 1
            loop(address, whole, 1, 0.0)
            seconds = _best_seconds(partial(loop, address, whole, passes, 1e-3), attempts)
            column.append(whole * passes / seconds)
    del anchor
    memory.close()

    read = [max(pair) for pair in zip(*rates.values(), strict=True)]
    for i in reversed(range(len(read) - 1)):
        read[i] = max(read[i], read[i + 1])
    return Roofline(
        cpu=llvm.get_host_cpu_name(),
        peak=_ROUNDS * _ACCUMULATORS * lanes * 2 / fastest,
        working_sets=working_sets,
        plain=tuple(rates["plain"]),
        prefetched=tuple(rates["prefetched"]),
        read=tuple(read),
    )


def load(path: Path) -> Roofline:
    """The figures that `python -m benchmarks.roofline --json` wrote."""
    fields: dict[str, Any] = json.loads(path.read_text())
    known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return Roofline(**known)


# A set for each level that caches have today, so that this takes a second.
_FEW_SETS = tuple(size * KIB for size in (32, 512, 1024, 2048, 4096, 65536))


def quick() -> Roofline:
    """The same, coarsely."""
    return measure(20, working_sets=_FEW_SETS)
