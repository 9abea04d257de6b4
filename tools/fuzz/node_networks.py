"""Recurrent nodes and attention with any of their settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.random_node import Drawer, Drawn, recipe

ACTIVATIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
    "HardSigmoid", "Elu", "Softsign", "Softplus",
)  # fmt: skip
ALPHAS = {
    "Affine": 2, "LeakyRelu": 1, "ThresholdedRelu": 1, "ScaledTanh": 2, "HardSigmoid": 2, "Elu": 1,
}  # fmt: skip


@recipe(6)
def _recurrent(d: Drawer) -> Drawn:
    op, gates, count = d.choose((("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)))
    dtype = d.type(op, ("float32", "float64", "float16"))
    direction = d.choose(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = d.number(1, 5), d.number(1, 3), d.number(1, 4), d.number(1, 5)
    layout = d.flag() if d.opset >= 14 else 0
    about: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if d.opset >= 14:
        about["layout"] = layout
    if d.chance(0.4):
        about |= _activations(d, count * ways)
    if d.chance(0.2):
        about["clip"] = d.choose((0.5, 2.0))
    if op == "GRU":
        about["linear_before_reset"] = d.flag()
    if op == "LSTM" and d.chance(0.3):
        about["input_forget"] = 1

    def first(*sizes: int) -> Any:
        shape = (sizes[1], sizes[0], *sizes[2:]) if layout else sizes
        return d.data(dtype, shape) if d.chance(0.5) else None

    x = d.data(dtype, (batch, steps, width) if layout else (steps, batch, width))
    half = np.asarray(0.5, dtype)
    weights = [d.data(dtype, (ways, gates * hidden, n)) * half for n in (width, hidden)]
    bias = d.data(dtype, (ways, 2 * gates * hidden)) if d.chance(0.5) else None
    lengths = d.random.integers(0, steps + 1, batch).astype(np.int32) if d.chance(0.4) else None
    operands = [x, *weights, bias, lengths, first(ways, batch, hidden)]
    if op == "LSTM":
        operands.append(first(ways, batch, hidden))
        operands.append(d.data(dtype, (ways, 3 * hidden)) if d.chance(0.3) else None)
    return Drawn(op, operands, about, 3 if op == "LSTM" else 2)


def _activations(d: Drawer, count: int) -> dict[str, Any]:
    names = [d.choose(ACTIVATIONS) for _ in range(count)]
    about: dict[str, Any] = {"activations": names}
    # Alphas and betas are listed for those functions that have some.
    alphas = [d.choose((0.3, 0.5)) for name in names if ALPHAS.get(name, 0) >= 1]
    betas = [d.choose((0.3, 0.5)) for name in names if ALPHAS.get(name, 0) == 2]
    return (
        about
        | ({"activation_alpha": alphas} if alphas else {})
        | ({"activation_beta": betas} if betas else {})
    )


@recipe(6)
def _attention(d: Drawer) -> Drawn:
    dtype = d.type("Attention", ("float32", "float64", "float16"))
    batch, groups, heads = d.number(1, 2), d.choose((1, 1, 2)), d.number(1, 2)
    size, other = d.choose((2, 4)), d.choose((2, 3, 4))
    queries, keys, past = d.number(1, 4), d.number(1, 4), d.choose((0, 0, 1, 3))
    is_flat = d.chance(0.4)

    def value(count: int, length: int, width: int) -> Any:
        shape = (batch, length, count * width) if is_flat else (batch, count, length, width)
        return d.data(dtype, shape)

    operands: list[Any] = [value(groups * heads, queries, size)]
    operands += [value(heads, keys, size), value(heads, keys, other)]
    total = keys + past
    mask = None
    if d.chance(0.5):
        lead: Any = d.choose(((), (batch, 1), (1, groups * heads)))
        shape = (*lead, queries, total)
        mask = d.data(d.choose((dtype, "bool")), shape)
    operands.append(mask)
    if past:
        operands += [d.data(dtype, (batch, heads, past, n)) for n in (size, other)]
    elif d.opset >= 24 and d.chance(0.3):
        operands += [None, None, d.random.integers(1, keys + 1, batch)]
    about: dict[str, Any] = {"is_causal": d.flag()}
    if is_flat:
        about |= {"q_num_heads": groups * heads, "kv_num_heads": heads}
    if d.chance(0.3):
        about["softcap"] = d.choose((1.0, 5.0))
    if d.chance(0.3):
        about["scale"] = d.choose((0.5, 1.0))
    about["qk_matmul_output_mode"] = d.number(0, 3)
    return Drawn("Attention", operands, about, d.choose((1, 3, 4)))


@recipe(2)
def _rotary(d: Drawer) -> Drawn:
    dtype = d.type("RotaryEmbedding", ("float32", "float16"))
    batch, heads, steps, size = d.number(1, 2), d.number(1, 3), d.number(1, 4), d.choose((4, 8))
    part = d.choose((0, 0, size // 2))
    half = (part or size) // 2
    is_flat = d.chance(0.5)
    x = d.data(dtype, (batch, steps, heads * size) if is_flat else (batch, heads, steps, size))
    about: dict[str, Any] = {"interleaved": d.flag(), "rotary_embedding_dim": part}
    if is_flat:
        about["num_heads"] = heads
    if d.chance(0.5):
        rows = d.number(1, 9)
        places = d.random.integers(0, rows, (batch, steps))
        tables = [d.data(dtype, (rows, half)) for _ in "cs"]
        return Drawn("RotaryEmbedding", [x, *tables, places], about)
    tables = [d.data(dtype, (batch, steps, half)) for _ in "cs"]
    return Drawn("RotaryEmbedding", [x, *tables], about)


@recipe(1)
def _dropped(d: Drawer) -> Drawn:
    """At inference, whatever the ratio."""
    x = d.data(d.type("Dropout", ("float32", "float64", "float16")), d.shape())
    if d.opset < 12:
        return Drawn("Dropout", [x], {"ratio": 0.3}, d.choose((1, 2)))
    ratio = np.asarray(0.3, np.float32) if d.chance(0.5) else None
    training = np.array(False) if d.chance(0.5) else None
    return Drawn("Dropout", [x, ratio, training], {}, d.choose((1, 2)))
