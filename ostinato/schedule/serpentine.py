"""Kernels that read many weights in every step of a loop read them in serpentine order.

    step 0:  W[0] W[1] W[2] W[3]          and not    W[0] W[1] W[2] W[3]
    step 1:  W[3] W[2] W[1] W[0]                     W[0] W[1] W[2] W[3]

Where the weights do not fit in the private cache, reading them in a circle finds none of them
there: each is evicted just before it is needed again. Back and forth, a step begins with the
weights that the last one ended with. Outside of loops, runs of the program alternate in the same
way. Groups of lanes are independent, so their order does not change results.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Axis
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import CALL, Loop, Program, Stmt, with_bodies
from ostinato.sizes.dims import Size


def serpentine(program: Program, machine: Machine) -> Program:
    """Let large kernels reverse their direction with each step of their loop, or with each run."""
    return program.with_body(_serpentine(program.body, CALL, program, machine))


def _serpentine(
    body: tuple[Stmt, ...], axis: Axis, program: Program, machine: Machine
) -> tuple[Stmt, ...]:
    large = _weight_bytes(body, axis, program) >= machine.resident_bytes
    result: list[Stmt] = []
    for statement in body:
        if isinstance(statement, Kernel):
            result.append(_in_serpentine(statement, axis) if large else statement)
        else:
            inner = statement.axis if isinstance(statement, Loop) else axis

            def change(inside: tuple[Stmt, ...], inner: Axis = inner) -> tuple[Stmt, ...]:
                return _serpentine(inside, inner, program, machine)

            result.append(with_bodies(statement, change))
    return tuple(result)


def _in_serpentine(kernel: Kernel, axis: Axis) -> Kernel:
    tile = kernel.tile
    if tile is None or tile.block is None or not kernel.reductions:
        return kernel
    return replace(kernel, tile=replace(tile, serpentine=axis))


def _weight_bytes(body: tuple[Stmt, ...], axis: Axis, program: Program) -> int:
    """Bytes of the constants that are read, and of the packed copies made before the loop."""
    total: Size = 0
    for name in set().union(*(statement.reads() for statement in body)):
        buffer = program.buffers[name]
        if buffer.kind == "constant" or (buffer.padded and axis != CALL):
            total = total + buffer.size * ITEM_BYTES[buffer.dtype]
    return total if isinstance(total, int) else 0
