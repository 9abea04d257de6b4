from __future__ import annotations

import pytest

from ostinato.graph import inferred_sizes
from ostinato.graph.inferred_sizes import InferredSizes, infer_sizes
from ostinato.model import inference
from ostinato.model.load import load_model
from ostinato.passes.pipeline import run_passes
from tests.golden import parse


def sizes(text: str) -> dict[str, tuple[int | str | None, ...]]:
    return infer_sizes(load_model(parse(text)))


def test_sizes_computed_from_sizes():
    found = sizes("""
        g (float[T, N, 4] x, float[A, B] q) => (float[X] y) <int64[1] one = {1}, int64[1] h = {8}> {
            s = Shape(x)
            n = Gather(s, one)
            d = Concat <axis = 0> (n, h)
            z = ConstantOfShape(d)
            y = Exp(z)
        }
        """)
    assert found["z"] == ("N", 8) and found["y"] == ("N", 8)
    assert found["one"] == (1,) and found["q"] == ("A", "B")


def test_slices_up_to_a_computed_place_keep_other_axes():
    found = sizes("""
        g (float[T, N, 4] x, int64[1] end, int64[1] place) => (float[A, B, C] y)
        <int64[1] zero = {0}, int64[1] first = {0}, int64[1] last = {-1}> {
            a = Slice(x, zero, end, first)  b = Slice(a, zero, end, last)
            y = Slice(b, zero, end, place)
        }
        """)
    assert found["a"][1:] == ("N", 4)
    assert found["b"][1] == "N"
    assert not {*found["y"]} & {"N", 4}


def test_a_tile_keeps_what_it_repeats_once():
    """As Keras repeats the mask of a step for all units."""
    found = sizes("""
        g (bool[N, 1] m, float[N, 8] h, int64[2] k) => (float[A, B] y, bool[C, D] z)
            <int64[2] units = {1, 8}, int64[2] rows = {2, 1}> {
            t = Tile(m, units)  y = Where(t, h, h)
            u = Tile(m, rows)  z = Tile(m, k)
        }
        """)
    assert found["t"] == found["y"] == ("N", 8)
    assert found["u"][0] != "N" and found["u"][1] == 1
    assert not {*found["z"]} & {"N", 1}


def test_an_expand_as_pytorch_writes_it():
    """`-1` in `x.expand(n, -1)` is chosen to be the size that is there."""
    found = sizes("""
        g (float[N, T, 4] x, float[1, 4] h) => (float[A, B] y, float[C, D] z)
            <int64[1] zero = {0}, int64[1] four = {4}, int64[1] rest = {-1},
             int64[2] ones = {1, 1}, int64[2] minus = {-1, -1}> {
            s = Shape(x)  n = Gather(s, zero)
            d = Concat<axis = 0>(n, four)  e = Reshape(d, rest)
            c = Equal(e, minus)  f = Where(c, ones, e)  a = Expand(h, f)
            o = Concat<axis = 0>(n, rest)  p = Equal(o, minus)  q = Where(p, ones, o)
            b = Expand(h, q)  y = Exp(a)  z = Exp(b)
        }
        """)
    assert found["y"] == found["z"] == ("N", 4)


def test_sizes_that_a_reshape_leaves_over():
    found = sizes("""
        g (float[N, 2, 4] x, float[N, T] p, float[M, 1] e) => (float[A] y, float[B, C] z)
            <int64[2] flat = {-1, 8}, int64[3] column = {-1, 1, 1}, int64[2] kept = {0, -1},
             int64[1] all = {-1}> {
            a = Reshape(x, flat)  s = Shape<end = 1>(x)  t = Shape<start = 1, end = 2>(p)
            b = Reshape(p, kept)  c = Concat<axis = 0>(t, all)  d = Reshape(p, c)
            f = ReduceSum(x)  g = Squeeze(f)  h = Expand(g, s)  i = Reshape(h, column)
            j = Concat<axis = 0>(s, all)  k = Reshape(p, all)  l = Reshape(e, j)
            y = Exp(k)  z = Exp(l)
        }
        """)
    assert found["a"] == ("N", 8) and found["b"] == ("N", "T") and found["d"] == ("T", "N")
    assert found["h"] == ("N",) and found["i"] == ("N", 1, 1)
    assert not {*found["y"], found["z"][1]} & {"N", "T", "M"}


def test_rows_that_a_tile_repeats_so_many_times():
    found = sizes("""
        g (float[N, T] x, float[1, 4] h, float[M, 4] w) => (float[A, B] y, float[C, D] z)
            <int64[1] one = {1}> {
            n = Shape<end = 1>(x)  d = Concat<axis = 0>(n, one)  a = Tile(h, d)  b = Tile(w, d)
            y = Exp(a)  z = Exp(b)
        }
        """)
    assert found["y"] == ("N", 4)
    assert found["z"][0] not in ("N", "M") and found["z"][1] == 4


def test_what_the_file_claims_is_not_believed():
    found = sizes("g (float[T, 4] x) => (float[9, 9] y) { y = Exp(x) }")
    assert found["y"] == ("T", 4)


def test_sizes_without_a_name_get_different_ones():
    found = sizes("g (float[?, ?] x, float[?] y) => (float[?] z) { z = Neg(y) }")
    names = {*found["x"], *found["y"]}
    assert len(names) == 3 and found["z"] == found["y"]


def test_sizes_computed_by_a_division():
    """`chunk` of scripted PyTorch: the last size by 4, rounded up, as bounds of slices."""
    found = sizes("""
        g (float[N, 18] x) => (float[X, Y] y, float[X, Y] z)
            <int64[1] last = {-1}, int64[1] three = {3}, int64[1] four = {4}, int64[1] zero = {0}> {
            s = Shape(x)
            n = Gather(s, last)
            m = Add(n, three)
            q = Div(m, four)
            d = Mul(q, three)
            y = Slice(x, zero, q, last)
            z = Slice(x, d, n, last)
        }
        """)
    assert found["y"] == ("N", 5) and found["z"] == ("N", 3)


LOOP = """
    g (float[N, 2] h, int64 n, bool c, float[N, 2] w, float[2] b)
        => (float[X, Y] y, float[X, Y] z) <int64[1] zero = {{0}}> {{
        y, z = Loop <body = f (int64 i, bool p, float[X, Y] s) =>
            (bool p, float[X, Y] t, float[X, Y] u) {{
                {body}
                u = Neg(t)
            }}> (n, c, {initial})
        k = Exp(y)
    }}
    """


@pytest.mark.parametrize(
    "body",
    [
        "t = Tanh(s)",
        "t = Add(s, w)",
        "t = Add(b, s)",
        "r = Unsqueeze(s, zero)  t = Squeeze(r, zero)",
        "r = Transpose(s)  t = Transpose(r)",
        "r = Concat <axis = 1> (s, w)  t, v = Split <axis = 1> (r)",
    ],
)
def test_states_that_keep_their_shape(body: str):
    found = sizes(LOOP.format(body=body, initial="h"))
    assert {found[name] for name in ("s", "t", "u", "y", "k")} == {("N", 2)}
    assert len(found["z"]) == 3 and found["z"][1:] == ("N", 2)
    assert found["i"] == found["p"] == ()


@pytest.mark.parametrize(
    ("body", "initial"),
    [
        ("t = Add(s, w)", "b"),
        ("t = Identity(w)", "b"),
        ("t = ReduceSum <keepdims = 0> (s)", "h"),
        ("t = Squeeze(s)", "h"),
    ],
)
def test_states_that_may_change_their_rank(body: str, initial: str):
    found = sizes(LOOP.format(body=body, initial=initial))
    assert not {"s", "y", "k"} & set(found)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("t = Transpose(s)", (None, None)),
        ("t = Concat <axis = 0> (s, w)", (None, 2)),
        ("t = Concat <axis = 1> (w, s)", ("N", None)),
        ("r = Unsqueeze(i, zero)  e = Neg(zero)  t = Slice(s, e, r)", (None, None)),
        ("t = ReduceSum <keepdims = 1> (s)", (None, None)),
    ],
)
def test_axes_along_which_states_may_change(body: str, shape: tuple[int | str | None, ...]):
    found = sizes(LOOP.format(body=body, initial="h"))
    for name in ("s", "y"):
        # Each such axis has a size of its own, before a step and after all of them.
        own = (f"{name}:{i}" if size is None else size for i, size in enumerate(shape))
        assert found[name] == tuple(own)
    assert found["k"] == found["y"]


def test_a_loop_in_a_loop():
    found = sizes("""
        g (float[4, 3, 2] x, float[2] h, int64 n, int64 m) => (float[X] y) <bool c = {1}> {
            y = Loop <body = f (int64 i, bool p, float[2] s) => (bool p, float[2] t) {
                e = Gather(x, i)
                t = Loop <body = d (int64 j, bool v, float[2] a) => (bool v, float[2] z) {
                    f = Gather(e, j)
                    z = Add(a, f)
                }> (m, p, s)
            }> (n, c, h)
        }
        """)
    assert {found[name] for name in ("s", "t", "a", "z", "y")} == {(2,)}


def _row(count: int, grows_at: int | None = None) -> str:
    """Loops in a row, each of which carries on what the one before made; one may add a row."""
    nodes = [
        f"""h{i + 1} = Loop <body = f{i} (int64 i{i}, bool p{i}, float[2, 3] s{i})
                => (bool p{i}, float[2, 3] t{i}) {{
                t{i} = {f"Concat <axis = 0> (s{i}, w)" if i == grows_at else f"Tanh(s{i})"}
            }}> (n, c, h{i})"""
        for i in range(count)
    ]
    given = "float[2, 3] h0, float[1, 3] w, int64 n"
    return f"g ({given}) => (float[A, B] h{count}) <bool c = {{1}}> {{ {' '.join(nodes)} }}"


@pytest.mark.parametrize("grows_at", [None, 0])
def test_loops_in_a_row_take_no_round_each(
    grows_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []
    infer = inferred_sizes._infer
    monkeypatch.setattr(inferred_sizes, "_infer", lambda *a: rounds.append(a) or infer(*a))
    found = sizes(_row(12, grows_at))
    assert len(rounds) < 6
    rows = {found[f"{name}{i}"][0] for i in range(12) for name in "st"}
    assert {found[f"{name}{i}"][1] for i in range(12) for name in "st"} == {3}
    assert rows == {2} if grows_at is None else 2 not in rows


def test_what_a_loop_hands_on_has_other_elements_than_its_initial_value():
    """A counter that starts at 0 is no size of 0 behind the loop."""
    found = sizes("""
        g (int64 n) => (float[A] y) <bool c = {1}, int64[1] z = {0}, int64[1] one = {1}> {
            k = Loop <body = f (int64 i, bool p, int64[1] s) => (bool p, int64[1] t) {
                t = Add(s, one)
            }> (n, c, z)
            y = ConstantOfShape(k)
        }
        """)
    assert found["k"] == (1,) and not isinstance(found["y"][0], int)


def test_a_loop_that_is_refuted_by_the_loop_within():
    found = sizes("""
        g (float[2] h, float[X] w, int64 n, int64 m) => (float[Y] y) <bool c = {1}> {
            y = Loop <body = f (int64 i, bool p, float[2] s) => (bool p, float[2] t) {
                t = Loop <body = d (int64 j, bool v, float[2] a) => (bool v, float[2] z) {
                    z = Concat <axis = 0> (a, w)
                }> (m, p, s)
            }> (n, c, h)
        }
        """)
    assert found["s"] == ("s:0",) and found["a"] == ("a:0",) and found["y"] == ("y:0",)
    assert len({found[name] for name in ("s", "t", "a", "z", "y", "h")}) == 6


def test_a_large_constant():
    zeros = ", ".join(["0"] * 1000)
    found = sizes(
        f"g (float[1] x) => (float[1000] y) <float[1000] w = {{{zeros}}}> {{ y = Add(w, x) }}"
    )
    assert found["y"] == found["w"] == (1000,)


def test_sequences_have_no_sizes():
    found = sizes("""
        g (float[2] a, int64 n) => (int64 y) <bool c = {1}> {
            e = SequenceEmpty <dtype = 1> ()
            z = Loop <body = b (int64 i, bool p, seq(float[2]) s) => (bool p, seq(float[2]) t) {
                t = SequenceInsert(s, a)
            }> (n, c, e)
            y = SequenceLength(z)
        }
        """)
    assert not {"e", "s", "t", "z"} & set(found) and found["y"] == ()


def test_a_model_that_did_not_change_is_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(parse("g (float[T, 4] x) => (float[A, B] z) { y = Exp(x)  z = Neg(y) }"))
    found = infer_sizes(model)
    found["z"] = ()
    with monkeypatch.context() as patch:
        patch.delattr(inference, "infer_shapes")
        assert infer_sizes(model)["z"] == ("T", 4)
    first, second = model.graph
    second.attributes.clear()
    model.graph.remove(second)
    model.graph.outputs[0] = first.outputs[0]
    assert "z" not in infer_sizes(model)


INPUTS = "float[T, 4] x, float[2, 4] rows, int64[N, 2] table"
WITHOUT_SIZES = {
    "rows are put beside others": "float[A, B] y = y = ScatterND(x, places, rows)",
    "integers of a table are split": "int64[A, B] y = y, other = Split <axis = 1> (table)",
}


@pytest.mark.parametrize("text", WITHOUT_SIZES.values(), ids=WITHOUT_SIZES)
def test_sizes_of_a_model_are_inferred_only_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("sizes are inferred")

    output, nodes = text.split(" =", 1)
    constant = "int64[2, 1] places = {1, 2}"
    model = load_model(parse(f"g ({INPUTS}) => ({output}) <{constant}> {{ {nodes} }}"))
    monkeypatch.setattr(inferred_sizes, "_proven", fail)
    run_passes(model)


def test_sizes_that_are_asked_for_are_inferred_once() -> None:
    model = load_model(parse("g (float[T, 4] x) => (float[A, B] y) { y = Exp(x) }"))
    found = InferredSizes(model)
    assert found["y"] == ("T", 4) and {*found} >= {"x", "y"} and len(found) == len({*found})
