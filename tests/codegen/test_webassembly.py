"""What WebAssembly's instructions are made of: 16-bit floats, offsets, and what there is not."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from ostinato.codegen import objects, webassembly
from ostinato.codegen.llvm import emit_assembly, emit_object
from ostinato.codegen.module import module_text
from ostinato.codegen.runtime_functions import complete
from ostinato.codegen.target import find_target, host_target
from ostinato.codegen.writer import Value, Writer, vector
from ostinato.program.expr import Axis, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.laid import lay_out
from ostinato.program.nodes import Program
from ostinato.schedule.pipeline import schedule
from tests.program.programs import at, gru, pointwise, program, store

LANES = 8
BITS = np.arange(1 << 16, dtype=np.uint16)
WEIGHTS = np.zeros((3, 16, 16), np.float32)


def converted(make: Any, source: str, target: str, values: np.ndarray, dtype: Any) -> np.ndarray:
    """What instructions that `make` writes give for all values, computed by this machine."""
    w = Writer(set())
    from_type, to_type = vector(source, LANES), vector(target, LANES)
    with w.loop(Value("0", "i64"), Value(str(values.size), "i64"), LANES) as loop:
        place = w.pointer(Value("%from", "ptr"), loop.index, source)
        value = w.emit(from_type, f"load {from_type}, ptr {place.text}, align 1")
        result = make(w, value, LANES)
        place = w.pointer(Value("%to", "ptr"), loop.index, target)
        w.line(f"store {to_type} {result.text}, ptr {place.text}, align 1")
    function = f"define void @f(ptr %from, ptr %to) {{\nentry:\n{w.text()}\n  ret void\n}}\n"
    code = objects.load(emit_object(function, host_target()), ("f",))
    found = np.empty(values.size, dtype)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("f"))
    call(values.ctypes.data, found.ctypes.data)
    return found


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    bits = f"u{found.dtype.itemsize}"
    equal = found.view(bits) == expected.view(bits)
    return bool((equal | (np.isnan(found) & np.isnan(expected))).all())


def test_every_float16_becomes_its_float32():
    found = converted(webassembly.widen_half, "i16", "float", BITS, np.float32)
    assert same(found, BITS.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("step", [-2, -1, 0, 1, 2])
def test_float32_near_every_float16_and_halfway_between_them_round_to_even(step):
    exact = BITS.view(np.float16).astype(np.float32)
    above = np.roll(exact, -1)
    with np.errstate(all="ignore"):
        values = np.concatenate([exact, (exact + above) / 2, np.float32([65520, 1e6, np.inf])])
        values = np.concatenate([values, np.zeros(-values.size % LANES, np.float32)])
        values = (values.view(np.int32) + np.int32(step)).view(np.float32)
        expected = values.astype(np.float16)
    found = converted(webassembly.narrow_half, "float", "i16", values, np.uint16)
    assert same(found.view(np.float16), expected)


def assembly(source: Program, target: str) -> str:
    found = find_target(target)
    scheduled = schedule(source, found.machine)
    blob = lay_out(scheduled.program.constants)
    return emit_assembly(module_text(scheduled.program, scheduled.arena, blob, found), found)


def test_products_are_fused_and_addresses_are_offsets():
    text = assembly(gru(16, WEIGHTS), "wasm")
    assert "relaxed_madd" in text and "fma" not in text.replace("fmadd", "")
    loads = [line for line in text.splitlines() if "v128.load\t" in line]
    assert sum(not line.endswith("\t0") for line in loads) > len(loads) // 2


@pytest.mark.parametrize("depth", [63, 64])
def test_blocks_have_few_products(depth):
    """Be the terms a multiple of the loop's copies or not: LLVM sees through a branch that is."""
    j, k = Axis("j", 8), Axis("k", depth)
    sums = Reduce((k,), "sum", at("x", (k, 1)), at("w", (k, 8), (j, 1)))
    kernel = Kernel("k", (j,), (sums,), (store("y", Reduced(0, "float32"), (j, 1)),))
    source = program({"x": (depth,), "w": (depth, 8)}, {"y": (8,)}, (kernel,))
    blocks = [block.count("relaxed_madd") for block in assembly(source, "wasm").split("br_if")]
    assert len(blocks) > 8 and max(blocks) == 2


def test_an_engine_without_fused_products_computes_them_in_float64():
    text = assembly(gru(16, WEIGHTS), "wasm-baseline")
    assert "relaxed" not in text and "f64x2.mul" in text


def test_only_functions_that_are_called_are_defined():
    plain = {"declare float @llvm.sqrt.f32(float)"}
    assert complete(plain, 64) == sorted(plain)
    (declared, product) = complete(plain, 32)
    assert declared in plain and "@__multi3" in product


def test_no_relaxed_minimum_decides_what_becomes_of_nan():
    low = constant(-1.0, "float32")
    text = assembly(pointwise(lambda x: op("select", op("ge", x, low), x, low), 16), "wasm")
    assert "relaxed_laneselect" in text and "relaxed_max" not in text


@pytest.mark.parametrize("name", ["lt", "gt"])
@pytest.mark.parametrize("keeps_lesser", [True, False])
def test_the_lesser_or_the_greater_of_two_is_one_instruction(name, keeps_lesser):
    low = constant(-1.0, "float32")
    is_first = keeps_lesser == (name == "lt")
    source = pointwise(
        lambda x: op("select", op(name, x, low), *((x, low) if is_first else (low, x))), 16
    )
    text = assembly(source, "wasm")
    named = "pmin" if keeps_lesser else "pmax"
    assert f"f32x4.{named}" in text and "laneselect" not in text and "f32x4.lt" not in text
