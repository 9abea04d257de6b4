"""A model compiled for a target together with its C interface, as objects to be linked."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.aot.archive import Member, archive
from ostinato.aot.branches import with_equal_ranks
from ostinato.aot.checksum import checksum
from ostinato.aot.header import header
from ostinato.aot.interface import CAPACITY, EXTENT, LENGTH, LIMIT, Interface, declared
from ostinato.aot.library_ir import heap_text, library_text
from ostinato.aot.making_ir import WEIGHTS_HEAD, WEIGHTS_MAGIC
from ostinato.aot.windows import PROBE, probe_object
from ostinato.codegen.artifact import Artifact
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.relocatable import NotRelocatable, without_labels
from ostinato.codegen.target import Target, data_layout, find_target
from ostinato.compiler import compile_model
from ostinato.errors import InputError, ModelError, OptionError, UnsupportedError
from ostinato.guards import Guards
from ostinato.model.declarations import overridable
from ostinato.model.load import load_model, without_defaults
from ostinato.native.arguments import as_mapping
from ostinato.options import Options
from ostinato.records import cached_property
from ostinato.runtime.build import fingerprint
from ostinato.runtime.states import Declaration, Pair, checked_initial, declared_pairs, named_pairs
from ostinato.stages.stage import (
    BranchStage,
    CompiledModel,
    FallbackStage,
    Keeping,
    ListStage,
    LookupStage,
    NativeStage,
)
from ostinato.stages.values import argument

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Library:
    """A model and its C interface.

    object: all functions but `create` and `destroy`, which are in `heap` and call the allocator of
    the system. weights: the file of weights, None where they are in the object.
    baseline: of WebAssembly the same model for engines that do not fuse multiply-adds.
    """

    interface: Interface
    target: Target
    object: bytes
    heap: bytes
    weights: bytes | None
    arena_bytes: int | None
    baseline: Library | None = None

    @property
    def name(self) -> str:
        """The prefix of all functions and files."""
        return self.interface.name

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions of `object`."""
        return exported(self.interface)

    @property
    def code_bytes(self) -> int:
        """The bytes of both objects, without the weights."""
        inside = 0 if self.weights is not None else self.interface.constant_bytes
        return len(self.object) + len(self.heap) - inside

    def header(self) -> str:
        """The text of NAME.h."""
        cpu = "" if self.target.cpu in ("", "generic") else self.target.cpu
        return header(
            self.interface, self.target.triple, cpu, self.arena_bytes, pointer_bytes(self.target)
        )

    def archive(self) -> bytes:
        """The static library."""
        is_apple = self.target.object_format == "mach-o"
        mark = "_" if is_apple else ""
        heap = [f"{self.name}_create", f"{self.name}_destroy"]
        parts = [(self.name, self.object, self.functions), (f"{self.name}_heap", self.heap, heap)]
        members = [
            Member(f"{name}.o", contents, [mark + function for function in functions])
            for name, contents, functions in parts
        ]
        if self.target.system == "windows":
            members.append(Member(f"{self.name}_stack.o", probe_object(), [PROBE]))
        return archive(members, is_apple)


def exported(interface: Interface) -> tuple[str, ...]:
    """The functions of an interface, apart from `create` and `destroy`."""
    found = ["memory_bytes", "create_in", "error_text", "input", "output"]
    if not interface.has_plain_outputs:
        found.append("output_sizes")
    if interface.states:
        found += ["reset", "save_bytes", "save", "load"]
        found += [function for function, _ in interface.shown]
    found += interface.places
    return tuple(f"{interface.name}_{function}" for function in found)


def pointer_bytes(target: Target) -> int:
    """The bytes of an address."""
    found = re.search(r"(?:^|-)p:(\d+)", data_layout(target))
    return 8 if found is None else int(found[1]) // 8


def compile_library(
    model: Any,
    options: Options,
    name: str,
    title: str,
    states: Declaration | None = None,
    initial: Mapping[str, Any] | None = None,
    weights_in_file: bool = False,
) -> Library:
    """Compile a model with its C interface for `options.target`.

    name: an identifier. title: of the model, for people. states, initial: as
    `InferenceSession.stream` takes them. weights_in_file: leave them out of the object.

    Raises `InputError` for states that do not fit, `UnsupportedError` for what has no native code,
    and what compiling raises.
    """
    if options.threads != 1:
        raise OptionError(f"threads={options.threads}: a library runs calls on the caller's thread")
    builder = _Builder(model, options, name, title, states, initial, weights_in_file)
    return builder.build()


class _Builder:
    def __init__(
        self,
        model: Any,
        options: Options,
        name: str,
        title: str,
        states: Declaration | None,
        initial: Mapping[str, Any] | None,
        weights_in_file: bool,
    ) -> None:
        self._options = dataclasses.replace(options, cache_dir=None)
        self._name, self._title = name, title
        self._weights_in_file = weights_in_file
        self._identity = fingerprint(model) or ""
        self._rows = [] if states is None else named_pairs(states)
        self._initial = dict(as_mapping("initial", {} if initial is None else initial))
        self._model = model
        self._pairs: tuple[Pair, ...] = ()
        self._first: Mapping[str, Array] = {}
        self._names: set[str] = set()
        self._shapes: Mapping[str, Sequence[int | str]] = {}
        self._kept: dict[str, str] = {}
        self._made: tuple[Interface, Artifact] | None = None
        self._target = find_target(options.target)

    def build(self) -> Library:
        self._take_states()
        compiled = self._compiled()
        assert self._made is not None
        interface, artifact = self._made
        _require_steady(interface)
        (stage,) = (stage for stage in compiled.stages if isinstance(stage, NativeStage))
        pointer = pointer_bytes(self._target)
        head = (
            f'target datalayout = "{data_layout(self._target)}"\n'
            f'target triple = "{self._target.triple}"\n'
        )
        is_windows = self._target.system == "windows"
        heap = emit_object(heap_text(interface, pointer, is_windows, head), self._target)
        arena = artifact.report["arena_bytes"]
        return Library(
            interface,
            self._target,
            _trimmed(stage.artifact.object_code, self._target),
            _trimmed(heap, self._target),
            _weights_file(interface, artifact) if self._weights_in_file else None,
            arena if isinstance(arena, int) else None,
        )

    def _take_states(self) -> None:
        """Check the states; those that have a value in the model begin with it."""
        loaded = load_model(self._model)
        known = {value.name for value in overridable(loaded)}
        given = {name for name, _ in self._rows if name in known}
        if given:
            self._model, defaults = without_defaults(self._model, given)
            self._initial = {**defaults, **self._initial}
            loaded = load_model(self._model)
        inputs = [argument(value) for value in loaded.graph.inputs]
        for value in inputs:
            if not value.is_tensor or value.dtype == "string":
                reason = (
                    f"input {value.name!r} is {value.dtype}, expected tensors of numbers or bools: "
                    "make what the model takes from it inputs of their own"
                )
                raise UnsupportedError(self._title, "", reason)
        self._names = {value.name for value in inputs}
        outputs = [argument(value) for value in loaded.graph.outputs]
        self._shapes = {value.name: value.shape for value in outputs}
        if self._rows:
            self._pairs = declared_pairs(self._rows, inputs, outputs)
        self._first = checked_initial(self._initial, self._pairs)

    def _compiled(self) -> CompiledModel:
        """The general program, which takes all sizes; where it is not native, the likely one.

        Where neither is, the general program of the model in which every value has one rank.
        """
        strict = dataclasses.replace(self._options, fallback=False)
        try:
            return self._checked(self._compile(strict, guarded=Guards.NONE))
        except UnsupportedError as error:
            refusal = error
        self._made = None
        lenient = dataclasses.replace(self._options, fallback=True)
        try:
            compiled = self._compile(lenient, guarded=Guards.LIKELY)
            if any(isinstance(stage, FallbackStage) for stage in compiled.whole()):
                raise refusal
            return self._checked(compiled)
        except UnsupportedError as error:
            refusal = error
        self._made = None
        changed = None
        # A model that cannot be written is refused for its own reason.
        with contextlib.suppress(ModelError):
            changed = with_equal_ranks(load_model(self._model))
        if changed is None:
            raise refusal
        self._model = changed
        return self._checked(self._compile(strict, guarded=Guards.NONE))

    def _compile(self, options: Options, guarded: Guards) -> CompiledModel:
        """Compile the model; where states of it grow, for steps that keep them in place."""
        kept = Keeping(self._kept) if self._kept else None
        compiled = compile_model(self._model, options, guarded, kept, self._surround)
        grown = {pair[0]: pair[1] for pair in compiled.appended if pair in self._rows}
        if kept is not None:
            moved = [state.input for state in compiled.kept if state.moved is not None]
            if moved:
                raise InputError(
                    f"state {moved[0]!r}: a library cannot give rows of a state other places; "
                    "carry it yourself"
                )
            return compiled
        for pair in self._pairs:
            value = self._first.get(pair.name)
            if pair.name not in grown:
                _require_fit(pair.name, pair.input.shape, value)
            elif value is not None and value.size:
                raise InputError(f"initial: state {pair.name!r} grows, and begins without rows")
        if not grown:
            return compiled
        self._kept, self._made = grown, None
        return self._compile(options, guarded)

    def _surround(self, module: str, artifact: Artifact) -> str:
        names = {argument.name for argument in artifact.inputs}
        if self._kept:
            names = {
                name for name in names if not name.startswith((CAPACITY, LIMIT, LENGTH, EXTENT))
            }
        if names != self._names - set(self._kept):
            # A part of a model that `_checked` refuses.
            return module
        interface = declared(
            self._name,
            self._title,
            artifact,
            self._fixed_pairs(artifact),
            self._first,
            self._weights_in_file,
            self._identity,
            [pair for pair in self._pairs if pair.name in self._kept],
            self._shapes,
        )
        self._made = interface, artifact
        data = np.asarray(artifact.constants).tobytes()
        head = _weights_head(interface, data)
        return library_text(module, interface, data, head, pointer_bytes(self._target))

    def _fixed_pairs(self, artifact: Artifact) -> Sequence[Pair]:
        """The states that keep their shape, numbers of rows of the others among them."""
        if not self._kept:
            return self._pairs
        rows = {pair.name: pair.output.name for pair in self._pairs if pair.name not in self._kept}
        lengths = [a.name for a in artifact.inputs if a.name.startswith(LENGTH)]
        rows |= {name: f"next {name}" for name in lengths}
        return declared_pairs(rows, artifact.inputs, artifact.outputs)

    def _checked(self, compiled: CompiledModel) -> CompiledModel:
        """Raise `UnsupportedError` unless one native function is all of the model.

        Sequences of tensors among the outputs are the tensors, which the function makes.
        """
        for stage in compiled.stages:
            if isinstance(stage, ListStage) and stage.elements is None:
                reason = f"output {stage.output.name!r} may be nothing, expected tensors"
                raise UnsupportedError(self._title, "", reason)
            if isinstance(stage, ListStage) and stage.keys is not None:
                reason = f"output {stage.output.name!r} has maps, expected tensors"
                raise UnsupportedError(self._title, "ZipMap", reason)
            if isinstance(stage, LookupStage):
                reason = f"value {stage.output.name!r} is made of texts, expected numbers"
                raise UnsupportedError(self._title, "", reason)
            if isinstance(stage, BranchStage):
                reason = (
                    "its branches give different shapes, expected one for a library: build a model "
                    "of the branch that is meant"
                )
                raise UnsupportedError(stage.name, "If", reason)
        constant = [a.name for a in compiled.outputs if a.name in compiled.constants]
        if constant:
            reason = f"output {constant[0]!r} is a constant; take it out of the model"
            raise UnsupportedError(self._title, "", reason)
        natives = [stage for stage in compiled.stages if isinstance(stage, NativeStage)]
        if len(natives) != 1:
            reason = f"it is {len(natives)} native functions, expected one"
            raise UnsupportedError(self._title, "", reason)
        return compiled


def _trimmed(code: bytes, target: Target) -> bytes:
    """The same object in fewer bytes, where its format is one that can be rewritten."""
    if target.object_format == "elf":
        with contextlib.suppress(NotRelocatable):
            return without_labels(code)
    return code


def _require_fit(name: str, shape: tuple[int | str, ...], value: Array | None) -> None:
    """Raise `InputError` unless a value has the sizes of a state, or 1 for run-time ones."""
    if value is None:
        return
    for size, declared_size in zip(value.shape, shape, strict=True):
        expected = 1 if isinstance(declared_size, str) else declared_size
        if size != expected:
            raise InputError(
                f"initial: state {name!r} has shape {list(shape)}, got {list(value.shape)}; "
                "expected 1 for sizes that an object is made with"
            )


def _require_steady(interface: Interface) -> None:
    """Raise `InputError` for a state that is longer after every step."""
    for state in interface.states:
        read, written = interface.inputs[state.read], interface.outputs[state.written]
        for before, after in zip(read.shape, written.shape, strict=True):
            if str(after).startswith(f"{before} + ") and "-" not in str(after):
                raise InputError(
                    f"state {read.name!r} is {read.described} before and {written.described} after "
                    "a step: it keeps its shape, or is Concat(state, rows) in the model itself"
                )


def _weights_head(interface: Interface, data: bytes) -> tuple[int, ...]:
    """The words before the weights in their file, which tell those of one build from all others."""
    words = WEIGHTS_MAGIC, interface.fingerprint, checksum(data), len(data)
    return words + (0,) * (WEIGHTS_HEAD // 8 - len(words))


def _weights_file(interface: Interface, artifact: Artifact) -> bytes:
    """A file of weights: a head of 64 bytes, then the weights as this build reads them."""
    data = np.asarray(artifact.constants).tobytes()
    head = _weights_head(interface, data)
    return struct.pack(f"<{len(head)}Q", *head) + data
