from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.codegen.machine import emit_object
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.target import host_target
from ostinato.program.dims import ceildiv, evaluate, floordiv, maximum, minimum, symbol

N, T = symbol("N"), symbol("T")
SIZES = [
    0, 7, -3, N, T, N * T, N + T, N - 2 * T, 3 * N * N - T + 5, floordiv(N - 7, 3), floordiv(N, T),
    floordiv(5 - N, T - 4), ceildiv(N * T, 16), maximum(N - 3, T), minimum(N * T, 10),
    floordiv(maximum(N, T) * 5 + 1, 2) * N,
]  # fmt: skip


def test_sizes_are_computed_like_in_python():
    declarations: set[str] = set()
    sizes = Sizes(("N", "T"), declarations)
    lines = [
        f"  %at{i} = getelementptr i64, ptr %out, i64 {i}\n"
        f"  store i64 {sizes.value(size).text}, ptr %at{i}"
        for i, size in enumerate(SIZES)
    ]
    text = "\n".join(
        [
            f'target triple = "{host_target().triple}"',
            "define void @f(ptr %symbols, ptr %out) {",
            sizes.text(),
            *lines,
            "  ret void\n}",
            *declarations,
        ]
    )
    loaded = objects.load(emit_object(text, host_target()), ["f"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("f"))
    out = np.zeros(len(SIZES), np.int64)
    for n in (0, 1, 2, 7, 100):
        for t in (0, 1, 3, 4, 5, 64):
            values = {"N": n, "T": t}
            call(np.array([n, t]).ctypes.data, out.ctypes.data)
            for size, got in zip(SIZES, out.tolist(), strict=True):
                try:
                    assert got == evaluate(size, values), f"{size} for {values}"
                except ZeroDivisionError:
                    assert t in (0, 4)


def test_a_size_is_written_once():
    sizes = Sizes(("N", "T"), set())
    first = sizes.value(N * T + 1)
    written = sizes.text()
    assert sizes.value(N * T + 1) == first
    assert sizes.value(N) is not None
    assert sizes.text() == written
    assert written.count("load i64") == 2


def test_numbers_need_no_instruction():
    sizes = Sizes((), set())
    assert sizes.value(12) == ("12", "i64")
    assert sizes.text() == ""


def test_unknown_symbols_are_an_error():
    with pytest.raises(KeyError):
        Sizes(("N",), set()).value(T)
