"""Steps written out whose last ones lack what only next ones would read become a Scan of all."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.reroll import reroll
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.simplify.dead_code import dead_code

STEPS = 10
LEAK = "e$t = Gather<axis=0>(x, i$t)\ny$t = Add(e$t, h$t)\nm$t = MatMul(y$t, w)\nh$n = Tanh(m$t)"
# Transposed direct form of second order: a state of two steps before reaches y by way of another.
FILTER = """e$t = Gather<axis=0>(x, i$t)
y$t = Add(e$t, a$t)
m$t = Sub(b$t, y$t)
a$n = Mul(m$t, c)
b$n = Mul(e$t, d)"""


def written_out(step: str) -> onnx.ModelProto:
    """`STEPS` times `step`, of number `$t`, whose results `y` are joined; dead code is dropped."""
    numbers = [f"i{t} = Constant <value: tensor = int64 {{{t}}}> ()" for t in range(STEPS)]
    steps = [step.replace("$t", str(t)).replace("$n", str(t + 1)) for t in range(STEPS)]
    rows = ", ".join(f"y{t}" for t in range(STEPS))
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 20]>
g (float[{STEPS}, 2, 4] x, float[2, 4] h0, float[2, 4] a0, float[2, 4] b0) => (float[M, N] y)
<float[4, 4] w = {{{", ".join(map(str, np.linspace(-1, 1, 16).round(3)))}}},
 float c = {{0.3}}, float d = {{-0.6}}, float[64] v = {{{", ".join(["0.5", "-0.5"] * 32)}}}> {{
{chr(10).join([*numbers, *steps])}
y = Concat<axis=0>({rows}) }}""")


def scans_of(model: onnx.ModelProto) -> list[int]:
    """How many steps the Scans have that the nodes become."""
    loaded = load_model(model)
    lift_constants(loaded)
    dead_code(loaded)
    reroll(loaded)
    scans = [node for node in loaded.graph if node.op_type == "Scan"]
    return [int(node.inputs[-1].shape[0]) for node in scans]  # type: ignore[index, union-attr]


def assert_same_bits(model: onnx.ModelProto) -> None:
    random = np.random.default_rng(0)
    shapes = {"x": (STEPS, 2, 4), "h0": (2, 4), "a0": (2, 4), "b0": (2, 4)}
    feeds = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    got, expected = (
        ostinato.InferenceSession(model, cache_dir=None, disable=passes).run(None, feeds)
        for passes in ((), ("reroll",))
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("step", [LEAK, FILTER], ids=["first order", "second order"])
def test_steps_that_lack_dead_code_are_steps(step: str) -> None:
    model = written_out(step)
    assert scans_of(model) == [STEPS]
    assert_same_bits(model)


@pytest.mark.parametrize(
    "last",
    [
        # What the last step would read there is not known.
        "j$t = Constant<value_float=1.$t>()\nm$t = Mul(y$t, j$t)\nh$n = Tanh(m$t)",
        # It may be out of range.
        "k$t = Cast<to=7>(y$t)\nm$t = Gather(v, k$t)\nh$n = Tanh(m$t)",
    ],
    ids=["a number that is not known", "a number that may be out of range"],
)
def test_what_cannot_be_written_stays(last: str) -> None:
    step = "\n".join([*LEAK.split("\n")[:2], last])
    model = written_out(step)
    assert scans_of(model) == [STEPS - 1]
    assert_same_bits(model)
