"""Native code and memory of a process are neither copied nor pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import ostinato
from ostinato.demo import MODEL

STATES = {"state": "state_out"}


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copies_are_refused_by_type_error(duplicate: Callable[[object], object]) -> None:
    session = ostinato.InferenceSession(MODEL)
    x, h = np.ones((3, 1, 161), np.float32), np.zeros((1, 1, 96), np.float32)
    call = session.bind({"magnitude": x, "state": h}, {"mask": x.copy(), "state_out": h.copy()})
    for native in (session, session.stream(STATES), session.pool(STATES, capacity=2), call):
        with pytest.raises(TypeError, match=f"cannot copy or pickle '{type(native).__name__}'"):
            duplicate(native)
