"""Sequences whose elements differ along one axis, carried by loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import ostinato
from ostinato.errors import OstinatoError
from ostinato.ops import LOWERINGS
from tests.golden import parse

Arrays = Mapping[str, np.ndarray]


def session(source: str, **options: Any) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(parse(source), **{"cache_dir": None, **options})


def assert_equal(got: Any, expected: Any) -> None:
    assert isinstance(got, list) == isinstance(expected, list)
    if isinstance(got, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    else:
        expected = np.asarray(expected)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(got, expected)


LOOP = """
g (int64 n, int64[K] by) => ({output}) <
    bool yes = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 last = {{-1}},
    int64[1] shape = {{1}}
> {{
    first = Range(zero, two, one)
    e = {begin}
    s{more} = Loop (n, yes, e{initial}) <body = b (int64 i, bool c, seq(int64[A]) p{carried}) => (
        bool k, seq(int64[B]) q{next}) {{
        t = Gather(by, i)  piece = Range(zero, t, one)
        {step}
        k = Identity(c)
    }}>
    {end}
}}
"""
PARTS = {"output": "seq(int64[C]) s", "begin": "SequenceEmpty <dtype = 7> ()", "end": ""}
PARTS |= dict.fromkeys(("more", "initial", "carried", "next"), "")


def made(step: str, **parts: str) -> str:
    """A model whose loop carries a sequence."""
    return LOOP.format(**{**PARTS, **parts}, step=step)


def pieces(by: np.ndarray) -> list[np.ndarray]:
    return [np.arange(n) for n in by]


def with_positions(by: np.ndarray, place: Callable[[int, int], int | None]) -> list[np.ndarray]:
    """Pieces inserted at the positions that `place` tells of the step and the length."""
    found: list[np.ndarray] = []
    for i, piece in enumerate(pieces(by)):
        position = place(i, len(found))
        found.insert(len(found) if position is None else position, piece)
    return found


def stacked(by: np.ndarray) -> list[np.ndarray]:
    """A stack: odd sizes are pushed, even ones pop if there is something."""
    found: list[np.ndarray] = []
    for piece in pieces(by):
        if len(piece) % 2:
            found.append(piece)
        elif found:
            found.pop()
    return found


def erased(by: np.ndarray) -> list[np.ndarray]:
    """Pieces behind two, of which each step erases the one at its size, modulo the length."""
    found = [np.arange(2), np.arange(2)]
    for piece in pieces(by):
        found.append(piece)
        if len(piece) % 3 == 0:
            del found[len(piece) % len(found)]
    return found


CASES: dict[str, tuple[str, Callable[[np.ndarray], list[np.ndarray]]]] = {
    "behind": (made("q = SequenceInsert(p, piece)"), pieces),
    "behind-others": (
        made("q = SequenceInsert(p, piece)", begin="SequenceConstruct(first, shape)"),
        lambda by: [np.arange(2), np.ones(1, np.int64), *pieces(by)],
    ),
    "in-front": (
        made("q = SequenceInsert(p, piece, zero)"),
        lambda by: with_positions(by, lambda i, n: 0),
    ),
    "before-the-last": (
        made("q = SequenceInsert(p, piece, last)", begin="SequenceConstruct(first)"),
        lambda by: [*with_positions(by, lambda i, n: None), np.arange(2)],
    ),
    "in-the-middle": (
        made("l = SequenceLength(p)  m = Div(l, two)  q = SequenceInsert(p, piece, m)"),
        lambda by: with_positions(by, lambda i, n: n // 2),
    ),
    "stack": (
        made("""
            m = Mod(t, two)  odd = Equal(m, one)
            q = If(odd) <
                then_branch = a () => (seq(int64[D]) x) { x = SequenceInsert(p, piece) },
                else_branch = o () => (seq(int64[E]) y) {
                    l = SequenceLength(p)  some = Greater(l, zero)
                    y = If(some) <
                        then_branch = v () => (seq(int64[F]) z) { z = SequenceErase(p) },
                        else_branch = w () => (seq(int64[G]) u) { u = Identity(p) }
                    >
                }
            >"""),
        stacked,
    ),
    "erased": (
        made(
            """
            r = SequenceInsert(p, piece)
            l = SequenceLength(r)  three = Add(one, two)  m = Mod(t, three)  hit = Equal(m, zero)
            q = If(hit) <
                then_branch = a () => (seq(int64[D]) x) { j = Mod(t, l)  x = SequenceErase(r, j) },
                else_branch = o () => (seq(int64[E]) y) { y = Identity(r) }
            >""",
            begin="SequenceConstruct(first, first)",
        ),
        erased,
    ),
    "begun-anew": (
        made("""
            none = Equal(t, zero)
            q = If(none) <
                then_branch = a () => (seq(int64[D]) x) { x = SequenceEmpty <dtype = 7> () },
                else_branch = o () => (seq(int64[E]) y) { y = SequenceInsert(p, piece) }
            >"""),
        lambda by: pieces(by[max([0, *(np.flatnonzero(by == 0) + 1)]) :]),
    ),
    "inner-loop": (
        made("""
            q = Loop(t, c, p) <body = d (int64 j, bool f, seq(int64[D]) o) => (
                bool h, seq(int64[E]) r) {
                sum = Add(i, j)  inner = Range(j, sum, one)
                r = SequenceInsert(o, inner)  h = Identity(f)
            }>"""),
        lambda by: [np.arange(j, j + i) for i, n in enumerate(by) for j in range(n)],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_sequences_of_a_loop(name: str, seed: int) -> None:
    source, expected = CASES[name]
    compiled = session(source, fallback=False)
    random = np.random.default_rng(seed)
    for count in (0, 1, 2, 9, 70):
        by = random.integers(0, 6, max(count, 1))
        (s,) = compiled.run(None, {"n": np.int64(count), "by": by})
        assert_equal(s, expected(by[:count]))


def test_elements_at_computed_positions() -> None:
    """A list of what was made so far, of which steps read any: negative positions count back."""
    source = made(
        """
        q = SequenceInsert(p, piece)
        l = SequenceLength(q)  j = Mod(t, l)  back = Sub(j, l)
        a = SequenceAt(q, j)  b = SequenceAt(q, back)
        s1 = ReduceSum <keepdims = 0> (a)  s2 = ReduceSum <keepdims = 0> (b)
        x = Add(s1, s2)  w = Add(v, x)""",
        output="int64 total",
        more=", total",
        initial=", zero",
        carried=", int64 v",
        next=", int64 w",
    )
    compiled = session(source, fallback=False)
    for count in (0, 1, 8, 50):
        by = np.random.default_rng(count).integers(0, 9, max(count, 1))
        sums = [n * (n - 1) // 2 for n in by]
        expected = sum(2 * sums[by[i] % (i + 1)] for i in range(count))
        (total,) = compiled.run(None, {"n": np.int64(count), "by": by})
        assert total == expected


def test_pieces_of_another_axis_are_joined() -> None:
    """float[2, any]: products read each piece where it lies, and all are joined in the end."""
    compiled = session(
        """
        g (int64 n, float[2, T] x, float[3, 2] m) => (float[3, S] y, seq(float[3, U]) s) <
            bool yes = {1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] axis = {1}
        > {
            e = SequenceEmpty()
            s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(float[3, A]) p) => (
                bool k, seq(float[3, B]) q) {
                j = Reshape(i, one)  end = Add(j, one)
                part = Slice(x, zero, end, axis)  r = MatMul(m, part)
                q = SequenceInsert(p, r)  k = Identity(c)
            }>
            y = ConcatFromSequence <axis = 1> (s)
        }""",
        fallback=False,
    )
    x, m = (np.random.default_rng(i).integers(-9, 9, (2 + i, 7 - 5 * i)) for i in (0, 1))
    feeds = {"x": x.astype("f"), "m": m.astype("f")}
    for count in (1, 2, 7):
        y, s = compiled.run(None, {**feeds, "n": np.int64(count)})
        parts = [feeds["m"] @ feeds["x"][:, : i + 1] for i in range(count)]
        assert_equal(s, parts)
        assert_equal(y, np.concatenate(parts, 1))
    with pytest.raises(OstinatoError, match="no elements"):
        compiled.run(None, {**feeds, "n": np.int64(0)})


@pytest.mark.parametrize(
    ("attributes", "join"),
    [
        ("axis = 0, new_axis = 1", np.stack),
        ("axis = 2, new_axis = 1", lambda rows: np.stack(rows, 2)),
        ("axis = 0", np.concatenate),
        ("axis = 1", lambda rows: np.concatenate(rows, 1)),
    ],
)
def test_elements_that_turn_out_to_be_alike_are_joined_along_any_axis(
    attributes: str, join: Callable[[list[np.ndarray]], np.ndarray]
) -> None:
    compiled = session(
        f"""
        g (int64[N] sizes, float[2, T] x) => (float y) <
            bool yes = {{1}}, int64[1] zero = {{0}}, int64[1] axis = {{1}}
        > {{
            n = Size(sizes)  e = SequenceEmpty()
            s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(float[2, A]) p) => (
                bool k, seq(float[2, B]) q) {{
                j = Reshape(i, axis)  size = Gather(sizes, j)
                part = Slice(x, zero, size, axis)  f = Cast <to = 1> (i)  r = Mul(part, f)
                q = SequenceInsert(p, r)  k = Identity(c)
            }}>
            y = ConcatFromSequence <{attributes}> (s)
        }}""",
        # There is no bound of as many rows as there may be, each as long as all of them.
        fallback=attributes == "axis = 0",
    )
    x = np.arange(10, dtype="f").reshape(2, 5)
    for sizes in ([3], [2, 2, 2], [5, 5], [0, 0]):
        (y,) = compiled.run(None, {"x": x, "sizes": np.array(sizes)})
        assert_equal(y, join([x[:, :n] * np.float32(i) for i, n in enumerate(sizes)]))
    if attributes != "axis = 1":
        with pytest.raises(OstinatoError, match=r"along (axis|dimension) 1"):
            compiled.run(None, {"x": x, "sizes": np.array([2, 3])})


OTHERS = {
    # Rows of 2 and then of 3 columns, both of any height.
    "pieces of another width": ("part", "wide"),
    # One row of 2 columns in each step, of 3 in the end.
    "a row of another width": ("row", "wide"),
    "a vector among matrices": ("part", "flat"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_no_form_has_is_interpreted(name: str) -> None:
    """A list may have any tensors: it is no error that they differ along several axes."""
    before, after = OTHERS[name]
    compiled = session(f"""
        g (int64 n, float[T, 2] x, float[4, 3] wide) => (seq(float) s) <
            bool yes = {{1}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] all = {{-1}}
        > {{
            e = SequenceEmpty()  flat = Reshape(wide, all)
            r = Loop (n, yes, e) <body = b (int64 i, bool c, seq(float[A, 2]) p) => (
                bool k, seq(float[B, 2]) q) {{
                j = Reshape(i, one)  end = Add(j, one)
                part = Slice(x, zero, end)  row = Slice(x, j, end)
                q = SequenceInsert(p, {before})  k = Identity(c)
            }}>
            s = Loop (n, yes, r) <body = d (int64 i, bool c, seq(float) p) => (
                bool k, seq(float) q) {{
                q = SequenceInsert(p, {after})  k = Identity(c)
            }}>
        }}""")
    x, wide = np.ones((9, 2), "f"), np.arange(12, dtype="f").reshape(4, 3)
    rows = [x[: i + 1] if before == "part" else x[i : i + 1] for i in range(3)]
    others = [wide if after == "wide" else wide.reshape(-1)] * 3
    (s,) = compiled.run(None, {"n": np.int64(3), "x": x, "wide": wide})
    assert_equal(s, [*rows, *others])


def test_a_list_may_begin_anew_with_other_tensors() -> None:
    compiled = session("""
        g (int64 n, float[2] x, float[3] z) => (seq(float) s) <bool yes = {1}, int64 two = {2}> {
            e = SequenceEmpty()
            s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(float) p) => (
                bool k, seq(float) q) {
                longer = SequenceInsert(p, x)  early = Less(i, two)
                q = If(early) <
                    then_branch = t () => (seq(float) a) { a = Identity(longer) },
                    else_branch = u () => (seq(float) o) { o = SequenceConstruct(z) }
                >
                k = Identity(c)
            }>
        }""")
    x, z = np.ones(2, "f"), np.zeros(3, "f")
    for count, expected in ((2, [x, x]), (3, [z]), (4, [z])):
        (s,) = compiled.run(None, {"n": np.int64(count), "x": x, "z": z})
        assert_equal(s, expected)


def test_lists_of_lists_of_steps() -> None:
    """Hypotheses: each step makes a list of continuations, and the best ones become the list."""
    compiled = session(
        """
        g (int64[N] x) => (int64[M] y) <bool yes = {1}, int64 zero = {0}, int64[1] none = {0}> {
            n = Size(x)  e = SequenceConstruct(none)
            s = Loop (n, yes, e) <body = b (int64 i, bool c, seq(int64[A]) p) => (
                bool k, seq(int64[B]) q) {
                new = Gather(x, i)  axis = Constant<value_ints = [0]>()  row = Unsqueeze(new, axis)
                l = SequenceLength(p)  f = SequenceEmpty <dtype = 7> ()
                made = Loop (l, c, f) <body = d (int64 j, bool g, seq(int64[C]) o) => (
                    bool h, seq(int64[D]) r) {
                    old = SequenceAt(p, j)  longer = Concat<axis = 0>(old, row)
                    r0 = SequenceInsert(o, old)  r = SequenceInsert(r0, longer)  h = Identity(g)
                }>
                most = Constant<value = int64 {3}>()  m = SequenceLength(made)
                kept = Min(m, most)  f2 = SequenceEmpty <dtype = 7> ()
                q = Loop (kept, c, f2) <body = t (int64 j, bool g, seq(int64[E]) o) => (
                    bool h, seq(int64[F]) r) {
                    one = Constant<value = int64 {1}>()  b1 = Sub(m, one)  back = Sub(b1, j)
                    old = SequenceAt(made, back)  r = SequenceInsert(o, old)  h = Identity(g)
                }>
                k = Identity(c)
            }>
            y = ConcatFromSequence <axis = 0> (s)
        }""",
        fallback=False,
    )
    for count in (1, 2, 6, 30):
        x = np.random.default_rng(count).integers(0, 50, count)
        kept = [np.zeros(1, np.int64)]
        for value in x:
            made = [each for old in kept for each in (old, np.append(old, value))]
            kept = made[::-1][:3]
        assert_equal(compiled.run(None, {"x": x})[0], np.concatenate(kept))


def test_uneven_parts_at_positions_that_steps_compute() -> None:
    compiled = session(
        """
        g (int64[9] x, int64[N] at) => (int64[N] y) <int64[3] sizes = {2, 6, 1}> {
            s = SplitToSequence(x, sizes)
            y = Scan <num_scan_inputs = 1, body = b (int64 i) => (int64 z) {
                part = SequenceAt(s, i)  z = ReduceSum <keepdims = 0> (part)
            }> (at)
        }""",
        fallback=False,
    )
    x, at = np.arange(9), np.array([2, 0, -1, 1, -3])
    parts = np.split(x, [2, 8])
    (y,) = compiled.run(None, {"x": x, "at": at})
    assert_equal(y, np.array([parts[i].sum() for i in at]))
    for wrong in (3, -4):
        with pytest.raises(OstinatoError, match=r"SequenceAt.*out of range"):
            compiled.run(None, {"x": x, "at": np.array([0, wrong])})


def test_between_native_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOWERINGS, "Abs")
    source = made(
        "q = SequenceInsert(p, piece)",
        output="seq(int64[C]) s, int64[D] d, int64 m",
        end="d = Abs(by)  f = Gather(d, zero)  a = SequenceAt(s, f)  m = ReduceMax<keepdims=0>(a)",
    )
    compiled = session(source)
    by = np.array([3, 1, 4, 6])
    s, _, m = compiled.run(None, {"n": np.int64(4), "by": by})
    assert_equal(s, pieces(by))
    assert m == 5
    assert [one["op"] for one in compiled.report().interpreted] == ["Abs"]


def test_positions_that_do_not_exist() -> None:
    source = made("l = Add(t, one)  q = SequenceInsert(p, piece, l)")
    compiled = session(source, fallback=False)
    with pytest.raises(OstinatoError, match="out of range"):
        compiled.run(None, {"n": np.int64(2), "by": np.array([0, 5])})
