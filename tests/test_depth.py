"""Nothing recurses over the depth of a model, and nothing is computed twice because of it."""

from __future__ import annotations

import cProfile

import numpy as np
import onnx
import onnxruntime
import pytest

import ostinato
from benchmarks.bench_depth import CASES, cycle
from ostinato.compiler import stages
from ostinato.model.load import load_model
from ostinato.ops.rules import rolled_loop
from ostinato.passes.pipeline import run_passes
from ostinato.program import interpreter
from ostinato.program.expr import walk
from ostinato.program.printer import text
from ostinato.schedule.fuse import fuse
from ostinato.schedule.joining import MAX_WORK
from ostinato.stages.partition import Segment, partition

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("case", "count"),
    [
        ("Tanh", 15),
        ("Exp, Neg", 28),
        ("Abs", 300),
        ("Identity", 2000),
        ("Sum", 150),
        ("Concat", 20),
        ("Exp, Neg", 500),
    ],
)
def test_deep_and_wide_models_load_and_run(case: str, count: int) -> None:
    model = CASES[case](count).SerializeToString()
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    feeds = {i.name: RANDOM.uniform(-1, 1, 5).astype("f") for i in session.get_inputs()}
    (expected,) = onnxruntime.InferenceSession(model).run(None, feeds)
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if case != "Identity"])
def test_loading_takes_work_in_proportion_to_nodes(case: str) -> None:
    """Twice the nodes take no more than 2.5 times the calls of functions."""
    ostinato.InferenceSession(CASES[case](3), cache_dir=None)
    counts = [_calls(CASES[case](nodes)) for nodes in (60, 120)]
    assert counts[1] < 2.5 * counts[0]


def _calls(model: onnx.ModelProto) -> int:
    """How many calls of Python functions it takes to load a model."""
    # A function that `sys.setprofile` calls would take as long as all that it counts.
    profile = cProfile.Profile(subcalls=False, builtins=False)
    profile.runcall(ostinato.InferenceSession, model, cache_dir=None)
    return sum(entry.callcount for entry in profile.getstats())


def test_chains_become_kernels_of_bounded_work_with_the_same_bits() -> None:
    model = load_model(CASES["x * x + x"](700))
    run_passes(model)
    (part,) = partition(model, fallback=False).parts
    assert isinstance(part, Segment)
    apart, joined = part.program, fuse(part.program)
    work = [kernel.work for kernel in joined.kernels()]
    assert len(work) == 2 and max(work) <= MAX_WORK
    # What is known of kernels while they grow is what a walk finds.
    for kernel in joined.kernels():
        assert kernel.nodes == set(walk(*kernel.expressions()))
    # Every operation is in one kernel: none is computed by two readers.
    assert sum(work) < 700 + 10 * len(work)
    feeds = {"x": RANDOM.uniform(-0.5, 0.1, 7).astype("f")}
    (one,), (other,) = (interpreter.run(p, feeds).values() for p in (joined, apart))
    assert one.tobytes() == other.tobytes()
    assert len(text(joined)) > 700


def test_long_chains_share_functions() -> None:
    """Kernels cut alike are compiled once, so that the object does not grow with the chain."""
    sizes = []
    for count in (400, 800):
        model = cycle("Exp", "Neg")(count).SerializeToString()
        llvm = next(t for n, t in stages(model, ostinato.Options()) if n == "llvm")
        sizes.append(llvm.count("define internal"))
    assert sizes[1] <= sizes[0] + 1 <= 6


def test_concatenation_in_a_chain() -> None:
    nodes = [
        onnx.helper.make_node("Concat", [f"v{i}" if i else "x", "x"], [f"v{i + 1}"], axis=0)
        for i in range(300)
    ]
    values = [onnx.helper.make_tensor_value_info("x", 1, [2])]
    output = onnx.helper.make_tensor_value_info("v300", 1, [602])
    graph = onnx.helper.make_graph(nodes, "chain", values, [output])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    x = np.array([1, 2], np.float32)
    (got,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    np.testing.assert_array_equal(got, np.tile(x, 301))


def nested_loops(depth: int, grows: bool) -> onnx.ModelProto:
    """Loops in loops, each of two steps; the innermost adds to what all of them carry."""
    helper, shape = onnx.helper, [None] if grows else [2]

    def body(level: int) -> onnx.GraphProto:
        before, after = f"x{level}", f"y{level}"
        nodes = [helper.make_node("Less", [f"i{level}", "one"], [f"c{level}"])]
        if level < depth:
            inner = helper.make_node("Loop", ["", "yes", before], [after], body=body(level + 1))
            nodes.append(inner)
        elif grows:
            nodes.append(helper.make_node("Concat", [before, "piece"], [after], axis=0))
        else:
            nodes.append(helper.make_node("Add", [before, "piece"], [after]))
        given = {f"i{level}": (7, []), f"p{level}": (9, []), before: (1, shape)}
        made = {f"c{level}": (9, []), after: (1, shape)}
        values = [
            [helper.make_tensor_value_info(name, *kind) for name, kind in side.items()]
            for side in (given, made)
        ]
        return helper.make_graph(nodes, f"b{level}", *values)

    constants = [
        helper.make_tensor("one", 7, [], [1]),
        helper.make_tensor("yes", 9, [], [1]),
        helper.make_tensor("piece", 1, [2], [1, 2]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body(1))],
        "nested",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("depth", "grows"), [(14, False), (4, True)])
def test_nested_loops_take_few_attempts(
    depth: int, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolled_loop, "MOST_ATTEMPTS", 300)
    model = nested_loops(depth, grows).SerializeToString()
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=grows)
    feeds = {"x": np.zeros(2, np.float32)}
    (expected,) = onnxruntime.InferenceSession(model).run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
