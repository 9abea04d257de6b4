"""Recurrences as exporters write them: all passes together, and the results before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.models import coupled_gate_lstm, feeds
from ostinato.optimization import optimize
from tests.golden import make_feeds, parse, run_onnxruntime
from tests.oracle import evaluator

MODELS = Path(__file__).parents[3] / "shared" / "models"


def ops(graph: onnx.GraphProto) -> Counter[str]:
    return Counter(node.op_type for node in walk(graph))


def walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from walk(attribute.g)


def assert_same_results(
    before: onnx.ModelProto, after: onnx.ModelProto, given: dict[str, np.ndarray]
) -> None:
    onnx.checker.check_model(after, full_check=True)
    for expected, got in zip(
        run_onnxruntime(before, given), run_onnxruntime(after, given), strict=True
    ):
        np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_loop_and_scan_come_out_alike(steps: int):
    loop = coupled_gate_lstm("model", "loop", 8, steps).proto
    scan = coupled_gate_lstm("model", "scan", 8, steps).proto
    optimized = optimize(loop)
    counts = ops(optimized.graph)
    assert not counts["Loop"]
    assert counts["Gather"] == (1 if steps == 1 else 0)
    assert counts["Scan"] == ops(optimize(scan).graph)["Scan"]
    assert_same_results(loop, optimized, feeds(loop))


# A list of outputs, a state made of zeros, an index that counts from the end: torch.jit.script.
SCRIPTED = """
    g (float[T, N, 4] x) => (float[X, N, 3] y, float[N, 3] last, int64 count) {
        minus = Constant <value_int = -1> ()
        none = Constant <value_int = 0> ()
        axis = Constant <value_int = 1> ()
        wide = Constant <value_ints = [3]> ()
        first = Constant <value_ints = [0]> ()
        go = Constant <value = bool {1}> ()
        s = Shape(x)
        t = Gather <axis = 0> (s, none)
        n = Gather <axis = 0> (s, axis)
        rows = Unsqueeze(n, first)
        sizes = Concat <axis = 0> (rows, wide)
        zeros = ConstantOfShape(sizes)
        empty = SequenceEmpty <dtype = 1> ()
        outs, h = Loop <body = b (int64 i, bool p, seq(float[N, 3]) seq_in, float[N, 3] hidden) =>
            (bool q, seq(float[N, 3]) seq_out, float[N, 3] next) {
                q = Constant <value = bool {1}> ()
                INDEX
                e = Gather <axis = 0> (x, j)
                u = MatMul(e, w)
                v = MatMul(hidden, r)
                k = Add(u, v)
                next = Tanh(k)
                seq_out = SequenceInsert(seq_in, next)
            }> (t, go, empty, zeros)
        y = CONCAT (outs)
        last = SequenceAt(outs, minus)
        count = SequenceLength(outs)
    }
    """
INDICES = {
    "forward": "j = Identity(i)",
    "backward": "one = Constant <value_int = 1> ()  d = Sub(t, one)  j = Sub(d, i)",
    "from-the-end": "one = Constant <value_int = 1> ()  d = Add(i, one)  j = Neg(d)",
}
CONCATENATIONS = {
    "stack": "ConcatFromSequence <axis = 0, new_axis = 1>",
    "concat": "ConcatFromSequence <axis = 0>",
}


def scripted(index: str, concatenation: str) -> onnx.ModelProto:
    text = SCRIPTED.replace("INDEX", INDICES[index])
    text = text.replace("CONCAT (", CONCATENATIONS[concatenation] + " (")
    if concatenation == "concat":
        text = text.replace("float[X, N, 3] y", "float[X, 3] y")
    model = parse(text)
    random = np.random.default_rng(0)
    for name, shape in (("w", (4, 3)), ("r", (3, 3))):
        weights = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


@pytest.mark.parametrize("concatenation", CONCATENATIONS)
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("length", [1, 5])
def test_a_scripted_cell(index: str, concatenation: str, length: int):
    model = scripted(index, concatenation)
    optimized = optimize(model)
    counts = ops(optimized.graph)
    assert counts["Scan"] == 1 and not {"Loop", "Range", "SequenceInsert"} & set(counts)
    (scan,) = (node for node in optimized.graph.node if node.op_type == "Scan")
    directions = [list(a.ints) for a in scan.attribute if a.name == "scan_input_directions"]
    assert directions == ([] if index == "forward" else [[1]])
    given = {"x": np.random.default_rng(1).standard_normal((length, 2, 4)).astype(np.float32)}
    assert_same_results(model, optimized, given)


def test_a_scripted_cell_without_steps():
    model = scripted("forward", "stack")
    del model.graph.output[1], model.graph.node[-2]  # there is no last element
    assert "SequenceAt" not in ops(model.graph)
    outputs = evaluator.run(optimize(model), {"x": np.zeros((0, 2, 4), np.float32)})
    assert outputs[0].shape == (0, 2, 3) and outputs[1] == 0


def test_windows_with_a_counter_and_an_unused_state():
    """Overlapping reads of one sequence, a state that counts along, one that nobody needs."""
    model = parse("""
        g (float[12, 3] x, float[3] h) => (float[3] hn, float[10, 3] y)
        <int64 n = {10}, bool c = {1}, int64 zero = {0}, int64 one = {1}, int64 two = {2}> {
            hn, k, z, y = Loop <body = b (int64 i, bool p, float[3] s, int64 a, float[3] idle) =>
                (bool q, float[3] t, int64 a_next, float[3] idle_next, float[3] o) {
                    q = Identity(p)
                    e = Gather(x, i)
                    a_next = Add(a, one)
                    f = Gather(x, a_next)
                    j = Add(i, two)
                    g = Gather(x, j)
                    u = Add(e, f)
                    v = Mul(u, g)
                    idle_next = Exp(idle)
                    t = Add(s, v)
                    o = Tanh(t)
                }> (n, c, h, zero, h)
        }
        """)
    optimized = optimize(model)
    (scan,) = (node for node in optimized.graph.node if node.op_type == "Scan")
    assert len(scan.input) == 4 and len(scan.output) == 2
    assert set(ops(optimized.graph)) == {"Scan", "Slice", "Add", "Mul", "Tanh"}
    assert_same_results(model, optimized, make_feeds(model))


def test_a_state_that_adds_slices():
    """The shape of the state depends on what a Slice between computed bounds returns."""
    model = parse("""
        g (float[1] h) => (float[1] hn, float[5, 1] y) <int64 n = {5}, bool c = {1}> {
            hn, y = Loop <body = b (int64 i, bool p, float[1] s) =>
                (bool q, float[1] t, float[1] o) {
                    q = Identity(p)
                    x = Constant <value = float[5] {1, 2, 3, 4, 5}> ()
                    one = Constant <value = int64 {1}> ()
                    end = Add(i, one)
                    first = Unsqueeze <axes = [0]> (i)
                    last = Unsqueeze <axes = [0]> (end)
                    e = Slice(x, first, last)
                    t = Add(s, e)
                    o = Identity(t)
                }> (n, c, h)
        }
        """, opset=11)  # fmt: skip
    optimized = optimize(model)
    counts = ops(optimized.graph)
    assert set(counts) == {"Scan", "Unsqueeze", "Add", "Identity"}
    assert_same_results(model, optimized, make_feeds(model))


def test_what_must_stay_a_loop_still_runs():
    """A condition computed from data, with a state and an output that nobody needs."""
    model = parse("""
        g (float[2] h, int64 n) => (float[2] hn)
        <bool c = {1}, float limit = {0.5}, float[2] half = {0.5, 0.5}> {
            hn, idle, y = Loop <body = b (int64 i, bool p, float[2] s, float[2] r) =>
                (bool q, float[2] t, float[2] v, float[2] o) {
                    t = Mul(s, half)
                    k = ReduceMax <keepdims = 0> (t)
                    q = Less(limit, k)
                    v = Exp(r)
                    o = Neg(v)
                }> (n, c, h, h)
        }
        """)
    optimized = optimize(model)
    (loop,) = optimized.graph.node
    assert loop.op_type == "Loop" and len(loop.output) == 1
    given = {"h": np.array([7, 9], np.float32), "n": np.array(20, np.int64)}
    assert_same_results(model, optimized, given)


@pytest.mark.parametrize(
    "name",
    ["silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless", "silero_vad_16k_sequence"],
)
def test_a_published_model_keeps_its_results(name: str):
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    model = onnx.load(path)
    random = np.random.default_rng(0)
    given: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name == "sr":
            given["sr"] = np.array(16000, np.int64)
            continue
        named = {"input": (1, 576), "state": (2, 1, 128)}
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        shape = dims if all(dims) else named[value.name]
        given[value.name] = (0.1 * random.standard_normal(shape)).astype(np.float32)
    before = run_onnxruntime(model, given)
    after = run_onnxruntime(optimize(model, disable=["recurrent_to_scan"]), given)
    for expected, got in zip(before, after, strict=True):
        np.testing.assert_array_equal(got, expected, strict=True)
