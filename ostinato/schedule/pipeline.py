"""The scheduling passes, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field, replace
from typing import TypeAlias

from ostinato.machine.record import Machine
from ostinato.program.nodes import Program
from ostinato.records import dataclass
from ostinato.schedule.arena import Arena, plan
from ostinato.schedule.blocks import by_blocks
from ostinato.schedule.byte_tables import byte_tables
from ostinato.schedule.chains import chains_to_axes
from ostinato.schedule.checked_sizes import checked_sizes
from ostinato.schedule.checks_first import checks_first
from ostinato.schedule.chunk import chunk
from ostinato.schedule.collapse import collapse
from ostinato.schedule.dead import drop_dead
from ostinato.schedule.deal import deal
from ostinato.schedule.elide import elide_copies
from ostinato.schedule.forwards import forwards
from ostinato.schedule.fuse import Refusal, fuse
from ostinato.schedule.hoist import hoist
from ostinato.schedule.idle_steps import idle_steps
from ostinato.schedule.images import by_images
from ostinato.schedule.in_place import store_in_place
from ostinato.schedule.interleave import interleave
from ostinato.schedule.layout import layout
from ostinato.schedule.narrow_positions import narrow_positions
from ostinato.schedule.originals import read_originals
from ostinato.schedule.pack import pack
from ostinato.schedule.panels import by_panels
from ostinato.schedule.read_through import read_through
from ostinato.schedule.relayout import relayout
from ostinato.schedule.reuse_copies import reuse_copies
from ostinato.schedule.rows import by_rows
from ostinato.schedule.serpentine import serpentine
from ostinato.schedule.share import Shares, share
from ostinato.schedule.sink import sink
from ostinato.schedule.stay_floats import stay_floats
from ostinato.schedule.tile import tile, tile_readers
from ostinato.schedule.unfused_pairs import UnfusedPair, unfused_pairs
from ostinato.schedule.widen_bytes import widen_bytes
from ostinato.schedule.widen_late import widen_late
from ostinato.schedule.widen_rows import widen_rows
from ostinato.schedule.words_first import words_first


@dataclass(frozen=True)
class Scheduled:
    """A program on its way through the passes, at the end ready for code generation.

    machine, threads: what it is scheduled for.
    arena: the places of its buffers. shares: how threads divide it; None for a single thread.
    refusals: pairs of kernels that `fuse` did not join; None where it has not run.
    unfused_pairs: the kernels that pass values to each other through memory.
    """

    program: Program
    machine: Machine
    threads: int = 1
    arena: Arena = field(default_factory=lambda: Arena({}, 0))
    shares: Shares | None = None
    refusals: tuple[Refusal, ...] | None = None
    unfused_pairs: tuple[UnfusedPair, ...] = ()

    def changed_to(self, program: Program) -> Scheduled:
        """The state with another program, itself if that is the same."""
        return self if program is self.program else replace(self, program=program)


Step: TypeAlias = Callable[[Scheduled], Scheduled]


@dataclass(frozen=True)
class SchedulePass:
    """A step that changes where and in what order things are computed.

    needed: code generation, or a later pass, builds on it, so it cannot be left out.
    instead: runs where the pass is left out.
    """

    name: str
    sentence: str
    function: Step
    needed: bool = False
    instead: Step | None = None


def _rewrites(
    function: Callable[[Program], Program], sentence: str, name: str = ""
) -> SchedulePass:
    """A pass that needs only the program."""
    name = name or function.__name__
    return SchedulePass(name, sentence, lambda s: s.changed_to(function(s.program)))


def _for_machine(
    function: Callable[[Program, Machine], Program],
    sentence: str,
    needed: bool = False,
    name: str = "",
) -> SchedulePass:
    name = name or function.__name__
    return SchedulePass(
        name, sentence, lambda s: s.changed_to(function(s.program, s.machine)), needed
    )


def _fuse(s: Scheduled) -> Scheduled:
    refusals: list[Refusal] = []
    return replace(s, program=fuse(s.program, refusals), refusals=tuple(refusals))


def _store_in_place(s: Scheduled) -> Scheduled:
    program = store_in_place(s.program)
    gone = {k.name for k in s.program.kernels()} - {k.name for k in program.kernels()}
    pairs = (p for p in s.unfused_pairs if gone.isdisjoint((p.producer.name, p.consumer.name)))
    return replace(s, program=program, unfused_pairs=tuple(pairs))


def _place(reuse: bool) -> Step:
    return lambda s: replace(s, arena=plan(s.program, reuse, s.threads))


SCHEDULE_PASSES: tuple[SchedulePass, ...] = (
    _rewrites(
        checked_sizes, "Sizes that checks prove equal get one form, and dimensions lower bounds."
    ),
    _rewrites(drop_dead, "Results that nothing depends on are not computed."),
    _rewrites(widen_late, "Constants of narrow types are widened where they are read."),
    _for_machine(hoist, "Work that does not depend on a loop's state leaves the loop."),
    _rewrites(sink, "Products that only read what steps computed run after the loop."),
    # Before what is copied moves into its kernels, once for each copy.
    _rewrites(reuse_copies, "Padded copies of one value are made once.", name="reuse_padded"),
    SchedulePass(
        "fuse", "Kernels join their readers; intermediate values stay in registers.", _fuse
    ),
    _rewrites(stay_floats, "Values quantised and dequantised in one kernel are rounded as floats."),
    _for_machine(
        elide_copies, "A value that is copied elsewhere as a whole is written there directly."
    ),
    _rewrites(read_originals, "Parts of joined inputs and constants are read where they were."),
    # Behind passes that join the kernels of a step, before rows of steps become those of a matrix.
    _rewrites(idle_steps, "Steps of a loop that only keep its states are not run."),
    # Before axes collapse: a merged axis along elements of several places could not be taken apart.
    _for_machine(
        layout, "Values that only kernels see are laid out as their readers and writers need."
    ),
    _for_machine(
        words_first,
        "Sums of bytes over windows take all taps for each word: neighbours share what they load.",
    ),
    _rewrites(collapse, "Neighbouring axes that memory cannot tell apart become one."),
    _for_machine(
        chains_to_axes, "Sums in chains whose elements lie apart run for all points at once."
    ),
    # Before tiling pads the axes, so that bytes are counted without padding.
    SchedulePass(
        "unfused_pairs",
        "Kernels that still pass values to each other through memory are reported with the reason.",
        lambda s: replace(s, unfused_pairs=unfused_pairs(s.program, s.refusals)),
        needed=True,
    ),
    _for_machine(
        by_images, "Kernels over a batch of large images run for one image after the other."
    ),
    _for_machine(
        by_blocks,
        "Kernels that pass large matrices to each other run for a block of rows at a time.",
    ),
    _for_machine(by_rows, "Kernels that pass rows to each other run row by row."),
    _for_machine(relayout, "Operands that many rows or steps read are copied first."),
    # Behind `by_blocks`, whose runs it would break up, and `relayout`, whose copies read what it
    # joins.
    _rewrites(
        read_through, "Sums of few rows compute operands themselves that a kernel stores for many."
    ),
    _for_machine(
        widen_bytes,
        "Products of bytes take pairs of 16 bits where no instruction multiplies bytes.",
    ),
    _rewrites(widen_rows, "Rows of 16-bit floats are widened once for all lanes that read them."),
    _for_machine(
        byte_tables,
        "Functions of a single byte are looked up in a table of all 256 results.",
    ),
    _rewrites(
        narrow_positions,
        "Positions are compared in 32 bits where all of them fit: as many lanes as floats have.",
    ),
    _for_machine(
        interleave, "Neighbours along a short axis are stored together, as sums of each point."
    ),
    _rewrites(forwards, "Sums read their operands forwards."),
    _for_machine(
        tile_readers,
        "Kernels are cut into register tiles; copies later, as their readers choose their layout.",
        needed=True,
        name="tile",
    ),
    _for_machine(pack, "Constant operands and copies are laid out in the order they are read."),
    _rewrites(reuse_copies, "Equal copies are made once."),
    _for_machine(tile, "Copies are cut into register tiles.", needed=True, name="tile_copies"),
    _for_machine(
        by_panels,
        "Large copies are made panel by panel, each where the product that reads it follows.",
    ),
    _for_machine(
        chunk, "Operands that all groups of lanes read are read in chunks that stay cached."
    ),
    _for_machine(
        serpentine, "Loops read weights that exceed the cache back and forth, not in a circle."
    ),
    # Behind all passes that move kernels, which take a value to stay as it was written.
    SchedulePass(
        "store_in_place",
        "Copies that are stored into share the memory of originals that are needed no more.",
        _store_in_place,
    ),
    _rewrites(
        checks_first,
        "Indices are checked before anything is stored: a call that fails changes nothing.",
    ),
    SchedulePass(
        "deal",
        "Threads deal out the steps of loops that do not depend on each other.",
        lambda s: replace(s, program=deal(s.program, s.threads)),
    ),
    SchedulePass(
        "reuse_memory",
        "Values that are not needed at the same time share memory.",
        _place(reuse=True),
        instead=_place(reuse=False),
    ),
    SchedulePass(
        "share",
        "Threads divide the kernels for which that pays.",
        lambda s: replace(s, shares=share(s.program, s.arena, s.threads)),
        needed=True,
    ),
)


def schedule(
    program: Program, machine: Machine, disable: Collection[str] = (), threads: int = 1
) -> Scheduled:
    """Run all scheduling passes but those named in `disable`. Every choice gives the same bits."""
    state = Scheduled(program, machine, threads)
    for item in SCHEDULE_PASSES:
        left_out = item.name in disable and not item.needed
        step = item.instead if left_out else item.function
        state = state if step is None else step(state)
    return state
