"""`ostinato inspect`: what became of a model, at every stage, and assertions on it for scripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ostinato.cli import common
from ostinato.errors import OptionError
from ostinato.garbage import uncollected
from ostinato.machine.targets import HOST
from ostinato.stages.report import always_reached, described

if TYPE_CHECKING:
    from ostinato.options import Options
    from ostinato.stages.report import Report

Stage = Literal["onnx", "passes", "program", "schedule", "llvm", "asm"]


@dataclass(frozen=True)
class Assertions:
    """Assertions about a compiled model; None and empty assert nothing."""

    ops: Mapping[str, int]
    native: bool
    kernels: int | None

    def __bool__(self) -> bool:
        return bool(self.ops) or self.native or self.kernels is not None

    def violations(self, report: Report) -> list[str]:
        """A sentence for every expectation that does not hold."""
        found = []
        left = report["ops"]["after"]
        for op, expected in self.ops.items():
            if left.get(op, 0) != expected:
                found.append(f"expected {expected} {op} after the passes, got {left.get(op, 0)}")
        if self.native:
            found += [f"not native: {described(e)}" for e in always_reached(report["fallback"])]
        kernels = len(report["kernels"])
        if self.kernels is not None and kernels != self.kernels:
            found.append(f"expected {self.kernels} kernels, got {kernels}")
        return found


_Model = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL", help="An ONNX file.", show_default=False, callback=common.checked
    ),
]
_Stage = Annotated[
    Stage | None,
    typer.Option(
        "--stage",
        metavar="STAGE",
        help="Print a stage whole: onnx, passes, program, schedule, llvm or asm.",
    ),
]
_Passes = Annotated[bool, typer.Option("--passes", help="List the passes, with a sentence each.")]
_Why = Annotated[
    bool,
    typer.Option("--why", help="Why values pass through memory, and what was done for speed."),
]
_AssertOpCount = Annotated[
    list[str] | None,
    typer.Option("--assert-op-count", metavar="OP=N", help="Ops left after all graph passes."),
]
_AssertNative = Annotated[
    bool, typer.Option("--assert-native", help="Every node is native: --no-fallback loads it.")
]
_AssertKernels = Annotated[
    int | None, typer.Option("--assert-kernels", metavar="N", min=0, help="Number of kernels.")
]
_Dim = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Compile for this size of a dimension."),
]


def inspect(
    model: _Model = None,
    stage: _Stage = None,
    passes: _Passes = False,
    why: _Why = False,
    assert_op_count: _AssertOpCount = None,
    assert_native: _AssertNative = False,
    assert_kernels: _AssertKernels = None,
    dim: _Dim = None,
    disable: common.Disable = None,
    set: common.Set = None,
    no_fallback: common.NoFallback = False,
    no_cache: common.NoCache = False,
    target: common.Target = HOST,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Show what became of a model; exit code 1 where an assertion does not hold."""
    with common.error_line(debug):
        if passes:
            _show_passes(json)
            return
        if model is None:
            raise OptionError("MODEL: expected an ONNX file, or --passes")
        ops = common.parse_sizes("--assert-op-count", assert_op_count)
        assertions = Assertions(ops, assert_native, assert_kernels)
        options = common.make_options(disable, no_fallback, no_cache, target, set)
        options = dataclasses.replace(options, specialize=common.parse_sizes("--dim", dim))
        report = None
        if assertions or not stage:
            report = _report(model, options)
        if stage:
            text = _stage_text(model, options, stage)
            if json:
                common.print_json({"model": str(model), "stage": stage, "text": text})
            else:
                print(text)
        elif report is not None and json:
            common.print_json({"model": str(model), **report})
        elif report is not None:
            _show_report(model.name, report, _WHY if why else _SUMMARY)
            if not why:
                _show_states(model)
    violations = [] if report is None else assertions.violations(report)
    if violations:
        common.fail(violations)


def _report(model: Path, options: Options) -> Report:
    if options.target == HOST:
        return common.open_session(model, options).report()
    from ostinato.runtime.build import report

    with common.status(f"Compiling {model.name}"):
        return report(model, options)


def _stage_text(model: Path, options: Options, stage: Stage) -> str:
    with uncollected():
        from ostinato.compiler import stages

    with common.status(f"Compiling {model.name}"):
        # Stages come one by one, so that an early one prints even if a later one is refused.
        for name, text in stages(model, options):
            if name == stage:
                return text
    raise OptionError(f"--stage {stage}: {model} has no such stage")


def _show_passes(json: bool) -> None:
    from ostinato.optimization import ALL_PASSES
    from ostinato.schedule.pipeline import SCHEDULE_PASSES

    rows = [(each.name, "graph", each.sentence) for each in ALL_PASSES if not each.needed]
    rows += [(each.name, "schedule", each.sentence) for each in SCHEDULE_PASSES if not each.needed]
    if json:
        keys = ("name", "on", "sentence")
        common.print_json({"passes": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    table = common.table(
        "Optional passes, in order; --disable NAME leaves one out", "pass", "on", "", left=3
    )
    for row in rows:
        table.add_row(*row)
    common.show(table)


def _show_report(title: str, report: Report, parts: Sequence[Callable[[Report], Any]]) -> None:
    """Print those parts of the report that exist and have something to say."""
    console = common.console()
    console.print(title, style="bold")
    for show in parts:
        table = show(report)
        if table.row_count:
            common.show(table)
    count = len(report.kernels)
    passing = len({id_ for id_, _ in _by_value(report)})
    console.print(f"kernels: {count}, values that pass between them through memory: {passing}")
    for key, what in (("constant_bytes", "constants"), ("arena_bytes", "arena")):
        console.print(f"{what}: {_size(report[key])}")
    for text in report.advice:
        console.print(f"advice: {text}")


def _show_states(model: Path) -> None:
    """Print likely states, in the form in which --state of other commands takes them."""
    from ostinato.streaming import find_states

    with common.status(f"Looking for states of {model.name}"):
        found = find_states(model)
    table = common.table("Looks like states, to be declared", "option", "why", left=2)
    for each in found:
        table.add_row(f"--state {each.input}={each.output}", each.reason)
    if found:
        common.show(table)


def _ops(report: Report) -> Any:
    before, after = report.ops["before"], report.ops["after"]
    table = common.table("Ops", "op", "before", "after passes")
    for op in sorted({*before, *after}):
        table.add_row(op, str(before.get(op, 0)), str(after.get(op, 0)))
    return table


def _kernels(report: Report) -> Any:
    columns = ("kernel", "node", "loop", "tile", "bytes", "weights", "flop", "flop/byte")
    table = common.table("Kernels, figures of one execution", *columns, left=2)
    for kernel in report.kernels:
        size, flops = kernel.get("bytes"), kernel.get("flops")
        table.add_row(
            str(kernel.get("name", "")),
            common.kernel_title(kernel.get("fused", ())),
            _trips(kernel),
            str(kernel.get("tile") or ""),
            *(_size(kernel.get(key)) for key in ("bytes", "weight_bytes")),
            "-" if flops is None else f"{flops:,}",
            f"{flops / size:.2f}" if size and flops is not None else "-",
        )
    return table


def _fused(report: Report) -> Any:
    table = common.table("Fused into one kernel", "kernel", "nodes", left=2)
    for kernel in report.kernels:
        table.add_row(str(kernel.get("name", "")), _by_folder(kernel.get("fused", ())))
    return table


def _by_folder(names: Iterable[str]) -> str:
    """Node names with the part up to the last slash written once for those that share it."""
    groups: dict[str, list[str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        groups.setdefault(folder, []).append(last)
    return "; ".join(
        f"{folder}: {', '.join(group)}" if folder else ", ".join(group)
        for folder, group in groups.items()
    )


def _trips(kernel: Mapping[str, Any]) -> str:
    """The trip count of the loop a kernel is in; "hoisted" when it was taken out of one."""
    if kernel.get("hoisted"):
        return "hoisted"
    return "" if kernel.get("in_loop") is None else f"x {kernel['in_loop']}"


def _size(count: object) -> str:
    """Bytes; a number that depends on a run-time dimension comes as an expression."""
    if count is None:
        return "-"
    return common.format_bytes(count) if isinstance(count, (int, float)) else str(count)


def _fallback(report: Report) -> Any:
    table = common.table("Not native", "node", "op", "status", "reason", left=4)
    for entry in report.fallback:
        status = entry["status"] + (", other sizes" if entry["unless"] else "")
        table.add_row(entry["node"], entry["op"], status, entry["reason"])
    return table


def _assumptions(report: Report) -> Any:
    table = common.table("Not made for these sizes: another program is compiled", "sizes")
    for text in report.assumptions:
        table.add_row(text)
    return table


def _by_value(report: Report) -> Iterator[tuple[tuple[str, str], list[Mapping[str, Any]]]]:
    """The pairs of kernels that stayed apart, by the value that passes: (writer, buffer)."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for pair in report.refusals:
        groups.setdefault((pair["producer"], pair["buffer"]), []).append(pair)
    return iter(groups.items())


def _apart(report: Report) -> Any:
    columns = ("value", "bytes", "written by", "read by", "why they are two kernels")
    table = common.table("Not fused: values that pass through memory", *columns, left=5)
    for (producer, buffer), group in _by_value(report):
        first = (buffer, _size(group[0]["bytes"]), _kernel(producer, group[0]["producer_nodes"]))
        for pair in group:
            reader = _kernel(pair["consumer"], pair["consumer_nodes"])
            table.add_row(*first, reader, pair["reason"])
            first = ("", "", "")
    return table


def _kernel(name: str, nodes: Sequence[str]) -> str:
    """A kernel's name with that of its nodes."""
    return f"{name}: {common.kernel_title(nodes)}" if nodes else name


def _hoisted(report: Report) -> Any:
    table = common.table("Taken out of a loop: one kernel for all steps", "kernel", "nodes", left=2)
    for kernel in report.kernels:
        if kernel.get("hoisted"):
            table.add_row(kernel["name"], _by_folder(kernel["fused"]))
    return table


def _packed(report: Report) -> Any:
    columns = ("kernel", "packed as", "weights", "order", "bytes")
    table = common.table("Weights laid out in the order they are read", *columns, left=4)
    for kernel in report.kernels:
        for packed in kernel.get("packed", ()):
            streams = packed["streams"]
            order = "one operand" if streams == 1 else f"{streams} operands interleaved"
            order += ", read back and forth" if kernel.get("serpentine") else ""
            weights = ", ".join(packed["weights"]) or "computed from constants"
            table.add_row(kernel["name"], packed["buffer"], weights, order, _size(packed["bytes"]))
    return table


def _passes(report: Report) -> Any:
    table = common.table("Passes that changed something", "pass", "changes")
    for name, count in report.passes.items():
        if count:
            table.add_row(name, str(count))
    return table


# The parts of the report that `inspect` prints, and with `--why`.
_SUMMARY = (_ops, _kernels, _fused, _assumptions, _fallback, _passes)
_WHY = (_apart, _hoisted, _packed, _assumptions, _fallback)
