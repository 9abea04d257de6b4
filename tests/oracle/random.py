"""Philox 4x32-10 in NumPy, and the operators that draw from it, as docs/numerics.md says.

Of a node in a graph only a seed that is given is known here: no number of the node, no steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from tests.oracle.graph import Array, Node, op

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(counter: Array, key: Sequence[int]) -> Array:
    """uint64[.., 4] of 32 bits each, from counters of the same shape; two words of key."""
    c = [np.asarray(counter, np.uint64)[..., i] for i in range(4)]
    k = [np.uint64(word) for word in key]
    with np.errstate(over="ignore"):
        for _ in range(10):
            a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
            c = [(b >> HALF) ^ c[1] ^ k[0], b & LOW, (a >> HALF) ^ c[3] ^ k[1], a & LOW]
            k = [(k[0] + np.uint64(0x9E3779B9)) & LOW, (k[1] + np.uint64(0xBB67AE85)) & LOW]
    return np.stack(c, -1)


def fold(key: Sequence[int], number: int) -> list[int]:
    """The key that follows from a key and a number of 64 bits."""
    number %= 2**64
    return [int(w) for w in philox([number % 2**32, number >> 32, 0, 1], key)[:2]]


def words(
    count: int, seed: float | None, number: int = 1, steps: Sequence[int] = (), session: int = 0
) -> Array:
    """uint64[count, 4]: what each element of a node draws in this step of the loops around it.

    number: of the node among the random ones of the model, if it has no seed.
    """
    bits = number if seed is None else int(np.float64(seed).view(np.uint64))
    key = fold([session % 2**32, session % 2**64 >> 32], bits)
    for step in steps:
        key = fold(key, step)
    element = np.arange(count, dtype=np.uint64)
    zero = np.zeros_like(element)
    return philox(np.stack([element & LOW, element >> HALF, zero, zero], -1), key)


def uniform(drawn: Array, double: bool = False) -> Array:
    """float64 in [0, 1), with 24 or 53 bits."""
    if not double:
        return (drawn[..., 0] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    high, low = drawn[..., 0] >> np.uint64(5), drawn[..., 1] >> np.uint64(6)
    return (high.astype(np.float64) * 2.0**26 + low.astype(np.float64)) * 2.0**-53


def normal(drawn: Array, double: bool = False) -> Array:
    """float64, of the standard normal distribution."""
    if double:
        share, turn = uniform(drawn, True) + 2.0**-54, uniform(drawn[..., 2:], True)
    else:
        share = ((drawn[..., 0] >> np.uint64(1)).astype(np.float32) + np.float32(0.5)) * 2.0**-31
        turn = uniform(drawn[..., 1:])
    return np.sqrt(-2 * np.log(share.astype(np.float64))) * np.cos(2 * np.pi * turn)


def _drawn(node: Node, shape: Sequence[int]) -> Array:
    assert node.get("seed") is not None, "only numbers with a seed are known here"
    return words(int(np.prod(shape)), node.get("seed")).reshape(*shape, 4)


def _is_double(node: Node) -> bool:
    return bool(helper.tensor_dtype_to_np_dtype(node.get("dtype", 1)) == np.float64)


@op("RandomNormal", "RandomNormalLike")
def _random_normal(node: Node, like: Array | None = None) -> Array:
    shape = node.get("shape") if like is None else like.shape
    drawn = normal(_drawn(node, shape), _is_double(node))
    return drawn * node.get("scale", 1.0) + node.get("mean", 0.0)


@op("RandomUniform", "RandomUniformLike")
def _random_uniform(node: Node, like: Array | None = None) -> Array:
    shape, low = node.get("shape") if like is None else like.shape, node.get("low", 0.0)
    drawn = uniform(_drawn(node, shape), _is_double(node))
    return drawn * (node.get("high", 1.0) - low) + low


@op("Bernoulli")
def _bernoulli(node: Node, p: Array) -> Array:
    drawn = (uniform(_drawn(node, p.shape)) < p).astype(np.int64)
    return drawn.astype(helper.tensor_dtype_to_np_dtype(node.get("dtype", 1)))


@op("Multinomial")
def _multinomial(node: Node, logits: Array) -> Array:
    count = node.get("sample_size", 1)
    sums = np.cumsum(np.exp(logits - logits.max(1, keepdims=True)), 1)
    drawn = uniform(_drawn(node, (len(logits), count)), True) * sums[:, -1:]
    found = [np.searchsorted(s, u, side="right") for s, u in zip(sums, drawn, strict=True)]
    return np.array(found, np.int64).reshape(len(logits), count)


@op("Dropout")
def _dropout(
    node: Node, x: Array, ratio: Array | None = None, training: Array | None = None
) -> list[Array]:
    trains = not node.get("is_test", 0) if node.opset < 7 else training is not None and training
    if not trains:
        return [x, np.ones(x.shape, bool)]
    share = node.get("ratio", 0.5) if ratio is None else float(ratio)
    kept = uniform(_drawn(node, x.shape)) >= share
    return [x * kept / (1 - share), kept]
