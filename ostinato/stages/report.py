"""The report of a session: one record, with the same keys for every model."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ostinato.records import dataclass

if TYPE_CHECKING:
    from ostinato.codegen.artifact import Artifact
    from ostinato.stages.stage import CompiledModel, FallbackStage

Status = Literal["reference kernel", "compiled when called"]
_REFERENCE: Status = "reference kernel"
_LATE: Status = "compiled when called"

# A message names this many nodes, and counts the others.
_MOST_NAMED = 8


class NotNative(TypedDict):
    """A node that is not native code when the model is loaded.

    status: "reference kernel": it runs on the kernels of `onnx.reference`, interpreted.
        "compiled when called": once the values of `inputs`, or else their ranks and lengths, are
        known; where they have no native form, or keep changing, the reference kernel takes over.
    reason: why it has no native form; for a node with bodies, which node inside of them has none.
    inputs: the operands that decide, of a node that is compiled when called.
    unless: the assumptions under which the node is not reached; empty for one that is always
        reached. It belongs to the program for other sizes (`Report.assumptions`).
    taken_over: why the reference kernel took over in the runs so far.
    """

    node: str
    op: str
    status: Status
    reason: str
    inputs: list[str]
    unless: list[str]
    taken_over: list[str]


@dataclass(frozen=True, eq=False, repr=False)
class Report(Mapping[str, Any]):
    """The report of the compiler; JSON-able, complete before the first run.

    It reads as a dict of its fields too, and prints as a short table.

    native: whether no node in `fallback` is always reached: what `fallback=False` demands.
    fallback: every node that does not, or not always, run as native code, with the reason.
    assumptions: sizes for which the compiled program is not made; another one is compiled when
        they come, or refused with `fallback=False` if it is not native.
    kernels: a record of each native kernel (`ostinato.schedule.report.report_kernels`).
    refusals: values that pass between kernels through memory, and why
        (`ostinato.schedule.report.report_unfused_pairs`).
    ops: number of nodes by operator, "before" and "after" the passes.
    passes: how many places each pass changed.
    advice: options that would make the model faster, and what else they change.
    threads: the most that a call uses.
    constant_bytes: weights as they are laid out for the kernels, in bytes.
    arena_bytes: working memory of `run`, in bytes; it grows with the run-time sizes that come.
    from_cache: whether the model was compiled before.
    fingerprint: tells models apart; None for one that cannot be serialised.
    """

    native: bool = True
    fallback: list[NotNative] = dataclasses.field(default_factory=list)
    assumptions: list[str] = dataclasses.field(default_factory=list)
    kernels: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    refusals: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ops: dict[str, dict[str, int]] = dataclasses.field(
        default_factory=lambda: {"before": {}, "after": {}}
    )
    passes: dict[str, int] = dataclasses.field(default_factory=dict)
    advice: list[str] = dataclasses.field(default_factory=list)
    threads: int = 1
    constant_bytes: int = 0
    arena_bytes: int = 0
    from_cache: bool = False
    fingerprint: str | None = None

    @property
    def interpreted(self) -> list[NotNative]:
        """Entries of `fallback` that run on a reference kernel in every run, or came to do so."""
        certain = always_interpreted(self.fallback)
        return [entry for entry in self.fallback if entry["taken_over"] or entry in certain]

    def __getitem__(self, key: str) -> Any:
        if key not in _KEYS:
            raise KeyError(f"{key!r}: the keys are {', '.join(_KEYS)}")
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)

    def __repr__(self) -> str:
        return f"<ostinato.Report: {self.summary()}>"

    def summary(self) -> str:
        """One line: how many kernels, and whether all is native."""
        kernels = f"{len(self.kernels)} kernel{'' if len(self.kernels) == 1 else 's'}"
        left = sum(not entry["unless"] for entry in self.fallback)
        if left:
            return f"{kernels}, {left} node{'' if left == 1 else 's'} not native"
        return f"{kernels}, native{' for the assumed sizes' if self.assumptions else ''}"

    def __str__(self) -> str:
        inside = sum(kernel.get("in_loop") is not None for kernel in self.kernels)
        changed = [f"{op} {self.ops['before'].get(op, 0)}->{self.ops['after'].get(op, 0)}"
                   for op in sorted({*self.ops["before"], *self.ops["after"]})
                   if self.ops["before"].get(op, 0) != self.ops["after"].get(op, 0)]  # fmt: skip
        rows = [
            ("native", "yes" if self.native else "no"),
            ("kernels", f"{len(self.kernels)}, of them {inside} in loops"),
            ("ops", ", ".join(changed) or "as in the model"),
            ("memory", f"{self.constant_bytes:,} bytes of weights, {self.arena_bytes:,} of arena"),
            ("threads", str(self.threads)),
            ("from cache", "yes" if self.from_cache else "no"),
            *(("not made for", text) for text in self.assumptions),
            *(("advice", text) for text in self.advice),
            *(("not native", described(entry)) for entry in self.fallback),
        ]
        return "\n".join(f"{name:<14}{text}" for name, text in rows)


_KEYS = tuple(field.name for field in dataclasses.fields(Report))


def report_of(
    model: CompiledModel,
    artifacts: Sequence[Artifact],
    fallback: list[NotNative],
    arena_bytes: int,
    from_cache: bool,
) -> Report:
    """The report of a model whose native functions are `artifacts`; it shares nothing with them."""
    facts, compiled = [artifact.report for artifact in artifacts], model.report
    report = Report(
        native=not always_reached(fallback),
        fallback=fallback,
        assumptions=[text for fact in facts for text in fact.get("assumptions", ())],
        kernels=[kernel for fact in facts for kernel in fact.get("kernels", ())],
        refusals=[pair for fact in facts for pair in fact.get("refusals", ())],
        ops=compiled.get("ops", {"before": {}, "after": {}}),
        passes=compiled.get("passes", {}),
        advice=compiled.get("advice", []),
        threads=max((int(fact.get("threads", 1)) for fact in facts), default=1),
        constant_bytes=sum(len(artifact.constants) for artifact in artifacts),
        arena_bytes=arena_bytes,
        from_cache=from_cache,
        fingerprint=compiled.get("fingerprint"),
    )
    return copy.deepcopy(report)


def not_native(stage: FallbackStage, taken_over: Iterable[str] = ()) -> NotNative:
    """The entry of a stage in `Report.fallback`."""
    inputs = [*stage.value_keys, *stage.structure_keys]
    return {
        "node": stage.name,
        "op": stage.op,
        "status": _LATE if inputs else _REFERENCE,
        "reason": stage.reason,
        "inputs": inputs,
        "unless": [],
        "taken_over": [*taken_over],
    }


def of_other_sizes(entry: NotNative, unless: list[str]) -> NotNative:
    """Return the entry of a node in a program for other sizes, which was compiled for a run."""
    ran = entry["status"] == _REFERENCE and not entry["unless"] and not entry["taken_over"]
    taken_over = ["sizes that are not assumed"] if ran else entry["taken_over"]
    return {**entry, "unless": [*unless, *entry["unless"]], "taken_over": taken_over}


def described(entry: NotNative) -> str:
    """Describe a node that is not native in a line."""
    text = f"node {entry['node']!r} ({entry['op']}), {entry['status']}: {entry['reason']}"
    if entry["unless"]:
        text += "; only for sizes that are not assumed"
    return text + "".join(f"; the reference kernel took over: {t}" for t in entry["taken_over"])


def listed(texts: Sequence[str]) -> str:
    """Join the first of many texts, and say how many more there are."""
    more = len(texts) - _MOST_NAMED
    return "; ".join(texts[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def always_interpreted(entries: Iterable[NotNative]) -> list[NotNative]:
    """The nodes that run on a reference kernel whenever they are reached, whatever the sizes."""
    return [entry for entry in always_reached(entries) if entry["status"] == _REFERENCE]


def always_reached(entries: Iterable[NotNative]) -> list[NotNative]:
    """The nodes that are part of the program for the assumed sizes."""
    return [entry for entry in entries if not entry["unless"]]
