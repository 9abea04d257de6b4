from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import pytest

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Load, Reduced, op
from ostinato.program.kernel import Kernel, Reduce, map_loads
from ostinato.program.nodes import Branch, Loop, Program, statements
from ostinato.program.verify import verify
from ostinato.schedule import blocks
from ostinato.schedule.blocks import by_blocks as by_blocks_for
from ostinato.sizes.dims import Size, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, pointwise, product

# A second-level cache that has room for little more than the fewest rows of a block.
by_blocks = partial(by_blocks_for, machine=Machine(64, 32, second_level_bytes=4096))
N = symbol("N")


def attention(rows, columns, heads=2, merged=False) -> Program:
    """Scores, their exponentials and row sums, and products of their quotients.

    merged: whether the middle kernels know heads and rows as one axis.
    """
    depth = 2
    h, i, j, k = Axis("h", heads), Axis("i", rows), Axis("j", columns), Axis("k", depth)
    a, b, c = Axis("a", heads * rows), Axis("b", columns), Axis("c", columns)
    o, p, q, d = Axis("o", heads), Axis("p", rows), Axis("q", columns), Axis("d", depth)
    at_q = at("q", (h, depth * rows), (i, depth), (k, 1))
    at_k = at("k", (h, depth * columns), (j, depth), (k, 1))
    powers = op("exp", at("s", (a, columns), (b, 1)))
    total = Reduce((c,), "sum", at("e", (a, columns), (c, 1)), None, 4)
    weight = op(
        "div", at("e", (o, rows * columns), (p, columns), (q, 1)), at("t", (o, rows), (p, 1))
    )
    kernels = (
        product("scores", at_q, at_k, "s", k, h, i, j),
        Kernel("powers", (a, b), (), (store("e", powers, (a, columns), (b, 1)),)),
        Kernel("total", (a,), (total,), (store("t", Reduced(0, "float32"), (a, 1)),)),
        product("mix", weight, at("v", (o, depth * columns), (q, depth), (d, 1)), "y", q, o, p, d),
    )
    return program(
        {
            "q": (heads, rows, depth),
            "k": (heads, columns, depth),
            "v": (heads, columns, depth),
        },
        {"y": (heads, rows, depth)},
        kernels,
        arena={"s": heads * rows * columns, "e": heads * rows * columns, "t": heads * rows},
        symbols=tuple(str(n) for n in (rows, heads) if not isinstance(n, int)),
    )


def pieces_of(heads: Loop) -> list[tuple[Size, Size]]:
    """How many blocks of how many rows; a single block stands there without a loop."""
    found: list[tuple[Size, Size]] = []
    for statement in heads.body:
        kernel = statement.body[0] if isinstance(statement, Loop) else statement
        assert isinstance(kernel, Kernel)
        if kernel.name.startswith("scores."):
            count = statement.axis.extent if isinstance(statement, Loop) else 1
            found.append((count, kernel.axes[0].extent))
    return found


@pytest.mark.parametrize(
    ("rows", "pieces"), [(48, [(2, 24)]), (40, [(2, 20)]), (53, [(2, 24), (1, 5)]), (20, [(1, 20)])]
)
def test_heads_run_one_after_the_other_a_block_of_rows_at_a_time(rows, pieces):
    source = attention(rows, 16)
    changed = by_blocks(source)
    (heads,) = changed.body
    assert isinstance(heads, Loop) and heads.axis.extent == 2
    assert pieces_of(heads) == pieces
    block = max(n for _, n in pieces)
    assert {n: changed.buffers[f"{n}.block"].size for n in "set"} == {
        "s": 16 * block,
        "e": 16 * block,
        "t": block,
    }
    assert not {"s", "e", "t"} & changed.buffers.keys()
    assert_same_results(source, changed)


def pooled(lines: int, taken: int, columns: int = 12, channels: int = 16) -> Program:
    """Products of each pixel, and maxima of `taken` lines at a time; what is left is dropped."""
    i, j, c, k = Axis("i", lines), Axis("j", columns), Axis("c", channels), Axis("k", 2)
    p, q, d, r = (
        Axis("p", lines // taken),
        Axis("q", columns),
        Axis("d", channels),
        Axis("r", taken),
    )
    line = columns * channels
    pixel = at("x", (i, 2 * columns), (j, 2), (k, 1))
    weights = at("w", (k, channels), (c, 1))
    found = at("s", (p, taken * line), (r, line), (q, channels), (d, 1))
    highest = store("y", Reduced(0, "float32"), (p, line), (q, channels), (d, 1))
    kernels = (
        product("conv", pixel, weights, "s", k, i, j, c),
        Kernel("pool", (p, q, d), (Reduce((r,), "max", found, None),), (highest,)),
    )
    return program(
        {"x": (lines, columns, 2), "w": (2, channels)},
        {"y": (lines // taken, columns, channels)},
        kernels,
        arena={"s": lines * line},
    )


@pytest.mark.parametrize("taken", [2, 3])
def test_lines_run_a_block_at_a_time_with_the_pool_that_reads_them(taken):
    """They are as near as those of one image: a block's lines and columns are one axis again."""
    source = pooled(12, taken)
    changed = by_blocks_for(source, Machine(64, 32, second_level_bytes=8192))
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.axis.extent == 12 // taken
    conv, pool = loop.body
    assert isinstance(conv, Kernel) and isinstance(pool, Kernel)
    assert [axis.extent for axis in conv.axes] == [taken * 12, 16]
    assert changed.buffers["s.block"].size == taken * 12 * 16 and "s" not in changed.buffers
    assert_same_results(source, changed)


def transformed(lines: int, columns: int = 32, channels: int = 16) -> Program:
    """Two tensors of a line beside each other, the products of each, and their sums."""
    i, j, c = Axis("i", lines), Axis("j", columns), Axis("c", channels)
    width = columns * channels
    pixel = at("x", (i, width), (j, channels), (c, 1))
    places = ((i, 2 * width), (j, channels), (c, 1))
    values = (op("add", pixel, pixel), op("mul", pixel, pixel))
    stores = tuple(store("v", v, *places, offset=n * width) for n, v in enumerate(values))
    p, a, b, d, k = (
        Axis("p", 2),
        *(Axis(n, e.extent) for n, e in zip("abd", (i, j, c), strict=True)),
        Axis("k", channels),
    )
    left = at("v", (p, width), (a, 2 * width), (b, channels), (k, 1))
    right = at("u", (p, channels * channels), (k, channels), (d, 1))
    target = store("m", Reduced(0, "float32"), (p, width), (a, 2 * width), (b, channels), (d, 1))
    y, z, e = Axis("y", lines), Axis("z", columns), Axis("e", channels)
    parts = [at("m", (y, 2 * width), (z, channels), (e, 1), offset=n * width) for n in range(2)]
    total = store("y", op("add", *parts), (y, width), (z, channels), (e, 1))
    kernels = (
        Kernel("elements", (i, j, c), (), stores),
        Kernel("products", (p, a, b, d), (Reduce((k,), "sum", left, right),), (target,)),
        Kernel("results", (y, z, e), (), (total,)),
    )
    return program(
        {"x": (lines, columns, channels), "u": (2, channels, channels)},
        {"y": (lines, columns, channels)},
        kernels,
        arena={name: 2 * lines * width for name in "vm"},
    )


def test_a_line_is_enough_where_its_points_fill_tiles():
    """It runs alone, though all that is handed on of it exceeds the cache."""
    source = transformed(6)
    changed = by_blocks(source)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.axis.extent == 6
    assert [kernel.name for kernel in changed.kernels()] == [
        "elements.block",
        "products.block",
        "results.block",
    ]
    assert {changed.buffers[f"{name}.block"].size for name in "vm"} == {2 * 32 * 16}
    assert_same_results(source, changed)


def test_lines_that_no_pool_reads_leave_kernels_as_they_are():
    machine = Machine(64, 32, second_level_bytes=8192)
    check_unchanged(lambda source: by_blocks_for(source, machine), pooled(13, 2))


def test_loops_whose_steps_are_independent_are_entered():
    source = attention(48, 16)
    repeated = source.with_body((Loop(Axis("n", 3), (), source.body, is_independent=True),))
    changed = by_blocks(repeated)
    (images,) = changed.body
    assert isinstance(images, Loop) and images.body == by_blocks(source).body
    assert_same_results(repeated, changed)


def test_what_each_step_of_a_loop_around_reads_counts_once():
    """Keys of one image: those of all would be more than blocks save."""
    n, rows, columns, depth = Axis("n", 64), 48, 16, 2
    source = attention(rows, columns, heads=1)

    def of_image(load: Load) -> Load:
        access = load.access
        if access.buffer not in "qkv":
            return load
        size = (rows if access.buffer == "q" else columns) * depth
        return replace(load, access=replace(access, terms=((n, size), *access.terms)))

    kernels = [map_loads(kernel, of_image) for kernel in source.kernels()]
    last = kernels[-1]
    (y,) = last.stores
    apart = replace(y.access, terms=((n, rows * depth), *y.access.terms))
    kernels[-1] = replace(last, stores=(replace(y, access=apart),))
    images = program(
        {"q": (64, rows, depth), "k": (64, columns, depth), "v": (64, columns, depth)},
        {"y": (64, rows, depth)},
        (Loop(n, (), tuple(kernels), is_independent=True),),
        arena={name: source.buffers[name].size for name in "set"},
    )
    changed = by_blocks(images)
    (loop,) = changed.body
    assert isinstance(loop, Loop)
    (heads,) = loop.body
    assert isinstance(heads, Loop) and pieces_of(heads) == [(2, 24)]
    assert_same_results(images, changed)


def test_the_run_decides_where_only_it_knows_the_sizes():
    source = attention(N, 16)
    changed = by_blocks(source)
    decision, branch = changed.body
    assert isinstance(decision, Kernel) and isinstance(branch, Branch)
    assert branch.orelse == source.body
    (heads,) = branch.then
    full, rest = pieces_of(heads)
    assert (str(full[0]), full[1]) == ("(N // 24)", 24) and rest[0] == 1
    assert_same_results(source, changed)


def test_lines_of_images_of_any_size_have_no_blocks():
    source = attention(N, 16, heads=symbol("H"))
    assert by_blocks(source).body == source.body


def test_what_does_not_depend_on_a_block_runs_before():
    source = attention(48, 16)
    first, *others = source.body
    z = Axis("z", 2 * 16 * 2)
    double = pointwise("double", op("add", at("v", (z, 1)), at("v", (z, 1))), "w", z)
    mix = others[-1]
    assert isinstance(mix, Kernel)
    (reduce,) = mix.reductions
    o, q, d = mix.axes[0], reduce.axes[0], mix.axes[2]
    factor = at("w", (o, 32), (q, 2), (d, 1))
    mix = replace(mix, reductions=(replace(reduce, factor=factor),))
    arena = {"s": 2 * 48 * 16, "e": 2 * 48 * 16, "t": 2 * 48, "w": 64}
    source = program(
        {i.name: i.shape for i in source.inputs},
        {i.name: i.shape for i in source.outputs},
        (first, *others[:-1], double, mix),
        arena=arena,
    )
    changed = by_blocks(source)
    assert changed.body[0] == double and isinstance(changed.body[1], Loop)
    assert_same_results(source, changed)


def other_rows() -> Program:
    """Each row of the last kernel reads the sum of the row behind it."""
    source = attention(48, 16)
    mix = source.body[-1]
    assert isinstance(mix, Kernel)
    (reduce,) = mix.reductions
    o, p, _ = mix.axes
    weight = op("div", reduce.expr.args[0], at("t", (o, 48), (p, -1), offset=47))
    mix = replace(mix, reductions=(replace(reduce, expr=weight),))
    return source.with_body((*source.body[:-1], mix))


def test_rows_that_need_others_wait_for_them():
    source = other_rows()
    changed = by_blocks(source)
    verify(changed)
    kernels = [s.name for s in statements(changed.body) if isinstance(s, Kernel)]
    assert "mix" in kernels and "mix.block" not in kernels
    assert_same_results(source, changed)


@pytest.mark.parametrize(
    "source",
    [attention(12, 10), attention(48, 16, heads=1).with_body(attention(48, 16, heads=1).body[:1])],
    ids=["small", "nobody reads it"],
)
def test_what_gains_nothing_stays(source):
    check_unchanged(by_blocks, source)


def test_weights_that_exceed_what_is_saved_are_read_once():
    """Two products with weights: every block would read both again."""
    n, width, hidden = 96, 64, 16
    i, j, k = Axis("i", n), Axis("j", hidden), Axis("k", width)
    p, q, d = Axis("p", n), Axis("q", hidden), Axis("d", width)
    kernels = (
        product("up", at("x", (i, width), (k, 1)), at("u", (k, hidden), (j, 1)), "a", k, i, j),
        product("down", at("a", (p, hidden), (q, 1)), at("w", (q, width), (d, 1)), "y", q, p, d),
    )
    source = program(
        {"x": (n, width), "u": (width, hidden), "w": (hidden, width)},
        {"y": (n, width)},
        kernels,
        arena={"a": n * hidden},
    )
    check_unchanged(by_blocks, source)


def test_what_pixels_share_is_not_read_again_for_each():
    """Each of four phases of a pixel has weights of its own, which all pixels share."""
    pixels, phases, width = 48, 4, 16
    i, p, j, k = Axis("i", pixels), Axis("p", phases), Axis("j", width), Axis("k", width)
    r, s, c = Axis("r", pixels), Axis("s", phases), Axis("c", width)
    x, w = at("x", (i, width), (k, 1)), at("w", (p, width * width), (k, width), (j, 1))
    there = at("a", (r, phases * width), (s, width), (c, 1))
    last = pointwise("last", op("neg", there), "y", r, s, c)
    source = program(
        {"x": (pixels, width), "w": (phases, width, width)},
        {"y": (pixels, phases, width)},
        (product("first", x, w, "a", k, i, p, j), last),
        arena={"a": pixels * phases * width},
    )
    changed = by_blocks_for(source, Machine(64, 32, second_level_bytes=8192))
    (loop,) = changed.body
    assert isinstance(loop, Loop) and isinstance(loop.body[0], Kernel)
    assert [axis.extent for axis in loop.body[0].axes] == [24, phases, width]
    assert_same_results(source, changed)


@pytest.mark.parametrize("pixels", [2, 16])
def test_blocks_write_more_than_quarters_of_cache_lines(pixels):
    """A transposition behind a product makes neighbours of pixels, which are rows of it."""
    lines, width, depth = 768 // pixels, 64, 8
    y, x, j, k = Axis("y", lines), Axis("x", pixels), Axis("j", width), Axis("k", depth)
    r, s, c = Axis("r", lines), Axis("s", pixels), Axis("c", width)
    image = at("p", (y, pixels * depth), (x, depth), (k, 1))
    there = op("neg", at("a", (r, pixels * width), (s, width), (c, 1)))
    turned = store("out", there, (c, lines * pixels), (r, pixels), (s, 1))
    source = program(
        {"p": (lines, pixels, depth), "w": (depth, width)},
        {"out": (width, lines, pixels)},
        (
            product("first", image, at("w", (k, width), (j, 1)), "a", k, y, x, j),
            Kernel("turned", (c, r, s), (), (turned,)),
        ),
        arena={"a": lines * pixels * width},
    )
    changed = by_blocks_for(source, Machine(64, 32, second_level_bytes=8192))
    last = [k for k in statements(changed.body) if isinstance(k, Kernel)][-1]
    assert prod(axis.extent for axis in last.axes if axis != c) >= 16
    assert_same_results(source, changed)


@pytest.mark.parametrize(("rows", "tried"), [(N, 0), (64, 1)])
def test_long_stacks_are_looked_at_once(monkeypatch, rows, tried):
    """A layer looks at each one behind it at most twice, and at none if it cannot pay."""
    calls: list[Kernel] = []
    groups = blocks._Run.groups

    def counted(self, kernel, buffers):
        calls.append(kernel)
        return groups(self, kernel, buffers)

    monkeypatch.setattr(blocks._Run, "groups", counted)
    source, count = layers(rows, 20), 20
    assert by_blocks(source) is not None
    assert count * tried <= len(calls) <= count * (count + 2) * tried


def layers(rows, count) -> Program:
    """Dense layers of 64 units."""
    kernels = []
    for number in range(count):
        i, j, k = Axis("i", rows), Axis("j", 64), Axis("k", 64)
        left, right = at(f"h{number}", (i, 64), (k, 1)), at(f"w{number}", (k, 64), (j, 1))
        kernels.append(product(f"p{number}", left, right, f"h{number + 1}", k, i, j))
    return program(
        {"h0": (rows, 64), **{f"w{number}": (64, 64) for number in range(count)}},
        {f"h{count}": (rows, 64)},
        tuple(kernels),
        arena={f"h{number}": rows * 64 for number in range(1, count)},
        symbols=tuple(str(n) for n in (rows,) if not isinstance(n, int)),
    )


def test_long_rows_of_a_block_begin_with_a_cache_line():
    source = attention(40, 21)
    changed = by_blocks_for(source, Machine(64, 32, second_level_bytes=6000))
    sizes = {name: changed.buffers[f"{name}.block"].size for name in "set"}
    assert sizes == {"s": 20 * 32, "e": 20 * 32, "t": 20}
    verify(changed)
    assert_same_results(source, changed)
