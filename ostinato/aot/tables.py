"""Constant tables of the C interface in LLVM assembly, and the functions that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ostinato.aot.interface import ERRORS, Interface, Tensor

_SUCCESS = "no error"
_UNKNOWN = "no code of this library"


class _Strings:
    """Texts, each stored once, ended by a zero."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, text: str) -> str:
        """The constant that holds the text."""
        return self._names.setdefault(text, f"@text.{len(self._names)}")

    def definitions(self) -> Iterator[str]:
        for text, name in self._names.items():
            data = text.replace("\0", " ").encode() + b"\0"
            body = "".join(f"\\{byte:02X}" for byte in data)
            kind = f"[{len(data)} x i8]"
            yield f'{name} = private unnamed_addr constant {kind} c"{body}", align 1'


def tables(interface: Interface) -> str:
    """`error_text`, `input` and `output`; the lists of places that calls compare."""
    strings = _Strings()
    count = len(interface.inputs)
    texts = [
        *(
            _places(name, inputs, outputs, count)
            for name, (inputs, outputs) in interface.places.items()
        ),
        *_tensors(interface, strings),
        *_error_text(interface, strings),
    ]
    return "\n".join([*texts, *strings.definitions()])


def _places(name: str, inputs: Sequence[int], outputs: Sequence[int], count: int) -> str:
    """Places in the table of buffers, those of outputs first."""
    places = [*(count + i for i in outputs), *inputs]
    items = ", ".join(f"i32 {place}" for place in places)
    return f"@{name}.places = internal constant [{len(places)} x i32] [{items}]"


def _array(item: str, values: Sequence[str]) -> str:
    return f"[{', '.join(f'{item} {value}' for value in values)}]"


def _tensors(interface: Interface, strings: _Strings) -> Iterator[str]:
    rank = interface.max_rank
    yield f"%Tensor = type {{ ptr, ptr, ptr, i32, i32, [{rank} x i64], [{rank} x ptr] }}"
    states = {state.read: state.written for state in interface.states}
    following = {
        "inputs": {read: interface.outputs[written].name for read, written in states.items()},
        "outputs": {written: interface.inputs[read].name for read, written in states.items()}
        | {state.written: state.name for state in interface.growing},
    }
    every = range(len(interface.outputs))
    kinds = {
        "inputs": (interface.inputs, interface.told_inputs),
        "outputs": (interface.outputs, every),
    }
    for kind, (tensors, places) in kinds.items():
        rows = [_row(tensors[i], following[kind].get(i), rank, strings) for i in places]
        body = _array("%Tensor", rows) if rows else "zeroinitializer"
        yield f"@{kind} = internal constant [{len(rows)} x %Tensor] {body}"
        yield _element(f"{interface.name}_{kind[:-1]}", kind, len(rows))


def _row(tensor: Tensor, partner: str | None, rank: int, strings: _Strings) -> str:
    sizes = [str(size) if isinstance(size, int) else "-1" for size in tensor.shape]
    dims = [strings.name(str(size)) for size in tensor.shape]
    missing = rank - len(dims)
    fields = [
        f"ptr {strings.name(tensor.name)}",
        f"ptr {strings.name(tensor.dtype)}",
        f"ptr {'null' if partner is None else strings.name(partner)}",
        f"i32 {tensor.item_bytes}",
        f"i32 {len(dims)}",
        f"[{rank} x i64] {_array('i64', [*sizes, *['1'] * missing])}",
        f"[{rank} x ptr] {_array('ptr', [*dims, *['null'] * missing])}",
    ]
    return f"{{ {', '.join(fields)} }}"


def _element(name: str, table: str, count: int) -> str:
    """A function that returns the address of a row; null behind the last one."""
    return f"""
define ptr @{name}(i32 %index) nounwind {{
entry:
  %is.there = icmp ult i32 %index, {count}
  br i1 %is.there, label %found, label %none
found:
  %at = getelementptr %Tensor, ptr @{table}, i32 %index
  ret ptr %at
none:
  ret ptr null
}}
"""


def _error_text(interface: Interface, strings: _Strings) -> Iterator[str]:
    """Codes from the lowest one of the interface to the highest of the model's checks."""
    guards = set(interface.guards)
    checks = [
        f"{c}; this library is built for other sizes" if c in guards else c
        for c in interface.checks
    ]
    messages = [*reversed(ERRORS.values()), _SUCCESS, *checks]
    items = _array("ptr", [strings.name(text) for text in messages])
    yield f"@messages = internal constant [{len(messages)} x ptr] {items}"
    yield f"""
define ptr @{interface.name}_error_text(i32 %code) nounwind {{
entry:
  %index = add i32 %code, {len(ERRORS)}
  %is.known = icmp ult i32 %index, {len(messages)}
  br i1 %is.known, label %known, label %unknown
known:
  %at = getelementptr ptr, ptr @messages, i32 %index
  %text = load ptr, ptr %at
  ret ptr %text
unknown:
  ret ptr {strings.name(_UNKNOWN)}
}}
"""
