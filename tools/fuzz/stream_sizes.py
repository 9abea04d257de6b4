"""Blocks of sizes that say something else of short sequences, and of frames that are all alike."""

from __future__ import annotations

from tools.fuzz.stream_mixing import repeated
from tools.fuzz.stream_moves import constants_in_front, cut, joined, padded, shifted, stacked
from tools.fuzz.stream_sketch import FAR, Sketch
from tools.fuzz.stream_whole import last_frame
from tools.fuzz.stream_windows import convolution, pooling, recurrence, running_sum, scan


def _shape(g: Sketch, size: str) -> str:
    """The shape of two channels of so many frames."""
    return g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(2)}, {size})")


def _expanded(g: Sketch, size: str) -> str:
    """One frame of two channels, so many times."""
    return g.emit(f"Expand ({g.weights(1, 2, 1)}, {_shape(g, size)})")


def of_few(g: Sketch) -> None:
    """As many elements as a few frames are, or as sizes say that short sequences do not reach."""
    v, count = g.any_frames(), g.number(1, 9)
    length, number = g.size(v.name, 2), g.ints(count)
    kind = g.number(0, 6)
    if kind == 0:
        part = g.emit(f"Slice ({v.name}, {g.ints(-count)}, {g.ints(FAR)}, {g.ints(2)})")
        size = g.size(part, 2)
    elif kind == 1:
        end = g.choose((number, g.emit(f"Min ({length}, {number})")))
        size = g.size(g.emit(f"Slice ({v.name}, {g.ints(0)}, {end}, {g.ints(2)})"), 2)
    elif kind == 2:
        start = g.emit(f"Sub ({length}, {number})")
        size = g.size(g.emit(f"Slice ({v.name}, {start}, {length}, {g.ints(2)})"), 2)
    elif kind == 3:
        size = g.emit(f"{g.choose(('Min', 'Max', 'Div', 'Mod'))} ({number}, {length})")
        size = g.emit(f"Add ({size}, {g.ints(1)})")
    elif kind == 4:
        test = g.emit(f"{g.choose(('Equal', 'Less'))} ({length}, {number})")
        size = g.emit(f"Where ({test}, {g.ints(2)}, {g.ints(3)})")
    elif kind == 5:
        size = g.emit(f"Max ({length}, {number})")
    else:
        size = g.emit(f"Add ({length}, {g.ints(g.number(-1, 3))})")
    y = _expanded(g, size)
    if kind == 6:
        y = _expanded(g, g.size(y, 2))
    if g.chance(0.3):
        y = g.emit(f"CumSum ({y}, {g.scalar(2)})")
    if g.chance(0.5):
        y = g.emit(f"Slice ({y}, {g.ints(-1)}, {g.ints(FAR)}, {g.ints(2)})")
        g.made(g.emit(f"Squeeze ({y}, {g.ints(2)})"), 2, None)
    else:
        g.others[y] = 3


def all_alike(g: Sketch) -> None:
    """Frames that are all alike, more or fewer than others, through what moves frames."""
    v, more = g.any_frames(), g.number(-2, 3)
    length = v.length
    assert length is not None
    size = g.emit(f"Add ({g.size(v.name, 2)}, {g.ints(more)})")
    if g.chance(0.5):
        y = _expanded(g, size)
    else:
        y = g.emit(f"ConstantOfShape <value = float[1] {{0.4}}> ({_shape(g, size)})")
    g.made(y, 2, lambda t: length(t) + more)
    for _ in range(g.number(1, 3)):
        g.choose((padded, cut, stacked, constants_in_front, convolution, pooling, shifted))(g)
    g.choose((joined, running_sum, recurrence, scan, last_frame, repeated))(g)


def twice(g: Sketch) -> None:
    """Two readers of one value, which need frames before the first that are not the same."""
    v = g.any_frames()
    if g.chance(0.3):
        y = g.emit(f"Conv ({v.name}, {g.weights(2, v.channels, g.number(2, 3))})")
        g.others[y] = 3
    for _ in range(2):
        g.frames.append(v)
        g.choose((convolution, repeated, pooling, padded, cut, constants_in_front))(g)
    joined(g)


def mirrored_parts(g: Sketch) -> None:
    """Frames in reverse order in front, through what takes frames apart or together."""
    v, before = g.any_frames(), g.number(1, 4)
    length = v.length
    assert length is not None
    behind, mode = g.choose((0, 0, before)), g.choose(("reflect", "edge"))
    y = g.emit(f'Pad <mode="{mode}"> ({v.name}, {g.ints(0, 0, before, 0, 0, behind)})')
    g.made(y, v.channels, lambda t: length(t) + before + behind)
    g.choose((stacked, cut, pooling, shifted))(g)
    convolution(g)


def nothing_joined(g: Sketch) -> None:
    """No frames in front or behind, and what is behind the last frame."""
    v = g.any_frames()
    if g.chance(0.7):
        sizes = g.emit(f"Concat <axis=0> ({g.size('x', 0)}, {g.ints(v.channels, 0)})")
        none = g.emit(f"Expand ({g.weights(1, v.channels, 1)}, {sizes})")
    else:
        operands = f"{g.size(v.name, 2)}, {g.ints(FAR)}, {g.ints(2)}"
        none = g.emit(f"Slice ({v.name}, {operands})")
    order = f"{none}, {v.name}" if g.chance(0.7) else f"{v.name}, {none}"
    g.made(g.emit(f"Concat <axis=2> ({order})"), v.channels, v.length)


def merged(g: Sketch) -> None:
    """Frames merged with the batch in one of two orders, beside ones that are all alike."""
    v = g.any_frames()
    c = v.channels
    name = v.name
    if g.chance(0.7):
        row = g.emit(f"Unsqueeze ({g.emit(f'MatMul (s, {g.weights(2, c)})')}, {g.ints(2)})")
        name = g.emit(f"Expand ({row}, {g.emit(f'Shape ({v.name})')})")
    first, second = (g.choose(((0, 2, 1), (2, 0, 1))) for _ in range(2))
    rows = g.emit(f"Reshape ({g.turned(v.name, *first)}, {g.ints(-1, c)})")
    others = g.emit(f"Reshape ({g.turned(name, *second)}, {g.ints(-1, c)})")
    y = g.emit(f"Add ({rows}, {others})")
    sizes = [g.size("x", 0), g.size(v.name, 2)][:: 1 if first == (0, 2, 1) else -1]
    y = g.emit(f"Reshape ({y}, {g.emit(f'Concat <axis=0> ({sizes[0]}, {sizes[1]}, {g.ints(c)})')})")
    order = (0, 2, 1) if first == (0, 2, 1) else (1, 2, 0)
    g.made(g.turned(y, *order), c, v.length)
