"""Blocks of products, attention, transforms, and operands that are spread along time."""

from __future__ import annotations

import numpy as np

from tools.fuzz.stream_moves import constants_in_front, padded, stacked
from tools.fuzz.stream_sketch import Sketch
from tools.fuzz.stream_windows import convolution, recurrence, running_sum


def products(g: Sketch) -> None:
    """Two values with a time axis, by operators that could sum over it."""
    v = g.any_frames()
    t, c = g.turned(v.name, 0, 2, 1), v.channels
    kind = g.number(0, 5)
    if kind == 0:
        result = g.choose(("ntc", "nt", "nc", "nct", "n"))
        y, rank = g.emit(f'Einsum <equation="ntc,ntc->{result}"> ({t}, {t})'), len(result)
    elif kind == 1:
        result = g.choose(("ntu", "ntc", "nu"))
        y, rank = g.emit(f'Einsum <equation="ntc,nuc->{result}"> ({t}, {t})'), len(result)
    elif kind == 2:
        vector = g.constant(g.random.standard_normal(c).astype(np.float32))
        y, rank = g.emit(f"MatMul ({t}, {vector})"), 2
        if g.chance(0.5):
            y = g.emit(f"MatMul ({vector}, {v.name})")
    elif kind == 3:
        order = g.choose(((2, 0, 1), (2, 1, 0)))
        a = g.turned(v.name, *order)
        y, rank = g.emit(f"MatMul ({a}, {g.turned(a, 0, 2, 1)})"), 3
    elif kind == 4:
        four = g.emit(f"Unsqueeze ({v.name}, {g.ints(g.choose((0, 1, 3)))})")
        y, rank = g.emit(f"GlobalMaxPool ({four})"), 4
    else:
        groups = g.emit(f"Reshape ({v.name}, {g.ints(0, c, 1, -1)})")
        y, rank = (
            g.emit(f"MeanVarianceNormalization <axes=[{g.choose((0, 1, 2, 3))}]> ({groups})"),
            4,
        )
    g.others[y] = rank


def repeated(g: Sketch) -> None:
    """Every frame several times, or interpolated."""
    v, factor = g.any_frames(), g.number(2, 3)
    assert v.length is not None
    how = g.choose(
        (
            'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
            'mode="nearest"',
            'mode="linear"',
        )
    )
    scales = g.constant(np.array([1, 1, factor], np.float32))
    y = g.emit(f"Resize <{how}> ({v.name}, , {scales})")
    g.made(y, v.channels, lambda t: v.length(t) * factor)


def positions(g: Sketch) -> None:
    """Numbers of frames as a feature, from a start on."""
    v, start = g.any_frames(), g.number(0, 2)
    length = g.size(v.name, 2, scalar=True)
    end = g.emit(f"Add ({length}, {g.scalar(start)})")
    numbers = g.emit(f"Range ({g.scalar(start)}, {end}, {g.scalar(1)})")
    f = g.emit(f"Mul ({g.emit(f'Cast <to=1> ({numbers})')}, {g.real(0.1)})")
    y = g.emit(f"Add ({v.name}, {g.emit(f'Sin ({f})')})")
    g.made(y, v.channels, v.length)


def spread_constant(g: Sketch) -> None:
    """What is the same for all frames, alone or beside others."""
    v = g.any_frames()
    parts = f"{g.size('x', 0)}, {g.ints(2)}, {g.size(v.name, 2)}"
    sizes = g.emit(f"Concat <axis=0> ({parts})")
    y = g.emit(f"Expand ({g.weights(1, 2, 1)}, {sizes})")
    if g.chance(0.5):
        g.made(y, 2, v.length)
    else:
        y = g.emit(f"Concat <axis=1> ({v.name}, {y})")
        g.made(y, v.channels + 2, v.length)


def repeated_constant(g: Sketch) -> None:
    """What is the same for all frames, through something that is not."""
    spread_constant(g)
    g.choose((running_sum, recurrence, padded, stacked, convolution, constants_in_front))(g)


def places(g: Sketch) -> None:
    """Other numbers of frames: from the end, of every second one, or all but some."""
    v = g.any_frames()
    length = g.size(v.name, 2, scalar=True)
    kind = g.number(0, 2)
    if kind == 0:
        numbers = g.emit(f"Range ({g.scalar(0)}, {length}, {g.scalar(1)})")
        numbers = g.emit(f"Sub ({length}, {numbers})")
    elif kind == 1:
        end = g.emit(f"Mul ({length}, {g.scalar(2)})")
        numbers = g.emit(f"Range ({g.scalar(0)}, {end}, {g.scalar(2)})")
    else:
        ones = g.emit(f"Expand ({g.ints(1)}, {g.size(v.name, 2)})")
        numbers = g.emit(f"CumSum ({ones}, {g.scalar(0)})")
    f = g.emit(f"Mul ({g.emit(f'Cast <to=1> ({numbers})')}, {g.real(0.1)})")
    y = g.emit(f"Add ({v.name}, {g.emit(f'Sin ({f})')})")
    g.made(y, v.channels, v.length)


def attention(g: Sketch) -> None:
    """By a mask, by the operator, or to everything."""
    v = g.any_frames()
    c, t = v.channels, g.turned(v.name, 0, 2, 1)
    q, k, w = (g.emit(f"MatMul ({t}, {g.weights(c, c)})") for _ in range(3))
    kind = g.choose(("causal", "causal", "window", "full", "ahead", "operator"))
    if kind == "operator":
        settings = f"is_causal={g.choose((1, 1, 0))}, q_num_heads=1, kv_num_heads=1"
        y = g.emit(f"Attention <{settings}> ({q}, {k}, {w})")
    else:
        scores = g.emit(f"MatMul ({q}, {g.turned(k, 0, 2, 1)})")
        if kind != "full":
            length = g.size(v.name, 2, scalar=True)
            numbers = g.emit(f"Range ({g.scalar(0)}, {length}, {g.scalar(1)})")
            columns = g.emit(f"Unsqueeze ({numbers}, {g.ints(0)})")
            rows = g.emit(f"Unsqueeze ({numbers}, {g.ints(1)})")
            if kind == "ahead":
                rows = g.emit(f"Add ({rows}, {g.scalar(2)})")
            seen = g.emit(f"LessOrEqual ({columns}, {rows})")
            if kind == "window":
                least = g.emit(f"Sub ({rows}, {g.scalar(g.number(1, 4))})")
                seen = g.emit(f"And ({seen}, {g.emit(f'Greater ({columns}, {least})')})")
            scores = g.emit(f"Where ({seen}, {scores}, {g.real(-np.inf)})")
        y = g.emit(f"MatMul ({g.emit(f'Softmax ({scores})')}, {w})")
    g.made(g.turned(y, 0, 2, 1), c, v.length)


def fourier(g: Sketch) -> None:
    """Frames of a Fourier transform of one channel."""
    v = g.any_frames()
    assert v.length is not None
    size, step = g.choose((4, 6, 8)), g.number(1, 3)
    one = g.emit(f"Gather <axis=1> ({v.name}, {g.scalar(0)})")
    three = g.emit(f"Unsqueeze ({one}, {g.ints(2)})")
    window = g.constant(np.hanning(size + 2)[1:-1].astype(np.float32))
    f = g.emit(f"STFT ({three}, {g.scalar(step)}, {window})")
    flat = g.emit(f"Reshape ({f}, {g.ints(0, -1, (size // 2 + 1) * 2)})")
    g.made(g.turned(flat, 0, 2, 1), size + 2, lambda t: (v.length(t) - size) // step + 1)
