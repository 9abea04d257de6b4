from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import ModelError
from ostinato.streaming import convert, find_states


def found(text: str) -> dict[str, str]:
    suggestions = find_states(model(text))
    assert all(suggestion.reason for suggestion in suggestions)
    return {suggestion.input: suggestion.output for suggestion in suggestions}


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text)


def step(read: str, written: str) -> str:
    """A frame x, and a state with these names whose shape is that of the other output too."""
    return (
        f"g (float[2] x, float[2] {read}) => (float[2] other, float[2] {written}) "
        f"{{ other = Add(x, {read})  {written} = Sub({read}, x) }}"
    )


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("h_in", "h_out"),
        ("h0", "hn"),
        ("h0", "hN"),
        ("h_0", "h_n"),
        ("state", "stateN"),
        ("state", "next_state"),
        ("prevHidden", "newHidden"),
        ("past_cache", "present_cache"),
        ("conv1_cache_in", "conv1_cache_out"),
        ("initial_c", "final_c"),
        ("c", "c_new"),
        ("past_key_values_0_key", "present_0_key"),
        ("past_key_values_1_decoder_value", "present_1_decoder_value"),
        ("pastKeyValue_3", "presentKeyValue_3"),
    ],
)
def test_names_that_say_before_and_after(read: str, written: str) -> None:
    assert found(step(read, written)) == {read: written}
    (suggestion,) = find_states(model(step(read, written)))
    assert "float[2]" in suggestion.reason
    assert "names are the same" in suggestion.reason


@pytest.mark.parametrize(
    ("read", "written"),
    [("h", "c"), ("in", "out"), ("layer_1_in", "layer_2_out"), ("a_h", "b_h")],
)
def test_names_that_do_not(read: str, written: str) -> None:
    assert found(step(read, written)) == {}


def test_shape_alone_where_it_is_the_only_one() -> None:
    text = "g (float[2] x, float[1, 3] s) => (float[2] y, float[1, 3] t) { t = Neg(s)  y = Neg(x) }"
    assert found(text) == {"s": "t"}
    assert "names do not tell" in find_states(model(text))[0].reason


def test_two_of_one_shape_are_told_apart_by_name_only() -> None:
    head = "g (float[2] x, float[3] a, float[3] b) => (float[2] y, float[3] {}, float[3] {}) "
    body = "{{ y = Neg(x)  {} = Add(a, b)  {} = Sub(a, b) }}"
    assert found((head + body).format("p", "q", "p", "q")) == {}
    assert found((head + body).format("b_n", "a_n", "b_n", "a_n")) == {"a": "a_n", "b": "b_n"}


def test_the_first_input_is_a_frame_unless_its_name_tells() -> None:
    assert found("g (float[2] x) => (float[2] y) { y = Neg(x) }") == {}
    assert found("g (float[2] h) => (float[2] h_out) { h_out = Neg(h) }") == {"h": "h_out"}


@pytest.mark.parametrize(
    "text",
    [
        # Another dtype, another size, not computed from the input, the input itself.
        "g (float[2] x, float[2] h) => (double[2] h_out) { h_out = Cast <to = 11> (h) }",
        "g (float[2] x, float[2] h) => (float[4] h_out) { h_out = Concat <axis = 0> (h, h) }",
        "g (float[2] x, float[2] h) => (float[2] h_out) { h_out = Neg(x) }",
    ],
)
def test_what_cannot_be_a_state(text: str) -> None:
    assert found(text) == {}


def test_run_time_sizes_may_agree() -> None:
    text = "g (float[2] x, float[N, 2] h) => (float[M, 2] h_out) { h_out = Add(h, x) }"
    assert found(text) == {"h": "h_out"}


def test_dependence_through_a_branch() -> None:
    text = """g (bool c, float[2] h) => (float[2] h_out) {
      h_out = If (c) <
        then_branch = a () => (float[2] p) { p = Neg(h) },
        else_branch = b () => (float[2] q) { q = Abs(h) }
      >
    }"""
    assert found(text) == {"h": "h_out"}


def test_what_is_found_can_be_declared() -> None:
    proto = model(step("h_in", "h_out"))
    pairs = {s.input: s.output for s in find_states(proto)}
    stream = ostinato.InferenceSession(proto).stream(pairs)
    assert stream.step({"x": [1.0, 2.0]})[0].tolist() == [1, 2]


def test_an_invalid_model_is_refused() -> None:
    with pytest.raises(ModelError):
        find_states(b"no model")


def test_a_converted_model_streams_and_pools() -> None:
    text = """g (float[N, 4, T] x) => (float[N, 4, U] y) {
      y = Conv <kernel_shape = [3], pads = [2, 0], group = 4> (x, w)
    }"""
    proto = model(text)
    random = np.random.default_rng(0)
    weights = random.standard_normal((4, 1, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    x = random.standard_normal((2, 4, 6)).astype(np.float32)
    (whole,) = ostinato.InferenceSession(proto).run(None, {"x": x})
    conversion = convert(proto, {"x": 2})
    session = ostinato.InferenceSession(conversion.model)
    stream = session.stream(conversion.states, conversion.initial)
    pool = session.pool(conversion.states, 2, initial=conversion.initial)
    handles = [pool.open(), pool.open()]
    for t in range(6):
        frame = x[..., t : t + 1]
        np.testing.assert_array_equal(stream.step({"x": frame})[0], whole[..., t : t + 1])
        for row, handle in enumerate(handles):
            pool.push(handle, {"x": frame[row : row + 1]})
        for row, (y,) in pool.step().items():
            np.testing.assert_array_equal(y[0], whole[row, :, t : t + 1])


def test_a_recurrence_tells_whatever_the_names_are() -> None:
    text = """g (float[1, 1, 3] x, float[2, 1, 4] hidden, float[2, 1, 4] cell)
      => (float[1, 1, 4] "158", float[2, 1, 4] "160", float[2, 1, 4] "161") {
      halves = Constant <value_ints = [1, 1]> ()
      h0, h1 = Split <axis = 0> (hidden, halves)
      c0, c1 = Split <axis = 0> (cell, halves)
      a, ha, ca = LSTM <hidden_size = 4> (x, w, r, , , h0, c0)
      one = Constant <value_ints = [1]> ()
      below = Squeeze (a, one)
      b, hb, cb = LSTM <hidden_size = 4> (below, v, r, , , h1, c1)
      "158" = Squeeze (b, one)
      "160" = Concat <axis = 0> (ha, hb)
      "161" = Concat <axis = 0> (ca, cb)
    }"""
    text = text.replace('"158"', "o158").replace('"160"', "o160").replace('"161"', "o161")
    proto = model(text)
    for name, shape in {"w": (1, 16, 3), "v": (1, 16, 4), "r": (1, 16, 4)}.items():
        tensor = onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name)
        proto.graph.initializer.append(tensor)
    suggestions = find_states(proto)
    assert [(s.input, s.output) for s in suggestions] == [("hidden", "o160"), ("cell", "o161")]
    assert all("recurrence carries" in s.reason for s in suggestions)


@pytest.mark.parametrize("loop", ["Scan", "Loop"])
def test_a_loop_tells_whatever_the_names_are(loop: str) -> None:
    body = "(float[2] s, float[2] t, float[2] u) => (float[2] t2, float[2] s2, float[2] y)"
    call = "Scan <num_scan_inputs = 1, body = b " + body
    if loop == "Loop":
        call = (
            "Loop <body = b (int64 i, bool go, float[2] s, float[2] t)"
            " => (bool go2, float[2] t2, float[2] s2)"
        )
    go = "go2 = Identity(go) u = Identity(s)" if loop == "Loop" else "y = Neg(u)"
    feeds = "n, , first, second" if loop == "Loop" else "first, second, x"
    results = "q, p" if loop == "Loop" else "q, p, ys"
    text = f"""g (float[5, 2] x, float[2] first, float[2] second)
      => (float[2] p, float[2] q) {{
      n = Constant <value_int = 3> ()
      {results} = {call} {{ t2 = Add(t, u) s2 = Sub(s, u) {go} }}> ({feeds})
    }}"""
    assert found(text) == {"first": "q", "second": "p"}


def test_caches_of_layers_are_put_in_order_by_what_depends_on_them() -> None:
    text = """g (float[2] x, float[2] a, float[2] b, float[2] c)
      => (float[9] y, float[2] o1, float[2] o2, float[2] o3) {
      o2 = Add(x, b)
      o1 = Add(o2, a)
      o3 = Mul(o1, c)
      shape = Constant <value_ints = [9]> ()
      s = ReduceSum (o3)
      y = Expand (s, shape)
    }"""
    assert found(text) == {"a": "o1", "b": "o2", "c": "o3"}
    # Where an output less or more has the shape, nothing is said.
    assert found(text.replace("float[9] y", "float[2] y").replace("[9]> ()", "[2]> ()")) == {}


@pytest.mark.parametrize(
    "nodes",
    [
        "b = Concat <axis = 0> (a, new)",
        "t = Transpose <perm = [1, 0]> (a)  n = Transpose <perm = [1, 0]> (new)"
        "  j = Concat <axis = 1> (t, n)  b = Transpose <perm = [1, 0]> (j)",
        "s = Slice (a, one, most)  b = Concat <axis = 0> (s, new)",
        "b = ScatterND (a, place, new)",
        "i = ScatterND (a, place, new)  c = Identity (i)  b = ScatterND (c, place, new)",
    ],
)
def test_rows_beside_or_in_an_input_tell(nodes: str) -> None:
    text = f"""g (float[1, 4] x, float[A, 4] a, float[A, 4] u, int64[1, 1] place)
        => (float[B, 4] b, float[C, 4] v)
        <int64[1] one = {{1}}, int64[1] most = {{1000}}>
        {{ new = Tanh (x)  {nodes}  v = Relu (b) }}"""
    assert found(text)["a"] == "b"
    (suggestion,) = (s for s in find_states(model(text)) if s.input == "a")
    assert "with new rows" in suggestion.reason
