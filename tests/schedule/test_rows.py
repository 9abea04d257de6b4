from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from ostinato.machine.record import Machine
from ostinato.program.expr import Access, Axis, Reduced, op
from ostinato.program.kernel import Kernel, Reduce, map_loads
from ostinato.program.nodes import Loop, Program
from ostinato.program.verify import verify
from ostinato.schedule.rows import by_rows as by_rows_for
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

by_rows = partial(by_rows_for, machine=Machine(64, 32))


def shares(rows, length: int, chains: int = 32) -> Program:
    """Every element's share of its row: `e = exp(x); s = sum_j e; y = e / s`."""
    i, j, a, r, u, v = (Axis(name, rows if name in "iau" else length) for name in "ijaruv")
    powers = op("exp", at("x", (i, length), (j, 1)))
    total = Reduce((r,), "sum", at("e", (a, length), (r, 1)), None, chains)
    share = op("div", at("e", (u, length), (v, 1)), at("s", (u, 1)))
    kernels = (
        Kernel("powers", (i, j), (), (store("e", powers, (i, length), (j, 1)),)),
        Kernel("total", (a,), (total,), (store("s", Reduced(0, "float32"), (a, 1)),)),
        Kernel("share", (u, v), (), (store("y", share, (u, length), (v, 1)),)),
    )
    return program(
        {"x": (rows, length)},
        {"y": (rows, length)},
        kernels,
        arena={"e": rows * length, "s": rows},
        symbols=() if isinstance(rows, int) else ("N",),
    )


def shares_beside_each_other(count: int, length: int) -> Program:
    """`count` programs of `shares`, over the same rows."""
    one, n = shares(symbol("N"), length), symbol("N")
    kernels = []
    for number in range(count):

        def own(buffer: str, number: int = number) -> str:
            return f"{buffer}{number}"

        for kernel in one.body:
            assert isinstance(kernel, Kernel)
            kernels.append(with_buffers(kernel, own))
    return program(
        {f"x{number}": (n, length) for number in range(count)},
        {f"y{number}": (n, length) for number in range(count)},
        kernels,
        arena={f"{b}{i}": size for i in range(count) for b, size in (("e", n * length), ("s", n))},
        symbols=("N",),
    )


def with_buffers(kernel: Kernel, renamed: Callable[[str], str]) -> Kernel:
    def access(access: Access) -> Access:
        return replace(access, buffer=renamed(access.buffer))

    moved = map_loads(kernel, lambda load: replace(load, access=access(load.access)))
    stores = tuple(replace(store, access=access(store.access)) for store in moved.stores)
    return replace(moved, name=renamed(kernel.name), stores=stores)


def test_many_kernels_of_few_elements_each_are_not_called_for_each_row():
    few, many = shares_beside_each_other(2, 150), shares_beside_each_other(12, 25)
    (loop,) = by_rows(few).body
    assert isinstance(loop, Loop)
    # As many bytes of a row, handed on by six times as many kernels.
    check_unchanged(by_rows, many)


@pytest.mark.parametrize(
    ("rows", "length", "block"),
    [(40, 700, 4), (37, 700, 1), (400, 40, 50), (12, 4000, 1), (symbol("N"), 300, 1)],
    ids=str,
)
def test_kernels_over_the_same_rows_run_block_by_block(rows, length, block):
    source = shares(rows, length)
    changed = by_rows(source)
    verify(changed)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and len(loop.body) == 3
    assert loop.axis.extent * block == rows
    assert changed.buffers["e"].size == block * length
    assert changed.buffers["s"].size == block
    if length < 1000:
        assert_same_results(source, changed)


@pytest.mark.parametrize(
    "source",
    [
        shares(10, 100),  # all of it fits the cache
        shares(symbol("N"), 40),  # calls would cost more than the rows
        shares(40, 700, chains=1),  # lanes may run along rows
    ],
    ids=["small", "short", "in order"],
)
def test_what_gains_nothing_stays(source):
    check_unchanged(by_rows, source)


def test_rows_of_other_places_are_no_reason_to_loop():
    source = shares(40, 700)
    powers, total, share = source.body
    assert isinstance(share, Kernel)
    (one,) = share.stores
    u, v = share.axes
    # Every row reads the next one's sum.
    moved = op("div", at("e", (u, 700), (v, 1)), at("s", (u, 1), offset=1))
    share = replace(share, axes=(replace(u, extent=39), v), stores=(replace(one, value=moved),))
    changed = by_rows(source.with_body((powers, total, share)))
    assert changed.body[-1] == share


def test_buffers_that_others_read_keep_their_rows():
    source = shares(40, 700)
    # It runs over fewer points than there are rows, so it stands behind the loop.
    a = Axis("z", 39)
    copy = Kernel("copy", (a,), (), (store("sums", at("s", (a, 1)), (a, 1)),))
    more = program(
        {"x": (40, 700)},
        {"y": (40, 700), "sums": (39,)},
        (*source.body, copy),
        arena={"e": 28000, "s": 40},
    )
    changed = by_rows(more)
    verify(changed)
    assert isinstance(changed.body[0], Loop) and changed.body[1] == copy
    assert (changed.buffers["s"].size, changed.buffers["e"].size) == (40, 4 * 700)
    assert_same_results(more, changed)


def test_what_is_stored_the_other_way_round_stays_outside():
    """Within a loop over rows its lanes would scatter."""
    source = shares(40, 700)
    powers, total, share = source.body
    assert isinstance(share, Kernel)
    u, v = share.axes
    turned = replace(share.stores[0], access=at("y", (u, 1), (v, 40)).access)
    changed = by_rows(source.with_body((powers, total, replace(share, stores=(turned,)))))
    loop, last = changed.body
    assert isinstance(loop, Loop) and len(loop.body) == 2
    assert isinstance(last, Kernel) and last.axes == (u, v)
    verify(changed)


def means_of_channels(channels_last: bool) -> Program:
    """Windows of 3 along each of 40 channels of 700 places, and the mean of what they give."""
    channels, places = 40, 700
    c, i, k, a, r = (Axis(n, e) for n, e in zip("cikar", (40, 700, 3, 40, 700), strict=True))
    plane, pixel = (1, channels) if channels_last else (places + 2, 1)
    window = at("x", (c, plane), (i, pixel), (k, pixel))
    weighted = Reduce((k,), "sum", window, at("w", (c, 3), (k, 1)))
    total = Reduce((r,), "sum", at("e", (a, places), (r, 1)), None, 32)
    kept = store("e", Reduced(0, "float32"), (c, places), (i, 1))
    kernels = (
        Kernel("windows", (c, i), (weighted,), (kept,)),
        Kernel("total", (a,), (total,), (store("y", Reduced(0, "float32"), (a, 1)),)),
    )
    given = {"x": (channels, places + 2), "w": (channels, 3)}
    return program(given, {"y": (channels,)}, kernels, arena={"e": channels * places})


@pytest.mark.parametrize("channels_last", [False, True])
def test_rows_that_are_neighbours_in_memory_stay_together(channels_last):
    """The lanes of one row would gather what rows have beside each other."""
    source = means_of_channels(channels_last)
    changed = by_rows(source)
    assert any(isinstance(statement, Loop) for statement in changed.body) is not channels_last
    assert_same_results(source, changed)


def windows(images: int, lines: int) -> Program:
    """Maxima of three neighbours along lines, then along columns, of which all lines are rows."""
    columns = 100
    c, i, j, r = Axis("c", images), Axis("i", lines), Axis("j", columns), Axis("r", 3)
    step = (lines + 2) * columns
    lower = Reduce((r,), "max", at("x", (c, step), (i, columns), (r, columns), (j, 1)))
    within = ((c, lines * columns), (i, columns), (j, 1))
    first = Kernel("first", (c, i, j), (lower,), (store("t", Reduced(0, "float32"), *within),))
    a, v, k = Axis("a", images * lines), Axis("v", columns - 2), Axis("k", 3)
    along = Reduce((k,), "max", at("t", (a, columns), (v, 1), (k, 1)))
    within = ((a, columns - 2), (v, 1))
    second = Kernel("second", (a, v), (along,), (store("y", Reduced(0, "float32"), *within),))
    return program(
        {"x": (images, lines + 2, columns)},
        {"y": (images, lines, columns - 2)},
        (first, second),
        arena={"t": images * lines * columns},
    )


def test_rows_of_an_image_stay_together():
    source = windows(12, 20)
    changed = by_rows(source)
    verify(changed)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.axis.extent == 12 and len(loop.body) == 2
    assert changed.buffers["t"].size == 20 * 100
    assert_same_results(source, changed)


def test_rows_that_gain_nothing_stay_as_they_are():
    check_unchanged(by_rows, windows(2, 4))


def test_what_does_not_depend_on_rows_runs_before_them():
    source = windows(12, 20)
    first, second = source.body
    z = Axis("z", 7)
    other = Kernel("other", (z,), (), (store("z", at("x", (z, 1)), (z, 1)),))
    more = program(
        {"x": (12, 22, 100)},
        {"y": (12, 20, 98), "z": (7,)},
        (first, other, second),
        arena={"t": 24000},
    )
    changed = by_rows(more)
    verify(changed)
    before, loop = changed.body
    assert before == other and isinstance(loop, Loop)
    assert_same_results(more, changed)
    # Where no kernel behind it joins the others, all stay in their order.
    assert by_rows(more.with_body((first, other))).body == (first, other)


def test_kernels_behind_others_of_fewer_rows_have_loops_of_their_own():
    source = shares(40, 700)
    i = Axis("first i", 60)
    first = Kernel("first", (i,), (), (store("z", op("neg", at("x", (i, 1))), (i, 1)),))
    more = program(
        {"x": (40, 700)},
        {"y": (40, 700), "z": (60,)},
        (first, *source.body),
        arena={"e": 28000, "s": 40},
    )
    changed = by_rows(more)
    verify(changed)
    assert [type(statement) for statement in changed.body] == [Kernel, Loop]


@pytest.mark.parametrize("reads", ["t", "y"])
def test_what_depends_on_rows_stays_behind_them(reads):
    source = windows(12, 20)
    first, second = source.body
    z = Axis("z", 7)
    other = Kernel("other", (z,), (), (store("z", at(reads, (z, 1)), (z, 1)),))
    body = (first, other, second) if reads == "t" else (first, second, other)
    more = program({"x": (12, 22, 100)}, {"y": (12, 20, 98), "z": (7,)}, body, arena={"t": 24000})
    changed = by_rows(more)
    verify(changed)
    names = [k.name for k in changed.kernels()]
    assert names.index("other") > names.index("first" if reads == "t" else "second")
    assert_same_results(more, changed)


def test_many_kernels_that_share_nothing_are_looked_at_in_turn():
    """However many there are: nothing recurses once for each."""
    rows = [n for n in range(1009, 20000) if all(n % k for k in range(2, 142))][:1100]
    axes = {f"k{n}": Axis(f"i{n}", n) for n in rows}
    kernels = tuple(
        Kernel(name, (i,), (), (store(name, at("x", (i, 1)), (i, 1)),)) for name, i in axes.items()
    )
    outputs = {name: (i.extent,) for name, i in axes.items()}
    check_unchanged(by_rows, program({"x": (20000,)}, outputs, kernels))
