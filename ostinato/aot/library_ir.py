"""The C interface in LLVM assembly, which joins the module of the model.

Every function is plain: it touches its arguments and the object alone, calls no library, and
returns a code.
"""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.aot import calls_ir, checksum, making_ir, planning_ir, states_ir, words
from ostinato.aot.emitter import Emitter
from ostinato.aot.interface import Interface
from ostinato.aot.objects import ALIGNMENT
from ostinato.aot.tables import tables

_COPY = words.loop(
    "copy",
    "ptr %to, ptr %from, i64 %bytes",
    """  %source = getelementptr i64, ptr %from, i64 %i
  %target = getelementptr i64, ptr %to, i64 %i
  %word = load i64, ptr %source, align 1
  store i64 %word, ptr %target, align 1
""",
)

_CLEAR = words.loop(
    "clear",
    "ptr %to, i64 %bytes",
    """  %target = getelementptr i64, ptr %to, i64 %i
  store i64 0, ptr %target, align 1
""",
)

_OVERLAP = """
; Whether a tensor of the first `outputs` in the list shares a byte with another one of the list.
define internal i1 @overlap(ptr %buffers, ptr %lengths, ptr %list, i64 %outputs,
    i64 %count) nounwind {
entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %is.last = icmp eq i64 %i, %outputs
  br i1 %is.last, label %no, label %first
first:
  %i.at = getelementptr i32, ptr %list, i64 %i
  %i.place = load i32, ptr %i.at
  %i.buffer = getelementptr ptr, ptr %buffers, i32 %i.place
  %i.start = load ptr, ptr %i.buffer
  %i.length.at = getelementptr i64, ptr %lengths, i32 %i.place
  %i.length = load i64, ptr %i.length.at
  %i.end = getelementptr i8, ptr %i.start, i64 %i.length
  %i.next = add i64 %i, 1
  br label %inner
inner:
  %j = phi i64 [ %i.next, %first ], [ %j.next, %second ]
  %is.done = icmp uge i64 %j, %count
  br i1 %is.done, label %after, label %second
second:
  %j.at = getelementptr i32, ptr %list, i64 %j
  %j.place = load i32, ptr %j.at
  %j.buffer = getelementptr ptr, ptr %buffers, i32 %j.place
  %j.start = load ptr, ptr %j.buffer
  %j.length.at = getelementptr i64, ptr %lengths, i32 %j.place
  %j.length = load i64, ptr %j.length.at
  %j.end = getelementptr i8, ptr %j.start, i64 %j.length
  %j.next = add i64 %j, 1
  %before = icmp ult ptr %i.start, %j.end
  %behind = icmp ult ptr %j.start, %i.end
  %both = and i1 %before, %behind
  br i1 %both, label %yes, label %inner
after:
  br label %outer
yes:
  ret i1 true
no:
  ret i1 false
}
"""


def library_text(
    module: str,
    interface: Interface,
    constants: bytes,
    head: Sequence[int],
    pointer_bytes: int,
) -> str:
    """The module of the model with the interface; nothing else is exported.

    module: defines `entry` and `layout`. constants: its weights. head: words that a file of them
    begins with.
    """
    for name in ("entry", "layout"):
        assert f"\ndefine i64 @{name}(" in module
        module = module.replace(f"\ndefine i64 @{name}(", f"\ndefine internal i64 @{name}(")
    e = Emitter(interface, pointer_bytes)
    rooms = (planning_ir, making_ir, calls_ir, states_ir)
    texts = [text for room in rooms for text in room.functions(e)]
    known = {line for line in module.splitlines() if line.startswith("declare ")}
    return "\n".join(
        [
            module,
            e.type.text(),
            _COPY,
            _CLEAR,
            _OVERLAP,
            checksum.ASSEMBLY,
            tables(interface),
            _weights_head(head) if interface.weights_in_file else _weights(constants),
            *texts,
            *sorted(e.declarations - known),
            "",
        ]
    )


def heap_text(interface: Interface, pointer_bytes: int, is_windows: bool, head: str) -> str:
    """A module with `create` and `destroy`, which take the object's memory from the system.

    head: its triple and data layout.
    """
    e = Emitter(interface, pointer_bytes)
    size = e.size
    if is_windows:
        take = """declare ptr @GetProcessHeap()
declare ptr @HeapAlloc(ptr, i32, i64)
declare i32 @HeapFree(ptr, i32, ptr)
define internal ptr @take(i64 %bytes) nounwind {
  %heap = call ptr @GetProcessHeap()
  %block = call ptr @HeapAlloc(ptr %heap, i32 0, i64 %bytes)
  ret ptr %block
}
define internal void @give(ptr %block) nounwind {
  %heap = call ptr @GetProcessHeap()
  %done = call i32 @HeapFree(ptr %heap, i32 0, ptr %block)
  ret void
}
"""
    else:
        take = f"""declare ptr @malloc({size})
declare void @free(ptr)
define internal ptr @take({size} %bytes) nounwind {{
  %block = call ptr @malloc({size} %bytes)
  ret ptr %block
}}
define internal void @give(ptr %block) nounwind {{
  call void @free(ptr %block)
  ret void
}}
"""
    texts = [*making_ir.heap_functions(e)]
    return "\n".join([head, e.type.text(), take, *texts, *sorted(e.declarations), ""])


def _weights_head(head: Sequence[int]) -> str:
    items = ", ".join(f"i64 {word}" for word in head)
    return f"@weights.head = internal constant [{len(head)} x i64] [{items}]"


def _weights(constants: bytes) -> str:
    body = f'c"\\{constants.hex(chr(92))}"' if constants else "zeroinitializer"
    return f"@weights = internal constant [{len(constants)} x i8] {body}, align {ALIGNMENT}"
