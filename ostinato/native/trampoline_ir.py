"""LLVM assembly of the two functions Python calls, generic over all compiled models.

`ostinato_call` is a METH_FASTCALL C function: `call(*inputs, *outputs)` checks every argument
against the context, which must be a NumPy array and no subclass, and runs the compiled function on
their memory. It reads the structures of NumPy's C interface, in a tenth of the time that exporting
and releasing a buffer takes; `ostinato.native.trampoline` makes sure that they are as expected.
`ostinato_call_bound` is a METH_NOARGS C function over a table of pointers fixed beforehand. Both
return None for success, -1 when an argument is refused, -2 when another call over the same
workspace is running, or what the compiled function returned; or NULL, with the exception set, when
a handler of a signal raised one. Their `self` is a tuple whose first item is a bytearray that holds
the context; its other items own whatever the context points to.

A workspace is what calls that take turns have in common. It lists states: an input and an output
of the compiled function that use two buffers in turn. A call that succeeds swaps their addresses.
A call releases the GIL if the one before it took more ticks than the workspace's limit. Only
between taking the workspace and leaving it can another thread run, so plain loads and stores are
enough to mark it busy.

`ostinato_watch` is what the safepoints of compiled code ask (`ostinato.codegen.safepoints`). Every
now and then it runs the handlers of signals that have come, with the GIL; a call that has kept the
GIL for some milliseconds loses it that way, as Python code does.

`ostinato_keep` can be called in place of a compiled function. It copies its inputs to the turn of
two stores that is on. It reads the turn and marks the row as taken without giving up the GIL, so
whoever changes the turn with the GIL sees all frames of the store that was on.

Layouts: `%Array` is `PyArrayObject_fields`, `%Type` the beginning of `PyArray_Descr`; `%Context`,
`%Spec`, `%Bound`, `%Workspace` and `%Keep` are filled in by `ostinato.native.trampoline`.
"""

from __future__ import annotations

import re

from ostinato.codegen.processor import Processor
from ostinato.codegen.safepoints import STOPPED

CONTEXT_SLOTS = 9
SPEC_SLOTS = 5
UNCHECKED = (0, 0, -1, 0)
"""The specification, but for the place, of what is not checked but for being an array."""
WORKSPACE_SLOTS = 7
WATCH_SLOT = 3
STATE_SLOTS = 4

# NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED, and NPY_ARRAY_WRITEABLE for outputs.
_READ = 0x0001 | 0x0100
_WRITE = _READ | 0x0400
_FOREIGN = ord(">")

_TYPES = """
; references, type, data, rank, dimensions, strides, base, dtype, flags
%Array = type { i64, ptr, ptr, i32, ptr, ptr, ptr, ptr, i32 }
; references, type, type of an element, kind, letter, byte order, flags, number
%Type = type { i64, ptr, ptr, i8, i8, i8, i8, i32 }
; entry, flush denormals, symbols, workspace, number of inputs, number of arguments, constants,
; arena, numpy.ndarray
%Context = type { ptr, i64, ptr, ptr, i64, i64, ptr, ptr, ptr }
; number of the dtype, number of one that is the same, bytes, rank, dimensions, place in the table
; of buffers; a negative rank stands for arrays that are not checked
%Spec = type { i32, i32, i64, i64, ptr, i64 }
; entry, flush denormals, symbols, workspace, table of buffers
%Bound = type { ptr, i64, ptr, ptr, [0 x ptr] }
; ostinato_watch, the thread's state while the call runs without GIL, when a safepoint last looked
; for signals or first asked, 0 before that
%Watch = type { ptr, ptr, i64 }
; place of the input and of the output in the table of buffers, their buffers
%State = type { i64, i64, ptr, ptr }
; whether a call is running, ticks that the last one took, most ticks for which the GIL is kept,
; what safepoints need, number of states
%Workspace = type { i64, i64, i64, %Watch, i64, [0 x %State] }
; bytes of a value, where the first and the second store have the row for it
%Place = type { i64, [2 x ptr] }
; a byte, which store is on, 0 or 1, or larger for none; a byte for each store that says whether
; its row is taken; number of values
%Keep = type { ptr, [2 x ptr], i64, [0 x %Place] }

; The loader writes `None` here: an object elsewhere may be too far away to be addressed.
@ostinato_none = global ptr null
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyByteArray_AsString(ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
"""

# `field` in the text below: the value of a field, whose address has the name with `.at` behind it.
_FIELD = re.compile(r"(%\S+) = field (\w+), (%\w+, ptr %\S+), (.+)")
_LOADED = r"\1.at = getelementptr \3, i64 0, \4\n  \1 = load \2, ptr \1.at"

# Ticks from one look for signals to the next: of a call with the GIL, and of one that has to wait
# for it. 4 to 8 and 33 to 67 ms.
_KEPT_TICKS, _RELEASED_TICKS = 1 << 24, 1 << 27

# Functions that LLVM need not optimise: they run once in many calls, or check the arguments of
# `run`, whose Python code takes ten times as long (`benchmarks.bench_calls`).
_PLAIN = ("handle_signals", "ostinato_watch", "ostinato_keep", "fits", "overlaps", "ostinato_call")
_DEFINED = re.compile(r"^(define .*@(\w+)\(.*\)) \{", re.MULTILINE)

_ENTER = """
; Python code runs with subnormal numbers.
define internal i32 @handle_signals() {
  %mode = call i64 @get_mode()
  %plain = and i64 %mode, PLAIN_BITS
  call void @set_mode(i64 %plain)
  %answer = call i32 @PyErr_CheckSignals()
  call void @set_mode(i64 %mode)
  ret i32 %answer
}

define internal i64 @enter(ptr %context, ptr %table) {
  %entry = load ptr, ptr %context
  %flush = field i64, %Context, ptr %context, i32 1
  %symbols = field ptr, %Context, ptr %context, i32 2
  %is.plain = icmp eq i64 %flush, 0
  br i1 %is.plain, label %plain, label %flushing
plain:
  %status.plain = call i64 %entry(ptr %table, ptr %symbols)
  ret i64 %status.plain
flushing:
  %mode = call i64 @get_mode()
  %mode.flushing = or i64 %mode, FLUSH_BITS
  call void @set_mode(i64 %mode.flushing)
  %status.flushing = call i64 %entry(ptr %table, ptr %symbols)
  call void @set_mode(i64 %mode)
  ret i64 %status.flushing
}
"""

_INVOKE = """
define internal void @place_states(ptr %workspace, ptr %table) {
entry:
  %count = field i64, %Workspace, ptr %workspace, i32 4
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %state ]
  %is.last = icmp eq i64 %i, %count
  br i1 %is.last, label %end, label %state
state:
  %input = field i64, %Workspace, ptr %workspace, i32 5, i64 %i, i32 0
  %output = field i64, %Workspace, ptr %workspace, i32 5, i64 %i, i32 1
  %old = field ptr, %Workspace, ptr %workspace, i32 5, i64 %i, i32 2
  %new = field ptr, %Workspace, ptr %workspace, i32 5, i64 %i, i32 3
  %old.to = getelementptr ptr, ptr %table, i64 %input
  store ptr %old, ptr %old.to
  %new.to = getelementptr ptr, ptr %table, i64 %output
  store ptr %new, ptr %new.to
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

define internal void @swap_states(ptr %workspace) {
entry:
  %count = field i64, %Workspace, ptr %workspace, i32 4
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %state ]
  %is.last = icmp eq i64 %i, %count
  br i1 %is.last, label %end, label %state
state:
  %old = field ptr, %Workspace, ptr %workspace, i32 5, i64 %i, i32 2
  %new = field ptr, %Workspace, ptr %workspace, i32 5, i64 %i, i32 3
  store ptr %new, ptr %old.at
  store ptr %old, ptr %new.at
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

define internal i64 @invoke(ptr %context, ptr %table) {
entry:
  %workspace = field ptr, %Context, ptr %context, i32 3
  %busy = load i64, ptr %workspace
  %is.free = icmp eq i64 %busy, 0
  br i1 %is.free, label %take, label %refuse
refuse:
  ret i64 -2
take:
  store i64 1, ptr %workspace
  call void @place_states(ptr %workspace, ptr %table)
  %thread.at = getelementptr %Workspace, ptr %workspace, i64 0, i32 3, i32 1
  %since.at = getelementptr %Workspace, ptr %workspace, i64 0, i32 3, i32 2
  store i64 0, ptr %since.at
  ; A child forked in the middle of a call finds the state of a thread that it does not have.
  store ptr null, ptr %thread.at
  %limit = field i64, %Workspace, ptr %workspace, i32 2
  %is.unlimited = icmp eq i64 %limit, -1
  br i1 %is.unlimited, label %keep, label %measure
keep:
  %status.kept = call i64 @enter(ptr %context, ptr %table)
  br label %finish
measure:
  %took = field i64, %Workspace, ptr %workspace, i32 1
  %is.long = icmp ugt i64 %took, %limit
  br i1 %is.long, label %release, label %run
release:
  %released = call ptr @PyEval_SaveThread()
  store ptr %released, ptr %thread.at
  br label %run
run:
  %start = call i64 @clock()
  %status.run = call i64 @enter(ptr %context, ptr %table)
  %end.run = call i64 @clock()
  %takes = sub i64 %end.run, %start
  store i64 %takes, ptr %took.at
  br label %finish
finish:
  %status = phi i64 [ %status.kept, %keep ], [ %status.run, %run ]
  %thread = load ptr, ptr %thread.at
  %is.held = icmp eq ptr %thread, null
  br i1 %is.held, label %end, label %acquire
acquire:
  call void @PyEval_RestoreThread(ptr %thread)
  store ptr null, ptr %thread.at
  br label %end
end:
  %is.fine = icmp eq i64 %status, 0
  br i1 %is.fine, label %advance, label %leave
advance:
  call void @swap_states(ptr %workspace)
  br label %leave
leave:
  store i64 0, ptr %workspace
  ret i64 %status
}
"""

_WATCH = """
; What safepoints ask; other than 0 when a handler raised an exception.
define i64 @ostinato_watch(ptr %watch) {
entry:
  %thread = field ptr, %Watch, ptr %watch, i32 1
  %is.held = icmp eq ptr %thread, null
  %since = field i64, %Watch, ptr %watch, i32 2
  %now = call i64 @clock()
  %is.first = icmp eq i64 %since, 0
  br i1 %is.first, label %begin, label %measure
begin:
  store i64 %now, ptr %since.at
  ret i64 0
measure:
  %passed = sub i64 %now, %since
  %most = select i1 %is.held, i64 KEPT, i64 RELEASED
  %is.due = icmp ugt i64 %passed, %most
  br i1 %is.due, label %due, label %early
early:
  ret i64 0
due:
  br i1 %is.held, label %look, label %acquire
acquire:
  call void @PyEval_RestoreThread(ptr %thread)
  store ptr null, ptr %thread.at
  br label %look
look:
  %answer = call i32 @handle_signals()
  %is.fine = icmp eq i32 %answer, 0
  br i1 %is.fine, label %release, label %raised
raised:
  ret i64 1
release:
  %released = call ptr @PyEval_SaveThread()
  store ptr %released, ptr %thread.at
  %later = call i64 @clock()
  store i64 %later, ptr %since.at
  ret i64 0
}
"""

_KEEP = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; As a compiled function: `%keep` takes the place of run-time dimensions. 1: the row is taken, -2:
; no store is on.
define i64 @ostinato_keep(ptr %values, ptr %keep) {
entry:
  %turn.at = load ptr, ptr %keep
  %turn.byte = load i8, ptr %turn.at
  %turn = zext i8 %turn.byte to i64
  %is.none = icmp ugt i64 %turn, 1
  br i1 %is.none, label %wait, label %look
wait:
  ret i64 -2
look:
  %mark = field ptr, %Keep, ptr %keep, i32 1, i64 %turn
  %marked = load i8, ptr %mark
  %is.taken = icmp ne i8 %marked, 0
  br i1 %is.taken, label %refuse, label %accept
refuse:
  ret i64 1
accept:
  %count = field i64, %Keep, ptr %keep, i32 2
  br label %next
next:
  %i = phi i64 [ 0, %accept ], [ %i.next, %copy ]
  %is.last = icmp eq i64 %i, %count
  br i1 %is.last, label %end, label %copy
copy:
  %value.at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value.at
  %place = getelementptr %Keep, ptr %keep, i64 0, i32 3, i64 %i
  %bytes = load i64, ptr %place
  %row = field ptr, %Place, ptr %place, i32 1, i64 %turn
  call void @llvm.memcpy.p0.p0.i64(ptr %row, ptr %value, i64 %bytes, i1 false)
  %i.next = add i64 %i, 1
  br label %next
end:
  store i8 1, ptr %mark
  ret i64 0
}
"""

_HELPERS = """
define internal ptr @context_of(ptr %self) {
  %holder = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %context = call ptr @PyByteArray_AsString(ptr %holder)
  ret ptr %context
}

define internal ptr @answer(i64 %status) {
  %is.zero = icmp eq i64 %status, 0
  br i1 %is.zero, label %none, label %code
none:
  %nothing = load ptr, ptr @ostinato_none
  call void @Py_IncRef(ptr %nothing)
  ret ptr %nothing
code:
  %is.raised = icmp eq i64 %status, STOPPED
  br i1 %is.raised, label %raised, label %report
raised:
  ret ptr null
report:
  %number = call ptr @PyLong_FromLongLong(i64 %status)
  ret ptr %number
}

; An array fits when its dtype, byte order, rank and every dimension are as expected and it has all
; of `%flags`.
define internal i1 @fits(ptr %array, ptr %spec, i32 %flags) {
entry:
  %dtype = field ptr, %Array, ptr %array, i32 7
  %number = field i32, %Type, ptr %dtype, i32 7
  %wanted = load i32, ptr %spec
  %other = field i32, %Spec, ptr %spec, i32 1
  %is.wanted = icmp eq i32 %number, %wanted
  %is.other = icmp eq i32 %number, %other
  %is.either = or i1 %is.wanted, %is.other
  %order = field i8, %Type, ptr %dtype, i32 5
  %is.ours = icmp ne i8 %order, FOREIGN
  %present = field i32, %Array, ptr %array, i32 8
  %needed = and i32 %present, %flags
  %has.flags = icmp eq i32 %needed, %flags
  %rank.at = getelementptr %Array, ptr %array, i64 0, i32 3
  %rank.narrow = load i32, ptr %rank.at
  %rank = sext i32 %rank.narrow to i64
  %rank.wanted = field i64, %Spec, ptr %spec, i32 3
  %rank.ok = icmp eq i64 %rank, %rank.wanted
  %type.ok = and i1 %is.either, %is.ours
  %layout.ok = and i1 %has.flags, %rank.ok
  %all.ok = and i1 %type.ok, %layout.ok
  %shape = field ptr, %Array, ptr %array, i32 4
  %dims = field ptr, %Spec, ptr %spec, i32 4
  br i1 %all.ok, label %axes, label %no
axes:
  %axis = phi i64 [ 0, %entry ], [ %axis.next, %next ]
  %is.done = icmp eq i64 %axis, %rank
  br i1 %is.done, label %yes, label %axis.body
axis.body:
  %dim.at = getelementptr i64, ptr %shape, i64 %axis
  %dim = load i64, ptr %dim.at
  %dim.wanted.at = getelementptr i64, ptr %dims, i64 %axis
  %dim.wanted = load i64, ptr %dim.wanted.at
  %dim.ok = icmp eq i64 %dim, %dim.wanted
  br i1 %dim.ok, label %next, label %no
next:
  %axis.next = add i64 %axis, 1
  br label %axes
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether argument `index` shares a byte with an earlier one; all are in the table of buffers.
define internal i1 @overlaps(ptr %table, ptr %specs, i64 %index) {
entry:
  %spec = getelementptr %Spec, ptr %specs, i64 %index
  %place = field i64, %Spec, ptr %spec, i32 5
  %start.at = getelementptr i64, ptr %table, i64 %place
  %start = load i64, ptr %start.at
  %length = field i64, %Spec, ptr %spec, i32 2
  %end = add i64 %start, %length
  %is.empty = icmp eq i64 %length, 0
  br i1 %is.empty, label %no, label %earlier
earlier:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %is.done = icmp eq i64 %k, %index
  br i1 %is.done, label %no, label %compare
compare:
  %that = getelementptr %Spec, ptr %specs, i64 %k
  %that.place = field i64, %Spec, ptr %that, i32 5
  %that.start.at = getelementptr i64, ptr %table, i64 %that.place
  %that.start = load i64, ptr %that.start.at
  %that.length = field i64, %Spec, ptr %that, i32 2
  %that.end = add i64 %that.start, %that.length
  %that.some = icmp ne i64 %that.length, 0
  %begins.before = icmp ult i64 %start, %that.end
  %ends.after = icmp ult i64 %that.start, %end
  %crosses = and i1 %begins.before, %ends.after
  %shares = and i1 %crosses, %that.some
  br i1 %shares, label %yes, label %next
next:
  %k.next = add i64 %k, 1
  br label %earlier
yes:
  ret i1 true
no:
  ret i1 false
}
"""

_ENTRIES = f"""
define ptr @ostinato_call_bound(ptr %self, ptr %unused) {{
  %context = call ptr @context_of(ptr %self)
  %table = getelementptr %Bound, ptr %context, i64 0, i32 4
  %status = call i64 @invoke(ptr %context, ptr %table)
  %result = call ptr @answer(i64 %status)
  ret ptr %result
}}

define ptr @ostinato_call(ptr %self, ptr %arguments, i64 %given) {{
entry:
  %context = call ptr @context_of(ptr %self)
  %inputs = field i64, %Context, ptr %context, i32 4
  %count = field i64, %Context, ptr %context, i32 5
  %specs = getelementptr %Context, ptr %context, i64 1
  %ndarray = field ptr, %Context, ptr %context, i32 8
  %is.complete = icmp eq i64 %given, %count
  br i1 %is.complete, label %begin, label %refuse
refuse:
  %refusal = call ptr @answer(i64 -1)
  ret ptr %refusal
begin:
  %workspace = field ptr, %Context, ptr %context, i32 3
  %states = field i64, %Workspace, ptr %workspace, i32 4
  %state.buffers = shl i64 %states, 1
  %buffers = add i64 %count, %state.buffers
  %entries = add i64 %buffers, 3
  %table = alloca ptr, i64 %entries
  br label %next
next:
  %i = phi i64 [ 0, %begin ], [ %i.next, %accept ]
  %is.last = icmp eq i64 %i, %count
  br i1 %is.last, label %run, label %identify
identify:
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %argument = load ptr, ptr %argument.at
  %type = field ptr, %Array, ptr %argument, i32 1
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %check, label %refuse
check:
  %spec = getelementptr %Spec, ptr %specs, i64 %i
  %rank = field i64, %Spec, ptr %spec, i32 3
  %is.known = icmp slt i64 %rank, 0
  br i1 %is.known, label %enter, label %measure
measure:
  %is.input = icmp ult i64 %i, %inputs
  %flags = select i1 %is.input, i32 {_READ}, i32 {_WRITE}
  %is.fit = call i1 @fits(ptr %argument, ptr %spec, i32 %flags)
  br i1 %is.fit, label %enter, label %refuse
enter:
  %is.done = phi i1 [ true, %check ], [ %is.input, %measure ]
  %data = field ptr, %Array, ptr %argument, i32 2
  %place = field i64, %Spec, ptr %spec, i32 5
  %slot = getelementptr ptr, ptr %table, i64 %place
  store ptr %data, ptr %slot
  br i1 %is.done, label %accept, label %output
output:
  %is.shared = call i1 @overlaps(ptr %table, ptr %specs, i64 %i)
  br i1 %is.shared, label %refuse, label %accept
accept:
  %i.next = add i64 %i, 1
  br label %next
run:
  %constants = field ptr, %Context, ptr %context, i32 6
  %constants.slot = getelementptr ptr, ptr %table, i64 %buffers
  store ptr %constants, ptr %constants.slot
  %arena = field ptr, %Context, ptr %context, i32 7
  %arena.index = add i64 %buffers, 1
  %arena.slot = getelementptr ptr, ptr %table, i64 %arena.index
  store ptr %arena, ptr %arena.slot
  %watch = getelementptr %Workspace, ptr %workspace, i64 0, i32 3
  %watch.index = add i64 %buffers, 2
  %watch.slot = getelementptr ptr, ptr %table, i64 %watch.index
  store ptr %watch, ptr %watch.slot
  %code = call i64 @invoke(ptr %context, ptr %table)
  %result = call ptr @answer(i64 %code)
  ret ptr %result
}}
"""


def assembly(processor: Processor) -> str:
    """The module's text for a kind of processor."""
    text = _TYPES + processor.assembly + _ENTER + _WATCH + _INVOKE + _KEEP + _HELPERS + _ENTRIES
    numbers = {
        "FLUSH_BITS": processor.flush_bits,
        "PLAIN_BITS": ~processor.flush_bits,
        "KEPT": _KEPT_TICKS,
        "RELEASED": _RELEASED_TICKS,
        "FOREIGN": _FOREIGN,
        "STOPPED": STOPPED,
    }
    text = re.sub(rf"\b({'|'.join(numbers)})\b", lambda m: str(numbers[m[1]]), text)
    text = _FIELD.sub(_LOADED, text)
    return _DEFINED.sub(_with_attributes, text)


def _with_attributes(head: re.Match[str]) -> str:
    """The first line of a function; nothing unwinds it."""
    return f"{head[1]} nounwind{' noinline optnone' if head[2] in _PLAIN else ''} {{"
