"""Making objects in LLVM assembly: `create_in`, and `create` and `destroy` on top of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ostinato.aot.emitter import NULL, Emitter, Parameter
from ostinato.aot.objects import ALIGNMENT, rounded_value
from ostinato.aot.planning_ir import needed
from ostinato.codegen.writer import Value, Writer, integer

WEIGHTS_MAGIC = int.from_bytes(b"OSTWEIGH", "little")
WEIGHTS_HEAD = 64
"""Bytes of a file of weights before the weights."""
_WEIGHTS_SUM = 2
"""The word of them that is the checksum of the weights, which are laid out for one target."""


def functions(e: Emitter) -> Iterator[str]:
    """The function that makes objects in the caller's memory."""
    yield _create_in(e)


def heap_functions(e: Emitter) -> Iterator[str]:
    """Functions that use memory of the system: `take` gives some, `give` gives it back."""
    yield _create(e)
    yield _destroy(e)


def _create_in(e: Emitter) -> str:
    """Make an object in the caller's memory."""
    w = Writer(e.declarations)
    # Memory on the stack is taken before anything else, as part of the frame.
    place = w.emit("ptr", "alloca i64")
    sizes = e.parameters(e.interface.sizes)
    e.leave_if_any(w, [e.is_null(w, "%memory"), e.is_null(w, "%object")], "NULL")
    e.leave(w, e.is_misaligned(w, "%memory", ALIGNMENT), "ALIGNMENT")
    weights = _checked_weights(e, w)
    values = e.wide(w, sizes)
    code, total = needed(w, place, values)
    e.leave_with(w, code)
    (given,) = e.wide(w, [Parameter("bytes", e.size)])
    e.leave(w, w.compare("icmp", "ult", given, total, 1), "MEMORY")
    w.line(f"call void @clear(ptr %memory, i64 {e.type.head_bytes})")
    _fill(e, w, weights, given, values)
    w.line("store ptr %memory, ptr %object")
    parameters = [
        Parameter("memory", "ptr"),
        Parameter("bytes", e.size),
        *e.weights_parameters,
        *sizes,
        Parameter("object", "ptr"),
    ]
    return e.exported("create_in", parameters, w, integer(0, "i32"))


def _checked_weights(e: Emitter, w: Writer) -> Value:
    """The weights: those in this module, or in a mapped file, whose contents are checked."""
    interface = e.interface
    if not interface.weights_in_file:
        return Value("@weights", "ptr")
    e.leave(w, e.is_null(w, "%weights"), "NULL")
    e.leave(w, e.is_misaligned(w, "%weights", ALIGNMENT), "ALIGNMENT")
    (given,) = e.wide(w, [Parameter("weights_bytes", e.size)])
    total = integer(WEIGHTS_HEAD + interface.constant_bytes)
    e.leave(w, w.compare("icmp", "ne", given, total, 1), "WEIGHTS")
    for i in range(WEIGHTS_HEAD // 8):
        at = w.pointer(Value("%weights", "ptr"), integer(i), "i64")
        found = w.load("i64", at)
        expected = w.load("i64", _weight_item(i))
        e.leave(w, w.compare("icmp", "ne", found, expected, 1), "WEIGHTS")
    start = w.pointer(Value("%weights", "ptr"), integer(WEIGHTS_HEAD), "i8")
    size = interface.constant_bytes
    found = w.emit("i64", f"call i64 @checksum(ptr {start.text}, i64 {size})")
    expected = w.load("i64", _weight_item(_WEIGHTS_SUM))
    e.leave(w, w.compare("icmp", "ne", found, expected, 1), "WEIGHTS")
    return start


def _fill(e: Emitter, w: Writer, weights: Value, given: Value, sizes: Sequence[Value]) -> None:
    """Write the fields of a new object."""
    type_, count = e.type, len(e.tensors)
    listed = ", ".join(f"i64 {value.text}" for value in sizes)
    states = w.emit("i64", f"call i64 @state_bytes({listed})")
    taken = w.add(states, integer(type_.head_bytes))
    type_.store(w, "%memory", "state_bytes", states)
    type_.store(w, "%memory", "arena_bytes", w.sub(given, taken))
    for i, value in enumerate(sizes):
        type_.store(w, "%memory", "own_sizes", value, i)
    type_.store(w, "%memory", "buffers", weights, count)
    arena = w.pointer(Value("%memory", "ptr"), taken, "i8")
    type_.store(w, "%memory", "buffers", arena, count + 1)
    place = w.pointer(Value("%memory", "ptr"), integer(type_.head_bytes), "i8")
    for i, state in enumerate(e.interface.states):
        tensor = e.interface.inputs[state.read]
        size = rounded_value(w, e.bytes_of(w, tensor, sizes))
        places = [place]
        for _ in range(state.buffers):
            places.append(w.pointer(places[-1], size, "i8"))
        *halves, place = places
        type_.store(w, "%memory", "states", halves[0], 2 * i)
        type_.store(w, "%memory", "states", halves[-1], 2 * i + 1)
    for i, grown in enumerate(e.interface.growing):
        type_.store(w, "%memory", "growing", place, i)
        tensor = e.interface.outputs[grown.written]
        place = w.pointer(place, rounded_value(w, e.bytes_of(w, tensor, sizes)), "i8")
    type_.store(w, "%memory", "magic", e.magic)
    if e.interface.states:
        w.emit("i32", f"call i32 @{e.interface.name}_reset(ptr %memory)")


def _create(e: Emitter) -> str:
    """Make an object in memory of the system."""
    w, interface = Writer(e.declarations), e.interface
    sizes = e.parameters(interface.sizes)
    listed = ", ".join(f"{p.type} %{p.name}" for p in sizes)
    types = ", ".join(p.type for p in sizes)
    e.leave(w, e.is_null(w, "%object"), "NULL")
    e.declarations.add(f"declare {e.size} @{interface.name}_memory_bytes({types})")
    asked = w.emit(e.size, f"call {e.size} @{interface.name}_memory_bytes({listed})")
    # Sizes that are refused need nothing; `create_in` says what is wrong with them.
    total = w.binary("add", asked, integer(ALIGNMENT, e.size))
    block = w.emit("ptr", f"call ptr @take({e.size} {total.text})")
    e.leave(w, e.is_null(w, block.text), "HEAP")
    address = w.convert("ptrtoint", block, e.size)
    over = w.binary("sub", integer(0, e.size), address)
    over = w.binary("and", over, integer(ALIGNMENT - 1, e.size))
    memory = w.emit("ptr", f"getelementptr i8, ptr {block.text}, {e.size} {over.text}")
    weights = "".join(f"{p.type} %{p.name}, " for p in e.weights_parameters)
    given = f"ptr {memory.text}, {e.size} {asked.text}, {weights}"
    rest = f"{listed}, " if listed else ""
    name = f"{interface.name}_create_in"
    kinds = [p.type for p in (*e.weights_parameters, *sizes)]
    e.declarations.add(f"declare i32 @{name}({', '.join(['ptr', e.size, *kinds, 'ptr'])})")
    code = w.emit("i32", f"call i32 @{name}({given}{rest}ptr %object)")
    bad = w.compare("icmp", "ne", code, integer(0, "i32"), 1)
    with e.leaving(w, bad, f"i32 {code.text}"):
        w.line(f"call void @give(ptr {block.text})")
    e.type.store(w, memory.text, "block", block)
    parameters = [*e.weights_parameters, *sizes, Parameter("object", "ptr")]
    return e.exported("create", parameters, w, integer(0, "i32"))


def _destroy(e: Emitter) -> str:
    """Give the memory back; nothing for NULL and for the caller's memory."""
    w = Writer(e.declarations)
    e.check_object(w, "void")
    e.type.store(w, "%object", "magic", integer(0))
    block = e.type.load(w, "%object", "block")
    with w.when(w.compare("icmp", "ne", block, NULL, 1)):
        w.line(f"call void @give(ptr {block.text})")
    return e.exported("destroy", [Parameter("object", "ptr")], w)


def _weight_item(index: int) -> Value:
    return Value(f"getelementptr (i64, ptr @weights.head, i64 {index})", "ptr")
