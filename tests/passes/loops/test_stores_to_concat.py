"""Rows stored one after another become a Concat with the same bits, others stay."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.stores_to_concat import stores_to_concat
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.lift_constants import lift_constants

STEPS = 9


def elements(row: int, axis: int) -> tuple[str, str]:
    shape = [2, STEPS, 3]
    shape[axis] = 1
    numbers = ", ".join([str(row)] * int(np.prod(shape)))
    return f"int64{shape} {{{numbers}}}", f"ScatterElements<axis={axis}>"


def tuples(row: int, whole: bool) -> tuple[str, str]:
    """Places of `[:, row]`, with or without an axis for the row."""
    places = np.stack(np.broadcast_arrays(np.arange(2)[:, None], row, np.arange(3)), -1)
    shape = [2, 1, 3, 3] if whole else [2, 3, 3]
    return f"int64{shape} {{{', '.join(map(str, places.ravel()))}}}", "ScatterND"


def model(stores: list[tuple[str, str]], update: str) -> onnx.ModelProto:
    """`out` of zeros, into which every store writes a row of `x` times its number."""
    lines = ["o0 = Constant<value = float[2, 9, 3] {" + ", ".join(["0.5"] * 54) + "}>()"]
    for t, (indices, op) in enumerate(stores):
        name, _, attributes = op.partition("<")
        lines += [
            f"i{t} = Constant<value = {indices}>()",
            f"n{t} = Constant<value = float {{{t + 1}}}>()",
            f"u{t} = Mul(x, n{t})",
            f"o{t + 1} = {name}{'<' + attributes if attributes else ''}(o{t}, i{t}, u{t})",
        ]
    body = "\n".join(lines)
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]>\n'
        f"g ({update} x) => (float[2, 9, 3] y) {{\n{body}\n"
        f"y = Identity(o{len(stores)}) }}"
    )


STORES = {
    "elements": ([elements(t, 1) for t in range(9)], "float[2, 1, 3]"),
    "backwards": ([elements(-1 - t, 1) for t in range(9)], "float[2, 1, 3]"),
    "the last store counts": ([elements(t % 8, 1) for t in range(12)], "float[2, 1, 3]"),
    "rows without a store": ([elements(t % 4 * 2 + 1, 1) for t in range(8)], "float[2, 1, 3]"),
    "tuples": ([tuples(t, True) for t in range(9)], "float[2, 1, 3]"),
    "tuples without the axis": ([tuples(t, False) for t in range(9)], "float[2, 3]"),
}


def joined(proto: onnx.ModelProto) -> int:
    loaded = load_model(proto)
    lift_constants(loaded)
    infer_shapes(loaded)
    count = stores_to_concat(loaded)
    assert not count or not any("Scatter" in node.op_type for node in loaded.graph)
    return count


@pytest.mark.parametrize("name", list(STORES))
def test_rows_become_a_concat_with_the_same_bits(name: str) -> None:
    proto = model(*STORES[name])
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
    assert joined(proto) == 1
    results = [
        ostinato.InferenceSession(proto, cache_dir=None, disable=passes).run(None, feed)[0]
        for passes in ((), ("stores_to_concat",))
    ]
    np.testing.assert_array_equal(*results)


def test_what_stores_part_of_a_row_or_adds_stays() -> None:
    part = [("int64[2, 1, 2] {" + ", ".join([str(t)] * 4) + "}", STORES["elements"][0][t][1])
            for t in range(9)]  # fmt: skip
    assert joined(model(part, "float[2, 1, 2]")) == 0
    added = [
        (i, op.replace("axis=1", 'axis=1, reduction="add"')) for i, op in STORES["elements"][0]
    ]
    assert joined(model(added, "float[2, 1, 3]")) == 0
    places, op = zip(*STORES["tuples"][0], strict=True)
    crossed = [p.replace("{0", "{1", 1) for p in places]
    assert joined(model(list(zip(crossed, op, strict=True)), "float[2, 1, 3]")) == 0


def test_few_stores_and_results_read_between_stay() -> None:
    stores, update = STORES["elements"]
    assert joined(model(stores[:5], update)) == 0
    proto = model(stores, update)
    proto.graph.node[-1].input[0] = "o9"
    proto.graph.node.insert(
        len(proto.graph.node) - 1, onnx.helper.make_node("Add", ["o9", "o5"], ["sum"])
    )
    proto.graph.node[-1].input[0] = "sum"
    assert joined(proto) == 0
