from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program.expr import Access, Axis, Index, Reduced, cast, constant, op
from ostinato.program.kernel import Kernel, Reduce, map_loads
from ostinato.program.nodes import Buffer, Carry, Interface, Loop, Program, map_kernels
from ostinato.program.words import BYTES, word
from ostinato.schedule.layout import (
    Layout,
    _candidates,
    _Costs,
    _is_radix,
    _radices,
    _together,
    layout,
)
from ostinato.sizes.dims import Atom, Size, floordiv, symbol, symbols, terms_of
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, check_unchanged

MACHINE = Machine(64, 32)
# Channels in and out, places of an image.
IN, OUT, P = 8, 32, 6


def convolution(residual: bool = False, pooled: bool = False, whole: bool = False) -> Program:
    """Two convolutions of one place, with something between them.

    residual: the second one adds what the first one gave. pooled: each two places become one.
    whole: a kernel reads the values of the first one without telling channels from places.
    """
    c, k, p, r = Axis("c", OUT), Axis("k", IN), Axis("p", P), Axis("r", OUT)
    o, q = Axis("o", OUT), Axis("q", P // 2 if pooled else P)
    e, f = Axis("e", OUT), Axis("f", OUT * P)
    w, v = at("W", (k, OUT), (c, 1)), at("V", (r, OUT), (o, 1))
    first = Reduce((k,), "sum", at("x", (k, P), (p, 1)), w)
    one = Kernel("one", (c, p), (first,), (store("a", Reduced(0, "float32"), (c, P), (p, 1)),))
    places = q.extent
    largest = op("max", at("a", (e, P), (q, 2)), at("a", (e, P), (q, 2), offset=1))
    pool = Kernel("pool", (e, q), (), (store("b", largest, (e, places), (q, 1)),))
    read = "b" if pooled else "a"
    second = Reduce((r,), "sum", at(read, (r, places), (q, 1)), v)
    value = Reduced(0, "float32")
    if residual:
        value = op("add", value, at("a", (o, P), (q, 1)))
    two = Kernel("two", (o, q), (second,), (store("y", value, (o, places), (q, 1)),))
    flat = Kernel("flat", (f,), (), (store("z", at("a", (f, 1)), (f, 1)),))
    random = np.random.default_rng(0)
    shapes = {"W": (IN, OUT), "V": (OUT, OUT)}
    return program(
        {"x": (IN, P)},
        {"y": (OUT, places), **({"z": (OUT * P,)} if whole else {})},
        (one, *((pool,) if pooled else ()), two, *((flat,) if whole else ())),
        {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()},
        {"a": OUT * P, **({"b": OUT * places} if pooled else {})},
    )


def laid_out(source: Program) -> Program:
    return layout(source, MACHINE)


def test_channels_become_neighbours_where_lanes_run_along_them():
    check(
        laid_out,
        convolution(),
        """
        constant W: float32[256]
        constant V: float32[1024]
        arena a: float32[192]
        kernel one [c < 32, p < 6]
          r0 = sum k < 8: fma(x[6*k + p], W[32*k + c])
          a[6*c + p] = r0
        kernel two [o < 32, q < 6]
          r0 = sum r < 32: fma(a[6*r + q], V[32*r + o])
          y[6*o + q] = r0
        """,
        """
        constant W: float32[256]
        constant V: float32[1024]
        arena a: float32[192]
        kernel one [c < 32, p < 6]
          r0 = sum k < 8: fma(x[6*k + p], W[32*k + c])
          a[c + 32*p] = r0
        kernel two [o < 32, q < 6]
          r0 = sum r < 32: fma(a[r + 32*q], V[32*r + o])
          y[6*o + q] = r0
        """,
    )


@pytest.mark.parametrize("change", [{"residual": True}, {"pooled": True}])
def test_what_reads_a_buffer_follows_its_layout(change):
    source = convolution(**change)
    changed = laid_out(source)
    places = [p for k in changed.kernels() for p in (*k.loads(), *k.stores)]
    inside = [p.access for p in places if changed.buffers[p.access.buffer].kind == "arena"]
    assert inside
    for access in inside:
        assert {stride for axis, stride in access.terms if axis.extent == OUT} == {1}
    assert_same_results(source, changed)


def in_bytes(source: Program) -> Program:
    """The same with what the kernels hand on in bytes."""

    def narrow(kernel: Kernel) -> Kernel:
        wide = map_loads(
            kernel,
            lambda x: (
                cast(replace(x, dtype="uint8"), "float32") if x.access.buffer == "a" else None
            ),
        )
        stores = [
            replace(s, value=cast(s.value, "uint8")) if s.access.buffer == "a" else s
            for s in wide.stores
        ]
        return replace(wide, stores=tuple(stores))

    buffers = {**source.buffers, "a": replace(source.buffers["a"], dtype="uint8")}
    body = map_kernels(source.body, narrow)
    return replace(source, buffers=buffers).with_body(body)


def test_bytes_are_laid_out_as_floats_are():
    source = in_bytes(convolution())
    changed = laid_out(source)
    assert [access.stride(axis) for access, axis in channels_of(changed)] == [1, 1]
    assert_same_results(source, changed)


def channels_of(source: Program) -> list[tuple[Access, Axis]]:
    """Where the first convolution stores, and the second one reads, and the axis of channels."""
    one, two = source.kernels()
    (load,) = (x for x in two.loads() if x.access.buffer == "a")
    return [(one.stores[0].access, one.axes[0]), (load.access, two.reductions[0].axes[0])]


def test_bytes_that_are_read_as_words_stay():
    source = in_bytes(convolution())
    one, two = source.kernels()
    (channels,) = two.reductions[0].axes
    words = Axis("words", channels.extent)
    bytes_ = [at("a", (words, P), offset=n, dtype="uint8") for n in range(BYTES)]
    weight = at("U", (words, 1), dtype="int32")
    total = Reduce((words,), "sum", word(bytes_), weight)
    few = Kernel("few", (), (total,), (store("z", cast(Reduced(0, "int32"), "float32")),))
    weights = np.arange(words.extent, dtype=np.int32)
    changed = replace(
        source,
        outputs=(*source.outputs, Interface("z", "z", "float32", (1,))),
        buffers={
            **source.buffers,
            "z": Buffer("z", "float32", 1, "output"),
            "U": Buffer("U", "int32", words.extent, "constant"),
        },
        constants={**source.constants, "U": weights},
    ).with_body((one, two, few))
    check_unchanged(laid_out, changed)


def depthwise(stride: int) -> Program:
    """Channels of an image from others, then a window of 3 x 3 over each of them."""
    c, k, p = Axis("c", OUT), Axis("k", OUT), Axis("p", 18 * 18)
    e, y, x, u, v = Axis("e", OUT), Axis("y", 8), Axis("x", 8), Axis("u", 3), Axis("v", 3)
    product = Reduce((k,), "sum", at("x", (k, 324), (p, 1)), at("W", (k, OUT), (c, 1)))
    one = Kernel("one", (c, p), (product,), (store("a", Reduced(0, "float32"), (c, 324), (p, 1)),))
    window = at("a", (e, 324), (y, 18 * stride), (u, 18), (x, stride), (v, 1))
    total = Reduce((u, v), "sum", window, at("V", (e, 9), (u, 3), (v, 1)))
    stored = store("y", Reduced(0, "float32"), (e, 64), (y, 8), (x, 1))
    two = Kernel("two", (e, y, x), (total,), (stored,))
    random = np.random.default_rng(0)
    return program(
        {"x": (OUT, 324)},
        {"y": (OUT, 8, 8)},
        (one, two),
        {n: random.standard_normal(s).astype("f") for n, s in (("W", (OUT, OUT)), ("V", (OUT, 9)))},
        {"a": OUT * 324},
    )


def test_channels_become_neighbours_where_windows_would_gather():
    source = depthwise(2)
    changed = laid_out(source)
    (load,) = [x for k in changed.kernels() for x in k.loads() if x.access.buffer == "a"]
    assert {stride for axis, stride in load.access.terms if axis.name == "e"} == {1}
    assert_same_results(source, changed)
    assert_same_results(depthwise(1), laid_out(depthwise(1)))


def windows(batch: Size, times: Size) -> Program:
    """A product of channels, three places of which each point of a convolution reads.

    Every second one: it has `(times - 3) // 2 + 1` of them.
    """
    n, m = Axis("n", batch), Axis("m", batch)
    c, k, t = Axis("c", OUT), Axis("k", IN), Axis("t", times)
    half = floordiv(times - 3, 2) + 1
    o, r, w, u = Axis("o", OUT), Axis("r", OUT), Axis("w", 3), Axis("u", half)
    x = at("x", (n, times * IN), (t, IN), (k, 1))
    first = Reduce((k,), "sum", x, at("W", (k, OUT), (c, 1)))
    stored = store("a", Reduced(0, "float32"), (n, times * OUT), (c, times), (t, 1))
    window = at("a", (m, times * OUT), (r, times), (u, 2), (w, 1))
    second = Reduce((r, w), "sum", window, at("V", (r, 3 * OUT), (w, OUT), (o, 1)))
    last = store("y", Reduced(0, "float32"), (m, half * OUT), (u, OUT), (o, 1))
    random = np.random.default_rng(0)
    shapes = {"W": (IN, OUT), "V": (OUT, 3 * OUT)}
    names = tuple(name for name in "BN" if name in {*symbols(batch), *symbols(times)})
    one = Kernel("one", (n, c, t), (first,), (stored,))
    two = Kernel("two", (m, o, u), (second,), (last,))
    return program(
        {"x": (batch, times, IN), **{name: (symbol(name),) for name in names}},
        {"y": (batch, half, OUT)},
        (one, two),
        {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()},
        {"a": batch * OUT * times},
        symbols=names,
    )


@pytest.mark.parametrize("batch", [1, 3, symbol("B")], ids=str)
@pytest.mark.parametrize("times", [7, symbol("N") + 3, floordiv(symbol("N"), 3) + 4], ids=str)
def test_times_that_only_a_run_tells_are_as_good(batch: Size, times: Size):
    source = windows(batch, times)
    changed = laid_out(source)
    (load,) = [x for k in changed.kernels() for x in k.loads() if x.access.buffer == "a"]
    assert {stride for axis, stride in load.access.terms if axis.name == "r"} == {1}
    assert_same_results(source, changed)


def transposing(rows: bool) -> Program:
    """What an elementwise kernel turns over for a product; rows: with a number for each row."""
    t, e, r, o, u = Axis("t", P), Axis("e", OUT), Axis("r", OUT), Axis("o", OUT), Axis("u", P)
    scale = at("s", (t, 1)) if rows else at("g", (e, 1))
    value = op("mul", at("x", (t, OUT), (e, 1)), scale)
    target = ((t, OUT), (e, 1)) if rows else ((e, P), (t, 1))
    one = Kernel("one", (e, t), (), (store("a", value, *target),))
    read = at("a", (u, OUT), (r, 1)) if rows else at("a", (r, P), (u, 1))
    product = Reduce((r,), "sum", read, at("V", (r, OUT), (o, 1)))
    two = Kernel("two", (u, o), (product,), (store("y", Reduced(0, "float32"), (u, OUT), (o, 1)),))
    random = np.random.default_rng(0)
    return program(
        {"x": (P, OUT), "s": (P,)},
        {"y": (P, OUT)},
        (one, two),
        {n: random.standard_normal(s).astype("f") for n, s in (("g", (OUT,)), ("V", (OUT, OUT)))},
        {"a": OUT * P},
    )


def test_what_an_elementwise_kernel_turns_over_is_kept_as_it_reads_it():
    source = transposing(rows=False)
    changed = laid_out(source)
    (load,) = [x for k in changed.kernels() for x in k.loads() if x.access.buffer == "a"]
    assert {stride for axis, stride in load.access.terms if axis.name == "r"} == {1}
    assert_same_results(source, changed)


def test_rows_that_have_a_number_each_stay_whole():
    whole, turned = (
        _radices(list(source.kernels()), source.buffers, MACHINE, _together(source))
        for source in (transposing(rows=True), transposing(rows=False))
    )
    assert not whole["a"] and turned["a"] == {P}


def test_places_that_may_be_those_of_the_next_channel_keep_the_layout():
    n = symbol("N")
    t, c, e = Axis("t", n), Axis("c", 4), Axis("e", floordiv(n, 2))
    inside = Access("a", 0, ((c, n), (e, 2)))
    beyond = Access("a", 2, ((c, n), (e, 2)))
    assert _is_radix(n, [Access("a", 0, ((c, n), (t, 1))), inside])
    assert not _is_radix(n, [inside, beyond])
    assert not _is_radix(n, [Access("a", n - 1, ((c, n),))])
    assert not _is_radix(n, [Access("a", 0, ((c, n), (t, symbol("S", signed=True))))])


def atom(size: Size) -> Atom:
    """What a size consists of that is no polynomial."""
    ((monomial, _),) = terms_of(size)
    return monomial[0]


def test_planes_of_images_that_only_a_run_tells_have_a_radix():
    """As a transposed convolution writes them, by two: `[c, h, p, w, q]` of `2 H x 2 W`."""
    height, width = symbol("H"), symbol("W")
    c, h, w, p, q = (
        Axis(name, n) for name, n in zip("chwpq", (4, height, width, 2, 2), strict=True)
    )
    plane, line = 4 * height * width, 2 * width
    pixels = ((h, 2 * line), (p, line), (w, 2), (q, 1))
    assert _is_radix(plane, [Access("a", 0, ((c, plane), *pixels))])
    assert not _is_radix(plane, [Access("a", 1, ((c, plane), *pixels))])
    # Sizes that seem to be negative: those of what strides leave of an image without pixels.
    up, along = 2 * floordiv(height - 1, 2) + 2, 2 * floordiv(width - 1, 2) + 2
    rows, columns, b = Axis("r", up), Axis("s", along), Axis("b", symbol("B"))
    image = ((c, up * along), (rows, along), (columns, 1))
    assert _is_radix(4 * up * along, [Access("a", 0, ((b, 4 * up * along), *image))])
    assert not _is_radix(3 * up * along, [Access("a", 0, ((b, 3 * up * along), *image))])
    # Their padding, which whole rows and columns of zeros are stored to, and windows two apart.
    deep, wide = floordiv(height - 1, 2) + 3, floordiv(width - 1, 2) + 3
    image, edge = (c, deep * wide), Axis("e", wide)
    last = (deep - 1) * wide
    assert _is_radix(deep * wide, [Access("a", last, (image, (edge, 1)))])
    assert not _is_radix(deep * wide, [Access("a", last + 1, (image, (edge, 1)))])
    assert _is_radix(4 * deep * wide, [Access("a", last, (image, (edge, 1)))])
    moved = Layout(deep * wide, 4, 4).access(Access("a", last, (image, (edge, 1))))
    assert moved == Access("a", 4 * last, ((c, 1), (edge, 4)))
    y, x = (Axis(name, floordiv(n - 3, 2) + 1) for name, n in (("y", deep), ("x", wide)))
    taps = ((Axis("k", 3), wide), (Axis("l", 3), 1))
    windows = (image, (y, 2 * wide), (x, 2), *taps)
    assert _is_radix(deep * wide, [Access("a", 0, windows)])
    assert not _is_radix(deep * wide, [Access("a", wide, windows)])
    # The same where checks say how many windows there are, by another name: 8 times something.
    rows, columns = 8 * symbol("R") + 8, 8 * symbol("S") + 8
    y, x = Axis("y", rows), Axis("x", columns)
    windows = (image, (y, 2 * wide), (x, 2), *taps)
    lows = dict(zip((atom(deep - 2), atom(wide - 2)), (2 * rows - 1, 2 * columns - 1), strict=True))
    access = [Access("a", 0, windows)]
    assert _is_radix(deep * wide, access, lows)
    assert _is_radix(deep * wide, access, dict(reversed(lows.items())))
    assert not _is_radix(deep * wide, access)
    assert not _is_radix(deep * wide, access, {atom(deep - 2): 2 * rows - 1})
    assert not _is_radix(deep * wide, access, {**lows, atom(deep - 2): 2 * rows - 2})
    # Whole lines of every second row, and what is left over of a line that is cut into four.
    half, part = Axis("half", floordiv(height, 2)), Axis("part", floordiv(width, 4))
    assert _is_radix(plane, [Access("a", 0, ((c, plane), (half, 8 * width), (q, line), (w, 2)))])
    assert _is_radix(line, [Access("a", 0, ((h, line), (part, 8), (Axis("k", 8), 1)))])
    assert not _is_radix(line, [Access("a", 0, ((h, line), (part, 8), (Axis("k", 9), 1)))])


def test_a_reader_that_cannot_tell_channels_from_places_keeps_the_layout():
    check_unchanged(laid_out, convolution(whole=True))


def test_copies_are_left_to_their_reader():
    source = convolution()
    buffers = {**source.buffers, "a": replace(source.buffers["a"], is_copy=True)}
    check_unchanged(laid_out, replace(source, buffers=buffers))


def test_a_batch_stays_outside_and_padding_keeps_lines_apart():
    n, c, p = Axis("n", 2), Axis("c", 4), Axis("p", 6)
    moved = Layout(inner=6, count=4, step=5).access(Access("a", 24 + 7, ((n, 24), (c, 6), (p, 1))))
    assert moved == Access("a", 30 + 5 + 1, ((n, 30), (c, 1), (p, 5)))
    assert Layout(inner=6, count=4, step=5).size(48) == 60


def recurrence(steps: int) -> Program:
    """A state that decays by what a kernel computes for all steps, channels first."""
    c, n, m = (Axis(name, OUT) for name in "cnm")
    s, t = (Axis(name, steps) for name in "st")
    rate = op("mul", at("x", (c, steps), (s, 1)), at("x", (c, steps), (s, 1)))
    before = Kernel("before", (c, s), (), (store("a", rate, (c, steps), (s, 1)),))
    first = Kernel("first", (m,), (), (store("h", at("h0", (m, 1)), (m, 1)),))
    value = op("mul", at("a", (n, steps), (t, 1)), at("h", (n, 1)))
    stores = (store("g", value, (n, 1)), store("y", value, (t, OUT), (n, 1)))
    step = Loop(t, (Carry("h", "g"),), (Kernel("step", (n,), (), stores),))
    return program(
        {"x": (OUT, steps), "h0": (OUT,)},
        {"y": (steps, OUT)},
        (before, first, step),
        arena={"a": OUT * steps, "h": OUT, "g": OUT},
    )


def test_what_every_step_reads_counts_as_often():
    found = laid_out(recurrence(64))
    *_, loop = found.body
    assert isinstance(loop, Loop)
    (step,) = loop.body
    assert isinstance(step, Kernel)
    (rates,) = [load.access for load in step.loads() if load.access.buffer == "a"]
    assert rates.stride(step.axes[0]) == 1
    assert_same_results(recurrence(64), found)


def image_state(state: str = "h", read: str = "") -> Program:
    """An image that each step multiplies by weights, channels first, in the two halves of a state.

    state: the half that steps read: "y" is the output. read: how else a step reads the other half:
    "flat" does not tell channels from places, "masked" asks for each place.
    """
    size, steps = OUT * P, symbol("T")
    t, c, p, o, q, r, u, v, f = (
        Axis(name, extent)
        for name, extent in zip("tcpoqruvf", (steps, *(OUT, P) * 2, OUT, OUT, P, size), strict=True)
    )
    here, there = ((c, P), (p, 1)), ((u, P), (v, 1))
    begin = Kernel("begin", (c, p), (), (store(state, at("h0", *here), *here),))
    reduce = Reduce((r,), "sum", at(state, (r, P), (q, 1)), at("V", (r, OUT), (o, 1)))
    result = store("g", Reduced(0, "float32"), (o, P), (q, 1))
    step = Kernel("step", (o, q), (reduce,), (result,))
    left = at("g", (f, 1)) if read == "flat" else at("g", *here)
    if read == "masked":
        mask = op("lt", Index(p), constant(P - 1, "int64"))
        left = replace(left, mask=mask, other=constant(0.0, "float32"))
    axes, place = ((f,), ((f, 1),)) if read == "flat" else ((c, p), here)
    leave = Kernel("leave", axes, (), (store("z", op("neg", left), (t, size), *place),))
    end = Kernel("end", (u, v), (), (store("y", at(state, *there), *there),))
    loop = Loop(t, (Carry(state, "g"),), (step, leave) if read else (step,))
    return program(
        {"h0": (OUT, P), "x": (steps,)},
        {"y": (OUT, P), **({"z": (steps, OUT, P)} if read else {})},
        (begin, loop) if state == "y" else (begin, loop, end),
        {"V": np.random.default_rng(0).standard_normal((OUT, OUT)).astype("f")},
        {name: size for name in (state, "g") if name != "y"},
        ("T",),
    )


def test_both_halves_of_a_state_change_together():
    """Steps read and write channels beside each other, where the caller has them apart."""
    found = laid_out(image_state())
    places = [place.access for k in found.kernels() for place in (*k.loads(), *k.stores)]
    strides = {(a.buffer, a.stride(x)) for a in places for x, _ in a.terms if x.name in "cour"}
    halves = {stride for name, stride in strides if name in "hg"}
    assert halves == {1} and {("y", P), ("h0", P)} <= strides
    assert found.buffers["h"].size == found.buffers["g"].size
    assert _candidates(image_state(), MACHINE, _together(image_state()))["h"]
    assert_same_results(image_state(), found)


@pytest.mark.parametrize(("state", "read"), [("h", "flat"), ("h", "masked"), ("y", "")])
def test_a_state_of_which_one_half_cannot_change_keeps_its_layout(state: str, read: str):
    source = image_state(state, read)
    assert not _candidates(source, MACHINE, _together(source)).get(state)
    assert_same_results(source, laid_out(source))


def backwards(offset: int = P - 1) -> Program:
    """A convolution whose places are read from the last one on, as a sequence in reverse is."""
    c, k, p, r = Axis("c", OUT), Axis("k", IN), Axis("p", P), Axis("r", OUT)
    o, q = Axis("o", OUT), Axis("q", P)
    weights = at("W", (k, OUT), (c, 1)), at("V", (r, OUT), (o, 1))
    first = Reduce((k,), "sum", at("x", (k, P), (p, 1)), weights[0])
    second = Reduce((r,), "sum", at("a", (r, P), (q, -1), offset=offset), weights[1])
    value = Reduced(0, "float32")
    one = Kernel("one", (c, p), (first,), (store("a", value, (c, P), (p, 1)),))
    two = Kernel("two", (o, q), (second,), (store("y", value, (o, P), (q, 1)),))
    random = np.random.default_rng(0)
    shapes = {"W": (IN, OUT), "V": (OUT, OUT)}
    return program(
        {"x": (IN, P)},
        {"y": (OUT, P)},
        (one, two),
        {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()},
        {"a": OUT * P},
    )


def test_places_that_are_read_backwards_change_as_others_do():
    source = backwards()
    found = laid_out(source)
    reads = [load.access for kernel in found.kernels() for load in kernel.loads()]
    (read,) = (access for access in reads if access.buffer == "a")
    strides = {axis.name: stride for axis, stride in read.terms}
    step = found.buffers["a"].size // P
    assert strides == {"r": 1, "q": -step} and read.offset == (P - 1) * step
    assert_same_results(source, found)


def test_what_is_read_backwards_from_another_channel_on_stays():
    q, r = Axis("q", P), Axis("r", OUT)
    inside = Access("a", P - 1, ((r, P), (q, -1)))
    beyond = Access("a", P - 2, ((r, P), (q, -1)))
    assert _is_radix(P, [inside])
    assert not _is_radix(P, [beyond])


def test_parts_without_a_common_kernel_are_decided_upon_one_by_one():
    """Both ends differ in three buffers, of which one kernel meets two."""
    i, size = Axis("i", OUT), OUT
    pairs = [("x", "a"), ("a", "b"), ("b", "y"), ("x", "c"), ("c", "z")]
    kernels = tuple(
        Kernel(f"k{n}", (i,), (), (store(to, op("neg", at(of, (i, 1))), (i, 1)),))
        for n, (of, to) in enumerate(pairs)
    )
    arena = dict.fromkeys("abc", size)
    source = program({"x": (size,)}, {"y": (size,), "z": (size,)}, kernels, {}, arena)
    costs = _Costs(source, MACHINE, _together(source))
    change = Layout(4, 8, 8)
    parts = costs._apart({"a": change}, {"b": change, "c": change})
    assert sorted(map(sorted, parts)) == [["a", "b"], ["c"]]
    assert not [*costs._apart({"a": change}, {"a": change})]


def test_halves_of_a_state_without_a_common_kernel_are_one_part():
    i, t = Axis("i", OUT), Axis("t", symbol("T"))
    pairs = [("x", "s"), ("s", "m"), ("m", "n"), ("s", "y")]
    begin, read, write, end = (
        Kernel(f"k{n}", (i,), (), (store(to, op("neg", at(of, (i, 1))), (i, 1)),))
        for n, (of, to) in enumerate(pairs)
    )
    loop = Loop(t, (Carry("s", "n"),), (read, write))
    arena = dict.fromkeys("smn", OUT)
    kernels = (begin, loop, end)
    source = program({"x": (OUT,), "z": (symbol("T"),)}, {"y": (OUT,)}, kernels, {}, arena, ("T",))
    change = Layout(4, 8, 8)
    parts = _Costs(source, MACHINE, _together(source))._apart({}, {"s": change, "n": change})
    assert [*parts] == [{"s", "n"}]
