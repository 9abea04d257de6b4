"""Small random networks over sequences, causal and not, to be converted into streams.

A model takes `x [N, 3, T]`, maybe `z [N, 2, T]`, and `s [N, 2]`, which has no time axis. It returns
a few of its values. Blocks take values `[N, channels, length]`, where the length follows from T,
and values without a time axis.
"""

from __future__ import annotations

import re

import numpy as np
import onnx

from tools.fuzz.stream_mixing import (
    attention,
    fourier,
    places,
    positions,
    products,
    repeated,
    repeated_constant,
    spread_constant,
)
from tools.fuzz.stream_moves import (
    constants_in_front,
    cut,
    features,
    joined,
    padded,
    rearranged_freely,
    shifted,
    stacked,
)
from tools.fuzz.stream_sizes import all_alike, merged, mirrored_parts, nothing_joined, of_few, twice
from tools.fuzz.stream_sketch import Block, Sketch
from tools.fuzz.stream_whole import (
    last_frame,
    masked,
    of_an_end,
    over_time,
    picked,
    rearranged,
    spread_end,
    state_of_another,
    turned_around,
)
from tools.fuzz.stream_windows import (
    convolution,
    loop,
    pointwise,
    pooling,
    recurrence,
    running_sum,
    scan,
    transposed_convolution,
)

TAME: tuple[Block, ...] = (
    *(convolution,) * 4,
    *(recurrence,) * 3,
    *(joined,) * 4,
    *(cut, padded, pointwise, shifted, features) * 2,
    *(transposed_convolution, pooling, scan, running_sum, constants_in_front, stacked, repeated),
    *(loop, repeated_constant, rearranged_freely, products),
    *(of_few, all_alike, twice, mirrored_parts, nothing_joined, merged),
    *(positions, spread_constant, attention, fourier, last_frame, of_an_end),
)
WILD: tuple[Block, ...] = (
    *(spread_end, masked, picked, rearranged) * 2,
    *(over_time, turned_around, places, state_of_another),
)


RECURRENT: tuple[Block, ...] = (
    *(recurrence, scan, loop) * 3,
    *(running_sum, pointwise, joined, shifted, last_frame, of_an_end),
)


def random_model(
    seed: int, frames: int | None = None, blocks: tuple[Block, ...] = ()
) -> onnx.ModelProto:
    """The model of a seed, for sequences of any length or of `frames`; all of these blocks."""
    sketch = Sketch(np.random.default_rng(seed))
    sketch.made("x", 3, lambda t: t)
    if sketch.chance(0.3):
        sketch.made("z", 2, lambda t: t)
    for _ in range(sketch.number(1, 6)):
        is_wild = sketch.chance(0.12)
        sketch.choose(blocks or (WILD if is_wild else TAME))(sketch)
    chosen = {sketch.frames[-1].name: 3} | sketch.others
    if sketch.ends:
        chosen[sketch.ends[-1].name] = 2
    if sketch.chance(0.3):
        chosen[sketch.choose(sketch.frames).name] = 3
    for name in ("x", "z"):
        chosen.pop(name, None)
    if not chosen:
        chosen[sketch.emit("Neg (x)")] = 3
    outputs = [
        f"float[{', '.join(f'{name}_{i}' for i in range(rank))}] {name}"
        for name, rank in chosen.items()
    ]
    text = "\n".join(sketch.lines)
    inputs = [
        f"float[{sizes}] {name}"
        for name, sizes in (("x", "N, 3, T"), ("z", "N, 2, T"), ("s", "N, 2"))
        if name == "x" or re.search(rf"\b{name}\b", text)
    ]
    if frames is not None:
        inputs = [each.replace("T]", f"{frames}]") for each in inputs]
    return sketch.model(inputs, outputs, 22 if "Attention" not in text else 23)
