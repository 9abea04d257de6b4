"""Random valid models: loops, branches, captures, functions, run-time sizes, empty axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from tools.fuzz import random_bodies, random_moves, random_operators, random_others, random_rare
from tools.fuzz.random_graph import (
    DOMAIN,
    LIKELY,
    MOST_ELEMENTS,
    OPERATORS,
    OPSET,
    Array,
    Builder,
    Counter,
    Value,
    grow,
    random_data,
)

__all__ = [
    "OPERATORS",
    "random_bodies",
    "random_model",
    "random_moves",
    "random_operators",
    "random_others",
    "random_rare",
]


def random_model(
    seed: int, operators: Sequence[Callable[[Builder], None]] = OPERATORS, most: int = 11
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of fewer than `most` of these operators, and its inputs."""
    random = np.random.default_rng(seed)
    b = Builder(random, Counter(), {})
    pool = {"N": b.choose((1, 1, 2, 3)), "M": b.choose((1, 2, 3)), "T": b.choose((1, 4, 5, 7))}
    pool["Z"] = b.choose((0, 1, 2))
    feeds: dict[str, Array] = {}
    infos = []
    for _ in range(int(random.integers(1, 5))):
        rank = b.choose((0, 1, 2, 2, 3, 3, 4))
        declared = [
            b.choose(("N", "M", "T", "Z")) if b.chance(0.5) else b.choose((1, 2, 3, 3, 4, 8, 17))
            for _ in range(rank)
        ]
        if b.chance(0.85):
            declared = ["N" if n == "Z" else n for n in declared]
        shape = tuple(pool.get(n, n) for n in declared)
        if math.prod(shape) > MOST_ELEMENTS:
            continue
        value = Value(b.names.next(), b.choose(LIKELY), shape, True)
        b.values.append(value)
        number = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        infos.append(helper.make_tensor_value_info(value.name, number, declared))
        feeds[value.name] = random_data(random, value.dtype, shape)
    b.constant(b.data("float32", (b.choose((1, 3)),)), is_value=True)
    grow(b, int(random.integers(2, most)), operators)
    inputs, own = set(feeds), {t.name for t in b.constants}
    made = [v for v in b.values if v.name not in inputs | own]
    if not made:
        return random_model(seed + 1_000_003, operators, most)
    count = min(len(made), int(random.integers(1, 4)))
    chosen = {len(made) - 1, *(int(i) for i in random.choice(len(made), count, replace=False))}
    outputs = []
    for i in sorted(chosen):
        number = helper.np_dtype_to_tensor_dtype(np.dtype(made[i].dtype))
        axes = [None] * len(made[i].shape)
        outputs.append(helper.make_tensor_value_info(made[i].name, number, axes))
    graph = helper.make_graph(b.nodes, f"random{seed}", infos, outputs, b.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=8, functions=list(b.functions.values())
    )
    return model, feeds
