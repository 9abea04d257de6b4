from __future__ import annotations

import onnx.checker
import onnx_ir as ir
import pytest

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import is_needed
from ostinato.graph.loop_form import origin, read_loop, reads, scopes_within, sweep
from ostinato.model.load import load_model
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from tests.golden import canonical_text, check, parse

SCAN = """
    g (float[2] h, float[2, 3] x, float[3, 2] z) => (float[2] hn, float[2, 3] y, float[3, 2] w) {
        hn, y, w = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], ATTRIBUTES
            body = b (float[2] s, float[2] e, float[2] f) => (float[2] t, float[2] o, float[2] p) {
                t = Add(s, e)
                o = Add(t, f)
                p = Neg(t)
            }> (h, x, z)
    }
    """.replace(
    "ATTRIBUTES",
    "scan_input_directions = [0, 1], scan_output_axes = [-1, 0], scan_output_directions = [1, 0],",
)
LOOP = """
    g (float[2] h, int64 n, bool c) => (float[2] hn, float[X, 2] y) {
        hn, y = Loop <body = b (int64 i, bool p, float[2] s) => (bool q, float[2] t, float[2] o) {
            q = Not(p)
            t = Neg(s)
            o = Exp(t)
        }> (n, c, h)
    }
    """


def rewrite(model: ir.Model) -> int:
    (node,) = model.graph
    form = read_loop(node, opset_of(model))
    assert form is not None
    form.write(Names(model))
    return 1


@pytest.mark.parametrize("text", [SCAN, LOOP, LOOP.replace("(n, c, h)", '("", c, h)')])
def test_what_is_read_is_written(text: str):
    model = load_model(parse(text))
    rewrite(model)
    rewrite(model)
    assert canonical_text(ir.to_proto(model)) == canonical_text(parse(text))


def test_parts_of_a_scan():
    model = load_model(parse(SCAN))
    form = read_loop(model.graph[0], 17)
    assert form is not None and form.head is None
    assert [(s.initial.name, s.before.name, s.after.name, s.final.name) for s in form.states] == [
        ("h", "s", "t", "hn")
    ]
    assert [(s.source.name, s.element.name, s.axis, s.backward) for s in form.scanned] == [
        ("x", "e", 1, False),
        ("z", "f", 0, True),
    ]
    assert [(s.element.name, s.result.name, s.axis, s.backward) for s in form.stacked] == [
        ("o", "y", -1, True),
        ("p", "w", 0, False),
    ]


def test_parts_of_a_loop():
    model = load_model(parse(LOOP))
    form = read_loop(model.graph[0], 17)
    assert form is not None and form.head is not None
    head = form.head
    values = (head.trips, head.condition, head.number, head.going, head.proceed)
    assert [value.name for value in values if value is not None] == ["n", "c", "i", "p", "q"]
    assert len(form.states) == len(form.stacked) == 1 and not form.scanned


def test_every_output_of_a_body_is_made_in_it_once():
    def move(model: ir.Model) -> int:
        (node,) = model.graph
        form = read_loop(node, 17)
        assert form is not None
        form.stacked[0].element = form.states[0].after
        form.stacked[1].element = form.states[0].initial
        form.substitute(form.scanned[1].element, form.scanned[0].element)
        form.write(Names(model))
        return 1

    check(
        move,
        SCAN,
        SCAN.replace("float[2] o, float[2] p) {", "float[2] t_output, float[2] h_output) {")
        .replace("o = Add(t, f)", "t_output = Identity(t)")
        .replace("p = Neg(t)", "h_output = Identity(h)"),
        evaluate="nobody",
    )


def test_nodes_that_are_no_loops():
    batch = "g (float[1, 2, 3] x) => (float[1, 2, 3] y) { y = Scan <num_scan_inputs = 1, body = b"
    batch += ' (float[3] e) => (float[3] o) { o = Neg(e) }> ("", x) }'
    model = load_model(parse(batch, 8))
    assert read_loop(model.graph[0], 8) is None
    model = load_model(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
    assert read_loop(model.graph[0], 17) is None


@pytest.mark.parametrize("text", [SCAN, LOOP])
def test_unknown_attributes_are_refused(text: str):
    node = load_model(parse(text)).graph[0]
    node.attributes["speed"] = ir.AttrInt64("speed", 1)
    with pytest.raises(UnsupportedError, match=r"node 'hn' .* attribute 'speed' is not honoured"):
        read_loop(node, 17)


def test_where_values_come_from_and_go_to():
    model = load_model(
        parse("""
        g (bool c, float[2] x) => (float[2] y) {
            a = Identity(x)
            b = Identity(a)
            idle = Exp(b)
            more = Neg(idle)
            y = If (c) <
                then_branch = t () => (float[2] u) { d = Neg(b)  u = Identity(d) },
                else_branch = e () => (float[2] v) { v = Exp(a) }>
        }
        """)
    )
    graph = model.graph
    x, choice = graph.inputs[1], graph[4]
    assert origin(graph[1].outputs[0]) is x and origin(graph[2].outputs[0]) is graph[2].outputs[0]
    assert {value.name for value in reads(choice)} == {"c", "b", "d", "u", "a", "v"}
    assert len(scopes_within(graph)) == 3
    assert is_needed(graph[2].outputs[0]) and not is_needed(graph[3].outputs[0])
    sweep(graph)
    assert [node.op_type for node in graph] == ["Identity", "Identity", "If"]


def test_results_are_added_to_a_node_that_stays():
    model = load_model(parse(SCAN))
    node = model.graph[0]
    form = read_loop(node, 17)
    assert form is not None and form.count_axes_from_the_front()
    assert [stacked.axis for stacked in form.stacked] == [1, 0]
    form.stack(form.states[0].after, Names(model), 1, True)
    form.stack(form.body[0].outputs[0], Names(model))
    again = read_loop(node, 17)
    assert again is not None and model.graph[0] is node
    added = [(s.result, s.axis, s.backward) for s in again.stacked[2:]]
    assert added == [(node.outputs[3], 1, True), (node.outputs[4], 0, False)]
    assert [list(value.shape or ()) for value in node.outputs[3:]] == [[2, 3], [3, 2]]
    assert [origin(s.element).name for s in again.stacked[2:]] == ["t", "t"]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_ranks_that_are_not_known():
    model = load_model(parse(SCAN))
    form = read_loop(model.graph[0], 17)
    assert form is not None
    form.scanned[0].source.shape = None
    assert not form.count_axes_from_the_front()
