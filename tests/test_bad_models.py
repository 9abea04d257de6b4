"""What cannot be is refused: by an error of ours that names the node, before memory is touched."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato
from tests.bad_models import BAD, GRAPHS, LENIENT, MEMORY
from tests.cases.case import In, node

Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """What became of the variants of a model: those without an outcome ended their process."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bad_models"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    ) as process:
        reader, writer = process.stdout, process.stdin
        assert reader is not None and writer is not None

        def answers() -> list[dict[str, Any]]:
            last: dict[str, dict[str, Any]] = {}
            while (line := reader.readline()) != "\n":
                assert line, "the process has ended"
                record = json.loads(line)
                last[record["name"]] = record
            return list(last.values())

        def ask(name: str) -> list[dict[str, Any]]:
            print(name, file=writer, flush=True)
            return answers()

        answers()  # of the model that it warms up with
        yield ask
    assert process.returncode == 0


@pytest.mark.parametrize("name", [*BAD, *GRAPHS])
def test_a_bad_model_is_refused_by_name(ask: Ask, name: str) -> None:
    records = ask(name)
    assert len(records) >= 2
    for record in records:
        where, outcome = (
            record["name"],
            record.get("outcome", "its process ended, or took too long"),
        )
        if name in LENIENT and outcome == "ran: on a reference kernel":
            continue
        assert outcome.startswith("refused: "), f"{where}: {outcome}"
        assert re.search(r"'n['/]| n\.\d+: ", outcome), f"{where}: {outcome}"
        assert record["grown"] < MEMORY, f"{where}: {record['grown']} bytes"


# Nothing between what fits in any memory and what fits in none.
NUMBERS = st.sampled_from([-(2**63), -(2**40), -2, -1, 0, 1, 2, 3, 4, 7, 2**40, 2**62, 2**63 - 1])
# Steps of two axes; code is made for each pair.
STEPS = st.sampled_from(
    [(1, 1), (2, -1), (-2, 3), (0, 1), (2**63 - 1, -(2**63)), (-(2**40), 2**62), (7, -2)]
)
# op -> how many operands of how many numbers it takes after the value.
OPERANDS = {"Reshape": (1, 2), "Expand": (1, 3), "Tile": (1, 3), "Slice": (4, 2), "Pad": (1, 6)}


@pytest.fixture(scope="module")
def sessions() -> dict[str, ostinato.InferenceSession]:
    """Sessions whose operands are all known at run time only."""
    made = {}
    for op, (count, length) in OPERANDS.items():
        operands = [In((length,), "int64")] * count
        case = node("n", op, In(("A", "B", "C")), *operands, ranks=[3])
        made[op] = ostinato.InferenceSession(case.model, cache_dir=None)
    return made


@settings(max_examples=300, deadline=None, database=None)
@given(
    op=st.sampled_from(sorted(OPERANDS)),
    shape=st.tuples(*[st.integers(0, 4)] * 3),
    numbers=st.lists(NUMBERS, min_size=6, max_size=6),
    steps=STEPS,
)
def test_any_numbers_are_refused_or_right(
    sessions: dict[str, ostinato.InferenceSession],
    op: str,
    shape: tuple[int, ...],
    numbers: list[int],
    steps: tuple[int, int],
) -> None:
    count, length = OPERANDS[op]
    numbers = [*numbers, *steps]
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    operands = [np.array(numbers[i * length :][:length], np.int64) for i in range(count)]
    feeds = {"x0": x, **{f"x{i + 1}": values for i, values in enumerate(operands)}}
    try:
        (got,) = sessions[op].run(None, feeds)
    except ostinato.OstinatoError as error:
        assert str(error)
        return
    expected = {
        "Reshape": lambda shape: x.reshape(
            [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
        ),
        "Expand": lambda to: x * np.ones(to, np.float32),
        "Tile": lambda counts: np.tile(x, counts),
        "Slice": sliced,
        "Pad": padded,
    }[op]
    want = expected(x, *operands) if op in ("Slice", "Pad") else expected(operands[0].tolist())
    np.testing.assert_array_equal(got, want)


def sliced(x: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    for start, end, axis, step in zip(*(values.tolist() for values in operands), strict=True):
        # NumPy's slices take None for what lies before the first element.
        end = None if step < 0 and end < -x.shape[axis] else end
        # The documents of Slice-13 clamp what falls from before the front to the first element.
        start = max(start, -x.shape[axis]) if step < 0 else start
        index = [slice(None)] * x.ndim
        index[axis] = slice(start, end, step)
        x = x[tuple(index)]
    return x


def padded(x: np.ndarray, pads: np.ndarray) -> np.ndarray:
    for axis, (before, after) in enumerate(zip(*pads.reshape(2, -1).tolist(), strict=True)):
        n = x.shape[axis]
        shape = list(x.shape)
        shape[axis] = n + before + after
        result = np.zeros(shape, x.dtype)
        places = [i for i in range(shape[axis]) if 0 <= i - before < n]
        index = (*[slice(None)] * axis, places)
        result[index] = x.take([i - before for i in places], axis)
        x = result
    return x
