"""Drive a model to native code: passes, lowering, schedule, code generation, floor by floor."""

from __future__ import annotations

import ostinato.lazy_imports  # noqa: F401, before onnx and onnx_ir

# isort: split
import dataclasses
import logging
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.codegen import clocks
from ostinato.codegen.artifact import Argument, Artifact
from ostinato.codegen.llvm import Keep, emit_assembly, emit_object
from ostinato.codegen.module import module_text
from ostinato.codegen.target import Target, find_target
from ostinato.codegen.workers import MOST, Workers
from ostinato.errors import OptionError, OstinatoError, translated
from ostinato.graph.mixed_rows import mixed_rows
from ostinato.guards import Guards
from ostinato.limits import MOST_EVALUATED_STEPS
from ostinato.machine.targets import HOST
from ostinato.model.graphs import graphs
from ostinato.model.grown_caches import note_grown_caches
from ostinato.model.load import load_model
from ostinato.model.load import without_defaults as without_defaults
from ostinato.model.origins import Origins
from ostinato.model.values import decoded, dims_of, look_at
from ostinato.native.cache import Cache, KernelStore
from ostinato.native.function import NativeFunction
from ostinato.native.threads import processors
from ostinato.ops.core.together import Together
from ostinato.optimization import ALL_PASSES, advice, run_all_passes
from ostinato.options import Options
from ostinato.program.conditions import before_stores, guards, messages
from ostinato.program.digest import counted, watched
from ostinato.program.laid import ConstantBlob, lay_out
from ostinato.program.nodes import Interface, Program
from ostinato.program.printer import text as program_text
from ostinato.program.verify import verify
from ostinato.program.work import fixed_steps
from ostinato.schedule.pipeline import SCHEDULE_PASSES, Scheduled, schedule
from ostinato.schedule.replaced import replaced_inputs
from ostinato.schedule.report import report_kernels, report_unfused_pairs
from ostinato.spelling import nearest
from ostinato.stages.checkpoints import Checkpoint
from ostinato.stages.partition import Choice, Partition, Segment, partition
from ostinato.stages.report import NotNative, listed, not_native
from ostinato.stages.stage import (
    BranchStage,
    CompiledModel,
    FallbackStage,
    Keeping,
    NativeStage,
    Stage,
)
from ostinato.stages.stored_programs import Code, StoredPrograms

# The text of a module, given it and what there is to know of its function but the object code.
Surround: TypeAlias = Callable[[str, Artifact], str]
T = TypeVar("T")
# Operators that sizes give one of two forms: results of other ranks, or transforms of other parts.
_FORM_BY_SIZES = frozenset(("If", "Squeeze", "DFT", "STFT"))
Array: TypeAlias = np.ndarray[Any, Any]
# Yields what is shown to an observer, and returns object code.
_Shown: TypeAlias = Generator[tuple[str, str], None, list[Code]]
# Shows an observer the name of a floor and its texts, which are made only if there is one.
Show: TypeAlias = Callable[[str, Callable[[], Iterable[str]]], Iterator[tuple[str, str]]]

_logger = logging.getLogger(__name__)


def optional_passes() -> tuple[str, ...]:
    """Names of everything `Options.disable` may leave out."""
    needed = {p.name for p in ALL_PASSES if p.needed}
    names = (*(p.name for p in ALL_PASSES), *(p.name for p in SCHEDULE_PASSES if not p.needed))
    return tuple(name for name in names if name not in needed)


def compile_model(
    model: Any,
    options: Options,
    guarded: Guards = Guards.NONE,
    kept: Keeping | None = None,
    surround: Surround | None = None,
    clocked: list[Scheduled] | None = None,
    checkpoint: Checkpoint | None = None,
) -> CompiledModel:
    """Compile a model for `options.target`, this machine or another one.

    Each `NativeStage` of the result has the object code in `artifact.object_code`, in the format of
    `find_target(options.target).object_format`, beside all that a caller of it needs to know: the
    arguments, symbols, constants and messages. `options.fallback=False` refuses what would be no
    object code.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
    guarded: native stages may be specialised for the likely sizes behind guards, which are the
        "assumptions" of their reports.
    kept: states of streams that grow; the model is then one for steps of streams that keep them
        (`CompiledModel.kept`).
    surround: adds to the LLVM assembly of each native stage; all of it becomes the object code.
        Nobody is asked then whether to stop.
    clocked: a list that gets the scheduled programs, in the order of the native stages; their code
        reads the clock behind every kernel.
    checkpoint: learns how the result is made of the weights of a file.
    Raises `ModelError` for an invalid model, `UnsupportedError` for what is refused, `OptionError`
    for a pass or a target that does not exist.
    """
    return _result(_drive(model, options, guarded, False, kept, surround, clocked, checkpoint))


def _result(driver: Generator[Any, None, T]) -> T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(driver)
        except StopIteration as end:
            result: T = end.value
            return result


def stages(model: Any, options: Options) -> Iterator[tuple[str, str]]:
    """The model on every floor as it is compiled: (floor, text), from ONNX to assembly.

    A model in several native segments gives the text of each, one after the other. Raises what
    `compile_model` raises, once the floor is reached that cannot be made.
    """
    yield from _drive(model, options, guarded=Guards.LIKELY, is_observed=True)


def _drive(
    model: Any,
    options: Options,
    guarded: Guards,
    is_observed: bool,
    kept: Keeping | None = None,
    surround: Surround | None = None,
    clocked: list[Scheduled] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Generator[tuple[str, str], None, CompiledModel]:
    """Take a model down to machine code, floor by floor; yield the text of each to an observer."""
    _check_names(options.disable)
    loaded = load_model(model)
    origins = None
    if checkpoint is not None:
        checkpoint.origins = origins = Origins(checkpoint.weights)
        origins.attach(loaded)
    if kept is not None:
        note_grown_caches(loaded, kept.states)
    together = _together(model, loaded, options, origins)
    _specialize(loaded, options)

    def show(floor: str, texts: Callable[[], Iterable[str]]) -> Iterator[tuple[str, str]]:
        if is_observed:
            yield floor, "\n".join(texts())

    with translated(f"graph {loaded.graph.name!r}"):
        facts = yield from _simplified(loaded, options, together, show, is_observed)
        as_one = surround is not None or kept is not None
        parts = partition(
            loaded,
            options.fallback,
            guarded,
            options.seed,
            kept,
            as_one,
            together,
            origins=origins,
        )
        programs = [part.program for part in parts.whole() if isinstance(part, Segment)]
        yield from show("program", lambda: map(program_text, programs))
        target = _target(options, surround)
        is_plain = not is_observed and surround is None and clocked is None
        store = program_store(options, target) if is_plain else None
        native = yield from _stored_code(
            store, programs, lambda left: _code(left, target, options, show, surround, clocked)
        )
        compiled = _assembled(parts, (NativeStage(one.artifact) for one in native))
        if checkpoint is not None:
            checkpoint.finish(programs, native)
        other_sizes = _not_native_in_general(loaded, parts.shape_operands, compiled)
        # Where sizes decide a form, the readers of the result may not be native for any size.
        ways = bool(other_sizes) and not _FORM_BY_SIZES.isdisjoint(facts["ops"]["before"])
        others = {"other_sizes": other_sizes, "other_ways": ways}
        return dataclasses.replace(compiled, report=facts | others)


def _simplified(
    model: ir.Model, options: Options, together: Together | None, show: Show, is_observed: bool
) -> Generator[tuple[str, str], None, dict[str, Any]]:
    """Run the graph passes; what the report says of them."""
    yield from show("onnx", lambda: [_onnx_text(model)])
    before = _op_counts(model)
    steps: list[str] = []

    def observe(name: str, changed: ir.Model) -> None:
        steps.append(f"// after {name}\n{_onnx_text(changed)}")

    changes = run_all_passes(
        model,
        options.disable,
        observe if is_observed else None,
        options.integer_products,
        partial(_evaluated, options=options, together=together),
    )
    yield from show("passes", lambda: steps)
    return {
        "passes": changes,
        "ops": {"before": before, "after": _op_counts(model)},
        "advice": advice(model, options.integer_products),
        "mixed_rows": mixed_rows(model),
    }


def _target(options: Options, surround: Surround | None) -> Target:
    target = find_target(options.target)
    if surround is None:
        return target
    # Callers of such code have not asked the system for tile registers.
    machine = dataclasses.replace(target.machine, byte_tiles=False)
    return dataclasses.replace(target, machine=machine)


def _evaluated(model: ir.Model, options: Options, together: Together | None) -> dict[str, Array]:
    """The outputs of a model without inputs, which this machine computes, with the bits of any.

    Left out are those that change where subnormal numbers are zero, and all if the model has no
    native form, fails when it runs, or takes more than `MOST_EVALUATED_STEPS`.
    """
    for graph in graphs(model):
        for value in graph.initializers.values():
            look_at(value)
    try:
        parts = partition(model, fallback=False, seed=options.seed, as_one=True, together=together)
        programs = [part.program for part in parts.parts if isinstance(part, Segment)]
        steps = sum(fixed_steps(s) for program in programs for s in program.body)
        if len(programs) != 1 or len(parts.parts) != 1 or steps > MOST_EVALUATED_STEPS:
            return {}
        here, single = find_target(HOST), dataclasses.replace(options, threads=1)
        made = _code(programs, here, single, lambda *_: iter(()), None, None)
        (code,) = _result(made)
        runs = [NativeFunction(code.artifact, options.cache_dir, zero) for zero in (False, True)]
        exact, flushed = (run.run(_decoded(parts.constants), {}) for run in runs)
    except OstinatoError as error:
        _logger.debug("constants of %s are computed in each run: %s", model.graph.name, error)
        return {}
    return {n: array for n, array in exact.items() if array.tobytes() == flushed[n].tobytes()}


def _stored_code(
    store: StoredPrograms | None,
    programs: Sequence[Program],
    make: Callable[[Sequence[Program]], _Shown],
) -> _Shown:
    """The object code of each program: from the store, into which goes what `make` has to make."""
    found = [None if store is None else store.find(program) for program in programs]
    missing = [p for p, one in zip(programs, found, strict=True) if one is None]
    made = yield from make(missing)
    if store is not None:
        for program, one in zip(missing, made, strict=True):
            if one.read <= counted(program):
                store.store(program, one)
    left = iter(made)
    return [one or next(left) for one in found]


def _code(
    programs: Sequence[Program],
    target: Target,
    options: Options,
    show: Show,
    surround: Surround | None,
    clocked: list[Scheduled] | None,
) -> _Shown:
    """The object code of each program."""
    is_watched, timed = surround is None, clocked is not None
    # Code around a module belongs to it: it is compiled as a whole.
    others = 0 if surround or target.object_format != "elf" else processors() - 1
    with Workers(target, kernel_store(options), min(others, MOST)) as objects:
        begin = objects.begin if others > 0 else None
        modules, reads = [], []
        for program in programs:
            scheduled, read = _scheduled(program, target, options)
            reads.append(read)
            modules.append(_module(scheduled, target, is_watched, timed, begin))
        yield from show("schedule", lambda: (program_text(m.scheduled.program) for m in modules))
        if clocked is not None:
            clocked.extend(module.scheduled for module in modules)
        yield from show("llvm", lambda: (module.text for module in modules))
        yield from show("asm", lambda: (emit_assembly(module.text, target) for module in modules))
        keep = None if surround else objects
        return [
            Code(
                _artifact(program, module, target, options.threads, keep, surround),
                module.scheduled.program.constants,
                read,
            )
            for program, module, read in zip(programs, modules, reads, strict=True)
        ]


def _assembled(parts: Partition, natives: Iterator[NativeStage]) -> CompiledModel:
    """The parts as stages. natives: what became of the segments, in the order of the parts."""
    stages: list[Stage] = []
    for part in parts.parts:
        if isinstance(part, Segment):
            stages.append(next(natives))
        elif isinstance(part, Choice):
            first, second = (_assembled(branch, natives) for branch in part.branches)
            values = part.inputs, part.outputs
            stages.append(BranchStage(part.name, part.condition, *values, (first, second)))
        else:
            stages.append(part)
    return CompiledModel(
        parts.inputs,
        parts.outputs,
        tuple(stages),
        # Copied: a view would hold the whole file that it is a part of.
        {name: array.copy() for name, array in _decoded(parts.constants).items()},
        parts.overridable,
        appended=parts.appended,
        lengths=parts.lengths,
        kept=parts.kept,
        grown=parts.grown,
    )


def _decoded(constants: Mapping[str, ir.TensorProtocol]) -> dict[str, Array]:
    return {name: decoded(tensor, name) for name, tensor in constants.items()}


def _not_native_in_general(
    model: ir.Model, shape_operands: Set[ir.Value], compiled: CompiledModel
) -> list[NotNative]:
    """List what is not native in the general program, which runs where a guard fails.

    shape_operands: what nodes of the specialised program asked for, as those of this one do.
    """
    natives = [stage for stage in compiled.whole() if isinstance(stage, NativeStage)]
    failing = [text for stage in natives for text in stage.artifact.report["assumptions"]]
    if not failing:
        return []
    parts = partition(model, fallback=True, known=shape_operands)
    nodes = [part for part in parts.whole() if isinstance(part, FallbackStage)]
    return [{**not_native(node), "unless": failing} for node in nodes]


def _check_names(disable: Collection[str]) -> None:
    unknown = sorted(set(disable) - set(optional_passes()))
    if unknown:
        known = nearest(unknown[0], optional_passes())
        raise OptionError(f"disable: no optional pass is called {unknown[0]!r}; {known}")


def _specialize(model: ir.Model, options: Options) -> None:
    left = dict(options.specialize)
    used: set[str] = set()
    for value in model.graph.inputs:
        names = dims_of(value)
        if names is None:
            continue
        used |= {name for name in names if isinstance(name, str)}
        sizes = [left.get(n, n) if isinstance(n, str) else n for n in names]
        value.shape = ir.Shape(sizes)
    unknown = sorted(left.keys() - used)
    if unknown:
        known = ", ".join(sorted(used)) or "none"
        raise OptionError(f"specialize: no input has a dimension {unknown[0]!r}; named: {known}")


def _together(
    model: Any, loaded: ir.Model, options: Options, origins: Origins | None
) -> Together | None:
    """The positions that convolutions compute together: as without sizes to specialise for."""
    if not options.winograd or not (options.specialize and _has_convolutions(loaded)):
        return Together() if options.winograd else None
    general, found = load_model(model), Together()
    apart = None if origins is None else Origins(origins.weights)
    if apart is not None:
        apart.attach(general)
    evaluate = partial(_evaluated, options=options, together=found)
    run_all_passes(general, options.disable, None, options.integer_products, evaluate)
    partition(general, fallback=True, seed=options.seed, together=found, origins=apart)
    if origins is not None and apart is not None:
        origins.looked_at |= apart.looked_at
    return Together(found.counts)


def _has_convolutions(model: ir.Model) -> bool:
    """Whether passes may leave some, of functions and of operators of other domains as well."""
    bodies = (*graphs(model), *model.functions.values())
    return any("Conv" in node.op_type for body in bodies for node in body)


def _op_counts(model: ir.Model) -> dict[str, int]:
    counts = Counter(node.op_type for graph in graphs(model) for node in graph)
    return dict(sorted(counts.items()))


def _in_code_of(program: Program) -> AbstractContextManager[None]:
    """Whatever goes wrong inside names the outputs of the program."""
    return translated(f"the code for {listed([f'output {o.name!r}' for o in program.outputs])}")


def _scheduled(
    program: Program, target: Target, options: Options
) -> tuple[Scheduled, frozenset[str]]:
    """The schedule, and the constants whose contents it depends on."""
    with _in_code_of(program):
        verify(program)
        given, read = watched(program)
        scheduled = schedule(given, target.machine, options.disable, options.threads)
        return scheduled, frozenset(read)


@dataclasses.dataclass(frozen=True)
class _Module:
    """A scheduled program as LLVM text, and the constants it reads.

    functions: the name of the function of each kernel.
    """

    scheduled: Scheduled
    constants: ConstantBlob
    text: str
    exports: tuple[str, ...]
    functions: dict[str, str]


def _module(
    scheduled: Scheduled,
    target: Target,
    is_watched: bool,
    is_clocked: bool,
    begin: Callable[[str], None] | None,
) -> _Module:
    program = scheduled.program
    with _in_code_of(program):
        constants = lay_out(program.constants)
        functions: dict[str, str] = {}
        text = module_text(
            program,
            scheduled.arena,
            constants,
            target,
            scheduled.shares,
            is_watched,
            is_clocked,
            functions,
            begin,
        )
        exports = (clocks.TABLE,) if is_clocked else ()
        return _Module(scheduled, constants, text, exports, functions)


def kernel_store(options: Options) -> Keep | None:
    """The store of compiled kernels that models may have in common."""
    if options.cache_dir is None:
        return None
    return KernelStore(Cache(options.cache_dir, options.cache_bytes))


def program_store(options: Options, target: Target) -> StoredPrograms | None:
    """The store of compiled programs that models may have but for their weights in common."""
    if options.cache_dir is None:
        return None
    facts = sorted(options.disable), options.threads, target
    return StoredPrograms(Cache(options.cache_dir, options.cache_bytes), *map(repr, facts))


def _artifact(
    source: Program,
    module: _Module,
    target: Target,
    threads: int,
    keep: Keep | None,
    surround: Surround | None,
) -> Artifact:
    """The object code of a module. source: the program before it was scheduled."""
    scheduled = module.scheduled
    size = scheduled.arena.size
    with _in_code_of(source):
        report = {
            "checks": messages(scheduled.program),
            "before_stores": before_stores(scheduled.program),
            "assumptions": guards(scheduled.program),
            "threads": 1 if scheduled.shares is None else threads,
            "kernels": [
                record | {"function": module.functions.get(f"kernel.{record['name']}")}
                for record in report_kernels(source, scheduled.program)
            ],
            "refusals": report_unfused_pairs(scheduled.unfused_pairs),
            "constant_bytes": int(module.constants.data.nbytes),
            "arena_bytes": size if isinstance(size, int) else str(size),
            "exports": list(module.exports),
        }
        artifact = Artifact(
            b"",
            _arguments(source.inputs),
            _arguments(source.outputs),
            scheduled.program.symbols,
            module.constants.data,
            report,
            tuple((i, one.values) for i, one in enumerate(source.inputs) if one.values),
            tuple(source.shapes.items()),
            tuple(replaced_inputs(scheduled.program).values()),
        )
        text = module.text if surround is None else surround(module.text, artifact)
        return dataclasses.replace(artifact, object_code=emit_object(text, target, keep))


def _arguments(interfaces: tuple[Interface, ...]) -> tuple[Argument, ...]:
    return tuple(
        Argument(i.name, i.dtype, tuple(n if isinstance(n, int) else str(n) for n in i.shape))
        for i in interfaces
    )


def _onnx_text(model: ir.Model) -> str:
    """The model as ONNX text, without the contents of large weights."""
    proto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        if sum(tensor.dims) > 16:
            for field in ("raw_data", "float_data", "int64_data", "int32_data", "double_data"):
                tensor.ClearField(field)
    return onnx.printer.to_text(proto)
