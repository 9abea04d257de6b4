"""The facts about a machine that tiling, layouts and the choice of instructions depend on.

    python -m benchmarks.roofline --machine

measures them on one core of this machine and prints them beside the record that is in use. Those of
x86-64 are made for kinds of registers, not for CPUs, but for the size of the second-level cache
(`targets.ONE_MIB`). Thresholds in bytes are shares of a cache, so that they follow if the record
does.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Literal, TypeAlias

from ostinato.records import cached_property, dataclass

KIB = 1024
# Bytes of a cache line, on all machines that there are programs for.
LINE_BYTES = 64

# The instruction that adds four products of bytes to each 32-bit lane: of unsigned and signed bytes
# at once (VNNI, USDOT), or of signed ones only (SDOT). "pairs": one that adds two products of
# 16-bit integers. "widening": one that adds neighbours.
ByteDots: TypeAlias = Literal["none", "vnni", "usdot", "sdot", "pairs", "widening"]
# Whether a vector multiply-add that rounds once is an instruction, one that the engine may round
# twice (relaxed), or a call of a library function.
FusedMultiplyAdd: TypeAlias = Literal["instruction", "relaxed", "function"]


@dataclass(frozen=True)
class Machine:
    """One core.

    vector_bytes, vector_registers: bytes of a vector register, and how many there are.
    byte_dots, fused_multiply_add: see their types.
    lane_operands: whether a multiply-add takes one lane of a register for every lane of an operand.
    element_operands: whether it takes one element of memory for every lane of an operand.
    pointer_bits: of an address.
    fetches: whether there is an instruction that fetches a line of memory into a cache.
    byte_tiles: whether there are registers for 16 by 16 sums of products of bytes (AMX), which the
        system lets this process use.
    byte_lookups: whether one instruction picks bytes of two registers (AVX-512 VBMI).
    byte_pairs: whether one instruction multiplies two rows of eight bytes by two columns (USMMLA).
    converts_halves: whether there are instructions between float16 and float32.
    minimums: whether one instruction takes the lesser of two floats, and of zeros the negative one,
        and keeps NaN; so for the greater.
    scheduled_as: the CPU whose scheduling model LLVM takes; empty for that of the core itself.
    unroll: how many copies of the innermost loop of a sum there are at most.
    most_groups: how many groups of lanes a tile for a batch computes together for a single row.
        More of them read as many streams that lie a power of two apart, in the same sets of the
        first-level cache: three gates of 128 units take 7 % longer with four than with two
        (`benchmarks.bench_batch`).
    loads_operands: whether every operand of a multiply-add takes a register: the compilers of
        engines load it first, and keep the order of instructions.
    short_blocks: whether copies of a loop's body, and groups of sums in it, are kept apart by
        branches out of the loop. Some engines put what has no effect at the end of its block,
        multiply-adds behind all loads, and LLVM adds all terms of a sum in a row.
    first_level_bytes, second_level_bytes: the caches of data that belong to a core.
    near_share: of the first-level cache, which stays beside the little that passes through it.
    panel_share: of these bytes, which weights that a tile reads may take.
    page_bytes: of memory; where one ends, no line behind it is fetched ahead.

    Cycles of a vector each, where nothing else is in the way:

    fma_cycles, fma_latency: of a multiply-add among independent ones; until its result is there.
    load_cycles: of a load from the first-level cache.
    packed_cycles: of a load of one stream that lies in the first-level cache, the second, neither.
    strided_cycles: the same of lines that lie apart.
    apart_cycles: what a line in neither cache takes beyond that where lines that are loaded by
        turns lie in more pages than `followed_pages`, in which lines are fetched ahead.
    broadcast_loads: a load of one element for all lanes, in those of neighbours.
    gather_loads: a load or store whose lanes are not neighbours, in those whose lanes are.
    transposed_cycles: to store a vector whose lanes are spread out in memory: one row of them, lane
        by lane, and 2, 4 or 8 rows that are neighbours and are transposed in registers first.
    waiting_cycles: what a result of several sums takes that waits on the stack until stores read
        it, beyond half of the registers. With those of a line's length, four gates of 200 and 256
        units over 16 rows take 0.96 of the time with tiles of 4 rows in place of 6, 512 units 0.99,
        three gates 0.95 to 0.98 (`benchmarks.versions`).
    """

    vector_bytes: int
    vector_registers: int
    byte_dots: ByteDots = "none"
    fused_multiply_add: FusedMultiplyAdd = "instruction"
    lane_operands: bool = False
    element_operands: bool = False
    pointer_bits: int = 64
    fetches: bool = True
    byte_tiles: bool = False
    byte_lookups: bool = False
    byte_pairs: bool = False
    converts_halves: bool = True
    minimums: bool = False
    scheduled_as: str = ""
    unroll: int = 4
    most_groups: int = 2
    loads_operands: bool = False
    short_blocks: bool = False
    first_level_bytes: int = 48 * KIB
    second_level_bytes: int = 2048 * KIB
    near_share: float = 5 / 6
    panel_share: float = 1.0
    page_bytes: int = 4 * KIB
    followed_pages: int = 32
    fma_cycles: float = 0.5
    fma_latency: float = 4.0
    load_cycles: float = 0.5
    packed_cycles: tuple[float, float, float] = (0.5, 1.0, 3.0)
    strided_cycles: tuple[float, float, float] = (1.5, 2.5, 4.0)
    apart_cycles: float = 20.0
    broadcast_loads: float = 1.0
    gather_loads: int = 8
    transposed_cycles: tuple[tuple[int, float], ...] = ((1, 17.0), (2, 10.0), (4, 5.0), (8, 4.0))
    waiting_cycles: float = 4.0

    @cached_property
    def accumulators(self) -> int:
        """Registers for partial results: the others hold operands and addresses."""
        return self.vector_registers * 3 // 4

    @property
    def elements_take_registers(self) -> bool:
        """Whether what all lanes are multiplied by is in a register of its own.

        So it is where every operand is, but there tiles have room for what lanes load as well.
        """
        return not (self.lane_operands or self.element_operands or self.loads_operands)

    @property
    def merges_bits(self) -> bool:
        """Whether one instruction keeps some bits of a register and sets others (AVX-512)."""
        return self.vector_bytes == 64 and self.fused_multiply_add == "instruction"

    @property
    def gathers(self) -> bool:
        """Whether one instruction loads or stores lanes at addresses of their own (AVX-512)."""
        return self.vector_bytes == 64

    @property
    def transposed_rows(self) -> int:
        """The most rows that are transposed in registers."""
        return self.transposed_cycles[-1][0]

    @property
    def near_bytes(self) -> int:
        """Bytes that stay in the first-level cache beside the little that passes through it."""
        return int(self.first_level_bytes * self.near_share)

    @property
    def resident_bytes(self) -> int:
        """Bytes that are still in the first-level cache after a step of a loop that does more."""
        return self.first_level_bytes * 2 // 3

    @property
    def block_bytes(self) -> int:
        """Bytes that leave room in the first-level cache for three times as many that they meet."""
        return self.first_level_bytes // 4

    @property
    def panel_bytes(self) -> int:
        """Bytes that stay in the second-level cache while all else that a kernel reads passes."""
        return self.second_level_bytes // 8

    @property
    def paired_bytes(self) -> int:
        """Bytes that stay in the second-level cache while as many are fetched beside them."""
        return self.second_level_bytes * 3 // 8

    @property
    def far_bytes(self) -> int:
        """Bytes from which data leaves the second-level cache before it is read again."""
        return self.second_level_bytes // 2

    def lines_stay(self, lines: int, apart: int) -> bool:
        """Whether lines that lie this many bytes apart stay in the first-level cache together.

        Those that lie a power of two apart share few of its sets, each of a line from every way.
        """
        return lines * gcd(apart, self.page_bytes) <= self.resident_bytes


AVX512 = Machine(64, 32, element_operands=True, waiting_cycles=32.0)
# Many cores without AVX-512 have a first-level cache of 32 KiB: with panels of more, filters of
# 3 x 3 over 32 channels take 1.1 to 1.4 of the time on Zen 3 (`benchmarks.versions`, row
# `conv2d 3x3 32ch 225x30`). What else is measured by that cache is as fast there, or faster, with
# the sizes of one of 48 KiB (rows `given weights 1x512x512`, `gru_h512_t100`).
AVX2 = Machine(32, 16, near_share=2 / 3)
# Any AArch64 core: the caches of a small one.
NEON = Machine(
    16,
    32,
    byte_dots="widening",
    lane_operands=True,
    minimums=True,
    first_level_bytes=32 * KIB,
    second_level_bytes=512 * KIB,
)
# It issues in order, and loads eight bytes in a cycle: registers in four times the cycles of those
# that were measured. LLVM's model of it puts loads directly before what waits for them, that of its
# successor as early as registers allow.
CORTEX_A53 = replace(
    NEON,
    scheduled_as="cortex-a55",
    fma_cycles=1.0,
    load_cycles=2.0,
    packed_cycles=(2.0, 4.0, 12.0),
    strided_cycles=(6.0, 10.0, 16.0),
)
CORTEX_A72 = replace(NEON, second_level_bytes=1024 * KIB)
CORTEX_A76 = replace(NEON, byte_dots="sdot", first_level_bytes=64 * KIB)
NEOVERSE_V1 = replace(
    NEON,
    byte_dots="usdot",
    byte_pairs=True,
    first_level_bytes=64 * KIB,
    second_level_bytes=1024 * KIB,
    fma_cycles=0.25,
    load_cycles=1 / 3,
)
# The large cores of Apple's M1.
FIRESTORM = replace(
    NEON,
    byte_dots="sdot",
    first_level_bytes=128 * KIB,
    second_level_bytes=3072 * KIB,
    fma_cycles=0.25,
    load_cycles=1 / 3,
)
# WebAssembly's vectors, as an engine maps them to registers of x86-64, of which it keeps one.
WASM = Machine(
    16,
    15,
    byte_dots="pairs",
    fused_multiply_add="function",
    pointer_bits=32,
    fetches=False,
    converts_halves=False,
    minimums=True,
    unroll=8,
    # Moves between registers included, which compilers of engines leave.
    fma_latency=4.5,
    most_groups=3,
    loads_operands=True,
    short_blocks=True,
    # One of V8's instructions, three of Cranelift's.
    broadcast_loads=1.75,
)
