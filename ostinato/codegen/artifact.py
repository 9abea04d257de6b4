"""The result of code generation: one relocatable object, and how to call it.

This module imports neither onnx, onnx_ir nor llvmlite: loading a compiled model needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from ostinato.element_types import onnx_name
from ostinato.program.title import title
from ostinato.records import dataclass

UNDEFINED = "undefined"
"""The type of an inner value that shape inference tells nothing of."""

UNKNOWN_RANK = ("...",)
"""The shape of a value whose rank is unknown; never that of a native function's argument."""


@dataclass(frozen=True)
class Argument:
    """An input or output of a native function or of a model.

    dtype: NumPy (or ml_dtypes) name of the element type, or "string". A value that is no tensor
        has its whole ONNX type here, for instance "seq(tensor(float))".
    shape: a fixed size, or the name of a run-time dimension ("T"), per axis. A dimension of an
        output may also be a printed expression ("2*T"), which is only displayed.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def is_tensor(self) -> bool:
        """Whether values are arrays; sequences, optionals and maps are not, or may not be."""
        return "(" not in self.dtype and self.dtype != UNDEFINED

    @property
    def type(self) -> str:
        """The ONNX type, such as "tensor(float)"."""
        if not self.is_tensor:
            return self.dtype
        return f"tensor({onnx_name(self.dtype)})"


@dataclass(frozen=True)
class Artifact:
    """A compiled function and everything needed to call it.

    object_code: relocatable object for this machine, position independent, that exports

        `i64 entry(void** buffers, i64* symbols)`
            buffers: inputs, outputs, base of `constants`, base of the arena; both bases are
            aligned to 64 bytes. Returns 0, or i + 1 when `report["checks"][i]` failed.
        `i64 layout(i64* symbols, i64* out)`
            writes the arena's size in bytes, then the dimensions of every output in order.
            Completes the table by the defined symbols first. Returns as `entry` does, when a
            dimension would be negative for instance; or -1 - i when symbol i, for the number of
            symbols anything else, does not fit into 64 bits.

    inputs, outputs: the arguments of `entry`, in order.
    symbols: names of the run-time dimensions, in the order of the `symbols` table; each is a whole
        dimension of at least one input, named in `values`, `dims.MEMORY`, `dims.SPARE`, defined by
        `layout` or computed by `entry`, which then writes to the table.
    values: (position of an input, symbols that are the values of its elements in order).
    shapes: (position of an output, position of the int64 output that has its shape): only the run
        tells it. To `layout` its dimensions are what they are at most; its elements come first in
        its memory, without gaps.
    replaced: (position of an input, position of an output) that may be one memory where they have
        one shape: `entry` then changes it in place, behind all checks.
    constants: one blob; the code has offsets into it (multiples of 64) baked in.
    report: JSON-able facts about the function: "checks", those of them that fail "before_stores",
        and what `InferenceSession.report` documents.
    """

    object_code: bytes
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    symbols: tuple[str, ...]
    constants: bytes | np.ndarray[Any, Any]
    report: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[tuple[int, tuple[str, ...]], ...] = ()
    shapes: tuple[tuple[int, int], ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()

    def may_replace(self, given: str, result: str) -> bool:
        """Whether an input and an output, by name, may be one memory where they have one shape."""
        return any(
            (self.inputs[read].name, self.outputs[written].name) == (given, result)
            for read, written in self.replaced
        )

    def keeps(self, read: int, written: int) -> bool:
        """Whether an input and an output may be one memory in each run."""
        is_alike = self.inputs[read].shape == self.outputs[written].shape
        return is_alike and (read, written) in self.replaced

    @property
    def results(self) -> tuple[Argument, ...]:
        """The outputs without those that have the shape of others."""
        return self.outputs[: len(self.outputs) - len(self.shapes)]

    @property
    def titles(self) -> dict[str, str]:
        """What each function of a kernel computes, by its name in the object code."""
        served: dict[str, list[str]] = {}
        for record in self.report.get("kernels", ()):
            served.setdefault(record.get("function"), []).append(title(record["fused"]))
        return {
            function: f"{first}, {len(others)} alike" if others else first
            for function, (first, *others) in served.items()
            if function
        }
