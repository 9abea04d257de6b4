from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.sizes import CheckedSizes, Sizes
from ostinato.codegen.target import host_target
from ostinato.codegen.writer import Value
from ostinato.sizes.dims import ceildiv, floordiv, maximum, minimum, symbol, wrap
from ostinato.sizes.substitution import evaluate

N, T = symbol("N"), symbol("T")
SIZES = [
    0, 7, -3, N, T, N * T, N + T, N - 2 * T, 3 * N * N - T + 5, floordiv(N - 7, 3), floordiv(N, T),
    floordiv(5 - N, T - 4), ceildiv(N * T, 16), maximum(N - 3, T), minimum(N * T, 10),
    floordiv(maximum(N, T) * 5 + 1, 2) * N, floordiv(T - N, 8) + 3 * N, floordiv(2 * T - 5 * N, 6),
    wrap(3 * N - T, 8) * T, wrap(N * T + 1, 2**32),
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
    assert sizes.value(12) == Value("12", "i64")
    assert sizes.text() == ""


def test_unknown_symbols_are_an_error():
    with pytest.raises(KeyError):
        Sizes(("N",), set()).value(T)


PRODUCT = symbol("v", signed=True) * symbol("w", signed=True) + symbol("v", signed=True)


def test_sizes_beyond_64_bits_are_noticed() -> None:
    """Also those that other sizes are defined by."""
    declarations: set[str] = set()
    sizes = CheckedSizes(("v", "w", "d"), declarations)
    first = sizes.define("d", PRODUCT)
    second = sizes.value(symbol("d") * 2)
    assert sizes.overflow is not None
    lines = [
        f'target triple = "{host_target().triple}"',
        "define i64 @f(ptr %symbols, ptr %out) {",
        sizes.text(),
        f"  %sum = add i64 {first.text}, {second.text}",
        "  store i64 %sum, ptr %out",
        f"  %flag = zext i1 {sizes.overflow.text} to i64",
        "  ret i64 %flag\n}",
        *declarations,
    ]
    loaded = objects.load(emit_object("\n".join(lines), host_target()), ["f"])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("f"))
    numbers = (0, -1, 5, 2**31, -(2**40), 2**62, 2**63 - 1, -(2**63))
    out = np.zeros(1, np.int64)
    for v in numbers:
        for w in numbers:
            overflows = call(np.array([v, w, 0]).ctypes.data, out.ctypes.data)
            exact = v * w, v * w + v, 2 * (v * w + v)
            assert bool(overflows) == any(not -(2**63) <= n < 2**63 for n in exact), (v, w)
            if not overflows:
                assert out[0] == 3 * (v * w + v) or abs(3 * (v * w + v)) >= 2**63


def test_the_smallest_integer_by_minus_one_ends_no_process() -> None:
    declarations: set[str] = set()
    sizes = Sizes(("v", "w"), declarations)
    quotient = sizes.value(floordiv(symbol("v", signed=True), symbol("w", signed=True)))
    lines = [
        f'target triple = "{host_target().triple}"',
        "define i64 @f(ptr %symbols) {",
        sizes.text(),
        f"  ret i64 {quotient.text}\n}}",
        *declarations,
    ]
    loaded = objects.load(emit_object("\n".join(lines), host_target()), ["f"])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(loaded.address("f"))
    assert call(np.array([-(2**63), -1]).ctypes.data) == -(2**63)
    assert call(np.array([-(2**63), 0]).ctypes.data) == -(2**63)
    assert call(np.array([7, -2]).ctypes.data) == -4
