"""The header of the C interface: C99 and C++, no compiler extension, nothing to configure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ostinato.aot.identifiers import different
from ostinato.aot.interface import ERRORS, EXTENT, Interface, Size, Tensor, error
from ostinato.aot.objects import ALIGNMENT, ObjectType, rounded
from ostinato.version import __version__

_WIDTH = 96


def header(
    interface: Interface, triple: str, cpu: str, arena_bytes: int | None, pointer_bytes: int
) -> str:
    """The text of NAME.h.

    cpu: the processor whose instructions are used; empty where all of the triple have them.
    arena_bytes: where sizes do not matter.
    """
    writer = _Header(interface, triple, cpu, arena_bytes, pointer_bytes)
    return "\n".join(writer.lines()) + "\n"


def _inside(text: str) -> str:
    """Text of a comment: it neither ends it nor begins another one."""
    return text.replace("*/", "* /").replace("/*", "/ *")


def _comment(text: str) -> list[str]:
    """A comment of one or more lines."""
    lines = textwrap.wrap(_inside(text), _WIDTH - 6)
    if len(lines) == 1:
        return [f"/* {lines[0]} */"]
    return [f"/* {lines[0]}", *(f"   {line}" for line in lines[1:-1]), f"   {lines[-1]} */"]


class _Header:
    def __init__(
        self,
        interface: Interface,
        triple: str,
        cpu: str,
        arena_bytes: int | None,
        pointer_bytes: int,
    ) -> None:
        self.interface, self.arena_bytes = interface, arena_bytes
        self.triple, self.cpu = triple, cpu
        self.name, self.prefix = interface.name, interface.prefix
        self.type = ObjectType(interface, pointer_bytes)

    def lines(self) -> Iterator[str]:
        guard = f"{self.prefix}_H"
        yield from self._introduction()
        yield from (f"#ifndef {guard}", f"#define {guard}", "")
        yield from ("#include <stddef.h>", "#include <stdint.h>", "")
        yield from ("#ifdef __cplusplus", 'extern "C" {', "#endif", "")
        yield from self._constants()
        yield from self._errors()
        yield from self._tensors()
        yield from self._making()
        yield from self._calls()
        yield from self._states()
        yield from ("#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */")

    # The introduction

    def _introduction(self) -> Iterator[str]:
        interface = self.interface
        rows = [("input", t) for t in self._of(interface.inputs, interface.step_inputs)]
        for state in interface.states:
            rows.append(("state", interface.inputs[state.read]))
        rows += [("rows", interface.outputs[state.written]) for state in interface.growing]
        rows += [("output", t) for t in self._of(interface.outputs, interface.step_outputs)]
        title = _inside(interface.title)
        target = f"{self.triple}, CPU {self.cpu}" if self.cpu else self.triple
        yield f"/* {title}, compiled by Ostinato {__version__} for {target}."
        yield ""
        widths = (
            [
                max([0, *(len(text) for text in column)])
                for column in zip(*[(t.name, t.described) for _, t in rows], strict=True)
            ]
            if rows
            else [0, 0]
        )
        following = {s.read: interface.outputs[s.written].name for s in interface.states}
        names = {s.written: s.name for s in interface.growing}
        for kind, tensor in rows:
            more = ""
            if kind == "state":
                more = f"next: {following[interface.inputs.index(tensor)]}"
            elif kind == "rows":
                more = f"memory of the growing state {names[interface.outputs.index(tensor)]}"
            line = f"     {kind:<7} {tensor.name:<{widths[0]}}  {tensor.described:<{widths[1]}}  "
            yield _inside(f"{line}{more}".rstrip())
        yield ""
        yield from (f"   {line}" for line in self._example())
        yield ""
        for i, paragraph in enumerate(self._rules()):
            yield from [""] if i else []
            yield from (f"   {line}" for line in textwrap.wrap(paragraph, _WIDTH - 3))
        yield "*/"

    @staticmethod
    def _of(tensors: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
        return [tensors[place] for place in places]

    def _example(self) -> list[str]:
        """An example of a program that uses it."""
        interface, name = self.interface, self.name
        sizes = [size.identifier for size in interface.sizes]
        weights = ["weights", "weights_bytes"] if interface.weights_in_file else []
        call = "step" if interface.states else "run"
        given = interface.step_sizes if interface.states else interface.run_sizes
        inputs, outputs = interface.places[call]
        arguments = [
            "object",
            *(size.identifier for size in given),
            *(t.identifier for t in self._of(interface.inputs, inputs)),
            *(t.identifier for t in self._of(interface.outputs, outputs)),
        ]
        lines = [
            f"    {name} *object = NULL;",
            f"    int code = {name}_create({', '.join([*weights, *sizes, '&object'])});",
            *_wrapped(f"    if (!code) code = {name}_{call}(", arguments, ");"),
            f"    if (code) puts({name}_error_text(code));",
            f"    {name}_destroy(object);",
        ]
        return lines

    def _rules(self) -> Iterator[str]:
        yield (
            "Tensors lie in memory row by row, without gaps, aligned to an element; those without "
            "elements may be NULL. Outputs share no memory with other arguments nor with the "
            "object. An object is used by one thread at a time; different objects share nothing "
            "that is written."
        )
        yield from self._told_by_calls()
        yield (
            "Only create and destroy ask the system for memory; nothing else calls any function "
            "outside of this library. A call that returns an error leaves the states as they were, "
            "and the outputs too unless it is one of the model's own checks."
        )
        if self.cpu:
            yield (
                f"The code runs where all instructions of {self.cpu} exist; other processors stop "
                "at an illegal instruction: build for them with `ostinato build --target`."
            )

    def _told_by_calls(self) -> Iterator[str]:
        """Say how sizes are given that are no arguments."""
        interface = self.interface
        for output, shape in interface.shapes:
            tensor, sizes = interface.outputs[output], interface.outputs[shape]
            yield (
                f"{sizes.identifier} gets the sizes of {tensor.identifier}, which only the call "
                "tells: there is memory for the largest, and the elements come first in it."
            )
        inputs = {tensor.name: tensor for tensor in interface.inputs}
        for name, extent in inputs.items():
            known = inputs.get(name.removeprefix(EXTENT)) if interface.growing else None
            if known is not None and known is not extent:
                yield (
                    f"{extent.identifier} points to the length of {known.identifier} in this "
                    "step: rows of growing states and those that the step adds."
                )

    # Constants

    def _constants(self) -> Iterator[str]:
        interface, prefix = self.interface, self.prefix
        yield from (
            f"#define {prefix}_INPUTS {len(interface.told_inputs)}",
            f"#define {prefix}_OUTPUTS {len(interface.outputs)}",
            f"#define {prefix}_STATES {len(interface.states) + len(interface.growing)}",
            f"#define {prefix}_MAX_RANK {interface.max_rank}",
            "",
            *_comment("Elements of tensors."),
        )
        own = [interface.inputs[place] for place, _ in interface.own_sizes]
        tensors = (*interface.inputs, *interface.outputs)
        constants = different(tensor.identifier.upper() for tensor in tensors)
        for constant, tensor in zip(constants, tensors, strict=True):
            if None in tensor.dims or tensor in own:
                continue
            dims = list(dict.fromkeys(d for d in tensor.dims if isinstance(d, str)))
            parameters = f"({', '.join(dims)})" if dims else ""
            yield f"#define {prefix}_{constant}_ELEMENTS{parameters} {_product(tensor)}"
        yield ""
        yield from _comment("Of memory for an object, in bytes.")
        yield f"#define {prefix}_ALIGNMENT {ALIGNMENT}"
        fixed = self._fixed_bytes()
        if fixed is not None:
            yield f"#define {prefix}_MEMORY_BYTES {fixed}"
        if interface.weights_in_file:
            yield ""
            yield from _comment(f"Of the file {self.name}.weights.")
            yield f"#define {prefix}_WEIGHTS_BYTES {interface.constant_bytes + 64}"
        yield ""

    def _fixed_bytes(self) -> int | None:
        """The bytes of an object, where no size matters."""
        if self.interface.sizes or self.arena_bytes is None:
            return None
        states = 0
        for state in self.interface.states:
            size = self.type.fixed_state_bytes(state)
            assert size is not None
            states += state.buffers * rounded(size)
        return self.type.head_bytes + states + rounded(self.arena_bytes)

    def _errors(self) -> Iterator[str]:
        interface, prefix = self.interface, self.prefix
        yield from _comment(
            "What functions return: 0, a code from here, or one of the model's own checks, which "
            "are positive."
        )
        width = max(map(len, ERRORS))
        yield "enum {"
        yield f"    {prefix}_OK = 0,"
        for kind, text in ERRORS.items():
            comma = "" if kind == list(ERRORS)[-1] else ","
            code = f"{error(kind)}{comma}"
            yield f"    {prefix}_ERROR_{kind:<{width}} = {code:<4} /* {text} */"
        yield "};"
        for name, check in interface.full.items():
            yield f"#define {name} {check} /* a step adds more rows than there is room for */"
        yield ""
        yield from self._checks()
        yield from _comment("What a code means, in English.")
        yield f"const char *{self.name}_error_text(int code);"
        yield ""
        if interface.guards:
            text = "Built for sizes that these checks let pass: " + "; ".join(interface.guards)
            yield from (*_comment(text), "")

    def _checks(self) -> Iterator[str]:
        if not self.interface.checks:
            return
        yield "/* The model's own checks:"
        for code, text in enumerate(self.interface.checks, 1):
            lines = textwrap.wrap(_inside(text), _WIDTH - 11) or [""]
            yield f"   {code:>4}  {lines[0]}"
            yield from (f"         {line}" for line in lines[1:])
        yield from ("*/", "")

    def _tensors(self) -> Iterator[str]:
        name, prefix = self.name, self.prefix
        yield from _comment("What there is to know of a tensor, for programs that ask.")
        yield from (
            f"typedef struct {name}_tensor {{",
            "    const char *name;            /* as in the model */",
            '    const char *type;            /* of an element: "float32", "int64", "bool", .. */',
            "    const char *state;           /* of a state's input the output that is its next",
            "                                    value, of that output the input; else NULL */",
            "    int item_bytes;",
            "    int rank;",
            f"    int64_t sizes[{prefix}_MAX_RANK];    /* -1 where only a call tells */",
            f"    const char *dims[{prefix}_MAX_RANK]; /* sizes as text, run-time ones by name */",
            f"}} {name}_tensor;",
            "",
        )
        yield from _comment("In the order of the model; NULL behind the last one.")
        yield f"const {name}_tensor *{name}_input(int index);"
        yield f"const {name}_tensor *{name}_output(int index);"
        yield ""

    # Functions

    def _sizes(self, sizes: Sequence[Size]) -> list[str]:
        return [f"{'int64_t' if s.kind == 'value' else 'size_t'} {s.identifier}" for s in sizes]

    def _making(self) -> Iterator[str]:
        interface, name = self.interface, self.name
        sizes = self._sizes(interface.sizes)
        weights = ["const void *weights", "size_t weights_bytes"]
        weights = weights if interface.weights_in_file else []
        yield from _comment(
            f"An object: {'states and ' if interface.states else ''}memory for intermediate values."
        )
        yield f"typedef struct {name} {name};"
        yield ""
        yield from self._size_rules()
        yield from _comment(
            "Makes an object in memory of the system."
            + (
                f" weights: the contents of {name}.weights, at a multiple of {ALIGNMENT} bytes; "
                "they are checked, and must stay until the object is gone."
                if weights
                else ""
            )
        )
        yield from _prototype(f"int {name}_create", [*weights, *sizes, f"{name} **object"])
        yield ""
        yield from _comment("Gives the memory back. NULL is fine.")
        yield from _prototype(f"void {name}_destroy", [f"{name} *object"])
        yield ""
        yield from _comment(
            f"The same in memory of the caller's, aligned to {self.prefix}_ALIGNMENT: nothing is "
            "to be destroyed then. memory_bytes is 0 for sizes that are refused."
        )
        yield from _prototype(f"size_t {name}_memory_bytes", sizes)
        parameters = ["void *memory", "size_t bytes", *weights, *sizes, f"{name} **object"]
        yield from _prototype(f"int {name}_create_in", parameters)
        yield ""
        if not interface.has_plain_outputs:
            yield from _comment(
                f"The sizes of all outputs, {self.prefix}_MAX_RANK numbers each, for calls of "
                "these sizes; those that only a call tells are what they are at most."
            )
            yield from _prototype(f"int {name}_output_sizes", [*sizes, "int64_t *sizes"])
            yield ""

    def _size_rules(self) -> Iterator[str]:
        kinds: dict[str, list[str]] = {}
        for size in self.interface.sizes:
            kinds.setdefault(size.kind, []).append(size.identifier)
        full = " or ".join(self.interface.full)
        texts = {
            "state": "{}: the same in all steps of an object.",
            "capacity": "{}: rows of growing states that there is room for; a step that adds more "
            "fails with {full}, and the states stay as they were.",
            "call": "{}: the largest of any call.",
            "value": "{}: elements of inputs that decide sizes, as large as in any call.",
            "spare": "{}: memory for values whose size nobody knows beforehand.",
        }
        said = [texts[kind].format(", ".join(names), full=full) for kind, names in kinds.items()]
        if said:
            yield from (*_comment("Sizes that an object is made for. " + " ".join(said)), "")

    def _tensor_parameters(self, inputs: Sequence[int], outputs: Sequence[int]) -> list[str]:
        interface = self.interface
        found = [f"const {t.c_type} *{t.identifier}" for t in self._of(interface.inputs, inputs)]
        return found + [f"{t.c_type} *{t.identifier}" for t in self._of(interface.outputs, outputs)]

    def _calls(self) -> Iterator[str]:
        interface, name = self.interface, self.name
        given = {"run": interface.run_sizes, "step": interface.step_sizes}
        kept = " on states of the caller's; those of the object stay" if interface.states else ""
        said = {"run": f"A whole call{kept}.", "step": "One step on the states of the object."}
        for call, places in reversed(interface.places.items()):
            yield from _comment(said[call])
            parameters = self._tensor_parameters(*places)
            sizes = self._sizes(given[call])
            yield from _prototype(f"int {name}_{call}", [f"{name} *object", *sizes, *parameters])
            yield ""

    def _states(self) -> Iterator[str]:
        interface, name = self.interface, self.name
        if not interface.states:
            return
        yield from _comment("Goes back to the states before the first step.")
        yield from _prototype(f"int {name}_reset", [f"{name} *object"])
        yield ""
        yield from _comment(
            "The states as bytes, which any build of this model reads, whatever its target. memory "
            "is aligned to 8 bytes. A saved state that is damaged, or of another model or other "
            "sizes, is refused and changes nothing."
        )
        yield from _prototype(f"size_t {name}_save_bytes", [f"const {name} *object"])
        saved = [f"const {name} *object", "void *memory", "size_t bytes"]
        yield from _prototype(f"int {name}_save", saved)
        loaded = [f"{name} *object", "const void *memory", "size_t bytes"]
        yield from _prototype(f"int {name}_load", loaded)
        yield ""
        grows = bool(interface.growing)
        number = " A smaller number of rows takes the last ones back." if grows else ""
        rows = (
            "The memory of a growing state, whose rows lie in front, but at the end where a step "
            "puts new ones in front of the others. Rows may be changed between steps, or written "
            "and then counted as there: a state that begins with them."
        )
        for kind, text in (
            ("state", f"The value of a state, to read or to change until the next step.{number}"),
            ("rows", rows),
        ):
            shown = [(f, tensor) for f, tensor in interface.shown if f.startswith(f"{kind}_")]
            if shown:
                yield from _comment(text)
            for function, tensor in shown:
                call = f"{name}_{function}({name} *object);"
                yield f"{tensor.c_type} *{call} /* {_inside(tensor.described)} */"
        yield ""


def _product(tensor: Tensor) -> str:
    """The number of elements as an expression of C."""
    if tensor.elements is not None:
        return str(tensor.elements)
    fixed = 1
    factors = []
    for dim in tensor.dims:
        if isinstance(dim, int):
            fixed *= dim
        else:
            factors.append(f"(size_t)({dim})")
    if fixed != 1:
        factors.append(str(fixed))
    return f"({' * '.join(factors)})"


def _wrapped(start: str, items: Sequence[str], end: str) -> list[str]:
    """Items behind the start, on as many lines as they need."""
    whole = f"{start}{', '.join(items)}{end}"
    if len(whole) <= _WIDTH:
        return [whole]
    lines, line = [], start
    for i, item in enumerate(items):
        text = item + (end if i == len(items) - 1 else ", ")
        if len(line) + len(text) > _WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * (len(start) - len(start.lstrip()) + 4)
        line += text
    return [*lines, line]


def _prototype(start: str, parameters: Sequence[str]) -> list[str]:
    return _wrapped(f"{start}(", parameters or ["void"], ");")
