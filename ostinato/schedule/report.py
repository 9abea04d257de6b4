"""Reports on a scheduled program, for people and scripts to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ostinato.limits import ENDLESS
from ostinato.program.expr import FLOATS, ITEM_BYTES, Expr, Op, walk
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Loop, Program, Stmt, bodies
from ostinato.schedule.unfused_pairs import UnfusedPair
from ostinato.sizes.dims import Size, product, symbols
from ostinato.sizes.substitution import evaluate


def report_kernels(lowered: Program, program: Program) -> list[dict[str, Any]]:
    """Describe each kernel of a scheduled program in a record that JSON can hold.

    lowered: the program before scheduling.
    name; fused: the model's nodes it computes; in_loop: trip count of the loop around it, "?" where
        only a condition ends that; hoisted: whether it computes for all steps at once what the
        model computes in each step; points; reductions; weight_bytes: constants it reads; packed:
        those with a new layout, with the model's names for them and how many streams are
        interleaved; serpentine: whether every other step, or run, reads them backwards; tile: rows
        x vectors x lanes. For one execution with every run-time dimension 1: bytes (distinct memory
        touched) and flops.
    """
    stepwise = {s for k, loop in _walk(lowered.body, None) if loop is not None for s in k.sources}
    return [_record(program, kernel, loop, stepwise) for kernel, loop in _walk(program.body, None)]


def report_unfused_pairs(pairs: Iterable[UnfusedPair]) -> list[dict[str, Any]]:
    """Describe each value that passes from kernel to kernel through memory in a record.

    producer, consumer: names of kernels, and in `producer_nodes`, `consumer_nodes` the model's
    nodes they compute; buffer; bytes: what is written in one run, an expression if that depends on
    run-time dimensions; reason: why the two did not become one kernel.
    """
    return [
        {
            "producer": pair.producer.name,
            "producer_nodes": list(pair.producer.sources),
            "consumer": pair.consumer.name,
            "consumer_nodes": list(pair.consumer.sources),
            "buffer": pair.buffer,
            "bytes": pair.bytes if isinstance(pair.bytes, int) else str(pair.bytes),
            "reason": pair.reason,
        }
        for pair in pairs
    ]


def _walk(body: tuple[Stmt, ...], loop: Loop | None) -> Iterator[tuple[Kernel, Loop | None]]:
    for statement in body:
        if isinstance(statement, Kernel):
            yield statement, loop
        for inner in bodies(statement):
            yield from _walk(inner, statement if isinstance(statement, Loop) else loop)


def _record(
    program: Program, kernel: Kernel, loop: Loop | None, stepwise: set[str]
) -> dict[str, Any]:
    weights = sum(
        program.constants[name].nbytes for name in kernel.reads() if name in program.constants
    )
    tile = kernel.tile
    return {
        "name": kernel.name,
        "fused": list(kernel.sources),
        "in_loop": None if loop is None else _trips(loop),
        "hoisted": loop is None and not stepwise.isdisjoint(kernel.sources),
        "points": " x ".join(str(axis.extent) for axis in kernel.axes) or "1",
        "reductions": len(kernel.reductions),
        "weight_bytes": int(weights),
        "packed": list(_packed(program, kernel)),
        "serpentine": tile is not None and tile.serpentine is not None,
        "bytes": _touched(program, kernel, _at_one),
        "flops": _at_one(_flops(kernel)),
        "tile": None if tile is None else f"{tile.height} x {tile.vectors} x {tile.width}",
    }


def _trips(loop: Loop) -> str:
    return "?" if loop.axis.extent == ENDLESS else str(loop.axis.extent)


def _packed(program: Program, kernel: Kernel) -> Iterator[dict[str, Any]]:
    for name in sorted(kernel.reads()):
        buffer = program.buffers[name]
        if buffer.kind == "constant" and buffer.padded:
            streams = sum(load.access.buffer == name for load in kernel.loads())
            yield {
                "buffer": name,
                "weights": list(buffer.sources),
                "streams": streams,
                "bytes": program.constants[name].nbytes,
            }


def _at_one(size: Size) -> int:
    return evaluate(size, dict.fromkeys(symbols(size), 1))


def work(program: Program, kernel: Kernel, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Bytes that one execution touches, and its operations. sizes: of run-time dimensions."""

    def value(size: Size) -> int:
        return evaluate(size, sizes)

    return _touched(program, kernel, value), value(_flops(kernel))


def _touched(program: Program, kernel: Kernel, value: Callable[[Size], int]) -> int:
    """Bytes that one execution touches; of each buffer at most the whole."""
    own = kernel.own_axes
    touched = dict.fromkeys(kernel.reads() | kernel.writes(), 0)
    for access in {load.access for load in kernel.loads()} | {s.access for s in kernel.stores}:
        extents = [axis.extent for axis, stride in access.terms if axis in own and stride != 0]
        touched[access.buffer] += value(product(extents))
    total = 0
    for name, elements in touched.items():
        buffer = program.buffers[name]
        total += min(elements, max(value(buffer.size), 1)) * ITEM_BYTES[buffer.dtype]
    return total


def _flops(kernel: Kernel) -> Size:
    """Count two for each multiply-add, one for every other operation whose result is a float.

    Unpacking narrow weights and counting positions does not count, scaling weights does.
    """
    points = product([axis.extent for axis in kernel.axes])
    total: Size = 0
    for reduce in kernel.reductions:
        inner = product([axis.extent for axis in reduce.axes])
        work = _float_operations(reduce.operands) + (2 if reduce.factor is not None else 1)
        total = total + points * inner * work
    return total + points * _float_operations(s.value for s in kernel.stores)


def _float_operations(values: Iterable[Expr]) -> int:
    return sum(isinstance(n, Op) and n.dtype in FLOATS for n in walk(*values))
