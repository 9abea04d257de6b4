"""One cell, stated in the same order of operations as an op, a Scan, a Loop and step by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato

HIDDEN, INPUT, STEPS, BATCH = 20, 7, 5, 3
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
FLOAT = TensorProto.FLOAT


def weights(kind: str) -> dict[str, np.ndarray]:
    """W [gates * hidden, input], R [gates * hidden, hidden] and B [2 * gates * hidden]."""
    rng = np.random.default_rng(7)
    rows = GATES[kind] * HIDDEN
    shapes = {"W": (rows, INPUT), "R": (rows, HIDDEN), "B": (2 * rows,)}
    return {n: rng.uniform(-0.5, 0.5, s).astype(np.float32) for n, s in shapes.items()}


def lines(kind: str) -> str:
    """The cell in ONNX text: x, h (and c) to h_next (and c_next), as docs/recurrence.md says."""
    start = "xw = MatMul(x, Wt)\n a = Add(xw, bx)\n hr = MatMul(h, Rt)\n"
    if kind == "RNN":
        return start + "s = Add(a, hr)\n h_next = Tanh(s)\n"
    if kind == "LSTM":
        return start + (
            "s = Add(a, hr)\n si, so, sf, sc = Split<axis = 1, num_outputs = 4>(s)\n"
            "i = Sigmoid(si)\n o = Sigmoid(so)\n f = Sigmoid(sf)\n g = Tanh(sc)\n"
            "fc = Mul(f, c)\n ig = Mul(i, g)\n c_next = Add(fc, ig)\n"
            "tc = Tanh(c_next)\n h_next = Mul(o, tc)\n"
        )
    return start + (
        "az, ar, an = Split<axis = 1, num_outputs = 3>(a)\n"
        "hz, hr2, hn0 = Split<axis = 1, num_outputs = 3>(hr)\n"
        "hn = Add(hn0, bn)\n sz = Add(az, hz)\n z = Sigmoid(sz)\n sr = Add(ar, hr2)\n"
        "r = Sigmoid(sr)\n rn = Mul(r, hn)\n sn = Add(an, rn)\n n = Tanh(sn)\n"
        "one_z = Sub(one, z)\n left = Mul(one_z, n)\n right = Mul(z, h)\n"
        "h_next = Add(left, right)\n"
    )


def nodes(kind: str, rename: dict[str, str], prefix: str) -> list[onnx.NodeProto]:
    """The cell's nodes with values renamed; inner values get a prefix."""
    constants = {"Wt", "Rt", "bx", "bn", "one"}
    text = f"g () => () {{ {lines(kind)} }}"
    graph = onnx.parser.parse_graph(text)
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = rename.get(name, name if name in constants else prefix + name)
    return list(graph.node)


def initializers(kind: str) -> list[onnx.TensorProto]:
    """The weights as the written-out cell reads them."""
    w = weights(kind)
    rows = GATES[kind] * HIDDEN
    input_bias, state_bias = w["B"][:rows], w["B"][rows:]
    bias = input_bias + state_bias
    if kind == "GRU":  # with linear_before_reset the candidate keeps its state bias to itself
        bias = np.concatenate([bias[: 2 * HIDDEN], input_bias[2 * HIDDEN :]])
    arrays = {
        "Wt": w["W"].T.copy(),
        "Rt": w["R"].T.copy(),
        "bx": bias,
        "bn": state_bias[-HIDDEN:],
        "one": np.array(1, np.float32),
    }
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def value(name: str, shape: Sequence[int | str], dtype: int = FLOAT) -> onnx.ValueInfoProto:
    """A tensor's name, type and shape."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    kind: str, body: Sequence[onnx.NodeProto], tensors: Sequence[onnx.TensorProto]
) -> onnx.ModelProto:
    """X and the initial states to Y and the final state."""
    states = ["h0", "c0"] if kind == "LSTM" else ["h0"]
    graph = helper.make_graph(
        body,
        "cell",
        [value("X", [STEPS, BATCH, INPUT]), *(value(s, [BATCH, HIDDEN]) for s in states)],
        [value("Y", [STEPS, BATCH, HIDDEN]), value("hT", [BATCH, HIDDEN])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def as_op(kind: str) -> onnx.ModelProto:
    """The recurrent op itself."""
    states = ["h0", "c0"] if kind == "LSTM" else ["h0"]
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    tensors = [numpy_helper.from_array(a[None], n) for n, a in weights(kind).items()]
    tensors.append(numpy_helper.from_array(np.array([0]), "first"))
    tensors.append(numpy_helper.from_array(np.array([1]), "second"))
    body = [
        *(helper.make_node("Unsqueeze", [s, "first"], [f"{s}_1"]) for s in states),
        helper.make_node(
            kind,
            ["X", "W", "R", "B", "", *(f"{s}_1" for s in states)],
            ["Y_1", "hT_1"],
            hidden_size=HIDDEN,
            **attributes,
        ),
        helper.make_node("Squeeze", ["Y_1", "second"], ["Y"]),
        helper.make_node("Squeeze", ["hT_1", "first"], ["hT"]),
    ]
    return model(kind, body, tensors)


def as_scan(kind: str) -> onnx.ModelProto:
    """The cell as the body of a Scan."""
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    body = helper.make_graph(
        [*nodes(kind, {}, ""), helper.make_node("Identity", ["h_next"], ["y"])],
        "body",
        [*(value(s, [BATCH, HIDDEN]) for s in states), value("x", [BATCH, INPUT])],
        [*(value(f"{s}_next", [BATCH, HIDDEN]) for s in states), value("y", [BATCH, HIDDEN])],
    )
    scan = helper.make_node(
        "Scan",
        [*(f"{s}0" for s in states), "X"],
        ["hT", *(["cT"] if kind == "LSTM" else []), "Y"],
        num_scan_inputs=1,
        body=body,
    )
    return model(kind, [scan], initializers(kind))


def as_loop(kind: str) -> onnx.ModelProto:
    """The cell as the body of a counting Loop that picks its input by the step's number."""
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["X", "step"], ["x"], axis=0),
            *nodes(kind, {}, ""),
            helper.make_node("Identity", ["h_next"], ["y"]),
            helper.make_node("Identity", ["go"], ["go_next"]),
        ],
        "body",
        [
            value("step", [], TensorProto.INT64),
            value("go", [], TensorProto.BOOL),
            *(value(s, [BATCH, HIDDEN]) for s in states),
        ],
        [
            value("go_next", [], TensorProto.BOOL),
            *(value(f"{s}_next", [BATCH, HIDDEN]) for s in states),
            value("y", [BATCH, HIDDEN]),
        ],
    )
    loop = helper.make_node(
        "Loop",
        ["steps", "", *(f"{s}0" for s in states)],
        ["hT", *(["cT"] if kind == "LSTM" else []), "Y"],
        body=body,
    )
    steps = numpy_helper.from_array(np.array(STEPS), "steps")
    return model(kind, [loop], [*initializers(kind), steps])


def as_steps(kind: str) -> onnx.ModelProto:
    """The cell written out once for every step."""
    body: list[onnx.NodeProto] = []
    h, c = "h0", "c0"
    for t in range(STEPS):
        body.append(helper.make_node("Gather", ["X", f"at{t}"], [f"x{t}"], axis=0))
        rename = {"x": f"x{t}", "h": h, "c": c, "h_next": f"h{t + 1}", "c_next": f"c{t + 1}"}
        body += nodes(kind, rename, f"s{t}_")
        h, c = f"h{t + 1}", f"c{t + 1}"
        body.append(helper.make_node("Unsqueeze", [h, "first"], [f"y{t}"]))
    body.append(helper.make_node("Concat", [f"y{t}" for t in range(STEPS)], ["Y"], axis=0))
    body.append(helper.make_node("Identity", [h], ["hT"]))
    tensors = [numpy_helper.from_array(np.array(t), f"at{t}") for t in range(STEPS)]
    tensors.append(numpy_helper.from_array(np.array([0]), "first"))
    return model(kind, body, [*initializers(kind), *tensors])


@pytest.mark.parametrize("kind", GATES)
def test_every_way_to_write_a_cell_gives_the_same_bits(kind: str) -> None:
    rng = np.random.default_rng(3)
    feeds = {
        "X": rng.standard_normal((STEPS, BATCH, INPUT)).astype(np.float32),
        "h0": rng.standard_normal((BATCH, HIDDEN)).astype(np.float32),
    }
    if kind == "LSTM":
        feeds["c0"] = rng.standard_normal((BATCH, HIDDEN)).astype(np.float32)
    results = []
    for build in (as_op, as_scan, as_loop, as_steps):
        session = ostinato.InferenceSession(build(kind), cache_dir=None, fallback=False)
        results.append([array.tobytes() for array in session.run(["Y", "hT"], feeds)])
    assert results[1:] == results[:1] * 3
