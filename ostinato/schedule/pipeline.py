"""The scheduling passes, in the order they run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ostinato.program.nodes import Program
from ostinato.schedule.arena import Arena, plan
from ostinato.schedule.collapse import collapse
from ostinato.schedule.dead import drop_dead
from ostinato.schedule.elide import elide_copies
from ostinato.schedule.fuse import Refusal, fuse
from ostinato.schedule.hoist import hoist
from ostinato.schedule.pack import pack
from ostinato.schedule.relayout import relayout
from ostinato.schedule.reuse_copies import reuse_copies
from ostinato.schedule.rows import by_rows
from ostinato.schedule.serpentine import serpentine
from ostinato.schedule.sink import sink
from ostinato.schedule.tile import Registers, tile, tile_readers
from ostinato.schedule.unfused_pairs import UnfusedPair, unfused_pairs


@dataclass(frozen=True)
class SchedulePass:
    """A step that changes where and in what order things are computed."""

    name: str
    sentence: str


SCHEDULE_PASSES: tuple[SchedulePass, ...] = (
    SchedulePass("drop_dead", "Results that nothing depends on are not computed."),
    SchedulePass("hoist", "Work that does not depend on a loop's state leaves the loop."),
    SchedulePass("sink", "Products that only read what steps computed run after the loop."),
    SchedulePass("fuse", "Kernels join their readers; intermediate values stay in registers."),
    SchedulePass(
        "elide_copies", "A value that is only copied elsewhere is written there directly."
    ),
    SchedulePass("collapse", "Neighbouring axes that memory cannot tell apart become one."),
    SchedulePass("by_rows", "Kernels that pass rows to each other run row by row."),
    SchedulePass("relayout", "Operands that many rows or steps read are copied first."),
    SchedulePass("pack", "Constant operands and copies are laid out in the order they are read."),
    SchedulePass(
        "serpentine", "Loops read weights that exceed the cache back and forth, not in a circle."
    ),
    SchedulePass("reuse_memory", "Values that are not needed at the same time share memory."),
)


@dataclass(frozen=True)
class Scheduled:
    """A program ready for code generation.

    unfused_pairs: those of kernels that hand values to each other through memory.
    """

    program: Program
    arena: Arena
    unfused_pairs: tuple[UnfusedPair, ...]


def schedule(program: Program, registers: Registers, disable: Collection[str] = ()) -> Scheduled:
    """Run all scheduling passes but those named in `disable`. Every choice gives the same bits."""
    refusals: list[Refusal] = []
    if "drop_dead" not in disable:
        program = drop_dead(program)
    if "hoist" not in disable:
        program = hoist(program)
    if "sink" not in disable:
        program = sink(program)
    if "fuse" not in disable:
        program = fuse(program, refusals)
    if "elide_copies" not in disable:
        program = elide_copies(program)
    if "collapse" not in disable:
        program = collapse(program)
    # Before tiling pads the axes, so that the bytes are those of the values.
    pairs = unfused_pairs(program, refusals, "fuse" not in disable)
    if "by_rows" not in disable:
        program = by_rows(program)
    if "relayout" not in disable:
        program = relayout(program)
    if "pack" not in disable:
        program = reuse_copies(pack(tile_readers(program, registers)))
    program = tile(program, registers)
    if "serpentine" not in disable:
        program = serpentine(program)
    arena = plan(program, reuse="reuse_memory" not in disable)
    return Scheduled(program, arena, pairs)
