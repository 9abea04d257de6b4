"""Modules of PyTorch: eager, torch.compile (Inductor) and ostinato.torch, in one process.

pip install torch==2.13.0 onnxscript
taskset -c 1 python -m benchmarks.bench_torch [--peers eager,ostinato] [--cells loop]

GRU and LSTM are `torch.nn`'s, the loop is a coupled-gate LSTM written as a Python loop over time,
scan the same over PyTorch's `scan` operator. One thread; forward without gradients, and forward and
backward of the sum of squares of all outputs. Inductor takes minutes for the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from rich.table import Table
from torch._higher_order_ops.scan import scan

import ostinato.torch
from benchmarks import harness
from ostinato.cli.timing import Timing, interleave

PEERS = ("eager", "inductor", "ostinato")
Step = Callable[[], Any]


class Loop(torch.nn.Module):
    """A coupled-gate LSTM: the forget gate is one minus the input gate."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.x = torch.nn.Linear(hidden, 3 * hidden)
        self.h = torch.nn.Linear(hidden, 3 * hidden, bias=False)

    def cell(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One step: the next hidden state and cell state."""
        f, o, g = (self.x(x) + self.h(h)).chunk(3, -1)
        f = torch.sigmoid(f)
        c = f * c + (1 - f) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = c = x.new_zeros(x.shape[1], self.hidden)
        steps = []
        for t in range(x.shape[0]):
            h, c = self.cell(x[t], h, c)
            steps.append(h)
        return torch.stack(steps), h


class Scan(Loop):
    """The same over `scan`."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def step(carry: Any, element: torch.Tensor) -> Any:
            h, c = self.cell(element, *carry)
            return (h, c), h.clone()

        zeros = x.new_zeros(x.shape[1], self.hidden)
        (h, _), steps = scan(step, (zeros, zeros.clone()), x)
        return steps, h


CELLS: dict[str, tuple[int, Callable[[int], torch.nn.Module]]] = {
    "GRU": (128, lambda hidden: torch.nn.GRU(hidden, hidden)),
    "LSTM": (256, lambda hidden: torch.nn.LSTM(hidden, hidden)),
    "loop": (256, Loop),
    "scan": (256, Scan),
}


def compiled(peer: str, module: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    """The module as the peer runs it."""
    if peer == "eager":
        return module
    if peer == "inductor":
        # It writes out recurrent layers step by step if they do not break the graph.
        torch._dynamo.config.allow_rnn = False
        return torch.compile(module)
    return ostinato.torch.compile(module, x)


def forward(module: torch.nn.Module, x: torch.Tensor) -> Step:
    """A call without gradients."""

    def step() -> Any:
        with torch.no_grad():
            return module(x)

    return step


def both(module: torch.nn.Module, parameters: list[Any], x: torch.Tensor) -> Step:
    """A call and the gradients of input and parameters."""

    def step() -> Any:
        return torch.autograd.grad((module(x)[0] ** 2).sum(), [x, *parameters])

    return step


def measure(
    name: str, batch: int, length: int, names: list[str], seconds: float
) -> tuple[dict[str, dict[str, Timing]], dict[str, float], float]:
    """Timings of both kinds of call by peer, seconds to compile, and the largest difference."""
    hidden, make = CELLS[name]
    torch.manual_seed(0)
    module = make(hidden)
    parameters = list(module.parameters())
    x = torch.randn(length, batch, hidden, requires_grad=True)
    calls: dict[str, dict[str, Step]] = {"forward": {}, "both": {}}
    compiling = {}
    for peer in names:
        torch._dynamo.reset()
        begin = time.process_time()
        try:
            found = compiled(peer, module, x)
            steps = forward(found, x.detach()), both(found, parameters, x)
            for step in steps:
                step()
        except Exception as error:
            harness.console.print(f"{name}, {peer}: {str(error).splitlines()[0]}")
            continue
        compiling[peer] = time.process_time() - begin
        calls["forward"][peer], calls["both"][peer] = steps
    difference = 0.0
    if "eager" in calls["both"] and "ostinato" in calls["both"]:
        expected, got = calls["both"]["eager"](), calls["both"]["ostinato"]()
        difference = max(
            float((a - b).abs().max() / a.abs().max()) for a, b in zip(expected, got, strict=True)
        )
    return (
        {kind: interleave(steps, seconds) for kind, steps in calls.items()},
        compiling,
        difference,
    )


def row(table: Table, name: str, timings: dict[str, Timing], names: list[str], *more: str) -> None:
    """One line: medians in ms, and how much faster we are than the best of the others."""
    cells = [f"{timings[n].median * 1e3:.2f}" if n in timings else "-" for n in names]
    others = [timings[n].median for n in names if n != "ostinato" and n in timings]
    own = timings.get("ostinato")
    ratio = f"{min(others) / own.median:.2f}x" if others and own else "-"
    table.add_row(name, *cells, ratio, *more)


def overhead(seconds: float) -> dict[str, float]:
    """Microseconds of a small call beside `session.run` of the same model, by kind of call."""
    module = torch.nn.Linear(4, 4)
    x = torch.randn(1, 4)
    found = ostinato.torch.compile(module, x)
    session = found.session
    feed = {
        argument.name: tensor.detach().numpy()
        for argument, tensor in zip(
            session.get_inputs(), (x, module.weight, module.bias), strict=True
        )
    }
    calls = {"run": lambda: session.run(None, feed), "no_grad": forward(found, x)}
    timings = interleave(calls, seconds)
    return {n: t.median * 1e6 for n, t in timings.items()}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("modules of PyTorch", seconds=3.0, known=PEERS)
    parser.add_argument("--length", type=int, default=100, help="length of the sequence")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--cells", nargs="+", default=["GRU", "LSTM", "loop"], choices=CELLS)
    arguments = parser.parse_args()
    names, arguments.peers = arguments.peers, []
    harness.start(arguments)
    torch.set_num_threads(1)
    tables = {
        kind: harness.table(
            f"{kind}, T = {arguments.length}, ms (median)",
            "module",
            [*names, "best of the others / ours", "difference", "to compile, s"],
        )
        for kind in ("forward", "both")
    }
    work = {
        f"{n} {CELLS[n][0]}, batch {b}": (n, b)
        for n, b in product(arguments.cells, arguments.batch)
    }
    found = harness.each(
        "torch",
        list(work),
        lambda n: measure(*work[n], arguments.length, names, arguments.seconds),
    )
    for name, (timings, compiling, difference) in zip(work, found, strict=True):
        spent = " ".join(f"{compiling[n]:.1f}" if n in compiling else "-" for n in names[1:])
        for kind, table in tables.items():
            row(table, name, timings[kind], names, f"{difference:.0e}", spent)
    for table in tables.values():
        harness.console.print(table)
    figures = overhead(arguments.seconds)
    harness.console.print(
        f"a call of nn.Linear(4, 4): {figures['no_grad']:.1f} us, "
        f"session.run {figures['run']:.1f} us"
    )
    harness.save(
        arguments.json,
        {
            n: {k: {p: t.median for p, t in ts.items()} for k, ts in timings.items()}
            for n, (timings, _, _) in zip(work, found, strict=True)
        },
    )


if __name__ == "__main__":
    main()
