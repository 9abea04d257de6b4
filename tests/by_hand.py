"""Small compiled models written by hand in LLVM assembly, so the runtime is tested on its own."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.codegen.artifact import Argument, Artifact
from ostinato.guards import Guards
from ostinato.runtime.session import InferenceSession
from ostinato.stages.stage import CompiledModel, NativeStage

# y[i] = x[i] * 0.5 + constants[0] over n elements; n is symbols[0], or 1 without symbols.
_LOOP = """
define i64 @entry(ptr %buffers, ptr %symbols) {{
start:
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  %constants.at = getelementptr ptr, ptr %buffers, i64 2
  %constants = load ptr, ptr %constants.at
  %bias = load float, ptr %constants
  %n = {count}
  br label %next
next:
  %i = phi i64 [ 0, %start ], [ %i.next, %body ]
  %done = icmp sge i64 %i, %n
  br i1 %done, label %end, label %body
body:
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %scaled = fmul float %value, 0.5
  %sum = fadd float %scaled, %bias
  %to = getelementptr float, ptr %y, i64 %i
  store float %sum, ptr %to
  %i.next = add i64 %i, 1
  br label %next
end:
  ret i64 0
}}
define i64 @layout(ptr %symbols, ptr %out) {{
  store i64 0, ptr %out
  %dim = getelementptr i64, ptr %out, i64 1
  %n = {count}
  store i64 %n, ptr %dim
  ret i64 0
}}
"""
_FIXED = _LOOP.format(count="add i64 0, 1")
_DYNAMIC = _LOOP.format(count="load i64, ptr %symbols")

# sum = a + b over T elements, both through the arena; code 2 when a[0] is negative.
_ADD = """
declare ptr @memcpy(ptr, ptr, i64)
define i64 @entry(ptr %buffers, ptr %symbols) {
start:
  %a = load ptr, ptr %buffers
  %b.at = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.at
  %sum.at = getelementptr ptr, ptr %buffers, i64 2
  %sum = load ptr, ptr %sum.at
  %arena.at = getelementptr ptr, ptr %buffers, i64 4
  %arena = load ptr, ptr %arena.at
  %n = load i64, ptr %symbols
  %bytes = mul i64 %n, 4
  %copied = call ptr @memcpy(ptr %arena, ptr %a, i64 %bytes)
  %empty = icmp eq i64 %n, 0
  br i1 %empty, label %end, label %check
check:
  %first = load float, ptr %a
  %negative = fcmp olt float %first, 0.0
  br i1 %negative, label %fail, label %next
next:
  %i = phi i64 [ 0, %check ], [ %i.next, %next ]
  %from = getelementptr float, ptr %arena, i64 %i
  %left = load float, ptr %from
  %other = getelementptr float, ptr %b, i64 %i
  %right = load float, ptr %other
  %value = fadd float %left, %right
  %to = getelementptr float, ptr %sum, i64 %i
  store float %value, ptr %to
  %i.next = add i64 %i, 1
  %done = icmp eq i64 %i.next, %n
  br i1 %done, label %end, label %next
end:
  ret i64 0
fail:
  ret i64 2
}
define i64 @layout(ptr %symbols, ptr %out) {
  %n = load i64, ptr %symbols
  %unlucky = icmp eq i64 %n, 13
  br i1 %unlucky, label %fail, label %fine
fail:
  ret i64 1
fine:
  %bytes = mul i64 %n, 4
  store i64 %bytes, ptr %out
  %dim = getelementptr i64, ptr %out, i64 1
  store i64 %n, ptr %dim
  ret i64 0
}
"""

# Two outputs: c = a, d = b, of one element each and of different dtypes.
_PAIR = """
define i64 @entry(ptr %buffers, ptr %symbols) {
  %a = load ptr, ptr %buffers
  %b.at = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.at
  %c.at = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c.at
  %d.at = getelementptr ptr, ptr %buffers, i64 3
  %d = load ptr, ptr %d.at
  %float = load i16, ptr %a
  store i16 %float, ptr %c
  %integer = load i64, ptr %b
  store i64 %integer, ptr %d
  ret i64 0
}
define i64 @layout(ptr %symbols, ptr %out) {
  store i64 0, ptr %out
  %dim = getelementptr i64, ptr %out, i64 1
  store i64 1, ptr %dim
  ret i64 0
}
"""


@functools.cache
def emit(assembly: str) -> bytes:
    """A relocatable object for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple, cpu, features = objects.host()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, reloc="pic", codemodel="small"
    )
    return bytes(machine.emit_object(llvm.parse_assembly(assembly)))


def _artifact(
    assembly: str,
    inputs: list[Argument],
    outputs: list[Argument],
    symbols: tuple[str, ...] = (),
    bias: float = 0.0,
    report: dict[str, Any] | None = None,
) -> Artifact:
    constants = np.full(16, bias, np.float32).view(np.uint8)
    code = emit(assembly)
    return Artifact(code, tuple(inputs), tuple(outputs), symbols, constants, report or {})


def half(bias: float = 0.0) -> Artifact:
    """y = x / 2 + bias, float32[1]."""
    arguments = [Argument("x", "float32", (1,))], [Argument("y", "float32", (1,))]
    return _artifact(_FIXED, *arguments, bias=bias)


def half_dynamic(size: int | str = 3) -> Artifact:
    """y = x / 2 over the first T of float32[T, size], whose size must be 1 to make sense."""
    x, y = Argument("x", "float32", ("T", size)), Argument("y", "float32", ("T",))
    return _artifact(_DYNAMIC, [x], [y], ("T",))


def add() -> Artifact:
    """Sum of two float32[T]; refuses T = 13 and a negative first element of a."""
    names = [Argument(name, "float32", ("T",)) for name in ("a", "b")]
    report = {
        "checks": ["T must not be 13", "node 'sum' (Add): a[0] is negative"],
        "kernels": [{"name": "k"}],
    }
    return _artifact(_ADD, names, [Argument("sum", "float32", ("T",))], ("T",), report=report)


def pair(small_float: str = "float16") -> Artifact:
    """c = a (a 16-bit float[1]), d = b (an int64 scalar)."""
    inputs = [Argument("a", small_float, (1,)), Argument("b", "int64", ())]
    outputs = [Argument("c", small_float, (1,)), Argument("d", "int64", ())]
    return _artifact(_PAIR, inputs, outputs)


@dataclass
class Compiler:
    """Stands for `ostinato.compiler`: returns the model it was told to, and counts."""

    model: CompiledModel | None = None
    calls: list[Any] = field(default_factory=list)

    def compile_model(
        self, model: Any, options: Any, guarded: Guards, kept: object, checkpoint: object
    ) -> CompiledModel:
        self.calls.append((model, options))
        assert self.model is not None
        return self.model


def single(artifact: Artifact) -> CompiledModel:
    """The model that is this one native function."""
    return CompiledModel(artifact.inputs, artifact.outputs, (NativeStage(artifact),))


@pytest.fixture
def artifacts() -> types.SimpleNamespace:
    """The hand-written artifacts by name."""
    return types.SimpleNamespace(
        half=half, half_dynamic=half_dynamic, add=add, pair=pair, single=single, emit=emit
    )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """Replaces the compiler for the duration of a test."""
    fake = Compiler()
    module = types.ModuleType("ostinato.compiler")
    module.compile_model = fake.compile_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ostinato.compiler", module)
    yield fake


@pytest.fixture
def session(compiler: Compiler) -> Callable[..., InferenceSession]:
    """Makes a session of an artifact or a compiled model, without cache by default."""

    def make(model: Artifact | CompiledModel, **overrides: Any) -> InferenceSession:
        compiler.model = single(model) if isinstance(model, Artifact) else model
        return InferenceSession(b"model", **{"cache_dir": None, **overrides})

    return make


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"
