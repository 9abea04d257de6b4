"""Training steps (forward, backward, Adam) of recurrent layers, beside PyTorch in one process.

pip install torch==2.13.0
taskset -c 1 python -m benchmarks.bench_training

One layer of H units over T steps of H inputs, mean squared error of all its outputs, one thread.
PyTorch runs `nn.GRU` or `nn.LSTM` and the fused Adam; it is left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import product

import numpy as np
import onnx
from onnx import helper, numpy_helper

import ostinato
from benchmarks import harness
from ostinato.cli.timing import Timing, interleave

RATE = 1e-3
GATES = {"GRU": 3, "LSTM": 4}
Weights = dict[str, np.ndarray]


def model_of(cell: str, hidden: int) -> onnx.ModelProto:
    """x: `[T, N, hidden]` to y: `[T, N, hidden]`; weights as PyTorch starts them."""
    random = np.random.default_rng(0)
    limit, rows = hidden**-0.5, GATES[cell] * hidden
    shapes = {"W": (1, rows, hidden), "R": (1, rows, hidden), "B": (1, 2 * rows)}
    weights = {
        name: random.uniform(-limit, limit, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    attributes = {"linear_before_reset": 1} if cell == "GRU" else {}
    nodes = [
        helper.make_node(cell, ["x", "W", "R", "B"], ["all"], hidden_size=hidden, **attributes),
        helper.make_node("Squeeze", ["all", "axis"], ["y"]),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    constants.append(numpy_helper.from_array(np.array([1]), "axis"))
    value = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["T", "N", hidden])
        for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, cell.lower(), value[:1], value[1:], constants)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def ours(model: onnx.ModelProto, x: np.ndarray, y: np.ndarray) -> Callable[[], float]:
    """A step of a Trainer; returns its loss."""
    trainer = ostinato.Trainer(model, "mse", "adam", lr=RATE, fallback=False)
    return lambda: trainer.step({"x": x}, {"y": y})


def of_torch(
    cell: str, model: onnx.ModelProto, x: np.ndarray, y: np.ndarray
) -> Callable[[], float] | None:
    """The same step in PyTorch, None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    hidden = x.shape[-1]
    layer = getattr(torch.nn, cell)(hidden, hidden)
    # The order of the gates in ONNX and in PyTorch: z r h and r z h; i o f c and i f c o.
    order = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}[cell]
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def gates(matrix: np.ndarray) -> torch.Tensor:
        parts = np.split(matrix, GATES[cell])
        return torch.from_numpy(np.concatenate([parts[i] for i in order]))

    input_bias, hidden_bias = np.split(weights["B"][0], 2)
    named = {
        "weight_ih_l0": weights["W"][0],
        "weight_hh_l0": weights["R"][0],
        "bias_ih_l0": input_bias,
        "bias_hh_l0": hidden_bias,
    }
    layer.load_state_dict({name: gates(array) for name, array in named.items()})
    optimizer = torch.optim.Adam(layer.parameters(), lr=RATE, fused=True)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(layer(inputs)[0], targets)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def measure(
    cell: str, hidden: int, batch: int, steps: int, seconds: float
) -> tuple[dict[str, Timing], float | None]:
    """Timings, and the largest relative difference between the losses of the first five steps."""
    random = np.random.default_rng(1)
    x, y = (random.standard_normal((steps, batch, hidden), np.float32) for _ in range(2))
    model = model_of(cell, hidden)
    calls = {"ostinato": ours(model, x, y)}
    other = of_torch(cell, model, x, y)
    difference = None
    if other is not None:
        calls["torch"] = other
        losses = np.array([[call() for call in calls.values()] for _ in range(5)])
        difference = float(np.max(np.abs(losses[:, 0] / losses[:, 1] - 1)))
    return interleave(calls, seconds), difference


def main() -> None:
    """Measure and print."""
    parser = harness.parser("a training step beside PyTorch", seconds=3.0)
    parser.add_argument("--steps", type=int, default=100, help="length of the sequence")
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.set_defaults(peers=[])
    arguments = parser.parse_args()
    harness.start(arguments)
    rows = list(product(GATES, arguments.hidden, arguments.batch))
    names = [f"{cell} hidden {hidden}, batch {batch}" for cell, hidden, batch in rows]
    table = harness.table(
        f"training step, T = {arguments.steps}, ms (median)",
        "layer",
        ["ostinato", "torch", "torch / ours", "difference"],
    )
    figures = {}
    work = dict(zip(names, rows, strict=True))
    found = harness.each(
        "training", names, lambda n: measure(*work[n], arguments.steps, arguments.seconds)
    )
    for name, (timings, difference) in zip(names, found, strict=True):
        cells = [f"{timing.median * 1e3:.2f}" for timing in timings.values()]
        if difference is None:
            table.add_row(name, *cells, "-", "-", "-")
        else:
            ratio = timings["torch"].median / timings["ostinato"].median
            table.add_row(name, *cells, f"{ratio:.2f}x", f"{difference:.0e}")
        figures[name] = {peer: timing.median for peer, timing in timings.items()}
    harness.console.print(table)
    harness.save(arguments.json, {"seconds": figures})


if __name__ == "__main__":
    main()
