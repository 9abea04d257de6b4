from __future__ import annotations

import numpy as np
import pytest

from ostinato.machine.record import Machine
from ostinato.program import interpreter
from ostinato.program.expr import Axis, Op, Reduced, cast, constant
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.byte_fields import ByteField
from ostinato.schedule.pipeline import schedule
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results

BLOCKS, COLUMNS = 3, 20


def terms_of_words(most: int, words: int = 4) -> Program:
    """Sums whose terms multiply `words` words of weights from 0 to `most`, one after the other."""
    block, column = Axis("block", BLOCKS), Axis("column", COLUMNS)
    total = constant(0, "int32")
    for n in range(words):
        place = ((block, words * COLUMNS), (column, 1))
        weight = at("w", *place, offset=n * COLUMNS, dtype="int32")
        byte = at("q", (block, words), offset=n, dtype="int32")
        total = Op("dot", (weight, byte, total), "int32")
    reduce = Reduce((block,), "sum", at("x", (block, 1)), cast(total, "float32"))
    kernel = Kernel("k", (column,), (reduce,), (store("y", Reduced(0, "float32"), (column, 1)),))
    random = np.random.default_rng(most)
    bytes_ = random.integers(0, most + 1, (BLOCKS * words * COLUMNS, 4)).astype(np.uint8)
    bytes_[0] = most
    return program(
        {"x": (BLOCKS,), "q": (BLOCKS * words,)},
        {"y": (COLUMNS,)},
        (kernel,),
        {"w": bytes_.view("<i4")[:, 0]},
        dtypes={"q": "int32"},
    )


@pytest.mark.parametrize(
    ("most", "words", "count"),
    [(3, 4, 4), (3, 2, 2), (15, 4, 2), (15, 3, 1), (16, 4, 1), (3, 1, 1), (255, 4, 1)],
)
def test_words_of_few_bits_share_a_word(most: int, words: int, count: int) -> None:
    source = terms_of_words(most, words)
    scheduled = schedule(source, Machine(64, 32)).program
    (packed,) = (c for name, c in scheduled.constants.items() if name.startswith("packed"))
    assert packed.size == 32 * BLOCKS * words // count
    assert_same_results(source, scheduled)


@pytest.mark.parametrize("bits", [2, 4])
def test_each_word_is_read_where_it_was_packed(bits: int) -> None:
    field, random = ByteField(bits), np.random.default_rng(bits)
    bytes_ = random.integers(0, 1 << bits, (5, field.count, 8, 4)).astype(np.uint8)
    words = bytes_.view("<i4")[..., 0]
    packed = field.packed(words).reshape(-1)
    lane = Axis("lane", packed.size)
    loads = [field.reading(at("w", (lane, 1), dtype="int32"), n) for n in range(field.count)]
    for number, value in enumerate(loads):
        kernel = Kernel("k", (lane,), (), (store("y", value, (lane, 1)),))
        source = program({}, {"y": (packed.size,)}, (kernel,), {"w": packed}, dtypes={"y": "int32"})
        (got,) = interpreter.run(source, {}).values()
        assert np.array_equal(got.reshape(5, 8), words[:, number])
