"""Sequences and optionals that models take and return, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato
from ostinato.errors import InputError, ModelError, OstinatoError, RunError
from ostinato.model.load import load_model
from ostinato.ops import LOWERINGS
from ostinato.stages.partition import partition
from ostinato.stages.specialized import MAX_VARIANTS
from ostinato.stages.stage import ListStage
from tests.golden import parse

A, B = np.arange(6, dtype="f").reshape(2, 3), np.ones((4, 3), "f")


def session(source: str, **options: Any) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(parse(source), **{"cache_dir": None, **options})


def assert_native(compiled: ostinato.InferenceSession) -> None:
    assert compiled.report().interpreted == []


def assert_equal(got: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(got, list)
        for a, b in zip(got, expected, strict=True):
            assert_equal(a, b)
    elif expected is None:
        assert got is None
    else:
        np.testing.assert_array_equal(got, expected, strict=True)


def test_outputs_are_lists_of_the_callers_own_arrays() -> None:
    compiled = session(
        """g (float[N, 3] a, float[4, 3] b) => (seq(float[M, 3]) s, float[N, 3] n, seq(int64) e) {
            n = Neg(a)  s = SequenceConstruct(n, b, n)  e = SequenceEmpty <dtype = 7> ()
        }""",
        fallback=False,
    )
    for _ in range(2):
        s, n, e = compiled.run(None, {"a": A, "b": B})
        assert_equal([s, n, e], [[-A, B, -A], -A, []])
        s[0][:] = s[1][:] = 9
    assert [one.type for one in compiled.get_outputs()][::2] == [
        "seq(tensor(float))", "seq(tensor(int64))",
    ]  # fmt: skip
    assert compiled.run(["n"], {"a": A, "b": B})[0].tolist() == (-A).tolist()


def test_sequences_given_to_a_model() -> None:
    compiled = session("""
        g (seq(float[N, 3]) s, float[2, 3] a) => (seq(float[M, 3]) t, int64 n, float[K, 3] y) {
            t = SequenceInsert(s, a)  n = SequenceLength(t)
            joined = ConcatFromSequence <axis = 0> (t)  y = Neg(joined)
        }""")
    for sequence in ([], [B], [A, B], [B, A], [A[:0], A[:1]]):
        t, n, y = compiled.run(None, {"s": sequence, "a": A})
        assert_equal(t, [*sequence, A])
        assert n == len(sequence) + 1
        assert_equal(y, -np.concatenate([*sequence, A]))
    assert_native(compiled)
    with pytest.raises(InputError, match="input 's'"):
        compiled.run(None, {"s": [A.astype("i")], "a": A})


def test_extents_of_one_are_repeated() -> None:
    compiled = session("""
        g (seq(float[N]) s, seq(float[M]) t) => (seq(float[K]) y) {
            y = SequenceMap (s, t) <body = b (float[N] p, float[M] q) => (float[K] r) {
                r = Add (p, q)
            }>
        }""")
    x = np.arange(5, dtype="f")
    for s, t in (([x, x], [x, x[:1]]), ([x[:1], x], [x, x]), ([x[:3], x], [x[:3], x])):
        (y,) = compiled.run(None, {"s": s, "t": t})
        assert_equal(y, [a + b for a, b in zip(s, t, strict=True)])
    assert_native(compiled)


def test_a_mapped_body_is_of_the_operator_set_of_the_model() -> None:
    """The operator is one of opset 17, in which ReduceMax had no second input."""
    compiled = session("""
        <ir_version: 8, opset_import: ["": 18]> g (float[N, 3] x) => (seq(float[3]) y) {
            one = Constant <value_int = 1> ()  first = Constant <value_ints = [0]> ()
            s = SplitToSequence (x, one)
            y = SequenceMap (s) <body = b (float[M, 3] p) => (float[3] r) {
                r = ReduceMax <keepdims = 0> (p, first)
            }>
        }""")
    assert_equal(compiled.run(None, {"x": A}), [list(A)])
    assert_native(compiled)


def test_elements_differ_in_sizes_that_their_type_names() -> None:
    compiled = session("""
        g (seq(float[N, 3]) s, int64 i, int64 j) => (float[M, 3] y) {
            p = SequenceAt (s, i)  q = SequenceAt (s, j)  r = Concat <axis = 0> (p, q)  y = Neg (r)
        }""")
    (y,) = compiled.run(None, {"s": [A, B], "i": np.int64(0), "j": np.int64(-1)})
    assert_equal(y, -np.concatenate([A, B]))


@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_of_sizes_that_a_run_computes(axis: int) -> None:
    compiled = session(f"""
        g (float[N, K] x, int32[M] sizes, int32 most) => (float[L, P] y, int64 n, float[Q] z) {{
            given = Min (sizes, most)  s = SplitToSequence <axis = {axis}> (x, given)
            n = SequenceLength (s)  i = Constant <value_int = -1> ()  last = SequenceAt (s, i)
            rest = SequenceErase (s, i)
            twice = SequenceInsert (rest, last)  y = ConcatFromSequence <axis = {axis}> (twice)
            t = SequenceMap (s) <body = b (float[U, V] p) => (float[1] r) {{
                axes = Constant <value_ints = [0, 1]> ()  a = ReduceSum <keepdims = 0> (p, axes)
                first = Constant <value_ints = [0]> ()  r = Unsqueeze (a, first)
            }}>
            z = ConcatFromSequence <axis = 0> (t)
        }}""")
    x = np.arange(24, dtype="f").reshape(6, 4) if axis == 0 else np.ones((2, 6), "f")
    most = np.int32(6)
    for sizes in ([1, 5], [3, 0, 3], [6]):
        feeds = {"x": x, "sizes": np.array(sizes, np.int32), "most": most}
        y, n, z = compiled.run(None, feeds)
        parts = np.split(x, np.cumsum(sizes)[:-1], axis)
        assert_equal(y, x)
        assert n == len(sizes)
        assert_equal(z, np.array([part.sum() for part in parts], "f"))
    assert_native(compiled)
    for sizes, reason in (([2, 3], "do not add up to axis"), ([7, -1], "is negative")):
        with pytest.raises(RunError, match=rf"SplitToSequence.*{reason}"):
            feeds["sizes"] = np.array(sizes, np.int32)
            compiled.run(None, feeds | {"most": np.int32(9)})


def test_optionals_given_to_a_model() -> None:
    compiled = session("""
        g (optional(float[N]) o, float[N] x) => (bool has, float[N] y, optional(float[N]) p) {
            has = OptionalHasElement(o)  p = Identity(o)
            y = If (has) <
                then_branch = t () => (float[N] a) { v = OptionalGetElement(o)  a = Add(v, x) },
                else_branch = f () => (float[N] b) { b = Neg(x) }
            >
        }""")
    x = np.arange(3, dtype="f")
    assert_equal(compiled.run(None, {"o": None, "x": x}), [np.array(False), -x, None])
    assert_equal(compiled.run(None, {"o": x, "x": x}), [np.array(True), 2 * x, x])
    assert_native(compiled)


BRANCHES = """
g (bool c, float[N] x) => (seq(float[N]) s, optional(seq(float[N])) o) {
    s, o = If (c) <
        then_branch = t () => (seq(float[N]) a, optional(seq(float[N])) d) {
            a = SequenceConstruct(x, x)
            d = Optional <type : type_proto = seq(float[N])> ()
        },
        else_branch = f () => (seq(float[N]) b, optional(seq(float[N])) e) {
            n = Neg(x)  b = SequenceConstruct(n)  e = Optional(b)
        }
    >
}
"""


def test_branches_of_different_lengths_are_native_each(tmp_path: Path) -> None:
    x = np.arange(3, dtype="f")
    for _ in range(2):
        compiled = session(BRANCHES, cache_dir=tmp_path)
        for _ in range(2):
            assert_equal(compiled.run(None, {"c": np.array(True), "x": x}), [[x, x], None])
            assert_equal(compiled.run(None, {"c": np.array(False), "x": x}), [[-x], [-x]])
        assert_native(compiled)
        assert compiled.report().native
    assert compiled.report()["from_cache"]


GROWS = """
g (int64 n, float[2] x) => (seq(float[2]) s) <bool yes = {1}> {
    e = SequenceEmpty()
    s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(float[2]) p) => (
        bool k, seq(float[2]) q) {
        f = Cast <to = 1> (i)  y = Mul(x, f)  q = SequenceInsert(p, y)  k = Identity(c)
    }>
}
"""


def test_a_sequence_that_grows_in_a_loop_is_native_for_any_number_of_steps() -> None:
    x = np.array([1, -2], "f")
    compiled = session(GROWS)
    for count in (0, 1, 7, 65, 1000):
        (s,) = compiled.run(None, {"n": np.int64(count), "x": x})
        assert_equal(s, [x * i for i in range(count)])
    assert_native(compiled)
    assert not s[0].base


def test_a_position_behind_the_last_appends_as_well() -> None:
    insert = "q = SequenceInsert(p, y)"
    assert insert in GROWS
    place = "n0 = SequenceLength(p)  q = SequenceInsert(p, y, n0)"
    x = np.array([1, -2], "f")
    compiled = session(GROWS.replace(insert, place))
    for count in (0, 1, 7, 65):
        (s,) = compiled.run(None, {"n": np.int64(count), "x": x})
        assert_equal(s, [x * i for i in range(count)])
    assert_native(compiled)


SOME_STEPS_APPEND = """
g (int64 n, bool[N, 3] keep, int64[2] x) => (seq(int64[2]) s) <bool yes = {1}, int64 three = {3}> {
    e = SequenceConstruct(x)
    s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(int64[2]) p) => (
        bool k, seq(int64[2]) q) {
        row = Gather(keep, i)
        q = Loop (three, yes, p) <body = inner (int64 j, bool d, seq(int64[2]) o) => (
            bool l, seq(int64[2]) r) {
            is = Gather(row, j)
            r = If(is) <
                then_branch = t () => (seq(int64[2]) a) {
                    f = Mul(x, i)  h = Add(f, j)  a = SequenceInsert(o, h)
                },
                else_branch = u () => (seq(int64[2]) b) { b = Identity(o) }
            >
            l = Identity(d)
        }>
        k = Identity(c)
    }>
}
"""


def test_a_sequence_to_which_some_steps_of_a_nested_loop_append() -> None:
    """How much one run of the inner loop adds bounds how much the outer one grows."""
    compiled, x = session(SOME_STEPS_APPEND, fallback=False), np.array([1, -2])
    random = np.random.default_rng(1)
    for count in (0, 1, 9, 200):
        keep = random.random((max(count, 1), 3)) < 0.4
        (s,) = compiled.run(None, {"n": np.int64(count), "keep": keep, "x": x})
        assert_equal(s, [x, *(x * i + j for i, j in np.argwhere(keep[:count]))])


SQUARES = """
g (int64 n) => (seq(int64[N, M]) s) <bool yes = {1}> {
    e = SequenceEmpty <dtype = 7> ()
    s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(int64[N, M]) p) => (
        bool k, seq(int64[N, M]) q) {
        sizes = SequenceConstruct(i, i)
        pair = ConcatFromSequence <axis = 0, new_axis = 1> (sizes)
        r = ConstantOfShape <value = int64[1] {3}> (pair)
        q = SequenceInsert(p, r)  k = Identity(c)
    }>
}
"""


def test_loops_of_many_steps_or_many_counts_run_on_the_reference() -> None:
    """Elements that differ along two axes have no form in memory: their loop becomes its steps."""
    compiled = session(SQUARES)
    for count in (0, 1, 7, 64):
        (s,) = compiled.run(["s"], {"n": np.int64(count)})
        assert_equal(s, [np.full((i, i), 3) for i in range(count)])
    assert_native(compiled)
    (s,) = compiled.run(None, {"n": np.int64(65)})
    assert_equal(s, [np.full((i, i), 3) for i in range(65)])
    assert len(compiled.report().interpreted) == 1
    for count in range(MAX_VARIANTS + 2):
        assert len(compiled.run(None, {"n": np.int64(count)})[0]) == count
    assert "more than" in compiled.report().interpreted[0]["taken_over"][-1]


STACK = """
g (float[T, 3] x, bool[S] pushes) => (float[3] top, int64 depth) <
    bool yes = {1}, int64 last = {-1}
> {
    n = Size(pushes)  zero = Sub(n, n)  e = SequenceEmpty()
    left, s = Loop (n, yes, zero, e) <body = b (int64 i, bool c, int64 at, seq(float[3]) p) => (
        bool k, int64 next, seq(float[3]) q) {
        push = Gather(pushes, i)
        next, q = If(push) <
            then_branch = t () => (int64 m, seq(float[3]) o) {
                row = Gather(x, at)  one = Constant<value = int64 {1}>()  m = Add(at, one)
                o = SequenceInsert(p, row)
            },
            else_branch = u () => (int64 l, seq(float[3]) r) {
                a = SequenceAt(p, last)  p1 = SequenceErase(p, last)
                d = SequenceAt(p1, last)  p2 = SequenceErase(p1, last)
                sum = Add(a, d)  h = Tanh(sum)  r = SequenceInsert(p2, h)  l = Identity(at)
            }
        >
        k = Identity(c)
    }>
    top = SequenceAt(s, last)  depth = SequenceLength(s)
}
"""


def test_a_branch_may_read_elements_that_are_not_there_at_first() -> None:
    """A parser: it joins the two topmost elements of a stack, which begins without any."""
    compiled = session(STACK, fallback=False)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype("f")
    top, depth = compiled.run(None, {"x": x, "pushes": np.array([1, 1, 0, 1, 1, 0, 0], bool)})
    expected = np.tanh(np.tanh(x[0] + x[1]) + np.tanh(x[2] + x[3]))
    np.testing.assert_allclose(top, expected, rtol=1e-6)
    assert depth == 1
    with pytest.raises(OstinatoError, match="is negative"):
        compiled.run(None, {"x": x, "pushes": np.array([1, 0], bool)})


def test_a_loop_over_the_elements_of_a_list_that_begins_without_any() -> None:
    """Insertion into an ordered list."""
    compiled = session(
        """
        g (int64[N] x) => (int64[M] y) <bool yes = {1}, int64 zero = {0}, int64 one = {1}> {
            n = Size(x)  e = SequenceEmpty <dtype = 7> ()
            s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(int64) p) => (
                bool k, seq(int64) q) {
                v = Gather(x, i)  l = SequenceLength(p)
                place = Loop(l, c, zero) <body = d (int64 j, bool f, int64 a) => (
                    bool h, int64 w) {
                    old = SequenceAt(p, j)  less = Less(old, v)  after = Add(j, one)
                    w = Where(less, after, a)  h = Identity(f)
                }>
                q = SequenceInsert(p, v, place)  k = Identity(c)
            }>
            y = ConcatFromSequence <axis = 0, new_axis = 1> (s)
        }""",
        fallback=False,
    )
    for count in (1, 5, 80):
        x = np.random.default_rng(count).integers(0, 50, count)
        assert_equal(compiled.run(None, {"x": x})[0], np.sort(x))


def test_a_sequence_between_native_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node in the middle has no native form; what follows knows the elements again."""
    monkeypatch.delitem(LOWERINGS, "Abs")
    compiled = session("""
        g (float[N] x, float[N] z) => (float[M] y, float[K] d, seq(float[N]) s) <int64 one = {1}> {
            n = Neg(x)  s = SequenceConstruct(x, n, z)
            d = Abs(z)
            t = SequenceErase(s, one)
            y = ConcatFromSequence <axis = 0> (t)
        }""")
    x, z = np.arange(3, dtype="f"), np.ones(3, "f")
    y, d, s = compiled.run(None, {"x": x, "z": z})
    assert_equal([y, d, s], [np.concatenate([x, z]), z, [x, -x, z]])
    assert [one["op"] for one in compiled.report().interpreted] == ["Abs"]


@pytest.mark.parametrize("output", ["", ", seq(float[N]) s"])
def test_lists_are_made_for_those_who_read_them(
    monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """Native stages hand on the tensors in a sequence."""
    monkeypatch.delitem(LOWERINGS, "Abs")
    model = parse(f"""g (float[N] x) => (float[M] y{output}) {{
        n = Neg(x)  s = SequenceConstruct(x, n)
        d = Abs(n)
        j = ConcatFromSequence <axis = 0> (s)  y = Concat<axis = 0>(j, d)
    }}""")
    parts = partition(load_model(model), fallback=True).parts
    assert sum(isinstance(part, ListStage) for part in parts) == bool(output)


NONE = "the sequence has no elements"
WRONG = {
    "insert": ("t = SequenceInsert(s, x, three)", "position 3"),
    "erase": ("t = SequenceErase(s, three)", "position 3"),
    "at": ("a = SequenceAt(s, three)  t = SequenceConstruct(a)", "position 3 .*: -2 to 1"),
    "type": (
        "e = SequenceEmpty <dtype = 7> ()  t = SequenceInsert(e, x)",
        "input 'tensor' is float32, the sequence int64",
    ),
    "mixed": ("i = Cast <to = 7> (x)  t = SequenceConstruct(x, i)", "another one of its type"),
    "none": ("e = SequenceEmpty()  a = SequenceAt(e, zero)  t = SequenceConstruct(a)", NONE),
    "erase-none": ("e = SequenceEmpty()  t = SequenceErase(e)", NONE),
    "join-none": (
        "e = SequenceEmpty()  a = ConcatFromSequence <axis = 0> (e)  t = SequenceConstruct(a)",
        NONE,
    ),
    "new_axis": (
        "a = ConcatFromSequence <axis = 0, new_axis = 2> (s)  t = SequenceConstruct(a)",
        "new_axis",
    ),
    "axis": ("a = ConcatFromSequence <axis = 2> (s)  t = SequenceConstruct(a)", "axis 2"),
    "split": ("t = SplitToSequence(x, zero)", "expected a positive size"),
    "optional": ("t = Optional()", "neither an operand nor attribute 'type'"),
    "empty": (
        "o = Optional <type : type_proto = seq(float[2])> ()  t = OptionalGetElement(o)",
        "has no element",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_nodes_are_refused_by_name(name: str) -> None:
    nodes, message = WRONG[name]
    source = f"""g (float[2] x) => (seq(float[K]) t) <int64 zero = {{0}}, int64 three = {{3}}> {{
        s = SequenceConstruct(x, x)  {nodes}
    }}"""
    with pytest.raises(ModelError, match=message):
        session(source)


def test_positions_out_of_range_at_run_time() -> None:
    compiled = session("""
        g (float[2] x, float[3] z, int64 i) => (float[2] y, seq(float[K]) t) {
            s = SequenceConstruct(x, x)  y = SequenceAt(s, i)
            u = SequenceConstruct(x, z)  t = SequenceErase(u, i)
        }""")
    feeds = {"x": np.ones(2, "f"), "z": np.ones(3, "f")}
    for i in (0, -1):
        y, t = compiled.run(None, {**feeds, "i": np.int64(i)})
        assert y.shape == (2,) and len(t) == 1
    assert_native(compiled)
    for i in (2, -3, 2**62):
        with pytest.raises(OstinatoError, match="out of range"):
            compiled.run(None, {**feeds, "i": np.int64(i)})


def test_pieces_that_do_not_make_up_the_axis() -> None:
    compiled = session("""
        g (float[N] x, int64[2] sizes) => (int64 n) {
            s = SplitToSequence(x, sizes)  n = SequenceLength(s)
        }""", fallback=False)  # fmt: skip
    x = np.ones(5, "f")
    assert compiled.run(None, {"x": x, "sizes": np.array([2, 3])}) == [2]
    for sizes in ((2, 2), (6, -1), (2**62, 2**62)):
        with pytest.raises(OstinatoError, match="piece"):
            compiled.run(None, {"x": x, "sizes": np.array(sizes)})
