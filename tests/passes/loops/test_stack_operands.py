"""Joined results of equal nodes: one node on joined operands, same bits, no endless exchange."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.stack_operands import stack_operands
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.lift_constants import lift_constants

COUNT = 9


def model(node: str, stacked: bool, count: int = COUNT) -> onnx.ModelProto:
    """`count` times `node` of `f$t` and `b$t`, f32[2, 3] or with an axis of 1, put together."""
    lines = ["a = Constant<value = int64[1] {1}>()"]
    for t in range(count):
        lines += [
            f"i{t} = Constant<value = int64{'' if stacked else '[1]'} {{{t}}}>()",
            f"f{t} = Gather<axis=1>(x, i{t})",
            f"b{t} = Gather<axis=1>(z, i{t})",
            f"p{t} = {node.replace('$t', str(t))}",
        ]
        lines += [f"u{t} = Unsqueeze(p{t}, a)"] * stacked
    parts = ", ".join(f"{'u' if stacked else 'p'}{t}" for t in range(count))
    lines += [f"y = Concat<axis=1>({parts})"]
    body = "\n".join(lines)
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]>\n'
        f"g (float[2, 9, 3] x, float[2, 9, 3] z) => (float[A, B, C] y) {{\n{body} }}"
    )


def kinds(proto: onnx.ModelProto) -> tuple[int, list[str]]:
    loaded = load_model(proto)
    lift_constants(loaded)
    infer_shapes(loaded)
    count = stack_operands(loaded)
    assert stack_operands(loaded) == 0
    return count, [node.op_type for node in loaded.graph]


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(
    "node", ["Concat<axis=-1>(f$t, b$t)", "Concat<axis=0>(f$t, b$t, f$t)", "Sub(f$t, b$t)"]
)
def test_one_node_is_left_with_the_same_bits(node: str, stacked: bool) -> None:
    proto = model(node, stacked)
    count, found = kinds(proto)
    operands = node.count("$t")
    is_concat = node.startswith("Concat")
    assert count == 1
    assert found.count("Concat") == operands + is_concat
    assert found.count("Sub") == (not is_concat)
    random = np.random.default_rng(0)
    feed = {name: random.standard_normal((2, COUNT, 3), np.float32) for name in "xz"}
    results = [
        ostinato.InferenceSession(proto, cache_dir=None, disable=passes).run(None, feed)[0]
        for passes in ((), ("stack_operands",))
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("node", "stacked"),
    [
        ("Concat<axis=1>(f$t, b$t)", False),
        ("Gemm(f$t, b$t)", True),
        ("Tanh(f$t)", True),
        ("Concat<axis=0>(" + ", ".join(["f$t"] * COUNT) + ")", True),
    ],
)
def test_what_would_change_its_meaning_or_gains_nothing_stays(node: str, stacked: bool) -> None:
    proto = model(node.replace("Gemm(", "Gemm<transB=1>("), stacked)
    assert kinds(proto)[0] == 0


def test_nodes_that_differ_or_are_few_stay() -> None:
    assert kinds(model("Sub(f$t, b$t)", True, count=5))[0] == 0
    proto = model("Sub(f$t, b$t)", True)
    next(node for node in proto.graph.node if node.op_type == "Sub").op_type = "Add"
    assert kinds(proto)[0] == 0


def test_a_result_that_others_read_stays() -> None:
    proto = model("Sub(f$t, b$t)", True)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("p4", 1, [2, 3]))
    assert kinds(proto)[0] == 0
