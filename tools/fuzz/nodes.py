"""Random single nodes of all operators and versions: what the other runtimes compute.

Each is also computed with all of its operands constant, and with none, which must not change a bit:
what is computed while compiling is what a run computes. What moves elements moves strings as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import ostinato
from tools.fuzz import (
    node_elements,
    node_indices,
    node_moves,
    node_networks,
    node_sums,
    node_windows,
)
from tools.fuzz.graphs import Outcome, judged
from tools.fuzz.modes import Feeds, Mode, mode_of
from tools.fuzz.node_strings import AsStrings, moved_elements
from tools.fuzz.random_node import random_node
from tools.fuzz.seeds import try_seeds

__all__ = [
    "node_elements",
    "node_indices",
    "node_moves",
    "node_networks",
    "node_sums",
    "node_windows",
]


class Given(Mode):
    """The mode of a model whose operands are all inputs, or all constants."""

    def run(self, session: ostinato.InferenceSession, model: bytes, feeds: Feeds) -> list[Any]:
        """The outputs of the other model."""
        other = onnx.ModelProto.FromString(model)
        graph = other.graph
        if self.name == "all constant":
            made = [numpy_helper.from_array(array, name) for name, array in feeds.items()]
            graph.initializer.extend(made)
            del graph.input[:]
            feeds = {}
        else:
            arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
            for name, array in arrays.items():
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
            del graph.initializer[:]
            feeds = {**feeds, **arrays}
        data = other.SerializeToString()
        return ostinato.InferenceSession(data, cache_dir=None).run(None, dict(feeds))


def tried(seed: int) -> Outcome:
    """Run one node everywhere; axes that are too small for its windows count apart."""
    model, feeds = random_node(seed)
    chosen = np.random.default_rng(seed + 2**34).integers(3)
    names = ("all constant", "all inputs")
    # Products with keys that are joined to constant ones are another sum.
    is_alike = chosen < 2 and model.graph.node[0].op_type != "Attention"
    mode = Given(names[chosen]) if is_alike else mode_of(seed, model, feeds)
    if seed % 2 and moved_elements(model):
        mode = AsStrings("strings")
    outcome = judged(model, feeds, mode)
    # NumPy takes windows and slices that are larger than an axis for empty ones.
    is_small = outcome.kind in ("refused", "run fails") and "negative" in outcome.message
    return outcome.too_small() if is_small else outcome


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try nodes from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: random_node(n)[0], seconds, seed, count, folder)
