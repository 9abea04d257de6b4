"""Planning in LLVM assembly: what sizes a call has, and how much memory they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ostinato.aot.emitter import Emitter, Parameter
from ostinato.aot.interface import Tensor
from ostinato.aot.objects import rounded_value
from ostinato.codegen.writer import Value, Writer, float_literal, integer

# States, and each input, have fewer bytes than this: above it products of sizes may wrap around.
_MOST = float(2**62)


def functions(e: Emitter) -> Iterator[str]:
    """All functions that plan."""
    yield _plan(e)
    yield _state_bytes(e)
    yield _needs(e)
    yield _memory_bytes(e)
    yield _replan(e)
    if not e.interface.has_plain_outputs:
        yield _output_sizes(e)


def _plan(e: Emitter) -> str:
    """`plan(symbols, layout, sizes)`: fill the table of symbols and lay memory out."""
    w, interface = Writer(e.declarations), e.interface
    parameters = [Parameter("symbols", "ptr"), Parameter("layout", "ptr")]
    sizes = e.parameters(interface.sizes, "i64")
    # `layout` completes the table by symbols that are defined in terms of the others.
    values = {place: integer(0) for place in range(interface.symbols)}
    for size, parameter in zip(interface.sizes, sizes, strict=True):
        value = Value(f"%{parameter.name}", "i64")
        if size.kind != "value":
            negative = w.compare("icmp", "slt", value, integer(0), 1)
            e.leave(w, negative, "SIZE")
        if size.symbol is not None:
            values[size.symbol] = value
    if interface.own_memory is not None:
        values[interface.own_memory] = integer(1 << 62)
    for place, value in values.items():
        at = w.pointer(Value("%symbols", "ptr"), integer(place), "i64")
        w.store(value, at)
    code = w.emit("i64", "call i64 @layout(ptr %symbols, ptr %layout)")
    e.leave(w, w.compare("icmp", "slt", code, integer(0), 1), "SIZE")
    result = w.convert("trunc", code, "i32")
    return e.function("plan", [*parameters, *sizes], w, result, "internal ")


def _state_bytes(e: Emitter) -> str:
    """`state_bytes(sizes)`: of all buffers of states; -1 where they are too many."""
    w = Writer(e.declarations)
    parameters = e.parameters(e.interface.sizes, "i64")
    sizes = e.wide(w, parameters)
    total = integer(0)
    buffers = [(e.interface.inputs[state.read], state.buffers) for state in e.interface.states]
    buffers += [(e.interface.outputs[state.written], 1) for state in e.interface.growing]
    for tensor, count in buffers:
        if tensor.elements is None:
            most = _MOST / len(buffers) / count
            with e.leaving(w, _is_beyond(e, w, tensor, sizes, most), "i64 -1"):
                pass
        size = rounded_value(w, e.bytes_of(w, tensor, sizes))
        total = w.add(total, w.mul(size, integer(count)))
    return e.function("state_bytes", parameters, w, total, "internal ")


def _is_beyond(e: Emitter, w: Writer, tensor: Tensor, sizes: Sequence[Value], most: float) -> Value:
    """Whether a tensor has more bytes than this, whatever its sizes are."""
    about = float_literal(float(tensor.item_bytes), "double")
    named = dict(zip((s.identifier for s in e.interface.sizes), sizes, strict=True))
    for dim in tensor.dims:
        assert dim is not None
        value = named[dim] if isinstance(dim, str) else integer(dim)
        factor = w.convert("uitofp", value, "double")
        about = w.binary("fmul", about, factor)
    return w.compare("fcmp", "ogt", about, float_literal(most, "double"), 1)


def _tables(e: Emitter, w: Writer) -> tuple[Value, Value]:
    """Tables of symbols and of `layout` for one call."""
    symbols = w.emit("ptr", f"alloca [{max(e.interface.symbols, 1)} x i64]")
    count = next(field.count for field in e.type.fields if field.name == "layout")
    return symbols, w.emit("ptr", f"alloca [{count} x i64]")


def _needs(e: Emitter) -> str:
    """`needs(result, sizes)`: the code of planning, and bytes of an object."""
    w = Writer(e.declarations)
    sizes = e.parameters(e.interface.sizes, "i64")
    listed = "".join(f", i64 %{p.name}" for p in sizes)
    symbols, layout = _tables(e, w)
    plan = f"call i32 @plan(ptr {symbols.text}, ptr {layout.text}{listed})"
    e.leave_with(w, w.emit("i32", plan))
    states = w.emit("i64", f"call i64 @state_bytes({listed[2:]})")
    e.leave(w, w.compare("icmp", "slt", states, integer(0), 1), "SIZE")
    arena = w.load("i64", layout)
    about = w.binary("or", arena, states)
    # Anything above does not fit into the address space of any machine.
    limit = integer(1 << (61 if e.size == "i64" else 30))
    e.leave(w, w.compare("icmp", "ugt", about, limit, 1), "SIZE")
    total = w.add(w.add(rounded_value(w, arena), states), integer(e.type.head_bytes))
    w.store(total, Value("%result", "ptr"))
    parameters = [Parameter("result", "ptr"), *sizes]
    return e.function("needs", parameters, w, integer(0, "i32"), "internal ")


def needed(w: Writer, place: Value, sizes: Sequence[Value]) -> tuple[Value, Value]:
    """Code and bytes of `needs`; `place` is memory for an i64."""
    w.store(integer(0), place)
    listed = "".join(f", i64 {value.text}" for value in sizes)
    code = w.emit("i32", f"call i32 @needs(ptr {place.text}{listed})")
    return code, w.load("i64", place)


def _memory_bytes(e: Emitter) -> str:
    """Bytes of an object, 0 for sizes that are refused."""
    w = Writer(e.declarations)
    parameters = e.parameters(e.interface.sizes)
    place = w.emit("ptr", "alloca i64")
    _, total = needed(w, place, e.wide(w, parameters))
    return e.exported("memory_bytes", parameters, w, e.narrow(w, total))


def _replan(e: Emitter) -> str:
    """`replan(object, sizes)`: plan calls of other sizes than the last ones."""
    w, interface, type_ = Writer(e.declarations), e.interface, e.type
    sizes = e.parameters(interface.sizes, "i64")
    values = [Value(f"%{p.name}", "i64") for p in sizes]
    type_.store(w, "%object", "is_planned", integer(0))
    symbols = type_.at(w, "%object", "symbols")
    layout = type_.at(w, "%object", "layout")
    listed = "".join(f", i64 {value.text}" for value in values)
    plan = f"call i32 @plan(ptr {symbols.text}, ptr {layout.text}{listed})"
    e.leave_with(w, w.emit("i32", plan))
    arena = type_.load(w, "%object", "layout")
    room = type_.load(w, "%object", "arena_bytes")
    e.leave(w, w.compare("icmp", "ugt", arena, room, 1), "MEMORY")
    for i, tensor in enumerate(interface.inputs):
        if tensor.elements is None:
            most = _MOST if e.size == "i64" else float(2**32)
            e.leave(w, _is_beyond(e, w, tensor, values, most), "SIZE")
        type_.store(w, "%object", "lengths", e.bytes_of(w, tensor, values), i)
    place = 1
    for i, tensor in enumerate(interface.outputs):
        total = integer(tensor.item_bytes)
        for _ in tensor.shape:
            total = w.mul(total, type_.load(w, "%object", "layout", place))
            place += 1
        type_.store(w, "%object", "lengths", total, len(interface.inputs) + i)
    for i, value in enumerate(values):
        type_.store(w, "%object", "sizes", value, i)
    type_.store(w, "%object", "is_planned", integer(1))
    parameters = [Parameter("object", "ptr"), *sizes]
    return e.function("replan", parameters, w, integer(0, "i32"), "internal ")


def _output_sizes(e: Emitter) -> str:
    """The dimensions of all outputs for these sizes, `max_rank` numbers each."""
    w, interface = Writer(e.declarations), e.interface
    symbols, layout = _tables(e, w)
    parameters = e.parameters(interface.sizes)
    e.leave(w, e.is_null(w, "%sizes"), "NULL")
    listed = "".join(f", i64 {value.text}" for value in e.wide(w, parameters))
    plan = f"call i32 @plan(ptr {symbols.text}, ptr {layout.text}{listed})"
    e.leave_with(w, w.emit("i32", plan))
    place = 1
    for i, tensor in enumerate(interface.outputs):
        for axis in range(interface.max_rank):
            value = integer(1)
            if axis < len(tensor.shape):
                at = w.pointer(layout, integer(place), "i64")
                value = w.load("i64", at)
                place += 1
            target = integer(i * interface.max_rank + axis)
            at = w.pointer(Value("%sizes", "ptr"), target, "i64")
            w.store(value, at)
    parameters = [*parameters, Parameter("sizes", "ptr")]
    return e.exported("output_sizes", parameters, w, integer(0, "i32"))
