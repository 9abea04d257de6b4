"""Blocks that move frames: shifts, joins, cuts, padding."""

from __future__ import annotations

import numpy as np

from tools.fuzz.stream_sketch import FAR, Sketch, Value


def shifted(g: Sketch) -> None:
    """Plus a constant, so that padding of zeros is something else before and behind."""
    v = g.any_frames()
    g.made(g.emit(f"Add ({v.name}, {g.weights(1, v.channels, 1)})"), v.channels, v.length)


def features(g: Sketch) -> None:
    """Operators within a frame."""
    v = g.any_frames()
    t, out = g.turned(v.name, 0, 2, 1), v.channels
    kind = g.number(0, 12)
    if kind == 9:
        gate = g.emit(f"MatMul (s, {g.weights(2, v.channels)})")
        y = g.emit(f"Mul ({t}, {g.emit(f'Unsqueeze ({gate}, {g.ints(1)})')})")
    elif kind == 10:
        place = g.emit(f"ArgMax <axis=2> ({t})")
        y, out = g.emit(f"GatherElements <axis=2> ({t}, {place})"), 1
    elif kind == 11:
        four = g.emit(f"Unsqueeze ({t}, {g.ints(1)})")
        pads, weights = f"[{g.choose((2, 2, 1))}, 1, 0, 1]", g.weights(1, 1, 3, 3)
        y = g.emit(f"Conv <pads={pads}> ({four}, {weights})")
        before = int(pads[1])
        y = g.emit(f"Squeeze ({y}, {g.ints(1)})")
        length = v.length
        assert length is not None
        g.made(g.turned(y, 0, 2, 1), out, lambda n: length(n) + before - 2)
        return
    elif kind == 12:
        quantised = g.emit(f"QuantizeLinear ({t}, {g.real(0.05)}, {g.constant(np.uint8(128))})")
        y = g.emit(f"DequantizeLinear ({quantised}, {g.real(0.05)}, {g.constant(np.uint8(128))})")
        # Rounded to a step, which small differences between runtimes can change.
        y = g.emit(f"Mul ({y}, {g.real(0.0)})")
    elif kind == 0:
        y = g.emit(f"LayerNormalization ({t}, {g.weights(v.channels)})")
    elif kind == 1:
        y = g.emit(f"Softmax ({t})")
    elif kind == 2:
        out = g.number(2, 4)
        y = g.emit(f"MatMul ({t}, {g.weights(v.channels, out)})")
    elif kind == 3:
        mean = g.emit(f"ReduceMean ({t}, {g.ints(2)})")
        y = g.emit(f"Sub ({t}, {mean})")
    elif kind == 4:
        _, index = g.emit(f"TopK ({t}, {g.ints(1)})", 2)
        one = g.emit(f"Cast <to=1> ({index})")
        y = g.emit(f"Mul ({t}, {one})")
    elif kind == 5:
        index = g.constant(np.array([g.number(0, v.channels - 1) for _ in range(2)]))
        y, out = g.emit(f"Gather <axis=2> ({t}, {index})"), 2
    elif kind == 6:
        out = 2
        weights = g.weights(v.channels, out)
        y = g.emit(f'Einsum <equation="ntc,cd->ntd"> ({t}, {weights})')
    elif kind == 7:
        y = g.emit(f"CumSum ({t}, {g.scalar(2)})")
    else:
        largest = g.emit(f"ArgMax <axis=2, keepdims=0> ({t})")
        y, out = g.emit(f"Gather ({g.weights(v.channels, 2)}, {largest})"), 2
    g.made(g.turned(y, 0, 2, 1), out, v.length)


def joined(g: Sketch) -> None:
    """Two values, cut to the same length at an end if need be."""
    a, b = g.any_frames(), g.choose(g.frames)
    differences = {p - q for p, q in zip(a.probes(), b.probes(), strict=True)}
    if len(differences) > 1:
        return
    (more,) = differences
    if more:
        longer, count = (a, more) if more > 0 else (b, -more)
        if count > 12:
            return
        cut = _without_end(g, longer, count) if g.chance(0.5) else _from(g, longer, count)
        a, b = (cut, b) if more > 0 else (a, cut)
    if g.chance(0.3):
        y, channels = g.emit(f"Concat <axis=1> ({a.name}, {b.name})"), a.channels + b.channels
    else:
        if a.channels != b.channels:
            index = g.constant(np.arange(a.channels) % b.channels)
            b = Value(g.emit(f"Gather <axis=1> ({b.name}, {index})"), a.channels, b.length)
        op = g.choose(("Add", "Mul", "Sub", "Max"))
        y, channels = g.emit(f"{op} ({a.name}, {b.name})"), a.channels
    g.made(y, channels, a.length)


def _from(g: Sketch, v: Value, count: int) -> Value:
    length = v.length
    assert length is not None
    y = g.emit(f"Slice ({v.name}, {g.ints(count)}, {g.ints(FAR)}, {g.ints(2)})")
    return g.made(y, v.channels, lambda t: length(t) - count)


def _without_end(g: Sketch, v: Value, count: int) -> Value:
    length = v.length
    assert length is not None
    end = g.ints(-count)
    if g.chance(0.3):
        end = g.emit(f"Sub ({g.size(v.name, 2)}, {g.ints(count)})")
    y = g.emit(f"Slice ({v.name}, {g.ints(0)}, {end}, {g.ints(2)})")
    return g.made(y, v.channels, lambda t: length(t) - count)


def cut(g: Sketch) -> None:
    """From a frame on, up to one before the end, or every n-th frame."""
    v, count = g.any_frames(), g.number(1, 4)
    assert v.length is not None
    kind = g.number(0, 2)
    if kind == 0:
        _from(g, v, count)
    elif kind == 1:
        _without_end(g, v, count)
    else:
        start, step = g.number(0, 3), g.number(2, 3)
        operands = f"{g.ints(start)}, {g.ints(FAR)}, {g.ints(2)}, {g.ints(step)}"
        y = g.emit(f"Slice ({v.name}, {operands})")
        g.made(y, v.channels, lambda t: -(-(v.length(t) - start) // step))


def padded(g: Sketch) -> None:
    """With zeros, another number, or copies; or cropped."""
    v = g.any_frames()
    assert v.length is not None
    before, behind = g.number(-2, 4), g.choose((0, 0, 0, 1, 3, -2))
    number = g.real(g.choose((0.0, 0.0, 0.7)))
    mode = g.choose(("constant",) * 6 + ("reflect", "edge"))
    y = g.emit(f'Pad <mode="{mode}"> ({v.name}, {g.ints(0, 0, before, 0, 0, behind)}, {number})')
    g.made(y, v.channels, lambda t: v.length(t) + before + behind)


def constants_in_front(g: Sketch) -> None:
    """Before the first frame, or behind the last one."""
    v, count = g.any_frames(), g.number(1, 3)
    assert v.length is not None
    values = (
        g.weights(1, v.channels, count)
        if g.chance(0.5)
        else g.constant(np.full((1, 1, count), g.choose((0.0, 0.3)), np.float32))
    )
    sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(v.channels)}, {g.ints(count)})")
    known = g.emit(f"Expand ({values}, {sizes})")
    order = f"{known}, {v.name}" if g.chance(0.8) else f"{v.name}, {known}"
    g.made(g.emit(f"Concat <axis=2> ({order})"), v.channels, lambda t: v.length(t) + count)


def stacked(g: Sketch) -> None:
    """Several frames to one, or one to several, where the lengths allow it."""
    v = g.any_frames()
    assert v.length is not None
    t = g.turned(v.name, 0, 2, 1)
    if g.chance(0.5):
        count = g.number(2, 3)
        if any(n % count for n in v.probes()):
            return
        y = g.emit(f"Reshape ({t}, {g.ints(0, -1, count * v.channels)})")
        g.made(g.turned(y, 0, 2, 1), count * v.channels, lambda t: v.length(t) // count)
    elif v.channels % 2 == 0:
        y = g.emit(f"Reshape ({t}, {g.ints(0, -1, v.channels // 2)})")
        g.made(g.turned(y, 0, 2, 1), v.channels // 2, lambda t: v.length(t) * 2)


def rearranged_freely(g: Sketch) -> None:
    """Axes in any order, merged and parted in any way: most of these lose the time axis."""
    v = g.any_frames()
    order = [int(axis) for axis in g.random.permutation(3)]
    t, c = g.turned(v.name, *order), v.channels
    targets = [
        *((0, 0, -1), (0, -1), (-1, c), (2, -1), (0, 0, 1, -1), (0, -1, 1), (1, 0, -1), (0, -1, c)),
        *((-1, 2 * c), (0, -1, 2 * c), (0, 0, 0), (0, 1, -1, c), (2, c, -1), (c, -1), (0, 2, -1)),
        *((-1, 2, c), (-1, 1), (c, -1, 2), (0, 0, -1, 2), (0, -1, 2, c), (-1, 0, 1), (-1, c, 2)),
    ]
    target = g.choose(targets)
    y, rank = g.emit(f"Reshape ({t}, {g.ints(*target)})"), len(target)
    if g.chance(0.3):
        axis = g.number(0, rank)
        y, rank = g.emit(f"Flatten <axis={axis}> ({y})"), 2
    if g.chance(0.5):
        y = g.emit(f"CumSum ({y}, {g.scalar(g.number(0, rank - 1))})")
    g.others[y] = rank
