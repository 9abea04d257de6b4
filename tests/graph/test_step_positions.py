from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.graph.linear_index import STEP, Linear
from ostinato.graph.loop_form import read_loop
from ostinato.graph.step_positions import StepPositions, Window, picking
from ostinato.model.load import load_model
from tests.golden import parse

STEP_FORM = Linear(0, ((STEP, 1),))
T = Linear(0, (("T", 1),))


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
        ("x", 0, STEP_FORM, False, Window(0, 0, False)),
        ("x", 0, T - Linear(1) - STEP_FORM, False, Window(0, 0, True)),
        ("x", 0, Linear(-1) - STEP_FORM, True, Window(0, 0, True)),
        ("x", 0, Linear(-1) - STEP_FORM, False, None),
        ("x", 0, STEP_FORM - T, True, Window(0, 0, False)),
        ("x", 0, STEP_FORM + Linear(1), True, None),
        ("x", 0, STEP_FORM - Linear(1), True, None),
        ("x", 0, STEP_FORM.times(2), True, None),
        ("x", 0, Linear(), True, None),
        ("x", 1, STEP_FORM, True, None),
        ("six", 0, STEP_FORM, True, None),
        ("n", 0, STEP_FORM, True, None),
    ],
)
def test_windows_of_a_run_time_length(
    source: str, axis: int, position: Linear, wraps: bool, expected: Window | None
):
    found, values = scan()
    assert found.window(values[source], axis, position, wraps=wraps) == expected


@pytest.mark.parametrize(
    ("source", "position", "expected"),
    [
        ("four", STEP_FORM, Window(0, 0, False)),
        ("six", STEP_FORM, Window(0, 2, False)),
        ("six", STEP_FORM + Linear(1), Window(1, 1, False)),
        ("six", Linear(5) - STEP_FORM, Window(2, 0, True)),
        ("six", Linear(-1) - STEP_FORM, Window(2, 0, True)),
        ("six", Linear(-3) - STEP_FORM, Window(0, 2, True)),
        ("six", Linear(-4) - STEP_FORM, None),
        ("six", Linear(2) - STEP_FORM, None),
        ("x", STEP_FORM, None),
    ],
)
def test_windows_of_a_fixed_length(source: str, position: Linear, expected: Window | None):
    found, values = scan(trip="four")
    assert found.window(values[source], 0, position, wraps=True) == expected


@pytest.mark.parametrize(
    ("trip", "direction", "form"),
    [
        ("late", 0, Linear(3) + STEP_FORM),
        ("late", 1, Linear(6) - STEP_FORM),
        ("range", 0, Linear(2) + STEP_FORM),
        ("range", 1, T - Linear(1) - STEP_FORM),
        ("steps", 1, T - Linear(1) - STEP_FORM),
        ("odd", 0, None),
    ],
)
def test_elements_of_ranges(trip: str, direction: int, form: Linear | None):
    found, values = scan(trip=trip, direction=direction)
    assert found.single(values["e"]) == form


@pytest.mark.parametrize(
    ("update", "form"),
    [
        ("m = Add(k, one)", Linear(2) + STEP_FORM),
        ("a = Add(k, two)  m = Sub(a, one)", Linear(2) + STEP_FORM),
        ("m = Sub(k, one)", Linear(2) - STEP_FORM),
        ("m = Add(k, two)", Linear(2) + STEP_FORM.times(2)),
        ("m = Identity(k)", Linear(2)),
        ("m = Add(k, k)", None),
        ("m = Neg(k)", None),
        ("m = Identity(two)", None),
    ],
)
def test_states_that_count(update: str, form: Linear | None):
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
    assert found.single(values["i"]) == STEP_FORM
    assert found.single(values["k"]) == Linear(5) - STEP_FORM
    x = values["x"]
    assert found.rank(x) == 1
    assert found.window(x, 0, STEP_FORM, wraps=False) == Window(0, 0, False)


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
