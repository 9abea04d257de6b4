from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.graph.linear_index import STEP
from ostinato.graph.loop_form import read_loop
from ostinato.graph.step_positions import StepPositions, Window, picking
from ostinato.model.load import load_model
from ostinato.sizes.dims import Size, symbol
from tests.golden import parse

T = symbol("T")


def positions(text: str) -> tuple[StepPositions, dict[str | None, ir.Value]]:
    """The positions in the one loop of a model, and the inputs of model and body by name."""
    model = load_model(parse(text))
    (loop,) = (node for node in model.graph if node.op_type in ("Scan", "Loop"))
    form = read_loop(loop, 17)
    assert form is not None
    values = {value.name: value for value in (*model.graph.inputs, *form.body.inputs)}
    return StepPositions(form, infer_sizes(model)), values


def scan(
    states: str = "", trip: str = "x", direction: int = 0
) -> tuple[StepPositions, dict[str | None, ir.Value]]:
    return positions(f"""
        g (float[T, 5] x, float[4] four, float[6] six, float[N] n) => (int64 y, float[A] z)
        <int64[4] late = {{3, 4, 5, 6}}, int64 two = {{2}}, int64 zero = {{0}}, int64 one = {{1}},
         int64[4] odd = {{1, 3, 5, 7}}> {{
            s = Shape(x)
            t = Gather(s, zero)
            range = Range(two, t, one)
            steps = Range(zero, t, one)
            y, z = Scan <num_scan_inputs = 1, scan_input_directions = [{direction}],
                body = b (int64 k, float[A] e) => (int64 m, float[A] o) {{
                    {states or "m = Add(k, one)"}
                    o = Identity(e)
                }}> (two, {trip})
        }}
        """)


@pytest.mark.parametrize(
    ("source", "axis", "position", "wraps", "expected"),
    [
        ("x", 0, STEP, False, Window(0, 0, False)),
        ("x", 0, T - 1 - STEP, False, Window(0, 0, True)),
        ("x", 0, -1 - STEP, True, Window(0, 0, True)),
        ("x", 0, -1 - STEP, False, None),
        ("x", 0, STEP - T, True, Window(0, 0, False)),
        ("x", 0, STEP + 1, True, None),
        ("x", 0, STEP - 1, True, None),
        ("x", 0, STEP * 2, True, None),
        ("x", 0, 0, True, None),
        ("x", 1, STEP, True, None),
        ("six", 0, STEP, True, None),
        ("n", 0, STEP, True, None),
    ],
)
def test_windows_of_a_run_time_length(
    source: str, axis: int, position: Size, wraps: bool, expected: Window | None
):
    found, values = scan()
    assert found.window(values[source], axis, position, wraps=wraps) == expected


@pytest.mark.parametrize(
    ("source", "position", "expected"),
    [
        ("four", STEP, Window(0, 0, False)),
        ("six", STEP, Window(0, 2, False)),
        ("six", STEP + 1, Window(1, 1, False)),
        ("six", 5 - STEP, Window(2, 0, True)),
        ("six", -1 - STEP, Window(2, 0, True)),
        ("six", -3 - STEP, Window(0, 2, True)),
        ("six", -4 - STEP, None),
        ("six", 2 - STEP, None),
        ("x", STEP, None),
    ],
)
def test_windows_of_a_fixed_length(source: str, position: Size, expected: Window | None):
    found, values = scan(trip="four")
    assert found.window(values[source], 0, position, wraps=True) == expected


@pytest.mark.parametrize(
    ("trip", "direction", "form"),
    [
        ("late", 0, 3 + STEP),
        ("late", 1, 6 - STEP),
        ("range", 0, 2 + STEP),
        ("range", 1, T - 1 - STEP),
        ("steps", 1, T - 1 - STEP),
        ("odd", 0, None),
    ],
)
def test_elements_of_ranges(trip: str, direction: int, form: Size | None):
    found, values = scan(trip=trip, direction=direction)
    assert found.single(values["e"]) == form


@pytest.mark.parametrize(
    ("update", "form"),
    [
        ("m = Add(k, one)", 2 + STEP),
        ("a = Add(k, two)  m = Sub(a, one)", 2 + STEP),
        ("m = Sub(k, one)", 2 - STEP),
        ("m = Add(k, two)", 2 + STEP * 2),
        ("m = Identity(k)", 2),
        ("m = Add(k, k)", None),
        ("m = Neg(k)", None),
        ("m = Identity(two)", None),
    ],
)
def test_states_that_count(update: str, form: Size | None):
    found, values = scan(update)
    assert found.single(values["k"]) == form


def test_a_loop():
    found, values = positions("""
        g (float[T] x, bool c) => (int64 y)
        <int64[1] zero = {0}, int64 one = {1}, int64 five = {5}> {
            s = Shape(x)
            n = Gather(s, zero)
            y = Loop <body = b (int64 i, bool p, int64 k) => (bool p, int64 m) {
                m = Sub(k, one)
            }> (n, c, five)
        }
        """)
    assert found.single(values["i"]) == STEP
    assert found.single(values["k"]) == 5 - STEP
    x = values["x"]
    assert found.rank(x) == 1
    assert found.window(x, 0, STEP, wraps=False) == Window(0, 0, False)


def test_nodes_that_pick():
    model = load_model(
        parse("""
        g (float[T, 2] x, int64[4] steps) => (float[4, 2] y)
        <int64 one = {1}> {
            y = Scan <num_scan_inputs = 1, body = b (int64 t) => (float[2] o) {
                a = Gather(x, t)
                b = Gather(x, one)
                c = Neg(x)
                d = Gather(c, t)
                e = Add(a, b)
                o = Add(e, d)
            }> (steps)
        }
        """)
    )
    body = model.graph[0].attributes["body"].as_graph()
    assert [node.outputs[0].name for node in picking(body, "Gather")] == ["a"]
    assert picking(body, "Slice") == []
