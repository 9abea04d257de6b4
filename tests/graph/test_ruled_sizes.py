"""Sizes that become known while constants are folded."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato import InferenceSession
from ostinato.errors import ModelError
from ostinato.graph.ruled_sizes import ruled_sizes
from ostinato.model.load import load_model
from ostinato.passes.pipeline import run_passes
from tests.golden import parse

# Frames are padded to a multiple of four, as many times as there are blocks: the padding of one
# block is known only when the sizes of the block before are.
_BLOCK = """
            s{i} = Shape <start = 0, end = 1> (x{i})
            m{i} = Mod (s{i}, four)
            n{i} = Neg (m{i})
            p{i} = Mod (n{i}, four)
            pads{i} = Concat <axis = 0> (one, zero, p{i}, zero)
            y{i} = Pad (x{i}, pads{i})
            x{j} = Exp (y{i})
"""


def _padded(blocks: int, tail: str) -> ir.Model:
    text = "".join(_BLOCK.format(i=i, j=i + 1) for i in range(blocks))
    return load_model(
        parse(
            f"""
            g (float[5, 3] x0) => (float[N, 3] r)
            <int64[1] one = {{1}}, int64[1] zero = {{0}}, int64[1] four = {{4}}> {{
                {text} {tail}
            }}
            """
        )
    )


def test_a_chain_of_paddings_is_known_in_few_rounds():
    model = _padded(24, "r = Neg (x24)")
    run_passes(model)
    assert {node.op_type for node in model.graph} == {"Pad", "Exp", "Neg"}
    paddings = [node for node in model.graph if node.op_type == "Pad"]
    rows = 5
    for node in paddings:
        rows += 1 + -rows % 4
        shape = node.outputs[0].shape
        assert shape is not None and [*shape] == [rows, 3]


def test_sizes_go_through_a_scan():
    model = _padded(
        1,
        """
        first = Slice (x1, zero, one, zero)
        h0 = Squeeze (first, zero)
        h, t = Scan <num_scan_inputs = 1,
            body = b (float[3] h, float[3] x) => (float[3] a, float[3] k)
            { u = Add (h, x)  a = Tanh (u)  k = Neg (a) }> (h0, x1)
        u2 = Shape (t)
        f = Cast <to = 1> (u2)
        n = ReduceSum <keepdims = 0> (f)
        r = Mul (t, n)
        """,
    )
    run_passes(model)
    assert "Shape" not in {node.op_type for node in model.graph}
    scan = next(node for node in model.graph if node.op_type == "Scan")
    assert [str(value.shape) for value in scan.outputs if value.uses()] == ["[9,3]"]


def test_axes_that_a_scan_does_not_have_tell_no_size():
    source = parse(
        """
        g (float[3] x) => (float[N] y) {
            y = Scan <num_scan_inputs = 1, scan_input_axes = [7],
                body = b (float s) => (float t) { t = Neg (s) }> (x)
        }
        """
    )
    with pytest.raises(ModelError, match="axis 7 is out of range for rank 1"):
        InferenceSession(source, cache_dir=None)


def test_the_shape_of_an_output_is_only_a_claim():
    model = load_model(parse("g (float[5, 3] x) => (float[7, 3] r) { r = Neg (x) }"))
    (result,) = model.graph.outputs
    sizes = ruled_sizes(result, 18)
    assert sizes is not None and [*sizes] == [5, 3]
