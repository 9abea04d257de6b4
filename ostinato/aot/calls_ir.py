"""Calls in LLVM assembly: `run`, and `step` on the states of an object.

A call

1. checks the object and the pointers; of a tensor that may be empty the pointer may be NULL,
2. plans anew where sizes are others than those of the last call (`layout`),
3. checks that pointers which are NULL are those of empty tensors,
4. writes the pointers to the table of buffers, those of the states among them,
5. checks that no output overlaps another argument, or memory of the object,
6. calls `entry`, and exchanges the two buffers of each state where that succeeded.

Only `entry` writes to tensors, so that whatever is refused before leaves them as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ostinato.aot.emitter import Emitter, Parameter
from ostinato.aot.interface import Size
from ostinato.codegen.writer import Value, Writer, integer


def functions(e: Emitter) -> Iterator[str]:
    """All calls."""
    given = {"run": e.interface.run_sizes, "step": e.interface.step_sizes}
    for name in e.interface.places:
        yield _call(e, name, given[name])


def _call(e: Emitter, name: str, given: Sequence[Size]) -> str:
    """A function of sizes, inputs and outputs. In a step the object has the states."""
    w, interface, type_ = Writer(e.declarations), e.interface, e.type
    count = len(interface.inputs)
    inputs, outputs = interface.places[name]
    places = [*inputs, *(count + i for i in outputs)]
    sizes = e.parameters(given)
    pointers = {place: f"%t.{place}" for place in places}
    e.check_object(w)
    _check_pointers(e, w, pointers)
    _make_plan(e, w, given, sizes, pointers)
    if name == "step":
        _check_state_shapes(e, w)
    for place, pointer in _given(e, w, pointers).items():
        type_.store(w, "%object", "buffers", pointer, place)
    _check_overlap(e, w, name, inputs, outputs)
    states = interface.states if name == "step" else ()
    halves = []
    for i, state in enumerate(states):
        now = type_.load(w, "%object", "states", 2 * i)
        following = type_.load(w, "%object", "states", 2 * i + 1)
        type_.store(w, "%object", "buffers", now, state.read)
        type_.store(w, "%object", "buffers", following, count + state.written)
        halves.append((now, following))
    for i, grown in enumerate(interface.growing):
        memory = type_.load(w, "%object", "growing", i)
        type_.store(w, "%object", "buffers", memory, count + grown.written)
    for place, number in interface.own_sizes:
        own = type_.at(w, "%object", "own_sizes", number)
        type_.store(w, "%object", "buffers", own, place)
    buffers = type_.at(w, "%object", "buffers")
    symbols = type_.at(w, "%object", "symbols")
    code = w.emit("i64", f"call i64 @entry(ptr {buffers.text}, ptr {symbols.text})")
    result = w.convert("trunc", code, "i32")
    e.leave_with(w, result)
    for i, (now, following) in enumerate(halves):
        type_.store(w, "%object", "states", following, 2 * i)
        type_.store(w, "%object", "states", now, 2 * i + 1)
    parameters = [Parameter("object", "ptr"), *sizes]
    parameters += [Parameter(pointer[1:], "ptr") for pointer in pointers.values()]
    return e.exported(name, parameters, w, integer(0, "i32"))


def _check_pointers(e: Emitter, w: Writer, pointers: dict[int, str]) -> None:
    full = [pointer for place, pointer in pointers.items() if not _may_be_empty(e, place)]
    e.leave_if_any(w, [e.is_null(w, pointer) for pointer in full], "NULL")
    sizes = [(pointer, e.tensors[place].item_bytes) for place, pointer in pointers.items()]
    bad = [e.is_misaligned(w, pointer, size) for pointer, size in sizes if size > 1]
    e.leave_if_any(w, bad, "ALIGNMENT")


def _may_be_empty(e: Emitter, place: int) -> bool:
    return not e.tensors[place].elements


def _given(e: Emitter, w: Writer, pointers: dict[int, str]) -> dict[int, Value]:
    """The pointers to tensors; to the object in place of NULL for one without elements."""
    found, bad = dict[int, Value](), list[Value]()
    for place, pointer in pointers.items():
        found[place] = Value(pointer, "ptr")
        if _may_be_empty(e, place):
            null = e.is_null(w, pointer)
            length = e.type.load(w, "%object", "lengths", place)
            bad.append(w.binary("and", null, w.compare("icmp", "ne", length, integer(0), 1)))
            chosen = f"select i1 {null.text}, ptr %object, ptr {pointer}"
            found[place] = w.emit("ptr", chosen)
    e.leave_if_any(w, bad, "NULL")
    return found


def _make_plan(
    e: Emitter,
    w: Writer,
    given: Sequence[Size],
    parameters: Sequence[Parameter],
    pointers: dict[int, str],
) -> None:
    """Plan anew if sizes are not those of the last call."""
    type_, interface = e.type, e.interface
    known = dict(zip(given, e.wide(w, parameters), strict=True))
    sizes = []
    planned = type_.load(w, "%object", "is_planned")
    other = w.compare("icmp", "eq", planned, integer(0), 1)
    for i, size in enumerate(interface.sizes):
        if size in known:
            value = known[size]
        elif size.kind == "value":
            value = _element(e, w, size, pointers)
        else:
            value = type_.load(w, "%object", "own_sizes", i)
        sizes.append(value)
        last = type_.load(w, "%object", "sizes", i)
        other = w.binary("or", other, w.compare("icmp", "ne", value, last, 1))
    with w.when(other):
        listed = "".join(f", i64 {value.text}" for value in sizes)
        e.leave_with(w, w.emit("i32", f"call i32 @replan(ptr %object{listed})"))


def _element(e: Emitter, w: Writer, size: Size, pointers: dict[int, str]) -> Value:
    """An element of an input that decides a size; of a state's where a step keeps it."""
    place, index = size.source
    tensor = e.interface.inputs[place]
    if place in pointers:
        base = Value(pointers[place], "ptr")
    else:
        number = next(i for i, s in enumerate(e.interface.states) if s.read == place)
        base = e.type.load(w, "%object", "states", 2 * number)
    item = f"i{8 * tensor.item_bytes}"
    at = w.pointer(base, integer(index), item)
    value = w.load(item, at)
    if item == "i64":
        return value
    extend = "sext" if tensor.dtype.startswith("int") else "zext"
    return w.emit("i64", f"{extend} {item} {value.text} to i64")


def _check_state_shapes(e: Emitter, w: Writer) -> None:
    """The next value of a state has the shape of the state, unless they are spelled alike."""
    interface, type_ = e.interface, e.type
    starts = [1]
    for tensor in interface.outputs:
        starts.append(starts[-1] + len(tensor.shape))
    places = {size.identifier: i for i, size in enumerate(interface.sizes)}
    for state in interface.states:
        read, written = interface.inputs[state.read], interface.outputs[state.written]
        if read.shape == written.shape:
            continue
        for axis, dim in enumerate(read.dims):
            made = type_.load(w, "%object", "layout", starts[state.written] + axis)
            own = (
                type_.load(w, "%object", "own_sizes", places[dim])
                if isinstance(dim, str)
                else integer(dim or 0)
            )
            e.leave(w, w.compare("icmp", "ne", made, own, 1), "SIZE")


def _check_overlap(
    e: Emitter, w: Writer, name: str, inputs: Sequence[int], outputs: Sequence[int]
) -> None:
    interface, type_ = e.interface, e.type
    count = len(inputs) + len(outputs)
    buffers = type_.at(w, "%object", "buffers")
    lengths = type_.at(w, "%object", "lengths")
    arguments = (
        f"ptr {buffers.text}, ptr {lengths.text}, ptr @{name}.places, "
        f"i64 {len(outputs)}, i64 {count}"
    )
    e.leave(w, w.emit("i1", f"call i1 @overlap({arguments})"), "OVERLAP")
    first = len(interface.inputs)
    for start, end in _own_memory(e, w, name):
        for i in outputs:
            output = type_.load(w, "%object", "buffers", first + i)
            behind = w.pointer(output, type_.load(w, "%object", "lengths", first + i), "i8")
            begins = w.compare("icmp", "ult", output, end, 1)
            ends = w.compare("icmp", "ult", start, behind, 1)
            e.leave(w, w.binary("and", begins, ends), "OVERLAP")


def _own_memory(e: Emitter, w: Writer, name: str) -> Iterator[tuple[Value, Value]]:
    """The begin and end of memory of the object; `run` may write to its states."""
    interface, type_ = e.interface, e.type
    object_ = Value("%object", "ptr")
    arena = type_.load(w, "%object", "buffers", len(e.tensors) + 1)
    end = w.pointer(arena, type_.load(w, "%object", "arena_bytes"), "i8")
    if name == "run" and interface.states:
        yield object_, w.pointer(object_, integer(type_.head_bytes), "i8")
        yield arena, end
    else:
        yield object_, end
