"""States in LLVM assembly: going back to the first, showing, saving and loading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ostinato.aot.emitter import Emitter, Parameter
from ostinato.aot.interface import State, Tensor
from ostinato.aot.objects import rounded_value
from ostinato.codegen.writer import Value, Writer, integer

# A saved state begins with magic, fingerprint, bytes, checksum; then follow sizes and states.
_SAVED_MAGIC = int.from_bytes(b"OSTSTATE", "little")
_SAVED_HEAD = 4


def functions(e: Emitter) -> Iterator[str]:
    """All functions of states, and the values they begin with."""
    if e.interface.states:
        yield from _initial_values(e)
        yield _reset(e)
        yield _save_bytes(e)
        yield _save(e)
        yield _load(e)
        places = [place for _, place in _buffers(e)]
        shown = zip(e.interface.shown, places, strict=True)
        yield from (_memory(e, function, place) for (function, _), place in shown)


def _initial_values(e: Emitter) -> Iterator[str]:
    """Constants with what states begin with where that is not zero."""
    for i, state in enumerate(e.interface.states):
        if state.initial is not None:
            data = state.initial.tobytes()
            data += bytes(-len(data) % 8)
            body = f'c"\\{data.hex(chr(92))}"'
            yield f"@initial.{i} = internal constant [{len(data)} x i8] {body}, align 8"


def _reset(e: Emitter) -> str:
    """States as before the first step, and the bytes behind them zero."""
    w, type_ = Writer(e.declarations), e.type
    e.check_object(w)
    start = w.emit("ptr", f"getelementptr i8, ptr %object, i64 {type_.head_bytes}")
    size = type_.load(w, "%object", "state_bytes")
    w.line(f"call void @clear(ptr {start.text}, i64 {size.text})")
    sizes = e.own_sizes(w)
    for i, state in enumerate(e.interface.states):
        if state.initial is not None:
            _begin(e, w, i, state, sizes)
    return e.exported("reset", [Parameter("object", "ptr")], w, integer(0, "i32"))


def _begin(e: Emitter, w: Writer, index: int, state: State, sizes: Sequence[Value]) -> None:
    """Write the first value of a state, repeated along axes where it has one element."""
    assert state.initial is not None
    tensor = e.interface.inputs[state.read]
    now = e.type.load(w, "%object", "states", 2 * index)
    named = dict(zip((s.identifier for s in e.interface.sizes), sizes, strict=True))
    item = f"i{8 * tensor.item_bytes}"
    shape = state.initial.shape
    extents = [named[d] if isinstance(d, str) else integer(d or 0) for d in tensor.dims]

    def write(axis: int, source: Value, target: Value) -> None:
        """source, target: the elements' numbers so far."""
        if axis == len(shape):
            at = w.pointer(Value(f"@initial.{index}", "ptr"), source, item)
            value = w.load(item, at)
            place = w.pointer(now, target, item)
            w.store(value, place)
            return
        with w.loop(integer(0), extents[axis], 1) as loop:
            step = integer(0) if shape[axis] == 1 else loop.index
            inner = w.add(w.mul(source, integer(shape[axis])), step)
            write(axis + 1, inner, w.add(w.mul(target, extents[axis]), loop.index))

    write(0, integer(0), integer(0))


def _memory(e: Emitter, function: str, place: tuple[str, int]) -> str:
    """The memory of a state."""
    w = Writer(e.declarations)
    e.check_object(w, "ptr null")
    return e.exported(function, [Parameter("object", "ptr")], w, e.type.load(w, "%object", *place))


def _saved_bytes(e: Emitter, w: Writer) -> Value:
    """Head, sizes, and one buffer of each state."""
    total, sizes = integer(8 * (_SAVED_HEAD + len(e.interface.sizes))), e.own_sizes(w)
    for tensor, _ in _buffers(e):
        total = w.add(total, rounded_value(w, e.bytes_of(w, tensor, sizes)))
    return total


def _buffers(e: Emitter) -> Iterator[tuple[Tensor, tuple[str, int]]]:
    """The buffers of a saved state, each with the field of an object that points to it."""
    for i, state in enumerate(e.interface.states):
        yield e.interface.inputs[state.read], ("states", 2 * i)
    for i, grown in enumerate(e.interface.growing):
        yield e.interface.outputs[grown.written], ("growing", i)


def _save_bytes(e: Emitter) -> str:
    """Bytes that `save` needs, 0 for what is no object."""
    w = Writer(e.declarations)
    e.check_object(w, f"{e.size} 0")
    result = e.narrow(w, _saved_bytes(e, w))
    return e.exported("save_bytes", [Parameter("object", "ptr")], w, result)


def _body(e: Emitter, w: Writer) -> tuple[Value, Value]:
    """The part of a saved state that the checksum covers, and its bytes."""
    start = w.pointer(Value("%memory", "ptr"), integer(_SAVED_HEAD), "i64")
    return start, w.sub(_saved_bytes(e, w), integer(8 * _SAVED_HEAD))


def _parts(e: Emitter, w: Writer, start: Value) -> Iterator[tuple[Value, Value, Value]]:
    """For each state its memory, its place in a saved state, and its bytes."""
    place = w.pointer(start, integer(len(e.interface.sizes)), "i64")
    sizes = e.own_sizes(w)
    for tensor, (field, index) in _buffers(e):
        size = rounded_value(w, e.bytes_of(w, tensor, sizes))
        yield e.type.load(w, "%object", field, index), place, size
        place = w.pointer(place, size, "i8")


def _head(e: Emitter, w: Writer) -> list[Value]:
    fingerprint = integer(e.interface.fingerprint)
    return [integer(_SAVED_MAGIC), fingerprint, _saved_bytes(e, w)]


def _open_saved(e: Emitter, w: Writer, short: str) -> None:
    """Check the object, and memory for a saved state; `short` is the error of too little."""
    e.check_object(w)
    e.leave(w, e.is_null(w, "%memory"), "NULL")
    e.leave(w, e.is_misaligned(w, "%memory", 8), "ALIGNMENT")
    (given,) = e.wide(w, [Parameter("bytes", e.size)])
    e.leave(w, w.compare("icmp", "ult", given, _saved_bytes(e, w), 1), short)


def _save(e: Emitter) -> str:
    """Write the states to the caller's memory."""
    w = Writer(e.declarations)
    _open_saved(e, w, "MEMORY")
    start, size = _body(e, w)
    for i, value in enumerate(e.own_sizes(w)):
        at = w.pointer(start, integer(i), "i64")
        w.store(value, at)
    for state, place, count in _parts(e, w, start):
        w.line(f"call void @copy(ptr {place.text}, ptr {state.text}, i64 {count.text})")
    found = w.emit("i64", f"call i64 @checksum(ptr {start.text}, i64 {size.text})")
    for i, value in enumerate([*_head(e, w), found]):
        at = w.pointer(Value("%memory", "ptr"), integer(i), "i64")
        w.store(value, at)
    return e.exported("save", _saved_parameters(e), w, integer(0, "i32"))


def _load(e: Emitter) -> str:
    """Read the states from what `save` wrote, or leave them as they are."""
    w = Writer(e.declarations)
    _open_saved(e, w, "SAVED")
    start, size = _body(e, w)
    found = w.emit("i64", f"call i64 @checksum(ptr {start.text}, i64 {size.text})")
    for i, value in enumerate([*_head(e, w), found]):
        at = w.pointer(Value("%memory", "ptr"), integer(i), "i64")
        given = w.load("i64", at)
        e.leave(w, w.compare("icmp", "ne", given, value, 1), "SAVED")
    for i, (size_, value) in enumerate(zip(e.interface.sizes, e.own_sizes(w), strict=True)):
        if size_.kind in ("state", "capacity"):
            at = w.pointer(start, integer(i), "i64")
            given = w.load("i64", at)
            e.leave(w, w.compare("icmp", "ne", given, value, 1), "SAVED")
    for state, place, count in _parts(e, w, start):
        w.line(f"call void @copy(ptr {state.text}, ptr {place.text}, i64 {count.text})")
    return e.exported("load", _saved_parameters(e), w, integer(0, "i32"))


def _saved_parameters(e: Emitter) -> list[Parameter]:
    object_, memory = Parameter("object", "ptr"), Parameter("memory", "ptr")
    return [object_, memory, Parameter("bytes", e.size)]
