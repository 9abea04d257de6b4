from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Loop, Program
from ostinato.program.verify import verify
from ostinato.schedule.images import by_images as by_images_for
from ostinato.sizes.dims import Size, floordiv, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged

MACHINE = Machine(64, 32, second_level_bytes=1 << 17)
# One of caches that a few channels of a typical length exceed.
SMALL = Machine(64, 32, first_level_bytes=1 << 12, second_level_bytes=1 << 13)
by_images = partial(by_images_for, machine=MACHINE)


def layers(images: Size, channels: int = 8, pixels: int = 1024) -> Program:
    """A product over channels, and what is left of it between two neighbours, a row at a time."""
    n, j, p, c = Axis("n", images), Axis("j", channels), Axis("p", pixels), Axis("c", channels)
    plane, image = pixels, channels * pixels
    product = Reduce(
        (c,), "sum", at("x", (n, image), (c, plane), (p, 1)), at("W", (j, channels), (c, 1))
    )
    into = store("t", Reduced(0, "float32"), (n, image), (j, plane), (p, 1))
    first = Kernel("first", (n, j, p), (product,), (into,))
    # The rows of all images are one axis.
    a, q = Axis("a", images * channels), Axis("q", pixels - 1)
    difference = op("sub", at("t", (a, plane), (q, 1), offset=1), at("t", (a, plane), (q, 1)))
    second = Kernel("second", (a, q), (), (store("y", difference, (a, pixels - 1), (q, 1)),))
    return program(
        {"x": (images, channels, pixels)},
        {"y": (images, channels, pixels - 1)},
        (first, second),
        {"W": np.linspace(-1, 1, channels**2, dtype=np.float32).reshape(channels, channels)},
        arena={"t": images * image},
        symbols=() if isinstance(images, int) else ("N",),
    )


@pytest.mark.parametrize("images", [4, 7, symbol("N")], ids=str)
def test_kernels_over_a_batch_run_image_by_image(images):
    source = layers(images, pixels=2048)
    changed = by_images(source)
    verify(changed)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.axis.extent == images and loop.is_independent
    assert [kernel.name for kernel in changed.kernels()] == ["first", "second"]
    assert changed.buffers["t"].size == 8 * 2048
    assert_same_results(source, changed)


def test_images_of_any_size_are_large_where_short_ones_exceed_the_cache():
    images, pixels, channels = symbol("N"), symbol("P"), 64
    n, p = Axis("n", images), Axis("p", pixels)
    j, c = Axis("j", channels), Axis("c", channels)
    places = ((n, channels * pixels), (j, pixels), (p, 1))
    x = at("x", (n, channels * pixels), (c, pixels), (p, 1))
    reduce = Reduce((c,), "sum", x, at("W", (j, channels), (c, 1)))
    first = Kernel("first", (n, j, p), (reduce,), (store("t", Reduced(0, "float32"), *places),))
    second = Kernel("second", (n, j, p), (), (store("y", op("neg", at("t", *places)), *places),))
    shape = (images, channels, pixels)
    weights = {"W": np.linspace(-1, 1, channels**2, dtype=np.float32).reshape(channels, channels)}
    size = {"t": channels * images * pixels}
    source = program(
        {"x": shape}, {"y": shape}, (first, second), weights, arena=size, symbols=("N", "P")
    )
    changed = by_images_for(source, SMALL)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.axis.extent == images
    assert changed.buffers["t"].size == channels * pixels
    assert_same_results(source, changed)
    check_unchanged(by_images, source)


def test_windows_that_step_by_two_stay_in_an_image_of_any_size():
    images, pixels, channels = symbol("N"), symbol("P"), 64
    padded, half = pixels + 2, floordiv(pixels + 1, 2)
    n, p, q = Axis("n", images), Axis("p", padded), Axis("q", half)
    j, r = Axis("j", channels), Axis("r", 3)
    x = at("x", (n, channels * padded), (j, padded), (p, 1))
    into = store("t", op("neg", x), (n, channels * padded), (j, padded), (p, 1))
    window = at("t", (n, channels * padded), (j, padded), (q, 2), (r, 1))
    weights = at("W", (j, 3), (r, 1))
    y = store("y", Reduced(0, "float32"), (n, channels * half), (j, half), (q, 1))
    first = Kernel("first", (n, j, p), (), (into,))
    second = Kernel("second", (n, j, q), (Reduce((r,), "sum", window, weights),), (y,))
    source = program(
        {"x": (images, channels, padded), "z": (pixels,)},
        {"y": (images, channels, half)},
        (first, second),
        {"W": np.ones((channels, 3), np.float32)},
        arena={"t": images * channels * padded},
        symbols=("N", "P"),
    )
    (loop,) = by_images_for(source, SMALL).body
    assert isinstance(loop, Loop) and [k.name for k in loop.body] == ["first", "second"]
    assert_same_results(source, by_images_for(source, SMALL))


def test_what_a_batch_needs_the_cache_holds_stays():
    check_unchanged(by_images, layers(2))
    check_unchanged(by_images, layers(64, channels=2, pixels=64))
    check_unchanged(by_images, layers(1, pixels=65536))


def test_weights_that_are_more_than_an_image_are_read_once():
    # 256 KB of weights, and 2 x 64 KB of an image.
    check_unchanged(by_images, layers(40, channels=256, pixels=64))
    assert by_images(layers(40, channels=64, pixels=256)).body != layers(40, 64, 256).body


def test_elements_of_another_image_are_not_met():
    source = layers(4, pixels=2048)
    first, second = source.body
    assert isinstance(second, Kernel)
    # The last point reads the first one of the next row, that of another image in the end.
    longer = Axis("q", 2048)
    fewer = Axis("a", 31)
    moved = op("neg", at("t", (fewer, 2048), (longer, 1), offset=1))
    beyond = Kernel("second", (fewer, longer), (), (store("z", moved, (fewer, 2048), (longer, 1)),))
    more = program(
        {"x": (4, 8, 2048)},
        {"y": (4, 8, 2047), "z": (31, 2048)},
        (first, beyond, replace(second, name="third")),
        {"W": source.constants["W"]},
        arena={"t": 4 * 8 * 2048},
    )
    changed = by_images(more)
    verify(changed)
    assert beyond in changed.body
    assert_same_results(more, changed)


def test_what_depends_on_no_image_runs_before_the_loop():
    source = layers(4, pixels=2048)
    first, second = source.body
    z = Axis("z", 64)
    other = Kernel("other", (z,), (), (store("z", at("W", (z, 1)), (z, 1)),))
    more = program(
        {"x": (4, 8, 2048)},
        {"y": (4, 8, 2047), "z": (64,)},
        (first, other, second),
        {"W": source.constants["W"]},
        arena={"t": 4 * 8 * 2048},
    )
    changed = by_images(more)
    verify(changed)
    assert changed.body[0] == other and isinstance(changed.body[1], Loop)
    assert_same_results(more, changed)


def channels_last(images: int, pixels: int, channels: int) -> Program:
    """Products whose pixels of all images are one axis, behind that of the channels."""
    j, p, c = Axis("j", channels), Axis("p", images * pixels), Axis("c", channels)

    def product(name: str, source: str, target: str) -> Kernel:
        weights = at("W", (j, channels), (c, 1))
        reduce = Reduce((c,), "sum", at(source, (p, channels), (c, 1)), weights)
        into = store(target, Reduced(0, "float32"), (p, channels), (j, 1))
        return Kernel(name, (j, p), (reduce,), (into,))

    return program(
        {"x": (images, pixels, channels)},
        {"y": (images, pixels, channels)},
        (product("first", "x", "t"), product("second", "t", "y")),
        {"W": np.linspace(-1, 1, channels**2, dtype=np.float32).reshape(channels, channels)},
        arena={"t": images * pixels * channels},
    )


def test_images_are_found_wherever_their_axis_stands():
    source = channels_last(4, 2048, 8)
    changed = by_images(source)
    verify(changed)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.axis.extent == 4
    assert [[a.extent for a in kernel.axes] for kernel in changed.kernels()] == [[8, 2048]] * 2
    assert_same_results(source, changed)


def squeezed(images: int, pixels: int, channels: int) -> Program:
    """Each image scaled by a product of its sums over pixels, which a loop adds up."""
    n, s = Axis("n", images), Axis("s", pixels)
    size = pixels * channels

    def axes(name: str) -> tuple[Axis, Axis, Axis]:
        return Axis(f"n{name}", images), Axis(f"p{name}", pixels), Axis(f"c{name}", channels)

    def kernel(name: str, axes: tuple[Axis, ...], into: Store, *sums: Reduce) -> Kernel:
        return Kernel(name, axes, sums, (into,))

    n0, p0, c0 = axes("0")
    whole = (n0, size), (p0, channels), (c0, 1)
    doubled = op("mul", at("x", *whole), constant(2.0, "float32"))
    first = kernel("first", (n0, p0, c0), store("t", doubled, *whole))
    n1, _, c1 = axes("1")
    nothing = store("u", constant(0.0, "float32"), (n1, channels), (c1, 1))
    begin = kernel("begin", (n1, c1), nothing)
    n2, _, c2 = axes("2")
    terms = (n2, channels), (c2, 1)
    added = op("add", at("u", *terms), at("t", (n2, size), (s, channels), (c2, 1)))
    step = kernel("step", (n2, c2), store("u", added, *terms))
    j, k = Axis("j", channels), Axis("k", channels)
    reduce = Reduce((k,), "sum", at("u", (n, channels), (k, 1)), at("W", (j, channels), (k, 1)))
    gates = store("g", Reduced(0, "float32"), (n, channels), (j, 1))
    gate = kernel("gate", (n, j), gates, reduce)
    n4, p4, c4 = axes("4")
    whole = (n4, size), (p4, channels), (c4, 1)
    scaled = op("mul", at("t", *whole), at("g", (n4, channels), (c4, 1)))
    last = kernel("last", (n4, p4, c4), store("y", scaled, *whole))
    return program(
        {"x": (images, pixels, channels)},
        {"y": (images, pixels, channels)},
        (first, begin, Loop(s, (), (step,)), gate, last),
        {"W": np.linspace(-1, 1, channels**2, dtype=np.float32).reshape(channels, channels)},
        arena={"t": images * size, "u": images * channels, "g": images * channels},
    )


def test_sums_in_loops_and_small_products_of_an_image_stay_with_it():
    source = squeezed(4, 1024, 16)
    changed = by_images(source)
    verify(changed)
    (loop,) = changed.body
    assert isinstance(loop, Loop) and loop.is_independent
    assert [type(s) for s in loop.body] == [Kernel, Kernel, Loop, Kernel, Kernel]
    assert changed.buffers["u"].size == changed.buffers["g"].size == 16
    assert_same_results(source, changed)
