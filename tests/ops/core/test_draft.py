"""Messages say what sizes are, not what the program calls them."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato import InferenceSession
from ostinato.errors import RunError
from ostinato.ops.core.draft import Draft
from ostinato.sizes.dims import symbol
from tests.golden import parse

LOOP = """
    g (int64 n, float[1, 4] x, float[N, 4] z, bool[M] flags) => (y)
    <bool true = {1}, float[0, 4] none = {}> {
        grown = Loop (n, true, none) <body = step (int64 i, bool c, float[k, 4] h) => (co, h2) {
            piece = Compress <axis = 0> (z, flags)
            h2 = Concat <axis = 0> (h, piece)
            co = Identity(c)
        }>
        y = Add(grown, z)
    }
    """


def test_sizes_that_kernels_compute_are_called_by_their_node() -> None:
    session = InferenceSession(parse(LOOP), cache_dir=None)
    feeds = {"n": np.array(3), "x": np.ones((1, 4), "f"), "z": np.ones((3, 4), "f")}
    with pytest.raises(RunError, match=r"'y' \(Add\).*: \(extent of axis 0 of 'grown'\) and N"):
        session.run(None, {**feeds, "flags": np.ones(3, bool)})


def test_names_of_definitions_are_spelt_out() -> None:
    draft = Draft()
    draft.node = "layer.1"
    counted = draft.size_buffer("rows", 9)
    draft.define("layer.1.1", symbol("N") + 3 * symbol(counted))
    draft.define("layer.1.11", symbol("layer.1.1") + 1)
    told = draft.told("node 'layer.1': layer.1.11 and layer.1.1 differ")
    first = "(N + 3*(rows of 'layer.1'))"
    assert told == f"node 'layer.1': ({first} + 1) and {first} differ"
