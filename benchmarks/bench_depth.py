"""How the time to load a model grows with its nodes: chains of cheap ones, wide ones, loops.

    taskset -c 1 python -m benchmarks.bench_depth [--nodes 500 1000 2000] [--json FILE]

CPU seconds of a session without the cache, imports aside, each in a process of its own. Kernels of
a chain are joined up to `ostinato.schedule.joining.MAX_WORK` operations; `--work` sets another
limit, to see what it costs and what it saves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from time import process_time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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


def inputs(count: int) -> onnx.ModelProto:
    """As many inputs, each of a size of its own, and what is computed of them side by side."""
    names = [f"x{number}" for number in range(count)]
    nodes = [helper.make_node("Tanh", [name], [f"v{name}"]) for name in names]
    nodes.append(helper.make_node("Concat", [f"v{name}" for name in names], ["o"], axis=0))
    return _model(nodes, names, [f"N{number}" for number in range(count)])


def summed(count: int) -> onnx.ModelProto:
    """As many values of one run-time size, all of them alive at the same time."""
    names = [f"x{number}" for number in range(count)]
    nodes = [helper.make_node("Tanh", [name], [f"v{name}"]) for name in names]
    nodes.append(helper.make_node("Sum", [f"v{name}" for name in names], ["o"]))
    return _model(nodes, names)


def read_by_all(count: int) -> onnx.ModelProto:
    """One value that as many nodes read, and what they make side by side."""
    names = [f"v{number}" for number in range(count)]
    nodes = [helper.make_node("Exp", ["x"], ["e"])]
    nodes += [helper.make_node("Add", ["e", f"c{name}"], [name]) for name in names]
    nodes.append(helper.make_node("Concat", names, ["o"], axis=0))
    return _model(nodes, ["x"], floats={f"c{name}": number for number, name in enumerate(names)})


def elements(count: int) -> onnx.ModelProto:
    """As many single elements of one value."""
    names = [f"v{number}" for number in range(count)]
    nodes = [helper.make_node("Gather", ["x", f"i{name}"], [name], axis=0) for name in names]
    nodes.append(helper.make_node("Concat", names, ["o"], axis=0))
    places = {f"i{name}": [number] for number, name in enumerate(names)}
    return _model(nodes, ["x"], [count], integers=places)


def loops(count: int) -> onnx.ModelProto:
    """As many loops in a row."""
    nodes, value = [], "x"
    for number in range(count):
        result = "o" if number == count - 1 else f"v{number}"
        nodes.append(helper.make_node("Loop", ["k", "", value], [result], body=_body(number, 1)))
        value = result
    return _model(nodes, ["x"], integers={"k": 3})


def states(count: int) -> onnx.ModelProto:
    """A loop of as many states, each of which the one before reads."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node(
            "Loop",
            ["k", "", *["e"] * count],
            [f"v{n}" for n in range(count)],
            body=_body(0, count),
        ),
        helper.make_node("Sum", [f"v{n}" for n in range(count)], ["o"]),
    ]
    return _model(nodes, ["x"], integers={"k": 3})


def _body(number: int, count: int) -> onnx.GraphProto:
    """The body of a loop of states, each of which becomes the sum of itself and the next one."""
    before = [f"b{number}.{n}" for n in range(count)]
    after = [f"a{number}.{n}" for n in range(count)]
    nodes = [helper.make_node("Identity", [f"p{number}"], [f"q{number}"])]
    nodes += [
        helper.make_node("Add", [name, before[(n + 1) % count]], [after[n]])
        for n, name in enumerate(before)
    ]
    floats = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in names]
        for names in (before, after)
    ]
    step = helper.make_tensor_value_info(f"i{number}", TensorProto.INT64, [])
    going, goes_on = (
        helper.make_tensor_value_info(f"{name}{number}", TensorProto.BOOL, []) for name in "pq"
    )
    return helper.make_graph(nodes, "body", [step, going, *floats[0]], [goes_on, *floats[1]])


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[str],
    sizes: Sequence[str | int] = (),
    *,
    floats: Mapping[str, float] | None = None,
    integers: Mapping[str, int | list[int]] | None = None,
) -> onnx.ModelProto:
    """A model of vectors; sizes: of the inputs, `N` where none are given."""
    pairs = zip_longest(inputs, sizes, fillvalue="N")
    values = [helper.make_tensor_value_info(str(n), TensorProto.FLOAT, [size]) for n, size in pairs]
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [None])
    constants = [numpy_helper.from_array(np.float32(v), n) for n, v in (floats or {}).items()]
    constants += [numpy_helper.from_array(np.int64(v), n) for n, v in (integers or {}).items()]
    graph = helper.make_graph(nodes, "depth", values, [output], constants)
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
    "inputs of a size each": inputs,
    "Sum of computed values": summed,
    "one value read by all": read_by_all,
    "elements": elements,
    "loops in a row": loops,
    "states of a loop": states,
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
