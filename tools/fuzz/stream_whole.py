"""Blocks that leave the time axis, or nearly always need the whole sequence."""

from __future__ import annotations

from tools.fuzz.stream_sketch import FAR, Sketch


def last_frame(g: Sketch) -> None:
    """The last frame, or the last few."""
    v = g.any_frames()
    kind = g.number(0, 2)
    if kind == 0:
        y, channels = g.emit(f"Gather <axis=2> ({v.name}, {g.scalar(-1)})"), v.channels
    else:
        count = g.number(1, 3)
        y = g.emit(f"Slice ({v.name}, {g.ints(-count)}, {g.ints(FAR)}, {g.ints(2)})")
        channels = v.channels * count
        y = g.emit(f"Reshape ({y}, {g.ints(0, channels)})")
    g.made(y, channels, None)


def of_an_end(g: Sketch) -> None:
    """More nodes behind a value without a time axis."""
    if not g.ends:
        last_frame(g)
    v = g.ends[-1]
    kind = g.number(0, 3)
    if kind == 0:
        g.made(g.emit(f"MatMul ({v.name}, {g.weights(v.channels, 3)})"), 3, None)
    elif kind == 1:
        g.made(g.emit(f"Softmax ({v.name})"), v.channels, None)
    elif kind == 2:
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(v.channels)})")
        g.made(g.emit(f"Expand ({v.name}, {sizes})"), v.channels, None)
    else:
        other = g.choose(g.ends)
        y = g.emit(f"Concat <axis=1> ({v.name}, {other.name})")
        g.made(y, v.channels + other.channels, None)


def spread_end(g: Sketch) -> None:
    """A value without a time axis over all frames again."""
    if not g.ends:
        last_frame(g)
    end, v = g.ends[-1], g.any_frames()
    column = g.emit(f"Unsqueeze ({end.name}, {g.ints(2)})")
    kind = g.number(0, 4)
    if kind == 0:
        ones = g.weights(v.channels, end.channels)
        g.made(
            g.emit(f"Add ({v.name}, {g.emit(f'MatMul ({ones}, {column})')})"), v.channels, v.length
        )
        return
    if kind == 1:
        gate = g.emit(f"ReduceMean ({column}, {g.ints(1)})")
        g.made(g.emit(f"Mul ({v.name}, {gate})"), v.channels, v.length)
        return
    length = g.size(v.name, 2)
    if kind == 2:
        parts = f"{g.size('x', 0)}, {g.ints(end.channels)}, {length}"
        y = g.emit(f"Expand ({column}, {g.emit(f'Concat <axis=0> ({parts})')})")
    elif kind == 3:
        y = g.emit(f"Tile ({column}, {g.emit(f'Concat <axis=0> ({g.ints(1, 1)}, {length})')})")
    else:
        ones = g.emit(f"ConstantOfShape <value = float[1] {{1.0}}> ({length})")
        y = g.emit(f"Mul ({column}, {ones})")
    g.made(y, end.channels, v.length)


def state_of_another(g: Sketch) -> None:
    """An encoder whose last state is where a decoder begins."""
    if not g.ends:
        last_frame(g)
    end, v, hidden = g.ends[-1], g.any_frames(), 3
    start = g.emit(f"MatMul ({end.name}, {g.weights(end.channels, hidden)})")
    start = g.emit(f"Unsqueeze ({start}, {g.ints(0)})")
    x = g.turned(v.name, 2, 0, 1)
    w, r = g.weights(1, 3 * hidden, v.channels), g.weights(1, 3 * hidden, hidden)
    y, h = g.emit(f"GRU <hidden_size={hidden}> ({x}, {w}, {r}, , , {start})", 2)
    g.made(g.turned(g.emit(f"Squeeze ({y}, {g.ints(1)})"), 1, 2, 0), hidden, v.length)
    g.made(g.emit(f"Squeeze ({h}, {g.ints(0)})"), hidden, None)


# What nearly always needs the whole sequence


def over_time(g: Sketch) -> None:
    """Means, norms, sorting and products over all frames."""
    v = g.any_frames()
    kind = g.number(0, 8)
    if kind == 8:
        t = g.turned(v.name, 0, 2, 1)
        table = g.emit(f"MatMul ({v.name}, {t})")
        y = g.emit(f"MatMul ({table}, {v.name})")
    elif kind == 0:
        mean = g.emit(f"ReduceMean ({v.name}, {g.ints(2)})")
        y = g.emit(f"Sub ({v.name}, {mean})")
    elif kind == 1:
        y = g.emit(f"Softmax <axis=2> ({v.name})")
    elif kind == 2:
        y = g.emit(f"LayerNormalization <axis=2> ({v.name}, {g.weights(1)})")
    elif kind == 3:
        ones = g.weights(v.channels)
        y = g.emit(f"InstanceNormalization ({v.name}, {ones}, {ones})")
    elif kind == 4:
        g.made(g.emit(f"ReduceMax <keepdims=0> ({v.name}, {g.ints(2)})"), v.channels, None)
        return
    elif kind == 5:
        pooled = g.emit(f"GlobalAveragePool ({v.name})")
        y = g.emit(f"Mul ({v.name}, {pooled})")
    elif kind == 6:
        y, _ = g.emit(f"TopK <axis=2> ({v.name}, {g.size(v.name, 2)})", 2)
    else:
        length = g.emit(f"Cast <to=1> ({g.size(v.name, 2)})")
        y = g.emit(f"Div ({v.name}, {length})")
    g.made(y, v.channels, v.length)


def turned_around(g: Sketch) -> None:
    """The last frame first."""
    v = g.any_frames()
    operands = f"{g.ints(-1)}, {g.ints(-FAR)}, {g.ints(2)}, {g.ints(-1)}"
    g.made(g.emit(f"Slice ({v.name}, {operands})"), v.channels, v.length)


def masked(g: Sketch) -> None:
    """Frames chosen by their numbers, counted from the start or from the end."""
    v = g.any_frames()
    length = g.size(v.name, 2, scalar=True)
    numbers = g.emit(f"Range ({g.scalar(0)}, {length}, {g.scalar(1)})")
    kind = g.number(0, 4)
    if kind == 0:
        mask = g.emit(f"Less ({numbers}, {g.scalar(g.number(1, 6))})")
    elif kind == 1:
        rest = g.emit(f"Mod ({numbers}, {g.scalar(2)})")
        mask = g.emit(f"Equal ({rest}, {g.scalar(0)})")
    elif kind == 2:
        end = g.emit(f"Sub ({length}, {g.scalar(g.number(1, 4))})")
        mask = g.emit(f"Less ({numbers}, {end})")
    elif kind == 3:
        half = g.emit(f"Div ({length}, {g.scalar(2)})")
        mask = g.emit(f"Less ({numbers}, {half})")
    else:
        fewer = g.emit(f"Min ({length}, {g.scalar(g.number(2, 9))})")
        mask = g.emit(f"Less ({numbers}, {fewer})")
    other = g.real(0.0) if g.chance(0.5) else v.name
    y = g.emit(f"Where ({mask}, {v.name}, {other})")
    g.made(y, v.channels, v.length)


def picked(g: Sketch) -> None:
    """A part of the sequence by place or by a computed size."""
    v = g.any_frames()
    assert v.length is not None
    kind = g.number(0, 4)
    if kind == 0:
        y = g.emit(f"Gather <axis=2> ({v.name}, {g.scalar(g.number(-3, 3))})")
        g.made(y, v.channels, None)
    elif kind == 1:
        half = g.emit(f"Div ({g.size(v.name, 2)}, {g.ints(2)})")
        y = g.emit(f"Slice ({v.name}, {g.ints(0)}, {half}, {g.ints(2)})")
        g.made(y, v.channels, lambda t: v.length(t) // 2)
    elif kind == 2:
        fewer = g.emit(f"Min ({g.size(v.name, 2)}, {g.ints(7)})")
        y = g.emit(f"Slice ({v.name}, {g.ints(0)}, {fewer}, {g.ints(2)})")
        g.made(y, v.channels, lambda t: min(v.length(t), 7))
    elif kind == 3:
        length = g.size(v.name, 2, scalar=True)
        end = g.emit(f"Sub ({length}, {g.scalar(2)})")
        numbers = g.emit(f"Range ({g.scalar(0)}, {end}, {g.scalar(1)})")
        y = g.emit(f"Gather <axis=2> ({v.name}, {numbers})")
        g.made(y, v.channels, lambda t: v.length(t) - 2)
    else:
        start = g.emit(f"Sub ({g.size(v.name, 2)}, {g.ints(3)})")
        y = g.emit(f"Slice ({v.name}, {start}, {g.ints(FAR)}, {g.ints(2)})")
        y = g.emit(f"Reshape ({y}, {g.ints(0, 3 * v.channels)})")
        g.made(y, 3 * v.channels, None)


def rearranged(g: Sketch) -> None:
    """Time merged with other axes, split, tiled or joined with itself."""
    v = g.any_frames()
    assert v.length is not None
    kind, c = g.number(0, 5), v.channels
    t = g.turned(v.name, 0, 2, 1)
    if kind == 0:
        rows = g.emit(f"Reshape ({t}, {g.ints(-1, c)})")
        y = g.emit(f"MatMul ({rows}, {g.weights(c, c)})")
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.size(v.name, 2)}, {g.ints(c)})")
        g.made(g.turned(g.emit(f"Reshape ({y}, {sizes})"), 0, 2, 1), c, v.length)
    elif kind == 1:
        if any(n % 2 for n in v.probes()):
            return
        a, b = g.emit(f"Split <axis=2, num_outputs=2> ({v.name})", 2)
        g.made(g.emit(f"Add ({a}, {b})"), c, lambda t: v.length(t) // 2)
    elif kind == 2:
        y = g.emit(f"Tile ({v.name}, {g.ints(1, 1, 2)})")
        g.made(y, c, lambda t: v.length(t) * 2)
    elif kind == 3:
        y = g.emit(f"Concat <axis=2> ({v.name}, {v.name})")
        g.made(y, c, lambda t: v.length(t) * 2)
    elif kind == 4:
        # Channels and frames exchange their places without being moved.
        y = g.emit(f"Reshape ({t}, {g.ints(0, c, -1)})")
        g.made(y, c, v.length)
    else:
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(c, 1)}, {g.size(v.name, 2)})")
        four = g.emit(f"Reshape ({v.name}, {sizes})")
        g.made(g.emit(f"Squeeze ({four}, {g.ints(2)})"), c, v.length)
