"""How the time to load a model grows with its depth: chains of cheap nodes, and wide ones.

    taskset -c 1 python -m benchmarks.bench_depth [--nodes 500 1000 2000] [--json FILE]

CPU seconds of a session without the cache, imports aside, each in a process of its own. Kernels of
a chain are joined up to `ostinato.schedule.joining.MAX_WORK` operations; `--work` sets another
limit, to see what it costs and what it saves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import process_time

import onnx
from onnx import TensorProto, helper

from benchmarks import harness

NODES = (500, 1000, 2000)


def chain(operators: Iterator[str], count: int) -> onnx.ModelProto:
    """`count` nodes in a row; those of two operands also read `y`."""
    nodes, value = [], "x"
    for number, operator in zip(range(count), operators, strict=False):
        result = "o" if number == count - 1 else f"v{number}"
        operands = [value, "y"] if operator in ("Add", "Mul") else [value]
        nodes.append(helper.make_node(operator, operands, [result]))
        value = result
    return _model(nodes, ["x", "y"])


def cycle(*operators: str) -> Callable[[int], onnx.ModelProto]:
    """Chains that repeat these operators."""
    return lambda count: chain((operators[i % len(operators)] for i in range(count)), count)


def twice(count: int) -> onnx.ModelProto:
    """`x = x * x + x`, again and again: every result has two readers."""
    nodes, value = [], "x"
    for number in range(count // 2):
        result = "o" if number == count // 2 - 1 else f"v{number}"
        nodes.append(helper.make_node("Mul", [value, value], [f"m{number}"]))
        nodes.append(helper.make_node("Add", [f"m{number}", value], [result]))
        value = result
    return _model(nodes, ["x"])


def wide(operator: str) -> Callable[[int], onnx.ModelProto]:
    """One node of so many inputs."""

    def build(count: int) -> onnx.ModelProto:
        names = [f"x{number}" for number in range(count)]
        attributes = {"axis": 0} if operator == "Concat" else {}
        return _model([helper.make_node(operator, names, ["o"], **attributes)], names)

    return build


def _model(nodes: list[onnx.NodeProto], inputs: list[str]) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in inputs]
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [None])
    graph = helper.make_graph(nodes, "depth", values, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CASES: dict[str, Callable[[int], onnx.ModelProto]] = {
    "Identity": cycle("Identity"),
    "Abs": cycle("Abs"),
    "Tanh": cycle("Tanh"),
    "Exp, Neg": cycle("Exp", "Neg"),
    "Add, Mul, Tanh, Sigmoid": cycle("Add", "Mul", "Tanh", "Sigmoid"),
    "x * x + x": twice,
    "Sum": wide("Sum"),
    "Concat": wide("Concat"),
}


def measure(case: str, count: int, peer: str, work: int | None) -> tuple[float, int]:
    """(CPU seconds to load, kernels)."""
    model = CASES[case](count).SerializeToString()
    if peer == "onnxruntime":
        import onnxruntime

        begun = process_time()
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return process_time() - begun, 0
    import ostinato
    from ostinato.schedule import joining

    joining.MAX_WORK = work or joining.MAX_WORK
    # What a session imports on first use is imported before it is timed.
    ostinato.InferenceSession(CASES["Abs"](2), cache_dir=None)
    begun = process_time()
    session = ostinato.InferenceSession(model, cache_dir=None)
    return process_time() - begun, len(session.report()["kernels"])


def _apart(case: str, count: int, peer: str, work: int | None) -> tuple[float, int]:
    task = json.dumps([case, count, peer, work])
    command = [sys.executable, "-m", "benchmarks.bench_depth", "--task", task]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(result.stderr)
    seconds, kernels = json.loads(result.stdout)
    return float(seconds), int(kernels)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("time to load deep models")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--work", type=int, default=None, help="operations of a joined kernel")
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    wanted = harness.start(arguments)
    peers = [peer for peer in ("ostinato", "onnxruntime") if peer in wanted]
    rows = {f"{count} {case}": (case, count) for case in CASES for count in arguments.nodes}
    figures = harness.each(
        "Loading",
        list(rows),
        lambda name: [_apart(*rows[name], peer, arguments.work) for peer in peers],
    )
    table = harness.table("CPU seconds to load", "nodes", [*peers, "kernels"])
    for name, found in zip(rows, figures, strict=True):
        table.add_row(name, *(f"{seconds:.2f}" for seconds, _ in found), str(found[0][1]))
    harness.console.print(table)
    saved = [
        {"case": case, "nodes": count, **{p: s for p, (s, _) in zip(peers, found, strict=True)}}
        for (case, count), found in zip(rows.values(), figures, strict=True)
    ]
    harness.save(arguments.json, {"seconds": saved})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        print(json.dumps(measure(*json.loads(sys.argv[2]))))
    else:
        main()
