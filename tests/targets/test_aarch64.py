"""Code for AArch64 computes the bits that x86-64 does, executed by an emulator.

A sample, one case of each kind: `python -m tools.digests --target cortex-a53` runs all of them, and
so for every target of that architecture.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import cycle

import pytest

import ostinato
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.target import find_target
from ostinato.compiler import compile_model, stages
from ostinato.options import Options
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.digests import RECORDED, digest
from tests.targets.aarch64 import FAILED, MEMORY_FUNCTIONS, EmulatedObject, emulated
from tests.targets.elf import Object

# Those with instructions for dots of bytes, and one of the largest cores.
WITH_DOTS = ("raspberry-pi-5", "graviton3")
LARGEST = "aarch64-unknown-linux-gnu:apple-m1:+dotprod"
RECORDED_CASES = [case for case in CASES if case.name in RECORDED]


def sample() -> Iterator[Case]:
    kinds: set[str] = set()
    for case in RECORDED_CASES:
        kind = case.name.partition("-")[0]
        if kind not in kinds:
            yield case
        kinds.add(kind)


def of(*words: str) -> list[Case]:
    return [case for case in RECORDED_CASES if case.name.startswith(words)]


def check(case: Case, target: str) -> None:
    with emulated():
        session = ostinato.InferenceSession(case.model, target=target, cache_dir=None)
        found = digest([session.run(None, case.feeds(sizes)) for sizes in case.sizes])
    assert found == RECORDED[case.name]


@pytest.mark.parametrize("case", list(sample()), ids=lambda case: case.name)
def test_small_cores_compute_the_same_bits(case):
    check(case, "cortex-a53")


OF_BYTES = of("MatMulInteger", "QLinearMatMul", "ConvInteger")


# One core after the other: cases of an operator meet each.
@pytest.mark.parametrize(
    ("case", "target"),
    list(zip(OF_BYTES, cycle(WITH_DOTS), strict=False)),
    ids=lambda one: getattr(one, "name", one),
)
def test_dots_of_bytes_have_the_same_bits(case, target):
    check(case, target)


@pytest.mark.parametrize("target", WITH_DOTS)
@pytest.mark.parametrize("case", of("int8-blocks"), ids=lambda case: case.name)
def test_dots_of_few_bits_have_the_same_bits(case, target):
    check(case, target)


@pytest.mark.parametrize(
    "case", of("GRU-f64", "LSTM-plain", "MatMul-f16", "Conv-1d", "Cast-f"), ids=lambda c: c.name
)
def test_large_cores_compute_the_same_bits(case):
    check(case, LARGEST)


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("cortex-a53", "saddlp"),
        ("raspberry-pi-5", "\tsdot"),
        ("graviton3", "\tusdot"),
        ("x86_64-unknown-linux-gnu:x86-64-v4:+avx512vnni", "vpdpbusd"),
    ],
)
def test_dots_are_the_instruction_that_the_cpu_has(target, instruction):
    (case,) = of("MatMulInteger-uint8-int8-plain")
    floors = dict(stages(case.model, Options(target=target, cache_dir=None)))
    assert instruction in floors["asm"]
    # The scalable vectors of a CPU are left alone.
    assert "whilelo" not in floors["asm"] and "ptrue" not in floors["asm"]


@pytest.mark.parametrize("target", ["cortex-a53", "graviton3"])
@pytest.mark.parametrize("case", of("Cast-float16", "Cast-bfloat16"), ids=lambda case: case.name)
def test_conversions_of_short_floats_call_nothing(case, target):
    compiled = compile_model(case.model, Options(target=target, cache_dir=None))
    for stage in compiled.stages:
        assert Object(bytes(stage.artifact.object_code)).undefined <= MEMORY_FUNCTIONS.keys()


def test_a_fault_of_emulated_code_is_an_error():
    text = f"""
        target triple = "{find_target(LARGEST).triple}"
        define i64 @f(ptr %at, ptr %none) {{
          %value = load i64, ptr %none
          ret i64 %value
        }}
        """
    called = EmulatedObject(emit_object(text, find_target(LARGEST)), ["f"])
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    with pytest.raises(AssertionError, match="Invalid memory read"), emulated():
        assert function(called.address("f"))(0, 8) == FAILED
