from __future__ import annotations

from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Reduced
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Buffer, Interface, Program
from ostinato.program.words import BYTES, word
from ostinato.schedule.words_first import words_first
from tests.program.programs import at, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, shown

MACHINE = Machine(64, 32, byte_dots="vnni")
CHANNELS, FILTERS, PLACES, TAPS = 8, 4, 5, 3


def convolution(taps_first: bool = True) -> Program:
    """Words of channels that are neighbours, under each tap of a window."""
    c, p = Axis("c", FILTERS), Axis("p", PLACES)
    t, r = Axis("t", TAPS), Axis("r", CHANNELS // BYTES)
    places = (p, CHANNELS), (t, CHANNELS), (r, BYTES)
    bytes_ = [at("x", *places, offset=n, dtype="uint8") for n in range(BYTES)]
    weight = at("w", (t, FILTERS * r.extent), (r, FILTERS), (c, 1), dtype="int32")
    axes = (t, r) if taps_first else (r, t)
    reduce = Reduce(axes, "sum", word(bytes_), weight)
    stored = store("y", Reduced(0, "int32"), (c, PLACES), (p, 1))
    kernel = Kernel("k", (c, p), (reduce,), (stored,), None, ("k",))
    shapes = {
        "x": ("uint8", (PLACES + TAPS - 1, CHANNELS)),
        "w": ("int32", (TAPS, CHANNELS // BYTES, FILTERS)),
        "y": ("int32", (FILTERS, PLACES)),
    }
    sides = [Interface(name, name, kind, shape) for name, (kind, shape) in shapes.items()]
    sizes = {"x": (PLACES + TAPS - 1) * CHANNELS, "w": 24, "y": FILTERS * PLACES}
    buffers = {
        name: Buffer(name, kind, sizes[name], "output" if name == "y" else "input")
        for name, (kind, _) in shapes.items()
    }
    return Program(tuple(sides[:2]), tuple(sides[2:]), (), buffers, {}, (kernel,), ())


def test_taps_are_innermost():
    source = convolution()
    changed = words_first(source, MACHINE)
    assert "sum t < 3, r < 2:" in shown(source) and "sum r < 2, t < 3:" in shown(changed)
    assert_same_results(source, changed)


def test_sums_in_that_order_stay():
    check_unchanged(lambda source: words_first(source, MACHINE), convolution(taps_first=False))


def test_matrices_of_bytes_have_words_of_several_taps():
    for machine in (replace(MACHINE, byte_tiles=True), replace(MACHINE, byte_pairs=True)):
        check_unchanged(lambda source, m=machine: words_first(source, m), convolution())
