"""A program as one LLVM module: kernels, `entry` that runs them, `layout` that sizes memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ostinato.codegen import clocks, runtime_functions, safepoints, threads
from ostinato.codegen.entry import Entry
from ostinato.codegen.kernel_functions import functions_of
from ostinato.codegen.loads import NOWHERE
from ostinato.codegen.sizes import CheckedSizes
from ostinato.codegen.target import Target, data_layout
from ostinato.codegen.writer import Value, Writer, integer
from ostinato.program.laid import ConstantBlob
from ostinato.program.nodes import Program
from ostinato.schedule.arena import Arena
from ostinato.schedule.share import Shares
from ostinato.sizes.dims import Size


def module_text(
    program: Program,
    arena: Arena,
    blob: ConstantBlob,
    target: Target,
    shares: Shares | None = None,
    is_watched: bool = True,
    is_clocked: bool = False,
    names: dict[str, str] | None = None,
    begin: Callable[[str], None] | None = None,
) -> str:
    """Write the module as LLVM assembly; with `shares` it also exports `threads.EXPORTS`.

    is_watched: whether code that may take long has safepoints. is_clocked: whether the clock is
    read behind every kernel (`ostinato.codegen.clocks`). names: a table that gets the function of
    each kernel; kernels that are alike share one. begin: is given each function at once, as the
    module that it would be alone.
    """
    declarations: set[str] = set()
    parts = {} if shares is None else shares.parts
    head = [
        f'target datalayout = "{data_layout(target)}"',
        f'target triple = "{target.triple}"',
        f"{NOWHERE} = internal constant [64 x i8] zeroinitializer",
        *([safepoints.FRAME] if is_watched else []),
    ]
    scheduled_as = target.machine.scheduled_as
    tuning = f' "tune-cpu"="{scheduled_as}"' if scheduled_as else ""
    attributes = f'attributes #0 = {{ noinline nounwind "target-cpu"="{target.cpu}"{tuning} }}'

    def joined(functions: Sequence[str], needed: set[str]) -> str:
        known = runtime_functions.complete(needed, target.machine.pointer_bits)
        return (
            "\n".join((*head, *safepoints.called(functions), *functions, *known, attributes)) + "\n"
        )

    def alone(function: str, needed: Collection[str]) -> None:
        if begin is not None:
            begin(joined([function], {*needed}))

    functions, shared = functions_of(program, declarations, target, parts, is_watched, alone)
    if names is not None:
        names.update((kernel, function.name) for kernel, function in shared.items())
    entry = Entry(program, arena, blob, declarations, shared, shares, is_watched, is_clocked).text()
    layout = _layout(program, arena, declarations)
    count = 1 if shares is None else threads.MOST
    texts = [
        *([] if shares is None else [threads.assembly(target)]),
        *([clocks.assembly(program, target, count)] if is_clocked else []),
        *functions,
        entry,
        layout,
    ]
    return joined(texts, declarations)


def _layout(program: Program, arena: Arena, declarations: set[str]) -> str:
    """`layout`: defines symbols, checks sizes, writes the arena's bytes and the outputs' dims.

    Computed sizes count with their upper bounds.

    Sizes of buffers and outputs bound all offsets, so none of these overflows if those do not.

    It runs when a call is planned, once for many runs, so LLVM translates it without optimisation:
    simplifying a long chain of overflow checks takes 0.06 s for silero-vad.
    """
    sizes = CheckedSizes(program.symbols, declarations)
    w = Writer(declarations)

    def leave_if(condition: Value | None, code: int) -> None:
        if condition is not None:
            w.return_if(condition, f"i64 {code}")

    for name, size in program.definitions:
        position = program.symbols.index(name)
        place = w.pointer(Value("%symbols", "ptr"), integer(position), "i64")
        w.store(sizes.define(name, size), place)
        leave_if(sizes.overflow, -1 - position)
    for number, check in enumerate(program.checks):
        bad = w.compare("icmp", "slt", sizes.value(check.size), integer(0), 1)
        overflow = sizes.overflow
        leave_if(bad if overflow is None else w.binary("or", bad, overflow), number + 1)
    outputs = [n for output in program.outputs for n in program.room(output)]
    values: Sequence[Size] = (arena.size, *outputs)
    for position, size in enumerate(values):
        place = w.pointer(Value("%out", "ptr"), integer(position), "i64")
        w.store(sizes.value(size), place)
    leave_if(sizes.overflow, -1 - len(program.symbols))
    return (
        "define i64 @layout(ptr noalias %symbols, ptr noalias %out) nounwind noinline optnone {\n"
        f"start:\n{sizes.text()}\n  br label %entry\nentry:\n{w.text()}\n  ret i64 0\n}}\n"
    )
