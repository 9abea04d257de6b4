"""Random steps of decoders: a token and states give scores of the next token and states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from tools.fuzz.cell_blocks import random_cells
from tools.fuzz.cells import SLOTS, Cells, State

TOKENS = 11


@dataclass(frozen=True)
class Decoder:
    """A step of a decoder: `token` of each row and states give `logits` and states.

    mask: the input of ones as long as all tokens so far, if there is one.
    """

    model: onnx.ModelProto
    states: tuple[State, ...]
    mask: str | None


def random_decoder(seed: int) -> Decoder:
    """The decoder of a seed."""
    random = np.random.default_rng(seed)
    c = random_cells(random)
    token = str(random.choice(("int64[N] t", "int64[N, 1] t")))
    front = Cells(random, width=c.width, count=c.count)
    row = front.emit(f"Reshape (t, {front.constant([-1])})")
    one = front.constant([1])
    embedded = front.emit(f"Gather ({front.weights(TOKENS, c.width)}, {row})")
    values = {"x": f"Unsqueeze ({embedded}, {one})", "i": f"Mod ({row}, {front.constant(SLOTS)})"}
    values |= {
        "o": f"Identity ({front.constant([2, 0, 1])})",
        "n": f"Identity ({front.constant(2)})",
    }
    # Rows that read others would be wrong for beams.
    values["b"] = f"Range ({front.constant(0)}, {front.emit(f'Size ({row})')}, {front.constant(1)})"
    front.lines += [f"{name} = {value}" for name, value in values.items()]
    c.lines, c.constants, c.count = (
        front.lines + c.lines,
        front.constants | c.constants,
        front.count,
    )
    vec = c.vecs[-1] if c.vecs else c.vec()
    total = c.emit(f"Add ({vec}, {c.vec()})")
    for other in c.results:
        total = c.emit(f"Add ({total}, {other})")
    logits = c.emit(f"MatMul ({total}, {c.weights(c.width, TOKENS)})")
    model = c.with_states([token], {logits: f"float[N, {TOKENS}]"}, values)
    masks = [v.name for v in model.graph.input if v.name.startswith("mP")]
    if len(masks) > 1:
        raise LookupError("two masks")
    return Decoder(model, tuple(c.states), masks[0] if masks else None)
