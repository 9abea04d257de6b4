"""Steps written out become a Scan: same bits, one node, whatever form the copies have."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.reroll import reroll
from ostinato.passes.normalise.lift_constants import lift_constants

STEPS = 9
W = ", ".join(str(v) for v in np.linspace(-1, 1, 16).round(3))


def written_out(
    step: str,
    last: str,
    inputs: str = "float[9, 2, 4] x",
    outputs: str = "float[M, N] y, float[2, 4] last",
    count: int = STEPS,
    before: str = "",
    opset: int = 20,
) -> onnx.ModelProto:
    """A model of `step` for each `t`; `p` is the number of the step before."""
    constants = [f"i{t} = Constant <value: tensor = int64 {{{t}}}> ()" for t in range(count + 1)]
    axes = [f"a{t} = Constant <value: tensor = int64[1] {{{t}}}> ()" for t in range(count + 1)]
    steps = [step.replace("$t", str(t)).replace("$n", str(t + 1)) for t in range(count)]
    names = ", ".join(f"h{t}" for t in range(1, count + 1))
    back = ", ".join(f"h{t}" for t in range(count, 0, -1))
    text = f"""<ir_version: 9, opset_import: ["": {opset}]>
g ({inputs}, float[2, 4] h0) => ({outputs}) <float[4, 4] w = {{{W}}}> {{
{chr(10).join([*constants, *axes, before, *steps])}
{last.replace("$all", names).replace("$back", back)}
last = Identity(h{count}) }}"""
    return onnx.parser.parse_model(text)


CELL = "p$t = MatMul(h$t, w)\ns$t = Add(p$t, e$t)\nh$n = Tanh(s$t)"
MODELS = {
    "elements picked by Gather": (
        f"e$t = Gather<axis=0>(x, i$t)\n{CELL}",
        "y = Concat<axis=0>($all)",
    ),
    "elements picked by Slice": (
        f"c$t = Slice(x, a$t, a$n, a0)\ne$t = Squeeze(c$t, a0)\n{CELL}",
        "y = Concat<axis=1>($all)",
    ),
    "reversed results": (f"e$t = Gather<axis=0>(x, i$t)\n{CELL}", "y = Concat<axis=0>($back)"),
    "a setting of each step": (
        "f$t = Cast<to=1>(i$t)\n" + CELL.replace("e$t", "f$t"),
        "y = Concat<axis=0>($all)",
    ),
    "a result that is read twice in vain": (
        f"e$t = Gather<axis=0>(x, i$t)\n{CELL}",
        "y = Concat<axis=0>($all)\nd = Sub(h3, h3)",
    ),
    "some results alone": (f"e$t = Gather<axis=0>(x, i$t)\n{CELL}", "y = Concat<axis=0>(h3, h7)"),
}


def rolled(model: onnx.ModelProto) -> int:
    loaded = load_model(model)
    lift_constants(loaded)
    count = reroll(loaded)
    kinds = [node.op_type for node in loaded.graph]
    assert kinds.count("Scan") == count
    assert not count or "Tanh" not in kinds
    return count


@pytest.mark.parametrize("name", list(MODELS))
def test_steps_become_a_scan_with_the_same_bits(name: str) -> None:
    model = written_out(*MODELS[name])
    assert rolled(model) == 1
    assert_same_bits(model)


def assert_same_bits(model: onnx.ModelProto) -> None:
    random = np.random.default_rng(0)
    feed = {
        "x": random.standard_normal((STEPS, 2, 4), np.float32),
        "h0": random.standard_normal((2, 4), np.float32),
    }
    results = [
        ostinato.InferenceSession(model, cache_dir=None, disable=passes).run(None, feed)
        for passes in ((), ("reroll",))
    ]
    for got, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_few_steps_stay() -> None:
    step, last = MODELS["elements picked by Gather"]
    assert rolled(written_out(step, last, count=4)) == 0


def test_layers_with_weights_of_their_own_stay() -> None:
    weights = ", ".join(f"float[4, 4] w{t}" for t in range(STEPS))
    step = "p$t = MatMul(h$t, w$t)\nh$n = Tanh(p$t)"
    assert rolled(written_out(step, "y = Concat<axis=0>($all)", inputs=weights)) == 0


def test_nothing_handed_on_stays() -> None:
    step = "e$t = Gather<axis=0>(x, i$t)\np$t = MatMul(e$t, w)\nh$n = Tanh(p$t)"
    assert rolled(written_out(step, "y = Concat<axis=0>($all)")) == 0


def test_a_state_that_grows_stays() -> None:
    step = "h$n = Concat<axis=0>(h$t, h0)"
    model = written_out(step, "y = Identity(h3)", outputs="float[M, N] y, float[K, 4] last")
    assert rolled(model) == 0


def test_values_of_three_steps_before() -> None:
    step = (
        "e$t = Gather<axis=0>(x, i$t)\np$t = MatMul(h$t, w)\ns$t = Sub(p$t, q$t)\nh$n = Tanh(s$t)"
    )
    model = written_out(step, "y = Concat<axis=0>($all)", count=STEPS)
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name.startswith("q"):
                node.input[place] = f"h{max(int(name[1:]) - 2, 0)}"
    assert rolled(model) == 1
    assert_same_bits(model)


PIECES = ", ".join(f"c{t}" for t in range(STEPS))


@pytest.mark.parametrize("split", ["<axis=0, num_outputs=9>(x)", "<axis=0>(x, ones)"])
def test_pieces_of_a_split(split: str) -> None:
    ones = f"ones = Constant <value_ints=[{', '.join('1' * STEPS)}]> ()"
    model = written_out(
        f"e$t = Squeeze(c$t, a0)\n{CELL}",
        "y = Concat<axis=0>($all)",
        before=f"{ones}\n{PIECES} = Split{split}",
    )
    assert rolled(model) == 1
    assert_same_bits(model)


# Versions in which axes and bounds are attributes: what is written must be valid in them too.
OLD = {
    "rows of results one behind the other": (
        11,
        f"c$t = Slice(x, a$t, a$n, a0)\ne$t = Squeeze<axes=[0]>(c$t)\n{CELL}\n"
        "r$n = ReduceMean<axes=[0]>(h$n)",
        "y = Concat<axis=0>($all)",
        "",
    ),
    "results along a new axis": (
        11,
        f"e$t = Gather<axis=0>(x, i$t)\n{CELL}\nr$n = Unsqueeze<axes=[0]>(h$n)",
        "y = Concat<axis=0>($all)",
        "",
    ),
    "pieces of a Split": (
        9,
        f"e$t = ReduceSum<axes=[0], keepdims=0>(c$t)\n{CELL}\nr$n = Identity(h$n)",
        "y = Concat<axis=0>($all)",
        f"xx = Concat<axis=0>(x, x)\n{PIECES} = Split<axis=0>(xx)",
    ),
}


@pytest.mark.parametrize("name", list(OLD))
def test_old_opsets(name: str) -> None:
    opset, step, last, before = OLD[name]
    rows = ", ".join(f"r{t}" for t in range(1, STEPS + 1))
    y = "float[P, Q, R] y" if "new" in name else "float[M, N] y"
    model = written_out(
        step,
        last.replace("$all", rows),
        before=before,
        opset=opset,
        outputs=f"{y}, float[2, 4] last",
    )
    assert rolled(model) == 1
    assert_same_bits(model)
    onnx.checker.check_model(ostinato.optimize(model), full_check=True)
