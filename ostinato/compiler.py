"""From a model to native code: passes, lowering, schedule, code generation, floor by floor."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ostinato.codegen.artifact import Argument, Artifact
from ostinato.codegen.machine import emit_assembly, emit_object
from ostinato.codegen.module import (
    ConstantBlob,
    assumptions,
    lay_out_constants,
    messages,
    module_text,
)
from ostinato.codegen.target import Target, host_target
from ostinato.errors import OptionError, translated
from ostinato.model.graphs import graphs
from ostinato.model.load import load_model
from ostinato.model.load import without_defaults as without_defaults
from ostinato.optimization import ALL_PASSES, run_all_passes
from ostinato.options import Options
from ostinato.program.nodes import Interface, Program
from ostinato.program.verify import verify
from ostinato.schedule.pipeline import SCHEDULE_PASSES, Scheduled, schedule
from ostinato.schedule.report import report_kernels, report_unfused_pairs
from ostinato.stages.compiled import CompiledModel
from ostinato.stages.partition import Choice, Partition, Segment, partition
from ostinato.stages.report import NotNative, not_native
from ostinato.stages.stage import BranchStage, FallbackStage, NativeStage, Stage

if TYPE_CHECKING:
    import onnx_ir as ir


def optional_passes() -> tuple[str, ...]:
    """Names of everything `Options.disable` may leave out."""
    needed = {p.name for p in ALL_PASSES if p.needed}
    names = (*(p.name for p in ALL_PASSES), *(p.name for p in SCHEDULE_PASSES if not p.needed))
    return tuple(name for name in names if name not in needed)


def compile_model(model: Any, options: Options, guarded: bool = False) -> CompiledModel:
    """Compile a model for this machine.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
    guarded: native stages may be specialised for the likely sizes behind guards, which are the
        "assumptions" of their reports.
    Raises `ModelError` for an invalid model, `UnsupportedError` for what is refused.
    """
    with _compiling(model, options) as loaded:
        before = _op_counts(loaded)
        changes = run_all_passes(loaded, options.disable)
        facts: dict[str, Any] = {
            "passes": changes,
            "ops": {"before": before, "after": _op_counts(loaded)},
        }
        parts = partition(loaded, options.fallback, guarded, options.seed)
        compiled = _compiled(parts, host_target(), options)
        facts["other_sizes"] = _not_native_elsewhere(loaded, compiled)
        return dataclasses.replace(compiled, report=facts)


@contextmanager
def _compiling(model: Any, options: Options) -> Iterator[ir.Model]:
    """The loaded model; whatever goes wrong with it inside is an error of ours."""
    _check_names(options.disable)
    loaded = load_model(model)
    _specialize(loaded, options)
    with translated(f"graph {loaded.graph.name!r}"):
        yield loaded


def _compiled(parts: Partition, target: Target, options: Options) -> CompiledModel:
    stages: list[Stage] = []
    for part in parts.parts:
        if isinstance(part, Segment):
            with translated(_described(part.program)):
                stages.append(NativeStage(_artifact(part, target, options)))
        elif isinstance(part, Choice):
            first, second = (_compiled(way, target, options) for way in part.ways)
            values = part.inputs, part.outputs
            stages.append(BranchStage(part.name, part.condition, *values, (first, second)))
        else:
            stages.append(part)
    return CompiledModel(
        parts.inputs, parts.outputs, tuple(stages), parts.constants, parts.overridable
    )


def _not_native_elsewhere(model: ir.Model, compiled: CompiledModel) -> list[NotNative]:
    """What is not native in the program for other sizes than those that are assumed."""
    natives = [stage for stage in compiled.whole() if isinstance(stage, NativeStage)]
    assumed = [text for stage in natives for text in stage.artifact.report["assumptions"]]
    if not assumed:
        return []
    parts = partition(model, fallback=True)
    nodes = [part for part in parts.whole() if isinstance(part, FallbackStage)]
    return [{**not_native(node), "unless": assumed} for node in nodes]


def _check_names(disable: Collection[str]) -> None:
    unknown = sorted(set(disable) - set(optional_passes()))
    if unknown:
        known = ", ".join(optional_passes())
        raise OptionError(f"disable: no optional pass is called {unknown[0]!r}; there are: {known}")


def _specialize(model: ir.Model, options: Options) -> None:
    import onnx_ir as ir

    left = dict(options.specialize)
    used: set[str] = set()
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        names = [n if isinstance(n, int) else n.value for n in value.shape]
        used |= {name for name in names if isinstance(name, str)}
        sizes = [left.get(n, n) if isinstance(n, str) else n for n in names]
        value.shape = ir.Shape(sizes)
    unknown = sorted(left.keys() - used)
    if unknown:
        known = ", ".join(sorted(used)) or "none"
        raise OptionError(f"specialize: no input has a dimension {unknown[0]!r}; named: {known}")


def _op_counts(model: ir.Model) -> dict[str, int]:
    counts = Counter(node.op_type for graph in graphs(model) for node in graph)
    return dict(sorted(counts.items()))


def _scheduled(program: Program, target: Target, options: Options) -> Scheduled:
    verify(program)
    return schedule(program, target.machine, options.disable, options.threads)


def _described(program: Program) -> str:
    return f"the code for {', '.join(f'output {output.name!r}' for output in program.outputs)}"


def _artifact(segment: Segment, target: Target, options: Options) -> Artifact:
    scheduled = _scheduled(segment.program, target, options)
    blob = lay_out_constants(scheduled.program)
    shares = scheduled.shares
    text = module_text(scheduled.program, scheduled.arena, blob, target, shares)
    report = {
        "checks": messages(scheduled.program),
        "assumptions": assumptions(scheduled.program),
        "threads": 1 if shares is None else options.threads,
        "kernels": report_kernels(segment.program, scheduled.program),
        "refusals": report_unfused_pairs(scheduled.unfused_pairs),
        "constant_bytes": int(blob.data.nbytes),
        "arena_bytes": str(scheduled.arena.size)
        if not isinstance(scheduled.arena.size, int)
        else scheduled.arena.size,
    }
    return Artifact(
        emit_object(text, target),
        _arguments(segment.program.inputs),
        _arguments(segment.program.outputs),
        scheduled.program.symbols,
        blob.data,
        report,
        tuple((i, one.values) for i, one in enumerate(segment.program.inputs) if one.values),
        tuple(segment.program.shapes.items()),
    )


def _arguments(interfaces: tuple[Interface, ...]) -> tuple[Argument, ...]:
    return tuple(
        Argument(i.name, i.dtype, tuple(n if isinstance(n, int) else str(n) for n in i.shape))
        for i in interfaces
    )


def stages(model: Any, options: Options) -> Iterator[tuple[str, str]]:
    """What the model looks like on every floor: (floor, text), from ONNX to assembly.

    A model in several native segments gives the text of each, one after the other.
    """
    from ostinato.program.printer import text as program_text

    with _compiling(model, options) as loaded:
        yield "onnx", _onnx_text(loaded)
        steps: list[str] = []

        def observe(name: str, changed: ir.Model) -> None:
            steps.append(f"// after {name}\n{_onnx_text(changed)}")

        run_all_passes(loaded, options.disable, observe)
        yield "passes", "\n".join(steps)
        target = host_target()
        parts = partition(loaded, options.fallback, guarded=True, seed=options.seed)
        segments = [part for part in parts.whole() if isinstance(part, Segment)]
        yield "program", "\n".join(program_text(s.program) for s in segments)
        scheduled = [_scheduled(s.program, target, options) for s in segments]
        yield "schedule", "\n".join(program_text(s.program) for s in scheduled)
        blobs = [lay_out_constants(s.program) for s in scheduled]
        modules = [_module(s, b, target) for s, b in zip(scheduled, blobs, strict=True)]
        yield "llvm", "\n".join(modules)
        yield "asm", "\n".join(emit_assembly(module, target) for module in modules)


def _module(scheduled: Scheduled, blob: ConstantBlob, target: Target) -> str:
    return module_text(scheduled.program, scheduled.arena, blob, target, scheduled.shares)


def _onnx_text(model: ir.Model) -> str:
    """The model as ONNX text, without the contents of large weights."""
    import onnx
    import onnx_ir as ir

    proto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        if sum(tensor.dims) > 16:
            for field in ("raw_data", "float_data", "int64_data", "int32_data", "double_data"):
                tensor.ClearField(field)
    return onnx.printer.to_text(proto)
