from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.indices.rows_to_gather import rows_to_gather
from tests.golden import check, make_feeds, parse, run_onnxruntime

HEAD = """g (float[3, 4, N] x, int64[3] k, int64[4] m, int64[2] few, int64[1] one) => ({type} y)
    <int64[1] last = {{-1}}, int64[1] first = {{0}}, int64[2] ends = {{0, 2}}> {{"""


def graph(body: str, type_: str) -> str:
    return HEAD.format(type=type_) + body + "}"


ELEMENTS = """i = Unsqueeze(m, ends)  s = Shape(x)  e = Expand(i, s)
    y = GatherElements <axis = -2> (x, e)"""


def test_rows_by_their_numbers() -> None:
    head, tail = "i = Unsqueeze(k, last)  ", "(x, k)"
    check(
        rows_to_gather,
        graph(f"{head}y = GatherND(x, i)", "float[3, 4, N]"),
        graph(f"{head}y = Gather <axis = 0> {tail}", "float[3, 4, N]"),
        count=1,
        evaluate="onnxruntime",
    )


def test_one_number_for_all_elements_of_a_row() -> None:
    source = parse(graph(ELEMENTS, "float[3, 4, N]"))
    model = load_model(source)
    assert rows_to_gather(model) == 1
    result = ir.to_proto(model)
    assert [node.op_type for node in result.graph.node][-2:] == ["Squeeze", "Gather"]
    feeds = make_feeds(source)
    (expected,), (got,) = run_onnxruntime(source, feeds), run_onnxruntime(result, feeds)
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize(
    ("body", "type_"),
    [
        ("i = Unsqueeze(k, first)  y = GatherND(x, i)", "float[N]"),
        ("i = Unsqueeze(few, last)  y = GatherND <batch_dims = 0> (k, few)", "int64"),
        # One position for all rows, and fewer positions than rows.
        (
            """i = Unsqueeze(one, ends)  s = Shape(x)  e = Expand(i, s)
            y = GatherElements <axis = 0> (x, e)""",
            "float[3, 4, N]",
        ),
        (
            """i = Unsqueeze(m, ends)  s = Shape(x)  e = Expand(i, s)
            y = GatherElements <axis = 0> (x, e)""",
            "float[3, 4, N]",
        ),
    ],
)
def test_what_stays(body: str, type_: str) -> None:
    model = load_model(parse(graph(body, type_)))
    before = str(model.graph)
    assert rows_to_gather(model) == 0
    assert str(model.graph) == before


def test_sizes_are_inferred_for_what_may_be_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: ir.Model) -> None:
        raise AssertionError("sizes of a large model take long to infer")

    monkeypatch.setattr("ostinato.passes.indices.rows_to_gather.infer_sizes", refuse)
    body = "a = Unsqueeze(m, ends)  y = GatherElements <axis = -2> (x, a)"
    assert rows_to_gather(load_model(parse(graph(body, "float[1, 4, 1]")))) == 0
