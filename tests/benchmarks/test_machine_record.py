"""The loops that measure a machine's record do the work that they are timed for."""

from __future__ import annotations

import numpy as np

from benchmarks.machine_record import CHAINS, LINE, Loops, caches
from ostinato.machine.record import AVX512, KIB


def test_caches_are_those_of_data(tmp_path):
    for number, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K")]
    ):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in (("level", str(level)), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert caches(tmp_path) == {1: 48 * KIB, 2: 2048 * KIB}


def test_rows_are_stored_beside_each_other_and_lanes_a_line_apart():
    loops = Loops(AVX512)
    rows = (1, 2, 4, 8)
    for count in rows:
        loops.add(f"t{count}", lambda w, count=count: loops.transpose(w, count))
    loops.add("stream", loops.stream)
    functions = loops.compile()
    for count in rows:
        memory = np.zeros(LINE * loops.lanes, np.float32)
        functions[f"t{count}"](memory.ctypes.data, 1, 0)
        table = memory.reshape(-1, LINE // 4)[: loops.lanes]
        np.testing.assert_array_equal(table[:, :count], [np.arange(1, count + 1)] * loops.lanes)
        assert not table[:, count:].any()
    data = np.ones(CHAINS * loops.lanes * 3, np.float32)
    total = functions["stream"](data.ctypes.data, 2, data.nbytes)
    np.testing.assert_allclose(total, 2 * 3 * CHAINS * 0.999, rtol=1e-5)
