"""The head and the places of a kernel's function."""

from __future__ import annotations

from ostinato.codegen.function import KernelFunction
from ostinato.machine.record import Machine
from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer
from tests.program.programs import at, store


def _function(watched: bool, extent: int = 4) -> KernelFunction:
    axis = Axis("i", extent)
    kernel = Kernel("k", (axis,), (), (store("y", at("x", (axis, 1)), (axis, 1)),))
    buffers = {name: Buffer(name, "float32", extent, "arena") for name in "xy"}
    return KernelFunction(kernel, buffers, [], set(), Machine(32, 16), watched)


def test_buffers_are_parameters_that_do_not_overlap() -> None:
    head = _function(watched=True).text(["i64 %n"]).splitlines()[0]
    assert head.startswith("define internal void @")
    assert "ptr noalias %b0, ptr noalias %b1, ptr noalias readonly %symbols" in head
    assert "i64 %n" in head and "%poll" not in head


def test_a_long_kernel_that_is_watched_says_whether_it_was_stopped() -> None:
    long = 1 << 40
    assert _function(watched=True, extent=long).is_long
    head = _function(watched=True, extent=long).text([]).splitlines()[0]
    assert head.startswith("define internal i1 @") and head.endswith("ptr noalias %poll) #0 {")
    assert not _function(watched=False, extent=long).is_long
